//! Superblocks.

use std::fmt;

use dendro_format::{Addr, Superblock};
use serde::Serialize;

use super::text::hex32;
use crate::read::FoundSuperblock;

/// A superblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuperblockInfo {
    /// Its slot, in bytes from the start of the device.
    pub offset: u64,
    /// Counts superblocks.
    pub seq: u64,
    /// The volume's identity.
    pub uuid: String,
    /// The volume's name.
    pub label: String,
    /// Feature flags that older software may ignore.
    pub compatible: u64,
    /// Feature flags that older software may read but not write.
    pub read_only: u64,
    /// Feature flags that older software must refuse.
    pub incompatible: u64,
    /// Bytes in a segment.
    pub segment_size_bytes: u64,
    /// All segments.
    pub segment_count: u32,
    /// Whether the volume was shut down cleanly.
    pub clean: bool,
    /// How new pages are compressed by default; 0: not.
    pub compression: u8,
    /// How the cleaner compresses what it moves by default; 0: not.
    pub cold_compression: u8,
    /// Where the checkpoint lies, in bytes from the start of the device.
    pub checkpoint_offset: u64,
    /// Its length.
    pub checkpoint_len_bytes: u32,
    /// Its checksum.
    pub checkpoint_crc32c: String,
    /// Where it lies once more, if it does.
    pub checkpoint_mirror_offset: Option<u64>,
    /// The length up to which the device becomes longer by itself; 0: it does not.
    pub max_len_bytes: u64,
    /// When the volume was made.
    pub created: String,
    /// When this superblock was written.
    pub written: String,
}

impl From<&FoundSuperblock> for SuperblockInfo {
    fn from(found: &FoundSuperblock) -> Self {
        let FoundSuperblock { offset, superblock } = found;
        let Superblock { layout, .. } = superblock;
        Self {
            offset: *offset,
            seq: superblock.seq,
            uuid: superblock.uuid.to_string(),
            label: superblock.label.clone(),
            compatible: superblock.compatible,
            read_only: superblock.read_only,
            incompatible: superblock.incompatible,
            segment_size_bytes: layout.segment_size_bytes(),
            segment_count: layout.segment_count(),
            clean: superblock.clean,
            compression: superblock.compression,
            cold_compression: superblock.cold_compression,
            checkpoint_offset: superblock.checkpoint_addr.bytes(),
            checkpoint_len_bytes: superblock.checkpoint_len_bytes,
            checkpoint_crc32c: hex32(superblock.checkpoint_crc32c),
            checkpoint_mirror_offset: superblock.checkpoint_mirror.map(Addr::bytes),
            max_len_bytes: superblock.max_len_bytes,
            created: superblock.created.rfc3339(),
            written: superblock.written.rfc3339(),
        }
    }
}

impl fmt::Display for SuperblockInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "superblock {} at byte {}", self.seq, self.offset)?;
        writeln!(f, "  uuid        {}", self.uuid)?;
        let plain = |one: char| match one.is_control() {
            true => one.escape_default().to_string(),
            false => one.to_string(),
        };
        writeln!(f, "  label       {}", self.label.chars().map(plain).collect::<String>())?;
        let Self { compatible, read_only, incompatible, .. } = self;
        writeln!(
            f,
            "  features    compatible {compatible:#x}, read-only {read_only:#x}, \
             incompatible {incompatible:#x}"
        )?;
        let (count, size) = (self.segment_count, self.segment_size_bytes);
        writeln!(f, "  segments    {count} of {size} bytes")?;
        writeln!(f, "  state       {}", if self.clean { "clean" } else { "in use" })?;
        writeln!(f, "  compression {}, cold {}", self.compression, self.cold_compression)?;
        let (offset, len) = (self.checkpoint_offset, self.checkpoint_len_bytes);
        writeln!(
            f,
            "  checkpoint  byte {offset}, {len} bytes, checksum {}",
            self.checkpoint_crc32c
        )?;
        if let Some(offset) = self.checkpoint_mirror_offset {
            writeln!(f, "  mirror      byte {offset}")?;
        }
        if self.max_len_bytes > 0 {
            writeln!(f, "  grows to    {} bytes", self.max_len_bytes)?;
        }
        writeln!(f, "  created     {}", self.created)?;
        write!(f, "  written     {}", self.written)
    }
}
