//! Makes a file system on a device.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use dendro_base::{SystemClock, Uuid};
use dendro_control::VolumeInfo;
use dendro_daemon::volume::{clock, describe, random_bytes};
use dendro_daemon::{Failure, text};
use dendro_device::{Device, FileDevice};
use dendro_disk::LogicalDisk;
use dendro_format::layout::{MIN_SEGMENT_COUNT, MIN_SEGMENT_SIZE_LOG2};
use dendro_fs::{FileSystem, FormatOptions as FsFormatOptions};
use dendro_logdisk::FormatOptions;

use crate::offline::as_mounted;

/// Binary logarithm of the bytes in a segment: 4 MiB.
const DEFAULT_SEGMENT_SIZE_LOG2: u8 = 22;

/// With fewer segments, those that are kept clean or are being filled take so much of the volume
/// that cleaning writes more. At 1 GiB, with 80 % of it live and random writes, cleaning writes 4.5
/// times as much as users with 256 segments, 3.5 with 1024 and 3.4 with 2048; at 4 GiB 3.2 with
/// 4096.
const GOOD_SEGMENT_COUNT: u64 = 4096;

/// In smaller segments headers cost more than more segments gain.
const GOOD_SEGMENT_SIZE_LOG2: u8 = 19;

/// Fewer segments leave too little choice of which to write and which to keep.
const LEAST_GOOD_SEGMENT_COUNT: u64 = 64;

/// The parameters of a new volume.
pub(crate) struct NewVolume {
    pub(crate) label: String,
    pub(crate) uuid: Option<Uuid>,
    pub(crate) segment_size_bytes: Option<u64>,
    pub(crate) is_allocated: bool,
    pub(crate) metadata_copies: u8,
    pub(crate) max_len_bytes: u64,
}

/// Makes a file system on `device`, which is open for writing.
pub(crate) fn format(
    source: &Path,
    device: FileDevice,
    new: NewVolume,
) -> Result<VolumeInfo, Failure> {
    let fail =
        |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", source.display()));
    let options = FormatOptions {
        segment_size_bytes: new
            .segment_size_bytes
            .unwrap_or_else(|| default_segment_size_bytes(device.len_bytes())),
        label: new.label.clone(),
        uuid: match new.uuid {
            Some(uuid) => uuid,
            None => Uuid::from_random(random_bytes()?),
        },
        hash_key: random_bytes()?,
        is_allocated: new.is_allocated,
        has_backups: true,
        metadata_copies: new.metadata_copies,
        max_len_bytes: new.max_len_bytes,
    };
    let device: Arc<dyn Device> = Arc::new(device);
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
    Ok(describe(source, &disk))
}

/// Explains why a device of so many bytes cannot be divided into segments of `segment_size_bytes`,
/// or of the default size.
pub(crate) fn check_segments(
    source: &Path,
    device_len_bytes: u64,
    segment_size_bytes: Option<u64>,
) -> Result<(), Failure> {
    let segment_size_bytes =
        segment_size_bytes.unwrap_or_else(|| default_segment_size_bytes(device_len_bytes));
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

/// 4 MiB. On a small device the size is so small that there are at least [`GOOD_SEGMENT_COUNT`]
/// segments, if it then is a good size; on a very small one, so that there are
/// [`LEAST_GOOD_SEGMENT_COUNT`].
fn default_segment_size_bytes(device_len_bytes: u64) -> u64 {
    let largest = |mut sizes: RangeInclusive<u8>, count| {
        sizes.rfind(|log2| device_len_bytes >> log2 >= count)
    };
    let good = largest(GOOD_SEGMENT_SIZE_LOG2..=DEFAULT_SEGMENT_SIZE_LOG2, GOOD_SEGMENT_COUNT);
    let small =
        || largest(MIN_SEGMENT_SIZE_LOG2..=GOOD_SEGMENT_SIZE_LOG2, LEAST_GOOD_SEGMENT_COUNT);
    1 << good.or_else(small).unwrap_or(MIN_SEGMENT_SIZE_LOG2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_smaller_on_small_devices() {
        assert_eq!(default_segment_size_bytes(1 << 40), 4 << 20);
        assert_eq!(default_segment_size_bytes(16 << 30), 4 << 20);
        assert_eq!(default_segment_size_bytes(15 << 30), 2 << 20);
        assert_eq!(default_segment_size_bytes(4 << 30), 1 << 20);
        assert_eq!(default_segment_size_bytes(1 << 30), 512 << 10);
        assert_eq!(default_segment_size_bytes(32 << 20), 512 << 10);
        assert_eq!(default_segment_size_bytes(31 << 20), 256 << 10);
        assert_eq!(default_segment_size_bytes(1 << 20), 128 << 10);
    }
}
