//! Replies to requests, encoded.

use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32, U64};

use crate::export::{Extent, Failure};
use crate::wire::{
    ALLOCATION_CONTEXT_ID, CHUNK_DONE, ChunkHeader, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
    SimpleReply, chunk, state,
};

/// The longest message to people in a reply, in bytes.
const MAX_MESSAGE_LEN_BYTES: usize = 1024;

/// A simple reply. If it is one to a read that succeeded, its data follow.
pub(crate) fn simple(cookie: u64, error: u32) -> SimpleReply {
    SimpleReply {
        magic: U32::new(SIMPLE_REPLY_MAGIC),
        error: U32::new(error),
        cookie: U64::new(cookie),
    }
}

fn header(cookie: u64, kind: u16, is_last: bool, len_bytes: u32) -> ChunkHeader {
    ChunkHeader {
        magic: U32::new(STRUCTURED_REPLY_MAGIC),
        flags: U16::new(if is_last { CHUNK_DONE } else { 0 }),
        kind: U16::new(kind),
        cookie: U64::new(cookie),
        len_bytes: U32::new(len_bytes),
    }
}

/// What precedes `len_bytes` of data that were read at `offset`.
pub(crate) fn data(cookie: u64, is_last: bool, offset: u64, len_bytes: u32) -> Vec<u8> {
    let header = header(cookie, chunk::OFFSET_DATA, is_last, len_bytes + 8);
    [header.as_bytes(), U64::new(offset).as_bytes()].concat()
}

/// A chunk that says that there are zeros.
pub(crate) fn hole(cookie: u64, is_last: bool, offset: u64, len_bytes: u32) -> Vec<u8> {
    let header = header(cookie, chunk::OFFSET_HOLE, is_last, 12);
    [header.as_bytes(), U64::new(offset).as_bytes(), U32::new(len_bytes).as_bytes()].concat()
}

/// The reply to a request that failed.
pub(crate) fn error(cookie: u64, failure: &Failure) -> Vec<u8> {
    let mut len = failure.message.len().min(MAX_MESSAGE_LEN_BYTES);
    while !failure.message.is_char_boundary(len) {
        len -= 1;
    }
    let message = &failure.message.as_bytes()[..len];
    let header = header(cookie, chunk::ERROR, true, 6 + len as u32);
    let errno = U32::new(failure.errno as u32);
    [header.as_bytes(), errno.as_bytes(), U16::new(len as u16).as_bytes(), message].concat()
}

/// The reply to a request for block status.
///
/// # Panics
/// When an extent is longer than 4 GiB: no request is.
pub(crate) fn block_status(cookie: u64, extents: &[Extent]) -> Vec<u8> {
    let len_bytes = 4 + 8 * extents.len() as u32;
    let mut out = header(cookie, chunk::BLOCK_STATUS, true, len_bytes).as_bytes().to_vec();
    out.extend(U32::new(ALLOCATION_CONTEXT_ID).as_bytes());
    for extent in extents {
        let len_bytes = u32::try_from(extent.len_bytes).expect("an extent is inside the request");
        let flags = if extent.is_hole { state::HOLE | state::ZERO } else { 0 };
        out.extend([U32::new(len_bytes), U32::new(flags)].as_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Errno;

    #[test]
    fn replies_have_the_bytes_of_the_protocol() {
        let simple = simple(0x0102, 5);
        assert_eq!(simple.as_bytes(), b"\x67\x44\x66\x98\0\0\0\x05\0\0\0\0\0\0\x01\x02");
        let hole = hole(7, true, 0x1000, 0x200);
        let expected = b"\x66\x8e\x33\xef\0\x01\0\x02\0\0\0\0\0\0\0\x07\0\0\0\x0c";
        assert_eq!(hole[..20], expected[..]);
        assert_eq!(hole[20..], b"\0\0\0\0\0\0\x10\0\0\0\x02\0"[..]);
        let status = block_status(7, &[Extent { len_bytes: 512, is_hole: true }]);
        assert_eq!(status[16..], b"\0\0\0\x0c\0\0\0\x01\0\0\x02\0\0\0\0\x03"[..]);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failure = Failure::new(Errno::Io, "é".repeat(1000) + "x");
        let reply = error(1, &failure);
        assert_eq!(reply.len(), 20 + 6 + MAX_MESSAGE_LEN_BYTES);
        let odd = error(1, &Failure::new(Errno::Io, "x".to_owned() + &failure.message));
        assert_eq!(odd.len(), 20 + 6 + MAX_MESSAGE_LEN_BYTES - 1);
    }
}
