//! Freeing many pages of a file in bounded units: those behind its new end, or those of a range
//! that is punched.
//!
//! What one unit cannot free is entered on the orphan list by the unit that changes the file, and
//! removed from it by the unit that frees the last pages. Between the two nobody sees the pages:
//! they lie behind the end of the file, or in the range that its i-node names as punched. After a
//! crash between the two the next mount frees the rest.

use std::ops::Range;

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

/// Frees what is left behind the end of a file, or in its punched range.
pub(crate) fn finish_freeing(fs: &FsState, guard: &mut WriteGuard<'_>) -> Result<()> {
    let ino = guard.ino();
    let mut inode = guard.edit();
    let pages = match inode.punched.take() {
        Some(range) => *range,
        None => inode.size_pages()..MAX_PAGE_COUNT,
    };
    let rest = free_pages(fs, ino, pages)?;
    inode.state -= InodeState::FREEING;
    let mut aru = no_space::reclaiming(fs);
    if let Some(rest) = rest {
        aru.punch_pages(ino.lid(), rest.start, rest.end - rest.start);
    }
    if inode.nlink > 0 {
        orphan_list::leave(&mut aru, ino);
    }
    fs.commit_inode(aru, guard, inode)
}

/// Frees pages of a range, unit by unit, until one more unit can free the rest. Returns the rest;
/// `None` if there is none.
fn free_pages(fs: &FsState, ino: Ino, range: Range<u64>) -> Result<Option<Range<u64>>> {
    let mut from = range.start;
    while let Some(step) = next_step(fs, ino, from..range.end)? {
        if next_data(fs, ino, step.end..range.end)?.is_none() {
            return Ok(Some(step));
        }
        let mut aru = no_space::reclaiming(fs);
        aru.punch_pages(ino.lid(), step.start, step.end - step.start);
        fs.disk().commit(aru)?;
        from = step.end;
    }
    Ok(None)
}

/// The pages that one unit can free of a range, from its first page on that is not a hole.
fn next_step(fs: &FsState, ino: Ino, range: Range<u64>) -> Result<Option<Range<u64>>> {
    let next = next_data(fs, ino, range.clone())?;
    Ok(next.map(|page| page..page.saturating_add(MAX_PAGES_FREED).min(range.end)))
}

/// The first page of a range that is not a hole.
fn next_data(fs: &FsState, ino: Ino, range: Range<u64>) -> Result<Option<u64>> {
    if range.is_empty() {
        return Ok(None);
    }
    let next = fs.disk().next_data(fs.view(), ino.lid(), range.start)?;
    Ok(next.filter(|&page| page < range.end))
}

/// A run of pages that one unit can free and that has all pages of a range that are not holes.
/// There are `count` of these. `None` if there is no such run.
pub(super) fn find_run(
    fs: &FsState,
    ino: Ino,
    range: Range<u64>,
    count: u64,
) -> Result<Option<Range<u64>>> {
    if range.end - range.start <= MAX_PAGES_FREED {
        return Ok(Some(range));
    }
    if count > MAX_PAGES_FREED {
        return Ok(None);
    }
    let Some(run) = next_step(fs, ino, range.clone())? else {
        return Ok(Some(range.start..range.start));
    };
    let found = fs.disk().count_pages(fs.view(), ino.lid(), run.clone())?;
    Ok((found == count).then_some(run))
}
