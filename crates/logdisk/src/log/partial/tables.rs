//! What is collected about an open partial segment.

use rustc_hash::{FxHashMap, FxHashSet};

/// Where the records name a block: for a whole page the place of its checksum, for a short block
/// the place of its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRef(pub(super) u32);

/// A block that may still be changed in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) offset: u32,
    pub(super) record_ref: RecordRef,
    /// Where the records of the main log's open partial segment also name the block, if the block
    /// lies in a payload stream.
    pub(super) named: Option<RecordRef>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    pub(super) placed: Placed,
    pub(super) room: u32,
}

/// The tables of a partial segment that was closed, empty again. The next one fills them without
/// asking for memory.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(super) records: Vec<u8>,
    pub(super) pages: Vec<Placed>,
    pub(super) shorts: Vec<Short>,
    pub(super) puts: FxHashMap<(u32, u64, u64), usize>,
    pub(super) deleted_lists: FxHashSet<u64>,
}

impl Tables {
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.pages.clear();
        self.shorts.clear();
        self.puts.clear();
        self.deleted_lists.clear();
    }
}
