//! Opens the disk of a volume on its device, or on the several that it lies on.

use std::path::Path;
use std::sync::Arc;

use dendro_base::{Clock, SystemClock};
use dendro_device::{Device, FileDevice, ReadAhead, Retrying};
use dendro_disk::Error as DiskError;
use dendro_logdisk::{Discards, LogDisk};
use dendro_set::{DeviceSet, Members};

use crate::error::Result;
use crate::options::{Compression, OpenOptions};

/// The share of the cache that reading ahead may take besides.
const READ_AHEAD_SHARE: u64 = 8;

/// The devices of a volume, as one.
pub(crate) type Devices = DeviceSet<FileDevice>;

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

pub(crate) fn reading_ahead(
    device: impl Device + 'static,
    options: &OpenOptions,
) -> Arc<dyn Device> {
    let memory_bytes = options.cache_size_bytes / READ_AHEAD_SHARE;
    Arc::new(ReadAhead::with_memory(Retrying::new(device), memory_bytes))
}

pub(crate) fn disk_options(options: &OpenOptions) -> dendro_logdisk::OpenOptions {
    dendro_logdisk::OpenOptions {
        read_only: options.read_only,
        cache_size_bytes: options.cache_size_bytes,
        compression: options.compression.map(Compression::of_pages),
        discards: if options.discard { Discards::InTime } else { Discards::Never },
        ..dendro_logdisk::OpenOptions::default()
    }
}

/// Opens the disk of the volume that lies on the device at `path`, and maybe on others.
pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<(Arc<LogDisk>, Arc<Devices>)> {
    options.check()?;
    let of_device = dendro_device::OpenOptions::new().read_only(options.read_only);
    let device = of_device.open(path)?;
    let path = std::path::absolute(path)?;
    let members = Members { named: &options.devices, is_degraded: options.degraded };
    let devices = Arc::new(dendro_set::open(device, &path, members, &of_device, clock())?);
    let of_disk = dendro_logdisk::OpenOptions {
        // A volume that is spread over devices of which one is absent can only be read.
        read_only: devices.is_read_only(),
        is_on_set: devices.is_listed(),
        ..disk_options(options)
    };
    let mut first_error = None;
    // What cannot be read of one device is looked for on the next one.
    for _number in (0..).take_while(|number| devices.prefer(*number)) {
        let device = reading_ahead(Arc::clone(&devices), options);
        match LogDisk::open(device, of_disk.clone(), clock()) {
            Ok(disk) => return Ok((Arc::new(disk), devices)),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| DiskError::Io("it has no device".into())).into())
}
