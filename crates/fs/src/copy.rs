//! Copying between files without a way through the kernel.

use dendro_base::units::MIB;

use crate::data::PAGE;
use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::inode::State;
use crate::node::{Node, WriteGuard};
use crate::types::{Ino, MAX_FILE_SIZE_BYTES, Patron};

/// What one unit copies at most.
const CHUNK_LEN: u64 = MIB;

/// The two ends of a copy.
#[derive(Clone, Copy)]
struct Ends {
    from: u64,
    to: u64,
}

impl FileSystem {
    /// Copies up to `len` bytes between files, or between ranges of one file that don't overlap,
    /// keeping holes. Returns how much: less than all at the source's end. Each MiB, and each run
    /// of data or hole, is an atomic recovery unit of its own; after one of them it ends when the
    /// patron has left.
    ///
    /// # Errors
    /// As [`Self::read`] and [`Self::write`]; `Invalid` when the ranges overlap.
    pub fn copy_file_range(
        &self,
        ino_in: Ino,
        offset_in: u64,
        ino_out: Ino,
        offset_out: u64,
        len: u64,
        patron: &Patron<'_>,
    ) -> Result<u64> {
        self.check_writable()?;
        let room = |offset| MAX_FILE_SIZE_BYTES.checked_sub(offset).ok_or(FsError::FileTooBig);
        let len = len.min(room(offset_in)?).min(room(offset_out)?);
        if ino_in == ino_out && offset_in.abs_diff(offset_out) < len {
            return Err(FsError::Invalid("the ranges overlap"));
        }
        let (source, target) = (self.node(ino_in), self.node(ino_out));
        // A copy within one file may move its end, and then stops where it was.
        let source_size = {
            let inode = self.read_live(&source)?;
            inode.check_regular()?;
            inode.size
        };
        self.read_live(&target)?.check_regular()?;
        let len = len.min(source_size.saturating_sub(offset_in));
        let mut buf = Vec::new();
        let mut done = 0;
        while done < len {
            if done > 0 && (patron.has_left)() {
                break;
            }
            let ends = Ends { from: offset_in + done, to: offset_out + done };
            match self.copy_chunk(&source, &target, ends, len - done, &mut buf, patron.kill_priv) {
                Ok(0) => break,
                Ok(copied) => done += copied,
                // What was copied is there; the caller meets the error when going on.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn copy_chunk(
        &self,
        source: &Node,
        target: &Node,
        ends: Ends,
        len: u64,
        buf: &mut Vec<u8>,
        kill_priv: bool,
    ) -> Result<u64> {
        if source.ino() == target.ino() {
            let mut guard = target.write(&*self.disk, self.view)?;
            let chunk = self.read_chunk(source.ino(), guard.inode(), ends, len, buf)?;
            return self.write_chunk(&mut guard, ends, chunk, buf, kill_priv);
        }
        // By number: see the lock order.
        let (inode, mut guard);
        if source.ino() < target.ino() {
            inode = self.read_live(source)?;
            guard = target.write(&*self.disk, self.view)?;
        } else {
            guard = target.write(&*self.disk, self.view)?;
            inode = self.read_live(source)?;
        }
        let chunk = self.read_chunk(source.ino(), &inode, ends, len, buf)?;
        if chunk.len() > 0 {
            self.touch_atime(source, &inode);
        }
        self.write_chunk(&mut guard, ends, chunk, buf, kill_priv)
    }

    /// What the source has from the offset on: a run of data, in `buf`, or of hole.
    fn read_chunk(
        &self,
        ino: Ino,
        inode: &crate::inode::Inode,
        ends: Ends,
        len: u64,
        buf: &mut Vec<u8>,
    ) -> Result<Chunk> {
        let len = len.min(inode.size.saturating_sub(ends.from));
        if len == 0 {
            return Ok(Chunk::Data(0));
        }
        if inode.state.contains(State::INLINE) {
            let from = ends.from as usize;
            buf.clear();
            buf.extend_from_slice(&inode.inline[from..from + len as usize]);
            return Ok(Chunk::Data(len));
        }
        let page = ends.from / PAGE;
        let next_data = self.disk.next_data(self.view, ino.lid(), page)?;
        if next_data != Some(page) {
            let end = next_data.map_or(u64::MAX, |page| page.saturating_mul(PAGE));
            return Ok(Chunk::Hole(len.min(end - ends.from)));
        }
        let hole = self.disk.next_hole(self.view, ino.lid(), page)?.saturating_mul(PAGE);
        let mut len = len.min(hole - ends.from).min(CHUNK_LEN);
        // End where a page of the target does, so that it is written once.
        let excess = (ends.to + len) % PAGE;
        if len == CHUNK_LEN && excess < len {
            len -= excess;
        }
        buf.resize(len as usize, 0);
        self.read_range(ino, ends.from, buf, len as usize)?;
        Ok(Chunk::Data(len))
    }

    fn write_chunk(
        &self,
        guard: &mut WriteGuard<'_>,
        ends: Ends,
        chunk: Chunk,
        buf: &[u8],
        kill_priv: bool,
    ) -> Result<u64> {
        match chunk {
            Chunk::Data(0) => {}
            Chunk::Data(len) => {
                self.write_locked(guard, ends.to, &buf[..len as usize], kill_priv)?;
            }
            Chunk::Hole(len) => {
                guard.inode().check_rewritable()?;
                self.prepare_pages(guard)?;
                self.punch_range(guard, ends.to..ends.to + len, kill_priv)?;
            }
        }
        Ok(chunk.len())
    }
}

/// A run of a file.
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
