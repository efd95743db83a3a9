//! Requests about the block devices in a volume, for all who have a volume open.

use dendro_block::{Devices, Listed};
use dendro_control::block_devices::{
    BlockCompression, BlockConnectionInfo, BlockDeviceInfo, BlockDevicesRequest,
};
use dendro_disk::{ListCompression, View};
use dendro_nbd::{Connection, Peer};

/// Carries out a request. `connections` are those of clients of NBD.
///
/// # Errors
/// Why it was not done.
pub fn answer(
    devices: &Devices,
    connections: &[Connection],
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
    let info = |device: Listed| {
        let connected = devices.connected(device.view, connections).map(connection).collect();
        info(device, connected)
    };
    Ok(answered.into_iter().map(info).collect())
}

fn info(device: Listed, connections: Vec<BlockConnectionInfo>) -> BlockDeviceInfo {
    let Listed { view, name, size_bytes, compression } = device;
    let compression = match compression {
        ListCompression::AsOthers => BlockCompression::Default,
        ListCompression::Never => BlockCompression::None,
        ListCompression::Lz4 => BlockCompression::Lz4,
        ListCompression::Zstd => BlockCompression::Zstd,
    };
    let View { branch, epoch } = view;
    BlockDeviceInfo { name, branch, epoch, size_bytes, compression, connections }
}

fn connection(connection: &Connection) -> BlockConnectionInfo {
    let (address, pid) = match connection.peer {
        Peer::Address(address) => (Some(address.to_string()), None),
        Peer::Process(pid) => (None, pid),
    };
    BlockConnectionInfo {
        address,
        pid,
        since_unix_s: connection.since.secs(),
        can_write: !connection.is_read_only,
        encrypted: connection.is_encrypted,
    }
}

const fn hint(compression: BlockCompression) -> ListCompression {
    match compression {
        BlockCompression::Default => ListCompression::AsOthers,
        BlockCompression::None => ListCompression::Never,
        BlockCompression::Lz4 => ListCompression::Lz4,
        BlockCompression::Zstd => ListCompression::Zstd,
    }
}
