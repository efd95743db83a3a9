//! The files of this view that have no name and are still in use.

use std::collections::BTreeMap;

use dendro_base::sync::Mutex;

use crate::types::Ino;

/// The orphans that are in use. Each is on the disk's orphan list, too.
#[derive(Debug, Default)]
pub(crate) struct OrphanSet {
    /// Each orphan, and whether it may be given a name: only one that never had a name may.
    orphans: Mutex<BTreeMap<Ino, bool>>,
}

impl OrphanSet {
    /// Adds a file that lost its last name. It cannot be linked again.
    pub(crate) fn insert_unlinked(&self, ino: Ino) {
        self.orphans.lock().insert(ino, false);
    }

    /// Adds a file that was created without a name (`O_TMPFILE`). It may be linked.
    pub(crate) fn insert_unnamed(&self, ino: Ino) {
        self.orphans.lock().insert(ino, true);
    }

    /// Removes a file that was deleted, or linked.
    pub(crate) fn remove(&self, ino: Ino) {
        self.orphans.lock().remove(&ino);
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
        self.orphans.lock().get(&ino) == Some(&true)
    }

    /// Whether there are no orphans.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.orphans.lock().is_empty()
    }
}
