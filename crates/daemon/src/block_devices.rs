//! Requests about the block devices in a volume, for all who have a volume open.

use dendro_block::{Devices, Listed};
use dendro_control::block_devices::{BlockDeviceInfo, BlockDevicesRequest};

/// Carries out a request.
///
/// # Errors
/// Why it was not done.
pub fn answer(
    devices: &Devices,
    request: &BlockDevicesRequest,
) -> dendro_block::Result<Vec<BlockDeviceInfo>> {
    let answered = match request {
        BlockDevicesRequest::List => devices.all()?,
        BlockDevicesRequest::Create { name, size_bytes } => {
            vec![devices.create(name, *size_bytes)?]
        }
        BlockDevicesRequest::Resize { name, size_bytes, shrink } => {
            vec![devices.resize(name, *size_bytes, *shrink)?]
        }
        BlockDevicesRequest::Delete { name, snapshots } => devices.delete(name, *snapshots)?,
    };
    Ok(answered.into_iter().map(info).collect())
}

fn info(Listed { view, name, size_bytes }: Listed) -> BlockDeviceInfo {
    BlockDeviceInfo { name, branch: view.branch, epoch: view.epoch, size_bytes }
}
