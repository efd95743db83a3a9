//! Requests for data, decoded and checked against the export.

use zerocopy::FromBytes;

use crate::activity::RequestKind;
use crate::export::{Errno, Export, Failure};
use crate::wire::{MAX_LEN_BYTES, REQUEST_MAGIC, RequestHeader, command, command_flag};

/// The length of a request without its data.
pub(crate) const REQUEST_LEN_BYTES: usize = size_of::<RequestHeader>();

/// What is asked for. Ranges are inside the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Read {
        offset: u64,
        len_bytes: u32,
        in_one_piece: bool,
    },
    Write {
        offset: u64,
        len_bytes: u32,
        is_durable: bool,
    },
    Zero {
        offset: u64,
        len_bytes: u32,
        may_be_hole: bool,
        is_durable: bool,
    },
    Trim {
        offset: u64,
        len_bytes: u32,
        is_durable: bool,
    },
    BlockStatus {
        offset: u64,
        len_bytes: u32,
        one_only: bool,
    },
    Flush,
    /// What needs no work.
    Nothing,
    Disconnect,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) cookie: u64,
    pub(crate) kind: RequestKind,
    /// The bytes of data that follow it, whatever becomes of it.
    pub(crate) data_len_bytes: u32,
    pub(crate) command: Result<Command, Failure>,
}

/// Decodes a request. `None` if it is none, after which the connection cannot go on.
pub(crate) fn decode(
    bytes: &[u8; REQUEST_LEN_BYTES],
    export: &dyn Export,
    has_block_status: bool,
) -> Option<Request> {
    let header = RequestHeader::ref_from_bytes(bytes).ok()?;
    if header.magic.get() != REQUEST_MAGIC {
        return None;
    }
    let is_write = header.command.get() == command::WRITE;
    Some(Request {
        cookie: header.cookie.get(),
        kind: kind_of(header.command.get()),
        data_len_bytes: if is_write { header.len_bytes.get() } else { 0 },
        command: check(header, export, has_block_status),
    })
}

const fn kind_of(command: u16) -> RequestKind {
    match command {
        command::READ => RequestKind::Read,
        command::WRITE => RequestKind::Write,
        command::WRITE_ZEROES => RequestKind::Zero,
        command::TRIM => RequestKind::Trim,
        command::FLUSH => RequestKind::Flush,
        command::BLOCK_STATUS => RequestKind::BlockStatus,
        _ => RequestKind::Other,
    }
}

fn invalid(why: impl Into<String>) -> Failure {
    Failure::new(Errno::Invalid, why)
}

/// Which flags a command may have besides `FUA`, which all may have. It matters for those that
/// change something.
fn other_flags(command: u16) -> Option<u16> {
    Some(match command {
        command::READ => command_flag::DF,
        command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
        command::BLOCK_STATUS => command_flag::REQ_ONE,
        command::WRITE | command::TRIM | command::FLUSH | command::CACHE | command::DISC => 0,
        _ => return None,
    })
}

fn check(
    header: &RequestHeader,
    export: &dyn Export,
    has_block_status: bool,
) -> Result<Command, Failure> {
    let (offset, len_bytes) = (header.offset.get(), header.len_bytes.get());
    let (command, flags) = (header.command.get(), header.flags.get());
    let has = |flag: u16| flags & flag != 0;
    let Some(others) = other_flags(command) else {
        return Err(invalid(format!("this server has no command {command}")));
    };
    if command == command::DISC {
        return Ok(Command::Disconnect);
    }
    if flags & !(others | command_flag::FUA) != 0 {
        return Err(invalid(format!("command {command} has no flags {flags:#x}")));
    }
    if command == command::FLUSH {
        return match (offset, len_bytes) {
            (0, 0) => Ok(Command::Flush),
            _ => Err(invalid("a flush has no range")),
        };
    }
    let is_change = matches!(command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
    if is_change && export.is_read_only() {
        return Err(Failure::new(Errno::NotPermitted, "the export is read-only"));
    }
    if len_bytes == 0 {
        return Err(invalid("the range is empty"));
    }
    let end = offset.checked_add(u64::from(len_bytes));
    if end.is_none_or(|end| end > export.size_bytes()) {
        let adds = matches!(command, command::WRITE | command::WRITE_ZEROES);
        let errno = if adds { Errno::NoSpace } else { Errno::Invalid };
        let size_bytes = export.size_bytes();
        let why = format!("{len_bytes} bytes at {offset} lie past the end, which is {size_bytes}");
        return Err(Failure::new(errno, why));
    }
    if matches!(command, command::READ | command::WRITE) && len_bytes > MAX_LEN_BYTES {
        let why = format!("{len_bytes} bytes are more than {MAX_LEN_BYTES} in one request");
        // The protocol has the number for replies that would be too long, and for nothing else.
        let errno = if command == command::READ { Errno::Overflow } else { Errno::Invalid };
        return Err(Failure::new(errno, why));
    }
    let is_durable = has(command_flag::FUA);
    Ok(match command {
        command::READ => Command::Read { offset, len_bytes, in_one_piece: has(command_flag::DF) },
        command::WRITE => Command::Write { offset, len_bytes, is_durable },
        command::TRIM => Command::Trim { offset, len_bytes, is_durable },
        command::WRITE_ZEROES => {
            // Zeros are always fast: whole blocks are not written.
            let may_be_hole = !has(command_flag::NO_HOLE);
            Command::Zero { offset, len_bytes, may_be_hole, is_durable }
        }
        command::BLOCK_STATUS if has_block_status => {
            Command::BlockStatus { offset, len_bytes, one_only: has(command_flag::REQ_ONE) }
        }
        command::BLOCK_STATUS => return Err(invalid("no metadata context was agreed on")),
        // `CACHE`: a hint.
        _ => Command::Nothing,
    })
}
