//! One file by itself: its i-node, its pages, and records that belong to nothing.

use dendro_disk::{Error as DiskError, MAX_PAGE_COUNT, PAGE_SIZE};

use super::head::{BATCH_LEN, Head};
use super::{tree, xattrs};
use crate::check::{Finding, FindingCode};
use crate::error::Result;
use crate::layout::dirent;
use crate::layout::format::{DIR_BASE, HEAD_INDEX, XATTR_BASE, XATTR_END};
use crate::layout::inode::{Inode, InodeState};
use crate::types::{FileKind, Ino, MAX_FILE_SIZE_BYTES};

/// The most pages that one unit frees.
const MAX_PAGES_FREED: u64 = 16_384;

/// Mends what is wrong in the list of `ino`: `findings`.
pub(super) fn mend(head: &Head<'_>, ino: Ino, findings: &[&Finding]) -> Result<()> {
    let (disk, view) = (head.disk(), head.view());
    if disk.hints(view, ino.lid())?.is_none() {
        head.create_list(ino)?;
    }
    let has_pages = disk.next_data(view, ino.lid(), 0)?.is_some();
    let has = |code| findings.iter().any(|of| of.code == code);
    let is_called_directory =
        findings.iter().any(|of| of.code == FindingCode::BadInode && of.expected.is_some());
    let mut inode = find_inode(head, ino, has_pages, is_called_directory)?;
    if matches!(inode.kind, FileKind::Regular | FileKind::Symlink) {
        let may_lack_data =
            [FindingCode::BadInode, FindingCode::PagesPastEnd, FindingCode::DataPastEnd];
        let looks_behind = may_lack_data.into_iter().any(has);
        mend_pages(head, ino, &mut inode, looks_behind)?;
    } else {
        free_pages(head, ino, 0)?;
        inode.pages = 0;
        inode.state -= InodeState::INLINE | InodeState::EOF_PAGES | InodeState::FREEING;
        inode.punched = None;
        inode.inline.clear();
    }
    // While the file is no directory, its entries are strays; so first the i-node.
    let mut edits = head.edits();
    let account = xattrs::mend(head, &mut edits, ino)?;
    inode.xattr_names_len = account.names_len;
    inode.state.set(InodeState::CAPABILITY, account.has_capability);
    if disk.record(view, ino.lid(), HEAD_INDEX)?.is_none_or(|old| *old != *inode.encode()) {
        inode.ctime = head.now();
        edits.put(ino.lid(), HEAD_INDEX, inode.encode().to_vec());
    }
    head.commit(edits, |_| ())?;
    remove_strays(head, ino, inode.kind)
}

/// The i-node that the file has, or should have. If it has none, its name may say that it is a
/// directory.
fn find_inode(
    head: &Head<'_>,
    ino: Ino,
    has_pages: bool,
    is_called_directory: bool,
) -> Result<Inode> {
    let record = head.disk().record(head.view(), ino.lid(), HEAD_INDEX)?;
    let good = record.as_ref().and_then(|record| Inode::decode(ino, record).ok());
    let known = good.or_else(|| record.and_then(|record| Inode::salvage(ino, &record)));
    let mut has_entries = false;
    for (_, record) in head.disk().records(head.view(), ino.lid(), DIR_BASE, BATCH_LEN)? {
        has_entries |= dirent::entries(&record).next().is_some_and(|entry| entry.is_ok());
    }
    let is_empty = known.as_ref().is_none_or(|inode| inode.inline.is_empty()) && !has_pages;
    let is_directory = ino == Ino::ROOT || (has_entries || is_called_directory) && is_empty;
    let mut inode = known.unwrap_or_else(|| {
        let (kind, perm) = match (is_directory, ino) {
            (true, Ino::ROOT) => (FileKind::Directory, 0o755),
            (true, _) => (FileKind::Directory, 0o700),
            (false, _) => (FileKind::Regular, 0o600),
        };
        let nlink = if is_directory { 2 } else { 0 };
        Inode { nlink, ..Inode::new(kind, perm, head.now()) }
    });
    if is_directory && inode.kind != FileKind::Directory {
        (inode.kind, inode.parent) = (FileKind::Directory, 0);
    }
    let has_data = has_pages && !has_entries && ino != Ino::ROOT;
    if has_data
        && !matches!(inode.kind, FileKind::Regular | FileKind::Symlink)
        && !is_named_directory(head, ino, &inode)?
    {
        // What has data is a file, whatever its type became.
        (inode.kind, inode.size) = (FileKind::Regular, 0);
    }
    if ino == Ino::ROOT {
        inode.parent = Ino::ROOT.0;
    }
    Ok(inode)
}

/// Whether the i-node and the directory that it names agree that the file is a directory.
fn is_named_directory(head: &Head<'_>, ino: Ino, inode: &Inode) -> Result<bool> {
    Ok(inode.kind == FileKind::Directory && tree::has_entry(head, Ino(inode.parent), ino, None)?)
}

/// Makes the i-node say which pages there are. Data behind the end are taken into the file.
fn mend_pages(head: &Head<'_>, ino: Ino, inode: &mut Inode, looks_behind: bool) -> Result<()> {
    let (disk, view, lid) = (head.disk(), head.view(), ino.lid());
    if inode.state.contains(InodeState::INLINE) {
        if !inode.inline.is_empty() {
            free_pages(head, ino, 0)?;
            inode.pages = 0;
            return Ok(());
        }
        inode.state -= InodeState::INLINE;
    }
    if inode.state.contains(InodeState::TRUNCATING) {
        let size_pages = inode.size_pages();
        inode.pages = match size_pages {
            0 => 0,
            end => disk.count_pages(view, lid, 0..end)?,
        };
        return Ok(());
    }
    if looks_behind && inode.kind == FileKind::Symlink {
        // A longer target would lead elsewhere.
        cut_off(head, ino, inode.size)?;
    } else if looks_behind && let Some(end) = end_of_data(head, ino, inode.size)? {
        inode.size = end.min(MAX_FILE_SIZE_BYTES);
    }
    inode.pages = disk.count_pages(view, lid, 0..MAX_PAGE_COUNT)?;
    let punched = inode.punched_pages();
    if !punched.is_empty() {
        // They do not count while they are being freed.
        inode.pages -= disk.count_pages(view, lid, punched)?.min(inode.pages);
    }
    let past_end = disk.next_data(view, lid, inode.size_pages())?.is_some();
    if past_end {
        inode.state |= InodeState::EOF_PAGES;
    }
    Ok(())
}

/// Where data end that lie behind `size`; `None` if there are none. Pages that cannot be read count
/// as data.
fn end_of_data(head: &Head<'_>, ino: Ino, size: u64) -> Result<Option<u64>> {
    let (disk, view, lid) = (head.disk(), head.view(), ino.lid());
    let mut bytes = vec![0; PAGE_SIZE];
    let mut end = None;
    let first_page = size / PAGE_SIZE as u64;
    let mut next = disk.next_data(view, lid, first_page)?;
    while let Some(page) = next {
        let start = page * PAGE_SIZE as u64;
        let from = size.saturating_sub(start) as usize;
        match disk.read_pages(view, lid, page, &mut bytes) {
            Ok(()) => {
                if let Some(last) = bytes[from..].iter().rposition(|&byte| byte != 0) {
                    end = Some(start + (from + last) as u64 + 1);
                }
            }
            // The file's last page, of which a part is in the file in any case.
            Err(DiskError::Corrupted(_) | DiskError::Io(_)) if from > 0 => {}
            Err(DiskError::Corrupted(_) | DiskError::Io(_)) => {
                end = Some(start + PAGE_SIZE as u64);
            }
            Err(error) => return Err(error.into()),
        }
        next = disk.next_data(view, lid, page + 1)?;
    }
    Ok(end)
}

/// Removes all data behind `size`.
fn cut_off(head: &Head<'_>, ino: Ino, size: u64) -> Result<()> {
    let in_tail = (size % PAGE_SIZE as u64) as usize;
    let page = size / PAGE_SIZE as u64;
    if in_tail != 0 && head.disk().next_data(head.view(), ino.lid(), page)? == Some(page) {
        let mut bytes = vec![0; PAGE_SIZE];
        head.disk().read_pages(head.view(), ino.lid(), page, &mut bytes)?;
        bytes.truncate(in_tail);
        head.commit(head.edits(), |aru| {
            aru.write_pages(ino.lid(), page, bytes);
        })?;
    }
    free_pages(head, ino, size.div_ceil(PAGE_SIZE as u64))
}

/// Frees all pages from `from` on, in bounded units.
fn free_pages(head: &Head<'_>, ino: Ino, from: u64) -> Result<()> {
    let (disk, view) = (head.disk(), head.view());
    while let Some(page) = disk.next_data(view, ino.lid(), from)? {
        let count = MAX_PAGES_FREED.min(MAX_PAGE_COUNT - page);
        head.commit(head.edits(), |aru| {
            aru.punch_pages(ino.lid(), page, count);
            aru.set_reclaims();
        })?;
    }
    Ok(())
}

/// Removes records at indices at which there must be none.
fn remove_strays(head: &Head<'_>, ino: Ino, kind: FileKind) -> Result<()> {
    let mut regions = vec![(HEAD_INDEX + 1, XATTR_BASE), (XATTR_END, DIR_BASE)];
    if kind != FileKind::Directory {
        regions.push((DIR_BASE, u64::MAX));
    }
    for (from, end) in regions {
        loop {
            let mut batch = head.disk().records(head.view(), ino.lid(), from, BATCH_LEN)?;
            batch.retain(|(index, _)| *index < end || end == u64::MAX);
            if batch.is_empty() {
                break;
            }
            head.commit(head.edits(), |aru| {
                for (index, _) in &batch {
                    aru.delete_record(ino.lid(), *index);
                }
                aru.set_reclaims();
            })?;
        }
    }
    Ok(())
}
