//! Allocating, punching, zeroing, collapsing and inserting ranges.

use std::ops::Range;

use dendro_disk::{Aru, MAX_PAGE_COUNT, Op, PAGE_SIZE};

use crate::data::PAGE;
use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::inode::{Inode, State};
use crate::node::WriteGuard;
use crate::orphan::MAX_PAGES_FREED;
use crate::types::{FallocateFlags, Ino, MAX_FILE_SIZE_BYTES, Patron};

/// What one unit allocates, punches or zeroes at most: 64 MiB.
const STEP_LEN: u64 = MAX_PAGES_FREED * PAGE;
const _: () = assert!(STEP_LEN.is_multiple_of(PAGE));

/// So much data takes a byte of the map, in a long range of one file.
const DATA_FOR_MAP: u64 = 256;

/// The most runs of holes that one unit allocates.
const MAX_RUNS: usize = 1024;

impl FileSystem {
    /// Allocates, punches, zeroes, collapses or inserts. Each 64 MiB of a range to allocate, punch
    /// or zero are an atomic recovery unit of their own; a size that changes does so in the last.
    ///
    /// Allocated pages read as zeros and count as data. The disk counts them in full, so they can be
    /// written on a full volume too, as long as no other version has them.
    ///
    /// # Errors
    /// `Invalid` for a range that is empty or, to collapse or insert, not of whole pages;
    /// `FileTooBig`, `NotSupported` for flags that don't go together, `NotPermitted`; `Interrupted`
    /// when the patron has left in the middle, after which a part is done.
    pub fn fallocate(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        flags: FallocateFlags,
        patron: &Patron<'_>,
    ) -> Result<()> {
        self.check_writable()?;
        if len == 0 {
            return Err(FsError::Invalid("an empty range"));
        }
        let end = offset
            .checked_add(len)
            .filter(|&end| end <= MAX_FILE_SIZE_BYTES)
            .ok_or(FsError::FileTooBig)?;
        let range = offset..end;
        let node = self.node(ino);
        let mut guard = node.write(&*self.disk, self.view)?;
        guard.inode().check_regular()?;
        let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
        let change = flags - FallocateFlags::KEEP_SIZE;
        if change.is_empty() {
            guard.inode().check_changeable()?;
        } else {
            guard.inode().check_rewritable()?;
        }
        if change.is_empty() {
            self.prepare_pages(&mut guard)?;
            self.allocate_range(&mut guard, range, keep_size, patron)
        } else if change == FallocateFlags::PUNCH_HOLE && keep_size {
            self.prepare_pages(&mut guard)?;
            self.punch_data(&mut guard, range, patron)
        } else if change == FallocateFlags::ZERO_RANGE {
            self.prepare_pages(&mut guard)?;
            self.zero_range(&mut guard, range, keep_size, patron)
        } else if change == FallocateFlags::COLLAPSE_RANGE && !keep_size {
            self.collapse_range(&mut guard, range, patron.kill_priv)
        } else if change == FallocateFlags::INSERT_RANGE && !keep_size {
            self.insert_range(&mut guard, range, patron.kill_priv)
        } else {
            Err(FsError::NotSupported("this combination of fallocate flags"))
        }
    }

    /// Commits a change of data: times and privileges follow.
    fn commit_data(
        &self,
        mut aru: Aru<'_>,
        guard: &mut WriteGuard<'_>,
        mut inode: Inode,
        kill_priv: bool,
    ) -> Result<()> {
        let now = self.now();
        (inode.mtime, inode.ctime) = (now, now);
        let mut edits = self.edits();
        self.drop_privileges(&mut edits, guard.ino(), &mut inode, kill_priv)?;
        edits.apply(&mut aru);
        self.commit_inode(aru, guard, inode)
    }

    /// Refuses what does not fit before any of it is done. The disk looks: it first gives back what was
    /// deleted a moment ago and is still being taken out.
    fn check_that_holes_fit(&self, guard: &WriteGuard<'_>, pages: Range<u64>) -> Result<()> {
        let holes = self.holes_in(guard.ino(), guard.inode(), pages)?;
        let needed_bytes = holes.saturating_mul(PAGE);
        drop(self.disk.reserve(needed_bytes.saturating_add(needed_bytes / DATA_FOR_MAP))?);
        Ok(())
    }

    fn allocate_range(
        &self,
        guard: &mut WriteGuard<'_>,
        range: Range<u64>,
        keep_size: bool,
        patron: &Patron<'_>,
    ) -> Result<()> {
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        self.check_that_holes_fit(guard, pages.clone())?;
        let mut page = pages.start;
        while page < pages.end {
            let step_end = pages.end.min(page.saturating_add(STEP_LEN / PAGE));
            let mut aru = self.aru();
            let mut inode = guard.edit();
            page = self.fill_holes(&mut aru, guard.ino(), &mut inode, page..step_end)?;
            // The size changes at the end: who asked goes on with the old one if the rest fails.
            if page == pages.end && range.end > inode.size && !keep_size {
                inode.size = range.end;
            }
            if page > inode.size_pages() {
                inode.state |= State::EOF_PAGES;
            }
            self.commit_data(aru, guard, inode, patron.kill_priv)?;
            if page < pages.end && (patron.has_left)() {
                return Err(FsError::Interrupted);
            }
        }
        Ok(())
    }

    /// Allocates holes in `pages`, but not too many runs of them; answers how far it came.
    fn fill_holes(
        &self,
        aru: &mut Aru<'_>,
        ino: Ino,
        inode: &mut Inode,
        pages: Range<u64>,
    ) -> Result<u64> {
        let mut page = pages.start;
        for _ in 0..MAX_RUNS {
            let hole = self.disk.next_hole(self.view, ino.lid(), page)?;
            if hole >= pages.end {
                return Ok(pages.end);
            }
            let data = self.disk.next_data(self.view, ino.lid(), hole)?;
            page = data.unwrap_or(pages.end).min(pages.end);
            let count = page - hole;
            aru.push(Op::ZeroPages { list: ino.lid(), first_page: hole, count });
            inode.pages += count;
        }
        Ok(page)
    }

    /// Makes what there is in a range a hole.
    fn punch_data(
        &self,
        guard: &mut WriteGuard<'_>,
        range: Range<u64>,
        patron: &Patron<'_>,
    ) -> Result<()> {
        let mut start = range.start;
        loop {
            let end = step_end(start, &range);
            self.punch_step(guard, start..end, false, patron.kill_priv)?;
            // A range may reach far past all data.
            let next = self.disk.next_data(self.view, guard.ino().lid(), end / PAGE)?;
            let Some(next) = next.filter(|&page| page < range.end.div_ceil(PAGE)) else {
                return Ok(());
            };
            start = end.max(next * PAGE);
            if start >= range.end {
                return Ok(());
            }
            if (patron.has_left)() {
                return Err(FsError::Interrupted);
            }
        }
    }

    /// Makes a range a hole; a file that ends before the range's end grows to it.
    pub(crate) fn punch_range(
        &self,
        guard: &mut WriteGuard<'_>,
        range: Range<u64>,
        kill_priv: bool,
    ) -> Result<()> {
        for_each_step(range, &Patron::patient(kill_priv), |step| {
            self.punch_step(guard, step, true, kill_priv)
        })
    }

    fn punch_step(
        &self,
        guard: &mut WriteGuard<'_>,
        step: Range<u64>,
        grow: bool,
        kill_priv: bool,
    ) -> Result<()> {
        let mut aru = self.aru();
        aru.set_reclaims();
        let ino = guard.ino();
        let mut inode = guard.edit();
        self.zero_edges(&mut aru, ino, &step)?;
        let pages = whole_pages(&step);
        if !pages.is_empty() {
            let count = pages.end - pages.start;
            let gone = count - self.holes_in(ino, &inode, pages.clone())?.min(count);
            inode.pages = inode.pages.saturating_sub(gone);
            aru.punch_pages(ino.lid(), pages.start, count);
        }
        if grow {
            inode.size = inode.size.max(step.end);
        }
        self.commit_data(aru, guard, inode, kill_priv)
    }

    fn zero_range(
        &self,
        guard: &mut WriteGuard<'_>,
        range: Range<u64>,
        keep_size: bool,
        patron: &Patron<'_>,
    ) -> Result<()> {
        self.check_that_holes_fit(guard, range.start / PAGE..range.end.div_ceil(PAGE))?;
        let end = range.end;
        for_each_step(range, patron, |step| {
            let mut aru = self.aru();
            let ino = guard.ino();
            let mut inode = guard.edit();
            self.zero_edges(&mut aru, ino, &step)?;
            let pages = step.start / PAGE..step.end.div_ceil(PAGE);
            let holes = self.holes_in(ino, &inode, pages.clone())?;
            if holes > 0 {
                for edge in [pages.start, pages.end - 1] {
                    let is_edge = !whole_pages(&step).contains(&edge);
                    let is_hole = self.disk.next_hole(self.view, ino.lid(), edge)? == edge;
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
            // At the end, as in allocating.
            if step.end == end && !keep_size {
                inode.size = inode.size.max(end);
            }
            if pages.end > inode.size_pages() {
                inode.state |= State::EOF_PAGES;
            }
            self.commit_data(aru, guard, inode, patron.kill_priv)
        })
    }

    /// Zeroes the parts of `range` that are not whole pages, where they are not holes.
    fn zero_edges(&self, aru: &mut Aru<'_>, ino: Ino, range: &Range<u64>) -> Result<()> {
        let (first, last) = (range.start / PAGE, range.end / PAGE);
        let (from, to) = ((range.start % PAGE) as usize, (range.end % PAGE) as usize);
        if first == last {
            return self.zero_in_page(aru, ino, first, from, to);
        }
        if from != 0 {
            self.zero_in_page(aru, ino, first, from, PAGE_SIZE)?;
        }
        if to != 0 {
            self.zero_in_page(aru, ino, last, 0, to)?;
        }
        Ok(())
    }

    fn collapse_range(
        &self,
        guard: &mut WriteGuard<'_>,
        range: Range<u64>,
        kill_priv: bool,
    ) -> Result<()> {
        let pages = aligned_pages(&range)?;
        if range.end >= guard.inode().size {
            return Err(FsError::Invalid("the range reaches the end of the file"));
        }
        self.prepare_move(guard)?;
        let ino = guard.ino();
        let mut inode = guard.edit();
        let mut aru = self.aru();
        let gone = self.disk.count_pages(self.view, ino.lid(), pages.clone())?;
        aru.punch_pages(ino.lid(), pages.start, pages.end - pages.start);
        aru.push(Op::MovePages {
            from: ino.lid(),
            from_page: pages.end,
            to: ino.lid(),
            to_page: pages.start,
            count: inode.size_pages() - pages.end,
        });
        inode.pages = inode.pages.saturating_sub(gone);
        inode.size -= range.end - range.start;
        self.commit_data(aru, guard, inode, kill_priv)
    }

    fn insert_range(
        &self,
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
        size.checked_add(len)
            .filter(|&size| size <= MAX_FILE_SIZE_BYTES)
            .ok_or(FsError::FileTooBig)?;
        self.prepare_move(guard)?;
        let ino = guard.ino();
        let mut inode = guard.edit();
        let mut aru = self.aru();
        aru.push(Op::MovePages {
            from: ino.lid(),
            from_page: pages.start,
            to: ino.lid(),
            to_page: pages.end,
            count: inode.size_pages() - pages.start,
        });
        inode.size += len;
        self.commit_data(aru, guard, inode, kill_priv)
    }

    /// Readies a file for moving its pages: what was allocated past its end is given back, in a
    /// unit that changes nothing anybody can read.
    fn prepare_move(&self, guard: &mut WriteGuard<'_>) -> Result<()> {
        self.prepare_pages(guard)?;
        if !guard.inode().state.contains(State::EOF_PAGES) {
            return Ok(());
        }
        let mut inode = guard.edit();
        let first = inode.size_pages();
        let mut aru = self.aru();
        aru.set_reclaims().punch_pages(guard.ino().lid(), first, MAX_PAGE_COUNT - first);
        let gone = self.disk.count_pages(self.view, guard.ino().lid(), first..MAX_PAGE_COUNT)?;
        inode.pages = inode.pages.saturating_sub(gone);
        inode.state -= State::EOF_PAGES;
        self.commit_inode(aru, guard, inode)
    }
}

/// Where a part of `range` that begins at `start` ends: parts are bounded and meet at page boundaries.
fn step_end(start: u64, range: &Range<u64>) -> u64 {
    range.end.min((start / PAGE * PAGE).saturating_add(STEP_LEN))
}

/// Calls `each` with parts of `range` that are bounded and meet at page boundaries, until the
/// patron has left.
fn for_each_step(
    range: Range<u64>,
    patron: &Patron<'_>,
    mut each: impl FnMut(Range<u64>) -> Result<()>,
) -> Result<()> {
    let mut start = range.start;
    while start < range.end {
        if start > range.start && (patron.has_left)() {
            return Err(FsError::Interrupted);
        }
        let end = step_end(start, &range);
        each(start..end)?;
        start = end;
    }
    Ok(())
}

/// The pages that lie in `range` as a whole.
fn whole_pages(range: &Range<u64>) -> Range<u64> {
    let (start, end) = (range.start.div_ceil(PAGE), range.end / PAGE);
    start..end.max(start)
}

/// The pages of a range that must consist of whole ones.
fn aligned_pages(range: &Range<u64>) -> Result<Range<u64>> {
    if !range.start.is_multiple_of(PAGE) || !range.end.is_multiple_of(PAGE) {
        return Err(FsError::Invalid("the range is not of whole pages"));
    }
    Ok(range.start / PAGE..range.end / PAGE)
}
