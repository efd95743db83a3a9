//! A block device that is open.
//!
//! # Invariants
//! 1. No pages lie past the end of a device that is open for writing. So what it is extended by is
//!    zeros.
//! 2. A device that is open gets no smaller.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::sync::RwLock;
use dendro_base::units::PAGE_SIZE;
use dendro_disk::{
    Aru, CommitSeq, GROUP_PAGES, LogicalDisk, MAX_PAGE_COUNT, Op, PageParts, ScanPlace, ScanPoint,
    Scanned, View,
};
use dendro_nbd::{Export, Extent};

use crate::CONTENT;
use crate::error::{Error, Result};
use crate::manage::{UNIT_PAGES, free_pages, size_bytes};

const PAGE_BYTES: u64 = PAGE_SIZE as u64;
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
    /// Locked alone while parts of pages are zeroed unless the pages are holes. Whoever could make
    /// a page of a hole shares it, until the unit is committed. Nothing is locked beneath it but
    /// what the disk locks.
    holes: RwLock<()>,
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
        let size_bytes = size_bytes(&*disk, view)?;
        let is_read_only = read_only || view.epoch.is_some();
        if !is_read_only {
            // A crash may have interrupted making it smaller (invariant 1).
            free_pages(&*disk, view, size_bytes / PAGE_BYTES..MAX_PAGE_COUNT)?;
        }
        let size_bytes = AtomicU64::new(size_bytes);
        Ok(Self { disk, view, size_bytes, is_read_only, description, holes: RwLock::new(()) })
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
        let parts = PageParts::of(offset, buf.len() as u64);
        let (head, rest) = buf.split_at_mut(parts.head_bytes());
        let (body, tail) = rest.split_at_mut(parts.body_bytes());
        if let Some(part) = parts.head {
            head.copy_from_slice(&self.page(part.page_index)?[part.bytes()]);
        }
        if !body.is_empty() {
            self.read_pages(parts.body.start, body)?;
        }
        if let Some(part) = parts.tail {
            tail.copy_from_slice(&self.page(part.page_index)?[part.bytes()]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<CommitSeq> {
        let mut unit = Aru::new(self.view);
        unit.write_bytes(CONTENT, offset, data);
        let _holes = self.holes.read();
        Ok(self.disk.commit(unit)?)
    }

    fn is_hole(&self, page: u64) -> Result<bool> {
        Ok(self.disk.next_data(self.view, CONTENT, page)? != Some(page))
    }

    /// Makes a range zeros, which one unit has room for: holes, if they may be. `None` if nothing
    /// is to be done.
    fn zero_part(
        &self,
        offset: u64,
        len_bytes: u64,
        may_be_hole: bool,
    ) -> Result<Option<CommitSeq>> {
        let PageParts { head, body, tail } = PageParts::of(offset, len_bytes);
        let mut unit = Aru::new(self.view);
        // A write between the look at the pages and the unit would be undone in part.
        let has_edges = head.is_some() || tail.is_some();
        let _holes = (may_be_hole && has_edges).then(|| self.holes.write());
        for part in [head, tail].into_iter().flatten() {
            // A page of zeros would take the place of a hole for nothing.
            if !(may_be_hole && self.is_hole(part.page_index)?) {
                let at = part.page_index * PAGE_BYTES + part.from as u64;
                unit.write_bytes(CONTENT, at, vec![0; part.len_bytes()]);
            }
        }
        if !body.is_empty() {
            let (first_page, count) = (body.start, body.end - body.start);
            if may_be_hole {
                unit.punch_pages(CONTENT, first_page, count).set_reclaims();
            } else {
                unit.push(Op::ZeroPages { list: CONTENT, first_page, count });
            }
        }
        if unit.ops().is_empty() {
            return Ok(None);
        }
        Ok(Some(self.disk.commit(unit)?))
    }

    /// Makes `commit` durable and all that precede it, if that is wanted; without one, everything:
    /// a request with nothing to change still makes durable what others have done before it.
    fn settle(&self, commit: Option<CommitSeq>, is_durable: bool) -> Result<()> {
        match is_durable {
            true => Ok(self.disk.flush(commit.unwrap_or(CommitSeq::LATEST))?),
            false => Ok(()),
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
            last = self.zero_part(at, next - at, may_be_hole)?.or(last);
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
        let commit = self.write_at(offset, data)?;
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
        if !pages.is_empty() {
            free_pages(&*self.disk, self.view, pages)?;
        }
        // A page that was a hole already may be one by a later commit than the last of these.
        Ok(self.settle(None, is_durable)?)
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
