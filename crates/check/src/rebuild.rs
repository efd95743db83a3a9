//! Rebuilding a volume of which superblocks, checkpoints or parts of the map are lost.
//!
//! The result is a fresh checkpoint of a whole map, and a superblock that names it. The engine then
//! opens the volume as ever, and rolls the log forward.
//!
//! 1. [`found`], [`find`]: the layout and the identity, from partial segments if no superblock is
//!    left.
//! 2. [`sweep`]: what is sound in all segments.
//! 3. [`base`]: the checkpoint to start from, and the *gaps* in its map. Without a checkpoint, all
//!    keys are a gap. So are they if what is left of the version table is older than what the log
//!    behind the checkpoint changes.
//! 4. [`claims`], [`history`], [`missing`], [`named`], [`slices`], [`replay`], [`fill`]: what fills
//!    the gaps, the newest sound nodes and what the main log has since; where some of it is
//!    missing, what payload streams have of its records.
//! 5. [`plan`], with [`account`] and [`extents`]: what the new map refers to, and which segments
//!    are free. Of two entries that name one block the newer keeps it. The other's page reads as
//!    damage: what it held is not known.
//! 6. [`write`], with [`stream`] and [`version_table`]: new leaves for the gaps, and all nodes
//!    above the leaves. Other leaves stay where they are.
//! 7. [`superblock`]: after a flush.
//!
//! Steps 1 to 5 only read, and make a [`Rebuild`]; [`Rebuild::write`] does the others. Nothing that
//! is needed is overwritten before the superblock is durable. So a rebuild that is interrupted
//! leaves the volume as it was, and the next one finds the same. If the segments that are free are
//! too few, nothing is changed; a copy can be made longer then, and gets more segments.
//!
//! Memory: some 300 bytes for each node that the sweep finds, 200 for each partial segment of the
//! main log, 160 for one of a payload stream, and 50 for each stretch of live blocks. If what the
//! sweep has found takes more than a quarter of what a rebuild may take, or the stretches do, it
//! ends with [`Error::Memory`]. A slice of the gaps ([`slices`]) and the partial segments that were
//! read, with segments of the map, have the rest ([`memory`]).

use std::sync::Arc;

use dendro_base::Timestamp;
use dendro_device::Device;
use dendro_format::checkpoint::HeadPosition;
use dendro_format::superblock::{INCOMPATIBLE_SPREAD, INCOMPATIBLE_VERSIONS};
use dendro_format::{Checkpoint, SegmentNo};

use crate::error::{Error, Result};
use crate::read::Volume;
use base::{Base, OldMap};
use found::Found;
use memory::Memory;
use plan::Plan;
use sweep::{Sweep, SweptCheckpoint};
use write::MapWriter;

mod account;
mod base;
mod blocks;
mod claims;
mod extents;
mod fill;
mod find;
mod found;
mod gaps;
mod history;
mod memory;
mod missing;
mod named;
mod plan;
mod replay;
mod report;
mod slices;
mod stream;
mod superblock;
mod sweep;
mod version_table;
mod write;

pub use report::{Extent, LostPages, RebuildReport, Restored, Source};

/// After a rebuild so many segments at least must be clean, so that the volume can be mounted: two
/// for the log, which continues in fresh ones, and two for the checkpoint behind it.
const MIN_CLEAN_COUNT: usize = 4;
/// By so many segments a volume grows that has too few; if these are too few, by twice as many.
const FIRST_GROWTH: u32 = 16;

/// How to rebuild.
#[derive(Clone, Copy, Debug)]
pub struct RebuildOptions {
    /// Only find out what would be done.
    pub dry_run: bool,
    /// Whether the volume takes what the device has behind its end, if its own segments are too
    /// few.
    pub may_grow: bool,
    /// The present time.
    pub now: Timestamp,
    /// About the most memory that it may take, in bytes.
    pub memory_bytes: u64,
}

impl Default for RebuildOptions {
    /// Whatever there is to be done is done, within the volume's segments and in any memory, at the
    /// beginning of time.
    fn default() -> Self {
        Self { dry_run: false, may_grow: false, now: Timestamp::default(), memory_bytes: u64::MAX }
    }
}

/// Rebuilds the volume on `device`. `progress` is called with each segment that the sweep has read,
/// and with the number of all segments.
///
/// # Errors
/// As [`Rebuild::plan`] and [`Rebuild::write`].
pub fn rebuild(
    device: &dyn Device,
    options: &RebuildOptions,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<RebuildReport> {
    let rebuild = Rebuild::plan(device, options.memory_bytes, progress)?;
    if options.dry_run { Ok(rebuild.report) } else { rebuild.write(device, options) }
}

/// A rebuild that was planned.
#[derive(Debug)]
pub struct Rebuild {
    found: Found,
    sweep: Sweep,
    work: Work,
    report: RebuildReport,
}

/// What is to be written.
#[derive(Debug)]
enum Work {
    Nothing,
    /// A superblock that names this checkpoint.
    Superblock(Box<SweptCheckpoint>),
    /// A map, with what the log behind the base has added.
    Map {
        base: Option<Box<Checkpoint>>,
        plan: Box<Plan>,
    },
}

impl Rebuild {
    /// Whether a superblock says that the volume is spread over several devices.
    #[must_use]
    pub fn is_spread(&self) -> bool {
        self.found.superblock.incompatible & INCOMPATIBLE_SPREAD != 0
    }

    /// Finds out what is left of the volume on `device`, and what is to be done. Nothing is
    /// written. `progress` is called as by [`rebuild`].
    ///
    /// # Errors
    /// [`Error::NoVolume`] when nothing on the device belongs to a volume; [`Error::Memory`] when
    /// `memory_bytes` are too few; when the device fails, or the volume cannot be used at all.
    pub fn plan(
        device: &dyn Device,
        memory_bytes: u64,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<Self> {
        let memory = Memory(memory_bytes);
        let mut found = Found::find(device)?;
        let sweep = {
            let volume = found.volume(device)?;
            let count = found.superblock.layout.segment_count();
            Sweep::run(&volume, memory, &mut |of| progress((of.0 + 1).min(count), count))?
        };
        found.adopt_identity(&sweep);
        let mut volume = found.volume(device)?;
        volume.adopt_kept(Arc::clone(&sweep.kept));
        let mut checkpoints = sweep.checkpoints.clone();
        checkpoints.extend(found.named_checkpoints(&volume));
        checkpoints.retain(|of| is_usable(&volume, &of.checkpoint));
        found.mirrors.clone_from(&sweep.mirrors);
        found.mirrors.extend(checkpoints.iter().flat_map(|of| &of.checkpoint.mirrors));
        volume.adopt_mirrors(found.mirrors.iter().copied());
        let in_force = checkpoints.iter().find(|of| found.names(of)).cloned();
        let layout = found.superblock.layout;
        let base = Base::choose(&volume, layout, &sweep, checkpoints, in_force.as_ref(), memory)?;
        let mut report = RebuildReport {
            extent: Extent::Nothing,
            checkpoint: None,
            superblocks_lost: !found.has_superblock || found.is_backup,
            hash_key_lost: found.hash_key_lost,
            bad_nodes: Vec::new(),
            restored: Vec::new(),
            may_lack_nodes: false,
            restored_entry_count: 0,
            lost_pages: Vec::new(),
            lost_end_bytes: u64::from(found.lost_segment_count()) << layout.segment_size_log2(),
            may_lack_log: false,
            unknown_move_count: 0,
            next_list: 0,
            grown_bytes: 0,
            written_bytes: 0,
        };
        let (base, map) = match base {
            Base::Whole(of) => {
                report.checkpoint = Some(of.checkpoint.seq);
                let work = match found.is_in_order(device, &of) {
                    true => Work::Nothing,
                    false => Work::Superblock(of),
                };
                if let Work::Superblock(_) = work {
                    report.extent = Extent::Superblock;
                }
                return Ok(Self { found, sweep, work, report });
            }
            Base::Gaps(of, map) => (Some(of.checkpoint), *map),
            Base::Lost => (None, OldMap::lost(layout)),
        };
        report.bad_nodes = map.problems.iter().map(ToString::to_string).collect();
        let has_versions = found.superblock.incompatible & INCOMPATIBLE_VERSIONS != 0;
        let plan = Plan::make(&volume, &sweep, base.as_ref(), map, has_versions, memory)?;
        let (base, plan) = if plan.contradicts_log() {
            let map = OldMap::lost(layout);
            (None, Plan::make(&volume, &sweep, None, map, has_versions, memory)?)
        } else {
            (base, plan)
        };
        report.extent = if base.is_some() { Extent::Parts } else { Extent::Map };
        report.checkpoint = base.as_ref().map(|of| of.seq);
        report.restored.clone_from(&plan.restored);
        report.may_lack_nodes = plan.may_lack_nodes;
        report.restored_entry_count = plan.restored_entry_count;
        // Whether the rest of it was done later cannot be known, so it is not done.
        let unfinished = u64::from(plan.map.account.has_rearrangement);
        report.unknown_move_count = plan.unknown_move_count + unfinished;
        report.lost_pages = plan.lost_pages();
        // What was shut down has no log behind its checkpoint.
        let is_shut_down = found.has_superblock && found.superblock.clean;
        report.may_lack_log = plan.leads_outside && !is_shut_down;
        let of_base = base.as_ref().map_or(0, |base| base.next_list);
        report.next_list = plan.map.account.next_list.max(of_base);
        let work = Work::Map { base: base.map(Box::new), plan: Box::new(plan) };
        Ok(Self { found, sweep, work, report })
    }

    /// What is to be done, and what is lost.
    #[must_use]
    pub fn report(&self) -> &RebuildReport {
        &self.report
    }

    /// Writes what was planned, to the same device or to one that holds the same and is longer.
    ///
    /// # Errors
    /// [`Error::NoFreeSegment`] when there is no room for the new map: nothing is changed then;
    /// when the device fails.
    pub fn write(&self, device: &dyn Device, options: &RebuildOptions) -> Result<RebuildReport> {
        let (base, plan) = match &self.work {
            Work::Nothing => return Ok(self.report.clone()),
            Work::Superblock(of) => {
                self.found.name(device, of, options.now)?;
                return Ok(self.report.clone());
            }
            Work::Map { base, plan } => (base.as_deref(), plan),
        };
        let mut found = self.found.clone();
        let mut growth = FIRST_GROWTH;
        let mut is_mirrored = found.superblock.metadata_copies() > 1;
        loop {
            match self.write_map(&found, base, plan, device, options.now, is_mirrored) {
                Err(Error::NoFreeSegment) if is_mirrored => is_mirrored = false,
                Err(Error::NoFreeSegment) if options.may_grow && found.grow(device, growth) => {
                    growth *= 2;
                    is_mirrored = found.superblock.metadata_copies() > 1;
                }
                result => return result,
            }
        }
    }

    /// Writes the map of a volume that is as long as `found` says.
    fn write_map(
        &self,
        found: &Found,
        base: Option<&Checkpoint>,
        plan: &Plan,
        device: &dyn Device,
        now: Timestamp,
        is_mirrored: bool,
    ) -> Result<RebuildReport> {
        let mut volume = found.volume(device)?;
        volume.adopt_kept(Arc::clone(&self.sweep.kept));
        let layout = found.superblock.layout;
        let added = layout.log_segments().skip_while(|of| self.is_own(*of));
        let added = added.filter(|of| !plan.named_outside.contains(of));
        let mut free: stream::FreeSegments = plan.free.iter().copied().chain(added).collect();
        let added_count = layout.segment_count() - self.segment_count();
        let most_taken = (plan.clean_count + added_count as usize).checked_sub(MIN_CLEAN_COUNT);
        free.truncate(most_taken.unwrap_or(0));
        let facts = found.facts(base, &self.sweep, plan, &mut free, now)?;
        let writer = MapWriter::new(&volume, &self.sweep, plan, free, &facts, is_mirrored);
        let (checkpoint, written_bytes) = writer.write(facts)?;
        found.name(device, &checkpoint, now)?;
        let grown_bytes = u64::from(added_count) << layout.segment_size_log2();
        Ok(RebuildReport { written_bytes, grown_bytes, ..self.report.clone() })
    }

    fn segment_count(&self) -> u32 {
        self.found.superblock.layout.segment_count()
    }

    /// Whether a segment is one of the volume as it was found.
    fn is_own(&self, segment: SegmentNo) -> bool {
        segment.0 < self.segment_count()
    }
}

/// Whether what a checkpoint names can be there.
fn is_usable(volume: &Volume<'_>, checkpoint: &Checkpoint) -> bool {
    let layout = volume.layout();
    let is_place = |at: HeadPosition| {
        layout.is_log_segment(at.segment)
            && u64::from(at.offset_bytes) <= layout.segment_size_bytes()
    };
    is_place(checkpoint.log)
        && is_place(checkpoint.map)
        && checkpoint.usage_overrides.iter().all(|(segment, _)| layout.is_log_segment(*segment))
        && (checkpoint.mirrors.iter())
            .all(|(of, mirror)| layout.is_log_segment(*of) && layout.is_log_segment(*mirror))
}
