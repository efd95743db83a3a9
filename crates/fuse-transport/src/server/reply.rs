//! Sending a reply to the kernel over `/dev/fuse`.
//!
//! Over io_uring a reply is left in the entry of its request instead: see
//! [`crate::raw`].

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use rustix::io::Errno as SystemErrno;
use zerocopy::IntoBytes;

use crate::errno::Result;
use crate::protocol::abi::OutHeader;

/// Sends the reply to the request `unique`: its bytes, or why the request failed.
pub(super) fn send(device: BorrowedFd<'_>, unique: u64, reply: Result<&[u8]>) -> io::Result<()> {
    let (error, body) = match reply {
        Ok(body) => (0, body),
        Err(errno) => (-errno.raw(), &[][..]),
    };
    let len = size_of::<OutHeader>() + body.len();
    let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    let header = OutHeader { len, error, unique };
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body)];
    match rustix::io::writev(device, if body.is_empty() { &parts[..1] } else { &parts }) {
        Ok(_) => Ok(()),
        // The caller does not wait for it any more, or the file system was unmounted.
        Err(SystemErrno::NOENT | SystemErrno::NODEV | SystemErrno::CONNABORTED) => Ok(()),
        // The kernel has failed the request with EIO.
        Err(SystemErrno::INVAL) => {
            log::error!("request {unique}: the kernel refuses a reply of {len} bytes");
            Ok(())
        }
        Err(errno) => Err(errno.into()),
    }
}
