//! `dendro diff`.

use std::path::Path;

use dendro_control::versions::{ChangeInfo, DiffInfo, VersionName, VersionsReply, VersionsRequest};
use dendro_daemon::local_time;
use dendro_versions::name;
use serde::Serialize;

use super::patch;
use crate::args::versions::DiffArgs;
use crate::failure::{Failure, usage};
use crate::output::{self, json};
use crate::target::{self, Keeper, Place, unexpected};

pub(crate) fn diff(args: &DiffArgs) -> Result<(), Failure> {
    let (target, range_end) = split_range(&args.target);
    let Place { keeper, version: old, .. } = target::find_version(target)?;
    let new = match (range_end, &args.to) {
        (Some(_), Some(to)) => {
            return Err(usage(format_args!(
                "{}: the range has two ends already; leave {to} out, or what is behind the dots",
                args.target
            )));
        }
        (Some(end), None) => name::parse_version(end, &local_time::now()?).map_err(usage)?,
        (None, Some(end)) => other_end(end, &keeper)?,
        (None, None) if old == VersionName::default() => {
            return Err(usage(format_args!(
                "{target}: say what to compare it with, as in {target}@NAME or {target} TREE"
            )));
        }
        (None, None) => VersionName::default(),
    };
    let ask = |skip| {
        let request = VersionsRequest::Diff { old: old.clone(), new: new.clone(), skip };
        match keeper.ask(request)? {
            VersionsReply::Diff(part) => Ok(part),
            other => Err(unexpected(&other)),
        }
    };
    if args.patch {
        return patch::print(&keeper, ask);
    }
    let mut stat = Stat::default();
    let mut skip = 0;
    loop {
        let DiffInfo { changes, more, .. } = ask(skip)?;
        changes.iter().for_each(|change| stat.count(change));
        if !args.stat {
            print_all(&changes, args.json)?;
        }
        if !more || changes.is_empty() {
            break;
        }
        skip += changes.len() as u64;
    }
    match (args.stat, args.json) {
        (false, _) => Ok(()),
        (true, true) => output::print(&json::line(&stat)?),
        (true, false) => output::print(&stat.text()),
    }
}

fn print_all(changes: &[ChangeInfo], as_json: bool) -> Result<(), Failure> {
    let mut lines = String::new();
    for change in changes {
        match as_json {
            true => lines += &json::line(change)?,
            false => lines += &(change_text(change) + "\n"),
        }
    }
    output::print(&lines)
}

/// The version that `text` names: one of the volume that `keeper` has, or one that is mounted
/// elsewhere.
fn other_end(text: &str, keeper: &Keeper) -> Result<VersionName, Failure> {
    let as_version = || name::parse_version(text, &local_time::now()?).map_err(usage);
    if text.is_empty() || text.starts_with(['@', ':']) {
        return as_version();
    }
    let Keeper::Daemon(here) = keeper else { return as_version() };
    let Ok(Place { keeper: Keeper::Daemon(there), version, .. }) = target::find_version(text)
    else {
        // A name that is no path; a path without a version would not help the user.
        return match Path::new(text).is_absolute() || text.contains('/') {
            true => Err(usage(format_args!("{text}: is no mount of this volume, nor a version"))),
            false => as_version(),
        };
    };
    // Copies of an image have the same UUID.
    if (&there.pong.uuid, &there.pong.daemon) != (&here.pong.uuid, &here.pong.daemon) {
        return Err(usage(format_args!(
            "{text}: is in another volume; what is compared are versions of one"
        )));
    }
    if version.branch.is_some() {
        return Ok(version);
    }
    // Without a branch, the version that is mounted there counts, not the one that is mounted here.
    let own = match there.device() {
        Some(device) => {
            let mount = there.client.info()?.mount;
            let views = mount.map(|mount| mount.views).unwrap_or_default();
            let view = views.into_iter().find(|view| view.device == device);
            view.map(|view| view.version).unwrap_or_default()
        }
        None => return Ok(VersionName { branch: None, ..version }),
    };
    let own = name::parse_version(&own, &local_time::now()?).map_err(usage)?;
    Ok(match version.moment {
        None => own,
        moment => VersionName { branch: own.branch, moment },
    })
}

/// How many changes there are of each kind.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Stat {
    added: u64,
    removed: u64,
    modified: u64,
    renamed: u64,
}

impl Stat {
    fn count(&mut self, change: &ChangeInfo) {
        let counter = match change.change {
            '+' => &mut self.added,
            '-' => &mut self.removed,
            'R' => &mut self.renamed,
            _ => &mut self.modified,
        };
        *counter += 1;
    }

    fn text(&self) -> String {
        let Self { added, removed, modified, renamed } = self;
        format!("{added} added, {removed} removed, {modified} modified, {renamed} renamed\n")
    }
}

/// Splits the end of a range from a target. A path may contain two dots; a version may not.
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
