//! Writing ahead: in idle times, clean segments of an image get blocks before the log fills them.
//!
//! Allocating them alone would not do: the first write to an allocated block changes the metadata
//! of the host as well, so that a flush waits for its journal. So zeros are written. That is worth
//! it only where clients flush often. As much is written as the log had to fill without blocks
//! since segments have aged last, times four; what is not used ages like other backed segments.

use dendro_base::units::MIB;
use dendro_device::AlignedBuf;
use dendro_disk::Result;

use super::Checkpointer;
use crate::log::segments::Surplus;
use crate::options::Discards;

/// The most bytes of backed segments up to which is written ahead.
const MOST_BYTES: u64 = 64 * MIB;
/// The bytes of one write.
const WRITE_LEN_BYTES: usize = 128 << 10;

impl Checkpointer {
    /// Writes zeros to a clean segment that is not backed, if the log is likely to fill it soon.
    /// Returns whether it did. It is meant for times in which no client writes.
    ///
    /// # Errors
    /// [`Error::Failed`](dendro_disk::Error::Failed) when a flush fails.
    pub(crate) fn write_ahead_step(&self) -> Result<bool> {
        let Some(_checkpoints) = self.checkpoints.try_lock() else { return Ok(false) };
        if !self.volume.is_writable() {
            return Ok(false);
        }
        // Everything that is allocated for good has its blocks, and so does a block device.
        if self.discards != Discards::InTime || self.volume.device().host_room().is_none() {
            return Ok(false);
        }
        let Surplus::Beyond(kept) = self.surplus() else { return Ok(false) };
        let size = self.volume.layout().segment_size_bytes();
        let chosen = {
            let mut engine = self.volume.write();
            let kept_clean = self.accounts.kept_segments(&engine).all();
            let segments = engine.state_mut().segments_mut();
            let most = kept.min((MOST_BYTES / size) as u32);
            let is_wanted = segments.backed_count() < segments.wanted_count().min(most);
            let is_spare = segments.clean_count() > kept_clean;
            (is_wanted && is_spare).then(|| segments.begin_write_ahead()).flatten()
        };
        let Some((segment, _pin)) = chosen else { return Ok(false) };
        let zeros = AlignedBuf::zeroed(WRITE_LEN_BYTES);
        let start = self.volume.layout().segment_offset(segment);
        let mut offsets = (start..start + size).step_by(WRITE_LEN_BYTES);
        let is_written =
            offsets.all(|offset| self.volume.device().write_at(offset, &zeros).is_ok());
        let flushed = if is_written { self.volume.flush_device() } else { Ok(()) };
        self.volume.write().state_mut().segments_mut().end_write_ahead(segment, is_written);
        flushed.map(|()| is_written)
    }
}
