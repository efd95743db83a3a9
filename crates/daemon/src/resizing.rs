//! Resizing a volume, mounted or not.

mod members;

use std::ops::ControlFlow;
use std::time::Duration;

use dendro_base::{Clock, SystemClock};
use dendro_control::resizing::{ResizeProgress, ResizeRequest, ResizeTo, Resized};
use dendro_device::Device;
use dendro_disk::LogicalDisk;
use dendro_format::layout::BACKUP_SLOT_COUNT;
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use dendro_logdisk::{LogDisk, ShrinkProgress};

use crate::text;
use crate::volume::devices::{Devices, member};

const BACKUPS_BYTES: u64 = BACKUP_SLOT_COUNT * SUPERBLOCK_LEN_BYTES as u64;

/// How often is told how far it is.
const TELL_INTERVAL: Duration = Duration::from_millis(200);

/// Is told how far it is, and may have it given up.
pub type Tell<'t> = dyn FnMut(ResizeProgress) -> ControlFlow<()> + 't;

/// Resizes the volume of `disk`, which is open on `device`.
///
/// # Errors
/// Why that is not possible; the volume is as before.
pub fn resize(
    disk: &LogDisk,
    device: &Devices,
    request: &ResizeRequest,
    tell: &mut Tell<'_>,
) -> Result<Resized, String> {
    if device.is_spread() {
        return resize_spread(disk, device, request, tell);
    }
    if let Some(named) = &request.device {
        return Err(format!(
            "{named}: the volume is not spread over several devices, so leave out --device"
        ));
    }
    let before_bytes = size_bytes(disk, device);
    let superblock = disk.superblock();
    let segment_bytes = superblock.layout.segment_size_bytes();
    let present_bytes = device.present_len_bytes().map_err(|error| error.to_string())?;
    let wanted_bytes = match request.to {
        ResizeTo::Bytes(bytes) => bytes,
        ResizeTo::More(bytes) => before_bytes.checked_add(bytes).ok_or("that is too large")?,
        ResizeTo::Max => present_bytes,
    };
    let whole_bytes = wanted_bytes - wanted_bytes % segment_bytes;
    let len_bytes = if request.to == ResizeTo::Max { u64::MAX } else { whole_bytes };
    let mut device_len_bytes = if device.is_resizable() { whole_bytes } else { present_bytes };
    if device.is_listed() {
        // Members become no shorter.
        device_len_bytes = device_len_bytes.max(device.len_bytes());
    }
    if !device.is_resizable() && whole_bytes > present_bytes {
        return Err(format!(
            "there is room for {} on the block device, or on one of them, and so the volume cannot \
             have {}; make it larger first",
            text::size(present_bytes),
            text::size(wanted_bytes)
        ));
    }
    let layout = superblock
        .layout_on(whole_bytes, device_len_bytes)
        .map_err(|malformed| format!("{}: {}", text::size(wanted_bytes), malformed.problem))?;
    let is_smaller = layout.segment_count() < superblock.layout.segment_count();
    let is_cut_off = layout == superblock.layout && device_len_bytes < device.len_bytes();
    if request.to != ResizeTo::Max && (is_smaller || is_cut_off) {
        shrink(disk, device, whole_bytes, device_len_bytes, tell)?;
    } else {
        let device_len_bytes = device_len_bytes.max(present_bytes);
        let lengthens = device.is_listed() && device_len_bytes > device.len_bytes();
        if lengthens {
            members::announce(disk, device, device_len_bytes)?;
        }
        let grown = disk.grow(len_bytes, device_len_bytes);
        if lengthens {
            members::state_ends(disk)?;
        }
        grown.map_err(|error| members::not_grown(&error))?;
    }
    Ok(resized(disk, device, before_bytes, wanted_bytes))
}

/// Resizes a volume that is spread over devices. If these have no room for it, they take in what
/// they have got since; one of them is made longer if the request names it. Behind the segments
/// there is always the same.
fn resize_spread(
    disk: &LogDisk,
    device: &Devices,
    request: &ResizeRequest,
    tell: &mut Tell<'_>,
) -> Result<Resized, String> {
    let before_bytes = device.len_bytes();
    let superblock = disk.superblock();
    let segment_bytes = superblock.layout.segment_size_bytes();
    let named = request.device.as_deref().map(|named| member(device, named));
    let named = named.transpose().map_err(|failure| failure.message)?;
    if let Some(one) = named.as_ref().filter(|one| one.leaves) {
        return Err(format!("{}: is leaving the volume, so name another one", one.path.display()));
    }
    let gained_bytes = members::gained_bytes(device, named.as_ref())?;
    let present_bytes = device.most_len_bytes().unwrap_or(before_bytes);
    let most_bytes = present_bytes.max(before_bytes).saturating_add(gained_bytes);
    let wanted_bytes = match request.to {
        ResizeTo::Bytes(bytes) => bytes,
        ResizeTo::More(bytes) => {
            (before_bytes - BACKUPS_BYTES).checked_add(bytes).ok_or("that is too large")?
        }
        ResizeTo::Max => most_bytes - BACKUPS_BYTES,
    };
    let len_bytes = (wanted_bytes - wanted_bytes % segment_bytes).saturating_add(BACKUPS_BYTES);
    let lacking_bytes = len_bytes.saturating_sub(most_bytes);
    if lacking_bytes > 0 && named.is_none() {
        return Err(format!(
            "the volume lies spread over devices that have room for {}, and so it cannot have {}; \
             --device PATH makes one of them longer that is an image file; `dendro device add` \
             adds another device, and `dendro device replace` puts a larger one in the place of \
             one",
            text::size(most_bytes),
            text::size(wanted_bytes)
        ));
    }
    superblock
        .layout_on(len_bytes, len_bytes)
        .map_err(|malformed| format!("{}: {}", text::size(wanted_bytes), malformed.problem))?;
    if len_bytes < before_bytes {
        shrink(disk, device, len_bytes, len_bytes, tell)?;
        return Ok(resized(disk, device, before_bytes, wanted_bytes));
    }
    if len_bytes > present_bytes {
        members::lengthen(disk, device, named.as_ref(), lacking_bytes)?;
    }
    disk.grow(u64::MAX, len_bytes).map_err(|error| members::not_grown(&error))?;
    Ok(resized(disk, device, before_bytes, wanted_bytes))
}

/// What the size is now.
fn resized(disk: &LogDisk, device: &Devices, before_bytes: u64, wanted_bytes: u64) -> Resized {
    let layout = disk.superblock().layout;
    Resized {
        before_bytes,
        size_bytes: size_bytes(disk, device),
        wanted_bytes,
        segment_bytes: layout.segment_size_bytes(),
        segment_count: layout.segment_count(),
        available_bytes: disk.space().available_bytes,
    }
}

/// Makes the volume shorter.
pub(crate) fn shrink(
    disk: &LogDisk,
    device: &Devices,
    len_bytes: u64,
    device_len_bytes: u64,
    tell: &mut Tell<'_>,
) -> Result<(), String> {
    disk.begin_shrinking(len_bytes, device_len_bytes).map_err(|error| match error {
        dendro_disk::Error::NoSpace { needed_bytes, .. } => format!(
            "what the volume holds does not fit into {}; it needs {} at least",
            text::size(len_bytes),
            text::size_at_least(with_backups(disk, device, needed_bytes))
        ),
        error => error.to_string(),
    })?;
    let mut told = None;
    loop {
        let stepped = disk.shrink_step().map_err(|error| match error {
            dendro_disk::Error::NoSpace { .. } => {
                "there is no room to move what lies behind the new end, and the volume keeps its \
                 size; delete something, or make it less small"
                    .to_owned()
            }
            error => error.to_string(),
        });
        let Some(ShrinkProgress { segment_count, left_count }) = stepped? else { return Ok(()) };
        let now = SystemClock.now();
        if told.is_none_or(|told| now.since(told) >= TELL_INTERVAL) {
            told = Some(now);
            if tell(ResizeProgress { segment_count, left_count }).is_break() {
                disk.stop_shrinking();
                return Err("it was given up, and the volume keeps its size".into());
            }
        }
    }
}

/// The size of a volume that has so many bytes of segments.
fn with_backups(disk: &LogDisk, device: &Devices, segments_bytes: u64) -> u64 {
    let superblock = disk.superblock();
    // The members of a set become no shorter, so what lies behind the segments stays where it is.
    let takes_all = device.is_listed()
        || !device.is_resizable()
        || superblock
            .layout_on(segments_bytes, segments_bytes)
            .is_ok_and(|layout| layout.len_bytes() >= segments_bytes);
    let behind_bytes = if takes_all { 0 } else { superblock.layout.segment_size_bytes() };
    segments_bytes + behind_bytes
}

/// The size of the volume: that of the device, or of the part of it that it takes.
fn size_bytes(disk: &LogDisk, device: &Devices) -> u64 {
    let layout = disk.superblock().layout;
    let left_bytes = device.len_bytes().saturating_sub(layout.len_bytes());
    // Behind the segments there are backups of superblocks, and less than a segment.
    let takes_all = left_bytes < layout.segment_size_bytes() + BACKUPS_BYTES;
    if takes_all { device.len_bytes() } else { layout.len_bytes() }
}
