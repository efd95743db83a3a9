//! The daemon's side.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::admin::Admin;
use crate::messages::{
    AdminError, Command, MAX_REPLY_LEN_BYTES, MAX_REQUEST_LEN_BYTES, Outcome, Reply, parse_request,
};
use crate::socket::{
    self, Caller, closing_error, identity_file, line_of, newline, now, read_until, send_line,
    write_line,
};
use answer::{refused_by, reply_to, reply_to_other};
use limit::Limit;
use waiters::{Waiter, Waiters, has_ended, is_gone};
use workers::{OtherUser, Received, Work, Workers};

mod answer;
mod gate;
mod http;
mod limit;
mod scrape;
mod waiters;
mod workers;

pub use gate::Gate;
pub use scrape::Scrape;

/// How long a client may take to send a whole request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for other users' clients, which must not keep the daemon's own user from being served.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(1);
/// How many of other users' requests are read at a time.
const MAX_OTHERS_READ: usize = 3;
/// How many of other users' requests are carried out at a time.
const MAX_OTHERS_SERVED: usize = 2;
const TOO_MANY_OTHERS: &str = "too many requests of other users are under way; try again";

/// How many copies of one volume can be mounted at a time.
const MAX_COPIES: u32 = 64;

/// A socket that listens. Dropping it removes the socket, and the identity file beside it.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    stopped: AtomicBool,
    waiters: Waiters,
    workers: Workers,
    gate: Gate,
    others_read: Limit,
    others_served: Limit,
}

impl Server {
    /// Listens for the daemon of the volume `uuid` in `directory`, which is made if it is missing.
    /// A socket that a killed daemon left behind is replaced.
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
            match socket::connect_at_once(&path) {
                Ok(_) => continue,
                Err(error) if socket::is_overrun(&error) => continue,
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
            // What an earlier daemon left beside its socket.
            let _ = closing_error::take(&path);
            identity_file::remove(&path);
            let gate = Gate::new(path.clone());
            return Ok(Self {
                listener,
                path,
                stopped: AtomicBool::new(false),
                waiters: Waiters::default(),
                workers: Workers::default(),
                gate,
                others_read: Limit::new(MAX_OTHERS_READ),
                others_served: Limit::new(MAX_OTHERS_SERVED),
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
    /// a time, so that a long request does not delay a short one. With at least two, one of them
    /// always has time for [`Command::Ping`]. An error on a connection ends that connection alone.
    pub fn run(&self, admin: &dyn Admin) {
        self.workers.join();
        while !self.stopped.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, _)) if !self.stopped.load(Ordering::Acquire) => {
                    // An error means that the client is gone, so there is nobody to report it to.
                    let _ = self.receive(stream, admin);
                }
                Err(_) if !self.stopped.load(Ordering::Acquire) => {
                    // Out of descriptors or memory: wait until other threads release some.
                    std::thread::sleep(Duration::from_millis(100));
                }
                _ => {}
            }
        }
    }

    /// Answers the clients that wait for clean segments to become few ([`Command::Segwait`]),
    /// until [`Self::stop`]. It needs a thread of its own; without it, they are never answered.
    pub fn run_waits(&self, admin: &dyn Admin) {
        while !self.stopped.load(Ordering::Acquire) {
            self.waiters.pause();
            let (present, now) = (admin.present(), now());
            for waiter in self.waiters.take(|waiter| waiter.is_over(&present, now)) {
                let reply = reply_to(&waiter.asked, None, admin);
                // The reply is short, so the socket has room for it. An error means that the
                // client is gone.
                let _ = write_line(&waiter.stream, &reply, MAX_REPLY_LEN_BYTES);
            }
        }
        let refusal = Reply::refusal(AdminError("the daemon ends".into()));
        let waiting = self.waiters.take(|_| true).into_iter().map(|waiter| waiter.stream);
        for stream in waiting.chain(self.workers.drain().into_iter().map(|work| work.stream)) {
            let _ = write_line(&stream, &refusal, MAX_REPLY_LEN_BYTES);
        }
    }

    /// Makes every [`Self::run`] return once it has served its connection.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waiters.wake();
        // Shutting the listening socket down wakes all threads that wait for a connection. A
        // connection made for the purpose would not: the socket's name may have been removed.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }

    fn refuse_for_now(stream: &UnixStream) -> io::Result<()> {
        let reply = Reply::new(Outcome::Busy(TOO_MANY_OTHERS.into()));
        write_line(stream, &reply, MAX_REPLY_LEN_BYTES)
    }

    /// Serves a connection, as far as the user at its other end may ask for anything.
    fn receive(&self, stream: UnixStream, admin: &dyn Admin) -> io::Result<()> {
        let is_open = self.gate.is_open();
        let refuse = |why: &str| {
            write_line(&stream, &Reply::refusal(AdminError(why.into())), MAX_REPLY_LEN_BYTES)
        };
        match Caller::of(&stream) {
            // Only the daemon's own user and root could connect.
            None if !is_open => self.serve(stream, None, admin),
            None => refuse("it cannot be told whose process this is"),
            Some(caller) if caller.may_do_anything() => self.serve(stream, None, admin),
            // It connected before the socket got its permissions.
            Some(_) if !is_open => refuse("permission denied: this socket is for its owner"),
            Some(caller) => match self.others_read.acquire() {
                None => Self::refuse_for_now(&stream),
                Some(permit) => self.serve(stream, Some(OtherUser { caller, permit }), admin),
            },
        }
    }

    fn serve(
        &self,
        stream: UnixStream,
        mut other: Option<OtherUser>,
        admin: &dyn Admin,
    ) -> io::Result<()> {
        let timeout = if other.is_some() { OTHERS_TIMEOUT } else { CLIENT_TIMEOUT };
        let refuse = |stream: &UnixStream, error| {
            write_line(stream, &Reply::refusal(error), MAX_REPLY_LEN_BYTES)
        };
        let received = match read_request(&stream, MAX_REQUEST_LEN_BYTES, Some(timeout)) {
            Ok((head, _)) if http::is_request(&head) => Received::Http(head),
            Ok((line, descriptor)) => match parse_request(&line) {
                Ok(request) => Received::Request(Box::new(request), descriptor),
                Err(error) => return refuse(&stream, error),
            },
            Err(error) => {
                let why = format!("the request cannot be read: {error}");
                return refuse(&stream, AdminError(why));
            }
        };
        let is_ping =
            matches!(&received, Received::Request(of, _) if matches!(of.command, Command::Ping));
        if let Some(other) = other.as_mut().filter(|_| !is_ping) {
            match self.others_served.acquire() {
                // Dropping the former permit allows the next request to be read.
                Some(permit) => other.permit = permit,
                None => return Self::refuse_for_now(&stream),
            }
        }
        let work = Work { stream, received, other };
        if is_ping {
            return self.carry_out(work, admin);
        }
        // An error of `carry_out` means that the client is gone.
        let run = self.workers.run_or_queue(work, |work| drop(self.carry_out(work, admin)));
        run.or_else(|work| {
            refuse(&work.stream, AdminError("too many requests are under way; try again".into()))
        })
    }

    fn carry_out(
        &self,
        Work { stream, received, other }: Work,
        admin: &dyn Admin,
    ) -> io::Result<()> {
        let (request, mut descriptor) = match received {
            Received::Http(head) => return http::answer(&stream, &head, admin),
            Received::Request(request, descriptor) => (request, descriptor),
        };
        if let Some(OtherUser { caller, .. }) = &other {
            let (reply, descriptor) = reply_to_other(caller, &request, descriptor, admin);
            let line = line_of(&reply, MAX_REPLY_LEN_BYTES)?;
            return send_line(&stream, &line, descriptor.as_ref().map(AsFd::as_fd));
        }
        if let Command::Segwait(segwait) = request.command
            && refused_by(&request, admin).is_none()
        {
            let waiter = Waiter::new(stream, request, segwait);
            if !waiter.is_over(&admin.present(), now()) {
                return self.wait(waiter);
            }
            let reply = reply_to(&waiter.asked, None, admin);
            return write_line(&waiter.stream, &reply, MAX_REPLY_LEN_BYTES);
        }
        let tell = |outcome| {
            let told = write_line(&stream, &Reply::new(outcome), MAX_REPLY_LEN_BYTES);
            match told.is_err() || is_gone(&stream) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let outcome = match &request.command {
            _ if refused_by(&request, admin).is_some() => None,
            Command::Check(check) => Some(
                admin
                    .check(*check, &mut |progress| tell(Outcome::Checking(progress)))
                    .map(|report| Outcome::Checked(Box::new(report))),
            ),
            Command::Resize(resize) => Some(
                admin
                    .resize(resize, &mut |progress| tell(Outcome::Resizing(progress)))
                    .map(Outcome::Resized),
            ),
            Command::ServeBlockDevices(asked) => {
                let mut go_on = |serving: Option<_>| match serving {
                    Some(serving) => tell(Outcome::Serving(serving)),
                    None if has_ended(&stream) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                };
                let served = admin.serve_block_devices(asked, descriptor.take(), &mut go_on);
                Some(served.map(|()| Outcome::Done))
            }
            _ => None,
        };
        let reply = match outcome {
            Some(outcome) => outcome.map_or_else(Reply::refusal, Reply::new),
            None => reply_to(&request, descriptor, admin),
        };
        write_line(&stream, &reply, MAX_REPLY_LEN_BYTES)
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
        identity_file::remove(&self.path);
    }
}

/// Reads a request, and the descriptor that came with it, if one did: a line, or the head of an
/// HTTP request.
fn read_request(
    stream: &UnixStream,
    max_len_bytes: usize,
    timeout: Option<Duration>,
) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let ends = |bytes: &[u8], from: usize| {
        if http::is_request(bytes) { http::head_end(bytes, from) } else { newline(bytes, from) }
    };
    read_until(stream, max_len_bytes, timeout, ends)
}
