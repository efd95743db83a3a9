//! Targets of symbolic links.

use dendro_disk::{Aru, PAGE_SIZE};

use crate::error::{FsError, Result};
use crate::layout::inode::{Inode, InodeState, MAX_INLINE_LINK_LEN};
use crate::state::FsState;
use crate::types::{FileKind, Ino, MAX_SYMLINK_LEN_BYTES};

/// See [`crate::FileSystem::readlink`].
pub(crate) fn readlink(fs: &FsState, ino: Ino) -> Result<Vec<u8>> {
    let node = fs.node(ino);
    let inode = fs.read(&node)?;
    if inode.kind != FileKind::Symlink {
        return Err(FsError::Invalid("not a symbolic link"));
    }
    fs.touch_atime(&node, &inode);
    if inode.state.contains(InodeState::INLINE) {
        return Ok(inode.inline.clone());
    }
    let mut target = vec![0; PAGE_SIZE];
    fs.disk().read_pages(fs.view(), ino.lid(), 0, &mut target)?;
    target.truncate(inode.size as usize);
    Ok(target)
}

/// Stores the target of a new symbolic link within `aru`.
pub(super) fn set_target<'a>(aru: &mut Aru<'a>, ino: Ino, inode: &mut Inode, target: &'a [u8]) {
    const { assert!(MAX_SYMLINK_LEN_BYTES <= PAGE_SIZE) };
    inode.size = target.len() as u64;
    if target.len() <= MAX_INLINE_LINK_LEN {
        inode.state |= InodeState::INLINE;
        inode.inline = target.to_vec();
    } else {
        inode.pages = 1;
        aru.write_pages(ino.lid(), 0, target);
    }
}
