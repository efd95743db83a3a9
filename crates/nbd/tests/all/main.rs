//! The server, asked by a client that has the protocol of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod activity;
mod data;
mod hostile;
mod listener;
mod negotiation;
mod tls;

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;

use dendro_nbd::testing::{Client, MemoryExport, MemoryExports};
use dendro_nbd::{Activity, Listener, Server, TlsConfig};
use tempfile::TempDir;

/// The size of each export.
const SIZE_BYTES: usize = 1 << 20;

/// A server with the exports `disk`, and `old` that is read-only.
struct Served {
    server: Server,
    activity: Arc<Activity>,
    disk: Arc<MemoryExport>,
    socket: PathBuf,
    _directory: TempDir,
}

impl Served {
    fn new() -> Self {
        Self::with_tls(None)
    }

    fn with_tls(tls: Option<TlsConfig>) -> Self {
        Self::with(SIZE_BYTES, tls)
    }

    fn with(size_bytes: usize, tls: Option<TlsConfig>) -> Self {
        Self::counting(size_bytes, tls, Activity::new(64 << 20))
    }

    fn counting(size_bytes: usize, tls: Option<TlsConfig>, activity: Activity) -> Self {
        let directory = TempDir::new().unwrap();
        let socket = directory.path().join("socket");
        let listener = Listener::Unix(UnixListener::bind(&socket).unwrap());
        let disk = Arc::new(MemoryExport::new(size_bytes, false));
        let old = Arc::new(MemoryExport::new(size_bytes, true));
        let exports = MemoryExports(vec![("disk", Arc::clone(&disk)), ("old", old)]);
        let activity = Arc::new(activity);
        let counting = Arc::clone(&activity);
        let server = Server::start(listener, Arc::new(exports), tls, counting).unwrap();
        Self { server, activity, disk, socket, _directory: directory }
    }

    fn stream(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        // A test that would hang fails.
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        stream
    }

    fn connect(&self) -> Client<UnixStream> {
        Client::connect(self.stream()).unwrap()
    }

    /// A client that reads and writes an export, with all that there is.
    fn open(&self, name: &str) -> Client<UnixStream> {
        let mut client = self.connect();
        client.agree_on_all(name).unwrap();
        assert_eq!(client.go(name).unwrap(), (1, vec![]));
        client
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..4000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("not within 20 seconds: {what}");
}
