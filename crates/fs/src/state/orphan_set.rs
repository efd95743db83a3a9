//! The files of this view that have no name and are still in use.

use std::collections::BTreeMap;

use dendro_base::sync::Mutex;
use dendro_disk::ExpectedRelease;

use crate::types::Ino;

/// The orphans that are in use. Each is on the disk's orphan list, too.
#[derive(Debug, Default)]
pub(crate) struct OrphanSet {
    orphans: Mutex<BTreeMap<Ino, Orphan>>,
}

#[derive(Debug)]
enum Orphan {
    /// It has lost its last name. Most such files have no user any more either, and the kernel is
    /// about to tell.
    Unlinked(ExpectedRelease),
    /// It never had a name, and may be given one.
    Unnamed,
}

impl OrphanSet {
    /// Adds a file that lost its last name, so that its space is expected to be given back. It
    /// cannot be linked again.
    pub(crate) fn insert_unlinked(&self, ino: Ino, expected: ExpectedRelease) {
        self.orphans.lock().insert(ino, Orphan::Unlinked(expected));
    }

    /// Adds a file that was created without a name (`O_TMPFILE`). It may be linked.
    pub(crate) fn insert_unnamed(&self, ino: Ino) {
        self.orphans.lock().insert(ino, Orphan::Unnamed);
    }

    /// Removes a file that is about to be deleted, or was linked. Returns what was expected; it
    /// must be kept until the deletion has been committed.
    pub(crate) fn remove(&self, ino: Ino) -> Option<ExpectedRelease> {
        match self.orphans.lock().remove(&ino)? {
            Orphan::Unlinked(expected) => Some(expected),
            Orphan::Unnamed => None,
        }
    }

    /// Removes all files.
    pub(crate) fn clear(&self) {
        self.orphans.lock().clear();
    }

    /// Whether the file is an orphan.
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.orphans.lock().contains_key(&ino)
    }

    /// Whether the file is an orphan that may be linked.
    pub(crate) fn is_linkable(&self, ino: Ino) -> bool {
        matches!(self.orphans.lock().get(&ino), Some(Orphan::Unnamed))
    }

    /// Whether there are no orphans.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.orphans.lock().is_empty()
    }
}
