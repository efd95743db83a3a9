//! What a disk with versions does.

use super::table::VersionTable;
use super::version::{Branch, Snapshot};
use crate::error::Result;
use crate::logical_disk::LogicalDisk;
use crate::types::{Lid, View};

/// What a version takes of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The version.
    pub view: View,
    /// Bytes that deleting it alone would free.
    pub exclusive_bytes: u64,
    /// Bytes of what it sees.
    pub seen_bytes: u64,
}

/// A disk with versions.
///
/// Besides those named with each call, every change can answer [`Error::ReadOnly`],
/// [`Error::Failed`], [`Error::NoSpace`], [`Error::Corrupted`] and [`Error::Io`]. What is wrong is
/// looked for in the order in which the errors are named; what is refused changes nothing.
///
/// Every read takes any view that exists; a commit takes heads alone. A view of a snapshot names it
/// exactly: epochs between two snapshots cannot be read.
///
/// The number of a list that was deleted can be used again only when no version has the list, nor
/// a moment that a branch was made from.
///
/// [`Error::ReadOnly`]: crate::Error::ReadOnly
/// [`Error::Failed`]: crate::Error::Failed
/// [`Error::NoSpace`]: crate::Error::NoSpace
/// [`Error::Corrupted`]: crate::Error::Corrupted
/// [`Error::Io`]: crate::Error::Io
pub trait Versions: LogicalDisk {
    /// All versions, as they are now.
    fn versions(&self) -> VersionTable;

    /// Keeps what the head of `branch` is now. Without a name it is one that a rule of retention
    /// thins out.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView), [`BadName`](crate::Error::BadName),
    /// [`NameTaken`](crate::Error::NameTaken).
    fn snapshot(&self, branch: u32, name: Option<&str>) -> Result<Snapshot>;

    /// Makes a branch that goes on from `view`, a head or a snapshot.
    ///
    /// # Errors
    /// As [`Self::snapshot`].
    fn branch_off(&self, view: View, name: &str) -> Result<Branch>;

    /// Gives another name to the snapshot or the head that `view` names; a snapshot that had none
    /// becomes one that stays.
    ///
    /// # Errors
    /// As [`Self::snapshot`].
    fn rename(&self, view: View, name: &str) -> Result<()>;

    /// Says whether a snapshot must not be deleted.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView).
    fn hold(&self, view: View, is_held: bool) -> Result<()>;

    /// Deletes a snapshot, or a branch's head. What nobody else sees is freed in the background.
    /// What branches were made from stays for them.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView); [`InUse`](crate::Error::InUse) for the main
    /// branch and for what is held.
    fn delete(&self, view: View) -> Result<()>;

    /// Makes `branch` the one that is meant where none is named, under that one's name, which
    /// takes this one's.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView).
    fn promote(&self, branch: u32) -> Result<()>;

    /// Puts a new branch that goes on from the snapshot `to` in the place of `branch`, whose head
    /// is deleted: its name, and being the main one, go over. Snapshots stay, later ones too, and
    /// `to` may be one of these, or of another line of history.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView).
    fn roll_back(&self, branch: u32, to: View) -> Result<Branch>;

    /// What each snapshot and each head takes. Goes through the whole map.
    ///
    /// # Errors
    /// [`Corrupted`](crate::Error::Corrupted), [`Io`](crate::Error::Io).
    fn shares(&self) -> Result<Vec<Share>>;

    /// Bytes that deleting all of these would free: what several of them share, and nobody else, is
    /// in nobody's share. Goes through the whole map.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView), [`Corrupted`](crate::Error::Corrupted),
    /// [`Io`](crate::Error::Io).
    fn freed_by(&self, views: &[View]) -> Result<u64>;

    /// Up to `max` lists, with numbers from `from` on, in which the two views may differ. Reads no
    /// data; may look at all that there is to say where data lies.
    ///
    /// # Errors
    /// [`NoSuchView`](crate::Error::NoSuchView), [`Corrupted`](crate::Error::Corrupted),
    /// [`Io`](crate::Error::Io).
    fn changed_lists(&self, a: View, b: View, from: Lid, max: usize) -> Result<Vec<Lid>>;
}
