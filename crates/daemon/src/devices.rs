//! Listing and changing the devices of a volume, mounted or not.

use std::path::{Path, PathBuf};

use dendro_base::Uuid;
use dendro_control::devices::{DevicesInfo, DevicesRequest};
use dendro_device::{Device, FileDevice, FileKind, OpenOptions as DeviceOptions};
use dendro_format::layout::BACKUP_SLOT_COUNT;
use dendro_format::roster::MemberState;
use dendro_format::superblock::{COMPATIBLE_BACKUPS, SUPERBLOCK_LEN_BYTES};
use dendro_logdisk::LogDisk;
use dendro_set::{MemberInfo, roster_on};

use crate::failure::Failure;
use crate::holder::is_same_file;
use crate::volume::devices::{Devices, device_infos, name_of};
use crate::volume::{random_bytes, signature};

/// The devices of the volume of `disk`, which was opened as `source`.
pub fn info(disk: &LogDisk, devices: &Devices, source: &Path) -> DevicesInfo {
    DevicesInfo {
        source: name_of(devices, source).display().to_string(),
        uuid: disk.superblock().uuid.to_string(),
        devices: device_infos(devices),
        left_to_copy_bytes: devices.left_to_copy_bytes(),
    }
}

/// Carries out `request`. Devices that are added are opened as `options` say, and are brought up
/// by [`Devices::bring_up_step`].
///
/// # Errors
/// Why it was not done, for the user.
pub fn change(
    disk: &LogDisk,
    devices: &Devices,
    source: &Path,
    request: &DevicesRequest,
    options: &DeviceOptions,
) -> Result<DevicesInfo, Failure> {
    match request {
        DevicesRequest::List => {}
        DevicesRequest::Add { path, force } => {
            add(disk, devices, Path::new(path), *force, options, None)?;
        }
        DevicesRequest::Remove { device } => {
            devices.remove(&member(devices, device)?.uuid).map_err(Failure::new)?;
        }
        DevicesRequest::Offline { device } => {
            devices.take_offline(&member(devices, device)?.uuid).map_err(Failure::new)?;
        }
        DevicesRequest::Replace { device, path, force } => {
            let path = Path::new(path);
            let old = replaced(devices, device.as_deref(), path)?.path;
            add(disk, devices, path, *force, options, Some(&old))?;
        }
    }
    Ok(info(disk, devices, source))
}

/// The device that a path or UUID names.
fn member(devices: &Devices, named: &str) -> Result<MemberInfo, Failure> {
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

/// The device that is to be replaced by the one at `new`.
fn replaced(devices: &Devices, named: Option<&str>, new: &Path) -> Result<MemberInfo, Failure> {
    match named {
        Some(named) => member(devices, named),
        None => match &devices.members()[..] {
            [only] => Ok(only.clone()),
            // It was asked for before, and goes on.
            [old, its] | [its, old] if old.leaves && is_same_file(&its.path, new) => {
                Ok(old.clone())
            }
            _ => Err(Failure::new(
                "the volume lies on several devices; say with `dendro device replace` which one is \
                 to be replaced",
            )),
        },
    }
}

/// Adds the device at `path`, in place of the member at `replaced` if there is one.
fn add(
    disk: &LogDisk,
    devices: &Devices,
    path: &Path,
    force: bool,
    options: &DeviceOptions,
    replaced: Option<&Path>,
) -> Result<(), Failure> {
    let superblock = disk.superblock();
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let members = devices.members();
    let is_it = |it: &&MemberInfo| {
        it.is_present && it.state != MemberState::Missing && is_same_file(&it.path, &path)
    };
    match members.iter().find(is_it).map(|member| member.state) {
        // It was found when the volume was opened.
        Some(MemberState::BroughtUp { .. }) => {
            let replaced = replaced.and_then(|path| uuid_of(devices, path));
            return replaced.map_or(Ok(()), |old| devices.replace(&old).map_err(Failure::new));
        }
        Some(_) => {
            return Err(Failure::new(format_args!(
                "{}: is one of the volume's devices already",
                path.display()
            )));
        }
        None => {}
    }
    let device = open_new(&path, devices.needed_bytes(), options)?;
    let returns = roster_on(&path).is_some_and(|roster| {
        roster.set == superblock.uuid && members.iter().any(|it| it.uuid == roster.member)
    });
    if !returns {
        check_replaceable(&path, &device, force)?;
    }
    let has_backups = superblock.compatible & COMPATIBLE_BACKUPS != 0;
    let backups_bytes = BACKUP_SLOT_COUNT * SUPERBLOCK_LEN_BYTES as u64;
    let used_bytes = superblock.layout.len_bytes() + if has_backups { backups_bytes } else { 0 };
    devices.check_room(used_bytes).map_err(Failure::new)?;
    if device.len_bytes() < devices.needed_bytes() {
        return Err(too_short(&path, device.len_bytes(), devices.needed_bytes()));
    }
    if !devices.is_listed() {
        let first: Option<PathBuf> = members.first().map(|member| member.path.clone());
        let member = Uuid::from_random(random_bytes()?);
        devices
            .list(superblock.uuid, member, first.unwrap_or_default(), used_bytes)
            .map_err(Failure::new)?;
    }
    // From here on, older software writes to none of them.
    disk.lie_on_set().map_err(Failure::new)?;
    let member = Uuid::from_random(random_bytes()?);
    // One that becomes the first member of a set has its UUID from now on.
    let replaced = replaced.and_then(|path| uuid_of(devices, path));
    devices.add(device, path, member, replaced).map(drop).map_err(Failure::new)
}

fn uuid_of(devices: &Devices, path: &Path) -> Option<Uuid> {
    devices.members().iter().find(|member| member.path == path).map(|member| member.uuid)
}

/// Opens a device that is to be added; an image that does not exist is made.
fn open_new(
    path: &Path,
    needed_bytes: u64,
    options: &DeviceOptions,
) -> Result<FileDevice, Failure> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            options.create(path, needed_bytes).map_err(Failure::new)
        }
        Ok(found) if found.is_file() && found.len() < needed_bytes => {
            Err(too_short(path, found.len(), needed_bytes))
        }
        _ => options.open(path).map_err(Failure::new),
    }
}

fn too_short(path: &Path, len_bytes: u64, needed_bytes: u64) -> Failure {
    let path = path.display().to_string();
    Failure::new(dendro_set::Error::TooShort { path, len_bytes, needed_bytes })
}

/// Refuses a device that holds something, unless that may be destroyed.
fn check_replaceable(path: &Path, device: &FileDevice, force: bool) -> Result<(), Failure> {
    let found = signature::find(device, device.kind() == FileKind::Image).map_err(Failure::new)?;
    match found {
        Some(found) if !force => Err(Failure::new(format_args!(
            "{}: holds {found}; --force destroys it",
            path.display()
        ))),
        _ => Ok(()),
    }
}
