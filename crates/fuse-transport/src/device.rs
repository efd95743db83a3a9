//! Requests by way of `/dev/fuse`: one read(2) and one writev(2) for each.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno as SystemErrno;
use zerocopy::IntoBytes;

use crate::abi::{InHeader, MIN_READ_BUFFER_BYTES, OutHeader, opcode};
use crate::dispatch::{Body, Server};
use crate::errno::Errno;
use crate::filesystem::FileSystem;
use crate::parse;
use crate::raw::{self, Buffer};

/// Where the kernel's requests come from.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// Room for the headers before the data of a WRITE, and more than any other request takes beside
/// its names.
const HEADERS_LEN: usize = 4096;

/// How long forgets are left to collect before they are read: files are dropped by the hundred, and
/// nothing waits for it.
const FORGETS_REST: Duration = Duration::from_millis(4);

/// Opens a device that has no mount yet.
pub(crate) fn open() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open(DEVICE)?.into())
}

/// One more descriptor for the connection of `device`, with answers of its own to wait for; if that
/// cannot be had, the same once more.
pub(crate) fn clone(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    match open() {
        Ok(unbound) if raw::bind_clone(unbound.as_fd(), device).is_ok() => Ok(unbound),
        _ => device.try_clone_to_owned(),
    }
}

/// What became of an attempt to read a request.
enum Read {
    Request(usize),
    /// Nothing there; only if the descriptor does not block.
    Nothing,
    Unmounted,
}

fn read(device: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Read> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(len) => return Ok(Read::Request(len)),
            // ENOENT: its caller has been interrupted in the meantime.
            Err(SystemErrno::INTR | SystemErrno::NOENT) => (),
            Err(SystemErrno::AGAIN) => return Ok(Read::Nothing),
            Err(SystemErrno::NODEV | SystemErrno::CONNABORTED) => return Ok(Read::Unmounted),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Reads the first request, which is INIT. `None`: the mount is gone already.
pub(crate) fn read_init(device: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = vec![0; MIN_READ_BUFFER_BYTES];
    Ok(match read(device, &mut buffer)? {
        Read::Request(len) => {
            buffer.truncate(len);
            Some(buffer)
        }
        _ => None,
    })
}

/// Answers the request `unique`.
pub(crate) fn write(
    device: BorrowedFd<'_>,
    unique: u64,
    answer: Result<&[u8], Errno>,
) -> io::Result<()> {
    let (error, body) = match answer {
        Ok(body) => (0, body),
        Err(errno) => (-errno.raw(), &[][..]),
    };
    let len = size_of::<OutHeader>() + body.len();
    let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    let header = OutHeader { len, error, unique };
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body)];
    match rustix::io::writev(device, if body.is_empty() { &parts[..1] } else { &parts }) {
        Ok(_) => Ok(()),
        // Nobody waits for it any longer.
        Err(SystemErrno::NOENT | SystemErrno::NODEV | SystemErrno::CONNABORTED) => Ok(()),
        // It has failed the request with EIO.
        Err(SystemErrno::INVAL) => {
            log::error!("request {unique}: the kernel refuses an answer of {len} bytes");
            Ok(())
        }
        Err(errno) => Err(errno.into()),
    }
}

/// A descriptor with the buffers of the thread that reads from it.
pub(crate) struct Worker {
    device: OwnedFd,
    request: Vec<u8>,
    answer: Buffer,
}

impl Worker {
    pub(crate) fn new(device: BorrowedFd<'_>, payload_len: usize) -> io::Result<Self> {
        Ok(Self {
            device: clone(device)?,
            request: vec![0; HEADERS_LEN + payload_len],
            answer: Buffer::new(payload_len)?,
        })
    }

    /// Serves requests until the mount is gone.
    pub(crate) fn serve<F: FileSystem>(&mut self, server: &Server<F>) -> io::Result<()> {
        loop {
            match read(self.device.as_fd(), &mut self.request)? {
                Read::Request(len) => self.answer(server, len).map(drop)?,
                Read::Nothing => self.wait()?,
                Read::Unmounted => return Ok(()),
            }
        }
    }

    fn wait(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.device, PollFlags::IN)], None) {
            Ok(_) | Err(SystemErrno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Serves what does not come over rings until the mount is gone: forgets and interruptions,
    /// collected before they are read, and requests from before the rings were there.
    pub(crate) fn serve_beside_rings<F: FileSystem>(
        &mut self,
        server: &Server<F>,
    ) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&self.device, true)?;
        loop {
            self.wait()?;
            let mut someone_waited = false;
            loop {
                match read(self.device.as_fd(), &mut self.request)? {
                    Read::Request(len) => someone_waited |= self.answer(server, len)?,
                    Read::Nothing => break,
                    Read::Unmounted => return Ok(()),
                }
            }
            if !someone_waited {
                std::thread::sleep(FORGETS_REST);
            }
        }
    }

    /// Serves the first `len` bytes of the buffer; whether someone waited for the answer.
    fn answer<F: FileSystem>(&mut self, server: &Server<F>, len: usize) -> io::Result<bool> {
        let message = &self.request[..len];
        let (header, arguments, rest) = match parse::split(message, server.setxattr_ext()) {
            Ok(parts) => parts,
            Err((unique, errno)) => {
                log::warn!("request {unique}: a malformed FUSE request of {len} bytes is refused");
                write(self.device.as_fd(), unique, Err(errno))?;
                return Ok(true);
            }
        };
        let InHeader { unique, opcode, .. } = header;
        let body = Body::Apart { request: rest, out: &mut self.answer };
        let Some(answered) = server.serve(&header, arguments, body) else { return Ok(false) };
        if matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::NOTIFY_REPLY) {
            log::warn!("a malformed FUSE request is left out: operation {opcode}");
            return Ok(false);
        }
        write(self.device.as_fd(), unique, answered.map(|len| &self.answer[..len]))?;
        self.answer.note_use(answered.unwrap_or(0));
        Ok(opcode != opcode::INTERRUPT)
    }
}
