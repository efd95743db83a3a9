//! The head that is repaired: its records, and the units that change them.

use dendro_disk::{Aru, ListHints, LogicalDisk, View};

use crate::error::{FsError, Result};
use crate::layout::dirent::{self, Entry};
use crate::layout::format::{DIR_BASE, HEAD_INDEX};
use crate::layout::inode::Inode;
use crate::layout::names::NameHasher;
use crate::layout::record_edits::RecordEdits;
use crate::types::{FileKind, FileTime, Ino, MAX_NAME_LEN_BYTES};

/// How many records a walk reads at a time.
pub(super) const BATCH_LEN: usize = 256;

/// How many names are tried for an entry whose name is taken.
const MAX_NAMES_TRIED: u32 = 100;

/// A file, as entries name it.
#[derive(Clone, Copy)]
pub(super) struct Child {
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
}

/// The head that is repaired.
pub(super) struct Head<'d> {
    disk: &'d dyn LogicalDisk,
    view: View,
    hasher: NameHasher,
    now: FileTime,
}

impl<'d> Head<'d> {
    pub(super) fn new(
        disk: &'d dyn LogicalDisk,
        view: View,
        hasher: NameHasher,
        now: FileTime,
    ) -> Self {
        Self { disk, view, hasher, now }
    }

    pub(super) const fn disk(&self) -> &'d dyn LogicalDisk {
        self.disk
    }

    pub(super) const fn view(&self) -> View {
        self.view
    }

    pub(super) const fn hasher(&self) -> &NameHasher {
        &self.hasher
    }

    pub(super) const fn now(&self) -> FileTime {
        self.now
    }

    /// The changed records of one unit.
    pub(super) fn edits(&self) -> RecordEdits<'d> {
        RecordEdits::new(self.disk, self.view)
    }

    /// Commits a unit with `edits` and what `more` adds.
    pub(super) fn commit(
        &self,
        edits: RecordEdits<'_>,
        more: impl FnOnce(&mut Aru<'_>),
    ) -> Result<()> {
        let mut aru = Aru::new(self.view);
        more(&mut aru);
        edits.apply(&mut aru);
        self.disk.commit(aru)?;
        Ok(())
    }

    /// Makes the list of `ino`, which is missing.
    pub(super) fn create_list(&self, ino: Ino) -> Result<()> {
        self.commit(self.edits(), |aru| {
            aru.restore_list(ino.lid(), ListHints::default());
        })
    }

    /// The i-node of `ino` as the unit leaves it; `None` if it is missing or malformed.
    pub(super) fn inode(&self, edits: &mut RecordEdits<'_>, ino: Ino) -> Result<Option<Inode>> {
        let record = edits.peek(ino.lid(), HEAD_INDEX)?;
        Ok(Inode::decode(ino, record).ok())
    }

    /// The i-node of `ino`; `None` if it is missing or malformed, or if there is no such list. A
    /// map may have records of a list that nothing can be written to.
    pub(super) fn listed_inode(&self, ino: Ino) -> Result<Option<Inode>> {
        match self.disk.hints(self.view, ino.lid())? {
            Some(_) => self.inode(&mut self.edits(), ino),
            None => Ok(None),
        }
    }

    /// Changes the i-node of `ino`, if it has one.
    pub(super) fn change_inode(
        &self,
        edits: &mut RecordEdits<'_>,
        ino: Ino,
        change: impl FnOnce(&mut Inode),
    ) -> Result<()> {
        if let Some(mut inode) = self.inode(edits, ino)? {
            change(&mut inode);
            inode.ctime = self.now;
            edits.put(ino.lid(), HEAD_INDEX, inode.encode().to_vec());
        }
        Ok(())
    }

    /// Calls `take` with each entry of a directory that can be read, and the index of its record.
    pub(super) fn each_entry(
        &self,
        directory: Ino,
        take: impl FnMut(u64, &Entry<'_>),
    ) -> Result<()> {
        self.each_entry_in(self.view, directory, take)
    }

    /// The same in another version.
    pub(super) fn each_entry_in(
        &self,
        view: View,
        directory: Ino,
        mut take: impl FnMut(u64, &Entry<'_>),
    ) -> Result<()> {
        let mut from = DIR_BASE;
        loop {
            let batch = self.disk.records(view, directory.lid(), from, BATCH_LEN)?;
            for (index, record) in &batch {
                let entries = dirent::entries(record).map_while(Result::ok);
                entries.for_each(|entry| take(*index, &entry));
            }
            match batch.last().and_then(|(last, _)| last.checked_add(1)) {
                Some(next) if batch.len() == BATCH_LEN => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// The file that `name` names in a directory.
    pub(super) fn lookup(&self, directory: Ino, name: &[u8]) -> Result<Option<Child>> {
        let index = self.hasher.dir_index(name);
        let Some(record) = self.disk.record(self.view, directory.lid(), index)? else {
            return Ok(None);
        };
        let found = dirent::find(&record, name)?;
        Ok(found.map(|Entry { ino, kind, .. }| Child { ino, kind }))
    }

    /// Adds an entry by the name `name`, or one made from it if that is taken. Adds nothing if the
    /// name names `child` already, or if no name can be found.
    pub(super) fn add_entry(
        &self,
        edits: &mut RecordEdits<'_>,
        directory: Ino,
        name: &[u8],
        child: Child,
    ) -> Result<()> {
        for attempt in 0..MAX_NAMES_TRIED {
            let name = name_for(name, child.ino, attempt);
            let record = edits.load(directory.lid(), self.hasher.dir_index(&name))?;
            if dirent::entries(record).any(|entry| entry.is_err()) {
                *record = readable_part(record)?;
            }
            match dirent::find(record, &name)? {
                Some(entry) if entry.ino == child.ino => return Ok(()),
                Some(_) => continue,
                None => {}
            }
            match dirent::insert(record, &name, child.ino, child.kind) {
                Err(FsError::Full(_)) => continue,
                other => other?,
            }
            return self.change_inode(edits, directory, |inode| {
                inode.size = inode.size.saturating_add(dirent::entry_len(&name) as u64);
                if child.kind == FileKind::Directory {
                    inode.nlink = inode.nlink.saturating_add(1);
                }
            });
        }
        Err(FsError::Full("no name is free for an entry"))
    }

    /// Removes the entry `name` from a directory, if it is there.
    pub(super) fn remove_entry(
        &self,
        edits: &mut RecordEdits<'_>,
        directory: Ino,
        name: &[u8],
    ) -> Result<()> {
        let record = edits.load(directory.lid(), self.hasher.dir_index(name))?;
        let Some(Entry { kind, .. }) = dirent::find(record, name)? else { return Ok(()) };
        dirent::remove(record, name)?;
        self.change_inode(edits, directory, |inode| {
            inode.size = inode.size.saturating_sub(dirent::entry_len(name) as u64);
            if kind == FileKind::Directory {
                inode.nlink = inode.nlink.saturating_sub(1);
            }
        })
    }
}

/// The name for the `attempt`th try: the name itself, and then with the number of the i-node.
fn name_for(name: &[u8], ino: Ino, attempt: u32) -> Vec<u8> {
    let suffix = match attempt {
        0 => return name.to_vec(),
        1 => format!("~{ino}"),
        _ => format!("~{ino}.{attempt}"),
    };
    let kept = name.len().min(MAX_NAME_LEN_BYTES - suffix.len());
    [&name[..kept], suffix.as_bytes()].concat()
}

/// A record with the entries of `record` that can be read.
fn readable_part(record: &[u8]) -> Result<Vec<u8>> {
    let mut new = Vec::with_capacity(record.len());
    for entry in dirent::entries(record).map_while(Result::ok) {
        dirent::insert(&mut new, entry.name, entry.ino, entry.kind)?;
    }
    Ok(new)
}
