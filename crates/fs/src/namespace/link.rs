//! Hard links: giving a file one more name.

use super::entries;
use crate::error::{FsError, Result};
use crate::layout::format::HEAD_INDEX;
use crate::layout::names::check_new_name;
use crate::layout::orphan_list;
use crate::state::FsState;
use crate::types::{Attr, FileKind, Ino};

/// See [`crate::FileSystem::link`].
pub(crate) fn link(fs: &FsState, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
    fs.check_writable()?;
    check_new_name(name)?;
    let dir_node = fs.node(parent);
    let node = fs.node(ino);
    // A directory could be above `parent`. So this is checked before both are locked, in an order
    // that would be wrong then.
    if fs.read(&node)?.kind == FileKind::Directory {
        return Err(FsError::NotPermitted("directories have one name"));
    }
    if ino == parent {
        return Err(FsError::NotDirectory);
    }
    let mut dir = fs.write_directory(&dir_node)?;
    let mut guard = fs.write(&node)?;
    let now = fs.now();
    let mut inode = guard.edit();
    inode.check_rewritable()?;
    let name = fs.name(name);
    let mut edits = fs.edits();
    if entries::find(&mut edits, parent, name)?.is_some() {
        return Err(FsError::Exists);
    }
    let is_unnamed = inode.nlink == 0;
    if is_unnamed && !fs.orphans().is_linkable(ino) {
        return Err(FsError::NotFound);
    }
    inode.nlink = inode.nlink.checked_add(1).ok_or(FsError::TooManyLinks)?;
    (inode.ctime, inode.parent) = (now, parent.0);
    let mut aru = fs.aru();
    if is_unnamed {
        orphan_list::leave(&mut aru, ino);
        orphan_list::enter_if_freeing(&mut aru, ino, &inode);
    }
    let mut new_dir = dir.edit();
    entries::add(&mut edits, (parent, &mut new_dir), name, (ino, inode.kind), now)?;
    aru.put_record(ino.lid(), HEAD_INDEX, inode.encode());
    fs.commit_edits(&mut aru, edits, &mut dir, new_dir)?;
    if is_unnamed {
        fs.orphans().remove(ino);
    }
    let attr = inode.attr(ino);
    guard.set(inode);
    fs.references().add_lookup(ino);
    Ok(attr)
}
