//! `dendro forks`.

use std::time::Duration;

use dendro_base::{Clock, SystemClock};
use dendro_control::versions::{
    BranchInfo, DiffInfo, UsageInfo, VersionList, VersionName, VersionsReply, VersionsRequest,
};
use dendro_daemon::text;
use serde::Serialize;

use super::base::{base_of, branch_name, moment, versions};
use crate::args::fork::ForksArgs;
use crate::failure::{Failure, usage};
use crate::output::{self, columns, json};
use crate::target::{Keeper, Place, find_version, unexpected};

/// A branch beside the main one.
#[derive(Debug, Serialize)]
struct Fork {
    branch_name: String,
    /// Whether it is the main one.
    main: bool,
    created_unix_ns: i64,
    /// The version that it continues, if that still has a name.
    base: Option<String>,
    /// Where it is mounted.
    mount_points: Vec<String>,
    /// How many names and files differ from that version; `None` if that is unknown.
    changes: Option<u64>,
    /// Whether there are more differences.
    more_changes: bool,
    /// Bytes that deleting it alone would free.
    exclusive_bytes: Option<u64>,
}

pub(crate) fn run(args: &ForksArgs) -> Result<(), Failure> {
    show(args, false)
}

/// Lists branches, with the main one if `with_main`.
pub(super) fn show(args: &ForksArgs, with_main: bool) -> Result<(), Failure> {
    let Place { keeper, version, path } = find_version(&args.target)?;
    if version != VersionName::default() {
        return Err(usage(format_args!(
            "{}: this is about the whole volume: name {}, without a version",
            args.target,
            path.display()
        )));
    }
    let list = versions(&keeper)?;
    let used = match keeper.ask(VersionsRequest::Usage)? {
        VersionsReply::Usage(usage) => usage,
        other => return Err(unexpected(&other)),
    };
    let branches = list.branches.iter().filter(|branch| with_main || !branch.main);
    let forks: Vec<_> = branches.map(|branch| look(&keeper, &list, &used, branch)).collect();
    match args.json {
        true => json::print_list(if with_main { "branches" } else { "forks" }, &forks),
        false => output::print(&forks_text(&forks)),
    }
}

fn look(keeper: &Keeper, list: &VersionList, usage: &[UsageInfo], branch: &BranchInfo) -> Fork {
    let base = base_of(branch, list);
    let changes = base.and_then(|base| {
        let (old, new) = (moment(base.epoch.to_string()), branch_name(&branch.name));
        match keeper.ask(VersionsRequest::Diff { old, new, skip: 0 }) {
            Ok(VersionsReply::Diff(changed)) => Some(changed),
            _ => None,
        }
    });
    let own = usage.iter().find(|of| of.branch == branch.branch && of.epoch.is_none());
    let mount_points = match keeper {
        Keeper::Offline(_) => Vec::new(),
        Keeper::Daemon(served) => {
            let views = served.pong.views.iter();
            let shown = views.filter(|of| of.branch == branch.branch && of.epoch.is_none());
            shown.map(|view| view.mount_point.clone()).collect()
        }
    };
    Fork {
        branch_name: branch.name.clone(),
        main: branch.main,
        created_unix_ns: branch.created_unix_ns,
        base: base.map(|of| match &of.name {
            Some(name) => format!("@{name}"),
            None => format!("@{}", of.epoch),
        }),
        mount_points,
        changes: changes.as_ref().map(|DiffInfo { changes, .. }| changes.len() as u64),
        more_changes: changes.is_some_and(|changed| changed.more),
        exclusive_bytes: own.map(|of| of.exclusive_bytes),
    }
}

fn forks_text(forks: &[Fork]) -> String {
    let now_ns = SystemClock.now().0;
    let row = |fork: &Fork| {
        let changes = match (fork.changes, fork.more_changes) {
            (Some(count), false) => count.to_string(),
            (Some(count), true) => format!("over {count}"),
            (None, _) => "-".into(),
        };
        let mounted = match fork.mount_points.is_empty() {
            true => "not mounted".into(),
            false => fork.mount_points.join(", "),
        };
        [
            format!(":{}", fork.branch_name),
            age(now_ns.saturating_sub(fork.created_unix_ns)),
            fork.base.clone().unwrap_or_else(|| "-".into()),
            changes,
            fork.exclusive_bytes.map_or_else(|| "-".into(), text::size),
            mounted,
        ]
    };
    let rows: Vec<_> = forks.iter().map(row).collect();
    columns(["NAME", "AGE", "FROM", "CHANGES", "ALONE", "MOUNTED ON"], &rows, &[1, 3, 4])
}

/// An age: `5s`, `12m`, `3h`, `40d`.
fn age(ns: i64) -> String {
    let secs = Duration::from_nanos(u64::try_from(ns).unwrap_or(0)).as_secs();
    let units = [(86_400, 'd'), (3600, 'h'), (60, 'm')];
    let unit = units.into_iter().find(|(unit, _)| secs >= 2 * unit);
    let (unit, name) = unit.unwrap_or((1, 's'));
    format!("{}{name}", secs / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let ages = [-5, 0, 119, 120, 7199, 7200, 3 * 86_400].map(|secs| age(secs * 1_000_000_000));
        assert_eq!(ages, ["0s", "0s", "119s", "2m", "119m", "2h", "3d"]);
    }
}
