//! Reading a batch in the order of the device, together with the headers and records of the partial
//! segments that it lies in.
//!
//! Of payload streams only the blocks are read: a power cut can leave a partial segment there whose
//! blocks are whole and whose header is not, and recovery goes by the main log's records.

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Error, Result};
use dendro_format::partial::HEADER_LEN_BYTES;
use dendro_format::{Addr, Head, PartialHeader, SegmentNo, checksum, checksum_append};

use super::batch::{Batch, Extent, Name};
use super::progress::ScrubProgress;
use super::window::{WINDOW_BYTES, Window};
use crate::damage::Part;
use crate::log::segments::Pin;
use crate::volume::Volume;

/// Up to so many bytes between two extents are read with them.
const MAX_GAP_BYTES: u64 = 16 << 10;
/// As much is read at a header, so that short partial segments do not take a read each.
const HEADER_READ_BYTES: u64 = 32 << 10;

/// A batch that is being read.
#[derive(Debug)]
pub(super) struct Sweep {
    batch: Batch,
    /// The index of the next extent.
    next: usize,
    window: Window,
    /// Whether other copies of what is in the window differ from it.
    copies_differ: bool,
    summaries: Summaries,
    progress: ScrubProgress,
}

/// The next header and records in the segment that is being read.
#[derive(Debug)]
struct Summaries {
    segment: SegmentNo,
    /// Where the next partial segment's header lies on the device, in bytes; `None` if no more are
    /// read.
    header_at_bytes: Option<u64>,
    /// The records of the partial segment before it that are still to be read.
    records: Option<PendingRecords>,
}

#[derive(Clone, Copy, Debug)]
struct PendingRecords {
    /// Where the partial segment's header lies on the device, in bytes.
    header_at_bytes: u64,
    /// The checksum that the header states, and that of what was read so far.
    stated_crc32c: u32,
    crc32c: u32,
    /// The records that are still to be read, on the device, in bytes.
    at_bytes: u64,
    end_bytes: u64,
}

/// What is read next.
enum Item {
    Extent(Extent),
    /// The header at this place, in bytes.
    Header(u64),
    Records(PendingRecords),
}

impl Item {
    /// Where it lies, in bytes, and its length, or that of its next part.
    fn place(&self) -> (u64, usize) {
        match self {
            Self::Extent(extent) => (extent.addr.bytes(), extent.len_bytes as usize),
            Self::Header(at_bytes) => (*at_bytes, PAGE_SIZE),
            Self::Records(PendingRecords { at_bytes, end_bytes, .. }) => {
                let most = (WINDOW_BYTES - PAGE_SIZE) as u64;
                (*at_bytes, (end_bytes - at_bytes).min(most) as usize)
            }
        }
    }
}

impl Sweep {
    /// A sweep over the part of `batch` from this place on, in bytes.
    pub(super) fn new(batch: Batch, from_bytes: u64) -> Self {
        let next = batch.extents.partition_point(|extent| extent.addr.bytes() < from_bytes);
        let summaries = Summaries { segment: SegmentNo(0), header_at_bytes: None, records: None };
        Self {
            batch,
            next,
            window: Window::new(),
            summaries,
            copies_differ: false,
            progress: ScrubProgress::default(),
        }
    }

    /// What the sweep has done.
    pub(super) const fn progress(&self) -> ScrubProgress {
        self.progress
    }

    /// The place up to which the batch was read.
    pub(super) fn read_upto_bytes(&self) -> u64 {
        let at = |extent: &Extent| extent.addr.bytes();
        self.batch.extents.get(self.next).map_or(u64::MAX, at)
    }

    /// Where a read that begins at `at_bytes` and wants at least `end_bytes` should end: behind the
    /// extents that follow closely.
    fn end_of_read(&self, at_bytes: u64, mut end_bytes: u64) -> u64 {
        for extent in &self.batch.extents[self.next..] {
            let is_near = extent.addr.bytes() <= end_bytes + MAX_GAP_BYTES
                && extent.end_bytes() <= at_bytes + (WINDOW_BYTES - PAGE_SIZE) as u64;
            if !is_near {
                break;
            }
            end_bytes = end_bytes.max(extent.end_bytes());
        }
        end_bytes
    }
}

impl Volume {
    /// Continues a sweep until it would read the device a second time. Returns whether there is
    /// more.
    pub(super) fn sweep_step(&self, sweep: &mut Sweep) -> bool {
        let mut has_read = false;
        while let Some(item) = self.next_item(sweep) {
            let (at_bytes, len_bytes) = item.place();
            if !sweep.window.has(at_bytes, len_bytes) {
                if has_read {
                    return true;
                }
                has_read = true;
                self.move_window(sweep, &item, at_bytes, len_bytes as u64);
            }
            match item {
                Item::Extent(extent) => self.check_extent(sweep, &extent),
                Item::Header(at_bytes) => self.check_header(sweep, at_bytes),
                Item::Records(records) => self.check_records(sweep, records, len_bytes),
            }
        }
        false
    }

    /// What comes next on the device: extents, and the headers and records before them.
    fn next_item(&self, sweep: &mut Sweep) -> Option<Item> {
        let extent = sweep.batch.extents.get(sweep.next).copied();
        if let Some(records) = sweep.summaries.records {
            return match extent {
                Some(extent) if extent.addr.bytes() < records.at_bytes => {
                    Some(Item::Extent(extent))
                }
                _ => Some(Item::Records(records)),
            };
        }
        let extent = extent?;
        let segment = self.layout().segment_of(extent.addr);
        if sweep.summaries.segment != segment {
            let head = self.read().state().segments().head(segment);
            let header_at_bytes =
                (head != Head::Payload).then(|| self.layout().segment_offset(segment));
            sweep.summaries = Summaries { segment, header_at_bytes, records: None };
        }
        match sweep.summaries.header_at_bytes {
            Some(at_bytes) if at_bytes < extent.addr.bytes() => Some(Item::Header(at_bytes)),
            _ => Some(Item::Extent(extent)),
        }
    }

    /// Reads at `at_bytes` what is wanted there, and what follows closely. If that cannot be read,
    /// the unreadable part may be what follows.
    fn move_window(&self, sweep: &mut Sweep, item: &Item, at_bytes: u64, len_bytes: u64) {
        let segment = self.layout().segment_of(Addr::from_bytes(at_bytes));
        let segment_end =
            self.layout().segment_offset(segment) + self.layout().segment_size_bytes();
        let least_end = at_bytes + len_bytes;
        let end = match item {
            Item::Header(_) => least_end.max(at_bytes + HEADER_READ_BYTES),
            Item::Extent(_) | Item::Records(_) => least_end,
        };
        let end = sweep.end_of_read(at_bytes, end).min(segment_end);
        if sweep.window.read(self.device(), at_bytes, end).is_err() {
            let _ = sweep.window.read(self.device(), at_bytes, least_end);
        }
        sweep.copies_differ = self.device().copies_differ(at_bytes, end - at_bytes);
    }

    fn check_extent(&self, sweep: &mut Sweep, extent: &Extent) {
        let bytes = sweep.window.get(extent.addr.bytes(), extent.len_bytes as usize);
        let is_sound = bytes.is_some_and(|bytes| self.problem_of(sweep, extent, bytes).is_none());
        sweep.next += 1;
        sweep.progress.checked_count += 1;
        sweep.progress.checked_bytes += u64::from(extent.len_bytes);
        let is_mended = (!is_sound || sweep.copies_differ) && self.mend_copies(sweep, extent);
        if !is_sound && !is_mended && self.note_if_damaged(sweep, extent) {
            sweep.progress.found_count += 1;
        } else if let Name::Node(level, key) = sweep.batch.name_of(extent) {
            self.mirror_if_alone(extent.addr, level, &key);
        }
    }

    /// Mends the copies of a live extent on other devices, if it is kept on several and one of
    /// them is right. Returns whether one is.
    fn mend_copies(&self, sweep: &Sweep, extent: &Extent) -> bool {
        let Some(_pin) = self.pin_if_live(sweep, extent) else { return false };
        let mut bytes = vec![0; extent.len_bytes as usize];
        let is_right = |bytes: &[u8]| self.problem_of(sweep, extent, bytes).is_none();
        self.device().mend(extent.addr.bytes(), &mut bytes, &is_right)
    }

    /// What is wrong with the bytes that were read of an extent.
    fn problem_of(&self, sweep: &Sweep, extent: &Extent, bytes: &[u8]) -> Option<Error> {
        match sweep.batch.part_of(extent) {
            Part::Page(list, page_index) => (checksum(bytes) != extent.crc32c).then(|| {
                Error::Corrupted(format!(
                    "page {page_index} of list {list}, {} bytes at {} of the device: the checksum \
                         is wrong",
                    extent.len_bytes, extent.addr
                ))
            }),
            _ => self.store().decode(&extent.node_ptr(), bytes).err(),
        }
    }

    /// Notes damage if the extent is still live and differs again (scrub 1). Returns whether it
    /// does.
    fn note_if_damaged(&self, sweep: &Sweep, extent: &Extent) -> bool {
        let Some(_pin) = self.pin_if_live(sweep, extent) else { return false };
        let mut bytes = vec![0; extent.len_bytes as usize];
        let problem = match self.read_device(extent.addr, &mut bytes) {
            Ok(()) => self.problem_of(sweep, extent, &bytes),
            Err(error) => Some(error),
        };
        if let Some(error) = &problem {
            let part = match sweep.batch.name_of(extent) {
                Name::Node(level, key) if self.mend_node(level, &key) => Part::MirroredNode,
                _ => sweep.batch.part_of(extent),
            };
            self.damage().note(extent.addr, part, error);
        }
        problem.is_some()
    }

    /// Pins the segment of an extent that is live and on the device.
    fn pin_if_live(&self, sweep: &Sweep, extent: &Extent) -> Option<Pin> {
        let name = sweep.batch.name_of(extent);
        let pinned = self.look(|engine, nodes| {
            let is_live = engine.has_on_device(extent, name, nodes)?;
            Ok(is_live.then(|| engine.state().segments().pin(extent.addr)))
        });
        // If the map cannot be read there, that is noted as damage of the map.
        pinned.ok().flatten()
    }

    fn check_header(&self, sweep: &mut Sweep, at_bytes: u64) {
        let bytes = sweep.window.get(at_bytes, PAGE_SIZE);
        let found = bytes.and_then(|bytes| self.decode_header(at_bytes, bytes));
        let Some((records, len_bytes)) = found else { return self.end_summaries(sweep, at_bytes) };
        let next = at_bytes + u64::from(len_bytes);
        let segment_end = self.layout().segment_offset(sweep.summaries.segment)
            + self.layout().segment_size_bytes();
        sweep.summaries.header_at_bytes = (next < segment_end).then_some(next);
        sweep.summaries.records = Some(records);
    }

    /// The records and the length of the partial segment that begins at this place.
    fn decode_header(&self, at_bytes: u64, bytes: &[u8]) -> Option<(PendingRecords, u32)> {
        let (header, stated_crc32c) = PartialHeader::decode(bytes).ok()?;
        let segment = self.layout().segment_of(Addr::from_bytes(at_bytes));
        let offset_bytes = at_bytes - self.layout().segment_offset(segment);
        let is_here = header.uuid == self.uuid()
            && header.segment == segment
            && u64::from(header.offset_bytes) == offset_bytes
            && offset_bytes + u64::from(header.len_bytes) <= self.layout().segment_size_bytes();
        let start = at_bytes + u64::from(header.records_offset_bytes);
        let records = PendingRecords {
            header_at_bytes: at_bytes,
            stated_crc32c,
            crc32c: checksum(&bytes[8..HEADER_LEN_BYTES]),
            at_bytes: start,
            end_bytes: start + u64::from(header.records_len_bytes),
        };
        is_here.then_some((records, header.len_bytes))
    }

    fn check_records(&self, sweep: &mut Sweep, mut records: PendingRecords, len_bytes: usize) {
        let Some(bytes) = sweep.window.get(records.at_bytes, len_bytes) else {
            return self.end_summaries(sweep, records.header_at_bytes);
        };
        records.crc32c = checksum_append(records.crc32c, bytes);
        records.at_bytes += len_bytes as u64;
        if records.at_bytes < records.end_bytes {
            sweep.summaries.records = Some(records);
        } else if records.crc32c == records.stated_crc32c {
            sweep.summaries.records = None;
        } else {
            self.end_summaries(sweep, records.header_at_bytes);
        }
    }

    /// Reads no more headers in this segment, because the partial segment here cannot be read. That
    /// is damage if a live block lies in it or behind it, because then it was written whole.
    fn end_summaries(&self, sweep: &mut Sweep, header_at_bytes: u64) {
        (sweep.summaries.header_at_bytes, sweep.summaries.records) = (None, None);
        let extents = &sweep.batch.extents;
        let first = extents.partition_point(|extent| extent.addr.bytes() < header_at_bytes);
        let here = extents[first..]
            .iter()
            .take_while(|extent| self.layout().segment_of(extent.addr) == sweep.summaries.segment);
        let Some(_pin) = here.into_iter().find_map(|extent| self.pin_if_live(sweep, extent)) else {
            return;
        };
        let Err(error) = self.read_summary(header_at_bytes) else { return };
        sweep.progress.found_count += 1;
        self.damage().note(Addr::from_bytes(header_at_bytes), Part::Records, &error);
    }

    /// Reads the header and the records of one partial segment.
    fn read_summary(&self, at_bytes: u64) -> Result<()> {
        let wrong = || {
            Error::Corrupted(format!(
                "the partial segment at byte {at_bytes} of the device: its header or records are \
                 damaged"
            ))
        };
        let mut page = [0; PAGE_SIZE];
        self.read_device(Addr::from_bytes(at_bytes), &mut page)?;
        let (records, _) = self.decode_header(at_bytes, &page).ok_or_else(wrong)?;
        let start = records.at_bytes - records.at_bytes % PAGE_SIZE as u64;
        let mut bytes = vec![0; (records.end_bytes - start) as usize];
        self.read_device(Addr::from_bytes(start), &mut bytes)?;
        let crc32c = checksum_append(records.crc32c, &bytes[(records.at_bytes - start) as usize..]);
        if crc32c == records.stated_crc32c { Ok(()) } else { Err(wrong()) }
    }
}
