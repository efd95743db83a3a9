//! A window on the device: a stretch that was read with one call, out of which blocks, headers and
//! records are taken in order.

use dendro_base::units::{PAGE_SIZE, align_up};
use dendro_device::{AlignedBuf, Device, Result};

/// The maximum length of one read of the device. A client's read waits for no more than that.
pub(super) const WINDOW_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Window {
    buf: AlignedBuf,
    base_bytes: u64,
    len_bytes: usize,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { buf: AlignedBuf::zeroed(WINDOW_BYTES), base_bytes: 0, len_bytes: 0 }
    }

    /// Whether the window contains all of these bytes.
    pub(super) fn has(&self, at_bytes: u64, len_bytes: usize) -> bool {
        at_bytes >= self.base_bytes
            && at_bytes + len_bytes as u64 <= self.base_bytes + self.len_bytes as u64
    }

    /// The bytes there, if the window contains all of them.
    pub(super) fn get(&self, at_bytes: u64, len_bytes: usize) -> Option<&[u8]> {
        let start = at_bytes.checked_sub(self.base_bytes)? as usize;
        self.has(at_bytes, len_bytes).then(|| &self.buf[start..start + len_bytes])
    }

    /// Moves the window to `at_bytes` and reads from there to before `end_bytes`, in whole pages,
    /// as far as the window is long.
    pub(super) fn read(
        &mut self,
        device: &dyn Device,
        at_bytes: u64,
        end_bytes: u64,
    ) -> Result<()> {
        let base_bytes = at_bytes - at_bytes % PAGE_SIZE as u64;
        let wanted_bytes = align_up(end_bytes, PAGE_SIZE as u64) - base_bytes;
        let len_bytes = wanted_bytes.min(WINDOW_BYTES as u64) as usize;
        self.len_bytes = 0;
        device.read_at(base_bytes, &mut self.buf[..len_bytes])?;
        (self.base_bytes, self.len_bytes) = (base_bytes, len_bytes);
        Ok(())
    }
}
