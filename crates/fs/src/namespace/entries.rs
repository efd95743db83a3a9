//! The entries of a locked directory: finding, adding and removing one.

use crate::error::{FsError, Result};
use crate::layout::dirent;
use crate::layout::format::DIR_BASE;
use crate::layout::inode::Inode;
use crate::layout::names::Name;
use crate::layout::record_edits::RecordEdits;
use crate::state::{FsState, WriteGuard};
use crate::types::{FileKind, FileTime, Ino};

/// The file that `name` names in the locked directory `parent`. A change of the entry with the same
/// `edits` needs no further read.
pub(super) fn find(
    edits: &mut RecordEdits<'_>,
    parent: Ino,
    name: Name<'_>,
) -> Result<Option<(Ino, FileKind)>> {
    let record = edits.peek(parent.lid(), name.index)?;
    Ok(dirent::find(record, name.bytes)?.map(|entry| (entry.ino, entry.kind)))
}

/// Adds an entry that does not exist yet to `dir`, the new state of the locked directory `parent`.
pub(super) fn add(
    edits: &mut RecordEdits<'_>,
    (parent, dir): (Ino, &mut Inode),
    name: Name<'_>,
    (ino, kind): (Ino, FileKind),
    now: FileTime,
) -> Result<()> {
    dir.check_changeable()?;
    let record = edits.load(parent.lid(), name.index)?;
    dirent::insert(record, name.bytes, ino, kind)?;
    dir.size = dir.size.saturating_add(dirent::entry_len(name.bytes) as u64);
    (dir.mtime, dir.ctime) = (now, now);
    Ok(())
}

/// Removes an entry that exists from `dir`, the new state of the locked directory `parent`.
pub(super) fn remove(
    edits: &mut RecordEdits<'_>,
    (parent, dir): (Ino, &mut Inode),
    name: Name<'_>,
    now: FileTime,
) -> Result<()> {
    let record = edits.load(parent.lid(), name.index)?;
    if !dirent::remove(record, name.bytes)? {
        return Err(FsError::Corrupted(format!("directory {parent} lost an entry")));
    }
    dir.size = dir.size.saturating_sub(dirent::entry_len(name.bytes) as u64);
    (dir.mtime, dir.ctime) = (now, now);
    Ok(())
}

/// Refuses a directory that has entries.
pub(super) fn check_empty(fs: &FsState, dir: &WriteGuard<'_>) -> Result<()> {
    // A search would pass each entry that a snapshot has and the directory has no more. The size is
    // that of the entries; if damage made it 0, the check finds what they named.
    if dir.inode().size == 0 {
        return Ok(());
    }
    let lid = dir.ino().lid();
    let first = fs.disk().records(fs.view(), lid, DIR_BASE, 1)?;
    if first.is_empty() { Ok(()) } else { Err(FsError::NotEmpty) }
}
