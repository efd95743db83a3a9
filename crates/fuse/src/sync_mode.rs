//! Which changes are durable before the reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which changes are durable before the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncMode {
    /// Writes for which the kernel requests it, because of the open file or the mount.
    Writes,
    /// These, and changes of names (`dirsync`).
    Names,
    /// All changes (`sync`).
    All,
}

/// Changes which changes of a mount are durable before the reply. All clones are of one mount.
#[derive(Clone, Debug)]
pub struct SyncSwitch {
    /// Whether changes of names are durable in any case (`dirsync`).
    names: bool,
    /// Whether all changes are durable (`sync`).
    all: Arc<AtomicBool>,
}

impl SyncSwitch {
    /// The state of a new mount with the options `sync` and `dirsync`.
    pub(crate) fn new(sync: bool, dirsync: bool) -> Self {
        Self { names: dirsync, all: Arc::new(AtomicBool::new(sync)) }
    }

    /// Sets whether each change is durable before its reply. When this returns, it holds for each
    /// request that arrives later.
    pub fn set_sync(&self, sync: bool) {
        self.all.store(sync, Ordering::SeqCst);
    }

    /// Which changes are durable now.
    pub(crate) fn mode(&self) -> SyncMode {
        match (self.all.load(Ordering::SeqCst), self.names) {
            (true, _) => SyncMode::All,
            (false, true) => SyncMode::Names,
            (false, false) => SyncMode::Writes,
        }
    }
}
