//! What a volume lies on: one device, or several that hold the same or parts of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dendro_base::{Clock, SystemClock, Uuid};
use dendro_control::devices::{DeviceInfo, DeviceState};
use dendro_device::{FileDevice, OpenOptions as DeviceOptions};
use dendro_format::layout::{MIN_SEGMENT_COUNT, MIN_SEGMENT_SIZE_LOG2};
use dendro_format::roster::MemberState;
pub use dendro_set::Members;
use dendro_set::{DeviceSet, Error, MemberInfo};

use super::LAST_DAEMON_GRACE;
use crate::failure::Failure;
use crate::holder::{self, is_same_file};
use crate::text;

/// The smallest volume: the fewest segments of the smallest size.
const MIN_BYTES: u64 = (MIN_SEGMENT_COUNT as u64) << MIN_SEGMENT_SIZE_LOG2;

/// How long another process may have a device before it is asked who that is: one that was told to
/// end a moment ago may not know it yet.
const SHORT_WAIT: Duration = Duration::from_millis(500);

/// The devices of a volume, as one.
pub type Devices = DeviceSet<FileDevice>;

/// Opens the devices of the volume on `source`, by the name `path`, which may be that of a loop
/// device on it.
///
/// # Errors
/// As [`dendro_set::open`].
pub fn open_devices(
    source: &Path,
    path: &Path,
    options: &DeviceOptions,
    members: Members<'_>,
) -> Result<Devices, Error> {
    let device = options.open(path).map_err(|error| of_device(path, error))?;
    let source = std::path::absolute(source).unwrap_or_else(|_| source.to_path_buf());
    dendro_set::open(device, &source, members, options, clock())
}

/// Opens them for reading, whichever of them are there. If another process has one, this waits for
/// a daemon that is about to end.
///
/// # Errors
/// Why that is not possible, for the user.
pub fn open_devices_to_read(source: &Path, options: &DeviceOptions) -> Result<Devices, Failure> {
    let members = Members { named: &[], is_degraded: true };
    let options = options.clone().read_only(true);
    open_when_free(source, &options, true, |options| open_devices(source, source, options, members))
}

/// Opens them for writing, all of them. If another process has one, this waits for a daemon that is
/// about to end.
///
/// # Errors
/// Why that is not possible, for the user.
pub fn open_devices_to_write(source: &Path, options: &DeviceOptions) -> Result<Devices, Failure> {
    let members = Members { named: &[], is_degraded: false };
    open_when_free(source, options, false, |options| open_devices(source, source, options, members))
}

/// Opens one of them alone. If another process has it, this waits for a daemon that is about to
/// end.
///
/// # Errors
/// Why that is not possible, for the user.
pub fn open_device_alone(
    source: &Path,
    options: &DeviceOptions,
    read_only: bool,
) -> Result<FileDevice, Failure> {
    let options = options.clone().read_only(read_only);
    let open =
        |options: &DeviceOptions| options.open(source).map_err(|error| of_device(source, error));
    open_when_free(source, &options, read_only, open)
}

/// Takes a device out of its volume, of which no other device need be there, as `open_when_free`
/// does. Returns the UUID of the volume; `None`: the device is none of a volume on several.
///
/// # Errors
/// Why that is not possible, for the user.
pub fn forget_device(device: &Path) -> Result<Option<Uuid>, Failure> {
    let forget = |options: &DeviceOptions| match dendro_set::forget(device, options) {
        Err(Error::NoSet) => Ok(None),
        forgotten => forgotten.map(Some),
    };
    open_when_free(device, &DeviceOptions::new(), false, forget)
}

/// Does `open` on `source`, and waits if another process has a device of it. A daemon whose last
/// mount has gone ends by itself; a `dendro nbd` does not, which is said at once.
fn open_when_free<T>(
    source: &Path,
    options: &DeviceOptions,
    read_only: bool,
    open: impl Fn(&DeviceOptions) -> Result<T, Error>,
) -> Result<T, Failure> {
    let opened = match open(&options.clone().lock_wait(SHORT_WAIT)) {
        Err(error) if is_in_use(&error) => {
            check_not_served(source)?;
            open(&options.clone().lock_wait(LAST_DAEMON_GRACE))
        }
        opened => opened,
    };
    opened.map_err(|error| explain_devices(error, read_only))
}

/// Fails if a `dendro nbd` serves the block devices of the volume on `source`. It does not end by
/// itself, as the daemon of a mount does.
pub(crate) fn check_not_served(source: &Path) -> Result<(), Failure> {
    match holder::serving_blocks(source) {
        Some((_, pong)) => Err(Failure::new(format_args!(
            "{}: its block devices are served by process {} (dendro nbd); end that first",
            source.display(),
            pong.pid
        ))),
        None => Ok(()),
    }
}

fn of_device(path: &Path, source: dendro_device::Error) -> Error {
    Error::Device { path: path.display().to_string(), source }
}

/// Explains why devices cannot be opened, for a user who wants to open a volume.
pub fn explain_devices(error: Error, read_only: bool) -> Failure {
    match error {
        Error::Device { source, .. } => explain_device(&source, read_only),
        error => Failure::new(error),
    }
}

/// Whether another process has one of the devices.
pub(crate) fn is_in_use(error: &Error) -> bool {
    matches!(error, Error::Device { source: dendro_device::Error::InUse { .. }, .. })
}

/// The device by which the volume is named: `source`, as long as it is one of the devices, or else
/// the first one that has everything.
pub fn name_of(devices: &Devices, source: &Path) -> PathBuf {
    let present = devices.present_paths();
    match present.first() {
        Some(first) if !present.iter().any(|path| path == source) => first.clone(),
        _ => source.to_path_buf(),
    }
}

/// The device that a path or UUID names.
pub(crate) fn member(devices: &Devices, named: &str) -> Result<MemberInfo, Failure> {
    let members = devices.members();
    let uuid = named.parse::<Uuid>().ok();
    let is_named = |member: &&MemberInfo| {
        uuid == Some(member.uuid)
            || member.path == Path::new(named)
            || member.is_present && is_same_file(&member.path, Path::new(named))
    };
    members.iter().find(is_named).cloned().ok_or_else(|| {
        Failure::new(format_args!(
            "{named}: is none of the volume's devices, which `dendro device list` shows"
        ))
    })
}

/// The devices, as they are told of.
pub(crate) fn device_infos(devices: &Devices) -> Vec<DeviceInfo> {
    let is_listed = devices.is_listed();
    devices.members().iter().map(|member| device_info(member, is_listed)).collect()
}

fn device_info(member: &MemberInfo, is_listed: bool) -> DeviceInfo {
    DeviceInfo {
        path: member.path.display().to_string(),
        uuid: if is_listed { member.uuid.to_string() } else { String::new() },
        state: match member.state {
            MemberState::InSync => DeviceState::InSync,
            MemberState::Missing => DeviceState::Missing,
            MemberState::BroughtUp { .. } => DeviceState::BroughtUp,
        },
        is_present: member.is_present,
        leaves: member.leaves,
        since_unix_s: member.since.secs(),
        size_bytes: member.len_bytes,
        failed_reads: member.failed_reads,
        held_bytes: member.held_bytes,
        is_fast: member.is_fast,
    }
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
