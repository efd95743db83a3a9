//! Which parts of the device are taken.

use std::collections::BTreeMap;

use dendro_base::units::GRAIN_SIZE;
use dendro_format::Addr;

/// About the memory that an extent takes.
const EXTENT_BYTES: u64 = 50;

/// Extents of grains that are taken. Neighbours are joined, so memory is needed for each stretch of
/// live blocks.
#[derive(Debug, Default)]
pub(super) struct Extents {
    /// The end of each extent by its start.
    ends: BTreeMap<u64, u64>,
}

impl Extents {
    /// Takes `len_bytes` from `addr` on. Returns whether all of it was free before; if not, what
    /// was free is taken too.
    pub(super) fn take(&mut self, addr: Addr, len_bytes: u64) -> bool {
        let was_free = self.is_free(addr, len_bytes);
        let mut start = addr.0;
        let mut end = addr.0.saturating_add(len_bytes.div_ceil(GRAIN_SIZE as u64));
        if start == end {
            return true;
        }
        while let Some((&from, &to)) = self.ends.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.ends.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.ends.insert(start, end);
        was_free
    }

    /// About the memory that they take.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.ends.len() as u64 * EXTENT_BYTES
    }

    /// Whether nothing is taken.
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether nothing of these bytes is taken.
    pub(super) fn is_free(&self, addr: Addr, len_bytes: u64) -> bool {
        let end = addr.0.saturating_add(len_bytes.div_ceil(GRAIN_SIZE as u64));
        self.ends.range(..end).next_back().is_none_or(|(_, &to)| to <= addr.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_twice_is_noticed_and_neighbours_are_joined() {
        let mut extents = Extents::default();
        assert!(extents.take(Addr(10), 64 * 5));
        assert!(extents.take(Addr(20), 64));
        assert!(extents.take(Addr(15), 64 * 5));
        assert_eq!(extents.ends.len(), 1);
        assert!(extents.is_free(Addr(21), 4096) && extents.is_free(Addr(9), 64));
        assert!(!extents.is_free(Addr(9), 65));
        assert!(!extents.take(Addr(20), 4096));
        assert!(!extents.take(Addr(0), 4096));
        assert_eq!(extents.ends, BTreeMap::from([(0, 84)]));
    }

    #[test]
    fn extents_equal_a_set_of_grains() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut extents = Extents::default();
        let mut grains = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            let (start, len) = (random(4000), 1 + random(8));
            let free = (start..start + len).all(|grain| !grains.contains(&grain));
            assert_eq!(extents.take(Addr(start), len * 64), free);
            grains.extend(start..start + len);
        }
        let taken: u64 = extents.ends.iter().map(|(from, to)| to - from).sum();
        assert_eq!(taken, grains.len() as u64);
    }
}
