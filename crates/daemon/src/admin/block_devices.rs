//! Requests about the block devices in the volume.

use dendro_control::AdminError;
use dendro_control::block_devices::{BlockDeviceInfo, BlockDevicesRequest};

use super::refusal::refuse;
use crate::block_devices;
use crate::state::Daemon;

impl Daemon<'_> {
    /// Lists or changes the block devices.
    pub(super) fn answer_block_devices(
        &self,
        request: &BlockDevicesRequest,
    ) -> Result<Vec<BlockDeviceInfo>, AdminError> {
        // One change of versions at a time.
        let _changes = (*request != BlockDevicesRequest::List).then(|| self.changes.lock());
        block_devices::answer(&self.block_devices, request).map_err(refuse)
    }
}
