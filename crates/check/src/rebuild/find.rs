//! Finding a volume of which no superblock is left.

use std::collections::BTreeMap;

use dendro_base::units::PAGE_SIZE;
use dendro_base::{Timestamp, Uuid};
use dendro_device::{AlignedBuf, Device};
use dendro_format::layout::{MAX_SEGMENT_SIZE_LOG2, MIN_SEGMENT_SIZE_LOG2};
use dendro_format::superblock::{INCOMPATIBLE_MIRRORS, KNOWN_INCOMPATIBLE, READ_ONLY_REMOVALS};
use dendro_format::{Addr, Checkpoint, Layout, PartialHeader, Superblock};

use super::superblock::ASSUMED_INCOMPATIBLE;
use crate::error::{Error, Result};

/// So many partial segments that agree are enough.
const ENOUGH_VOTES: u32 = 16;

/// What the superblocks must have said of the layout and the identity, as the partial segments at
/// multiples of the smallest segment tell it: each states the segment that it lies in and where in
/// it, and so how long segments are. `None` if there are none.
///
/// What only superblocks said has a value that is safe, or none: see [`adopt_identity`].
pub(super) fn from_partial_segments(device: &dyn Device) -> Option<Superblock> {
    let mut votes: BTreeMap<(Uuid, u8), u32> = BTreeMap::new();
    let mut page = AlignedBuf::zeroed(PAGE_SIZE);
    let step = 1_u64 << MIN_SEGMENT_SIZE_LOG2;
    for place in (1..device.len_bytes() / step).map(|number| number * step) {
        if device.read_at(place, &mut page).is_err() {
            continue;
        }
        let Some((uuid, log2)) = vote(device, &page, place) else { continue };
        let count = votes.entry((uuid, log2)).or_default();
        *count += 1;
        if *count >= ENOUGH_VOTES {
            break;
        }
    }
    let ((uuid, log2), _) = votes.into_iter().max_by_key(|(_, count)| *count)?;
    let segment_count = u32::try_from(device.len_bytes() >> log2).unwrap_or(u32::MAX);
    Some(Superblock {
        uuid,
        seq: 0,
        compatible: 0,
        read_only: READ_ONLY_REMOVALS,
        // What lay in spare segments is lost with the superblocks.
        incompatible: ASSUMED_INCOMPATIBLE,
        layout: Layout::new(log2, segment_count).ok()?,
        clean: false,
        compression: 0,
        cold_compression: 0,
        checkpoint_addr: Addr(0),
        checkpoint_len_bytes: 0,
        checkpoint_crc32c: 0,
        created: Timestamp(0),
        written: Timestamp(0),
        hash_key: [0; 16],
        label: String::new(),
        retired: Vec::new(),
        checkpoint_mirror: None,
        max_len_bytes: 0,
        member_ends: Vec::new(),
    })
}

/// The volume and the size of segments that a sound partial segment at `place` implies.
fn vote(device: &dyn Device, page: &[u8], place: u64) -> Option<(Uuid, u8)> {
    let (header, _) = PartialHeader::decode(page).ok()?;
    let start = place.checked_sub(header.offset_bytes.into())?;
    let size = start.checked_div(header.segment.0.into())?;
    let log2 = u8::try_from(size.checked_ilog2()?).ok()?;
    let is_there = size.is_power_of_two()
        && size * u64::from(header.segment.0) == start
        && (MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2).contains(&log2)
        && u64::from(header.len_bytes) <= size;
    if !is_there {
        return None;
    }
    let mut records = vec![0; header.records_len_bytes as usize];
    let records_at = place + u64::from(header.records_offset_bytes);
    device.read_at(records_at, &mut records).ok()?;
    PartialHeader::verify(page, &records).then_some((header.uuid, log2))
}

/// The superblock of a volume that ends where its device does.
///
/// # Errors
/// When too few segments are left.
pub(super) fn within(superblock: Superblock, device_len_bytes: u64) -> Result<Superblock> {
    let volume_len_bytes = superblock.layout.len_bytes();
    if volume_len_bytes <= device_len_bytes {
        return Ok(superblock);
    }
    let log2 = superblock.layout.segment_size_log2();
    let count = u32::try_from(device_len_bytes >> log2).unwrap_or(u32::MAX);
    let layout = Layout::new(log2, count)
        .map_err(|_| Error::Truncated { volume_len_bytes, device_len_bytes })?;
    let mut retired = superblock.retired;
    retired.retain(|one| layout.is_log_segment(one.segment));
    for one in &mut retired {
        // What lay in a spare that is lost is lost, too.
        one.moved = one.moved.take().filter(|(_, spare)| layout.is_log_segment(*spare));
    }
    Ok(Superblock { layout, retired, ..superblock })
}

/// Takes what a checkpoint repeats of the superblocks. Returns the layout that it states, if it
/// does. A device that has lost its end keeps the segments that it has.
pub(super) fn adopt_identity(
    superblock: &mut Superblock,
    checkpoint: &Checkpoint,
) -> Option<Layout> {
    let identity = checkpoint.identity?;
    let is_of_this_volume =
        identity.layout.segment_size_log2() == superblock.layout.segment_size_log2();
    if !is_of_this_volume || identity.incompatible & !KNOWN_INCOMPATIBLE != 0 {
        return None;
    }
    if identity.layout.segment_count() < superblock.layout.segment_count() {
        superblock.layout = identity.layout;
    }
    superblock.hash_key = identity.hash_key;
    superblock.compatible |= u64::from(identity.compatible);
    superblock.read_only |= u64::from(identity.read_only);
    superblock.incompatible |= identity.incompatible & INCOMPATIBLE_MIRRORS;
    Some(identity.layout)
}
