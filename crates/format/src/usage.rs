//! What the map says of each segment.

use std::mem::size_of;

use dendro_base::Timestamp;
use zerocopy::little_endian::{I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::partial::Head;
use crate::{Malformed, Result};

/// Lists from this number on are the disk's own. They have no entry of their own in the map, and
/// no record of the log changes them.
pub const FIRST_SYSTEM_LIST: u64 = 1 << 62;

/// The list that the disk keeps segments' usage in: a record for each segment that holds
/// something, at the segment's number.
pub const USAGE_LIST: u64 = FIRST_SYSTEM_LIST;

/// A segment's usage, version 1.
///
/// | offset | size | field           | meaning                                            |
/// |-------:|-----:|-----------------|----------------------------------------------------|
/// |      0 |    4 | `live`          | bytes of blocks and nodes that can be reached      |
/// |      4 |    1 | `head`          | which head filled it                               |
/// |      5 |    1 | `class`         | temperature; 0                                     |
/// |      6 |    2 | `reserved`      | zero                                               |
/// |      8 |    8 | `written_ns`    | mean time at which its live blocks were written    |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UsageV1 {
    live: U32,
    head: u8,
    class: u8,
    reserved: [u8; 2],
    written_ns: I64,
}

/// Bytes of a usage record.
pub const USAGE_LEN_BYTES: usize = size_of::<UsageV1>();
const _: () = assert!(USAGE_LEN_BYTES == 16);

/// How a segment is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of blocks and nodes in it that can be reached, in whole grains.
    pub live_bytes: u32,
    /// Which head filled it.
    pub head: Head,
    /// When its data was written, in the mean.
    pub written: Timestamp,
}

impl Usage {
    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; USAGE_LEN_BYTES] {
        zerocopy::transmute!(UsageV1 {
            live: self.live_bytes.into(),
            head: self.head as u8,
            class: 0,
            reserved: [0; 2],
            written_ns: self.written.0.into(),
        })
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When it is of another length or names an unknown head.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        const WRONG: fn(&'static str) -> Malformed =
            |problem| Malformed::new("segment usage", problem);
        let raw = UsageV1::ref_from_bytes(bytes).map_err(|_| WRONG("is not 16 bytes"))?;
        let head = match raw.head {
            0 => Head::Main,
            1 => Head::Map,
            2 => Head::Survivors,
            _ => return Err(WRONG("it names an unknown head")),
        };
        Ok(Self { live_bytes: raw.live.get(), head, written: Timestamp(raw.written_ns.get()) })
    }
}
