//! Opens the logical disk of a volume on its device.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dendro_device::{Device, ReadAhead, Retrying};
use dendro_disk::LogicalDisk;
use dendro_logdisk::{LogDisk, OnLoss, OpenOptions};

use super::devices::{Devices, clock};
use super::signature;
use crate::failure::Failure;

/// How often, and after what pause, a shutdown is repeated if the file system that holds an image
/// is full. Without that, accepted data that are not durable would be lost.
const ROOM_TRIES: u32 = 30;

const ROOM_PAUSE: Duration = Duration::from_millis(500);

/// Opens the logical disk on `devices`; `source` names it in messages.
pub fn open_disk(
    source: &Path,
    devices: &Arc<Devices>,
    options: OpenOptions,
) -> Result<LogDisk, Failure> {
    open_disk_on(source, devices, options).map(|(disk, _)| disk)
}

/// A device that reads ahead and repeats reads that fail.
pub(crate) type ReadDevice = ReadAhead<Retrying<Arc<Devices>>>;

/// A device with read-ahead, whose memory suits a cache of that size.
fn read_ahead(devices: &Arc<Devices>, cache_size_bytes: u64) -> Arc<ReadDevice> {
    let retrying = Retrying::new(Arc::clone(devices));
    Arc::new(ReadAhead::with_memory(retrying, cache_size_bytes / 8))
}

/// The same, and the device that it reads from. If the volume cannot be opened with what one of
/// the devices has, it is opened with what the next one has.
pub(crate) fn open_disk_on(
    source: &Path,
    devices: &Arc<Devices>,
    options: OpenOptions,
) -> Result<(LogDisk, Arc<ReadDevice>), Failure> {
    let options = OpenOptions { is_on_set: devices.is_listed(), ..options };
    // Before something is given up, it is looked for on all devices.
    let gives_up = devices.is_listed() && options.on_loss != OnLoss::Stop;
    let attempts = [Some(OnLoss::Stop).filter(|_| gives_up), Some(options.on_loss)];
    let mut first_error = None;
    for on_loss in attempts.into_iter().flatten() {
        for _number in (0..).take_while(|number| devices.prefer(*number)) {
            // What was read ahead of one device does not count for another.
            let reading_ahead = read_ahead(devices, options.cache_size_bytes);
            let options = OpenOptions { on_loss, ..options.clone() };
            match LogDisk::open(Arc::clone(&reading_ahead) as _, options, clock()) {
                Ok(disk) => return Ok((disk, reading_ahead)),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
    }
    let error = first_error.unwrap_or_else(|| dendro_disk::Error::Io("it has no device".into()));
    Err(explain_disk(source, devices, options.read_only, &error))
}

/// Explains why the disk cannot be opened.
fn explain_disk(
    source: &Path,
    devices: &Devices,
    read_only: bool,
    error: &dendro_disk::Error,
) -> Failure {
    let is_file = devices.kind() == dendro_device::FileKind::Image;
    let found = signature::find(devices, is_file).unwrap_or(None);
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
            && devices.host_room().is_some() =>
        {
            Failure::new(format_args!(
                "{}: the file system that holds it is full, and mounting for writing takes some room: \
                 free some, or mount it to be read, with -o ro",
                source.display()
            ))
        }
        // A volume that can be found but not written can be read.
        None if !read_only && matches!(error, dendro_disk::Error::Failed(_)) => Failure::new(
            format_args!("{}: {error}; with -o ro it can be mounted to be read", source.display()),
        ),
        None => Failure::new(format_args!("{}: {error}", source.display())),
    }
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
