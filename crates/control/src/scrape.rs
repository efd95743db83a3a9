//! Metrics over TCP, for Prometheus: as much of HTTP as that takes, and nothing that changes anything.
//!
//! The control socket has the same for those who reach it; a port is for those who cannot.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::http;
use crate::protocol::Admin;
use crate::wait::now;

/// How long a client may take for its request, and for the reply: it keeps others waiting.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest head of a request.
const MAX_HEAD_LEN_BYTES: usize = 16 << 10;

/// A port that answers `GET /metrics`.
#[derive(Debug)]
pub struct Scrape {
    listener: TcpListener,
    stopped: AtomicBool,
}

impl Scrape {
    /// Listens at `address`.
    ///
    /// # Errors
    /// When somebody else does, or there is no such address here.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)
            .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
        Ok(Self { listener, stopped: AtomicBool::new(false) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves one connection after the other until [`Self::stop`]. What goes wrong with one ends that
    /// one alone.
    pub fn run(&self, admin: &dyn Admin) {
        while !self.stopped.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, _)) if !self.stopped.load(Ordering::Acquire) => {
                    // The client may be gone by now; nobody else wants to know.
                    let _ = serve(stream, admin);
                }
                Err(_) if !self.stopped.load(Ordering::Acquire) => {
                    // Out of descriptors or memory: give others time to return some.
                    std::thread::sleep(Duration::from_millis(100));
                }
                _ => {}
            }
        }
    }

    /// Lets [`Self::run`] return once it is done with the connection it serves.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn serve(mut stream: TcpStream, admin: &dyn Admin) -> io::Result<()> {
    let deadline = now() + CLIENT_TIMEOUT;
    let reply = match read_head(&mut stream, deadline)? {
        Some(head) if http::is_request(&head) => http::reply(&head, admin),
        _ => http::refusal(),
    };
    let deadline = now() + CLIENT_TIMEOUT;
    let mut rest = &reply[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time until `deadline`, of which there must be some.
fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(now()) {
        Duration::ZERO => Err(io::Error::new(io::ErrorKind::TimedOut, "it takes too long")),
        left => Ok(left),
    }
}

/// The head of a request, up to the empty line; `None` when it is too long or ends before that.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        // A client that sends a byte now and then must not take longer than one that sends none.
        stream.set_read_timeout(Some(left(deadline)?))?;
        let count = match stream.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        bytes.extend_from_slice(&chunk[..count]);
        let ends = |rest: &[u8]| rest.starts_with(b"\n\r\n") || rest.starts_with(b"\n\n");
        if (0..bytes.len()).any(|at| ends(&bytes[at..])) {
            return Ok(Some(bytes));
        }
        if count == 0 || bytes.len() > MAX_HEAD_LEN_BYTES {
            return Ok(None);
        }
    }
}
