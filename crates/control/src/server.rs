//! The daemon's side.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::protocol::{Admin, MAX_REPLY_LEN_BYTES, MAX_REQUEST_LEN_BYTES, Outcome, Reply, Request};
use crate::{Command, socket};

/// How long a client may keep a thread waiting for its request, or for taking the reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many copies of one volume can be mounted at a time.
const MAX_COPIES: u32 = 64;

/// A socket that listens. Dropping it removes the socket.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    stopped: AtomicBool,
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
            if UnixStream::connect(&path).is_ok() {
                continue;
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
            return Ok(Self { listener, path, stopped: AtomicBool::new(false) });
        }
        Err(annotate(io::Error::other(format!("{MAX_COPIES} daemons have volume {uuid} open"))))
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves one connection after the other until [`Self::stop`]. Several threads may call it at
    /// a time, so that a long request does not keep a short one waiting. What goes wrong with a
    /// connection ends that connection alone.
    pub fn run(&self, admin: &dyn Admin) {
        while !self.stopped.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, _)) if !self.stopped.load(Ordering::Acquire) => {
                    // The client may be gone by now; nobody else wants to know.
                    let _ = serve(&stream, admin);
                }
                Ok(_) => {}
                // Out of descriptors or memory: give others time to return some.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        // Passes the word on to the next thread that waits for a connection.
        self.wake();
    }

    /// Lets every [`Self::run`] return once it is done with the connection it serves.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        let _ = UnixStream::connect(&self.path);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn serve(stream: &UnixStream, admin: &dyn Admin) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let reply = match read_line(stream, MAX_REQUEST_LEN_BYTES) {
        Ok(line) => Reply::to_line(&line, admin),
        Err(error) => Reply::new(Outcome::Error(format!("the request cannot be read: {error}"))),
    };
    write_line(stream, &reply, MAX_REPLY_LEN_BYTES)
}

/// One line without its newline, of at most `max_len_bytes` with it.
pub(crate) fn read_line(stream: &UnixStream, max_len_bytes: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut chunk = [0; 4096];
    let mut stream = stream;
    loop {
        let count = match stream.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let part = &chunk[..count];
        let end = part.iter().position(|&byte| byte == b'\n');
        line.extend_from_slice(&part[..end.unwrap_or(count)]);
        if line.len() >= max_len_bytes {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it is longer than {max_len_bytes} bytes"),
            ));
        }
        match end {
            Some(_) => return Ok(line),
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
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    if line.len() > max_len_bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than the protocol allows"));
    }
    let mut stream = stream;
    stream.write_all(&line)
}

/// Sends `command` over `stream`.
pub(crate) fn send(stream: &UnixStream, command: Command) -> io::Result<()> {
    write_line(stream, &Request::new(command), MAX_REQUEST_LEN_BYTES)
}
