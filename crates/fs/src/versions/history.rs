//! The versions of the file at a path, and the names that a directory had.

use std::collections::{BTreeMap, HashSet};

use dendro_base::Timestamp;
use dendro_disk::{Snapshot, Versions, View};

use super::tree::Tree;
use crate::error::{FsError, Result};
use crate::types::{Attr, Credentials, FileTime, Ino};

/// A version of what a path names: the same file in successive views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathVersion {
    /// The newest view that has this version.
    pub view: View,
    /// When that view was created; `None` for a head, which is now.
    pub until: Option<Timestamp>,
    /// When the oldest snapshot with this version was created; `None` if only a head has it.
    pub since: Option<Timestamp>,
    /// How many snapshots have this version.
    pub snapshot_count: usize,
    /// The attributes of the file; `None` if the path named nothing.
    pub attr: Option<Attr>,
}

/// The versions of the file at `path` in `view` and in the snapshots that `view` descends from,
/// newest first. Successive views with the same file are one version. Reading a file makes no new
/// version. Views in which `user` may not go to `path` are skipped.
///
/// # Errors
/// [`NoSuchView`](dendro_disk::Error::NoSuchView), [`FsError::NameTooLong`]; [`FsError::Denied`] if
/// `user` may go there in no view; errors of the disk.
pub fn history(
    disk: &dyn Versions,
    view: View,
    path: &[u8],
    user: Option<&Credentials>,
) -> Result<Vec<PathVersion>> {
    let table = disk.versions();
    table.check(view)?;
    let mut versions: Vec<PathVersion> = Vec::new();
    let mut denied = None;
    let head = view.epoch.is_none().then_some((view, None));
    let past = table.past(view).into_iter().map(|snapshot| (snapshot.view(), Some(snapshot.time)));
    for (view, time) in head.into_iter().chain(past) {
        let attr = match attr_at(disk, view, path, user) {
            // Retention deleted it since it was listed.
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
    user: Option<&Credentials>,
) -> Result<Option<Attr>> {
    let tree = Tree::new(disk, view)?.seen_by(user);
    let Some(ino) = tree.resolve(path)? else { return Ok(None) };
    Ok(tree.inode(ino)?.map(|inode| inode.attr(ino)))
}

fn same(one: Option<&Attr>, other: Option<&Attr>) -> bool {
    let without_atime = |attr: &Attr| Attr { atime: FileTime::default(), ..*attr };
    one.map(without_atime) == other.map(without_atime)
}

/// A name that a directory had and does not have any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The name.
    pub name: Vec<u8>,
    /// The newest snapshot that has the name.
    pub snapshot: Snapshot,
    /// The attributes of the file that it named there.
    pub attr: Attr,
}

/// The names that the directory `path` had in a snapshot that `view` descends from and does not
/// have in `view`, in order. If the directory itself does not exist any more, these are all its
/// names. Snapshots in which `user` may not list the directory are skipped.
///
/// # Errors
/// [`NoSuchView`](dendro_disk::Error::NoSuchView), [`FsError::NameTooLong`]; [`FsError::Denied`] if
/// `user` may not list it in `view`; errors of the disk.
pub fn removed(
    disk: &dyn Versions,
    view: View,
    path: &[u8],
    user: Option<&Credentials>,
) -> Result<Vec<Removed>> {
    let table = disk.versions();
    table.check(view)?;
    let now = Tree::new(disk, view)?.seen_by(user);
    let mut current = HashSet::new();
    if let Some(dir) = now.resolve(path)? {
        current.extend(now.entries(dir)?.into_iter().map(|entry| entry.name));
    }
    let mut found = BTreeMap::new();
    let mut newer = None;
    for snapshot in table.past(view) {
        let added = Tree::new(disk, snapshot.view()).and_then(|tree| {
            let tree = tree.seen_by(user);
            add_removed(&tree, snapshot, path, &current, &mut newer, &mut found)
        });
        match added {
            // Retention deleted it since it was listed.
            Err(FsError::Disk(dendro_disk::Error::NoSuchView(_)) | FsError::Denied(_)) => {}
            other => other?,
        }
    }
    Ok(found.into_values().collect())
}

/// Adds the names that `snapshot` has and no newer snapshot has. `newer` is the state of the
/// directory in the snapshot before: if it is the same here, there is nothing to add.
fn add_removed(
    tree: &Tree<'_>,
    snapshot: &Snapshot,
    path: &[u8],
    current: &HashSet<Vec<u8>>,
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
        if current.contains(&entry.name) || found.contains_key(&entry.name) {
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
