//! Resizing a volume, mounted or not.

use dendro_control::resizing::{ResizeRequest, ResizeTo, Resized};
use dendro_device::{Device, FileDevice};
use dendro_disk::LogicalDisk;
use dendro_format::layout::BACKUP_SLOT_COUNT;
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use dendro_logdisk::LogDisk;

use crate::text;

const BACKUPS_BYTES: u64 = BACKUP_SLOT_COUNT * SUPERBLOCK_LEN_BYTES as u64;

/// Resizes the volume of `disk`, which is open on `device`.
///
/// # Errors
/// Why that is not possible; the volume is as before.
pub fn resize(
    disk: &LogDisk,
    device: &FileDevice,
    request: ResizeRequest,
) -> Result<Resized, String> {
    let before_bytes = size_bytes(disk, device);
    let segment_bytes = disk.superblock().layout.segment_size_bytes();
    let present_bytes = device.present_len_bytes().map_err(|error| error.to_string())?;
    let wanted_bytes = match request.to {
        ResizeTo::Bytes(bytes) => bytes,
        ResizeTo::More(bytes) => before_bytes.checked_add(bytes).ok_or("that is too large")?,
        ResizeTo::Max => present_bytes,
    };
    let whole_bytes = wanted_bytes - wanted_bytes % segment_bytes;
    let len_bytes = if request.to == ResizeTo::Max { u64::MAX } else { whole_bytes };
    let device_len_bytes =
        if device.is_resizable() { present_bytes.max(whole_bytes) } else { present_bytes };
    if !device.is_resizable() && whole_bytes > present_bytes {
        return Err(format!(
            "the block device has {}, and so the volume cannot have {}; make the device larger first",
            text::size(present_bytes),
            text::size(wanted_bytes)
        ));
    }
    if request.to != ResizeTo::Max && whole_bytes < before_bytes {
        return Err(format!(
            "the volume has {}, and cannot be made smaller",
            text::size(before_bytes)
        ));
    }
    disk.grow(len_bytes, device_len_bytes).map_err(|error| match error {
        dendro_disk::Error::NoSpace { .. } => {
            "the file system that holds it is full: free some room there".to_owned()
        }
        error => error.to_string(),
    })?;
    Ok(Resized {
        before_bytes,
        size_bytes: size_bytes(disk, device),
        wanted_bytes,
        segment_bytes,
        segment_count: disk.superblock().layout.segment_count(),
        available_bytes: disk.space().available_bytes,
    })
}

/// The size of the volume: that of the device, or of the part of it that it takes.
fn size_bytes(disk: &LogDisk, device: &FileDevice) -> u64 {
    let layout = disk.superblock().layout;
    let left_bytes = device.len_bytes().saturating_sub(layout.len_bytes());
    // Behind the segments there are backups of superblocks, and less than a segment.
    let takes_all = left_bytes < layout.segment_size_bytes() + BACKUPS_BYTES;
    if takes_all { device.len_bytes() } else { layout.len_bytes() }
}
