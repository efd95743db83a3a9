//! The interface of a disk with versions.

use std::ops::Range;

use dendro_base::{ClientKind, Origin, Timestamp};

use super::table::VersionTable;
use super::version::{Branch, Snapshot};
use crate::Aru;
use crate::error::{Error, Result};
use crate::logical_disk::LogicalDisk;
use crate::types::{Lid, ListHints, View};

/// The space that a version takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionUsage {
    /// The version.
    pub view: View,
    /// Bytes that deleting it alone would free.
    pub exclusive_bytes: u64,
    /// Bytes of all that is visible in it.
    pub seen_bytes: u64,
    /// Bytes that this would take if nothing were compressed.
    pub seen_plain_bytes: u64,
}

/// A disk with versions.
///
/// Besides the errors that are named with each call, every change can fail with
/// [`Error::ReadOnly`], [`Error::Failed`], [`Error::NoSpace`], [`Error::Corrupted`] and
/// [`Error::Io`]. Mistakes are looked for in the order in which the errors are named. A change that
/// fails changes nothing.
///
/// A read accepts any view that exists; a commit accepts heads alone. A view of a snapshot has
/// exactly its epoch: epochs between two snapshots cannot be read.
///
/// The number of a deleted list can be used again only when the list is in no version of the same
/// client, nor in a moment that one of its branches was made from; and while another client has a
/// list of that number, not before the space of the deleted one was freed.
///
/// [`Error::ReadOnly`]: crate::Error::ReadOnly
/// [`Error::Failed`]: crate::Error::Failed
/// [`Error::NoSpace`]: crate::Error::NoSpace
/// [`Error::Corrupted`]: crate::Error::Corrupted
/// [`Error::Io`]: crate::Error::Io
pub trait Versions: LogicalDisk {
    /// All versions, as they are now.
    fn versions(&self) -> VersionTable;

    /// Makes a snapshot of the head of `branch`. Without a name it is one that retention may
    /// delete.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView), [`BadName`](crate::Error::BadName),
    /// [`NameTaken`](crate::Error::NameTaken).
    fn snapshot(&self, branch: u32, name: Option<&str>) -> Result<Snapshot>;

    /// Makes a branch that starts from `view`, a head or a snapshot.
    ///
    /// # Errors
    /// As [`Self::snapshot`].
    fn branch_off(&self, view: View, name: &str) -> Result<Branch>;

    /// Renames the snapshot or the branch that `view` names. A snapshot that had no name becomes
    /// one that retention does not delete.
    ///
    /// # Errors
    /// As [`Self::snapshot`].
    fn rename(&self, view: View, name: &str) -> Result<()>;

    /// Protects a snapshot from deletion, or ends that.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView).
    fn hold(&self, view: View, is_held: bool) -> Result<()>;

    /// Deletes a snapshot, or a branch's head. What no other version sees is freed in the
    /// background. What other branches inherit stays.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView); [`InUse`](crate::Error::InUse) for the main
    /// branch and for a snapshot that is held.
    fn delete(&self, view: View) -> Result<()>;

    /// Makes `branch` the main one. It exchanges its name with the former main branch.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView);
    /// [`OtherClient`](crate::Error::OtherClient) for a branch of another client.
    fn promote(&self, branch: u32) -> Result<()>;

    /// Replaces `branch` by a new branch that starts from the snapshot `to`. The new branch takes
    /// over the name, and becomes the main branch if `branch` was. The head of `branch` is deleted.
    /// Its snapshots stay, later ones too. `to` may be any snapshot of the client, also of another
    /// branch.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView);
    /// [`OtherClient`](crate::Error::OtherClient) for a snapshot of another client.
    fn roll_back(&self, branch: u32, to: View) -> Result<Branch>;

    /// Makes a branch to receive a version into from another disk: one that starts from the
    /// snapshot `base`, or with nothing at all. Unlike in other branches, a list can be made in it
    /// under a number that is in use elsewhere, as long as nothing in the branch's ancestry ever
    /// had it. So lists keep their numbers, whatever other versions this disk has.
    ///
    /// A branch that starts with nothing belongs to the first client. With a `kind` it begins
    /// another one, to be named by [`Self::name_client`] or received.
    ///
    /// What the branch has is not a version until [`Self::end_receive`]. A crash leaves the branch,
    /// and whoever opens the disk deletes it ([`Branch::is_receiving`]), unless it has a note.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView), for heads too.
    fn begin_receive(&self, base: Option<View>, kind: Option<ClientKind>) -> Result<Branch>;

    /// Makes a client of what [`Self::begin_receive`] has begun one with: the branch, with all that
    /// was committed to it, gets this name.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView) for a branch that does not begin a client;
    /// [`BadName`](crate::Error::BadName), [`NameTaken`](crate::Error::NameTaken).
    fn name_client(&self, branch: u32, name: &str) -> Result<Branch>;

    /// Makes a client that has the list [`Lid::FIRST`], without hints, records or pages, and
    /// nothing else. It is there whole or not at all.
    ///
    /// # Errors
    /// [`BadName`](crate::Error::BadName), [`NameTaken`](crate::Error::NameTaken).
    fn new_client(&self, name: &str, kind: ClientKind) -> Result<Branch> {
        make_client(self, name, kind, |disk, head| {
            let mut aru = Aru::new(head);
            aru.create_list(Lid::FIRST, ListHints::default());
            disk.commit(aru).map(drop)
        })
    }

    /// Gives the client that `branch` belongs to a [quota](crate::Quota), or none. A client may use
    /// more than its quota already: then it can only give space back. A client that has no quota is
    /// counted first, which reads the whole map, unless it was made a moment ago.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView) for a branch that does not exist.
    fn set_quota(&self, branch: u32, limit_bytes: Option<u64>) -> Result<()>;

    /// Notes how far a version was received into `branch`, as a commit: after a crash the note is
    /// there only if everything is that was committed before it. A branch with a note is to be kept
    /// ([`Branch::receive_note`]). A note has 200 bytes at most.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView) for a branch that [`Self::begin_receive`] did not
    /// make; [`BadName`](crate::Error::BadName) for a note that is too long.
    fn note_receive(&self, branch: u32, note: &str) -> Result<()>;

    /// Makes a snapshot of what was received into `branch`, a version that was made at `origin` and
    /// at `time`, and deletes the branch's head, in one change.
    ///
    /// # Errors
    /// As [`Self::snapshot`]; [`NoSuchView`](crate::Error::NoSuchView) for a branch that
    /// [`Self::begin_receive`] did not make.
    fn end_receive(
        &self,
        branch: u32,
        name: Option<&str>,
        origin: Origin,
        time: Timestamp,
    ) -> Result<Snapshot>;

    /// The space that each snapshot and each head takes. Reads the whole map.
    ///
    /// # Errors
    /// [`Corrupted`](crate::Error::Corrupted), [`Io`](crate::Error::Io).
    fn version_usage(&self) -> Result<Vec<VersionUsage>>;

    /// Bytes that deleting all of `views` would free. That can be more than the sum of their
    /// [`exclusive_bytes`](VersionUsage::exclusive_bytes), which leave out what several of them
    /// share. Reads the whole map.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView), [`Corrupted`](crate::Error::Corrupted),
    /// [`Io`](crate::Error::Io).
    fn freed_by(&self, views: &[View]) -> Result<u64>;

    /// Up to `max` lists, with numbers from `from` on, in which the two views may differ. Reads no
    /// pages; may read the whole map.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView), [`Corrupted`](crate::Error::Corrupted),
    /// [`Io`](crate::Error::Io).
    fn changed_lists(&self, a: View, b: View, from: Lid, max: usize) -> Result<Vec<Lid>>;

    /// Up to `max` records of `list`, with indexes from `from` on, in which the two views may
    /// differ. Both views have the list. Reads what was written since their histories parted.
    ///
    /// # Errors
    /// As [`Self::changed_lists`].
    fn changed_records(
        &self,
        a: View,
        b: View,
        list: Lid,
        from: u64,
        max: usize,
    ) -> Result<Vec<u64>>;

    /// The first pages of `list`, from `from` on, in which the two views may differ: a range that
    /// lies in one group of [`GROUP_PAGES`](crate::GROUP_PAGES), which the next range may continue.
    /// Both views have the list. Reads no pages, and of the map what was written since the views'
    /// histories parted.
    ///
    /// # Errors
    /// As [`Self::changed_lists`].
    fn changed_pages(&self, a: View, b: View, list: Lid, from: u64) -> Result<Option<Range<u64>>>;

    /// The lists in which each of `views` may differ from the one before it: pairs of the view's
    /// index and a list, in their order. There are `max` at most, which are all that there are
    /// below the returned index; that is 1 if those of the first two views are more.
    ///
    /// # Errors
    /// As [`Self::changed_lists`].
    fn changes_along(&self, views: &[View], max: usize) -> Result<(Vec<(usize, Lid)>, usize)> {
        let mut all = Vec::new();
        for (index, pair) in (1..).zip(views.windows(2)) {
            let left = max - all.len();
            let most = left.saturating_add(1);
            let lists = self.changed_lists(pair[0], pair[1], Lid(0), most)?;
            if lists.len() > left {
                return Ok((all, index));
            }
            all.extend(lists.into_iter().map(|list| (index, list)));
        }
        Ok((all, views.len()))
    }
}

/// Makes a client, filled by `fill`, which is given its head. It is there whole or not at all,
/// after a crash too.
///
/// # Errors
/// As [`Versions::new_client`], and those of `fill`.
pub fn make_client<D: Versions + ?Sized, E: From<Error>>(
    disk: &D,
    name: &str,
    kind: ClientKind,
    fill: impl FnOnce(&D, View) -> std::result::Result<(), E>,
) -> std::result::Result<Branch, E> {
    disk.versions().check_branch_name(name, None)?;
    let head = disk.begin_receive(None, Some(kind))?.head();
    let made = fill(disk, head).and_then(|()| Ok(disk.name_client(head.branch, name)?));
    // The error that matters is the other. What is left here is deleted by the next opening.
    made.inspect_err(|_| drop(disk.delete(head)))
}

/// Deletes what a crash has left of clients and of received versions that were only begun, and that
/// are not kept to be gone on with. None may be made or received meanwhile.
///
/// # Errors
/// As [`Versions::delete`].
pub fn abandon<D: Versions + ?Sized>(disk: &D) -> Result<()> {
    let table = disk.versions();
    let begun =
        table.branches().filter(|branch| branch.is_receiving() && branch.receive_note().is_none());
    begun.map(Branch::head).try_for_each(|head| disk.delete(head))
}
