//! The device `/dev/fuse`, whose descriptors are connections to the kernel.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::raw;

/// The path of the device.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// Opens a connection that has no mount yet.
pub(crate) fn open() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open(DEVICE)?.into())
}

/// One more descriptor for the connection of `device`. A reply goes to the descriptor from which
/// its request was read. If the kernel cannot do that, this is a duplicate of the same descriptor.
pub(crate) fn clone(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    match open() {
        Ok(unbound) if raw::bind_clone(unbound.as_fd(), device).is_ok() => Ok(unbound),
        _ => device.try_clone_to_owned(),
    }
}
