//! Removing the volume that is on a device, so that no part of it is ever found again.
//!
//! Power may be cut at any time, and what was written since the last flush may be lost in any
//! order. The device then holds the volume as it was, or none.
//!
//! Invariants. Each step is durable before the next one begins; the loss that this prevents is
//! given:
//! 1. (wipe 1) *Superblocks of earlier volumes* with other layouts, and backups, are removed first.
//!    They are not looked at while there is a newer superblock of the present volume, but would be
//!    found without it.
//! 2. (wipe 2) *All superblocks of the present volume except the newest* are removed next. Only the
//!    newest states the present state. An older one names a checkpoint that may have been
//!    overwritten.
//! 3. (wipe 3) *The newest superblock* is removed last. It is one block, and its checksum shows a
//!    torn write.
//!
//! Only then may anything else be written or discarded.

use std::collections::BTreeSet;

use dendro_base::units::PAGE_SIZE;
use dendro_device::{AlignedBuf, Device};
use dendro_disk::{Error, Result};
use dendro_format::layout::{MAX_SEGMENT_SIZE_LOG2, MIN_SEGMENT_SIZE_LOG2};
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use dendro_format::{Layout, Superblock};

use crate::log::backups;
use crate::log::superblocks::Superblocks;

const _: () = assert!(SUPERBLOCK_LEN_BYTES <= PAGE_SIZE);

/// Removes the volume on `device`, if there is one. If this is interrupted, the device holds the
/// whole volume or none.
///
/// # Errors
/// [`Error::Failed`] when the device cannot be written, [`Error::Io`] when it cannot be read.
pub fn invalidate(device: &dyn Device) -> Result<()> {
    let all = offsets(device)?;
    // If there are several volumes, this is the one that would be mounted.
    let newest = Superblocks::find(device).ok().map(Superblocks::into_newest);
    let own: BTreeSet<u64> = newest.iter().flat_map(|of| slots(of.layout)).collect();
    let last = newest.map(|of| of.layout.superblock_offset(of.seq));
    // Each call flushes what it has written, in the order of (wipe 1), (wipe 2) and (wipe 3).
    zero(device, all.difference(&own).copied())?;
    zero(device, all.intersection(&own).copied().filter(|offset| Some(*offset) != last))?;
    zero(device, last.into_iter())
}

/// The places of the superblocks of a volume with this layout.
fn slots(layout: Layout) -> impl Iterator<Item = u64> {
    let areas = [0, 1].map(|area| layout.superblock_area(area));
    areas.into_iter().flat_map(|area| area.step_by(PAGE_SIZE))
}

/// All places where a superblock is looked for.
fn offsets(device: &dyn Device) -> Result<BTreeSet<u64>> {
    let mut places = BTreeSet::new();
    for log2 in MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2 {
        // A volume may be smaller than its device; its superblocks lie at the start.
        if let Ok(layout) = Layout::new(log2, u32::MAX) {
            places.extend(slots(layout));
        }
        places.insert(1 << log2);
    }
    places.extend(backups::places(device.len_bytes()));
    let mut found = BTreeSet::new();
    let mut slot = AlignedBuf::zeroed(PAGE_SIZE);
    for offset in places {
        if offset + PAGE_SIZE as u64 > device.len_bytes() {
            break;
        }
        let read = device.read_at(offset, &mut slot);
        read.map_err(|error| Error::Io(format!("reading what is there: {error}")))?;
        if Superblock::decode(&slot[..SUPERBLOCK_LEN_BYTES]).is_ok() {
            found.insert(offset);
        }
    }
    Ok(found)
}

fn zero(device: &dyn Device, offsets: impl Iterator<Item = u64>) -> Result<()> {
    let failed = |error: dendro_device::Error| Error::Failed(error.to_string());
    let zeros = AlignedBuf::zeroed(PAGE_SIZE);
    let mut is_changed = false;
    for offset in offsets {
        device.write_at(offset, &zeros).map_err(failed)?;
        is_changed = true;
    }
    if is_changed { device.flush().map_err(failed) } else { Ok(()) }
}
