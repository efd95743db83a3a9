//! Making, resizing and listing devices.

use std::collections::HashSet;
use std::sync::Arc;

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Aru, ListHints, LogicalDisk, MAX_PAGE_COUNT, Versions, View};

use crate::CONTENT;
use crate::description::{self, DESCRIPTION_INDEX, check_size};
use crate::device::{find_size, free_pages};
use crate::error::{Error, Result};

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
}

/// Makes a block device of the head of a branch that has nothing: the list [`CONTENT`], with its
/// description.
///
/// # Errors
/// [`Error::BadSize`], [`Error::Disk`].
pub fn create(disk: &(impl LogicalDisk + ?Sized), head: View, size_bytes: u64) -> Result<()> {
    check_size(size_bytes)?;
    let mut unit = Aru::new(head);
    unit.create_list(CONTENT, ListHints::default());
    unit.put_record(CONTENT, DESCRIPTION_INDEX, description::encode(size_bytes));
    disk.commit(unit)?;
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
            Ok(Some(size_bytes)) => all.push(Listed { view, name, size_bytes }),
            Ok(None) => {}
            Err(error @ Error::Disk(_)) => return Err(error),
            Err(error) => log::warn!("{name}: {error}"),
        }
    }
    Ok(all)
}
