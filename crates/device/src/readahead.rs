//! Reading more than is asked for where reads lie near each other.
//!
//! Data that was written together lies together in the log, and is often read together: the files
//! of a directory, neighbouring nodes of the map. Each is a small read, and a small read takes a
//! device nearly as long as a large one.
//!
//! # Invariants
//! 1. A window holds what the device holds. A change of a range drops the windows over it when it
//!    begins and again when it ends. It also marks reads of windows over it that are under way,
//!    whose results are then not kept.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use dendro_base::sync::{Arc, Mutex};

use crate::{AlignedBuf, Device, HostRoom, IoSlice, IoSliceMut, Part, ReadOf, Result, range};

/// The length of a window; windows begin at multiples of it.
const WINDOW_BYTES: u64 = 256 << 10;
/// The most windows that are kept by default, and the fewest that can be asked for.
const MAX_WINDOWS: usize = 64;
const MIN_WINDOWS: usize = 8;
/// Longer reads are not extended: the kernel or the caller has read ahead already.
const SMALL_BYTES: u64 = 64 << 10;
/// How many reads are remembered, and within what distance of one of them another read is near.
const MAX_RECENT: usize = 8;
const NEAR_BYTES: u64 = 512 << 10;
/// A window that has served so many reads was worth reading.
const GOOD_HITS: u32 = 4;
/// The bounds of the number of windows that were worth reading, less those that were not. While the
/// number is negative, only one candidate in [`PROBE_EVERY`] is read.
const TRUST: std::ops::RangeInclusive<i32> = -4..=4;
const PROBE_EVERY: u32 = 32;

/// So many reads that no window has served make a window over all of them worth reading, if they
/// were among the last so many for each window that can be kept: a device takes about as long for
/// them as for the window.
const WORTHWHILE_READS: u32 = 8;

/// A device that reads ahead: for small reads that lie near each other, in any order, it reads the
/// surroundings as well, and keeps at most 16 MiB of them, or as little as is asked for. While
/// these turn out to be useless it stops, except for an attempt now and then.
pub struct ReadAhead<D> {
    device: D,
    max_windows: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The one used most recently is the last.
    windows: Vec<Window>,
    /// The offsets of the last small reads that no window has served.
    recent: VecDeque<u64>,
    /// The windows being read now.
    reading: Vec<Reading>,
    trust: i32,
    chances: u32,
    missed: Missed,
    /// Windows read, for the tests.
    window_count: u64,
    spare: Option<AlignedBuf>,
}

struct Window {
    start: u64,
    bytes: Arc<AlignedBuf>,
    hits: u32,
}

struct Reading {
    start: u64,
    is_stale: bool,
}

/// The last small reads of those made together that no window has served, by the windows that would
/// have.
#[derive(Default)]
struct Missed {
    windows: VecDeque<u64>,
    counts: HashMap<u64, u32>,
}

impl Missed {
    /// Notes a read in the window at `start`, and returns whether that window is worth reading. The
    /// last `most` reads are remembered.
    fn note(&mut self, start: u64, most: usize) -> bool {
        if self.windows.len() >= most
            && let Some(oldest) = self.windows.pop_front()
        {
            self.take_one(oldest);
        }
        self.windows.push_back(start);
        let count = self.counts.entry(start).or_insert(0);
        *count += 1;
        *count >= WORTHWHILE_READS
    }

    fn take_one(&mut self, start: u64) {
        if let Some(count) = self.counts.get_mut(&start) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&start);
            }
        }
    }

    /// Forgets the reads in a window, because it is read now.
    fn forget(&mut self, start: u64) {
        self.counts.remove(&start);
        self.windows.retain(|&window| window != start);
    }
}

/// The window that serves a read, and the place in it.
struct Served {
    bytes: Arc<AlignedBuf>,
    at: usize,
}

impl Served {
    /// Copies the next bytes.
    fn take(&mut self, part: &mut [u8]) {
        part.copy_from_slice(&self.bytes[self.at..self.at + part.len()]);
        self.at += part.len();
    }
}

fn overlaps(start: u64, offset: u64, len_bytes: u64) -> bool {
    start < offset.saturating_add(len_bytes) && offset < start + WINDOW_BYTES
}

impl State {
    /// The window that holds all of a range.
    fn find(&mut self, offset: u64, len_bytes: u64) -> Option<(u64, Arc<AlignedBuf>)> {
        let is_it = |window: &Window| {
            let end = window.start + window.bytes.len() as u64;
            window.start <= offset && offset + len_bytes <= end
        };
        let at = self.windows.iter().position(is_it)?;
        let mut window = self.windows.remove(at);
        window.hits += 1;
        let found = (window.start, Arc::clone(&window.bytes));
        self.windows.push(window);
        Some(found)
    }

    /// Whether to read the window around a small read at `offset`, which no window serves. The read
    /// is remembered.
    fn wants_window(&mut self, offset: u64) -> bool {
        let is_near = self.recent.iter().any(|&other| other.abs_diff(offset) <= NEAR_BYTES);
        self.recent.push_back(offset);
        if self.recent.len() > MAX_RECENT {
            self.recent.pop_front();
        }
        if !is_near {
            return false;
        }
        self.chances = self.chances.wrapping_add(1);
        self.trust >= 0 || self.chances.is_multiple_of(PROBE_EVERY)
    }

    fn add(&mut self, start: u64, bytes: AlignedBuf, max_windows: usize) -> Arc<AlignedBuf> {
        let bytes = Arc::new(bytes);
        let at = self.reading.iter().position(|reading| reading.start == start);
        let is_stale = at.is_none_or(|at| self.reading.swap_remove(at).is_stale);
        if !is_stale {
            if self.windows.len() >= max_windows {
                let oldest = self.windows.remove(0);
                self.note(oldest);
            }
            self.windows.push(Window { start, bytes: Arc::clone(&bytes), hits: 0 });
        }
        bytes
    }

    /// Counts whether a dropped window was worth reading.
    fn note(&mut self, window: Window) {
        let change = if window.hits >= GOOD_HITS { 1 } else { -1 };
        self.trust = (self.trust + change).clamp(*TRUST.start(), *TRUST.end());
        self.spare = Arc::try_unwrap(window.bytes).ok().or(self.spare.take());
    }

    /// Drops the windows over a range (invariant 1).
    fn forget(&mut self, offset: u64, len_bytes: u64) {
        self.windows.retain(|window| !overlaps(window.start, offset, len_bytes));
        for reading in &mut self.reading {
            reading.is_stale |= overlaps(reading.start, offset, len_bytes);
        }
    }
}

impl<D: Device> ReadAhead<D> {
    /// Reads ahead on `device`, which may be written to only through this value.
    #[must_use]
    pub fn new(device: D) -> Self {
        Self { device, max_windows: MAX_WINDOWS, state: Mutex::default() }
    }

    /// The same, keeping at most `most_bytes`, or 2 MiB if that is more.
    #[must_use]
    pub fn with_memory(device: D, most_bytes: u64) -> Self {
        let windows = usize::try_from(most_bytes / WINDOW_BYTES).unwrap_or(MAX_WINDOWS);
        let max_windows = windows.clamp(MIN_WINDOWS, MAX_WINDOWS);
        Self { max_windows, ..Self::new(device) }
    }

    /// The memory that the windows take.
    pub fn memory_bytes(&self) -> u64 {
        let state = self.state.lock();
        let windows = state.windows.iter().map(|window| window.bytes.len() as u64);
        windows.sum::<u64>() + state.spare.as_ref().map_or(0, |spare| spare.len() as u64)
    }

    /// Reads the window around a range that lies in one, if it can be read.
    fn read_window(&self, start: u64) -> Option<Arc<AlignedBuf>> {
        let len_bytes = WINDOW_BYTES.min(self.device.len_bytes().checked_sub(start)?);
        let spare = {
            let mut state = self.state.lock();
            if state.reading.iter().any(|reading| reading.start == start) {
                return None;
            }
            state.reading.push(Reading { start, is_stale: false });
            state.window_count += 1;
            state.spare.take()
        };
        let len_bytes = usize::try_from(len_bytes).unwrap_or(usize::MAX);
        let mut bytes = spare
            .filter(|spare| spare.len() == len_bytes)
            .unwrap_or_else(|| AlignedBuf::zeroed(len_bytes));
        let outcome = self.device.read_at(start, &mut bytes);
        let mut state = self.state.lock();
        match outcome {
            Ok(()) => Some(state.add(start, bytes, self.max_windows)),
            Err(_) => {
                // Something near the wanted range cannot be read. The wanted range itself is read
                // without the window.
                state.reading.retain(|reading| reading.start != start);
                None
            }
        }
    }

    /// The window that serves a read, which may have to be read first. There is none for long
    /// reads, and for reads whose surroundings are not worth reading.
    fn window_of(&self, offset: u64, len_bytes: u64) -> Result<Option<Served>> {
        if len_bytes == 0 || len_bytes > SMALL_BYTES {
            return Ok(None);
        }
        range::check_bounds(self.device.len_bytes(), offset, len_bytes)?;
        let start = offset - offset % WINDOW_BYTES;
        let (found, wants_window) = {
            let mut state = self.state.lock();
            let found = state.find(offset, len_bytes);
            let crosses = offset + len_bytes > start + WINDOW_BYTES;
            let wants_window = found.is_none() && state.wants_window(offset) && !crosses;
            (found, wants_window)
        };
        let found = match found {
            None if wants_window => self.read_window(start).map(|bytes| (start, bytes)),
            found => found,
        };
        // Within the window, which is shorter than any usize.
        Ok(found.map(|(start, bytes)| Served { bytes, at: (offset - start) as usize }))
    }

    /// The windows that are there for each of several reads, and those to be read first because so
    /// many reads lie in them.
    fn windows_of_each(&self, reads: &[ReadOf<'_, '_>]) -> (Vec<Option<Served>>, Vec<u64>) {
        let most = WORTHWHILE_READS as usize * self.max_windows;
        let mut wanted = Vec::new();
        let mut state = self.state.lock();
        let find = |read: &ReadOf<'_, '_>| {
            let (offset, len_bytes) = (read.offset, read.len_bytes() as u64);
            if len_bytes == 0 || len_bytes > SMALL_BYTES {
                return None;
            }
            if let Some((start, bytes)) = state.find(offset, len_bytes) {
                return Some(Served { bytes, at: (offset - start) as usize });
            }
            let start = offset - offset % WINDOW_BYTES;
            let crosses = offset + len_bytes > start + WINDOW_BYTES;
            if !crosses && state.missed.note(start, most) {
                wanted.push(start);
            }
            None
        };
        let found = reads.iter().map(find).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.iter().for_each(|&start| state.missed.forget(start));
        (found, wanted)
    }

    fn changing<T>(
        &self,
        offset: u64,
        len_bytes: u64,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.state.lock().forget(offset, len_bytes);
        let outcome = change();
        self.state.lock().forget(offset, len_bytes);
        outcome
    }
}

impl<D: Device> fmt::Debug for ReadAhead<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReadAhead")
            .field("len_bytes", &self.device.len_bytes())
            .finish_non_exhaustive()
    }
}

impl<D: Device> Device for ReadAhead<D> {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn host_room(&self) -> Option<HostRoom> {
        self.device.host_room()
    }

    fn next_written(&self, offset: u64) -> Option<u64> {
        self.device.next_written(offset)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.window_of(offset, buf.len() as u64)? {
            Some(mut found) => {
                found.take(buf);
                Ok(())
            }
            None => self.device.read_at(offset, buf),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.changing(offset, bytes.len() as u64, || self.device.write_at(offset, bytes))
    }

    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        let len_bytes = parts.iter().map(|part| part.len() as u64).sum();
        match self.window_of(offset, len_bytes)? {
            Some(mut found) => {
                parts.iter_mut().for_each(|part| found.take(part));
                Ok(())
            }
            None => self.device.read_vectored_at(offset, parts),
        }
    }

    fn read_each(&self, reads: &mut [ReadOf<'_, '_>]) -> Result<()> {
        for read in &*reads {
            range::check_bounds(self.device.len_bytes(), read.offset, read.len_bytes() as u64)?;
        }
        let (mut found, wanted) = self.windows_of_each(reads);
        let new: HashMap<u64, Arc<AlignedBuf>> = wanted
            .into_iter()
            .filter_map(|start| self.read_window(start).map(|bytes| (start, bytes)))
            .collect();
        let mut others = Vec::with_capacity(reads.len());
        for (read, found) in reads.iter_mut().zip(&mut found) {
            let (at, len_bytes) = ((read.offset % WINDOW_BYTES) as usize, read.len_bytes());
            if found.is_none()
                && let Some(bytes) = new.get(&(read.offset - at as u64))
                && at + len_bytes <= bytes.len()
            {
                *found = Some(Served { bytes: Arc::clone(bytes), at });
            }
            match found {
                Some(found) => read.parts.iter_mut().for_each(|part| found.take(part)),
                None => others.push(ReadOf { offset: read.offset, parts: &mut *read.parts }),
            }
        }
        if others.is_empty() { Ok(()) } else { self.device.read_each(&mut others) }
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let len_bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.changing(offset, len_bytes, || self.device.write_vectored_at(offset, parts))
    }

    fn mend(&self, offset: u64, buf: &mut [u8], is_right: &dyn Fn(&[u8]) -> bool) -> bool {
        self.state.lock().forget(offset, buf.len() as u64);
        let is_found = self.device.mend(offset, buf, is_right);
        self.state.lock().forget(offset, buf.len() as u64);
        is_found
    }

    fn copies_differ(&self, offset: u64, len_bytes: u64) -> bool {
        self.device.copies_differ(offset, len_bytes)
    }

    fn copy_count(&self) -> u32 {
        self.device.copy_count()
    }

    fn part_at(&self, offset: u64) -> Option<Part> {
        self.device.part_at(offset)
    }

    fn parts_version(&self) -> u64 {
        self.device.parts_version()
    }

    fn member_ends(&self) -> Vec<u64> {
        self.device.member_ends()
    }

    fn extend(&self, len_bytes: u64, tail: &[u8], allocates: bool) -> Result<()> {
        let start = len_bytes.saturating_sub(tail.len() as u64);
        let extend = || self.device.extend(len_bytes, tail, allocates);
        self.changing(start, tail.len() as u64, extend)
    }

    fn truncate(&self, len_bytes: u64) -> Result<()> {
        let lost_bytes = self.len_bytes().saturating_sub(len_bytes);
        self.changing(len_bytes, lost_bytes, || self.device.truncate(len_bytes))
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.changing(offset, len_bytes, || self.device.discard(offset, len_bytes))
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::Rng;

    use super::*;
    use crate::MemoryDevice;

    fn filled(len_bytes: usize) -> MemoryDevice {
        let mut bytes = AlignedBuf::zeroed(len_bytes);
        Rng::new(1).fill(&mut bytes);
        MemoryDevice::from_bytes(&bytes)
    }

    fn windows_read(device: &ReadAhead<MemoryDevice>) -> u64 {
        device.state.lock().window_count
    }

    #[test]
    fn neighbours_in_any_order_are_read_once_and_together() {
        let device = ReadAhead::new(filled(4 << 20));
        let mut order: Vec<u64> = (0..1024).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, Rng::new(at as u64).below(at as u64) as usize);
        }
        let (mut ours, mut theirs) = ([0; 1000], [0; 1000]);
        for place in order {
            device.read_at(place * 1000, &mut ours).unwrap();
            device.device.read_at(place * 1000, &mut theirs).unwrap();
            assert_eq!(ours, theirs);
        }
        // A megabyte has four windows.
        assert!((4..=6).contains(&windows_read(&device)), "{}", windows_read(&device));
    }

    #[test]
    fn reads_made_together_are_served_by_windows_where_they_lie_close_and_not_elsewhere() {
        let device = ReadAhead::new(filled(32 << 20));
        // Each batch has four blocks of each of 64 windows; the second makes them worth reading.
        let mut rng = Rng::new(5);
        for batch in 0..16 {
            let mut bufs = vec![[0_u8; 4096]; 256];
            let offsets: Vec<u64> =
                (0..256).map(|at| (at % 64) * WINDOW_BYTES + rng.below(60) * 4096).collect();
            let mut parts: Vec<_> = bufs.iter_mut().map(|buf| [IoSliceMut::new(buf)]).collect();
            let mut reads: Vec<_> = parts
                .iter_mut()
                .zip(&offsets)
                .map(|(parts, &offset)| ReadOf { offset, parts })
                .collect();
            device.read_each(&mut reads).unwrap();
            for (buf, offset) in bufs.iter().zip(offsets) {
                let mut theirs = [0; 4096];
                device.device.read_at(offset, &mut theirs).unwrap();
                assert!(*buf == theirs, "batch {batch}, {offset}");
            }
        }
        assert_eq!(windows_read(&device), 64);

        let far = ReadAhead::new(MemoryDevice::new(16 << 30));
        for _ in 0..64 {
            let mut bufs = vec![[0_u8; 4096]; 256];
            let mut parts: Vec<_> = bufs.iter_mut().map(|buf| [IoSliceMut::new(buf)]).collect();
            let mut reads: Vec<_> = parts
                .iter_mut()
                .map(|parts| ReadOf { offset: rng.below(4 << 20) * 4096, parts })
                .collect();
            far.read_each(&mut reads).unwrap();
        }
        assert_eq!(windows_read(&far), 0);
    }

    #[test]
    fn what_lies_around_a_header_comes_from_windows_too() {
        let device = ReadAhead::new(filled(1 << 20));
        for place in 0..100 {
            let (mut before, mut header, mut after) = ([0; 2000], [0; 100], [0; 3000]);
            let mut parts = [&mut before[..], &mut header, &mut after].map(IoSliceMut::new);
            device.read_vectored_at(place * 5000, &mut parts).unwrap();
            let mut theirs = [0; 5100];
            device.device.read_at(place * 5000, &mut theirs).unwrap();
            assert_eq!([&before[..], &header, &after].concat(), theirs);
        }
        // Half a megabyte has two windows.
        assert_eq!(windows_read(&device), 2);
    }

    #[test]
    fn reads_far_from_each_other_stay_as_they_are_and_so_do_large_ones() {
        let device = ReadAhead::new(MemoryDevice::new(8 << 30));
        for place in 0..8000 {
            device.read_at(place * (1 << 20), &mut [0; 100]).unwrap();
        }
        let mut large = vec![0; 128 << 10];
        for place in 0..10 {
            device.read_at(place << 17, &mut large).unwrap();
        }
        assert_eq!(windows_read(&device), 0);
    }

    #[test]
    fn windows_that_nobody_wants_are_hardly_read_any_more() {
        let device = ReadAhead::new(MemoryDevice::new(4 << 30));
        let mut rng = Rng::new(3);
        for _ in 0..5000 {
            // Two near each other, and then far away.
            let place = rng.below(4000) << 20;
            device.read_at(place, &mut [0; 100]).unwrap();
            device.read_at(place + (300 << 10), &mut [0; 100]).unwrap();
        }
        assert!(windows_read(&device) < 300, "{}", windows_read(&device));
    }

    #[test]
    fn what_changes_is_not_read_from_a_window() {
        let device = ReadAhead::new(filled(1 << 20));
        let mut byte = [0];
        device.read_at(0, &mut byte).unwrap();
        device.read_at(5000, &mut byte).unwrap();
        assert_eq!(windows_read(&device), 1);
        device.write_at(4096, &[7; 4096]).unwrap();
        device.read_at(5000, &mut byte).unwrap();
        assert_eq!(byte, [7]);
        // A change during the read of a window.
        let mut state = device.state.lock();
        state.reading.push(Reading { start: 0, is_stale: false });
        state.forget(8192, 4096);
        state.add(0, AlignedBuf::zeroed(WINDOW_BYTES as usize), MAX_WINDOWS);
        assert!(state.windows.iter().all(|window| window.start != 0));
    }

    #[test]
    fn the_last_window_ends_with_the_device_and_nothing_is_read_beyond() {
        let device = ReadAhead::new(filled((WINDOW_BYTES + 8192) as usize));
        let (mut ours, mut theirs) = ([0; 100], [0; 100]);
        for offset in [WINDOW_BYTES + 100, WINDOW_BYTES + 8092] {
            device.read_at(offset, &mut ours).unwrap();
            device.device.read_at(offset, &mut theirs).unwrap();
            assert_eq!(ours, theirs);
        }
        assert_eq!(windows_read(&device), 1);
        assert!(device.read_at(WINDOW_BYTES + 8093, &mut ours).is_err());
    }
}
