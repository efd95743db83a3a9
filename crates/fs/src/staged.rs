//! Directory trees that an undelete is restoring, and that are not complete yet.
//!
//! A restored directory gets its name when it is complete. Until then it has a temporary name
//! beside it, and an attribute of the root directory records where. That attribute is set before
//! the directory is created, and removed after the directory was renamed. So the next mount finds
//! what a crash left, and removes it.

use crate::error::{FsError, Result};
use crate::namespace::{lookup, readdir, remove, rename};
use crate::state::FsState;
use crate::types::{Caller, FileKind, Ino, RenameFlags, XattrFlags};
use crate::{orphans, xattr};

/// How many files of a directory are removed between two listings of it.
const BATCH_LEN: usize = 128;

/// The prefix of the attributes of the root directory.
const MARK: &str = "trusted.dendro.undelete.";

/// The prefix of temporary names.
const TEMPORARY: &str = ".undelete-";

/// The temporary name of a tree until it is complete.
pub(crate) struct Staged<'f> {
    fs: &'f FsState,
    parent: Ino,
    name: Vec<u8>,
    mark: String,
}

impl<'f> Staged<'f> {
    /// Chooses a temporary name in `parent` for a restored copy of `ino`, and records it.
    pub(crate) fn begin(fs: &'f FsState, parent: Ino, ino: Ino) -> Result<Self> {
        let now = fs.now();
        let number = format!("{}-{}.{:09}", ino.0, now.secs, now.nanos);
        let mark = format!("{MARK}{number}");
        let name = format!("{TEMPORARY}{number}").into_bytes();
        let mut value = parent.0.to_le_bytes().to_vec();
        value.extend_from_slice(&name);
        xattr::set(fs, Ino::ROOT, mark.as_bytes(), &value, XattrFlags::CREATE)?;
        Ok(Self { fs, parent, name, mark })
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Gives the complete tree its name.
    pub(crate) fn finish(self, name: &[u8]) -> Result<()> {
        let (caller, parent) = (Caller::default(), self.parent);
        let no_replace = RenameFlags::NO_REPLACE;
        match rename::rename(self.fs, &caller, parent, &self.name, parent, name, no_replace) {
            Ok(()) => xattr::remove(self.fs, Ino::ROOT, self.mark.as_bytes()),
            Err(error) => Err(self.give_up(error)),
        }
    }

    /// Removes what was restored so far. If that fails, too, the next mount does it.
    pub(crate) fn give_up(self, why: FsError) -> FsError {
        if let Err(error) = clear(self.fs, self.parent, &self.name, self.mark.as_bytes()) {
            log::warn!("a part of a tree that was not restored is still there: {error}");
        }
        why
    }
}

/// Removes incomplete trees that an undelete left in a crash. What cannot be removed stays until
/// the next mount, and does no harm.
pub(crate) fn clear_all(fs: &FsState) {
    let names = match xattr::list(fs, Ino::ROOT) {
        Ok(names) => names,
        Err(error) => {
            log::warn!("it cannot be checked whether an undelete was interrupted: {error}");
            return;
        }
    };
    for mark in names.split(|&byte| byte == 0).filter(|name| name.starts_with(MARK.as_bytes())) {
        let cleared = xattr::get(fs, Ino::ROOT, mark).and_then(|value| {
            let (parent, name) = value.split_first_chunk().ok_or_else(|| {
                FsError::Corrupted("a mark of an undelete names no directory".into())
            })?;
            clear(fs, Ino(u64::from_le_bytes(*parent)), name, mark)
        });
        match cleared {
            Ok(()) => log::info!("what an interrupted undelete left was removed"),
            Err(error) => {
                log::warn!("what an interrupted undelete left was not removed: {error}");
            }
        }
    }
}

/// Removes the tree `name` in `parent`, and then its attribute of the root directory.
fn clear(fs: &FsState, parent: Ino, name: &[u8], mark: &[u8]) -> Result<()> {
    let is_ours = name.starts_with(TEMPORARY.as_bytes());
    let found = if is_ours { lookup::lookup(fs, parent, name) } else { Err(FsError::NotFound) };
    match found {
        Ok(attr) => {
            orphans::forget(fs, attr.ino, 1);
            remove_tree(fs, parent, name, attr.ino)?;
        }
        // It has its final name already, or was never created.
        Err(FsError::NotFound | FsError::Stale | FsError::NotDirectory) => {}
        Err(error) => return Err(error),
    }
    xattr::remove(fs, Ino::ROOT, mark)
}

/// Removes the directory `name` in `parent`, whose number is `ino`, and everything in it.
fn remove_tree(fs: &FsState, parent: Ino, name: &[u8], ino: Ino) -> Result<()> {
    // The directories to remove, each inside the one before.
    let mut path = vec![(parent, name.to_vec(), ino)];
    while let Some((parent, name, ino)) = path.last().cloned() {
        let mut directory = None;
        let mut files = Vec::new();
        readdir::readdir(fs, ino, 0, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return true;
            }
            match entry.kind {
                FileKind::Directory => directory = Some((ino, entry.name.to_vec(), entry.ino)),
                _ => files.push(entry.name.to_vec()),
            }
            directory.is_none() && files.len() < BATCH_LEN
        })?;
        let is_empty = directory.is_none() && files.is_empty();
        for file in &files {
            remove::unlink(fs, ino, file)?;
        }
        match directory {
            Some(directory) => path.push(directory),
            None if is_empty => {
                remove::rmdir(fs, parent, &name)?;
                path.pop();
            }
            None => {}
        }
    }
    Ok(())
}
