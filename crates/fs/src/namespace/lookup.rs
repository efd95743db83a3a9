//! Looking up names.

use crate::attributes;
use crate::error::{FsError, Result};
use crate::layout::dirent;
use crate::layout::names::{check_name, is_dots};
use crate::state::FsState;
use crate::types::{Attr, Ino};

/// See [`crate::FileSystem::lookup`].
pub(crate) fn lookup(fs: &FsState, parent: Ino, name: &[u8]) -> Result<Attr> {
    check_name(name)?;
    if name == b"." {
        let attr = attributes::get(fs, parent)?;
        fs.references().add_lookup(parent);
        return Ok(attr);
    }
    let dir_node = fs.node(parent);
    let dir = fs.read_directory(&dir_node)?;
    if is_dots(name) {
        let ino = Ino(dir.parent);
        // To lock the parent now would be against the lock order.
        drop(dir);
        let attr = attributes::get(fs, ino)?;
        fs.references().add_lookup(ino);
        return Ok(attr);
    }
    let name = dirent::locate(fs.disk(), fs.view(), fs.hasher(), parent, name)?;
    let record = fs.disk().record(fs.view(), parent.lid(), name.index)?;
    let found = dirent::find(record.as_deref().unwrap_or_default(), name.bytes)?;
    let ino = found.ok_or(FsError::NotFound)?.ino;
    let node = fs.node(ino);
    let attr = fs.attr_of(&node, &*fs.read_child(&node, parent)?);
    fs.references().add_lookup(ino);
    Ok(attr)
}
