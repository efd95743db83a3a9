//! Frames: the pieces in which a stream is written and checked.
//!
//! A frame has several items. Its checksum continues that of the frame before, so it is one of all
//! that comes before it as well: a frame that was altered, left out, repeated, exchanged with
//! another or taken from another stream is noticed at its place.

use std::mem::size_of;

use dendro_base::units::MIB;
use dendro_format::{Malformed, checksum_append};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header of a frame.
pub const FRAME_HEADER_LEN_BYTES: usize = 24;
/// The most bytes of a frame's payload, compressed or not.
pub const MAX_PAYLOAD_LEN_BYTES: usize = MIB as usize;

/// The flag of a payload that is compressed with zstd.
const ZSTD: u8 = 1 << 0;

/// The header of a frame, version 1. The payload follows.
///
/// | offset | size | field      | meaning                                                        |
/// |-------:|-----:|------------|----------------------------------------------------------------|
/// |      0 |    4 | `crc32c`   | that of the frame before, continued over bytes 4..24 and the payload as it is stored |
/// |      4 |    4 | `len`      | bytes of the payload as it is stored                           |
/// |      8 |    4 | `raw_len`  | bytes of the payload when it is not compressed                 |
/// |     12 |    1 | `kind`     | 1 items, 2 the end of the stream                               |
/// |     13 |    1 | `flags`    | 1: the payload is compressed with zstd                         |
/// |     14 |    2 | `reserved` | zero                                                           |
/// |     16 |    8 | `number`   | counts the frames of the stream from 0                         |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FrameHeaderV1 {
    crc32c: U32,
    len: U32,
    raw_len: U32,
    kind: u8,
    flags: u8,
    reserved: U16,
    number: U64,
}

const _: () = assert!(size_of::<FrameHeaderV1>() == FRAME_HEADER_LEN_BYTES);

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// Items, one after the other.
    Items = 1,
    /// The end of the stream.
    End = 2,
}

/// The header of a frame in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: FrameKind,
    pub(crate) is_compressed: bool,
    pub(crate) len_bytes: usize,
    pub(crate) raw_len_bytes: usize,
    pub(crate) number: u64,
}

impl FrameHeader {
    /// The bytes of the header of a frame with `payload`, which follows a frame with the checksum
    /// `crc32c`; and the checksum of the frame.
    pub(crate) fn encode(self, crc32c: u32, payload: &[u8]) -> ([u8; FRAME_HEADER_LEN_BYTES], u32) {
        let mut raw = FrameHeaderV1 {
            crc32c: U32::ZERO,
            len: (self.len_bytes as u32).into(),
            raw_len: (self.raw_len_bytes as u32).into(),
            kind: self.kind as u8,
            flags: if self.is_compressed { ZSTD } else { 0 },
            reserved: U16::ZERO,
            number: self.number.into(),
        };
        let crc32c = checksum_of(crc32c, raw.as_bytes(), payload);
        raw.crc32c = crc32c.into();
        let mut bytes = [0; FRAME_HEADER_LEN_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        (bytes, crc32c)
    }

    /// Reads a header, and checks all but the checksum.
    ///
    /// # Errors
    /// When there is none, or its numbers contradict each other.
    pub(crate) fn decode(bytes: &[u8; FRAME_HEADER_LEN_BYTES]) -> dendro_format::Result<Self> {
        const WRONG: fn(&'static str) -> Malformed =
            |problem| Malformed { structure: "header of a frame", problem };
        let raw = FrameHeaderV1::ref_from_bytes(bytes).map_err(|_| WRONG("its length is wrong"))?;
        let kind = match raw.kind {
            1 => FrameKind::Items,
            2 => FrameKind::End,
            _ => return Err(WRONG("it is of an unknown kind")),
        };
        let header = Self {
            kind,
            is_compressed: raw.flags & ZSTD != 0,
            len_bytes: raw.len.get() as usize,
            raw_len_bytes: raw.raw_len.get() as usize,
            number: raw.number.get(),
        };
        let Self { len_bytes, raw_len_bytes, .. } = header;
        if raw.flags & !ZSTD != 0 {
            return Err(WRONG("it has an unknown flag"));
        }
        if len_bytes > MAX_PAYLOAD_LEN_BYTES || raw_len_bytes > MAX_PAYLOAD_LEN_BYTES {
            return Err(WRONG("it is too long"));
        }
        if !header.is_compressed && len_bytes != raw_len_bytes {
            return Err(WRONG("its lengths contradict each other"));
        }
        Ok(header)
    }
}

/// The checksum that a frame with these bytes has, after a frame with the checksum `before`.
pub(crate) fn checksum_of(before: u32, header: &[u8], payload: &[u8]) -> u32 {
    checksum_append(checksum_append(before, &header[4..]), payload)
}

/// The checksum that the header states.
pub(crate) fn stated_checksum(header: &[u8; FRAME_HEADER_LEN_BYTES]) -> u32 {
    let [a, b, c, d, ..] = *header;
    u32::from_le_bytes([a, b, c, d])
}
