//! Versions of a disk: snapshots, and branches that go on from them.
//!
//! A **branch** is a line of history with a writable head. A new disk has one, number 0. A
//! **snapshot** is a moment of a branch that stays readable. Time is counted in **epochs**: each
//! snapshot ends one, so a pair of branch and epoch names a moment for good. A branch is made from
//! a moment, or from a head, and sees what was there; from then on the two go their own ways.
//!
//! Making either takes one small record, whatever the disk holds. Each is a commit, in the order of
//! all commits, and durable after a flush.
//!
//! [`VersionTable`] has the rules in full.

use dendro_base::Timestamp;

use crate::{Error, LogicalDisk, Result, View};

mod table;

pub use table::VersionTable;

/// The longest name of a snapshot or branch, in bytes; the shortest has one.
pub const MAX_NAME_LEN_BYTES: usize = 255;

/// The name of the branch that a new disk has.
pub const MAIN: &str = "main";

/// A moment that stays readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its branch.
    pub branch: u32,
    /// The last epoch that it sees.
    pub epoch: u64,
    /// When it was made.
    pub time: Timestamp,
    /// Its name, unlike all other snapshots'; `None` for one that was made by itself, for a rule
    /// of retention to thin out.
    pub name: Option<String>,
    /// Whether it must not be deleted.
    pub is_held: bool,
}

impl Snapshot {
    /// What names it in calls that read.
    #[must_use]
    pub const fn view(&self) -> View {
        View { branch: self.branch, epoch: Some(self.epoch) }
    }
}

/// A line of history with a writable head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its number, never given out again.
    pub branch: u32,
    /// Its name, unlike all other branches'.
    pub name: String,
    /// The branch and the epoch that it was made from; `None` for the first.
    pub parent: Option<(u32, u64)>,
    /// When it was made.
    pub time: Timestamp,
}

impl Branch {
    /// What names its head.
    #[must_use]
    pub const fn head(&self) -> View {
        View { branch: self.branch, epoch: None }
    }
}

/// Says whether a snapshot or a branch can be called `name`: from 1 to [`MAX_NAME_LEN_BYTES`] bytes,
/// and nothing that means something else where versions are named (`target:branch@snapshot`,
/// `@epoch`, `@-15m`, `a..b`) or where they are directories.
///
/// # Errors
/// [`Error::BadName`], which says what is wrong.
pub fn check_name(name: &str) -> Result<()> {
    let why = match name {
        "" => "it is empty",
        "head" => "it stands for the head",
        "." => "it stands for a directory itself",
        _ if name.len() > MAX_NAME_LEN_BYTES => "it is longer than 255 bytes",
        _ if name.contains("..") => "'..' stands between the two ends of a range",
        _ if name.starts_with('-') => "a leading '-' starts a time before now",
        _ if name.contains(['/', '@', ':']) => "'/', '@' and ':' stand between names",
        _ if name.contains(char::is_control) => "it has control characters",
        _ if name.bytes().all(|byte| byte.is_ascii_digit()) => "it would be taken for an epoch",
        _ => return Ok(()),
    };
    Err(Error::BadName(name.to_owned(), why))
}

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
    fn changed_lists(
        &self,
        a: View,
        b: View,
        from: crate::Lid,
        max: usize,
    ) -> Result<Vec<crate::Lid>>;
}
