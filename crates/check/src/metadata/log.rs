//! Copying the log behind the checkpoint, and what of it lies behind a break.

use dendro_base::units::PAGE_SIZE;
use dendro_format::partial::HEADER_LEN_BYTES;
use dendro_format::record::{
    LEN_OFFSET, PUT_RECORD_LEN_BYTES, WRITE_BLOCK_COMPRESSION_OFFSET, WRITE_BLOCK_CRC_OFFSET,
    WRITE_RUN_LEN_BYTES,
};
use dendro_format::{Checkpoint, PageRef, PartialHeader, Record, SegmentNo};

use super::MetadataCopy;
use crate::error::Result;
use crate::read::{Log, Partial, read_partial};

/// A kind of records that there is none of.
const UNKNOWN_KIND: u8 = 254;
/// The kind of records that were withdrawn.
const VOID_KIND: u8 = 255;

impl MetadataCopy<'_> {
    /// Copies the log behind a checkpoint.
    pub(super) fn copy_log(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let volume = self.volume;
        let mut log: Log<'_> = volume.log(checkpoint);
        let mut prev_crc32c = None;
        for partial in &mut log {
            prev_crc32c = Some(self.copy_partial(&partial, prev_crc32c)?);
        }
        let Some(end) = log.end().cloned() else { return Ok(()) };
        // A header whose records are damaged is a sign that the log went on.
        let next = end.next.as_ref().map(|next| (next.segment, 0));
        for (segment, offset_bytes) in [(end.segment, end.offset_bytes)].into_iter().chain(next) {
            self.copy_header(SegmentNo(segment), offset_bytes)?;
        }
        for (segment, offset_bytes) in volume.log_behind(checkpoint) {
            if let Ok(partial) = read_partial(volume, segment, offset_bytes) {
                self.copy_partial(&partial, None)?;
            }
        }
        Ok(())
    }

    /// Copies a header, if there is one with records that are not its own: they are missing in the
    /// copy.
    fn copy_header(&mut self, segment: SegmentNo, offset_bytes: u32) -> Result<()> {
        let layout = self.volume.layout();
        let room = layout.segment_size_bytes().saturating_sub(offset_bytes.into());
        let mut bytes = [0; HEADER_LEN_BYTES];
        let is_header = layout.is_log_segment(segment)
            && room >= PAGE_SIZE as u64
            && self.volume.read_segment(segment, offset_bytes, &mut bytes).is_ok()
            && PartialHeader::decode(&bytes).is_ok();
        if is_header && read_partial(self.volume, segment, offset_bytes).is_err() {
            // With zeros as its records the checksum must not become right by chance.
            bytes[4] ^= 0xff;
            let start = layout.segment_offset(segment) + u64::from(offset_bytes);
            self.target.put(start, &bytes)?;
        }
        Ok(())
    }

    /// Copies a partial segment, without its payload. Returns its checksum in the copy.
    fn copy_partial(&mut self, partial: &Partial, prev_crc32c: Option<u32>) -> Result<u32> {
        let records = self.hide_records(partial);
        let mut header = partial.header;
        header.prev_crc32c = prev_crc32c.unwrap_or(header.prev_crc32c);
        let mut bytes = vec![0; header.len_bytes as usize];
        let at = header.records_offset_bytes as usize;
        bytes[at..at + records.len()].copy_from_slice(&records);
        let crc32c = header.encode_into(&mut bytes);
        let start =
            self.volume.layout().segment_offset(header.segment) + u64::from(header.offset_bytes);
        self.target.put(start, &bytes[..HEADER_LEN_BYTES])?;
        self.target.put(start + at as u64, &records)?;
        self.report.partial_count += 1;
        Ok(crc32c)
    }

    /// The records of a partial segment, each in its place.
    fn hide_records(&mut self, partial: &Partial) -> Vec<u8> {
        let mut hidden = vec![0; partial.header.records_len_bytes as usize];
        let mut end = 0;
        for record in partial.records() {
            let Ok(record) = record else {
                // It stays one that cannot be read.
                hidden[end] = UNKNOWN_KIND;
                break;
            };
            let at = record.end_bytes as usize;
            let bytes = self.hide_log_record(&record.record);
            let start = at - bytes.len();
            if start > end {
                put_void(&mut hidden[end..start]);
            }
            hidden[start..at].copy_from_slice(&bytes);
            end = at;
        }
        hidden
    }

    fn hide_log_record(&mut self, record: &Record<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        match *record {
            Record::PutRecord { list, index, value } => {
                let mut value = value.to_vec();
                self.hide_record(list, index, &mut value);
                Record::PutRecord { list, index, value: &value }.encode(&mut bytes);
            }
            Record::WriteRun { addr, crcs, .. } => {
                record.encode(&mut bytes);
                for (nth, crc32c) in crcs.iter().enumerate() {
                    let block = PageRef {
                        addr: addr.plus_bytes((nth * PAGE_SIZE) as u64),
                        crc32c: crc32c.get(),
                        len_bytes: PAGE_SIZE as u16,
                        ..PageRef::ZERO
                    };
                    let at = WRITE_RUN_LEN_BYTES + 4 * nth;
                    bytes[at..at + 4].copy_from_slice(&self.blocks.of_log(block).to_le_bytes());
                }
            }
            Record::WriteBlock { block, .. } => {
                record.encode(&mut bytes);
                let at = WRITE_BLOCK_CRC_OFFSET;
                bytes[at..at + 4].copy_from_slice(&self.blocks.of_log(block).to_le_bytes());
                bytes[WRITE_BLOCK_COMPRESSION_OFFSET] = 0;
            }
            _ => record.encode(&mut bytes),
        }
        bytes
    }
}

/// A withdrawn record that fills a place.
fn put_void(place: &mut [u8]) {
    if let Some(len) = place.len().checked_sub(PUT_RECORD_LEN_BYTES) {
        place[0] = VOID_KIND;
        place[LEN_OFFSET..LEN_OFFSET + 2].copy_from_slice(&(len as u16).to_le_bytes());
    }
}
