//! What can stop a walk over the map.

use dendro_disk::Error;
use dendro_format::NodePtr;

/// Why a step could not be done now.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A node is not in memory: load it without holding a lock, and try again.
    Miss(NodePtr),
    /// It cannot be done at all.
    Error(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

pub(crate) type Outcome<T> = std::result::Result<T, Fault>;
