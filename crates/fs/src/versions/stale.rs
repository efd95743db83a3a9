//! What a cache must drop when it shows another view.

use std::collections::BTreeMap;

use dendro_disk::{Lid, Versions, View};

use super::tree::{BATCH_LEN, Tree};
use crate::error::{FsError, Result};
use crate::layout::format::FIRST_FILE_LIST;
use crate::types::{FileKind, Ino};

/// Something that is no longer valid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stale {
    /// The attributes and data of an i-node.
    Inode(Ino),
    /// A name in a directory, or that there is no such name.
    Entry {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// The file that it named, if the new view does not have that file, and if it is not a
        /// directory.
        gone: Option<Ino>,
    },
}

/// What a cache that was filled from `old` must drop before it shows `new`: everything in which the
/// views differ, access times included, and perhaps more. This takes time in proportion to the
/// differences.
///
/// # Errors
/// Errors of the disk.
pub fn stale(disk: &dyn Versions, old: View, new: View) -> Result<Vec<Stale>> {
    let trees = [Tree::new(disk, old)?, Tree::new(disk, new)?];
    let mut stale = Vec::new();
    let mut from = Lid::FIRST;
    loop {
        let lists = disk.changed_lists(old, new, from, BATCH_LEN)?;
        for &list in &lists {
            let ino = Ino(list.0);
            if ino != Ino::ROOT && list < FIRST_FILE_LIST {
                continue;
            }
            stale.push(Stale::Inode(ino));
            let names = changed_names(&trees, ino)?;
            stale.extend(names.into_iter().map(|(name, gone)| Stale::Entry {
                parent: ino,
                name,
                gone,
            }));
        }
        match lists.last() {
            Some(last) if lists.len() == BATCH_LEN => from = Lid(last.0 + 1),
            _ => return Ok(stale),
        }
    }
}

/// A name, and the file that no longer exists in the new view.
type Changed = (Vec<u8>, Option<Ino>);

/// The names in `dir` that name different files in the two trees; none if it is not a directory.
fn changed_names(trees: &[Tree<'_>; 2], dir: Ino) -> Result<Vec<Changed>> {
    let names = |tree: &Tree<'_>| {
        let is_directory = tree.inode(dir)?.is_some_and(|inode| inode.kind == FileKind::Directory);
        let entries = if is_directory { tree.entries(dir)? } else { Vec::new() };
        let named = entries.into_iter().map(|entry| (entry.name, (entry.ino, entry.kind)));
        Ok::<_, FsError>(named.collect::<BTreeMap<_, _>>())
    };
    let [old, new] = [names(&trees[0])?, names(&trees[1])?];
    let mut changed = Vec::new();
    for (name, (ino, kind)) in old.iter().filter(|(name, named)| new.get(*name) != Some(named)) {
        let is_gone = *kind != FileKind::Directory && trees[1].inode(*ino)?.is_none();
        changed.push((name.clone(), is_gone.then_some(*ino)));
    }
    let added = new.keys().filter(|name| !old.contains_key(*name));
    changed.extend(added.map(|name| (name.clone(), None)));
    Ok(changed)
}
