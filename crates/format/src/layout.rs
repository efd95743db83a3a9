//! How a device is divided into segments, and addresses in it.

use std::fmt;
use std::ops::{Range, RangeInclusive};

use dendro_base::units::{GRAIN_SIZE, MIB, PAGE_SIZE};

use crate::{Malformed, Result};

/// Binary logarithm of the smallest segment: 128 KiB.
pub const MIN_SEGMENT_SIZE_LOG2: u8 = 17;
/// Binary logarithm of the largest segment: 64 MiB.
pub const MAX_SEGMENT_SIZE_LOG2: u8 = 26;
/// Segments 0 and 1 hold the two superblock logs; the log starts after them.
pub const FIRST_LOG_SEGMENT: SegmentNo = SegmentNo(2);
/// The fewest segments a volume has.
pub const MIN_SEGMENT_COUNT: u32 = 16;

/// Slots for backup superblocks.
pub const BACKUP_SLOT_COUNT: u64 = 16;

/// The bytes at the end of a device of this length where a volume that ends before them may have
/// backup superblocks. They are found from the device's length alone, so that they are found
/// although everything at its beginning is lost.
#[must_use]
pub fn backup_area(device_len_bytes: u64) -> Option<Range<u64>> {
    let end = device_len_bytes - device_len_bytes % PAGE_SIZE as u64;
    Some(end.checked_sub(BACKUP_SLOT_COUNT * PAGE_SIZE as u64)?..end)
}

/// The number of a segment, counted from the start of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNo(pub u32);

impl fmt::Display for SegmentNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A place on the device, in grains of 64 bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(pub u64);

impl Addr {
    /// The place `offset` bytes from the start, a multiple of the grain.
    #[must_use]
    pub const fn from_bytes(offset: u64) -> Self {
        debug_assert!(offset.is_multiple_of(GRAIN_SIZE as u64));
        Self(offset / GRAIN_SIZE as u64)
    }

    /// Bytes from the start of the device.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0.saturating_mul(GRAIN_SIZE as u64)
    }

    /// The place `len_bytes` further on, a multiple of the grain.
    #[must_use]
    pub const fn plus_bytes(self, len_bytes: u64) -> Self {
        Self(self.0.saturating_add(len_bytes / GRAIN_SIZE as u64))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}", self.bytes())
    }
}

/// How a volume is divided into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    segment_size_log2: u8,
    segment_count: u32,
}

impl Layout {
    /// A volume of `segment_count` segments of 2^`segment_size_log2` bytes.
    ///
    /// # Errors
    /// When either is out of bounds.
    pub fn new(segment_size_log2: u8, segment_count: u32) -> Result<Self> {
        if !(MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2).contains(&segment_size_log2) {
            return Err(Malformed::new("layout", "segments are not of 128 KiB to 64 MiB"));
        }
        if segment_count < MIN_SEGMENT_COUNT {
            return Err(Malformed::new("layout", "there are fewer than 16 segments"));
        }
        Ok(Self { segment_size_log2, segment_count })
    }

    /// The layout with another number of segments.
    ///
    /// # Panics
    /// If there are fewer than [`MIN_SEGMENT_COUNT`].
    #[must_use]
    #[inline]
    pub const fn with_segment_count(self, segment_count: u32) -> Self {
        assert!(segment_count >= MIN_SEGMENT_COUNT, "there are too few segments");
        Self { segment_count, ..self }
    }

    /// Binary logarithm of the bytes in a segment.
    #[must_use]
    pub const fn segment_size_log2(self) -> u8 {
        self.segment_size_log2
    }

    /// Bytes in a segment.
    #[must_use]
    pub const fn segment_size_bytes(self) -> u64 {
        1 << self.segment_size_log2
    }

    /// How many segments take so many bytes.
    #[must_use]
    #[inline]
    pub const fn segments_for(self, len_bytes: u64) -> u64 {
        // A shift takes a tenth of the time of a division.
        let whole = len_bytes >> self.segment_size_log2;
        whole + (len_bytes & (self.segment_size_bytes() - 1) != 0) as u64
    }

    /// All segments, those of the superblock logs included.
    #[must_use]
    pub const fn segment_count(self) -> u32 {
        self.segment_count
    }

    /// Bytes of all segments together.
    #[must_use]
    pub const fn len_bytes(self) -> u64 {
        (self.segment_count as u64) << self.segment_size_log2
    }

    /// The segments that the log may use.
    pub fn log_segments(self) -> impl Iterator<Item = SegmentNo> {
        (FIRST_LOG_SEGMENT.0..self.segment_count).map(SegmentNo)
    }

    /// Whether the log may use `segment`.
    #[must_use]
    pub fn is_log_segment(self, segment: SegmentNo) -> bool {
        segment >= FIRST_LOG_SEGMENT && segment.0 < self.segment_count
    }

    /// Where `segment` starts, in bytes.
    #[must_use]
    pub const fn segment_offset(self, segment: SegmentNo) -> u64 {
        (segment.0 as u64) << self.segment_size_log2
    }

    /// The segment that `addr` lies in; one past the last if it lies in none.
    #[must_use]
    pub fn segment_of(self, addr: Addr) -> SegmentNo {
        let number = addr.bytes() >> self.segment_size_log2;
        SegmentNo(u32::try_from(number).unwrap_or(u32::MAX).min(self.segment_count))
    }

    /// The place in `segment` that lies as far from its start as `addr` from the start of its own
    /// segment: where a mirror has the same bytes.
    #[must_use]
    pub fn counterpart(self, addr: Addr, segment: SegmentNo) -> Addr {
        let within = addr.bytes() % self.segment_size_bytes();
        Addr::from_bytes(self.segment_offset(segment) + within)
    }

    /// Whether `len_bytes` from `addr` on lie in one segment of the log.
    #[must_use]
    pub fn holds(self, addr: Addr, len_bytes: u64) -> bool {
        let segment = self.segment_of(addr);
        let end = self.segment_offset(segment) + self.segment_size_bytes();
        self.is_log_segment(segment)
            && addr.bytes().checked_add(len_bytes).is_some_and(|to| to <= end)
    }

    /// Superblocks that one of the two logs holds.
    #[must_use]
    pub const fn superblock_slot_count(self) -> u64 {
        let area = if self.segment_size_bytes() < MIB { self.segment_size_bytes() } else { MIB };
        area / PAGE_SIZE as u64
    }

    /// The bytes of superblock log 0 or 1.
    #[must_use]
    pub const fn superblock_area(self, area: u32) -> Range<u64> {
        let start = self.segment_offset(SegmentNo(area));
        start..start + self.superblock_slot_count() * PAGE_SIZE as u64
    }

    /// Where the superblock with number `seq` goes: the two logs are filled in turn.
    #[must_use]
    pub const fn superblock_offset(self, seq: u64) -> u64 {
        let slots = self.superblock_slot_count();
        let area = (seq / slots % 2) as u32;
        self.superblock_area(area).start + seq % slots * PAGE_SIZE as u64
    }

    /// The number of the superblock with which the logs begin anew if only a backup with number
    /// `seq` is left: it goes to the very first slot, and is above the numbers that may be lost.
    #[must_use]
    pub const fn superblock_seq_anew(self, seq: u64) -> u64 {
        let slots = 2 * self.superblock_slot_count();
        (seq / slots + 4) * slots
    }
}

/// Binary logarithm of the bytes in a segment: 4 MiB.
const DEFAULT_SEGMENT_SIZE_LOG2: u8 = 22;

/// With fewer segments, those that are kept clean or are being filled take so much of the volume
/// that cleaning writes more. At 1 GiB, with 80 % of it live and random writes, cleaning writes 4.5
/// times as much as users with 256 segments, 3.5 with 1024 and 3.4 with 2048; at 4 GiB 3.2 with
/// 4096.
const GOOD_SEGMENT_COUNT: u64 = 4096;

/// In smaller segments headers cost more than more segments gain.
const GOOD_SEGMENT_SIZE_LOG2: u8 = 19;

/// Fewer segments leave too little choice of which to write and which to keep.
const LEAST_GOOD_SEGMENT_COUNT: u64 = 64;

/// The segment size of a new volume, in bytes: 4 MiB. On a small device the size is so small that
/// there are at least 4,096 segments, if it then is a good size (512 KiB at least); on a very small
/// one, so that there are 64.
#[must_use]
pub fn good_segment_size_bytes(device_len_bytes: u64) -> u64 {
    let largest = |mut sizes: RangeInclusive<u8>, count| {
        sizes.rfind(|log2| device_len_bytes >> log2 >= count)
    };
    let good = largest(GOOD_SEGMENT_SIZE_LOG2..=DEFAULT_SEGMENT_SIZE_LOG2, GOOD_SEGMENT_COUNT);
    let small =
        || largest(MIN_SEGMENT_SIZE_LOG2..=GOOD_SEGMENT_SIZE_LOG2, LEAST_GOOD_SEGMENT_COUNT);
    1 << good.or_else(small).unwrap_or(MIN_SEGMENT_SIZE_LOG2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_segment_takes_a_segment() {
        let layout = Layout::new(17, 16).expect("it is within bounds");
        for (bytes, segments) in [(0, 0), (1, 1), (1 << 17, 1), ((1 << 17) + 1, 2)] {
            assert_eq!(layout.segments_for(bytes), segments, "{bytes}");
        }
        assert_eq!(layout.segments_for(u64::MAX), 1 << 47);
    }

    #[test]
    fn superblocks_fill_the_two_logs_in_turn() {
        let layout = Layout::new(17, 64).unwrap();
        assert_eq!(layout.superblock_slot_count(), 32);
        assert_eq!(layout.superblock_offset(0), 0);
        assert_eq!(layout.superblock_offset(31), 31 * 4096);
        assert_eq!(layout.superblock_offset(32), 128 * 1024);
        assert_eq!(layout.superblock_offset(64), 0);
        for seq in [0, 63, 64, 1000] {
            let anew = layout.superblock_seq_anew(seq);
            assert!(layout.superblock_offset(anew) == 0 && (seq + 192..=seq + 256).contains(&anew));
        }
    }

    #[test]
    fn backups_lie_in_the_last_whole_pages_of_a_device() {
        assert_eq!(backup_area(1 << 20), Some((1 << 20) - (64 << 10)..1 << 20));
        assert_eq!(backup_area((1 << 20) + 4095), backup_area(1 << 20));
        assert_eq!(backup_area(64 << 10), Some(0..64 << 10));
        assert_eq!(backup_area((64 << 10) - 1), None);
    }

    #[test]
    fn an_address_off_the_device_is_in_no_segment() {
        let layout = Layout::new(17, 64).unwrap();
        assert!(layout.holds(Addr::from_bytes(2 << 17), 1 << 17));
        assert!(!layout.holds(Addr::from_bytes(2 << 17), (1 << 17) + 1));
        assert!(!layout.holds(Addr(0), 64));
        assert!(!layout.holds(Addr(u64::MAX), 64));
        assert!(Layout::new(16, 64).is_err());
        assert!(Layout::new(17, 15).is_err());
    }

    #[test]
    fn segments_are_smaller_on_small_devices() {
        assert_eq!(good_segment_size_bytes(1 << 40), 4 << 20);
        assert_eq!(good_segment_size_bytes(16 << 30), 4 << 20);
        assert_eq!(good_segment_size_bytes(15 << 30), 2 << 20);
        assert_eq!(good_segment_size_bytes(4 << 30), 1 << 20);
        assert_eq!(good_segment_size_bytes(1 << 30), 512 << 10);
        assert_eq!(good_segment_size_bytes(32 << 20), 512 << 10);
        assert_eq!(good_segment_size_bytes(31 << 20), 256 << 10);
        assert_eq!(good_segment_size_bytes(1 << 20), 128 << 10);
    }
}
