//! A volume that becomes longer by itself, up to the length that its superblock states: in the
//! background when it gets full, and when something does not fit.

use dendro_base::sync::atomic::Ordering;
use dendro_disk::{Error, Result};

use super::Resizer;
use crate::engine::Engine;

/// It gets longer when less than this part of its capacity is free.
const FREE_PART: u64 = 8;
/// By this part of its length, or more if that is too little.
const ADDED_PART: u64 = 4;
/// The least number of segments that it gets at a time.
const MIN_ADDED: u64 = 16;

impl Resizer {
    /// Whether so little is free that the volume should become longer, and may.
    pub(crate) fn wants_to_grow(&self, engine: &Engine) -> bool {
        self.may_grow() && !self.is_stuck.load(Ordering::Relaxed) && {
            let capacity_bytes = self.accounts.capacity_bytes(engine);
            let charged_bytes = self.accounts.charged_bytes(engine);
            let taken_bytes = charged_bytes.saturating_add(self.accounts.reserved_bytes());
            capacity_bytes.saturating_sub(taken_bytes) < capacity_bytes / FREE_PART
                && !self.is_limited_by_host(engine)
        }
    }

    fn may_grow(&self) -> bool {
        // Each commit asks, and most volumes keep their length.
        self.max_len_bytes > 0 && self.volume.device().len_bytes() < self.max_len_bytes
    }

    /// Whether the file system that holds the image has less room than the volume.
    fn is_limited_by_host(&self, engine: &Engine) -> bool {
        self.accounts.present_capacity_bytes(engine) < self.accounts.capacity_bytes(engine)
    }

    /// Makes the volume longer if it gets full. Returns whether it did.
    pub(crate) fn grow_early(&self) -> Result<bool> {
        Ok(self.wants_to_grow(&self.volume.read()) && self.grow_by_itself(0)?)
    }

    /// Makes the volume longer because `needed_bytes` do not fit. Returns whether it has become
    /// longer. If it cannot, it stays as it is.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Failed`] when the device fails.
    pub(crate) fn grow_by_itself(&self, needed_bytes: u64) -> Result<bool> {
        if !self.may_grow() {
            return Ok(false);
        }
        let before = self.volume.layout().segment_count();
        let shrinking = self.shrinking.lock();
        if self.volume.layout().segment_count() > before {
            return Ok(true);
        }
        if shrinking.is_some() || self.is_limited_by_host(&self.volume.read()) {
            return Ok(false);
        }
        let size = self.volume.layout().segment_size_bytes();
        let len_bytes = self.volume.device().len_bytes();
        let added_bytes =
            (len_bytes / ADDED_PART).max(needed_bytes.saturating_mul(2)).max(MIN_ADDED * size);
        let wanted_bytes = len_bytes.saturating_add(added_bytes).min(self.max_len_bytes);
        let grown = match self.grow_now(u64::MAX, wanted_bytes / size * size) {
            // The host is full, or the device is none that becomes longer.
            Err(Error::NoSpace { .. } | Error::Io(_)) => false,
            grown => grown.map(|()| self.volume.layout().segment_count() > before)?,
        };
        self.is_stuck.store(!grown, Ordering::Relaxed);
        Ok(grown)
    }
}
