//! Where the segments of a volume lie that is spread over the members of its set.

use std::mem::size_of;
use std::ops::Range;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::{BACKUP_SLOT_COUNT, FIRST_LOG_SEGMENT};
use crate::superblock::SUPERBLOCK_LEN_BYTES;
use crate::{Malformed, Result};

/// The most columns of an extent.
pub const MAX_COLUMNS: usize = 8;
/// The most extents of a volume.
pub const MAX_EXTENTS: usize = 1024;
/// Segments at the start of the volume, and of each member, that all members hold: those of the
/// superblock logs.
pub const HEAD_SEGMENTS: u32 = FIRST_LOG_SEGMENT.0;
/// Bytes at the end of the volume that all members hold before their rosters: the backups of
/// superblocks.
pub const TAIL_LEN_BYTES: u64 = BACKUP_SLOT_COUNT * SUPERBLOCK_LEN_BYTES as u64;

/// Bytes that an extent takes.
pub(super) const EXTENT_LEN_BYTES: usize = 48;

/// An extent in a roster, version 1.
///
/// | offset | size | field            | meaning                                              |
/// |-------:|-----:|------------------|------------------------------------------------------|
/// |      0 |    4 | `segment_count`  | segments of the volume, a multiple of `column_count` |
/// |      4 |    1 | `column_count`   | 1 to 8                                               |
/// |      5 |    3 | `reserved`       | zero                                                 |
/// |      8 |    8 | `column_members` | for each column, the number of its member in the list |
/// |     16 |   32 | `column_starts`  | for each column, the segment of the member, a `u32`, with which it begins |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExtentV1 {
    segment_count: U32,
    column_count: u8,
    reserved: [u8; 3],
    column_members: [u8; 8],
    column_starts: [u8; 32],
}

const _: () = assert!(size_of::<ExtentV1>() == EXTENT_LEN_BYTES);

/// A run of a member's segments that holds every so many segments of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The member, by its number in the roster.
    pub member: u8,
    /// The member's segment with which it begins, counted from the member's start.
    pub start: u32,
}

/// Segments of the volume that follow each other. The first lies in the first column, the next one
/// in the second, and so on, in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Segments of the volume; a multiple of the number of columns.
    pub segment_count: u32,
    /// One column at least, and [`MAX_COLUMNS`] at most.
    pub columns: Vec<Column>,
}

impl Extent {
    /// The segments that each column has.
    #[must_use]
    pub fn row_count(&self) -> u32 {
        self.segment_count / (self.columns.len().max(1) as u32)
    }

    /// The segments of its member that a column takes. They are counted in `u64`, in which no sum
    /// overflows.
    #[must_use]
    pub fn taken(&self, column: &Column) -> Range<u64> {
        let start = u64::from(column.start);
        start..start + u64::from(self.row_count())
    }

    fn encode(&self) -> ExtentV1 {
        let mut raw = ExtentV1::new_zeroed();
        raw.segment_count = self.segment_count.into();
        raw.column_count = self.columns.len().min(MAX_COLUMNS) as u8;
        for (at, column) in self.columns.iter().take(MAX_COLUMNS).enumerate() {
            raw.column_members[at] = column.member;
            raw.column_starts[4 * at..][..4].copy_from_slice(&column.start.to_le_bytes());
        }
        raw
    }

    fn decode(raw: &ExtentV1) -> Option<Self> {
        let count = usize::from(raw.column_count);
        let members = raw.column_members.get(..count)?;
        let starts = <[U32]>::ref_from_bytes(&raw.column_starts).ok()?;
        let columns = members.iter().zip(starts);
        let columns: Vec<Column> =
            columns.map(|(&member, start)| Column { member, start: start.get() }).collect();
        let segment_count = raw.segment_count.get();
        let is_sound = count > 0 && segment_count > 0 && segment_count.is_multiple_of(count as u32);
        is_sound.then_some(Self { segment_count, columns })
    }
}

/// The length of a volume of these extents.
#[must_use]
pub fn spread_len_bytes(extents: &[Extent], segment_size_log2: u8) -> u64 {
    let body: u64 = extents.iter().map(|extent| u64::from(extent.segment_count)).sum();
    ((u64::from(HEAD_SEGMENTS) + body) << segment_size_log2) + TAIL_LEN_BYTES
}

/// The `len_bytes` bytes that stand in the place of the bits of stale regions.
pub(super) fn encode(extents: &[Extent], len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    for (slot, extent) in bytes.chunks_mut(EXTENT_LEN_BYTES).zip(extents) {
        slot.copy_from_slice(extent.encode().as_bytes());
    }
    bytes
}

/// Reads `count` extents over `member_count` members.
pub(super) fn decode(bytes: &[u8], count: usize, member_count: usize) -> Result<Vec<Extent>> {
    let wrong = || Malformed::new("roster", "its extents are wrong");
    if count == 0 || count > MAX_EXTENTS {
        return Err(wrong());
    }
    let (raw, _) = <[ExtentV1]>::ref_from_prefix_with_elems(bytes, count).map_err(|_| wrong())?;
    let extents: Vec<Extent> =
        raw.iter().map(Extent::decode).collect::<Option<_>>().ok_or_else(wrong)?;
    let total: u64 = extents.iter().map(|extent| u64::from(extent.segment_count)).sum();
    // No two lie in one place, and none where all members hold the same.
    let columns =
        extents.iter().flat_map(|of| of.columns.iter().map(|it| (it.member, of.taken(it))));
    let mut taken: Vec<(u8, Range<u64>)> = columns.collect();
    taken.sort_unstable_by_key(|(member, taken)| (*member, taken.start));
    let overlaps =
        taken.windows(2).any(|two| two[0].0 == two[1].0 && two[0].1.end > two[1].1.start);
    let is_wrong = |(member, taken): &(u8, Range<u64>)| {
        usize::from(*member) >= member_count
            || taken.start < u64::from(HEAD_SEGMENTS)
            || taken.end > u64::from(u32::MAX)
    };
    if overlaps || taken.iter().any(is_wrong) || total > u64::from(u32::MAX - HEAD_SEGMENTS) {
        return Err(wrong());
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 60 << 10;

    fn extent(segment_count: u32, columns: &[(u8, u32)]) -> Extent {
        let columns = columns.iter().map(|&(member, start)| Column { member, start }).collect();
        Extent { segment_count, columns }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let sound = vec![extent(6, &[(0, 2), (1, 2)]), extent(4, &[(0, 5)])];
        assert_eq!(decode(&encode(&sound, LEN), 2, 2), Ok(sound));
        for wrong in [
            vec![],
            vec![extent(3, &[(0, 2), (1, 2)])],
            vec![extent(0, &[(0, 2)])],
            vec![extent(2, &[])],
            vec![extent(2, &[(0, 1)])],
            vec![extent(2, &[(2, 2)])],
            vec![extent(6, &[(0, 2), (1, 2)]), extent(4, &[(0, 4)])],
            vec![extent(4, &[(0, 2), (0, 3)])],
            vec![extent(9, &[(0, u32::MAX - 4)])],
        ] {
            assert!(decode(&encode(&wrong, LEN), wrong.len(), 2).is_err(), "{wrong:?}");
        }
        assert!(decode(&encode(&[], LEN), MAX_EXTENTS + 1, 2).is_err());
    }

    #[test]
    fn the_length_counts_head_and_tail() {
        assert_eq!(spread_len_bytes(&[extent(6, &[(0, 2)])], 17), (8 << 17) + (64 << 10));
    }
}
