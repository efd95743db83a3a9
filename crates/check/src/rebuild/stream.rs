//! Writing a stream of partial segments into free segments.

use std::collections::{BTreeMap, VecDeque};

use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up_usize};
use dendro_device::AlignedBuf;
use dendro_format::partial::HEADER_LEN_BYTES;
use dendro_format::record::MAX_FIXED_LEN_BYTES;
use dendro_format::{Addr, Head, PartialHeader, Record, SegmentNo};

use crate::error::{Error, Result};
use crate::read::Volume;

/// A partial segment has at most so many bytes.
const PARTIAL_LEN_BYTES: usize = 1 << 20;

/// The free segments that are left.
pub(super) type FreeSegments = VecDeque<SegmentNo>;

/// A stream under construction.
pub(super) struct Stream<'v> {
    volume: &'v Volume<'v>,
    /// What all headers of it have in common.
    header: PartialHeader,
    segment: Option<SegmentNo>,
    offset_bytes: u32,
    bytes: Vec<u8>,
    records: Vec<u8>,
    /// Whether segments that it fills are mirrored, if another one is free.
    is_mirrored: bool,
    /// The mirrors of its segments.
    pub(super) mirrors: BTreeMap<SegmentNo, SegmentNo>,
    /// Bytes of blocks in each segment.
    pub(super) added: BTreeMap<SegmentNo, u32>,
    pub(super) written_bytes: u64,
}

impl<'v> Stream<'v> {
    /// A stream of which the headers state the unit, the epoch and the time of `header`.
    pub(super) fn new(volume: &'v Volume<'v>, header: PartialHeader) -> Self {
        Self {
            volume,
            header,
            segment: None,
            offset_bytes: 0,
            bytes: vec![0; HEADER_LEN_BYTES],
            records: Vec::new(),
            is_mirrored: false,
            mirrors: BTreeMap::new(),
            added: BTreeMap::new(),
            written_bytes: 0,
        }
    }

    /// The same, of which each segment gets a mirror as long as others are free.
    pub(super) fn mirrored(self, is_mirrored: bool) -> Self {
        Self { is_mirrored, ..self }
    }

    /// Places a block, and returns where it lies. The caller then adds the records about it.
    pub(super) fn place(&mut self, block: &[u8], free: &mut FreeSegments) -> Result<Addr> {
        self.make_room(block.len(), free)?;
        let segment = self.segment.expect("there is room in one");
        let addr = self.next_addr();
        self.bytes.extend_from_slice(block);
        self.bytes.resize(align_up_usize(self.bytes.len(), GRAIN_SIZE), 0);
        *self.added.entry(segment).or_default() += align_up_usize(block.len(), GRAIN_SIZE) as u32;
        Ok(addr)
    }

    /// Adds a record about the block that was placed last.
    pub(super) fn push(&mut self, record: &Record<'_>) {
        record.encode(&mut self.records);
    }

    /// Makes room for a block and its records: begins another segment if need be.
    pub(super) fn make_room(&mut self, len_bytes: usize, free: &mut FreeSegments) -> Result<()> {
        if self.segment.is_some() && !self.fits(len_bytes) {
            self.close()?;
            if !self.fits(len_bytes) {
                self.segment = None;
            }
        }
        if self.segment.is_none() {
            let segment = free.pop_front().ok_or(Error::NoFreeSegment)?;
            if self.is_mirrored {
                let count = self.volume.layout().segment_count();
                self.mirrors.extend(take_far(segment, count, free).map(|mirror| (segment, mirror)));
            }
            self.segment = Some(segment);
            self.offset_bytes = 0;
        }
        Ok(())
    }

    fn fits(&self, len_bytes: usize) -> bool {
        let room = self.volume.layout().segment_size_bytes() as usize - self.offset_bytes as usize;
        let block = align_up_usize(self.bytes.len() + len_bytes, GRAIN_SIZE);
        let len = align_up_usize(block + self.records.len() + 2 * MAX_FIXED_LEN_BYTES, PAGE_SIZE);
        let most = if self.records.is_empty() { room } else { PARTIAL_LEN_BYTES };
        len <= room.min(most)
    }

    /// Where the next block will lie.
    pub(super) fn next_addr(&self) -> Addr {
        let segment = self.segment.expect("there is room in one");
        let start = self.volume.layout().segment_offset(segment) + u64::from(self.offset_bytes);
        Addr::from_bytes(start + self.bytes.len() as u64)
    }

    /// The segment that is being filled, and where the next partial segment will start in it if
    /// `len_bytes` of records follow.
    pub(super) fn end(&self, records_len_bytes: usize) -> (SegmentNo, u32) {
        let len =
            align_up_usize(self.bytes.len() + self.records.len() + records_len_bytes, PAGE_SIZE);
        (self.segment.expect("there is room in one"), self.offset_bytes + len as u32)
    }

    /// Writes the open partial segment, if there is anything in it.
    pub(super) fn close(&mut self) -> Result<()> {
        let Some(segment) = self.segment.filter(|_| !self.records.is_empty()) else {
            return Ok(());
        };
        let records_at = self.bytes.len();
        let len = align_up_usize(records_at + self.records.len(), PAGE_SIZE);
        let mut whole = AlignedBuf::zeroed(len);
        whole[..records_at].copy_from_slice(&self.bytes);
        whole[records_at..records_at + self.records.len()].copy_from_slice(&self.records);
        let header = PartialHeader {
            len_bytes: len as u32,
            segment,
            offset_bytes: self.offset_bytes,
            records_offset_bytes: records_at as u32,
            records_len_bytes: self.records.len() as u32,
            complete_len_bytes: self.records.len() as u32,
            ..self.header
        };
        self.header.prev_crc32c = header.encode_into(&mut whole);
        self.header.seq += 1;
        let start = self.volume.layout().segment_offset(segment) + u64::from(self.offset_bytes);
        self.volume.device().write_at(start, &whole)?;
        if let Some(mirror) = self.mirrors.get(&segment) {
            let start = self.volume.layout().segment_offset(*mirror);
            let written =
                self.volume.device().write_at(start + u64::from(self.offset_bytes), &whole);
            // One copy is enough.
            if written.is_err() {
                self.mirrors.remove(&segment);
            }
        }
        self.written_bytes += len as u64;
        self.offset_bytes += len as u32;
        self.bytes.truncate(HEADER_LEN_BYTES);
        self.records.clear();
        Ok(())
    }

    /// Which stream it is.
    pub(super) const fn head(&self) -> (Head, u8) {
        (self.header.head, self.header.class)
    }
}

/// Takes the free segment that is next to a half of all segments away.
fn take_far(from: SegmentNo, count: u32, free: &mut FreeSegments) -> Option<SegmentNo> {
    let missing = |segment: &SegmentNo| segment.0.abs_diff(from.0).abs_diff(count / 2);
    let (at, _) = free.iter().enumerate().min_by_key(|(_, segment)| missing(segment))?;
    free.remove(at)
}
