//! The reasons that can end a walk over the map or a change of it.

use dendro_disk::{Error, Lid};
use dendro_format::NodePtr;

/// The reason why a step could not be done now.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A node is not in memory. The caller loads it without holding a lock, and tries again.
    Miss(NodePtr),
    /// Other versions see pages of this group of the list, so the head must get copies of its own
    /// first.
    Shared(Lid, u64),
    /// A list is made of whose number a deleted list has left much. The unit must begin an epoch,
    /// which tells the two apart.
    NeedsNewEpoch,
    /// A list is received of whose number a removal is not finished. It must be finished first.
    BeingRemoved(Lid),
    /// The pages of a list are being rearranged. That must be finished first.
    Rearranged,
    /// The step cannot be done.
    Error(Error),
    /// The log contains a part of a unit of which the state has nothing, so no other unit may
    /// follow.
    Unfinished(Error),
}

impl Fault {
    /// The error for a caller that cannot try again.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Error(error) | Self::Unfinished(error) => error,
            Self::Miss(place) => {
                Error::Corrupted(format!("the map's node at {} was not loaded", place.addr))
            }
            Self::NeedsNewEpoch => {
                Error::Corrupted("a list is made again in the epoch in which it was deleted".into())
            }
            Self::BeingRemoved(list) => Error::ListExists(list),
            Self::Rearranged => Error::Corrupted("pages are looked at that are rearranged".into()),
            Self::Shared(list, _) => {
                Error::Corrupted(format!("pages of list {list} are moved that other versions see"))
            }
        }
    }
}

impl Fault {
    /// The fault as it counts when a part of the unit is in the log.
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

/// The error for a write that failed because the host has no room. Such a write can be tried again,
/// so it does not latch the disk.
pub(crate) fn no_space(error: &dendro_device::Error, len_bytes: u64) -> Option<Error> {
    error.is_no_space().then_some(Error::NoSpace { needed_bytes: len_bytes, available_bytes: 0 })
}
