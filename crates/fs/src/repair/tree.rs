//! What directories and the orphan list say of files.

use dendro_disk::Aru;

use super::head::Head;
use crate::check::{Finding, FindingCode};
use crate::error::{FsError, Result};
use crate::layout::dirent;
use crate::layout::format::ORPHAN_LIST;
use crate::layout::inode::{Inode, InodeState};
use crate::layout::{orphan_list, volume};
use crate::types::{FileKind, Ino};

/// Mends an entry that names nothing, says the wrong type, or names a directory that is elsewhere.
pub(super) fn mend_entry(head: &Head<'_>, finding: &Finding) -> Result<()> {
    let directory = finding.ino;
    let mut edits = head.edits();
    let Some(entry) = &finding.entry else {
        // The root directory's own parent.
        head.change_inode(&mut edits, directory, |inode| inode.parent = directory.0)?;
        return head.commit(edits, |_| ());
    };
    let child = head.inode(&mut edits, entry.child)?;
    match (finding.code, child) {
        (FindingCode::WrongKind, Some(child)) => {
            let index = head.hasher().dir_index(&entry.name);
            let record = edits.load(directory.lid(), index)?;
            let old = dirent::find(record, &entry.name)?.map(|old| old.kind);
            dirent::replace(record, &entry.name, entry.child, child.kind)?;
            let is_directory = |kind| u32::from(kind == FileKind::Directory);
            let (before, after) = (old.map_or(0, is_directory), is_directory(child.kind));
            head.change_inode(&mut edits, directory, |inode| {
                inode.nlink = inode.nlink.saturating_sub(before).saturating_add(after);
            })?;
        }
        (FindingCode::WrongParent, Some(child)) if entry.child != Ino::ROOT => {
            let place = Some((directory, &*entry.name));
            if has_entry(head, Ino(child.parent), entry.child, place)? {
                head.remove_entry(&mut edits, directory, &entry.name)?;
            } else {
                head.change_inode(&mut edits, entry.child, |inode| inode.parent = directory.0)?;
            }
        }
        _ => head.remove_entry(&mut edits, directory, &entry.name)?,
    }
    head.commit(edits, |_| ())
}

/// Whether `directory` has an entry for the directory `child` other than the one at `but`.
pub(super) fn has_entry(
    head: &Head<'_>,
    directory: Ino,
    child: Ino,
    but: Option<(Ino, &[u8])>,
) -> Result<bool> {
    let mut edits = head.edits();
    let inode = head.inode(&mut edits, directory)?;
    if inode.is_none_or(|inode| inode.kind != FileKind::Directory) {
        return Ok(false);
    }
    let mut found = false;
    head.each_entry(directory, |_, entry| {
        found |= entry.ino == child
            && entry.kind == FileKind::Directory
            && Some((directory, entry.name)) != but;
    })?;
    Ok(found)
}

/// Mends a link count, or an entry of the orphan list.
pub(super) fn mend_count(head: &Head<'_>, finding: &Finding) -> Result<()> {
    let ino = finding.ino;
    let mut edits = head.edits();
    if finding.code == FindingCode::WrongLinkCount {
        let nlink = finding.expected.and_then(|count| u32::try_from(count).ok());
        let nlink = nlink.ok_or_else(|| FsError::Corrupted("too many links".into()))?;
        head.change_inode(&mut edits, ino, |inode| inode.nlink = nlink)?;
        return head.commit(edits, |_| ());
    }
    let inode = head.inode(&mut edits, ino)?;
    let freeing = inode.as_ref().and_then(Inode::freeing_orphan);
    match (inode, freeing) {
        (Some(inode), Some(kind)) if inode.kind == FileKind::Regular => {
            let mut aru = Aru::new(head.view());
            orphan_list::enter(&mut aru, ino, kind);
            if inode.punched.is_some() {
                volume::set_punched_ranges(head.disk(), head.view(), &mut aru)?;
            }
            head.disk().commit(aru)?;
            Ok(())
        }
        (Some(_), freeing) => {
            if freeing.is_some() {
                head.change_inode(&mut edits, ino, |inode| inode.state -= InodeState::FREEING)?;
            }
            edits.put(ORPHAN_LIST, ino.0, Vec::new());
            head.commit(edits, |_| ())
        }
        (None, _) => head.commit(edits, |aru| orphan_list::leave(aru, ino)),
    }
}
