//! The device of a volume, on which parts of retired segments lie in their spares.

use dendro_base::sync::Arc;
use dendro_device::{Device, RedirectedDevice, Redirection};
use dendro_disk::Error;
use dendro_format::Superblock;

/// A device on which parts of some segments lie in others.
pub(crate) type VolumeDevice = RedirectedDevice<Arc<dyn Device>>;

/// Redirects what, by this superblock, lies in spare segments.
///
/// # Errors
/// [`Error::Corrupted`] when the superblock states something else than the device can have.
pub(crate) fn redirect(device: &VolumeDevice, superblock: &Superblock) -> Result<(), Error> {
    let ranges = superblock.retired.iter().filter_map(|one| one.moved_range(superblock.layout));
    let redirections =
        ranges.map(|(offset, len_bytes, to)| Redirection { offset, len_bytes, to }).collect();
    device
        .redirect(redirections)
        .map_err(|error| Error::Corrupted(format!("the list of retired segments: {error}")))
}
