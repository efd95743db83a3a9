//! How long the engine's lock is held at most: by background work, by changes of versions, and by
//! walks. All these work in steps, so that nobody who wants the lock waits for long.

use std::time::Duration;

use dendro_base::Timestamp;
use dendro_base::sync::atomic::{AtomicU64, Ordering};

/// What holds the engine's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// The freeze of a checkpoint, and slices in which it settles.
    Checkpoint,
    /// Moving blocks and nodes: cleaning, coalescing, and what a scrub mends.
    Cleaning,
    /// Taking out what is left of deleted lists and versions.
    Removal,
    /// Making and deleting versions, and copies of pages that versions share.
    Versions,
    /// A slice of a walk over the map.
    Walk,
}

impl LockHolder {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Checkpoint, Self::Cleaning, Self::Removal, Self::Versions, Self::Walk];
}

/// The longest hold of each holder, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Holds([AtomicU64; LockHolder::ALL.len()]);

impl Holds {
    /// Notes that the lock was held from `began` to `ended`.
    pub(crate) fn note(&self, holder: LockHolder, began: Timestamp, ended: Timestamp) {
        let held_ns = u64::try_from(ended.since(began).as_nanos()).unwrap_or(u64::MAX);
        self.0[holder as usize].fetch_max(held_ns, Ordering::Relaxed);
    }

    /// The longest hold of each, in the order of [`LockHolder::ALL`].
    pub(crate) fn longest(&self) -> [Duration; LockHolder::ALL.len()] {
        self.0.each_ref().map(|ns| Duration::from_nanos(ns.load(Ordering::Relaxed)))
    }
}
