//! Trees that are being brought back and are not whole yet.
//!
//! A directory gets its name when all is in it. Until then it is called otherwise, beside that name,
//! and an attribute of the root says where: it is written before the directory is made and removed
//! after it has been renamed. So what a crash leaves is found by the next mount, which takes it away.

use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::types::{Caller, FileKind, Ino, RenameFlags, XattrFlags};

/// What the attributes of the root begin with.
const MARK: &str = "trusted.dendro.undelete.";

/// A name that a tree has until it is whole.
pub(super) struct Staged<'f> {
    fs: &'f FileSystem,
    parent: Ino,
    name: Vec<u8>,
    mark: String,
}

impl<'f> Staged<'f> {
    /// Chooses a name in `parent` for what is brought back of `ino`, and writes it down.
    pub(super) fn begin(fs: &'f FileSystem, parent: Ino, ino: Ino) -> Result<Self> {
        let now = fs.now();
        let number = format!("{}-{}.{:09}", ino.0, now.secs, now.nanos);
        let mark = format!("{MARK}{number}");
        let name = format!(".undelete-{number}").into_bytes();
        let mut value = parent.0.to_le_bytes().to_vec();
        value.extend_from_slice(&name);
        fs.setxattr(Ino::ROOT, mark.as_bytes(), &value, XattrFlags::CREATE)?;
        Ok(Self { fs, parent, name, mark })
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Gives the tree, which is whole, its name.
    pub(super) fn finish(self, name: &[u8]) -> Result<()> {
        let (caller, parent) = (Caller::default(), self.parent);
        let no_replace = RenameFlags::NO_REPLACE;
        match self.fs.rename(&caller, parent, &self.name, parent, name, no_replace) {
            Ok(()) => self.fs.removexattr(Ino::ROOT, self.mark.as_bytes()),
            Err(error) => Err(self.give_up(error)),
        }
    }

    /// Takes away what there is of it by now. Where that fails too, the next mount does it.
    pub(super) fn give_up(self, why: FsError) -> FsError {
        if let Err(error) = clear(self.fs, self.parent, &self.name, self.mark.as_bytes()) {
            log::warn!("a part of a tree that was not brought back is still there: {error}");
        }
        why
    }
}

impl FileSystem {
    /// Takes away trees that were being brought back when the volume was last in use. What cannot be
    /// taken away stays for the next mount: it is in nobody's way.
    pub(crate) fn clear_staged(&self) {
        let names = match self.listxattr(Ino::ROOT) {
            Ok(names) => names,
            Err(error) => {
                log::warn!("it cannot be seen whether an undelete was cut short: {error}");
                return;
            }
        };
        for mark in names.split(|&byte| byte == 0).filter(|name| name.starts_with(MARK.as_bytes()))
        {
            let cleared = self.getxattr(Ino::ROOT, mark).and_then(|value| {
                let (parent, name) = value.split_first_chunk().ok_or_else(|| {
                    FsError::Corrupted("a mark of an undelete names no directory".into())
                })?;
                clear(self, Ino(u64::from_le_bytes(*parent)), name, mark)
            });
            match cleared {
                Ok(()) => log::info!("what an undelete that was cut short left was taken away"),
                Err(error) => {
                    log::warn!("what an undelete that was cut short left stays: {error}");
                }
            }
        }
    }
}

/// Removes what `name` in `parent` names, and what is in it, and then the mark of it.
fn clear(fs: &FileSystem, parent: Ino, name: &[u8], mark: &[u8]) -> Result<()> {
    let is_ours = name.starts_with(b".undelete-");
    let found = if is_ours { fs.lookup(parent, name) } else { Err(FsError::NotFound) };
    match found {
        Ok(attr) => {
            fs.forget(attr.ino, 1);
            remove_tree(fs, parent, name, attr.ino)?;
        }
        // It has its name by now, or never was there.
        Err(FsError::NotFound | FsError::Stale | FsError::NotDirectory) => {}
        Err(error) => return Err(error),
    }
    fs.removexattr(Ino::ROOT, mark)
}

/// Removes the directory `name` in `parent`, whose number is `ino`, and all that is in it.
fn remove_tree(fs: &FileSystem, parent: Ino, name: &[u8], ino: Ino) -> Result<()> {
    // Directories to be emptied, each with its name in the one before.
    let mut path = vec![(parent, name.to_vec(), ino)];
    while let Some((parent, name, ino)) = path.last().cloned() {
        let mut directory = None;
        let mut files = Vec::new();
        fs.readdir(ino, 0, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return true;
            }
            match entry.kind {
                FileKind::Directory => directory = Some((ino, entry.name.to_vec(), entry.ino)),
                _ => files.push(entry.name.to_vec()),
            }
            directory.is_none() && files.len() < super::BATCH_LEN
        })?;
        let is_empty = directory.is_none() && files.is_empty();
        for file in &files {
            fs.unlink(ino, file)?;
        }
        match directory {
            Some(directory) => path.push(directory),
            None if is_empty => {
                fs.rmdir(parent, &name)?;
                path.pop();
            }
            None => {}
        }
    }
    Ok(())
}
