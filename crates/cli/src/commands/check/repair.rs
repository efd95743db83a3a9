//! Repairs the files of all branches: what `-y` does, and `-p -f` as far as nothing is to be
//! decided.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use dendro_daemon::check::BEFORE_REPAIR;
use dendro_daemon::volume::{clock, random_bytes};
use dendro_disk::{Error as DiskError, Lid, LogicalDisk, Versions, View};
use dendro_fs::{CheckOptions, Finding, FindingCode, FsError, RepairOptions, can_repair};
use dendro_logdisk::{LogDisk, OpenOptions};

use super::told::Told;
use crate::failure::Failure;
use crate::offline::{as_mounted, open_for_writing};

/// What a repair may do.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    /// Only what takes no decision about data.
    pub(super) safe_only: bool,
    /// Contents of files are looked at too.
    pub(super) data: bool,
    /// The memory for what is kept about files, about.
    pub(super) memory_bytes: u64,
}

/// What was repaired.
#[derive(Default)]
pub(super) struct Repaired {
    pub(super) mended: Vec<Finding>,
    /// How many more were mended of a kind, which are not listed.
    pub(super) more_mended: BTreeMap<FindingCode, usize>,
    /// What could not be mended, and why.
    pub(super) failures: Vec<String>,
}

/// Repairs the heads of all branches.
pub(super) fn run(source: &Path, wish: Wish, told: &Told) -> Result<Repaired, Failure> {
    let options = as_mounted();
    let cache_size_bytes = options.cache_size_bytes.min(wish.memory_bytes);
    let options = OpenOptions { cache_size_bytes, ..options };
    let (_, disk) = open_for_writing(source, options)?;
    let mut repaired = Repaired::default();
    let outcome = repair_all(&disk, wish, random_bytes()?, told, &mut repaired);
    let shut_down = disk.shut_down();
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", source.display()));
    outcome.map_err(|error| {
        let advice = match error {
            FsError::Disk(DiskError::NoSpace { .. }) => {
                "; delete files or snapshots, also those of earlier repairs, and repeat it"
            }
            _ => "",
        };
        fail(&format_args!(
            "the repair ended early: {error}; what was mended until then stays{advice}"
        ))
    })?;
    shut_down.map_err(|error| fail(&error))?;
    Ok(repaired)
}

fn repair_all(
    disk: &LogDisk,
    wish: Wish,
    hash_key: [u8; 16],
    told: &Told,
    repaired: &mut Repaired,
) -> Result<(), FsError> {
    let now = clock().now();
    let Wish { safe_only, data, memory_bytes } = wish;
    let options = RepairOptions { safe_only, data, memory_bytes, now: now.into(), hash_key };
    let table = disk.versions();
    let versions: Vec<View> = table.views().collect();
    for branch in table.branches().filter(|branch| !branch.is_receiving()) {
        told.show(format!("repair of :{}", branch.name));
        let head = branch.head();
        let look = CheckOptions::default().with_data(data).with_memory(memory_bytes);
        let checked = dendro_fs::check(disk, &[head], look, &mut |_| ControlFlow::Continue(()))?;
        let findings: Vec<Finding> = checked.found.into_iter().map(|found| found.finding).collect();
        if !can_repair(&findings, safe_only) {
            continue;
        }
        let before = match unused(disk, head) {
            Some(unused) => unused,
            None => keep(disk, branch.branch, &now.utc())?,
        };
        // A daemon does this at the same time.
        let mut rest = || Ok(disk.background_step().map(drop)?);
        let done = dendro_fs::repair(disk, head, &versions, &options, &mut rest);
        // Where nothing was mended, for lack of room or otherwise, there is nothing to go back to.
        let deleted = if is_same(disk, before, head) { disk.delete(before) } else { Ok(()) };
        let done = done?;
        deleted?;
        repaired.mended.extend(done.mended);
        for (code, count) in done.more_mended {
            *repaired.more_mended.entry(code).or_default() += count;
        }
        let why = |(finding, error)| format!("{finding}: {error}");
        repaired.failures.extend(done.failures.into_iter().map(why));
    }
    Ok(())
}

fn is_same(disk: &LogDisk, snapshot: View, head: View) -> bool {
    disk.changed_lists(snapshot, head, Lid(0), 1).is_ok_and(|of| of.is_empty())
}

/// The snapshot of an earlier repair that was killed before it changed anything.
fn unused(disk: &LogDisk, head: View) -> Option<View> {
    let table = disk.versions();
    let last = table.snapshots().filter(|of| of.branch == head.branch).max_by_key(|of| of.epoch)?;
    let is_of_repair = last.name.as_ref().is_some_and(|name| name.starts_with(BEFORE_REPAIR));
    let view = last.view();
    (is_of_repair && !last.is_held && is_same(disk, view, head)).then_some(view)
}

/// Makes a snapshot of what is there before the repair.
fn keep(disk: &LogDisk, branch: u32, time: &str) -> Result<View, DiskError> {
    let time: String = time
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
            made => return made.map(|snapshot| snapshot.view()),
        }
    }
    unreachable!("there are fewer snapshots than numbers")
}
