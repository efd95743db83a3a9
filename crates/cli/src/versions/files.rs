//! Commands about files in versions.

use std::fs;
use std::path::Path;

use dendro_base::{Clock, SystemClock};
use dendro_control::versions::{
    ChangeInfo, DiffInfo, HistoryInfo, RemovedInfo, RestoredInfo, VersionsReply, VersionsRequest,
};
use dendro_versions::name;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::args::{DiffArgs, HistoryArgs, UndeleteArgs};
use super::commands::unexpected;
use super::place::{self, FilePlace, Place, usage};
use super::text::{columns, modified, time};
use crate::failure::Failure;
use crate::{output, text};

pub(crate) fn diff(args: &DiffArgs) -> Result<(), Failure> {
    let (target, range_end) = split_range(&args.target);
    let end = match (range_end, &args.to) {
        (Some(_), Some(_)) => return Err(usage("the range has two ends already")),
        (Some(end), None) => end,
        (None, Some(end)) => end,
        (None, None) => "",
    };
    let Place { keeper, version: old, .. } = place::find(target)?;
    let new = name::parse_version(end, &place::now()?).map_err(usage)?;
    let mut skip = 0;
    loop {
        let request = VersionsRequest::Diff { old: old.clone(), new: new.clone(), skip };
        let DiffInfo { changes, more } = match keeper.ask(request)? {
            VersionsReply::Diff(part) => part,
            other => return Err(unexpected(&other)),
        };
        let mut lines = String::new();
        for change in &changes {
            match args.json {
                true => lines += &serde_json::to_string(change)?,
                false => lines += &change_text(change),
            }
            lines.push('\n');
        }
        output::print(&lines)?;
        if !more || changes.is_empty() {
            return Ok(());
        }
        skip += changes.len() as u64;
    }
}

/// Parts the end of a range from a target. A path may have two dots; a version may not.
fn split_range(target: &str) -> (&str, Option<&str>) {
    let versions_at = target.rfind('/').map_or(0, |slash| slash + 1);
    match target[versions_at..].rfind("..") {
        Some(at) if target[versions_at..versions_at + at].contains(['@', ':']) => {
            let at = versions_at + at;
            (&target[..at], Some(&target[at + 2..]))
        }
        _ => (target, None),
    }
}

fn change_text(change: &ChangeInfo) -> String {
    match &change.old_path {
        Some(old) => format!("{}\t{old} -> {}", change.change, change.path),
        None => format!("{}\t{}", change.change, change.path),
    }
}

pub(crate) fn history(args: &HistoryArgs) -> Result<(), Failure> {
    let place = place::find_file(&args.path, args.volume.as_deref())?;
    let request = VersionsRequest::History { of: place.version, path: place.path.clone() };
    let versions = match place.keeper.ask(request)? {
        VersionsReply::History(versions) => versions,
        other => return Err(unexpected(&other)),
    };
    if args.json {
        return output::print_json(&versions);
    }
    if versions.iter().all(|version| version.file.is_none()) {
        return Err(Failure::new(format_args!("{}: no version has it", place.path)));
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
    let place = place::find_file(&args.path, args.volume.as_deref())?;
    if args.list {
        return list(&place, args.json);
    }
    let (to, mounted_to) = match &args.to {
        Some(to) => place.find_beside(to)?,
        None => (place.path.clone(), place.mounted_path.clone()),
    };
    let from = match &args.from {
        Some(text) => Some(name::parse_version(text, &place::now()?).map_err(usage)?),
        None => None,
    };
    let request = |to: String| VersionsRequest::Undelete {
        from: from.clone(),
        path: place.path.clone(),
        to: Some(to),
    };
    let restored = match &mounted_to {
        // The kernel remembers names that it has not found, and must hear of one that appears.
        Some(mounted_to) => {
            let (hidden, mounted_hidden) = hidden_name(&to, mounted_to)?;
            let restored = restored(&place, request(hidden))?;
            let renamed =
                renameat_with(CWD, &mounted_hidden, CWD, mounted_to, RenameFlags::NOREPLACE);
            renamed.map_err(|error| {
                Failure::new(format_args!(
                    "{}: {error}; it was brought back as {}",
                    mounted_to.display(),
                    mounted_hidden.display()
                ))
            })?;
            RestoredInfo { path: to, ..restored }
        }
        None => restored(&place, request(to))?,
    };
    if args.json {
        return output::print_json(&restored);
    }
    let from = restored.epoch.map(|epoch| format!(" from @{epoch}")).unwrap_or_default();
    output::print(&format!(
        "{}{from}: {}, {}, {}\n",
        restored.path,
        counted(restored.files, "file", "files"),
        counted(restored.directories, "directory", "directories"),
        text::size(restored.data_bytes)
    ))
}

/// A number of things.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A name beside that of `to` that nobody has looked for, in the volume and in the mount.
fn hidden_name(to: &str, mounted_to: &Path) -> Result<(String, std::path::PathBuf), Failure> {
    if fs::symlink_metadata(mounted_to).is_ok() {
        return Err(Failure::new(format_args!(
            "{}: it is there now; --to puts what was there before under another path",
            mounted_to.display()
        )));
    }
    let name = format!(".undelete-{}-{}", std::process::id(), SystemClock.now().0);
    let parent = to.trim_end_matches('/').rsplit_once('/').map_or("", |(parent, _)| parent);
    Ok((format!("{parent}/{name}"), mounted_to.with_file_name(&name)))
}

fn restored(place: &FilePlace, request: VersionsRequest) -> Result<RestoredInfo, Failure> {
    match place.keeper.ask(request)? {
        VersionsReply::Restored(restored) => Ok(restored),
        other => Err(unexpected(&other)),
    }
}

fn list(place: &FilePlace, json: bool) -> Result<(), Failure> {
    let of = place.version.clone();
    let request = VersionsRequest::Removed { of, path: place.path.clone() };
    let names = match place.keeper.ask(request)? {
        VersionsReply::Removed(names) => names,
        other => return Err(unexpected(&other)),
    };
    if json {
        return output::print_json(&names);
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
    let rows: Vec<_> = names.iter().map(row).collect();
    output::print(&columns(["LAST IN", "MADE", "KIND", "SIZE", "WRITTEN", "NAME"], &rows, &[3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_behind_a_version_and_not_in_a_path() {
        assert_eq!(split_range("/mnt@a..b"), ("/mnt@a", Some("b")));
        assert_eq!(split_range("/mnt@a.."), ("/mnt@a", Some("")));
        assert_eq!(split_range("/img:b@a..:c"), ("/img:b@a", Some(":c")));
        assert_eq!(split_range("/x@y/../mnt@a"), ("/x@y/../mnt@a", None));
        assert_eq!(split_range(".."), ("..", None));
        assert_eq!(split_range("../mnt@-1h..-5m"), ("../mnt@-1h", Some("-5m")));
    }
}
