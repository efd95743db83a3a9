//! Files in the past: what changed between two views, the versions of one file, what was removed
//! from a directory, and bringing it back.
//!
//! - [`diff()`]: the names that came, went, or moved, and the files that changed; [`seen`]: those that
//!   somebody may see.
//! - [`history`]: the versions of what a path names.
//! - [`removed`]: the names that a directory had and has no more.
//! - [`stale`]: what one who has looked at one view must not believe of another.
//! - [`path_of`]: where a file is.
//! - [`maker`]: who made a version, and may take it away.
//! - [`restore`]: copies a file or a whole tree from one view to another.
//!
//! Each can be asked for by somebody who may not see everything ([`Who`]), and then sees, and copies, no more
//! than the kernel would let that one see in a mount of the view.
//!
//! All but the last read the disk by themselves, with no file system open: [`Tree`] is what they
//! see a view through. A head may be changed meanwhile; then each file is seen at one moment, but not all
//! at the same.

mod diff;
mod history;
mod maker;
mod restore;
mod staged;
mod stale;
#[cfg(test)]
mod tests;

use dendro_disk::{LogicalDisk, View};

pub use diff::{Change, diff, path_of, seen};
pub use history::{PathVersion, Removed, history, removed};
pub use maker::{forget_maker, maker, note_maker};
pub use restore::{Restored, restore};
pub use stale::{Stale, stale};

use crate::dir;
use crate::error::{FsError, Result};
use crate::filesystem::Volume;
use crate::format::{DIR_BASE, FIRST_FILE_LIST, HEAD_INDEX};
use crate::inode::Inode;
use crate::names::{NameHasher, check_name};
use crate::permission::{Rules, Who, Wish};
use crate::types::{FileKind, Ino};
use crate::xattr;

/// How many records a walk takes at a time.
const BATCH_LEN: usize = 128;

/// An entry of a directory: what it is called, and what it names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Entry {
    name: Vec<u8>,
    ino: Ino,
    kind: FileKind,
}

/// The files of one view, to be read without opening a file system.
#[derive(Clone, Copy)]
pub struct Tree<'d> {
    disk: &'d dyn LogicalDisk,
    view: View,
    hasher: NameHasher,
    /// Who looks; nothing: somebody who may see all.
    who: Option<&'d Who>,
}

impl std::fmt::Debug for Tree<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("view", &self.view).finish_non_exhaustive()
    }
}

impl<'d> Tree<'d> {
    /// The files that `view` has.
    ///
    /// # Errors
    /// [`FsError::Corrupted`] when there is no file system; what the disk says.
    pub fn new(disk: &'d dyn LogicalDisk, view: View) -> Result<Self> {
        let hasher = Volume::read(disk, view, false)?.hasher;
        Ok(Self { disk, view, hasher, who: None })
    }

    /// The same as `who` may see it: what needs a directory that `who` may not go through, or to list one
    /// that `who` may not list, is answered [`FsError::Denied`].
    #[must_use]
    pub const fn seen_by(self, who: Option<&'d Who>) -> Self {
        Self { who, ..self }
    }

    /// Refuses what who looks may not do with a file.
    fn check(&self, ino: Ino, wish: Wish) -> Result<()> {
        let Some(who) = self.who else { return Ok(()) };
        let Some(inode) = self.inode(ino)? else { return Ok(()) };
        let acl = xattr::get(self.disk, self.view, &self.hasher, ino, xattr::ACL_ACCESS)?;
        let rules = Rules { uid: inode.uid, gid: inode.gid, mode: inode.perm, acl: acl.as_deref() };
        who.check(&rules, wish)
    }

    /// Refuses to make names in the directory.
    ///
    /// # Errors
    /// [`FsError::Denied`] when who looks may not; what the disk says.
    pub fn check_making(&self, dir: Ino) -> Result<()> {
        self.check(dir, Wish::WRITE | Wish::EXECUTE)
    }

    /// Whether who looks can come to see the name at the end of `path`: by listing the directories on the
    /// way.
    ///
    /// # Errors
    /// As [`Self::resolve`], but for [`FsError::Denied`].
    fn shows(&self, path: &[u8]) -> Result<bool> {
        let mut at = Ino::ROOT;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            match self.check(at, Wish::READ).and_then(|()| self.lookup(at, name)) {
                Ok(Some(ino)) => at = ino,
                Ok(None) | Err(FsError::Denied(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The i-node at the end of `path`, whose names are parted by slashes; a symbolic link there or
    /// on the way is not followed. `None` when there is none.
    ///
    /// # Errors
    /// [`FsError::NameTooLong`], [`FsError::Invalid`]; [`FsError::Denied`] where who looks may not go there;
    /// what the disk says.
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
        self.check(dir, Wish::EXECUTE)?;
        if name == b".." {
            return Ok(self.inode(dir)?.map(|inode| Ino(inode.parent)));
        }
        let index = self.hasher.dir_index(name);
        let Some(record) = self.disk.record(self.view, dir.lid(), index)? else { return Ok(None) };
        Ok(dir::find(&record, name)?.map(|entry| entry.ino))
    }

    /// An i-node, if there is one of that number.
    fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        if ino != Ino::ROOT && ino.lid() < FIRST_FILE_LIST {
            return Ok(None);
        }
        let record = self.disk.record(self.view, ino.lid(), HEAD_INDEX)?;
        record.map(|record| Inode::decode(ino, &record)).transpose()
    }

    /// All entries of a directory; none of what is not there, or is no directory.
    fn entries(&self, dir: Ino) -> Result<Vec<Entry>> {
        self.check(dir, Wish::READ | Wish::EXECUTE)?;
        let mut entries = Vec::new();
        let mut from = DIR_BASE;
        loop {
            let batch = self.disk.records(self.view, dir.lid(), from, BATCH_LEN)?;
            for (_, record) in &batch {
                for entry in dir::entries(record) {
                    let dir::Entry { ino, kind, name, .. } = entry?;
                    entries.push(Entry { name: name.to_vec(), ino, kind });
                }
            }
            match batch.last().and_then(|(last, _)| last.checked_add(1)) {
                Some(next) if batch.len() == BATCH_LEN => from = next,
                _ => return Ok(entries),
            }
        }
    }
}

/// Refuses to go deeper than any real tree, where a damaged one would go in circles.
fn check_depth(depth: usize) -> Result<()> {
    const MAX_DEPTH: usize = 10_000;
    if depth > MAX_DEPTH {
        return Err(FsError::Corrupted("the directories have a loop".into()));
    }
    Ok(())
}
