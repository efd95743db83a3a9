//! Freeing the pages of a truncated file, in bounded units.
//!
//! A truncation that one unit cannot finish is entered on the orphan list by the unit that changes
//! the size, and removed from it by the unit that frees the last pages. After a crash between the
//! two the next mount finishes it.

use dendro_disk::MAX_PAGE_COUNT;

use crate::error::Result;
use crate::layout::inode::InodeState;
use crate::layout::orphan_list;
use crate::no_space;
use crate::state::{FsState, WriteGuard};
use crate::types::Ino;

/// The most pages that one unit frees: 32 MiB. If a version keeps them, that is a millisecond of
/// work, for which other clients wait.
pub(crate) const MAX_PAGES_FREED: u64 = 8192;

/// Frees what a truncation left behind the end of a file.
pub(crate) fn finish_truncation(fs: &FsState, guard: &mut WriteGuard<'_>) -> Result<()> {
    let ino = guard.ino();
    let rest = free_pages(fs, ino, guard.inode().size_pages())?;
    let mut inode = guard.edit();
    inode.state -= InodeState::TRUNCATING;
    let mut aru = no_space::reclaiming(fs);
    if let Some(first_page) = rest {
        let count = MAX_PAGES_FREED.min(MAX_PAGE_COUNT - first_page);
        aru.punch_pages(ino.lid(), first_page, count);
    }
    if inode.nlink > 0 {
        orphan_list::leave(&mut aru, ino);
    }
    fs.commit_inode(aru, guard, inode)
}

/// Frees pages from `first_page` on, unit by unit, until one more unit can free the rest. Returns
/// the first page of the rest; `None` if there is none.
fn free_pages(fs: &FsState, ino: Ino, first_page: u64) -> Result<Option<u64>> {
    let mut from = first_page;
    loop {
        let Some(next) = fs.disk().next_data(fs.view(), ino.lid(), from)? else {
            return Ok(None);
        };
        let end = next.saturating_add(MAX_PAGES_FREED).min(MAX_PAGE_COUNT);
        if end == MAX_PAGE_COUNT || fs.disk().next_data(fs.view(), ino.lid(), end)?.is_none() {
            return Ok(Some(next));
        }
        let mut aru = no_space::reclaiming(fs);
        aru.punch_pages(ino.lid(), next, end - next);
        fs.disk().commit(aru)?;
        from = end;
    }
}
