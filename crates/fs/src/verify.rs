//! Checks that a disk holds a sound file system: the counterpart of fsck, for tests and tools.
//!
//! It uses only the disk's interface, and keeps the i-nodes of all files in memory. Nothing may
//! change during the check.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dendro_disk::{Error as DiskError, Lid, LogicalDisk, MAX_PAGE_COUNT, PAGE_SIZE, View};

use crate::error::{FsError, Result};
use crate::layout::dirent;
use crate::layout::format::{
    DIR_BASE, FIRST_FILE_LIST, HEAD_INDEX, ORPHAN_LIST, ORPHAN_REMOVE, OrphanV1, VOLUME_LIST,
    XATTR_BASE, XATTR_END, split_head,
};
use crate::layout::inode::{Inode, InodeState};
use crate::layout::names::NameHasher;
use crate::layout::volume::Volume;
use crate::layout::xattr_records;
use crate::types::{FileKind, Ino};

/// How many lists or records a walk reads at a time.
const BATCH_LEN: usize = 256;

/// The kinds of findings. The numbers are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum FindingCode {
    /// The volume's description or one of its lists is missing or malformed.
    BadVolume = 1,
    /// A list has no i-node, or a malformed one.
    BadInode = 2,
    /// A record has an index at which there must be none.
    StrayRecord = 3,
    /// A directory record is malformed.
    BadDirectoryRecord = 4,
    /// A name is in a record to which it does not hash.
    WrongHash = 5,
    /// Two entries of a directory have the same name or slot.
    DuplicateEntry = 6,
    /// An entry names a file that does not exist.
    DanglingEntry = 7,
    /// The type in an entry differs from that of the file.
    WrongKind = 8,
    /// The parent in a directory's i-node is not the directory that has an entry for it.
    WrongParent = 9,
    /// The link count of a file differs from its number of names.
    WrongLinkCount = 10,
    /// The size of a directory differs from that of its entries.
    WrongDirectorySize = 11,
    /// The page count of a file differs from its number of pages.
    WrongPageCount = 12,
    /// A file has pages behind its end, and its state does not allow that.
    PagesPastEnd = 13,
    /// A file has bytes other than zeros behind its end.
    DataPastEnd = 14,
    /// A file has no name and is not on the orphan list.
    Unreachable = 15,
    /// The orphan list has a file that is not an orphan, or lacks one that is.
    BadOrphan = 16,
    /// An extended attribute is malformed or misplaced.
    BadXattr = 17,
    /// The i-node's account of its attributes (length of names, capability) is wrong.
    WrongXattrAccount = 18,
    /// The page in which a file ends, or one behind its end, cannot be read.
    UnreadablePage = 19,
}

/// Whether data is affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Space is lost or a number is wrong, but no data is affected.
    Minor,
    /// Data cannot be read or reached, or may be wrong.
    Major,
}

impl FindingCode {
    /// How severe a finding of this kind is.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::WrongLinkCount
            | Self::WrongDirectorySize
            | Self::WrongPageCount
            | Self::PagesPastEnd
            | Self::WrongXattrAccount
            | Self::BadOrphan
            | Self::StrayRecord => Severity::Minor,
            Self::BadVolume
            | Self::BadInode
            | Self::BadDirectoryRecord
            | Self::WrongHash
            | Self::DuplicateEntry
            | Self::DanglingEntry
            | Self::WrongKind
            | Self::WrongParent
            | Self::DataPastEnd
            | Self::Unreachable
            | Self::BadXattr
            | Self::UnreadablePage => Severity::Major,
        }
    }
}

/// Something that is wrong with the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of finding.
    pub code: FindingCode,
    /// The file that it concerns.
    pub ino: Ino,
    /// A description.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] i-node {}: {}", self.code as u16, self.ino, self.detail)
    }
}

/// Everything that is wrong with the file system in `view`, in the order in which it was found.
///
/// # Errors
/// Errors of the disk, except damage, which is a finding.
pub fn verify(disk: &dyn LogicalDisk, view: View) -> Result<Vec<Finding>> {
    verify_with_hash_mask(disk, view, u64::MAX)
}

pub(crate) fn verify_with_hash_mask(
    disk: &dyn LogicalDisk,
    view: View,
    hash_mask: u64,
) -> Result<Vec<Finding>> {
    let volume = match Volume::read(disk, view, false) {
        Ok(volume) => volume,
        Err(FsError::Corrupted(detail)) => {
            let ino = Ino(VOLUME_LIST.0);
            return Ok(vec![Finding { code: FindingCode::BadVolume, ino, detail }]);
        }
        Err(error) => return Err(error),
    };
    let mut verifier = Verifier {
        disk,
        view,
        hasher: volume.hasher().with_mask(hash_mask),
        findings: Vec::new(),
        inodes: BTreeMap::new(),
        entries: Vec::new(),
        orphans: BTreeMap::new(),
    };
    verifier.read_orphans()?;
    verifier.read_lists()?;
    verifier.check_tree();
    Ok(verifier.findings)
}

/// An entry of a directory.
struct Named {
    parent: Ino,
    child: Ino,
    kind: FileKind,
    name: Vec<u8>,
}

struct Verifier<'d> {
    disk: &'d dyn LogicalDisk,
    view: View,
    hasher: NameHasher,
    findings: Vec<Finding>,
    inodes: BTreeMap<Ino, Inode>,
    entries: Vec<Named>,
    /// The files on the orphan list, and the kind of each.
    orphans: BTreeMap<Ino, u8>,
}

/// Turns damage into a finding. Other errors end the check.
macro_rules! found {
    ($self:ident, $code:ident, $ino:expr, $result:expr) => {
        match $result {
            Ok(value) => Some(value),
            Err(FsError::Corrupted(detail)) => {
                $self.find(FindingCode::$code, $ino, detail);
                None
            }
            Err(error) => return Err(error),
        }
    };
}

impl Verifier<'_> {
    fn find(&mut self, code: FindingCode, ino: Ino, detail: impl Into<String>) {
        self.findings.push(Finding { code, ino, detail: detail.into() });
    }

    fn read_orphans(&mut self) -> Result<()> {
        let mut from = 0;
        loop {
            let batch = self.disk.records(self.view, ORPHAN_LIST, from, BATCH_LEN)?;
            for (index, record) in &batch {
                let ino = Ino(*index);
                let head = split_head::<OrphanV1>(record, "an orphan").map(|(head, _)| head.kind);
                if let Some(kind) = found!(self, BadOrphan, ino, head) {
                    self.orphans.insert(ino, kind);
                }
            }
            match batch.last().and_then(|(last, _)| last.checked_add(1)) {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    fn read_lists(&mut self) -> Result<()> {
        let mut from = Lid(0);
        loop {
            let batch = self.disk.lists(self.view, from, BATCH_LEN)?;
            for &list in &batch {
                if list == Ino::ROOT.lid() || list >= FIRST_FILE_LIST {
                    self.read_file(Ino(list.0))?;
                }
            }
            match batch.last() {
                Some(last) => from = Lid(last.0 + 1),
                None => return Ok(()),
            }
        }
    }

    fn read_file(&mut self, ino: Ino) -> Result<()> {
        let Some(record) = self.disk.record(self.view, ino.lid(), HEAD_INDEX)? else {
            self.find(FindingCode::BadInode, ino, "the list has none");
            return Ok(());
        };
        let Some(inode) = found!(self, BadInode, ino, Inode::decode(ino, &record)) else {
            return Ok(());
        };
        self.check_pages(ino, &inode)?;
        self.check_xattrs(ino, &inode)?;
        self.check_strays(ino, &inode)?;
        if inode.kind == FileKind::Directory {
            self.read_directory(ino, &inode)?;
        }
        self.inodes.insert(ino, inode);
        Ok(())
    }

    fn check_pages(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let lid = ino.lid();
        if self.orphans.get(&ino) == Some(&ORPHAN_REMOVE) {
            // It may be freed in part.
            return Ok(());
        }
        if !matches!(inode.kind, FileKind::Regular | FileKind::Symlink) {
            if inode.pages != 0 || self.disk.next_data(self.view, lid, 0)?.is_some() {
                self.find(FindingCode::WrongPageCount, ino, "pages, where there are none");
            }
            return Ok(());
        }
        let size_pages = inode.size_pages();
        let truncating = inode.state.contains(InodeState::TRUNCATING);
        let end = if truncating { size_pages } else { MAX_PAGE_COUNT };
        let pages = match end {
            0 => 0,
            _ => self.disk.count_pages(self.view, lid, 0..end)?,
        };
        if pages != inode.pages {
            let detail = format!("{pages} pages, and it says {}", inode.pages);
            self.find(FindingCode::WrongPageCount, ino, detail);
        }
        let in_tail = (inode.size % PAGE_SIZE as u64) as usize;
        if in_tail != 0 && !inode.state.contains(InodeState::INLINE) {
            self.check_zeros(ino, size_pages - 1, in_tail)?;
        }
        if truncating {
            return Ok(());
        }
        let mut next = self.disk.next_data(self.view, lid, size_pages)?;
        if next.is_some() && !inode.state.contains(InodeState::EOF_PAGES) {
            self.find(FindingCode::PagesPastEnd, ino, "there are pages past the end");
        }
        while let Some(page) = next {
            self.check_zeros(ino, page, 0)?;
            next = self.disk.next_data(self.view, lid, page + 1)?;
        }
        Ok(())
    }

    fn check_zeros(&mut self, ino: Ino, page: u64, from: usize) -> Result<()> {
        let mut bytes = vec![0; PAGE_SIZE];
        match self.disk.read_pages(self.view, ino.lid(), page, &mut bytes) {
            // The check goes on with the other files.
            Err(DiskError::Corrupted(why) | DiskError::Io(why)) => {
                self.find(FindingCode::UnreadablePage, ino, why);
                return Ok(());
            }
            other => other?,
        }
        if bytes[from..].iter().any(|&byte| byte != 0) {
            let detail = format!("page {page} has data past the end");
            self.find(FindingCode::DataPastEnd, ino, detail);
        }
        Ok(())
    }

    fn check_xattrs(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let mut names_len = 0_u64;
        let mut has_capability = false;
        let mut problems = Vec::new();
        let (disk, view, hasher) = (self.disk, self.view, self.hasher);
        let mut names = BTreeSet::new();
        let walk = xattr_records::for_each(disk, view, ino, &mut |index, stored| {
            names_len += u64::from(xattr_records::listed_len(stored.name));
            has_capability |= stored.name == xattr_records::CAPABILITY;
            if hasher.xattr_index(stored.name) != index || !names.insert(stored.name.to_vec()) {
                problems.push("an attribute is misplaced".to_owned());
            }
            match xattr_records::value(disk, view, ino, index, stored) {
                Err(FsError::Corrupted(detail)) => problems.push(detail),
                other => drop(other?),
            }
            Ok(())
        });
        found!(self, BadXattr, ino, walk);
        for problem in problems {
            self.find(FindingCode::BadXattr, ino, problem);
        }
        let account =
            (u64::from(inode.xattr_names_len), inode.state.contains(InodeState::CAPABILITY));
        if account != (names_len, has_capability) {
            let detail = format!("attributes: {names_len}, {has_capability}; says {account:?}");
            self.find(FindingCode::WrongXattrAccount, ino, detail);
        }
        Ok(())
    }

    /// Finds records other than the i-node, attributes and, in a directory, entries.
    fn check_strays(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let mut ends = vec![(1, XATTR_BASE), (XATTR_END, DIR_BASE)];
        if inode.kind != FileKind::Directory {
            ends.push((DIR_BASE, u64::MAX));
        }
        for (from, to) in ends {
            let next = self.disk.records(self.view, ino.lid(), from, 1)?;
            if let Some((index, _)) = next.first().filter(|(index, _)| *index < to) {
                self.find(FindingCode::StrayRecord, ino, format!("a record at {index:#x}"));
            }
        }
        Ok(())
    }

    fn read_directory(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let mut size = 0;
        let mut from = DIR_BASE;
        loop {
            let batch = self.disk.records(self.view, ino.lid(), from, BATCH_LEN)?;
            for (index, record) in &batch {
                let entries: Result<Vec<_>> = dirent::entries(record).collect();
                let Some(entries) = found!(self, BadDirectoryRecord, ino, entries) else {
                    continue;
                };
                let mut seen = BTreeSet::new();
                let mut last_slot = None;
                for entry in entries {
                    let name = String::from_utf8_lossy(entry.name).into_owned();
                    if self.hasher.dir_index(entry.name) != *index {
                        self.find(FindingCode::WrongHash, ino, format!("entry {name}"));
                    }
                    if !seen.insert(entry.name) || last_slot >= Some(entry.slot) {
                        self.find(FindingCode::DuplicateEntry, ino, format!("entry {name}"));
                    }
                    last_slot = Some(entry.slot);
                    size += dirent::entry_len(entry.name) as u64;
                    self.entries.push(Named {
                        parent: ino,
                        child: entry.ino,
                        kind: entry.kind,
                        name: entry.name.to_vec(),
                    });
                }
            }
            match batch.last().and_then(|(last, _)| last.checked_add(1)) {
                Some(next) => from = next,
                None => break,
            }
        }
        if size != inode.size {
            let detail = format!("its entries take {size}, and it says {}", inode.size);
            self.find(FindingCode::WrongDirectorySize, ino, detail);
        }
        Ok(())
    }

    /// Checks the relations between files: names, link counts, parents, orphans.
    fn check_tree(&mut self) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut subdirs: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut problems = Vec::new();
        for Named { parent, child, kind, name } in &self.entries {
            let name = String::from_utf8_lossy(name);
            *names.entry(*child).or_default() += 1;
            let mut find = |code, detail: String| {
                problems.push(Finding { code, ino: *parent, detail });
            };
            let Some(inode) = self.inodes.get(child) else {
                find(FindingCode::DanglingEntry, format!("{name} names i-node {child}"));
                continue;
            };
            if inode.kind != *kind {
                find(FindingCode::WrongKind, format!("{name} is a {:?}", inode.kind));
            }
            if inode.kind == FileKind::Directory {
                *subdirs.entry(*parent).or_default() += 1;
                if inode.parent != parent.0 || *child == Ino::ROOT {
                    find(FindingCode::WrongParent, format!("{name} is in i-node {}", inode.parent));
                }
            }
        }
        self.findings.append(&mut problems);
        for (&ino, inode) in &self.inodes {
            let count = names.get(&ino).copied().unwrap_or(0);
            problems.extend(self.check_links(ino, inode, count, subdirs.get(&ino).copied()));
        }
        for &ino in self.orphans.keys() {
            if !self.inodes.contains_key(&ino) {
                let detail = "the orphan list has it, and it is not there".to_owned();
                problems.push(Finding { code: FindingCode::BadOrphan, ino, detail });
            }
        }
        self.findings.append(&mut problems);
        self.check_reachable();
    }

    fn check_links(
        &self,
        ino: Ino,
        inode: &Inode,
        names: u32,
        subdirs: Option<u32>,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |code, detail: String| findings.push(Finding { code, ino, detail });
        let orphan = self.orphans.get(&ino);
        let is_removed = orphan == Some(&ORPHAN_REMOVE);
        let expected = match inode.kind {
            FileKind::Directory => 2 + subdirs.unwrap_or(0),
            _ => names,
        };
        let is_rootless = inode.kind == FileKind::Directory && ino != Ino::ROOT;
        if names == 0 && !is_removed && ino != Ino::ROOT {
            find(FindingCode::Unreachable, "it has no name".into());
        } else if is_rootless && names > 1 {
            find(FindingCode::WrongLinkCount, format!("a directory with {names} names"));
        } else if inode.nlink != expected {
            let detail = format!("{expected} links, and it says {}", inode.nlink);
            find(FindingCode::WrongLinkCount, detail);
        }
        let truncating = inode.state.contains(InodeState::TRUNCATING);
        if (is_removed && names > 0) || (orphan.is_some() && !is_removed && !truncating) {
            find(FindingCode::BadOrphan, "it is on the list, and no orphan".into());
        }
        if truncating && orphan.is_none() {
            find(FindingCode::BadOrphan, "its truncation is on no list".into());
        }
        if is_rootless && !self.inodes.contains_key(&Ino(inode.parent)) {
            find(FindingCode::WrongParent, format!("its parent {} is not there", inode.parent));
        }
        findings
    }

    /// Checks that every directory leads up to the root.
    fn check_reachable(&mut self) {
        let mut rooted = BTreeSet::from([Ino::ROOT]);
        let mut lost = Vec::new();
        for (&ino, inode) in &self.inodes {
            if inode.kind != FileKind::Directory {
                continue;
            }
            let mut path = BTreeSet::new();
            let mut at = ino;
            while !rooted.contains(&at) && path.insert(at) {
                match self.inodes.get(&at) {
                    Some(inode) => at = Ino(inode.parent),
                    None => break,
                }
            }
            if rooted.contains(&at) {
                rooted.append(&mut path);
            } else {
                lost.push(ino);
            }
        }
        for ino in lost {
            self.find(FindingCode::Unreachable, ino, "it does not lead up to the root");
        }
    }
}
