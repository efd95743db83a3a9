//! The two superblock logs.

use dendro_base::sync::Arc;
use dendro_device::Device;
use dendro_disk::Error;
use dendro_format::layout::{MAX_SEGMENT_SIZE_LOG2, MIN_SEGMENT_SIZE_LOG2};
use dendro_format::superblock::{
    KNOWN_INCOMPATIBLE, KNOWN_READ_ONLY_COMPATIBLE, SUPERBLOCK_LEN_BYTES,
};
use dendro_format::{Layout, Superblock};

/// Finds the newest superblock of the volume on `device`.
///
/// The first slot of either log tells the shape of the volume, and with it where all slots are;
/// while one log is begun anew the other holds the newest.
///
/// # Errors
/// [`Error::Corrupted`] when there is none, [`Error::Io`] when the device cannot be read.
pub(crate) fn find(device: &dyn Device) -> Result<Superblock, Error> {
    let mut problem = "no superblock was found";
    let mut newest: Option<Superblock> = None;
    let firsts = (MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2).map(|log2| 1_u64 << log2);
    for offset in std::iter::once(0).chain(firsts) {
        if offset + SUPERBLOCK_LEN_BYTES as u64 > device.len_bytes() {
            break;
        }
        match Superblock::decode(&read(device, offset, SUPERBLOCK_LEN_BYTES)?) {
            Ok(first) => {
                newest = newest_of(device, first.layout)?.or(newest);
                break;
            }
            Err(malformed) if malformed.problem != "there is none" => problem = malformed.problem,
            Err(_) => {}
        }
    }
    // A log whose first slot is damaged may still hold newer ones: look at every shape.
    if newest.is_none() {
        for log2 in MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2 {
            let count = u32::try_from(device.len_bytes() >> log2).unwrap_or(u32::MAX);
            if let Ok(layout) = Layout::new(log2, count) {
                newest = newest_of(device, layout)?
                    .filter(|found| found.layout.segment_size_log2() == log2);
            }
            if newest.is_some() {
                break;
            }
        }
    }
    let newest = newest.ok_or_else(|| {
        Error::Corrupted(format!(
            "this is not a dendrofs volume, or its start is damaged: {problem}"
        ))
    })?;
    if newest.layout.len_bytes() > device.len_bytes() {
        return Err(Error::Corrupted(format!(
            "the volume is {} bytes long, but the device has only {}: it was cut off",
            newest.layout.len_bytes(),
            device.len_bytes()
        )));
    }
    if newest.incompatible & !KNOWN_INCOMPATIBLE != 0 {
        return Err(Error::Corrupted(format!(
            "the volume uses features that this version of dendrofs does not know ({:#x})",
            newest.incompatible & !KNOWN_INCOMPATIBLE
        )));
    }
    Ok(newest)
}

/// Whether this version may write to the volume.
pub(crate) const fn is_writable(superblock: &Superblock) -> bool {
    superblock.read_only & !KNOWN_READ_ONLY_COMPATIBLE == 0
}

fn newest_of(device: &dyn Device, layout: Layout) -> Result<Option<Superblock>, Error> {
    let mut newest: Option<Superblock> = None;
    for area in [0, 1] {
        let range = layout.superblock_area(area);
        if range.end > device.len_bytes() {
            continue;
        }
        let bytes = read(device, range.start, (range.end - range.start) as usize)?;
        for slot in bytes.chunks_exact(SUPERBLOCK_LEN_BYTES) {
            if let Ok(found) = Superblock::decode(slot)
                && newest.as_ref().is_none_or(|newest| newest.seq < found.seq)
            {
                newest = Some(found);
            }
        }
    }
    Ok(newest)
}

fn read(device: &dyn Device, offset: u64, len_bytes: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; len_bytes];
    device
        .read_at(offset, &mut bytes)
        .map_err(|error| Error::Io(format!("reading the superblock: {error}")))?;
    Ok(bytes)
}

/// Appends a superblock and makes it durable.
pub(crate) fn append(device: &Arc<dyn Device>, superblock: &Superblock) -> Result<(), Error> {
    let failed = |error| Error::Failed(format!("writing the superblock: {error}"));
    let offset = superblock.layout.superblock_offset(superblock.seq);
    for area in [0, 1] {
        let range = superblock.layout.superblock_area(area);
        if offset == range.start {
            // The log is begun anew; the other one holds what counts. A device that does not
            // take it keeps old superblocks, which their numbers tell from new ones.
            let _ = device.discard(range.start, range.end - range.start);
        }
    }
    let slot = superblock.encode();
    let mut aligned = dendro_device::AlignedBuf::zeroed(SUPERBLOCK_LEN_BYTES);
    aligned.copy_from_slice(slot.as_slot());
    device.write_at(offset, &aligned).map_err(failed)?;
    device.flush().map_err(failed)
}
