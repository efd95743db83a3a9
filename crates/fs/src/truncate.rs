//! Changes of size.

use std::borrow::Cow;
use std::ops::Range;

use dendro_disk::{Aru, MAX_PAGE_COUNT, PAGE_SIZE};

use crate::data::PAGE;
use crate::error::Result;
use crate::filesystem::FileSystem;
use crate::format::ORPHAN_TRUNCATE;
use crate::inode::{Inode, MAX_INLINE_FILE_LEN, State};
use crate::node::WriteGuard;
use crate::orphan::{self, MAX_PAGES_FREED};
use crate::types::Ino;

impl FileSystem {
    /// Readies a locked file for [`Self::resize`].
    pub(crate) fn prepare_resize(&self, guard: &mut WriteGuard<'_>, size: u64) -> Result<()> {
        let stays_inline =
            guard.inode().state.contains(State::INLINE) && size <= MAX_INLINE_FILE_LEN as u64;
        if stays_inline { Ok(()) } else { self.prepare_pages(guard) }
    }

    /// Makes a file `size` long within `aru`. When it answers true, more is to be freed than one
    /// unit may: then [`Self::finish_truncation`] must follow the commit, under the same lock.
    pub(crate) fn resize(
        &self,
        aru: &mut Aru<'_>,
        ino: Ino,
        inode: &mut Inode,
        size: u64,
    ) -> Result<bool> {
        if inode.state.contains(State::INLINE) {
            inode.inline.resize(size as usize, 0);
            inode.size = size;
            inode.state.set(State::INLINE, size > 0);
            return Ok(false);
        }
        let has_more = size < inode.size || inode.state.contains(State::EOF_PAGES);
        if !has_more {
            inode.size = size;
            return Ok(false);
        }
        aru.set_reclaims();
        if size < inode.size && !size.is_multiple_of(PAGE) {
            self.zero_in_page(aru, ino, size / PAGE, (size % PAGE) as usize, PAGE_SIZE)?;
        }
        let first_gone = size.div_ceil(PAGE);
        let all_pages = inode.pages;
        let is_being_cut = inode.state.contains(State::TRUNCATING);
        // Nothing lies further on but what was allocated there, or left by a truncation.
        let has_more = is_being_cut || inode.state.contains(State::EOF_PAGES);
        let end = if has_more { MAX_PAGE_COUNT } else { inode.size_pages() };
        inode.pages = match first_gone {
            0 => 0,
            // What a truncation that could not be finished has left is in no count.
            _ if is_being_cut => self.disk.count_pages(self.view, ino.lid(), 0..first_gone)?,
            // Only what goes is counted, which is mostly the smaller part.
            _ => all_pages.saturating_sub(self.disk.count_pages(
                self.view,
                ino.lid(),
                first_gone..end,
            )?),
        };
        inode.size = size;
        inode.state -= State::EOF_PAGES;
        let gone_count = all_pages.saturating_sub(inode.pages);
        let whole = match end.saturating_sub(first_gone) {
            len if len <= MAX_PAGES_FREED => Some(first_gone..end),
            _ if is_being_cut => None,
            _ => self.find_together(ino, first_gone, gone_count)?,
        };
        if let Some(pages) = whole {
            if !pages.is_empty() {
                aru.punch_pages(ino.lid(), pages.start, pages.end - pages.start);
            }
            return Ok(false);
        }
        inode.state |= State::TRUNCATING;
        if inode.nlink > 0 {
            // Without a name it is on the list already, to be removed.
            orphan::enter(aru, ino, ORPHAN_TRUNCATE);
        }
        Ok(true)
    }

    /// The pages that one unit can free, if all that are not holes from `first` on, `count` of them, are
    /// among these.
    fn find_together(&self, ino: Ino, first: u64, count: u64) -> Result<Option<Range<u64>>> {
        if count > MAX_PAGES_FREED {
            return Ok(None);
        }
        let Some(next) = self.disk.next_data(self.view, ino.lid(), first)? else {
            return Ok(Some(first..first));
        };
        let pages = next..next.saturating_add(MAX_PAGES_FREED).min(MAX_PAGE_COUNT);
        let found = self.disk.count_pages(self.view, ino.lid(), pages.clone())?;
        Ok((found == count).then_some(pages))
    }

    /// Frees what is left past the end of a file, in bounded units.
    pub(crate) fn finish_truncation(&self, guard: &mut WriteGuard<'_>) -> Result<()> {
        let ino = guard.ino();
        let rest = self.free_pages(ino, guard.inode().size_pages())?;
        let mut inode = guard.edit();
        inode.state -= State::TRUNCATING;
        let mut aru = self.aru();
        aru.set_reclaims();
        if let Some(first_page) = rest {
            aru.punch_pages(
                ino.lid(),
                first_page,
                MAX_PAGES_FREED.min(MAX_PAGE_COUNT - first_page),
            );
        }
        if inode.nlink > 0 {
            orphan::leave(&mut aru, ino);
        }
        self.commit_inode(aru, guard, inode)
    }

    /// Zeroes bytes `from..to` of a page, unless it is a hole.
    pub(crate) fn zero_in_page(
        &self,
        aru: &mut Aru<'_>,
        ino: Ino,
        page: u64,
        from: usize,
        to: usize,
    ) -> Result<()> {
        if self.disk.next_data(self.view, ino.lid(), page)? != Some(page) {
            return Ok(());
        }
        let mut bytes = vec![0; PAGE_SIZE];
        self.disk.read_pages(self.view, ino.lid(), page, &mut bytes)?;
        bytes[from..to].fill(0);
        aru.write_pages(ino.lid(), page, Cow::Owned(bytes));
        Ok(())
    }
}
