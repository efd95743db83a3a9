//! Writing data.

use dendro_disk::{Aru, PAGE_SIZE};

use super::pages::{PAGE, holes_in, prepare_pages};
use crate::error::{FsError, Result};
use crate::layout::inode::{Inode, InodeState, MAX_INLINE_FILE_LEN};
use crate::privileges::{Privileges, drop_privileges, has_privileges};
use crate::state::{FsState, WriteGuard};
use crate::types::{Ino, MAX_FILE_SIZE_BYTES};

/// See [`crate::FileSystem::write`] and [`crate::FileSystem::write_back`].
pub(crate) fn write(
    fs: &FsState,
    ino: Ino,
    offset: u64,
    data: &[u8],
    drops: Privileges,
) -> Result<usize> {
    fs.check_writable()?;
    let node = fs.node(ino);
    let mut guard = fs.write(&node)?;
    guard.inode().check_regular()?;
    if data.is_empty() {
        return Ok(0);
    }
    let room = MAX_FILE_SIZE_BYTES.checked_sub(offset).filter(|&room| room > 0);
    let len = room.ok_or(FsError::FileTooBig)?.min(data.len() as u64) as usize;
    write_locked(fs, &mut guard, offset, &data[..len], drops)?;
    Ok(len)
}

/// Writes to a locked regular file. The write must not exceed the largest offset.
pub(super) fn write_locked(
    fs: &FsState,
    guard: &mut WriteGuard<'_>,
    offset: u64,
    data: &[u8],
    drops: Privileges,
) -> Result<()> {
    if offset < guard.inode().size {
        guard.inode().check_rewritable()?;
    }
    guard.inode().check_changeable()?;
    let end = offset + data.len() as u64;
    let inline = can_be_inline(guard.inode(), end);
    if !inline {
        prepare_pages(fs, guard)?;
    }
    let ino = guard.ino();
    let mut inode = guard.edit();
    let mut aru = fs.aru();
    if inline {
        inode.state |= InodeState::INLINE;
        inode.size = inode.size.max(end);
        inode.inline.resize(inode.size as usize, 0);
        inode.inline[offset as usize..end as usize].copy_from_slice(data);
    } else {
        write_pages(fs, &mut aru, ino, &mut inode, offset, data)?;
    }
    let now = fs.now();
    (inode.mtime, inode.ctime) = (now, now);
    let mut edits = fs.edits();
    if drops != Privileges::None && has_privileges(&inode) {
        drop_privileges(fs, &mut edits, ino, &mut inode, drops == Privileges::All)?;
    }
    fs.commit_edits(&mut aru, edits, guard, inode)
}

/// Adds the pages of a write to `aru`. Whole pages are borrowed from `data`; partial ones are
/// merged with what the file has around them.
fn write_pages<'a>(
    fs: &FsState,
    aru: &mut Aru<'a>,
    ino: Ino,
    inode: &mut Inode,
    offset: u64,
    data: &'a [u8],
) -> Result<()> {
    let end = offset + data.len() as u64;
    let first_page = offset / PAGE;
    let end_page = end.div_ceil(PAGE);
    inode.pages += holes_in(fs, ino, inode, first_page..end_page)?;
    let mut page = first_page;
    let mut rest = data;
    let in_page = (offset % PAGE) as usize;
    if in_page != 0 {
        let here = rest.len().min(PAGE_SIZE - in_page);
        let merged = merge(fs, ino, inode, page, in_page, &rest[..here])?;
        aru.write_pages_to_change(ino.lid(), page, merged);
        rest = &rest[here..];
        page += 1;
    }
    // A partial page at the end of the file is borrowed as it is: the disk adds the zeros
    // (invariant 1).
    let whole = if end >= inode.size { rest.len() } else { rest.len() / PAGE_SIZE * PAGE_SIZE };
    // What is appended to once is likely to be again; most new files are not.
    if !whole.is_multiple_of(PAGE_SIZE) && inode.size > 0 {
        aru.write_pages_to_change(ino.lid(), page, &rest[..whole]);
    } else if whole > 0 {
        aru.write_pages(ino.lid(), page, &rest[..whole]);
        page += (whole / PAGE_SIZE) as u64;
    }
    if whole < rest.len() {
        let merged = merge(fs, ino, inode, page, 0, &rest[whole..])?;
        aru.write_pages_to_change(ino.lid(), page, merged);
    }
    inode.size = inode.size.max(end);
    Ok(())
}

/// A page with `data` written over its bytes from `in_page` on, without the zeros behind the end of
/// the file.
fn merge(
    fs: &FsState,
    ino: Ino,
    inode: &Inode,
    page: u64,
    in_page: usize,
    data: &[u8],
) -> Result<Vec<u8>> {
    let start = page * PAGE;
    let old_len = inode.size.saturating_sub(start).min(PAGE) as usize;
    let end = in_page + data.len();
    let mut merged = vec![0; PAGE_SIZE];
    let is_covered = in_page == 0 && end >= old_len;
    if old_len > 0 && !is_covered {
        fs.disk().read_pages(fs.view(), ino.lid(), page, &mut merged)?;
    }
    merged[in_page..end].copy_from_slice(data);
    merged.truncate(end.max(old_len));
    Ok(merged)
}

/// Whether the data of a file can be inline after a write that ends at `end`.
fn can_be_inline(inode: &Inode, end: u64) -> bool {
    let has_no_pages =
        inode.pages == 0 && !inode.state.intersects(InodeState::FREEING | InodeState::EOF_PAGES);
    has_no_pages && inode.size.max(end) <= MAX_INLINE_FILE_LEN as u64
}
