//! A volume: its superblocks, its checkpoint, and its bytes.

use std::collections::BTreeSet;
use std::sync::Arc;

use dendro_device::{AlignedBuf, Device, RedirectedDevice, Redirection};
use dendro_format::superblock::KNOWN_INCOMPATIBLE;
use dendro_format::{Addr, Checkpoint, Layout, SegmentNo, Superblock, checksum};

use super::kept::Kept;
use super::superblocks::{FoundSuperblock, Superblocks, find_superblocks};
use crate::error::{Error, Result};

/// A volume on a device.
pub struct Volume<'d> {
    device: RedirectedDevice<&'d dyn Device>,
    superblocks: Superblocks,
    /// What was read before and stays in memory.
    kept: Option<Arc<Kept>>,
    /// Segments that have mirrors, each with a mirror, by the current checkpoint and others.
    mirrors: BTreeSet<(SegmentNo, SegmentNo)>,
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
        Self::on(device, superblocks)
    }

    /// A volume that is read as if `superblock` were its only one.
    ///
    /// # Errors
    /// When parts of segments lie where the device has no room.
    pub(crate) fn assumed(device: &'d dyn Device, superblock: Superblock) -> Result<Self> {
        Self::on(device, Superblocks::only(superblock))
    }

    fn on(device: &'d dyn Device, superblocks: Superblocks) -> Result<Self> {
        let Superblock { layout, retired, .. } = &superblocks.current().superblock;
        let redirection = |(offset, len_bytes, to)| Redirection { offset, len_bytes, to };
        let ranges = retired.iter().filter_map(|one| one.moved_range(*layout)).map(redirection);
        let device = RedirectedDevice::new(device);
        device.redirect(ranges.collect())?;
        let mut volume = Self { device, superblocks, kept: None, mirrors: BTreeSet::new() };
        if let Ok(checkpoint) = volume.checkpoint() {
            volume.adopt_mirrors(checkpoint.mirrors);
        }
        Ok(volume)
    }

    /// Reads what is damaged in these mirrors, too. All that is read has a checksum, so one that is
    /// no mirror any more does no harm.
    pub(crate) fn adopt_mirrors(
        &mut self,
        mirrors: impl IntoIterator<Item = (SegmentNo, SegmentNo)>,
    ) {
        self.mirrors.extend(mirrors);
    }

    /// Reads what is kept from memory. It must have been read from this volume, or an equal one.
    pub(crate) fn adopt_kept(&mut self, kept: Arc<Kept>) {
        self.kept = Some(kept);
    }

    pub(super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_deref()
    }

    /// Where what lies at `addr` lies once more.
    #[must_use]
    pub fn mirror_of(&self, addr: Addr) -> Option<Addr> {
        self.mirrors_of(addr).next()
    }

    /// Where what lies at `addr` may lie once more.
    pub(crate) fn mirrors_of(&self, addr: Addr) -> impl Iterator<Item = Addr> {
        let (layout, segment) = (self.layout(), self.layout().segment_of(addr));
        let mirrors = self.mirrors.range((segment, SegmentNo(0))..=(segment, SegmentNo(u32::MAX)));
        mirrors.map(move |(_, mirror)| layout.counterpart(addr, *mirror))
    }

    /// The device that it lies on. What lies in spare segments is read and written there.
    pub(crate) fn device(&self) -> &dyn Device {
        &self.device
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

    /// How it is divided into segments.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.superblock().layout
    }

    /// The checkpoint that the current superblock names.
    ///
    /// # Errors
    /// When it cannot be read, or another structure lies there.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        self.checkpoint_of(self.superblock())
    }

    /// The checkpoint that one of its superblocks names.
    pub(crate) fn checkpoint_of(&self, superblock: &Superblock) -> Result<Checkpoint> {
        self.checkpoint_at(superblock, superblock.checkpoint_addr).or_else(|error| {
            let mirror = superblock.checkpoint_mirror.ok_or(error)?;
            self.checkpoint_at(superblock, mirror)
        })
    }

    /// The copy of that checkpoint at `addr`.
    pub(crate) fn checkpoint_at(&self, superblock: &Superblock, addr: Addr) -> Result<Checkpoint> {
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

    /// The bytes of a structure, at least `len_bytes` of them; `what` names it in errors.
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
        let (segment, bytes) = (self.layout().segment_of(addr), &mut buf[..len_bytes as usize]);
        let offset = addr.bytes() - self.layout().segment_offset(segment);
        self.read_segment(segment, offset as u32, bytes)?;
        Ok(buf)
    }

    /// Fills `buf` from a place in a segment; both lie inside the segment.
    pub(crate) fn read_segment(
        &self,
        segment: SegmentNo,
        offset_bytes: u32,
        buf: &mut [u8],
    ) -> dendro_device::Result<()> {
        let offset = offset_bytes as usize;
        if let Some(kept) = self.kept().and_then(|kept| kept.segment(segment))
            && let Some(bytes) = kept.get(offset..offset + buf.len())
        {
            buf.copy_from_slice(bytes);
            return Ok(());
        }
        let start = self.layout().segment_offset(segment);
        self.device.read_at(start + u64::from(offset_bytes), buf)
    }
}
