//! A device whose writes are kept in memory and, if they are many, in a temporary file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use dendro_base::sync::RwLock;

use crate::{BLOCK_SIZE, Device, Error, Result, range};

/// The memory that written blocks take, unless the caller says it.
const MEMORY_BYTES: u64 = 64 << 20;

/// A device over another one that is only read: writes are kept, and read from where they are kept.
/// It shows what opening a volume would change, without changing it. It may be longer than the
/// device below; behind the end of that all is zero.
///
/// Blocks that do not fit in the memory that it may take go to a temporary file without a name.
/// [`Device::flush`] and [`Device::discard`] do nothing.
pub struct OverlayDevice<D: ?Sized> {
    below: Arc<D>,
    len_bytes: u64,
    written: RwLock<Written>,
}

/// The blocks that were written.
struct Written {
    /// By their offset.
    blocks: BTreeMap<u64, Kept>,
    memory_bytes_left: u64,
    /// It is made when a block goes there first.
    file: Option<File>,
    slot_count: u64,
}

/// Where a block is kept.
enum Kept {
    InMemory(Box<[u8]>),
    /// In this slot of the file.
    InFile(u64),
}

impl Written {
    const fn new(memory_bytes: u64) -> Self {
        Self { blocks: BTreeMap::new(), memory_bytes_left: memory_bytes, file: None, slot_count: 0 }
    }

    /// Keeps the block at `offset`.
    fn write(&mut self, offset: u64, block: &[u8]) -> io::Result<()> {
        let slot = match self.blocks.get_mut(&offset) {
            Some(Kept::InMemory(bytes)) => {
                bytes.copy_from_slice(block);
                return Ok(());
            }
            Some(Kept::InFile(slot)) => *slot,
            None if self.memory_bytes_left >= block.len() as u64 => {
                self.memory_bytes_left -= block.len() as u64;
                self.blocks.insert(offset, Kept::InMemory(block.into()));
                return Ok(());
            }
            None => self.slot_count,
        };
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        file.write_all_at(block, slot * BLOCK_SIZE as u64)?;
        if slot == self.slot_count {
            self.slot_count += 1;
            self.blocks.insert(offset, Kept::InFile(slot));
        }
        Ok(())
    }

    /// Fills `part` with what a block has from byte `from` on.
    fn read(&self, kept: &Kept, from: usize, part: &mut [u8]) -> io::Result<()> {
        match (kept, &self.file) {
            (Kept::InMemory(bytes), _) => part.copy_from_slice(&bytes[from..from + part.len()]),
            (Kept::InFile(slot), Some(file)) => {
                file.read_exact_at(part, slot * BLOCK_SIZE as u64 + from as u64)?;
            }
            (Kept::InFile(_), None) => unreachable!("a slot is in the file"),
        }
        Ok(())
    }
}

/// The error of the temporary file. It says nothing about room on the device below.
fn temporary(operation: &'static str, offset: u64, error: &io::Error) -> Error {
    let directory = std::env::temp_dir();
    let source = io::Error::other(format!("{}: {error}", directory.display()));
    Error::Io { operation, offset, len_bytes: BLOCK_SIZE as u64, source }
}

impl<D: Device + ?Sized> OverlayDevice<D> {
    /// An overlay over `below`, without any writes.
    #[must_use]
    pub fn new(below: Arc<D>) -> Self {
        let len_bytes = below.len_bytes();
        Self::with_len(below, len_bytes)
    }

    /// The same with a length of `len_bytes`, or of the device below if that is more.
    #[must_use]
    pub fn with_len(below: Arc<D>, len_bytes: u64) -> Self {
        let len_bytes = len_bytes.max(below.len_bytes());
        Self { below, len_bytes, written: RwLock::new(Written::new(MEMORY_BYTES)) }
    }

    /// The same, without any writes, with at most `memory_bytes` of written blocks in memory.
    #[must_use]
    pub fn with_memory(self, memory_bytes: u64) -> Self {
        Self { written: RwLock::new(Written::new(memory_bytes)), ..self }
    }
}

impl<D: Device + ?Sized> Device for OverlayDevice<D> {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        // Locked until the end, so that a read sees each write either completely or not at all.
        let written = self.written.read();
        range::check_bounds(self.len_bytes, offset, buf.len() as u64)?;
        let below_len_bytes = self.below.len_bytes().saturating_sub(offset);
        let of_below = usize::try_from(below_len_bytes).unwrap_or(usize::MAX).min(buf.len());
        if of_below > 0 {
            self.below.read_at(offset, &mut buf[..of_below])?;
        }
        buf[of_below..].fill(0);
        let end = offset + buf.len() as u64;
        let first = offset - offset % BLOCK_SIZE as u64;
        for (&block_offset, kept) in written.blocks.range(first..end.max(first)) {
            let from = block_offset.max(offset);
            let to = (block_offset + BLOCK_SIZE as u64).min(end);
            let in_buf = (from - offset) as usize..(to - offset) as usize;
            written
                .read(kept, (from - block_offset) as usize, &mut buf[in_buf])
                .map_err(|error| temporary("temporary read", block_offset, &error))?;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        range::check_blocks(self.len_bytes(), offset, bytes.len() as u64)?;
        let mut written = self.written.write();
        for (at, block) in (offset..).step_by(BLOCK_SIZE).zip(bytes.chunks(BLOCK_SIZE)) {
            written.write(at, block).map_err(|error| temporary("temporary write", at, &error))?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        range::check_blocks(self.len_bytes(), offset, len_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn what_is_written_is_read_and_the_device_below_stays_as_it_was() {
        let below = Arc::new(MemoryDevice::from_bytes(&[1; 5 * BLOCK_SIZE]));
        let overlay = OverlayDevice::new(Arc::clone(&below));
        overlay.write_at(BLOCK_SIZE as u64, &[2; 2 * BLOCK_SIZE]).unwrap();
        overlay.write_at(2 * BLOCK_SIZE as u64, &[3; BLOCK_SIZE]).unwrap();
        overlay.flush().unwrap();
        let mut read = vec![0; 5 * BLOCK_SIZE];
        overlay.read_at(0, &mut read).unwrap();
        let expected: Vec<u8> = [1, 2, 3, 1, 1].iter().flat_map(|&of| [of; BLOCK_SIZE]).collect();
        assert!(read == expected);
        // Reads that begin and end within blocks.
        let mut part = vec![0; BLOCK_SIZE + 20];
        overlay.read_at(BLOCK_SIZE as u64 - 10, &mut part).unwrap();
        assert!(part == expected[BLOCK_SIZE - 10..2 * BLOCK_SIZE + 10]);
        overlay.read_at(7, &mut []).unwrap();
        assert!(below.to_bytes().iter().all(|&byte| byte == 1));
    }

    #[test]
    fn behind_the_end_of_the_device_below_all_is_zero_until_it_is_written() {
        let below = Arc::new(MemoryDevice::from_bytes(&[1; 2 * BLOCK_SIZE]));
        let overlay = OverlayDevice::with_len(below, 5 * BLOCK_SIZE as u64);
        assert_eq!(overlay.len_bytes(), 5 * BLOCK_SIZE as u64);
        overlay.write_at(3 * BLOCK_SIZE as u64, &[2; BLOCK_SIZE]).unwrap();
        let mut read = vec![7; 5 * BLOCK_SIZE];
        overlay.read_at(0, &mut read).unwrap();
        let expected: Vec<u8> = [1, 1, 0, 2, 0].iter().flat_map(|&of| [of; BLOCK_SIZE]).collect();
        assert!(read == expected);
        overlay.read_at(2 * BLOCK_SIZE as u64 + 5, &mut read[..BLOCK_SIZE]).unwrap();
        assert!(read[..BLOCK_SIZE] == expected[2 * BLOCK_SIZE + 5..][..BLOCK_SIZE]);
        assert!(overlay.read_at(4 * BLOCK_SIZE as u64 + 1, &mut read[..BLOCK_SIZE]).is_err());
        overlay.write_at(4 * BLOCK_SIZE as u64, &[0; 2 * BLOCK_SIZE]).unwrap_err();
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let overlay = OverlayDevice::new(Arc::new(MemoryDevice::new(2 * BLOCK_SIZE as u64)));
        assert!(overlay.write_at(BLOCK_SIZE as u64, &[0; 2 * BLOCK_SIZE]).is_err());
        assert!(overlay.write_at(1, &[0; BLOCK_SIZE]).is_err());
        assert!(overlay.read_at(2 * BLOCK_SIZE as u64, &mut [0]).is_err());
    }

    #[test]
    fn what_does_not_fit_in_memory_is_kept_all_the_same() {
        let len_bytes = 64 * BLOCK_SIZE as u64;
        let of = || OverlayDevice::new(Arc::new(MemoryDevice::new(len_bytes)));
        let (all, some, none) =
            (of(), of().with_memory(7 * BLOCK_SIZE as u64 + 5), of().with_memory(0));
        let mut rng = dendro_base::Rng::new(1);
        for _ in 0..300 {
            let count = 1 + rng.below(9);
            let offset = rng.below(65 - count) * BLOCK_SIZE as u64;
            let mut bytes = vec![0; count as usize * BLOCK_SIZE];
            rng.fill(&mut bytes);
            for device in [&all, &some, &none] {
                device.write_at(offset, &bytes).unwrap();
            }
            let from = rng.below(len_bytes);
            let mut read = vec![0; rng.below(len_bytes - from) as usize];
            all.read_at(from, &mut read).unwrap();
            for device in [&some, &none] {
                let mut other = vec![0; read.len()];
                device.read_at(from, &mut other).unwrap();
                assert!(other == read);
            }
        }
        let in_file = |of: &OverlayDevice<_>| of.written.read().slot_count;
        assert_eq!((in_file(&all), in_file(&some), in_file(&none)), (0, 64 - 7, 64));
    }
}
