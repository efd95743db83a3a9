//! Snapshots, branches, and their names.

use dendro_base::{ClientKind, Origin, Timestamp};

use crate::error::{Error, Result};
use crate::types::View;

/// The longest name of a snapshot or branch, in bytes; the shortest has one.
pub const MAX_NAME_LEN_BYTES: usize = 255;

/// The name of the branch that a new disk has.
pub const MAIN: &str = "main";

/// The number of the client that a disk was made for.
pub const FIRST_CLIENT: u32 = 0;

/// One of those who keep something on a disk. Its versions and its lists have nothing to do with
/// those of other clients: lists of two clients may have the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its number, that of the branch that it began with.
    pub number: u32,
    /// What it keeps; `None` for the first client, which describes that itself.
    pub kind: Option<ClientKind>,
    /// The branch whose name is its own; `None` if all its heads were deleted.
    pub head: Option<u32>,
    /// Its versions: the heads, then the snapshots.
    pub views: Vec<View>,
}

/// A moment that stays readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its branch.
    pub branch: u32,
    /// The last epoch that is visible in it.
    pub epoch: u64,
    /// When it was made.
    pub time: Timestamp,
    /// Its name, which no other snapshot has. `None` for one that was made automatically, and that
    /// retention may delete.
    pub name: Option<String>,
    /// Whether it must not be deleted.
    pub is_held: bool,
    /// Where it was made, if it was received from another disk.
    pub origin: Option<Origin>,
}

impl Snapshot {
    /// The view that reads it.
    #[must_use]
    pub const fn view(&self) -> View {
        View { branch: self.branch, epoch: Some(self.epoch) }
    }

    /// What it is called, as people and commands name it: by its name, or by its epoch.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("@{name}"),
            None => format!("@{}", self.epoch),
        }
    }
}

/// A history with a writable head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its number, which is never used again.
    pub branch: u32,
    /// Its name, which no other branch has.
    pub name: String,
    /// The branch and the epoch that it was made from; `None` for the first.
    pub parent: Option<(u32, u64)>,
    /// When it was made.
    pub time: Timestamp,
}

/// What the name of a branch begins with into which a version is being received. No name that can
/// be given does.
const RECEIVING: &str = "receive:";

impl Branch {
    /// The name of a branch with this number into which a version is received.
    pub(super) fn receiving_name(branch: u32) -> String {
        format!("{RECEIVING}{branch}")
    }

    /// The same with a note of how far it was received.
    pub(super) fn noted_name(branch: u32, note: &str) -> String {
        format!("{RECEIVING}{branch}:{note}")
    }

    /// What [`Versions::note_receive`](crate::Versions::note_receive) noted last: what is received
    /// into it is to be kept, as it can be gone on with.
    #[must_use]
    pub fn receive_note(&self) -> Option<&str> {
        self.name.strip_prefix(RECEIVING)?.split_once(':').map(|(_, note)| note)
    }

    /// Whether a version is being received into it: what its head has is not complete.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        self.name.starts_with(RECEIVING)
    }

    /// The view of its head.
    #[must_use]
    pub const fn head(&self) -> View {
        View { branch: self.branch, epoch: None }
    }
}

/// Checks whether `name` can be the name of a snapshot or a branch. It has from 1 to
/// [`MAX_NAME_LEN_BYTES`] bytes, and no other meaning where versions are named
/// (`target:branch@snapshot`, `@epoch`, `@-15m`, `a..b`) or are directories.
///
/// # Errors
/// [`Error::BadName`] with the reason.
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
