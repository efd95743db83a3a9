//! The blocks of a segment: as its own summaries state, or, page by page, as the map states.

use std::ops::ControlFlow;

use dendro_base::units::PAGE_SIZE;
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::record::Records;
use dendro_format::{Addr, Key, PartialHeader, Record, SegmentNo, Space, Value};

use super::access::ExternalAccess;
use super::names::{Block, BlockName, MAX_BLOCKS_PER_CALL, QuestionError};
use crate::log::segments::SegmentState;
use crate::state::item::ItemKey;

/// The number of map entries that are looked at while the lock is held once.
const MAP_STEP_LEN: usize = 1024;
/// The number of map entries that one call looks at (external 3).
const MAP_CALL_LEN: usize = 16 * MAP_STEP_LEN;

type Result<T> = std::result::Result<T, QuestionError>;

/// Blocks of a segment, and where to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks<C> {
    /// The blocks, live or dead.
    pub blocks: Vec<Block>,
    /// Where the next call continues; `None` when there are no more.
    pub next: Option<C>,
}

/// A place in a segment's summaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummaryCursor {
    /// The start of the partial segment, in bytes from the start of the segment.
    pub offset_bytes: u32,
    /// How many of its blocks were reported already.
    pub skip: u32,
}

/// A place in the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCursor {
    /// The list.
    pub list: u64,
    /// The number of the chunk in the list.
    pub chunk: u64,
}

/// A partial segment's length, and the blocks that its records name.
struct PartialSummary {
    len_bytes: u32,
    blocks: Vec<Block>,
}

impl ExternalAccess {
    /// See [`LogDisk::segment_blocks`](crate::LogDisk::segment_blocks).
    pub(crate) fn segment_blocks(
        &self,
        number: u32,
        from: SummaryCursor,
        max: usize,
    ) -> Result<Blocks<SummaryCursor>> {
        let segment = self.filled_segment(number)?;
        self.write_out(segment)?;
        let base = Addr::from_bytes(self.volume.layout().segment_offset(segment));
        let _pin = self.volume.read().state().segments().pin(base);
        let max = max.min(MAX_BLOCKS_PER_CALL);
        let mut blocks = Vec::new();
        let mut at = from;
        while let Some(partial) = self.read_partial(segment, at.offset_bytes)? {
            let rest = partial.blocks.get(at.skip as usize..).unwrap_or_default();
            let taken = rest.len().min(max - blocks.len());
            blocks.extend_from_slice(&rest[..taken]);
            if taken < rest.len() {
                at.skip += taken as u32;
                return Ok(Blocks { blocks, next: Some(at) });
            }
            at = SummaryCursor { offset_bytes: at.offset_bytes + partial.len_bytes, skip: 0 };
        }
        Ok(Blocks { blocks, next: None })
    }

    /// See [`LogDisk::mapped_blocks`](crate::LogDisk::mapped_blocks).
    pub(crate) fn mapped_blocks(&self, number: u32, from: MapCursor) -> Result<Blocks<MapCursor>> {
        let segment = self.filled_segment(number)?;
        let mut blocks = Vec::new();
        let mut at = from;
        for _ in 0..MAP_CALL_LEN / MAP_STEP_LEN {
            match self.visit_slice(segment, at, &mut blocks)? {
                Some(next) if blocks.len() < MAX_BLOCKS_PER_CALL => at = next,
                next => return Ok(Blocks { blocks, next }),
            }
        }
        Ok(Blocks { blocks, next: Some(at) })
    }

    /// Returns the segment with this number if its blocks can be listed: it has been filled, and is
    /// not clean.
    fn filled_segment(&self, number: u32) -> Result<SegmentNo> {
        let segment = SegmentNo(number);
        if !self.volume.layout().is_log_segment(segment) {
            let last = self.volume.layout().segment_count() - 1;
            return Err(QuestionError::NoSuchSegment { number, last });
        }
        match self.volume.read().state().segments().state(segment) {
            SegmentState::Dirty => Ok(segment),
            SegmentState::Open => Err(QuestionError::Open(number)),
            SegmentState::Clean | SegmentState::Retired => Err(QuestionError::Clean(number)),
            SegmentState::Mirror => Err(QuestionError::Mirror(number)),
        }
    }

    /// Looks at some entries of the map, and returns where to continue. If the blocks of an entry
    /// might not fit into this call's answer, the entry is left to the next call.
    fn visit_slice(
        &self,
        segment: SegmentNo,
        from: MapCursor,
        blocks: &mut Vec<Block>,
    ) -> Result<Option<MapCursor>> {
        let start = ItemKey::chunk(from.list, from.chunk).key(0, 0);
        let end = Key { list: u64::MAX, ..Key::MIN };
        let len_before = blocks.len();
        let next = self.volume.look(|engine, nodes| {
            blocks.truncate(len_before);
            let (mut next, mut seen, mut last) = (None, 0, None);
            engine.state().map().visit(&start, &end, nodes, &mut |key, value| {
                seen += 1;
                let is_full = blocks.len() + CHUNK_PAGES as usize > MAX_BLOCKS_PER_CALL;
                // The entries of one item stay together, because a cursor does not distinguish its
                // versions.
                let is_other = last.replace(ItemKey::of(key)) != Some(ItemKey::of(key));
                if is_other && (seen > MAP_STEP_LEN || is_full) {
                    let chunk = if key.space == Space::Chunks { key.index } else { 0 };
                    next = Some(MapCursor { list: key.list, chunk });
                    return ControlFlow::Break(());
                }
                if let Value::Chunk(chunk) = value {
                    let here = chunk.iter().filter(|(_, page)| {
                        page.len_bytes > 0 && self.volume.layout().segment_of(page.addr) == segment
                    });
                    blocks.extend(here.map(|(slot, page)| {
                        let page_index = key.index * CHUNK_PAGES + u64::from(slot);
                        let Key { list, branch, epoch, .. } = *key;
                        let name = BlockName::Page { list, page_index, branch, epoch };
                        Block { name, addr: page.addr }
                    }));
                }
                ControlFlow::Continue(())
            })?;
            Ok(next)
        })?;
        Ok(next)
    }

    /// Writes what is queued of a segment that has been filled, so that all of it is on the device.
    fn write_out(&self, segment: SegmentNo) -> Result<()> {
        let is_here = self.volume.read().unwritten().any(|closed| closed.segment() == segment);
        if is_here {
            self.volume.write_queued()?;
        }
        Ok(())
    }

    /// Reads the partial segment at `offset_bytes` of a segment, if there is one.
    fn read_partial(
        &self,
        segment: SegmentNo,
        offset_bytes: u32,
    ) -> Result<Option<PartialSummary>> {
        let size = self.volume.layout().segment_size_bytes();
        let is_place = u64::from(offset_bytes) + PAGE_SIZE as u64 <= size
            && (offset_bytes as usize).is_multiple_of(PAGE_SIZE);
        if !is_place {
            return Ok(None);
        }
        let base = self.volume.layout().segment_offset(segment) + u64::from(offset_bytes);
        let mut start = [0; PAGE_SIZE];
        self.volume.read_device(Addr::from_bytes(base), &mut start)?;
        let Ok((header, _)) = PartialHeader::decode(&start) else { return Ok(None) };
        let records_end =
            u64::from(header.records_offset_bytes) + u64::from(header.records_len_bytes);
        let is_here = header.uuid == self.volume.uuid()
            && header.segment == segment
            && header.offset_bytes == offset_bytes
            && u64::from(offset_bytes) + u64::from(header.len_bytes) <= size
            && records_end <= u64::from(header.len_bytes)
            && header.len_bytes as usize >= PAGE_SIZE;
        if !is_here {
            return Ok(None);
        }
        let records = match header.records_of(&start) {
            Some(records) => records.to_vec(),
            None => self.read_records_of(base, &header)?,
        };
        if !PartialHeader::verify(&start, &records) {
            return Ok(None);
        }
        let mut blocks = Vec::new();
        let mut version = (0, header.epoch);
        for record in Records::new(&records).map_while(std::result::Result::ok) {
            push_blocks(&record, &mut version, &mut blocks);
        }
        // The main log also names blocks in segments of other streams, which are reported with
        // those segments.
        blocks.retain(|block| self.volume.layout().segment_of(block.addr) == segment);
        Ok(Some(PartialSummary { len_bytes: header.len_bytes, blocks }))
    }

    fn read_records_of(&self, base: u64, header: &PartialHeader) -> Result<Vec<u8>> {
        // The read starts at a page boundary, because records may begin at any byte.
        let offset = header.records_offset_bytes as usize;
        let before = offset % PAGE_SIZE;
        let mut bytes = vec![0; before + header.records_len_bytes as usize];
        self.volume.read_device(Addr::from_bytes(base + (offset - before) as u64), &mut bytes)?;
        bytes.drain(..before);
        Ok(bytes)
    }
}

/// Adds what a record names. It belongs to `version` unless the record changes `version`.
fn push_blocks(record: &Record<'_>, version: &mut (u32, u64), blocks: &mut Vec<Block>) {
    let (branch, epoch) = *version;
    match *record {
        Record::Version { branch, epoch, .. } => *version = (branch, epoch),
        Record::WriteRun { list, first_page, addr, crcs } => {
            blocks.extend((0..crcs.len() as u64).map(|index| {
                let page_index = first_page.saturating_add(index);
                let addr = addr.plus_bytes(index * PAGE_SIZE as u64);
                Block { name: BlockName::Page { list, page_index, branch, epoch }, addr }
            }));
        }
        Record::WriteBlock { list, page, block } => {
            let name = BlockName::Page { list, page_index: page, branch, epoch };
            blocks.push(Block { name, addr: block.addr });
        }
        Record::Node { place, level, first_key } => {
            blocks.push(Block { name: BlockName::Node { level, first_key }, addr: place.addr });
        }
        _ => {}
    }
}
