//! When reading a file changes its access time.

use dendro_base::Timestamp;
use dendro_base::sync::atomic::{AtomicU8, Ordering};

use crate::layout::inode::Inode;
use crate::types::{AtimePolicy, FileFlags, FileTime};

/// How old an access time may get under [`AtimePolicy::Relatime`].
const RELATIME_AGE_NANOS: i64 = 24 * 60 * 60 * 1_000_000_000;

/// The policy in force, which can change while the file system is mounted.
#[derive(Debug)]
pub(super) struct AccessTimes {
    /// An [`AtimePolicy`].
    policy: AtomicU8,
}

impl AccessTimes {
    pub(super) fn new(policy: AtimePolicy) -> Self {
        Self { policy: AtomicU8::new(policy as u8) }
    }

    pub(super) fn set(&self, policy: AtimePolicy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
    }

    /// Whether reads may change the access time of this file at all.
    pub(super) fn are_kept(&self, inode: &Inode) -> bool {
        self.policy.load(Ordering::Relaxed) != AtimePolicy::Noatime as u8
            && !inode.flags.contains(FileFlags::NO_ATIME)
    }

    /// Whether a read at `now` of a file whose access time is `atime` changes that time.
    pub(super) fn is_due(&self, atime: FileTime, inode: &Inode, now: Timestamp) -> bool {
        if self.policy.load(Ordering::Relaxed) != AtimePolicy::Relatime as u8 {
            return true;
        }
        let day_ago = Timestamp(now.0.saturating_sub(RELATIME_AGE_NANOS));
        atime <= inode.mtime || atime <= inode.ctime || atime <= day_ago.into()
    }
}
