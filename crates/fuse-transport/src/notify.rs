//! Notifications to the kernel: changes that were not made through the mount.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as SystemErrno;
use zerocopy::IntoBytes;

use crate::protocol::abi::{
    EXPIRE_ONLY, NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, OutHeader, notify_code,
};

/// Makes the kernel drop what it has cached. All calls may wait for locks of system calls on the
/// mount. So they must not be made by a thread that is serving a request.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<OwnedFd>,
}

impl Notifier {
    pub(crate) const fn new(device: Arc<OwnedFd>) -> Self {
        Self { device }
    }

    /// Whether the file system is still mounted. After an unmount the kernel may give the device
    /// number to another file system; this returns false before that. It does not wait.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        // The device reports an error after the unmount, even if the poll asks for no events.
        let mut polled = [PollFd::new(&self.device, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::io::retry_on_intr(|| poll(&mut polled, Some(&at_once))) {
            Ok(_) => !polled[0].revents().contains(PollFlags::ERR),
            // This is not known. The threads that serve the mount will find out.
            Err(_) => true,
        }
    }

    /// The attributes of `node` have changed.
    ///
    /// # Errors
    /// Errors of the connection. It is no error if the kernel does not know the file.
    pub fn invalidate_attributes(&self, node: u64) -> io::Result<()> {
        self.invalidate(node, -1, 0)
    }

    /// The attributes of `node`, and `len` bytes of its data from `offset` on, have changed.
    /// `None`: all data to the end.
    ///
    /// # Errors
    /// As [`Self::invalidate_attributes`]; `InvalidInput` for an offset or length that no file can
    /// have.
    pub fn invalidate_data(&self, node: u64, offset: u64, len: Option<u64>) -> io::Result<()> {
        let signed = |number| i64::try_from(number).map_err(|_| io::ErrorKind::InvalidInput);
        let len = len.map_or(Ok(0), signed)?;
        self.invalidate(node, signed(offset)?, len)
    }

    fn invalidate(&self, node: u64, offset: i64, len: i64) -> io::Result<()> {
        let wire = NotifyInvalInodeOut { node, offset, len };
        self.send(notify_code::INVAL_INODE, wire.as_bytes(), None)
    }

    /// `name` in the directory `parent` names another file now, or does not exist.
    ///
    /// # Errors
    /// As [`Self::invalidate_attributes`].
    pub fn invalidate_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.entry(parent, name, 0)
    }

    /// `name` in the directory `parent` is to be looked up again before it is used. Mounts and open
    /// files below it stay.
    ///
    /// # Errors
    /// As [`Self::invalidate_attributes`].
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.entry(parent, name, EXPIRE_ONLY)
    }

    fn entry(&self, parent: u64, name: &[u8], flags: u32) -> io::Result<()> {
        let wire = NotifyInvalEntryOut { parent, name_len: name_len(name)?, flags };
        self.send(notify_code::INVAL_ENTRY, wire.as_bytes(), Some(name))
    }

    /// `name` in the directory `parent`, which named `child`, was removed. Processes that watch the
    /// directory (inotify) get an event.
    ///
    /// # Errors
    /// As [`Self::invalidate_attributes`].
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> io::Result<()> {
        let wire = NotifyDeleteOut { parent, child, name_len: name_len(name)?, padding: 0 };
        self.send(notify_code::DELETE, wire.as_bytes(), Some(name))
    }

    fn send(&self, code: i32, wire: &[u8], name: Option<&[u8]>) -> io::Result<()> {
        // A name is followed by a zero byte.
        let (name, zero) = name.map_or((&[][..], &[][..]), |name| (name, &[0][..]));
        let len = size_of::<OutHeader>() + wire.len() + name.len() + zero.len();
        let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let header = OutHeader { len, error: code, unique: 0 };
        let parts = [header.as_bytes(), wire, name, zero].map(IoSlice::new);
        match rustix::io::writev(&*self.device, &parts) {
            // The kernel does not know the file, so it has nothing to drop.
            Ok(_) | Err(SystemErrno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn name_len(name: &[u8]) -> io::Result<u32> {
    if name.is_empty() || name.contains(&0) || name.contains(&b'/') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(u32::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?)
}
