//! One sequential pass over all segments: what is sound in them, whether or not anything names it.
//!

use std::collections::HashMap;
use std::sync::Arc;

use dendro_base::Timestamp;
use dendro_base::units::PAGE_SIZE;
use dendro_device::AlignedBuf;
use dendro_format::partial::HEADER_LEN_BYTES;
use dendro_format::{
    Addr, Checkpoint, Head, Key, NodePtr, PartialHeader, Record, SegmentNo, checksum, node,
};

use super::memory::Memory;
use super::named::{NamedLists, NamedPages};
use crate::error::Result;
use crate::read::{Break, Kept, Partial, Volume, first_and_last, read_partial_with};

/// About the memory for a node of the map: here, as a leaf of the old map, and as a claim.
const NODE_BYTES: u64 = 300;
/// The same for a partial segment of the main log, here and in the history.
const LOG_PLACE_BYTES: u64 = 200;
/// The same for a partial segment of a payload stream.
const COPY_BYTES: u64 = 2 * size_of::<CopyPlace>() as u64;

/// A sound node of the map.
#[derive(Clone, Copy, Debug)]
pub(super) struct SweptNode {
    pub(super) place: NodePtr,
    pub(super) level: u8,
    /// The checkpoint that wrote it.
    pub(super) checkpoint_seq: u64,
    /// The main log's next partial segment at the time.
    pub(super) log_seq: u64,
    pub(super) first: Key,
    pub(super) last: Key,
}

/// A sound checkpoint.
#[derive(Clone, Debug)]
pub(super) struct SweptCheckpoint {
    pub(super) addr: Addr,
    pub(super) len_bytes: u32,
    pub(super) crc32c: u32,
    pub(super) checkpoint: Checkpoint,
}

/// A sound partial segment of the main log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogPlace {
    pub(super) seq: u64,
    pub(super) segment: SegmentNo,
    pub(super) offset_bytes: u32,
    pub(super) crc32c: u32,
    pub(super) prev_crc32c: u32,
    /// The log was durable up to this number when it was written.
    pub(super) durable_seq: u64,
    /// The last unit that was complete.
    pub(super) commit_seq: u64,
    /// When it was begun.
    pub(super) time: Timestamp,
    /// Whether a unit ends in it.
    pub(super) ends_unit: bool,
    pub(super) lists: NamedLists,
}

/// A sound partial segment of a payload stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyPlace {
    /// The last unit that was complete when it was closed.
    pub(super) commit_seq: u64,
    /// When the partial segment of the main log was begun that names its blocks.
    pub(super) time: Timestamp,
    /// Its number in its stream.
    pub(super) seq: u64,
    pub(super) segment: SegmentNo,
    pub(super) offset_bytes: u32,
    pub(super) pages: NamedPages,
}

/// What the sweep found.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    pub(super) nodes: Vec<SweptNode>,
    pub(super) checkpoints: Vec<SweptCheckpoint>,
    pub(super) log: Vec<LogPlace>,
    /// Payload streams state again what their blocks are.
    pub(super) copies: Vec<CopyPlace>,
    /// The segments of the map, and the partial segments of the main log.
    pub(super) kept: Arc<Kept>,
    /// Which stream filled each segment, and the class of its data.
    pub(super) heads: HashMap<SegmentNo, (Head, u8)>,
    /// Segments of the map, each with a segment that is or was its mirror.
    pub(super) mirrors: Vec<(SegmentNo, SegmentNo)>,
    /// The last unit and the highest epoch that any header states.
    pub(super) commit_seq: u64,
    pub(super) epoch: u64,
}

impl Sweep {
    /// Sweeps the volume. `progress` is called with the number of each segment that was read.
    ///
    /// # Errors
    /// [`Error::Memory`] when more was found than fits in memory.
    ///
    /// [`Error::Memory`]: crate::error::Error::Memory
    pub(super) fn run(
        volume: &Volume<'_>,
        memory: Memory,
        progress: &mut dyn FnMut(SegmentNo),
    ) -> Result<Self> {
        let mut sweep = Self { kept: Arc::new(Kept::new(memory.kept_bytes())), ..Self::default() };
        let layout = volume.layout();
        let mut bytes = AlignedBuf::zeroed(layout.segment_size_bytes() as usize);
        // The device may have lost its end.
        let end = volume.device().len_bytes();
        for segment in layout.log_segments().take_while(|of| layout.segment_offset(*of) < end) {
            let is_complete = load(volume, segment, &mut bytes);
            sweep.look_through(volume, segment, false, &bytes);
            let head = sweep.heads.get(&segment).map(|(head, _)| *head);
            if is_complete && head == Some(Head::Map) {
                sweep.kept.keep_segment(segment, &bytes);
            }
            if let Some(of) = mirrored(volume, &bytes).filter(|of| *of != segment) {
                sweep.mirrors.push((of, segment));
                sweep.look_through(volume, of, true, &bytes);
            }
            memory.check(sweep.memory_bytes())?;
            progress(segment);
        }
        Ok(sweep)
    }

    /// About the memory that what was found takes, with what is made of it.
    fn memory_bytes(&self) -> u64 {
        let Self { nodes, log, copies, .. } = self;
        nodes.len() as u64 * NODE_BYTES
            + log.len() as u64 * LOG_PLACE_BYTES
            + copies.len() as u64 * COPY_BYTES
    }

    /// Takes the partial segments of a segment, which its bytes, or those of a mirror, hold. Behind
    /// one that is damaged the next may start at any page.
    fn look_through(
        &mut self,
        volume: &Volume<'_>,
        segment: SegmentNo,
        is_mirror: bool,
        bytes: &[u8],
    ) {
        let mut offset = 0;
        while offset < bytes.len() {
            let found =
                read_partial_with(volume, segment, offset as u32, |from, buf: &mut [u8]| {
                    let from = from as usize;
                    let source = bytes.get(from..from + buf.len()).ok_or(Break::SegmentEnd)?;
                    buf.copy_from_slice(source);
                    Ok(())
                });
            match found {
                Ok(partial) => {
                    // Nothing else is mirrored.
                    if !is_mirror || partial.header.head == Head::Map {
                        self.take(volume, &partial, bytes, is_mirror);
                    }
                    offset += partial.header.len_bytes as usize;
                    if partial.header.head == Head::Main {
                        self.kept.keep_partial(&Arc::new(partial));
                    }
                }
                Err(_) => offset += PAGE_SIZE,
            }
        }
    }

    fn take(&mut self, volume: &Volume<'_>, partial: &Partial, bytes: &[u8], is_mirror: bool) {
        let header = &partial.header;
        if !is_mirror {
            self.heads.entry(header.segment).or_insert((header.head, header.class));
        }
        self.commit_seq = self.commit_seq.max(header.commit_seq);
        self.epoch = self.epoch.max(header.epoch);
        match header.head {
            Head::Main => self.log.push(LogPlace {
                seq: header.seq,
                segment: header.segment,
                offset_bytes: header.offset_bytes,
                crc32c: partial.crc32c,
                prev_crc32c: header.prev_crc32c,
                durable_seq: header.durable_seq,
                commit_seq: header.commit_seq,
                time: header.time,
                ends_unit: header.complete_len_bytes > 0,
                lists: NamedLists::of(partial),
            }),
            Head::Map => {
                let start = volume.layout().segment_offset(header.segment);
                for record in partial.records().flatten() {
                    self.take_named(volume, record.record, start, bytes);
                }
            }
            Head::Payload => self.copies.push(CopyPlace {
                commit_seq: header.commit_seq,
                time: header.time,
                seq: header.seq,
                segment: header.segment,
                offset_bytes: header.offset_bytes,
                pages: NamedPages::of(partial),
            }),
        }
    }

    /// Takes a node or a checkpoint that lies in the segment which starts at byte `start`.
    fn take_named(&mut self, volume: &Volume<'_>, record: Record<'_>, start: u64, bytes: &[u8]) {
        let slice = |addr: Addr, len_bytes: u32| {
            let from = usize::try_from(addr.bytes().checked_sub(start)?).ok()?;
            bytes.get(from..from.checked_add(len_bytes as usize)?)
        };
        let uuid = &volume.superblock().uuid;
        match record {
            Record::Node { place, .. } => {
                let decoded =
                    slice(place.addr, place.len_bytes).and_then(|it| node::decode(it, uuid).ok());
                let Some((info, entries)) = decoded else { return };
                let (first, last) = first_and_last(&entries);
                // The record may name a node that another write has replaced since.
                let stored = slice(place.addr, 8).map(|it| &it[4..8]);
                if stored == Some(&place.crc32c.to_le_bytes()[..]) {
                    self.nodes.push(SweptNode {
                        place,
                        level: info.level,
                        checkpoint_seq: info.checkpoint_seq,
                        log_seq: info.log_seq,
                        first,
                        last,
                    });
                }
            }
            Record::Checkpoint { addr, len_bytes, crc32c } => {
                let Some(stored) = slice(addr, len_bytes) else { return };
                if checksum(stored) == crc32c
                    && let Ok(checkpoint) = Checkpoint::decode(stored, uuid)
                {
                    self.checkpoints.push(SweptCheckpoint { addr, len_bytes, crc32c, checkpoint });
                }
            }
            _ => {}
        }
    }
}

/// The segment of the map that these bytes of a segment say they are of.
fn mirrored(volume: &Volume<'_>, bytes: &[u8]) -> Option<SegmentNo> {
    let mut headers = bytes.chunks(PAGE_SIZE).filter_map(|page| {
        let header = page.first_chunk::<HEADER_LEN_BYTES>()?;
        let (header, _) = PartialHeader::decode(header).ok()?;
        (header.uuid == volume.superblock().uuid).then_some(header)
    });
    let first = headers.next().filter(|header| header.head == Head::Map)?;
    volume.layout().is_log_segment(first.segment).then_some(first.segment)
}

/// Reads a segment; what cannot be read is zero. Returns whether all of it could be read.
fn load(volume: &Volume<'_>, segment: SegmentNo, bytes: &mut [u8]) -> bool {
    if volume.read_segment(segment, 0, bytes).is_ok() {
        return true;
    }
    for (page, bytes) in bytes.chunks_mut(PAGE_SIZE).enumerate() {
        if volume.read_segment(segment, (page * PAGE_SIZE) as u32, bytes).is_err() {
            bytes.fill(0);
        }
    }
    false
}
