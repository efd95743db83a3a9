//! Listing and changing the devices of a volume, mounted or not.

use std::path::{Path, PathBuf};

use dendro_base::Uuid;
use dendro_control::devices::{DevicesInfo, DevicesRequest};
use dendro_device::{Device, FileDevice, FileKind, OpenOptions as DeviceOptions};
use dendro_format::layout::BACKUP_SLOT_COUNT;
use dendro_format::roster::MemberState;
use dendro_format::superblock::{COMPATIBLE_BACKUPS, SUPERBLOCK_LEN_BYTES};
use dendro_logdisk::LogDisk;
use dendro_set::{MemberInfo, part_needed_bytes, roster_on};

use crate::failure::Failure;
use crate::holder::is_same_file;
use crate::resizing::{Tell, shrink};
use crate::text;
use crate::volume::devices::{Devices, device_infos, member, name_of};
use crate::volume::{random_bytes, signature};

/// The devices of the volume of `disk`, which was opened as `source`.
pub fn info(disk: &LogDisk, devices: &Devices, source: &Path) -> DevicesInfo {
    DevicesInfo {
        source: name_of(devices, source).display().to_string(),
        uuid: disk.superblock().uuid.to_string(),
        devices: device_infos(devices),
        left_to_copy_bytes: devices.left_to_copy_bytes(),
        is_spread: devices.is_spread(),
    }
}

/// Carries out `request`. Devices that are added are opened as `options` say, and are brought up
/// by [`Devices::bring_up_step`], which also moves what devices hold that leave a spread volume.
/// `tell` is told of a volume that becomes shorter for that, and may have it given up.
///
/// # Errors
/// Why it was not done, for the user.
pub fn change(
    disk: &LogDisk,
    devices: &Devices,
    source: &Path,
    request: &DevicesRequest,
    options: &DeviceOptions,
    tell: &mut Tell<'_>,
) -> Result<DevicesInfo, Failure> {
    match request {
        DevicesRequest::List => {}
        DevicesRequest::Add { path, force, copies, is_fast } => {
            let path = Path::new(path);
            let is_to_be_spread = is_to_be_spread(disk, devices, *copies)?;
            if *is_fast && !is_to_be_spread && !devices.is_spread() {
                let path = path.display().to_string();
                return Err(Failure::new(dendro_set::Error::NotSpread { path }));
            }
            if is_to_be_spread {
                check_part(disk, devices, path, *force, options)?;
                begin_spread(disk, devices)?;
            }
            let added = add(disk, devices, path, *force, options, None)?;
            if *is_fast {
                devices.set_fast(&added, true).map_err(Failure::new)?;
            }
        }
        DevicesRequest::Set { device, is_fast } => {
            let one = member(devices, device)?;
            devices.set_fast(&one.uuid, *is_fast).map_err(Failure::new)?;
        }
        DevicesRequest::Remove { device } => {
            let one = member(devices, device)?;
            make_room(disk, devices, &one, tell)?;
            devices.remove(&one.uuid).map_err(Failure::new)?;
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

/// Makes a spread volume so much shorter that the other devices have room for what `leaving` holds.
fn make_room(
    disk: &LogDisk,
    devices: &Devices,
    leaving: &MemberInfo,
    tell: &mut Tell<'_>,
) -> Result<(), Failure> {
    let surplus_bytes = devices.surplus_bytes(&leaving.uuid).unwrap_or(0);
    let others = devices.members();
    let are_left = others.iter().any(|other| other.uuid != leaving.uuid && !other.leaves);
    if surplus_bytes == 0 || !are_left {
        return Ok(());
    }
    let len_bytes = devices.len_bytes().saturating_sub(surplus_bytes);
    let fail = |why: String| {
        Failure::new(format_args!(
            "{}: what it holds has to go to the other devices, for which the volume becomes \
             shorter by {}: {why}",
            leaving.path.display(),
            text::size(surplus_bytes)
        ))
    };
    // The engine would say the same of a volume of next to no segments, in its own words.
    let superblock = disk.superblock();
    superblock.layout_on(len_bytes, len_bytes).map_err(|error| fail(error.problem.into()))?;
    shrink(disk, devices, len_bytes, len_bytes, tell).map_err(fail)
}

/// Whether a volume that lies on one device is to be spread over it and another one. Refuses what
/// the volume cannot become.
fn is_to_be_spread(disk: &LogDisk, devices: &Devices, copies: Option<u8>) -> Result<bool, Failure> {
    match (copies, devices.is_spread(), devices.members().len()) {
        (Some(1), true, _) => {
            // A crash may have come before it was stated.
            disk.lie_on_set(true).map(|()| false).map_err(Failure::new)
        }
        (None, ..) | (Some(2), false, _) => Ok(false),
        (Some(1), false, 1) => Ok(true),
        (Some(1), false, _) => Err(Failure::new(dendro_set::Error::NotAlone)),
        (Some(2), true, _) => Err(Failure::new(
            "the volume is spread over its devices, each of which holds a part of it alone; to \
             mirror it, leave one device with `dendro device remove` and `dendro send` the volume \
             to one that was made with `dendro mkfs --copies 2`",
        )),
        (Some(copies), ..) => Err(Failure::new(format_args!(
            "{copies} copies: with 1, the volume is spread over its devices; with 2, each device \
             holds all of it"
        ))),
    }
}

/// Refuses a device that cannot become a part of a volume that is to be spread.
fn check_part(
    disk: &LogDisk,
    devices: &Devices,
    path: &Path,
    force: bool,
    options: &DeviceOptions,
) -> Result<(), Failure> {
    if devices.members().iter().any(|it| is_same_file(&it.path, path)) {
        return Err(Failure::new(format_args!(
            "{}: is one of the volume's devices already",
            path.display()
        )));
    }
    let device = options.open(path).map_err(Failure::new)?;
    check_replaceable(path, &device, force)?;
    let needed_bytes = part_needed_bytes(segment_size_log2(disk));
    match device.len_bytes() < needed_bytes {
        true => Err(too_short(path, device.len_bytes(), needed_bytes)),
        false => Ok(()),
    }
}

/// Makes the only device of a volume the first one of those over which it is spread.
fn begin_spread(disk: &LogDisk, devices: &Devices) -> Result<(), Failure> {
    let superblock = disk.superblock();
    let first: Option<PathBuf> = devices.members().into_iter().next().map(|member| member.path);
    let member = Uuid::from_random(random_bytes()?);
    let segments = (segment_size_log2(disk), superblock.layout.segment_count());
    devices
        .begin_spread(superblock.uuid, member, first.unwrap_or_default(), segments)
        .map_err(Failure::new)?;
    // From here on, older software does not write to it.
    disk.lie_on_set(true).map_err(Failure::new)
}

fn segment_size_log2(disk: &LogDisk) -> u8 {
    disk.superblock().layout.segment_size_bytes().ilog2() as u8
}

/// Adds the device at `path` to a spread volume, which becomes longer by what it has room for; in
/// place of the member at `replaced`, by what it has more.
fn add_part(
    disk: &LogDisk,
    devices: &Devices,
    path: &Path,
    force: bool,
    options: &DeviceOptions,
    replaced: Option<&Path>,
) -> Result<Uuid, Failure> {
    let device = options.open(path).map_err(Failure::new)?;
    check_replaceable(path, &device, force)?;
    let member = Uuid::from_random(random_bytes()?);
    let replaced = replaced.and_then(|path| uuid_of(devices, path));
    devices.add(device, path.to_path_buf(), member, replaced).map_err(Failure::new)?;
    let most_bytes = devices.most_len_bytes().unwrap_or(0);
    if most_bytes > devices.len_bytes() {
        disk.grow(u64::MAX, most_bytes).map_err(Failure::new)?;
    }
    Ok(member)
}

/// Adds the device at `path`, in place of the member at `replaced` if there is one. Returns its
/// UUID.
fn add(
    disk: &LogDisk,
    devices: &Devices,
    path: &Path,
    force: bool,
    options: &DeviceOptions,
    replaced: Option<&Path>,
) -> Result<Uuid, Failure> {
    let superblock = disk.superblock();
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let members = devices.members();
    let is_it = |it: &&MemberInfo| {
        it.is_present && it.state != MemberState::Missing && is_same_file(&it.path, &path)
    };
    match members.iter().find(is_it).map(|member| (member.state, member.uuid)) {
        // It was found when the volume was opened.
        Some((MemberState::BroughtUp { .. }, uuid)) => {
            let replaced = replaced.and_then(|path| uuid_of(devices, path));
            replaced.map_or(Ok(()), |old| devices.replace(&old)).map_err(Failure::new)?;
            return Ok(uuid);
        }
        Some(_) => {
            return Err(Failure::new(format_args!(
                "{}: is one of the volume's devices already",
                path.display()
            )));
        }
        None => {}
    }
    if devices.is_spread() {
        return add_part(disk, devices, &path, force, options, replaced);
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
    disk.lie_on_set(false).map_err(Failure::new)?;
    let member = Uuid::from_random(random_bytes()?);
    // One that becomes the first member of a set has its UUID from now on.
    let replaced = replaced.and_then(|path| uuid_of(devices, path));
    devices.add(device, path, member, replaced).map_err(Failure::new)
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
