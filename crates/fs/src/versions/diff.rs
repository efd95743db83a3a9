//! What changed between two views.
//!
//! The disk reports which lists may differ, in time that grows with the changes. A name that was
//! added or removed is in a directory that differs. The path of a file that differs is found
//! upwards, from the directory that its i-node names. All directories are searched, once, only for
//! a file that is not in that directory any more (because one of several names was removed).

use std::collections::{BTreeMap, HashSet};

use dendro_disk::{Lid, LogicalDisk, Versions, View};

use super::paths_in_view::{Paths, Place};
use super::tree::{Entry, Tree};
use crate::error::Result;
use crate::layout::format::{DIR_BASE, FIRST_FILE_LIST};
use crate::layout::inode::{Inode, InodeState};
use crate::types::{Credentials, FileKind, FileTime, Ino};

/// How many lists are requested at a time.
const BATCH_LEN: usize = 1024;

/// A difference between two views. Paths begin with a slash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A name exists only in the old view.
    Removed {
        /// The path.
        path: Vec<u8>,
        /// The kind of the file that it named.
        kind: FileKind,
    },
    /// A name exists only in the new view.
    Added {
        /// The path.
        path: Vec<u8>,
        /// The kind of the file that it names.
        kind: FileKind,
    },
    /// A file changed, or a directory whose attributes or entries changed.
    Modified {
        /// The path in the new view.
        path: Vec<u8>,
        /// The kind of the file.
        kind: FileKind,
    },
    /// A file has another name. Files inside a renamed directory are not reported.
    Renamed {
        /// The path in the old view.
        from: Vec<u8>,
        /// The path in the new view.
        path: Vec<u8>,
        /// The kind of the file.
        kind: FileKind,
    },
}

impl Change {
    /// The path in the new view, or in the old one for a name that was removed.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Removed { path, .. }
            | Self::Added { path, .. }
            | Self::Modified { path, .. }
            | Self::Renamed { path, .. } => path,
        }
    }

    /// The kind of the file that changed.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        match self {
            Self::Removed { kind, .. }
            | Self::Added { kind, .. }
            | Self::Modified { kind, .. }
            | Self::Renamed { kind, .. } => *kind,
        }
    }

    /// The sign that zfs-diff(8) uses for it: `-`, `+`, `M` or `R`.
    #[must_use]
    pub const fn sign(&self) -> char {
        match self {
            Self::Removed { .. } => '-',
            Self::Added { .. } => '+',
            Self::Modified { .. } => 'M',
            Self::Renamed { .. } => 'R',
        }
    }
}

/// What changed from the view `old` to the view `new`, in the order of paths.
///
/// # Errors
/// [`NoSuchView`](dendro_disk::Error::NoSuchView);
/// [`FsError::Corrupted`](crate::FsError::Corrupted); errors of the disk.
pub fn diff(disk: &dyn Versions, old: View, new: View) -> Result<Vec<Change>> {
    let trees = (Tree::new(disk, old)?, Tree::new(disk, new)?);
    let mut names = Names::default();
    let mut modified = Vec::new();
    let mut from = Lid::FIRST;
    loop {
        let lists = disk.changed_lists(old, new, from, BATCH_LEN)?;
        let Some(last) = lists.last() else { break };
        from = Lid(last.0 + 1);
        for list in lists {
            let ino = Ino(list.0);
            if ino != Ino::ROOT && list < FIRST_FILE_LIST {
                continue;
            }
            let (before, after) = (trees.0.inode(ino)?, trees.1.inode(ino)?);
            let inodes = (before.as_ref(), after.as_ref());
            names.compare_directory(disk, (old, new), &trees, ino, inodes)?;
            if let (Some(before), Some(after)) = (before, after) {
                modified.push((ino, before, after));
            }
        }
    }
    let mut paths = (Paths::new(trees.0), Paths::new(trees.1));
    let mut changes = Vec::new();
    let moved = names.report(&mut paths, &mut changes)?;
    modified.retain(|(ino, before, after)| differs(before, after, moved.contains(ino)));
    let inos = modified.iter().map(|(ino, ..)| *ino).collect();
    let mut found = paths.1.of_files(&inos)?;
    for (ino, _, after) in modified {
        // A file that exists only because it is open has no path.
        for path in found.remove(&ino).unwrap_or_default() {
            changes.push(Change::Modified { path, kind: after.kind });
        }
    }
    changes.sort_by(|one, other| one.path().cmp(other.path()).then(one.cmp(other)));
    Ok(join_replacements(changes))
}

/// Of the `changes` that [`diff()`] found between the two views, those that `user` may see. A name
/// is visible if the user can list the directories on its path. A name that is visible in only one
/// of the views is reported as if it existed only there.
///
/// # Errors
/// As [`diff()`].
pub fn seen(
    disk: &dyn LogicalDisk,
    old: View,
    new: View,
    changes: Vec<Change>,
    user: &Credentials,
) -> Result<Vec<Change>> {
    let old = Tree::new(disk, old)?.seen_by(Some(user));
    let new = Tree::new(disk, new)?.seen_by(Some(user));
    let mut seen = Vec::with_capacity(changes.len());
    for change in changes {
        let from = match &change {
            Change::Renamed { from, .. } => from,
            other => other.path(),
        };
        let is_in_old = !matches!(change, Change::Added { .. }) && old.shows(from)?;
        let is_in_new = !matches!(change, Change::Removed { .. }) && new.shows(change.path())?;
        let kind = change.kind();
        seen.extend(match (is_in_old, is_in_new) {
            (true, true) => Some(change),
            (true, false) => Some(Change::Removed { path: from.to_vec(), kind }),
            (false, true) => Some(Change::Added { path: change.path().to_vec(), kind }),
            (false, false) => None,
        });
    }
    Ok(seen)
}

/// Reports a file that was replaced by another one as modified. Many programs replace a file to
/// change it.
fn join_replacements(changes: Vec<Change>) -> Vec<Change> {
    let mut joined: Vec<Change> = Vec::with_capacity(changes.len());
    for change in changes {
        // The removal of a path is sorted before its addition.
        match (joined.last_mut(), change) {
            (Some(last @ Change::Removed { .. }), Change::Added { path, kind })
                if last.path() == path && last.kind() == kind && kind != FileKind::Directory =>
            {
                *last = Change::Modified { path, kind };
            }
            (_, change) => joined.push(change),
        }
    }
    joined
}

/// Whether the file counts as changed. Reading it does not count; nor does renaming it, which is
/// reported by itself.
fn differs(before: &Inode, after: &Inode, is_moved: bool) -> bool {
    let bare = |inode: &Inode| {
        // What is still to be freed of a file is nothing that anybody sees.
        let state = inode.state - InodeState::FREEING;
        let atime = FileTime::default();
        let mut inode = Inode { atime, parent: 0, state, punched: None, ..inode.clone() };
        if is_moved {
            inode.ctime = FileTime::default();
        }
        // The link count of a directory changes with its subdirectories, which counts.
        if is_moved && inode.kind != FileKind::Directory {
            inode.nlink = 0;
        }
        inode
    };
    bare(before) != bare(after)
}

/// The names that were removed and added, by the files that they name.
#[derive(Default)]
struct Names {
    removed: BTreeMap<(Ino, FileKind), Vec<Place>>,
    added: BTreeMap<(Ino, FileKind), Vec<Place>>,
}

impl Names {
    /// Compares the entries of `dir` in the two views.
    fn compare_directory(
        &mut self,
        disk: &dyn Versions,
        (old, new): (View, View),
        trees: &(Tree<'_>, Tree<'_>),
        dir: Ino,
        inodes: (Option<&Inode>, Option<&Inode>),
    ) -> Result<()> {
        // A directory that was removed may still exist as an orphan. It is empty.
        let is_directory =
            |inode: Option<&Inode>| inode.is_some_and(|inode| inode.kind == FileKind::Directory);
        let (mut before, mut after) = (HashSet::new(), HashSet::new());
        match (is_directory(inodes.0), is_directory(inodes.1)) {
            // A name is in the same record in both views.
            (true, true) => {
                let mut from = Some(DIR_BASE);
                while let Some(first) = from {
                    let records = disk.changed_records(old, new, dir.lid(), first, BATCH_LEN)?;
                    for index in &records {
                        before.extend(trees.0.entries_at(dir, *index)?);
                        after.extend(trees.1.entries_at(dir, *index)?);
                    }
                    let is_last = records.len() < BATCH_LEN;
                    from = records.last().filter(|_| !is_last).and_then(|at| at.checked_add(1));
                }
            }
            (true, false) => before.extend(trees.0.entries(dir)?),
            (false, true) => after.extend(trees.1.entries(dir)?),
            (false, false) => {}
        }
        for Entry { name, ino, kind } in before.difference(&after).cloned() {
            self.removed.entry((ino, kind)).or_default().push((dir, name));
        }
        for Entry { name, ino, kind } in after.difference(&before).cloned() {
            self.added.entry((ino, kind)).or_default().push((dir, name));
        }
        Ok(())
    }

    /// Reports the names that were removed and added. A removed and an added name of the same file
    /// are reported together, as a rename. Returns the files whose names changed.
    fn report(
        mut self,
        (old, new): &mut (Paths<'_>, Paths<'_>),
        changes: &mut Vec<Change>,
    ) -> Result<HashSet<Ino>> {
        let mut moved = HashSet::new();
        for ((ino, kind), mut removed) in self.removed {
            moved.insert(ino);
            let mut added = self.added.remove(&(ino, kind)).unwrap_or_default();
            removed.sort();
            added.sort();
            let pairs = removed.len().min(added.len());
            for (from, to) in removed.drain(..pairs).zip(added.drain(..pairs)) {
                let (from, path) = (old.of_place(&from)?, new.of_place(&to)?);
                changes.push(Change::Renamed { from, path, kind });
            }
            for place in removed {
                changes.push(Change::Removed { path: old.of_place(&place)?, kind });
            }
            for place in added {
                changes.push(Change::Added { path: new.of_place(&place)?, kind });
            }
        }
        for ((ino, kind), added) in self.added {
            moved.insert(ino);
            for place in added {
                changes.push(Change::Added { path: new.of_place(&place)?, kind });
            }
        }
        Ok(moved)
    }
}
