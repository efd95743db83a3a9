//! A device in memory.

use dendro_base::sync::RwLock;

use crate::{AlignedBuf, BLOCK_SIZE, Device, Result, range};

/// Bytes behind one lock: those of a huge page, for which copying is faster.
const STRIPE_BYTES: usize = 2 << 20;

/// A device in memory, for measuring the engine's own speed, and for quick tests.
///
/// It is divided into stripes of 2 MiB, each with a lock of its own, so that readers and writers of
/// different segments do not wait for each other. A call that spans stripes is not atomic. A stripe
/// is allocated when it is first written; what was never written reads as zeros. [`Device::flush`]
/// and [`Device::discard`] do nothing. Crashes are simulated by `sim`, not here.
pub struct MemoryDevice {
    /// Empty until first written.
    stripes: Vec<RwLock<AlignedBuf>>,
    len_bytes: u64,
}

impl MemoryDevice {
    /// A device of `len_bytes`, rounded down to whole blocks.
    ///
    /// # Panics
    /// When a device that long cannot be addressed on this machine.
    #[must_use]
    pub fn new(len_bytes: u64) -> Self {
        let len_bytes = len_bytes - len_bytes % BLOCK_SIZE as u64;
        let stripe_count = usize::try_from(len_bytes.div_ceil(STRIPE_BYTES as u64))
            .expect("a device in memory is addressable");
        let stripes = (0..stripe_count).map(|_| RwLock::new(AlignedBuf::zeroed(0))).collect();
        Self { stripes, len_bytes }
    }

    /// A device that starts with `bytes` and is as long as they are, rounded up to whole blocks.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let device = Self::new(bytes.len().next_multiple_of(BLOCK_SIZE) as u64);
        for (stripe, bytes) in device.stripes.iter().zip(bytes.chunks(STRIPE_BYTES)) {
            let mut buf = AlignedBuf::zeroed(STRIPE_BYTES);
            buf[..bytes.len()].copy_from_slice(bytes);
            *stripe.write() = buf;
        }
        device
    }

    /// Everything on the device.
    ///
    /// # Panics
    /// When it does not fit into memory a second time.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let len = usize::try_from(self.len_bytes).expect("a device in memory is addressable");
        let mut bytes = vec![0; len];
        for (stripe, bytes) in self.stripes.iter().zip(bytes.chunks_mut(STRIPE_BYTES)) {
            read_stripe(&stripe.read(), 0, bytes);
        }
        bytes
    }
}

impl std::fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryDevice({} bytes)", self.len_bytes)
    }
}

fn read_stripe(stripe: &AlignedBuf, at: usize, out: &mut [u8]) {
    if stripe.is_empty() {
        out.fill(0);
    } else {
        out.copy_from_slice(&stripe[at..at + out.len()]);
    }
}

/// The stripe of `offset` and where in it that is. The offset was checked against the length of
/// the device, whose stripes are counted in a `usize`.
fn locate(offset: u64) -> (usize, usize) {
    let stripe_bytes = STRIPE_BYTES as u64;
    ((offset / stripe_bytes) as usize, (offset % stripe_bytes) as usize)
}

impl Device for MemoryDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, mut buf: &mut [u8]) -> Result<()> {
        range::check_bounds(self.len_bytes, offset, buf.len() as u64)?;
        let (mut index, mut at) = locate(offset);
        while !buf.is_empty() {
            let (head, rest) = buf.split_at_mut(buf.len().min(STRIPE_BYTES - at));
            read_stripe(&self.stripes[index].read(), at, head);
            (index, at, buf) = (index + 1, 0, rest);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, mut bytes: &[u8]) -> Result<()> {
        range::check_blocks(self.len_bytes, offset, bytes.len() as u64)?;
        let (mut index, mut at) = locate(offset);
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(STRIPE_BYTES - at));
            let mut stripe = self.stripes[index].write();
            if stripe.is_empty() {
                *stripe = AlignedBuf::zeroed(STRIPE_BYTES);
            }
            stripe[at..at + head.len()].copy_from_slice(head);
            drop(stripe);
            (index, at, bytes) = (index + 1, 0, rest);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        range::check_blocks(self.len_bytes, offset, len_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_put_in_come_out_and_the_rest_of_the_block_is_zero() {
        let mut bytes: Vec<u8> = (0..2_500_000u32).map(|i| (i % 251) as u8).collect();
        let device = MemoryDevice::from_bytes(&bytes);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
        assert_eq!(device.len_bytes(), bytes.len() as u64);
        assert!(device.to_bytes() == bytes);
    }

    #[test]
    fn a_huge_device_takes_no_memory_until_it_is_written() {
        let device = MemoryDevice::new(1 << 40);
        device.write_at((1 << 39) - 4096, &[7; 8192]).unwrap();
        let mut byte = [0];
        device.read_at((1 << 39) + 4095, &mut byte).unwrap();
        assert_eq!(byte, [7]);
        device.read_at((1 << 39) + 4096, &mut byte).unwrap();
        assert_eq!(byte, [0]);
    }
}
