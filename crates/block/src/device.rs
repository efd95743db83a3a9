//! A block device that is open.
//!
//! # Invariants
//! 1. No pages lie past the end of a device that is open for writing. So what it is extended by is
//!    zeros.
//! 2. A device that is open gets no smaller.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{
    Aru, CommitSeq, GROUP_PAGES, LogicalDisk, MAX_PAGE_COUNT, MAX_UNIT_GROUPS, Op, ScanPlace,
    ScanPoint, Scanned, View,
};
use dendro_nbd::{Export, Extent};

use crate::CONTENT;
use crate::description::{self, DESCRIPTION_INDEX};
use crate::error::{Error, Result};
use crate::locks::PageLocks;

const PAGE_BYTES: u64 = PAGE_SIZE as u64;
/// The pages that one unit changes at most, if they begin at a multiple of that.
const UNIT_PAGES: u64 = MAX_UNIT_GROUPS * GROUP_PAGES;
/// How much one unit zeroes at most: less, because parts of pages before and behind it are written.
const ZERO_BYTES: u64 = UNIT_PAGES * PAGE_BYTES / 2;
/// How many groups are looked at in one call for holes.
const SCAN_GROUPS: usize = 256;

/// A block device. Any number of threads use it at a time.
pub struct BlockDevice {
    disk: Arc<dyn LogicalDisk>,
    view: View,
    size_bytes: AtomicU64,
    is_read_only: bool,
    description: String,
    locks: PageLocks,
}

impl std::fmt::Debug for BlockDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { view, size_bytes, .. } = self;
        f.debug_struct("BlockDevice")
            .field("view", view)
            .field("size_bytes", size_bytes)
            .finish_non_exhaustive()
    }
}

/// The size of the device that `view` is; `None` if it is none.
///
/// # Errors
/// [`Error::Disk`], [`Error::LaterVersion`], [`Error::DamagedSize`].
pub(crate) fn find_size(disk: &dyn LogicalDisk, view: View) -> Result<Option<u64>> {
    match disk.record(view, CONTENT, DESCRIPTION_INDEX)? {
        Some(record) => description::decode(&record),
        None => Ok(None),
    }
}

/// Frees all pages of `pages`, in as many units as that takes. Returns the last one.
pub(crate) fn free_pages(
    disk: &dyn LogicalDisk,
    view: View,
    pages: Range<u64>,
) -> Result<Option<CommitSeq>> {
    let mut last = None;
    let mut at = pages.start;
    while let Some(first) = disk.next_data(view, CONTENT, at)?.filter(|first| *first < pages.end) {
        let end = ((first / UNIT_PAGES + 1) * UNIT_PAGES).min(pages.end);
        let mut unit = Aru::new(view);
        unit.punch_pages(CONTENT, first, end - first).set_reclaims();
        last = Some(disk.commit(unit)?);
        at = end;
    }
    Ok(last)
}

impl BlockDevice {
    /// Opens the device that `view` is. A snapshot can be read only. `description` is told to
    /// people.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::LaterVersion`], [`Error::DamagedSize`], [`Error::Disk`].
    pub fn open(
        disk: Arc<dyn LogicalDisk>,
        view: View,
        read_only: bool,
        description: String,
    ) -> Result<Self> {
        let size_bytes = find_size(&*disk, view)?.ok_or(Error::NoDevice(view))?;
        let is_read_only = read_only || view.epoch.is_some();
        if !is_read_only {
            // A crash may have interrupted making it smaller (invariant 1).
            free_pages(&*disk, view, size_bytes / PAGE_BYTES..MAX_PAGE_COUNT)?;
        }
        let (size_bytes, locks) = (AtomicU64::new(size_bytes), PageLocks::default());
        Ok(Self { disk, view, size_bytes, is_read_only, description, locks })
    }

    /// Notes that the device has become longer.
    pub(crate) fn note_size(&self, size_bytes: u64) {
        // Invariant 2.
        self.size_bytes.fetch_max(size_bytes, Ordering::Relaxed);
    }

    fn read_pages(&self, first_page: u64, buf: &mut [u8]) -> Result<()> {
        Ok(self.disk.read_pages(self.view, CONTENT, first_page, buf)?)
    }

    fn page(&self, page: u64) -> Result<Vec<u8>> {
        let mut buf = vec![0; PAGE_SIZE];
        self.read_pages(page, &mut buf)?;
        Ok(buf)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let parts = Parts::of(offset, buf.len() as u64);
        let (head, rest) = buf.split_at_mut(parts.head_bytes());
        let (body, tail) = rest.split_at_mut(parts.body_bytes());
        if let Some(part) = parts.head {
            head.copy_from_slice(&self.page(part.page)?[part.bytes()]);
        }
        if !body.is_empty() {
            self.read_pages(parts.body.start, body)?;
        }
        if let Some(part) = parts.tail {
            tail.copy_from_slice(&self.page(part.page)?[part.bytes()]);
        }
        Ok(())
    }

    /// Changes what lies in a range, which one unit has room for: `data`, or zeros without it,
    /// which are holes if they may be.
    fn change(
        &self,
        offset: u64,
        len_bytes: u64,
        data: Option<&[u8]>,
        may_be_hole: bool,
    ) -> Result<CommitSeq> {
        let parts = Parts::of(offset, len_bytes);
        let _locked = self.locks.lock(parts.pages());
        let mut unit = Aru::new(self.view);
        let (head, body, tail) = match data {
            None => (None, None, None),
            Some(data) => {
                let (head, rest) = data.split_at(parts.head_bytes());
                let (body, tail) = rest.split_at(parts.body_bytes());
                (Some(head), Some(body), Some(tail))
            }
        };
        for (part, data) in [(parts.head, head), (parts.tail, tail)] {
            let Some(part) = part else { continue };
            let mut page = self.page(part.page)?;
            let bytes = &mut page[part.bytes()];
            match data {
                Some(data) => bytes.copy_from_slice(data),
                None => bytes.fill(0),
            }
            unit.write_pages_to_change(CONTENT, part.page, page);
        }
        let Range { start: first_page, end } = parts.body;
        let count = end - first_page;
        match body {
            _ if count == 0 => {}
            Some(body) => {
                unit.write_pages(CONTENT, first_page, Cow::Borrowed(body));
            }
            None if may_be_hole => {
                unit.punch_pages(CONTENT, first_page, count).set_reclaims();
            }
            None => {
                unit.push(Op::ZeroPages { list: CONTENT, first_page, count });
            }
        }
        Ok(self.disk.commit(unit)?)
    }

    /// Waits until a commit is durable, if that is wanted.
    fn settle(&self, commit: Option<CommitSeq>, is_durable: bool) -> Result<()> {
        match commit {
            Some(commit) if is_durable => Ok(self.disk.flush(commit)?),
            _ => Ok(()),
        }
    }

    fn zero_all(
        &self,
        offset: u64,
        len_bytes: u64,
        may_be_hole: bool,
    ) -> Result<Option<CommitSeq>> {
        let mut last = None;
        let (mut at, end) = (offset, offset + len_bytes);
        while at < end {
            let next = ((at / ZERO_BYTES + 1) * ZERO_BYTES).min(end);
            last = Some(self.change(at, next - at, None, may_be_hole)?);
            at = next;
        }
        Ok(last)
    }

    /// The runs of holes and of others in `pages`, `max_count` of them at most.
    fn runs(&self, pages: Range<u64>, max_count: usize) -> Result<Vec<(u64, bool)>> {
        let mut runs = Runs { found: Vec::new(), at: pages.start, max_count };
        let place = |page: u64| ScanPlace::Pages(page / GROUP_PAGES * GROUP_PAGES);
        let mut point = ScanPoint { list: CONTENT, place: place(pages.start) };
        let end = ScanPoint { list: CONTENT, place: ScanPlace::Pages(pages.end) };
        'all: while point < end {
            let (items, next) = self.disk.scan(self.view, point, SCAN_GROUPS)?;
            for item in items {
                let Scanned::Pages { first_page, present } = item else {
                    // The content of another list.
                    break 'all;
                };
                for page in first_page..(first_page + GROUP_PAGES).min(pages.end) {
                    let is_hole = present >> (page - first_page) & 1 == 0;
                    // What is not told of is a hole.
                    if page >= runs.at && !(runs.add(page, true) && runs.add(page + 1, is_hole)) {
                        return Ok(runs.found);
                    }
                }
            }
            match next {
                Some(next) => point = next,
                None => break,
            }
        }
        runs.add(pages.end, true);
        Ok(runs.found)
    }
}

/// Runs of pages that are found.
struct Runs {
    /// How many pages each has, and whether they are holes.
    found: Vec<(u64, bool)>,
    /// Up to which page.
    at: u64,
    max_count: usize,
}

impl Runs {
    /// Adds all up to `end`. Returns whether there was room.
    fn add(&mut self, end: u64, is_hole: bool) -> bool {
        let count = end.saturating_sub(self.at);
        let is_full = self.found.len() == self.max_count;
        match self.found.last_mut() {
            _ if count == 0 => return true,
            Some((last, same)) if *same == is_hole => *last += count,
            _ if is_full => return false,
            _ => self.found.push((count, is_hole)),
        }
        self.at = end;
        true
    }
}

impl Export for BlockDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn preferred_block_bytes(&self) -> u32 {
        PAGE_SIZE as u32
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> dendro_nbd::Result<()> {
        Ok(self.read_at(offset, buf)?)
    }

    fn write(&self, offset: u64, data: &[u8], is_durable: bool) -> dendro_nbd::Result<()> {
        let commit = self.change(offset, data.len() as u64, Some(data), false)?;
        Ok(self.settle(Some(commit), is_durable)?)
    }

    fn zero(
        &self,
        offset: u64,
        len_bytes: u64,
        may_be_hole: bool,
        is_durable: bool,
    ) -> dendro_nbd::Result<()> {
        let commit = self.zero_all(offset, len_bytes, may_be_hole)?;
        Ok(self.settle(commit, is_durable)?)
    }

    fn trim(&self, offset: u64, len_bytes: u64, is_durable: bool) -> dendro_nbd::Result<()> {
        // Whole pages only: parts of pages take no less space when they are zeros.
        let pages = offset.div_ceil(PAGE_BYTES)..(offset + len_bytes) / PAGE_BYTES;
        if pages.is_empty() {
            return Ok(());
        }
        let _locked = self.locks.lock(pages.clone());
        let commit = free_pages(&*self.disk, self.view, pages)?;
        Ok(self.settle(commit, is_durable)?)
    }

    fn flush(&self) -> dendro_nbd::Result<()> {
        match self.is_read_only {
            true => Ok(()),
            false => Ok(self.disk.flush(CommitSeq::LATEST).map_err(Error::from)?),
        }
    }

    fn extents(
        &self,
        offset: u64,
        len_bytes: u64,
        max_count: usize,
    ) -> dendro_nbd::Result<Vec<Extent>> {
        let end = offset + len_bytes;
        let runs = self.runs(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES), max_count)?;
        let mut page = offset / PAGE_BYTES;
        let extents = runs.into_iter().map(|(count, is_hole)| {
            let from = (page * PAGE_BYTES).max(offset);
            page += count;
            Extent { len_bytes: (page * PAGE_BYTES).min(end) - from, is_hole }
        });
        Ok(extents.collect())
    }
}

/// A part of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    page: u64,
    from: usize,
    to: usize,
}

impl Part {
    const fn bytes(self) -> Range<usize> {
        self.from..self.to
    }
}

/// A range, cut into whole pages and the parts of pages before and behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    head: Option<Part>,
    body: Range<u64>,
    tail: Option<Part>,
}

impl Parts {
    fn of(offset: u64, len_bytes: u64) -> Self {
        let end = offset + len_bytes;
        let (first, last) = (offset / PAGE_BYTES, end / PAGE_BYTES);
        let (from, to) = ((offset % PAGE_BYTES) as usize, (end % PAGE_BYTES) as usize);
        if first == last {
            let head = Part { page: first, from, to };
            return Self { head: Some(head), body: first..first, tail: None };
        }
        let head = (from > 0).then_some(Part { page: first, from, to: PAGE_SIZE });
        let tail = (to > 0).then_some(Part { page: last, from: 0, to });
        Self { head, body: first + u64::from(from > 0)..last, tail }
    }

    fn head_bytes(&self) -> usize {
        self.head.map_or(0, |part| part.to - part.from)
    }

    fn body_bytes(&self) -> usize {
        (self.body.end - self.body.start) as usize * PAGE_SIZE
    }

    /// All pages that have a part of it.
    fn pages(&self) -> Range<u64> {
        let first = self.head.map_or(self.body.start, |part| part.page);
        let last = self.tail.or(self.head.filter(|_| self.body.is_empty()));
        first..last.map_or(self.body.end, |part| part.page + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_pages() {
        let part = |page, from, to| Some(Part { page, from, to });
        let cut = |offset, len_bytes| {
            let parts = Parts::of(offset, len_bytes);
            let pages = parts.pages();
            (parts.head, parts.body, parts.tail, pages)
        };
        assert_eq!(cut(4096, 8192), (None, 1..3, None, 1..3));
        assert_eq!(cut(100, 50), (part(0, 100, 150), 0..0, None, 0..1));
        assert_eq!(cut(100, 3996), (part(0, 100, 4096), 1..1, None, 0..1));
        assert_eq!(cut(8192, 10), (part(2, 0, 10), 2..2, None, 2..3));
        assert_eq!(cut(4000, 200), (part(0, 4000, 4096), 1..1, part(1, 0, 104), 0..2));
        assert_eq!(cut(1, 12288), (part(0, 1, 4096), 1..3, part(3, 0, 1), 0..4));
        assert_eq!(cut(4096, 4097), (None, 1..2, part(2, 0, 1), 1..3));
    }
}
