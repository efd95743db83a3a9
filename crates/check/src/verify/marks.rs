//! Overlaps: whether two structures lie on the same bytes.

use dendro_base::units::GRAIN_SIZE;
use dendro_format::{Addr, Layout, SegmentNo};

/// Marks of the grains that are in use, for as many segments as fit in memory: a large volume
/// takes several passes over its map.
pub(super) struct Marks {
    layout: Layout,
    first: u32,
    /// A bit for each grain of the segments from `first` on; empty until one is marked.
    segments: Vec<Vec<u64>>,
}

impl Marks {
    /// Marks for the segments from `first` on: for as many as `memory_bytes` suffice for, and one
    /// at least.
    pub(super) fn new(layout: Layout, first: u32, memory_bytes: u64) -> Self {
        let grains = layout.segment_size_bytes() / GRAIN_SIZE as u64;
        let fitting = (memory_bytes / (grains / 8)).max(1);
        let count = u64::from(layout.segment_count().saturating_sub(first)).min(fitting);
        Self { layout, first, segments: vec![Vec::new(); count as usize] }
    }

    /// The first segment that has no marks because they did not fit in memory; `None` if all did.
    pub(super) fn end(&self) -> Option<u32> {
        let end = self.first + self.segments.len() as u32;
        (end < self.layout.segment_count()).then_some(end)
    }

    /// Marks bytes, which lie in one segment, as used. Returns whether some were marked already.
    pub(super) fn mark(&mut self, addr: Addr, len_bytes: u64) -> bool {
        let SegmentNo(number) = self.layout.segment_of(addr);
        let segment = number.checked_sub(self.first).map(|index| index as usize);
        let Some(words) = segment.and_then(|index| self.segments.get_mut(index)) else {
            return false;
        };
        let grains = self.layout.segment_size_bytes() / GRAIN_SIZE as u64;
        if words.is_empty() {
            words.resize((grains / 64) as usize, 0);
        }
        let start = addr.0 % grains;
        let end = (start + len_bytes.div_ceil(GRAIN_SIZE as u64)).min(grains);
        let mut overlaps = false;
        for grain in start..end {
            let (word, bit) = (&mut words[(grain / 64) as usize], 1 << (grain % 64));
            overlaps |= *word & bit != 0;
            *word |= bit;
        }
        overlaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_marked_twice_are_noticed_and_neighbours_are_not() {
        let layout = Layout::new(17, 16).unwrap();
        let mut marks = Marks::new(layout, 0, 64 << 20);
        assert!(!marks.mark(Addr::from_bytes(3 << 17), 1));
        assert!(!marks.mark(Addr::from_bytes((3 << 17) + 64), 4096));
        assert!(marks.mark(Addr::from_bytes((3 << 17) + 4096), 100));
        assert!(!marks.mark(Addr::from_bytes((4 << 17) - 64), 64));
        assert_eq!(marks.end(), None);
    }

    #[test]
    fn a_large_volume_takes_several_passes() {
        let layout = Layout::new(26, 1 << 20).unwrap();
        let mut passes = 0;
        let mut first = Some(0);
        while let Some(from) = first {
            first = Marks::new(layout, from, 64 << 20).end();
            passes += 1;
        }
        assert_eq!(passes, (1 << 20) / 512);
    }
}
