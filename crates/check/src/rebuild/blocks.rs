//! The blocks that a record of the log names.

use dendro_base::units::PAGE_SIZE;
use dendro_format::{PageRef, Record};

/// The blocks that a record names, each with the index of its page.
pub(super) fn blocks_of(record: &Record<'_>) -> Vec<(u64, PageRef)> {
    match *record {
        Record::WriteRun { first_page, addr, crcs, .. } => (0_u64..)
            .zip(crcs)
            .map(|(index, crc)| {
                let block = PageRef {
                    addr: addr.plus_bytes(index * PAGE_SIZE as u64),
                    crc32c: crc.get(),
                    len_bytes: PAGE_SIZE as u16,
                    ..PageRef::ZERO
                };
                (first_page.saturating_add(index), block)
            })
            .collect(),
        Record::WriteBlock { page, block, .. } => vec![(page, block)],
        _ => Vec::new(),
    }
}
