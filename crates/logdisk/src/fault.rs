//! What can stop a walk over the map.

use dendro_disk::{Error, Lid};
use dendro_format::NodePtr;

/// Why a step could not be done now.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A node is not in memory: load it without holding a lock, and try again.
    Miss(NodePtr),
    /// The head must have copies of its own of this group of a list's pages first.
    Shared(Lid, u64),
    /// Nothing must be left first of a deleted list of this number.
    NotYetRemoved(u64),
    /// It cannot be done at all.
    Error(Error),
    /// The log holds a part of a unit of which the state has nothing: no other may follow.
    Unfinished(Error),
}

impl Fault {
    /// What it is for those who cannot try again.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Error(error) | Self::Unfinished(error) => error,
            Self::Miss(place) => {
                Error::Corrupted(format!("the map's node at {} was not loaded", place.addr))
            }
            Self::NotYetRemoved(list) => {
                Error::Corrupted(format!("list {list} is made again before it was removed"))
            }
            Self::Shared(list, _) => {
                Error::Corrupted(format!("pages of list {list} are moved that other versions see"))
            }
        }
    }
}

impl Fault {
    /// What it is when a part of the unit is in the log.
    pub(crate) fn unfinished(self) -> Self {
        Self::Unfinished(self.into_error())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

pub(crate) type Outcome<T> = std::result::Result<T, Fault>;

/// What a failed write is to those who can try it again: not the end of writing, if what is below the
/// device has no room.
pub(crate) fn no_space(error: &dendro_device::Error, len_bytes: u64) -> Option<Error> {
    error.is_no_space().then_some(Error::NoSpace { needed_bytes: len_bytes, available_bytes: 0 })
}
