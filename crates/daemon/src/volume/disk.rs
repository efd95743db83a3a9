//! Opens the logical disk of a volume on its device.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dendro_base::{Clock, SystemClock};
use dendro_device::{Device, FileDevice, ReadAhead, Retrying};
use dendro_disk::LogicalDisk;
use dendro_format::layout::{MIN_SEGMENT_COUNT, MIN_SEGMENT_SIZE_LOG2};
use dendro_logdisk::{LogDisk, OpenOptions};

use super::signature;
use crate::failure::Failure;
use crate::text;

/// The smallest volume: the fewest segments of the smallest size.
const MIN_BYTES: u64 = (MIN_SEGMENT_COUNT as u64) << MIN_SEGMENT_SIZE_LOG2;

/// How often, and after what pause, a shutdown is repeated if the file system that holds an image
/// is full. Without that, accepted data that are not durable would be lost.
const ROOM_TRIES: u32 = 30;

const ROOM_PAUSE: Duration = Duration::from_millis(500);

/// Opens the logical disk on `device`; `source` names it in messages.
pub fn open_disk(
    source: &Path,
    device: &Arc<FileDevice>,
    options: OpenOptions,
) -> Result<LogDisk, Failure> {
    let reading_ahead = read_ahead(device, options.cache_size_bytes);
    open_disk_on(reading_ahead, source, device, options)
}

/// A device that reads ahead and repeats reads that fail.
pub(crate) type ReadDevice = ReadAhead<Retrying<Arc<FileDevice>>>;

/// A device with read-ahead, whose memory suits a cache of that size.
pub(crate) fn read_ahead(device: &Arc<FileDevice>, cache_size_bytes: u64) -> Arc<ReadDevice> {
    let retrying = Retrying::new(Arc::clone(device));
    Arc::new(ReadAhead::with_memory(retrying, cache_size_bytes / 8))
}

pub(crate) fn open_disk_on(
    reading_ahead: Arc<dyn Device>,
    source: &Path,
    device: &Arc<FileDevice>,
    options: OpenOptions,
) -> Result<LogDisk, Failure> {
    let read_only = options.read_only;
    LogDisk::open(reading_ahead, options, clock()).map_err(|error| {
        let is_file = device.kind() == dendro_device::FileKind::Image;
        let found = signature::find(&**device, is_file).unwrap_or(None);
        match found.filter(|found| !found.contains("dendrofs")) {
            Some(found) => Failure::new(format_args!(
                "{}: is {found}, not a dendrofs volume (or its start was overwritten: {error})",
                source.display()
            )),
            None if matches!(error, dendro_disk::Error::Lost(_)) => Failure::new(format_args!(
                "{}: {error}. Nothing was changed; with -o ro that state can be mounted to be read, \
                 with -o recover=skip also what can be made of what lies behind the damage, and with \
                 -o recover=truncate that state is gone on from, and what is lost is given up",
                source.display()
            )),
            None if matches!(error, dendro_disk::Error::NoSpace { .. })
                && device.host_room().is_some() =>
            {
                Failure::new(format_args!(
                    "{}: the file system that holds it is full, and mounting for writing takes some room: \
                     free some, or mount it to be read, with -o ro",
                    source.display()
                ))
            }
            // A volume that can be found but not written can be read.
            None if !read_only && matches!(error, dendro_disk::Error::Failed(_)) => {
                Failure::new(format_args!(
                    "{}: {error}; with -o ro it can be mounted to be read",
                    source.display()
                ))
            }
            None => Failure::new(format_args!("{}: {error}", source.display())),
        }
    })
}

/// Shuts a disk down. If there is no room below the device, waits for some.
pub(crate) fn shut_down(disk: &LogDisk) -> Result<(), dendro_disk::Error> {
    for _ in 0..ROOM_TRIES {
        match disk.shut_down() {
            Err(dendro_disk::Error::NoSpace { .. }) => std::thread::sleep(ROOM_PAUSE),
            outcome => return outcome,
        }
    }
    disk.shut_down()
}

/// Explains why a device cannot be opened, for a user who wants to open a volume.
pub fn explain_device(error: &dendro_device::Error, read_only: bool) -> Failure {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem};
    let is_short =
        |path: &str| std::fs::metadata(path).is_ok_and(|of| of.is_file() && of.len() < MIN_BYTES);
    match error {
        dendro_device::Error::Open { path, source }
            if source.kind() == InvalidInput && is_short(path) =>
        {
            Failure::new(format_args!(
                "{path}: is no dendrofs volume, which has {} at least",
                text::size(MIN_BYTES)
            ))
        }
        dendro_device::Error::Open { source, .. }
            if !read_only && matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem) =>
        {
            Failure::new(format_args!("{error}; it may be mounted read-only, with -o ro"))
        }
        _ => Failure::new(error),
    }
}

/// The clock of the system.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}
