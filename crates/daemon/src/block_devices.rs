//! Requests about the block devices in a volume, for all who have a volume open.

use dendro_block::{Devices, Listed};
use dendro_control::block_devices::{BlockCompression, BlockDeviceInfo, BlockDevicesRequest};
use dendro_disk::ListCompression;

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
        BlockDevicesRequest::Create { name, size_bytes, compression } => {
            vec![devices.create(name, *size_bytes, hint(*compression))?]
        }
        BlockDevicesRequest::Resize { name, size_bytes, shrink } => {
            vec![devices.resize(name, *size_bytes, *shrink)?]
        }
        BlockDevicesRequest::Delete { name, snapshots } => devices.delete(name, *snapshots)?,
    };
    Ok(answered.into_iter().map(info).collect())
}

fn info(Listed { view, name, size_bytes, compression }: Listed) -> BlockDeviceInfo {
    let compression = match compression {
        ListCompression::AsOthers => BlockCompression::Default,
        ListCompression::Never => BlockCompression::None,
        ListCompression::Lz4 => BlockCompression::Lz4,
        ListCompression::Zstd => BlockCompression::Zstd,
    };
    BlockDeviceInfo { name, branch: view.branch, epoch: view.epoch, size_bytes, compression }
}

const fn hint(compression: BlockCompression) -> ListCompression {
    match compression {
        BlockCompression::Default => ListCompression::AsOthers,
        BlockCompression::None => ListCompression::Never,
        BlockCompression::Lz4 => ListCompression::Lz4,
        BlockCompression::Zstd => ListCompression::Zstd,
    }
}
