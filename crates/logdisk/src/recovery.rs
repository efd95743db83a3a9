//! Opening a volume: the newest checkpoint is read, and then the log is rolled forward (DESIGN §6).
//!
//! The log is followed from the place that the checkpoint names, one partial segment after the
//! other. The next one lies behind the last in its segment or, failing that, at the start of the
//! segment that the last header names next. The log ends at the first partial segment that does not
//! continue the chain. Payload is verified unless a later header states that it was durable: there
//! a wrong checksum is damage, which reading the block reports, and not the end of the log.
//!
//! A volume that was not shut down cleanly continues in fresh segments behind a checkpoint of its
//! own. What lies behind the end that was found is never looked at again.
//!
//! Invariants, from which it follows that a place in the log was durable and that a power cut
//! cannot leave such a log:
//! 1. (recovery 1) A header states a `durable_seq` only after a flush has returned that began when
//!    all partial segments up to that number, and the payload that they name, had been written.
//! 2. (recovery 2) A segment that holds log behind the newest durable superblock's checkpoint is
//!    filled again only after a newer superblock is durable. Segments of payload streams that are
//!    reused earlier are never looked at for partial segments up to `durable_seq`.
//! 3. (recovery 3) A checkpoint, its nodes and the log before it are durable before its superblock
//!    is written. The superblock is durable before anything is given up that older checkpoints
//!    need, and before its log gives up the superblock that names the checkpoint in use.
//! 4. (recovery 4) Sequence numbers are never used twice. An unclean mount continues 2²⁰ behind the
//!    highest number that it has seen anywhere, and 2⁴⁰ behind it after an accepted loss, because
//!    it does not see all then. A new volume in the place of an old one with the same UUID
//!    continues in the same way behind that one's.

mod beyond;
mod loss;
mod reader;
mod replay;
mod roll_forward;
mod salvage;
mod start;
#[cfg(test)]
mod tests;
pub(crate) mod wipe;

use std::cell::Cell;
use std::ops::ControlFlow;

use dendro_base::sync::Arc;
use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE};
use dendro_base::{Clock, Uuid};
use dendro_device::{AlignedBuf, Device};
use dendro_disk::{Error, Lid, Result};
use dendro_format::checkpoint::HeadPosition;
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::layout::{MIN_SEGMENT_COUNT, backup_area};
use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::retired;
use dendro_format::superblock::{
    COMPATIBLE_ALLOCATED, COMPATIBLE_BACKUPS, COMPATIBLE_GROWS, INCOMPATIBLE_CHUNK_SKIPS,
    INCOMPATIBLE_COMPRESSION, INCOMPATIBLE_MAP_EPOCHS, INCOMPATIBLE_MIRRORS, INCOMPATIBLE_REUSE,
    INCOMPATIBLE_SET, INCOMPATIBLE_SPREAD, READ_ONLY_REMOVALS,
};
use dendro_format::totals::{COMPRESSED_INDEX, TOTALS_LIST};
use dendro_format::usage::USAGE_LIST;
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{
    Addr, Checkpoint, CompressedPages, Compression, Head, Key, Layout, NodePtr, PartialHeader,
    SegmentNo, Space, Superblock, Usage, Value,
};
use dendro_policy::Class;

use self::beyond::{Candidates, highest_seq};
use self::reader::SegmentReader;
use self::replay::replay;
use self::roll_forward::{Chain, Rules, Scan};
use self::salvage::{Salvaged, salvage};
use self::start::Start;
use crate::checkpoint::{Checkpoints, MapHead};
use crate::engine::Engine;
use crate::engine::main_head::MainHead;
use crate::engine::streams::Streams;
use crate::fault::{Fault, Outcome};
use crate::log::mirrors::Mirrors;
use crate::log::redirection::VolumeDevice;
use crate::log::segments::{PageCounts, Segments, Tiers};
use crate::log::superblocks::{self, Superblocks};
use crate::map::node::SharedNode;
use crate::map::store::{NodeStore, PinnedNodes};
use crate::map::{Map, Nodes};
use crate::options::{FormatOptions, OnLoss, OpenOptions};
use crate::recovery::wipe::invalidate;
use crate::state::State;
use crate::state::item::system_key;
use crate::state::removals::Removals;
use crate::versions::Versions;

/// The features of nodes and records that are written from now on.
const WRITTEN_FEATURES: u64 =
    INCOMPATIBLE_MAP_EPOCHS | INCOMPATIBLE_CHUNK_SKIPS | INCOMPATIBLE_REUSE;

/// The sequence numbers that are skipped after a crash, so that no partial segment that was written
/// before it and lost is taken for one that was written after it (recovery 4).
const SEQ_SKIP: u64 = 1 << 20;

/// The sequence numbers that are skipped after a loss. The highest number is not known then: where
/// the beginning of a segment was overwritten, later parts of the lost log may still lie behind it.
/// Their numbers are higher by less than this, which a million crashes do not use up.
const SEQ_SKIP_AFTER_LOSS: u64 = 1 << 40;

/// The parts of a volume that was found or made, for the rooms above.
pub(crate) struct Recovered {
    pub(crate) device: Arc<VolumeDevice>,
    /// The options as they are possible on this device.
    pub(crate) options: OpenOptions,
    pub(crate) superblock: Superblock,
    pub(crate) store: NodeStore,
    pub(crate) engine: Engine,
    pub(crate) checkpoints: Checkpoints,
    /// Notes that users should see.
    pub(crate) notes: Vec<String>,
}

/// What must be done before the log continues, in this order.
#[derive(Debug, Default)]
pub(crate) struct FirstSteps {
    /// Write a superblock that states that the volume is in use.
    pub(crate) marks_unclean: bool,
    /// Take a checkpoint, whether or not something has changed.
    pub(crate) takes_checkpoint: bool,
    /// Keep the present state of every head as a snapshot.
    pub(crate) keeps_heads: bool,
}

/// The features of a volume that is made with these options.
const fn incompatible_features(options: &FormatOptions) -> u64 {
    WRITTEN_FEATURES
        | if options.metadata_copies > 1 { INCOMPATIBLE_MIRRORS } else { 0 }
        | if options.is_on_set { INCOMPATIBLE_SET } else { 0 }
        | if options.is_spread { INCOMPATIBLE_SPREAD } else { 0 }
        | if options.compression.is_some() { INCOMPATIBLE_COMPRESSION } else { 0 }
}

/// Makes the parts of an empty volume. Everything that was on the device is lost. No volume is
/// found on it until the new one is shut down or takes a checkpoint.
///
/// # Errors
/// [`Error::Io`] when the options do not fit the device; [`Error::Failed`] when it cannot be
/// written.
pub(crate) fn make(
    device: &Arc<dyn Device>,
    options: &FormatOptions,
    open_options: OpenOptions,
    clock: &Arc<dyn Clock>,
) -> Result<Recovered> {
    let log2 = options.segment_size_bytes.trailing_zeros() as u8;
    if !options.segment_size_bytes.is_power_of_two() {
        return Err(Error::Io(format!(
            "a segment of {} bytes: it must be a power of two",
            options.segment_size_bytes
        )));
    }
    let all_count = device.len_bytes() / options.segment_size_bytes;
    let count_before_backups = backup_area(device.len_bytes())
        .filter(|_| options.has_backups)
        .map(|area| area.start / options.segment_size_bytes)
        .filter(|&count| count >= u64::from(MIN_SEGMENT_COUNT));
    let count = u32::try_from(count_before_backups.unwrap_or(all_count))
        .map_err(|_| Error::Io("the device has too many segments; make them larger".into()))?;
    let layout = Layout::new(log2, count).map_err(|malformed| {
        Error::Io(format!(
            "{} bytes of device in segments of {} bytes: {}",
            device.len_bytes(),
            options.segment_size_bytes,
            malformed.problem
        ))
    })?;
    let seq = first_seq(&**device, &options.uuid);
    invalidate(&**device)?;
    clear(&**device, layout)?;
    let now = clock.now();
    let superblock = Superblock {
        uuid: options.uuid,
        // The first superblock that is written gets the number 0.
        seq: u64::MAX,
        compatible: if options.is_allocated { COMPATIBLE_ALLOCATED } else { 0 }
            | if count_before_backups.is_some() { COMPATIBLE_BACKUPS } else { 0 }
            | if options.max_len_bytes > 0 { COMPATIBLE_GROWS } else { 0 },
        read_only: READ_ONLY_REMOVALS,
        incompatible: incompatible_features(options),
        layout,
        clean: false,
        compression: Compression::byte(options.compression),
        cold_compression: Compression::byte(options.cold_compression),
        checkpoint_addr: Addr(0),
        checkpoint_len_bytes: 0,
        checkpoint_crc32c: 0,
        created: now,
        written: now,
        hash_key: options.hash_key,
        label: options.label.clone(),
        retired: Vec::new(),
        checkpoint_mirror: None,
        max_len_bytes: options.max_len_bytes,
        member_ends: device.member_ends(),
    };
    let mut segments = Segments::new(layout);
    segments.restore_page_counts(PageCounts::of_new_volume());
    segments.set_tiers(Tiers::on(device, layout));
    let log =
        fresh_head(&mut segments, seq, 0).ok_or_else(|| Error::Io("too few segments".into()))?;
    let state = State::new(
        Map::from_root(None),
        segments,
        Versions::new(now),
        Removals::default(),
        Lid::FIRST.0,
        0,
    );
    let mut options = open_options;
    options.discards = options.discards.on(&superblock);
    let device = Arc::new(VolumeDevice::new(Arc::clone(device)));
    let store = NodeStore::new(
        Arc::clone(&device) as _,
        superblock.uuid,
        layout,
        state.segments().mirrors().clone(),
        options.cache_size_bytes,
    );
    let streams = Streams::new(Arc::clone(&options.policy), options.stream_bytes, &state.present());
    let engine = Engine::new(
        state,
        log,
        streams,
        0,
        superblock.uuid,
        Arc::clone(clock),
        options.cache_size_bytes,
    );
    Ok(Recovered {
        device,
        options,
        superblock,
        store,
        engine,
        checkpoints: Checkpoints::default(),
        notes: Vec::new(),
    })
}

/// The first sequence number of a new volume (recovery 4). It lies behind all numbers of an earlier
/// volume with the same UUID. Otherwise the remains of that volume's log could be taken for a part
/// of the new one's.
fn first_seq(device: &dyn Device, uuid: &Uuid) -> u64 {
    match Superblocks::find(device).map(Superblocks::into_newest) {
        Ok(earlier) if earlier.uuid == *uuid => {
            let mut reader = SegmentReader::new(device, earlier.layout, *uuid);
            seq_after_loss(0, &mut reader)
        }
        _ => 1,
    }
}

/// The first number behind all that a log may have had which is lost from `next_seq` on.
fn seq_after_loss(next_seq: u64, reader: &mut SegmentReader<'_>) -> u64 {
    next_seq.max(highest_seq(reader)).saturating_add(SEQ_SKIP_AFTER_LOSS)
}

/// Overwrites the places of superblocks, whatever they hold.
fn clear(device: &dyn Device, layout: Layout) -> Result<()> {
    let failed = |error: dendro_device::Error| Error::Failed(error.to_string());
    for area in [0, 1] {
        let range = layout.superblock_area(area);
        let zeros = AlignedBuf::zeroed((range.end - range.start) as usize);
        device.write_at(range.start, &zeros).map_err(failed)?;
    }
    device.flush().map_err(failed)
}

/// Returns a log head at the start of a clean segment.
fn fresh_head(segments: &mut Segments, seq: u64, prev_crc32c: u32) -> Option<MainHead> {
    let segment = segments.open(Head::Main, Class::MAIN)?;
    let next_segment = segments.open(Head::Main, Class::MAIN);
    let start = HeadPosition { segment, offset_bytes: 0 };
    Some(MainHead::new(start, seq, prev_crc32c, next_segment))
}

/// Reads the volume on `device` and rolls its log forward. Nothing is written to the device; the
/// caller takes the first steps.
///
/// # Errors
/// [`Error::Corrupted`] when there is no volume or when its superblocks or checkpoints are
/// damaged; [`Error::Lost`] when something is damaged that was durable; [`Error::Io`] when the
/// device cannot be read; [`Error::Failed`] when it cannot be written.
pub(crate) fn open(
    device: Arc<dyn Device>,
    mut options: OpenOptions,
    clock: Arc<dyn Clock>,
) -> Result<(Recovered, FirstSteps)> {
    let device = Arc::new(VolumeDevice::new(device));
    let Start { mut superblock, checkpoint, doubt, may_be_old, is_adopted, mut notes } =
        Start::find(&device)?;
    // Nodes that are written from now on have these features.
    superblock.incompatible |= written_features(&superblock, &checkpoint, &options)?;
    superblock.read_only |= READ_ONLY_REMOVALS;
    options.discards = options.discards.on(&superblock);
    options.read_only |= device.is_read_only() || !superblocks::is_writable(&superblock);
    let mirrors = Mirrors::listed(&checkpoint.mirrors);
    let store = NodeStore::new(
        Arc::clone(&device) as _,
        superblock.uuid,
        superblock.layout,
        mirrors.clone(),
        options.cache_size_bytes,
    );
    let nodes = PinnedNodes::loading(&store);
    let mut state = restore(&*device, &superblock, &checkpoint, &mirrors, &nodes)?;
    let clean = state.segments().clean_segments();
    let reader = || SegmentReader::new(&*device, superblock.layout, superblock.uuid);
    let mut chain = Scan::new(reader(), &checkpoint).run(&Rules {
        durable_position: doubt.as_ref().filter(|it| it.was_durable).and_then(|it| it.position),
        beyond: match &doubt {
            Some(_) => Some(Candidates::All),
            None if may_be_old => Some(Candidates::All),
            None => (!superblock.clean).then_some(Candidates::Clean(&clean)),
        },
        keeps_later: options.on_loss == OnLoss::Skip,
        skip_payload_checks: options.skip_payload_checks,
    })?;
    let mut lost = loss::find(&checkpoint, &chain, doubt.as_ref());
    let stops_at_loss = !options.read_only && options.on_loss == OnLoss::Stop;
    if let Some(lost) = lost.take_if(|_| stops_at_loss) {
        return Err(Error::Lost(lost));
    }
    let roll = RollForward {
        device: &*device,
        superblock: &superblock,
        checkpoint: &checkpoint,
        mirrors: &mirrors,
    };
    let (mut commit_seq, misfit) = roll.forward(&mut state, &mut chain, &nodes, lost.is_some())?;
    if let Some(misfit) = misfit {
        lost.get_or_insert(accept_misfit(&misfit, stops_at_loss, &mut notes)?);
    }
    if lost.is_some() {
        // Behind all others, so that no lost change comes back (recovery 4).
        chain.next_seq = seq_after_loss(chain.next_seq, &mut reader());
        notes.extend(loss::find(&checkpoint, &chain, doubt.as_ref()));
        if options.on_loss == OnLoss::Skip {
            options.read_only = true;
            let salvaged = roll.beyond(&mut state, &chain, &nodes);
            commit_seq = salvaged.last_unit.unwrap_or(commit_seq);
            notes.push(salvaged.to_string());
        }
    }
    state.segments_mut().settle();

    let continues = superblock.clean && chain.partials.is_empty() && lost.is_none();
    let mut map_head = MapHead::default();
    state.segments_mut().close(superblock.layout.segment_of(superblock.checkpoint_addr));
    let log = if options.read_only {
        head_of(&checkpoint, None)
    } else if continues {
        continue_streams(state.segments_mut(), &checkpoint, &mut map_head)
    } else {
        for segment in chain.segments(&checkpoint) {
            state.segments_mut().close(segment);
        }
        if lost.is_none() {
            take_reused(&*device, state.segments_mut(), &checkpoint, &superblock, &chain)?;
        }
        let why = "no clean segment is left in which the log can continue";
        fresh_head(state.segments_mut(), chain.next_seq.saturating_add(SEQ_SKIP), chain.prev_crc32c)
            .ok_or_else(|| Error::Failed(why.into()))?
    };
    let may_continue_map = !continues && !chain.fills_map_segment(&checkpoint);
    let checkpoints = Checkpoints::after(&checkpoint, map_head, may_continue_map);
    let streams = Streams::new(Arc::clone(&options.policy), options.stream_bytes, &state.present());
    let cache = options.cache_size_bytes;
    let mut engine = Engine::new(state, log, streams, commit_seq, superblock.uuid, clock, cache);
    let first_steps = if options.read_only {
        let lengths = chain.partials.iter().map(|partial| u64::from(partial.header.len_bytes));
        engine.note_recovered(lengths.sum());
        engine.close(Error::ReadOnly("the volume is open for reading only".into()));
        FirstSteps::default()
    } else {
        FirstSteps {
            marks_unclean: continues || is_adopted,
            takes_checkpoint: !continues,
            keeps_heads: lost.is_some(),
        }
    };
    Ok((Recovered { device, options, superblock, store, engine, checkpoints, notes }, first_steps))
}

/// The features of what is written from now on. Refuses to write to one device of a set alone.
fn written_features(
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    options: &OpenOptions,
) -> Result<u64> {
    let is_on_set = superblock.incompatible & INCOMPATIBLE_SET != 0;
    if is_on_set && !options.is_on_set && !options.read_only {
        return Err(Error::Io(
            "the volume lies on a set of devices, and is not written to on one of them alone; if \
             this is how the set is opened, the list of devices that this one should have at its \
             end is missing or damaged"
                .into(),
        ));
    }
    let of_set = if options.is_on_set { INCOMPATIBLE_SET } else { 0 };
    Ok(WRITTEN_FEATURES | feature_of_mirrors(checkpoint) | of_set)
}

/// Returns what is lost if the log does not fit the checkpoint's state from some place on.
///
/// # Errors
/// [`Error::Lost`] if losses are not accepted.
fn accept_misfit(misfit: &Error, stops_at_loss: bool, notes: &mut Vec<String>) -> Result<String> {
    if stops_at_loss {
        return Err(Error::Lost(format!("{misfit}. What can be had is the state before that")));
    }
    notes.push(format!("{misfit}; what came before that is used"));
    Ok(misfit.to_string())
}

/// The feature that a checkpoint must state if it lists mirrors. The next one will list them too,
/// whatever a forged superblock says.
const fn feature_of_mirrors(checkpoint: &Checkpoint) -> u64 {
    if checkpoint.mirrors.is_empty() { 0 } else { INCOMPATIBLE_MIRRORS }
}

/// A source of nodes that notes whether one could not be had.
struct WatchedNodes<'n> {
    nodes: &'n dyn Nodes,
    have_failed: Cell<bool>,
}

impl WatchedNodes<'_> {
    fn watch<T>(&self, outcome: Outcome<T>) -> Outcome<T> {
        self.have_failed.set(self.have_failed.get() || outcome.is_err());
        outcome
    }
}

impl Nodes for WatchedNodes<'_> {
    fn node(&self, place: &NodePtr) -> Outcome<SharedNode> {
        self.watch(self.nodes.node(place))
    }

    fn take(&self, place: &NodePtr) -> Outcome<SharedNode> {
        self.watch(self.nodes.take(place))
    }

    fn node_if_cached(&self, place: &NodePtr) -> Option<SharedNode> {
        self.nodes.node_if_cached(place)
    }
}

/// What the log is rolled forward from.
struct RollForward<'a> {
    device: &'a dyn Device,
    superblock: &'a Superblock,
    checkpoint: &'a Checkpoint,
    mirrors: &'a Mirrors,
}

impl RollForward<'_> {
    fn restored(&self, nodes: &dyn Nodes) -> Result<State> {
        restore(self.device, self.superblock, self.checkpoint, self.mirrors, nodes)
    }

    /// Applies the chain to the state that the checkpoint describes. Returns the last unit. The
    /// chain is cut off before the first partial segment that does not fit the state, and why is
    /// returned too. From an older checkpoint it may reach a segment that was filled again, or
    /// entries that a collection removed. Nodes that cannot be read are a reason only if something
    /// `is_lost` anyway: otherwise a rebuild of the map saves what the log has.
    fn forward(
        &self,
        state: &mut State,
        chain: &mut Chain,
        nodes: &dyn Nodes,
        is_lost: bool,
    ) -> Result<(u64, Option<Error>)> {
        let nodes = &WatchedNodes { nodes, have_failed: Cell::new(false) };
        let mut misfit = None;
        loop {
            for &segment in &chain.payload_segments {
                if let Some(class) = read_class(self.device, self.superblock, segment) {
                    state.segments_mut().set_class(segment, Head::Payload, class);
                }
            }
            let last = chain.partials.len().saturating_sub(1);
            let replayed = replay(state, chain, self.superblock.layout, nodes)
                .and_then(|()| state.versions().check().map_err(|error| (last, error)));
            match replayed {
                Ok(()) => break,
                Err((at, error))
                    if !chain.partials.is_empty() && (is_lost || !nodes.have_failed.get()) =>
                {
                    misfit.get_or_insert(error);
                    chain.partials.truncate(at);
                    *state = self.restored(nodes)?;
                }
                Err((_, error)) => return Err(error),
            }
        }
        let last = chain.partials.last();
        let commit_seq = last.map_or(self.checkpoint.commit_seq, |last| last.header.commit_seq);
        Ok((commit_seq, misfit))
    }

    /// Applies those records behind the damage that can be applied.
    fn beyond(&self, state: &mut State, chain: &Chain, nodes: &dyn Nodes) -> Salvaged {
        let later = chain.beyond.iter().flat_map(|beyond| beyond.later.values());
        salvage(state, later, self.superblock.layout, nodes)
    }
}

/// Makes the segments clean that the log releases for reuse. On a full volume there may be no
/// others for the log and the next checkpoint. The chain states that these segments are free, so
/// what is on the device is made durable first (reuse 2).
fn take_reused(
    device: &dyn Device,
    segments: &mut Segments,
    checkpoint: &Checkpoint,
    superblock: &Superblock,
    chain: &Chain,
) -> Result<()> {
    let layout = superblock.layout;
    // The checkpoint that was under way may have put its nodes, or itself, into these segments.
    let of_checkpoint = [layout.segment_of(superblock.checkpoint_addr), checkpoint.map.segment];
    let mut left = chain.left_to_fill(layout);
    left.retain(|segment| {
        layout.is_log_segment(*segment)
            && segments.head(*segment) != Head::Map
            && !of_checkpoint.contains(segment)
            && segments.is_pending(*segment)
    });
    if left.is_empty() {
        return Ok(());
    }
    device.flush().map_err(|error| Error::Failed(format!("rolling the log forward: {error}")))?;
    left.into_iter().for_each(|segment| segments.set_clean(segment));
    Ok(())
}

/// Restores the streams as a clean shutdown left them.
fn continue_streams(
    segments: &mut Segments,
    checkpoint: &Checkpoint,
    map_head: &mut MapHead,
) -> MainHead {
    let layout = segments.layout();
    segments.take(checkpoint.log.segment, Head::Main);
    let next_segment =
        layout.is_log_segment(checkpoint.next_segment).then_some(checkpoint.next_segment);
    if let Some(next) = next_segment {
        segments.take(next, Head::Main);
    }
    if layout.is_log_segment(checkpoint.map.segment) {
        segments.take(checkpoint.map.segment, Head::Map);
        *map_head = MapHead::at(checkpoint.map);
    }
    head_of(checkpoint, next_segment)
}

/// The log head at the place that a checkpoint names.
const fn head_of(checkpoint: &Checkpoint, next_segment: Option<SegmentNo>) -> MainHead {
    let Checkpoint { log, log_seq, log_prev_crc32c, .. } = *checkpoint;
    MainHead::new(log, log_seq, log_prev_crc32c, next_segment)
}

/// Returns the state that the checkpoint describes.
fn restore(
    device: &dyn Device,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    mirrors: &Mirrors,
    nodes: &dyn Nodes,
) -> Result<State> {
    let layout = superblock.layout;
    let map = Map::from_root(checkpoint.root);
    let mut segments = Segments::new(layout);
    segments.set_tiers(Tiers::on(device, layout));
    for segment in retired::out_of_use(&superblock.retired) {
        segments.retire(segment);
    }
    let mut problem = None;
    let from = Key::first(USAGE_LIST, Space::Records, 0);
    let to = Key::first(USAGE_LIST, Space::Chunks, 0);
    map.visit(&from, &to, nodes, &mut |key, value| {
        let Value::Record(bytes) = value else { return ControlFlow::Continue(()) };
        let segment = SegmentNo(u32::try_from(key.index).unwrap_or(u32::MAX));
        match Usage::decode(bytes) {
            Ok(usage) if layout.is_log_segment(segment) => {
                segments.restore(segment, &usage);
                ControlFlow::Continue(())
            }
            _ => {
                problem = Some(segment);
                ControlFlow::Break(())
            }
        }
    })
    .map_err(Fault::into_error)?;
    if let Some(segment) = problem {
        return Err(Error::Corrupted(format!("the usage record of segment {segment}")));
    }
    let compressed = compressed_pages(superblock, checkpoint, &map, nodes)?;
    // The count is limited to what the device has room for, in case the checkpoint is forged.
    let most = layout.len_bytes() / GRAIN_SIZE as u64 * CHUNK_PAGES;
    segments.restore_page_counts(PageCounts {
        short: checkpoint.short_count.min(most),
        zero: checkpoint.zero_count.min(u64::MAX >> 2),
        are_exact: checkpoint.counts_are_exact,
        compressed: compressed.unwrap_or_default(),
        compressed_are_exact: compressed.is_some(),
    });
    for (segment, usage) in &checkpoint.usage_overrides {
        segments.restore(*segment, usage);
        segments.mark_unrecorded(*segment);
    }
    segments.restore_mirrors(mirrors.clone());
    let versions = restore_versions(superblock, &map, nodes)?;
    let (next_list, clock) = (checkpoint.next_list, checkpoint.log_clock);
    let removals = restore_removals(&map, versions.epoch(), nodes)?;
    let mut state = State::new(map, segments, versions, removals, next_list, clock);
    state.restore_quotas(nodes).map_err(Fault::into_error)?;
    Ok(state)
}

/// The compressed pages that the map of a checkpoint states; `None` if that is not known, because
/// older software has written the checkpoint.
fn compressed_pages(
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    map: &Map,
    nodes: &dyn Nodes,
) -> Result<Option<CompressedPages>> {
    let Checkpoint { identity, totals_are_exact, .. } = checkpoint;
    if !totals_are_exact {
        let features = identity.map_or(superblock.incompatible, |id| id.incompatible);
        let may_have_some = features & INCOMPATIBLE_COMPRESSION != 0;
        return Ok((!may_have_some).then(CompressedPages::default));
    }
    let key = system_key(TOTALS_LIST, COMPRESSED_INDEX);
    let found = map.get(&key, nodes).map_err(Fault::into_error)?;
    let Some(Value::Record(bytes)) = found else { return Ok(Some(CompressedPages::default())) };
    // More than the device has room for is forged.
    let is_possible = |pages: &CompressedPages| {
        pages.stored_bytes() <= superblock.layout.len_bytes()
            && pages.page_count() <= pages.stored_bytes() / GRAIN_SIZE as u64 * CHUNK_PAGES
    };
    Ok(CompressedPages::decode(&bytes).ok().filter(is_possible))
}

/// The lists that the map states are being removed. `epoch` is the current epoch.
fn restore_removals(map: &Map, epoch: u64, nodes: &dyn Nodes) -> Result<Removals> {
    let mut removals = Removals::default();
    let mut problem = None;
    let from = Key::first(REMOVALS_LIST, Space::Records, 0);
    let to = Key::first(REMOVALS_LIST, Space::Chunks, 0);
    map.visit(&from, &to, nodes, &mut |key, value| {
        let Value::Record(bytes) = value else { return ControlFlow::Continue(()) };
        match removal::decode(key.index, bytes) {
            Ok(first_epoch) if first_epoch.unwrap_or(0) <= epoch => {
                removals.restore(key.index, first_epoch);
                ControlFlow::Continue(())
            }
            Ok(_) => {
                problem = Some("a list was made again in an epoch that has not begun".to_owned());
                ControlFlow::Break(())
            }
            Err(malformed) => {
                problem = Some(malformed.to_string());
                ControlFlow::Break(())
            }
        }
    })
    .map_err(Fault::into_error)?;
    problem.map_or(Ok(removals), |problem| Err(Error::Corrupted(problem)))
}

/// The table of versions in the map.
fn restore_versions(superblock: &Superblock, map: &Map, nodes: &dyn Nodes) -> Result<Versions> {
    let mut versions = Versions::new(superblock.created);
    let mut problem = None;
    let from = Key::first(VERSIONS_LIST, Space::Records, 0);
    let to = Key::first(VERSIONS_LIST, Space::Chunks, 0);
    map.visit(&from, &to, nodes, &mut |key, value| {
        let Value::Record(bytes) = value else { return ControlFlow::Continue(()) };
        match versions.enter(key.index, Some(bytes)) {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                problem = Some(error);
                ControlFlow::Break(())
            }
        }
    })
    .map_err(Fault::into_error)?;
    versions.refresh();
    problem.map_or(Ok(()), Err)?;
    versions.check()?;
    Ok(versions)
}

/// The class of a payload segment, as its first partial segment states it.
fn read_class(device: &dyn Device, superblock: &Superblock, segment: SegmentNo) -> Option<Class> {
    let mut block = AlignedBuf::zeroed(PAGE_SIZE);
    device.read_at(superblock.layout.segment_offset(segment), &mut block).ok()?;
    let (header, _) = PartialHeader::decode(&block).ok()?;
    let is_here = header.uuid == superblock.uuid
        && header.segment == segment
        && header.offset_bytes == 0
        && header.head == Head::Payload;
    is_here.then(|| Class::from_number(header.class))
}
