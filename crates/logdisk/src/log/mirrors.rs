//! Which segments of the map have a mirror: a segment in which the same bytes lie at the same
//! offsets, far away. What cannot be read in the one is read in the other.
//!
//! A mirror has no name in the map: no address leads into it, and its headers are those of the
//! segment that it mirrors. So nothing in it is taken for a part of the log. Checkpoints list the
//! mirrors ([`dendro_format::Checkpoint::mirrors`]).

use std::collections::BTreeMap;

use dendro_base::sync::{Arc, RwLock};
use dendro_format::{Addr, Layout, SegmentNo};

/// The mirrors of a volume, for the table of segments, which changes them, and for those who read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirrors(Arc<RwLock<BTreeMap<SegmentNo, SegmentNo>>>);

impl Mirrors {
    /// The mirrors that a checkpoint lists.
    pub(crate) fn listed(list: &[(SegmentNo, SegmentNo)]) -> Self {
        Self(Arc::new(RwLock::new(list.iter().copied().collect())))
    }

    /// The mirror of a segment.
    pub(crate) fn of(&self, segment: SegmentNo) -> Option<SegmentNo> {
        self.0.read().get(&segment).copied()
    }

    /// Where the bytes at `addr` lie once more.
    pub(crate) fn place_of(&self, layout: Layout, addr: Addr) -> Option<Addr> {
        // The volume may have got more segments since the layout was asked for.
        let number = u32::try_from(addr.bytes() >> layout.segment_size_log2()).ok()?;
        let mirror = self.of(SegmentNo(number))?;
        Some(layout.counterpart(addr, mirror))
    }

    /// All segments that have a mirror, in ascending order, each with its mirror.
    pub(crate) fn list(&self) -> Vec<(SegmentNo, SegmentNo)> {
        self.0.read().iter().map(|(of, mirror)| (*of, *mirror)).collect()
    }

    pub(super) fn insert(&self, of: SegmentNo, mirror: SegmentNo) {
        self.0.write().insert(of, mirror);
    }

    pub(super) fn remove(&self, of: SegmentNo) -> Option<SegmentNo> {
        self.0.write().remove(&of)
    }
}
