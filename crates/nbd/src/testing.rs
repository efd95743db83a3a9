//! A client, and an export in memory, for tests. The client has the numbers of the protocol of its
//! own, so that a wrong one in the server is found.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dendro_base::sync::{Condvar, Mutex};
use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32, U64};

use crate::export::{Errno, Export, Exports, Extent, Failure, ListedExport, Result};
use crate::negotiation::{Encryption, Negotiation, Next};
use crate::requests::{self, Command, REQUEST_LEN_BYTES, Request};

/// Options.
pub mod option {
    #![allow(missing_docs, reason = "they are those of the protocol")]
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Requests.
pub mod command {
    #![allow(missing_docs, reason = "they are those of the protocol")]
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub mod flag {
    #![allow(missing_docs, reason = "they are those of the protocol")]
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 2;
    pub const DF: u16 = 4;
    pub const REQ_ONE: u16 = 8;
}

/// Takes `bytes` for what a client sends: options, each with its number and the length of its data
/// before it, and then requests. Whatever they are, what is answered to options must be whole, and
/// what is asked for must lie in the export.
///
/// # Panics
/// When that is not so.
pub fn take_any(bytes: &[u8]) {
    let disk = Arc::new(MemoryExport::new(1 << 20, false));
    let old = Arc::new(MemoryExport::new(1 << 20, true));
    let exports = MemoryExports(vec![("disk", disk), ("old", old)]);
    let Some((&first, mut rest)) = bytes.split_first() else { return };
    let flags = u32::from(first & 7);
    let Some(mut negotiation) = Negotiation::new(&exports, Encryption::Never, flags) else {
        return;
    };
    let mut agreed = None;
    while let Some(([option, len], after)) = rest.split_first_chunk::<2>() {
        let (data, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        let mut out = Vec::new();
        let next = negotiation.take(u32::from(*option), data, &mut out);
        if u32::from(*option) != option::EXPORT_NAME {
            assert_is_whole(&out);
        }
        match next {
            Next::Option => {}
            Next::StartTls => panic!("there are no certificates"),
            Next::End => return,
            Next::Data(found) => {
                agreed = Some(found);
                break;
            }
        }
    }
    let Some(agreed) = agreed else { return };
    let (size_bytes, is_read_only) = (agreed.export.size_bytes(), agreed.export.is_read_only());
    for bytes in rest.chunks_exact(REQUEST_LEN_BYTES) {
        let bytes = bytes.try_into().expect("it is that long");
        let request = requests::decode(bytes, &*agreed.export, agreed.has_block_status);
        let Some(Request { command: Ok(command), .. }) = request else { continue };
        let (offset, len_bytes, is_change) = match command {
            Command::Read { offset, len_bytes, .. }
            | Command::BlockStatus { offset, len_bytes, .. } => (offset, len_bytes, false),
            Command::Write { offset, len_bytes, .. }
            | Command::Zero { offset, len_bytes, .. }
            | Command::Trim { offset, len_bytes, .. } => (offset, len_bytes, true),
            Command::Flush | Command::Nothing | Command::Disconnect => continue,
        };
        assert!(len_bytes > 0 && offset <= size_bytes - u64::from(len_bytes));
        assert!(!(is_change && is_read_only));
    }
}

/// Checks that replies to options have the length that they say.
fn assert_is_whole(mut replies: &[u8]) {
    while !replies.is_empty() {
        let (header, rest) = replies.split_at(20);
        let len = U32::from_bytes(header[16..].try_into().expect("four")).get();
        replies = &rest[len as usize..];
    }
}

/// The reply to an option: its kind and its data.
pub type OptionReply = (u32, Vec<u8>);

/// The reply to a request, put together of all its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// 0 if it succeeded.
    pub error: u32,
    /// What people are told of an error.
    pub message: String,
    /// What was read.
    pub data: Vec<u8>,
    /// How many of these bytes were sent as holes.
    pub hole_len_bytes: u64,
    /// In how many parts they came.
    pub part_count: usize,
    /// The answer to a request for block status: lengths and flags.
    pub extents: Vec<(u32, u32)>,
}

impl Reply {
    /// The same, if it succeeded.
    ///
    /// # Panics
    /// When it did not.
    pub fn unwrap(self) -> Self {
        assert_eq!(self.error, 0, "{}", self.message);
        self
    }
}

/// A client of the protocol.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    cookie: u64,
    /// Requests without a reply, each with the range that it reads.
    pending: HashMap<u64, (u64, u32, Reply)>,
    size_bytes: u64,
    flags: u16,
}

impl<S: Read + Write> Client<S> {
    /// Takes the greeting, and answers it.
    ///
    /// # Errors
    /// If the connection ends.
    ///
    /// # Panics
    /// When the greeting is another one.
    pub fn connect(mut stream: S) -> io::Result<Self> {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        stream.write_all(b"\0\0\0\x03")?;
        Ok(Self::connected(stream))
    }

    /// A client on a connection whose greeting is over.
    pub fn connected(stream: S) -> Self {
        Self { stream, cookie: 0, pending: HashMap::new(), size_bytes: 0, flags: 0 }
    }

    /// The size of the export that was chosen.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// What the server says that it can do.
    #[must_use]
    pub const fn flags(&self) -> u16 {
        self.flags
    }

    /// The connection.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// Sends any bytes.
    ///
    /// # Errors
    /// If the connection ends.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    fn bytes(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u16(&mut self) -> io::Result<u16> {
        let mut value = U16::ZERO;
        self.stream.read_exact(value.as_mut_bytes())?;
        Ok(value.get())
    }

    fn u32(&mut self) -> io::Result<u32> {
        let mut value = U32::ZERO;
        self.stream.read_exact(value.as_mut_bytes())?;
        Ok(value.get())
    }

    fn u64(&mut self) -> io::Result<u64> {
        let mut value = U64::ZERO;
        self.stream.read_exact(value.as_mut_bytes())?;
        Ok(value.get())
    }

    /// Sends an option, without waiting for an answer.
    ///
    /// # Errors
    /// If the connection ends.
    pub fn send_option(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let head = [U32::new(option), U32::new(data.len() as u32)];
        self.stream.write_all(&[b"IHAVEOPT", head.as_bytes(), data].concat())
    }

    /// Sends an option, and returns all replies to it; the last one is an acknowledgement (1) or an
    /// error.
    ///
    /// # Errors
    /// If the connection ends.
    ///
    /// # Panics
    /// When there is an answer of another protocol.
    pub fn option(&mut self, option: u32, data: &[u8]) -> io::Result<Vec<OptionReply>> {
        self.send_option(option, data)?;
        let mut replies = Vec::new();
        loop {
            assert_eq!(self.u64()?, 0x0003_e889_0455_65a9);
            assert_eq!(self.u32()?, option);
            let (kind, len) = (self.u32()?, self.u32()?);
            let data = self.bytes(len as usize)?;
            replies.push((kind, data));
            if kind == 1 || kind >> 31 == 1 {
                return Ok(replies);
            }
        }
    }

    /// Agrees on structured replies, and on block status for the export `name`.
    ///
    /// # Errors
    /// If the connection ends.
    ///
    /// # Panics
    /// When the server has other contexts than `base:allocation`.
    pub fn agree_on_all(&mut self, name: &str) -> io::Result<()> {
        assert_eq!(self.option(option::STRUCTURED_REPLY, b"")?, [(1, vec![])]);
        let query = string("base:allocation");
        let data = [string(name), U32::new(1).as_bytes().to_vec(), query].concat();
        let replies = self.option(option::SET_META_CONTEXT, &data)?;
        assert_eq!(replies.len(), 2, "{replies:?}");
        Ok(())
    }

    /// Chooses an export, after which data follow. Returns the last reply to it.
    ///
    /// # Errors
    /// If the connection ends.
    pub fn go(&mut self, name: &str) -> io::Result<OptionReply> {
        let data = [string(name), vec![0, 0]].concat();
        let mut replies = self.option(option::GO, &data)?;
        for (kind, data) in &replies {
            if let (3, [0, 0, size @ .., high, low]) = (kind, &data[..])
                && let Ok(size) = <[u8; 8]>::try_from(size)
            {
                self.size_bytes = U64::from_bytes(size).get();
                self.flags = U16::from_bytes([*high, *low]).get();
            }
        }
        Ok(replies.pop().expect("there is one"))
    }

    /// Sends a request, and returns its cookie.
    ///
    /// # Errors
    /// If the connection ends.
    pub fn send(
        &mut self,
        (command, flags): (u16, u16),
        offset: u64,
        len_bytes: u32,
        data: &[u8],
    ) -> io::Result<u64> {
        self.cookie += 1;
        let magic = b"\x25\x60\x95\x13";
        let kind = [U16::new(flags), U16::new(command)];
        let place = [U64::new(self.cookie), U64::new(offset)];
        let len = U32::new(len_bytes);
        let head = [magic, kind.as_bytes(), place.as_bytes(), len.as_bytes(), data].concat();
        self.stream.write_all(&head)?;
        let len_bytes = if command == command::READ { len_bytes } else { 0 };
        self.pending.insert(self.cookie, (offset, len_bytes, Reply::default()));
        Ok(self.cookie)
    }

    /// The next reply that is complete, whichever request it is of.
    ///
    /// # Errors
    /// If the connection ends.
    ///
    /// # Panics
    /// When it is none of the protocol, or of no request.
    pub fn receive(&mut self) -> io::Result<(u64, Reply)> {
        loop {
            let (cookie, is_last) = match self.u32()? {
                0x6744_6698 => (self.receive_simple()?, true),
                0x668e_33ef => self.receive_chunk()?,
                other => panic!("no reply begins with {other:#x}"),
            };
            if is_last {
                let (_, _, reply) = self.pending.remove(&cookie).expect("it was sent");
                return Ok((cookie, reply));
            }
        }
    }

    fn receive_simple(&mut self) -> io::Result<u64> {
        let (error, cookie) = (self.u32()?, self.u64()?);
        let len_bytes = self.pending.get(&cookie).expect("it was sent").1;
        let data = if error == 0 { self.bytes(len_bytes as usize)? } else { Vec::new() };
        let (_, _, reply) = self.pending.get_mut(&cookie).expect("it was sent");
        reply.error = error;
        reply.data = data;
        Ok(cookie)
    }

    fn receive_chunk(&mut self) -> io::Result<(u64, bool)> {
        let (flags, kind) = (self.u16()?, self.u16()?);
        let (cookie, len) = (self.u64()?, self.u32()?);
        let payload = self.bytes(len as usize)?;
        let (offset, len_bytes, reply) = self.pending.get_mut(&cookie).expect("it was sent");
        let number = |at: usize| U32::from_bytes(payload[at..at + 4].try_into().expect("four"));
        let place = || {
            let at = U64::from_bytes(payload[..8].try_into().expect("eight")).get();
            usize::try_from(at - *offset).expect("it is inside")
        };
        reply.data.resize(*len_bytes as usize, 0xee);
        match kind {
            0 => {}
            1 => {
                let at = place();
                reply.data[at..at + payload.len() - 8].copy_from_slice(&payload[8..]);
                reply.part_count += 1;
            }
            2 => {
                let (at, len) = (place(), number(8).get() as usize);
                reply.data[at..at + len].fill(0);
                reply.hole_len_bytes += len as u64;
                reply.part_count += 1;
            }
            5 => {
                assert_eq!(number(0).get(), 1);
                let pairs = (4..payload.len()).step_by(8);
                reply.extents = pairs.map(|at| (number(at).get(), number(at + 4).get())).collect();
            }
            0x8001 => {
                reply.error = number(0).get();
                reply.message = String::from_utf8_lossy(&payload[6..]).into_owned();
            }
            other => panic!("no chunk is of kind {other:#x}"),
        }
        Ok((cookie, flags & 1 != 0))
    }

    /// Sends a request, and waits for its reply; no other one may be under way.
    ///
    /// # Errors
    /// If the connection ends.
    ///
    /// # Panics
    /// When the reply is one to another request.
    pub fn ask(
        &mut self,
        what: (u16, u16),
        offset: u64,
        len_bytes: u32,
        data: &[u8],
    ) -> io::Result<Reply> {
        let sent = self.send(what, offset, len_bytes, data)?;
        let (cookie, reply) = self.receive()?;
        assert_eq!(cookie, sent);
        Ok(reply)
    }

    /// Reads.
    ///
    /// # Errors
    /// If the connection ends.
    pub fn read(&mut self, offset: u64, len_bytes: u32) -> io::Result<Reply> {
        self.ask((command::READ, 0), offset, len_bytes, b"")
    }

    /// Writes; `flags` may be [`flag::FUA`].
    ///
    /// # Errors
    /// If the connection ends.
    pub fn write(&mut self, offset: u64, data: &[u8], flags: u16) -> io::Result<Reply> {
        self.ask((command::WRITE, flags), offset, data.len() as u32, data)
    }
}

/// A string of an option, with its length before it.
#[must_use]
pub fn string(text: &str) -> Vec<u8> {
    [U32::new(text.len() as u32).as_bytes(), text.as_bytes()].concat()
}

/// The size of what [`MemoryExport`] calls a hole, and prefers.
const BLOCK_LEN_BYTES: u64 = 4096;

/// An export in memory. Blocks of zeros are holes.
#[derive(Debug)]
pub struct MemoryExport {
    bytes: Mutex<Vec<u8>>,
    is_read_only: bool,
    is_held: Mutex<bool>,
    released: Condvar,
    /// Whether reads fail.
    pub is_broken: AtomicBool,
    /// How many reads are under way.
    pub reads: AtomicU64,
}

impl MemoryExport {
    /// An export of so many bytes, all zero.
    #[must_use]
    pub fn new(size_bytes: usize, is_read_only: bool) -> Self {
        Self {
            bytes: Mutex::new(vec![0; size_bytes]),
            is_read_only,
            is_held: Mutex::new(false),
            released: Condvar::new(),
            is_broken: AtomicBool::new(false),
            reads: AtomicU64::new(0),
        }
    }

    /// Makes reads wait, or lets them go on.
    pub fn hold(&self, is_held: bool) {
        *self.is_held.lock() = is_held;
        self.released.notify_all();
    }
}

impl Export for MemoryExport {
    fn size_bytes(&self) -> u64 {
        self.bytes.lock().len() as u64
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn description(&self) -> String {
        "memory".into()
    }

    fn preferred_block_bytes(&self) -> u32 {
        BLOCK_LEN_BYTES as u32
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let mut is_held = self.is_held.lock();
        while *is_held {
            self.released.wait(&mut is_held);
        }
        drop(is_held);
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(Failure::new(Errno::Io, "the memory is broken"));
        }
        buf.copy_from_slice(&self.bytes.lock()[offset as usize..][..buf.len()]);
        self.reads.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], _is_durable: bool) -> Result<()> {
        self.bytes.lock()[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn zero(&self, offset: u64, len_bytes: u64, _: bool, _: bool) -> Result<()> {
        self.bytes.lock()[offset as usize..][..len_bytes as usize].fill(0);
        Ok(())
    }

    fn trim(&self, offset: u64, len_bytes: u64, is_durable: bool) -> Result<()> {
        self.zero(offset, len_bytes, true, is_durable)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn extents(&self, offset: u64, len_bytes: u64, max_count: usize) -> Result<Vec<Extent>> {
        let bytes = self.bytes.lock();
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + len_bytes);
        while at < end {
            let next = ((at / BLOCK_LEN_BYTES + 1) * BLOCK_LEN_BYTES).min(end);
            let is_hole = bytes[at as usize..next as usize].iter().all(|&byte| byte == 0);
            let is_full = extents.len() == max_count;
            match extents.last_mut() {
                Some(last) if last.is_hole == is_hole => last.len_bytes += next - at,
                _ if is_full => break,
                _ => extents.push(Extent { len_bytes: next - at, is_hole }),
            }
            at = next;
        }
        Ok(extents)
    }
}

/// Exports in memory, by their names.
#[derive(Debug, Default)]
pub struct MemoryExports(pub Vec<(&'static str, Arc<MemoryExport>)>);

impl Exports for MemoryExports {
    fn list(&self) -> Result<Vec<ListedExport>> {
        let listed = |name: &str| ListedExport { name: name.into(), description: "memory".into() };
        Ok(self.0.iter().map(|(name, _)| listed(name)).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Export>> {
        let found = self.0.iter().find(|(of, _)| *of == name);
        match found {
            Some((_, export)) => Ok(Arc::clone(export) as _),
            None => Err(Failure::new(Errno::Invalid, format!("there is no export '{name}'"))),
        }
    }
}
