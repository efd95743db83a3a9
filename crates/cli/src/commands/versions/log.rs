//! `dendro log`: the history of a volume, its branches and snapshots, the newest first; as a list,
//! as a graph of characters, and as a drawing.
//!
//! - [`graph`]: which column each branch has in which row. [`plot`]: the same as SVG.

mod graph;
mod plot;
mod words;

use std::fs;

use dendro_base::{Clock, SystemClock};
use dendro_control::versions::{VersionList, VersionsReply, VersionsRequest};
use graph::{Node, Row};
use serde::Serialize;
use words::words;

use crate::args::versions::LogArgs;
use crate::failure::Failure;
use crate::output::svg::check_name;
use crate::output::{self, columns, json};
use crate::target::{self, Keeper, unexpected};

/// A version, as JSON has it.
#[derive(Serialize)]
struct Version<'a> {
    branch: u32,
    branch_name: Option<&'a str>,
    epoch: Option<u64>,
    name: Option<&'a str>,
    created_unix_ns: i64,
    main: bool,
    held: bool,
    parent: Option<u32>,
    parent_epoch: Option<u64>,
    mount_points: Vec<&'a str>,
}

pub(crate) fn log(args: &LogArgs) -> Result<(), Failure> {
    let keeper = target::find_whole(&args.target)?;
    if let Some(file) = &args.plot {
        check_name(file)?;
    }
    let list = match keeper.ask(VersionsRequest::List)? {
        VersionsReply::List(list) => list,
        other => return Err(unexpected(&other)),
    };
    let nodes = graph::nodes(&list, |branch| mount_points(&keeper, branch, None));
    if args.json {
        return json::print_list("versions", &versions(&nodes, &list, &keeper));
    }
    let now_ns = SystemClock.now().0;
    let rows = graph::rows(&list, if args.all { nodes } else { graph::folded(&list, nodes) });
    if let Some(file) = &args.plot {
        return fs::write(file, plot::draw(&keeper.source(), &rows, now_ns))
            .map_err(|error| Failure::new(format_args!("{}: {error}", file.display())));
    }
    output::print(&format!("{}\n{}", keeper.source(), text_of(&rows, args.graph, now_ns)))
}

/// Where a version is mounted.
fn mount_points(keeper: &Keeper, branch: u32, epoch: Option<u64>) -> Vec<String> {
    match keeper {
        Keeper::Offline(_) => Vec::new(),
        Keeper::Daemon(served) => {
            let views = served.pong.views.iter();
            let shown = views.filter(|of| (of.branch, of.epoch) == (branch, epoch));
            shown.map(|view| view.mount_point.clone()).collect()
        }
    }
}

fn versions<'a>(nodes: &'a [Node], list: &'a VersionList, keeper: &'a Keeper) -> Vec<Version<'a>> {
    let views = match keeper {
        Keeper::Offline(_) => &[][..],
        Keeper::Daemon(served) => &served.pong.views,
    };
    let parents = graph::parents(list);
    let version = |node: &'a Node| {
        let branch = list.branches.iter().find(|of| of.branch == node.branch);
        let snapshot = list.snapshots.iter().find(|of| Some(of.epoch) == node.epoch);
        let is_head = node.epoch.is_none();
        let shown = views.iter().filter(|of| (of.branch, of.epoch) == (node.branch, node.epoch));
        let of_head = branch.filter(|_| is_head);
        Version {
            branch: node.branch,
            branch_name: match is_head {
                true => branch.map(|of| &*of.name),
                false => snapshot.and_then(|of| of.branch_name.as_deref()),
            },
            epoch: node.epoch,
            name: match is_head {
                true => branch.map(|of| &*of.name),
                false => snapshot.and_then(|of| of.name.as_deref()),
            },
            created_unix_ns: node.time_ns,
            main: of_head.is_some_and(|of| of.main),
            held: snapshot.is_some_and(|of| of.held),
            parent: parents.get(&node.branch).map(|(parent, _)| *parent),
            parent_epoch: parents.get(&node.branch).map(|(_, epoch)| *epoch),
            mount_points: shown.map(|view| &*view.mount_point).collect(),
        }
    };
    nodes.iter().map(version).collect()
}

fn text_of(rows: &[Row], with_graph: bool, now_ns: i64) -> String {
    let words: Vec<_> = rows.iter().map(|row| words(&row.node, now_ns)).collect();
    let table = columns(["NAME", "AGE", "MADE", "WHAT"], &words, &[1]);
    if !with_graph {
        return table;
    }
    let width = rows.iter().map(|row| row.lanes.len()).max().unwrap_or(0) * 2;
    let mut text = String::new();
    for (row, line) in rows.iter().zip(table.lines().skip(1)) {
        if row.has_joint() {
            text += row.joint().trim_end();
            text.push('\n');
        }
        text += &format!("{:width$}  {line}\n", row.line());
    }
    text
}

#[cfg(test)]
mod tests {
    use dendro_control::versions::{AncestorInfo, BranchInfo, SnapshotInfo};

    use super::*;

    /// Branch number, name, and from which branch and epoch.
    fn branch(number: u32, name: &str, from: Option<(u32, u64)>) -> BranchInfo {
        BranchInfo {
            client_kind: None,
            branch: number,
            name: name.into(),
            main: number == 0,
            parent: from.map(|(parent, _)| parent),
            parent_epoch: from.map(|(_, epoch)| epoch),
            created_unix_ns: i64::from(number),
            replaced: None,
        }
    }

    fn snapshot(branch: u32, epoch: u64, name: Option<&str>) -> SnapshotInfo {
        let name = name.map(str::to_owned);
        let created_unix_ns = epoch as i64;
        SnapshotInfo { branch, epoch, name, created_unix_ns, ..SnapshotInfo::default() }
    }

    /// The graph and the names beside it.
    fn drawn(list: &VersionList, all: bool) -> String {
        let nodes = graph::nodes(list, |_| Vec::new());
        let nodes = if all { nodes } else { graph::folded(list, nodes) };
        let rows = graph::rows(list, nodes);
        let text = text_of(&rows, true, 1 << 40);
        let lines = text.lines().map(|line| {
            let kept = line.find("  now").or_else(|| line.find(" min ")).unwrap_or(line.len());
            let words = line[..kept].trim_end();
            words.strip_suffix(" 18").unwrap_or(words).trim_end().to_owned() + "\n"
        });
        lines.collect()
    }

    #[test]
    fn branches_leave_where_they_were_made_and_lines_of_nothing_become_one() {
        let mut snapshots = vec![
            snapshot(0, 1, Some("first")),
            snapshot(0, 20, Some("base")),
            snapshot(1, 22, Some("of-work")),
            snapshot(0, 30, None),
        ];
        snapshots.extend((2..20).map(|epoch| snapshot(0, epoch, None)));
        let list = VersionList {
            epoch: 31,
            branches: vec![
                branch(0, "main", None),
                branch(1, "work", Some((0, 20))),
                branch(2, "other", Some((0, 20))),
            ],
            snapshots,
            ..VersionList::default()
        };
        let expected = "\
●     :main
●     @30
│ ●   :work
│ ●   @of-work
│ │ ● :other
├─┴─╯
●     @base
┊     18 snapshots
●     @first
";
        let shown = drawn(&list, false);
        let squeezed: String =
            shown.lines().map(|line| line.replace("   :", " :") + "\n").collect();
        let spaces = |text: &str| text.replace(' ', "");
        assert_eq!(spaces(&squeezed), spaces(expected), "{shown}");
        assert!(shown.contains("│ │ ●") && shown.contains("├─┴─╯\n"), "{shown}");
        assert_eq!(drawn(&list, true).lines().count(), 9 + 17);
    }

    #[test]
    fn what_a_branch_was_made_from_may_be_gone() {
        let list = VersionList {
            epoch: 9,
            branches: vec![
                branch(0, "main", None),
                // Its snapshot is deleted: it leaves at what was before.
                branch(1, "near", Some((0, 5))),
                // Nothing is left of where it came from.
                branch(2, "far", Some((7, 4))),
            ],
            snapshots: vec![snapshot(0, 3, Some("old")), snapshot(5, 6, Some("left"))],
            ..VersionList::default()
        };
        let shown = drawn(&list, false);
        let names: Vec<_> =
            shown.lines().filter_map(|line| line.split([':', '@']).nth(1)).collect();
        assert_eq!(names, ["main", "left", "near", "far", "old"], "{shown}");
        let joint = shown.lines().find(|line| line.contains('├')).unwrap();
        assert!(joint.starts_with("├───╯"), "{shown}");
        assert_eq!(drawn(&VersionList::default(), false), "");
    }

    #[test]
    fn lines_go_on_through_branches_that_are_gone() {
        let ancestor = |branch, from: Option<(u32, u64)>| AncestorInfo {
            branch,
            parent: from.map(|(parent, _)| parent),
            parent_epoch: from.map(|(_, epoch)| epoch),
        };
        let mut list = VersionList {
            epoch: 9,
            // The main branch was put back to @a; the branch of @w1 and @w2 is deleted.
            branches: vec![BranchInfo { main: true, ..branch(2, "main", Some((0, 1))) }],
            ancestors: vec![ancestor(0, None), ancestor(1, Some((0, 1)))],
            snapshots: vec![
                snapshot(0, 1, Some("a")),
                snapshot(1, 2, Some("w1")),
                snapshot(0, 3, Some("kept")),
                snapshot(1, 4, Some("w2")),
            ],
        };
        let columns = |shown: &str| -> Vec<String> {
            let column = |line: &str| line.split([':', '@', '(']).next().unwrap().trim_end().into();
            shown.lines().map(column).collect()
        };
        let shown = drawn(&list, false);
        assert_eq!(columns(&shown), ["●", "│ ●", "│ │ ●", "│ ● │", "╰─┴─┤", "    ●"], "{shown}");
        // Where what they have in common is gone, a sign stands for it.
        list.snapshots.remove(0);
        let shown = drawn(&list, false);
        assert_eq!(columns(&shown), ["●", "│ ●", "│ │ ●", "│ ● │", "╰─┴─┤", "    ○"], "{shown}");
        assert!(shown.contains("(deleted)"), "{shown}");
        // Nothing goes on from a branch without versions of its own: those made from it go on from
        // what it was made from.
        list.branches.push(branch(3, "far", Some((1, 1))));
        list.snapshots = vec![snapshot(0, 1, Some("a"))];
        let shown = drawn(&list, false);
        assert_eq!(columns(&shown), ["●", "│ ●", "├─╯", "●"], "{shown}");
        let rows = graph::rows(&list, graph::nodes(&list, |_| Vec::new()));
        assert_eq!(plot::draw("a", &rows, 1 << 40).matches("<circle ").count(), 3);
    }

    #[test]
    fn nothing_stands_right_below_a_branch_that_it_has_nothing_to_do_with() {
        let list = VersionList {
            epoch: 9,
            // Nothing is left of where either came from.
            branches: vec![branch(0, "main", Some((9, 8))), branch(1, "other", Some((8, 4)))],
            snapshots: vec![snapshot(1, 6, Some("of-other")), snapshot(3, 2, Some("old"))],
            ..VersionList::default()
        };
        let shown = drawn(&list, false);
        let columns: Vec<_> =
            shown.lines().map(|line| line.split([':', '@']).next().unwrap().trim_end()).collect();
        assert_eq!(columns, ["●", "  ●", "  ●", "●"], "{shown}");
    }

    #[test]
    fn a_version_with_nothing_newer_goes_on_below_a_branch_made_from_it() {
        let mut list = VersionList {
            epoch: 9,
            // What was the main branch is gone: the one that is it now was made from its snapshot.
            branches: vec![branch(0, "main", Some((5, 3)))],
            snapshots: vec![snapshot(5, 3, Some("before"))],
            ..VersionList::default()
        };
        assert_eq!(drawn(&list, false), "●   :main\n●   @before\n");
        list.branches.push(branch(1, "draft", Some((5, 3))));
        let shown = drawn(&list, false);
        let columns: Vec<_> =
            shown.lines().map(|line| line.split([':', '@']).next().unwrap().trim_end()).collect();
        assert_eq!(columns, ["●", "│ ●", "├─╯", "●"], "{shown}");
        let rows = graph::rows(&list, graph::nodes(&list, |_| Vec::new()));
        let svg = plot::draw("a", &rows, 1 << 40);
        assert_eq!(svg.matches(" cx=\"40\"").count(), 2, "{svg}");
    }

    #[test]
    fn a_drawing_has_all_rows_and_nothing_outside() {
        let branches: Vec<_> =
            (0..30).map(|number| branch(number, &format!("<{number}>"), Some((0, 1)))).collect();
        let list = VersionList {
            epoch: 3,
            branches,
            snapshots: vec![snapshot(0, 1, None)],
            ..VersionList::default()
        };
        let rows = graph::rows(&list, graph::nodes(&list, |_| Vec::new()));
        let svg = plot::draw("a & b", &rows, 1 << 40);
        assert_eq!(svg.matches("<circle ").count(), 31);
        assert!(svg.contains("&lt;7&gt;") && !svg.contains("<7>"), "{svg}");
        let place = |line: &str, name: &str| -> Option<f64> {
            line.split_once(&format!(" {name}=\""))?.1.split('"').next()?.parse().ok()
        };
        let height = place(svg.lines().next().unwrap(), "height").unwrap();
        for line in svg.lines().filter(|line| line.starts_with("<circle")) {
            assert!(place(line, "cx") < Some(900.0) && place(line, "cy") < Some(height), "{line}");
        }
    }
}
