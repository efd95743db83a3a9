//! Which daemon has a volume open.

use std::path::Path;

use dendro_control::{Client, FindOutcome, Pong, Unresponsive};
use dendro_device::loop_backing_file;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

use crate::failure::Failure;

/// The daemon that has mounts of the volume on `source`. A daemon without mounts is about to end
/// and to release the device.
pub fn find(source: &Path) -> FindOutcome {
    let has_it = |pong: &Pong| has(pong, source);
    Client::find(|pong| !pong.views.is_empty() && has_it(pong), has_it)
}

/// The `dendro nbd` that serves the block devices of the volume on `source`.
pub fn serving_blocks(source: &Path) -> Option<(Client, Pong)> {
    let serves_it = |pong: &Pong| pong.serves_blocks && has(pong, source);
    match Client::find(serves_it, |_| false) {
        FindOutcome::Daemon(found) => Some(*found),
        FindOutcome::Unresponsive(_) | FindOutcome::Nobody => None,
    }
}

fn has(pong: &Pong, source: &Path) -> bool {
    let mut devices = std::iter::once(&pong.source).chain(&pong.devices);
    devices.any(|device| is_same_volume(Path::new(device), source))
}

/// Whether both paths name the same image or the same block device.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        // An image may lie on a file system that does not answer.
        let wanted = StatxFlags::TYPE | StatxFlags::INO;
        let attributes = statx(CWD, path, AtFlags::STATX_DONT_SYNC, wanted).ok()?;
        let is_block = FileType::from_raw_mode(attributes.stx_mode.into()) == FileType::BlockDevice;
        // All device files of a device have the same device number.
        Some(if is_block {
            (true, (attributes.stx_rdev_major, attributes.stx_rdev_minor), 0)
        } else {
            (false, (attributes.stx_dev_major, attributes.stx_dev_minor), attributes.stx_ino)
        })
    };
    one == other
        || identity(one).is_some_and(|identity_of_one| identity(other) == Some(identity_of_one))
}

/// Whether both paths name the same image or block device, or one of them is a loop device on the
/// other.
pub fn is_same_volume(one: &Path, other: &Path) -> bool {
    let behind = |path: &Path| loop_backing_file(path).unwrap_or_else(|| path.to_path_buf());
    is_same_file(one, other) || is_same_file(&behind(one), &behind(other))
}

/// The daemon that has mounts of the volume on `source`. A daemon that does not answer is an error.
pub fn answering(source: &Path) -> Result<Option<(Client, Pong)>, Failure> {
    match find(source) {
        FindOutcome::Nobody => Ok(None),
        FindOutcome::Daemon(found) => Ok(Some(*found)),
        FindOutcome::Unresponsive(mute) => Err(mute_failure(source, &mute)),
    }
}

/// A volume whose daemon does not answer cannot be mounted.
fn mute_failure(source: &Path, mute: &Unresponsive) -> Failure {
    Failure::new(format_args!("{} is in use: {mute}", source.display()))
}
