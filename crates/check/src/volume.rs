//! A volume and its readers.

use dendro_device::{AlignedBuf, Device};
use dendro_format::superblock::KNOWN_INCOMPATIBLE;
use dendro_format::{Addr, Checkpoint, Key, Layout, SegmentNo, Superblock, checksum};

use crate::map::{MapEntries, Nodes};
use crate::{
    Error, FoundSuperblock, Log, LogSummary, Partials, Result, Superblocks, UsageTable,
    find_superblocks, log,
};

/// A volume on a device, read as it lies there.
pub struct Volume<'d> {
    device: &'d dyn Device,
    superblocks: Superblocks,
}

impl<'d> Volume<'d> {
    /// Finds the volume on `device`.
    ///
    /// # Errors
    /// When there is none, it uses unknown features, or the device is shorter than it.
    pub fn open(device: &'d dyn Device) -> Result<Self> {
        let superblocks = find_superblocks(device)?;
        let superblock = &superblocks.current().superblock;
        let unknown = superblock.incompatible & !KNOWN_INCOMPATIBLE;
        if unknown != 0 {
            return Err(Error::UnknownFeatures(unknown));
        }
        let (volume_len_bytes, device_len_bytes) =
            (superblock.layout.len_bytes(), device.len_bytes());
        if volume_len_bytes > device_len_bytes {
            return Err(Error::Truncated { volume_len_bytes, device_len_bytes });
        }
        Ok(Self { device, superblocks })
    }

    /// Its superblocks.
    #[must_use]
    pub const fn superblocks(&self) -> &Superblocks {
        &self.superblocks
    }

    /// Its current superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        let FoundSuperblock { superblock, .. } = self.superblocks.current();
        superblock
    }

    /// Its shape.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.superblock().layout
    }

    /// The checkpoint that the current superblock names.
    ///
    /// # Errors
    /// When it cannot be read or is another.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let superblock = self.superblock();
        let addr = superblock.checkpoint_addr;
        let bytes = self.read("checkpoint", addr, superblock.checkpoint_len_bytes.into())?;
        let bytes = &bytes[..superblock.checkpoint_len_bytes as usize];
        let checkpoint = Checkpoint::decode(bytes, &superblock.uuid)
            .map_err(|problem| Error::Damaged { addr, problem })?;
        let (found, expected) = (checksum(bytes), superblock.checkpoint_crc32c);
        if found != expected {
            return Err(Error::Misdirected { what: "checkpoint", addr, found, expected });
        }
        Ok(checkpoint)
    }

    /// The nodes of the map, each before its children.
    #[must_use]
    pub fn nodes(&self, checkpoint: &Checkpoint) -> Nodes<'_> {
        Nodes::new(self, checkpoint.root, None, None)
    }

    /// The map's entries with keys at or above `from` and below `to`, in the order of their keys.
    #[must_use]
    pub fn entries(
        &self,
        checkpoint: &Checkpoint,
        from: Option<Key>,
        to: Option<Key>,
    ) -> MapEntries<'_> {
        MapEntries::new(Nodes::new(self, checkpoint.root, from, to))
    }

    /// The partial segments of a segment, from its start on.
    #[must_use]
    pub fn partials(&self, segment: SegmentNo) -> Partials<'_> {
        Partials::new(self, segment)
    }

    /// The partial segments of the main log behind the checkpoint, as far as their headers hold
    /// together.
    #[must_use]
    pub fn log(&self, checkpoint: &Checkpoint) -> Log<'_> {
        Log::new(self, checkpoint)
    }

    /// What recovery would find behind the checkpoint: the payload of partial segments that may
    /// not have been flushed is verified too.
    #[must_use]
    pub fn log_summary(&self, checkpoint: &Checkpoint) -> LogSummary {
        log::summarize(self, checkpoint)
    }

    /// What the map and the checkpoint say of each segment.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn usage(&self, checkpoint: &Checkpoint) -> Result<UsageTable> {
        UsageTable::read(self, checkpoint)
    }

    /// Bytes of a block, a node, …: at least `len_bytes` of them.
    pub(crate) fn read(
        &self,
        what: &'static str,
        addr: Addr,
        len_bytes: u64,
    ) -> Result<AlignedBuf> {
        if !self.layout().holds(addr, len_bytes) {
            return Err(Error::OutsideLog { what, addr, len_bytes });
        }
        let mut buf = AlignedBuf::zeroed(len_bytes as usize);
        self.device.read_at(addr.bytes(), &mut buf[..len_bytes as usize])?;
        Ok(buf)
    }

    /// Fills `buf` from a place in a segment; both lie inside the segment.
    pub(crate) fn read_segment(
        &self,
        segment: SegmentNo,
        offset_bytes: u32,
        buf: &mut [u8],
    ) -> dendro_device::Result<()> {
        let start = self.layout().segment_offset(segment);
        self.device.read_at(start + u64::from(offset_bytes), buf)
    }
}
