//! Removing names, and files with their last name.

use super::entries;
use crate::error::{FsError, Result};
use crate::layout::names::check_name;
use crate::orphans;
use crate::state::FsState;
use crate::types::{FileKind, Ino};

/// See [`crate::FileSystem::unlink`].
pub(crate) fn unlink(fs: &FsState, parent: Ino, name: &[u8]) -> Result<()> {
    remove(fs, parent, name, false)
}

/// See [`crate::FileSystem::rmdir`].
pub(crate) fn rmdir(fs: &FsState, parent: Ino, name: &[u8]) -> Result<()> {
    match name {
        b"." => Err(FsError::Invalid("a directory cannot remove itself")),
        b".." => Err(FsError::NotEmpty),
        _ => remove(fs, parent, name, true),
    }
}

fn remove(fs: &FsState, parent: Ino, name: &[u8], directory: bool) -> Result<()> {
    fs.check_writable()?;
    check_name(name)?;
    let dir_node = fs.node(parent);
    let mut dir = fs.write_directory(&dir_node)?;
    let name = fs.name(name);
    let mut edits = fs.edits();
    let (ino, kind) = entries::find(&mut edits, parent, name)?.ok_or(FsError::NotFound)?;
    match (kind == FileKind::Directory, directory) {
        (true, false) => return Err(FsError::IsDirectory),
        (false, true) => return Err(FsError::NotDirectory),
        (true, true) | (false, false) => (),
    }
    let node = fs.node(ino);
    let mut guard = fs.write_child(&node, parent)?;
    dir.inode().check_rewritable()?;
    guard.inode().check_rewritable()?;
    if directory {
        entries::check_empty(fs, &guard)?;
    }
    let now = fs.now();
    let mut aru = fs.aru();
    let mut new_dir = dir.edit();
    entries::remove(&mut edits, (parent, &mut new_dir), name, now)?;
    if directory {
        new_dir.nlink = new_dir.nlink.saturating_sub(1);
    }
    let mut child = guard.edit();
    let fate = orphans::drop_name(fs, &mut aru, ino, &mut child, now);
    fs.commit_edits(&mut aru, edits, &mut dir, new_dir)?;
    orphans::store_fate(fs, &mut guard, child, fate);
    drop((guard, dir));
    orphans::finish_fate(fs, &node, fate);
    Ok(())
}
