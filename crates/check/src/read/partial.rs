//! A partial segment that was read.

use dendro_format::record::Records;
use dendro_format::{Malformed, PartialHeader, Record};

/// A partial segment whose header and records are sound.
#[derive(Clone, Debug)]
pub struct Partial {
    /// Its header.
    pub header: PartialHeader,
    /// The checksum over header and records, which the next partial segment repeats.
    pub crc32c: u32,
    pub(super) records: Vec<u8>,
}

/// A record of a partial segment.
#[derive(Clone, Copy, Debug)]
pub struct PartialRecord<'a> {
    /// Where it starts, from the start of the records.
    pub offset_bytes: u32,
    /// Where it ends, from there too.
    pub end_bytes: u32,
    /// Whether its recovery unit ends in this partial segment; otherwise it ends in a later one.
    pub is_complete: bool,
    /// The record.
    pub record: Record<'a>,
}

impl Partial {
    /// The approximate memory that it takes.
    pub(crate) const fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.records.len()) as u64
    }

    /// Its records, up to the first one that cannot be read.
    pub fn records(&self) -> impl Iterator<Item = Result<PartialRecord<'_>, Malformed>> {
        let mut walk = Records::new(&self.records);
        std::iter::from_fn(move || {
            let offset_bytes = (self.records.len() - walk.rest().len()) as u32;
            let record = walk.next()?;
            let end = (self.records.len() - walk.rest().len()) as u32;
            let is_complete = end <= self.header.complete_len_bytes;
            if record.is_err() {
                walk = Records::new(&[]);
            }
            Some(record.map(|record| PartialRecord {
                offset_bytes,
                end_bytes: end,
                is_complete,
                record,
            }))
        })
    }
}
