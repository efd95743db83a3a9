//! Requests about the devices that the volume lies on.

use std::ops::ControlFlow;

use dendro_control::AdminError;
use dendro_control::devices::{DevicesInfo, DevicesRequest};
use dendro_device::OpenOptions as DeviceOptions;

use crate::devices;
use crate::state::Daemon;

impl Daemon<'_> {
    /// Lists or changes the devices.
    pub(super) fn change_devices(
        &self,
        request: &DevicesRequest,
    ) -> Result<DevicesInfo, AdminError> {
        let volume = self.volume;
        let options = DeviceOptions::new().direct(self.options.lock().direct);
        // One change at a time.
        let _changes = self.changes.lock();
        let mut tell = |_| match self.stop.is_set() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let (disk, devices) = volume.parts();
        let source = volume.source();
        let changed = devices::change(&disk, &devices, &source, request, &options, &mut tell);
        if *request != DevicesRequest::List {
            self.write_card();
        }
        changed.map_err(|failure| AdminError(failure.message))
    }
}
