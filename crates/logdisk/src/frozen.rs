//! The volume as it was at one moment, as a device that others read: what a power cut right after
//! a checkpoint would have left, had the device lost everything that was written later.
//!
//! A checkpoint is taken, and from its freeze on no segment becomes clean that it needs (segments
//! 3). What was written to other segments since, and behind the ends of those that were being
//! filled, reads as zeros, and the superblocks are those of that moment. Nothing of this is on the
//! device, so a crash leaves nothing behind.
//!
//! Writers go on. When they need the segments that wait, the hold ends, and each further read
//! fails.

use std::io;

use dendro_base::sync::Arc;
use dendro_device::{Device, Error, Result};
use dendro_format::layout::FIRST_LOG_SEGMENT;
use dendro_format::{Layout, SegmentNo};

use crate::checkpoint::Checkpointer;
use crate::log::segments::{FrozenSegments, Hold};
use crate::volume::Volume;

/// The volume as it was at one moment: a device that can only be read.
pub struct FrozenVolume {
    device: Arc<dyn Device>,
    len_bytes: u64,
    layout: Layout,
    hold: Hold,
    segments: FrozenSegments,
    /// The two superblock logs; none if nothing is written to the volume anyway.
    superblocks: Option<[Vec<u8>; 2]>,
}

impl FrozenVolume {
    /// Freezes the volume. `None`: it is frozen already.
    ///
    /// # Errors
    /// As taking a checkpoint.
    pub(crate) fn take(
        volume: &Volume,
        checkpointer: &Checkpointer,
    ) -> dendro_disk::Result<Option<Self>> {
        let frozen = |hold, segments, superblocks| Self {
            device: volume.shared_device(),
            len_bytes: volume.device().len_bytes(),
            layout: volume.layout(),
            hold,
            segments,
            superblocks,
        };
        let Some(hold) = volume.write().state_mut().segments_mut().begin_hold() else {
            return Ok(None);
        };
        if !volume.is_writable() {
            return Ok(Some(frozen(hold, FrozenSegments::default(), None)));
        }
        let taken = checkpointer.take_held(|| superblock_logs(volume));
        match taken {
            Ok((segments, superblocks)) => Ok(Some(frozen(hold, segments, Some(superblocks)))),
            Err(error) => {
                hold.end();
                Err(error)
            }
        }
    }

    /// Whether what was read so far is the state of that moment.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// Fills `buf`, which lies in one segment, from `offset` on.
    fn read_part(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = self.layout.segment_size_bytes();
        let Ok(number) = u32::try_from(offset / size) else {
            return self.device.read_at(offset, buf);
        };
        let (segment, within) = (SegmentNo(number), offset % size);
        if number >= self.layout.segment_count() {
            // Backups of superblocks, which may be of a later moment.
            buf.fill(0);
            return Ok(());
        }
        if segment < FIRST_LOG_SEGMENT
            && let Some(logs) = &self.superblocks
        {
            let log = &logs[segment.0 as usize];
            let from = log.len().min(within as usize);
            let copied = buf.len().min(log.len() - from);
            buf[..copied].copy_from_slice(&log[from..from + copied]);
            buf[copied..].fill(0);
            return Ok(());
        }
        let end = self.segments.end_of(segment).unwrap_or(size);
        let there = (buf.len() as u64).min(end.saturating_sub(within)) as usize;
        let (there, later) = buf.split_at_mut(there);
        later.fill(0);
        if there.is_empty() { Ok(()) } else { self.device.read_at(offset, there) }
    }
}

impl Device for FrozenVolume {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (len_bytes, device_len_bytes) = (buf.len() as u64, self.len_bytes());
        if offset.checked_add(len_bytes).is_none_or(|end| end > device_len_bytes) {
            return Err(Error::OutOfRange { offset, len_bytes, device_len_bytes });
        }
        let size = self.layout.segment_size_bytes();
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let len = (rest.len() as u64).min(size - at % size) as usize;
            let (part, more) = rest.split_at_mut(len);
            self.read_part(at, part)?;
            (at, rest) = (at + len as u64, more);
        }
        if self.is_held() {
            return Ok(());
        }
        let source = io::Error::other("the state that is read has been given up");
        Err(Error::Io { operation: "read", offset, len_bytes, source })
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }
}

impl Drop for FrozenVolume {
    fn drop(&mut self) {
        self.hold.end();
    }
}

/// The two superblock logs as they are. A part that cannot be read counts as one that holds
/// nothing.
fn superblock_logs(volume: &Volume) -> [Vec<u8>; 2] {
    // No superblock is appended meanwhile.
    let _newest = volume.superblock();
    [0, 1].map(|area| {
        let range = volume.layout().superblock_area(area);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        for (slot, offset) in bytes.chunks_mut(SLOT_LEN_BYTES).zip(range.step_by(SLOT_LEN_BYTES)) {
            if volume.device().read_at(offset, slot).is_err() {
                slot.fill(0);
            }
        }
        bytes
    })
}

const SLOT_LEN_BYTES: usize = dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
