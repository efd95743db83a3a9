//! Sets of image files and block devices.

use std::path::{Path, PathBuf};

use dendro_base::sync::Arc;
use dendro_base::{Clock, Uuid};
use dendro_device::{FileDevice, FileKind, OpenOptions};
use dendro_format::roster::MemberState;

use crate::assemble::{Found, newest};
use crate::error::{Error, Result};
use crate::member::{erase_rosters, usable_len};
use crate::set::DeviceSet;

/// How the devices of a volume are found.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    /// Devices that were named beside the first.
    pub named: &'a [PathBuf],
    /// Whether members that have everything may be absent.
    pub is_degraded: bool,
}

/// Opens the volume that lies on `device`, which was opened as `path`, and on others. Without a
/// roster on it, it is a single device. The others are looked for where they were last, among those
/// that were named, and among the block devices of this machine.
///
/// # Errors
/// As [`DeviceSet::assemble`]; [`Error::NoMember`] for a device that was named and is none of the
/// volume's; [`Error::Device`] when one of these cannot be opened.
pub fn open(
    device: FileDevice,
    path: &Path,
    members: Members<'_>,
    options: &OpenOptions,
    clock: Arc<dyn Clock>,
) -> Result<DeviceSet<FileDevice>> {
    let first = match Found::look(device, path.to_path_buf()) {
        Ok(found) => found,
        Err(device) => {
            if let Some(named) = members.named.first() {
                let why = "the volume lies on one device alone, so leave out -o device=";
                let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
                let path = named.display().to_string();
                let source = dendro_device::Error::Open { path: path.clone(), source };
                return Err(Error::Device { path, source });
            }
            return Ok(DeviceSet::single(device, path.to_path_buf(), clock));
        }
    };
    let set = first.roster().set;
    let options = options.clone().resizes_backing_file(false);
    let mut found = vec![first];
    for named in members.named {
        let named = std::path::absolute(named).unwrap_or_else(|_| named.clone());
        let fail = |source| Error::Device { path: named.display().to_string(), source };
        let device = options.open(&named).map_err(fail)?;
        match Found::look(device, named.clone()) {
            Ok(one) => found.push(one),
            Err(_) => {
                return Err(Error::NoMember { path: named.display().to_string(), wanted: set });
            }
        }
    }
    // The newest list counts, and a member that is found may have a newer one.
    while let Some(one) = find_next(&found, &options)? {
        found.push(one);
    }
    DeviceSet::assemble(found, members.is_degraded, clock)
}

/// A member that is listed and was not found yet.
fn find_next(
    found: &[Found<FileDevice>],
    options: &OpenOptions,
) -> Result<Option<Found<FileDevice>>> {
    let Some(roster) = newest(found) else { return Ok(None) };
    let is_there = |uuid: &Uuid| found.iter().any(|one| one.roster().member == *uuid);
    let absent = || roster.members.iter().filter(|listed| !is_there(&listed.uuid));
    for listed in absent() {
        if listed.path.as_os_str().is_empty() || !holds(&listed.path, &roster.set, &listed.uuid) {
            continue;
        }
        // It is there, so whoever keeps it from being opened is to be known, if it is needed.
        let fail = |source| Error::Device { path: listed.path.display().to_string(), source };
        let device = match options.open(&listed.path) {
            Err(_) if listed.state == MemberState::Missing => continue,
            opened => opened.map_err(fail)?,
        };
        if let Ok(one) = Found::look(device, listed.path.clone()) {
            return Ok(Some(one));
        }
    }
    if absent().all(|listed| listed.state == MemberState::Missing) {
        return Ok(None);
    }
    for path in block_devices() {
        let Some(listed) = absent().find(|listed| holds(&path, &roster.set, &listed.uuid)) else {
            continue;
        };
        let fail = |source| Error::Device { path: path.display().to_string(), source };
        let device = options.open(&path).map_err(fail)?;
        if let Ok(one) = Found::look(device, path)
            && one.roster().member == listed.uuid
        {
            return Ok(Some(one));
        }
    }
    Ok(None)
}

/// Whether a member lies there, as far as can be seen without a lock.
fn holds(path: &Path, set: &Uuid, member: &Uuid) -> bool {
    roster_on(path).is_some_and(|roster| roster.set == *set && roster.member == *member)
}

/// The roster of the set that a device is a member of, read without a lock.
#[must_use]
pub fn roster_on(path: &Path) -> Option<dendro_format::Roster> {
    let options = OpenOptions::new().unlocked().direct(dendro_device::Direct::Never);
    let found = Found::look(options.open(path).ok()?, path.to_path_buf()).ok()?;
    Some(found.roster().clone())
}

/// Takes a device out of its set, which it does not tell: what lies on it is the volume no more.
/// Returns the set.
///
/// # Errors
/// [`Error::NoSet`] if it is no member of one; [`Error::Device`].
pub fn forget(path: &Path, options: &OpenOptions) -> Result<Uuid> {
    let fail = |source| Error::Device { path: path.display().to_string(), source };
    let device = options.open(path).map_err(fail)?;
    let found = Found::look(device, path.to_path_buf()).map_err(|_| Error::NoSet)?;
    erase_rosters(found.device(), found.end_bytes).map_err(fail)?;
    Ok(found.roster().set)
}

/// The block devices of this machine that are no optical or floppy drives.
fn block_devices() -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/partitions").unwrap_or_default();
    let names = table.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3));
    let names = names.filter(|name| !name.starts_with("sr") && !name.starts_with("fd"));
    names.map(|name| Path::new("/dev").join(name)).collect()
}

impl DeviceSet<FileDevice> {
    /// What the first device lies on.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.first().map_or(FileKind::Image, |device| device.kind())
    }

    /// Whether all devices can be made longer, as images can. A single one can be made shorter too.
    #[must_use]
    pub fn is_resizable(&self) -> bool {
        let state = self.state.read();
        let mut devices = state.slots.iter().filter_map(|slot| slot.device.as_ref());
        devices.all(|device| device.is_resizable())
    }

    /// The length that the volume can have on the devices as they are outside: see
    /// [`FileDevice::present_len_bytes`]. Mirrored members all hold it. A spread one has the length
    /// that its rosters state.
    ///
    /// # Errors
    /// As there.
    pub fn present_len_bytes(&self) -> dendro_device::Result<u64> {
        let len_bytes = dendro_device::Device::len_bytes(self);
        let (is_listed, devices) = {
            let state = self.state.read();
            let devices = state.slots.iter().filter_map(|slot| slot.device.clone());
            (state.is_listed, devices.collect::<Vec<_>>())
        };
        if self.is_spread() {
            return Ok(len_bytes);
        }
        let mut least = u64::MAX;
        for device in devices {
            let present_bytes = device.present_len_bytes()?;
            let usable = if is_listed { usable_len(present_bytes) } else { Some(present_bytes) };
            least = least.min(usable.unwrap_or(0));
        }
        // It is not less than the rosters state.
        Ok(if is_listed { least.max(len_bytes) } else { least })
    }

    /// The length that a member has outside: see [`FileDevice::present_len_bytes`]; and whether it
    /// can be made longer. `None`: it is not there.
    ///
    /// # Errors
    /// As there.
    pub fn room_of(&self, uuid: &Uuid) -> dendro_device::Result<Option<(u64, bool)>> {
        let device = {
            let state = self.state.read();
            state.position(uuid).and_then(|at| state.slots[at].in_sync().cloned())
        };
        let Some(device) = device else { return Ok(None) };
        Ok(Some((device.present_len_bytes()?, device.is_resizable())))
    }

    /// Releases the claim on the block device with this path, for a mount that is made of it; see
    /// [`FileDevice::release_claim`].
    pub fn release_claim(&self, path: &Path) {
        if let Some(device) = self.device_at(path) {
            device.release_claim();
        }
    }

    /// Claims it again; see [`FileDevice::claim_again`].
    ///
    /// # Errors
    /// As there.
    pub fn claim_again(&self, path: &Path) -> dendro_device::Result<()> {
        self.device_at(path).map_or(Ok(()), |device| device.claim_again())
    }

    /// Releases the locks of all devices; see [`FileDevice::release`].
    pub fn release(&self) {
        for slot in &self.state.read().slots {
            slot.device.iter().for_each(|device| device.release());
        }
    }

    fn device_at(&self, path: &Path) -> Option<Arc<FileDevice>> {
        let state = self.state.read();
        let devices = state.slots.iter().filter_map(|slot| slot.device.as_ref());
        devices.into_iter().find(|device| device.path() == path).cloned()
    }
}
