//! Freeing many pages of a file in bounded units: those behind its new end, or those of a range
//! that is punched.
//!
//! What one unit cannot free is entered on the orphan list by the unit that changes the file, and
//! removed from it by the unit that frees the last pages. Between the two nobody sees the pages:
//! they lie behind the end of the file, or in the range that its i-node names as punched. After a
//! crash between the two the next mount goes on.
//!
//! The call that changes the file commits some of these units itself. The rest is a [`Chore`] of
//! the disk. Whoever changes the pages of such a file meanwhile frees the rest first.

use std::ops::Range;

use dendro_disk::{Chore, ChoreStep, GROUP_PAGES, MAX_PAGE_COUNT};

use crate::error::{FsError, Result};
use crate::layout::inode::{Inode, InodeState};
use crate::layout::orphan_list;
use crate::no_space;
use crate::state::{FsState, WriteGuard};
use crate::types::Ino;

/// Begins to free what is behind the end of a file, or in its punched range. The disk frees in the
/// background what is too much for one call.
pub(crate) fn begin_freeing(fs: &FsState, guard: &mut WriteGuard<'_>) -> Result<()> {
    let mut from = 0;
    for _ in 0..fs.freeing_limits().units_in_call {
        if free_some(fs, guard, &mut from)? {
            return Ok(());
        }
    }
    if fs.freeing().insert(fs.node(guard.ino()), from) {
        fs.disk().do_later(fs.chore());
    }
    Ok(())
}

/// Frees all that is left behind the end of a file, or in its punched range.
pub(crate) fn finish_freeing(fs: &FsState, guard: &mut WriteGuard<'_>) -> Result<()> {
    let mut from = fs.freeing().remove(guard.ino()).unwrap_or(0);
    while !free_some(fs, guard, &mut from)? {}
    Ok(())
}

/// Frees pages in one unit, from `from` on, where the next unit goes on. Returns whether these were
/// the last: then the file is not on the orphan list any more.
fn free_some(fs: &FsState, guard: &mut WriteGuard<'_>, from: &mut u64) -> Result<bool> {
    let ino = guard.ino();
    let pages = pages_to_free(guard.inode());
    let step = next_step(fs, ino, pages.start.max(*from)..pages.end)?;
    let rest = match &step {
        Some(step) => next_data(fs, ino, step.end..pages.end)?,
        None => None,
    };
    let mut aru = no_space::reclaiming(fs);
    if let Some(step) = step {
        aru.punch_pages(ino.lid(), step.start, step.end - step.start);
    }
    if let Some(rest) = rest {
        fs.disk().commit(aru)?;
        *from = rest;
        return Ok(false);
    }
    let mut inode = guard.edit();
    inode.state -= InodeState::FREEING;
    inode.punched = None;
    if inode.nlink > 0 {
        orphan_list::leave(&mut aru, ino);
    }
    fs.commit_inode(&mut aru, guard, inode)?;
    Ok(true)
}

/// The range in which all pages are to be freed.
fn pages_to_free(inode: &Inode) -> Range<u64> {
    match &inode.punched {
        Some(range) => Range::clone(range),
        None => inode.size_pages()..MAX_PAGE_COUNT,
    }
}

impl Chore for FsState {
    /// Frees pages of a file that has some left to free.
    fn step(&self) -> ChoreStep {
        let Some(node) = self.freeing().next() else { return ChoreStep::Finished };
        let ino = node.ino();
        let freed = match node.try_write_live() {
            Ok(None) => return ChoreStep::Waits,
            Ok(Some(mut guard)) => free_in_turn(self, &mut guard),
            Err(gone) => Err(gone),
        };
        match freed {
            Ok(()) => ChoreStep::Done,
            Err(error) if error.is_no_space() => ChoreStep::Waits,
            Err(error) => {
                // It stays on the orphan list: the next change of the file, or the next mount,
                // tries again.
                if error != FsError::Stale {
                    log::warn!("i-node {ino}: what was cut off was not all freed: {error}");
                }
                let _ = self.freeing().remove(ino);
                ChoreStep::Done
            }
        }
    }
}

/// Frees some pages of a file, if it is still waiting for that now that it is locked.
fn free_in_turn(fs: &FsState, guard: &mut WriteGuard<'_>) -> Result<()> {
    let ino = guard.ino();
    let Some(mut from) = fs.freeing().remove(ino) else { return Ok(()) };
    let is_last = free_some(fs, guard, &mut from);
    if !matches!(is_last, Ok(true)) {
        // The chore has been handed over: this is a step of it.
        let _ = fs.freeing().insert(fs.node(ino), from);
    }
    is_last.map(drop)
}

/// The pages that one unit can free of a range, from its first page on that is not a hole. Pages
/// that lie apart take as much work as dense ones that are 32 times as many.
fn next_step(fs: &FsState, ino: Ino, range: Range<u64>) -> Result<Option<Range<u64>>> {
    let Some(first) = next_data(fs, ino, range.clone())? else { return Ok(None) };
    let end = |len: u64| first.saturating_add(len).min(range.end);
    let mut len = fs.freeing_limits().pages_in_unit;
    let most_apart = len / GROUP_PAGES;
    while end(len) < range.end {
        let longer = first..end(2 * len);
        if fs.disk().count_pages(fs.view(), ino.lid(), longer)? > most_apart {
            break;
        }
        len *= 2;
    }
    Ok(Some(first..end(len)))
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
    let most = fs.freeing_limits().pages_in_unit;
    if range.end - range.start <= most {
        return Ok(Some(range));
    }
    if count > most {
        return Ok(None);
    }
    let Some(run) = next_step(fs, ino, range.clone())? else {
        return Ok(Some(range.start..range.start));
    };
    let found = fs.disk().count_pages(fs.view(), ino.lid(), run.clone())?;
    Ok((found == count).then_some(run))
}
