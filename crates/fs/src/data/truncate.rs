//! Changes of size.

use dendro_disk::{Aru, MAX_PAGE_COUNT, PAGE_SIZE};

use super::freeing::find_run;
use super::pages::{PAGE, prepare_pages, zero_in_page};
use crate::error::Result;
use crate::layout::inode::{Inode, InodeState, MAX_INLINE_FILE_LEN};
use crate::layout::orphan_list;
use crate::state::{FsState, WriteGuard};
use crate::types::Ino;

/// Prepares a locked file for [`resize`].
pub(crate) fn prepare_resize(fs: &FsState, guard: &mut WriteGuard<'_>, size: u64) -> Result<()> {
    let stays_inline =
        guard.inode().state.contains(InodeState::INLINE) && size <= MAX_INLINE_FILE_LEN as u64;
    if stays_inline { Ok(()) } else { prepare_pages(fs, guard) }
}

/// Changes the size of a file within `aru`. If it returns true, there is more to free than one unit
/// may. Then [`super::freeing::begin_freeing`] must follow the commit, under the same lock.
pub(crate) fn resize(
    fs: &FsState,
    aru: &mut Aru<'_>,
    ino: Ino,
    inode: &mut Inode,
    size: u64,
) -> Result<bool> {
    if inode.state.contains(InodeState::INLINE) {
        inode.inline.resize(size as usize, 0);
        inode.size = size;
        inode.state.set(InodeState::INLINE, size > 0);
        return Ok(false);
    }
    // What was preallocated behind the end stays when the file becomes longer, as on other file
    // systems, and goes when it is cut off where it ends.
    let has_eof_pages = inode.state.contains(InodeState::EOF_PAGES);
    let frees_pages = size < inode.size || size == inode.size && has_eof_pages;
    if !frees_pages {
        inode.size = size;
        return Ok(false);
    }
    aru.set_reclaims();
    if size < inode.size && !size.is_multiple_of(PAGE) {
        zero_in_page(fs, aru, ino, size / PAGE, (size % PAGE) as usize, PAGE_SIZE)?;
    }
    let first_freed = size.div_ceil(PAGE);
    let all_pages = inode.pages;
    let is_truncating = inode.state.contains(InodeState::TRUNCATING);
    // Behind the last page there are only preallocated pages, or those that a truncation left.
    let has_more = is_truncating || has_eof_pages;
    let end = if has_more { MAX_PAGE_COUNT } else { inode.size_pages() };
    inode.pages = match first_freed {
        0 => 0,
        // Pages that an unfinished truncation left are in no count, so those that stay are counted.
        _ if is_truncating => fs.disk().count_pages(fs.view(), ino.lid(), 0..first_freed)?,
        // Only the freed pages are counted, which are mostly fewer.
        _ => all_pages.saturating_sub(fs.disk().count_pages(
            fs.view(),
            ino.lid(),
            first_freed..end,
        )?),
    };
    inode.size = size;
    inode.state -= InodeState::EOF_PAGES;
    let freed_count = all_pages.saturating_sub(inode.pages);
    let behind = first_freed..end.max(first_freed);
    // It is not known how many pages an unfinished truncation left.
    let count = if is_truncating { u64::MAX } else { freed_count };
    let in_one_unit = find_run(fs, ino, behind, count)?;
    if let Some(pages) = in_one_unit {
        if !pages.is_empty() {
            aru.punch_pages(ino.lid(), pages.start, pages.end - pages.start);
        }
        return Ok(false);
    }
    inode.state |= InodeState::TRUNCATING;
    orphan_list::enter_if_freeing(aru, ino, inode);
    Ok(true)
}
