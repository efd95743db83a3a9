//! The paths of files whose i-node numbers are known, for tools that report damage.
//!
//! It uses only the disk's interface, as the verifier does. Of the tree it keeps only which
//! directory is in which, in the verifier's table; names are read again of those directories that
//! are on paths. It skips what is damaged, since some paths are better than none.

use std::collections::{BTreeMap, BTreeSet};

use dendro_disk::{Error as DiskError, Lid, LogicalDisk, View};

use crate::check::Table;
use crate::error::Result;
use crate::layout::dirent;
use crate::layout::format::{DIR_BASE, FIRST_FILE_LIST, HEAD_INDEX};
use crate::layout::inode::Inode;
use crate::types::{FileKind, Ino};

/// How many lists or records a walk reads at a time.
const BATCH_LEN: usize = 256;

/// The most directories on a path: the directories of a damaged tree may have a loop.
const MAX_DEPTH: usize = 4096;

/// A directory, and a name in it.
type Entry = (Ino, Vec<u8>);

/// The most paths of one file.
const MAX_PATHS: usize = 1000;

/// The paths of the `wanted` files in `view`, from its root. For each file that has a path these
/// are its paths, sorted; of a file with more than 1,000 so many of them. What is kept about
/// directories takes `memory_bytes` at most, and else a temporary file.
///
/// # Errors
/// Errors of the disk, except damage, and of the temporary file.
pub fn paths_of(
    disk: &dyn LogicalDisk,
    view: View,
    wanted: &BTreeSet<Ino>,
    memory_bytes: u64,
) -> Result<BTreeMap<Ino, Vec<Vec<u8>>>> {
    let mut parents = Table::new(memory_bytes);
    let mut found: BTreeMap<Ino, Vec<Entry>> = BTreeMap::new();
    let mut from = Lid(0);
    loop {
        let batch = disk.lists(view, from, BATCH_LEN)?;
        for &list in &batch {
            if list != Ino::ROOT.lid() && list < FIRST_FILE_LIST {
                continue;
            }
            let ino = Ino(list.0);
            each_entry(disk, view, ino, |entry| {
                if wanted.contains(&entry.ino) {
                    let of_file = found.entry(entry.ino).or_default();
                    if of_file.len() < MAX_PATHS {
                        of_file.push((ino, entry.name.to_vec()));
                    }
                }
                match entry.kind {
                    FileKind::Directory => parents.change(entry.ino, |facts| facts.set_parent(ino)),
                    _ => Ok(()),
                }
            })?;
        }
        match batch.last() {
            Some(last) => from = Lid(last.0 + 1),
            None => break,
        }
    }
    let in_directories = found.values().flatten().map(|(directory, _)| *directory);
    let directories = named(disk, view, in_directories, &mut parents)?;
    let path = |(parent, name): Entry| path_below(&directories, parent, &name);
    let mut paths = BTreeMap::new();
    for (ino, entries) in found {
        let mut of_file: Vec<Vec<u8>> = entries.into_iter().filter_map(path).collect();
        of_file.sort();
        if !of_file.is_empty() {
            paths.insert(ino, of_file);
        }
    }
    if wanted.contains(&Ino::ROOT) {
        paths.insert(Ino::ROOT, vec![b"/".to_vec()]);
    }
    Ok(paths)
}

/// The entries of `directories`, and of all directories on the way to the root.
fn named(
    disk: &dyn LogicalDisk,
    view: View,
    directories: impl Iterator<Item = Ino>,
    parents: &mut Table,
) -> Result<BTreeMap<Ino, Entry>> {
    let mut children: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
    for directory in directories {
        let mut at = directory;
        while at != Ino::ROOT {
            let parent = parents.get(at)?.parent();
            // Without a parent it is in no directory. Or somebody was here.
            if parent == Ino(0) || !children.entry(parent).or_default().insert(at) {
                break;
            }
            at = parent;
        }
    }
    let mut named = BTreeMap::new();
    for (parent, of_parent) in children {
        each_entry(disk, view, parent, |entry| {
            if entry.kind == FileKind::Directory && of_parent.contains(&entry.ino) {
                named.insert(entry.ino, (parent, entry.name.to_vec()));
            }
            Ok(())
        })?;
    }
    Ok(named)
}

/// Calls `take` with the entries of a directory; with none if it is not a directory, or damaged.
fn each_entry(
    disk: &dyn LogicalDisk,
    view: View,
    ino: Ino,
    mut take: impl FnMut(&dirent::Entry<'_>) -> Result<()>,
) -> Result<()> {
    let Some(record) = readable(disk.record(view, ino.lid(), HEAD_INDEX))?.flatten() else {
        return Ok(());
    };
    if !Inode::decode(ino, &record).is_ok_and(|inode| inode.kind == FileKind::Directory) {
        return Ok(());
    }
    let mut from = DIR_BASE;
    loop {
        let Some(batch) = readable(disk.records(view, ino.lid(), from, BATCH_LEN))? else {
            return Ok(());
        };
        for (_, record) in &batch {
            dirent::entries(record).map_while(Result::ok).try_for_each(|entry| take(&entry))?;
        }
        match batch.last().and_then(|(last, _)| last.checked_add(1)) {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

/// The result, or `None` if the data are damaged.
fn readable<T>(answer: dendro_disk::Result<T>) -> Result<Option<T>> {
    match answer {
        Err(DiskError::Corrupted(_) | DiskError::Io(_)) => Ok(None),
        other => Ok(other.map(Some)?),
    }
}

fn path_below(directories: &BTreeMap<Ino, Entry>, parent: Ino, name: &[u8]) -> Option<Vec<u8>> {
    let mut names = vec![name];
    let mut at = parent;
    while at != Ino::ROOT {
        if names.len() > MAX_DEPTH {
            return None;
        }
        let (above, name) = directories.get(&at)?;
        names.push(name);
        at = *above;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Some(path)
}
