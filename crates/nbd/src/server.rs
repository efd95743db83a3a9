//! All connections.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dendro_base::sync::{Condvar, Mutex};
use dendro_base::{Clock, SystemClock, Timestamp};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::activity::{Activity, Connection, Peer};
use crate::export::Exports;
use crate::negotiation::Agreed;
use crate::session;
use crate::tls::TlsConfig;

/// The most connections at a time. For one more, the oldest that has not chosen an export is
/// closed, so that those who only connect keep nobody out. If all have chosen, the new one is
/// closed.
pub const MAX_CONNECTIONS: usize = 128;

/// How long the replies to what was asked for may take when a server stops.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How long to wait after a connection could not be accepted, as for lack of memory.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// How long a client at a port may be silent until its kernel is asked whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// How long after that it is asked again.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How often it is asked.
const KEEPALIVE_COUNT: u32 = 6;

/// Where clients connect.
#[derive(Debug)]
pub enum Listener {
    /// A socket in the file system.
    Unix(UnixListener),
    /// A port.
    Tcp(TcpListener),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Listener {
    /// The listener that a descriptor is.
    ///
    /// # Errors
    /// If it is no stream socket that listens, in the file system or at a port.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        let no_listener = || io::Error::new(io::ErrorKind::InvalidInput, "no listening socket");
        let is_stream = sockopt::socket_type(&descriptor)? == SocketType::STREAM;
        if !is_stream || !sockopt::socket_acceptconn(&descriptor)? {
            return Err(no_listener());
        }
        // A connection is waited for.
        rustix::io::ioctl_fionbio(&descriptor, false)?;
        match sockopt::socket_domain(&descriptor)? {
            AddressFamily::UNIX => Ok(Self::Unix(descriptor.into())),
            AddressFamily::INET | AddressFamily::INET6 => Ok(Self::Tcp(descriptor.into())),
            _ => Err(no_listener()),
        }
    }

    fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        match self {
            Self::Unix(listener) => {
                let stream = listener.accept()?.0;
                let process = sockopt::socket_peercred(&stream).ok();
                let pid = process.map(|of| of.pid.as_raw_nonzero().get().unsigned_abs());
                Ok((stream, Peer::Process(pid)))
            }
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nodelay(true)?;
                notice_when_it_is_gone(&stream)?;
                // What is done with it is the same for each stream socket.
                Ok((UnixStream::from(OwnedFd::from(stream)), Peer::Address(address)))
            }
        }
    }
}

/// Ends a connection whose client's machine has gone. Until then its device can be neither deleted
/// nor rolled back, and the kernel by itself would take two hours.
fn notice_when_it_is_gone(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
    Ok(())
}

/// A server. It stops when this value is dropped.
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    listener: Listener,
    exports: Arc<dyn Exports>,
    tls: Option<TlsConfig>,
    activity: Arc<Activity>,
    connections: Mutex<Connections>,
    /// Signals that one has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Connections {
    is_stopping: bool,
    open: BTreeMap<u64, Open>,
}

struct Open {
    socket: UnixStream,
    /// Whether no export was chosen yet, so that it may be closed to make room.
    is_idle: bool,
}

impl Connections {
    /// Closes the oldest connection that has chosen no export. Returns whether there was one.
    fn close_one(&mut self) -> bool {
        let Some(open) = self.open.values_mut().find(|open| open.is_idle) else { return false };
        // Its thread sees that, and ends.
        let _ = open.socket.shutdown(Shutdown::Both);
        open.is_idle = false;
        true
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("listener", &self.shared.listener).finish_non_exhaustive()
    }
}

impl Server {
    /// Begins to serve. With `tls`, only clients that have a certificate are served. `activity`
    /// counts what is done, and has the memory for it.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        listener: Listener,
        exports: Arc<dyn Exports>,
        tls: Option<TlsConfig>,
        activity: Arc<Activity>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            listener,
            exports,
            tls,
            activity,
            connections: Mutex::default(),
            ended: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let acceptor =
            thread::Builder::new().name("nbd-accept".into()).spawn(move || accepting.accept())?;
        Ok(Self { shared, acceptor: Some(acceptor) })
    }

    /// How many connections there are.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.shared.connections.lock().open.len()
    }

    /// Ends all connections, once what they have asked for is done and told them; a client that
    /// does not take its replies is given up after some seconds.
    pub fn stop(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        {
            let mut connections = self.shared.connections.lock();
            connections.is_stopping = true;
            for open in connections.open.values() {
                // It may have ended by itself.
                let _ = open.socket.shutdown(Shutdown::Read);
            }
        }
        // This wakes the thread that accepts.
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            // A panic of the thread is a bug, and it was printed.
            let _ = acceptor.join();
        }
        let mut connections = self.shared.connections.lock();
        let mut is_in_time = true;
        while !connections.open.is_empty() {
            if !is_in_time {
                for open in connections.open.values() {
                    let _ = open.socket.shutdown(Shutdown::Both);
                }
                self.shared.ended.wait(&mut connections);
            } else {
                let waited = self.shared.ended.wait_for(&mut connections, STOP_GRACE);
                is_in_time = !waited.timed_out();
            }
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>) {
        loop {
            let accepted = self.listener.accept();
            if self.connections.lock().is_stopping {
                return;
            }
            let begun = accepted.and_then(|(socket, peer)| self.begin(socket, peer));
            if let Err(error) = begun {
                log::warn!("a client of NBD could not be served: {error}");
                thread::sleep(ACCEPT_REST);
            }
        }
    }

    /// Starts the thread of a connection.
    fn begin(self: &Arc<Self>, socket: UnixStream, peer: Peer) -> io::Result<()> {
        let entry = {
            let mut connections = self.connections.lock();
            if connections.is_stopping {
                return Ok(());
            }
            if connections.open.len() >= MAX_CONNECTIONS && !connections.close_one() {
                log::warn!("a client of NBD was sent away: there are {MAX_CONNECTIONS} already");
                return Ok(());
            }
            let open = Open { socket: socket.try_clone()?, is_idle: true };
            let number = self.activity.begin();
            connections.open.insert(number, open);
            Entry { shared: Arc::clone(self), number, peer, since: SystemClock.now() }
        };
        let serve = move || {
            let shared = &entry.shared;
            let Shared { exports, tls, activity, .. } = &**shared;
            let on_agreed = |agreed: &Agreed, is_encrypted| entry.agreed(agreed, is_encrypted);
            let served = session::serve(socket, &**exports, tls.as_ref(), activity, &on_agreed);
            if let Err(error) = served {
                // Clients vanish all the time.
                log::debug!("a connection of NBD ended: {error}");
            }
        };
        thread::Builder::new().name("nbd".into()).spawn(serve)?;
        Ok(())
    }
}

/// A connection among those that are open.
struct Entry {
    shared: Arc<Shared>,
    number: u64,
    peer: Peer,
    since: Timestamp,
}

impl Entry {
    /// Notes that an export was chosen.
    fn agreed(&self, Agreed { export, .. }: &Agreed, is_encrypted: bool) {
        let connection = Connection {
            peer: self.peer,
            since: self.since,
            is_read_only: export.is_read_only(),
            is_encrypted,
            export: Arc::downgrade(export),
        };
        self.shared.activity.note_open(self.number, connection);
        if let Some(open) = self.shared.connections.lock().open.get_mut(&self.number) {
            open.is_idle = false;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.activity.end(self.number);
        self.shared.connections.lock().open.remove(&self.number);
        self.shared.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_at_a_port_whose_machine_has_gone_is_given_up_after_two_minutes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let _client = TcpStream::connect(address).expect("it listens");
        let (accepted, _) = Listener::Tcp(listener).accept().expect("a client has connected");
        assert_eq!(sockopt::socket_keepalive(&accepted), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&accepted), Ok(Duration::from_secs(60)));
        assert_eq!(sockopt::tcp_keepintvl(&accepted), Ok(Duration::from_secs(10)));
        assert_eq!(sockopt::tcp_keepcnt(&accepted), Ok(6));
    }
}
