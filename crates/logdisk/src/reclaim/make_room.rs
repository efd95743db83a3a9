//! Making room: what is done when too few segments are clean, or the host has no room.

use dendro_base::Timestamp;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_base::sync::{Arc, Mutex};
use dendro_disk::Result;

use std::time::Duration;

use crate::checkpoint::Checkpointer;
use crate::clean::cleaner::Cleaner;
use crate::clean::pick::Choice;
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::space::reserve::{Accounts, KeptSegments};
use crate::space::reuse::Reuse;
use crate::space::shortage::{Need, Shortage};
use crate::volume::Volume;
use crate::volume::holds::LockHolder;

/// The number of attempts in a row to make room that may gain nothing before a commit gives up,
/// beside the first of them, during which others may clean too. The nodes that a checkpoint writes
/// can at first take all that cleaning frees.
const MAX_FRUITLESS: u32 = 3;
/// The number of segments' worth of blocks that may be moved without any gain. When clean segments
/// are few, emptying one segment takes several attempts, with a checkpoint after each.
const MAX_FRUITLESS_SEGMENTS: u64 = 4;
/// The largest number of attempts. Together they empty more segments than any unit needs.
const MAX_ATTEMPTS: u32 = 64;
/// The number of attempts after which hardly more is gained than cleaning takes.
const STUCK_AFTER: u32 = 4;
/// The number of nearly empty or mostly dead segments that are cleaned when there is no room for
/// more.
const MAX_NEARLY_EMPTY: usize = 4;
/// The number of attempts in a row without gain after which a unit that gives space back may use up
/// the clean segments that are kept for such units.
const CAREFUL_UNTIL: u32 = 2;
/// The number of segments that one attempt looks at. Some take more than can be spared.
const MAX_VICTIMS: u32 = 64;
/// The number of segments that a commit cleans before it takes a checkpoint, if there is room for
/// their blocks. On a small, full volume the nodes would take all that fewer segments give.
pub(super) const MIN_CLEANED_AT_ONCE: u32 = 8;

/// How much of the pruning a caller knows of; at first of none.
#[derive(Debug, Default)]
pub(crate) struct SeenPruning(u64);

impl SeenPruning {
    /// Takes over how often something was pruned until now. Returns whether that is news.
    pub(super) const fn update(&mut self, count: u64) -> bool {
        let before = self.0;
        self.0 = count;
        before != count
    }
}

/// What a unit may use after attempts to make room that were in vain.
#[derive(Clone, Copy, Debug)]
enum LastResort {
    /// It gives space back: all that the next checkpoint does not need.
    Reclaiming,
    /// There is logical free space for it, and only a part of a segment is missing, because blocks
    /// never fill segments exactly: one segment of those for units that give space back.
    Writing,
}

/// Counts the attempts to make room for one unit.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    attempts: u32,
    fruitless: u32,
    moved_bytes: u64,
    seen_pruning: SeenPruning,
    last_resort: Option<LastResort>,
}

impl Tries {
    pub(crate) const fn seen_pruning(&mut self) -> &mut SeenPruning {
        &mut self.seen_pruning
    }

    /// The clean segments that are kept from a unit for which these attempts were made.
    pub(crate) fn kept_segments(&self, accounts: &Accounts, engine: &Engine) -> KeptSegments {
        let kept = accounts.kept_segments(engine);
        match self.last_resort {
            None => kept,
            Some(LastResort::Reclaiming) => accounts.least_kept_segments(engine),
            Some(LastResort::Writing) => kept.with_one_less_for_reclaiming(),
        }
    }

    /// After attempts that were in vain, lets the unit use some of what is kept for others. Returns
    /// false if it may do so already.
    pub(super) const fn try_last_resort(&mut self, need: Need) -> bool {
        let is_new = self.last_resort.is_none();
        self.last_resort =
            Some(if need.reclaims() { LastResort::Reclaiming } else { LastResort::Writing });
        is_new
    }

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

    /// Whether another attempt may be made.
    const fn may_go_on(&self) -> bool {
        self.fruitless <= MAX_FRUITLESS && self.attempts <= MAX_ATTEMPTS
    }

    const fn is_stuck(&self) -> bool {
        self.is_fruitless() || self.attempts >= STUCK_AFTER
    }

    /// Whether attempts for a unit that gives space back may use up what is kept for that.
    const fn may_use_up(&self, need: Need) -> bool {
        need.reclaims() && self.fruitless >= CAREFUL_UNTIL
    }

    /// Whether the last attempt has gained nothing.
    const fn is_fruitless(&self) -> bool {
        self.fruitless > 0
    }
}

/// What an attempt to make room gained.
enum Gain {
    Room,
    /// No room yet, but blocks of so many bytes were moved. When more of a segment's blocks are
    /// moved, it becomes empty.
    Moves(u64),
}

/// Makes room with what is there: by reuse, checkpoints and cleaning.
///
/// Several threads may make room at the same time, as long as each attempt gains some. Each of them
/// needs clean segments to move blocks to. So on a nearly full volume they can take from each other
/// what each gains. A thread whose attempt has gained nothing therefore makes the next ones alone,
/// and a unit is refused only after that.
pub(crate) struct RoomMaker {
    volume: Arc<Volume>,
    accounts: Arc<Accounts>,
    checkpointer: Arc<Checkpointer>,
    reuse: Arc<Reuse>,
    cleaner: Arc<Cleaner>,
    /// Held by the thread that makes room alone.
    alone: Mutex<()>,
    stalled_ns: AtomicU64,
}

impl RoomMaker {
    pub(crate) const fn new(
        volume: Arc<Volume>,
        accounts: Arc<Accounts>,
        checkpointer: Arc<Checkpointer>,
        reuse: Arc<Reuse>,
        cleaner: Arc<Cleaner>,
    ) -> Self {
        Self {
            volume,
            accounts,
            checkpointer,
            reuse,
            cleaner,
            alone: Mutex::new(()),
            stalled_ns: AtomicU64::new(0),
        }
    }

    /// How long commits have waited for room, all together.
    pub(crate) fn stalled(&self) -> Duration {
        Duration::from_nanos(self.stalled_ns.load(Ordering::Relaxed))
    }

    /// Notes that a commit has waited since `began`.
    pub(super) fn note_stall(&self, began: Timestamp) {
        let waited_ns = self.volume.now().since(began).as_nanos() as u64;
        self.stalled_ns.fetch_add(waited_ns, Ordering::Relaxed);
    }

    /// Calls `change` as [`Volume::change`] does, when there is no shortage for `need`. While there
    /// is one, `mend` acts on it, without the lock.
    ///
    /// # Errors
    /// What `change` or `mend` returns.
    pub(super) fn with_room<T>(
        &self,
        holder: LockHolder,
        need: Need,
        mut change: impl FnMut(&mut Engine, &dyn Nodes) -> Outcome<T>,
        mut mend: impl FnMut(Shortage, &mut Tries) -> Result<()>,
    ) -> Result<T> {
        let mut tries = Tries::default();
        self.accounts.host().look();
        loop {
            let mut shortage = None;
            let changed = self.volume.change(holder, |engine, nodes| {
                let kept = tries.kept_segments(&self.accounts, engine);
                shortage = self.accounts.shortage(engine, need, kept);
                if shortage.is_some() {
                    // Whatever is held back for others to look at is needed now.
                    engine.state().segments().end_hold();
                    return Ok(None);
                }
                let changed = change(engine, nodes)?;
                // The change leaves the map so that checkpoints find their segments (space 1).
                debug_assert!(
                    self.accounts.checkpoints_fit(engine),
                    "{}",
                    self.accounts.describe_reserve(engine)
                );
                Ok(Some(changed))
            })?;
            match (changed, shortage) {
                (Some(changed), _) => return Ok(changed),
                (None, Some(shortage)) => mend(shortage, &mut tries)?,
                (None, None) => unreachable!("without a shortage it was tried"),
            }
        }
    }

    /// As [`Self::with_room`], for something that gives space back. It may use the reserve for such
    /// units, so nothing has to be freed for it.
    ///
    /// # Errors
    /// What `change` returns; [`Error::NoSpace`](dendro_disk::Error::NoSpace) when there is no
    /// room.
    pub(super) fn with_room_to_reclaim<T>(
        &self,
        log_bytes: u64,
        change: impl FnMut(&mut Engine, &dyn Nodes) -> Outcome<T>,
    ) -> Result<T> {
        let need = Need::reclaiming(log_bytes);
        self.with_room(LockHolder::Removal, need, change, |shortage, tries| {
            let is_worth_it =
                self.try_to_mend(shortage, need, tries)? || tries.try_last_resort(need);
            if is_worth_it { Ok(()) } else { Err(shortage.error(need)) }
        })
    }

    /// Makes room for `need`. Returns whether it is worth checking the shortage again.
    pub(super) fn try_to_mend(
        &self,
        shortage: Shortage,
        need: Need,
        tries: &mut Tries,
    ) -> Result<bool> {
        match shortage {
            // Only deleting helps.
            Shortage::OfSpace(_) => Ok(false),
            Shortage::OnHost(available_bytes) => {
                Ok(self.make_room_on_host(available_bytes, need)? && tries.note_of_host())
            }
            Shortage::OfRoom(_) => {
                // What is kept for the unit comes before what uses that up.
                if tries.may_use_up(need) && tries.try_last_resort(need) {
                    return Ok(true);
                }
                let _alone = tries.is_fruitless().then(|| self.alone.lock());
                // Others may have made room since the caller looked, or while this waited.
                if tries.is_fruitless() && self.has_room(need, tries) {
                    return Ok(true);
                }
                let _claim = tries.is_fruitless().then(|| self.accounts.claim());
                let gain = self.make_room(tries.is_fruitless(), tries.may_use_up(need))?;
                tries.note(&gain, self.volume.layout().segment_size_bytes());
                if tries.is_stuck() {
                    // All that can be gained may lie in segments that streams are filling, or in
                    // segments that could not be read some time ago.
                    self.volume.write().retire_streams();
                    self.cleaner.try_set_aside_again();
                }
                Ok(tries.may_go_on() || self.has_room(need, tries))
            }
        }
    }

    /// Whether there is room for `need` by now.
    fn has_room(&self, need: Need, tries: &Tries) -> bool {
        let engine = self.volume.read();
        let kept = tries.kept_segments(&self.accounts, &engine);
        self.accounts.shortage(&engine, need, kept).is_none()
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
        let pending = u64::from(engine.state().segments().counts().pending);
        let of_map = self.accounts.map_stream().room_bytes();
        engine.room_bytes(0) + engine.streams().room_bytes(size) + of_map + pending * size
    }

    /// Tries to make room, and returns what that gained. Segments that are already empty need only
    /// a checkpoint. When these are few, segments are cleaned first, as many as the reserve allows.
    /// `is_thorough` attempts gain the last segment that there is. See [`Tries::may_use_up`].
    fn make_room(&self, is_thorough: bool, may_use_up: bool) -> Result<Gain> {
        let began = self.volume.now();
        let result = self.try_to_make_room(is_thorough, may_use_up);
        self.note_stall(began);
        result
    }

    fn try_to_make_room(&self, is_thorough: bool, may_use_up: bool) -> Result<Gain> {
        let (clean_before, taken_before) = {
            let engine = self.volume.read();
            (engine.state().segments().clean_count(), engine.user_bytes())
        };
        let is_enough = |engine: &Engine| engine.state().segments().clean_count() > clean_before;
        self.cleaner.drop_empty_jobs();
        self.reuse.all()?;
        if is_enough(&self.volume.read()) {
            return Ok(Gain::Room);
        }
        if self.is_worth_a_checkpoint() {
            self.checkpointer.take_if_it_fits(&is_enough)?;
            if is_enough(&self.volume.read()) {
                return Ok(Gain::Room);
            }
        }
        let free_before = self.free_bytes();
        let moved_before = self.cleaner.moved_bytes();
        self.clean(is_thorough, true, &is_enough)?;
        if may_use_up && !is_enough(&self.volume.read()) && !self.checkpoint_gains() {
            self.clean(is_thorough, false, &is_enough)?;
        }
        self.reuse.all()?;
        if !is_enough(&self.volume.read()) {
            self.checkpointer.take_if_it_fits(&is_enough)?;
        }
        // The segment in which the map was before is empty with that, and the next checkpoint makes
        // it clean. It writes little, but would be the third one for a single segment.
        if is_thorough && !is_enough(&self.volume.read()) {
            self.checkpointer.take_if_it_fits(&is_enough)?;
        }
        // Another commit may have taken what was gained.
        let engine = self.volume.read();
        let has_been_taken = engine.user_bytes() > taken_before;
        if is_enough(&engine) || has_been_taken || self.free_bytes_in(&engine) > free_before {
            return Ok(Gain::Room);
        }
        Ok(Gain::Moves(self.cleaner.moved_bytes() - moved_before))
    }

    /// Cleans segments until `is_enough`, or as far as there is room. See [`Cleaner::clean_now`]
    /// for `is_careful`.
    fn clean(
        &self,
        is_thorough: bool,
        is_careful: bool,
        is_enough: &dyn Fn(&Engine) -> bool,
    ) -> Result<()> {
        let clean = |choice| self.cleaner.clean_now(choice, is_careful, is_enough);
        // The first segment has the fewest live bytes to move. Several crashes may have left hardly
        // more room than that takes, or even less.
        if self.may_clean_more(1) && clean(Choice::MostToGain)? {
            for _ in 1..MAX_VICTIMS {
                if is_enough(&self.volume.read())
                    || !self.may_clean_more(2)
                    || !clean(Choice::MostToGain)?
                {
                    break;
                }
            }
        } else {
            for _ in 0..MAX_NEARLY_EMPTY {
                if !self.may_clean_more(0) || !clean(Choice::NearlyEmpty)? {
                    break;
                }
            }
        }
        // After crashes in a row, so few segments can be clean that none may be taken.
        if is_thorough && !self.checkpoint_gains() && !is_enough(&self.volume.read()) {
            for _ in 0..MAX_NEARLY_EMPTY {
                if !clean(Choice::MostlyDead)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Tries to make room on the host, by discarding what is empty or mostly dead in the image.
    /// Returns whether there is more room than `available_bytes`.
    ///
    /// # Errors
    /// [`Error::NoSpace`](dendro_disk::Error::NoSpace) when what was accepted before still waits
    /// for room.
    fn make_room_on_host(&self, available_bytes: u64, need: Need) -> Result<bool> {
        if self.accounts.waits_for_host() {
            self.volume.write_queued()?;
            self.checkpointer.write_waiting_nodes()?;
        }
        let has_gained = || {
            self.accounts.host().look_now();
            let engine = self.volume.read();
            match self.accounts.shortage_on_host(&engine, need) {
                Some(Shortage::OnHost(available)) => available > available_bytes,
                _ => true,
            }
        };
        if has_gained() {
            return Ok(true);
        }
        let has_pending = self.volume.read().state().segments().counts().pending > 0;
        if has_pending {
            self.checkpointer.take_if_it_fits(&|_| false)?;
            if has_gained() {
                return Ok(true);
            }
        }
        if self.cleaner.clean_now(Choice::MostToGain, !need.reclaims(), &|_| false)? {
            self.checkpointer.take_if_it_fits(&|_| false)?;
        }
        Ok(has_gained())
    }

    /// Whether a checkpoint frees so many segments that waiting commits should not wait for more.
    fn is_worth_a_checkpoint(&self) -> bool {
        let engine = self.volume.read();
        let pending = self.accounts.unreusable_segments(&engine);
        pending >= self.accounts.checkpoint_batch(&engine)
            && self.accounts.is_worth_writing_nodes(&engine, pending, true)
    }

    /// Whether a checkpoint frees more segments than it takes.
    fn checkpoint_gains(&self) -> bool {
        let engine = self.volume.read();
        let pending = engine.state().segments().counts().pending;
        pending > self.accounts.node_segments(&engine)
    }

    /// Whether the clean segments suffice to move another segment's blocks, with `spare` of them
    /// for the nodes that this changes, and to write a checkpoint after that. The more segments are
    /// cleaned before a checkpoint, the less each of them costs.
    fn may_clean_more(&self, spare: u32) -> bool {
        let engine = self.volume.read();
        let counts = engine.state().segments().counts();
        counts.clean > self.accounts.node_segments(&engine) + spare
            && counts.pending < self.accounts.checkpoint_batch(&engine).max(MIN_CLEANED_AT_ONCE)
    }
}
