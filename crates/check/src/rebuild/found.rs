//! What is known of a volume from its superblocks, or from what repeats what they said.

use dendro_base::Timestamp;
use dendro_device::Device;
use dendro_format::checkpoint::HeadPosition;
use dendro_format::layout::backup_area;
use dendro_format::superblock::{INCOMPATIBLE_MIRRORS, READ_ONLY_REMOVALS};
use dendro_format::{Checkpoint, Identity, Layout, SegmentNo, Superblock};

use super::missing::SEQ_SKIP;
use super::plan::Plan;
use super::stream::FreeSegments;
use super::sweep::{Sweep, SweptCheckpoint};
use super::write::Facts;
use super::{find, superblock};
use crate::error::{Error, Result};
use crate::read::{Superblocks, Volume, find_superblocks};

/// The volume, as far as its superblocks tell it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The newest superblock, or one that was made from what else there is. Where the device has
    /// lost its end, the volume has the segments that are left.
    pub(super) superblock: Superblock,
    /// The segments that the volume had. Those that the device has lost cannot be read.
    layout_was: Layout,
    /// The valid superblocks, oldest first.
    all: Vec<Superblock>,
    pub(super) has_superblock: bool,
    /// Whether the newest is a backup.
    pub(super) is_backup: bool,
    pub(super) hash_key_lost: bool,
    /// Segments of the map, each with one that is or was its mirror.
    pub(super) mirrors: Vec<(SegmentNo, SegmentNo)>,
}

impl Found {
    pub(super) fn find(device: &dyn Device) -> Result<Self> {
        match Volume::open(device) {
            Ok(volume) => Self::by(volume.superblocks(), device),
            Err(Error::Truncated { .. }) => Self::by(&find_superblocks(device)?, device),
            Err(Error::NoVolume(problem)) => {
                let superblock =
                    find::from_partial_segments(device).ok_or(Error::NoVolume(problem))?;
                // Segments may have mirrors that the device has lost with its end.
                let longest = superblock.layout.with_segment_count(u32::MAX);
                Ok(Self {
                    layout_was: longest,
                    superblock,
                    all: Vec::new(),
                    has_superblock: false,
                    is_backup: false,
                    hash_key_lost: true,
                    mirrors: Vec::new(),
                })
            }
            Err(error) => Err(error),
        }
    }

    fn by(superblocks: &Superblocks, device: &dyn Device) -> Result<Self> {
        let newest = &superblocks.current().superblock;
        Ok(Self {
            superblock: find::within(newest.clone(), device.len_bytes())?,
            layout_was: newest.layout,
            all: superblocks.all().iter().map(|it| it.superblock.clone()).collect(),
            has_superblock: true,
            is_backup: superblocks.is_backup(),
            hash_key_lost: false,
            mirrors: Vec::new(),
        })
    }

    /// The volume with all the segments that it had, for reading what is left of them.
    pub(super) fn volume<'d>(&self, device: &'d dyn Device) -> Result<Volume<'d>> {
        let own = self.superblock.layout;
        let count = own.segment_count().max(self.layout_was.segment_count());
        let superblock =
            Superblock { layout: own.with_segment_count(count), ..self.superblock.clone() };
        let mut volume = Volume::assumed(device, superblock)?;
        volume.adopt_mirrors(self.mirrors.iter().copied());
        Ok(volume)
    }

    /// How many segments the volume had that the device has lost.
    pub(super) fn lost_segment_count(&self) -> u32 {
        self.layout_was.segment_count().saturating_sub(self.superblock.layout.segment_count())
    }

    /// Gives the volume so many more segments, or fewer if the device ends before. Returns whether
    /// there is room for one at least.
    pub(super) fn grow(&mut self, device: &dyn Device, by: u32) -> bool {
        let layout = &mut self.superblock.layout;
        let end = backup_area(device.len_bytes()).map_or(0, |area| area.start);
        let most = u32::try_from(end >> layout.segment_size_log2()).unwrap_or(u32::MAX);
        let count = layout.segment_count().saturating_add(by).min(most);
        let grown = Layout::new(layout.segment_size_log2(), count).ok();
        let grown = grown.filter(|_| count > layout.segment_count());
        *layout = grown.unwrap_or(*layout);
        grown.is_some()
    }

    /// Takes from the newest checkpoint what no superblock tells any more.
    pub(super) fn adopt_identity(&mut self, sweep: &Sweep) {
        if self.has_superblock {
            return;
        }
        self.layout_was = self.superblock.layout;
        let mut checkpoints: Vec<_> = sweep.checkpoints.iter().map(|of| &of.checkpoint).collect();
        checkpoints.sort_by_key(|of| std::cmp::Reverse((of.log_seq, of.seq)));
        let superblock = &mut self.superblock;
        let earliest = checkpoints.iter().map(|of| of.time).min();
        superblock.created = earliest.unwrap_or_default();
        let known = checkpoints.into_iter().find_map(|of| find::adopt_identity(superblock, of));
        self.hash_key_lost = known.is_none();
        self.layout_was = known.unwrap_or(self.layout_was);
    }

    /// The checkpoints that superblocks name and that can be read.
    pub(super) fn named_checkpoints(&self, volume: &Volume<'_>) -> Vec<SweptCheckpoint> {
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
    pub(super) fn names(&self, of: &SweptCheckpoint) -> bool {
        let Superblock { checkpoint_addr, checkpoint_crc32c, .. } = self.superblock;
        self.has_superblock && (checkpoint_addr, checkpoint_crc32c) == (of.addr, of.crc32c)
    }

    /// Whether the newest superblock names this checkpoint, and no damaged one is newer.
    pub(super) fn is_in_order(&self, device: &dyn Device, of: &SweptCheckpoint) -> bool {
        self.names(of) && !self.is_backup && {
            let next = superblock::next_seq(device, &self.superblock, self.superblock.seq);
            next == self.superblock.seq + 1
        }
    }

    /// Writes a superblock that names a checkpoint.
    pub(super) fn name(
        &self,
        device: &dyn Device,
        of: &SweptCheckpoint,
        now: Timestamp,
    ) -> Result<()> {
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
        let of_mirrors = if of.checkpoint.mirrors.is_empty() { 0 } else { INCOMPATIBLE_MIRRORS };
        let next = Superblock {
            seq,
            clean: false,
            read_only: self.superblock.read_only | READ_ONLY_REMOVALS,
            incompatible: self.superblock.incompatible
                | of_mirrors
                | superblock::ASSUMED_INCOMPATIBLE,
            checkpoint_addr: of.addr,
            checkpoint_len_bytes: of.len_bytes,
            checkpoint_crc32c: of.crc32c,
            checkpoint_mirror: of.checkpoint.mirror_of(self.superblock.layout, of.addr),
            written: now,
            ..self.superblock.clone()
        };
        superblock::append(device, &next)
    }

    /// What the new checkpoint states. Without a base, or if the device has lost the place where
    /// its log continues, that is in free segments.
    pub(super) fn facts(
        &self,
        base: Option<&Checkpoint>,
        sweep: &Sweep,
        plan: &Plan,
        free: &mut FreeSegments,
        time: Timestamp,
    ) -> Result<Facts> {
        let account = &plan.map.account;
        let of_checkpoints = sweep.checkpoints.iter().map(|of| of.checkpoint.seq);
        let of_nodes = sweep.nodes.iter().map(|node| node.checkpoint_seq);
        let newest = of_checkpoints.chain(of_nodes).chain(base.map(|of| of.seq)).max();
        // Without a base the log continues far behind its end. The nodes do not say so: otherwise,
        // if this rebuild is interrupted, the next one takes the log between for lost.
        let of_sweep = || sweep.nodes.iter().map(|node| node.log_seq).max().unwrap_or(0);
        let nodes_log_seq =
            base.map_or_else(|| of_sweep().max(plan.history.end().0), |of| of.log_seq);
        let layout = self.superblock.layout;
        let mut take = || free.pop_front().ok_or(Error::NoFreeSegment);
        let before = match base {
            Some(base) if layout.is_log_segment(base.log.segment) => {
                let next = Some(base.next_segment).filter(|next| layout.is_log_segment(*next));
                Checkpoint { next_segment: next.unwrap_or(SegmentNo(0)), ..base.clone() }
            }
            Some(base) => Checkpoint {
                log: HeadPosition { segment: take()?, offset_bytes: 0 },
                next_segment: take()?,
                log_seq: base.log_seq.saturating_add(SEQ_SKIP),
                ..base.clone()
            },
            None => {
                let (segment, next_segment) = (take()?, take()?);
                let (log_seq, log_prev_crc32c) = plan.history.end();
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
                    totals_are_exact: true,
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
        Ok(Facts { checkpoint, nodes_log_seq, time })
    }
}
