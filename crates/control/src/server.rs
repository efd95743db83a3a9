//! The daemon's side.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::load::{Load, What, Work};
use crate::protocol::{
    Admin, AdminError, Command, MAX_REPLY_LEN_BYTES, MAX_REQUEST_LEN_BYTES, Reply, Request,
    parse_request,
};
use crate::wait::{Waiter, Waiters, now};
use crate::{card, farewell, http, passing, ping, socket};

/// How long a client may keep a thread waiting for all of its request, or for taking the reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many copies of one volume can be mounted at a time.
const MAX_COPIES: u32 = 64;

/// A socket that listens. Dropping it removes the socket, and the card beside it.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    stopped: AtomicBool,
    waiters: Waiters,
    load: Load,
}

impl Server {
    /// Listens for the daemon of the volume `uuid` in `directory`, which is made if need be. A
    /// socket that a killed daemon left behind is replaced.
    ///
    /// # Errors
    /// When the directory cannot be made or written to, or belongs to another user.
    pub fn bind(directory: &Path, uuid: &str) -> io::Result<Self> {
        let annotate = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
        };
        socket::create_directory(directory).map_err(annotate)?;
        for attempt in 0..MAX_COPIES {
            let path = directory.join(socket::file_name(uuid, attempt));
            match ping::connect_at_once(&path) {
                Ok(_) => continue,
                Err(error) if ping::is_overrun(&error) => continue,
                Err(_) => {}
            }
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(annotate(error));
                }
                _ => {}
            }
            let listener = match UnixListener::bind(&path) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
                other => other.map_err(annotate)?,
            };
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(annotate)?;
            // An earlier one's, which nobody has waited for.
            let _ = farewell::take(&path);
            card::take_away(&path);
            return Ok(Self {
                listener,
                path,
                stopped: AtomicBool::new(false),
                waiters: Waiters::default(),
                load: Load::default(),
            });
        }
        Err(annotate(io::Error::other(format!("{MAX_COPIES} daemons have volume {uuid} open"))))
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves one connection after the other until [`Self::stop`]. Several threads may call it at
    /// a time, so that a long request does not keep a short one waiting; if there are at least two, one
    /// of them always has time for [`Command::Ping`]. What goes wrong with a connection ends that
    /// connection alone.
    pub fn run(&self, admin: &dyn Admin) {
        self.load.join();
        while !self.stopped.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, _)) if !self.stopped.load(Ordering::Acquire) => {
                    // The client may be gone by now; nobody else wants to know.
                    let _ = self.serve(stream, admin);
                }
                Err(_) if !self.stopped.load(Ordering::Acquire) => {
                    // Out of descriptors or memory: give others time to return some.
                    std::thread::sleep(Duration::from_millis(100));
                }
                _ => {}
            }
        }
    }

    /// Answers those who wait for segments to become few, until [`Self::stop`]. One thread of its
    /// own calls it; without it they wait for ever.
    pub fn run_waits(&self, admin: &dyn Admin) {
        while !self.stopped.load(Ordering::Acquire) {
            self.waiters.rest();
            let (clean_count, now) = (admin.present().clean_count, now());
            for waiter in self.waiters.take(|waiter| waiter.is_over(clean_count, now)) {
                let reply = Reply::to(&waiter.asked, None, admin);
                // The reply is short and finds room in the socket; a client that is gone does not
                // want it.
                let _ = write_line(&waiter.stream, &reply, MAX_REPLY_LEN_BYTES);
            }
        }
        let refusal = Reply::refusal(AdminError("the daemon ends".into()));
        let waiting = self.waiters.take(|_| true).into_iter().map(|waiter| waiter.stream);
        for stream in waiting.chain(self.load.drain().into_iter().map(|work| work.stream)) {
            let _ = write_line(&stream, &refusal, MAX_REPLY_LEN_BYTES);
        }
    }

    /// Lets every [`Self::run`] return once it is done with the connection it serves.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waiters.wake();
        // Wakes all that wait for a connection, also where somebody has removed the socket's name. A
        // listening socket can be shut down.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }

    fn serve(&self, stream: UnixStream, admin: &dyn Admin) -> io::Result<()> {
        let refuse = |stream: &UnixStream, error| {
            write_line(stream, &Reply::refusal(error), MAX_REPLY_LEN_BYTES)
        };
        let what = match read_request(&stream, MAX_REQUEST_LEN_BYTES, Some(CLIENT_TIMEOUT)) {
            Ok((head, _)) if http::is_request(&head) => What::Http(head),
            Ok((line, descriptor)) => match parse_request(&line) {
                Ok(request) => What::Request(Box::new(request), descriptor),
                Err(error) => return refuse(&stream, error),
            },
            Err(error) => {
                let why = format!("the request cannot be read: {error}");
                return refuse(&stream, AdminError(why));
            }
        };
        let work = Work { stream, what };
        if let What::Request(request, _) = &work.what
            && matches!(request.command, Command::Ping)
        {
            return self.carry_out(work, admin);
        }
        // The client may be gone by then; nobody else wants to know.
        let taken = self.load.take(work, |work| drop(self.carry_out(work, admin)));
        taken.or_else(|work| {
            refuse(&work.stream, AdminError("too many requests are under way; try again".into()))
        })
    }

    fn carry_out(&self, Work { stream, what }: Work, admin: &dyn Admin) -> io::Result<()> {
        let (request, descriptor) = match what {
            What::Http(head) => return http::answer(&stream, &head, admin),
            What::Request(request, descriptor) => (request, descriptor),
        };
        if let Command::Segwait(segwait) = request.command
            && request.refused_by(admin).is_none()
        {
            let waiter = Waiter::new(stream, request, segwait);
            if !waiter.is_over(admin.present().clean_count, now()) {
                return self.wait(waiter);
            }
            let reply = Reply::to(&waiter.asked, None, admin);
            return write_line(&waiter.stream, &reply, MAX_REPLY_LEN_BYTES);
        }
        write_line(&stream, &Reply::to(&request, descriptor, admin), MAX_REPLY_LEN_BYTES)
    }

    fn wait(&self, waiter: Waiter) -> io::Result<()> {
        match self.waiters.add(waiter) {
            Ok(()) => Ok(()),
            Err(Waiter { stream, .. }) => {
                let why = "too many clients wait for segments already";
                write_line(&stream, &Reply::refusal(AdminError(why.into())), MAX_REPLY_LEN_BYTES)
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        card::take_away(&self.path);
    }
}

/// One line without its newline, of at most `max_len_bytes` with it, all of it within `timeout`.
pub(crate) fn read_line(
    stream: &UnixStream,
    max_len_bytes: usize,
    timeout: Option<Duration>,
) -> io::Result<Vec<u8>> {
    Ok(read_until(stream, max_len_bytes, timeout, newline)?.0)
}

/// The first newline at or after `from`.
fn newline(bytes: &[u8], from: usize) -> Option<usize> {
    bytes[from..].iter().position(|&byte| byte == b'\n').map(|at| from + at)
}

/// A line as [`read_line`] reads it, or the head of a request of HTTP; and a descriptor if one came
/// with it.
fn read_request(
    stream: &UnixStream,
    max_len_bytes: usize,
    timeout: Option<Duration>,
) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let ends = |bytes: &[u8], from: usize| {
        if http::is_request(bytes) {
            // Across what was looked at before, too.
            let from = from.saturating_sub(3);
            let ends = |rest: &[u8]| rest.starts_with(b"\n\r\n") || rest.starts_with(b"\n\n");
            return (from..bytes.len()).find(|&at| ends(&bytes[at..]));
        }
        newline(bytes, from)
    };
    read_until(stream, max_len_bytes, timeout, ends)
}

/// Reads until `ends`, called with all bytes and how many of them it has seen before, says where.
fn read_until(
    stream: &UnixStream,
    max_len_bytes: usize,
    timeout: Option<Duration>,
    ends: impl Fn(&[u8], usize) -> Option<usize>,
) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let deadline = timeout.map(|timeout| now() + timeout);
    let mut bytes = Vec::new();
    let mut descriptor = None;
    let mut chunk = [0; 4096];
    loop {
        // A client that sends a byte now and then must not take longer than one that sends none.
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes too long"));
            }
            stream.set_read_timeout(Some(left))?;
        }
        let count = match passing::receive(stream, &mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => {
                let (count, received) = other?;
                descriptor = descriptor.or(received);
                count
            }
        };
        let seen = bytes.len();
        bytes.extend_from_slice(&chunk[..count]);
        let end = ends(&bytes, seen);
        if end.unwrap_or(bytes.len()) >= max_len_bytes {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it is longer than {max_len_bytes} bytes"),
            ));
        }
        match end {
            Some(end) => {
                bytes.truncate(end);
                return Ok((bytes, descriptor));
            }
            None if count == 0 => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "it ends before its newline",
                ));
            }
            None => {}
        }
    }
}

pub(crate) fn write_line<T: serde::Serialize>(
    stream: &UnixStream,
    value: &T,
    max_len_bytes: usize,
) -> io::Result<()> {
    write_all(stream, &line_of(value, max_len_bytes)?)
}

fn line_of<T: serde::Serialize>(value: &T, max_len_bytes: usize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    if line.len() > max_len_bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than the protocol allows"));
    }
    Ok(line)
}

/// Writes all of `bytes`, and gives a client that does not take them [`CLIENT_TIMEOUT`].
pub(crate) fn write_all(stream: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    let deadline = now() + CLIENT_TIMEOUT;
    let (mut stream, mut rest) = (stream, bytes);
    while !rest.is_empty() {
        // One that takes a little now and then must not take longer than one that takes nothing.
        let left = deadline.saturating_duration_since(now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody takes the rest"));
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends `request` over `stream`, and `descriptor` with it.
pub(crate) fn send(
    stream: &UnixStream,
    request: &Request,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let line = line_of(request, MAX_REQUEST_LEN_BYTES)?;
    let sent = match descriptor {
        Some(descriptor) => passing::send(stream, &line, descriptor)?,
        None => 0,
    };
    write_all(stream, &line[sent..])
}
