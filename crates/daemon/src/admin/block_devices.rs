//! Requests about the block devices in the volume.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use dendro_base::{Clock, SystemClock};
use dendro_block::Devices;
use dendro_control::block_devices::{
    BlockDeviceInfo, BlockDevicesRequest, ServeBlockDevicesRequest, ServingInfo,
};
use dendro_control::{AdminError, ServedInfo};
use dendro_disk::LogicalDisk;
use dendro_nbd::{Exports, Listener, Server, TlsConfig};

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
        block_devices::answer(&self.block_devices, &self.block_activity.connections(), request)
            .map_err(refuse)
    }

    /// Serves the block devices at a socket, until the client or the last mount is gone.
    pub(super) fn serve_block_devices_at(
        &self,
        request: &ServeBlockDevicesRequest,
        listener: Option<OwnedFd>,
        tell: &mut dyn FnMut(Option<ServingInfo>) -> ControlFlow<()>,
    ) -> Result<(), AdminError> {
        let listener = listener.ok_or_else(|| AdminError("no socket came with it".into()))?;
        let listener = Listener::from_descriptor(listener).map_err(refuse)?;
        let read_tls = |directory: &String| {
            TlsConfig::read(Path::new(directory))
                .map_err(|error| AdminError(format!("{directory}: {error}")))
        };
        let tls = request.tls_certificates.as_ref().map(read_tls).transpose()?;
        let devices = match request.read_only {
            true => self.block_devices.for_reading(),
            false => self.block_devices.clone(),
        };
        let export_count = devices.all().map_err(refuse)?.len() as u64;
        let info = ServedInfo {
            uri: request.uri.clone(),
            pid: request.pid,
            software: env!("CARGO_PKG_VERSION").into(),
            read_only: self.why_no_writes(&devices),
            since_unix_s: SystemClock.now().secs(),
        };
        let activity = Arc::clone(&self.block_activity);
        let start =
            || Server::start(listener, Arc::new(devices) as Arc<dyn Exports>, tls, activity);
        let mut told = Some(ServingInfo { export_count });
        let goes_on = || tell(told.take()).is_continue();
        self.block_server.serve(info, start, goes_on).map_err(AdminError)?;
        self.volume.commit().map_err(refuse)
    }

    /// Why clients of `devices` cannot write, if they cannot.
    fn why_no_writes(&self, devices: &Devices) -> Option<String> {
        let of_disk = self.volume.disk().read_only_reason();
        of_disk.or_else(|| devices.is_read_only().then(|| "it is served with --read-only".into()))
    }
}
