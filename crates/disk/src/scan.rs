//! Scans: everything that a version has, in one order.

use std::sync::Arc;

#[allow(unused_imports, reason = "named in the documentation")]
use crate::types::GROUP_PAGES;
use crate::types::Lid;

/// The place where a scan goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanPoint {
    /// The list.
    pub list: Lid,
    /// The place in it.
    pub place: ScanPlace,
}

/// A place in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScanPlace {
    /// Its beginning, where it is named.
    Beginning,
    /// Its records from this index on.
    Records(u64),
    /// Its pages from this index on, a multiple of [`GROUP_PAGES`].
    Pages(u64),
}

/// What a scan comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// A list, whose records and pages follow.
    List(Lid),
    /// A record of the list that was named last: its index and its value.
    Record(u64, Arc<[u8]>),
    /// Pages of that list, in one group of [`GROUP_PAGES`].
    Pages {
        /// The group's first page.
        first_page: u64,
        /// A bit for each page of the group that is not a hole, the lowest for the first one.
        present: u32,
    },
}

impl ScanPoint {
    /// Before the lists from `list` on.
    #[must_use]
    pub const fn before(list: Lid) -> Self {
        Self { list, place: ScanPlace::Beginning }
    }
}
