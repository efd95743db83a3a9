//! Repairs the heads of all branches. What was there before stays as a snapshot of each.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dendro_disk::{Branch, Error as DiskError, Lid, Versions, View};

use super::{RepairOptions, Repaired, can_repair, repair};
use crate::check::{CheckOptions, Finding, check};
use crate::error::{FsError, Result};

/// The beginning of the names of the snapshots.
pub const BEFORE_REPAIR: &str = "before-repair-";

/// The most passes over all branches. What one of them writes may show what nothing named before
/// in a map that somebody has forged.
const MAX_PASSES: u32 = 8;

/// Mends what is wrong in the heads of all branches. `show` is called with the name of the branch
/// that is looked at. `rest` is called between changes, for what the disk does in the background.
///
/// Where something can be mended, a snapshot is made of the branch before it is changed, whose name
/// begins with [`BEFORE_REPAIR`]. It is deleted again if nothing was mended.
///
/// # Errors
/// Errors of the disk, among them that it is full, and of `rest`. What was mended before stays
/// mended.
pub fn repair_branches<D: Versions>(
    disk: &D,
    options: &RepairOptions,
    show: &mut dyn FnMut(&str),
    rest: &mut dyn FnMut() -> Result<()>,
) -> Result<Repaired> {
    let mut repaired = Repaired::default();
    let mut before = BTreeMap::new();
    let mut outcome = Ok(());
    for _ in 0..MAX_PASSES {
        let mended_count = repaired.mended_count();
        let mut pass = Pass { disk, options, before: &mut before, repaired: &mut repaired };
        outcome = pass.run(show, rest);
        if outcome.is_err() || repaired.mended_count() == mended_count {
            break;
        }
    }
    // Where nothing was mended, for lack of room or otherwise, there is nothing to go back to.
    for (branch, snapshot) in before {
        let head = View { branch, epoch: None };
        if is_same(disk, snapshot, head) {
            let deleted = disk.delete(snapshot).map_err(FsError::from);
            outcome = outcome.and(deleted);
        }
    }
    outcome.map(|()| repaired)
}

/// One pass over all branches.
struct Pass<'a, D> {
    disk: &'a D,
    options: &'a RepairOptions,
    /// By branches: what was there before they were changed.
    before: &'a mut BTreeMap<u32, View>,
    repaired: &'a mut Repaired,
}

impl<D: Versions> Pass<'_, D> {
    fn run(
        &mut self,
        show: &mut dyn FnMut(&str),
        rest: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let table = self.disk.versions();
        // What is left is what the last pass leaves.
        (self.repaired.left, self.repaired.failures) = (Vec::new(), Vec::new());
        for branch in table.branches().filter(|branch| !branch.is_receiving()) {
            show(&branch.name);
            let findings = self.findings(branch.head())?;
            if !can_repair(&findings, self.options.safe_only) {
                self.repaired.left.extend(findings);
                continue;
            }
            self.keep(branch)?;
            // Other clients' lists of the same numbers are other files.
            let client = |branch| table.client_of(branch).0;
            let own = |view: &View| client(view.branch) == client(branch.branch);
            let versions: Vec<View> = table.views().filter(own).collect();
            let done = repair(self.disk, branch.head(), &versions, self.options, rest)?;
            self.repaired.add(done);
        }
        Ok(())
    }

    fn findings(&self, head: View) -> Result<Vec<Finding>> {
        let RepairOptions { data, memory_bytes, .. } = *self.options;
        let look = CheckOptions::default().with_data(data).with_memory(memory_bytes);
        let checked = check(self.disk, &[head], look, &mut |_| ControlFlow::Continue(()))?;
        Ok(checked.found.into_iter().map(|found| found.finding).collect())
    }

    /// Sees to it that what is there before the repair stays as a snapshot.
    fn keep(&mut self, branch: &Branch) -> Result<()> {
        if !self.before.contains_key(&branch.branch) {
            let snapshot = match unused(self.disk, branch.head()) {
                Some(unused) => unused,
                None => snapshot_of(self.disk, branch.branch, self.options)?,
            };
            self.before.insert(branch.branch, snapshot);
        }
        Ok(())
    }
}

fn is_same(disk: &impl Versions, snapshot: View, head: View) -> bool {
    disk.changed_lists(snapshot, head, Lid(0), 1).is_ok_and(|of| of.is_empty())
}

/// The snapshot of an earlier repair that was killed before it changed anything.
fn unused<D: Versions>(disk: &D, head: View) -> Option<View> {
    let table = disk.versions();
    let last = table.snapshots().filter(|of| of.branch == head.branch).max_by_key(|of| of.epoch)?;
    let is_of_repair = last.name.as_ref().is_some_and(|name| name.starts_with(BEFORE_REPAIR));
    let view = last.view();
    (is_of_repair && !last.is_held && is_same(disk, view, head)).then_some(view)
}

fn snapshot_of(disk: &impl Versions, branch: u32, options: &RepairOptions) -> Result<View> {
    let time: String = options
        .now
        .utc()
        .chars()
        .filter_map(|sign| match sign {
            ' ' => Some('T'),
            '0'..='9' => Some(sign),
            _ => None,
        })
        .collect();
    for number in 1_u64.. {
        let name = match number {
            1 => format!("{BEFORE_REPAIR}{time}"),
            number => format!("{BEFORE_REPAIR}{time}-{number}"),
        };
        match disk.snapshot(branch, Some(&name)) {
            Err(DiskError::NameTaken(_)) => {}
            made => return Ok(made?.view()),
        }
    }
    unreachable!("there are fewer snapshots than numbers")
}
