//! The devices of a volume on several take in what they have got, or become longer.

use dendro_format::roster::MemberState;
use dendro_logdisk::LogDisk;
use dendro_set::MemberInfo;

use crate::text;
use crate::volume::devices::Devices;

/// The bytes that the volume gains if its devices, or the one that is named, take in what they have
/// got since.
pub(super) fn gained_bytes(device: &Devices, named: Option<&MemberInfo>) -> Result<u64, String> {
    let mut all_bytes = 0;
    for one in members(device, named) {
        if let Some((present_bytes, _)) = room_of(device, &one)? {
            all_bytes += device.gained_bytes(&one.uuid, present_bytes);
        }
    }
    Ok(all_bytes)
}

/// Has the devices, or the one that is named, take in what they have got since. The named one is
/// made longer by `lacking_bytes` more, in whole segments.
pub(super) fn lengthen(
    disk: &LogDisk,
    device: &Devices,
    named: Option<&MemberInfo>,
    lacking_bytes: u64,
) -> Result<(), String> {
    let allocates = disk.superblock().is_allocated();
    for one in members(device, named) {
        let Some((present_bytes, is_resizable)) = room_of(device, &one)? else { continue };
        let gained_bytes = device.gained_bytes(&one.uuid, present_bytes);
        let mut len_bytes = present_bytes;
        if lacking_bytes > 0 {
            let wanted = device.end_with(&one.uuid, gained_bytes + lacking_bytes);
            len_bytes = len_bytes.max(wanted.unwrap_or(0));
        }
        let path = one.path.display();
        if len_bytes > present_bytes && !is_resizable {
            return Err(format!(
                "{path}: is a block device of {}, and {} would be needed; make it larger first",
                text::size(present_bytes),
                text::size(len_bytes)
            ));
        }
        // So it is found if the power goes, wherever its list of devices lies then.
        device.announce_end(&one.uuid, len_bytes);
        state_ends(disk)?;
        device
            .lengthen_member(&one.uuid, len_bytes, allocates)
            .map_err(|error| format!("making it longer: {error}"))?;
    }
    state_ends(disk)
}

/// Has the volume state where its devices are about to end if it is so long and they hold the same.
pub(super) fn announce(disk: &LogDisk, device: &Devices, len_bytes: u64) -> Result<(), String> {
    let is_whole = |one: &MemberInfo| one.is_present && one.state == MemberState::InSync;
    if let Some(one) = device.members().into_iter().find(|one| !is_whole(one)) {
        return Err(format!(
            "{}: does not have everything, so the volume keeps its length; `dendro device add` \
             brings it back, `dendro device remove` gives it up, and `dendro device list` tells how \
             far it is",
            one.path.display()
        ));
    }
    device.announce_len(len_bytes);
    state_ends(disk)
}

/// Has the volume state where its devices end.
pub(super) fn state_ends(disk: &LogDisk) -> Result<(), String> {
    disk.state_member_ends().map_err(|error| not_grown(&error))
}

/// All of them that do not leave, or the one that is named.
fn members(device: &Devices, named: Option<&MemberInfo>) -> Vec<MemberInfo> {
    match named {
        Some(one) => vec![one.clone()],
        None => device.members().into_iter().filter(|one| !one.leaves).collect(),
    }
}

fn room_of(device: &Devices, one: &MemberInfo) -> Result<Option<(u64, bool)>, String> {
    device.room_of(&one.uuid).map_err(|error| error.to_string())
}

/// Why a volume could not become longer.
pub(super) fn not_grown(error: &dendro_disk::Error) -> String {
    match error {
        dendro_disk::Error::NoSpace { .. } => {
            "the file system that holds it is full: free some room there".to_owned()
        }
        error => error.to_string(),
    }
}
