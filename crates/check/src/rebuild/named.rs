//! The lists that a partial segment of the main log names: a slice of the gaps in which none of
//! them lies has no need to read it.

use std::ops::RangeInclusive;

use crate::read::Partial;

/// So many lists are kept. A commit of one file names fewer.
const MAX_LISTS: usize = 4;

/// The lists whose entries the records of a partial segment change, or may change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NamedLists {
    lists: [u64; MAX_LISTS],
    /// [`MAX_LISTS`] + 1 if there are more: then any list may be named.
    count: u8,
}

impl NamedLists {
    pub(super) fn of(partial: &Partial) -> Self {
        let records = partial.records().flatten();
        records.flat_map(|it| it.record.lists()).flatten().fold(Self::default(), Self::with)
    }

    /// Whether one of them may lie in the range.
    pub(super) fn may_be_in(&self, range: &RangeInclusive<u64>) -> bool {
        let lists = self.lists.get(..self.count.into());
        lists.is_none_or(|lists| lists.iter().any(|list| range.contains(list)))
    }

    fn with(mut self, list: u64) -> Self {
        let Some(lists) = self.lists.get(..self.count.into()) else { return self };
        if lists.contains(&list) {
            return self;
        }
        if let Some(free) = self.lists.get_mut(usize::from(self.count)) {
            *free = list;
        }
        self.count += 1;
        self
    }
}

#[cfg(test)]
mod tests {
    use dendro_format::Record;

    use super::*;

    fn named(lists: &[u64]) -> NamedLists {
        lists.iter().copied().fold(NamedLists::default(), NamedLists::with)
    }

    #[test]
    fn up_to_four_lists_are_told_apart() {
        let four = named(&[9, 3, 9, 0, u64::MAX, 3]);
        for list in [0, 3, 9, u64::MAX] {
            assert!(four.may_be_in(&(list..=list)), "{list}");
        }
        assert!(four.may_be_in(&(4..=9)) && four.may_be_in(&(0..=u64::MAX)));
        assert!(!four.may_be_in(&(1..=2)) && !four.may_be_in(&(10..=u64::MAX - 1)));
        assert!(!named(&[]).may_be_in(&(0..=u64::MAX)));
        assert!(named(&[1, 2, 3, 4, 5, 6]).may_be_in(&(100..=100)));
    }

    #[test]
    fn a_move_names_both_lists() {
        let moved = Record::MovePages { from: 1, from_page: 0, to: 2, to_page: 0, count: 1 };
        assert_eq!(moved.lists(), [Some(1), Some(2)]);
        assert_eq!(Record::SwapPages { a: 3, b: 4 }.lists(), [Some(3), Some(4)]);
    }
}
