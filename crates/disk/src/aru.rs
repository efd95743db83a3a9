//! Atomic recovery units.

use std::borrow::Cow;

use dendro_base::units::PAGE_SIZE;
use smallvec::SmallVec;

use crate::space::Reservation;
use crate::types::{CommitSeq, GROUP_PAGES, Lid, ListHints, Record, View};

/// One change to a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Creates an empty list with a number that was allocated.
    CreateList {
        /// The list.
        list: Lid,
        /// Its hints.
        hints: ListHints,
    },
    /// Makes a list that the version has lost, with a number that other versions may have. What is
    /// left of its records and pages is there again. On a disk that is not damaged, it is an empty
    /// list; a version that had the list and deleted it may be refused one of that number.
    RestoreList {
        /// The list.
        list: Lid,
        /// Its hints.
        hints: ListHints,
    },
    /// Deletes a list with all its records and pages.
    DeleteList {
        /// The list.
        list: Lid,
    },
    /// Changes a list's hints.
    SetHints {
        /// The list.
        list: Lid,
        /// Its new hints.
        hints: ListHints,
    },
    /// Puts a record in place of the one at `index`, if there is one.
    PutRecord {
        /// The list.
        list: Lid,
        /// Where.
        index: u64,
        /// 1 to [`crate::MAX_RECORD_LEN_BYTES`] bytes.
        value: Record,
    },
    /// Deletes a record. Without one at `index`, nothing happens.
    DeleteRecord {
        /// The list.
        list: Lid,
        /// Where.
        index: u64,
    },
    /// Writes pages. If the last one is not whole, zeros fill the rest of it.
    WritePages {
        /// The list.
        list: Lid,
        /// The first page.
        first_page: u64,
        /// Their contents, one after the other.
        data: Cow<'a, [u8]>,
    },
    /// Writes bytes, which may be parts of pages. What else these pages hold stays; pages that were
    /// holes have zeros there. No other unit's change to them comes between.
    WriteBytes {
        /// The list.
        list: Lid,
        /// The first byte, counted from the start of page 0.
        offset_bytes: u64,
        /// What is written.
        data: Cow<'a, [u8]>,
    },
    /// Makes pages zeros without making them holes, as for preallocation. Pages that are not holes
    /// are overwritten with zeros too.
    ZeroPages {
        /// The list.
        list: Lid,
        /// The first page.
        first_page: u64,
        /// How many.
        count: u64,
    },
    /// Makes pages holes.
    PunchPages {
        /// The list.
        list: Lid,
        /// The first page.
        first_page: u64,
        /// How many; those past the last page cost nothing.
        count: u64,
    },
    /// Moves pages, holes included. The destination range gets the contents of the source range.
    /// The part of the source range outside the destination range becomes holes. The ranges may
    /// overlap.
    MovePages {
        /// The source list.
        from: Lid,
        /// Its first page.
        from_page: u64,
        /// The destination list, which may be the same.
        to: Lid,
        /// Its first page.
        to_page: u64,
        /// How many.
        count: u64,
    },
    /// Exchanges all pages of two lists; their records stay.
    SwapPages {
        /// One list.
        a: Lid,
        /// The other.
        b: Lid,
    },
}

impl Op<'_> {
    /// Whether it changes pages, or takes them with their list.
    #[must_use]
    pub const fn concerns_pages(&self) -> bool {
        matches!(
            self,
            Self::DeleteList { .. }
                | Self::WritePages { .. }
                | Self::WriteBytes { .. }
                | Self::ZeroPages { .. }
                | Self::PunchPages { .. }
                | Self::MovePages { .. }
                | Self::SwapPages { .. }
        )
    }

    /// The lists that it names: twice the same one, if it names one.
    #[must_use]
    pub const fn lists(&self) -> (Lid, Lid) {
        match *self {
            Self::CreateList { list, .. }
            | Self::RestoreList { list, .. }
            | Self::DeleteList { list }
            | Self::SetHints { list, .. }
            | Self::PutRecord { list, .. }
            | Self::DeleteRecord { list, .. }
            | Self::WritePages { list, .. }
            | Self::WriteBytes { list, .. }
            | Self::ZeroPages { list, .. }
            | Self::PunchPages { list, .. } => (list, list),
            Self::MovePages { from: a, to: b, .. } | Self::SwapPages { a, b } => (a, b),
        }
    }
}

/// A condition of a unit: it is committed only if this holds right before its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The record at `index` has this value; with `None`, there is no such record.
    RecordIs {
        /// The list.
        list: Lid,
        /// Where.
        index: u64,
        /// What is expected there.
        value: Option<Record>,
    },
    /// No unit since `since` has named the list, in the view of this one. See
    /// [`crate::LogicalDisk::last_commit`].
    Unchanged {
        /// The list.
        list: Lid,
        /// A commit that was the last one before the client read the list.
        since: CommitSeq,
    },
}

/// The number of changes that a unit keeps without memory of its own. Nearly all have fewer.
const INLINE_OPS: usize = 4;

/// What each change of a unit counts in [`Aru::payload_bytes`] beside its contents.
pub const CHANGE_BYTES: u64 = 64;

/// An atomic recovery unit: changes to one view that take effect together, at
/// [`crate::LogicalDisk::commit`], or never.
///
/// It is a plain value: any number of units may be under construction at a time, and dropping one
/// costs nothing. It may borrow the data that it writes, so that the disk copies them only once.
#[derive(Debug)]
pub struct Aru<'a> {
    view: View,
    ops: SmallVec<[Op<'a>; INLINE_OPS]>,
    reservation: Option<Reservation>,
    reclaims: bool,
    /// Which changes write pages whose last one is kept in memory.
    kept: SmallVec<[u32; 2]>,
    conditions: Vec<Condition>,
}

impl<'a> Aru<'a> {
    /// A unit that changes nothing yet.
    #[must_use]
    #[inline]
    pub fn new(view: View) -> Self {
        Self {
            view,
            ops: SmallVec::new(),
            reservation: None,
            reclaims: false,
            kept: SmallVec::new(),
            conditions: Vec::new(),
        }
    }

    /// Which version it changes.
    #[must_use]
    #[inline]
    pub const fn view(&self) -> View {
        self.view
    }

    /// Its changes, in their order.
    #[must_use]
    #[inline]
    pub fn ops(&self) -> &[Op<'a>] {
        &self.ops
    }

    /// Adds any change.
    #[inline]
    pub fn push(&mut self, op: Op<'a>) -> &mut Self {
        self.ops.push(op);
        self
    }

    /// Adds [`Op::CreateList`] with `hints`.
    pub fn create_list(&mut self, list: Lid, hints: ListHints) -> &mut Self {
        self.push(Op::CreateList { list, hints })
    }

    /// Adds [`Op::RestoreList`] with `hints`.
    pub fn restore_list(&mut self, list: Lid, hints: ListHints) -> &mut Self {
        self.push(Op::RestoreList { list, hints })
    }

    /// Adds [`Op::DeleteList`].
    pub fn delete_list(&mut self, list: Lid) -> &mut Self {
        self.push(Op::DeleteList { list })
    }

    /// Adds [`Op::PutRecord`].
    pub fn put_record(&mut self, list: Lid, index: u64, value: impl Into<Record>) -> &mut Self {
        self.push(Op::PutRecord { list, index, value: value.into() })
    }

    /// Adds [`Op::DeleteRecord`].
    pub fn delete_record(&mut self, list: Lid, index: u64) -> &mut Self {
        self.push(Op::DeleteRecord { list, index })
    }

    /// Adds [`Op::WritePages`].
    pub fn write_pages(
        &mut self,
        list: Lid,
        first_page: u64,
        data: impl Into<Cow<'a, [u8]>>,
    ) -> &mut Self {
        self.push(Op::WritePages { list, first_page, data: data.into() })
    }

    /// Adds [`Op::WriteBytes`].
    pub fn write_bytes(
        &mut self,
        list: Lid,
        offset_bytes: u64,
        data: impl Into<Cow<'a, [u8]>>,
    ) -> &mut Self {
        self.push(Op::WriteBytes { list, offset_bytes, data: data.into() })
    }

    /// Adds [`Op::PunchPages`].
    pub fn punch_pages(&mut self, list: Lid, first_page: u64, count: u64) -> &mut Self {
        self.push(Op::PunchPages { list, first_page, count })
    }

    /// Adds [`Op::WritePages`], and says that the last of the pages is likely to be changed in part
    /// soon, so that the disk better keeps it in memory. That is a hint.
    pub fn write_pages_to_change(
        &mut self,
        list: Lid,
        first_page: u64,
        data: impl Into<Cow<'a, [u8]>>,
    ) -> &mut Self {
        self.kept.push(self.ops.len() as u32);
        self.write_pages(list, first_page, data)
    }

    /// The indexes of the changes that [`Self::write_pages_to_change`] added, ascending.
    #[must_use]
    #[inline]
    pub fn kept(&self) -> &[u32] {
        &self.kept
    }

    /// Adds [`Condition::RecordIs`].
    pub fn require_record(&mut self, list: Lid, index: u64, value: Option<Record>) -> &mut Self {
        self.conditions.push(Condition::RecordIs { list, index, value });
        self
    }

    /// Adds [`Condition::Unchanged`].
    pub fn require_unchanged(&mut self, list: Lid, since: CommitSeq) -> &mut Self {
        self.conditions.push(Condition::Unchanged { list, since });
        self
    }

    /// Adds conditions.
    pub fn require_all(&mut self, conditions: &[Condition]) -> &mut Self {
        self.conditions.extend_from_slice(conditions);
        self
    }

    /// The conditions on which it is committed; all must hold.
    #[must_use]
    #[inline]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// What the unit stores, as reservations count it: its pages, those of zeros too, at their full
    /// size; its records with [`CHANGE_BYTES`] more each; and as much for each other change.
    ///
    /// Pages that are moved and that another version sees too are copied, by whole groups. So a
    /// move counts all pages of the groups that it takes pages from. An exchange counts as one
    /// change, since the unit does not know what the lists have: what of it other versions see must
    /// be added.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let of_op = |op: &Op<'_>| match op {
            Op::PutRecord { value, .. } => value.len() as u64,
            op => pages_bytes_of(op),
        };
        let add = |sum: u64, op| sum.saturating_add(of_op(op)).saturating_add(CHANGE_BYTES);
        self.ops.iter().fold(0, add)
    }

    /// The most that a quota is charged for the unit: [`Self::payload_bytes`], or of one that
    /// gives space back ([`Self::set_reclaims`]) the part of it that is pages.
    #[must_use]
    pub fn most_quota_bytes(&self) -> u64 {
        if !self.reclaims {
            return self.payload_bytes();
        }
        self.ops.iter().fold(0, |sum: u64, op| sum.saturating_add(pages_bytes_of(op)))
    }

    /// Makes the unit as new: it changes nothing, on no condition, and uses no reservation. It
    /// keeps its view and its memory.
    #[inline]
    pub fn clear(&mut self) {
        self.ops.clear();
        self.reservation = None;
        self.reclaims = false;
        self.kept.clear();
        self.conditions.clear();
    }

    /// Makes the unit use reserved space.
    pub fn use_reservation(&mut self, reservation: Reservation) -> &mut Self {
        self.reservation = Some(reservation);
        self
    }

    /// The reservation that it uses.
    #[must_use]
    #[inline]
    pub const fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// Takes the reservation out.
    #[must_use]
    #[inline]
    pub const fn take_reservation(&mut self) -> Option<Reservation> {
        self.reservation.take()
    }

    /// Marks the unit as part of freeing space (an unlink, a truncation). It may then use the space
    /// that a full disk keeps in reserve for that purpose, and its records and lists may exceed a
    /// quota. Its pages may not.
    pub const fn set_reclaims(&mut self) -> &mut Self {
        self.reclaims = true;
        self
    }

    /// Whether [`Self::set_reclaims`] was called.
    #[must_use]
    pub const fn reclaims(&self) -> bool {
        self.reclaims
    }
}

/// What the pages take at most that a change stores, and copies that it makes.
fn pages_bytes_of(op: &Op<'_>) -> u64 {
    let pages_bytes = |count: u64| count.saturating_mul(PAGE_SIZE as u64);
    match op {
        Op::WritePages { data, .. } => pages_bytes(data.len().div_ceil(PAGE_SIZE) as u64),
        Op::WriteBytes { offset_bytes, data, .. } => {
            let from = offset_bytes % PAGE_SIZE as u64;
            pages_bytes((from + data.len() as u64).div_ceil(PAGE_SIZE as u64))
        }
        Op::ZeroPages { count, .. } => pages_bytes(*count),
        Op::MovePages { from_page, count, .. } => {
            let end = from_page.saturating_add(*count).div_ceil(GROUP_PAGES);
            let groups = end.saturating_sub(from_page / GROUP_PAGES);
            pages_bytes(groups.saturating_mul(GROUP_PAGES))
        }
        _ => 0,
    }
}
