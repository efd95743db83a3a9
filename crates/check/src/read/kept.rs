//! What was read of a volume and stays in memory, for readers that come to the same places again
//! and again: a rebuild goes through the map and the log several times.

use std::collections::HashMap;
use std::sync::Arc;

use dendro_base::sync::Mutex;
use dendro_format::SegmentNo;

use super::partial::Partial;

/// Segments and partial segments that stay in memory: those that came first, as many as fit.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    segments: HashMap<SegmentNo, Arc<[u8]>>,
    /// By segment and offset.
    partials: HashMap<(SegmentNo, u32), Arc<Partial>>,
    bytes_left: u64,
}

impl Inner {
    /// Whether there was room for so many bytes, which are taken.
    fn take(&mut self, len_bytes: u64) -> bool {
        let left = self.bytes_left.checked_sub(len_bytes);
        self.bytes_left = left.unwrap_or(self.bytes_left);
        left.is_some()
    }
}

impl Kept {
    /// Keeps up to `max_bytes`.
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self { inner: Mutex::new(Inner { bytes_left: max_bytes, ..Inner::default() }) }
    }

    /// All bytes of a segment.
    pub(super) fn segment(&self, segment: SegmentNo) -> Option<Arc<[u8]>> {
        self.inner.lock().segments.get(&segment).cloned()
    }

    pub(crate) fn keep_segment(&self, segment: SegmentNo, bytes: &[u8]) {
        let mut inner = self.inner.lock();
        if !inner.segments.contains_key(&segment) && inner.take(bytes.len() as u64) {
            inner.segments.insert(segment, Arc::from(bytes));
        }
    }

    pub(super) fn partial(&self, segment: SegmentNo, offset: u32) -> Option<Arc<Partial>> {
        self.inner.lock().partials.get(&(segment, offset)).cloned()
    }

    pub(crate) fn keep_partial(&self, partial: &Arc<Partial>) {
        let mut inner = self.inner.lock();
        let at = (partial.header.segment, partial.header.offset_bytes);
        if !inner.partials.contains_key(&at) && inner.take(partial.memory_bytes()) {
            inner.partials.insert(at, Arc::clone(partial));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_not_kept() {
        let kept = Kept::new(250);
        for segment in 0..4 {
            kept.keep_segment(SegmentNo(segment), &[segment as u8; 100]);
            kept.keep_segment(SegmentNo(segment), &[9; 100]);
        }
        let first = |segment| kept.segment(SegmentNo(segment)).map(|bytes| bytes[0]);
        assert_eq!([0, 1, 2, 3].map(first), [Some(0), Some(1), None, None]);
    }
}
