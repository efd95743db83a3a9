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
use dendro_base::units::MIB;
use dendro_base::{Clock, Timestamp};
use dendro_disk::Result;

use crate::clean::pick::Choice;
use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::space::no_space::{Need, Shortage};
use crate::space::reserve::MAP_SHARE_CLEAN;

/// The time for which an answer of the host is used.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What superblocks and the host's own metadata of the image may take.
const SLACK_BYTES: u64 = MIB;
/// What only units that give space back may use.
const RECLAIM_BYTES: u64 = MIB;

/// The last answer of the host.
pub(crate) struct Host {
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
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
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
}

impl LogDisk {
    /// Whether a write found the host full and waits for room.
    pub fn waits_for_host(&self) -> bool {
        self.volume.writer().is_out_of_room() || self.map_waits.load(Ordering::Relaxed)
    }

    /// Asks the host if its last answer is out of date. The caller holds no lock.
    pub(crate) fn look_at_host(&self) {
        if self.host.is_look_due() {
            self.look_at_host_now();
        }
    }

    fn look_at_host_now(&self) {
        // These are read first: what is written until the host answers is then subtracted twice,
        // and never omitted.
        let (taken_bytes, unwritten_bytes, full_bytes) = {
            let engine = self.volume.read();
            let clean = engine.state.segments.counts().clean;
            let full = self.volume.layout().segment_count().saturating_sub(clean);
            let full_bytes = u64::from(full) * self.volume.layout().segment_size_bytes();
            (engine.taken_bytes(), engine.unwritten_bytes(), full_bytes)
        };
        let Some(room) = self.volume.device().host_room() else {
            self.host.is_known.store(false, Ordering::Release);
            return;
        };
        let total_bytes = room.allocated_bytes.saturating_add(room.free_bytes);
        // Clean segments for which the host has already allocated blocks.
        let spare_bytes = room.allocated_bytes.saturating_sub(full_bytes);
        let left_bytes = room.free_bytes.saturating_add(spare_bytes);
        self.host.total_bytes.store(total_bytes, Ordering::Relaxed);
        self.host.left_bytes.store(left_bytes.saturating_sub(unwritten_bytes), Ordering::Relaxed);
        self.host.taken_before.store(taken_bytes, Ordering::Relaxed);
        self.host.is_known.store(true, Ordering::Release);
    }

    /// Asks the host again, and returns whether it has more for the image than before.
    pub(crate) fn host_has_grown(&self) -> bool {
        let is_known = || self.host.is_known.load(Ordering::Acquire);
        let total_bytes = || self.host.total_bytes.load(Ordering::Relaxed);
        let (was_known, before) = (is_known(), total_bytes());
        self.look_at_host_now();
        was_known && (!is_known() || total_bytes() > before)
    }

    /// What can be written before the host is full; `None` if no limit is known.
    fn host_left_bytes(&self, engine: &Engine) -> Option<u64> {
        if !self.host.is_known.load(Ordering::Acquire) {
            return None;
        }
        let taken =
            engine.taken_bytes().saturating_sub(self.host.taken_before.load(Ordering::Relaxed));
        Some(self.host.left_bytes.load(Ordering::Relaxed).saturating_sub(taken))
    }

    /// What is kept on the host for the nodes of the next checkpoint and for cleaning a segment.
    fn host_reserve_bytes(&self, engine: &Engine) -> u64 {
        let unwritten = self.unwritten_len_bytes(engine);
        let to_clean =
            self.map_bytes(engine) / MAP_SHARE_CLEAN + self.volume.layout().segment_size_bytes();
        unwritten + unwritten / 2 + to_clean + SLACK_BYTES
    }

    /// The capacity at present. It is at most what the host gives the image, so that the free space
    /// that clients see can be used.
    pub(crate) fn present_capacity_bytes(&self, engine: &Engine) -> u64 {
        let of_host = self.capacity_on_host(engine).unwrap_or(u64::MAX);
        self.capacity_bytes().min(of_host)
    }

    /// What is free on the host if clients have `charged_bytes`. Pages of zeros take nothing there
    /// and are not counted, so that space promised before the host became full prevents no writes.
    pub(crate) fn free_on_host(&self, engine: &Engine, charged_bytes: u64) -> Option<u64> {
        let stored_bytes = charged_bytes.saturating_sub(engine.state.segments.zero_pages_bytes());
        Some(self.capacity_on_host(engine)?.saturating_sub(stored_bytes))
    }

    /// The capacity of the volume if it were only as large as the host allows it to become.
    fn capacity_on_host(&self, engine: &Engine) -> Option<u64> {
        if !self.host.is_known.load(Ordering::Acquire) {
            return None;
        }
        let total = self.host.total_bytes.load(Ordering::Relaxed);
        let superblocks = (0..2).map(|log| self.volume.layout().superblock_area(log));
        let of_superblocks: u64 = superblocks.map(|area| area.end - area.start).sum();
        let kept = self.host_reserve_bytes(engine) + RECLAIM_BYTES + of_superblocks;
        let usable = total.saturating_sub(kept);
        let size = self.volume.layout().segment_size_bytes();
        let share = u128::from(usable) * u128::from(self.fillable_bytes()) / u128::from(size);
        Some(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// Whether the host lacks room to write a unit now.
    pub(crate) fn shortage_on_host(&self, engine: &Engine, need: Need) -> Option<Shortage> {
        let waits = if need.reclaims { self.volume.writer().is_over_limit() } else { true };
        if waits && self.waits_for_host() {
            return Some(Shortage::OnHost(0));
        }
        let left = self.host_left_bytes(engine)?;
        let kept_for_others = if need.reclaims { 0 } else { RECLAIM_BYTES };
        let available = left.saturating_sub(self.host_reserve_bytes(engine) + kept_for_others);
        (need.log_bytes > available).then_some(Shortage::OnHost(available))
    }

    /// Whether the host has room for `len_bytes` and for a checkpoint after that.
    pub(crate) fn host_takes(&self, engine: &Engine, len_bytes: u64) -> bool {
        let checkpoint_bytes = self.unwritten_len_bytes(engine) + SLACK_BYTES;
        self.host_left_bytes(engine).is_none_or(|left| left > len_bytes + checkpoint_bytes)
    }

    /// Tries to make room on the host, by discarding what is empty or mostly dead in the image.
    /// Returns whether there is more room than `available_bytes`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when what was accepted before still waits for room.
    pub(crate) fn make_room_on_host(&self, available_bytes: u64, need: Need) -> Result<bool> {
        if self.waits_for_host() {
            self.volume.write_queued()?;
            self.write_waiting_nodes()?;
        }
        let has_gained = || {
            self.look_at_host_now();
            let engine = self.volume.read();
            match self.shortage_on_host(&engine, need) {
                Some(Shortage::OnHost(available)) => available > available_bytes,
                _ => true,
            }
        };
        if has_gained() {
            return Ok(true);
        }
        let has_pending = self.volume.read().state.segments.counts().pending > 0;
        if has_pending {
            self.checkpoint_if_it_fits(&|_| false)?;
            if has_gained() {
                return Ok(true);
            }
        }
        if self.clean_now(Choice::MostToGain, &|_| false)? {
            self.checkpoint_if_it_fits(&|_| false)?;
        }
        Ok(has_gained())
    }
}
