//! Commands about files in versions.

use std::fs;

use dendro_control::versions::{
    FileInfo, HistoryInfo, RemovedInfo, VersionsReply, VersionsRequest,
};
use dendro_daemon::{local_time, text};
use dendro_versions::name;

use crate::args::versions::{HistoryArgs, UndeleteArgs};
use crate::failure::{Failure, usage};
use crate::output::json::files::modified_unix_ns;
use crate::output::local_time::time;
use crate::output::{self, columns, json};
use crate::target::{self, FilePlace, unexpected};

pub(crate) fn history(args: &HistoryArgs) -> Result<(), Failure> {
    let place = target::find_file(&args.path, args.volume.as_deref())?;
    let request = VersionsRequest::History { of: place.version, path: place.path.clone() };
    let versions = match place.keeper.ask(request)? {
        VersionsReply::History(versions) => versions,
        other => return Err(unexpected(&other)),
    };
    if args.json {
        let versions: Vec<_> = versions.iter().map(json::files::History::from).collect();
        return json::print_list("history", &versions);
    }
    if versions.iter().all(|version| version.file.is_none()) {
        return Err(Failure::new(format_args!(
            "{}: no version has it; `dendro undelete --list` of its directory lists what others do",
            place.path
        )));
    }
    let row = |version: &HistoryInfo| {
        let [kind, size, written, inode] = match &version.file {
            Some(file) => [
                file.kind.clone(),
                file.size_bytes.to_string(),
                modified(file),
                file.inode.to_string(),
            ],
            None => ["nothing", "", "", ""].map(str::to_owned),
        };
        let newest = match (version.epoch, &version.snapshot) {
            (None, _) => "now".into(),
            (Some(_), Some(name)) => format!("@{name}"),
            (Some(epoch), None) => format!("@{epoch}"),
        };
        let since = version.since_unix_ns.map_or_else(|| "-".into(), time);
        [newest, since, kind, size, written, inode]
    };
    let rows: Vec<_> = versions.iter().map(row).collect();
    let head = ["LAST IN", "FIRST KEPT", "KIND", "SIZE", "WRITTEN", "INODE"];
    output::print(&columns(head, &rows, &[3, 5]))
}

pub(crate) fn undelete(args: &UndeleteArgs) -> Result<(), Failure> {
    let place = target::find_file(&args.path, args.volume.as_deref())?;
    if args.list {
        return list(&place, args.json);
    }
    let (to, mounted_to) = match &args.to {
        Some(to) => place.find_beside(to)?,
        None => (place.path.clone(), place.mounted_path.clone()),
    };
    let from = match &args.from {
        Some(text) => Some(name::parse_version(text, &local_time::now()?).map_err(usage)?),
        None => None,
    };
    if mounted_to.as_ref().is_some_and(|path| fs::symlink_metadata(path).is_ok()) {
        return Err(Failure::new(format_args!(
            "{to}: it is there now; --to puts what was there before under another path"
        )));
    }
    let path = place.path.clone();
    let request = VersionsRequest::Undelete { from, path, to: Some(to) };
    let restored = match place.keeper.ask(request)? {
        VersionsReply::Restored(restored) => restored,
        other => return Err(unexpected(&other)),
    };
    if args.json {
        return json::print(&restored);
    }
    let from = restored.epoch.map(|epoch| format!(" from @{epoch}")).unwrap_or_default();
    output::print(&format!(
        "{}{from}: {}, {}, {}\n",
        restored.path,
        text::counted(restored.files, "file", "files"),
        text::counted(restored.directories, "directory", "directories"),
        text::size(restored.data_bytes)
    ))
}

fn list(place: &FilePlace, as_json: bool) -> Result<(), Failure> {
    let of = place.version.clone();
    let request = VersionsRequest::Removed { of, path: place.path.clone() };
    let names = match place.keeper.ask(request)? {
        VersionsReply::Removed(names) => names,
        other => return Err(unexpected(&other)),
    };
    if as_json {
        let names: Vec<_> = names.iter().map(json::files::Removed::from).collect();
        return json::print_list("names", &names);
    }
    let row = |removed: &RemovedInfo| {
        let snapshot = &removed.snapshot;
        let last_in = snapshot.name.clone().unwrap_or_else(|| snapshot.epoch.to_string());
        [
            format!("@{last_in}"),
            time(snapshot.created_unix_ns),
            removed.file.kind.clone(),
            removed.file.size_bytes.to_string(),
            modified(&removed.file),
            removed.name.clone(),
        ]
    };
    if names.is_empty() {
        let path = &place.path;
        output::message(format_args!(
            "dendro: {path}: everything that snapshots have of it is there"
        ));
        return Ok(());
    }
    let rows: Vec<_> = names.iter().map(row).collect();
    output::print(&columns(["LAST IN", "MADE", "KIND", "SIZE", "WRITTEN", "NAME"], &rows, &[3]))
}

/// When a file was written.
fn modified(file: &FileInfo) -> String {
    time(modified_unix_ns(file))
}
