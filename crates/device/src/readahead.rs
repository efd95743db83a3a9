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

mod windows;

use std::fmt;

use dendro_base::sync::{Arc, Condvar, Mutex};

use self::windows::{
    MAX_WINDOWS, MIN_WINDOWS, SMALL_BYTES, Served, State, WINDOW_BYTES, WORTHWHILE_READS,
};
use crate::{AlignedBuf, Device, HostRoom, IoSlice, IoSliceMut, Part, ReadOf, Result, range};

/// A device that reads ahead: for small reads that lie near each other, in any order, it reads the
/// surroundings as well, and keeps at most 16 MiB of them, or as little as is asked for, and 4 MiB
/// of buffers for what it reads next. While these turn out to be useless it stops, except for an
/// attempt now and then.
pub struct ReadAhead<D> {
    device: D,
    max_windows: usize,
    state: Mutex<State>,
    /// Windows have been read, or cannot be.
    read: Condvar,
}

impl<D: Device> ReadAhead<D> {
    /// Reads ahead on `device`, which may be written to only through this value.
    #[must_use]
    pub fn new(device: D) -> Self {
        let state = Mutex::default();
        Self { device, max_windows: MAX_WINDOWS, state, read: Condvar::new() }
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
        let spares = state.spares.iter().map(|spare| spare.len() as u64);
        windows.chain(spares).sum()
    }

    /// Reads windows that the caller has claimed, with one call. Without a result something near
    /// what is wanted cannot be read, and what is wanted is read without windows.
    fn read_claimed(&self, starts: &[u64]) -> Option<Vec<Arc<AlignedBuf>>> {
        let mut spares = {
            let mut state = self.state.lock();
            let left = state.spares.len().saturating_sub(starts.len());
            state.spares.split_off(left)
        };
        let mut windows: Vec<AlignedBuf> = starts
            .iter()
            .map(|start| {
                let left_bytes = self.device.len_bytes().saturating_sub(*start);
                let len_bytes = WINDOW_BYTES.min(left_bytes) as usize;
                let spare = spares.pop().filter(|spare| spare.len() == len_bytes);
                spare.unwrap_or_else(|| AlignedBuf::zeroed(len_bytes))
            })
            .collect();
        let outcome = match (starts, &mut windows[..]) {
            ([start], [window]) => self.device.read_at(*start, window),
            _ => {
                let mut parts: Vec<_> =
                    windows.iter_mut().map(|window| [IoSliceMut::new(window)]).collect();
                let mut reads: Vec<_> = starts
                    .iter()
                    .zip(&mut parts)
                    .map(|(&offset, parts)| ReadOf { offset, parts })
                    .collect();
                self.device.read_each(&mut reads)
            }
        };
        let mut state = self.state.lock();
        let added = match outcome {
            Ok(()) => {
                let pairs = starts.iter().zip(windows);
                let add = |(start, bytes): (&u64, _)| state.add(*start, bytes, self.max_windows);
                Some(pairs.map(add).collect())
            }
            Err(_) => {
                starts.iter().for_each(|&start| state.give_up(start));
                None
            }
        };
        self.read.notify_all();
        added
    }

    /// Has `serve` take what it wants from each of several windows. Those that are not there are
    /// read; those that somebody else is reading are waited for.
    fn each_window(&self, mut starts: Vec<u64>, mut serve: impl FnMut(u64, &Arc<AlignedBuf>)) {
        while !starts.is_empty() {
            let (mut there, mut claimed) = (Vec::new(), Vec::new());
            {
                let mut state = self.state.lock();
                starts.retain(|&start| {
                    let held = state.held(start).map(|bytes| (start, bytes));
                    let is_missing = held.is_none();
                    there.extend(held);
                    is_missing
                });
                if there.is_empty() {
                    claimed = state.claim(starts.iter().copied());
                }
                if there.is_empty() && claimed.is_empty() {
                    self.read.wait(&mut state);
                }
            }
            if !claimed.is_empty() {
                starts.retain(|start| !claimed.contains(start));
                let read = self.read_claimed(&claimed).unwrap_or_default();
                there.extend(claimed.into_iter().zip(read));
            }
            there.iter().for_each(|(start, bytes)| serve(*start, bytes));
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
            None if wants_window => {
                let claimed = self.state.lock().claim([start]);
                let read = if claimed.is_empty() { None } else { self.read_claimed(&claimed) };
                read.and_then(|mut windows| windows.pop()).map(|bytes| (start, bytes))
            }
            found => found,
        };
        // Within the window, which is shorter than any usize.
        Ok(found.map(|(start, bytes)| Served { bytes, at: (offset - start) as usize }))
    }

    /// The windows that are there for each of several reads, and those that are to be had first
    /// because so many reads lie in them, or somebody else is reading them.
    fn windows_of_each(&self, reads: &[ReadOf<'_, '_>]) -> (Vec<Option<Served>>, Vec<u64>) {
        let (mut wanted, mut under_way) = (Vec::new(), Vec::new());
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
            if offset + len_bytes > start + WINDOW_BYTES {
                return None;
            }
            if state.is_being_read(start) {
                under_way.push(start);
            } else if state.misses(start, self.max_windows) {
                wanted.push(start);
            }
            None
        };
        let found = reads.iter().map(find).collect();
        if under_way.len() >= WORTHWHILE_READS as usize {
            wanted.append(&mut under_way);
        }
        wanted.sort_unstable();
        wanted.dedup();
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
        let (found, wanted) = self.windows_of_each(reads);
        let mut rest = Vec::with_capacity(reads.len());
        for (read, found) in reads.iter_mut().zip(found) {
            match found {
                Some(mut found) => read.parts.iter_mut().for_each(|part| found.take(part)),
                None => rest.push(read),
            }
        }
        self.each_window(wanted, |start, bytes| {
            rest.retain_mut(|read| {
                let at = read.offset.checked_sub(start).and_then(|at| usize::try_from(at).ok());
                let served = at.filter(|at| *at + read.len_bytes() <= bytes.len());
                let Some(at) = served else { return true };
                let mut found = Served { bytes: Arc::clone(bytes), at };
                read.parts.iter_mut().for_each(|part| found.take(part));
                false
            });
        });
        let mut others: Vec<_> = rest
            .into_iter()
            .map(|read| ReadOf { offset: read.offset, parts: &mut *read.parts })
            .collect();
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
    use std::sync::atomic::{AtomicU64, Ordering};

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

    /// A device that takes a while for each call, and counts what it reads.
    struct Slow {
        device: MemoryDevice,
        calls: AtomicU64,
        read_bytes: AtomicU64,
    }

    impl Slow {
        fn note(&self, len_bytes: usize) {
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.read_bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
        }
    }

    impl Device for Slow {
        fn len_bytes(&self) -> u64 {
            self.device.len_bytes()
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            self.note(buf.len());
            self.device.read_at(offset, buf)
        }
        fn read_each(&self, reads: &mut [ReadOf<'_, '_>]) -> Result<()> {
            self.note(reads.iter().map(ReadOf::len_bytes).sum());
            self.device.read_each(reads)
        }
        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            self.device.write_at(offset, bytes)
        }
        fn flush(&self) -> Result<()> {
            self.device.flush()
        }
        fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
            self.device.discard(offset, len_bytes)
        }
    }

    #[test]
    fn windows_are_read_many_at_a_time_and_by_one_of_the_threads_that_want_them() {
        let (calls, read_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let device = ReadAhead::new(Slow { device: filled(16 << 20), calls, read_bytes });
        // Four blocks of each of 64 windows.
        let read_batch = |batch: u64| {
            let mut bufs = vec![[0_u8; 4096]; 256];
            let mut parts: Vec<_> = bufs.iter_mut().map(|buf| [IoSliceMut::new(buf)]).collect();
            let offset = |at: u64| (at % 64) * WINDOW_BYTES + (4 * batch + at / 64) * 4096;
            let mut reads: Vec<_> = parts
                .iter_mut()
                .zip(0..)
                .map(|(parts, at)| ReadOf { offset: offset(at), parts })
                .collect();
            device.read_each(&mut reads).unwrap();
            for (buf, at) in bufs.iter().zip(0..) {
                let mut theirs = [0; 4096];
                device.device.device.read_at(offset(at), &mut theirs).unwrap();
                assert!(*buf == theirs, "batch {batch}, {at}");
            }
        };
        read_batch(0);
        std::thread::scope(|scope| {
            (1..9).for_each(|batch| drop(scope.spawn(move || read_batch(batch))));
        });
        let of_device = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!(device.state.lock().window_count, 64);
        assert_eq!(of_device(&device.device.read_bytes), (1 << 20) + 64 * WINDOW_BYTES);
        assert!(of_device(&device.device.calls) < 20, "{}", of_device(&device.device.calls));
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
        assert_eq!(state.claim([0]), [0]);
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
