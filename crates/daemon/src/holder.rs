//! Which daemon has a volume.

use std::path::Path;

use dendro_control::{Client, Found, Mute, Pong};
use dendro_device::loop_backing_file;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

use crate::failure::Failure;

/// The daemon that has mounts of the volume on `source`. One without mounts is about to end, and has
/// given up the device or does so any moment.
pub fn find(source: &Path) -> Found {
    let has_it = |pong: &Pong| is_same_volume(Path::new(&pong.source), source);
    Client::find(|pong| !pong.views.is_empty() && has_it(pong), has_it)
}

/// Whether both are one image or one block device, whatever their names.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        // An image may lie on a file system that does not answer.
        let wanted = StatxFlags::TYPE | StatxFlags::INO;
        let told = statx(CWD, path, AtFlags::STATX_DONT_SYNC, wanted).ok()?;
        let is_block = FileType::from_raw_mode(told.stx_mode.into()) == FileType::BlockDevice;
        // All device files of one device have its number.
        Some(if is_block {
            (true, (told.stx_rdev_major, told.stx_rdev_minor), 0)
        } else {
            (false, (told.stx_dev_major, told.stx_dev_minor), told.stx_ino)
        })
    };
    one == other
        || identity(one).is_some_and(|identity_of_one| identity(other) == Some(identity_of_one))
}

/// Whether both are one image or one block device, whatever their names, or one is a loop device that
/// stands for the other.
pub fn is_same_volume(one: &Path, other: &Path) -> bool {
    let behind = |path: &Path| loop_backing_file(path).unwrap_or_else(|| path.to_path_buf());
    is_same_file(one, other) || is_same_file(&behind(one), &behind(other))
}

/// The daemon that has mounts of the volume on `source`. It is an error if that does not answer.
pub fn answering(source: &Path) -> Result<Option<(Client, Pong)>, Failure> {
    match find(source) {
        Found::Nobody => Ok(None),
        Found::Daemon(found) => Ok(Some(*found)),
        Found::Mute(mute) => Err(mute_failure(source, &mute)),
    }
}

/// Nothing can be mounted of a volume whose daemon is silent.
fn mute_failure(source: &Path, mute: &Mute) -> Failure {
    Failure::new(format_args!("{} is in use: {mute}", source.display()))
}
