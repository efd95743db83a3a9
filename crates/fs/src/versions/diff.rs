//! What changed between two views.
//!
//! The disk tells which lists may differ, in time that grows with the changes. A name that came or
//! went is in a directory that differs; the path of a file that differs is found upwards, from the
//! directory that its i-node names. Only for a file that is not there any more under that
//! directory (one of several names was taken away) all directories are looked through, once.

use std::collections::{BTreeMap, HashMap, HashSet};

use dendro_disk::{Lid, LogicalDisk, Versions, View};

use super::{Entry, Tree, check_depth};
use crate::error::Result;
use crate::format::FIRST_FILE_LIST;
use crate::inode::Inode;
use crate::permission::Who;
use crate::types::{FileKind, FileTime, Ino};

/// How many lists are asked for at a time.
const BATCH_LEN: usize = 1024;

/// One difference. Paths begin with a slash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A name that only the old view has.
    Removed {
        /// The path.
        path: Vec<u8>,
        /// What it named.
        kind: FileKind,
    },
    /// A name that only the new view has.
    Added {
        /// The path.
        path: Vec<u8>,
        /// What it names.
        kind: FileKind,
    },
    /// A file that is not as it was, or a directory, when names in it or its attributes changed.
    Modified {
        /// The path in the new view.
        path: Vec<u8>,
        /// What it is.
        kind: FileKind,
    },
    /// A file that has another name. What is in a directory that was renamed is not told.
    Renamed {
        /// The path in the old view.
        from: Vec<u8>,
        /// The path in the new view.
        path: Vec<u8>,
        /// What it is.
        kind: FileKind,
    },
}

impl Change {
    /// The path in the new view, or in the old one of what is not in that.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Removed { path, .. }
            | Self::Added { path, .. }
            | Self::Modified { path, .. }
            | Self::Renamed { path, .. } => path,
        }
    }

    /// What it is about.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        match self {
            Self::Removed { kind, .. }
            | Self::Added { kind, .. }
            | Self::Modified { kind, .. }
            | Self::Renamed { kind, .. } => *kind,
        }
    }

    /// The sign that zfs has for it: `-`, `+`, `M` or `R`.
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

/// What changed from the view `old` to the view `new`, in order of paths.
///
/// # Errors
/// [`NoSuchView`](dendro_disk::Error::NoSuchView);
/// [`FsError::Corrupted`](crate::FsError::Corrupted); what the disk says.
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
            names.compare_directory(&trees, ino, before.as_ref(), after.as_ref())?;
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
        // A file that is only held open has no path.
        for path in found.remove(&ino).unwrap_or_default() {
            changes.push(Change::Modified { path, kind: after.kind });
        }
    }
    changes.sort_by(|one, other| one.path().cmp(other.path()).then(one.cmp(other)));
    Ok(join_replacements(changes))
}

/// Of `changes`, which [`diff()`] has told of the two views, those that `who` can come to see: a name by
/// listing the directories on the way to it. What is seen in one of the views alone is as if it were in that
/// alone.
///
/// # Errors
/// As [`diff()`].
pub fn seen(
    disk: &dyn LogicalDisk,
    old: View,
    new: View,
    changes: Vec<Change>,
    who: &Who,
) -> Result<Vec<Change>> {
    let old = Tree::new(disk, old)?.seen_by(Some(who));
    let new = Tree::new(disk, new)?.seen_by(Some(who));
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

/// Tells a file that another one took the place of, as programs do that write files anew, as one
/// that was modified.
fn join_replacements(changes: Vec<Change>) -> Vec<Change> {
    let mut joined: Vec<Change> = Vec::with_capacity(changes.len());
    for change in changes {
        // A removal is before an addition of the same path.
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

/// Whether somebody would call the file changed: not by reading it, nor, when that is told already,
/// by naming it otherwise.
fn differs(before: &Inode, after: &Inode, is_moved: bool) -> bool {
    let bare = |inode: &Inode| {
        let mut inode = Inode { atime: FileTime::default(), parent: 0, ..inode.clone() };
        if is_moved {
            inode.ctime = FileTime::default();
        }
        // A directory's tells of what is in it.
        if is_moved && inode.kind != FileKind::Directory {
            inode.nlink = 0;
        }
        inode
    };
    bare(before) != bare(after)
}

/// A name in a directory.
type Place = (Ino, Vec<u8>);

/// The names that went and came, by what they name.
#[derive(Default)]
struct Names {
    gone: BTreeMap<(Ino, FileKind), Vec<Place>>,
    come: BTreeMap<(Ino, FileKind), Vec<Place>>,
}

impl Names {
    fn compare_directory(
        &mut self,
        trees: &(Tree<'_>, Tree<'_>),
        dir: Ino,
        before: Option<&Inode>,
        after: Option<&Inode>,
    ) -> Result<()> {
        let entries = |tree: &Tree<'_>, inode: Option<&Inode>| -> Result<HashSet<Entry>> {
            match inode {
                // A directory that was removed may be there still, as an orphan: it is empty.
                Some(inode) if inode.kind == FileKind::Directory => {
                    Ok(tree.entries(dir)?.into_iter().collect())
                }
                _ => Ok(HashSet::new()),
            }
        };
        let (before, after) = (entries(&trees.0, before)?, entries(&trees.1, after)?);
        for Entry { name, ino, kind } in before.difference(&after).cloned() {
            self.gone.entry((ino, kind)).or_default().push((dir, name));
        }
        for Entry { name, ino, kind } in after.difference(&before).cloned() {
            self.come.entry((ino, kind)).or_default().push((dir, name));
        }
        Ok(())
    }

    /// Tells the names that came and went; those of one file as its being renamed, as far as there
    /// are pairs. Answers which files are named otherwise than before.
    fn report(
        mut self,
        (old, new): &mut (Paths<'_>, Paths<'_>),
        changes: &mut Vec<Change>,
    ) -> Result<HashSet<Ino>> {
        let mut moved = HashSet::new();
        for ((ino, kind), mut gone) in self.gone {
            moved.insert(ino);
            let mut come = self.come.remove(&(ino, kind)).unwrap_or_default();
            gone.sort();
            come.sort();
            let pairs = gone.len().min(come.len());
            for (from, to) in gone.drain(..pairs).zip(come.drain(..pairs)) {
                let (from, path) = (old.of_place(&from)?, new.of_place(&to)?);
                changes.push(Change::Renamed { from, path, kind });
            }
            for place in gone {
                changes.push(Change::Removed { path: old.of_place(&place)?, kind });
            }
            for place in come {
                changes.push(Change::Added { path: new.of_place(&place)?, kind });
            }
        }
        for ((ino, kind), come) in self.come {
            moved.insert(ino);
            for place in come {
                changes.push(Change::Added { path: new.of_place(&place)?, kind });
            }
        }
        Ok(moved)
    }
}

/// The path of a file in a view, where the directory that its i-node names has it; `None` where it does not, or
/// there is no such file.
///
/// # Errors
/// What the disk says.
pub fn path_of(disk: &dyn LogicalDisk, view: View, ino: Ino) -> Result<Option<Vec<u8>>> {
    if ino == Ino::ROOT {
        return Ok(Some(b"/".to_vec()));
    }
    let mut paths = Paths::new(Tree::new(disk, view)?);
    let Some(inode) = paths.tree.inode(ino)? else { return Ok(None) };
    if inode.kind == FileKind::Directory {
        return paths.of_directory(ino);
    }
    let parent = Ino(inode.parent);
    let Some(name) = paths.names(parent, ino)?.iter().min().cloned() else { return Ok(None) };
    let dir = paths.of_directory(parent)?;
    Ok(dir.map(|dir| [&dir, b"/".as_slice(), &name].concat()))
}

/// Paths in one view, remembered.
struct Paths<'d> {
    tree: Tree<'d>,
    /// The paths of directories, without a slash at the end; the root's is empty.
    directories: HashMap<Ino, Vec<u8>>,
    /// The names in directories that were looked through.
    listings: HashMap<Ino, HashMap<Ino, Vec<Vec<u8>>>>,
}

impl<'d> Paths<'d> {
    fn new(tree: Tree<'d>) -> Self {
        let directories = HashMap::from([(Ino::ROOT, Vec::new())]);
        Self { tree, directories, listings: HashMap::new() }
    }

    /// The names that `ino` has in `dir`.
    fn names(&mut self, dir: Ino, ino: Ino) -> Result<&[Vec<u8>]> {
        if !self.listings.contains_key(&dir) {
            let mut listing: HashMap<_, Vec<_>> = HashMap::new();
            for entry in self.tree.entries(dir)? {
                listing.entry(entry.ino).or_default().push(entry.name);
            }
            self.listings.insert(dir, listing);
        }
        Ok(self.listings[&dir].get(&ino).map_or(&[], |names| names))
    }

    /// The path of a directory; `None` when it has none, as one that was removed.
    fn of_directory(&mut self, dir: Ino) -> Result<Option<Vec<u8>>> {
        // Down from the root, so that no depth is too much for the stack.
        let (mut at, mut below) = (dir, Vec::new());
        while !self.directories.contains_key(&at) {
            check_depth(below.len())?;
            let Some(inode) = self.tree.inode(at)? else { return Ok(None) };
            below.push(at);
            at = Ino(inode.parent);
        }
        while let Some(next) = below.pop() {
            let Some(name) = self.names(at, next)?.first().cloned() else { return Ok(None) };
            let path = [&self.directories[&at], b"/".as_slice(), &name].concat();
            self.directories.insert(next, path);
            at = next;
        }
        Ok(self.directories.get(&dir).cloned())
    }

    fn of_place(&mut self, (dir, name): &Place) -> Result<Vec<u8>> {
        // A directory with names in it has one, or the tree is damaged.
        let dir = self.of_directory(*dir)?.unwrap_or_else(|| format!("/<i-node {dir}>").into());
        Ok([&dir, b"/".as_slice(), name].concat())
    }

    /// The path of each of `inos` that has one. Where the directory that it names does not have it
    /// any more, everything is looked through, which finds all paths.
    fn of_files(&mut self, inos: &HashSet<Ino>) -> Result<HashMap<Ino, Vec<Vec<u8>>>> {
        let mut found: HashMap<Ino, Vec<Vec<u8>>> = HashMap::new();
        let mut lost = HashSet::new();
        for &ino in inos {
            if ino == Ino::ROOT {
                found.insert(ino, vec![b"/".to_vec()]);
                continue;
            }
            let Some(inode) = self.tree.inode(ino)? else { continue };
            let parent = Ino(inode.parent);
            let name = self.names(parent, ino)?.iter().min().cloned();
            let dir = if name.is_some() { self.of_directory(parent)? } else { None };
            match (name, dir) {
                (Some(name), Some(dir)) => {
                    found.insert(ino, vec![[&dir, b"/".as_slice(), &name].concat()]);
                }
                _ if inode.nlink > 0 => {
                    lost.insert(ino);
                }
                _ => {}
            }
        }
        if !lost.is_empty() {
            self.look_everywhere(&lost, &mut found)?;
        }
        Ok(found)
    }

    fn look_everywhere(
        &self,
        wanted: &HashSet<Ino>,
        found: &mut HashMap<Ino, Vec<Vec<u8>>>,
    ) -> Result<()> {
        let mut dirs = vec![(Ino::ROOT, Vec::new(), 0)];
        while let Some((dir, path, depth)) = dirs.pop() {
            check_depth(depth)?;
            for Entry { name, ino, kind } in self.tree.entries(dir)? {
                let path = [&path, b"/".as_slice(), &name].concat();
                if wanted.contains(&ino) {
                    found.entry(ino).or_default().push(path.clone());
                }
                if kind == FileKind::Directory {
                    dirs.push((ino, path, depth + 1));
                }
            }
        }
        Ok(())
    }
}
