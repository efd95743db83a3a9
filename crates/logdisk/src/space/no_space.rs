//! What does not fit: whether a unit lacks space or room (ENOSPC), and how room is made for it.

use dendro_base::sync::atomic::Ordering;
use dendro_disk::{Error, Result};

use crate::clean::pick::Choice;
use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;

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
/// The number of segments that a commit cleans before it takes a checkpoint, if there is room for
/// their blocks. On a small, full volume the nodes would take all that fewer segments give.
const MIN_CLEANED_AT_ONCE: u32 = 8;

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
                tries.note(&self.make_room()?, self.volume.layout().segment_size_bytes());
                if tries.is_stuck() {
                    // All that can be gained may lie in segments that streams are filling, or in
                    // segments that could not be read some time ago.
                    self.volume.write().retire_streams();
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
        let live_bytes = || self.volume.read().state.segments.live_bytes();
        let freed_bytes =
            u64::from(MIN_CLEANED_AT_ONCE) * self.volume.layout().segment_size_bytes();
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
            let changed = self.volume.change(|engine, nodes| {
                self.volume.check_writable(engine)?;
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
        self.free_bytes_in(&self.volume.read())
    }

    /// As [`Self::free_bytes`], in a locked engine. It includes the rest of the segments that
    /// payload streams and the map stream are filling: where little is dead, cleaning a segment
    /// gains less than a segment.
    fn free_bytes_in(&self, engine: &Engine) -> u64 {
        let size = self.volume.layout().segment_size_bytes();
        let pending = u64::from(engine.state.segments.counts().pending);
        let of_map = self.map_room_bytes.load(Ordering::Relaxed);
        engine.room_bytes(0) + engine.streams.room_bytes(size) + of_map + pending * size
    }

    /// Tries to make room, and returns what that gained. Segments that are already empty need only
    /// a checkpoint. When these are few, segments are cleaned first, as many as the reserve allows.
    fn make_room(&self) -> Result<Gain> {
        let began = self.volume.now();
        let result = self.try_to_make_room();
        self.pacing.note_stall(began, self.volume.now());
        result
    }

    fn try_to_make_room(&self) -> Result<Gain> {
        let (clean_before, taken_before) = {
            let engine = self.volume.read();
            (engine.state.segments.clean_count(), engine.user_bytes())
        };
        let is_enough = |engine: &Engine| engine.state.segments.clean_count() > clean_before;
        self.drop_empty_jobs();
        self.reuse_all()?;
        if is_enough(&self.volume.read()) {
            return Ok(Gain::Room);
        }
        if self.is_worth_a_checkpoint() {
            self.checkpoint_if_it_fits(&is_enough)?;
            if is_enough(&self.volume.read()) {
                return Ok(Gain::Room);
            }
        }
        let free_before = self.free_bytes();
        let moved_before = self.cleaned.moved_bytes.load(Ordering::Relaxed);
        // The first segment has the fewest live bytes to move. Several crashes may have left hardly
        // more room than that takes, or even less.
        if self.may_clean_more(1) && self.clean_now(Choice::MostToGain, &is_enough)? {
            while !is_enough(&self.volume.read())
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
        if !is_enough(&self.volume.read()) {
            self.checkpoint_if_it_fits(&is_enough)?;
        }
        // Another commit may have taken what was gained.
        let engine = self.volume.read();
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
        let engine = self.volume.read();
        let pending = self.unreusable_segments(&engine);
        pending >= self.checkpoint_batch(&engine)
            && self.is_worth_writing_nodes(&engine, pending, true)
    }

    /// Whether the clean segments suffice to move another segment's blocks, with `spare` of them
    /// for the nodes that this changes, and to write a checkpoint after that. The more segments are
    /// cleaned before a checkpoint, the less each of them costs.
    fn may_clean_more(&self, spare: u32) -> bool {
        let engine = self.volume.read();
        let counts = engine.state.segments.counts();
        counts.clean > self.node_segments(&engine) + spare
            && counts.pending < self.checkpoint_batch(&engine).max(MIN_CLEANED_AT_ONCE)
    }
}
