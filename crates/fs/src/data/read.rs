//! Reading data, and searching for data and holes.

use dendro_disk::PAGE_SIZE;

use super::pages::{PAGE, hide_punched, next_visible_data, next_visible_hole};
use crate::error::{FsError, Result};
use crate::layout::inode::{Inode, InodeState};
use crate::state::FsState;
use crate::types::{Ino, Seek};

/// See [`crate::FileSystem::read`].
pub(crate) fn read(fs: &FsState, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let node = fs.node(ino);
    let inode = fs.read(&node)?;
    inode.check_regular()?;
    let len = inode.size.saturating_sub(offset).min(buf.len() as u64) as usize;
    if len > 0 {
        if inode.state.contains(InodeState::INLINE) {
            let from = offset as usize;
            buf[..len].copy_from_slice(&inode.inline[from..from + len]);
        } else {
            read_range(fs, ino, &inode, offset, buf, len)?;
        }
        fs.touch_atime(&node, &inode);
    }
    Ok(len)
}

/// Reads `len` bytes of pages, from `offset` on, to the start of `buf`. The rest of `buf` saves
/// copies of partial pages.
pub(super) fn read_range(
    fs: &FsState,
    ino: Ino,
    inode: &Inode,
    offset: u64,
    buf: &mut [u8],
    len: usize,
) -> Result<()> {
    let mut page = offset / PAGE;
    let mut at = 0;
    let in_page = (offset % PAGE) as usize;
    if in_page != 0 {
        at = len.min(PAGE_SIZE - in_page);
        read_part(fs, ino, page, in_page, &mut buf[..at])?;
        page += 1;
    }
    let rest = len - at;
    // A partial last page is read in place, too, if the buffer has room for the whole page.
    let in_place = rest.next_multiple_of(PAGE_SIZE).min((buf.len() - at) / PAGE_SIZE * PAGE_SIZE);
    if rest > 0 && in_place > 0 {
        fs.disk().read_pages(fs.view(), ino.lid(), page, &mut buf[at..at + in_place])?;
    }
    if rest > in_place {
        page += (in_place / PAGE_SIZE) as u64;
        read_part(fs, ino, page, 0, &mut buf[at + in_place..len])?;
    }
    hide_punched(inode, offset, &mut buf[..len]);
    Ok(())
}

/// Reads a part of one page.
fn read_part(fs: &FsState, ino: Ino, page: u64, in_page: usize, out: &mut [u8]) -> Result<()> {
    let mut bounce = [0; PAGE_SIZE];
    fs.disk().read_pages(fs.view(), ino.lid(), page, &mut bounce)?;
    out.copy_from_slice(&bounce[in_page..in_page + out.len()]);
    Ok(())
}

/// See [`crate::FileSystem::lseek`].
pub(crate) fn seek(fs: &FsState, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
    let node = fs.node(ino);
    let inode = fs.read(&node)?;
    inode.check_regular()?;
    if offset >= inode.size {
        return Err(FsError::NoData);
    }
    if inode.state.contains(InodeState::INLINE) {
        return Ok(match seek {
            Seek::Data => offset,
            Seek::Hole => inode.size,
        });
    }
    match seek {
        Seek::Data => next_visible_data(fs, ino, &inode, offset / PAGE)?
            .map(|page| offset.max(page.saturating_mul(PAGE)))
            .filter(|&data| data < inode.size)
            .ok_or(FsError::NoData),
        Seek::Hole => {
            let page = next_visible_hole(fs, ino, &inode, offset / PAGE)?;
            Ok(offset.max(page.saturating_mul(PAGE)).min(inode.size))
        }
    }
}
