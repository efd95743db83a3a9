//! Rebuilding a volume of which superblocks, checkpoints or parts of the map are lost.
//!
//! The result is a fresh checkpoint of a whole map, and a superblock that names it. The engine then
//! opens the volume as ever, and rolls the log forward.
//!
//! 1. [`find`]: the layout and the identity, from partial segments if no superblock is left.
//! 2. [`sweep`]: what is sound in all segments.
//! 3. [`base`]: the checkpoint to start from, and the *gaps* in its map. Without a checkpoint, all
//!    keys are a gap.
//! 4. [`claims`], [`history`], [`missing`], [`replay`], [`fill`]: what fills the gaps, the newest
//!    sound nodes and what the main log has since; where some of it is missing, what payload
//!    streams have of its records.
//! 5. [`plan`], with [`account`] and [`extents`]: what the new map refers to, and which segments
//!    are free. Of two entries that name one block the newer keeps it. The other's page reads as
//!    damage: what it held is not known.
//! 6. [`write`], with [`stream`] and [`version_table`]: new leaves for the gaps, and all nodes
//!    above the leaves. Other leaves stay where they are.
//! 7. [`superblock`]: after a flush.
//!
//! Nothing that is needed is overwritten before the superblock is durable. So a rebuild that is
//! interrupted leaves the volume as it was, and the next one finds the same.
//!
//! Memory: some 300 bytes for each node that the sweep finds, 56 for each partial segment of the
//! main log, 32 for one of a payload stream, 50 for each stretch of live blocks, and a slice of the
//! gaps ([`fill`]).

use dendro_base::Timestamp;
use dendro_device::Device;
use dendro_format::checkpoint::HeadPosition;
use dendro_format::superblock::{
    INCOMPATIBLE_MIRRORS, INCOMPATIBLE_RETIRED, INCOMPATIBLE_VERSIONS, KNOWN_INCOMPATIBLE,
    READ_ONLY_REMOVALS,
};
use dendro_format::{Checkpoint, Identity, SegmentNo, Superblock};

use crate::error::{Error, Result};
use crate::read::Volume;
use base::{Base, OldMap};
use missing::SEQ_SKIP;
use plan::Plan;
use sweep::{Sweep, SweptCheckpoint};
use write::{Facts, MapWriter};

mod account;
mod base;
mod blocks;
mod claims;
mod extents;
mod fill;
mod find;
mod history;
mod missing;
mod plan;
mod replay;
mod report;
mod stream;
mod superblock;
mod sweep;
mod version_table;
mod write;

pub use report::{Extent, LostPage, RebuildReport, Restored, Source};

/// How to rebuild.
#[derive(Clone, Copy, Debug)]
pub struct RebuildOptions {
    /// Only find out what would be done.
    pub dry_run: bool,
    /// The present time.
    pub now: Timestamp,
}

/// Rebuilds the volume on `device`. `progress` is called with each segment that the sweep has read,
/// and with the number of all segments.
///
/// # Errors
/// [`Error::NoVolume`] when nothing on the device belongs to a volume; [`Error::NoFreeSegment`]
/// when there is no room for the new map; when the device fails, or the volume cannot be used at
/// all.
pub fn rebuild(
    device: &dyn Device,
    options: &RebuildOptions,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<RebuildReport> {
    let mut found = Found::find(device)?;
    let sweep = {
        let volume = found.volume(device)?;
        let count = volume.layout().segment_count();
        Sweep::run(&volume, &mut |segment| progress(segment.0 + 1, count))
    };
    found.adopt_identity(&sweep);
    let mut volume = found.volume(device)?;
    let mut checkpoints = sweep.checkpoints.clone();
    checkpoints.extend(found.named_checkpoints(&volume));
    checkpoints.retain(|of| is_usable(&volume, &of.checkpoint));
    volume.adopt_mirrors(sweep.mirrors.iter().copied());
    for of in &checkpoints {
        volume.adopt_mirrors(of.checkpoint.mirrors.iter().copied());
    }
    let in_force = checkpoints.iter().find(|of| found.names(of)).cloned();
    let base = Base::choose(&volume, &sweep, checkpoints, in_force.as_ref());
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
        unknown_move_count: 0,
        next_list: 0,
        written_bytes: 0,
    };
    let (base, map) = match base {
        Base::Whole(of) => {
            report.checkpoint = Some(of.checkpoint.seq);
            if !found.is_in_order(device, &of) {
                report.extent = Extent::Superblock;
                if !options.dry_run {
                    found.name(device, &of, options.now)?;
                }
            }
            return Ok(report);
        }
        Base::Gaps(of, map) => (Some(of.checkpoint), *map),
        Base::Lost => (None, OldMap::lost(&volume)),
    };
    report.extent = if base.is_some() { Extent::Parts } else { Extent::Map };
    report.checkpoint = base.as_ref().map(|of| of.seq);
    report.bad_nodes = map.problems.iter().map(ToString::to_string).collect();
    let has_versions = found.superblock.incompatible & INCOMPATIBLE_VERSIONS != 0;
    let plan = Plan::make(&volume, &sweep, base.as_ref(), map, has_versions);
    report.restored.clone_from(&plan.restored);
    report.may_lack_nodes = plan.may_lack_nodes;
    report.restored_entry_count = plan.restored_entry_count;
    report.unknown_move_count = plan.unknown_move_count;
    report.lost_pages = plan.lost_pages();
    let of_base = base.as_ref().map_or(0, |base| base.next_list);
    report.next_list = plan.map.account.next_list.max(of_base);
    if options.dry_run {
        return Ok(report);
    }
    let mut free = plan.free.iter().copied().collect();
    let facts = found.facts(base, &sweep, &plan, &mut free, options.now)?;
    let writer = MapWriter::new(&volume, &sweep, &plan, free, &facts);
    let (checkpoint, written_bytes) = writer.write(facts)?;
    report.written_bytes = written_bytes;
    found.name(device, &checkpoint, options.now)?;
    Ok(report)
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

/// The volume, as far as its superblocks tell it.
struct Found {
    /// The newest superblock, or one that was made from what else there is.
    superblock: Superblock,
    /// The valid superblocks, oldest first.
    all: Vec<Superblock>,
    has_superblock: bool,
    /// Whether the newest is a backup.
    is_backup: bool,
    hash_key_lost: bool,
}

impl Found {
    fn find(device: &dyn Device) -> Result<Self> {
        match Volume::open(device) {
            Ok(volume) => Ok(Self {
                superblock: volume.superblock().clone(),
                all: volume.superblocks().all().iter().map(|it| it.superblock.clone()).collect(),
                has_superblock: true,
                is_backup: volume.superblocks().is_backup(),
                hash_key_lost: false,
            }),
            Err(Error::NoVolume(problem)) => Ok(Self {
                superblock: find::from_partial_segments(device).ok_or(Error::NoVolume(problem))?,
                all: Vec::new(),
                has_superblock: false,
                is_backup: false,
                hash_key_lost: true,
            }),
            Err(error) => Err(error),
        }
    }

    fn volume<'d>(&self, device: &'d dyn Device) -> Result<Volume<'d>> {
        Volume::assumed(device, self.superblock.clone())
    }

    /// Takes from the newest checkpoint what no superblock tells any more.
    fn adopt_identity(&mut self, sweep: &Sweep) {
        if self.has_superblock {
            return;
        }
        let mut checkpoints: Vec<_> = sweep.checkpoints.iter().map(|of| &of.checkpoint).collect();
        checkpoints.sort_by_key(|of| std::cmp::Reverse((of.log_seq, of.seq)));
        let superblock = &mut self.superblock;
        let earliest = checkpoints.iter().map(|of| of.time).min();
        superblock.created = earliest.unwrap_or_default();
        let is_known = checkpoints.into_iter().any(|of| find::adopt_identity(superblock, of));
        self.hash_key_lost = !is_known;
    }

    /// The checkpoints that superblocks name and that can be read.
    fn named_checkpoints(&self, volume: &Volume<'_>) -> Vec<SweptCheckpoint> {
        let named = self.all.iter().filter_map(|of| {
            Some(SweptCheckpoint {
                addr: of.checkpoint_addr,
                len_bytes: of.checkpoint_len_bytes,
                crc32c: of.checkpoint_crc32c,
                checkpoint: volume.checkpoint_of(of).ok()?,
            })
        });
        named.collect()
    }

    /// Whether the newest superblock names this checkpoint.
    fn names(&self, of: &SweptCheckpoint) -> bool {
        let Superblock { checkpoint_addr, checkpoint_crc32c, .. } = self.superblock;
        self.has_superblock && (checkpoint_addr, checkpoint_crc32c) == (of.addr, of.crc32c)
    }

    /// Whether the newest superblock names this checkpoint, and no damaged one is newer.
    fn is_in_order(&self, device: &dyn Device, of: &SweptCheckpoint) -> bool {
        self.names(of) && !self.is_backup && {
            let next = superblock::next_seq(device, &self.superblock, self.superblock.seq);
            next == self.superblock.seq + 1
        }
    }

    /// Writes a superblock that names a checkpoint.
    fn name(&self, device: &dyn Device, of: &SweptCheckpoint, now: Timestamp) -> Result<()> {
        let seq = match self.has_superblock {
            true if self.is_backup => {
                self.superblock.layout.superblock_seq_anew(self.superblock.seq)
            }
            true => superblock::free_seq(device, &self.superblock),
            false => 0,
        };
        if !self.has_superblock || self.is_backup {
            superblock::clear(device, self.superblock.layout)?;
        }
        let next = Superblock {
            seq,
            clean: false,
            read_only: self.superblock.read_only | READ_ONLY_REMOVALS,
            incompatible: self.superblock.incompatible
                | (KNOWN_INCOMPATIBLE & !(INCOMPATIBLE_RETIRED | INCOMPATIBLE_MIRRORS)),
            checkpoint_addr: of.addr,
            checkpoint_len_bytes: of.len_bytes,
            checkpoint_crc32c: of.crc32c,
            checkpoint_mirror: of.checkpoint.mirror_of(self.superblock.layout, of.addr),
            written: now,
            ..self.superblock.clone()
        };
        superblock::append(device, &next)
    }

    /// What the new checkpoint states. Without a base, the log continues in free segments.
    fn facts(
        &self,
        base: Option<Checkpoint>,
        sweep: &Sweep,
        plan: &Plan,
        free: &mut stream::FreeSegments,
        time: Timestamp,
    ) -> Result<Facts> {
        let account = &plan.map.account;
        let of_checkpoints = sweep.checkpoints.iter().map(|of| of.checkpoint.seq);
        let of_nodes = sweep.nodes.iter().map(|node| node.checkpoint_seq);
        let newest = of_checkpoints.chain(of_nodes).chain(base.as_ref().map(|of| of.seq)).max();
        let before = match base {
            Some(base) => base,
            None => {
                let mut take = || free.pop_front().ok_or(Error::NoFreeSegment);
                let (segment, next_segment) = (take()?, take()?);
                let (log_seq, log_prev_crc32c) = plan.history.end();
                let layout = self.superblock.layout;
                Checkpoint {
                    uuid: self.superblock.uuid,
                    seq: 0,
                    root: None,
                    log: HeadPosition { segment, offset_bytes: 0 },
                    log_seq: log_seq.saturating_add(SEQ_SKIP),
                    log_prev_crc32c,
                    next_segment,
                    map: HeadPosition { segment: SegmentNo(0), offset_bytes: 0 },
                    next_list: 0,
                    commit_seq: sweep.commit_seq,
                    epoch: account.epoch.max(1),
                    live_bytes: 0,
                    time,
                    log_clock: layout
                        .log_segments()
                        .map(|segment| account.live_bytes_of(segment))
                        .sum(),
                    short_count: 0,
                    zero_count: 0,
                    counts_are_exact: true,
                    identity: None,
                    usage_overrides: Vec::new(),
                    mirrors: Vec::new(),
                }
            }
        };
        let checkpoint = Checkpoint {
            seq: newest.unwrap_or(0) + 1,
            next_list: before.next_list.max(account.next_list),
            time,
            identity: (!self.hash_key_lost).then(|| Identity::of(&self.superblock)),
            ..before
        };
        Ok(Facts { checkpoint, time })
    }
}
