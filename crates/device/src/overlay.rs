//! A device whose writes are kept in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use dendro_base::sync::RwLock;

use crate::{AlignedBuf, BLOCK_SIZE, Device, Result, range};

/// A device over another one that is only read: writes are kept in memory, and read from there. It
/// shows what opening a volume would change, without changing it. It may be longer than the device
/// below; behind the end of that all is zero.
///
/// [`Device::flush`] and [`Device::discard`] do nothing.
pub struct OverlayDevice<D: ?Sized> {
    below: Arc<D>,
    len_bytes: u64,
    /// The blocks that were written, by their offset.
    blocks: RwLock<BTreeMap<u64, AlignedBuf>>,
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
        Self { below, len_bytes, blocks: RwLock::default() }
    }
}

impl<D: Device + ?Sized> Device for OverlayDevice<D> {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        // Locked until the end, so that a read sees each write either completely or not at all.
        let blocks = self.blocks.read();
        range::check_bounds(self.len_bytes, offset, buf.len() as u64)?;
        let below_len_bytes = self.below.len_bytes().saturating_sub(offset);
        let of_below = usize::try_from(below_len_bytes).unwrap_or(usize::MAX).min(buf.len());
        if of_below > 0 {
            self.below.read_at(offset, &mut buf[..of_below])?;
        }
        buf[of_below..].fill(0);
        let end = offset + buf.len() as u64;
        let first = offset - offset % BLOCK_SIZE as u64;
        for (&block_offset, block) in blocks.range(first..end.max(first)) {
            let from = block_offset.max(offset);
            let to = (block_offset + BLOCK_SIZE as u64).min(end);
            let in_buf = (from - offset) as usize..(to - offset) as usize;
            let in_block = (from - block_offset) as usize..(to - block_offset) as usize;
            buf[in_buf].copy_from_slice(&block[in_block]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        range::check_blocks(self.len_bytes(), offset, bytes.len() as u64)?;
        let mut blocks = self.blocks.write();
        for (at, written) in (offset..).step_by(BLOCK_SIZE).zip(bytes.chunks(BLOCK_SIZE)) {
            let block = blocks.entry(at).or_insert_with(|| AlignedBuf::zeroed(BLOCK_SIZE));
            block.copy_from_slice(written);
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
}
