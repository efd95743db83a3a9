//! Where the segments of a spread volume lie: the arithmetic, without devices.
//!
//! All members hold the head of the volume, at their start, and its tail, before their rosters.
//! Each segment between these lies on one member. Segments of members count from their start, so
//! that those of the head are the first ones there too.

use std::ops::Range;

use dendro_base::sync::atomic::{AtomicBool, Ordering};
use dendro_format::roster::extents::{
    Column, Extent, HEAD_SEGMENTS, MAX_EXTENTS, TAIL_LEN_BYTES, spread_len_bytes,
};
use dendro_format::roster::roster_area;

/// The most bytes of a segment run that is moved at a time.
const MOVED_LEN_BYTES: u64 = 64 << 20;

/// A range of the volume that lies in one piece on each member that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) len_bytes: u64,
    /// The member that holds it; `None`: all do.
    pub(crate) on: Option<usize>,
}

impl Piece {
    /// Whether a member holds it.
    pub(crate) fn is_on(&self, member: usize) -> bool {
        self.on.is_none_or(|on| on == member)
    }
}

/// The extents of a spread volume.
#[derive(Debug)]
pub(crate) struct Spread {
    segment_size_log2: u8,
    extents: Vec<Extent>,
    /// The first segment of each extent in the volume.
    starts: Vec<u64>,
    moving: Option<Moving>,
}

/// The first rows of a column that are copied to another place. What is written to them meanwhile
/// is written to both places.
#[derive(Debug)]
pub(crate) struct Moving {
    extent: usize,
    column: usize,
    row_count: u32,
    to: Column,
    /// How far it is, in bytes of the column.
    copied_bytes: u64,
    /// Whether something could not be written to the new place.
    has_failed: AtomicBool,
}

/// A segment of an extent: its column and row.
struct Cell {
    extent: usize,
    column: usize,
    row: u32,
}

/// The segments of a member of this length, those of the head included, and where its copy of the
/// tail begins. `None`: it is too short to be a member.
pub(crate) fn room_on(device_len_bytes: u64, segment_size_log2: u8) -> Option<(u32, u64)> {
    let tail = roster_area(device_len_bytes)?.start.checked_sub(TAIL_LEN_BYTES)?;
    let segments = u32::try_from(tail >> segment_size_log2).unwrap_or(u32::MAX);
    (segments > HEAD_SEGMENTS).then_some((segments, tail))
}

/// How many segments of its own a device of this length has for a spread volume with segments of
/// 2^`segment_size_log2` bytes.
#[must_use]
pub fn part_segments(device_len_bytes: u64, segment_size_log2: u8) -> u32 {
    room_on(device_len_bytes, segment_size_log2).map_or(0, |(count, _)| count - HEAD_SEGMENTS)
}

/// The bytes that a device needs to hold a part of a spread volume with segments of
/// 2^`segment_size_log2` bytes.
#[must_use]
pub fn part_needed_bytes(segment_size_log2: u8) -> u64 {
    let rosters = dendro_format::roster::ROSTER_AREA_LEN_BYTES;
    (u64::from(HEAD_SEGMENTS + 1) << segment_size_log2) + TAIL_LEN_BYTES + rosters
}

impl Spread {
    pub(crate) fn new(segment_size_log2: u8, extents: Vec<Extent>) -> Self {
        let mut at = u64::from(HEAD_SEGMENTS);
        let starts = extents.iter().map(|extent| {
            let start = at;
            at += u64::from(extent.segment_count);
            start
        });
        Self { segment_size_log2, starts: starts.collect(), extents, moving: None }
    }

    /// The extents of a volume that lies on one device, each segment where it lies there alone.
    pub(crate) fn in_place(segment_size_log2: u8, segment_count: u32) -> Self {
        let columns = vec![Column { member: 0, start: HEAD_SEGMENTS }];
        let segment_count = segment_count - HEAD_SEGMENTS;
        Self::new(segment_size_log2, vec![Extent { segment_count, columns }])
    }

    /// The same without what is being moved.
    pub(crate) fn at_rest(&self) -> Self {
        Self::new(self.segment_size_log2, self.extents.clone())
    }

    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    pub(crate) const fn segment_size_log2(&self) -> u8 {
        self.segment_size_log2
    }

    /// The segments between head and tail.
    pub(crate) fn body_count(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.segment_count)).sum()
    }

    /// The length of the volume.
    pub(crate) fn len_bytes(&self) -> u64 {
        spread_len_bytes(&self.extents, self.segment_size_log2)
    }

    fn head_end(&self) -> u64 {
        u64::from(HEAD_SEGMENTS) << self.segment_size_log2
    }

    pub(crate) fn tail_start(&self) -> u64 {
        self.len_bytes() - TAIL_LEN_BYTES
    }

    /// Where a byte lies between head and tail.
    fn cell(&self, offset: u64) -> Cell {
        let segment = offset >> self.segment_size_log2;
        let extent = self.starts.partition_point(|start| *start <= segment) - 1;
        let within = segment - self.starts[extent];
        let count = self.extents[extent].columns.len() as u64;
        Cell { extent, column: (within % count) as usize, row: (within / count) as u32 }
    }

    fn in_segment(&self, offset: u64) -> u64 {
        offset & ((1 << self.segment_size_log2) - 1)
    }

    /// The first part of a range that lies in one piece.
    pub(crate) fn piece(&self, offset: u64, len_bytes: u64) -> Piece {
        let until = |end: u64, on| Piece { len_bytes: len_bytes.min(end - offset), on };
        if offset < self.head_end() {
            return until(self.head_end(), None);
        }
        if offset >= self.tail_start() {
            return Piece { len_bytes, on: None };
        }
        let cell = self.cell(offset);
        let extent = &self.extents[cell.extent];
        let segments = match &extent.columns[..] {
            [_] if self.moving.is_none() => extent.row_count() - cell.row,
            _ => 1,
        };
        let end =
            (offset - self.in_segment(offset)) + (u64::from(segments) << self.segment_size_log2);
        until(end, Some(usize::from(extent.columns[cell.column].member)))
    }

    /// Where a member that holds `offset` has it; the member's copy of the tail begins at `tail`.
    pub(crate) fn place(&self, offset: u64, tail: u64) -> u64 {
        if offset < self.head_end() {
            return offset;
        }
        if offset >= self.tail_start() {
            return tail + (offset - self.tail_start());
        }
        let cell = self.cell(offset);
        let start = self.extents[cell.extent].columns[cell.column].start;
        self.segment_place(start + cell.row) + self.in_segment(offset)
    }

    fn segment_place(&self, segment: u32) -> u64 {
        u64::from(segment) << self.segment_size_log2
    }

    /// The member to which `offset` is being moved, and the place there.
    pub(crate) fn moved_place(&self, offset: u64) -> Option<(usize, u64)> {
        let moving = self.moving.as_ref()?;
        if moving.has_failed.load(Ordering::Relaxed) {
            return None;
        }
        if offset < self.head_end() || offset >= self.tail_start() {
            return None;
        }
        let cell = self.cell(offset);
        let is_moved = (cell.extent, cell.column) == (moving.extent, moving.column)
            && cell.row < moving.row_count;
        let place = || self.segment_place(moving.to.start + cell.row) + self.in_segment(offset);
        is_moved.then(|| (usize::from(moving.to.member), place()))
    }

    /// Whether something is being moved.
    pub(crate) const fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// The member that something is being moved to.
    pub(crate) fn moved_to(&self) -> Option<usize> {
        self.moving.as_ref().map(|moving| usize::from(moving.to.member))
    }

    /// Notes that what is being moved could not be written to its new place.
    pub(crate) fn fail_move(&self) {
        self.moving.iter().for_each(|moving| moving.has_failed.store(true, Ordering::Relaxed));
    }

    /// Gives up what is being moved if it could not be written. Returns whether that was so.
    pub(crate) fn end_failed_move(&mut self) -> bool {
        self.moving.take_if(|moving| moving.has_failed.load(Ordering::Relaxed)).is_some()
    }

    /// Gives up what is being moved: it stays where it is.
    pub(crate) fn stop_move(&mut self) {
        self.moving = None;
    }

    /// Counts bytes that were copied.
    pub(crate) fn note_copied(&mut self, len_bytes: u64) {
        self.moving.iter_mut().for_each(|moving| moving.copied_bytes += len_bytes);
    }

    /// The bytes that lie on a member, without those that were copied from it already.
    pub(crate) fn left_bytes(&self, member: usize) -> u64 {
        let (_, segments) = self.taken_count(member);
        let is_from = |moving: &&Moving| {
            usize::from(self.extents[moving.extent].columns[moving.column].member) == member
        };
        let copied_bytes = self.moving.as_ref().filter(is_from).map_or(0, |it| it.copied_bytes);
        (segments << self.segment_size_log2).saturating_sub(copied_bytes)
    }

    /// The next bytes to be copied: the member and the place that they come from, the place that
    /// they go to, and how many there are.
    pub(crate) fn next_copied(&self, most_bytes: u64) -> Option<(usize, u64, u64, u64)> {
        let moving = self.moving.as_ref()?;
        let all_bytes = self.segment_place(moving.row_count);
        let len_bytes = most_bytes.min(all_bytes - moving.copied_bytes);
        let from = &self.extents[moving.extent].columns[moving.column];
        let at = |start| self.segment_place(start) + moving.copied_bytes;
        let is_sound = len_bytes > 0 && !moving.has_failed.load(Ordering::Relaxed);
        let places = (usize::from(from.member), at(from.start), at(moving.to.start), len_bytes);
        is_sound.then_some(places)
    }

    /// Whether all of what is being moved was copied.
    pub(crate) fn is_copied(&self) -> bool {
        let is_copied = |moving: &Moving| {
            moving.copied_bytes >= self.segment_place(moving.row_count)
                && !moving.has_failed.load(Ordering::Relaxed)
        };
        self.moving.as_ref().is_some_and(is_copied)
    }

    /// The extents when what is being moved lies in its new place. `None`: nothing is moved, or
    /// there are too many extents then.
    pub(crate) fn moved(&self) -> Option<Self> {
        let moving = self.moving.as_ref()?;
        let mut extents = Vec::with_capacity(self.extents.len() + 1);
        for (at, extent) in self.extents.iter().enumerate() {
            if at != moving.extent {
                extents.push(extent.clone());
                continue;
            }
            let (mut first, rest) = split(extent, moving.row_count);
            first.columns[moving.column] = moving.to;
            extents.push(first);
            extents.extend(rest);
        }
        self.with(extents)
    }

    fn with(&self, extents: Vec<Extent>) -> Option<Self> {
        let extents = joined(extents);
        (extents.len() <= MAX_EXTENTS).then(|| Self::new(self.segment_size_log2, extents))
    }

    /// The segments of a member that extents take, in order.
    fn taken_on(&self, member: usize) -> Vec<Range<u64>> {
        let columns = self.extents.iter().flat_map(|extent| {
            extent.columns.iter().map(|column| (column.member, extent.taken(column)))
        });
        let own = columns.filter(|(of, _)| usize::from(*of) == member);
        let mut taken: Vec<_> = own.map(|(_, taken)| taken).collect();
        taken.sort_unstable_by_key(|taken| taken.start);
        taken
    }

    /// Segments of a member behind which extents take none, and how many they take.
    pub(crate) fn taken_count(&self, member: usize) -> (u64, u64) {
        let taken = self.taken_on(member);
        let end = taken.last().map_or(u64::from(HEAD_SEGMENTS), |last| last.end);
        (end, taken.iter().map(|taken| taken.end - taken.start).sum())
    }

    /// The free segments of a member that has so many in all.
    fn free_on(&self, member: usize, segment_count: u32) -> Vec<Range<u64>> {
        let mut free = Vec::new();
        let mut at = u64::from(HEAD_SEGMENTS);
        let end = u64::from(segment_count);
        for taken in self.taken_on(member).into_iter().chain(std::iter::once(end..end)) {
            if at < taken.start {
                free.push(at..taken.start);
            }
            at = at.max(taken.end);
        }
        free
    }

    /// How many segments of a member that has so many in all are free.
    pub(crate) fn free_count(&self, member: usize, segment_count: u32) -> u64 {
        self.free_on(member, segment_count).iter().map(|free| free.end - free.start).sum()
    }

    /// The extents with so many segments more, taken from the members in turn as long as these have
    /// free ones. `rooms` has the segments of each member, or 0 for one that gets none. `None`:
    /// there are not so many, or there are too many extents then.
    pub(crate) fn lengthened(&self, rooms: &[u32], mut segments: u64) -> Option<Self> {
        let mut free: Vec<Vec<Range<u64>>> =
            rooms.iter().enumerate().map(|(at, count)| self.free_on(at, *count)).collect();
        let mut extents = self.extents.clone();
        while segments > 0 {
            let first = |(at, free): (usize, &Vec<Range<u64>>)| Some((at, free.first()?.clone()));
            let mut runs: Vec<_> = free.iter().enumerate().filter_map(first).collect();
            runs.truncate(usize::try_from(segments).unwrap_or(usize::MAX));
            let shortest = runs.iter().map(|(_, run)| run.end - run.start).min()?;
            let rows = shortest.min(segments / runs.len() as u64);
            let count = rows * runs.len() as u64;
            let column = |(at, run): &(usize, Range<u64>)| Column {
                member: *at as u8,
                start: run.start as u32,
            };
            let columns = runs.iter().map(column).collect();
            extents.push(Extent { segment_count: u32::try_from(count).ok()?, columns });
            segments -= count;
            for (at, _) in runs {
                free[at][0].start += rows;
                free[at].retain(|run| !run.is_empty());
            }
        }
        self.with(extents)
    }

    /// The extents with so many segments less, from the end of the volume. `None`: there are not so
    /// many.
    pub(crate) fn shortened(&self, mut segments: u64) -> Option<Self> {
        let mut extents = self.extents.clone();
        while segments > 0 {
            let last = extents.pop()?;
            let left = u64::from(last.segment_count).saturating_sub(segments);
            segments = segments.saturating_sub(u64::from(last.segment_count));
            let columns = last.columns.len() as u32;
            let left = left as u32;
            let (whole, rest) = split(&last, left / columns);
            if whole.segment_count > 0 {
                extents.push(whole);
            }
            if let Some(rest) = rest.filter(|_| !left.is_multiple_of(columns)) {
                let columns = rest.columns[..(left % columns) as usize].to_vec();
                extents.push(Extent { segment_count: columns.len() as u32, columns });
            }
        }
        if extents.is_empty() { None } else { self.with(extents) }
    }

    /// Begins to move a part of a member that `leaves` to one that does not, of those with free
    /// segments one that has none of the same extent if there is one. Returns whether there is
    /// something to move and room for it.
    pub(crate) fn begin_move(&mut self, rooms: &[u32], leaves: &[bool]) -> bool {
        let is_leaving = |column: &Column| leaves.get(usize::from(column.member)) == Some(&true);
        let mut all = self.extents.iter().enumerate();
        let found =
            all.find_map(|(at, extent)| Some((at, extent.columns.iter().position(is_leaving)?)));
        let Some((extent, column)) = found else { return false };
        let row_count = self.extents[extent].row_count();
        let has_others = |member: usize| {
            self.extents[extent].columns.iter().any(|it| usize::from(it.member) == member)
        };
        let stays = |at: &usize| leaves.get(*at) == Some(&false);
        let free = (0..rooms.len())
            .filter(stays)
            .flat_map(|at| self.free_on(at, rooms[at]).into_iter().map(move |run| (at, run)));
        let best = free.max_by_key(|(at, run)| {
            (!has_others(*at), (run.end - run.start).min(u64::from(row_count)))
        });
        let Some((member, run)) = best else { return false };
        let most = ((MOVED_LEN_BYTES >> self.segment_size_log2) as u32).max(1);
        let to = Column { member: member as u8, start: run.start as u32 };
        let row_count = row_count.min(most).min((run.end - run.start) as u32);
        let has_failed = AtomicBool::new(false);
        self.moving = Some(Moving { extent, column, row_count, to, copied_bytes: 0, has_failed });
        true
    }

    /// Has the members behind `removed`, which holds nothing, count from one less on.
    pub(crate) fn without(&self, removed: usize) -> Self {
        let mut extents = self.extents.clone();
        for column in extents.iter_mut().flat_map(|extent| &mut extent.columns) {
            column.member -= u8::from(usize::from(column.member) > removed);
        }
        Self::new(self.segment_size_log2, extents)
    }
}

/// The first rows of an extent, and the others if there are any.
fn split(extent: &Extent, row_count: u32) -> (Extent, Option<Extent>) {
    let columns = extent.columns.len() as u32;
    let first = Extent { segment_count: row_count * columns, columns: extent.columns.clone() };
    let rest = extent.segment_count - first.segment_count;
    let moved = extent.columns.iter().map(|it| Column { start: it.start + row_count, ..*it });
    let rest = (rest > 0).then(|| Extent { segment_count: rest, columns: moved.collect() });
    (first, rest)
}

/// The same with as few extents as can be: those are one of which each column goes on where it
/// ended.
fn joined(extents: Vec<Extent>) -> Vec<Extent> {
    let mut joined: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        let continues = |last: &Extent| {
            last.columns.len() == extent.columns.len()
                && last.columns.iter().zip(&extent.columns).all(|(one, next)| {
                    one.member == next.member && one.start + last.row_count() == next.start
                })
        };
        match joined.last_mut().filter(|last| continues(last)) {
            Some(last) => last.segment_count += extent.segment_count,
            None => joined.push(extent),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG2: u8 = 17;
    const SEGMENT: u64 = 1 << LOG2;

    fn made(rooms: &[u32]) -> Spread {
        let all = rooms.iter().map(|count| u64::from(count - HEAD_SEGMENTS)).sum();
        Spread::new(LOG2, Vec::new()).lengthened(rooms, all).unwrap()
    }

    /// Where each segment between head and tail lies.
    fn places(spread: &Spread) -> Vec<(usize, u64)> {
        let segments = spread.tail_start() / SEGMENT;
        let place = |segment: u64| {
            let piece = spread.piece(segment * SEGMENT, 1);
            (piece.on.unwrap(), spread.place(segment * SEGMENT, 0) / SEGMENT)
        };
        (2..segments).map(place).collect()
    }

    fn are_distinct(places: &[(usize, u64)]) -> bool {
        let mut sorted = places.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.len() == places.len()
    }

    #[test]
    fn segments_lie_on_the_members_in_turn_as_long_as_they_have_room() {
        let spread = made(&[5, 4]);
        assert_eq!(places(&spread), [(0, 2), (1, 2), (0, 3), (1, 3), (0, 4)]);
        assert_eq!(spread.len_bytes(), 7 * SEGMENT + TAIL_LEN_BYTES);
        assert_eq!(made(&[1002, 1002, 502]).extents().len(), 2);
    }

    #[test]
    fn head_and_tail_lie_on_all_members() {
        let spread = made(&[5, 4]);
        assert_eq!(
            spread.piece(77, u64::MAX >> 1),
            Piece { len_bytes: 2 * SEGMENT - 77, on: None }
        );
        assert_eq!(spread.place(SEGMENT + 5, 99 * SEGMENT), SEGMENT + 5);
        let tail = 7 * SEGMENT;
        assert_eq!(spread.piece(tail + 7, 100), Piece { len_bytes: 100, on: None });
        assert_eq!(spread.place(tail + 7, 99 * SEGMENT), 99 * SEGMENT + 7);
    }

    #[test]
    fn a_range_ends_where_its_member_does() {
        let spread = made(&[5, 4]);
        let piece = |offset| spread.piece(offset, 10 * SEGMENT);
        assert_eq!(piece(2 * SEGMENT + 9), Piece { len_bytes: SEGMENT - 9, on: Some(0) });
        assert_eq!(piece(3 * SEGMENT), Piece { len_bytes: SEGMENT, on: Some(1) });
        // An extent of one column is one piece.
        let one = made(&[7]);
        let whole = Piece { len_bytes: 5 * SEGMENT - 9, on: Some(0) };
        assert_eq!(one.piece(2 * SEGMENT + 9, 5 * SEGMENT - 9), whole);
    }

    #[test]
    fn what_is_cut_off_can_be_taken_again() {
        let spread = made(&[6, 5, 4]);
        for count in 1..9 {
            let shorter = spread.shortened(count).unwrap();
            let all = places(&spread);
            assert_eq!(places(&shorter), all[..all.len() - count as usize]);
            let again = shorter.lengthened(&[6, 5, 4], count).unwrap();
            assert!(are_distinct(&places(&again)) && again.len_bytes() == spread.len_bytes());
            assert!(shorter.lengthened(&[6, 5, 4], count + 1).is_none());
        }
        assert!(spread.shortened(9).is_none());
    }

    #[test]
    fn a_member_is_emptied_and_leaves_the_others_where_they_are() {
        let rooms = [40, 30, 50];
        let spread = made(&rooms);
        let mut spread = spread.shortened(28).unwrap();
        let before = places(&spread);
        let leaves = [false, true, false];
        while spread.begin_move(&rooms, &leaves) {
            // Each byte of a segment is copied to where it is looked for afterwards.
            let (from, source, target, len_bytes) = spread.next_copied(u64::MAX >> 1).unwrap();
            let to = spread.moved_to().unwrap();
            assert!(from == 1 && to != 1 && len_bytes > 0);
            let moved = spread.moved().unwrap();
            for (segment, (old, new)) in
                (2u64..).zip(places(&spread).into_iter().zip(places(&moved)))
            {
                let twice = spread.moved_place(segment * SEGMENT);
                match old == new {
                    true => assert_eq!(twice, None),
                    false => {
                        assert_eq!(twice, Some((new.0, new.1 * SEGMENT)));
                        let row = old.1 - source / SEGMENT;
                        assert_eq!((new.0, new.1), (to, target / SEGMENT + row));
                    }
                }
            }
            spread = moved;
        }
        assert_eq!(spread.taken_count(1), (2, 0));
        let after = places(&spread.without(1));
        assert!(are_distinct(&after) && after.len() == before.len());
        for (before, after) in before.iter().zip(&after) {
            assert!(before.0 == 1 || (before.0 / 2, before.1) == *after, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_member_is_not_emptied_without_room() {
        let mut spread = made(&[5, 4]);
        assert!(!spread.begin_move(&[5, 4], &[false, true]));
        assert!(!spread.begin_move(&[5, 9], &[false, false]));
    }
}
