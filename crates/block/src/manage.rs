//! Making, resizing and listing devices.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{
    Aru, ClientKind, GROUP_PAGES, ListCompression, ListHints, LogicalDisk, MAX_PAGE_COUNT,
    MAX_UNIT_GROUPS, Versions, View, make_client,
};

use crate::CONTENT;
use crate::description::{self, DESCRIPTION_INDEX, check_size};
use crate::error::{Error, Result};

/// The pages that one unit changes at most, if they begin at a multiple of that.
pub(crate) const UNIT_PAGES: u64 = MAX_UNIT_GROUPS * GROUP_PAGES;

/// A device, or a snapshot of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its version.
    pub view: View,
    /// Its name: that of its branch, and for a snapshot `@` and the snapshot's behind it. A
    /// snapshot that is in the past of no branch, as one that was received, has `@` and its own
    /// alone.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// How its pages are compressed when they are written.
    pub compression: ListCompression,
}

/// Makes a block device of the head of a branch that has nothing: the list [`CONTENT`], with its
/// description. Its pages are compressed as `compression` says.
///
/// # Errors
/// [`Error::BadSize`], [`Error::Disk`].
pub fn create(
    disk: &(impl LogicalDisk + ?Sized),
    head: View,
    size_bytes: u64,
    compression: ListCompression,
) -> Result<()> {
    check_size(size_bytes)?;
    let mut unit = Aru::new(head);
    unit.create_list(CONTENT, ListHints { compression, ..ListHints::default() });
    unit.put_record(CONTENT, DESCRIPTION_INDEX, description::encode(size_bytes));
    disk.commit(unit)?;
    Ok(())
}

/// The size of the device that `view` is; `None` if it is none.
///
/// # Errors
/// [`Error::Disk`], [`Error::LaterVersion`], [`Error::DamagedSize`].
fn find_size(disk: &dyn LogicalDisk, view: View) -> Result<Option<u64>> {
    match disk.record(view, CONTENT, DESCRIPTION_INDEX)? {
        Some(record) => description::decode(&record),
        None => Ok(None),
    }
}

/// How the pages of the device that `view` is are compressed.
///
/// # Errors
/// [`Error::Disk`].
pub(crate) fn compression(disk: &dyn LogicalDisk, view: View) -> Result<ListCompression> {
    Ok(disk.hints(view, CONTENT)?.unwrap_or_default().compression)
}

/// Frees all pages of `pages`, in as many units as that takes.
pub(crate) fn free_pages(disk: &dyn LogicalDisk, view: View, pages: Range<u64>) -> Result<()> {
    let mut at = pages.start;
    while let Some(first) = disk.next_data(view, CONTENT, at)?.filter(|first| *first < pages.end) {
        let end = ((first / UNIT_PAGES + 1) * UNIT_PAGES).min(pages.end);
        let mut unit = Aru::new(view);
        unit.punch_pages(CONTENT, first, end - first).set_reclaims();
        disk.commit(unit)?;
        at = end;
    }
    Ok(())
}

/// The size of a device.
///
/// # Errors
/// [`Error::NoDevice`], [`Error::LaterVersion`], [`Error::DamagedSize`], [`Error::Disk`].
pub fn size_bytes(disk: &dyn LogicalDisk, view: View) -> Result<u64> {
    find_size(disk, view)?.ok_or(Error::NoDevice(view))
}

/// Gives a device another size. What it is extended by is zeros; what it is cut off is lost. A
/// crash leaves one of both sizes. The device must not be open.
///
/// # Errors
/// [`Error::BadSize`], and those of [`size_bytes()`].
pub fn resize(disk: &dyn LogicalDisk, head: View, new_size_bytes: u64) -> Result<()> {
    check_size(new_size_bytes)?;
    let old_size_bytes = size_bytes(disk, head)?;
    // What a crash has left of making it smaller must not come back.
    free_pages(disk, head, old_size_bytes / PAGE_SIZE as u64..MAX_PAGE_COUNT)?;
    let mut unit = Aru::new(head);
    unit.put_record(CONTENT, DESCRIPTION_INDEX, description::encode(new_size_bytes));
    disk.commit(unit)?;
    free_pages(disk, head, new_size_bytes / PAGE_SIZE as u64..MAX_PAGE_COUNT)?;
    Ok(())
}

/// Makes a client that is a block device, and returns the head of its branch. A device that was
/// made is there whole or not at all. Its pages are compressed as `compression` says.
///
/// # Errors
/// [`Error::BadSize`]; [`Error::Disk`], where the name is taken.
pub fn create_client(
    disk: &dyn Versions,
    name: &str,
    size_bytes: u64,
    compression: ListCompression,
) -> Result<View> {
    check_size(size_bytes)?;
    let made = make_client(disk, name, ClientKind::Block, |disk, head| {
        create(disk, head, size_bytes, compression)
    });
    Ok(made?.head())
}

/// All block devices of a disk, in order of their branches, each followed by its snapshots, the
/// oldest first; and then snapshots that are in the past of no branch.
///
/// # Errors
/// [`Error::Disk`]. A device whose description is of no use is left out, and logged.
pub fn list(disk: &Arc<dyn Versions>) -> Result<Vec<Listed>> {
    let versions = disk.versions();
    let (mut named, mut seen) = (Vec::new(), HashSet::new());
    for branch in versions.branches().filter(|branch| !branch.is_receiving()) {
        named.push((branch.head(), branch.name.clone()));
        for snapshot in versions.past(branch.head()).iter().rev() {
            seen.insert(snapshot.epoch);
            named.push((snapshot.view(), branch.name.clone() + &snapshot.title()));
        }
    }
    let alone = versions.snapshots().filter(|snapshot| !seen.contains(&snapshot.epoch));
    named.extend(alone.map(|snapshot| (snapshot.view(), snapshot.title())));
    let mut all = Vec::new();
    for (view, name) in named {
        match find_size(&**disk, view) {
            Ok(Some(size_bytes)) => {
                let compression = compression(&**disk, view)?;
                all.push(Listed { view, name, size_bytes, compression });
            }
            Ok(None) => {}
            Err(error @ Error::Disk(_)) => return Err(error),
            Err(error) => log::warn!("{name}: {error}"),
        }
    }
    Ok(all)
}
