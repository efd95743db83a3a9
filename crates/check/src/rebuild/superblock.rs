//! Appending a superblock.

use dendro_device::{AlignedBuf, Device};
use dendro_format::superblock::{
    INCOMPATIBLE_MIRRORS, INCOMPATIBLE_RETIRED, INCOMPATIBLE_SET, INCOMPATIBLE_SPREAD,
    KNOWN_INCOMPATIBLE, SUPERBLOCK_LEN_BYTES, SuperblockRemains,
};
use dendro_format::{Layout, Superblock};

use crate::error::Result;

/// The features that a rebuilt volume may have used, of which the lost parts do not tell. What says
/// where else something lies is stated by itself.
pub(super) const ASSUMED_INCOMPATIBLE: u64 = KNOWN_INCOMPATIBLE
    & !(INCOMPATIBLE_RETIRED | INCOMPATIBLE_MIRRORS | INCOMPATIBLE_SET | INCOMPATIBLE_SPREAD);

/// The number of the next superblock behind number `newest`. Slots that hold a damaged superblock,
/// or cannot be read, are passed over, so that none of them is taken for a newer one.
pub(super) fn next_seq(device: &dyn Device, of: &Superblock, newest: u64) -> u64 {
    let slot_count = 2 * of.layout.superblock_slot_count();
    let mut slot = AlignedBuf::zeroed(SUPERBLOCK_LEN_BYTES);
    let mut seq = newest + 1;
    for _ in 1..slot_count {
        let offset = of.layout.superblock_offset(seq);
        let is_passed = device.read_at(offset, &mut slot).is_err()
            || Superblock::decode(&slot).is_err()
                && SuperblockRemains::find(&slot, &of.uuid).is_some();
        if !is_passed {
            break;
        }
        seq += 1;
    }
    seq
}

/// The number of a superblock that is written behind `of`: none that is damaged is next to it.
pub(super) fn free_seq(device: &dyn Device, of: &Superblock) -> u64 {
    let mut seq = next_seq(device, of, of.seq);
    for _ in 1..of.layout.superblock_slot_count() {
        let after = next_seq(device, of, seq);
        if after == seq + 1 {
            break;
        }
        seq = after;
    }
    seq
}

/// Clears both logs of superblocks, in which there is no valid one.
pub(super) fn clear(device: &dyn Device, layout: Layout) -> Result<()> {
    for area in [0, 1] {
        let range = layout.superblock_area(area);
        let zeros = AlignedBuf::zeroed((range.end - range.start) as usize);
        device.write_at(range.start, &zeros)?;
    }
    device.flush()?;
    Ok(())
}

/// Writes a superblock, and makes it and all before it durable.
pub(super) fn append(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    let mut slot = AlignedBuf::zeroed(SUPERBLOCK_LEN_BYTES);
    slot.copy_from_slice(superblock.encode().as_slot());
    device.flush()?;
    device.write_at(superblock.layout.superblock_offset(superblock.seq), &slot)?;
    device.flush()?;
    Ok(())
}
