//! Threads that read requests from `/dev/fuse`: one read(2) and one writev(2) for each request.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno as SystemErrno;

use super::dispatch::{Body, Dispatcher};
use super::reply;
use crate::dev_fuse;
use crate::filesystem::FileSystem;
use crate::protocol::abi::{InHeader, MIN_READ_BUFFER_BYTES, opcode};
use crate::protocol::parse;
use crate::raw::Buffer;

/// The space for the headers before the data of a WRITE. No other request needs more, apart from
/// its names.
const HEADERS_LEN: usize = 4096;

/// How long to let FORGET requests collect before they are read. The kernel forgets files by the
/// hundred, and nothing waits for it.
const FORGET_DELAY: Duration = Duration::from_millis(4);

/// The outcome of an attempt to read a request.
enum Read {
    /// A request of this length.
    Request(usize),
    /// There is none; only if the descriptor does not block.
    Nothing,
    Unmounted,
}

fn read(device: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Read> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(len) => return Ok(Read::Request(len)),
            // ENOENT: the caller of the request was interrupted before it was read.
            Err(SystemErrno::INTR | SystemErrno::NOENT) => (),
            Err(SystemErrno::AGAIN) => return Ok(Read::Nothing),
            Err(SystemErrno::NODEV | SystemErrno::CONNABORTED) => return Ok(Read::Unmounted),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Reads the first request, which is INIT. `None`: the file system was unmounted already.
pub(super) fn read_init(device: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = vec![0; MIN_READ_BUFFER_BYTES];
    Ok(match read(device, &mut buffer)? {
        Read::Request(len) => {
            buffer.truncate(len);
            Some(buffer)
        }
        _ => None,
    })
}

/// A thread's descriptor and buffers.
pub(super) struct Worker {
    device: OwnedFd,
    request: Vec<u8>,
    reply: Buffer,
}

impl Worker {
    pub(super) fn new(device: BorrowedFd<'_>, payload_len: usize) -> io::Result<Self> {
        Ok(Self {
            device: dev_fuse::clone(device)?,
            request: vec![0; HEADERS_LEN + payload_len],
            reply: Buffer::new(payload_len)?,
        })
    }

    /// Serves requests until the file system is unmounted.
    pub(super) fn serve<F: FileSystem>(&mut self, dispatcher: &Dispatcher<F>) -> io::Result<()> {
        loop {
            match read(self.device.as_fd(), &mut self.request)? {
                Read::Request(len) => self.serve_one(dispatcher, len).map(drop)?,
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

    /// Serves the requests that do not come over rings until the file system is unmounted: FORGET
    /// and INTERRUPT, which collect before they are read, and requests from before the rings
    /// existed.
    pub(super) fn serve_beside_rings<F: FileSystem>(
        &mut self,
        dispatcher: &Dispatcher<F>,
    ) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&self.device, true)?;
        loop {
            self.wait()?;
            let mut had_waiter = false;
            loop {
                match read(self.device.as_fd(), &mut self.request)? {
                    Read::Request(len) => had_waiter |= self.serve_one(dispatcher, len)?,
                    Read::Nothing => break,
                    Read::Unmounted => return Ok(()),
                }
            }
            if !had_waiter {
                std::thread::sleep(FORGET_DELAY);
            }
        }
    }

    /// Serves the request in the first `len` bytes of the buffer. Returns whether its caller waits
    /// for the reply.
    fn serve_one<F: FileSystem>(
        &mut self,
        dispatcher: &Dispatcher<F>,
        len: usize,
    ) -> io::Result<bool> {
        let message = &self.request[..len];
        let (header, arguments, rest) = match parse::split(message, dispatcher.setxattr_ext()) {
            Ok(parts) => parts,
            Err((unique, errno)) => {
                log::warn!("request {unique}: a malformed FUSE request of {len} bytes is refused");
                reply::send(self.device.as_fd(), unique, Err(errno))?;
                return Ok(true);
            }
        };
        let InHeader { unique, opcode, .. } = header;
        let body = Body::Apart { request: rest, out: &mut self.reply };
        let Some(answered) = dispatcher.serve(&header, arguments, body) else { return Ok(false) };
        if matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::NOTIFY_REPLY) {
            log::warn!(
                "request {unique}: a malformed FUSE request with opcode {opcode} is ignored"
            );
            return Ok(false);
        }
        reply::send(self.device.as_fd(), unique, answered.map(|len| &self.reply[..len]))?;
        self.reply.note_use(answered.unwrap_or(0));
        Ok(opcode != opcode::INTERRUPT)
    }
}
