//! What a stream consists of.

use std::ops::Range;

/// What became of a list between the base and the version that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListChange {
    /// The base does not have it. All its records and pages follow.
    Made,
    /// Both have it. The records and pages that differ follow.
    Changed,
    /// Only the base has it. Nothing follows.
    Deleted,
}

/// A part of a stream. Records and pages belong to the list before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A list. Lists come in ascending order of their numbers.
    List {
        /// Its number.
        list: u64,
        /// What became of it.
        change: ListChange,
        /// Its hints, as the disk stores them.
        hints: u16,
        /// The list that it is near; 0 if it is near none. That of a list that was deleted is not
        /// sent.
        near: u64,
    },
    /// A record of the list. Records come in ascending order of their indexes, before all pages.
    Record {
        /// Its index.
        index: u64,
        /// Its value; `None` for a record that only the base has.
        value: Option<&'a [u8]>,
    },
    /// A page of the list. Pages, zeros and holes come in ascending order.
    Page {
        /// Its index.
        page_index: u64,
        /// Its bytes without the zeros at its end, of which there is one at least.
        bytes: &'a [u8],
    },
    /// Pages that have zeros alone, and are not holes.
    Zeros(Range<u64>),
    /// Pages that are holes, and of which the base has some.
    Holes(Range<u64>),
}

/// How much is in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lists that were made.
    pub made_lists: u64,
    /// Lists that were changed.
    pub changed_lists: u64,
    /// Lists that were deleted.
    pub deleted_lists: u64,
    /// Records that were put.
    pub put_records: u64,
    /// Records that were deleted.
    pub deleted_records: u64,
    /// Pages with content.
    pub pages: u64,
    /// Pages of zeros that are not holes.
    pub zero_pages: u64,
    /// Bytes of the values of records, and of pages without the zeros at their ends.
    pub content_bytes: u64,
}

impl Counts {
    /// Counts an item. Numbers that are too large to be true stay at their highest value.
    pub(crate) fn add(&mut self, item: &Item<'_>) {
        let (counted, by, bytes) = match item {
            Item::List { change: ListChange::Made, .. } => (&mut self.made_lists, 1, 0),
            Item::List { change: ListChange::Changed, .. } => (&mut self.changed_lists, 1, 0),
            Item::List { change: ListChange::Deleted, .. } => (&mut self.deleted_lists, 1, 0),
            Item::Record { value: Some(value), .. } => (&mut self.put_records, 1, value.len()),
            Item::Record { value: None, .. } => (&mut self.deleted_records, 1, 0),
            Item::Page { bytes, .. } => (&mut self.pages, 1, bytes.len()),
            Item::Zeros(pages) => (&mut self.zero_pages, pages.end - pages.start, 0),
            Item::Holes(_) => return,
        };
        *counted = counted.saturating_add(by);
        self.content_bytes = self.content_bytes.saturating_add(bytes as u64);
    }
}
