//! The windows that are kept, and the reads that say which others are worth reading.

use std::collections::{HashMap, VecDeque};

use dendro_base::sync::Arc;

use crate::AlignedBuf;

/// The length of a window; windows begin at multiples of it.
pub(super) const WINDOW_BYTES: u64 = 256 << 10;
/// The most windows that are kept by default, and the fewest that can be asked for.
pub(super) const MAX_WINDOWS: usize = 64;
pub(super) const MIN_WINDOWS: usize = 8;
/// Longer reads are not extended: the kernel or the caller has read ahead already.
pub(super) const SMALL_BYTES: u64 = 64 << 10;
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
pub(super) const WORTHWHILE_READS: u32 = 8;

/// The most windows that are read with one call. They are read beside those that are kept.
pub(super) const TOGETHER: usize = 16;

#[derive(Default)]
pub(super) struct State {
    /// The one used most recently is the last.
    pub(super) windows: Vec<Window>,
    /// The offsets of the last small reads that no window has served.
    recent: VecDeque<u64>,
    /// The windows being read now.
    reading: Vec<Reading>,
    /// How many small reads there have been.
    read_count: u64,
    trust: i32,
    chances: u32,
    missed: Missed,
    /// Windows read, for the tests.
    pub(super) window_count: u64,
    /// Buffers of windows that are gone, at most [`TOGETHER`].
    pub(super) spares: Vec<AlignedBuf>,
}

pub(super) struct Window {
    pub(super) start: u64,
    pub(super) bytes: Arc<AlignedBuf>,
    hits: u32,
    /// The number of the small read that it served last.
    used_at: u64,
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
pub(super) struct Served {
    pub(super) bytes: Arc<AlignedBuf>,
    pub(super) at: usize,
}

impl Served {
    /// Copies the next bytes.
    pub(super) fn take(&mut self, part: &mut [u8]) {
        part.copy_from_slice(&self.bytes[self.at..self.at + part.len()]);
        self.at += part.len();
    }
}

fn overlaps(start: u64, offset: u64, len_bytes: u64) -> bool {
    start < offset.saturating_add(len_bytes) && offset < start + WINDOW_BYTES
}

impl State {
    /// The window that holds all of a range.
    pub(super) fn find(&mut self, offset: u64, len_bytes: u64) -> Option<(u64, Arc<AlignedBuf>)> {
        let is_it = |window: &Window| {
            let end = window.start + window.bytes.len() as u64;
            window.start <= offset && offset + len_bytes <= end
        };
        self.read_count += 1;
        let at = self.windows.iter().position(is_it)?;
        let mut window = self.windows.remove(at);
        window.hits += 1;
        window.used_at = self.read_count;
        let found = (window.start, Arc::clone(&window.bytes));
        self.windows.push(window);
        Some(found)
    }

    /// Whether to read the window around a small read at `offset`, which no window serves. The read
    /// is remembered.
    pub(super) fn wants_window(&mut self, offset: u64) -> bool {
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

    /// Notes a read, one of several made together, that no window serves and that lies in the
    /// window at `start`. Returns whether that window is worth reading. It is not while all that
    /// are kept are in use: where what is read lies in more windows than that, each would be read
    /// again and again.
    pub(super) fn misses(&mut self, start: u64, max_windows: usize) -> bool {
        let most = WORTHWHILE_READS as usize * max_windows;
        let is_worthwhile = self.missed.note(start, most);
        let is_free = |oldest: &Window| oldest.used_at + (most as u64) < self.read_count;
        is_worthwhile
            && (self.windows.len() + self.reading.len() < max_windows
                || self.windows.first().is_some_and(is_free))
    }

    pub(super) fn is_being_read(&self, start: u64) -> bool {
        self.reading.iter().any(|reading| reading.start == start)
    }

    /// The window at `start`, if it is there.
    pub(super) fn held(&self, start: u64) -> Option<Arc<AlignedBuf>> {
        let held = self.windows.iter().find(|window| window.start == start);
        held.map(|window| Arc::clone(&window.bytes))
    }

    /// Notes that the caller reads those of `starts` that nobody else is reading, as many as may be
    /// read at a time. It owes [`Self::add`] or [`Self::give_up`] for each.
    pub(super) fn claim(&mut self, starts: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut claimed = Vec::new();
        for start in starts {
            if self.reading.len() < TOGETHER && !self.is_being_read(start) {
                self.reading.push(Reading { start, is_stale: false });
                self.missed.forget(start);
                self.window_count += 1;
                claimed.push(start);
            }
        }
        claimed
    }

    /// Keeps a window that was read, unless what it holds has changed meanwhile.
    pub(super) fn add(
        &mut self,
        start: u64,
        bytes: AlignedBuf,
        max_windows: usize,
    ) -> Arc<AlignedBuf> {
        let bytes = Arc::new(bytes);
        let at = self.reading.iter().position(|reading| reading.start == start);
        let is_stale = at.is_none_or(|at| self.reading.swap_remove(at).is_stale);
        if !is_stale {
            if self.windows.len() >= max_windows {
                let oldest = self.windows.remove(0);
                self.note(oldest);
            }
            let used_at = self.read_count;
            self.windows.push(Window { start, bytes: Arc::clone(&bytes), hits: 0, used_at });
        }
        bytes
    }

    /// Notes that a window that was claimed cannot be read.
    pub(super) fn give_up(&mut self, start: u64) {
        self.reading.retain(|reading| reading.start != start);
    }

    /// Counts whether a dropped window was worth reading.
    fn note(&mut self, window: Window) {
        let change = if window.hits >= GOOD_HITS { 1 } else { -1 };
        self.trust = (self.trust + change).clamp(*TRUST.start(), *TRUST.end());
        if self.spares.len() < TOGETHER {
            self.spares.extend(Arc::try_unwrap(window.bytes));
        }
    }

    /// Drops the windows over a range (invariant 1).
    pub(super) fn forget(&mut self, offset: u64, len_bytes: u64) {
        self.windows.retain(|window| !overlaps(window.start, offset, len_bytes));
        for reading in &mut self.reading {
            reading.is_stale |= overlaps(reading.start, offset, len_bytes);
        }
    }
}
