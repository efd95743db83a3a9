//! The checkpoint that the new map starts from, and what of its map cannot be read.

use std::collections::{BTreeMap, BTreeSet};

use dendro_base::units::{GRAIN_SIZE, align_up};
use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::{ChildPtr, Entries, Key, Layout, PageRef, SegmentNo, Value, checksum};

use super::account::Account;
use super::gaps::{END, Gap};
use super::memory::Memory;
use super::sweep::{LogPlace, Sweep, SweptCheckpoint};
use crate::error::{NodeProblem, Result};
use crate::read::{Volume, first_and_last};

/// A map is tried as a whole from so many checkpoints.
const MAX_TRIED: usize = 4;

/// A leaf that stays where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptLeaf {
    /// The lowest key that may lie in it.
    pub(super) first: Key,
    pub(super) child: ChildPtr,
    /// Whether its entries are written anew: it has some of the disk's own lists, or pages that are
    /// lost, or only its copy in a mirror can be read, or the volume ends before it now.
    pub(super) is_rewritten: bool,
}

/// What can be read of a checkpoint's map.
#[derive(Debug)]
pub(super) struct OldMap {
    /// The leaves in the order of their keys.
    pub(super) kept: Vec<KeptLeaf>,
    /// In the order of their keys.
    pub(super) gaps: Vec<Gap>,
    /// What is wrong with the nodes above the gaps.
    pub(super) problems: Vec<NodeProblem>,
    /// Segments in which nodes of it lie.
    pub(super) segments: BTreeSet<SegmentNo>,
    pub(super) account: Account,
    /// Pages whose blocks belong to others, or lie where nothing is: a bit for each slot of a
    /// chunk.
    pub(super) lost: BTreeMap<Key, u32>,
    /// Whether some node, or the checkpoint itself, can be read only where the checkpoint does not
    /// say that it lies.
    is_scattered: bool,
}

impl OldMap {
    /// A map of which nothing is left, of a volume that has the segments of `layout` now.
    pub(super) fn lost(layout: Layout) -> Self {
        Self {
            kept: Vec::new(),
            gaps: vec![Gap { from: Key::MIN, to: END }],
            problems: Vec::new(),
            segments: BTreeSet::new(),
            account: Account::new(layout),
            lost: BTreeMap::new(),
            is_scattered: false,
        }
    }

    /// Reads the map of a checkpoint, of a volume that has the segments of `layout` now. `None` if
    /// it has gaps and `is_to_be_whole`.
    pub(super) fn read(
        volume: &Volume<'_>,
        layout: Layout,
        of: &SweptCheckpoint,
        is_to_be_whole: bool,
        memory: Memory,
    ) -> Result<Option<Self>> {
        let is_scattered = !can_be_read(volume, of);
        let mut map = Self { gaps: Vec::new(), is_scattered, ..Self::lost(layout) };
        let mut nodes = volume.nodes(&of.checkpoint);
        while let Some(visited) = nodes.next() {
            let (from, to) = nodes.range();
            let node = match visited {
                Ok(node) => node,
                Err(_) if is_to_be_whole => return Ok(None),
                Err(problem) => {
                    map.problems.push(problem);
                    map.gaps.push(Gap { from: from.unwrap_or(Key::MIN), to: to.unwrap_or(END) });
                    continue;
                }
            };
            map.segments.extend(node.segments(volume));
            if node.problem.is_some() {
                let mirror = of.checkpoint.mirror_of(volume.layout(), node.place.addr);
                map.is_scattered |=
                    mirror.is_none_or(|mirror| volume.node_at(node.place, mirror).is_err());
            }
            let newest_epoch = node.entries.newest_epoch();
            let (first, last) = first_and_last(&node.entries);
            map.account.take(node.place.addr, node.place.len_bytes.into());
            // Of what one copy is damaged, two are made elsewhere.
            let is_rewritten = last.list >= FIRST_SYSTEM_LIST
                || node.problem.is_some()
                || !layout.holds(node.place.addr, node.place.len_bytes.into());
            let Entries::Leaf(entries) = &node.entries else { continue };
            let child = ChildPtr { place: node.place, newest_epoch };
            map.kept.push(KeptLeaf { first: from.unwrap_or(first), child, is_rewritten });
            for (key, value) in entries {
                map.account.add(key, value);
            }
            memory.check(map.account.memory_bytes())?;
        }
        if map.account.has_outside || !map.account.contested.is_empty() {
            map.settle(volume);
        }
        map.account.old_usage.insert_overrides(&of.checkpoint);
        Ok(Some(map))
    }

    /// Decides who keeps the blocks that several entries of the map name: the first whose checksum
    /// says that they are its own. The pages of the others are lost, and those whose blocks lie
    /// where nothing is.
    fn settle(&mut self, volume: &Volume<'_>) {
        let contested = std::mem::take(&mut self.account.contested);
        let layout = self.account.layout();
        let mut account = Account::new(layout);
        for leaf in &self.kept {
            account.take(leaf.child.place.addr, leaf.child.place.len_bytes.into());
        }
        for leaf in &mut self.kept {
            let Ok(node) = volume.node(leaf.child.place) else { continue };
            let Entries::Leaf(entries) = &node.entries else { continue };
            for (key, value) in entries {
                let Value::Chunk(chunk) = value else {
                    account.add(key, value);
                    continue;
                };
                let is_lost = |page: PageRef, account: &Account| {
                    let len_bytes = page.footprint_bytes().into();
                    let is_held = || layout.holds(page.addr, len_bytes);
                    let is_alone = || contested.is_free(page.addr, len_bytes);
                    let is_its_own = || account.admits(page) && is_own(volume, page);
                    page.len_bytes > 0 && !(is_held() && (is_alone() || is_its_own()))
                };
                let lost = account.add_chunk_without(key, chunk, is_lost);
                leaf.is_rewritten |= lost != 0;
                lose(&mut self.lost, key, lost);
            }
        }
        self.account = account;
    }

    /// Whether all of it can be read by whoever knows the checkpoint alone, and no block has two
    /// owners or lies where nothing is.
    pub(super) fn is_whole(&self) -> bool {
        self.gaps.is_empty() && self.lost.is_empty() && !self.is_scattered
    }
}

/// Notes pages of a chunk that are lost.
pub(super) fn lose(lost: &mut BTreeMap<Key, u32>, key: &Key, slots: u32) {
    if slots != 0 {
        *lost.entry(*key).or_default() |= slots;
    }
}

/// Whether a checkpoint is found by a superblock that names it.
fn can_be_read(volume: &Volume<'_>, of: &SweptCheckpoint) -> bool {
    let mirror = of.checkpoint.mirror_of(volume.layout(), of.addr);
    [Some(of.addr), mirror].into_iter().flatten().any(|addr| {
        let stored = volume.read("checkpoint", addr, of.len_bytes.into());
        stored.is_ok_and(|bytes| checksum(&bytes[..of.len_bytes as usize]) == of.crc32c)
    })
}

/// Whether a page's checksum is that of its block.
fn is_own(volume: &Volume<'_>, page: PageRef) -> bool {
    let len_bytes = u64::from(page.len_bytes);
    let block = volume.read("a page", page.addr, len_bytes);
    block.is_ok_and(|bytes| checksum(&bytes[..len_bytes as usize]) == page.crc32c)
}

/// Bytes that a leaf occupies.
pub(super) fn leaf_footprint_bytes(leaf: &KeptLeaf) -> u64 {
    align_up(leaf.child.place.len_bytes.into(), GRAIN_SIZE as u64)
}

/// What the new map starts from.
pub(super) enum Base {
    /// Nothing of the map is lost: a superblock that names this checkpoint is enough.
    Whole(Box<SweptCheckpoint>),
    /// This checkpoint, with gaps in its map.
    Gaps(Box<SweptCheckpoint>, Box<OldMap>),
    /// There is no checkpoint from which the log leads to its end.
    Lost,
}

impl Base {
    /// Chooses among checkpoints. `in_force` is the one that the newest superblock names, if it can
    /// be read. If the volume has fewer segments now, those of `layout`, no checkpoint will do as
    /// it is.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::error::Error::Memory) when a map does not fit in memory.
    pub(super) fn choose(
        volume: &Volume<'_>,
        layout: Layout,
        sweep: &Sweep,
        mut checkpoints: Vec<SweptCheckpoint>,
        in_force: Option<&SweptCheckpoint>,
        memory: Memory,
    ) -> Result<Self> {
        let age = |of: &SweptCheckpoint| (of.checkpoint.log_seq, of.checkpoint.seq);
        checkpoints.sort_by_key(|of| std::cmp::Reverse((age(of), of.addr)));
        checkpoints.dedup_by_key(|of| of.addr);
        let Some(newest) = checkpoints.first().cloned() else { return Ok(Self::Lost) };
        let is_usable = |of: &SweptCheckpoint| {
            let log = LogFrom::follow(volume, of);
            // If the newest superblock names it, there was no newer one. Then the log behind it is
            // all that is damaged, which whoever mounts the volume decides about.
            let may_be_damaged = in_force.is_some_and(|it| it.addr == of.addr);
            log.leads_to(&newest)
                && !log.continues_after_crash(sweep)
                && (may_be_damaged || !log.is_damaged(sweep))
        };
        let tried = in_force.into_iter().chain(checkpoints.iter().take(MAX_TRIED));
        let mut of_newest = None;
        for of in tried.filter(|of| is_usable(of)) {
            let is_newest = of.addr == newest.addr;
            let Some(map) = OldMap::read(volume, layout, of, !is_newest, memory)? else { continue };
            if map.is_whole()
                && layout == volume.layout()
                && (is_newest || is_replayed_up_to(volume, of, &newest))
            {
                return Ok(Self::Whole(Box::new(of.clone())));
            }
            if is_newest {
                of_newest = Some(map);
            }
        }
        let gaps = |map| Self::Gaps(Box::new(newest), Box::new(map));
        Ok(of_newest.map_or(Self::Lost, gaps))
    }
}

/// Whether rolling forward from a checkpoint reaches the state of a newer one. It ends at a block
/// that is not what its record says, unless the log itself shows that the block was durable: only
/// the newer checkpoint may show that.
fn is_replayed_up_to(volume: &Volume<'_>, of: &SweptCheckpoint, newer: &SweptCheckpoint) -> bool {
    let replayed_count = volume.log_summary(&of.checkpoint).replayed_count;
    of.checkpoint.log_seq.saturating_add(replayed_count) >= newer.checkpoint.log_seq
}

/// The main log behind a checkpoint, as far as it continues.
struct LogFrom {
    /// The number behind the last partial segment, and its checksum.
    end: (u64, u32),
    /// The same for all before it.
    ends: BTreeSet<(u64, u32)>,
}

impl LogFrom {
    fn follow(volume: &Volume<'_>, of: &SweptCheckpoint) -> Self {
        let mut end = (of.checkpoint.log_seq, of.checkpoint.log_prev_crc32c);
        let mut ends = BTreeSet::from([end]);
        for partial in volume.log(&of.checkpoint) {
            end = (partial.header.seq + 1, partial.crc32c);
            ends.insert(end);
        }
        Self { end, ends }
    }

    /// Whether rolling it forward passes the state of the checkpoint `of`.
    fn leads_to(&self, of: &SweptCheckpoint) -> bool {
        self.ends.contains(&(of.checkpoint.log_seq, of.checkpoint.log_prev_crc32c))
    }

    /// Whether a partial segment continues the log with a number that skips some. Recovery after a
    /// crash skips numbers, and rolling forward does not pass such a place.
    fn continues_after_crash(&self, sweep: &Sweep) -> bool {
        let (seq, crc32c) = self.end;
        let continues = |place: &LogPlace| place.seq > seq && place.prev_crc32c == crc32c;
        sweep.log.iter().any(continues)
    }

    /// Whether what is missing at its end is known to have been durable.
    fn is_damaged(&self, sweep: &Sweep) -> bool {
        let (seq, _) = self.end;
        sweep.log.iter().any(|place| place.seq >= seq && place.durable_seq >= seq)
    }
}
