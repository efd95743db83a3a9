//! Listing directories.

use dendro_disk::Record;

use crate::error::{FsError, Result};
use crate::layout::dirent::{self, COOKIE_DOT, COOKIE_DOTDOT};
use crate::orphans;
use crate::state::FsState;
use crate::types::{Attr, DirEntry, FileKind, Ino};

/// How many records a listing reads at a time.
const BATCH_LEN: usize = 128;

/// See [`crate::FileSystem::readdir`].
pub(crate) fn readdir(
    fs: &FsState,
    ino: Ino,
    cookie: u64,
    sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
) -> Result<()> {
    list(fs, ino, cookie, &mut |entry| Ok(sink(entry)))
}

/// See [`crate::FileSystem::readdirplus`].
pub(crate) fn readdirplus(
    fs: &FsState,
    ino: Ino,
    cookie: u64,
    sink: &mut dyn FnMut(DirEntry<'_>, &Attr) -> bool,
) -> Result<()> {
    list(fs, ino, cookie, &mut |entry| {
        let is_counted = entry.cookie > COOKIE_DOTDOT;
        let node = fs.node(entry.ino);
        let attr = {
            let inode = match fs.read(&node) {
                Ok(inode) => inode,
                // It was removed since the directory was read.
                Err(FsError::Stale) => return Ok(true),
                Err(error) => return Err(error),
            };
            if is_counted {
                fs.references().add_lookup(entry.ino);
            }
            fs.attr_of(&node, &inode)
        };
        let taken = sink(entry, &attr);
        if is_counted && !taken {
            orphans::forget(fs, entry.ino, 1);
        }
        Ok(taken)
    })
}

fn list(
    fs: &FsState,
    ino: Ino,
    mut cookie: u64,
    sink: &mut dyn FnMut(DirEntry<'_>) -> Result<bool>,
) -> Result<()> {
    let node = fs.node(ino);
    let parent = match fs.read_directory(&node) {
        Ok(dir) => {
            fs.touch_atime(&node, &dir);
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
    let Some((mut from, mut past_slot)) = dirent::position_after(cookie) else { return Ok(()) };
    loop {
        let batch = fs.disk().records(fs.view(), ino.lid(), from, BATCH_LEN)?;
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

/// Passes the entries of one record to the sink; false if the sink takes no more.
fn pass_record(
    index: u64,
    record: &Record,
    past_slot: Option<u8>,
    sink: &mut dyn FnMut(DirEntry<'_>) -> Result<bool>,
) -> Result<bool> {
    for entry in dirent::entries(record) {
        let entry = entry?;
        if past_slot.is_some_and(|slot| entry.slot <= slot) {
            continue;
        }
        let cookie = dirent::cookie(index, entry.slot);
        let passed = DirEntry { ino: entry.ino, cookie, kind: entry.kind, name: entry.name };
        if !sink(passed)? {
            return Ok(false);
        }
    }
    Ok(true)
}
