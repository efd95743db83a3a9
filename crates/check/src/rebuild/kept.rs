//! Partial segments that stay in memory once they were read. A log of small commits has very many,
//! and each slice of the gaps needs those that name one of its lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use dendro_base::sync::Mutex;
use dendro_format::SegmentNo;

use super::memory::Memory;
use crate::read::{Break, Partial, Volume, read_partial};

/// The partial segments that were read first, as many as fit.
#[derive(Debug, Default)]
pub(super) struct Kept {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By segment and offset.
    partials: BTreeMap<(SegmentNo, u32), Arc<Partial>>,
    bytes_left: u64,
}

impl Kept {
    pub(super) fn new(memory: Memory) -> Self {
        let bytes_left = memory.kept_bytes();
        Self { inner: Mutex::new(Inner { partials: BTreeMap::new(), bytes_left }) }
    }

    /// Reads the partial segment at a place, or has it in memory.
    pub(super) fn read(
        &self,
        volume: &Volume<'_>,
        segment: SegmentNo,
        offset_bytes: u32,
    ) -> Result<Arc<Partial>, Break> {
        if let Some(partial) = self.inner.lock().partials.get(&(segment, offset_bytes)) {
            return Ok(Arc::clone(partial));
        }
        let partial = Arc::new(read_partial(volume, segment, offset_bytes)?);
        self.keep(&partial);
        Ok(partial)
    }

    /// Keeps a partial segment, if there is room for it.
    pub(super) fn keep(&self, partial: &Arc<Partial>) {
        let mut inner = self.inner.lock();
        if let Some(bytes_left) = inner.bytes_left.checked_sub(partial.memory_bytes()) {
            inner.bytes_left = bytes_left;
            let header = &partial.header;
            inner.partials.insert((header.segment, header.offset_bytes), Arc::clone(partial));
        }
    }
}
