//! The files of one view, read without a mounted file system.

use dendro_disk::{LogicalDisk, View};

use crate::error::{FsError, Result};
use crate::layout::dirent;
use crate::layout::format::{DIR_BASE, FIRST_FILE_LIST, HEAD_INDEX};
use crate::layout::inode::Inode;
use crate::layout::names::{NameHasher, check_name};
use crate::layout::volume::Volume;
use crate::layout::xattr_records;
use crate::permission::{self, Access, AccessRules};
use crate::types::{Credentials, FileKind, Ino};

/// How many records a walk reads at a time.
pub(super) const BATCH_LEN: usize = 128;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
}

/// The files of one view, for reading without a mounted file system.
#[derive(Clone, Copy)]
pub struct Tree<'d> {
    disk: &'d dyn LogicalDisk,
    view: View,
    hasher: NameHasher,
    /// The user for whom the tree is read; `None`: one who may see everything.
    viewer: Option<&'d Credentials>,
}

impl std::fmt::Debug for Tree<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("view", &self.view).finish_non_exhaustive()
    }
}

impl<'d> Tree<'d> {
    /// The files of `view`.
    ///
    /// # Errors
    /// [`FsError::Corrupted`] if there is no file system; errors of the disk.
    pub fn new(disk: &'d dyn LogicalDisk, view: View) -> Result<Self> {
        let hasher = Volume::read(disk, view, false)?.hasher();
        Ok(Self { disk, view, hasher, viewer: None })
    }

    /// The same tree, read for a user. Where that user may not search or list a directory, calls
    /// fail with [`FsError::Denied`].
    #[must_use]
    pub const fn seen_by(self, viewer: Option<&'d Credentials>) -> Self {
        Self { viewer, ..self }
    }

    /// Refuses access to a file that the viewer may not have.
    fn check(&self, ino: Ino, wanted: Access) -> Result<()> {
        let Some(viewer) = self.viewer else { return Ok(()) };
        let Some(inode) = self.inode(ino)? else { return Ok(()) };
        let acl =
            xattr_records::get(self.disk, self.view, &self.hasher, ino, xattr_records::ACL_ACCESS)?;
        let rules =
            AccessRules { uid: inode.uid, gid: inode.gid, mode: inode.perm, acl: acl.as_deref() };
        permission::check(viewer, &rules, wanted)
    }

    /// Checks that the viewer may create names in the directory.
    ///
    /// # Errors
    /// [`FsError::Denied`] if not; errors of the disk.
    pub fn check_making(&self, dir: Ino) -> Result<()> {
        self.check(dir, Access::WRITE | Access::EXECUTE)
    }

    /// Whether the viewer can find the name at the end of `path` by listing the directories on the
    /// path.
    ///
    /// # Errors
    /// As [`Self::resolve`], except [`FsError::Denied`].
    pub(super) fn shows(&self, path: &[u8]) -> Result<bool> {
        let mut at = Ino::ROOT;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            match self.check(at, Access::READ).and_then(|()| self.lookup(at, name)) {
                Ok(Some(ino)) => at = ino,
                Ok(None) | Err(FsError::Denied(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The i-node at the end of `path`, whose names are separated by slashes. Symbolic links are
    /// not followed. `None` if there is no such file.
    ///
    /// # Errors
    /// [`FsError::NameTooLong`], [`FsError::Invalid`]; [`FsError::Denied`] if the viewer may not
    /// search a directory on the path; errors of the disk.
    pub fn resolve(&self, path: &[u8]) -> Result<Option<Ino>> {
        let mut at = Ino::ROOT;
        for name in path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
            match self.lookup(at, name)? {
                Some(ino) => at = ino,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>> {
        check_name(name)?;
        self.check(dir, Access::EXECUTE)?;
        if name == b".." {
            return Ok(self.inode(dir)?.map(|inode| Ino(inode.parent)));
        }
        let index = dirent::locate(self.disk, self.view, &self.hasher, dir, name)?.index;
        let Some(record) = self.disk.record(self.view, dir.lid(), index)? else { return Ok(None) };
        Ok(dirent::find(&record, name)?.map(|entry| entry.ino))
    }

    /// The i-node of that number, if it exists.
    pub(super) fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        if ino != Ino::ROOT && ino.lid() < FIRST_FILE_LIST {
            return Ok(None);
        }
        let record = self.disk.record(self.view, ino.lid(), HEAD_INDEX)?;
        record.map(|record| Inode::decode(ino, &record)).transpose()
    }

    /// The entries in one record of a directory.
    pub(super) fn entries_at(&self, dir: Ino, index: u64) -> Result<Vec<Entry>> {
        let record = self.disk.record(self.view, dir.lid(), index)?;
        record
            .map_or_else(|| Ok(Vec::new()), |record| dirent::entries(&record).map(owned).collect())
    }

    /// All entries of a directory; none if it does not exist, or is not a directory.
    pub(super) fn entries(&self, dir: Ino) -> Result<Vec<Entry>> {
        self.check(dir, Access::READ | Access::EXECUTE)?;
        let mut entries = Vec::new();
        let mut from = DIR_BASE;
        loop {
            let batch = self.disk.records(self.view, dir.lid(), from, BATCH_LEN)?;
            for (_, record) in &batch {
                for entry in dirent::entries(record) {
                    entries.push(owned(entry)?);
                }
            }
            match batch.last().and_then(|(last, _)| last.checked_add(1)) {
                Some(next) if batch.len() == BATCH_LEN => from = next,
                _ => return Ok(entries),
            }
        }
    }
}

fn owned(entry: Result<dirent::Entry<'_>>) -> Result<Entry> {
    entry.map(|dirent::Entry { ino, kind, name, .. }| Entry { name: name.to_vec(), ino, kind })
}

/// Refuses to go deeper than any sound tree is. A damaged one may have a loop.
pub(super) fn check_depth(depth: usize) -> Result<()> {
    const MAX_DEPTH: usize = 10_000;
    if depth > MAX_DEPTH {
        return Err(FsError::Corrupted("the directories have a loop".into()));
    }
    Ok(())
}
