//! Makes a file system on a device.

use std::path::Path;
use std::sync::Arc;

use dendro_base::{SystemClock, Uuid};
use dendro_control::VolumeInfo;
use dendro_daemon::volume::devices::Devices;
use dendro_daemon::volume::{clock, describe, random_bytes};
use dendro_daemon::{Failure, text};
use dendro_device::Device;
use dendro_disk::LogicalDisk;
use dendro_format::Compression;
use dendro_format::layout::{MIN_SEGMENT_COUNT, good_segment_size_bytes};
use dendro_fs::{FileSystem, FormatOptions as FsFormatOptions};
use dendro_logdisk::FormatOptions;

use crate::offline::as_mounted;

/// The parameters of a new volume.
pub(crate) struct NewVolume {
    pub(crate) label: String,
    pub(crate) uuid: Uuid,
    pub(crate) segment_size_bytes: Option<u64>,
    pub(crate) is_allocated: bool,
    pub(crate) metadata_copies: u8,
    pub(crate) max_len_bytes: u64,
    pub(crate) compression: Option<Compression>,
    pub(crate) cold_compression: Option<Compression>,
}

/// Makes a file system on `devices`, which are open for writing.
pub(crate) fn format(
    source: &Path,
    devices: Devices,
    new: NewVolume,
) -> Result<VolumeInfo, Failure> {
    let fail =
        |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", source.display()));
    let options = FormatOptions {
        segment_size_bytes: new
            .segment_size_bytes
            .unwrap_or_else(|| good_segment_size_bytes(devices.len_bytes())),
        label: new.label.clone(),
        uuid: new.uuid,
        hash_key: random_bytes()?,
        is_allocated: new.is_allocated,
        has_backups: true,
        metadata_copies: new.metadata_copies,
        max_len_bytes: new.max_len_bytes,
        is_on_set: devices.is_listed(),
        is_spread: devices.is_spread(),
        compression: new.compression,
        cold_compression: new.cold_compression,
    };
    let devices = Arc::new(devices);
    let device: Arc<dyn Device> = Arc::clone(&devices) as _;
    // The volume becomes valid when all of it is written.
    let disk = dendro_logdisk::create(&device, &options, as_mounted(), &clock())
        .map_err(|error| fail(&error))?;
    let fs_options = FsFormatOptions {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mode: 0o755,
        label: new.label,
        hash_key: options.hash_key,
    };
    FileSystem::create_on(&disk, &fs_options, &SystemClock).map_err(|error| fail(&error))?;
    disk.shut_down().map_err(|error| fail(&error))?;
    devices.close().map_err(|error| fail(&error))?;
    Ok(describe(source, &disk, &devices))
}

/// Explains why a device of so many bytes cannot be divided into segments of `segment_size_bytes`,
/// or of the default size.
pub(crate) fn check_segments(
    source: &Path,
    device_len_bytes: u64,
    segment_size_bytes: Option<u64>,
) -> Result<(), Failure> {
    let segment_size_bytes =
        segment_size_bytes.unwrap_or_else(|| good_segment_size_bytes(device_len_bytes));
    let fail = |why: String| Err(Failure::new(format_args!("{}: {why}", source.display())));
    let least = segment_size_bytes * u64::from(MIN_SEGMENT_COUNT);
    if device_len_bytes < least {
        return fail(format!(
            "{} are too little: a volume has {MIN_SEGMENT_COUNT} segments at least, of {} here, so \
             {}",
            text::size(device_len_bytes),
            text::size(segment_size_bytes),
            text::size(least)
        ));
    }
    if u32::try_from(device_len_bytes / segment_size_bytes).is_err() {
        return fail(format!(
            "{} have too many segments of {}; make them larger, with --segment-size",
            text::size(device_len_bytes),
            text::size(segment_size_bytes)
        ));
    }
    Ok(())
}
