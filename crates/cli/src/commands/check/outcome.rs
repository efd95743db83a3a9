//! What a check says to programs and to people.

use std::collections::{BTreeMap, BTreeSet};

use dendro_control::check::{CheckCounts, CheckFinding, CheckReport};
use dendro_daemon::text;

use super::finding;
use crate::failure::code;

/// The exit status. At boot, what only snapshots have prevents nothing, nor does a bad copy of what
/// is kept twice.
pub(super) fn exit_code(report: &CheckReport, is_boot: bool) -> u8 {
    let may_wait = |of: &CheckFinding| of.in_past || finding::is_of_copy(of);
    let is_left = |of: &CheckFinding| of.is_wrong() && !(is_boot && may_wait(of));
    let mended = report.findings.iter().any(|of| of.mended);
    let left = report.findings.iter().any(is_left);
    let bit = |is_set, bit| if is_set { bit } else { 0 };
    bit(mended, code::CHECK_MENDED) | bit(left, code::CHECK_LEFT)
}

/// What is said to people. `was_asked`: everything that can be mended was to be.
pub(super) fn text(report: &CheckReport, was_asked: bool) -> String {
    let lines = report.findings.iter().map(|of| format!("{}\n", finding::line(of)));
    lines.collect::<String>()
        + &format!("{}: {}\n", report.source, verdict(report))
        + &hints(report, was_asked)
        + &format!("  checked: {}\n", looked_at(report))
}

fn verdict(report: &CheckReport) -> &'static str {
    let mended = report.findings.iter().any(|of| of.mended);
    match (report.sound, report.branches_sound, mended) {
        (true, _, false) => "is sound",
        (true, _, true) => "is sound again; what was mended is above",
        (false, true, false) => "is sound but for snapshots, see above; nothing was changed",
        (false, true, true) => "is sound again but for snapshots, see above; something was mended",
        (false, false, true) => "is damaged still, see above; something was mended",
        (false, false, false) => "is damaged, see above; nothing was changed",
    }
}

/// The most snapshots that are named in a hint.
const MAX_NAMED: usize = 16;

/// Which snapshots have what no branch has.
fn of_snapshots(report: &CheckReport) -> Option<String> {
    let in_past: Vec<_> = report.findings.iter().filter(|of| of.is_wrong() && of.in_past).collect();
    let names: BTreeSet<&str> =
        in_past.iter().flat_map(|of| &of.found_in).map(|of| &**of).collect();
    let is_all =
        names.len() <= MAX_NAMED && in_past.iter().all(|of| of.version_count == of.found_in.len());
    let named =
        names.into_iter().take(MAX_NAMED).map(text::printable).collect::<Vec<_>>().join(", ");
    let more = if is_all { "" } else { " and others" };
    let count = match in_past.len() {
        0 => return None,
        1 => "1 of these is".to_owned(),
        count => format!("{count} of these are"),
    };
    Some(format!(
        "{count} in snapshots alone, which stay as they are, and ends with them: delete {named}{more}"
    ))
}

fn hints(report: &CheckReport, was_asked: bool) -> String {
    let mut hints = Vec::new();
    let left = || report.findings.iter().filter(|of| of.is_wrong());
    if left().any(|of| of.list.is_some() && of.paths.is_empty()) {
        hints.push(
            "a list's number is the i-node number of its file, which has no name any more"
                .to_owned(),
        );
    }
    if left().any(finding::is_of_copy) {
        hints.push("a scrub of the mounted volume makes the copies whole again".to_owned());
    }
    let once = report.counts.unmirrored_node_count;
    if once > 0 {
        let nodes = text::counted(once, "map node is", "map nodes are");
        hints.push(format!("{nodes} kept once; a scrub keeps them twice where there is room"));
    }
    hints.extend(of_snapshots(report));
    if report.repairable && !was_asked {
        let repairs: BTreeMap<u16, &str> =
            left().filter_map(|of| Some((of.number, of.repair.as_deref()?))).collect();
        let of_kind = |(number, repair)| match report.mounted {
            false => format!("-y, for {number}: {repair}"),
            true => format!("-y, once it is unmounted, for {number}: {repair}"),
        };
        hints.extend(repairs.into_iter().map(of_kind));
    } else if !report.disk_sound && left().any(|of| of.repair.is_some()) {
        hints.push("files are mended only where the disk below them is sound".to_owned());
    }
    for name in &report.before_repairs {
        let name = text::printable(name);
        hints.push(format!("@{name} is how it was before a repair; delete it if all is there"));
    }
    hints.iter().map(|hint| format!("  {hint}\n")).collect()
}

fn looked_at(report: &CheckReport) -> String {
    let CheckCounts { list_count, page_count, node_count, live_bytes, .. } = report.counts;
    let mut looked_at = vec![
        format!("{} of data and map alive", text::size(live_bytes)),
        [
            text::counted(list_count, "list", "lists"),
            text::counted(page_count, "page", "pages"),
            text::counted(node_count, "map node", "map nodes"),
        ]
        .join(", "),
        match report.version_count {
            1 => "the tree of one version".into(),
            count => format!("trees of {count} versions"),
        },
    ];
    if report.versions_without_files > 0 {
        looked_at.push(format!(
            "the lists of {} without files",
            text::counted(report.versions_without_files as u64, "version", "versions")
        ));
    }
    if report.log_rolled_forward {
        looked_at.push("the log behind the checkpoint, rolled forward in memory".into());
    }
    let contents = match report.data_read {
        true => "the contents of files",
        false => "not the contents of files (--data)",
    };
    looked_at.push(contents.into());
    if report.mounted {
        looked_at.push("as it was when the check began".into());
    }
    looked_at.join("; ")
}
