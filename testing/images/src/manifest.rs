//! What a volume holds, as text: a line for each list, record and page.

use std::fmt::Write as _;

use dendro_disk::{Lid, LogicalDisk, MAX_PAGE_COUNT, PAGE_SIZE, Result, Versions, View};
use dendro_format::checksum;

/// The manifest of a disk: of the main head or, where there are other versions, of each.
///
/// # Errors
/// When the disk cannot be read.
pub fn of(disk: &dyn Versions) -> Result<String> {
    let table = disk.versions();
    let views: Vec<View> = table.views().collect();
    if let [only] = views.as_slice() {
        return of_first(disk, *only, usize::MAX);
    }
    let mut out = String::new();
    for (client, limit_bytes) in table.quotas() {
        let mut of_client = views.iter().filter(|view| table.client_of(view.branch).0 == client);
        let quota = of_client.next().and_then(|view| disk.quota(*view));
        let used = quota.map(|quota| quota.used_bytes);
        add(&mut out, &format!("client {client} uses {used:?} of {limit_bytes} bytes"));
    }
    for view in views {
        let branch = table.branch_of(view).map(|branch| branch.name.clone());
        let snapshot = table.snapshot_of(view).map(|one| (one.name.clone(), one.is_held));
        let of_client = match table.client_of(view.branch) {
            (client, Some(kind)) => format!(", client {client} of kind {kind}"),
            _ => String::new(),
        };
        let name = format!("version {view}, branch {branch:?}, snapshot {snapshot:?}{of_client}");
        add(&mut out, &name);
        out.push_str(&of_first(disk, view, usize::MAX)?);
    }
    Ok(out)
}

/// The manifest of the first `max` lists of a view.
///
/// # Errors
/// When the disk cannot be read.
pub fn of_first(disk: &dyn LogicalDisk, view: View, max: usize) -> Result<String> {
    let mut out = String::new();
    let mut from = Lid(0);
    let mut left = max;
    loop {
        let lists = disk.lists(view, from, left.min(64))?;
        let Some(&last) = lists.last() else { return Ok(out) };
        left -= lists.len();
        for list in lists {
            add_list(&mut out, disk, view, list)?;
        }
        from = Lid(last.0.saturating_add(1));
    }
}

fn add_list(out: &mut String, disk: &dyn LogicalDisk, view: View, list: Lid) -> Result<()> {
    let hints = disk.hints(view, list)?;
    add(out, &format!("list {} {hints:?}", list.0));
    let mut from = Some(0);
    while let Some(index) = from {
        let records = disk.records(view, list, index, 64)?;
        for (index, value) in &records {
            let bytes: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            add(out, &format!("  record {index} {bytes}"));
        }
        from = records.last().and_then(|(index, _)| index.checked_add(1));
    }
    let mut page = disk.next_data(view, list, 0)?;
    while let Some(index) = page {
        let mut bytes = [0; PAGE_SIZE];
        disk.read_pages(view, list, index, &mut bytes)?;
        add(out, &format!("  page {index} {:08x}", checksum(&bytes)));
        let next = index + 1;
        page = if next < MAX_PAGE_COUNT { disk.next_data(view, list, next)? } else { None };
    }
    Ok(())
}

fn add(out: &mut String, line: &str) {
    writeln!(out, "{line}").expect("a string grows");
}
