//! The paths of files in one view, found upwards from what their i-nodes name.

use std::collections::{HashMap, HashSet};

use dendro_disk::{LogicalDisk, View};

use super::tree::{Entry, Tree, check_depth};
use crate::error::Result;
use crate::types::{FileKind, Ino};

/// A directory, and a name in it.
pub(super) type Place = (Ino, Vec<u8>);

/// The path of a file in a view. It is found only in the directory that the file's i-node names:
/// `None` if that directory does not have it, or if there is no such file.
///
/// # Errors
/// Errors of the disk.
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

/// Paths in one view, with a cache of directories.
pub(super) struct Paths<'d> {
    tree: Tree<'d>,
    /// The paths of directories, without a slash at the end. The path of the root is empty.
    directories: HashMap<Ino, Vec<u8>>,
    /// The names in directories that were listed, by the files that they name.
    listings: HashMap<Ino, HashMap<Ino, Vec<Vec<u8>>>>,
}

impl<'d> Paths<'d> {
    pub(super) fn new(tree: Tree<'d>) -> Self {
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

    /// The path of a directory; `None` if it has none, because it was removed.
    fn of_directory(&mut self, dir: Ino) -> Result<Option<Vec<u8>>> {
        // A loop, not a recursion, so that no depth is too much for the stack.
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

    /// The path of a name in a directory.
    pub(super) fn of_place(&mut self, (dir, name): &Place) -> Result<Vec<u8>> {
        // A directory that has entries has a path, unless the tree is damaged.
        let dir = self.of_directory(*dir)?.unwrap_or_else(|| format!("/<i-node {dir}>").into());
        Ok([&dir, b"/".as_slice(), name].concat())
    }

    /// The path of each of `inos` that has one. If the directory that an i-node names does not have
    /// the file any more, all directories are searched. That finds all paths of the file.
    pub(super) fn of_files(&mut self, inos: &HashSet<Ino>) -> Result<HashMap<Ino, Vec<Vec<u8>>>> {
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
            self.search_all(&lost, &mut found)?;
        }
        Ok(found)
    }

    fn search_all(
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
