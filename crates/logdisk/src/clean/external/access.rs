//! What the operations of external cleaners work on.

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_disk::Result;

use crate::checkpoint::Checkpointer;
use crate::space::reserve::Accounts;
use crate::volume::Volume;

/// The operations of external cleaners, and statistics of what these had done.
pub(crate) struct ExternalAccess {
    pub(super) volume: Arc<Volume>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) checkpointer: Arc<Checkpointer>,
    pub(super) moved_bytes: AtomicU64,
    pub(super) released_segments: AtomicU64,
}

impl ExternalAccess {
    pub(crate) const fn new(
        volume: Arc<Volume>,
        accounts: Arc<Accounts>,
        checkpointer: Arc<Checkpointer>,
    ) -> Self {
        let (moved_bytes, released_segments) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { volume, accounts, checkpointer, moved_bytes, released_segments }
    }

    /// Bytes of blocks moved, and segments released.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.moved_bytes.load(Ordering::Relaxed), self.released_segments.load(Ordering::Relaxed))
    }

    /// Returns an error if the disk takes no changes.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.volume.check_writable(&self.volume.read())
    }
}
