//! Places on the device.

use std::fmt;

use dendro_format::PageRef;
use serde::Serialize;

use super::text::hex32;

/// A place in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PositionInfo {
    /// The segment.
    pub segment: u32,
    /// Bytes from its start.
    pub offset_bytes: u32,
}

impl From<dendro_format::checkpoint::HeadPosition> for PositionInfo {
    fn from(at: dendro_format::checkpoint::HeadPosition) -> Self {
        Self { segment: at.segment.0, offset_bytes: at.offset_bytes }
    }
}

impl fmt::Display for PositionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}, byte {}", self.segment, self.offset_bytes)
    }
}

/// Where a node of the map lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodePlace {
    /// In bytes from the start of the device.
    pub offset: u64,
    /// Its length.
    pub len_bytes: u32,
    /// Its checksum.
    pub crc32c: String,
}

impl From<dendro_format::NodePtr> for NodePlace {
    fn from(place: dendro_format::NodePtr) -> Self {
        Self { offset: place.addr.bytes(), len_bytes: place.len_bytes, crc32c: hex32(place.crc32c) }
    }
}

impl fmt::Display for NodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}, {} bytes, checksum {}", self.offset, self.len_bytes, self.crc32c)
    }
}

/// Where a page lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageInfo {
    /// In bytes from the start of the device; meaningless for a page of zeros.
    pub offset: u64,
    /// Bytes stored; 0 for a page of zeros.
    pub len_bytes: u16,
    /// The checksum of the stored bytes.
    pub crc32c: String,
    /// How it is compressed; 0: not.
    pub compression: u8,
    /// 128 and which page of a frame it is; 0: it lies in none.
    pub flags: u8,
}

impl From<PageRef> for PageInfo {
    fn from(page: PageRef) -> Self {
        Self {
            offset: page.addr.bytes(),
            len_bytes: page.len_bytes,
            crc32c: hex32(page.crc32c),
            compression: page.compression,
            flags: page.flags,
        }
    }
}

impl fmt::Display for PageInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len_bytes == 0 {
            return f.write_str("zeros");
        }
        write!(f, "byte {}, {} bytes, checksum {}", self.offset, self.len_bytes, self.crc32c)?;
        if self.compression != 0 || self.flags != 0 {
            write!(f, ", compression {}, flags {:#x}", self.compression, self.flags)?;
        }
        Ok(())
    }
}
