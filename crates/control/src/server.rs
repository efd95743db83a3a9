//! The daemon's side.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::caller::Caller;
use crate::load::{Load, Other, Places, What, Work};
use crate::protocol::{
    Admin, AdminError, Command, MAX_REPLY_LEN_BYTES, MAX_REQUEST_LEN_BYTES, Outcome, Reply,
    Request, parse_request,
};
use crate::wait::{Waiter, Waiters, now};
use crate::{card, farewell, http, passing, ping, socket};

/// How long a client may keep a thread waiting for all of its request, or for taking the reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for other users, who are not to keep the daemon's own from being answered, …
const OTHERS_TIMEOUT: Duration = Duration::from_secs(1);
/// … and of whom so many may be telling what they want, and so many wait for the answer, at a time.
const MAX_OTHERS_HEARD: usize = 3;
const MAX_OTHERS_SERVED: usize = 2;
const TOO_MANY_OTHERS: &str = "too many requests of other users are under way; try again";

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
    gate: Gate,
    /// Of other users: who tells what it wants, and who waits for an answer.
    others_heard: Places,
    others_served: Places,
}

/// Lets others than the daemon's own user and root connect.
#[derive(Clone, Debug)]
pub struct Gate {
    path: PathBuf,
    is_open: Arc<AtomicBool>,
}

impl Gate {
    /// Lets everybody connect. What others are answered, [`Admin::for_other`] says. They have to find the
    /// socket, so its directory is opened with it.
    ///
    /// # Errors
    /// When the permissions cannot be changed.
    pub fn open(&self) -> io::Result<()> {
        // From here on those who connect may be others.
        if self.is_open.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let add = |path: &Path, more: u32| {
            let now = fs::metadata(path)?.permissions().mode() & 0o7777;
            fs::set_permissions(path, fs::Permissions::from_mode(now | more))
        };
        if let Some(directory) = self.path.parent() {
            add(directory, 0o055)?;
        }
        add(&self.path, 0o066)
    }
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
            let gate = Gate { path: path.clone(), is_open: Arc::default() };
            return Ok(Self {
                listener,
                path,
                stopped: AtomicBool::new(false),
                waiters: Waiters::default(),
                load: Load::default(),
                gate,
                others_heard: Places::new(MAX_OTHERS_HEARD),
                others_served: Places::new(MAX_OTHERS_SERVED),
            });
        }
        Err(annotate(io::Error::other(format!("{MAX_COPIES} daemons have volume {uuid} open"))))
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What lets others than the daemon's own user and root connect.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate.clone()
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
                    let _ = self.receive(stream, admin);
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

    fn refuse_for_now(stream: &UnixStream) -> io::Result<()> {
        let reply = Reply::new(Outcome::Busy(TOO_MANY_OTHERS.into()));
        write_line(stream, &reply, MAX_REPLY_LEN_BYTES)
    }

    /// Serves a connection of whoever it is.
    fn receive(&self, stream: UnixStream, admin: &dyn Admin) -> io::Result<()> {
        let is_open = self.gate.is_open.load(Ordering::Acquire);
        let refuse = |why: &str| {
            write_line(&stream, &Reply::refusal(AdminError(why.into())), MAX_REPLY_LEN_BYTES)
        };
        match Caller::of(&stream) {
            // The socket's own permissions have decided.
            None if !is_open => self.serve(stream, None, admin),
            None => refuse("it cannot be told whose process this is"),
            Some(caller) if caller.is_master() => self.serve(stream, None, admin),
            // Who came in the moment before the socket got its permissions.
            Some(_) if !is_open => refuse("permission denied: this socket is for its owner"),
            Some(caller) => match self.others_heard.take() {
                None => Self::refuse_for_now(&stream),
                Some(place) => self.serve(stream, Some(Other { caller, place }), admin),
            },
        }
    }

    fn serve(
        &self,
        stream: UnixStream,
        mut other: Option<Other>,
        admin: &dyn Admin,
    ) -> io::Result<()> {
        let timeout = if other.is_some() { OTHERS_TIMEOUT } else { CLIENT_TIMEOUT };
        let refuse = |stream: &UnixStream, error| {
            write_line(stream, &Reply::refusal(error), MAX_REPLY_LEN_BYTES)
        };
        let what = match read_request(&stream, MAX_REQUEST_LEN_BYTES, Some(timeout)) {
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
        let is_ping = matches!(&what, What::Request(of, _) if matches!(of.command, Command::Ping));
        if let Some(other) = other.as_mut().filter(|_| !is_ping) {
            match self.others_served.take() {
                // The other place is free again.
                Some(place) => other.place = place,
                None => return Self::refuse_for_now(&stream),
            }
        }
        let work = Work { stream, what, other };
        if is_ping {
            return self.carry_out(work, admin);
        }
        // The client may be gone by then; nobody else wants to know.
        let taken = self.load.take(work, |work| drop(self.carry_out(work, admin)));
        taken.or_else(|work| {
            refuse(&work.stream, AdminError("too many requests are under way; try again".into()))
        })
    }

    fn carry_out(&self, Work { stream, what, other }: Work, admin: &dyn Admin) -> io::Result<()> {
        let (request, descriptor) = match what {
            What::Http(head) => return http::answer(&stream, &head, admin),
            What::Request(request, descriptor) => (request, descriptor),
        };
        if let Some(Other { caller, .. }) = &other {
            let (reply, descriptor) = Reply::to_other(caller, &request, descriptor, admin);
            let line = line_of(&reply, MAX_REPLY_LEN_BYTES)?;
            return send_line(&stream, &line, descriptor.as_ref().map(AsFd::as_fd));
        }
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

/// One line without its newline, of at most `max_len_bytes` with it, all of it within `timeout`; and a
/// descriptor if one came with it.
pub(crate) fn read_line(
    stream: &UnixStream,
    max_len_bytes: usize,
    timeout: Option<Duration>,
) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    read_until(stream, max_len_bytes, timeout, newline)
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
    send_line(stream, &line_of(request, MAX_REQUEST_LEN_BYTES)?, descriptor)
}

fn send_line(
    stream: &UnixStream,
    line: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let sent = match descriptor {
        Some(descriptor) => passing::send(stream, line, descriptor)?,
        None => 0,
    };
    write_all(stream, &line[sent..])
}
