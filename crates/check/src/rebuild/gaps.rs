//! Stretches of keys of which the map is lost.

use dendro_format::{Key, Space};

/// Above every key.
pub(super) const END: Key = Key {
    list: u64::MAX,
    space: Space::Chunks,
    index: u64::MAX,
    branch: u32::MAX,
    epoch: u64::MAX,
};

/// Keys of which the map is lost: from one on and below another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) from: Key,
    pub(super) to: Key,
}

/// Gaps that do not overlap, in the order of their keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps<'a>(pub(super) &'a [Gap]);

impl Gaps<'_> {
    /// The gap in which a key lies.
    pub(super) fn of(self, key: &Key) -> Option<Gap> {
        self.first_behind(key).filter(|gap| gap.from <= *key)
    }

    /// Whether some key from `first` to `last` lies in one of them.
    pub(super) fn meet(self, first: &Key, last: &Key) -> bool {
        self.first_behind(first).is_some_and(|gap| gap.from <= *last)
    }

    /// Whether some key of a list lies in one of them.
    pub(super) fn meet_list(self, list: u64) -> bool {
        self.meet(&Key::first(list, Space::List, 0), &Key { list, ..END })
    }

    /// The first gap that does not end before a key.
    fn first_behind(self, key: &Key) -> Option<Gap> {
        self.0.get(self.0.partition_point(|gap| gap.to <= *key)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(list: u64, index: u64) -> Key {
        Key::first(list, Space::Chunks, index)
    }

    #[test]
    fn keys_lists_and_ranges_are_looked_up_among_several_gaps() {
        let gap = |from: (u64, u64), to: (u64, u64)| Gap {
            from: key(from.0, from.1),
            to: key(to.0, to.1),
        };
        let all = [gap((1, 5), (1, 9)), gap((3, 0), (5, 2)), gap((7, 0), (7, 1))];
        let gaps = Gaps(&all);
        for (list, index, expected) in [
            (1, 4, None),
            (1, 5, Some(all[0])),
            (1, 8, Some(all[0])),
            (1, 9, None),
            (4, 99, Some(all[1])),
            (5, 2, None),
            (7, 0, Some(all[2])),
            (8, 0, None),
        ] {
            assert_eq!(gaps.of(&key(list, index)), expected, "{list} {index}");
        }
        let lists: Vec<u64> = (0..9).filter(|list| gaps.meet_list(*list)).collect();
        assert_eq!(lists, [1, 3, 4, 5, 7]);
        assert!(gaps.meet(&key(1, 9), &key(3, 0)) && gaps.meet(&key(1, 0), &key(9, 0)));
        assert!(!gaps.meet(&key(1, 9), &key(2, 9)) && !gaps.meet(&key(7, 1), &key(9, 0)));
    }
}
