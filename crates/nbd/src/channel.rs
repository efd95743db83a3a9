//! The two directions of a connection, plain or encrypted. One thread reads while another writes.
//!
//! # Lock order
//! `outgoing`, then `tls`. A thread that reads may take both, because no thread that writes waits
//! for one that reads.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dendro_base::sync::Mutex;
use rustix::net::{AddressFamily, sockopt};
use rustls::{ServerConfig, ServerConnection};

use crate::budget::{Account, Pace};

/// How long a client may be silent before it has chosen an export.
const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(30);

/// How much is read from the socket at a time where it is encrypted.
const RAW_LEN_BYTES: usize = 32 << 10;

/// How much the kernel is asked to hold of what was sent and not received. It allows twice that.
const SENT_LEN_BYTES: usize = 1 << 20;

/// A connection. The socket may be any stream socket: only calls are used that all of them have.
pub(crate) struct Channel {
    socket: UnixStream,
    tls: Option<Mutex<ServerConnection>>,
    /// What is encrypted and about to be sent. Whoever sends holds it.
    outgoing: Mutex<Vec<u8>>,
    /// The memory of its requests, once there may be some.
    account: OnceLock<Arc<Account>>,
}

impl Channel {
    /// A connection whose client has to choose an export without delay.
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        set_timeout(&socket, NEGOTIATION_TIMEOUT)?;
        // The kernel finds what is right for TCP. Without this, a reply waits for its client.
        if sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX)
            && sockopt::set_socket_send_buffer_size_force(&socket, SENT_LEN_BYTES).is_err()
        {
            // As much as users may have, or as it is.
            let _ = sockopt::set_socket_send_buffer_size(&socket, SENT_LEN_BYTES);
        }
        Ok(Self { socket, tls: None, outgoing: Mutex::default(), account: OnceLock::new() })
    }

    /// The same connection, encrypted.
    ///
    /// # Errors
    /// If the client and the server do not come to terms.
    pub(crate) fn encrypted(self, config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut socket = &self.socket;
        while tls.is_handshaking() {
            let (read, written) = tls.complete_io(&mut socket)?;
            if (read, written) == (0, 0) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Self { tls: Some(Mutex::new(tls)), ..self })
    }

    /// Whether it is encrypted.
    pub(crate) const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// From now on the client may be silent, and slow as far as `account` allows. A read that waits
    /// for long fails with [`io::ErrorKind::WouldBlock`], and may be repeated.
    pub(crate) fn begin_transmission(&self, account: &Arc<Account>) -> io::Result<()> {
        set_timeout(&self.socket, account.patience())?;
        self.account.get_or_init(|| Arc::clone(account));
        Ok(())
    }

    /// The pace of a client that is to take something from now on.
    fn pace(&self) -> Pace {
        Pace::new(self.account.get().map_or(NEGOTIATION_TIMEOUT, |account| account.patience()))
    }

    /// Fails if the client is given up, because it is too slow.
    fn check(&self, pace: &mut Pace) -> io::Result<()> {
        match self.account.get() {
            Some(account) => account.check(pace),
            None if pace.is_too_slow() => Err(io::ErrorKind::TimedOut.into()),
            None => Ok(()),
        }
    }

    /// Ends both directions.
    pub(crate) fn shut_down(&self) {
        // The client may have done so before.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Ends a connection in good order.
    pub(crate) fn close(&self) {
        if let Some(tls) = &self.tls {
            let mut outgoing = self.outgoing.lock();
            tls.lock().send_close_notify();
            // If the client has gone, nobody is left to be told.
            let _ = self.send_encrypted(tls, &mut outgoing);
        }
        self.shut_down();
    }

    /// Sends `head`, and then `data`.
    pub(crate) fn send(&self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let mut outgoing = self.outgoing.lock();
        let Some(tls) = &self.tls else { return self.send_plain(head, data) };
        for mut rest in [head, data] {
            while !rest.is_empty() {
                // Takes as much as its buffer has room for.
                let taken = tls.lock().writer().write(rest)?;
                rest = &rest[taken..];
                self.send_encrypted(tls, &mut outgoing)?;
            }
        }
        Ok(())
    }

    fn send_plain(&self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let mut slices = [IoSlice::new(head), IoSlice::new(data)];
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        let mut pace = self.pace();
        while !rest.is_empty() {
            match (&self.socket).write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    IoSlice::advance_slices(&mut rest, sent);
                    pace.note(sent);
                }
                Err(error) => note_error(error, &mut pace)?,
            }
            if !rest.is_empty() {
                self.check(&mut pace)?;
            }
        }
        Ok(())
    }

    fn send_encrypted(
        &self,
        tls: &Mutex<ServerConnection>,
        outgoing: &mut Vec<u8>,
    ) -> io::Result<()> {
        outgoing.clear();
        {
            let mut tls = tls.lock();
            while tls.wants_write() {
                tls.write_tls(outgoing)?;
            }
        }
        self.send_plain(outgoing, &[])
    }
}

/// How long a read or write may wait.
fn set_timeout(socket: &UnixStream, timeout: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(timeout))?;
    socket.set_write_timeout(Some(timeout))
}

/// Notes that a read or write was interrupted, or has waited for long; both may be repeated.
pub(crate) fn note_error(error: io::Error, pace: &mut Pace) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock => {
            pace.note_nothing();
            Ok(())
        }
        _ => Err(error),
    }
}

/// What is read of a connection.
pub(crate) struct Incoming {
    channel: Arc<Channel>,
    /// What was read and is not decrypted yet.
    raw: Vec<u8>,
    taken: usize,
}

impl Incoming {
    pub(crate) const fn new(channel: Arc<Channel>) -> Self {
        Self { channel, raw: Vec::new(), taken: 0 }
    }

    /// Gives bytes that were read to the decryption; reads some if there are none. Returns whether
    /// the connection goes on.
    fn feed(&mut self, tls: &Mutex<ServerConnection>) -> io::Result<bool> {
        if self.taken == self.raw.len() {
            self.raw.resize(RAW_LEN_BYTES, 0);
            let read = (&self.channel.socket).read(&mut self.raw);
            self.raw.truncate(*read.as_ref().unwrap_or(&0));
            self.taken = 0;
            if read? == 0 {
                return Ok(false);
            }
        }
        let must_send = {
            let mut tls = tls.lock();
            let mut rest = &self.raw[self.taken..];
            let len = rest.len();
            tls.read_tls(&mut rest)?;
            self.taken += len - rest.len();
            let processed = tls.process_new_packets();
            processed.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
            tls.wants_write()
        };
        if must_send {
            self.channel.send_encrypted(tls, &mut self.channel.outgoing.lock())?;
        }
        Ok(true)
    }
}

impl Read for Incoming {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let channel = Arc::clone(&self.channel);
        let Some(tls) = &channel.tls else { return (&channel.socket).read(buf) };
        loop {
            let read = tls.lock().reader().read(buf);
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.feed(tls)? {
                        return Ok(0);
                    }
                }
                other => return other,
            }
        }
    }
}
