//! One file by itself: its i-node, its pages, its attributes, and the entries of a directory.
//!
//! All records of the list are taken once, in the order of their indices, and then its pages. A
//! scan of a whole version gives them, or calls that read one list.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use dendro_disk::{Error as DiskError, LogicalDisk, PAGE_SIZE, View};

use super::book::Findings;
use super::finding::{Finding, FindingCode};
use super::pages::Pages;
use crate::error::{FsError, Result};
use crate::layout::dirent::{self, Entry};
use crate::layout::format::{DIR_BASE, HEAD_INDEX, XATTR_BASE, XATTR_END, XATTR_PART_LEN};
use crate::layout::inode::{Inode, InodeState};
use crate::layout::names::{self, NameHasher};
use crate::layout::xattr_records::{self, SLOT_AND_PART};
use crate::types::{FileKind, Ino};

/// How many records are read at a time.
pub(super) const BATCH_LEN: usize = 256;

/// How lists are read.
#[derive(Clone, Copy)]
pub(super) struct Reader<'d> {
    pub(super) disk: &'d dyn LogicalDisk,
    pub(super) view: View,
    pub(super) hasher: NameHasher,
    /// Whether the pages in which files end are read.
    pub(super) data: bool,
    /// How many findings of a kind are kept of a list; the others are counted.
    pub(super) max_findings_of_a_code: usize,
}

/// What a list holds.
pub(super) struct Scanned {
    pub(super) ino: Ino,
    /// `None`: it is missing or malformed.
    pub(super) inode: Option<Inode>,
    /// Whether its entries count: it is a directory, or would be one if it had an i-node.
    pub(super) is_directory: bool,
    /// Whether all its records could be read.
    pub(super) is_readable: bool,
    pub(super) findings: Findings,
}

/// The result, or `None` if the data are damaged, with the reason.
pub(super) fn readable<T>(
    answer: dendro_disk::Result<T>,
) -> Result<std::result::Result<T, String>> {
    match answer {
        Err(DiskError::Corrupted(why) | DiskError::Io(why)) => Ok(Err(why)),
        other => Ok(Ok(other?)),
    }
}

impl Reader<'_> {
    /// Reads what is left of a list, and checks it. The file is to be removed or not. If it is a
    /// directory, calls `take` with each of its entries.
    pub(super) fn read_rest(
        &self,
        mut scan: Scan,
        is_removed: bool,
        mut take: impl FnMut(&Entry<'_>) -> Result<()>,
    ) -> Result<Scanned> {
        let ino = scan.ino;
        while let Some(from) = scan.next_record {
            let batch = match readable(self.disk.records(self.view, ino.lid(), from, BATCH_LEN))? {
                Ok(batch) => batch,
                Err(why) => {
                    scan.find(FindingCode::UnreadableList, why);
                    break;
                }
            };
            for (index, record) in &batch {
                scan.record(*index, record, &mut take)?;
            }
            if batch.len() < BATCH_LEN {
                break;
            }
        }
        let mut scanned = scan.finish();
        if let Some(inode) = &scanned.inode
            && !is_removed
        {
            match self.pages(ino, inode)? {
                Ok(pages) => self.check_pages((ino, inode), &pages, &mut scanned.findings)?,
                Err(why) => {
                    scanned.findings.push(Finding::new(FindingCode::UnreadableList, ino, why));
                }
            }
        }
        Ok(scanned)
    }

    /// Checks a list of which all records and pages were taken.
    pub(super) fn finish(&self, scan: Scan, is_removed: bool) -> Result<Scanned> {
        let pages = scan.pages;
        let mut scanned = scan.finish();
        // A file that is to be removed may be freed in part.
        if let Some(inode) = scanned.inode.as_ref().filter(|_| !is_removed) {
            self.check_pages((scanned.ino, inode), &pages, &mut scanned.findings)?;
        }
        Ok(scanned)
    }

    /// Calls `take` with the entries that [`Self::read_rest`] gives for a directory.
    pub(super) fn each_entry(
        &self,
        ino: Ino,
        mut take: impl FnMut(&Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut from = DIR_BASE;
        loop {
            let answer = self.disk.records(self.view, ino.lid(), from, BATCH_LEN);
            let Ok(batch) = readable(answer)? else { return Ok(()) };
            for (_, record) in &batch {
                dirent::entries(record).map_while(Result::ok).try_for_each(|entry| take(&entry))?;
            }
            match batch.last().and_then(|(last, _)| last.checked_add(1)) {
                Some(next) if batch.len() == BATCH_LEN => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// What there is of a file's pages; the reason if they cannot be read.
    fn pages(&self, ino: Ino, inode: &Inode) -> Result<std::result::Result<Pages, String>> {
        let list = ino.lid();
        let next = |from| readable(self.disk.next_data(self.view, list, from));
        let mut pages = Pages::default();
        let end = Pages::end(inode);
        if end > 0 {
            match readable(self.disk.count_pages(self.view, list, 0..end))? {
                Ok(count) => pages.count = count,
                Err(why) => return Ok(Err(why)),
            }
        }
        if pages.count > 0 {
            match next(Pages::size(inode))? {
                Ok(past_end) => pages.past_end = past_end,
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(pages))
    }

    fn check_pages(
        &self,
        (ino, inode): (Ino, &Inode),
        pages: &Pages,
        findings: &mut Findings,
    ) -> Result<()> {
        let Pages { count, past_end } = *pages;
        if !Pages::may_have(inode) {
            if inode.pages != 0 || count != 0 {
                let detail = "pages, where there are none";
                findings.push(Finding::new(FindingCode::WrongPageCount, ino, detail));
            }
            return Ok(());
        }
        let code = match count.cmp(&inode.pages) {
            Ordering::Less => Some(FindingCode::LostPages),
            Ordering::Equal => None,
            Ordering::Greater => Some(FindingCode::WrongPageCount),
        };
        if let Some(code) = code {
            let detail = format!("{count} pages, and it says {}", inode.pages);
            findings.push(Finding::new(code, ino, detail));
        }
        let in_tail = (inode.size % PAGE_SIZE as u64) as usize;
        if self.data && in_tail != 0 && !inode.state.contains(InodeState::INLINE) {
            self.check_zeros(ino, Pages::size(inode) - 1, in_tail, findings)?;
        }
        if inode.state.contains(InodeState::TRUNCATING) {
            return Ok(());
        }
        if past_end.is_some() && !inode.state.contains(InodeState::EOF_PAGES) {
            let detail = "there are pages past the end";
            findings.push(Finding::new(FindingCode::PagesPastEnd, ino, detail));
        }
        let mut next = past_end;
        while let Some(page) = next.filter(|_| self.data) {
            // One finding is enough: preallocated files may have millions of pages.
            if !self.check_zeros(ino, page, 0, findings)? {
                break;
            }
            let after = self.disk.next_data(self.view, ino.lid(), page + 1);
            next = readable(after)?.unwrap_or(None);
        }
        Ok(())
    }

    /// Whether the page has zeros alone from byte `from` on.
    fn check_zeros(
        &self,
        ino: Ino,
        page: u64,
        from: usize,
        findings: &mut Findings,
    ) -> Result<bool> {
        let mut bytes = vec![0; PAGE_SIZE];
        let read = self.disk.read_pages(self.view, ino.lid(), page, &mut bytes);
        // The check goes on with the other files.
        if let Err(why) = readable(read)? {
            findings.push(Finding::new(FindingCode::UnreadablePage, ino, why));
            return Ok(false);
        }
        let is_zero = bytes[from..].iter().all(|&byte| byte == 0);
        if !is_zero {
            let detail = format!("page {page} has data past the end");
            findings.push(Finding::new(FindingCode::DataPastEnd, ino, detail));
        }
        Ok(is_zero)
    }
}

/// The records and pages of one list, as they are read.
pub(super) struct Scan {
    ino: Ino,
    /// The index of the next record; `None` behind the last possible one.
    next_record: Option<u64>,
    pages: Pages,
    hasher: NameHasher,
    head: Option<Result<Inode>>,
    xattrs: Xattrs,
    strays: u64,
    first_stray: u64,
    entries: u64,
    entries_len: u64,
    findings: Findings,
    /// Findings about entries, which count only in a directory.
    of_entries: Findings,
    /// All records could be read.
    is_whole: bool,
}

impl Scan {
    pub(super) fn new(ino: Ino, reader: &Reader<'_>) -> Self {
        let max = reader.max_findings_of_a_code;
        Self {
            ino,
            next_record: Some(0),
            pages: Pages::default(),
            hasher: reader.hasher,
            head: None,
            xattrs: Xattrs::default(),
            strays: 0,
            first_stray: 0,
            entries: 0,
            entries_len: 0,
            findings: Findings::new(max),
            of_entries: Findings::new(max),
            is_whole: true,
        }
    }

    fn find(&mut self, code: FindingCode, detail: impl Into<String>) {
        self.is_whole &= code != FindingCode::UnreadableList;
        self.findings.push(Finding::new(code, self.ino, detail));
    }

    pub(super) const fn ino(&self) -> Ino {
        self.ino
    }

    /// Takes pages of one group, which come after all records.
    pub(super) fn pages(&mut self, first_page: u64, present: u32) {
        if let Some(Ok(inode)) = &self.head {
            self.pages.add(inode, first_page, present);
        }
    }

    /// Takes the next record.
    pub(super) fn record(
        &mut self,
        index: u64,
        record: &[u8],
        take: &mut impl FnMut(&Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        self.next_record = index.checked_add(1);
        match index {
            // How long its inline data are is all that matters of them.
            HEAD_INDEX => {
                let decoded = Inode::decode_without_inline(self.ino, record);
                self.head = Some(decoded.map(|(inode, _)| inode));
            }
            XATTR_BASE..XATTR_END => {
                let problem = self.xattrs.record(&self.hasher, index, record);
                if let Some((code, detail)) = problem {
                    self.find(code, detail);
                }
            }
            DIR_BASE.. if self.may_have_entries() => self.directory_record(index, record, take)?,
            _ => self.stray(index),
        }
        Ok(())
    }

    fn stray(&mut self, index: u64) {
        self.first_stray = if self.strays == 0 { index } else { self.first_stray };
        self.strays += 1;
    }

    fn may_have_entries(&self) -> bool {
        match &self.head {
            Some(Ok(inode)) => inode.kind == FileKind::Directory || self.ino == Ino::ROOT,
            _ => true,
        }
    }

    fn directory_record(
        &mut self,
        index: u64,
        record: &[u8],
        take: &mut impl FnMut(&Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut last_slot = None;
        let ino = self.ino;
        for (nth, entry) in dirent::entries(record).enumerate() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let finding = bad_record(ino, FindingCode::BadDirectoryRecord, index, &error);
                    self.of_entries.push(finding);
                    break;
                }
            };
            let mut find = |code| {
                let name = String::from_utf8_lossy(entry.name);
                let finding = Finding::new(code, ino, format!("entry {name}"));
                self.of_entries.push(finding.about(entry.name, entry.ino));
            };
            if !entry.is_placed(&self.hasher, index) {
                find(FindingCode::WrongHash);
            }
            let mut before = dirent::entries(record).take(nth).flatten();
            if last_slot >= Some(entry.slot) || before.any(|other| other.name == entry.name) {
                find(FindingCode::DuplicateEntry);
            }
            if names::check_new_name(entry.name).is_err() {
                find(FindingCode::BadName);
            }
            last_slot = Some(entry.slot);
            self.entries_len += dirent::entry_len(entry.name) as u64;
            self.entries += 1;
            take(&entry)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Scanned {
        if let Some((code, detail)) = self.xattrs.finish_group() {
            self.find(code, detail);
        }
        let inode = match self.head.take() {
            Some(Ok(inode)) if self.ino == Ino::ROOT && inode.kind != FileKind::Directory => {
                self.find(FindingCode::BadInode, format!("the root is a {:?}", inode.kind));
                None
            }
            Some(Ok(inode)) => Some(inode),
            Some(Err(error)) => {
                self.find(FindingCode::BadInode, error.to_string());
                None
            }
            None if self.is_whole || self.entries > 0 => {
                self.find(FindingCode::BadInode, "the list has none");
                None
            }
            None => None,
        };
        if self.strays > 0 {
            let (count, first) = (self.strays, self.first_stray);
            self.find(FindingCode::StrayRecord, format!("{count}, the first at {first:#x}"));
        }
        let is_directory = match &inode {
            Some(inode) => inode.kind == FileKind::Directory,
            None => self.entries > 0 || self.ino == Ino::ROOT,
        };
        let accounted = inode.as_ref().filter(|_| self.is_whole);
        let of_accounts = accounted.map(|inode| self.accounts(inode)).unwrap_or_default();
        if is_directory {
            self.findings.append(self.of_entries);
        }
        of_accounts.into_iter().for_each(|finding| self.findings.push(finding));
        let Self { ino, is_whole: is_readable, findings, .. } = self;
        Scanned { ino, inode, is_directory, is_readable, findings }
    }

    /// What is wrong in the i-node's accounts.
    fn accounts(&self, inode: &Inode) -> Vec<Finding> {
        let mut findings = Vec::new();
        let has = (self.xattrs.names_len, self.xattrs.has_capability);
        let says = (u64::from(inode.xattr_names_len), inode.state.contains(InodeState::CAPABILITY));
        if has != says {
            let detail = format!("attributes: {has:?}, and it says {says:?}");
            findings.push(Finding::new(FindingCode::WrongXattrAccount, self.ino, detail));
        }
        if inode.kind == FileKind::Directory && inode.size != self.entries_len {
            let (len, size) = (self.entries_len, inode.size);
            let detail = format!("its entries take {len}, and it says {size}");
            findings.push(Finding::new(FindingCode::WrongDirectorySize, self.ino, detail));
        }
        findings
    }
}

fn bad_record(ino: Ino, code: FindingCode, index: u64, error: &FsError) -> Finding {
    Finding::new(code, ino, format!("the record at {index:#x}: {error}"))
}

/// The attributes of one file. Those whose names have one hash are in one group of records: first
/// their entries, and then the parts of long values.
#[derive(Default)]
pub(super) struct Xattrs {
    names_len: u64,
    has_capability: bool,
    /// The index of the group's first record.
    group: u64,
    /// The long values of the group that are not complete, by their slots.
    missing: BTreeMap<u8, Missing>,
}

/// What is still to come of a long value.
struct Missing {
    next_part: usize,
    part_count: usize,
    len_bytes: usize,
}

type Problem = (FindingCode, String);

impl Xattrs {
    /// Takes the next record. The problem is of this record, or of the group that ends before it.
    fn record(&mut self, hasher: &NameHasher, index: u64, record: &[u8]) -> Option<Problem> {
        let group = index & !SLOT_AND_PART;
        let mut problem = None;
        if group != self.group {
            problem = self.finish_group();
            self.group = group;
        }
        let own = match index & SLOT_AND_PART {
            0 => self.entries(hasher, index, record),
            slot_and_part => self.part(slot_and_part, record.len()),
        };
        problem.or(own)
    }

    fn entries(&mut self, hasher: &NameHasher, index: u64, record: &[u8]) -> Option<Problem> {
        let all = match xattr_records::decode(record) {
            Ok(all) => all,
            Err(error) => return Some((FindingCode::BadXattr, error.to_string())),
        };
        let mut names = BTreeSet::new();
        let mut is_right = true;
        for stored in all {
            self.names_len += u64::from(xattr_records::listed_len(stored.name));
            self.has_capability |= stored.name == xattr_records::CAPABILITY;
            is_right &= stored.is_placed(hasher, index) && names.insert(stored.name);
            if stored.slot != 0 {
                let part_count = stored.value_len.div_ceil(XATTR_PART_LEN);
                let missing = Missing { next_part: 0, part_count, len_bytes: stored.value_len };
                is_right &= self.missing.insert(stored.slot, missing).is_none();
            }
        }
        (!is_right).then(|| (FindingCode::BadXattr, "an attribute is misplaced".into()))
    }

    fn part(&mut self, slot_and_part: u64, len_bytes: usize) -> Option<Problem> {
        let (slot, part) = ((slot_and_part >> 8) as u8, (slot_and_part & 0xff) as usize);
        let Some(missing) = self.missing.get_mut(&slot).filter(|of| part < of.part_count) else {
            let detail = format!("part {part} of an attribute's value in slot {slot}");
            return Some((FindingCode::StrayRecord, detail));
        };
        if part != missing.next_part {
            // An earlier one is missing, which the end of the group tells.
            return None;
        }
        if len_bytes != missing.len_bytes.min(XATTR_PART_LEN) {
            return Some((FindingCode::BadXattr, "part of an attribute has a wrong length".into()));
        }
        missing.next_part += 1;
        missing.len_bytes -= len_bytes;
        None
    }

    fn finish_group(&mut self) -> Option<Problem> {
        let is_whole = self.missing.values().all(|missing| missing.len_bytes == 0);
        self.missing.clear();
        (!is_whole).then(|| (FindingCode::BadXattr, "it lacks part of an attribute".into()))
    }
}
