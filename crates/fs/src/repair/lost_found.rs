//! Files that no name leads to get the one that another version has, or one in `/lost+found`: `#`
//! and their numbers.

use dendro_disk::ListHints;

use super::head::{Child, Head};
use super::names::{Names, Place};
use crate::check::{Finding, FindingCode};
use crate::error::{FsError, Result};
use crate::layout::format::HEAD_INDEX;
use crate::layout::inode::Inode;
use crate::types::{FileKind, Ino};

const NAME: &[u8] = b"lost+found";

/// Names `/lost+found` has if a file that is no directory has its name.
const MAX_NAMES_TRIED: u32 = 100;

/// Gives a file without a name one, or takes a directory out of a loop. Returns the directory that
/// the file was in, if that is known and the file is in `/lost+found` now.
pub(super) fn mend(head: &Head<'_>, finding: &Finding, names: &Names) -> Result<Option<Ino>> {
    let ino = finding.ino;
    let mut edits = head.edits();
    let Some(inode) = head.inode(&mut edits, ino)? else { return Ok(None) };
    let child = Child { ino, kind: inode.kind };
    let place = match names.place(head, child)? {
        Some(place) => place.clone(),
        None => Place { directory: directory(head)?, name: format!("#{ino}").into_bytes() },
    };
    if finding.code == FindingCode::DirectoryLoop {
        let mut names = Vec::new();
        let parent = Ino(inode.parent);
        head.each_entry(parent, |_, entry| {
            if entry.ino == ino {
                names.push(entry.name.to_vec());
            }
        })?;
        for name in names {
            head.remove_entry(&mut edits, parent, &name)?;
        }
    }
    head.add_entry(&mut edits, place.directory, &place.name, child)?;
    head.change_inode(&mut edits, ino, |inode| {
        inode.parent = place.directory.0;
        if inode.kind != FileKind::Directory {
            inode.nlink = 1;
        }
    })?;
    head.commit(edits, |_| ())?;
    let was_in = Ino(inode.parent);
    let is_elsewhere = was_in != Ino(0) && was_in != place.directory;
    Ok(Some(was_in).filter(|_| is_elsewhere && finding.code == FindingCode::Unreachable))
}

/// The directory `/lost+found`, made if it is not there.
fn directory(head: &Head<'_>) -> Result<Ino> {
    for attempt in 0..MAX_NAMES_TRIED {
        let name = match attempt {
            0 => NAME.to_vec(),
            attempt => [NAME, format!(".{attempt}").as_bytes()].concat(),
        };
        let mut edits = head.edits();
        match head.lookup(Ino::ROOT, &name)? {
            Some(child) if child.kind == FileKind::Directory => return Ok(child.ino),
            Some(_) => continue,
            None => {}
        }
        let list = head.disk().allocate_list()?;
        let ino = Ino(list.0);
        let mut inode = Inode::new(FileKind::Directory, 0o700, head.now());
        (inode.nlink, inode.parent) = (2, Ino::ROOT.0);
        let child = Child { ino, kind: FileKind::Directory };
        head.add_entry(&mut edits, Ino::ROOT, &name, child)?;
        edits.put(list, HEAD_INDEX, inode.encode());
        head.commit(edits, |aru| {
            aru.create_list(list, ListHints::default());
        })?;
        return Ok(ino);
    }
    Err(FsError::Full("the names of lost+found are taken"))
}
