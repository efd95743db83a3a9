//! Allocating, punching, zeroing, collapsing and inserting ranges.

use std::ops::Range;

use dendro_disk::{Aru, Op, PAGE_SIZE};

use super::freeing::{begin_freeing, find_run, finish_freeing};
use super::pages::{PAGE, holes_in, prepare_pages, zero_in_page};
use super::truncate::resize;
use crate::error::{FsError, Result};
use crate::layout::inode::{Inode, InodeState};
use crate::layout::{orphan_list, volume};
use crate::no_space;
use crate::privileges::drop_privileges;
use crate::state::{FsState, WriteGuard};
use crate::types::{FallocateFlags, Ino, LongChange, MAX_FILE_SIZE_BYTES, MAX_PAGES_FREED};

/// The most that one unit allocates or zeroes, and makes holes of in a copy: 32 MiB.
const STEP_LEN: u64 = MAX_PAGES_FREED * PAGE;
const _: () = assert!(STEP_LEN.is_multiple_of(PAGE));

/// The most runs of holes that one unit allocates.
const MAX_RUNS: usize = 1024;

/// See [`crate::FileSystem::fallocate`].
pub(crate) fn fallocate(
    fs: &FsState,
    ino: Ino,
    offset: u64,
    len: u64,
    flags: FallocateFlags,
    how: &LongChange<'_>,
) -> Result<()> {
    fs.check_writable()?;
    if len == 0 {
        return Err(FsError::Invalid("an empty range"));
    }
    let end = offset
        .checked_add(len)
        .filter(|&end| end <= MAX_FILE_SIZE_BYTES)
        .ok_or(FsError::FileTooBig)?;
    let range = offset..end;
    let node = fs.node(ino);
    let mut guard = fs.write(&node)?;
    guard.inode().check_regular()?;
    let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
    let change = flags - FallocateFlags::KEEP_SIZE;
    if change.is_empty() {
        guard.inode().check_changeable()?;
    } else {
        guard.inode().check_rewritable()?;
    }
    if change.is_empty() {
        prepare_pages(fs, &mut guard)?;
        allocate_range(fs, &mut guard, range, keep_size, how)
    } else if change == FallocateFlags::PUNCH_HOLE && keep_size {
        prepare_pages(fs, &mut guard)?;
        punch_data(fs, &mut guard, &range, how.kill_priv)
    } else if change == FallocateFlags::ZERO_RANGE {
        prepare_pages(fs, &mut guard)?;
        zero_range(fs, &mut guard, range, keep_size, how)
    } else if change == FallocateFlags::COLLAPSE_RANGE && !keep_size {
        collapse_range(fs, &mut guard, range, how.kill_priv)
    } else if change == FallocateFlags::INSERT_RANGE && !keep_size {
        insert_range(fs, &mut guard, range, how.kill_priv)
    } else {
        Err(FsError::NotSupported("this combination of fallocate flags"))
    }
}

/// Commits a change of data, with the times and privileges that follow from it.
fn commit_data(
    fs: &FsState,
    mut aru: Aru<'_>,
    guard: &mut WriteGuard<'_>,
    mut inode: Inode,
    kill_priv: bool,
) -> Result<()> {
    let now = fs.now();
    (inode.mtime, inode.ctime) = (now, now);
    let mut edits = fs.edits();
    drop_privileges(fs, &mut edits, guard.ino(), &mut inode, kill_priv)?;
    edits.apply(&mut aru);
    fs.commit_inode(&mut aru, guard, inode)
}

/// Fails if allocating all holes in `pages` does not fit, before any of it is done.
fn check_that_holes_fit(fs: &FsState, guard: &WriteGuard<'_>, pages: Range<u64>) -> Result<()> {
    let holes = holes_in(fs, guard.ino(), guard.inode(), pages)?;
    no_space::check_fits(fs, holes.saturating_mul(PAGE))
}

fn allocate_range(
    fs: &FsState,
    guard: &mut WriteGuard<'_>,
    range: Range<u64>,
    keep_size: bool,
    how: &LongChange<'_>,
) -> Result<()> {
    let pages = range.start / PAGE..range.end.div_ceil(PAGE);
    check_that_holes_fit(fs, guard, pages.clone())?;
    let mut page = pages.start;
    while page < pages.end {
        let step_end = pages.end.min(page.saturating_add(STEP_LEN / PAGE));
        let mut aru = fs.aru();
        let mut inode = guard.edit();
        page = fill_holes(fs, &mut aru, guard.ino(), &mut inode, page..step_end)?;
        // The size changes in the last unit, so that it stays as it was if the operation fails.
        if page == pages.end && range.end > inode.size && !keep_size {
            inode.size = range.end;
        }
        if page > inode.size_pages() {
            inode.state |= InodeState::EOF_PAGES;
        }
        commit_data(fs, aru, guard, inode, how.kill_priv)?;
        if page < pages.end && (how.is_cancelled)() {
            return Err(FsError::Interrupted);
        }
    }
    Ok(())
}

/// Allocates holes in `pages`, but at most [`MAX_RUNS`] runs of them. Returns the page where it
/// stopped.
fn fill_holes(
    fs: &FsState,
    aru: &mut Aru<'_>,
    ino: Ino,
    inode: &mut Inode,
    pages: Range<u64>,
) -> Result<u64> {
    let mut page = pages.start;
    for _ in 0..MAX_RUNS {
        let hole = fs.disk().next_hole(fs.view(), ino.lid(), page)?;
        if hole >= pages.end {
            return Ok(pages.end);
        }
        let data = fs.disk().next_data(fs.view(), ino.lid(), hole)?;
        page = data.unwrap_or(pages.end).min(pages.end);
        let count = page - hole;
        aru.push(Op::ZeroPages { list: ino.lid(), first_page: hole, count });
        inode.pages += count;
    }
    Ok(page)
}

/// Frees the data in a range. The size stays. All of the range reads as zeros with the first unit,
/// however many follow.
fn punch_data(
    fs: &FsState,
    guard: &mut WriteGuard<'_>,
    range: &Range<u64>,
    kill_priv: bool,
) -> Result<()> {
    let ino = guard.ino();
    let mut aru = no_space::reclaiming(fs);
    let mut inode = guard.edit();
    zero_edges(fs, &mut aru, ino, range)?;
    let pages = whole_pages(range);
    if pages.is_empty() {
        return commit_data(fs, aru, guard, inode, kill_priv);
    }
    let count = pages.end - pages.start;
    let freed = count - holes_in(fs, ino, &inode, pages.clone())?.min(count);
    inode.pages = inode.pages.saturating_sub(freed);
    if let Some(run) = find_run(fs, ino, pages.clone(), freed)? {
        if !run.is_empty() {
            aru.punch_pages(ino.lid(), run.start, run.end - run.start);
        }
        return commit_data(fs, aru, guard, inode, kill_priv);
    }
    inode.state |= InodeState::PUNCHING;
    inode.punched = Some(Box::new(pages));
    volume::set_punched_ranges(fs.disk(), fs.view(), &mut aru)?;
    orphan_list::enter_if_freeing(&mut aru, ino, &inode);
    commit_data(fs, aru, guard, inode, kill_priv)?;
    begin_freeing(fs, guard)
}

/// Frees the data in the first part of a range, as much as one unit may. Returns where the rest
/// begins, or the end of the range: what lies before it is free. A file that ends before that place
/// grows to it.
pub(super) fn punch_some(
    fs: &FsState,
    guard: &mut WriteGuard<'_>,
    range: Range<u64>,
    kill_priv: bool,
) -> Result<u64> {
    let end = step_end(range.start, &range);
    // A range may reach far behind all data.
    let next = if end < range.end {
        fs.disk().next_data(fs.view(), guard.ino().lid(), end / PAGE)?
    } else {
        None
    };
    let rest = next.map_or(range.end, |page| page.saturating_mul(PAGE).clamp(end, range.end));
    punch_step(fs, guard, range.start..end, rest, kill_priv)?;
    Ok(rest)
}

fn punch_step(
    fs: &FsState,
    guard: &mut WriteGuard<'_>,
    step: Range<u64>,
    min_size: u64,
    kill_priv: bool,
) -> Result<()> {
    let mut aru = fs.aru();
    aru.set_reclaims();
    let ino = guard.ino();
    let mut inode = guard.edit();
    zero_edges(fs, &mut aru, ino, &step)?;
    let pages = whole_pages(&step);
    if !pages.is_empty() {
        let count = pages.end - pages.start;
        let freed = count - holes_in(fs, ino, &inode, pages.clone())?.min(count);
        inode.pages = inode.pages.saturating_sub(freed);
        aru.punch_pages(ino.lid(), pages.start, count);
    }
    inode.size = inode.size.max(min_size);
    commit_data(fs, aru, guard, inode, kill_priv)
}

fn zero_range(
    fs: &FsState,
    guard: &mut WriteGuard<'_>,
    range: Range<u64>,
    keep_size: bool,
    how: &LongChange<'_>,
) -> Result<()> {
    check_that_holes_fit(fs, guard, range.start / PAGE..range.end.div_ceil(PAGE))?;
    let end = range.end;
    for_each_step(range, how, |step| {
        let mut aru = fs.aru();
        let ino = guard.ino();
        let mut inode = guard.edit();
        zero_edges(fs, &mut aru, ino, &step)?;
        let pages = step.start / PAGE..step.end.div_ceil(PAGE);
        let holes = holes_in(fs, ino, &inode, pages.clone())?;
        if holes > 0 {
            for edge in [pages.start, pages.end - 1] {
                let is_edge = !whole_pages(&step).contains(&edge);
                let is_hole = fs.disk().next_hole(fs.view(), ino.lid(), edge)? == edge;
                if is_edge && is_hole {
                    aru.push(Op::ZeroPages { list: ino.lid(), first_page: edge, count: 1 });
                }
            }
        }
        let whole = whole_pages(&step);
        if !whole.is_empty() {
            let count = whole.end - whole.start;
            aru.push(Op::ZeroPages { list: ino.lid(), first_page: whole.start, count });
        }
        inode.pages += holes;
        // In the last unit, as in `allocate_range`.
        if step.end == end && !keep_size {
            inode.size = inode.size.max(end);
        }
        if pages.end > inode.size_pages() {
            inode.state |= InodeState::EOF_PAGES;
        }
        commit_data(fs, aru, guard, inode, how.kill_priv)
    })
}

/// Zeroes the parts of `range` that are not whole pages, where they are not holes.
fn zero_edges(fs: &FsState, aru: &mut Aru<'_>, ino: Ino, range: &Range<u64>) -> Result<()> {
    let (first, last) = (range.start / PAGE, range.end / PAGE);
    let (from, to) = ((range.start % PAGE) as usize, (range.end % PAGE) as usize);
    if first == last {
        return zero_in_page(fs, aru, ino, first, from, to);
    }
    if from != 0 {
        zero_in_page(fs, aru, ino, first, from, PAGE_SIZE)?;
    }
    if to != 0 {
        zero_in_page(fs, aru, ino, last, 0, to)?;
    }
    Ok(())
}

fn collapse_range(
    fs: &FsState,
    guard: &mut WriteGuard<'_>,
    range: Range<u64>,
    kill_priv: bool,
) -> Result<()> {
    let pages = aligned_pages(&range)?;
    if range.end >= guard.inode().size {
        return Err(FsError::Invalid("the range reaches the end of the file"));
    }
    prepare_move(fs, guard)?;
    let ino = guard.ino();
    let mut inode = guard.edit();
    let mut aru = fs.aru();
    let freed = fs.disk().count_pages(fs.view(), ino.lid(), pages.clone())?;
    aru.punch_pages(ino.lid(), pages.start, pages.end - pages.start);
    aru.push(Op::MovePages {
        from: ino.lid(),
        from_page: pages.end,
        to: ino.lid(),
        to_page: pages.start,
        count: inode.size_pages() - pages.end,
    });
    inode.pages = inode.pages.saturating_sub(freed);
    inode.size -= range.end - range.start;
    commit_data(fs, aru, guard, inode, kill_priv)
}

fn insert_range(
    fs: &FsState,
    guard: &mut WriteGuard<'_>,
    range: Range<u64>,
    kill_priv: bool,
) -> Result<()> {
    let pages = aligned_pages(&range)?;
    if range.start >= guard.inode().size {
        return Err(FsError::Invalid("the range starts at or past the end of the file"));
    }
    let len = range.end - range.start;
    let size = guard.inode().size;
    size.checked_add(len).filter(|&size| size <= MAX_FILE_SIZE_BYTES).ok_or(FsError::FileTooBig)?;
    prepare_move(fs, guard)?;
    let ino = guard.ino();
    let mut inode = guard.edit();
    let mut aru = fs.aru();
    aru.push(Op::MovePages {
        from: ino.lid(),
        from_page: pages.start,
        to: ino.lid(),
        to_page: pages.end,
        count: inode.size_pages() - pages.start,
    });
    inode.size += len;
    commit_data(fs, aru, guard, inode, kill_priv)
}

/// Prepares a file for moving its pages: frees what was allocated behind its end, in units that
/// change no data.
fn prepare_move(fs: &FsState, guard: &mut WriteGuard<'_>) -> Result<()> {
    prepare_pages(fs, guard)?;
    if !guard.inode().state.contains(InodeState::EOF_PAGES) {
        return Ok(());
    }
    let mut inode = guard.edit();
    let mut aru = fs.aru();
    let size = inode.size;
    let has_more = resize(fs, &mut aru, guard.ino(), &mut inode, size)?;
    fs.commit_inode(&mut aru, guard, inode)?;
    if has_more { finish_freeing(fs, guard) } else { Ok(()) }
}

/// The end of the step of `range` that begins at `start`. Steps are bounded, and meet at page
/// boundaries.
fn step_end(start: u64, range: &Range<u64>) -> u64 {
    range.end.min((start / PAGE * PAGE).saturating_add(STEP_LEN))
}

/// Calls `each` with one step of `range` after the other, until the operation is cancelled.
fn for_each_step(
    range: Range<u64>,
    how: &LongChange<'_>,
    mut each: impl FnMut(Range<u64>) -> Result<()>,
) -> Result<()> {
    let mut start = range.start;
    while start < range.end {
        if start > range.start && (how.is_cancelled)() {
            return Err(FsError::Interrupted);
        }
        let end = step_end(start, &range);
        each(start..end)?;
        start = end;
    }
    Ok(())
}

/// The pages that lie completely in `range`.
fn whole_pages(range: &Range<u64>) -> Range<u64> {
    let (start, end) = (range.start.div_ceil(PAGE), range.end / PAGE);
    start..end.max(start)
}

/// The pages of a range that must consist of whole pages.
fn aligned_pages(range: &Range<u64>) -> Result<Range<u64>> {
    if !range.start.is_multiple_of(PAGE) || !range.end.is_multiple_of(PAGE) {
        return Err(FsError::Invalid("the range is not of whole pages"));
    }
    Ok(range.start / PAGE..range.end / PAGE)
}
