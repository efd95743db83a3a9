//! The records of one directory: entries are where their names are looked up, each name is there
//! once, and the size is that of the entries.

use super::head::{BATCH_LEN, Child, Head};
use crate::error::Result;
use crate::layout::dirent;
use crate::layout::format::DIR_BASE;
use crate::layout::names;
use crate::types::{FileKind, Ino};

/// Mends all records of `directory`, each in a unit, and then its size.
pub(super) fn mend(head: &Head<'_>, directory: Ino) -> Result<()> {
    let mut from = DIR_BASE;
    loop {
        let (disk, view) = (head.disk(), head.view());
        let batch = disk.records(view, directory.lid(), from, BATCH_LEN)?;
        for (index, record) in &batch {
            if !is_sound(head, *index, record) {
                mend_record(head, directory, *index)?;
            }
        }
        match batch.last().and_then(|(last, _)| last.checked_add(1)) {
            Some(next) if batch.len() == BATCH_LEN => from = next,
            _ => break,
        }
    }
    let mut size = 0;
    head.each_entry(directory, |_, entry| size += dirent::entry_len(entry.name) as u64)?;
    let mut edits = head.edits();
    match head.inode(&mut edits, directory)? {
        Some(inode) if inode.kind == FileKind::Directory && inode.size != size => {
            head.change_inode(&mut edits, directory, |inode| inode.size = size)?;
            head.commit(edits, |_| ())
        }
        _ => Ok(()),
    }
}

fn is_sound(head: &Head<'_>, index: u64, record: &[u8]) -> bool {
    let mut names = std::collections::BTreeSet::new();
    let mut last_slot = None;
    dirent::entries(record).all(|entry| {
        entry.is_ok_and(|entry| {
            let is_in_order = last_slot < Some(entry.slot);
            last_slot = Some(entry.slot);
            is_in_order
                && names::check_new_name(entry.name).is_ok()
                && head.hasher().dir_index(entry.name) == index
                && names.insert(entry.name)
        })
    })
}

/// Keeps in the record what belongs there, and gives other entries their place.
fn mend_record(head: &Head<'_>, directory: Ino, index: u64) -> Result<()> {
    let mut edits = head.edits();
    let old = edits.peek(directory.lid(), index)?.to_vec();
    let mut own = Vec::new();
    let mut others = Vec::new();
    let (mut len_lost, mut directories_lost) = (0_u64, 0_u32);
    for entry in dirent::entries(&old).map_while(Result::ok) {
        let name = allowed_name(entry.name);
        let belongs = name == entry.name && head.hasher().dir_index(&name) == index;
        if belongs
            && dirent::find(&own, &name)?.is_none()
            && dirent::insert(&mut own, &name, entry.ino, entry.kind).is_ok()
        {
            continue;
        }
        len_lost += dirent::entry_len(entry.name) as u64;
        directories_lost += u32::from(entry.kind == FileKind::Directory);
        others.push((name, Child { ino: entry.ino, kind: entry.kind }));
    }
    *edits.load(directory.lid(), index)? = own;
    head.change_inode(&mut edits, directory, |inode| {
        inode.size = inode.size.saturating_sub(len_lost);
        inode.nlink = inode.nlink.saturating_sub(directories_lost);
    })?;
    for (name, child) in others {
        head.add_entry(&mut edits, directory, &name, child)?;
    }
    head.commit(edits, |_| ())
}

/// The name itself if a file can have it; else one with `_` in place of what is not allowed.
fn allowed_name(name: &[u8]) -> Vec<u8> {
    if names::is_dots(name) {
        return vec![b'_'; name.len()];
    }
    name.iter().map(|&byte| if matches!(byte, 0 | b'/') { b'_' } else { byte }).collect()
}
