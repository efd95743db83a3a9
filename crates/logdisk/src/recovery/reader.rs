//! Reading whole segments for recovery, one at a time, as far as they are readable.

use std::ops::Range;

use dendro_base::Uuid;
use dendro_base::units::PAGE_SIZE;
use dendro_device::{AlignedBuf, Device};
use dendro_format::{Layout, PartialHeader, SegmentNo};

/// Reads segments of one volume.
pub(super) struct SegmentReader<'a> {
    device: &'a dyn Device,
    layout: Layout,
    uuid: Uuid,
    buf: AlignedBuf,
    loaded: Option<SegmentNo>,
    /// The offsets in the loaded segment that could not be read, with the device's errors.
    unreadable: Vec<(usize, dendro_device::Error)>,
}

impl<'a> SegmentReader<'a> {
    pub(super) fn new(device: &'a dyn Device, layout: Layout, uuid: Uuid) -> Self {
        let buf = AlignedBuf::zeroed(layout.segment_size_bytes() as usize);
        Self { device, layout, uuid, buf, loaded: None, unreadable: Vec::new() }
    }

    /// Reads a segment, unless it is the loaded one. Parts that cannot be read are filled with
    /// zeros.
    pub(super) fn load(&mut self, segment: SegmentNo) {
        if self.loaded.replace(segment) == Some(segment) {
            return;
        }
        self.unreadable.clear();
        let start = self.layout.segment_offset(segment);
        if self.device.read_at(start, &mut self.buf).is_ok() {
            return;
        }
        for (at, block) in (0..).step_by(PAGE_SIZE).zip(self.buf.chunks_mut(PAGE_SIZE)) {
            if let Err(error) = self.device.read_at(start + at as u64, block) {
                block.fill(0);
                self.unreadable.push((at, error));
            }
        }
    }

    /// The bytes of the loaded segment from `offset_bytes` on.
    pub(super) fn rest(&self, offset_bytes: u64) -> &[u8] {
        &self.buf[offset_bytes as usize..]
    }

    /// The error of the device if a part of this range of the loaded segment could not be read.
    pub(super) fn error_in(&self, range: Range<usize>) -> Option<&dendro_device::Error> {
        let is_in = |at: usize| at < range.end && at + PAGE_SIZE > range.start;
        self.unreadable.iter().find(|(at, _)| is_in(*at)).map(|(_, error)| error)
    }

    /// Returns the partial segment at a place in the loaded segment, with its checksum and records.
    /// Header and records must be sound and belong to this volume and place.
    pub(super) fn partial_at(
        &self,
        segment: SegmentNo,
        offset_bytes: u64,
    ) -> Option<(PartialHeader, u32, &[u8])> {
        let rest = self.rest(offset_bytes);
        let (header, crc32c) = PartialHeader::decode(rest).ok()?;
        let is_here =
            self.is_ours(&header, segment) && u64::from(header.offset_bytes) == offset_bytes;
        let partial = rest.get(..header.len_bytes as usize).filter(|_| is_here)?;
        let records = header.records_of(partial)?;
        PartialHeader::verify(partial, records).then_some((header, crc32c, records))
    }

    /// All sound partial segments in the loaded segment from an offset on.
    pub(super) fn partials(
        &self,
        segment: SegmentNo,
        from_bytes: u64,
    ) -> impl Iterator<Item = (PartialHeader, u32, &[u8])> {
        let mut at = from_bytes;
        std::iter::from_fn(move || {
            while at < self.layout.segment_size_bytes() {
                let found = self.partial_at(segment, at);
                at += found.map_or(PAGE_SIZE as u64, |(header, ..)| header.len_bytes.into());
                if found.is_some() {
                    return found;
                }
            }
            None
        })
    }

    /// Reads the header at the start of a segment from its first page alone, so the records are not
    /// verified. `block` is a buffer for one page.
    pub(super) fn first_header(
        &self,
        segment: SegmentNo,
        block: &mut AlignedBuf,
    ) -> Option<PartialHeader> {
        self.device.read_at(self.layout.segment_offset(segment), block).ok()?;
        let (header, _) = PartialHeader::decode(block).ok()?;
        (self.is_ours(&header, segment) && header.offset_bytes == 0).then_some(header)
    }

    fn is_ours(&self, header: &PartialHeader, segment: SegmentNo) -> bool {
        header.uuid == self.uuid && header.segment == segment
    }

    pub(super) const fn layout(&self) -> Layout {
        self.layout
    }

    pub(super) const fn device(&self) -> &'a dyn Device {
        self.device
    }
}
