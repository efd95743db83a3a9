//! Segments that the device cannot write, and the parts of them that lie in others.
//!
//! The superblock has the list (incompatible feature 5). A segment in it is never filled again. If
//! an entry names a spare segment, the entry's range of the segment lies there, at the same
//! offsets; the spare serves for nothing else.

use std::collections::BTreeSet;
use std::mem::size_of;
use std::ops::Range;

use dendro_base::units::PAGE_SIZE;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::{Layout, SegmentNo};
use crate::{Malformed, Result};

/// The most entries of the list.
pub const MAX_RETIRED: usize = 128;

/// An entry of the list of retired segments, version 1.
///
/// | offset | size | field     | meaning                                                       |
/// |-------:|-----:|-----------|---------------------------------------------------------------|
/// |      0 |    4 | `segment` | a segment that is not filled again                            |
/// |      4 |    4 | `spare`   | the segment in which the range lies; 0: there is no range     |
/// |      8 |    4 | `from`    | where the range begins in the segment, a multiple of 4096     |
/// |     12 |    4 | `end`     | where it ends, a multiple of 4096                             |
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RetiredV1 {
    segment: U32,
    spare: U32,
    from: U32,
    end: U32,
}

const _: () = assert!(size_of::<RetiredV1>() == 16);

/// A segment that is not filled again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retired {
    /// The segment.
    pub segment: SegmentNo,
    /// The part of it that lies in another segment, if there is one, and that segment.
    pub moved: Option<(Range<u32>, SegmentNo)>,
}

impl Retired {
    /// The part that lies elsewhere: where it begins on the device, its length in bytes, and where
    /// it begins instead.
    #[must_use]
    pub fn moved_range(&self, layout: Layout) -> Option<(u64, u64, u64)> {
        let (range, spare) = self.moved.as_ref()?;
        let from = u64::from(range.start);
        let place = |segment| layout.segment_offset(segment) + from;
        let len_bytes = u64::from(range.end.saturating_sub(range.start));
        Some((place(self.segment), len_bytes, place(*spare)))
    }

    pub(crate) fn encode(&self) -> RetiredV1 {
        let (range, spare) = self.moved.clone().unwrap_or((0..0, SegmentNo(0)));
        RetiredV1 {
            segment: self.segment.0.into(),
            spare: spare.0.into(),
            from: range.start.into(),
            end: range.end.into(),
        }
    }

    fn decode(raw: &RetiredV1) -> Self {
        let spare = SegmentNo(raw.spare.get());
        let moved = (spare.0 > 0).then(|| (raw.from.get()..raw.end.get(), spare));
        Self { segment: SegmentNo(raw.segment.get()), moved }
    }

    fn is_sound(&self, layout: Layout) -> bool {
        let is_aligned = |offset: u32| (offset as usize).is_multiple_of(PAGE_SIZE);
        layout.is_log_segment(self.segment)
            && self.moved.as_ref().is_none_or(|(range, spare)| {
                layout.is_log_segment(*spare)
                    && range.start < range.end
                    && u64::from(range.end) <= layout.segment_size_bytes()
                    && is_aligned(range.start)
                    && is_aligned(range.end)
            })
    }
}

/// The segments that are never filled: those of the list and their spares.
#[must_use]
pub fn out_of_use(list: &[Retired]) -> BTreeSet<SegmentNo> {
    let spares = list.iter().filter_map(|one| one.moved.as_ref()).map(|(_, spare)| *spare);
    list.iter().map(|one| one.segment).chain(spares).collect()
}

/// The spare of a segment that has one that is not itself in the list.
#[must_use]
pub fn spare_of(list: &[Retired], segment: SegmentNo) -> Option<SegmentNo> {
    let spares = list.iter().filter(|one| one.segment == segment);
    let mut spares = spares.filter_map(|one| one.moved.as_ref()).map(|(_, spare)| *spare);
    spares.find(|spare| list.iter().all(|one| one.segment != *spare))
}

/// Adds an entry, or makes one longer that it continues.
pub fn add(list: &mut Vec<Retired>, added: Retired) {
    if let Some((range, spare)) = &added.moved {
        for one in list.iter_mut().filter(|one| one.segment == added.segment) {
            if let Some((before, its_spare)) = &mut one.moved
                && its_spare == spare
                && before.end == range.start
            {
                before.end = range.end;
                return;
            }
        }
    }
    list.push(added);
}

/// Reads the list of a superblock.
pub(crate) fn decode_list(count: u32, bytes: &[u8], layout: Layout) -> Result<Vec<Retired>> {
    let wrong = Malformed::new("superblock", "its list of retired segments is wrong");
    let raw = <[RetiredV1]>::ref_from_bytes(bytes).map_err(|_| wrong)?;
    let raw = raw.get(..count as usize).ok_or(wrong)?;
    let list: Vec<Retired> = raw.iter().map(Retired::decode).collect();
    // What lies in a spare is not looked for in a third place.
    let is_moved =
        |spare: SegmentNo| list.iter().any(|other| other.segment == spare && other.moved.is_some());
    let is_sound = |one: &Retired| {
        one.is_sound(layout) && one.moved.as_ref().is_none_or(|(_, spare)| !is_moved(*spare))
    };
    if !list.iter().all(is_sound) {
        return Err(wrong);
    }
    let mut moved: Vec<(u64, u64)> = list
        .iter()
        .filter_map(|one| one.moved_range(layout))
        .map(|(from, len_bytes, _)| (from, from.saturating_add(len_bytes)))
        .collect();
    moved.sort_unstable();
    let overlaps = moved.windows(2).any(|pair| pair[0].1 > pair[1].0);
    if overlaps { Err(wrong) } else { Ok(list) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u32 = 1 << 20;

    fn retired(segment: u32, moved: Option<(Range<u32>, u32)>) -> Retired {
        let moved = moved.map(|(range, spare)| (range, SegmentNo(spare)));
        Retired { segment: SegmentNo(segment), moved }
    }

    fn decode(list: &[Retired]) -> Result<Vec<Retired>> {
        let mut bytes = vec![0; MAX_RETIRED * size_of::<RetiredV1>()];
        for (slot, one) in bytes.chunks_mut(size_of::<RetiredV1>()).zip(list) {
            slot.copy_from_slice(one.encode().as_bytes());
        }
        let layout = Layout::new(20, 32).expect("a layout");
        decode_list(list.len() as u32, &bytes, layout)
    }

    #[test]
    fn a_list_is_read_as_it_was_written_and_what_continues_an_entry_makes_it_longer() {
        let mut list = Vec::new();
        add(&mut list, retired(5, Some((8192..16384, 9))));
        add(&mut list, retired(5, Some((16384..SIZE, 9))));
        add(&mut list, retired(7, None));
        add(&mut list, retired(5, Some((0..4096, 10))));
        add(&mut list, retired(9, None));
        assert_eq!(list[0], retired(5, Some((8192..SIZE, 9))));
        assert_eq!(list.len(), 4);
        assert_eq!(decode(&list).as_ref(), Ok(&list));
        let numbers: Vec<u32> = out_of_use(&list).into_iter().map(|segment| segment.0).collect();
        assert_eq!(numbers, [5, 7, 9, 10]);
        // The spare 9 is in the list itself, so it takes no more.
        assert_eq!(spare_of(&list, SegmentNo(5)), Some(SegmentNo(10)));
        assert_eq!(spare_of(&list, SegmentNo(7)), None);
    }

    #[test]
    fn wrong_lists_are_refused() {
        let good = retired(5, Some((8192..16384, 9)));
        for wrong in [
            vec![retired(1, None)],
            vec![retired(32, None)],
            vec![retired(5, Some((0..4096, 32)))],
            vec![retired(5, Some((Range { start: 4096, end: 4096 }, 9)))],
            vec![retired(5, Some((Range { start: 8192, end: 4096 }, 9)))],
            vec![retired(5, Some((0..SIZE + 4096, 9)))],
            vec![retired(5, Some((1..4096, 9)))],
            vec![retired(5, Some((0..4097, 9)))],
            vec![good.clone(), retired(5, Some((12288..20480, 10)))],
            vec![good.clone(), retired(9, Some((0..4096, 10)))],
            vec![retired(5, Some((0..4096, 5)))],
            vec![retired(7, None); MAX_RETIRED + 1],
        ] {
            assert!(decode(&wrong).is_err(), "{wrong:?}");
        }
        assert!(decode(&[good]).is_ok());
    }
}
