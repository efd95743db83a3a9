//! Listing directories.

use dendro_disk::Record;

use crate::dir::{self, COOKIE_DOT, COOKIE_DOTDOT};
use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::types::{Attr, DirEntry, FileKind, Ino};

/// How many records a listing takes at a time.
const BATCH_LEN: usize = 128;

impl FileSystem {
    /// Passes a directory's entries after `cookie` (zero: from the start, `.` and `..` first) to
    /// `sink`, until it answers false: then that entry was not taken. No lock is held while it
    /// runs. A directory that was removed has no entries.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.list(ino, cookie, &mut |entry| Ok(sink(entry)))
    }

    /// As [`Self::readdir`], with attributes. Counts a lookup for each entry that was taken, other
    /// than `.` and `..`.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub fn readdirplus(
        &self,
        ino: Ino,
        cookie: u64,
        sink: &mut dyn FnMut(DirEntry<'_>, &Attr) -> bool,
    ) -> Result<()> {
        self.list(ino, cookie, &mut |entry| {
            let counts = entry.cookie > COOKIE_DOTDOT;
            let node = self.node(entry.ino);
            let attr = {
                let inode = match self.read_live(&node) {
                    Ok(inode) => inode,
                    // Removed since the directory was read.
                    Err(FsError::Stale) => return Ok(true),
                    Err(error) => return Err(error),
                };
                if counts {
                    self.refs.add_lookup(entry.ino);
                }
                self.attr_of(&node, &inode)
            };
            let taken = sink(entry, &attr);
            if counts && !taken {
                self.forget(entry.ino, 1);
            }
            Ok(taken)
        })
    }

    fn list(
        &self,
        ino: Ino,
        mut cookie: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> Result<bool>,
    ) -> Result<()> {
        let node = self.node(ino);
        let parent = match self.read_dir(&node) {
            Ok(dir) => {
                self.touch_atime(&node, &dir);
                Ino(dir.parent)
            }
            Err(FsError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        let dots = [(COOKIE_DOT, ino, b".".as_slice()), (COOKIE_DOTDOT, parent, b"..")];
        for (own_cookie, ino, name) in dots {
            let entry = DirEntry { ino, cookie: own_cookie, kind: FileKind::Directory, name };
            if cookie < own_cookie {
                if !sink(entry)? {
                    return Ok(());
                }
                cookie = own_cookie;
            }
        }
        let Some((mut from, mut past_slot)) = dir::position_after(cookie) else { return Ok(()) };
        loop {
            let batch = self.disk.records(self.view, ino.lid(), from, BATCH_LEN)?;
            for (index, record) in &batch {
                let past = past_slot.filter(|_| *index == from);
                if !pass_record(*index, record, past, sink)? {
                    return Ok(());
                }
            }
            past_slot = None;
            match batch.last().and_then(|(last, _)| last.checked_add(1)) {
                Some(next) if batch.len() == BATCH_LEN => from = next,
                _ => return Ok(()),
            }
        }
    }
}

/// Passes the entries of one record on; false when the sink is full.
fn pass_record(
    index: u64,
    record: &Record,
    past_slot: Option<u8>,
    sink: &mut dyn FnMut(DirEntry<'_>) -> Result<bool>,
) -> Result<bool> {
    for entry in dir::entries(record) {
        let entry = entry?;
        if past_slot.is_some_and(|slot| entry.slot <= slot) {
            continue;
        }
        let cookie = dir::cookie(index, entry.slot);
        let passed = DirEntry { ino: entry.ino, cookie, kind: entry.kind, name: entry.name };
        if !sink(passed)? {
            return Ok(false);
        }
    }
    Ok(true)
}
