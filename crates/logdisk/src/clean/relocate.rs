//! Relocation: moving live blocks and nodes out of a segment.
//!
//! The records of a segment's partial segments name the blocks in it, and the map says which of
//! them are live. A block is moved by writing its page again with the same content. Recovery needs
//! no special record for that, and a crash in the middle loses nothing. Nodes of the map are marked
//! dirty and are written elsewhere by the next checkpoint.

use std::ops::ControlFlow;

use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Error, Lid, Result};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::record::Records;
use dendro_format::{
    Addr, Chunk, Key, Layout, NodePtr, PageRef, PartialHeader, Record, SegmentNo, Value, checksum,
};
use dendro_policy::Class;
use smallvec::{SmallVec, smallvec};

use crate::clean::named_page::NamedPage;
use crate::clean::recompress::Recompressed;
use crate::clean::victim::{Body, LEAST_SKIPPED_BYTES};
use crate::damage::Part;
use crate::engine::Engine;
use crate::engine::open_unit::OpenUnit;
use crate::fault::Outcome;
use crate::log::partial::{Content, RecordContext, page_record_bytes};
use crate::log::segments::node_footprint_bytes;
use crate::map::Nodes;
use crate::space::reserve::Accounts;
use crate::volume::Volume;
use crate::volume::holds::LockHolder;
use crate::walk::{MapWalk, Visit};

/// The number of blocks that are moved while the lock is held. Taking the lock for each block costs
/// as much as moving it, and clients wait as often.
const MOVED_AT_ONCE: usize = 16;

/// The number of chunks that are looked up while the lock is held.
const CHUNKS_LOOKED_AT: usize = 64;

/// The blocks and nodes that a segment's records name.
#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) blocks: Vec<NamedPage>,
    pub(super) nodes: Vec<(NodePtr, u8, Key)>,
}

/// Reads the records of a segment's partial segments. Partial segments of an earlier generation
/// that follow are read too. That does no harm, because the map does not name their blocks at
/// these addresses.
pub(super) fn summarize(volume: &Volume, segment: SegmentNo, body: &mut Body) -> Result<Summary> {
    let uuid = volume.uuid();
    let mut summary = Summary::default();
    let mut offset = 0;
    while body.bytes().len() - offset >= PAGE_SIZE {
        body.read(volume, offset..offset + PAGE_SIZE)?;
        let rest = &body.bytes()[offset..];
        let Ok((header, _)) = PartialHeader::decode(rest) else { break };
        let len_bytes = header.len_bytes as usize;
        let end = if len_bytes < LEAST_SKIPPED_BYTES {
            body.bytes().len()
        } else {
            offset
                + (header.records_offset_bytes as usize)
                    .saturating_add(header.records_len_bytes as usize)
        };
        body.read(volume, offset..end)?;
        let rest = &body.bytes()[offset..];
        let partial = rest.get(..len_bytes);
        let Some(records) = partial.and_then(|partial| header.records_of(partial)) else {
            break;
        };
        let is_here = header.uuid == uuid
            && header.segment == segment
            && header.offset_bytes as usize == offset
            && PartialHeader::verify(rest, records);
        if !is_here {
            break;
        }
        let mut version = (0, header.epoch);
        for record in Records::new(records).map_while(std::result::Result::ok) {
            summary.add(&record, &mut version);
        }
        offset += len_bytes;
    }
    // The main log also names blocks in segments of other streams, which are cleaned with those
    // segments.
    let layout = volume.layout();
    summary.blocks.retain(|block| layout.segment_of(block.page.addr) == segment);
    Ok(summary)
}

/// Reads these blocks of a segment, unless they were read already.
pub(super) fn read_blocks(volume: &Volume, blocks: &[NamedPage], body: &mut Body) -> Result<()> {
    let base = body.base();
    let place = |block: &NamedPage| {
        let start = (block.page.addr.bytes() - base.bytes()) as usize;
        start..start + usize::from(block.page.len_bytes)
    };
    body.read_all(volume, blocks.iter().map(place))
}

/// Writes those of `blocks` again that the map still names, and adds their bytes to `moved_bytes`.
/// Returns whether all of them matched their checksums in what was read of the segment. The lock is
/// held for a few chunks at a time.
pub(super) fn move_blocks(
    volume: &Volume,
    accounts: &Accounts,
    blocks: &[NamedPage],
    body: &Body,
    moved_bytes: &AtomicU64,
) -> Result<bool> {
    let mut unsound = Vec::new();
    let mut sound: Vec<(NamedPage, Content<'_>)> = Vec::with_capacity(blocks.len());
    for block in blocks {
        if let Some((last, content)) = sound.last()
            && last.page.shares_frame_with(&block.page)
        {
            sound.push((*block, content.of_other(&block.page)));
            continue;
        }
        let start = (block.page.addr.bytes() - body.base().bytes()) as usize;
        let stored = body.bytes().get(start..start + usize::from(block.page.len_bytes));
        match stored.filter(|stored| checksum(stored) == block.page.crc32c) {
            Some(stored) => sound.push((*block, Content::stored(stored, &block.page))),
            None => unsound.push(*block),
        }
    }
    let cold = volume.compressors().cold();
    let recompressed = cold.and_then(|how| Recompressed::of(volume, accounts, how, &sound, true));
    if let Some(recompressed) = recompressed.as_ref().filter(|it| it.mark(volume).is_ok()) {
        sound = recompressed.in_place_of(&sound);
    }
    let mut rest = &sound[..];
    while !rest.is_empty() {
        volume.change(LockHolder::Cleaning, |engine, nodes| {
            let mut left = MOVED_AT_ONCE;
            // Each chunk is a unit: those that were moved stay so if the next one misses a node.
            while left > 0
                && let Some(chunk) = rest.chunk_by(|(a, _), (b, _)| a.is_in_chunk_of(b)).next()
            {
                if !accounts.one_more_move_fits(engine) {
                    let (needed_bytes, available_bytes) = (PAGE_SIZE as u64, 0);
                    return Err(Error::NoSpace { needed_bytes, available_bytes }.into());
                }
                engine.keep_segments(accounts.kept_from_survivors(engine).into());
                let bytes = engine.relocate(chunk, None, nodes)?;
                moved_bytes.fetch_add(bytes, Ordering::Relaxed);
                rest = &rest[chunk.len()..];
                left = left.saturating_sub(chunk.len());
            }
            Ok(())
        })?;
    }
    if unsound.is_empty() {
        return Ok(true);
    }
    // A damaged block that no map entry names is no loss.
    for block in filter_live(volume, unsound)?.blocks {
        note_damage(volume, &block);
    }
    Ok(false)
}

/// Logs damage: a block cannot be read, or its content does not match its checksum.
pub(super) fn note_damage(volume: &Volume, block: &NamedPage) {
    let NamedPage { list, page_index, page, .. } = block;
    let error = Error::Corrupted(format!(
        "page {page_index} of list {list}, {} bytes at {} of the device: it cannot be read, or its \
         checksum is wrong",
        page.len_bytes, page.addr
    ));
    volume.damage().note(page.addr, Part::Page(Lid(*list), *page_index), &error);
}

/// Those of the blocks that a segment's records name which the map names too.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Ordered by list and page, so that neighbours in a file become neighbours in the log.
    pub(super) blocks: Vec<NamedPage>,
    /// What the leaves of the map take that moving all of them makes dirty.
    pub(super) leaf_bytes: u64,
}

/// Returns those of `blocks` that the map names.
pub(super) fn filter_live(volume: &Volume, mut blocks: Vec<NamedPage>) -> Result<Live> {
    blocks.sort_by_key(|block| (block.key(), block.page_index));
    let mut live = Live::default();
    let (mut visited, mut last_leaf) = (0, None);
    volume.walk(&mut visited, |engine, visited, nodes| {
        for _ in 0..CHUNKS_LOOKED_AT {
            let mut chunks = blocks[*visited..].chunk_by(NamedPage::is_in_chunk_of);
            let Some(chunk) = chunks.next() else { return Ok(ControlFlow::Break(())) };
            let key = chunk[0].key();
            if let Some(found) = engine.state().chunk_at(&key, nodes)? {
                let leaf = engine.state().map().node_place(0, &key, nodes)?;
                let count_before = live.blocks.len();
                live.blocks.extend(chunk.iter().filter(|block| {
                    let slot = (block.page_index % CHUNK_PAGES) as u32;
                    found.get(slot) == Some(block.page)
                }));
                if live.blocks.len() > count_before && leaf != last_leaf {
                    live.leaf_bytes += leaf.map_or(0, |leaf| node_footprint_bytes(&leaf).into());
                    last_leaf = leaf;
                }
            }
            *visited += chunk.len();
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(live)
}

/// Marks those of the nodes dirty that the map still has at these places, as long as a checkpoint
/// finds room for them. Returns how many of the places it has looked at.
pub(super) fn move_nodes(
    volume: &Volume,
    accounts: &Accounts,
    found: &[(NodePtr, u8, Key)],
) -> Result<usize> {
    for (at, (place, level, first_key)) in found.iter().enumerate() {
        let fits = volume.change(LockHolder::Cleaning, |engine, nodes| {
            if !accounts.one_more_move_fits(engine) {
                return Ok(false);
            }
            engine.state_mut().rewrite_node(place, *level, first_key, nodes)?;
            Ok(true)
        })?;
        if !fits {
            return Ok(at);
        }
    }
    Ok(found.len())
}

/// A search of the whole map for live blocks and nodes of a segment that its records do not name.
#[derive(Debug)]
pub(super) struct MapSearch {
    segment: SegmentNo,
    walk: MapWalk,
    found: Summary,
}

impl MapSearch {
    pub(crate) fn new(segment: SegmentNo) -> Self {
        Self { segment, walk: MapWalk::new(), found: Summary::default() }
    }

    /// Performs one bounded step. Returns what was found when the search has reached the end of the
    /// map.
    pub(crate) fn step(&mut self, volume: &Volume) -> Result<Option<Summary>> {
        let mut here = SegmentVisitor {
            layout: volume.layout(),
            segment: self.segment,
            found: &mut self.found,
        };
        let has_more = volume.walk_step(&mut self.walk, &mut here)?;
        Ok((!has_more).then(|| std::mem::take(&mut self.found)))
    }
}

/// The visitor of the walk: it collects what lies in a segment.
struct SegmentVisitor<'s> {
    layout: Layout,
    segment: SegmentNo,
    found: &'s mut Summary,
}

impl SegmentVisitor<'_> {
    fn is_here(&self, addr: Addr) -> bool {
        self.layout.segment_of(addr) == self.segment
    }
}

impl Visit for SegmentVisitor<'_> {
    fn entry(&mut self, key: &Key, value: &Value) {
        let Value::Chunk(chunk) = value else { return };
        for (slot, page) in chunk.iter() {
            if page.len_bytes > 0 && self.is_here(page.addr) {
                let page_index = key.index.saturating_mul(CHUNK_PAGES) | u64::from(slot);
                let version = (key.branch, key.epoch);
                self.found.blocks.push(NamedPage { list: key.list, page_index, version, page });
            }
        }
    }

    fn node(&mut self, place: &NodePtr, level: u8, key: &Key) {
        if self.is_here(place.addr) && !self.found.nodes.iter().any(|(known, ..)| known == place) {
            self.found.nodes.push((*place, level, *key));
        }
    }
}

impl Summary {
    /// Adds what a record names. It belongs to `version` unless the record changes `version`.
    fn add(&mut self, record: &Record<'_>, version: &mut (u32, u64)) {
        match *record {
            Record::Version { branch, epoch, .. } => *version = (branch, epoch),
            Record::WriteRun { list, first_page, addr, crcs } => {
                self.blocks.extend((0_u64..).zip(crcs).map(|(index, crc)| NamedPage {
                    list,
                    page_index: first_page.saturating_add(index),
                    version: *version,
                    page: PageRef {
                        addr: addr.plus_bytes(index * PAGE_SIZE as u64),
                        crc32c: crc.get(),
                        len_bytes: PAGE_SIZE as u16,
                        ..PageRef::ZERO
                    },
                }));
            }
            Record::WriteBlock { list, page, block } => {
                self.blocks.push(NamedPage {
                    list,
                    page_index: page,
                    version: *version,
                    page: block,
                });
            }
            Record::Node { place, level, first_key } => self.nodes.push((place, level, first_key)),
            _ => {}
        }
    }
}

impl Engine {
    /// Writes those blocks of one chunk again, with these contents, that the map still names at
    /// their old places. They go to the stream of `class`; without a class, the policy chooses it
    /// from the segment that each block leaves. Returns the number of bytes that the blocks take.
    ///
    /// # Errors
    /// The reason why not all blocks can be moved, or not now. Some of them may have been moved by
    /// then.
    ///
    /// # Panics
    /// When `blocks` is empty.
    pub(super) fn relocate(
        &mut self,
        blocks: &[(NamedPage, Content<'_>)],
        class: Option<Class>,
        nodes: &dyn Nodes,
    ) -> Outcome<u64> {
        let mut moved_bytes = 0;
        let mut rest = blocks;
        while !rest.is_empty() {
            let (count, bytes) = self.relocate_some(rest, class, nodes)?;
            moved_bytes += bytes;
            rest = &rest[count..];
        }
        Ok(moved_bytes)
    }

    /// Relocates the first of `blocks` as one unit, as many as fit into one partial segment.
    /// Returns their number and how many bytes were moved.
    fn relocate_some(
        &mut self,
        blocks: &[(NamedPage, Content<'_>)],
        class: Option<Class>,
        nodes: &dyn Nodes,
    ) -> Outcome<(usize, u64)> {
        let key = blocks[0].0.key();
        let (pages, short_bytes) = blocks[0].1.room();
        let context = RecordContext::of_moved(&key);
        let page_count = if blocks[0].1.is_in_frame() { CHUNK_PAGES as usize } else { 1 };
        let unit = self.begin_unit(context, pages, short_bytes, page_record_bytes(page_count))?;
        let moved = self.transact(nodes, |engine| {
            let Some(chunk) = engine.state().chunk_at(&key, nodes)? else {
                return Ok((blocks.len(), 0));
            };
            let mut placed: SmallVec<[(u64, PageRef); 4]> = SmallVec::new();
            let (mut count, mut moved_bytes) = (0, 0);
            for (block, content) in blocks {
                let is_placed = content.is_in_frame()
                    && placed.iter().any(|(page_index, _)| *page_index == block.page_index);
                if !is_placed && is_named(&chunk, block) {
                    let together = moved_together(&chunk, &blocks[count..]);
                    let (pages, short_bytes) = content.room();
                    let record_bytes = page_record_bytes(placed.len() + together.len());
                    if !engine.partial().fits(pages, short_bytes, record_bytes) {
                        break;
                    }
                    let class = class.unwrap_or_else(|| engine.survivor_class(block.page.addr));
                    let moved = engine.place_again(&unit, key.list, &together, class);
                    let pages = together.iter();
                    placed.extend(pages.map(|(page_index, of)| (*page_index, of.page_in(&moved))));
                    moved_bytes += u64::from(moved.footprint_bytes());
                }
                count += 1;
            }
            let moved: SmallVec<[(u32, PageRef); 4]> = placed
                .iter()
                .map(|(page_index, block)| ((page_index % CHUNK_PAGES) as u32, *block))
                .collect();
            if !moved.is_empty() {
                engine.state_mut().move_blocks_of(&key, &moved, nodes)?;
            }
            for (page_index, block) in &placed {
                engine.record_page(&unit, key.list, *page_index, block);
            }
            Ok((count, moved_bytes))
        })?;
        self.end_unit(unit);
        Ok(moved)
    }

    /// Places the stored content of a page once more, or that of the pages of a frame.
    fn place_again(
        &mut self,
        unit: &OpenUnit,
        list: u64,
        pages: &[(u64, Content<'_>)],
        class: Class,
    ) -> PageRef {
        let class = self.class_with_room(class);
        let apart =
            if class == Class::MAIN { None } else { self.place_apart(unit, class, list, pages) };
        apart.unwrap_or_else(|| self.partial().place(&pages[0].1))
    }
}

/// Whether the entry names a block at its old place.
fn is_named(chunk: &Chunk, block: &NamedPage) -> bool {
    chunk.get((block.page_index % CHUNK_PAGES) as u32) == Some(block.page)
}

/// The pages for which the content of the first of `blocks` is stored: of a new frame those that
/// are among `blocks`; of one that stays as it is all that the entry has, whoever asked for them.
fn moved_together<'a>(
    chunk: &Chunk,
    blocks: &[(NamedPage, Content<'a>)],
) -> SmallVec<[(u64, Content<'a>); 1]> {
    let (block, content) = &blocks[0];
    if !content.is_in_frame() {
        return smallvec![(block.page_index, *content)];
    }
    if content.is_of(&block.page) {
        let first = block.page_index - block.page_index % CHUNK_PAGES;
        let shared = chunk.iter().filter(|(_, page)| page.shares_frame_with(&block.page));
        return shared
            .map(|(slot, page)| (first + u64::from(slot), content.of_other(&page)))
            .collect();
    }
    let is_in_it = |(other, of): &&(NamedPage, Content<'a>)| {
        of.shares_frame_with(content) && is_named(chunk, other)
    };
    blocks.iter().filter(is_in_it).map(|(other, of)| (other.page_index, *of)).collect()
}
