//! The interface of a logical disk.

use std::ops::Range;

use dendro_base::sync::Weak;

use crate::aru::Aru;
use crate::chores::Chore;
#[allow(unused_imports, reason = "named in the documentation")]
use crate::error::Error;
use crate::error::Result;
use crate::releases::ExpectedRelease;
use crate::scan::{ScanPoint, Scanned};
use crate::space::{Quota, Reservation, Space};
use crate::types::{CommitSeq, Lid, ListHints, PageRange, Record, View};
#[allow(unused_imports, reason = "named in the documentation")]
use crate::types::{
    GROUP_PAGES, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES, MAX_TASKS_PUT_OFF, MAX_UNIT_GROUPS,
};
use dendro_base::units::PAGE_SIZE;

use dendro_base::ClientKind;

/// What is called when commits are durable, or have failed to become durable.
pub type Completion = Box<dyn FnOnce(Result<()>) + Send>;

/// What a flush is to outlast: the failure set of the Logical Disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outlasts {
    /// The end of the process that has the disk. The system has what was written.
    Process,
    /// The end of the system, as by a power cut. The device has it.
    Machine,
    /// The loss of a device. Another one has it too.
    Medium,
}

/// An ordered, sparse collection of lists of blocks.
///
/// A **list** has two index spaces. **Records** are small values (up to
/// [`MAX_RECORD_LEN_BYTES`]) at any 64-bit index. **Pages** are blocks
/// of [`PAGE_SIZE`] at an index below [`MAX_PAGE_COUNT`];
/// a page that was never written, or was punched, is a hole and reads as zeros. A page's trailing
/// zeros take no space, and a page written with zeros alone is not a hole, though it takes no space
/// either.
///
/// Changes are collected in an [`Aru`] and made by [`Self::commit`], all of them or none. Commits
/// are in one order, which is the order of recovery: after a crash the disk is as it was after
/// some commit, at or after the last one flushed. One call reads one state: it sees each commit
/// whole or not at all. Callers that need several calls to agree hold locks of their own.
pub trait LogicalDisk: Send + Sync {
    /// A number for a new list, which this disk has never returned before, unless a crash has lost
    /// the list. The first number of an empty disk is [`Lid::FIRST`]; numbers ascend.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Failed`].
    fn allocate_list(&self) -> Result<Lid>;

    /// Makes the changes of `aru`, in their order, all or none. When it returns, every reader sees
    /// them. They are durable after a flush up to the returned number. An empty unit is allowed.
    ///
    /// A unit is bounded, so that no other one waits for long. It changes at most
    /// [`MAX_UNIT_GROUPS`] groups of [`GROUP_PAGES`] pages: the groups that it writes or zeroes,
    /// and the groups with pages in the ranges that it punches, moves, moves to, or swaps. A move
    /// takes its pages out first: within a list, they are not counted again where it moves to.
    /// Deleting a list is always one unit, whatever the list holds, and so is creating it again, in
    /// the same unit or later. Only a unit that changes a list, deletes it and creates it again may
    /// be refused with [`Error::UnitTooLong`], if the list has more than so many records and
    /// groups.
    ///
    /// What it punches, moves or swaps beyond that is put off: it is done in steps when the unit
    /// has committed, in up to [`MAX_TASKS_PUT_OFF`] tasks. Nobody sees a part of it, nor does a
    /// crash leave one: whoever asks for pages of these lists at the head of the unit's branch, and
    /// whoever makes, deletes or changes a version, waits until all is done; others do not. Behind
    /// it, the unit can neither write nor zero pages of these lists, nor delete them.
    ///
    /// # Errors
    /// - [`Error::NoSuchList`],
    ///   [`Error::ListExists`],
    ///   [`Error::RecordTooLong`],
    ///   [`Error::OutOfRange`], [`Error::UnitTooLong`]: the unit is
    ///   wrong; nothing was changed.
    /// - [`Error::ConditionFailed`]: a [condition](Aru::conditions) of the unit does not hold;
    ///   nothing was changed.
    /// - [`Error::NoSpace`]: it would not fit; nothing was changed.
    /// - [`Error::OverQuota`]: it would not fit in the quota of the view's client; nothing was
    ///   changed. A unit that [gives space back](Aru::set_reclaims) is never refused so, nor is one
    ///   after which the client uses no more than before, nor one that takes no more than it has
    ///   [reserved](Self::reserve_in).
    /// - [`Error::ReadOnly`], [`Error::NoSuchView`]: the disk or the view
    ///   cannot be changed.
    /// - [`Error::Corrupted`], [`Error::Io`]: what the change needs cannot
    ///   be read; nothing was changed.
    /// - [`Error::Failed`]: the disk no longer accepts writes.
    ///
    /// If several of these apply, the error may be any of them.
    fn commit(&self, mut aru: Aru<'_>) -> Result<CommitSeq> {
        self.try_commit(&mut aru)
    }

    /// As [`Self::commit`], for a unit that the caller keeps. After a success the unit is
    /// [cleared](Aru::clear) and can be used again. After an error it is as it was, with its
    /// reservation.
    ///
    /// # Errors
    /// As [`Self::commit`].
    fn try_commit(&self, aru: &mut Aru<'_>) -> Result<CommitSeq>;

    /// The last commit that readers see. What is read after this call is as old as that or newer.
    /// So a unit that [requires](Aru::require_unchanged) that a list has not changed since is
    /// committed only if what was read of the list still holds.
    ///
    /// From the first such call on, the disk remembers which lists change. It remembers a limited
    /// number, so that such a condition may also fail for a list that has not changed, if very many
    /// others have.
    fn last_commit(&self) -> CommitSeq;

    /// Returns once every commit up to and including `up_to` is durable. [`CommitSeq::LATEST`]
    /// means all commits that have returned. Callers that wait at the same time share one device
    /// flush.
    ///
    /// # Errors
    /// [`Error::Failed`]: a write or flush failed, now or earlier. What was not durable before may
    /// never become durable. The disk no longer accepts writes.
    fn flush(&self, up_to: CommitSeq) -> Result<()>;

    /// As [`Self::flush`], for what is committed up to `up_to` to outlast a failure of this kind.
    /// [`Self::flush`] is for [`Outlasts::Machine`]. A weaker kind may cost less.
    ///
    /// # Errors
    /// As [`Self::flush`], and [`Error::OneCopy`] when the disk keeps everything on one device at
    /// present: it is durable there.
    fn flush_for(&self, outlasts: Outlasts, up_to: CommitSeq) -> Result<()> {
        self.flush(up_to)?;
        if outlasts == Outlasts::Medium { Err(Error::OneCopy) } else { Ok(()) }
    }

    /// Returns at once, and has `then` called once when every commit up to and including `up_to`
    /// is durable, or when that has failed. The call is made by any thread, this one too, and must
    /// not wait: it wakes an event loop, or sends a message. Nor must it panic, which would end the
    /// thread that calls it. Work in the background makes the commits durable soon, where the disk
    /// has such work done.
    ///
    /// `then` is given what [`Self::flush`] would return.
    fn when_durable(&self, up_to: CommitSeq, then: Completion);

    /// Has a chore of a client done in steps: when the disk has time for it, and when space lacks,
    /// since what a client puts off may give some back. It is dropped when it is finished.
    ///
    /// A disk without background work never does it. So the client must be able to do without:
    /// whoever needs it done does the rest.
    fn do_later(&self, _chore: Weak<dyn Chore>) {}

    /// Makes what `list` has in `view` durable, and the view itself. Nothing is written if neither
    /// the list nor the versions have changed since something later became durable. Otherwise
    /// everything before that change becomes durable too, because recovery is in the order of
    /// commits.
    ///
    /// # Errors
    /// As [`Self::flush`].
    fn flush_list(&self, view: View, list: Lid) -> Result<()>;

    /// Reserves space for a later commit, which uses the reservation ([`Aru::use_reservation`]). A
    /// unit of at most `len_bytes` ([`Aru::payload_bytes`]) needs no other space: it is not refused
    /// for what others commit or reserve meanwhile. The disk adds what storing so much takes.
    /// Dropping the reservation releases the space. What a unit puts off because it is too much to
    /// be done at once ([`MAX_UNIT_GROUPS`]) is not reserved with it.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`],
    /// [`Error::Failed`].
    fn reserve(&self, len_bytes: u64) -> Result<Reservation>;

    /// As [`Self::reserve`], for a commit to `view`. It counts against the quota of the client that
    /// the view belongs to, if that has one, so that the unit is not refused for the quota either.
    ///
    /// # Errors
    /// As [`Self::reserve`], and [`Error::OverQuota`].
    fn reserve_in(&self, _view: View, len_bytes: u64) -> Result<Reservation> {
        self.reserve(len_bytes)
    }

    /// Fails if `len_bytes` are not free, after what can be freed by itself was freed. Nothing is
    /// reserved: it is for callers that would give up a long operation before it begins.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    fn check_free(&self, len_bytes: u64) -> Result<()> {
        let available_bytes = self.space().available_bytes;
        match len_bytes <= available_bytes {
            true => Ok(()),
            false => Err(Error::NoSpace { needed_bytes: len_bytes, available_bytes }),
        }
    }

    /// States that the caller is about to give space back, by itself and soon. An example is a
    /// removed file whose last user has gone, of which the kernel has not told yet. Until the value
    /// is dropped, which must be after the commit that gives the space back, a client that lacks
    /// space may be made to wait for it for a limited time, before it is refused.
    fn expect_release(&self) -> ExpectedRelease {
        ExpectedRelease::default()
    }

    /// The kind of client that `view` belongs to; `None` for the client that the disk was made for,
    /// which describes itself, and for views that do not exist.
    fn client_kind(&self, _view: View) -> Option<ClientKind> {
        None
    }

    /// How much space there is, is used, and can be used.
    fn space(&self) -> Space;

    /// The quota of the client that `view` belongs to, if it has one.
    fn quota(&self, _view: View) -> Option<Quota> {
        None
    }

    /// As [`Self::space`], for the client that `view` belongs to: within its quota, if it has one.
    fn space_of(&self, view: View) -> Space {
        let space = self.space();
        self.quota(view).map_or(space, |quota| space.within(&quota))
    }

    /// Gives what is free in a range of the device back to it, in whole segments. Returns the bytes
    /// of these. A disk without a device has none.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Failed`].
    fn trim(&self, _range: Range<u64>) -> Result<u64> {
        Ok(0)
    }

    /// Why the disk is read-only, if it is: it was opened so, or it failed.
    fn read_only_reason(&self) -> Option<String>;

    /// Makes everything durable, so that there is nothing to recover when the disk is opened again.
    /// Later commits fail with [`Error::ReadOnly`]; reads still work.
    ///
    /// # Errors
    /// As [`Self::flush`].
    fn shut_down(&self) -> Result<()>;

    /// The hints of `list`, or `None` when there is no such list.
    ///
    /// # Errors
    /// [`Error::NoSuchView`],
    /// [`Error::Corrupted`], [`Error::Io`].
    fn hints(&self, view: View, list: Lid) -> Result<Option<ListHints>>;

    /// Up to `max` lists with numbers from `from` on, in order of their numbers.
    ///
    /// # Errors
    /// As [`Self::hints`].
    fn lists(&self, view: View, from: Lid, max: usize) -> Result<Vec<Lid>>;

    /// The record at `index`. A list that does not exist has none.
    ///
    /// # Errors
    /// As [`Self::hints`].
    fn record(&self, view: View, list: Lid, index: u64) -> Result<Option<Record>>;

    /// Up to `max` records from index `from` on, in order of their indices.
    ///
    /// # Errors
    /// As [`Self::hints`].
    fn records(&self, view: View, list: Lid, from: u64, max: usize) -> Result<Vec<(u64, Record)>>;

    /// Fills `buf`, whole pages long, with the pages from `first_page` on; holes, and pages of a
    /// list that does not exist, as zeros.
    ///
    /// # Errors
    /// As [`Self::hints`], and [`Error::OutOfRange`].
    ///
    /// # Panics
    /// When `buf` is not a whole number of pages.
    fn read_pages(&self, view: View, list: Lid, first_page: u64, buf: &mut [u8]) -> Result<()>;

    /// Fills `buf` with the pages of `ranges`, one range after the other, as [`Self::read_pages`]
    /// does for each. What lies on a device is read together, whichever ranges it belongs to.
    ///
    /// Each range is read as it is at one moment. The moments of several ranges may differ: for
    /// all of them as of one moment, read a snapshot.
    ///
    /// # Errors
    /// As [`Self::read_pages`]. `buf` has no defined content then.
    ///
    /// # Panics
    /// When `buf` is not as long as the pages.
    fn read_scattered(&self, view: View, ranges: &[PageRange], buf: &mut [u8]) -> Result<()> {
        PageRange::check_buf(ranges, buf);
        let mut rest = buf;
        for range in ranges {
            let (pages, others) = rest.split_at_mut(range.count as usize * PAGE_SIZE);
            self.read_pages(view, range.list, range.first_page, pages)?;
            rest = others;
        }
        Ok(())
    }

    /// The first page at or after `from` that is not a hole.
    ///
    /// # Errors
    /// As [`Self::hints`].
    fn next_data(&self, view: View, list: Lid, from: u64) -> Result<Option<u64>>;

    /// The first page at or after `from` that is a hole. There always is one below or at
    /// [`MAX_PAGE_COUNT`].
    ///
    /// # Errors
    /// As [`Self::hints`].
    fn next_hole(&self, view: View, list: Lid, from: u64) -> Result<u64>;

    /// How many pages of `range` are not holes.
    ///
    /// # Errors
    /// As [`Self::hints`].
    fn count_pages(&self, view: View, list: Lid, range: Range<u64>) -> Result<u64>;

    /// What `view` has from `from` on, in the order of lists: each list is named, and then its
    /// records and its pages follow in the order of their indices. Also returns where to go on;
    /// `None` if that was all. There are about `max` items, and may be none.
    ///
    /// # Errors
    /// As [`Self::hints`]. What can be read before the place that cannot is returned first.
    fn scan(
        &self,
        view: View,
        from: ScanPoint,
        max: usize,
    ) -> Result<(Vec<Scanned>, Option<ScanPoint>)>;
}
