//! What fits: the capacity of the volume, what is charged against it, and the clean segments that
//! are kept for those who must never wait.

use dendro_base::sync::atomic::{AtomicU32, Ordering};
use dendro_base::sync::{Arc, Mutex};
use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Error, Ledger, Reservation, Result};
use dendro_format::Layout;
use dendro_format::layout::MIN_SEGMENT_COUNT;

use crate::engine::{Engine, PARTIAL_LEN_BYTES};
use crate::log::segments::FastCounts;
use crate::map::node::LEAF_LEN_BYTES;
use crate::options::CleanSettings;
use crate::space::host::Host;
use crate::space::map_stream::MapStream;
use crate::volume::Volume;

/// The least amount of dirty map that the reserve is computed for.
const MIN_DIRTY_BYTES: u64 = 256 << 10;
/// More than one unit that gives space back makes dirty of the map: the nodes on the way to a few
/// entries, and usage records.
const MAX_RECLAIM_DIRTY_BYTES: u64 = 128 << 10;
/// More than moving one block or node makes dirty: the nodes above it.
const MAX_MOVE_DIRTY_BYTES: u64 = 4 * LEAF_LEN_BYTES as u64;
/// What headers, records and nodes that do not fit leave unused of a segment of the map stream.
const UNUSED_BYTES: u64 = (2 * LEAF_LEN_BYTES + 3 * PAGE_SIZE) as u64;
/// The most that a segment's usage record takes in the map.
const MAX_USAGE_LEN_BYTES: u64 = 80;
/// Moving nodes to other segments writes the nodes above them again: at worst all of these, which
/// are a 64th of the map or less. So a checkpoint gains something only if it empties segments that
/// hold several times as much, and these must be partly dead. A quarter of what the map takes is
/// kept from clients for that.
const MAP_SHARE_DEAD: u64 = 4;
/// A quarter of that again lies in clean segments, to move nodes to.
pub(super) const MAP_SHARE_CLEAN: u64 = 16;

/// The clean segments that are kept for those who must never wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptSegments {
    /// What checkpoints take.
    pub(super) for_checkpoint: u32,
    /// What only cleaning and units that give space back may use besides.
    pub(super) for_reclaiming: u32,
}

impl KeptSegments {
    /// Those that client data never fills.
    pub(crate) const fn all(self) -> u32 {
        self.for_checkpoint + self.for_reclaiming
    }

    /// The same, with one segment less for units that give space back.
    pub(crate) const fn with_one_less_for_reclaiming(self) -> Self {
        Self { for_reclaiming: self.for_reclaiming.saturating_sub(1), ..self }
    }
}

/// The accounts of a volume: what is free, what can be written now, and what is kept for whom.
pub(crate) struct Accounts {
    volume: Arc<Volume>,
    /// The most live bytes of a segment with which cleaning still gains something.
    fillable_bytes: u64,
    settings: Mutex<CleanSettings>,
    /// [`CleanSettings::min_clean_segments`], which each commit reads; `u32::MAX` is `None`.
    least_clean: AtomicU32,
    ledger: Arc<Ledger>,
    map_stream: MapStream,
    host: Host,
    /// How many threads have claimed the clean segments.
    claim_count: AtomicU32,
}

/// The claim of one thread to all clean segments, until it is dropped. See [`Accounts::claim`].
pub(crate) struct Claim<'a>(&'a AtomicU32);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Accounts {
    pub(crate) fn new(volume: Arc<Volume>, reserve_percent: u8, settings: CleanSettings) -> Self {
        Self {
            fillable_bytes: fillable_bytes(volume.layout(), reserve_percent),
            settings: Mutex::new(settings),
            least_clean: AtomicU32::new(least_clean(settings)),
            ledger: Arc::default(),
            map_stream: MapStream::default(),
            host: Host::new(Arc::clone(&volume)),
            claim_count: AtomicU32::new(0),
            volume,
        }
    }

    /// What nodes of so many bytes take in all copies.
    pub(crate) fn in_all_copies(&self, nodes_bytes: u64) -> u64 {
        nodes_bytes.saturating_mul(self.volume.metadata_copies().into())
    }

    /// What the checkpoint under way says about the map stream.
    pub(crate) const fn map_stream(&self) -> &MapStream {
        &self.map_stream
    }

    /// Claims the clean segments for a thread that makes room for a unit which would be refused
    /// otherwise. Whatever moves blocks to gain room later waits meanwhile.
    pub(crate) fn claim(&self) -> Claim<'_> {
        self.claim_count.fetch_add(1, Ordering::AcqRel);
        Claim(&self.claim_count)
    }

    /// Whether a thread has claimed the clean segments.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claim_count.load(Ordering::Acquire) > 0
    }

    /// The file system that holds the image.
    pub(crate) const fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The bytes that clients have reserved.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.ledger.reserved_bytes()
    }

    /// The bytes that others have reserved than the one who has `own`.
    pub(crate) fn reserved_by_others_bytes(&self, own: Option<&Reservation>) -> u64 {
        self.ledger.reserved_by_others_bytes(own)
    }

    /// The settings of background cleaning.
    pub(crate) fn clean_settings(&self) -> CleanSettings {
        *self.settings.lock()
    }

    pub(crate) fn set_clean_settings(&self, settings: CleanSettings) {
        *self.settings.lock() = settings;
        self.least_clean.store(least_clean(settings), Ordering::Relaxed);
    }

    /// Reserves so many bytes for a client.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when not as much is free.
    pub(crate) fn reserve(&self, engine: &Engine, len_bytes: u64) -> Result<Reservation> {
        let limit = self.present_capacity_bytes(engine).saturating_sub(self.charged_bytes(engine));
        self.ledger.reserve(len_bytes, limit).ok_or_else(|| {
            let available_bytes = limit.saturating_sub(self.reserved_bytes());
            Error::NoSpace { needed_bytes: len_bytes, available_bytes }
        })
    }

    /// The clean segments that are kept, with the map as dirty as it is now.
    pub(crate) fn kept_segments(&self, engine: &Engine) -> KeptSegments {
        KeptSegments {
            for_checkpoint: self.checkpoint_reserve(engine),
            for_reclaiming: self.reclaim_reserve(),
        }
    }

    /// The clean segments that even a unit that gives space back leaves, where it would be refused
    /// otherwise: what the next checkpoint takes without mirrors. The reserve can be smaller than
    /// it should be, because the device could not write some segments or several crashes came in a
    /// row. Then only giving space back helps.
    pub(crate) fn least_kept_segments(&self, engine: &Engine) -> KeptSegments {
        let nodes_bytes = self.unwritten_len_bytes(engine) + MAX_RECLAIM_DIRTY_BYTES;
        let for_checkpoint = self.unmirrored_segments_for(nodes_bytes);
        KeptSegments { for_checkpoint, for_reclaiming: self.reclaim_reserve() }
    }

    /// Whether the segments that are clean, or will be after a checkpoint, are fewer than should be
    /// ready and than `at_least`.
    pub(crate) fn room_is_short(&self, engine: &Engine, at_least: u32) -> bool {
        let counts = engine.state().segments().counts();
        let ready = self.pool_segments(engine).max(at_least);
        // Segments are not counted as long as a checkpoint would not be worth it for them.
        let waiting = self.unreusable_segments(engine);
        let waiting = if self.is_worth_writing_nodes(engine, waiting, false) { 0 } else { waiting };
        counts.clean + counts.pending
            < (self.scarce_segments(engine) + waiting).saturating_add(ready)
    }

    /// Whether fewer fast segments than should be are clean, or will be after a checkpoint, and
    /// there is room to move to other ones what they hold.
    pub(crate) fn fast_is_short(&self, engine: &Engine) -> bool {
        let is_short = |fast: FastCounts| fast.clean + fast.pending < fast.wanted;
        self.movable_fast(engine).is_some_and(is_short)
    }

    /// The fast segments, if what is moved off them goes to others, and these have room.
    pub(crate) fn movable_fast(&self, engine: &Engine) -> Option<FastCounts> {
        let segments = engine.state().segments();
        let has_room = |fast: &FastCounts| {
            let others = segments.clean_count().saturating_sub(fast.clean);
            others > self.scarce_segments(engine) && engine.streams().are_survivors_apart()
        };
        segments.fast_counts().filter(has_room)
    }

    /// Whether a checkpoint should be taken for the fast segments that it makes clean: few are left
    /// and many wait for it.
    fn fast_wait_for_checkpoint(&self, engine: &Engine) -> bool {
        let fast = engine.state().segments().fast_counts();
        fast.is_some_and(|fast| {
            fast.clean <= fast.wanted / 4
                && self.is_worth_writing_nodes(engine, fast.pending, false)
        })
    }

    /// Whether a checkpoint should be taken for the segments that it makes clean. Writing the dirty
    /// nodes takes time and segments, too. So while some clean segments are left, the checkpoint
    /// waits until it frees many at once.
    pub(crate) fn wants_checkpoint(&self, engine: &Engine) -> bool {
        if engine.state().segments().is_held() {
            return false;
        }
        let counts = engine.state().segments().counts();
        let pending = self.unreusable_segments(engine);
        let is_due = self.pool_is_low(engine);
        // Cleaning cannot continue without a checkpoint.
        let is_last = counts.clean <= self.checkpoint_reserve(engine);
        (is_due && self.is_worth_writing_nodes(engine, pending, false))
            || self.fast_wait_for_checkpoint(engine)
            || (is_last && self.is_worth_writing_nodes(engine, pending, true))
    }

    /// Whether a sparse image grows while at least `bytes` of the segments that it has blocks for
    /// only wait for a checkpoint, so that taking one is worth it. Growing takes room of the host,
    /// and is slower than filling what the host has allocated.
    pub(crate) fn grows_for_want_of_checkpoint(&self, engine: &Engine, bytes: u64) -> bool {
        let segments = engine.state().segments();
        let pending = segments.counts().pending;
        u64::from(pending) * self.volume.layout().segment_size_bytes() >= bytes
            && self.host.total_bytes().is_some()
            && segments.backed_count() == 0
            && !segments.is_held()
            && self.is_worth_writing_nodes(engine, pending, false)
    }

    /// Whether segments that wait because a state is held are needed by now: clean segments are so
    /// few that a checkpoint would be taken for those that wait.
    pub(crate) fn needs_what_is_held(&self, engine: &Engine) -> bool {
        engine.state().segments().is_held()
            && engine.state().segments().has_pending()
            && self.pool_is_low(engine)
    }

    /// Whether so few segments are clean that a checkpoint is taken if it frees many.
    fn pool_is_low(&self, engine: &Engine) -> bool {
        engine.state().segments().clean_count()
            <= self.scarce_segments(engine) + self.pool_segments(engine) / 4
    }

    /// The number of clean segments at which commits are about to find no room: the reserve, and
    /// the segments that the streams open next.
    pub(crate) fn scarce_segments(&self, engine: &Engine) -> u32 {
        self.kept_segments(engine).all() + 2
    }

    /// Segments that only a checkpoint makes clean.
    pub(crate) fn unreusable_segments(&self, engine: &Engine) -> u32 {
        engine.state().segments().counts().pending.saturating_sub(engine.reusable_count())
    }

    /// Whether so many segments are worth more than the nodes that a checkpoint writes: twice as
    /// much if it is urgent, and six times otherwise. After the checkpoint, the nodes of the one
    /// before wait to be freed in their turn.
    pub(crate) fn is_worth_writing_nodes(
        &self,
        engine: &Engine,
        segments: u32,
        is_urgent: bool,
    ) -> bool {
        let size = self.volume.layout().segment_size_bytes();
        let cost_bytes = engine.state().map().dirty_len_bytes() + size / 2;
        let times = if is_urgent { 2 } else { 6 };
        u64::from(segments) * size > times * cost_bytes
    }

    /// Whether reclaimable segments should become clean without a checkpoint: clean segments are
    /// few, and enough segments are reclaimable to be worth two flushes. Cleaning pauses when clean
    /// and reclaimable segments together fill the pool. So reuse must begin well before the pool is
    /// used up, because commits continue while the flushes take their time.
    pub(crate) fn reuse_is_wanted(&self, engine: &Engine) -> bool {
        engine.reusable_count() >= (self.pace_segments() / 2).max(1)
            && engine.state().segments().clean_count()
                <= self.scarce_segments(engine) + self.pool_segments(engine) / 2
    }

    /// The number of clean segments at which reuse without a checkpoint stops.
    pub(super) fn clean_after_reuse(&self, engine: &Engine) -> u32 {
        self.scarce_segments(engine) + self.pool_segments(engine)
    }

    /// The least number of segments that a checkpoint should free if it is taken because commits
    /// wait. Each checkpoint takes two flushes, and writes nodes that fewer checkpoints would write
    /// fewer times.
    pub(crate) fn checkpoint_batch(&self, engine: &Engine) -> u32 {
        (self.pool_segments(engine) / 4).max(1)
    }

    /// The pool: the clean segments beyond the reserve that background cleaning keeps ready, with
    /// those that the next checkpoint frees. A larger pool leaves less room in which segments can
    /// wait until more of their blocks are dead. That costs much where little is dead. Where much
    /// is dead, a larger pool lets clients write much at once without waiting. So a quarter of all
    /// segments times the third power of the dead share is added to the segments of the pace.
    pub(crate) fn pool_segments(&self, engine: &Engine) -> u32 {
        let live = self.volume.layout().segments_for(engine.state().segments().live_bytes());
        let all = self.volume.usable_layout().log_segments().count() as u64;
        let dead = u128::from(all.saturating_sub(live));
        let all = u128::from(all);
        self.pace_segments() + (dead * dead * dead / (4 * all * all)) as u32
    }

    /// The pace: with fewer clean segments than this, commits assist cleaning in proportion to what
    /// is missing.
    pub(crate) fn pace_segments(&self) -> u32 {
        let count = self.volume.usable_layout().segment_count();
        let default = (count / 128).clamp(2, 64);
        match self.least_clean.load(Ordering::Relaxed) {
            u32::MAX => default.min(count),
            // A setting larger than the volume means all segments.
            setting => setting.min(count),
        }
    }

    /// The number of clean segments that idle cleaning makes.
    pub(crate) fn idle_segments(&self) -> u32 {
        let default = self.pace_segments().saturating_mul(4);
        self.clean_settings().max_clean_segments.unwrap_or(default)
    }

    /// The segments kept for checkpoints and cleaning, with so many dirty bytes in the map: the
    /// nodes of a checkpoint and what moving blocks adds to them, the next segment of the main log
    /// and of the map stream, and one segment to move blocks to; with two copies the mirrors too.
    fn reserve_for(&self, dirty_bytes: u64) -> u32 {
        let nodes_bytes = self.in_all_copies(dirty_bytes + dirty_bytes / 2);
        self.volume.layout().segments_for(nodes_bytes) as u32
            + 3
            + u32::from(self.volume.metadata_copies())
    }

    /// The clean segments that no mirror takes: those that a checkpoint without mirrors needs. So a
    /// volume with two copies is never stuck where one with one copy is not. When it is so full
    /// that even its reserves are used up, nodes are kept once until there is room.
    pub(crate) fn kept_from_mirrors(&self, engine: &Engine) -> u32 {
        self.unmirrored_segments_for(self.unwritten_len_bytes(engine))
    }

    /// What a checkpoint of so many bytes of nodes takes, without mirrors.
    fn unmirrored_segments_for(&self, nodes_bytes: u64) -> u32 {
        self.volume.layout().segments_for(nodes_bytes + nodes_bytes / 2) as u32 + 2
    }

    /// About what checkpoints have still to write of the present map, with the usage records that
    /// the next one brings up to date.
    pub(super) fn unwritten_len_bytes(&self, engine: &Engine) -> u64 {
        let unrecorded = engine.state().segments().unrecorded().len() as u64;
        let all = u64::from(self.volume.layout().segment_count()) * MAX_USAGE_LEN_BYTES;
        let usage_bytes = (unrecorded * LEAF_LEN_BYTES as u64).min(all);
        self.map_stream.left_bytes() + engine.state().map().due_len_bytes() + usage_bytes
    }

    /// The clean segments that checkpoints take for the present map, beyond the one that they are
    /// filling.
    pub(crate) fn node_segments(&self, engine: &Engine) -> u32 {
        let here = self.map_stream.room_bytes() / 4 * 3;
        let rest = self.unwritten_len_bytes(engine).saturating_sub(here);
        let segments = self.volume.layout().segments_for(rest) as u32;
        segments * u32::from(self.volume.metadata_copies())
    }

    /// Whether the checkpoint under way and the next one find the segments that they take for the
    /// present map. Every unit keeps this true (space 1): the nodes that it makes dirty take less
    /// than the reserve leaves over.
    pub(crate) fn checkpoints_fit(&self, engine: &Engine) -> bool {
        let size = self.volume.layout().segment_size_bytes();
        let segments = self.unwritten_len_bytes(engine).div_ceil(size - UNUSED_BYTES) + 1;
        let here = self.map_stream.room_bytes();
        u64::from(engine.state().segments().clean_count()) * size + here >= segments * size
    }

    /// Whether checkpoints find the segments that they take for the present map after one more
    /// block or node was moved. Whoever moves them to gain room stops when it is not so (space 1):
    /// what is moved takes no segments itself if it is nodes, so nothing else bounds that.
    pub(crate) fn one_more_move_fits(&self, engine: &Engine) -> bool {
        let size = self.volume.layout().segment_size_bytes();
        let clean = u64::from(engine.state().segments().clean_count());
        let room = clean * (size - UNUSED_BYTES)
            + self.map_stream.room_bytes().saturating_sub(UNUSED_BYTES);
        self.unwritten_len_bytes(engine) + MAX_MOVE_DIRTY_BYTES <= room
    }

    /// Describes the reserve, for the message of a failed assertion.
    pub(crate) fn describe_reserve(&self, engine: &Engine) -> String {
        format!(
            "{:?}, {} bytes of nodes to be written",
            engine.state().segments().counts(),
            self.unwritten_len_bytes(engine)
        )
    }

    /// The part of that reserve that is needed now, and what cleaning takes that moves nodes.
    pub(crate) fn checkpoint_reserve(&self, engine: &Engine) -> u32 {
        let to_clean =
            (self.map_bytes(engine) / MAP_SHARE_CLEAN) >> self.volume.layout().segment_size_log2();
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
        reclaim_reserve(self.volume.usable_layout())
    }

    /// The capacity of the volume for clients: the segments less those out of use, the reserves and
    /// those that the map stream fills, each as far as it can be filled with live blocks.
    pub(crate) fn capacity_bytes(&self, engine: &Engine) -> u64 {
        self.capacity_with(engine, self.volume.usable_layout())
    }

    /// What the capacity would be with another number of segments.
    fn capacity_with(&self, engine: &Engine, layout: Layout) -> u64 {
        let retired = engine.state().segments().retired_count(layout.segment_count());
        let segments = layout.log_segments().count() as u64 - u64::from(retired);
        let dirty_bytes = self.volume.most_dirty_bytes(layout);
        let reserve = u64::from(self.reserve_for(dirty_bytes) + reclaim_reserve(layout));
        let filled = u64::from(self.volume.metadata_copies());
        segments.saturating_sub(reserve + filled) * self.fillable_bytes()
    }

    /// Whether what clients have and have reserved would fit into a volume of this layout, with one
    /// segment to spare.
    pub(crate) fn fits_into(&self, engine: &Engine, layout: Layout) -> bool {
        let charged_bytes = self.charged_bytes(engine).saturating_add(self.reserved_bytes());
        let spare_bytes = layout.segment_size_bytes();
        charged_bytes.saturating_add(spare_bytes) <= self.capacity_with(engine, layout)
    }

    /// The smallest layout into which that would fit; at most the present one.
    pub(crate) fn smallest_layout(&self, engine: &Engine) -> Layout {
        let present = self.volume.layout();
        let charged_bytes = self.charged_bytes(engine).saturating_add(self.reserved_bytes());
        let least = (charged_bytes / self.fillable_bytes()).max(u64::from(MIN_SEGMENT_COUNT));
        let counts = u32::try_from(least).unwrap_or(u32::MAX)..present.segment_count();
        let layouts =
            counts.filter_map(|count| Layout::new(present.segment_size_log2(), count).ok());
        layouts.into_iter().find(|layout| self.fits_into(engine, *layout)).unwrap_or(present)
    }

    /// The most live bytes of a segment with which cleaning still gains something. Partial segments
    /// have headers, records and partly filled blocks: four blocks at most, and fewer in short
    /// partial segments. A share must be dead, too, or very many segments would be moved for each
    /// one gained.
    pub(crate) const fn fillable_bytes(&self) -> u64 {
        self.fillable_bytes
    }

    /// The live bytes as they lie on the device, with nodes in all copies. They include map nodes
    /// that no checkpoint has written yet, and the records that short blocks have in the log.
    pub(crate) fn stored_bytes(&self, engine: &Engine) -> u64 {
        let segments = engine.state().segments();
        let blocks_bytes = segments.live_bytes().saturating_sub(segments.node_bytes());
        blocks_bytes + segments.short_records_bytes() + self.map_bytes(engine)
    }

    /// The stored bytes and what pages of zeros take when they are written, so that they always can
    /// be.
    pub(crate) fn used_bytes(&self, engine: &Engine) -> u64 {
        self.stored_bytes(engine).saturating_add(engine.state().segments().zero_pages_bytes())
    }

    /// The bytes that the map takes in all copies.
    pub(crate) fn map_bytes(&self, engine: &Engine) -> u64 {
        self.in_all_copies(
            engine.state().segments().node_bytes() + engine.state().map().dirty_len_bytes(),
        )
    }

    /// The bytes that clients cannot use: the used bytes, and the dead share that the map's
    /// segments need. Where there are versions, the length of the map is added once more. Removing
    /// lists makes the map longer then, by at most its length, because an entry that hides another
    /// is no longer than that one. So everything can be removed, however full the volume is.
    pub(crate) fn charged_bytes(&self, engine: &Engine) -> u64 {
        let map_bytes = self.map_bytes(engine);
        let kept_bytes = if engine.state().versions().are_several() { map_bytes } else { 0 };
        self.used_bytes(engine).saturating_add(map_bytes / MAP_SHARE_DEAD + kept_bytes)
    }
}

/// See [`Accounts::least_clean`]. No volume has so many segments that the difference matters.
fn least_clean(settings: CleanSettings) -> u32 {
    settings.min_clean_segments.map_or(u32::MAX, |count| count.min(u32::MAX - 1))
}

/// See [`Accounts::fillable_bytes`]. `reserve_percent` is the share of each segment that stays free
/// of live blocks.
fn fillable_bytes(layout: Layout, reserve_percent: u8) -> u64 {
    let size = layout.segment_size_bytes();
    let longest = PARTIAL_LEN_BYTES as u64;
    let overhead_blocks = size.div_ceil(longest) * (1 + (3 * size.min(longest)).div_ceil(longest));
    size - size * u64::from(reserve_percent) / 100 - overhead_blocks * PAGE_SIZE as u64
}

/// See [`Accounts::reclaim_reserve`].
fn reclaim_reserve(layout: Layout) -> u32 {
    2 + (layout.segment_count() / 256).min(4)
}
