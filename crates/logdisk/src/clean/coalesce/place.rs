//! A place in the order in which coalescing goes through lists.

/// A place among the pages of all lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The list.
    pub list: u64,
    /// The index of the page in the list.
    pub page: u64,
}

impl Place {
    /// The start of the first list.
    pub const START: Self = Self { list: 0, page: 0 };
}
