//! Copying between files inside the file system, as copy_file_range(2) does.

use dendro_base::units::MIB;

use super::fallocate::punch_some;
use super::pages::{PAGE, next_visible_data, next_visible_hole, prepare_pages};
use super::read::read_range;
use super::write::write_locked;
use crate::error::{FsError, Result};
use crate::layout::inode::{Inode, InodeState};
use crate::privileges::Privileges;
use crate::state::{FsState, Node, WriteGuard};
use crate::types::{Ino, LongChange, MAX_FILE_SIZE_BYTES};

/// The most that one unit copies.
const CHUNK_LEN: u64 = MIB;

/// The offsets of a copy in the two files.
#[derive(Clone, Copy)]
struct Offsets {
    from: u64,
    to: u64,
}

/// See [`crate::FileSystem::copy_file_range`].
pub(crate) fn copy_file_range(
    fs: &FsState,
    ino_in: Ino,
    offset_in: u64,
    ino_out: Ino,
    offset_out: u64,
    len: u64,
    how: &LongChange<'_>,
) -> Result<u64> {
    fs.check_writable()?;
    let room = |offset| MAX_FILE_SIZE_BYTES.checked_sub(offset).ok_or(FsError::FileTooBig);
    let len = len.min(room(offset_in)?).min(room(offset_out)?);
    if ino_in == ino_out && offset_in.abs_diff(offset_out) < len {
        return Err(FsError::Invalid("the ranges overlap"));
    }
    let (source, target) = (fs.node(ino_in), fs.node(ino_out));
    // A copy within one file may move the end of the file. It stops at the original end.
    let source_size = {
        let inode = fs.read(&source)?;
        inode.check_regular()?;
        inode.size
    };
    fs.read(&target)?.check_regular()?;
    let len = len.min(source_size.saturating_sub(offset_in));
    let mut buf = Vec::new();
    let mut done = 0;
    while done < len {
        if done > 0 && (how.is_cancelled)() {
            break;
        }
        let at = Offsets { from: offset_in + done, to: offset_out + done };
        match copy_chunk(fs, &source, &target, at, len - done, &mut buf, how.kill_priv) {
            Ok(0) => break,
            Ok(copied) => done += copied,
            // What was copied stays. The caller gets the error when it goes on.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn copy_chunk(
    fs: &FsState,
    source: &Node,
    target: &Node,
    at: Offsets,
    len: u64,
    buf: &mut Vec<u8>,
    kill_priv: bool,
) -> Result<u64> {
    if source.ino() == target.ino() {
        let mut guard = fs.write(target)?;
        let chunk = read_chunk(fs, source.ino(), guard.inode(), at, len, buf)?;
        return write_chunk(fs, &mut guard, at, chunk, buf, kill_priv);
    }
    // In the order of numbers: see the lock order.
    let (inode, mut guard);
    if source.ino() < target.ino() {
        inode = fs.read(source)?;
        guard = fs.write(target)?;
    } else {
        guard = fs.write(target)?;
        inode = fs.read(source)?;
    }
    let chunk = read_chunk(fs, source.ino(), &inode, at, len, buf)?;
    if chunk.len() > 0 {
        fs.touch_atime(source, &inode);
    }
    write_chunk(fs, &mut guard, at, chunk, buf, kill_priv)
}

/// What the source has from the offset on: a run of data, which is in `buf` then, or of holes.
fn read_chunk(
    fs: &FsState,
    ino: Ino,
    inode: &Inode,
    at: Offsets,
    len: u64,
    buf: &mut Vec<u8>,
) -> Result<Chunk> {
    let len = len.min(inode.size.saturating_sub(at.from));
    if len == 0 {
        return Ok(Chunk::Data(0));
    }
    if inode.state.contains(InodeState::INLINE) {
        let from = at.from as usize;
        buf.clear();
        buf.extend_from_slice(&inode.inline[from..from + len as usize]);
        return Ok(Chunk::Data(len));
    }
    let page = at.from / PAGE;
    let data = next_visible_data(fs, ino, inode, page)?;
    if data != Some(page) {
        let end = data.map_or(u64::MAX, |page| page.saturating_mul(PAGE));
        return Ok(Chunk::Hole(len.min(end - at.from)));
    }
    let hole = next_visible_hole(fs, ino, inode, page)?.saturating_mul(PAGE);
    let mut len = len.min(hole - at.from).min(CHUNK_LEN);
    // End at a page boundary of the target, so that each page is written once.
    let excess = (at.to + len) % PAGE;
    if len == CHUNK_LEN && excess < len {
        len -= excess;
    }
    buf.resize(len as usize, 0);
    read_range(fs, ino, inode, at.from, buf, len as usize)?;
    Ok(Chunk::Data(len))
}

/// Writes a run of data, or the first part of a run of holes. Returns how much of it was written.
fn write_chunk(
    fs: &FsState,
    guard: &mut WriteGuard<'_>,
    at: Offsets,
    chunk: Chunk,
    buf: &[u8],
    kill_priv: bool,
) -> Result<u64> {
    match chunk {
        Chunk::Data(0) => Ok(0),
        Chunk::Data(len) => {
            let drops = Privileges::of_change(kill_priv);
            write_locked(fs, guard, at.to, &buf[..len as usize], drops)?;
            Ok(len)
        }
        Chunk::Hole(len) => {
            guard.inode().check_rewritable()?;
            prepare_pages(fs, guard)?;
            let end = punch_some(fs, guard, at.to..at.to + len, kill_priv)?;
            Ok(end - at.to)
        }
    }
}

/// A run of bytes in a file.
#[derive(Clone, Copy)]
enum Chunk {
    Data(u64),
    Hole(u64),
}

impl Chunk {
    const fn len(self) -> u64 {
        match self {
            Self::Data(len) | Self::Hole(len) => len,
        }
    }
}
