//! Why a command ends without success.

use std::fmt::Display;

pub(crate) use dendro_daemon::Failure;

/// Exit codes, as e2fsprogs and mount(8) have them.
pub(crate) mod code {
    /// The command could not be carried out.
    pub(crate) const FAILED: u8 = 1;
    /// The command makes no sense. mount(8) has 1 for it.
    pub(crate) const USAGE: u8 = 2;
    /// `dendro try`: the command was not run, or what it did not taken over; as of timeout(1) and
    /// the like, so that it is not taken for the command's own.
    pub(crate) const TRY_FAILED: u8 = 125;
    /// fsck(8): what was wrong was mended.
    pub(crate) const CHECK_MENDED: u8 = 1;
    /// fsck(8): something is wrong and was not mended.
    pub(crate) const CHECK_LEFT: u8 = 4;
    /// fsck(8): it could not be checked.
    pub(crate) const CHECK_FAILED: u8 = 8;
    /// fsck(8): the command makes no sense.
    pub(crate) const CHECK_USAGE: u8 = 16;
    /// mount(8): mount or unmount failed.
    pub(crate) const MOUNT_FAILED: u8 = 32;
    /// mount(8): incorrect invocation or permissions.
    pub(crate) const MOUNT_USAGE: u8 = 1;
}

/// What makes no sense on the command line.
pub(crate) fn usage(why: impl Display) -> Failure {
    Failure::new(why).with_code(code::USAGE)
}
