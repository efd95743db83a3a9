//! What servers have done, and who is connected to them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dendro_base::Timestamp;
use dendro_base::sync::Mutex;

use crate::budget::Memory;
use crate::export::{Errno, Export};

/// How long a client may take to go on with a request whose memory others wait for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// Zeroes.
    Zero,
    /// A trim.
    Trim,
    /// A flush.
    Flush,
    /// Block status.
    BlockStatus,
    /// A hint, or what this server does not know.
    Other,
}

impl RequestKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::Zero,
        Self::Trim,
        Self::Flush,
        Self::BlockStatus,
        Self::Other,
    ];
}

/// Why requests failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The device failed, or data are damaged.
    Io,
    /// No space is left.
    NoSpace,
    /// The client has asked for what it may not, or what makes no sense.
    Refused,
}

impl FailureKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Io, Self::NoSpace, Self::Refused];
}

impl From<Errno> for FailureKind {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::Io => Self::Io,
            Errno::NoSpace => Self::NoSpace,
            Errno::NotPermitted
            | Errno::Invalid
            | Errno::Overflow
            | Errno::NotSupported
            | Errno::ShutDown => Self::Refused,
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client at a port.
    Address(SocketAddr),
    /// A process that has connected to a socket in the file system; `None`: the kernel does not
    /// say which.
    Process(Option<u32>),
}

/// A connection that has an export open.
#[derive(Clone)]
pub struct Connection {
    /// Who has it.
    pub peer: Peer,
    /// When the client has connected.
    pub since: Timestamp,
    /// Whether it can only read.
    pub is_read_only: bool,
    /// Whether it is encrypted.
    pub is_encrypted: bool,
    pub(crate) export: Weak<dyn Export>,
}

impl Connection {
    /// Whether it is `export` that it has open.
    #[must_use]
    pub fn has_open<T>(&self, export: &Weak<T>) -> bool {
        // As long as there is a weak pointer, nothing else has this address.
        std::ptr::addr_eq(self.export.as_ptr(), export.as_ptr())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Count {
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// What servers that follow each other share: the memory for requests, counters, and the list of
/// connections.
pub struct Activity {
    memory: Arc<Memory>,
    counts: [Count; RequestKind::ALL.len()],
    failures: [AtomicU64; FailureKind::ALL.len()],
    /// How many connections have begun, and how many of them have ended.
    begun: AtomicU64,
    ended: AtomicU64,
    connections: Mutex<BTreeMap<u64, Connection>>,
}

impl fmt::Debug for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Activity").finish_non_exhaustive()
    }
}

impl Activity {
    /// Nothing yet. All requests that are under way take up to `memory_bytes`, and at least what
    /// the longest request needs; beside that each thread has 64 KiB.
    #[must_use]
    pub fn new(memory_bytes: u64) -> Self {
        Self::with_patience(memory_bytes, PATIENCE)
    }

    /// The same, where a client that does not go on is given up after `patience`, if others wait
    /// for its memory.
    #[must_use]
    pub fn with_patience(memory_bytes: u64, patience: Duration) -> Self {
        Self {
            memory: Arc::new(Memory::new(memory_bytes, patience)),
            counts: Default::default(),
            failures: Default::default(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            connections: Mutex::default(),
        }
    }

    /// How many requests of a kind there were.
    #[must_use]
    pub fn requests(&self, kind: RequestKind) -> u64 {
        self.counts[kind as usize].requests.load(Ordering::Relaxed)
    }

    /// How many bytes those of them were about that did something: reads, writes, zeroes, trims.
    #[must_use]
    pub fn bytes(&self, kind: RequestKind) -> u64 {
        self.counts[kind as usize].bytes.load(Ordering::Relaxed)
    }

    /// How many requests have failed so.
    #[must_use]
    pub fn failures(&self, kind: FailureKind) -> u64 {
        self.failures[kind as usize].load(Ordering::Relaxed)
    }

    /// How many connections there are, and were.
    #[must_use]
    pub fn begun_connections(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// How many connections there are.
    #[must_use]
    pub fn open_connections(&self) -> u64 {
        // In this order, so that it is not below zero.
        let ended = self.ended.load(Ordering::Acquire);
        self.begun.load(Ordering::Relaxed) - ended
    }

    /// The connections that have an export open, the oldest first.
    #[must_use]
    pub fn connections(&self) -> Vec<Connection> {
        self.connections.lock().values().cloned().collect()
    }

    /// The memory that requests take which are under way.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory.taken_bytes()
    }

    pub(crate) const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn note_request(&self, kind: RequestKind) {
        self.counts[kind as usize].requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_bytes(&self, kind: RequestKind, len_bytes: u32) {
        self.counts[kind as usize].bytes.fetch_add(len_bytes.into(), Ordering::Relaxed);
    }

    pub(crate) fn note_failure(&self, kind: FailureKind) {
        self.failures[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection, and returns its number.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that a connection has opened an export.
    pub(crate) fn note_open(&self, number: u64, connection: Connection) {
        self.connections.lock().insert(number, connection);
    }

    /// Notes the end of a connection.
    pub(crate) fn end(&self, number: u64) {
        self.connections.lock().remove(&number);
        self.ended.fetch_add(1, Ordering::Release);
    }
}
