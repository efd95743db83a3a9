//! What was true in one view and need not be in another.

use std::collections::BTreeMap;

use dendro_disk::{Lid, Versions, View};

use super::{BATCH_LEN, Tree};
use crate::error::Result;
use crate::format::FIRST_FILE_LIST;
use crate::types::{FileKind, Ino};

/// Something that is not to be believed any more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stale {
    /// Attributes and data of an i-node.
    Inode(Ino),
    /// What a name in a directory names, or that it names nothing.
    Entry {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// What it named, if that is no directory, and nothing in the other view.
        gone: Option<Ino>,
    },
}

/// What a cache that was filled from `old` must drop before it shows `new`: everything in which they
/// differ, access times included, and perhaps more. Takes time in proportion to that.
///
/// # Errors
/// What the disk says.
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

/// A name, and the file that has gone with it.
type Changed = (Vec<u8>, Option<Ino>);

/// The names in `dir`, as far as it is a directory, that name something else in one of the trees.
fn changed_names(trees: &[Tree<'_>; 2], dir: Ino) -> Result<Vec<Changed>> {
    let names = |tree: &Tree<'_>| {
        let is_directory = tree.inode(dir)?.is_some_and(|inode| inode.kind == FileKind::Directory);
        let entries = if is_directory { tree.entries(dir)? } else { Vec::new() };
        let named = entries.into_iter().map(|entry| (entry.name, (entry.ino, entry.kind)));
        Ok::<_, crate::FsError>(named.collect::<BTreeMap<_, _>>())
    };
    let [old, new] = [names(&trees[0])?, names(&trees[1])?];
    let mut changed = Vec::new();
    for (name, (ino, kind)) in old.iter().filter(|(name, named)| new.get(*name) != Some(named)) {
        let is_gone = *kind != FileKind::Directory && trees[1].inode(*ino)?.is_none();
        changed.push((name.clone(), is_gone.then_some(*ino)));
    }
    let come = new.keys().filter(|name| !old.contains_key(*name));
    changed.extend(come.map(|name| (name.clone(), None)));
    Ok(changed)
}
