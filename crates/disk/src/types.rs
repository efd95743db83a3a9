//! Names and numbers of the logical disk.

use std::fmt;

use dendro_base::sync::Arc;
use dendro_base::units::PAGE_SIZE;

/// A record's value. The disk and its clients share the memory of those that they read or put.
pub type Record = Arc<[u8]>;

/// The longest record, in bytes; the shortest has one.
pub const MAX_RECORD_LEN_BYTES: usize = 1024;

/// One more than the highest page index: a list's pages span 2⁶³ bytes, what a file offset can
/// name.
pub const MAX_PAGE_COUNT: u64 = 1 << 51;

/// Pages form groups of so many, beginning at multiples of it. The size of a unit is counted in
/// them.
pub const GROUP_PAGES: u64 = 32;

/// The most groups of pages that one unit may change. With contiguous pages that is 128 MiB.
pub const MAX_UNIT_GROUPS: u64 = 1024;

/// The tasks that a unit may put off until it has committed: each punch and each exchange is one, a
/// move is two.
pub const MAX_TASKS_PUT_OFF: usize = 6;

/// The number of a list, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lid(pub u64);

impl Lid {
    /// The first number that [`crate::LogicalDisk::allocate_list`] returns on an empty disk.
    pub const FIRST: Self = Self(1);
    /// One more than the last number that a client may use; the disk itself uses the rest.
    pub const CLIENT_END: Self = Self(1 << 62);

    /// Whether a client may use the number.
    #[must_use]
    pub fn may_be_a_clients(self) -> bool {
        (Self::FIRST..Self::CLIENT_END).contains(&self)
    }
}

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A commit's place in the order of commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitSeq(pub u64);

impl CommitSeq {
    /// Everything that has been committed by the time of the call.
    pub const LATEST: Self = Self(u64::MAX);
}

/// Consecutive pages of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    /// The list.
    pub list: Lid,
    /// The first page.
    pub first_page: u64,
    /// How many.
    pub count: u64,
}

impl PageRange {
    /// The bytes of the pages of `ranges`, which may be more than any buffer has.
    #[must_use]
    pub fn len_bytes_of(ranges: &[Self]) -> u128 {
        let count: u128 = ranges.iter().map(|range| u128::from(range.count)).sum();
        count * PAGE_SIZE as u128
    }

    /// Checks that the pages of `ranges` fill `buf`.
    ///
    /// # Panics
    /// When they do not.
    pub fn check_buf(ranges: &[Self], buf: &[u8]) {
        let (expected, found) = (Self::len_bytes_of(ranges), buf.len());
        assert!(expected == found as u128, "{found} bytes for pages of {expected}");
    }
}

/// One version of the whole disk: the writable head of a branch, or a read-only point in its past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The branch.
    pub branch: u32,
    /// The last epoch that is visible; `None` for the head.
    pub epoch: Option<u64>,
}

impl View {
    /// The writable head of the branch that every disk has.
    pub const HEAD: Self = Self { branch: 0, epoch: None };
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            None => write!(f, "head of branch {}", self.branch),
            Some(epoch) => write!(f, "branch {} at epoch {epoch}", self.branch),
        }
    }
}

/// Whether a list's blocks should lie together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Locality {
    /// As they were written.
    #[default]
    AsWritten = 0,
    /// In the order of their indices: the list will be read sequentially. The log-structured disk
    /// coalesces such a list even where that saves a single read.
    Clustered = 1,
}

/// How a list's pages are compressed when they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ListCompression {
    /// As those of all lists for which nothing else is said.
    #[default]
    AsOthers = 0,
    /// With LZ4.
    Lz4 = 1,
    /// With Zstandard.
    Zstd = 2,
    /// Not at all.
    Never = 3,
}

/// Hints from a client about a list. A disk stores them with the list and may ignore them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ListHints {
    /// Whether its blocks should lie together.
    pub locality: Locality,
    /// How its pages are compressed.
    pub compression: ListCompression,
    /// The list beside which it stands. See [`Self::place`].
    pub near: Option<Lid>,
}

impl fmt::Debug for ListHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hints = f.debug_struct("ListHints");
        hints.field("locality", &self.locality);
        if self.compression != ListCompression::AsOthers {
            hints.field("compression", &self.compression);
        }
        if let Some(near) = self.near {
            hints.field("near", &near);
        }
        hints.finish()
    }
}

/// The bit that says that a list's blocks should lie together. Those below may be set in lists of
/// old volumes: they had a meaning once.
const CLUSTERED: u16 = 1 << 4;
/// The two bits from which on it is said how a list's pages are compressed.
const COMPRESSION_SHIFT: u16 = 5;

impl ListHints {
    /// The place of a list with these hints in the order of lists, in which a disk lays down what
    /// it moves: by *neighbourhood*, and there by number. A list stands in the neighbourhood of the
    /// list that it is near, otherwise in its own. So a list and all those that are near it stand
    /// together. A number names a neighbourhood even if no list has it.
    ///
    /// The Logical Disk (de Jonge, Kaashoek, Hsieh 1993) keeps a list of lists for this, where a
    /// new list is put behind another. Here no list has to know which one comes next to it.
    #[must_use]
    pub fn place(self, list: Lid) -> (Lid, Lid) {
        (self.near.unwrap_or(list), list)
    }

    /// The 16 bits and the number by which disks and send streams name the hints. The number is
    /// that of the list that it is near, and 0 if it is near none.
    #[must_use]
    pub fn parts(self) -> (u16, u64) {
        let locality = match self.locality {
            Locality::AsWritten => 0,
            Locality::Clustered => CLUSTERED,
        };
        let bits = locality | (self.compression as u16) << COMPRESSION_SHIFT;
        (bits, self.near.map_or(0, |near| near.0))
    }

    /// The hints that these name. Bits without a meaning are ignored.
    #[must_use]
    pub fn from_parts(bits: u16, near: u64) -> Self {
        let is_clustered = bits & CLUSTERED != 0;
        let locality = if is_clustered { Locality::Clustered } else { Locality::AsWritten };
        let compression = match bits >> COMPRESSION_SHIFT & 3 {
            1 => ListCompression::Lz4,
            2 => ListCompression::Zstd,
            3 => ListCompression::Never,
            _ => ListCompression::AsOthers,
        };
        Self { locality, compression, near: (near != 0).then_some(Lid(near)) }
    }
}
