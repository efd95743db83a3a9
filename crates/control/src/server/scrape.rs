//! Metrics over TCP, for Prometheus: as much of HTTP as that takes, and no request that changes
//! anything. The control socket serves the same; a TCP port is for clients that cannot reach it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::http;
use crate::admin::Admin;
use crate::socket::Deadline;

/// How long a client may take to send its request, and to receive the reply. Clients are served one
/// after the other, so each delays those behind it.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a connection is given up.
const TOO_SLOW: &str = "it takes too long";

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
    /// When the address is in use, or none of this machine's.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)
            .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
        Ok(Self { listener, stopped: AtomicBool::new(false) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the kernel cannot say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves one connection after the other until [`Self::stop`]. An error on a connection ends
    /// that connection alone.
    pub fn run(&self, admin: &dyn Admin) {
        while !self.stopped.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, _)) if !self.stopped.load(Ordering::Acquire) => {
                    // An error means that the client is gone, so there is nobody to report it to.
                    let _ = serve(stream, admin);
                }
                Err(_) if !self.stopped.load(Ordering::Acquire) => {
                    // Out of descriptors or memory: wait until other threads release some.
                    std::thread::sleep(Duration::from_millis(100));
                }
                _ => {}
            }
        }
    }

    /// Makes [`Self::run`] return once it has served its connection.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn serve(mut stream: TcpStream, admin: &dyn Admin) -> io::Result<()> {
    let deadline = Deadline::after(CLIENT_TIMEOUT);
    let reply = match read_head(&mut stream, deadline)? {
        Some(head) if http::is_request(&head) => http::reply(&head, admin),
        _ => http::refusal(),
    };
    let deadline = Deadline::after(CLIENT_TIMEOUT);
    let mut rest = &reply[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(deadline.left(TOO_SLOW)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The head of a request, up to the empty line; `None` when it is too long or ends before that.
fn read_head(stream: &mut TcpStream, deadline: Deadline) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        stream.set_read_timeout(Some(deadline.left(TOO_SLOW)?))?;
        let count = match stream.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        bytes.extend_from_slice(&chunk[..count]);
        if http::head_end(&bytes, 0).is_some() {
            return Ok(Some(bytes));
        }
        if count == 0 || bytes.len() > MAX_HEAD_LEN_BYTES {
            return Ok(None);
        }
    }
}
