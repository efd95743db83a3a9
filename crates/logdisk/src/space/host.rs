//! The room that the file system of a sparse image has for it (DESIGN §9).
//!
//! A sparse image can be longer than the host allows it to become. So the host is asked now and
//! then, and what is written between two answers is subtracted. As for the volume's own segments,
//! there are two numbers. The first bounds the capacity: what the image could take in all if it had
//! no holes except those that the host has no room for. The second is what can be written now.
//!
//! Other programs write to the host too, so a write can still fail with ENOSPC. Its buffer then
//! stays in the writer's queue and is tried again. As long as it waits, only units that give space
//! back are accepted.

use std::time::Duration;

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use dendro_base::{Clock, Timestamp};

use crate::engine::Engine;
use crate::volume::Volume;

/// The time for which an answer of the host is used.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The last answer of the host.
pub(crate) struct Host {
    volume: Arc<Volume>,
    clock: Arc<dyn Clock>,
    looked_at_ns: AtomicI64,
    /// Whether the host states its room at all.
    is_known: AtomicBool,
    /// What the image can take in all.
    total_bytes: AtomicU64,
    /// What could be written at the time of the answer, and what had been put into the log by then.
    left_bytes: AtomicU64,
    taken_before: AtomicU64,
}

impl Host {
    pub(crate) fn new(volume: Arc<Volume>) -> Self {
        let clock = Arc::clone(volume.read().clock());
        Self {
            volume,
            clock,
            looked_at_ns: AtomicI64::new(i64::MIN),
            is_known: AtomicBool::new(false),
            total_bytes: AtomicU64::new(0),
            left_bytes: AtomicU64::new(0),
            taken_before: AtomicU64::new(0),
        }
    }

    /// Whether the host should be asked again. Of several threads only one gets true.
    fn is_look_due(&self) -> bool {
        let now = self.clock.now();
        let before = self.looked_at_ns.load(Ordering::Relaxed);
        let is_recent =
            now.0 >= before && before != i64::MIN && now.since(Timestamp(before)) < LOOK_EVERY;
        let swap = |_| {
            let (of_success, of_failure) = (Ordering::Relaxed, Ordering::Relaxed);
            self.looked_at_ns.compare_exchange(before, now.0, of_success, of_failure).ok()
        };
        (!is_recent).then(|| swap(())).flatten().is_some()
    }

    /// Asks the host if its last answer is out of date. The caller holds no lock.
    pub(crate) fn look(&self) {
        if self.is_look_due() {
            self.look_now();
        }
    }

    /// Asks the host. The caller holds no lock.
    pub(crate) fn look_now(&self) {
        // These are read first: what is written until the host answers is then subtracted twice,
        // and never omitted.
        let (taken_bytes, unwritten_bytes, full_bytes) = {
            let engine = self.volume.read();
            let clean = engine.state().segments().counts().clean;
            let full = self.volume.layout().segment_count().saturating_sub(clean);
            let full_bytes = u64::from(full) * self.volume.layout().segment_size_bytes();
            (engine.taken_bytes(), engine.unwritten_bytes(), full_bytes)
        };
        let Some(room) = self.volume.device().host_room() else {
            self.is_known.store(false, Ordering::Release);
            return;
        };
        let total_bytes = room.allocated_bytes.saturating_add(room.free_bytes);
        // Clean segments for which the host has already allocated blocks.
        let spare_bytes = room.allocated_bytes.saturating_sub(full_bytes);
        let left_bytes = room.free_bytes.saturating_add(spare_bytes);
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
        self.left_bytes.store(left_bytes.saturating_sub(unwritten_bytes), Ordering::Relaxed);
        self.taken_before.store(taken_bytes, Ordering::Relaxed);
        self.is_known.store(true, Ordering::Release);
    }

    /// Asks the host again, and returns whether it has more for the image than before.
    pub(crate) fn has_grown(&self) -> bool {
        let before = self.total_bytes();
        self.look_now();
        before.is_some_and(|before| self.total_bytes().is_none_or(|now| now > before))
    }

    /// What the image can take in all; `None` if no limit is known.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        let is_known = self.is_known.load(Ordering::Acquire);
        is_known.then(|| self.total_bytes.load(Ordering::Relaxed))
    }

    /// What can be written before the host is full; `None` if no limit is known.
    pub(super) fn left_bytes(&self, engine: &Engine) -> Option<u64> {
        if !self.is_known.load(Ordering::Acquire) {
            return None;
        }
        let taken = engine.taken_bytes().saturating_sub(self.taken_before.load(Ordering::Relaxed));
        Some(self.left_bytes.load(Ordering::Relaxed).saturating_sub(taken))
    }
}
