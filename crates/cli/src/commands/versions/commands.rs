//! Commands about versions.

use std::collections::HashMap;

use dendro_control::versions::{
    BranchInfo, DeletedInfo, SnapshotInfo, VersionList, VersionName, VersionsReply, VersionsRequest,
};
use dendro_daemon::{local_time, text};
use dendro_versions::name;
use serde::Serialize;

use crate::args::versions::{CloneArgs, SnapshotArgs, SnapshotVerb};
use crate::failure::{Failure, usage as wrong_usage};
use crate::output::local_time::time;
use crate::output::{self, columns, json};
use crate::target::{self, Keeper, Place, unexpected};

pub(crate) fn snapshot(args: &SnapshotArgs, quiet: bool) -> Result<(), Failure> {
    match &args.verb {
        SnapshotVerb::Create { target, json } => create(target, *json, quiet),
        SnapshotVerb::List { target, named, json } => list(target, *named, *json),
        SnapshotVerb::Delete { target, more, dry_run, verbose, json } => {
            delete_versions(target, more, [*dry_run, *verbose || *dry_run, *json])
        }
        SnapshotVerb::Rename { target, name, json } => rename_version(target, name, *json),
        SnapshotVerb::Hold { target, json } => hold(target, true, *json),
        SnapshotVerb::Release { target, json } => hold(target, false, *json),
    }
}

/// Renames the version that `target` names.
pub(crate) fn rename_version(target: &str, name: &str, as_json: bool) -> Result<(), Failure> {
    let old = change(target, |of| VersionsRequest::Rename { of, name: name.to_owned() })?;
    let sign = if old.moment.is_some() { '@' } else { ':' };
    print_renamed(named(&old), format!("{sign}{name}"), as_json)
}

/// Reports what a version is called now, if that is wanted.
pub(crate) fn print_renamed(
    old_version: String,
    version: String,
    as_json: bool,
) -> Result<(), Failure> {
    if as_json { json::print(&Renamed { old_version, version }) } else { Ok(()) }
}

fn hold(target: &str, held: bool, as_json: bool) -> Result<(), Failure> {
    let of = change(target, |of| VersionsRequest::Hold { of, held })?;
    if as_json { json::print(&Held { version: named(&of), held }) } else { Ok(()) }
}

/// A renamed version.
#[derive(Serialize)]
struct Renamed {
    old_version: String,
    version: String,
}

/// A held or released snapshot.
#[derive(Serialize)]
struct Held {
    version: String,
    held: bool,
}

/// A version, as the user named it.
fn named(version: &VersionName) -> String {
    let branch = version.branch.as_ref().map(|name| format!(":{name}")).unwrap_or_default();
    let moment = version.moment.as_ref().map(|moment| format!("@{}", moment.text));
    branch + &moment.unwrap_or_default()
}

/// Deletes versions, and reports that if wanted, in words or as JSON.
pub(crate) fn delete_versions(
    target: &str,
    more: &[String],
    [dry_run, verbose, json]: [bool; 3],
) -> Result<(), Failure> {
    let deleted = delete(target, more, dry_run)?;
    print_deleted(&deleted, [dry_run, verbose, json])
}

/// Reports what was, or would be, deleted, if that is wanted.
pub(crate) fn print_deleted(
    deleted: &[DeletedInfo],
    [dry_run, verbose, json]: [bool; 3],
) -> Result<(), Failure> {
    match (json, verbose) {
        (true, _) => json::print_list("deleted", &deleted),
        (false, true) => output::print(&deleted_text(deleted, dry_run)),
        (false, false) => Ok(()),
    }
}

/// What a reply says that was, or would be, deleted.
pub(crate) fn deleted(reply: VersionsReply) -> Result<Vec<DeletedInfo>, Failure> {
    match reply {
        VersionsReply::Deleted(deleted) => Ok(deleted),
        other => Err(unexpected(&other)),
    }
}

fn create(target: &str, json: bool, quiet: bool) -> Result<(), Failure> {
    let Place { keeper, version, .. } = target::find_version(target)?;
    let name = version.moment.map(|moment| moment.text);
    let of = VersionName { branch: version.branch, moment: None };
    match keeper.ask(VersionsRequest::Snapshot { of, name })? {
        VersionsReply::Snapshot(made) if json => json::print(&made),
        // A name that the user chose need not be printed; a number must be.
        VersionsReply::Snapshot(made) if made.name.is_none() && !quiet => {
            output::print(&format!("@{}\n", made.epoch))
        }
        VersionsReply::Snapshot(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// All versions of a volume.
pub(crate) fn versions(keeper: &Keeper) -> Result<VersionList, Failure> {
    match keeper.ask(VersionsRequest::List)? {
        VersionsReply::List(list) => Ok(list),
        other => Err(unexpected(&other)),
    }
}

fn list(target: &str, only_named: bool, json: bool) -> Result<(), Failure> {
    let Place { keeper, version, path } = target::find_version(target)?;
    if version.moment.is_some() {
        let path = path.display();
        return Err(wrong_usage(format_args!(
            "{target}: lists are of a volume, {path}, or of a branch, as {path}:BRANCH; name no moment"
        )));
    }
    let mut list = versions(&keeper)?;
    if only_named {
        list.snapshots.retain(|snapshot| snapshot.name.is_some());
    }
    if let Some(name) = &version.branch {
        let branch = list.branches.iter().find(|branch| branch.name == *name);
        let number = branch.map(|branch| branch.branch).ok_or_else(|| {
            Failure::new(format_args!("{target}: there is no branch called {name}"))
        })?;
        list.branches.retain(|branch| branch.branch == number);
        list.snapshots.retain(|snapshot| snapshot.branch == number);
    }
    match json {
        true => json::print(&list),
        false => output::print(&list_text(&list)),
    }
}

fn list_text(list: &VersionList) -> String {
    let names: HashMap<u32, &str> =
        list.branches.iter().map(|branch| (branch.branch, &*branch.name)).collect();
    let branch_row = |branch: &BranchInfo| {
        // A version without a name lies in the past of the branch itself.
        let name = |of: u32| names.get(&of).copied().unwrap_or(&branch.name);
        let made_from = match (branch.parent, branch.parent_epoch) {
            (Some(parent), Some(epoch)) => format!("{}@{epoch}", name(parent)),
            _ => "-".into(),
        };
        let kind = if branch.main { "main branch" } else { "branch" };
        let kind = match &branch.client_kind {
            Some(of_client) => format!("{kind} ({of_client})"),
            None => kind.to_owned(),
        };
        [
            format!(":{}", branch.name),
            list.epoch.to_string(),
            time(branch.created_unix_ns),
            made_from,
            kind,
        ]
    };
    let snapshot_row = |snapshot: &SnapshotInfo| {
        let kind = match (&snapshot.name, snapshot.held) {
            (_, true) => "held",
            (Some(_), false) => "",
            (None, false) => "automatic",
        };
        [
            snapshot.name.as_ref().map_or_else(|| "-".into(), |name| format!("@{name}")),
            snapshot.epoch.to_string(),
            time(snapshot.created_unix_ns),
            // A deleted branch may have no name.
            snapshot.branch_name.clone().unwrap_or_else(|| "(gone)".into()),
            kind.to_owned(),
        ]
    };
    let rows: Vec<_> = list
        .branches
        .iter()
        .map(branch_row)
        .chain(list.snapshots.iter().map(snapshot_row))
        .collect();
    columns(["NAME", "EPOCH", "MADE", "OF", "KIND"], &rows, &[1])
}

fn delete(target: &str, more: &[String], dry_run: bool) -> Result<Vec<DeletedInfo>, Failure> {
    let Place { keeper, version, .. } = target::find_version(target)?;
    if version == VersionName::default() {
        return Err(wrong_usage(format_args!("{target}: say which, as in {target}@NAME")));
    }
    let mut versions = vec![version];
    let now = local_time::now()?;
    for text in more {
        let version = name::parse_version(text, &now).map_err(wrong_usage)?;
        versions.push(version);
    }
    deleted(keeper.ask(VersionsRequest::Delete { versions, dry_run })?)
}

fn deleted_text(deleted: &[DeletedInfo], dry_run: bool) -> String {
    let line = |of: &DeletedInfo| {
        let name = version_text(of.epoch, of.name.as_deref());
        match (dry_run, of.exclusive_bytes) {
            (true, Some(bytes)) => {
                format!("would delete {name}, which alone holds {}\n", text::size(bytes))
            }
            (true, None) => format!("would delete {name}\n"),
            (false, _) => format!("deleted {name}\n"),
        }
    };
    let together = match deleted {
        [_, .., last] => last.together_bytes,
        _ => None,
    };
    let together = together
        .map(|bytes| format!("together they hold {} that nothing else does\n", text::size(bytes)));
    deleted.iter().map(line).chain(together).collect()
}

pub(super) fn version_text(epoch: Option<u64>, name: Option<&str>) -> String {
    match (epoch, name) {
        (None, Some(name)) => format!(":{name}"),
        (_, Some(name)) => format!("@{name}"),
        (Some(epoch), None) => format!("@{epoch}"),
        (None, None) => "a branch".into(),
    }
}

/// Carries out a request that changes one named version; returns that version.
fn change(
    target: &str,
    request: impl FnOnce(VersionName) -> VersionsRequest,
) -> Result<VersionName, Failure> {
    let Place { keeper, version, .. } = target::find_version(target)?;
    if version == VersionName::default() {
        return Err(wrong_usage(format_args!("{target}: say which, as in {target}@NAME")));
    }
    match keeper.ask(request(version.clone()))? {
        VersionsReply::Done => Ok(version),
        other => Err(unexpected(&other)),
    }
}

/// The branch that was made.
fn made(reply: VersionsReply, json: bool) -> Result<(), Failure> {
    match reply {
        VersionsReply::Branch(made) if json => json::print(&made),
        VersionsReply::Branch(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn clone(args: &CloneArgs) -> Result<(), Failure> {
    let Place { keeper, version, .. } = target::find_version(&args.target)?;
    let request = VersionsRequest::Clone { of: version, name: args.name.clone() };
    made(keeper.ask(request)?, args.json)
}
