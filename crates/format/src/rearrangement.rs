//! What is left of a unit that punches, moves or exchanges more pages than a unit changes at once.
//!
//! Such a unit commits with a record of what is to be done: the tasks, in their order. Each is then
//! done in steps, and each step is a unit of the log that also replaces the record by what is left.
//! The record is in [`VERSIONS_LIST`](crate::versions::VERSIONS_LIST) at
//! [`REARRANGEMENT_INDEX`]; none is there when nothing is left. Until then no client may see the
//! pages of the lists that it names.

use std::mem::size_of;
use std::ops::Range;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::chunk::MAX_PAGE_COUNT;
use crate::usage::FIRST_SYSTEM_LIST;
use crate::{Malformed, Result};

/// Where the record is in [`VERSIONS_LIST`](crate::versions::VERSIONS_LIST).
pub const REARRANGEMENT_INDEX: u64 = 1 << 34;
/// The most tasks that a record has.
pub const MAX_TASKS: usize = 6;

const PUNCH: u8 = 1;
const SHIFT: u8 = 2;
const SWAP: u8 = 3;

/// What is left of a rearrangement, version 1. `count` tasks follow, the next one first.
///
/// | offset | size | field      | meaning                                                       |
/// |-------:|-----:|------------|---------------------------------------------------------------|
/// |      0 |    4 | `branch`   | the branch whose head it changes                              |
/// |      4 |    2 | `count`    | how many tasks there are; 1 to 6                              |
/// |      6 |    2 | `reserved` | zero                                                          |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RearrangementV1 {
    branch: U32,
    count: U16,
    reserved: [u8; 2],
}

/// A task of a rearrangement, version 1.
///
/// | offset | size | field        | meaning                                                     |
/// |-------:|-----:|--------------|-------------------------------------------------------------|
/// |      0 |    1 | `kind`       | 1: pages become holes; 2: pages move into holes; 3: pages are exchanged |
/// |      1 |    3 | `reserved`   | zero                                                        |
/// |      4 |    8 | `list`       | the list                                                    |
/// |     12 |    8 | `first_page` | its first page                                              |
/// |     20 |    8 | `count`      | how many                                                    |
/// |     28 |    8 | `other`      | of 2 and 3, the other list; otherwise zero                  |
/// |     36 |    8 | `other_page` | of 2, the page that the first one moves to; otherwise zero  |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TaskV1 {
    kind: u8,
    reserved: [u8; 3],
    list: U64,
    first_page: U64,
    count: U64,
    other: U64,
    other_page: U64,
}

const _: () = assert!(size_of::<RearrangementV1>() == 8 && size_of::<TaskV1>() == 44);

/// Bytes of the longest record.
pub const MAX_REARRANGEMENT_LEN_BYTES: usize =
    size_of::<RearrangementV1>() + MAX_TASKS * size_of::<TaskV1>();

/// A part of a rearrangement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Pages become holes.
    Punch {
        /// The list.
        list: u64,
        /// Its first page.
        first_page: u64,
        /// How many.
        count: u64,
    },
    /// Pages move. Where they move to there are holes, or pages that move themselves.
    Shift {
        /// The source list.
        from: u64,
        /// Its first page.
        from_page: u64,
        /// The destination list, which may be the same.
        to: u64,
        /// Its first page.
        to_page: u64,
        /// How many.
        count: u64,
    },
    /// Two lists exchange their pages in a range.
    Swap {
        /// One.
        a: u64,
        /// The other.
        b: u64,
        /// The first page.
        first_page: u64,
        /// How many.
        count: u64,
    },
}

impl Task {
    /// The lists that it concerns.
    #[must_use]
    pub const fn lists(&self) -> (u64, u64) {
        match *self {
            Self::Punch { list, .. } => (list, list),
            Self::Shift { from, to, .. } => (from, to),
            Self::Swap { a, b, .. } => (a, b),
        }
    }

    /// The pages that it takes from their places, by list.
    pub fn changed(&self) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
        let (a, b, first_page, count) = match *self {
            Self::Punch { list, first_page, count } => (list, None, first_page, count),
            Self::Shift { from, from_page, count, .. } => (from, None, from_page, count),
            Self::Swap { a, b, first_page, count } => (a, Some(b), first_page, count),
        };
        let pages = first_page..first_page.saturating_add(count);
        std::iter::once(a).chain(b).map(move |list| (list, pages.clone()))
    }

    fn encode(self) -> TaskV1 {
        let (kind, list, first_page, count, other, other_page) = match self {
            Self::Punch { list, first_page, count } => (PUNCH, list, first_page, count, 0, 0),
            Self::Shift { from, from_page, to, to_page, count } => {
                (SHIFT, from, from_page, count, to, to_page)
            }
            Self::Swap { a, b, first_page, count } => (SWAP, a, first_page, count, b, 0),
        };
        TaskV1 {
            kind,
            reserved: [0; 3],
            list: list.into(),
            first_page: first_page.into(),
            count: count.into(),
            other: other.into(),
            other_page: other_page.into(),
        }
    }

    fn decode(raw: &TaskV1) -> Result<Self> {
        let (list, first_page, count) = (raw.list.get(), raw.first_page.get(), raw.count.get());
        let (other, other_page) = (raw.other.get(), raw.other_page.get());
        let task = match raw.kind {
            PUNCH => Self::Punch { list, first_page, count },
            SHIFT => Self::Shift {
                from: list,
                from_page: first_page,
                to: other,
                to_page: other_page,
                count,
            },
            SWAP => Self::Swap { a: list, b: other, first_page, count },
            _ => return Err(WRONG("a task is of an unknown kind")),
        };
        let is_inside =
            |first: u64| first.checked_add(count).is_some_and(|end| end <= MAX_PAGE_COUNT);
        if !is_inside(first_page) || !is_inside(other_page) {
            return Err(WRONG("its pages are past the last that there can be"));
        }
        if list.max(other) >= FIRST_SYSTEM_LIST {
            return Err(WRONG("it changes a list of the disk's own"));
        }
        Ok(task)
    }
}

const WRONG: fn(&'static str) -> Malformed = |problem| Malformed::new("rearrangement", problem);

/// The bytes of the record.
///
/// # Panics
/// When there are no tasks, or more than [`MAX_TASKS`].
#[must_use]
pub fn encode(branch: u32, tasks: &[Task]) -> Vec<u8> {
    assert!((1..=MAX_TASKS).contains(&tasks.len()), "{} tasks", tasks.len());
    let count = (tasks.len() as u16).into();
    let header = RearrangementV1 { branch: branch.into(), count, reserved: [0; 2] };
    let mut bytes = header.as_bytes().to_vec();
    for task in tasks {
        bytes.extend_from_slice(task.encode().as_bytes());
    }
    bytes
}

/// Reads the record: the branch and the tasks.
///
/// # Errors
/// When the bytes are not what [`encode`] wrote.
pub fn decode(bytes: &[u8]) -> Result<(u32, Vec<Task>)> {
    let (header, rest) =
        RearrangementV1::ref_from_prefix(bytes).map_err(|_| WRONG("its length is wrong"))?;
    let tasks = <[TaskV1]>::ref_from_bytes(rest).map_err(|_| WRONG("its length is wrong"))?;
    if tasks.len() != usize::from(header.count.get()) || !(1..=MAX_TASKS).contains(&tasks.len()) {
        return Err(WRONG("the number of its tasks is wrong"));
    }
    let tasks = tasks.iter().map(Task::decode).collect::<Result<_>>()?;
    Ok((header.branch.get(), tasks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_read_back_and_nothing_else_is_taken_for_them() {
        let tasks = [
            Task::Punch { list: 1, first_page: 2, count: MAX_PAGE_COUNT - 2 },
            Task::Shift { from: 3, from_page: 4, to: 5, to_page: 6, count: 7 },
            Task::Swap { a: FIRST_SYSTEM_LIST - 1, b: 9, first_page: 0, count: MAX_PAGE_COUNT },
        ];
        for len in 1..=MAX_TASKS {
            let all: Vec<Task> = tasks.iter().copied().cycle().take(len).collect();
            let bytes = encode(10, &all);
            assert_eq!(decode(&bytes), Ok((10, all)));
            assert!(decode(&bytes[..bytes.len() - 1]).is_err());
            assert!(decode(&[&bytes[..], &[0]].concat()).is_err());
        }
        let [punch, shift, swap] = tasks.map(|task| encode(10, &[task]));
        let with = |bytes: &[u8], at: usize, new: &[u8]| {
            let mut changed = bytes.to_vec();
            changed[at..at + new.len()].copy_from_slice(new);
            decode(&changed)
        };
        assert!(with(&punch, 4, &[0]).is_err(), "no tasks");
        assert!(with(&punch, 4, &[2]).is_err(), "more than there are");
        assert!(with(&punch, 8, &[4]).is_err(), "no such kind");
        assert!(with(&punch, 20, &3_u64.to_le_bytes()).is_err(), "past the last page");
        assert!(with(&shift, 44, &MAX_PAGE_COUNT.to_le_bytes()).is_err());
        assert!(with(&shift, 28, &u64::MAX.to_le_bytes()).is_err());
        for at in [12, 36] {
            assert!(with(&swap, at, &FIRST_SYSTEM_LIST.to_le_bytes()).is_err(), "the disk's own");
        }
    }
}
