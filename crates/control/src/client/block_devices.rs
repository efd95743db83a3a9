//! Requests about block devices, and for serving them.

use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use super::error::ClientError;
use super::exchange::Client;
use crate::messages::block_devices::{
    BlockDeviceInfo, BlockDevicesRequest, ServeBlockDevicesRequest, ServingInfo,
};
use crate::messages::{Command, Outcome};

/// Ends serving block devices.
#[derive(Debug)]
pub struct ServingEnd(UnixStream);

impl ServingEnd {
    /// Has the daemon end it, once what clients have asked for is done.
    /// [`Client::serve_block_devices`] returns then.
    pub fn end(&self) {
        // If that fails, the daemon has ended it.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

impl Client {
    /// [`Command::BlockDevices`].
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn block_devices(
        &self,
        request: BlockDevicesRequest,
    ) -> Result<Vec<BlockDeviceInfo>, ClientError> {
        match self.ask(Command::BlockDevices(request))? {
            Outcome::BlockDevices(devices) => Ok(devices),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::ServeBlockDevices`], at the socket `listener`. Calls `begun` when clients can
    /// connect, and returns when serving has been ended.
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason why they are not served, or no longer.
    pub fn serve_block_devices(
        &self,
        request: ServeBlockDevicesRequest,
        listener: BorrowedFd<'_>,
        mut begun: impl FnMut(ServingInfo, ServingEnd),
    ) -> Result<(), ClientError> {
        let stream = self.begin(Command::ServeBlockDevices(request), Some(listener))?;
        self.follow_on(&stream, |outcome| match outcome {
            Outcome::Serving(serving) => {
                let end = stream.try_clone().map_err(|source| self.unreachable(source))?;
                begun(serving, ServingEnd(end));
                Ok(None)
            }
            Outcome::Done => Ok(Some(())),
            other => Err(self.unexpected(&other)),
        })
    }
}
