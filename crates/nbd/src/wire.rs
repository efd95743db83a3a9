//! Numbers and structures of the protocol. All numbers are big-endian.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The most bytes that one request reads or writes.
pub const MAX_LEN_BYTES: u32 = 32 << 20;

/// The longest name of an export, in bytes, that a client may send.
pub(crate) const MAX_NAME_LEN_BYTES: usize = 4096;
/// The most data of an option that is looked at.
pub(crate) const MAX_OPTION_LEN_BYTES: u32 = 64 << 10;
/// The most data of an option that is read in order to refuse it.
pub(crate) const MAX_SKIPPED_LEN_BYTES: u32 = 1 << 20;

/// What a server sends first: `NBDMAGIC`.
pub(crate) const SERVER_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// What follows that, and precedes each option: `IHAVEOPT`.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// What precedes each reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// What precedes each request.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// What precedes a simple reply.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// What precedes each chunk of a structured reply.
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Flags of the server's greeting, and the same of the client's answer.
pub(crate) mod handshake {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Options, which clients send before data.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of replies to options.
pub(crate) mod option_reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = ERROR + 1;
    pub(crate) const POLICY: u32 = ERROR + 2;
    pub(crate) const INVALID: u32 = ERROR + 3;
    pub(crate) const TLS_REQUIRED: u32 = ERROR + 5;
    pub(crate) const UNKNOWN: u32 = ERROR + 6;
    pub(crate) const TOO_BIG: u32 = ERROR + 9;
}

/// What is told of an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// What an export can do.
pub(crate) mod transmission {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Requests.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub(crate) mod command_flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Kinds of chunks of structured replies.
pub(crate) mod chunk {
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = (1 << 15) + 1;
}

/// The flag of the last chunk of a structured reply.
pub(crate) const CHUNK_DONE: u16 = 1 << 0;

/// The only metadata context, and the number that block status has it by.
pub(crate) const ALLOCATION_CONTEXT: &str = "base:allocation";
pub(crate) const ALLOCATION_CONTEXT_ID: u32 = 1;

/// Flags of an extent in that context.
pub(crate) mod state {
    pub(crate) const HOLE: u32 = 1 << 0;
    pub(crate) const ZERO: u32 = 1 << 1;
}

/// What a server says first.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Greeting {
    pub(crate) server_magic: U64,
    pub(crate) option_magic: U64,
    pub(crate) flags: U16,
}

/// What precedes the data of an option.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OptionHeader {
    pub(crate) magic: U64,
    pub(crate) option: U32,
    pub(crate) len_bytes: U32,
}

/// What precedes the data of a reply to an option.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OptionReplyHeader {
    pub(crate) magic: U64,
    pub(crate) option: U32,
    pub(crate) kind: U32,
    pub(crate) len_bytes: U32,
}

/// A request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RequestHeader {
    pub(crate) magic: U32,
    pub(crate) flags: U16,
    pub(crate) command: U16,
    pub(crate) cookie: U64,
    pub(crate) offset: U64,
    pub(crate) len_bytes: U32,
}

/// A simple reply; the data of a read follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SimpleReply {
    pub(crate) magic: U32,
    pub(crate) error: U32,
    pub(crate) cookie: U64,
}

/// What precedes a chunk of a structured reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ChunkHeader {
    pub(crate) magic: U32,
    pub(crate) flags: U16,
    pub(crate) kind: U16,
    pub(crate) cookie: U64,
    pub(crate) len_bytes: U32,
}

const _: () = assert!(size_of::<Greeting>() == 18);
const _: () = assert!(size_of::<OptionHeader>() == 16);
const _: () = assert!(size_of::<OptionReplyHeader>() == 20);
const _: () = assert!(size_of::<RequestHeader>() == 28);
const _: () = assert!(size_of::<SimpleReply>() == 16);
const _: () = assert!(size_of::<ChunkHeader>() == 20);
