//! Whether what can be read of a disk is that of one moment.

use dendro_disk::model::{ModelList, ModelState, ModelVersions};
use dendro_disk::{Lid, LogicalDisk, MAX_PAGE_COUNT, PAGE_SIZE, VersionTable, Versions, View};
use dendro_logdisk::LogDisk;

use crate::system::Outcome;

/// How many lists or records are read at a time.
const BATCH_LEN: usize = 64;

/// Looks for a moment at which everything was what `disk` answers now. An error as an answer agrees
/// with anything.
pub(super) fn find_moment(
    disk: &LogDisk,
    states: &mut dyn Iterator<Item = &ModelVersions>,
) -> Outcome<()> {
    let table = disk.versions();
    let whole = ModelVersions::read_from(disk).ok();
    let mut closest = String::from("there is no state with these versions");
    let mut agreed = 0;
    for state in states.filter(|state| are_same(&table, state.table())) {
        if let Some(whole) = &whole {
            if table.views().all(|view| whole.state(view) == state.state(view)) {
                return Ok(());
            }
            continue;
        }
        match disagreement(disk, state) {
            None => return Ok(()),
            Some((count, what)) if count >= agreed => (agreed, closest) = (count, what),
            Some(_) => {}
        }
    }
    match whole {
        Some(_) => Err("it was read without an error, and never was so".into()),
        None => Err(format!("what can be read is of no moment; of the closest, {closest}")),
    }
}

/// Whether two tables have the same versions. A disk may end epochs of its own accord, which does
/// not count where there is one version.
fn are_same(table: &VersionTable, other: &VersionTable) -> bool {
    let has_one = |of: &VersionTable| of.views().count() == 1;
    table == other || has_one(table) && has_one(other)
}

/// How many lists agree before the first that does not, and what it is; `None` if all agree.
fn disagreement(disk: &LogDisk, state: &ModelVersions) -> Option<(usize, String)> {
    let mut agreed = 0;
    for view in state.table().views() {
        let Ok(expected) = state.state(view) else { continue };
        if let Some(list) = stray_list(disk, view, expected) {
            return Some((agreed, format!("{view} has no list {}", list.0)));
        }
        for (lid, list) in expected.lists(Lid(0)) {
            if let Some(what) = list_differs(disk, view, lid, list) {
                return Some((agreed, format!("{view}, list {}: {what}", lid.0)));
            }
            agreed += 1;
        }
    }
    None
}

/// A list that the disk has and the state does not.
fn stray_list(disk: &LogDisk, view: View, expected: &ModelState) -> Option<Lid> {
    let mut from = Lid(0);
    while let Ok(batch) = disk.lists(view, from, BATCH_LEN) {
        if let Some(stray) = batch.iter().find(|&&list| expected.list(list).is_none()) {
            return Some(*stray);
        }
        from = Lid(batch.last()?.0 + 1);
    }
    None
}

fn list_differs(disk: &LogDisk, view: View, lid: Lid, expected: &ModelList) -> Option<String> {
    match disk.hints(view, lid) {
        Ok(None) => return Some("it is not there".into()),
        Ok(Some(hints)) if hints != expected.hints() => return Some(format!("{hints:?}")),
        Ok(_) | Err(_) => {}
    }
    let mut from = Some(0);
    while let Some(index) = from
        && let Ok(batch) = disk.records(view, lid, index, BATCH_LEN)
    {
        let differs = |(index, value): &&(u64, dendro_disk::Record)| {
            expected.record(*index).is_none_or(|expected| **expected != **value)
        };
        if let Some((index, _)) = batch.iter().find(differs) {
            return Some(format!("record {index} is another"));
        }
        from = batch.last().and_then(|(last, _)| last.checked_add(1));
    }
    for (index, value) in expected.records(0) {
        if let Ok(found) = disk.record(view, lid, index)
            && found.as_deref() != Some(&**value)
        {
            return Some(format!("record {index} is another, or not there"));
        }
    }
    pages_differ(disk, view, lid, expected)
}

fn pages_differ(disk: &LogDisk, view: View, lid: Lid, expected: &ModelList) -> Option<String> {
    let mut bytes = vec![0; PAGE_SIZE];
    for (index, data) in expected.pages(0..MAX_PAGE_COUNT) {
        if disk.read_pages(view, lid, index, &mut bytes).is_err() {
            continue;
        }
        let (head, tail) = bytes.split_at(data.len());
        if head != data || tail.iter().any(|&byte| byte != 0) {
            return Some(format!("page {index} is another"));
        }
    }
    let mut from = 0;
    while from < MAX_PAGE_COUNT
        && let Ok(Some(index)) = disk.next_data(view, lid, from)
    {
        if expected.pages(index..index + 1).next().is_none() {
            return Some(format!("page {index} is no hole"));
        }
        from = index + 1;
    }
    None
}
