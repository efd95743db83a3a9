//! The file system below a kernel that collects, and its states.

use std::collections::BTreeMap;

use dendro_base::sync::Arc;
use dendro_fs::testing::Tree;

use super::contents::Contents;
use super::kernel::Bug;
use crate::files::{FsState, FsSystem};

/// The file system below a kernel that collects what programs write, with the work that is done.
#[derive(Clone, Debug)]
pub struct CollectedSystem<E> {
    /// The file system.
    pub files: FsSystem<E>,
    /// A mistake of the kernel.
    pub bug: Option<Bug>,
}

/// A moment of the work.
#[derive(Clone, Debug)]
pub struct CollectedState {
    /// What programs see.
    pub(super) seen: FsState,
    /// The files, by all their paths, of which something is collected.
    pub(super) collected: BTreeMap<String, Arc<Contents>>,
    /// What snapshots have, by their epochs.
    pub(super) snapshots: BTreeMap<u64, Arc<Tree>>,
}

/// What is found.
#[derive(Debug)]
pub struct Found {
    pub(super) tree: Tree,
    pub(super) snapshots: BTreeMap<u64, Tree>,
}

impl CollectedState {
    /// How what was found differs from what may be found in this state.
    pub(super) fn difference(&self, found: &Found) -> Option<String> {
        let mut tree = found.tree.clone();
        for (path, contents) in &self.collected {
            let (here, seen) = (tree.nodes.get_mut(path), self.seen.tree.nodes.get(path));
            if let (Some(here), Some(seen)) = (here, seen)
                && contents.allows(here, seen)
            {
                here.clone_from(seen);
            }
        }
        if let Some(difference) = tree.difference(&self.seen.tree) {
            return Some(difference);
        }
        if !found.snapshots.keys().eq(self.snapshots.keys()) {
            let (have, want) = (found.snapshots.keys(), self.snapshots.keys());
            return Some(format!("snapshots {have:?} rather than {want:?}"));
        }
        let pairs = found.snapshots.iter().zip(self.snapshots.values());
        let differ = |((epoch, have), want): ((&u64, &Tree), &Arc<Tree>)| {
            have.difference(want).map(|how| format!("in snapshot {epoch}: {how}"))
        };
        pairs.filter_map(differ).next()
    }
}
