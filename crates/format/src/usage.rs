//! The usage of segments, as the map records it.

use std::mem::size_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::partial::Head;
use crate::{Malformed, Result};

/// Lists from this number on are the disk's own. They have no entry of their own in the map and
/// no versions, and no record of the log changes them but [`crate::versions::VERSIONS_LIST`].
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
/// |      5 |    1 | `class`         | temperature of the data it was filled with         |
/// |      6 |    2 | `reserved`      | zero                                               |
/// |      8 |    8 | `written_at`    | log clock at which its blocks were written, mean   |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UsageV1 {
    live: U32,
    head: u8,
    class: u8,
    reserved: [u8; 2],
    written_at: U64,
}

/// Bytes of a usage record.
pub const USAGE_LEN_BYTES: usize = size_of::<UsageV1>();
const _: () = assert!(USAGE_LEN_BYTES == 16);

/// How a segment is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of live blocks and nodes in it, in whole grains.
    pub live_bytes: u32,
    /// Which head filled it.
    pub head: Head,
    /// The temperature of the data it was filled with; zero for the main log and the map.
    pub class: u8,
    /// The mean time at which its blocks were written, on the log clock: in bytes of blocks that
    /// clients had written to the volume by then.
    pub written_at: u64,
}

impl Usage {
    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; USAGE_LEN_BYTES] {
        zerocopy::transmute!(UsageV1 {
            live: self.live_bytes.into(),
            head: self.head as u8,
            class: self.class,
            reserved: [0; 2],
            written_at: self.written_at.into(),
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
            2 => Head::Payload,
            _ => return Err(WRONG("it names an unknown head")),
        };
        Ok(Self {
            live_bytes: raw.live.get(),
            head,
            class: raw.class,
            written_at: raw.written_at.get(),
        })
    }
}
