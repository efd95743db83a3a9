//! Files that no name leads to get the one that another version has in the directory that they say
//! they were in, or a name that is made from their number, `#` and the number:
//!
//! - in the directory that they say they were in, if only root may look into it, as into
//!   `/lost+found`: who else might see them there is not known, since a file says which directory
//!   gave it a name last, and may be one that was removed;
//! - if that directory is not there, in a directory below `/lost+found` that has its number, which
//!   gets its name if that is found;
//! - otherwise in `/lost+found`.

use dendro_disk::ListHints;

use super::head::{Child, Head};
use super::names::Names;
use crate::check::{Finding, FindingCode, NamedEntry};
use crate::error::{FsError, Result};
use crate::layout::dirent;
use crate::layout::format::HEAD_INDEX;
use crate::layout::inode::Inode;
use crate::types::{FileKind, Ino};

const NAME: &[u8] = b"lost+found";

/// Names `/lost+found` has if a file that is no directory has its name.
const MAX_NAMES_TRIED: u32 = 100;

/// The most directories on a path.
const MAX_DEPTH: usize = 4096;

/// A directory, and a name in it.
struct Place {
    directory: Ino,
    name: Vec<u8>,
}

/// Gives a file without a name one, or takes a directory out of a loop. Returns the directory that
/// the file was in, if that is there and the file is in `/lost+found` now.
pub(super) fn mend(head: &Head<'_>, finding: &Finding, names: &Names) -> Result<Option<Ino>> {
    let ino = finding.ino;
    let mut edits = head.edits();
    let Some(inode) = head.inode(&mut edits, ino)? else { return Ok(None) };
    let child = Child { ino, kind: inode.kind };
    let is_loop = finding.code == FindingCode::DirectoryLoop;
    let was_in = if is_loop { Ino(0) } else { Ino(inode.parent) };
    let place = place(head, child, was_in, names.of(ino))?;
    if is_loop {
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
    let is_elsewhere = was_in != place.directory && is_directory(head, was_in)?;
    Ok(is_elsewhere.then_some(was_in))
}

/// Where a file gets a name. `known` is the one that another version has in the directory `was_in`.
fn place(head: &Head<'_>, child: Child, was_in: Ino, known: Option<&[u8]>) -> Result<Place> {
    let parent = head.listed_inode(was_in)?;
    let directory = match &parent {
        Some(parent) => {
            let is_for_root = parent.uid == 0 && parent.perm & 0o077 == 0;
            let may_take = parent.kind == FileKind::Directory
                && (known.is_some() || is_for_root)
                && (child.kind != FileKind::Directory || !is_inside(head, was_in, child.ino)?);
            may_take.then_some(was_in)
        }
        None if was_in == Ino(0) => None,
        None => {
            let (of, name) = (made_lost_found(head)?, number(was_in));
            Some(match subdirectory(head, of, &name)? {
                Some(found) => found,
                None => make(head, of, &name)?,
            })
        }
    };
    match directory {
        Some(directory) => {
            let name = known.map_or_else(|| number(child.ino), <[u8]>::to_vec);
            Ok(Place { directory, name })
        }
        None => Ok(Place { directory: made_lost_found(head)?, name: number(child.ino) }),
    }
}

/// Whether `directory` is `above`, or lies somewhere in it, or in a loop.
fn is_inside(head: &Head<'_>, directory: Ino, above: Ino) -> Result<bool> {
    let mut at = directory;
    for _ in 0..MAX_DEPTH {
        if at == above {
            return Ok(true);
        }
        match head.listed_inode(at)? {
            Some(inode) if at != Ino::ROOT => at = Ino(inode.parent),
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn is_directory(head: &Head<'_>, ino: Ino) -> Result<bool> {
    let inode = head.listed_inode(ino)?;
    Ok(inode.is_some_and(|inode| inode.kind == FileKind::Directory))
}

/// The name of what has lost its own.
fn number(ino: Ino) -> Vec<u8> {
    format!("#{ino}").into_bytes()
}

/// Mends an entry for a directory that is not there. What said that it was in it is below
/// `/lost+found` by now, in a directory that has the number of the lost one and gets its name here.
/// If there is none, the entry goes: an empty directory would have nothing of the lost one, and
/// where an older state of the parent was restored, that may have been removed.
pub(super) fn return_directory(head: &Head<'_>, finding: &Finding) -> Result<()> {
    let Some(NamedEntry { name, child: lost }) = &finding.entry else { return Ok(()) };
    let directory = finding.ino;
    if head.lookup(directory, name)?.is_none_or(|named| named.ino != *lost) {
        return Ok(());
    }
    let mut edits = head.edits();
    let of = lost_found(head)?.1;
    let anew = of.map(|of| subdirectory(head, of, &number(*lost))).transpose()?.flatten();
    match (of, anew) {
        (Some(of), Some(anew)) if !is_inside(head, directory, anew)? => {
            head.remove_entry(&mut edits, of, &number(*lost))?;
            let record = edits.load(directory.lid(), head.hasher().dir_index(name))?;
            dirent::replace(record, name, anew, FileKind::Directory)?;
            head.change_inode(&mut edits, anew, |inode| inode.parent = directory.0)?;
        }
        _ => head.remove_entry(&mut edits, directory, name)?,
    }
    head.commit(edits, |_| ())
}

/// The name of `/lost+found`, and its number if it is there.
fn lost_found(head: &Head<'_>) -> Result<(Vec<u8>, Option<Ino>)> {
    for attempt in 0..MAX_NAMES_TRIED {
        let name = match attempt {
            0 => NAME.to_vec(),
            attempt => [NAME, format!(".{attempt}").as_bytes()].concat(),
        };
        let found = subdirectory(head, Ino::ROOT, &name)?;
        if found.is_some() || head.lookup(Ino::ROOT, &name)?.is_none() {
            return Ok((name, found));
        }
    }
    Err(FsError::Full("the names of lost+found are taken"))
}

fn made_lost_found(head: &Head<'_>) -> Result<Ino> {
    match lost_found(head)? {
        (_, Some(found)) => Ok(found),
        (name, None) => make(head, Ino::ROOT, &name),
    }
}

/// The directory that `name` names in a directory, if it is there.
fn subdirectory(head: &Head<'_>, directory: Ino, name: &[u8]) -> Result<Option<Ino>> {
    match head.lookup(directory, name)? {
        Some(Child { ino, .. }) if is_directory(head, ino)? => Ok(Some(ino)),
        _ => Ok(None),
    }
}

/// Makes a directory, which only root may look into.
fn make(head: &Head<'_>, directory: Ino, name: &[u8]) -> Result<Ino> {
    let list = head.disk().allocate_list()?;
    let ino = Ino(list.0);
    let mut inode = Inode::new(FileKind::Directory, 0o700, head.now());
    (inode.nlink, inode.parent) = (2, directory.0);
    let mut edits = head.edits();
    head.add_entry(&mut edits, directory, name, Child { ino, kind: FileKind::Directory })?;
    edits.put(list, HEAD_INDEX, inode.encode().to_vec());
    head.commit(edits, |aru| {
        aru.create_list(list, ListHints::default());
    })?;
    Ok(ino)
}
