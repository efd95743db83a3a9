//! One connection, from its beginning to its end.
//!
//! Its threads take turns to read requests. The one that has read a request carries it out, while
//! another reads the next one, so that a request never waits for a thread to be woken. There are as
//! many threads as there were requests under way, up to [`MAX_WORKERS`].

use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope};

use dendro_base::sync::Mutex;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use crate::activity::{Activity, FailureKind, RequestKind};
use crate::budget::{Account, OWN_LEN_BYTES, Pace, Share};
use crate::channel::{Channel, Incoming, note_error};
use crate::export::{Errno, Exports, Extent, Failure};
use crate::negotiation::{self, Agreed, Encryption, Negotiation, Next};
use crate::replies;
use crate::requests::{self, Command, REQUEST_LEN_BYTES, Request};
use crate::tls::TlsConfig;
use crate::wire::{MAX_OPTION_LEN_BYTES, MAX_SKIPPED_LEN_BYTES, OPTION_MAGIC, OptionHeader};

/// The most threads of a connection, and so the most requests that are carried out at a time.
pub const MAX_WORKERS: usize = 16;

/// How many options a client may send.
const MAX_OPTIONS: usize = 1000;
/// How much of a connection is read ahead.
const READ_LEN_BYTES: usize = 64 << 10;
/// From which length on a read is looked at for holes, which are not sent.
const MIN_SPARSE_LEN_BYTES: u32 = 64 << 10;
/// The most parts of a read that has holes.
const MAX_READ_PARTS: usize = 256;
/// The most that is read before it is sent, where a reply may come in pieces. Clients mostly ask
/// for as much, which the disk is then asked for in one go.
const PIECE_LEN_BYTES: u32 = 1 << 20;
/// The most extents in a reply.
const MAX_EXTENTS: usize = 4096;

type Reader = BufReader<Incoming>;

/// Serves a connection until it ends. When the client has chosen an export, and before it is told
/// so, calls `on_agreed`, also with whether the connection is encrypted. An error says why it ended
/// before the client said so.
pub(crate) fn serve(
    socket: UnixStream,
    exports: &dyn Exports,
    tls: Option<&TlsConfig>,
    activity: &Activity,
    on_agreed: &dyn Fn(&Agreed, bool),
) -> io::Result<()> {
    let channel = Channel::new(socket)?;
    let Some((channel, reader, agreed)) = negotiate(channel, exports, tls, on_agreed)? else {
        return Ok(());
    };
    let account = Arc::new(Account::new(Arc::clone(activity.memory())));
    channel.begin_transmission(&account)?;
    let transmission = Transmission {
        channel: Arc::clone(&channel),
        agreed,
        activity,
        reader: Mutex::new(reader),
        account,
        waiting: AtomicUsize::new(0),
        workers: AtomicUsize::new(1),
        has_ended: AtomicBool::new(false),
        failure: Mutex::default(),
    };
    thread::scope(|scope| transmission.work(scope));
    channel.close();
    match transmission.failure.into_inner() {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

fn negotiate(
    channel: Channel,
    exports: &dyn Exports,
    tls: Option<&TlsConfig>,
    on_agreed: &dyn Fn(&Agreed, bool),
) -> io::Result<Option<(Arc<Channel>, Reader, Agreed)>> {
    let reader_of = |channel: &Arc<Channel>| {
        BufReader::with_capacity(READ_LEN_BYTES, Incoming::new(Arc::clone(channel)))
    };
    let mut channel = Arc::new(channel);
    let mut reader = reader_of(&channel);
    channel.send(negotiation::greeting().as_bytes(), &[])?;
    let flags = read_as::<U32>(&mut reader)?.get();
    let encryption = if tls.is_some() { Encryption::Awaited } else { Encryption::Never };
    let Some(mut negotiation) = Negotiation::new(exports, encryption, flags) else {
        return Err(invalid("the client has flags that this server has not"));
    };
    let (mut data, mut out) = (Vec::new(), Vec::new());
    for _ in 0..MAX_OPTIONS {
        let header: OptionHeader = read_as(&mut reader)?;
        let (option, len_bytes) = (header.option.get(), header.len_bytes.get());
        if header.magic.get() != OPTION_MAGIC || len_bytes > MAX_SKIPPED_LEN_BYTES {
            return Err(invalid("the client does not speak this protocol"));
        }
        out.clear();
        let next = if len_bytes > MAX_OPTION_LEN_BYTES {
            skip(&mut reader, len_bytes)?;
            negotiation::too_big(&mut out, option);
            Next::Option
        } else {
            data.resize(len_bytes as usize, 0);
            reader.read_exact(&mut data)?;
            negotiation.take(option, &data, &mut out)
        };
        if let Next::Data(agreed) = &next {
            on_agreed(agreed, channel.is_encrypted());
        }
        channel.send(&out, &[])?;
        match next {
            Next::Option => {}
            Next::End => return Ok(None),
            Next::Data(agreed) => return Ok(Some((channel, reader, agreed))),
            Next::StartTls => {
                // Somebody between could have put it there.
                if !reader.buffer().is_empty() {
                    return Err(invalid("the client goes on before the connection is encrypted"));
                }
                drop(reader);
                let plain = Arc::into_inner(channel).expect("the reader was the only other user");
                let config = tls.expect("TLS is begun only with certificates").config();
                channel = Arc::new(plain.encrypted(config)?);
                reader = reader_of(&channel);
                negotiation.encrypted();
            }
        }
    }
    Err(invalid("the client sends options without end"))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

fn read_as<T: FromBytes + IntoBytes>(reader: &mut impl Read) -> io::Result<T> {
    let mut value = T::new_zeroed();
    reader.read_exact(value.as_mut_bytes())?;
    Ok(value)
}

/// The data of a request: in its share, or in what the thread has.
fn data_of<'a>(
    share: &'a mut Option<Share<'_>>,
    own: &'a mut [u8],
    len_bytes: u32,
) -> &'a mut [u8] {
    &mut share.as_mut().map_or(own, Share::bytes)[..len_bytes as usize]
}

/// Reads `len_bytes` and forgets them.
fn skip(reader: &mut impl Read, len_bytes: u32) -> io::Result<()> {
    let skipped = io::copy(&mut reader.take(len_bytes.into()), &mut io::sink())?;
    if skipped == u64::from(len_bytes) { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

/// A request. What it brings is in its share of the memory, or in the buffer of the thread.
struct Taken<'a> {
    request: Request,
    share: Option<Share<'a>>,
}

/// A connection that reads and writes data.
struct Transmission<'a> {
    channel: Arc<Channel>,
    agreed: Agreed,
    activity: &'a Activity,
    reader: Mutex<Reader>,
    account: Arc<Account>,
    /// Threads that wait for their turn to read.
    waiting: AtomicUsize,
    workers: AtomicUsize,
    /// No more requests are read.
    has_ended: AtomicBool,
    /// Why, if the client did not say so.
    failure: Mutex<Option<io::Error>>,
}

impl Transmission<'_> {
    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut own = vec![0; OWN_LEN_BYTES];
        loop {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let mut reader = self.reader.lock();
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            if self.has_ended.load(Ordering::Relaxed) {
                return;
            }
            let taken = match self.read_request(&mut reader, &mut own) {
                Ok(Some(taken)) => taken,
                Ok(None) => return self.end(None),
                Err(error) => return self.end(Some(error)),
            };
            drop(reader);
            self.start_another(scope);
            if let Err(error) = self.carry_out(taken, &mut own) {
                // Nothing of it can be told any more; it wakes the thread that reads.
                self.end(Some(error));
                return self.channel.shut_down();
            }
        }
    }

    /// Starts one more thread if none waits to read.
    fn start_another<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let is_enough = self.waiting.load(Ordering::Relaxed) > 0
            || self.workers.load(Ordering::Relaxed) >= MAX_WORKERS;
        if is_enough {
            return;
        }
        self.workers.fetch_add(1, Ordering::Relaxed);
        let name = "nbd-worker".to_owned();
        let started = thread::Builder::new().name(name).spawn_scoped(scope, || self.work(scope));
        if let Err(error) = started {
            // This thread reads the next request when it is done.
            self.workers.fetch_sub(1, Ordering::Relaxed);
            log::warn!("a connection of NBD has one thread less: {error}");
        }
    }

    fn end(&self, failure: Option<io::Error>) {
        if !self.has_ended.swap(true, Ordering::Relaxed) {
            *self.failure.lock() = failure;
        }
    }

    /// The next request; `None` at the end.
    fn read_request(&self, reader: &mut Reader, own: &mut [u8]) -> io::Result<Option<Taken<'_>>> {
        let mut bytes = [0; REQUEST_LEN_BYTES];
        // Clients often leave without a word, and may be silent for as long as they want.
        if !self.fill(reader, &mut bytes, false)? {
            return Ok(None);
        }
        let Agreed { export, has_block_status, has_structured_replies } = &self.agreed;
        let Some(request) = requests::decode(&bytes, &**export, *has_block_status) else {
            return Err(invalid("the client does not speak this protocol"));
        };
        let share = match request.command {
            Ok(Command::Disconnect) => return Ok(None),
            Ok(Command::Write { len_bytes, .. }) => {
                let mut share = self.share(len_bytes);
                let data = data_of(&mut share, own, len_bytes);
                if !self.fill(reader, data, true)? {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                share
            }
            // With less memory it is read in shorter pieces.
            Ok(Command::Read { len_bytes, in_one_piece: false, .. }) if *has_structured_replies => {
                let piece_len = len_bytes.min(PIECE_LEN_BYTES) as usize;
                let is_long = piece_len > OWN_LEN_BYTES;
                is_long.then(|| self.account.try_take(piece_len)).flatten()
            }
            Ok(Command::Read { len_bytes, .. }) => self.share(len_bytes),
            _ => {
                self.skip(reader, own, request.data_len_bytes)?;
                None
            }
        };
        Ok(Some(Taken { request, share }))
    }

    /// The memory for so many bytes, if they are more than a thread has; waits for it.
    fn share(&self, len_bytes: u32) -> Option<Share<'_>> {
        let len = len_bytes as usize;
        (len > OWN_LEN_BYTES).then(|| self.account.take(len))
    }

    /// Reads as much as `buf` has; returns false if the client has left before that. With
    /// `has_begun` it has to go on with what it sends.
    fn fill(&self, reader: &mut Reader, buf: &mut [u8], has_begun: bool) -> io::Result<bool> {
        let mut pace = Pace::new(self.account.patience());
        let mut done = 0;
        while done < buf.len() {
            match reader.read(&mut buf[done..]) {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    done += len;
                    pace.note(len);
                }
                Err(error) => note_error(error, &mut pace)?,
            }
            if has_begun && done < buf.len() {
                self.account.check(&mut pace)?;
            }
        }
        Ok(true)
    }

    /// Reads `len_bytes` of data and forgets them.
    fn skip(&self, reader: &mut Reader, own: &mut [u8], len_bytes: u32) -> io::Result<()> {
        let mut left = len_bytes as usize;
        while left > 0 {
            let len = left.min(own.len());
            if !self.fill(reader, &mut own[..len], true)? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            left -= len;
        }
        Ok(())
    }

    /// Carries a request out, and replies. An error is one of the connection.
    fn carry_out(&self, taken: Taken<'_>, own: &mut [u8]) -> io::Result<()> {
        let Taken { request: Request { cookie, kind, command, .. }, mut share } = taken;
        let export = &self.agreed.export;
        // A client that has its reply finds it counted.
        self.activity.note_request(kind);
        let done = match command {
            Err(failure) => return self.fail(cookie, &failure, FailureKind::Refused),
            Ok(Command::Read { offset, len_bytes, in_one_piece }) => {
                let buffer = share.as_mut().map_or(own, Share::bytes);
                return self.read(cookie, offset, len_bytes, in_one_piece, buffer);
            }
            Ok(Command::BlockStatus { offset, len_bytes, one_only }) => {
                let max_count = if one_only { 1 } else { MAX_EXTENTS };
                match export.extents(offset, len_bytes.into(), max_count) {
                    Ok(extents) => {
                        return self.channel.send(&replies::block_status(cookie, &extents), &[]);
                    }
                    Err(failure) => Err(failure),
                }
            }
            Ok(Command::Write { offset, len_bytes, is_durable }) => {
                let data = data_of(&mut share, own, len_bytes);
                export.write(offset, data, is_durable).map(|()| len_bytes)
            }
            Ok(Command::Zero { offset, len_bytes, may_be_hole, is_durable }) => {
                let zeroed = export.zero(offset, len_bytes.into(), may_be_hole, is_durable);
                zeroed.map(|()| len_bytes)
            }
            Ok(Command::Trim { offset, len_bytes, is_durable }) => {
                export.trim(offset, len_bytes.into(), is_durable).map(|()| len_bytes)
            }
            Ok(Command::Flush) => export.flush().map(|()| 0),
            Ok(Command::Nothing | Command::Disconnect) => Ok(0),
        };
        // What was written is needed no more, however long the client takes for the reply.
        drop(share);
        match done {
            Ok(len_bytes) => {
                self.activity.note_bytes(kind, len_bytes);
                self.channel.send(replies::simple(cookie, 0).as_bytes(), &[])
            }
            Err(failure) => self.fail(cookie, &failure, failure.errno.into()),
        }
    }

    fn fail(&self, cookie: u64, failure: &Failure, kind: FailureKind) -> io::Result<()> {
        self.activity.note_failure(kind);
        if matches!(failure.errno, Errno::Io) {
            log::error!("a request by NBD failed: {failure}");
        }
        match self.agreed.has_structured_replies {
            true => self.channel.send(&replies::error(cookie, failure), &[]),
            false => {
                self.channel.send(replies::simple(cookie, failure.errno as u32).as_bytes(), &[])
            }
        }
    }

    fn read(
        &self,
        cookie: u64,
        offset: u64,
        len_bytes: u32,
        whole: bool,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let export = &self.agreed.export;
        let is_structured = self.agreed.has_structured_replies;
        let in_pieces = !whole && is_structured;
        let all = Extent { len_bytes: len_bytes.into(), is_hole: false };
        let parts = match in_pieces && len_bytes >= MIN_SPARSE_LEN_BYTES {
            true => export.extents(offset, len_bytes.into(), MAX_READ_PARTS),
            false => Ok(vec![all]),
        };
        let mut parts = match parts {
            Ok(parts) => parts,
            Err(failure) => return self.fail(cookie, &failure, failure.errno.into()),
        };
        // What was not looked at.
        let known_bytes: u64 = parts.iter().map(|part| part.len_bytes).sum();
        if known_bytes < len_bytes.into() {
            let left = u64::from(len_bytes) - known_bytes;
            parts.push(Extent { len_bytes: left, is_hole: false });
        }
        let end = offset + u64::from(len_bytes);
        let most_bytes = if in_pieces { buffer.len() as u64 } else { u64::MAX };
        let mut at = offset;
        for part in parts {
            let part_end = at + part.len_bytes;
            loop {
                let left_bytes = part_end - at;
                let piece_bytes =
                    if part.is_hole { left_bytes } else { left_bytes.min(most_bytes) };
                let is_last = at + piece_bytes == end;
                // No longer than the request.
                let piece_len = piece_bytes as u32;
                if part.is_hole {
                    self.activity.note_bytes(RequestKind::Read, piece_len);
                    self.channel.send(&replies::hole(cookie, is_last, at, piece_len), &[])?;
                } else {
                    let piece = &mut buffer[..piece_len as usize];
                    if let Err(failure) = export.read(at, piece) {
                        return self.fail(cookie, &failure, failure.errno.into());
                    }
                    self.activity.note_bytes(RequestKind::Read, piece_len);
                    match is_structured {
                        true => {
                            let head = replies::data(cookie, is_last, at, piece_len);
                            self.channel.send(&head, piece)?;
                        }
                        false => self.channel.send(replies::simple(cookie, 0).as_bytes(), piece)?,
                    }
                }
                at += piece_bytes;
                if at == part_end {
                    break;
                }
            }
        }
        Ok(())
    }
}
