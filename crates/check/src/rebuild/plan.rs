//! What the new map is made of, before anything is written: the leaves that stay, what fills the
//! gaps, and the segments that may be written to.

use std::collections::{BTreeMap, BTreeSet};

use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::versions::{VERSIONS_LIST, VersionRecord};
use dendro_format::{
    CHUNK_PAGES, Checkpoint, Key, Layout, PageRef, Record, SegmentNo, Space, Value,
};

use super::account::Account;
use super::base::{OldMap, leaf_footprint_bytes, lose};
use super::blocks::blocks_of;
use super::claims::claim;
use super::fill::Filler;
use super::history::History;
use super::memory::Memory;
use super::replay::UnknownMoves;
use super::report::{LostPages, Restored};
use super::slices::{Slice, slices};
use super::sweep::Sweep;
use crate::error::Result;
use crate::read::Volume;

/// The plan of the new map.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) map: OldMap,
    pub(super) claims: Vec<super::claims::Claim>,
    pub(super) history: History,
    pub(super) has_versions: bool,
    memory: Memory,
    has_base: bool,
    /// Between the nodes that were found there may have been others, of which nothing is left.
    pub(super) may_lack_nodes: bool,
    /// The entries of lists that the log behind the checkpoint takes to exist.
    pub(super) later: BTreeMap<u64, Key>,
    /// Lists between which the log behind the checkpoint moves pages.
    moved_later: BTreeSet<(u64, u64)>,
    /// Whether the log behind the checkpoint makes, names or deletes versions, or changes another
    /// branch than the first.
    names_versions_later: bool,
    /// Whether the log behind the checkpoint may go on in a segment that the device has lost.
    pub(super) leads_outside: bool,
    /// Segments that the device has lost and something still names. If a copy of the volume grows,
    /// nothing may lie there.
    pub(super) named_outside: BTreeSet<SegmentNo>,
    /// Segments that the log behind the checkpoint releases. All in them is dead by then, so an
    /// entry that is not known to be up to date must not name a block there.
    reused_later: BTreeSet<SegmentNo>,
    pub(super) restored: Vec<Restored>,
    pub(super) restored_entry_count: u64,
    pub(super) unknown_move_count: u64,
    /// Segments in which nothing is needed, those in which there is nothing at all first.
    pub(super) free: Vec<SegmentNo>,
    /// The mirrors of the base's segments in which leaves stay.
    pub(super) mirrors: Vec<(SegmentNo, SegmentNo)>,
    /// The segments in which nothing is needed any more when the volume is rebuilt, and those that
    /// the rebuild takes.
    pub(super) clean_count: usize,
}

impl Plan {
    /// Plans to fill the gaps of a checkpoint's map, or of a map without one.
    pub(super) fn make(
        volume: &Volume<'_>,
        sweep: &Sweep,
        base: Option<&Checkpoint>,
        mut map: OldMap,
        has_versions: bool,
        memory: Memory,
    ) -> Result<Self> {
        let limit = base.map(|of| (of.seq, of.log_seq));
        let history = History::new(sweep, base.map(|of| (of.log_seq, of.log_prev_crc32c)));
        let mut needed = std::mem::take(&mut map.segments);
        let claims = claim(volume, sweep, &map.gaps, limit, &mut needed);
        let mut plan = Self {
            map,
            claims,
            history,
            has_versions,
            memory,
            has_base: base.is_some(),
            may_lack_nodes: false,
            later: BTreeMap::new(),
            moved_later: BTreeSet::new(),
            names_versions_later: false,
            leads_outside: false,
            named_outside: BTreeSet::new(),
            reused_later: BTreeSet::new(),
            restored: Vec::new(),
            restored_entry_count: 0,
            unknown_move_count: 0,
            free: Vec::new(),
            mirrors: Vec::new(),
            clean_count: 0,
        };
        let mut later = dendro_format::retired::out_of_use(&volume.superblock().retired);
        if let Some(base) = base {
            later.extend([base.log.segment, base.next_segment]);
            plan.take_log_behind(volume, base, &mut later);
            needed.insert(base.map.segment);
            needed.extend(base.mirrors.iter().map(|(_, mirror)| *mirror));
        }
        plan.count(volume, &mut needed)?;
        plan.unknown_move_count += plan.unknown_later_moves();
        let account = &plan.map.account;
        let stays = |(of, mirror): &&(SegmentNo, SegmentNo)| {
            account.live_bytes_of(*of) > 0 && account.layout().is_log_segment(*mirror)
        };
        plan.mirrors = base.into_iter().flat_map(|of| &of.mirrors).filter(stays).copied().collect();
        later.extend(plan.mirrors.iter().map(|(_, mirror)| *mirror));
        let is_clean =
            |segment: &SegmentNo| account.live_bytes_of(*segment) == 0 && !later.contains(segment);
        let clean = || account.layout().log_segments().filter(is_clean);
        plan.clean_count = clean().count();
        plan.free = clean().filter(|segment| !needed.contains(segment)).collect();
        plan.free.sort_by_key(|segment| (sweep.heads.contains_key(segment), *segment));
        let end = SegmentNo(account.layout().segment_count());
        plan.named_outside = needed.split_off(&end);
        Ok(plan)
    }

    /// What the log behind the checkpoint holds and names is taken: rolling it forward adds it to
    /// the map. So are the lists that it puts something into.
    fn take_log_behind(
        &mut self,
        volume: &Volume<'_>,
        base: &Checkpoint,
        needed: &mut BTreeSet<SegmentNo>,
    ) {
        let (layout, own) = (volume.layout(), self.map.account.layout());
        let extents = &mut self.map.account.extents;
        let mut take = |segment: SegmentNo, offset: u32, len_bytes: u64| {
            let start = layout.segment_offset(segment) + u64::from(offset);
            extents.take(dendro_format::Addr::from_bytes(start), len_bytes);
        };
        let size = layout.segment_size_bytes();
        take(base.log.segment, base.log.offset_bytes, size - u64::from(base.log.offset_bytes));
        if layout.is_log_segment(base.next_segment) {
            take(base.next_segment, 0, size);
        }
        self.leads_outside =
            [base.log.segment, base.next_segment].iter().any(|segment| is_outside(own, *segment));
        let mut created = BTreeSet::new();
        let mut parents = BTreeMap::new();
        for partial in volume.log(base) {
            let header = &partial.header;
            self.leads_outside |= is_outside(own, header.next_segment);
            needed.extend([header.segment, header.next_segment]);
            take(header.segment, header.offset_bytes, header.len_bytes.into());
            if layout.is_log_segment(header.next_segment) {
                take(header.next_segment, 0, size);
            }
            let mut version = (0, header.epoch);
            for record in partial.records().flatten() {
                match record.record {
                    Record::Version { branch, epoch, .. } => {
                        version = (branch, epoch);
                        self.names_versions_later |= branch != 0;
                    }
                    Record::CreateList { list, .. } => drop(created.insert(list)),
                    Record::DeleteRecord { list: VERSIONS_LIST, .. } => {
                        self.names_versions_later = true;
                    }
                    Record::PutRecord { list: VERSIONS_LIST, index, value } => {
                        self.names_versions_later = true;
                        let new = VersionRecord::decode(index, value).ok();
                        parents.extend(new.and_then(|new| made_since(base.epoch, new)));
                    }
                    Record::PutRecord { list, .. }
                    | Record::WriteRun { list, .. }
                    | Record::WriteBlock { list, .. }
                    | Record::ZeroPages { list, .. }
                        if list < FIRST_SYSTEM_LIST && !created.contains(&list) =>
                    {
                        let (mut branch, epoch) = version;
                        while let Some(parent) = parents.get(&branch) {
                            branch = *parent;
                        }
                        // It was there at the checkpoint.
                        let epoch = epoch.min(base.epoch);
                        let key = Key { branch, epoch, ..Key::first(list, Space::List, 0) };
                        self.later.entry(list).or_insert(key);
                    }
                    Record::Reuse { segment } => drop(self.reused_later.insert(segment)),
                    Record::MovePages { from, to, .. }
                    | Record::SwapPages { a: from, b: to }
                    | Record::SwapRange { a: from, b: to, .. } => {
                        self.moved_later.insert((from, to));
                    }
                    _ => {}
                }
                for (_, block) in blocks_of(&record.record) {
                    let len_bytes = u64::from(block.footprint_bytes());
                    if layout.holds(block.addr, len_bytes) {
                        needed.insert(layout.segment_of(block.addr));
                        let offset = block.addr.bytes() % size;
                        take(layout.segment_of(block.addr), offset as u32, len_bytes);
                    }
                }
            }
        }
    }

    /// Counts what fills the gaps. Of entries that name the same block the newest keeps it.
    fn count(&mut self, volume: &Volume<'_>, needed: &mut BTreeSet<SegmentNo>) -> Result<()> {
        let slices = slices(&self.map.gaps, &self.claims, self.memory);
        let account = &mut self.map.account;
        for leaf in self.map.kept.iter().filter(|leaf| !leaf.is_rewritten) {
            account.add_live(leaf.child.place.addr, leaf_footprint_bytes(leaf));
        }
        let filler = Filler {
            volume,
            history: &self.history,
            has_versions: self.has_versions,
            later: &self.later,
        };
        let mut unknown_moves = UnknownMoves::new();
        for slice in slices {
            let content = filler.fill(&slice);
            needed.extend(content.segments);
            unknown_moves.extend(content.unknown_moves);
            let is_empty =
                |part: &Restored| content.filled.range(part.from..part.to).next().is_none();
            let stale: Vec<_> =
                content.restored.iter().filter(|part| !part.is_complete).copied().collect();
            for part in content.restored {
                let is_found = !part.is_of_log() || !is_empty(&part);
                if is_found || self.has_base && !part.is_complete {
                    note(&mut self.restored, part);
                } else {
                    self.may_lack_nodes |= !part.is_complete;
                }
            }
            let of_clients = content.filled.keys().filter(|key| key.list < FIRST_SYSTEM_LIST);
            self.restored_entry_count += of_clients.count() as u64;
            let mut by_age: Vec<_> = content.filled.iter().collect();
            by_age.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.age));
            for (key, entry) in by_age {
                let Value::Chunk(chunk) = &entry.value else {
                    account.add(key, &entry.value);
                    continue;
                };
                let at = stale.partition_point(|part| part.to <= *key);
                let is_stale = stale.get(at).is_some_and(|part| part.from <= *key);
                let is_lost = |page: PageRef, account: &Account| {
                    let segment = volume.layout().segment_of(page.addr);
                    let is_reused = is_stale && self.reused_later.contains(&segment);
                    !account.admits(page) || is_reused && page.len_bytes > 0
                };
                let lost = account.add_chunk_without(key, chunk, is_lost);
                lose(&mut self.map.lost, key, lost);
            }
            self.memory.check(account.memory_bytes())?;
        }
        self.unknown_move_count += unknown_moves.len() as u64;
        Ok(())
    }

    /// The slices in which the gaps are filled.
    pub(super) fn slices(&self) -> Vec<Slice<'_>> {
        slices(&self.map.gaps, &self.claims, self.memory)
    }

    /// Whether what the log behind the checkpoint says of versions may contradict the version
    /// table, of which older records are left. Rolling it forward would fail then.
    pub(super) fn contradicts_log(&self) -> bool {
        let key = Key { branch: 0, epoch: 1, ..Key::first(VERSIONS_LIST, Space::Records, 0) };
        let is_stale =
            |part: &Restored| !part.is_complete && part.to > key && part.from.list <= VERSIONS_LIST;
        self.names_versions_later && self.restored.iter().any(is_stale)
    }

    /// Moves behind the checkpoint that may bring what is lost into other lists.
    fn unknown_later_moves(&self) -> u64 {
        let is_lost = |list: u64| {
            let mut incomplete = self.restored.iter().filter(|part| !part.is_complete);
            incomplete.any(|part| (part.from.list..=part.to.list).contains(&list))
                || self.map.lost.keys().any(|key| key.list == list)
        };
        let lost = self.moved_later.iter().filter(|(from, to)| is_lost(*from) || is_lost(*to));
        lost.count() as u64
    }

    /// The pages whose blocks belong to others, or lie where nothing is.
    pub(super) fn lost_pages(&self) -> Vec<LostPages> {
        let mut all: Vec<LostPages> = Vec::new();
        for (key, slots) in &self.map.lost {
            let first = key.index.saturating_mul(CHUNK_PAGES);
            for slot in (0..u32::BITS).filter(|slot| slots >> slot & 1 == 1) {
                let Key { list, branch, epoch, .. } = *key;
                let page_index = first | u64::from(slot);
                match all.last_mut() {
                    Some(last)
                        if (last.list, last.branch, last.epoch) == (list, branch, epoch)
                            && last.page_index + last.page_count == page_index =>
                    {
                        last.page_count += 1;
                    }
                    _ => all.push(LostPages { list, page_index, page_count: 1, branch, epoch }),
                }
            }
        }
        all
    }
}

/// Notes what a part was restored from: together with the part before it, if that is the same.
fn note(restored: &mut Vec<Restored>, part: Restored) {
    let is_same = |last: &&mut Restored| {
        last.to == part.from && last.source == part.source && last.is_complete == part.is_complete
    };
    match restored.last_mut().filter(is_same) {
        Some(last) => last.to = part.to,
        None => restored.push(part),
    }
}

/// The branch that a version record is of, with its parent, if it was made from that in `epoch` or
/// later.
fn made_since(epoch: u64, record: VersionRecord) -> Option<(u32, u32)> {
    match record {
        VersionRecord::Branch { branch, parent: Some((parent, at)), .. } => {
            (at >= epoch).then_some((branch, parent))
        }
        _ => None,
    }
}

/// Whether the device has lost a segment in which the log was to go on; 0 is none.
fn is_outside(layout: Layout, segment: SegmentNo) -> bool {
    segment.0 >= layout.segment_count()
}

/// A block that is nowhere good: reading the page reports damage.
pub(super) const fn lost_block(addr: dendro_format::Addr, crc32c: u32) -> PageRef {
    PageRef { addr, crc32c: !crc32c, len_bytes: 64, compression: 0, flags: 0 }
}
