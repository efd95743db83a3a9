//! Reading and writing.
//!
//! Two things hold of every regular file, and all that change data keep them:
//!
//! 1. What its last page has past its end is zeros.
//! 2. Pages past its last are holes, or zeros when [`State::EOF_PAGES`] is set; while
//!    [`State::TRUNCATING`] is set they may be anything.

use std::borrow::Cow;
use std::ops::Range;

use dendro_disk::{Aru, PAGE_SIZE};

use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::inode::{Inode, MAX_INLINE_FILE_LEN, State};
use crate::node::WriteGuard;
use crate::types::{FileKind, Ino, MAX_FILE_SIZE_BYTES, OpenOptions, Seek, SetAttr};

/// [`PAGE_SIZE`] for offsets.
pub(crate) const PAGE: u64 = PAGE_SIZE as u64;

impl FileSystem {
    /// Opens a file. Counts an open.
    ///
    /// # Errors
    /// `Stale`; `IsDirectory` for writing one; `ReadOnly`; `NotPermitted`.
    pub fn open(&self, ino: Ino, options: OpenOptions) -> Result<()> {
        let node = self.node(ino);
        {
            let inode = self.read_live(&node)?;
            if options.write || options.truncate {
                self.check_writable()?;
                inode.check_changeable()?;
                if inode.kind == FileKind::Directory {
                    return Err(FsError::IsDirectory);
                }
            }
            self.refs.add_open(ino);
        }
        if options.truncate {
            let changes =
                SetAttr { size_bytes: Some(0), kill_priv: options.kill_priv, ..SetAttr::default() };
            if let Err(error) = self.setattr(&crate::types::Caller::default(), ino, &changes) {
                self.release(ino);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes an open back; the last one removes a file that has no name.
    pub fn release(&self, ino: Ino) {
        if let Some(gone) = self.refs.drop_open(ino) {
            gone.forget_gone();
        }
        self.reap(ino);
    }

    /// Reads from `offset` on; fewer bytes than `buf` has at the end of the file alone. What `buf`
    /// has past them may change.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid` for what has no data.
    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let node = self.node(ino);
        let inode = self.read_live(&node)?;
        inode.check_regular()?;
        let len = inode.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        if len > 0 {
            if inode.state.contains(State::INLINE) {
                let from = offset as usize;
                buf[..len].copy_from_slice(&inode.inline[from..from + len]);
            } else {
                self.read_range(ino, offset, buf, len)?;
            }
            self.touch_atime(&node, &inode);
        }
        Ok(len)
    }

    /// Reads `len` bytes of pages from `offset` on into the front of `buf`, with as few copies as
    /// its room allows.
    pub(crate) fn read_range(
        &self,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
        len: usize,
    ) -> Result<()> {
        let mut page = offset / PAGE;
        let mut at = 0;
        let in_page = (offset % PAGE) as usize;
        if in_page != 0 {
            at = len.min(PAGE_SIZE - in_page);
            self.read_part(ino, page, in_page, &mut buf[..at])?;
            page += 1;
        }
        let rest = len - at;
        // The tail is read in place too, where the buffer has room for its page.
        let in_place =
            rest.next_multiple_of(PAGE_SIZE).min((buf.len() - at) / PAGE_SIZE * PAGE_SIZE);
        if rest > 0 && in_place > 0 {
            self.disk.read_pages(self.view, ino.lid(), page, &mut buf[at..at + in_place])?;
        }
        if rest > in_place {
            page += (in_place / PAGE_SIZE) as u64;
            self.read_part(ino, page, 0, &mut buf[at + in_place..len])?;
        }
        Ok(())
    }

    /// Reads a part of a page.
    fn read_part(&self, ino: Ino, page: u64, in_page: usize, out: &mut [u8]) -> Result<()> {
        let mut bounce = [0; PAGE_SIZE];
        self.disk.read_pages(self.view, ino.lid(), page, &mut bounce)?;
        out.copy_from_slice(&bounce[in_page..in_page + out.len()]);
        Ok(())
    }

    /// Writes `data` at `offset`, in one atomic recovery unit. `kill_priv` takes the set-id bits
    /// away (FUSE's `WRITE_KILL_SUIDGID`). Returns how much was written: less than all at the
    /// largest file offset alone.
    ///
    /// # Errors
    /// As [`Self::read`], and `FileTooBig`, `NotPermitted`.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], kill_priv: bool) -> Result<usize> {
        self.check_writable()?;
        let node = self.node(ino);
        let mut guard = node.write(&*self.disk, self.view)?;
        guard.inode().check_regular()?;
        if data.is_empty() {
            return Ok(0);
        }
        let room = MAX_FILE_SIZE_BYTES.checked_sub(offset).filter(|&room| room > 0);
        let len = room.ok_or(FsError::FileTooBig)?.min(data.len() as u64) as usize;
        self.write_locked(&mut guard, offset, &data[..len], kill_priv)?;
        Ok(len)
    }

    /// Writes to a locked regular file, not past the largest offset.
    pub(crate) fn write_locked(
        &self,
        guard: &mut WriteGuard<'_>,
        offset: u64,
        data: &[u8],
        kill_priv: bool,
    ) -> Result<()> {
        if offset < guard.inode().size {
            guard.inode().check_rewritable()?;
        }
        guard.inode().check_changeable()?;
        let end = offset + data.len() as u64;
        let inline = can_be_inline(guard.inode(), end);
        if !inline {
            self.prepare_pages(guard)?;
        }
        let ino = guard.ino();
        let mut inode = guard.edit();
        let mut aru = self.aru();
        if inline {
            inode.state |= State::INLINE;
            inode.size = inode.size.max(end);
            inode.inline.resize(inode.size as usize, 0);
            inode.inline[offset as usize..end as usize].copy_from_slice(data);
        } else {
            self.write_pages(&mut aru, ino, &mut inode, offset, data)?;
        }
        let now = self.now();
        (inode.mtime, inode.ctime) = (now, now);
        if kill_priv || inode.state.contains(State::CAPABILITY) {
            let mut edits = self.edits();
            self.drop_privileges(&mut edits, ino, &mut inode, kill_priv)?;
            edits.apply(&mut aru);
        }
        self.commit_inode(aru, guard, inode)
    }

    /// Adds the pages of a write to `aru`: whole ones borrowed, the rest filled up with what the
    /// file has around them.
    fn write_pages<'a>(
        &self,
        aru: &mut Aru<'a>,
        ino: Ino,
        inode: &mut Inode,
        offset: u64,
        data: &'a [u8],
    ) -> Result<()> {
        let end = offset + data.len() as u64;
        let first_page = offset / PAGE;
        let end_page = end.div_ceil(PAGE);
        inode.pages += self.holes_in(ino, inode, first_page..end_page)?;
        let mut page = first_page;
        let mut rest = data;
        let in_page = (offset % PAGE) as usize;
        if in_page != 0 {
            let here = rest.len().min(PAGE_SIZE - in_page);
            let merged = self.merge(ino, inode, page, in_page, &rest[..here])?;
            aru.write_pages(ino.lid(), page, merged);
            rest = &rest[here..];
            page += 1;
        }
        // A last page that nothing follows can be borrowed as it is: the disk adds the zeros.
        let whole = if end >= inode.size { rest.len() } else { rest.len() / PAGE_SIZE * PAGE_SIZE };
        if whole > 0 {
            aru.write_pages(ino.lid(), page, &rest[..whole]);
            page += (whole / PAGE_SIZE) as u64;
        }
        if whole < rest.len() {
            let merged = self.merge(ino, inode, page, 0, &rest[whole..])?;
            aru.write_pages(ino.lid(), page, merged);
        }
        inode.size = inode.size.max(end);
        Ok(())
    }

    /// A page with `data` put over what it has at `in_page`; trailing zeros past the end of the
    /// file are left out.
    fn merge(
        &self,
        ino: Ino,
        inode: &Inode,
        page: u64,
        in_page: usize,
        data: &[u8],
    ) -> Result<Vec<u8>> {
        let start = page * PAGE;
        let old_len = inode.size.saturating_sub(start).min(PAGE) as usize;
        let end = in_page + data.len();
        let mut merged = vec![0; PAGE_SIZE];
        let is_covered = in_page == 0 && end >= old_len;
        if old_len > 0 && !is_covered {
            self.disk.read_pages(self.view, ino.lid(), page, &mut merged)?;
        }
        merged[in_page..end].copy_from_slice(data);
        merged.truncate(end.max(old_len));
        Ok(merged)
    }

    /// How many pages of `range` are holes, asking the disk only if the i-node cannot tell.
    pub(crate) fn holes_in(&self, ino: Ino, inode: &Inode, range: Range<u64>) -> Result<u64> {
        let count = range.end - range.start;
        let size_pages = inode.size_pages();
        if !inode.state.contains(State::EOF_PAGES) {
            if range.start >= size_pages {
                return Ok(count);
            }
            if inode.pages == size_pages {
                // No holes before the end, nothing but a hole after it.
                return Ok(range.end.saturating_sub(size_pages));
            }
        }
        Ok(count - self.disk.count_pages(self.view, ino.lid(), range)?.min(count))
    }

    /// Readies a file for work on its pages: data kept with the i-node get a page of their own,
    /// in a unit that changes nothing anybody can see, and a truncation that was interrupted is
    /// finished.
    pub(crate) fn prepare_pages(&self, guard: &mut WriteGuard<'_>) -> Result<()> {
        if guard.inode().state.contains(State::TRUNCATING) {
            self.finish_truncation(guard)?;
        }
        if !guard.inode().state.contains(State::INLINE) {
            return Ok(());
        }
        let mut inode = guard.edit();
        let data = std::mem::take(&mut inode.inline);
        inode.state -= State::INLINE;
        let mut aru = self.aru();
        if !data.is_empty() {
            inode.pages = 1;
            aru.write_pages(guard.ino().lid(), 0, Cow::Owned(data));
        }
        self.commit_inode(aru, guard, inode)
    }

    /// The first offset at or past `offset` that is in data or in a hole.
    ///
    /// # Errors
    /// `NoData` at or past the end of the file, or when there is no more data.
    pub fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        let node = self.node(ino);
        let inode = self.read_live(&node)?;
        inode.check_regular()?;
        if offset >= inode.size {
            return Err(FsError::NoData);
        }
        if inode.state.contains(State::INLINE) {
            return Ok(match seek {
                Seek::Data => offset,
                Seek::Hole => inode.size,
            });
        }
        match seek {
            Seek::Data => self
                .disk
                .next_data(self.view, ino.lid(), offset / PAGE)?
                .map(|page| offset.max(page.saturating_mul(PAGE)))
                .filter(|&data| data < inode.size)
                .ok_or(FsError::NoData),
            Seek::Hole => {
                let page = self.disk.next_hole(self.view, ino.lid(), offset / PAGE)?;
                Ok(offset.max(page.saturating_mul(PAGE)).min(inode.size))
            }
        }
    }
}

/// Whether a file that a write leaves `end` long or longer can keep its data with the i-node.
fn can_be_inline(inode: &Inode, end: u64) -> bool {
    let has_no_pages =
        inode.pages == 0 && !inode.state.intersects(State::TRUNCATING | State::EOF_PAGES);
    has_no_pages && inode.size.max(end) <= MAX_INLINE_FILE_LEN as u64
}
