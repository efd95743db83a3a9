//! What all work on the pages of a file shares.

use std::borrow::Cow;
use std::ops::Range;

use dendro_disk::{Aru, PAGE_SIZE};

use super::freeing;
use crate::error::Result;
use crate::layout::inode::{Inode, InodeState};
use crate::state::{FsState, WriteGuard};
use crate::types::Ino;

/// [`PAGE_SIZE`] for offsets.
pub(super) const PAGE: u64 = PAGE_SIZE as u64;

/// How many pages of `range` are holes. The disk is queried only if the i-node is not enough to
/// know.
pub(super) fn holes_in(fs: &FsState, ino: Ino, inode: &Inode, range: Range<u64>) -> Result<u64> {
    let count = range.end - range.start;
    let size_pages = inode.size_pages();
    if !inode.state.contains(InodeState::EOF_PAGES) {
        if range.start >= size_pages {
            return Ok(count);
        }
        if inode.pages == size_pages {
            // There are no holes before the end of the file, and nothing but a hole after it.
            return Ok(range.end.saturating_sub(size_pages));
        }
    }
    Ok(count - fs.disk().count_pages(fs.view(), ino.lid(), range)?.min(count))
}

/// The first page at or after `page` that readers see data in.
pub(super) fn next_visible_data(
    fs: &FsState,
    ino: Ino,
    inode: &Inode,
    page: u64,
) -> Result<Option<u64>> {
    let next = fs.disk().next_data(fs.view(), ino.lid(), page)?;
    let punched = inode.punched_pages();
    match next {
        Some(next) if punched.contains(&next) => {
            fs.disk().next_data(fs.view(), ino.lid(), punched.end).map_err(Into::into)
        }
        _ => Ok(next),
    }
}

/// The first page at or after `page` that readers see as a hole.
pub(super) fn next_visible_hole(fs: &FsState, ino: Ino, inode: &Inode, page: u64) -> Result<u64> {
    let next = fs.disk().next_hole(fs.view(), ino.lid(), page)?;
    let punched = inode.punched_pages();
    let is_before = !punched.is_empty() && page < punched.end;
    Ok(if is_before { next.min(punched.start.max(page)) } else { next })
}

/// Zeroes what `buf`, which was read from `offset` on, has of the range that is being freed.
pub(super) fn hide_punched(inode: &Inode, offset: u64, buf: &mut [u8]) {
    let pages = inode.punched_pages();
    if pages.is_empty() {
        return;
    }
    let end = offset + buf.len() as u64;
    let within = |page: u64| (page.saturating_mul(PAGE).clamp(offset, end) - offset) as usize;
    buf[within(pages.start)..within(pages.end)].fill(0);
}

/// Prepares a file for work on its pages: moves inline data to a page, in a unit that changes
/// nothing that users can see, and frees what an interrupted operation has left to free.
pub(super) fn prepare_pages(fs: &FsState, guard: &mut WriteGuard<'_>) -> Result<()> {
    if guard.inode().freeing_orphan().is_some() {
        freeing::finish_freeing(fs, guard)?;
    }
    if !guard.inode().state.contains(InodeState::INLINE) {
        return Ok(());
    }
    let mut inode = guard.edit();
    let data = std::mem::take(&mut inode.inline);
    inode.state -= InodeState::INLINE;
    let mut aru = fs.aru();
    if !data.is_empty() {
        inode.pages = 1;
        aru.write_pages(guard.ino().lid(), 0, Cow::Owned(data));
    }
    fs.commit_inode(&mut aru, guard, inode)
}

/// Zeroes bytes `from..to` of a page, unless the page is a hole.
pub(super) fn zero_in_page(
    fs: &FsState,
    aru: &mut Aru<'_>,
    ino: Ino,
    page: u64,
    from: usize,
    to: usize,
) -> Result<()> {
    if fs.disk().next_data(fs.view(), ino.lid(), page)? != Some(page) {
        return Ok(());
    }
    let mut bytes = vec![0; PAGE_SIZE];
    fs.disk().read_pages(fs.view(), ino.lid(), page, &mut bytes)?;
    bytes[from..to].fill(0);
    aru.write_pages(ino.lid(), page, Cow::Owned(bytes));
    Ok(())
}
