//! What a partial segment is about: a slice of the gaps in which nothing of it lies has no need to
//! read it.

use dendro_format::{CHUNK_PAGES, Key, Record, Space};

use super::gaps::{END, Gaps};
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

    /// Whether some key of one of them may lie in the gaps.
    pub(super) fn may_meet(&self, gaps: Gaps<'_>) -> bool {
        let lists = self.lists.get(..self.count.into());
        lists.is_none_or(|lists| lists.iter().any(|list| gaps.meet_list(*list)))
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

/// The pages of which a partial segment of a payload stream has blocks: those between two chunks,
/// each a list with an index.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedPages {
    first: (u64, u64),
    last: (u64, u64),
}

impl Default for NamedPages {
    /// No page at all.
    fn default() -> Self {
        Self { first: (u64::MAX, u64::MAX), last: (0, 0) }
    }
}

impl NamedPages {
    pub(super) fn of(partial: &Partial) -> Self {
        partial.records().flatten().fold(Self::default(), |pages, record| match record.record {
            Record::WriteRun { list, first_page, crcs, .. } => {
                pages.with(list, first_page, crcs.len() as u64)
            }
            Record::WriteBlock { list, page, .. } => pages.with(list, page, 1),
            _ => pages,
        })
    }

    fn with(self, list: u64, first_page: u64, page_count: u64) -> Self {
        let last_page = first_page.saturating_add(page_count.saturating_sub(1));
        Self {
            first: self.first.min((list, first_page / CHUNK_PAGES)),
            last: self.last.max((list, last_page / CHUNK_PAGES)),
        }
    }

    /// Whether some key of them may lie in the gaps.
    pub(super) fn may_meet(&self, gaps: Gaps<'_>) -> bool {
        let ((first_list, first), (list, index)) = (self.first, self.last);
        let last = Key { list, index, ..END };
        self.first <= self.last && gaps.meet(&Key::first(first_list, Space::Chunks, first), &last)
    }
}

#[cfg(test)]
mod tests {
    use super::super::gaps::Gap;
    use super::*;

    /// Whether the lists may be among those from `from` on and below `to`.
    fn may_be_in(lists: &[u64], from: u64, to: u64) -> bool {
        let key = |list| Key::first(list, Space::List, 0);
        let gap = Gap { from: key(from), to: key(to) };
        lists.iter().copied().fold(NamedLists::default(), NamedLists::with).may_meet(Gaps(&[gap]))
    }

    #[test]
    fn up_to_four_lists_are_told_apart() {
        let four = [9, 3, 9, 0, u64::MAX - 1, 3];
        for list in [0, 3, 9, u64::MAX - 1] {
            assert!(may_be_in(&four, list, list + 1), "{list}");
        }
        assert!(may_be_in(&four, 4, 10) && may_be_in(&four, 0, u64::MAX));
        assert!(!may_be_in(&four, 1, 3) && !may_be_in(&four, 10, u64::MAX - 1));
        assert!(!may_be_in(&[], 0, u64::MAX));
        assert!(may_be_in(&[1, 2, 3, 4, 5, 6], 100, 101));
    }

    #[test]
    fn pages_lie_between_the_first_and_the_last_chunk() {
        let meet = |pages: NamedPages, from: (u64, u64), to: (u64, u64)| {
            let key = |(list, index)| Key::first(list, Space::Chunks, index);
            pages.may_meet(Gaps(&[Gap { from: key(from), to: key(to) }]))
        };
        let none = NamedPages::default();
        assert!(!meet(none, (0, 0), (u64::MAX, 0)));
        // Of chunk 3, and of chunks 4 and 5.
        let few = none.with(7, 3 * CHUNK_PAGES + 2, 1).with(7, 5 * CHUNK_PAGES - 1, 2);
        assert!(
            meet(few, (7, 3), (7, 4)) && meet(few, (7, 5), (7, 6)) && meet(few, (0, 0), (9, 0))
        );
        assert!(!meet(few, (0, 0), (7, 3)) && !meet(few, (7, 6), (9, 0)));
        // An entry of the list itself is none of its pages.
        let list =
            Gap { from: Key::first(7, Space::List, 0), to: Key::first(7, Space::Records, 9) };
        assert!(!few.may_meet(Gaps(&[list])));
        let two = few.with(9, 0, 1);
        assert!(
            meet(two, (8, 0), (8, 1)) && meet(two, (9, 0), (9, 1)) && !meet(two, (9, 1), (10, 0))
        );
        assert!(meet(none.with(u64::MAX, u64::MAX, 5), (u64::MAX, 0), (u64::MAX, u64::MAX)));
    }

    #[test]
    fn a_move_names_both_lists() {
        let moved = Record::MovePages { from: 1, from_page: 0, to: 2, to_page: 0, count: 1 };
        assert_eq!(moved.lists(), [Some(1), Some(2)]);
        assert_eq!(Record::SwapPages { a: 3, b: 4 }.lists(), [Some(3), Some(4)]);
    }
}
