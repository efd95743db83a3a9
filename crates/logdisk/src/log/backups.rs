//! Backup superblocks: copies of superblocks in the last blocks of the device, behind all segments.
//!
//! The superblock logs lie at the device's beginning, where most accidents happen. A backup is
//! written with the first superblock after the volume was opened, with the one that states a clean
//! shutdown, with each one that changes the list of retired segments or the number of segments, and
//! with each 64th of the others. So it costs next to nothing, and it is older than the newest
//! superblock unless the volume was shut down. Therefore a backup is never used silently: see
//! [`crate::recovery`].
//!
//! The slots are written in turn, so that a torn write leaves the backup before it.

use std::ops::Range;

use dendro_base::sync::Arc;
use dendro_device::{AlignedBuf, Device};
use dendro_format::Superblock;
use dendro_format::layout::backup_area;
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;

/// After so many superblocks another backup is written.
const MAX_AGE: u64 = 64;

/// The slots of a range.
fn slots(area: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
    area.clone().step_by(SUPERBLOCK_LEN_BYTES)
}

/// The newest backup in the area, and its slot.
fn newest_in(device: &dyn Device, area: &Range<u64>) -> Option<(u64, Superblock)> {
    let mut slot = AlignedBuf::zeroed(SUPERBLOCK_LEN_BYTES);
    let found = slots(area).filter_map(|offset| {
        device.read_at(offset, &mut slot).ok()?;
        let backup = Superblock::decode(&slot).ok()?;
        (backup.backup_area(device.len_bytes()).as_ref() == Some(area)).then_some((offset, backup))
    });
    found.max_by_key(|(_, backup)| backup.seq)
}

/// The newest backup on the device, whatever volume it is of.
pub(super) fn newest(device: &dyn Device) -> Option<Superblock> {
    let (_, backup) = newest_in(device, &backup_area(device.len_bytes())?)?;
    Some(backup)
}

/// The places on the device in which a backup may lie.
pub(crate) fn places(device_len_bytes: u64) -> impl Iterator<Item = u64> {
    backup_area(device_len_bytes).into_iter().flat_map(|area| slots(&area))
}

/// What is written at the end of a device that becomes longer, from `device_len_bytes` on to
/// `new_len_bytes`: a backup of the newest superblock in the last slot, and nothing in the others.
/// So there is a backup at the end of the device before and after that.
pub(crate) fn new_end(
    superblock: &Superblock,
    device_len_bytes: u64,
    new_len_bytes: u64,
) -> AlignedBuf {
    let slot_len_bytes = SUPERBLOCK_LEN_BYTES as u64;
    let Some(area) = superblock.backup_area(new_len_bytes) else {
        return AlignedBuf::zeroed(SUPERBLOCK_LEN_BYTES);
    };
    let start = area.start.max(device_len_bytes).min(area.end - slot_len_bytes);
    let mut end = AlignedBuf::zeroed((area.end - start) as usize);
    let last = end.len() - SUPERBLOCK_LEN_BYTES;
    end[last..].copy_from_slice(superblock.encode().as_slot());
    end
}

/// What was written of backups since the volume was opened.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    /// The last one, and its slot.
    last: Option<(u64, Superblock)>,
}

impl Backups {
    /// Writes a backup of this superblock, which is durable in its log, if one is due. Returns
    /// whether it did: it is durable only after a flush. A backup that cannot be written is no
    /// failure, because the superblock logs count.
    pub(crate) fn write_if_due(
        &mut self,
        device: &Arc<dyn Device>,
        superblock: &Superblock,
    ) -> bool {
        let Some(area) = superblock.backup_area(device.len_bytes()) else { return false };
        let is_due = self.last.as_ref().is_none_or(|(_, last)| {
            superblock.clean != last.clean
                || superblock.retired != last.retired
                || superblock.layout != last.layout
                || superblock.seq.saturating_sub(last.seq) >= MAX_AGE
        });
        if !is_due {
            return false;
        }
        let last = match &self.last {
            Some((offset, _)) => Some(*offset),
            None => newest_in(&**device, &area).map(|(offset, _)| offset),
        };
        let next = last.map(|offset| offset + SUPERBLOCK_LEN_BYTES as u64);
        let offset = next.filter(|offset| area.contains(offset)).unwrap_or(area.start);
        let mut slot = AlignedBuf::zeroed(SUPERBLOCK_LEN_BYTES);
        slot.copy_from_slice(superblock.encode().as_slot());
        if device.write_at(offset, &slot).is_err() {
            return false;
        }
        self.last = Some((offset, superblock.clone()));
        true
    }
}
