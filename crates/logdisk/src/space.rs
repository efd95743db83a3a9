//! Space: what fits, what can be written now, and how writers are slowed down when that gets little
//! (DESIGN §9).
//!
//! There are two accounts. *Logical free* is the capacity less the live bytes and the reserves.
//! When it is used up, only deleting helps. *Room* is what can be written before the clean segments
//! that checkpoints and cleaning need are touched. When it is used up, cleaning helps.
//!
//! Invariants:
//! 1. (space 1) Every unit leaves the map so that the checkpoint under way and the next one find
//!    the segments that they need.
//! 2. (space 2) A unit changes at most `MAX_UNIT_GROUPS` groups of 32 pages; a longer one is
//!    refused before it has changed anything.
//!
//! Clean segments are reserved in this order. The first reserve is for the nodes of the next
//! checkpoint and for cleaning one segment. The reserve above it is for units that give space back,
//! so that deleting works on a full volume. Background cleaning keeps a pool of segments ready
//! beyond the reserves. The fewer of these are left, the more cleaning commits do themselves.

pub(crate) mod host;
pub(crate) mod reuse;

use std::time::Duration;

use dendro_base::Timestamp;
use dendro_base::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use dendro_base::sync::{Condvar, Mutex};
use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Error, Result};

use crate::clean::pick::Choice;
use crate::disk::LogDisk;
use crate::engine::{Engine, PARTIAL_LEN_BYTES};
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::map::node::LEAF_LEN_BYTES;
use crate::options::CleanSettings;

/// The number of attempts in a row to make room that may gain nothing before a commit gives up. The
/// nodes that a checkpoint writes can at first take all that cleaning frees.
const MAX_FRUITLESS: u32 = 2;
/// The number of segments' worth of blocks that may be moved without any gain. When clean segments
/// are few, emptying one segment takes several attempts, with a checkpoint after each.
const MAX_FRUITLESS_SEGMENTS: u64 = 4;
/// The largest number of attempts. Together they empty more segments than any unit needs.
const MAX_ATTEMPTS: u32 = 64;
/// The number of attempts after which hardly more is gained than cleaning takes.
const STUCK_AFTER: u32 = 4;
/// The number of nearly empty segments that are cleaned when there is no room for more.
const MAX_NEARLY_EMPTY: usize = 4;
/// The most steps of background work that one commit does.
const MAX_ASSIST_STEPS: usize = 8;
/// The number of segments that a commit cleans before it takes a checkpoint, if there is room for
/// their blocks. On a small, full volume the nodes would take all that fewer segments give.
const MIN_CLEANED_AT_ONCE: u32 = 8;
/// The least amount of dirty map that the reserve is computed for.
const MIN_DIRTY_BYTES: u64 = 256 << 10;
/// The most that a segment's usage record takes in the map.
const MAX_USAGE_LEN_BYTES: u64 = 80;
/// Moving nodes to other segments writes the nodes above them again: at worst all of these, which
/// are a 64th of the map or less. So a checkpoint gains something only if it empties segments that
/// hold several times as much, and these must be partly dead. A quarter of what the map takes is
/// kept from clients for that.
const MAP_SHARE_DEAD: u64 = 4;
/// A quarter of that again lies in clean segments, to move nodes to.
pub(crate) const MAP_SHARE_CLEAN: u64 = 16;

/// The room that commits owe to cleaning, and how long commits have waited.
#[derive(Debug)]
pub(crate) struct Pacing {
    settings: Mutex<CleanSettings>,
    owed_bytes: AtomicI64,
    stalled_ns: AtomicU64,
    work: Mutex<Work>,
    due: Condvar,
}

/// The state that threads wait on for background work.
#[derive(Debug)]
struct Work {
    /// Whether work has become due since a thread last waited for it.
    is_due: bool,
    /// Whether waiting has ended for good.
    is_ending: bool,
}

impl Pacing {
    pub(crate) const fn new(settings: CleanSettings) -> Self {
        Self {
            settings: Mutex::new(settings),
            owed_bytes: AtomicI64::new(0),
            stalled_ns: AtomicU64::new(0),
            work: Mutex::new(Work { is_due: false, is_ending: false }),
            due: Condvar::new(),
        }
    }

    fn wake(&self) {
        self.work.lock().is_due = true;
        self.due.notify_all();
    }

    /// How long commits have waited for room, all together.
    pub(crate) fn stalled(&self) -> Duration {
        Duration::from_nanos(self.stalled_ns.load(Ordering::Relaxed))
    }

    fn note_stall(&self, began: Timestamp, ended: Timestamp) {
        let waited_ns = ended.since(began).as_nanos() as u64;
        self.stalled_ns.fetch_add(waited_ns, Ordering::Relaxed);
    }

    /// Adds to what is owed, and returns the sum.
    fn owe(&self, bytes: i64) -> i64 {
        self.owed_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    fn forgive(&self) {
        self.owed_bytes.store(0, Ordering::Relaxed);
    }
}

/// Counts the attempts to make room for one unit.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    attempts: u32,
    fruitless: u32,
    moved_bytes: u64,
}

impl Tries {
    const fn note(&mut self, gain: &Gain, segment_size_bytes: u64) {
        self.attempts += 1;
        match gain {
            Gain::Room => (self.fruitless, self.moved_bytes) = (0, 0),
            Gain::Moves(bytes) => {
                self.moved_bytes += *bytes;
                let is_fruitless = self.moved_bytes > MAX_FRUITLESS_SEGMENTS * segment_size_bytes;
                self.fruitless += (*bytes == 0 || is_fruitless) as u32;
            }
        }
    }

    /// Counts an attempt that gained room on the host. Returns whether another attempt may be made.
    const fn note_of_host(&mut self) -> bool {
        self.attempts += 1;
        self.attempts <= MAX_ATTEMPTS
    }

    const fn is_stuck(&self) -> bool {
        self.fruitless > 0 || self.attempts >= STUCK_AFTER
    }
}

/// What an attempt to make room gained.
enum Gain {
    Room,
    /// No room yet, but blocks of so many bytes were moved. When more of a segment's blocks are
    /// moved, it becomes empty.
    Moves(u64),
}

/// What a unit needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Bytes of log, at most.
    pub(crate) log_bytes: u64,
    /// Bytes that must stay free besides.
    pub(crate) kept_bytes: u64,
    /// Bytes that the unit surely gives back.
    pub(crate) given_back_bytes: u64,
    /// Whether the unit gives space back. Then it needs room only, not logical free space.
    pub(crate) reclaims: bool,
}

impl Need {
    /// The need of something that takes space.
    pub(crate) const fn space(log_bytes: u64) -> Self {
        Self { log_bytes, kept_bytes: 0, given_back_bytes: 0, reclaims: false }
    }

    /// The need of something that gives space back.
    pub(crate) const fn reclaiming(log_bytes: u64) -> Self {
        Self { reclaims: true, ..Self::space(log_bytes) }
    }
}

/// The reason why a unit does not fit.
pub(crate) enum Shortage {
    /// Too many bytes are live, so only deleting helps. The value is the free bytes.
    OfSpace(u64),
    /// Too few segments are clean. The value is the bytes that can be written.
    OfRoom(u64),
    /// The file system that holds the image is full or nearly so. The value is the bytes that can
    /// be written.
    OnHost(u64),
}

impl LogDisk {
    /// The settings of background cleaning.
    pub fn clean_settings(&self) -> CleanSettings {
        *self.pacing.settings.lock()
    }

    /// Changes the settings of background cleaning.
    pub fn set_clean_settings(&self, settings: CleanSettings) {
        *self.pacing.settings.lock() = settings;
    }

    /// The clean segments that client data never fills, with the map as dirty as it is now.
    pub(crate) fn reserve_segments(&self, engine: &Engine) -> u32 {
        self.checkpoint_reserve(engine) + self.reclaim_reserve()
    }

    /// Waits up to `timeout` until background work is due. It is for the threads that do this work,
    /// when [`Self::background_step`] or [`Self::clean_step`] had nothing to do.
    pub fn wait_for_background_work(&self, timeout: Duration) {
        let mut work = self.pacing.work.lock();
        if !work.is_due && !work.is_ending {
            let _ = self.pacing.due.wait_for(&mut work, timeout);
        }
        work.is_due = false;
    }

    /// Ends all waits in [`Self::write_step`] and [`Self::wait_for_background_work`], now and
    /// later, so that the threads that call them can end.
    pub fn end_waiting(&self) {
        self.writer.end_waiting();
        self.pacing.work.lock().is_ending = true;
        self.pacing.due.notify_all();
    }

    /// Wakes the thread that does background work, if there is work. It is called when the log has
    /// grown.
    pub(crate) fn wake_background(&self, engine: &Engine) {
        if self.checkpoint_is_due_in(engine)
            || self.room_is_short(engine, 0)
            || self.reuse_is_wanted(engine)
        {
            self.pacing.wake();
        }
    }

    /// Whether the segments that are clean, or will be after a checkpoint, are fewer than should be
    /// ready and than `at_least`.
    pub(crate) fn room_is_short(&self, engine: &Engine, at_least: u32) -> bool {
        let counts = engine.state.segments.counts();
        let ready = self.pool_segments(engine).max(at_least);
        // Segments are not counted as long as a checkpoint would not be worth it for them.
        let waiting = self.unreusable_segments(engine);
        let waiting = if self.is_worth_writing_nodes(engine, waiting, false) { 0 } else { waiting };
        counts.clean + counts.pending
            < (self.scarce_segments(engine) + waiting).saturating_add(ready)
    }

    /// Whether a checkpoint should be taken for the segments that it makes clean. Writing the dirty
    /// nodes takes time and segments, too. So while some clean segments are left, the checkpoint
    /// waits until it frees many at once.
    pub(crate) fn space_wants_checkpoint(&self, engine: &Engine) -> bool {
        let counts = engine.state.segments.counts();
        let pending = self.unreusable_segments(engine);
        let is_due = counts.clean <= self.scarce_segments(engine) + self.pool_segments(engine) / 4;
        // Cleaning cannot continue without a checkpoint.
        let is_last = counts.clean <= self.checkpoint_reserve(engine);
        (is_due && self.is_worth_writing_nodes(engine, pending, false))
            || (is_last && self.is_worth_writing_nodes(engine, pending, true))
    }

    /// The number of clean segments at which commits are about to find no room: the reserve, and
    /// the segments that the streams open next.
    pub(crate) fn scarce_segments(&self, engine: &Engine) -> u32 {
        self.reserve_segments(engine) + 2
    }

    /// Segments that only a checkpoint makes clean.
    fn unreusable_segments(&self, engine: &Engine) -> u32 {
        engine.state.segments.counts().pending.saturating_sub(engine.reusable_count())
    }

    /// Whether so many segments are worth more than the nodes that a checkpoint writes: twice as
    /// much if it is urgent, and four times otherwise. After the checkpoint, the nodes of the one
    /// before wait to be freed in their turn.
    fn is_worth_writing_nodes(&self, engine: &Engine, segments: u32, is_urgent: bool) -> bool {
        let size = self.layout.segment_size_bytes();
        let cost_bytes = engine.state.map.dirty_len_bytes() + size / 2;
        let times = if is_urgent { 2 } else { 4 };
        u64::from(segments) * size > times * cost_bytes
    }

    /// Whether reclaimable segments should become clean without a checkpoint: clean segments are
    /// few, and enough segments are reclaimable to be worth two flushes. Cleaning pauses when clean
    /// and reclaimable segments together fill the pool. So reuse must begin well before the pool is
    /// used up, because commits continue while the flushes take their time.
    pub(crate) fn reuse_is_wanted(&self, engine: &Engine) -> bool {
        engine.reusable_count() >= (self.pace_segments() / 2).max(1)
            && engine.state.segments.clean_count()
                <= self.scarce_segments(engine) + self.pool_segments(engine) / 2
    }

    /// The number of clean segments at which reuse without a checkpoint stops.
    pub(crate) fn clean_after_reuse(&self, engine: &Engine) -> u32 {
        self.scarce_segments(engine) + self.pool_segments(engine)
    }

    /// The least number of segments that a checkpoint should free if it is taken because commits
    /// wait. Each checkpoint takes two flushes, and writes nodes that fewer checkpoints would write
    /// fewer times.
    fn checkpoint_batch(&self, engine: &Engine) -> u32 {
        (self.pool_segments(engine) / 4).max(1)
    }

    /// The pool: the clean segments beyond the reserve that background cleaning keeps ready, with
    /// those that the next checkpoint frees. A larger pool leaves less room in which segments can
    /// wait until more of their blocks are dead. That costs much where little is dead. Where much
    /// is dead, a larger pool lets clients write much at once without waiting. So a quarter of all
    /// segments times the third power of the dead share is added to the segments of the pace.
    pub(crate) fn pool_segments(&self, engine: &Engine) -> u32 {
        let live = engine.state.segments.live_bytes().div_ceil(self.layout.segment_size_bytes());
        let all = self.layout.log_segments().count() as u64;
        let dead = u128::from(all.saturating_sub(live));
        let all = u128::from(all);
        self.pace_segments() + (dead * dead * dead / (4 * all * all)) as u32
    }

    /// The pace: with fewer clean segments than this, commits assist cleaning in proportion to what
    /// is missing.
    pub(crate) fn pace_segments(&self) -> u32 {
        let count = self.layout.segment_count();
        let default = (count / 128).clamp(2, 64);
        // A setting larger than the volume means all segments.
        self.clean_settings().min_clean_segments.unwrap_or(default).min(count)
    }

    /// The number of clean segments that idle cleaning makes.
    pub(crate) fn idle_segments(&self) -> u32 {
        let default = self.pace_segments().saturating_mul(4);
        self.clean_settings().max_clean_segments.unwrap_or(default)
    }

    /// The segments kept for checkpoints and cleaning, with so many dirty bytes in the map: the
    /// nodes of a checkpoint and what moving blocks adds to them, the next segment of the main log
    /// and of the map stream, and one segment to move blocks to.
    fn reserve_for(&self, dirty_bytes: u64) -> u32 {
        (dirty_bytes + dirty_bytes / 2).div_ceil(self.layout.segment_size_bytes()) as u32 + 4
    }

    /// About what checkpoints have still to write of the present map, with the usage records that
    /// the next one brings up to date.
    pub(crate) fn unwritten_len_bytes(&self, engine: &Engine) -> u64 {
        let unrecorded = engine.state.segments.unrecorded().len() as u64;
        let all = u64::from(self.layout.segment_count()) * MAX_USAGE_LEN_BYTES;
        let usage_bytes = (unrecorded * LEAF_LEN_BYTES as u64).min(all);
        self.frozen_len_bytes.load(Ordering::Relaxed)
            + engine.state.map.due_len_bytes()
            + usage_bytes
    }

    /// The clean segments that checkpoints take for the present map, beyond the one that they are
    /// filling.
    pub(crate) fn node_segments(&self, engine: &Engine) -> u32 {
        let here = self.map_room_bytes.load(Ordering::Relaxed) / 4 * 3;
        let rest = self.unwritten_len_bytes(engine).saturating_sub(here);
        rest.div_ceil(self.layout.segment_size_bytes()) as u32
    }

    /// Whether the checkpoint under way and the next one find the segments that they take for the
    /// present map. Every unit keeps this true (space 1): the nodes that it makes dirty take less
    /// than the reserve leaves over.
    pub(crate) fn checkpoints_fit(&self, engine: &Engine) -> bool {
        let size = self.layout.segment_size_bytes();
        // What headers, records and nodes that do not fit leave unused of a segment.
        let unused = (2 * LEAF_LEN_BYTES + 3 * PAGE_SIZE) as u64;
        let segments = self.unwritten_len_bytes(engine).div_ceil(size - unused) + 1;
        let here = self.map_room_bytes.load(Ordering::Relaxed);
        u64::from(engine.state.segments.clean_count()) * size + here >= segments * size
    }

    /// Describes the reserve, for the message of a failed assertion.
    pub(crate) fn describe_reserve(&self, engine: &Engine) -> String {
        format!(
            "{:?}, {} bytes of nodes to be written",
            engine.state.segments.counts(),
            self.unwritten_len_bytes(engine)
        )
    }

    /// The part of that reserve that is needed now, and what cleaning takes that moves nodes.
    pub(crate) fn checkpoint_reserve(&self, engine: &Engine) -> u32 {
        let to_clean = self.map_bytes(engine) / MAP_SHARE_CLEAN / self.layout.segment_size_bytes();
        self.reserve_for(self.unwritten_len_bytes(engine).max(MIN_DIRTY_BYTES)) + to_clean as u32
    }

    /// The clean segments that survivors may not use: what a checkpoint takes, less the one segment
    /// that is kept for survivors. The segments that they leave become clean in turn.
    pub(crate) fn kept_from_survivors(&self, engine: &Engine) -> u32 {
        self.checkpoint_reserve(engine) - 1
    }

    /// The segments beyond those for checkpoints that only cleaning and units that give space back
    /// may use.
    pub(crate) fn reclaim_reserve(&self) -> u32 {
        2 + (self.layout.segment_count() / 256).min(4)
    }

    /// The capacity of the volume for clients: the segments less the reserves and the one that the
    /// map stream fills, each as far as it can be filled with live blocks.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        let segments = self.layout.log_segments().count() as u64;
        let reserve = u64::from(self.reserve_for(self.dirty_limit_bytes) + self.reclaim_reserve());
        segments.saturating_sub(reserve + 1) * self.fillable_bytes()
    }

    /// The most live bytes of a segment with which cleaning still gains something. Partial segments
    /// have headers, records and partly filled blocks: four blocks at most, and fewer in short
    /// partial segments. A share must be dead, too, or very many segments would be moved for each
    /// one gained.
    pub(crate) fn fillable_bytes(&self) -> u64 {
        let size = self.layout.segment_size_bytes();
        let longest = PARTIAL_LEN_BYTES as u64;
        let overhead_blocks =
            size.div_ceil(longest) * (1 + (3 * size.min(longest)).div_ceil(longest));
        size - size * u64::from(self.options.reserve_percent) / 100
            - overhead_blocks * PAGE_SIZE as u64
    }

    /// Returns why a unit does not fit, if so: there is no logical free space for it, or there is
    /// no room to write it before segments have been cleaned.
    pub(crate) fn shortage(&self, engine: &Engine, need: Need) -> Option<Shortage> {
        if need.reclaims {
            let room = engine.room_bytes(self.checkpoint_reserve(engine));
            let shortage = (need.log_bytes > room).then_some(Shortage::OfRoom(room));
            return shortage.or_else(|| self.shortage_on_host(engine, need));
        }
        let charged = self.charged_bytes(engine).saturating_add(self.ledger.reserved_bytes());
        let free = self.capacity_bytes().saturating_sub(charged);
        if need.log_bytes + need.kept_bytes > free + need.given_back_bytes {
            return Some(Shortage::OfSpace(free));
        }
        let on_host = self.free_on_host(engine, charged).unwrap_or(u64::MAX);
        if need.log_bytes > on_host.saturating_add(need.given_back_bytes) {
            return Some(Shortage::OfSpace(on_host));
        }
        let room = engine.room_bytes(self.checkpoint_reserve(engine) + self.reclaim_reserve());
        let shortage = (need.log_bytes > room).then_some(Shortage::OfRoom(room));
        shortage.or_else(|| self.shortage_on_host(engine, need))
    }

    /// The live bytes as they lie on the device. They include map nodes that no checkpoint has
    /// written yet, and the records that short blocks have in the log.
    pub(crate) fn stored_bytes(&self, engine: &Engine) -> u64 {
        let segments = &engine.state.segments;
        let nodes_bytes = engine.state.map.dirty_len_bytes();
        segments.live_bytes() + segments.short_records_bytes() + nodes_bytes
    }

    /// The stored bytes and what pages of zeros take when they are written, so that they always can
    /// be.
    pub(crate) fn used_bytes(&self, engine: &Engine) -> u64 {
        self.stored_bytes(engine).saturating_add(engine.state.segments.zero_pages_bytes())
    }

    /// The bytes that the map takes.
    pub(crate) fn map_bytes(&self, engine: &Engine) -> u64 {
        engine.state.segments.node_bytes() + engine.state.map.dirty_len_bytes()
    }

    /// The bytes that clients cannot use: the used bytes, and the dead share that the map's
    /// segments need. Where there are versions, the length of the map is added once more. Removing
    /// lists makes the map longer then, by at most its length, because an entry that hides another
    /// is no longer than that one. So everything can be removed, however full the volume is.
    pub(crate) fn charged_bytes(&self, engine: &Engine) -> u64 {
        let map_bytes = self.map_bytes(engine);
        let kept_bytes = if engine.state.versions.are_several() { map_bytes } else { 0 };
        self.used_bytes(engine).saturating_add(map_bytes / MAP_SHARE_DEAD + kept_bytes)
    }

    /// Acts on a shortage. The caller holds no lock. When this returns, the caller must check the
    /// shortage again, and nodes of the map may have moved.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when nothing more can be done.
    pub(crate) fn mend_shortage(
        &self,
        shortage: Shortage,
        need: Need,
        tries: &mut Tries,
    ) -> Result<()> {
        let (available_bytes, is_worth_it) = match shortage {
            // What only deleted versions had can be freed and used.
            Shortage::OfSpace(available_bytes) => {
                let is_worth_it =
                    self.free_step()? || self.collect_behind_forks() || self.host_has_grown();
                (available_bytes, is_worth_it)
            }
            Shortage::OnHost(available_bytes) => {
                let may_free = !need.reclaims && !self.waits_for_host();
                let is_worth_it = (may_free && self.free_step()?)
                    || (self.make_room_on_host(available_bytes, need)? && tries.note_of_host());
                (available_bytes, is_worth_it)
            }
            Shortage::OfRoom(available_bytes) => {
                tries.note(&self.make_room()?, self.layout.segment_size_bytes());
                if tries.is_stuck() {
                    // All that can be gained may lie in segments that streams are filling, or in
                    // segments that could not be read some time ago.
                    self.engine.write().retire_streams();
                    self.try_set_aside_again();
                }
                let mut is_worth_it =
                    tries.fruitless <= MAX_FRUITLESS && tries.attempts <= MAX_ATTEMPTS;
                // Cleaning gains nothing either where most of what fills the segments belongs only
                // to deleted versions. A collection itself needs room as a unit that gives space
                // back does.
                if !is_worth_it && !need.reclaims && self.collect_for_room()? {
                    *tries = Tries::default();
                    is_worth_it = true;
                }
                (available_bytes, is_worth_it)
            }
        };
        let needed_bytes = need.log_bytes + need.kept_bytes;
        if is_worth_it { Ok(()) } else { Err(Error::NoSpace { needed_bytes, available_bytes }) }
    }

    /// Performs one step that frees what no version sees. Returns whether there was anything to
    /// free.
    pub(crate) fn free_step(&self) -> Result<bool> {
        Ok(self.removal_step()? || self.collection_step()?)
    }

    /// Collects what only deleted versions had, until cleaning gains some segments from it or
    /// nothing is left. Returns whether there was anything to collect.
    fn collect_for_room(&self) -> Result<bool> {
        let live_bytes = || self.engine.read().state.segments.live_bytes();
        let freed_bytes = u64::from(MIN_CLEANED_AT_ONCE) * self.layout.segment_size_bytes();
        let enough = live_bytes().saturating_sub(freed_bytes);
        let mut has_collected = false;
        while live_bytes() > enough && (self.free_step()? || self.collect_behind_forks()) {
            has_collected = true;
        }
        Ok(has_collected)
    }

    /// Makes room for `need` and calls `change` as [`Self::change`] does.
    pub(crate) fn with_room<T>(
        &self,
        need: Need,
        mut change: impl FnMut(&mut Engine, &dyn Nodes) -> Outcome<T>,
    ) -> Result<T> {
        let mut tries = Tries::default();
        self.look_at_host();
        loop {
            let mut shortage = None;
            let changed = self.change(|engine, nodes| {
                self.check_writable(engine)?;
                shortage = self.shortage(engine, need);
                if shortage.is_some() {
                    return Ok(None);
                }
                let changed = change(engine, nodes)?;
                // The change leaves the map so that checkpoints find their segments (space 1).
                debug_assert!(self.checkpoints_fit(engine), "{}", self.describe_reserve(engine));
                Ok(Some(changed))
            })?;
            match (changed, shortage) {
                (Some(changed), _) => return Ok(changed),
                (None, Some(shortage)) => self.mend_shortage(shortage, need, &mut tries)?,
                (None, None) => unreachable!("without a shortage it was tried"),
            }
        }
    }

    /// What can be written now, or once a checkpoint is durable.
    fn free_bytes(&self) -> u64 {
        self.free_bytes_in(&self.engine.read())
    }

    /// As [`Self::free_bytes`], in a locked engine. It includes the rest of the segments that
    /// payload streams and the map stream are filling: where little is dead, cleaning a segment
    /// gains less than a segment.
    fn free_bytes_in(&self, engine: &Engine) -> u64 {
        let size = self.layout.segment_size_bytes();
        let pending = u64::from(engine.state.segments.counts().pending);
        let of_map = self.map_room_bytes.load(Ordering::Relaxed);
        engine.room_bytes(0) + engine.streams.room_bytes(size) + of_map + pending * size
    }

    /// Tries to make room, and returns what that gained. Segments that are already empty need only
    /// a checkpoint. When these are few, segments are cleaned first, as many as the reserve allows.
    fn make_room(&self) -> Result<Gain> {
        let began = self.now();
        let result = self.try_to_make_room();
        self.pacing.note_stall(began, self.now());
        result
    }

    fn try_to_make_room(&self) -> Result<Gain> {
        let (clean_before, taken_before) = {
            let engine = self.engine.read();
            (engine.state.segments.clean_count(), engine.user_bytes())
        };
        let is_enough = |engine: &Engine| engine.state.segments.clean_count() > clean_before;
        self.drop_empty_jobs();
        self.reuse_all()?;
        if is_enough(&self.engine.read()) {
            return Ok(Gain::Room);
        }
        if self.is_worth_a_checkpoint() {
            self.checkpoint_if_it_fits(&is_enough)?;
            if is_enough(&self.engine.read()) {
                return Ok(Gain::Room);
            }
        }
        let free_before = self.free_bytes();
        let moved_before = self.cleaned.moved_bytes.load(Ordering::Relaxed);
        // The first segment has the fewest live bytes to move. Several crashes may have left hardly
        // more room than that takes, or even less.
        if self.may_clean_more(1) && self.clean_now(Choice::MostToGain, &is_enough)? {
            while !is_enough(&self.engine.read())
                && self.may_clean_more(2)
                && self.clean_now(Choice::MostToGain, &is_enough)?
            {}
        } else {
            for _ in 0..MAX_NEARLY_EMPTY {
                if !self.may_clean_more(0) || !self.clean_now(Choice::NearlyEmpty, &is_enough)? {
                    break;
                }
            }
        }
        self.reuse_all()?;
        if !is_enough(&self.engine.read()) {
            self.checkpoint_if_it_fits(&is_enough)?;
        }
        // Another commit may have taken what was gained.
        let engine = self.engine.read();
        let has_been_taken = engine.user_bytes() > taken_before;
        if is_enough(&engine) || has_been_taken || self.free_bytes_in(&engine) > free_before {
            return Ok(Gain::Room);
        }
        Ok(Gain::Moves(self.cleaned.moved_bytes.load(Ordering::Relaxed) - moved_before))
    }

    /// Takes a checkpoint. If it finds no segment to continue in, that is no error, because
    /// cleaning may help it later.
    pub(crate) fn checkpoint_if_it_fits(&self, is_enough: &dyn Fn(&Engine) -> bool) -> Result<()> {
        match self.checkpoint_unless(is_enough) {
            Err(Error::NoSpace { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Whether a checkpoint frees so many segments that waiting commits should not wait for more.
    fn is_worth_a_checkpoint(&self) -> bool {
        let engine = self.engine.read();
        let pending = self.unreusable_segments(&engine);
        pending >= self.checkpoint_batch(&engine)
            && self.is_worth_writing_nodes(&engine, pending, true)
    }

    /// The room that a commit which took `bytes` should make itself. It is nothing while clean
    /// segments are many, and grows as they get fewer, up to twice what the commit took. So commits
    /// are slowed down gradually, long before one would have to stop.
    pub(crate) fn share_of_cleaning(&self, engine: &Engine, bytes: u64) -> i64 {
        let size = self.layout.segment_size_bytes();
        let window = u64::from(self.pace_segments() + 2) * size;
        let room = engine.room_bytes(self.checkpoint_reserve(engine) + self.reclaim_reserve());
        let pending = u64::from(engine.state.segments.counts().pending) * size;
        let missing = window.saturating_sub(room + pending);
        (u128::from(2 * bytes) * u128::from(missing) / u128::from(window)) as i64
    }

    /// Performs background work until it has made so much room, or until there is nothing to do.
    pub(crate) fn assist_cleaning(&self, owed_bytes: i64) -> Result<()> {
        let began = self.now();
        let mut owed = self.pacing.owe(owed_bytes);
        for _ in 0..MAX_ASSIST_STEPS {
            if owed <= 0 {
                break;
            }
            let Some(gained) = self.clean_for_room()? else {
                // There is nothing to gain now, and later commits do not have to make up for it.
                self.pacing.forgive();
                break;
            };
            owed = self.pacing.owe(-gained);
        }
        self.pacing.note_stall(began, self.now());
        Ok(())
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.engine.read().clock.now()
    }

    /// Whether the clean segments suffice to move another segment's blocks, with `spare` of them
    /// for the nodes that this changes, and to write a checkpoint after that. The more segments are
    /// cleaned before a checkpoint, the less each of them costs.
    fn may_clean_more(&self, spare: u32) -> bool {
        let engine = self.engine.read();
        let counts = engine.state.segments.counts();
        counts.clean > self.node_segments(&engine) + spare
            && counts.pending < self.checkpoint_batch(&engine).max(MIN_CLEANED_AT_ONCE)
    }
}
