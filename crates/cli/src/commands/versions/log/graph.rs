//! The row and the column of each version: the newest at the top, and a column for each branch from
//! its head down to its origin.

use std::collections::{BTreeMap, BTreeSet};

use dendro_control::versions::{BranchInfo, VersionList};

/// So many unnamed snapshots in succession become one row.
const LEAST_FOLDED: usize = 3;

/// A version, or several unnamed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) branch: u32,
    /// `None`: the head.
    pub(super) epoch: Option<u64>,
    /// The name, as the command line has it.
    pub(super) name: String,
    /// When it was made, in nanoseconds since 1970; for several, the newest.
    pub(super) time_ns: i64,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Head {
        is_main: bool,
        mount_points: Vec<String>,
    },
    Snapshot {
        is_named: bool,
        is_held: bool,
    },
    /// Several snapshots, the oldest of this time.
    Folded {
        count: usize,
        oldest_ns: i64,
    },
    /// What branches go on from and is deleted.
    Gone,
}

/// A row of the graph.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) node: Node,
    /// The column of the node.
    pub(super) lane: usize,
    /// The columns that have a branch here, including the node's.
    pub(super) lanes: Vec<bool>,
    /// The columns of branches made from the node, which end in it.
    pub(super) joins: Vec<usize>,
}

impl Row {
    /// The row as characters, two for each column.
    pub(super) fn line(&self) -> String {
        let sign = match self.node.what {
            What::Head { .. } | What::Snapshot { .. } => '●',
            What::Folded { .. } => '┊',
            What::Gone => '○',
        };
        let cell = |(lane, &is_active): (usize, &bool)| match (lane == self.lane, is_active) {
            (true, _) => [sign, ' '],
            (false, true) => ['│', ' '],
            (false, false) => [' ', ' '],
        };
        self.lanes.iter().enumerate().flat_map(cell).collect()
    }

    /// Whether branches from other columns leave it.
    pub(super) fn has_joint(&self) -> bool {
        self.joins.iter().any(|&lane| lane != self.lane)
    }

    /// The line above the row, in which these branches leave.
    pub(super) fn joint(&self) -> String {
        let leftmost = self.joins.iter().copied().min().unwrap_or(self.lane).min(self.lane);
        let rightmost = self.joins.iter().copied().max().unwrap_or(self.lane).max(self.lane);
        let width = self.lanes.len().max(rightmost + 1);
        let is_active = |lane: usize| self.lanes.get(lane).copied().unwrap_or(false);
        let cell = |lane: usize| {
            let (is_left, is_right) = (lane > leftmost, lane < rightmost);
            let joins = self.joins.contains(&lane);
            let sign = match (lane == self.lane, joins, is_left, is_right) {
                (true, _, true, true) => '┼',
                (true, _, true, false) => '┤',
                (true, ..) => '├',
                (_, true, true, true) => '┴',
                (_, true, true, false) => '╯',
                (_, true, ..) => '╰',
                (_, _, true, true) if is_active(lane) => '┼',
                (_, _, true, true) => '─',
                _ if is_active(lane) => '│',
                _ => ' ',
            };
            let is_crossed = lane >= leftmost && lane < rightmost;
            [sign, if is_crossed { '─' } else { ' ' }]
        };
        (0..width).flat_map(cell).collect()
    }
}

/// All versions, the newest first: each head stands above the version that it continues, the main
/// branch's at the top.
pub(super) fn nodes(list: &VersionList, mounted: impl Fn(u32) -> Vec<String>) -> Vec<Node> {
    let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
    for snapshot in &list.snapshots {
        let last = newest.entry(snapshot.branch).or_default();
        *last = snapshot.epoch.max(*last);
    }
    let place = |branch: &BranchInfo| match branch.main {
        true => u64::MAX,
        false => newest.get(&branch.branch).copied().max(branch.parent_epoch).unwrap_or(0),
    };
    let heads = list.branches.iter().map(|branch| {
        let mount_points = mounted(branch.branch);
        let what = What::Head { is_main: branch.main, mount_points };
        let name = format!(":{}", branch.name);
        let time_ns = branch.created_unix_ns;
        let node = Node { branch: branch.branch, epoch: None, name, time_ns, what };
        ((place(branch), true, time_ns), node)
    });
    let snapshots = list.snapshots.iter().map(|of| {
        let what = What::Snapshot { is_named: of.name.is_some(), is_held: of.held };
        let name = of.name.as_ref().map_or_else(|| of.epoch.to_string(), Clone::clone);
        let (name, time_ns) = (format!("@{name}"), of.created_unix_ns);
        let node = Node { branch: of.branch, epoch: Some(of.epoch), name, time_ns, what };
        ((of.epoch, false, time_ns), node)
    });
    let mut all: Vec<_> = heads.chain(snapshots).collect();
    all.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
    all.into_iter().map(|(_, node)| node).collect()
}

/// The same, with one node for many unnamed snapshots from which no branch was made.
pub(super) fn folded(list: &VersionList, nodes: Vec<Node>) -> Vec<Node> {
    let origins: BTreeSet<_> = parents(list).into_values().collect();
    let is_plain = |node: &Node| {
        let is_nameless = node.what == What::Snapshot { is_named: false, is_held: false };
        is_nameless && node.epoch.is_some_and(|epoch| !origins.contains(&(node.branch, epoch)))
    };
    let mut shown = Vec::new();
    let mut rest = &nodes[..];
    while let Some(first) = rest.first() {
        let is_like = |node: &&Node| is_plain(node) && node.branch == first.branch;
        let count = rest.iter().take_while(is_like).count();
        if count < LEAST_FOLDED {
            shown.push(first.clone());
            rest = &rest[1..];
            continue;
        }
        let oldest_ns = rest[count - 1].time_ns;
        // A branch that leaves between them leaves at the oldest.
        let epoch = rest[count - 1].epoch;
        let what = What::Folded { count, oldest_ns };
        shown.push(Node { what, epoch, name: String::new(), ..first.clone() });
        rest = &rest[count..];
    }
    shown
}

/// What each branch was made from, with a head or without: a branch and an epoch of it.
pub(super) fn parents(list: &VersionList) -> BTreeMap<u32, (u32, u64)> {
    let with_head = list.branches.iter().map(|of| (of.branch, of.parent, of.parent_epoch));
    let ancestors = list.ancestors.iter().map(|of| (of.branch, of.parent, of.parent_epoch));
    let of_one = |(branch, parent, epoch): (u32, Option<u32>, Option<u64>)| {
        Some((branch, (parent?, epoch?)))
    };
    with_head.chain(ancestors).filter_map(of_one).collect()
}

/// The node that each branch goes on from, by its branch and epoch: what it was made from, or,
/// where that is deleted, the next before it. Where nothing before it is left, and others come from
/// there too, a node for what is gone is put below all others.
fn origins(list: &VersionList, nodes: &mut Vec<Node>) -> BTreeMap<u32, (u32, u64)> {
    let parents = parents(list);
    let mut epochs: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for node in nodes.iter() {
        epochs.entry(node.branch).or_default().extend(node.epoch);
    }
    let mut origins = BTreeMap::new();
    // By the first branch of their history, which has nothing so old: the oldest moment of it that
    // was come from, and the branches.
    let mut lost: BTreeMap<u32, (u64, Vec<u32>)> = BTreeMap::new();
    for &branch in epochs.keys() {
        let mut next = parents.get(&branch);
        while let Some(&(parent, epoch)) = next {
            let before = epochs.get(&parent).and_then(|of| of.range(..=epoch).next_back());
            if let Some(&before) = before {
                origins.insert(branch, (parent, before));
                break;
            }
            // A parent is older than its child; whatever says otherwise is not followed in circles.
            next = parents.get(&parent).filter(|(of, _)| *of < parent);
            if next.is_none() {
                let (oldest, branches) = lost.entry(parent).or_insert((epoch, Vec::new()));
                *oldest = epoch.min(*oldest);
                branches.push(branch);
            }
        }
    }
    for (first, (epoch, branches)) in lost {
        if branches.len() + usize::from(epochs.contains_key(&first)) < 2 {
            continue;
        }
        let (name, time_ns) = (String::new(), 0);
        nodes.push(Node { branch: first, epoch: Some(epoch), name, time_ns, what: What::Gone });
        origins.extend(branches.into_iter().map(|branch| (branch, (first, epoch))));
    }
    origins
}

/// The rows with their columns.
pub(super) fn rows(list: &VersionList, mut nodes: Vec<Node>) -> Vec<Row> {
    let origins = origins(list, &mut nodes);
    let mut left: BTreeMap<u32, usize> = BTreeMap::new();
    for node in &nodes {
        *left.entry(node.branch).or_default() += 1;
    }
    let mut columns: Vec<Option<u32>> = Vec::new();
    let mut just_ended = None;
    let mut rows = Vec::new();
    for node in nodes {
        let here = node.epoch.map(|epoch| (node.branch, epoch));
        let leaves_here =
            |branch: u32| here.is_some_and(|here| origins.get(&branch) == Some(&here));
        let joins: Vec<usize> = columns
            .iter()
            .enumerate()
            .filter_map(|(lane, branch)| branch.filter(|&of| leaves_here(of)).map(|_| lane))
            .collect();
        for &lane in &joins {
            columns[lane] = None;
        }
        let own = columns.iter().position(|branch| *branch == Some(node.branch));
        // A version with nothing newer continues below the first branch made from it. Other
        // branches do not begin below one that has just ended, because they would seem to be
        // continued by it.
        let is_free = |lane: &usize| {
            columns.get(*lane).is_none_or(Option::is_none) && just_ended != Some(*lane)
        };
        let begins = || joins.first().copied().or_else(|| (0..=columns.len() + 1).find(is_free));
        let lane = own.or_else(begins).unwrap_or(columns.len());
        columns.resize(columns.len().max(lane + 1), None);
        columns[lane] = Some(node.branch);
        rows.push(Row {
            lane,
            lanes: columns.iter().map(Option::is_some).collect(),
            joins,
            node: node.clone(),
        });
        if let Some(count) = left.get_mut(&node.branch) {
            *count -= 1;
        }
        let goes_on = left.get(&node.branch).is_some_and(|&count| count > 0)
            || origins.contains_key(&node.branch);
        just_ended = (!goes_on).then_some(lane);
        if !goes_on {
            columns[lane] = None;
        }
        while columns.last() == Some(&None) {
            columns.pop();
        }
    }
    rows
}
