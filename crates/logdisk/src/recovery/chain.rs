//! The log behind a checkpoint, followed partial segment by partial segment.

use std::collections::{BTreeSet, VecDeque};

use dendro_base::Uuid;
use dendro_base::units::PAGE_SIZE;
use dendro_device::{AlignedBuf, Device};
use dendro_disk::{Error, Result};
use dendro_format::record::Records;
use dendro_format::{
    Checkpoint, Head, Layout, PageRef, PartialHeader, Record, SegmentNo, checksum, checksum_append,
};

use crate::partial::MIN_CAPACITY_BYTES;

/// A partial segment of the chain.
pub(super) struct Scanned {
    pub(super) header: PartialHeader,
    pub(super) records: Vec<u8>,
    payload_is_sound: bool,
}

/// The log behind a checkpoint.
pub(super) struct Chain {
    pub(super) partials: Vec<Scanned>,
    /// Segments that other heads filled with what the records name.
    pub(super) payload_segments: BTreeSet<SegmentNo>,
    pub(super) next_seq: u64,
    pub(super) prev_crc32c: u32,
}

impl Chain {
    /// Every segment that the chain touches or names blocks in, and that it starts from: none may
    /// be filled before a new checkpoint is durable, or a crash until then would find a shorter
    /// log.
    pub(super) fn segments(&self, checkpoint: &Checkpoint) -> BTreeSet<SegmentNo> {
        let mut segments = self.payload_segments.clone();
        segments.insert(checkpoint.log.segment);
        segments.extend(self.partials.iter().map(|partial| partial.header.segment));
        segments
    }
}

/// Follows the chain.
pub(super) struct Scan<'a> {
    device: &'a dyn Device,
    uuid: Uuid,
    layout: Layout,
    segment: SegmentNo,
    offset_bytes: u64,
    next_segment: SegmentNo,
    seq: u64,
    prev_crc32c: u32,
    buf: AlignedBuf,
    loaded: Option<SegmentNo>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        device: &'a dyn Device,
        uuid: Uuid,
        layout: Layout,
        checkpoint: &Checkpoint,
    ) -> Self {
        Self {
            device,
            uuid,
            layout,
            segment: checkpoint.log.segment,
            offset_bytes: u64::from(checkpoint.log.offset_bytes),
            next_segment: checkpoint.next_segment,
            seq: checkpoint.log_seq,
            prev_crc32c: checkpoint.log_prev_crc32c,
            buf: AlignedBuf::zeroed(layout.segment_size_bytes() as usize),
            loaded: None,
        }
    }

    pub(super) fn run(mut self, skip_payload_checks: bool) -> Result<Chain> {
        let mut partials: Vec<Scanned> = Vec::new();
        while let Some(partial) = self.next()? {
            partials.push(partial);
        }
        let durable = partials.iter().map(|partial| partial.header.durable_seq).max().unwrap_or(0);
        let mut windows = Windows::new(self.device);
        let mut end = None;
        for (at, partial) in partials.iter().enumerate() {
            if partial.header.seq > durable
                && !skip_payload_checks
                && !(partial.payload_is_sound && self.others_are_sound(partial, &mut windows)?)
            {
                end = Some(at);
                break;
            }
        }
        // The number goes past all that were seen, the dropped ones too.
        let next_seq = self.seq;
        let prev_crc32c = self.prev_crc32c;
        partials.truncate(end.unwrap_or(partials.len()));
        let payload_segments = partials
            .iter()
            .flat_map(|partial| self.others(partial))
            .map(|block| self.layout.segment_of(block.addr))
            .filter(|segment| self.layout.is_log_segment(*segment))
            .collect();
        Ok(Chain { partials, payload_segments, next_seq, prev_crc32c })
    }

    /// The blocks that the records name outside their own partial segment, where other heads put
    /// them.
    fn others<'b>(&self, partial: &'b Scanned) -> impl Iterator<Item = PageRef> + use<'b> {
        let base = self.layout.segment_offset(partial.header.segment)
            + u64::from(partial.header.offset_bytes);
        let own = base..base + u64::from(partial.header.len_bytes);
        named_blocks(&partial.records)
            .flatten()
            .filter(move |block| !own.contains(&block.addr.bytes()))
    }

    /// Whether all those are as the records say. What cannot be read now may be there all the same:
    /// that is an error, and not the end of the log.
    fn others_are_sound(&self, partial: &Scanned, windows: &mut Windows<'_>) -> Result<bool> {
        for block in self.others(partial) {
            let is_sound = self.layout.holds(block.addr, u64::from(block.footprint_bytes()))
                && windows.checksum_of(&block)? == block.crc32c;
            if !is_sound {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn next(&mut self) -> Result<Option<Scanned>> {
        let size = self.layout.segment_size_bytes();
        if size - self.offset_bytes >= MIN_CAPACITY_BYTES as u64
            && let Some(found) = self.look(self.segment, self.offset_bytes)?
        {
            return Ok(Some(found));
        }
        if self.layout.is_log_segment(self.next_segment) {
            return self.look(self.next_segment, 0);
        }
        Ok(None)
    }

    /// The continuation of the chain at this place, if it is there.
    fn look(&mut self, segment: SegmentNo, offset_bytes: u64) -> Result<Option<Scanned>> {
        if self.loaded != Some(segment) {
            self.device
                .read_at(self.layout.segment_offset(segment), &mut self.buf)
                .map_err(|error| Error::Io(format!("rolling the log forward: {error}")))?;
            self.loaded = Some(segment);
        }
        let rest = &self.buf[offset_bytes as usize..];
        let Ok((header, crc32c)) = PartialHeader::decode(rest) else { return Ok(None) };
        let continues = header.head == Head::Main
            && header.uuid == self.uuid
            && header.seq == self.seq
            && header.segment == segment
            && u64::from(header.offset_bytes) == offset_bytes
            && header.prev_crc32c == self.prev_crc32c;
        let Some(partial) = rest.get(..header.len_bytes as usize).filter(|_| continues) else {
            return Ok(None);
        };
        let Some(records) = header.records_of(partial) else { return Ok(None) };
        if !PartialHeader::verify(partial, records) {
            return Ok(None);
        }
        let base = self.layout.segment_offset(segment) + offset_bytes;
        let payload_is_sound = payload_is_sound(records, partial, base);
        let scanned = Scanned { header, records: records.to_vec(), payload_is_sound };
        self.segment = segment;
        self.offset_bytes = offset_bytes + u64::from(header.len_bytes);
        self.next_segment = header.next_segment;
        self.seq += 1;
        self.prev_crc32c = crc32c;
        Ok(Some(scanned))
    }
}

/// Parts of the device, kept while blocks in them are checked: each payload head was filled from
/// front to back, and the records go round the heads.
struct Windows<'a> {
    device: &'a dyn Device,
    loaded: VecDeque<(u64, AlignedBuf)>,
}

impl<'a> Windows<'a> {
    const LEN_BYTES: u64 = 256 << 10;
    /// More than there are heads.
    const MAX_COUNT: usize = 32;

    const fn new(device: &'a dyn Device) -> Self {
        Self { device, loaded: VecDeque::new() }
    }

    /// The checksum of a block, which lies on the device, as it is there.
    fn checksum_of(&mut self, block: &PageRef) -> Result<u32> {
        let mut crc32c = checksum(&[]);
        let (mut at, end) = (block.addr.bytes(), block.addr.bytes() + u64::from(block.len_bytes));
        while at < end {
            let base = at - at % Self::LEN_BYTES;
            let upto = end.min(base + Self::LEN_BYTES);
            let window = self.window(base)?;
            crc32c = checksum_append(crc32c, &window[(at - base) as usize..(upto - base) as usize]);
            at = upto;
        }
        Ok(crc32c)
    }

    fn window(&mut self, base: u64) -> Result<&AlignedBuf> {
        if let Some(at) = self.loaded.iter().position(|(known, _)| *known == base) {
            return Ok(&self.loaded[at].1);
        }
        let oldest =
            if self.loaded.len() >= Self::MAX_COUNT { self.loaded.pop_front() } else { None };
        let mut buf =
            oldest.map_or_else(|| AlignedBuf::zeroed(Self::LEN_BYTES as usize), |(_, buf)| buf);
        let len = Self::LEN_BYTES.min(self.device.len_bytes().saturating_sub(base)) as usize;
        self.device
            .read_at(base, &mut buf[..len])
            .map_err(|error| Error::Io(format!("rolling the log forward: {error}")))?;
        self.loaded.push_back((base, buf));
        Ok(&self.loaded[self.loaded.len() - 1].1)
    }
}

/// The blocks that records name, each with its checksum; an error where a record makes no sense.
fn named_blocks(records: &[u8]) -> impl Iterator<Item = Option<PageRef>> {
    Records::new(records).flat_map(|record| {
        let (run, single) = match record {
            Ok(Record::WriteRun { addr, crcs, .. }) => (Some((addr, crcs)), None),
            Ok(Record::WriteBlock { block, .. }) => (None, Some(Some(block))),
            Ok(_) => (None, None),
            Err(_) => (None, Some(None)),
        };
        let of_run = run.into_iter().flat_map(|(addr, crcs)| {
            (0_u64..).zip(crcs).map(move |(index, crc)| {
                Some(PageRef {
                    addr: addr.plus_bytes(index * PAGE_SIZE as u64),
                    crc32c: crc.get(),
                    len_bytes: PAGE_SIZE as u16,
                    ..PageRef::ZERO
                })
            })
        });
        of_run.chain(single)
    })
}

/// Whether every block that the records name in this partial segment has its checksum; those in
/// other heads' are left to [`Scan::others_are_sound`].
fn payload_is_sound(records: &[u8], partial: &[u8], base: u64) -> bool {
    named_blocks(records).all(|block| {
        let Some(block) = block else { return false };
        let start = block.addr.bytes().checked_sub(base).and_then(|at| usize::try_from(at).ok());
        let Some(start) = start.filter(|&start| start < partial.len()) else { return true };
        let stored = partial.get(start..start + usize::from(block.len_bytes));
        stored.is_some_and(|stored| checksum(stored) == block.crc32c)
    })
}
