//! Space: what fits, what can be written now, and how writers are slowed down when that gets little
//! (DESIGN §9).
//!
//! There are two accounts. *Logical free* is the capacity less what lives and what is reserved: when
//! it is used up, only deleting helps. *Room* is what can be written before the clean segments that
//! checkpoints and cleaning need are touched: when it is used up, cleaning helps.
//!
//! Segments are kept for those who must never wait, in this order: the nodes of the next checkpoint
//! and what cleaning one segment takes; above these, what units take that give space back, so that
//! deleting works on a full volume. Cleaning in the background keeps some more ready, and commits
//! lend it a hand the more, the fewer of these are left.

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

/// How often in a row a commit tries to make room and nobody gains anything before it gives up: the
/// nodes that a checkpoint writes can take at first what cleaning frees.
const MAX_FRUITLESS: u32 = 2;
/// So many segments' worth of blocks may be moved without anybody gaining anything: with few clean
/// segments one is emptied in several tries, with a checkpoint after each.
const MAX_MOVED_IN_VAIN: u64 = 4;
/// How often at all: together they empty more segments than any unit needs.
const MAX_ATTEMPTS: u32 = 64;
/// After so many, what is gained is hardly more than what cleaning takes.
const STUCK_AFTER: u32 = 4;
/// So many segments of which next to nothing lives are cleaned when there is no room for more.
const MAX_NEARLY_EMPTY: usize = 4;
/// Pieces of background work that one commit does at most.
const MAX_ASSIST_STEPS: usize = 8;
/// So many segments a commit cleans before it takes a checkpoint, if they can be written to: on a
/// small volume that is full, the nodes would take what fewer give.
const MIN_CLEANED_AT_ONCE: u32 = 8;
/// As much dirty map is reckoned with at least.
const MIN_DIRTY_BYTES: u64 = 256 << 10;
/// What a segment's usage record takes in the map at most.
const MAX_USAGE_LEN_BYTES: u64 = 80;
/// Moving nodes to other segments writes the nodes above them anew, all of them at worst, which are a
/// 64th of the map or less. So a checkpoint gains nothing unless it empties segments with several times
/// as much in them, and these must be in part dead. A quarter of what the map takes is kept from
/// clients for that...
const MAP_SHARE_DEAD: u64 = 4;
/// ... and of that a quarter again lies in clean segments, to move nodes to.
pub(crate) const MAP_SHARE_CLEAN: u64 = 16;

/// What commits owe for the room they took, and how long they have waited.
#[derive(Debug)]
pub(crate) struct Pacing {
    settings: Mutex<CleanSettings>,
    owed_bytes: AtomicI64,
    stalled_ns: AtomicU64,
    work: Mutex<Work>,
    due: Condvar,
}

/// What those who wait for background work are to know.
#[derive(Debug)]
struct Work {
    /// Whether some has become due since somebody last waited for it.
    is_due: bool,
    /// Nobody waits for any.
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

    /// Adds to what is owed; returns the sum.
    fn owe(&self, bytes: i64) -> i64 {
        self.owed_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    fn forgive(&self) {
        self.owed_bytes.store(0, Ordering::Relaxed);
    }
}

/// How often it was tried to make room for one unit.
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
                let is_in_vain = self.moved_bytes > MAX_MOVED_IN_VAIN * segment_size_bytes;
                self.fruitless += (*bytes == 0 || is_in_vain) as u32;
            }
        }
    }

    /// Notes that there is some more room on the host; says whether it may be tried once more.
    const fn note_of_host(&mut self) -> bool {
        self.attempts += 1;
        self.attempts <= MAX_ATTEMPTS
    }

    const fn is_stuck(&self) -> bool {
        self.fruitless > 0 || self.attempts >= STUCK_AFTER
    }
}

/// What trying to make room came to.
enum Gain {
    Room,
    /// None yet, but blocks of so many bytes were moved: when more of a segment's are, it will be empty.
    Moves(u64),
}

/// What a unit needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Bytes of log, at worst.
    pub(crate) log_bytes: u64,
    /// Bytes that must be left free besides.
    pub(crate) kept_bytes: u64,
    /// Bytes that it surely gives back.
    pub(crate) given_back_bytes: u64,
    /// It gives space back: it needs room alone.
    pub(crate) reclaims: bool,
}

impl Need {
    /// That of what takes space.
    pub(crate) const fn space(log_bytes: u64) -> Self {
        Self { log_bytes, kept_bytes: 0, given_back_bytes: 0, reclaims: false }
    }

    /// That of what gives space back.
    pub(crate) const fn reclaiming(log_bytes: u64) -> Self {
        Self { reclaims: true, ..Self::space(log_bytes) }
    }
}

/// Why a unit does not fit.
pub(crate) enum Shortage {
    /// Too much can be reached: only deleting helps. What is free, in bytes.
    OfSpace(u64),
    /// Too few segments are clean. What can be written, in bytes.
    OfRoom(u64),
    /// The file system that holds the image is full, or nearly so. What can be written, in bytes.
    OnHost(u64),
}

impl LogDisk {
    /// When cleaning goes on by itself.
    pub fn clean_settings(&self) -> CleanSettings {
        *self.pacing.settings.lock()
    }

    /// Changes when cleaning goes on by itself.
    pub fn set_clean_settings(&self, settings: CleanSettings) {
        *self.pacing.settings.lock() = settings;
    }

    /// Clean segments that are never filled with what clients write, as much as is dirty now.
    pub(crate) fn reserve_segments(&self, engine: &Engine) -> u32 {
        self.checkpoint_reserve(engine) + self.reclaim_reserve()
    }

    /// Waits up to `timeout` until background work is due. For the threads that do it, when
    /// [`Self::background_step`] or [`Self::clean_step`] had nothing to do.
    pub fn wait_for_background_work(&self, timeout: Duration) {
        let mut work = self.pacing.work.lock();
        if !work.is_due && !work.is_ending {
            let _ = self.pacing.due.wait_for(&mut work, timeout);
        }
        work.is_due = false;
    }

    /// From now on nobody waits in [`Self::write_step`] or [`Self::wait_for_background_work`], and who
    /// does is woken: the threads that call them are to end.
    pub fn end_waiting(&self) {
        self.writer.end_waiting();
        self.pacing.work.lock().is_ending = true;
        self.pacing.due.notify_all();
    }

    /// Wakes the thread that does background work, if there is some. Called when the log has grown.
    pub(crate) fn wake_background(&self, engine: &Engine) {
        if self.checkpoint_is_due_in(engine)
            || self.room_is_short(engine, 0)
            || self.reuse_is_wanted(engine)
        {
            self.pacing.wake();
        }
    }

    /// Whether fewer segments than should be ready, and than so many at least, are clean, or will be
    /// after a checkpoint.
    pub(crate) fn room_is_short(&self, engine: &Engine, at_least: u32) -> bool {
        let counts = engine.state.segments.counts();
        let ready = self.pool_segments(engine).max(at_least);
        // What is not worth a checkpoint yet is not to be counted on.
        let waiting = self.unreusable_segments(engine);
        let waiting = if self.is_worth_writing_nodes(engine, waiting, false) { 0 } else { waiting };
        counts.clean + counts.pending
            < (self.scarce_segments(engine) + waiting).saturating_add(ready)
    }

    /// Whether a checkpoint should be taken for the segments that it makes clean. Writing the dirty
    /// nodes takes segments too, and time: with some clean segments left it waits until it frees a
    /// good many at once.
    pub(crate) fn space_wants_checkpoint(&self, engine: &Engine) -> bool {
        let counts = engine.state.segments.counts();
        let pending = self.unreusable_segments(engine);
        let is_due = counts.clean <= self.scarce_segments(engine) + self.pool_segments(engine) / 4;
        // Cleaning does not go on without.
        let is_last = counts.clean <= self.checkpoint_reserve(engine);
        (is_due && self.is_worth_writing_nodes(engine, pending, false))
            || (is_last && self.is_worth_writing_nodes(engine, pending, true))
    }

    /// With so many clean segments commits are about to find no room: the reserve, and what the streams
    /// take next.
    pub(crate) fn scarce_segments(&self, engine: &Engine) -> u32 {
        self.reserve_segments(engine) + 2
    }

    /// Segments that only a checkpoint makes clean.
    fn unreusable_segments(&self, engine: &Engine) -> u32 {
        engine.state.segments.counts().pending.saturating_sub(engine.reusable_count())
    }

    /// Whether so many segments are more than the nodes of a checkpoint take, several times over if it
    /// is not urgent: after it the nodes of the one before wait in their turn.
    fn is_worth_writing_nodes(&self, engine: &Engine, segments: u32, is_urgent: bool) -> bool {
        let size = self.layout.segment_size_bytes();
        let cost_bytes = engine.state.map.dirty_len_bytes() + size / 2;
        let times = if is_urgent { 2 } else { 4 };
        u64::from(segments) * size > times * cost_bytes
    }

    /// Whether emptied segments should become clean without a checkpoint: clean ones are few, and
    /// there are enough for the two flushes that it takes. Cleaning rests when clean and emptied ones
    /// are as many as the pool, so this must begin well before all of it is emptied: commits go on while
    /// the flushes take their time.
    pub(crate) fn reuse_is_wanted(&self, engine: &Engine) -> bool {
        engine.reusable_count() >= (self.pace_segments() / 2).max(1)
            && engine.state.segments.clean_count()
                <= self.scarce_segments(engine) + self.pool_segments(engine) / 2
    }

    /// So many segments are clean when no more are to be filled anew without a checkpoint.
    pub(crate) fn clean_after_reuse(&self, engine: &Engine) -> u32 {
        self.scarce_segments(engine) + self.pool_segments(engine)
    }

    /// So many segments a checkpoint should free at least that is taken because commits wait for
    /// them: each takes two flushes, and nodes of the map that would be written fewer times.
    fn checkpoint_batch(&self, engine: &Engine) -> u32 {
        (self.pool_segments(engine) / 4).max(1)
    }

    /// So many more clean segments than the reserve, those that the next checkpoint frees included,
    /// are kept ready by cleaning in the background. Each takes from the room in which segments
    /// wait for more of their blocks to die: where little is dead that costs much, and where much is,
    /// those who write much at a time need not wait. So what is added to the pace is a quarter of all
    /// segments times the third power of the share that is dead.
    pub(crate) fn pool_segments(&self, engine: &Engine) -> u32 {
        let live = engine.state.segments.live_bytes().div_ceil(self.layout.segment_size_bytes());
        let all = self.layout.log_segments().count() as u64;
        let dead = u128::from(all.saturating_sub(live));
        let all = u128::from(all);
        self.pace_segments() + (dead * dead * dead / (4 * all * all)) as u32
    }

    /// With fewer than so many, commits lend cleaning a hand, in proportion to what is missing.
    pub(crate) fn pace_segments(&self) -> u32 {
        let count = self.layout.segment_count();
        let default = (count / 128).clamp(2, 64);
        // Who asks for more than there are means all.
        self.clean_settings().min_clean_segments.unwrap_or(default).min(count)
    }

    /// So many are there after idle times.
    pub(crate) fn idle_segments(&self) -> u32 {
        let default = self.pace_segments().saturating_mul(4);
        self.clean_settings().max_clean_segments.unwrap_or(default)
    }

    /// Segments kept for checkpoints and cleaning, with so many bytes of the map dirty: the nodes of
    /// a checkpoint and what moving blocks adds to them, the main log's next and the map's, and one
    /// to move blocks to.
    fn reserve_for(&self, dirty_bytes: u64) -> u32 {
        (dirty_bytes + dirty_bytes / 2).div_ceil(self.layout.segment_size_bytes()) as u32 + 4
    }

    /// About what checkpoints have still to write of the map as it is, with the usage records that the
    /// next one brings up to date.
    pub(crate) fn unwritten_len_bytes(&self, engine: &Engine) -> u64 {
        let unrecorded = engine.state.segments.unrecorded().len() as u64;
        let all = u64::from(self.layout.segment_count()) * MAX_USAGE_LEN_BYTES;
        let usage_bytes = (unrecorded * LEAF_LEN_BYTES as u64).min(all);
        self.frozen_len_bytes.load(Ordering::Relaxed)
            + engine.state.map.due_len_bytes()
            + usage_bytes
    }

    /// Clean segments that checkpoints take for the map as it is, beyond the one that they are filling.
    pub(crate) fn node_segments(&self, engine: &Engine) -> u32 {
        let here = self.map_room_bytes.load(Ordering::Relaxed) / 4 * 3;
        let rest = self.unwritten_len_bytes(engine).saturating_sub(here);
        rest.div_ceil(self.layout.segment_size_bytes()) as u32
    }

    /// Whether the checkpoint under way and the next one find the segments that they take, as the map is
    /// now. Every unit leaves it so: what it dirties is less than the reserve leaves over.
    pub(crate) fn checkpoints_fit(&self, engine: &Engine) -> bool {
        let size = self.layout.segment_size_bytes();
        // What headers, records and nodes that do not fit leave unused of a segment.
        let unused = (2 * LEAF_LEN_BYTES + 3 * PAGE_SIZE) as u64;
        let segments = self.unwritten_len_bytes(engine).div_ceil(size - unused) + 1;
        let here = self.map_room_bytes.load(Ordering::Relaxed);
        u64::from(engine.state.segments.clean_count()) * size + here >= segments * size
    }

    /// For the message of a failed assertion.
    pub(crate) fn tell_reserve(&self, engine: &Engine) -> String {
        format!(
            "{:?}, {} bytes of nodes to be written",
            engine.state.segments.counts(),
            self.unwritten_len_bytes(engine)
        )
    }

    /// As much of that as is needed now, and what cleaning takes that moves nodes.
    pub(crate) fn checkpoint_reserve(&self, engine: &Engine) -> u32 {
        let to_clean = self.map_bytes(engine) / MAP_SHARE_CLEAN / self.layout.segment_size_bytes();
        self.reserve_for(self.unwritten_len_bytes(engine).max(MIN_DIRTY_BYTES)) + to_clean as u32
    }

    /// Clean segments that survivors leave alone: what a checkpoint takes, less the one that is for
    /// them. What they are moved from becomes clean in its turn.
    pub(crate) fn left_by_survivors(&self, engine: &Engine) -> u32 {
        self.checkpoint_reserve(engine) - 1
    }

    /// Segments that only units that give space back may use, and cleaning, beyond those for
    /// checkpoints.
    pub(crate) fn reclaim_reserve(&self) -> u32 {
        2 + (self.layout.segment_count() / 256).min(4)
    }

    /// What clients can have in all: the segments less the reserves and the one that the map's head
    /// fills, each as far as it can be filled with blocks that live.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        let segments = self.layout.log_segments().count() as u64;
        let reserve = u64::from(self.reserve_for(self.dirty_limit_bytes) + self.reclaim_reserve());
        segments.saturating_sub(reserve + 1) * self.fillable_bytes()
    }

    /// How much of a segment can live before cleaning gains nothing: partial segments have
    /// headers, records and blocks filled in part, four blocks each at worst and fewer in short ones,
    /// and a share must be dead, or each segment gained would cost very many moved.
    pub(crate) fn fillable_bytes(&self) -> u64 {
        let size = self.layout.segment_size_bytes();
        let longest = PARTIAL_LEN_BYTES as u64;
        let overhead_blocks =
            size.div_ceil(longest) * (1 + (3 * size.min(longest)).div_ceil(longest));
        size - size * u64::from(self.options.reserve_percent) / 100
            - overhead_blocks * PAGE_SIZE as u64
    }

    /// What is wrong with the space a unit takes, if anything: it does not fit among what can be
    /// reached, or there is nowhere to write it before segments have been cleaned.
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

    /// What can be reached, as it lies on the device: nodes of the map that no checkpoint has written
    /// yet, and the records that short blocks have beside them in the log, included.
    pub(crate) fn stored_bytes(&self, engine: &Engine) -> u64 {
        let segments = &engine.state.segments;
        let nodes_bytes = engine.state.map.dirty_len_bytes();
        segments.live_bytes() + segments.short_records_bytes() + nodes_bytes
    }

    /// That, and what pages of zeros take when they are written, so that they can be.
    pub(crate) fn used_bytes(&self, engine: &Engine) -> u64 {
        self.stored_bytes(engine).saturating_add(engine.state.segments.zero_pages_bytes())
    }

    /// What the map takes.
    pub(crate) fn map_bytes(&self, engine: &Engine) -> u64 {
        engine.state.segments.node_bytes() + engine.state.map.dirty_len_bytes()
    }

    /// What is not to be had by clients: what is used, what must be dead of the map's segments, and,
    /// where there are versions, as much as the map takes. For removing makes the map longer then, by no
    /// more than it is long: what hides an entry is no longer than that. So everything can be removed,
    /// however full the volume is.
    pub(crate) fn charged_bytes(&self, engine: &Engine) -> u64 {
        let map_bytes = self.map_bytes(engine);
        let kept_bytes = if engine.state.versions.are_several() { map_bytes } else { 0 };
        self.used_bytes(engine).saturating_add(map_bytes / MAP_SHARE_DEAD + kept_bytes)
    }

    /// Does something about a shortage; nothing may be locked. When it returns, what was found to be
    /// short must be looked at again, and nodes of the map may have moved.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when there is nothing more to be done.
    pub(crate) fn mend_shortage(
        &self,
        shortage: Shortage,
        need: Need,
        tries: &mut Tries,
    ) -> Result<()> {
        let (available_bytes, is_worth_it) = match shortage {
            // What only deleted versions had is free to be used.
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
                    // Segments that streams are filling may hold all that is left, or those that could
                    // not be read some time ago.
                    self.engine.write().retire_streams();
                    self.try_set_aside_again();
                }
                let mut is_worth_it =
                    tries.fruitless <= MAX_FRUITLESS && tries.attempts <= MAX_ATTEMPTS;
                // Nor is there anything to gain where only deleted versions had much of what is full.
                // A collection itself asks for room as what gives space back does.
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

    /// Takes out a piece of what nobody sees any more; says whether there was any.
    pub(crate) fn free_step(&self) -> Result<bool> {
        Ok(self.removal_step()? || self.collection_step()?)
    }

    /// Sweeps out what only deleted versions had until cleaning gains some segments from it, or nothing
    /// is left; says whether there was anything.
    fn collect_for_room(&self) -> Result<bool> {
        let live_bytes = || self.engine.read().state.segments.live_bytes();
        let freed_bytes = u64::from(MIN_CLEANED_AT_ONCE) * self.layout.segment_size_bytes();
        let enough = live_bytes().saturating_sub(freed_bytes);
        let mut has_swept = false;
        while live_bytes() > enough && (self.free_step()? || self.collect_behind_forks()) {
            has_swept = true;
        }
        Ok(has_swept)
    }

    /// Makes room for what is needed and calls `change` as [`Self::change`] does.
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
                debug_assert!(self.checkpoints_fit(engine), "{}", self.tell_reserve(engine));
                Ok(Some(changed))
            })?;
            match (changed, shortage) {
                (Some(changed), _) => return Ok(changed),
                (None, Some(shortage)) => self.mend_shortage(shortage, need, &mut tries)?,
                (None, None) => unreachable!("without a shortage it was tried"),
            }
        }
    }

    /// What can be written or will be once a checkpoint is durable.
    fn free_bytes(&self) -> u64 {
        self.free_bytes_in(&self.engine.read())
    }

    /// That of what payload streams and the map's go on in included: where little is dead, what cleaning
    /// one segment gains is less than a segment.
    fn free_bytes_in(&self, engine: &Engine) -> u64 {
        let size = self.layout.segment_size_bytes();
        let pending = u64::from(engine.state.segments.counts().pending);
        let of_map = self.map_room_bytes.load(Ordering::Relaxed);
        engine.room_bytes(0) + engine.streams.room_bytes(size) + of_map + pending * size
    }

    /// Tries to make room; says what that came to. What is empty already
    /// waits but for a checkpoint; when that is little, segments are cleaned first, as many as the
    /// reserve can take.
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
        self.release_emptied();
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
        // The first moves the least; crashes one after the other may have left little more than
        // it takes, or not even that.
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
        // What was gained may have been taken by another commit already.
        let engine = self.engine.read();
        let has_been_taken = engine.user_bytes() > taken_before;
        if is_enough(&engine) || has_been_taken || self.free_bytes_in(&engine) > free_before {
            return Ok(Gain::Room);
        }
        Ok(Gain::Moves(self.cleaned.moved_bytes.load(Ordering::Relaxed) - moved_before))
    }

    /// A checkpoint that finds no segment to go on in gains nothing now; cleaning may help it on.
    pub(crate) fn checkpoint_if_it_fits(&self, is_enough: &dyn Fn(&Engine) -> bool) -> Result<()> {
        match self.checkpoint_unless(is_enough) {
            Err(Error::NoSpace { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Whether a checkpoint frees so many segments that commits that wait should not wait for more.
    fn is_worth_a_checkpoint(&self) -> bool {
        let engine = self.engine.read();
        let pending = self.unreusable_segments(&engine);
        pending >= self.checkpoint_batch(&engine)
            && self.is_worth_writing_nodes(&engine, pending, true)
    }

    /// How much room a commit that took `bytes` should make in its turn: nothing while clean
    /// segments are many, then more the fewer they are, up to twice what it took. So commits are
    /// slowed down bit by bit, long before one would have to stop.
    pub(crate) fn share_of_cleaning(&self, engine: &Engine, bytes: u64) -> i64 {
        let size = self.layout.segment_size_bytes();
        let window = u64::from(self.pace_segments() + 2) * size;
        let room = engine.room_bytes(self.checkpoint_reserve(engine) + self.reclaim_reserve());
        let pending = u64::from(engine.state.segments.counts().pending) * size;
        let missing = window.saturating_sub(room + pending);
        (u128::from(2 * bytes) * u128::from(missing) / u128::from(window)) as i64
    }

    /// Does background work until it has made so much room, or there is nothing to do.
    pub(crate) fn assist_cleaning(&self, owed_bytes: i64) -> Result<()> {
        let began = self.now();
        let mut owed = self.pacing.owe(owed_bytes);
        for _ in 0..MAX_ASSIST_STEPS {
            if owed <= 0 {
                break;
            }
            let Some(gained) = self.clean_for_room()? else {
                // Nothing to gain now; what was owed is not held against later commits.
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
    /// for the nodes that this changes, and then to write a checkpoint: the more is cleaned before
    /// one, the less each costs.
    fn may_clean_more(&self, spare: u32) -> bool {
        let engine = self.engine.read();
        let counts = engine.state.segments.counts();
        counts.clean > self.node_segments(&engine) + spare
            && counts.pending < self.checkpoint_batch(&engine).max(MIN_CLEANED_AT_ONCE)
    }
}
