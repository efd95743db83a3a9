//! The order of items: what may follow what. Encoder and decoder hold the same rules.

use dendro_base::units::PAGE_SIZE;
use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::{MAX_PAGE_COUNT, Malformed, Result};

use crate::header::Header;
use crate::item::{Item, ListChange};

/// The longest record of a list, in bytes.
pub(crate) const MAX_VALUE_LEN_BYTES: usize = 1024;

const WRONG: fn(&'static str) -> Malformed =
    |problem| Malformed { structure: "order of a stream", problem };

/// The items that were seen, as far as it matters for what may follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// Whether the stream has a base.
    has_base: bool,
    /// The lowest number that the next list can have.
    next_list: u64,
    /// What became of the present list; `None` before the first.
    change: Option<ListChange>,
    /// The lowest index that the next record can have; `None` when no record can follow.
    next_record: Option<u64>,
    /// The lowest page that can follow.
    next_page: u64,
}

impl Order {
    /// The order of a stream with this header.
    pub(crate) fn new(header: &Header) -> Self {
        Self::from_list(header.base.is_some(), header.rest.map_or(1, |rest| rest.list))
    }

    const fn from_list(has_base: bool, next_list: u64) -> Self {
        Self { has_base, next_list, change: None, next_record: None, next_page: 0 }
    }

    /// Checks that `item` may follow what was seen, and notes it.
    ///
    /// # Errors
    /// When it may not.
    pub(crate) fn take(&mut self, item: &Item<'_>) -> Result<()> {
        match item {
            Item::List { list, change, .. } => self.take_list(*list, *change),
            Item::Record { index, value } => self.take_record(*index, *value),
            Item::Page { page_index, bytes } => {
                if bytes.len() > PAGE_SIZE || bytes.last().is_none_or(|last| *last == 0) {
                    return Err(WRONG("a page has no content, or too much, or ends with zeros"));
                }
                self.take_pages(*page_index, page_index.saturating_add(1))
            }
            Item::Zeros(pages) => self.take_pages(pages.start, pages.end),
            Item::Holes(pages) => {
                if self.change == Some(ListChange::Made) {
                    return Err(WRONG("a list that was made has a hole of its own"));
                }
                self.take_pages(pages.start, pages.end)
            }
        }
    }

    fn take_list(&mut self, list: u64, change: ListChange) -> Result<()> {
        if !(self.next_list..FIRST_SYSTEM_LIST).contains(&list) {
            return Err(WRONG("a list does not follow the one before it"));
        }
        if !self.has_base && change != ListChange::Made {
            return Err(WRONG("a list is changed or deleted, but there is no base"));
        }
        let next_record = (change != ListChange::Deleted).then_some(0);
        *self = Self {
            next_list: list + 1,
            change: Some(change),
            next_record,
            next_page: 0,
            has_base: self.has_base,
        };
        Ok(())
    }

    fn take_record(&mut self, index: u64, value: Option<&[u8]>) -> Result<()> {
        if self.next_record.is_none_or(|next| index < next) {
            return Err(WRONG("a record does not follow what is before it"));
        }
        match value {
            None if self.change != Some(ListChange::Changed) => {
                return Err(WRONG("a record is deleted, but its list was not there before"));
            }
            Some(value) if !(1..=MAX_VALUE_LEN_BYTES).contains(&value.len()) => {
                return Err(WRONG("a record is empty or too long"));
            }
            _ => {}
        }
        self.next_record = index.checked_add(1);
        Ok(())
    }

    fn take_pages(&mut self, start: u64, end: u64) -> Result<()> {
        if !matches!(self.change, Some(ListChange::Made | ListChange::Changed)) {
            return Err(WRONG("pages belong to no list, or to one that was deleted"));
        }
        if start < self.next_page || start >= end || end > MAX_PAGE_COUNT {
            return Err(WRONG("pages do not follow those before them, or are out of range"));
        }
        (self.next_record, self.next_page) = (None, end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn list(list: u64, change: ListChange) -> Item<'static> {
        Item::List { list, change, hints: 0, near: 0 }
    }

    const fn record(index: u64, value: Option<&'static [u8]>) -> Item<'static> {
        Item::Record { index, value }
    }

    const fn page(page_index: u64) -> Item<'static> {
        Item::Page { page_index, bytes: b"x" }
    }

    /// How many of `items` are taken.
    fn taken(has_base: bool, items: &[Item<'_>]) -> usize {
        let mut order = Order::from_list(has_base, 1);
        items.iter().take_while(|item| order.take(item).is_ok()).count()
    }

    #[test]
    fn items_in_order_are_taken() {
        let items = [
            list(1, ListChange::Made),
            record(0, Some(b"a")),
            record(u64::MAX, Some(&[0; MAX_VALUE_LEN_BYTES])),
            page(0),
            Item::Zeros(1..9),
            list(2, ListChange::Changed),
            record(3, None),
            Item::Holes(0..4),
            page(MAX_PAGE_COUNT - 1),
            list(9, ListChange::Deleted),
        ];
        assert_eq!(taken(true, &items), items.len());
    }

    #[test]
    fn what_breaks_the_order_is_refused() {
        let (made, changed) = (list(1, ListChange::Made), list(1, ListChange::Changed));
        let pairs: &[&[Item<'_>]] = &[
            &[list(0, ListChange::Made)],
            &[list(FIRST_SYSTEM_LIST, ListChange::Made)],
            &[record(0, Some(b"a"))],
            &[page(0)],
            &[made.clone(), made.clone()],
            &[list(2, ListChange::Made), made.clone()],
            &[made.clone(), record(0, None)],
            &[made.clone(), record(0, Some(b""))],
            &[made.clone(), record(0, Some(&[0; MAX_VALUE_LEN_BYTES + 1]))],
            &[made.clone(), record(4, Some(b"a")), record(4, Some(b"a"))],
            &[made.clone(), record(u64::MAX, Some(b"a")), record(u64::MAX, Some(b"a"))],
            &[made.clone(), page(0), record(0, Some(b"a"))],
            &[made.clone(), page(4), page(4)],
            &[made.clone(), page(MAX_PAGE_COUNT)],
            &[made.clone(), Item::Holes(0..1)],
            &[made.clone(), Item::Page { page_index: 0, bytes: b"" }],
            &[made.clone(), Item::Page { page_index: 0, bytes: b"a\0" }],
            &[made.clone(), Item::Page { page_index: 0, bytes: &[1; PAGE_SIZE + 1] }],
            &[changed.clone(), Item::Zeros(3..3)],
            &[changed.clone(), Item::Zeros(0..MAX_PAGE_COUNT + 1)],
            &[changed, Item::Holes(4..8), Item::Zeros(7..9)],
            &[list(1, ListChange::Deleted), record(0, Some(b"a"))],
            &[list(1, ListChange::Deleted), page(0)],
        ];
        for items in pairs {
            assert_eq!(taken(true, items), items.len() - 1, "{items:?}");
        }
    }

    #[test]
    fn the_rest_of_a_stream_has_nothing_of_lists_before_it() {
        for (from, is_taken) in [(4, true), (5, true), (6, false)] {
            let mut order = Order::from_list(false, from);
            assert_eq!(order.take(&list(5, ListChange::Made)).is_ok(), is_taken);
        }
    }

    #[test]
    fn a_stream_without_a_base_only_makes_lists() {
        for change in [ListChange::Changed, ListChange::Deleted] {
            assert_eq!(taken(false, &[list(1, ListChange::Made), list(2, change)]), 1);
        }
    }
}
