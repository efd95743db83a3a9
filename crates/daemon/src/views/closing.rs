//! The end of a mount: its file system is closed once.

use std::sync::atomic::{AtomicBool, Ordering};

use dendro_base::sync::Mutex;
use dendro_fuse::Switch;
use dendro_logdisk::LogDisk;

use crate::volume;

/// Closes the file system of a mount that ends, once.
pub(crate) struct Closing {
    switch: Switch,
    /// Whether the mount has ended or is ending.
    has_begun: AtomicBool,
    state: Mutex<Closed>,
}

#[derive(Default)]
struct Closed {
    outcome: Option<Result<(), String>>,
    has_shut_down: bool,
}

impl Closing {
    /// Closes the file system that the mount shows at its end.
    pub(crate) fn new(switch: Switch) -> Self {
        Self { switch, has_begun: AtomicBool::default(), state: Mutex::default() }
    }

    /// Marks the mount as ending, so that nobody uses it any more.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::Release);
    }

    /// Whether the mount has ended or is ending.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire) || !self.switch.is_mounted()
    }

    /// Closes the file system unless that is done, and then shuts down the disk that `disk`
    /// returns, if any.
    pub(crate) fn close<'a>(
        &self,
        disk: impl FnOnce() -> Option<&'a LogDisk>,
    ) -> Result<(), String> {
        self.begin();
        let mut state = self.state.lock();
        if let Some(outcome) = &state.outcome {
            return outcome.clone();
        }
        let mut outcome = self.switch.fs().close().map_err(|error| error.to_string());
        if let (Ok(()), Some(disk)) = (&outcome, disk()) {
            outcome = volume::shut_down(disk).map_err(|error| error.to_string());
            state.has_shut_down = true;
        }
        state.outcome = Some(outcome.clone());
        outcome
    }

    /// Whether the disk has been shut down too.
    pub(crate) fn has_shut_down(&self) -> bool {
        self.state.lock().has_shut_down
    }
}
