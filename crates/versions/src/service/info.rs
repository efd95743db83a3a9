//! Versions as replies describe them.

use std::collections::HashMap;

use dendro_control::versions::{
    AncestorInfo, BranchInfo, ChangeInfo, FileInfo, HistoryInfo, RemovedInfo, SnapshotInfo,
    UsageInfo, path_text,
};
use dendro_disk::{Branch, Snapshot, VersionTable, VersionUsage, View};
use dendro_fs::Attr;
use dendro_fs::versions::{Change, PathVersion, Removed};

use super::kept_name;

pub(super) fn branch(branch: &Branch, table: &VersionTable) -> BranchInfo {
    BranchInfo {
        branch: branch.branch,
        name: branch.name.clone(),
        main: branch.branch == table.main,
        parent: branch.parent.map(|(parent, _)| parent),
        parent_epoch: branch.parent.map(|(_, epoch)| epoch),
        created_unix_ns: branch.time.0,
        client_kind: None,
        replaced: None,
    }
}

/// A branch that is known only by its place in the history.
pub(super) fn ancestor(branch: u32, parent: Option<(u32, u64)>) -> AncestorInfo {
    AncestorInfo {
        branch,
        parent: parent.map(|(parent, _)| parent),
        parent_epoch: parent.map(|(_, epoch)| epoch),
    }
}

pub(super) fn snapshot(snapshot: &Snapshot) -> SnapshotInfo {
    SnapshotInfo {
        branch: snapshot.branch,
        epoch: snapshot.epoch,
        name: snapshot.name.clone(),
        created_unix_ns: snapshot.time.0,
        held: snapshot.is_held,
        branch_name: None,
    }
}

/// For each branch, the branches with a head that have it in their ancestry: the last epoch of it
/// that each sees, and the name. Of several, the main branch comes first, then the oldest.
pub(super) fn descendants(table: &VersionTable) -> HashMap<u32, Vec<(u64, String)>> {
    let mut descendants: HashMap<u32, Vec<(u64, String)>> = HashMap::new();
    let main = table.branch(table.main).into_iter();
    for branch in main.chain(table.branches()) {
        let mut next = Some((branch.branch, u64::MAX));
        while let Some((at, last_epoch)) = next {
            let known = descendants.entry(at).or_default();
            let is_known = !known.is_empty();
            if known.iter().all(|(epoch, _)| *epoch < last_epoch) {
                known.push((last_epoch, branch.name.clone()));
            }
            // If a branch was visited before, so were the branches behind it.
            next = table.parent(at).filter(|(parent, _)| !is_known && *parent < at);
        }
    }
    descendants
}

/// The same as [`snapshot`], with the name of the branch in whose past it is.
pub(super) fn snapshot_of(
    of: &Snapshot,
    table: &VersionTable,
    descendants: &HashMap<u32, Vec<(u64, String)>>,
) -> SnapshotInfo {
    let own = table.branch(of.branch).map(|branch| branch.name.clone());
    let in_past = || {
        let (_, name) = descendants.get(&of.branch)?.iter().find(|(last, _)| of.epoch <= *last)?;
        Some(name.clone())
    };
    let kept = || kept_name::branch_of(of.name.as_deref()?, table);
    SnapshotInfo { branch_name: own.or_else(in_past).or_else(kept), ..snapshot(of) }
}

/// The name of a version, if it has one.
pub(super) fn name(view: View, table: &VersionTable) -> Option<String> {
    // What is noted of a version that is being received is no name.
    let title = |branch: &Branch| match branch.receive_note() {
        Some(note) => branch.name[..branch.name.len() - note.len() - 1].to_owned(),
        None => branch.name.clone(),
    };
    let of_branch = table.branch_of(view).map(title);
    of_branch.or_else(|| table.snapshot_of(view).and_then(|snapshot| snapshot.name.clone()))
}

/// A version as the command line names it: by its name, or else by its epoch.
pub(super) fn called(view: View, table: &VersionTable) -> String {
    match (name(view, table), view.epoch) {
        (Some(name), Some(_)) => format!("@{name}"),
        (Some(name), None) => format!(":{name}"),
        (None, Some(epoch)) => format!("@{epoch}"),
        (None, None) => "a branch that is gone".into(),
    }
}

pub(super) fn usage(usage: &VersionUsage, table: &VersionTable) -> UsageInfo {
    UsageInfo {
        branch: usage.view.branch,
        epoch: usage.view.epoch,
        name: name(usage.view, table),
        exclusive_bytes: usage.exclusive_bytes,
        seen_bytes: usage.seen_bytes,
        seen_plain_bytes: Some(usage.seen_plain_bytes),
    }
}

pub(super) fn change(change: &Change) -> ChangeInfo {
    ChangeInfo {
        change: change.sign(),
        kind: change.kind().name().to_owned(),
        path: path_text(change.path()),
        old_path: match change {
            Change::Renamed { from, .. } => Some(path_text(from)),
            _ => None,
        },
    }
}

fn file(attr: &Attr) -> FileInfo {
    FileInfo {
        inode: attr.ino.0,
        kind: attr.kind.name().to_owned(),
        size_bytes: attr.size_bytes,
        modified_unix_s: attr.mtime.secs,
        modified_ns: attr.mtime.nanos,
    }
}

pub(super) fn history(version: &PathVersion, table: &VersionTable) -> HistoryInfo {
    HistoryInfo {
        branch: version.view.branch,
        epoch: version.view.epoch,
        snapshot: version.view.epoch.and_then(|_| name(version.view, table)),
        since_unix_ns: version.since.map(|time| time.0),
        until_unix_ns: version.until.map(|time| time.0),
        snapshots: version.snapshot_count,
        file: version.attr.as_ref().map(file),
    }
}

pub(super) fn removed(removed: &Removed) -> RemovedInfo {
    RemovedInfo {
        name: path_text(&removed.name),
        snapshot: snapshot(&removed.snapshot),
        file: file(&removed.attr),
    }
}
