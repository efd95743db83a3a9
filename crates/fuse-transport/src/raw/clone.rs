//! One more descriptor for a connection: the ioctl `FUSE_DEV_IOC_CLONE`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const IOC_CLONE: libc::c_ulong = 0x8004_e500;

/// Binds `unbound`, a newly opened `/dev/fuse`, to the connection of `device`. Both then receive
/// the same connection's requests.
pub(crate) fn bind_clone(unbound: BorrowedFd<'_>, device: BorrowedFd<'_>) -> io::Result<()> {
    let source = device.as_raw_fd().cast_unsigned();
    // SAFETY: both descriptors are open for the length of the call, and this ioctl reads four
    // bytes at its argument, which are those of `source`.
    let answer = unsafe { libc::ioctl(unbound.as_raw_fd(), IOC_CLONE, &raw const source) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
