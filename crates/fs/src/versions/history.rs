//! What a path named in the past, and what a directory had.

use std::collections::{BTreeMap, HashSet};

use dendro_base::Timestamp;
use dendro_disk::{Snapshot, Versions, View};

use super::Tree;
use crate::error::{FsError, Result};
use crate::permission::Who;
use crate::types::{Attr, FileTime, Ino};

/// What a path named for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathVersion {
    /// The newest view that has it.
    pub view: View,
    /// When that was made; `None` for a head, which is now.
    pub until: Option<Timestamp>,
    /// When the oldest snapshot was made that has it; `None` when only a head has it.
    pub since: Option<Timestamp>,
    /// How many snapshots have it.
    pub snapshot_count: usize,
    /// What it was; `None` when the path named nothing.
    pub attr: Option<Attr>,
}

/// The versions of what `path` named on the line of history that ends in `view`, newest first:
/// successive views that have the same count as one. Reading a file makes no version of it. Views in which
/// `who` may not go there are passed over.
///
/// # Errors
/// [`NoSuchView`](dendro_disk::Error::NoSuchView), [`FsError::NameTooLong`]; [`FsError::Denied`] when `who`
/// may go there in no view; what the disk says.
pub fn history(
    disk: &dyn Versions,
    view: View,
    path: &[u8],
    who: Option<&Who>,
) -> Result<Vec<PathVersion>> {
    let table = disk.versions();
    table.check(view)?;
    let mut versions: Vec<PathVersion> = Vec::new();
    let mut denied = None;
    let head = view.epoch.is_none().then_some((view, None));
    let past = table.past(view).into_iter().map(|snapshot| (snapshot.view(), Some(snapshot.time)));
    for (view, time) in head.into_iter().chain(past) {
        let attr = match attr_at(disk, view, path, who) {
            // Deleted by retention since it was listed.
            Err(FsError::Disk(dendro_disk::Error::NoSuchView(_))) => continue,
            Err(error @ FsError::Denied(_)) => {
                denied = Some(error);
                continue;
            }
            other => other?,
        };
        let is_snapshot = usize::from(time.is_some());
        match versions.last_mut() {
            Some(newer) if same(newer.attr.as_ref(), attr.as_ref()) => {
                newer.since = time;
                newer.snapshot_count += is_snapshot;
            }
            _ => versions.push(PathVersion {
                view,
                until: time,
                since: time,
                snapshot_count: is_snapshot,
                attr,
            }),
        }
    }
    match denied.filter(|_| versions.is_empty()) {
        Some(error) => Err(error),
        None => Ok(versions),
    }
}

fn attr_at(
    disk: &dyn Versions,
    view: View,
    path: &[u8],
    who: Option<&Who>,
) -> Result<Option<Attr>> {
    let tree = Tree::new(disk, view)?.seen_by(who);
    let Some(ino) = tree.resolve(path)? else { return Ok(None) };
    Ok(tree.inode(ino)?.map(|inode| inode.attr(ino)))
}

fn same(one: Option<&Attr>, other: Option<&Attr>) -> bool {
    let but_for_reading = |attr: &Attr| Attr { atime: FileTime::default(), ..*attr };
    one.map(but_for_reading) == other.map(but_for_reading)
}

/// A name that a directory had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The name.
    pub name: Vec<u8>,
    /// The newest snapshot that has it.
    pub snapshot: Snapshot,
    /// What it named there.
    pub attr: Attr,
}

/// The names that the directory `path` had at some moment in the past of `view` and does not have
/// in `view`, in order. All of them, when the directory itself is gone. Moments in which `who` may not list
/// it are passed over.
///
/// # Errors
/// [`NoSuchView`](dendro_disk::Error::NoSuchView), [`FsError::NameTooLong`]; [`FsError::Denied`] when `who`
/// may not list it in `view`; what the disk says.
pub fn removed(
    disk: &dyn Versions,
    view: View,
    path: &[u8],
    who: Option<&Who>,
) -> Result<Vec<Removed>> {
    let table = disk.versions();
    table.check(view)?;
    let now = Tree::new(disk, view)?.seen_by(who);
    let mut present = HashSet::new();
    if let Some(dir) = now.resolve(path)? {
        present.extend(now.entries(dir)?.into_iter().map(|entry| entry.name));
    }
    let mut found = BTreeMap::new();
    let mut newer = None;
    for snapshot in table.past(view) {
        let added = Tree::new(disk, snapshot.view()).and_then(|tree| {
            let tree = tree.seen_by(who);
            add_removed(&tree, snapshot, path, &present, &mut newer, &mut found)
        });
        match added {
            // Deleted by retention since it was listed.
            Err(FsError::Disk(dendro_disk::Error::NoSuchView(_)) | FsError::Denied(_)) => {}
            other => other?,
        }
    }
    Ok(found.into_values().collect())
}

/// Enters what `snapshot` has and no newer one has. `newer` is the directory as the one looked at
/// before had it: one that did not change since has nothing more.
fn add_removed(
    tree: &Tree<'_>,
    snapshot: &Snapshot,
    path: &[u8],
    present: &HashSet<Vec<u8>>,
    newer: &mut Option<(Ino, FileTime, FileTime, u64)>,
    found: &mut BTreeMap<Vec<u8>, Removed>,
) -> Result<()> {
    let Some(dir) = tree.resolve(path)? else { return Ok(()) };
    let Some(inode) = tree.inode(dir)? else { return Ok(()) };
    let state = Some((dir, inode.mtime, inode.ctime, inode.size));
    if *newer == state {
        return Ok(());
    }
    let entries = tree.entries(dir)?;
    *newer = state;
    for entry in entries {
        if present.contains(&entry.name) || found.contains_key(&entry.name) {
            continue;
        }
        if let Some(inode) = tree.inode(entry.ino)? {
            let attr = inode.attr(entry.ino);
            let removed = Removed { name: entry.name.clone(), snapshot: snapshot.clone(), attr };
            found.insert(entry.name, removed);
        }
    }
    Ok(())
}
