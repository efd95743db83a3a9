//! The paths of files whose i-node numbers are known, for tools that report damage.
//!
//! It uses only the disk's interface, as the verifier does. Of the tree it keeps only which
//! directory is in which. It skips what is damaged, since some paths are better than none.

use std::collections::{BTreeMap, BTreeSet};

use dendro_disk::{Error as DiskError, Lid, LogicalDisk, View};

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

/// The paths of the `wanted` files in `view`, from its root. For each file that has a path these
/// are all its paths, sorted.
///
/// # Errors
/// Errors of the disk, except damage.
pub fn paths_of(
    disk: &dyn LogicalDisk,
    view: View,
    wanted: &BTreeSet<Ino>,
) -> Result<BTreeMap<Ino, Vec<Vec<u8>>>> {
    let mut directories: BTreeMap<Ino, Entry> = BTreeMap::new();
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
                let named = || (ino, entry.name.to_vec());
                if entry.kind == FileKind::Directory {
                    directories.insert(entry.ino, named());
                }
                if wanted.contains(&entry.ino) {
                    found.entry(entry.ino).or_default().push(named());
                }
            })?;
        }
        match batch.last() {
            Some(last) => from = Lid(last.0 + 1),
            None => break,
        }
    }
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

/// Calls `take` with the entries of a directory; with none if it is not a directory, or damaged.
fn each_entry(
    disk: &dyn LogicalDisk,
    view: View,
    ino: Ino,
    mut take: impl FnMut(&dirent::Entry<'_>),
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
            dirent::entries(record).map_while(Result::ok).for_each(|entry| take(&entry));
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
