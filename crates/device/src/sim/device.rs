//! The simulated device.

use std::ops::Range;

use dendro_base::Rng;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_base::sync::{Arc, Mutex};
use rustix::io::Errno;

use super::blocks::{self, BlockMap, Cell, SECTOR_SIZE};
use super::change::Change;
use super::crash::{self, CrashStyle};
use super::fault::{Call, Effect, Fault, Faults};
use super::recording::Recording;
use crate::device::{BLOCK_SIZE, Device};
use crate::error::{Error, Result};
use crate::range;

/// How often a device was called, failed calls included, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes asked for by reads.
    pub read_bytes: u64,
    /// Bytes given to writes.
    pub written_bytes: u64,
}

/// Whether there is power, and until when.
#[derive(Clone, Copy, Debug)]
enum Power {
    On,
    OnForWrites(u64),
    OnForCalls(u64),
    Off,
}

struct State {
    /// The content that a crash cannot lose.
    durable: BlockMap,
    /// The content that reads return: the durable content with all changes that are pending, and
    /// all that a failed flush has doomed.
    current: BlockMap,
    /// The changes that are not flushed yet, in order, without doomed ones.
    pending: Vec<Arc<Change>>,
    /// Whether `current` shows doomed changes.
    shows_doomed: bool,
    power: Power,
    faults: Faults,
    counts: Counts,
    rng: Rng,
    recording: Option<Recording>,
}

/// A simulated device.
///
/// Crash images share content with the device they are made of; making one costs microseconds plus
/// a few per unflushed write. An image is a device in turn, so that recovery can be crashed too.
pub struct SimDevice {
    len_bytes: AtomicU64,
    state: Mutex<State>,
}

impl SimDevice {
    /// A device of `len_bytes`, rounded down to whole blocks, that holds junk. All its random
    /// choices follow from `seed`.
    #[must_use]
    pub fn new(len_bytes: u64, seed: u64) -> Self {
        let block_count = len_bytes / BLOCK_SIZE as u64;
        let map = BlockMap::new(block_count, blocks::mix(seed));
        Self::with_content(block_count * BLOCK_SIZE as u64, map, seed)
    }

    /// A device that durably holds `bytes`, filled up to whole blocks with zeros.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], seed: u64) -> Self {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
        let device = Self::new(bytes.len() as u64, seed);
        {
            let mut state = device.state.lock();
            Change::write(0, &bytes).apply(&mut state.durable);
            state.current = state.durable.clone();
        }
        device
    }

    fn with_content(len_bytes: u64, map: BlockMap, seed: u64) -> Self {
        let state = State {
            durable: map.clone(),
            current: map,
            pending: Vec::new(),
            shows_doomed: false,
            power: Power::On,
            faults: Faults::default(),
            counts: Counts::default(),
            rng: Rng::new(seed),
            recording: None,
        };
        Self { len_bytes: AtomicU64::new(len_bytes), state: Mutex::new(state) }
    }

    /// The content that reads return, even without power.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len_bytes() as usize];
        self.state.lock().current.read_bytes(0, &mut bytes);
        bytes
    }

    /// How often it was called.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// How many writes and discards were not flushed.
    #[must_use]
    pub fn unflushed_count(&self) -> usize {
        self.state.lock().pending.len()
    }

    // --- Crashes ---------------------------------------------------------------------------

    /// A device as a crash at this moment leaves it: powered, without faults, all content durable.
    /// It follows from the content, the style and the state of `rng` alone.
    #[must_use]
    pub fn crash_image(&self, rng: &mut Rng, style: CrashStyle) -> Self {
        let state = self.state.lock();
        let mut map;
        if style == CrashStyle::Everything && !state.shows_doomed {
            map = state.current.clone();
        } else {
            map = state.durable.clone();
            let pending: Vec<&Arc<Change>> = state.pending.iter().collect();
            crash::apply_some(&mut map, &pending, style, rng);
        }
        Self::with_content(self.len_bytes(), map, rng.next_u64())
    }

    /// Turns the power off when `count` more writes have been made: from then on every call fails.
    /// With 0, now.
    pub fn cut_after_writes(&self, count: u64) {
        self.state.lock().power = if count == 0 { Power::Off } else { Power::OnForWrites(count) };
    }

    /// Turns the power off when `count` more calls other than reads have been made. With 0, now.
    pub fn cut_after_calls(&self, count: u64) {
        self.state.lock().power = if count == 0 { Power::Off } else { Power::OnForCalls(count) };
    }

    /// Whether calls still reach the device.
    #[must_use]
    pub fn is_powered(&self) -> bool {
        !matches!(self.state.lock().power, Power::Off)
    }

    // --- Recording -------------------------------------------------------------------------

    /// Starts a new recording. It begins with what is not flushed yet.
    pub fn start_recording(&self) {
        let mut state = self.state.lock();
        let mut recording = Recording::new(self.len_bytes(), state.durable.clone());
        for change in &state.pending {
            recording.push_change(Arc::clone(change), None);
        }
        state.recording = Some(recording);
    }

    /// How many events the recording holds: what has just been acknowledged survives a crash at
    /// this point of it, or is unflushed there. 0 when nothing is being recorded.
    #[must_use]
    pub fn recorded_count(&self) -> usize {
        self.state.lock().recording.as_ref().map_or(0, Recording::len)
    }

    /// Ends the recording and hands it out; `None` when there was none.
    #[must_use]
    pub fn take_recording(&self) -> Option<Recording> {
        self.state.lock().recording.take()
    }

    // --- Faults ----------------------------------------------------------------------------

    /// Adds a fault. Where several fit a call, the first added strikes.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Removes all faults that have not happened yet.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// How many calls a fault has struck.
    #[must_use]
    pub fn struck_count(&self) -> u64 {
        self.state.lock().faults.struck_count
    }

    /// Inverts `count` random bits of what is stored in `range`, in bytes: flushed content and
    /// unflushed alike. A recording would not see it.
    ///
    /// # Panics
    /// When the range is empty or leaves the device, or while recording.
    pub fn corrupt(&self, range: Range<u64>, count: u64) {
        assert!(
            !range.is_empty() && range.end <= self.len_bytes(),
            "{range:?} is not on the device"
        );
        let mut state = self.state.lock();
        assert!(state.recording.is_none(), "corrupt an image of the recording instead");
        for _ in 0..count {
            let bit = range.start * 8 + state.rng.below((range.end - range.start) * 8);
            let block = bit / 8 / BLOCK_SIZE as u64;
            let at = (bit / 8 % BLOCK_SIZE as u64) as usize;
            let State { durable, current, .. } = &mut *state;
            for map in [durable, current] {
                let mut content = map.content(block);
                content[at] ^= 1 << (bit % 8);
                map.set(block, Cell::Data(Arc::new(content)));
            }
        }
    }

    /// Exchanges the contents of two blocks, as two misdirected writes do; the offsets are those of
    /// any byte in them. A recording would not see it.
    ///
    /// # Panics
    /// When an offset leaves the device, or while recording.
    pub fn swap_blocks(&self, a: u64, b: u64) {
        assert!(a.max(b) < self.len_bytes(), "{} is not on the device", a.max(b));
        let (a, b) = (a / BLOCK_SIZE as u64, b / BLOCK_SIZE as u64);
        let mut state = self.state.lock();
        assert!(state.recording.is_none(), "corrupt an image of the recording instead");
        let State { durable, current, .. } = &mut *state;
        for map in [durable, current] {
            let contents = (map.content(a), map.content(b));
            map.set(a, Cell::Data(Arc::new(contents.1)));
            map.set(b, Cell::Data(Arc::new(contents.0)));
        }
    }
}

impl State {
    /// Counts a call and says what goes wrong with it.
    fn begin(&mut self, call: Call, offset: u64, len_bytes: u64) -> Result<Option<Effect>> {
        let counts = &mut self.counts;
        match call {
            Call::Read => {
                (counts.reads, counts.read_bytes) =
                    (counts.reads + 1, counts.read_bytes + len_bytes)
            }
            Call::Write => {
                (counts.writes, counts.written_bytes) =
                    (counts.writes + 1, counts.written_bytes + len_bytes)
            }
            Call::Flush => counts.flushes += 1,
            Call::Discard => counts.discards += 1,
        }
        match &mut self.power {
            Power::Off => return Err(failed(call, offset, len_bytes, Errno::IO)),
            Power::On => {}
            Power::OnForWrites(left) => *left -= u64::from(call == Call::Write),
            Power::OnForCalls(left) => *left -= u64::from(call != Call::Read),
        }
        Ok(self.faults.strike(call, offset, len_bytes, &mut self.rng))
    }

    /// Turns the power off after the last call there was power for.
    fn end(&mut self) {
        if matches!(self.power, Power::OnForWrites(0) | Power::OnForCalls(0)) {
            self.power = Power::Off;
        }
    }

    fn change(&mut self, change: Change) {
        let change = Arc::new(change);
        change.apply(&mut self.current);
        if let Some(recording) = &mut self.recording {
            let current = (!self.shows_doomed).then_some(&self.current);
            recording.push_change(Arc::clone(&change), current);
        }
        self.pending.push(change);
    }

    /// Changes the length, and does `change`, at once and durably. What is pending stays so.
    fn set_len(&mut self, len_bytes: u64, change: Option<Change>) {
        let change = change.map(Arc::new);
        for map in [&mut self.durable, &mut self.current] {
            map.make_room(len_bytes.div_ceil(BLOCK_SIZE as u64));
            change.iter().for_each(|change| change.apply(map));
        }
        if let Some(recording) = &mut self.recording {
            recording.push_len(len_bytes, change);
        }
    }

    /// Writes whole sectors: what is left of the last block keeps its content.
    fn write_sectors(&mut self, offset: u64, sectors: &[u8]) {
        let mut bytes = sectors.to_vec();
        bytes.resize(sectors.len().next_multiple_of(BLOCK_SIZE), 0);
        self.current.read_bytes(offset + sectors.len() as u64, &mut bytes[sectors.len()..]);
        self.change(Change::write(offset, &bytes));
    }

    fn discard(&mut self, offset: u64, len_bytes: u64) {
        let seed = self.rng.next_u64();
        self.change(Change::discard(offset, len_bytes, seed));
    }

    /// Makes the changes in a range durable.
    fn flush(&mut self, range: Range<u64>) {
        let (flushed, left): (Vec<_>, Vec<_>) =
            self.pending.drain(..).partition(|change| change.starts_in(&range));
        if self.shows_doomed || !left.is_empty() {
            flushed.iter().for_each(|change| change.apply(&mut self.durable));
        } else {
            self.durable = self.current.clone();
        }
        self.pending.clone_from(&left);
        if let Some(recording) = &mut self.recording {
            recording.push_flush(self.durable.clone(), left);
        }
    }

    fn fail_flush(&mut self, range: &Range<u64>) {
        let rng = &mut self.rng;
        let is_doomed = |change: &mut Arc<Change>| change.starts_in(range) && rng.chance(50);
        let doomed: Vec<_> = self.pending.extract_if(.., is_doomed).collect();
        self.shows_doomed |= !doomed.is_empty();
        if let Some(recording) = &mut self.recording {
            recording.push_failed_flush(doomed);
        }
    }
}

fn failed(call: Call, offset: u64, len_bytes: u64, errno: Errno) -> Error {
    Error::Io { operation: call.name(), offset, len_bytes, source: errno.into() }
}

fn flip_bits(bytes: &mut [u8], count: u64, rng: &mut Rng) {
    for _ in 0..count {
        if !bytes.is_empty() {
            let bit = rng.below(bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }
}

impl SimDevice {
    /// Where a transfer misdirected to `offset` goes.
    fn misdirected(&self, offset: u64, len_bytes: u64) -> u64 {
        let room = self.len_bytes() - len_bytes;
        let offset = offset.min(room);
        offset - offset % BLOCK_SIZE as u64
    }
}

impl Device for SimDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Relaxed)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len_bytes = buf.len() as u64;
        range::check_bounds(self.len_bytes(), offset, len_bytes)?;
        let mut state = self.state.lock();
        match state.begin(Call::Read, offset, len_bytes)? {
            None => state.current.read_bytes(offset, buf),
            Some(Effect::Lose) => {}
            Some(Effect::Fail { errno, .. }) => {
                return Err(failed(Call::Read, offset, len_bytes, errno));
            }
            Some(Effect::Misdirect { offset }) => {
                state.current.read_bytes(self.misdirected(offset, len_bytes), buf);
            }
            Some(Effect::FlipBits { count }) => {
                state.current.read_bytes(offset, buf);
                flip_bits(buf, count, &mut state.rng);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let len_bytes = bytes.len() as u64;
        range::check_blocks(self.len_bytes(), offset, len_bytes)?;
        let mut state = self.state.lock();
        let mut answer = Ok(());
        match state.begin(Call::Write, offset, len_bytes)? {
            None => state.change(Change::write(offset, bytes)),
            Some(Effect::Lose) => {}
            Some(Effect::Fail { errno, prefix_bytes }) => {
                let prefix_bytes = prefix_bytes.min(len_bytes) as usize;
                let sectors = &bytes[..prefix_bytes - prefix_bytes % SECTOR_SIZE];
                if !sectors.is_empty() {
                    state.write_sectors(offset, sectors);
                }
                answer = Err(failed(Call::Write, offset, len_bytes, errno));
            }
            Some(Effect::Misdirect { offset }) => {
                state.change(Change::write(self.misdirected(offset, len_bytes), bytes));
            }
            Some(Effect::FlipBits { count }) => {
                let mut bytes = bytes.to_vec();
                flip_bits(&mut bytes, count, &mut state.rng);
                state.change(Change::write(offset, &bytes));
            }
        }
        state.end();
        answer
    }

    fn flush(&self) -> Result<()> {
        self.flush_range(0, self.len_bytes())
    }

    fn flush_range(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let range = offset..offset.saturating_add(len_bytes);
        let mut state = self.state.lock();
        let mut answer = Ok(());
        match state.begin(Call::Flush, offset, 0)? {
            Some(Effect::Lose) => {}
            Some(Effect::Fail { errno, .. }) => {
                state.fail_flush(&range);
                answer = Err(failed(Call::Flush, offset, len_bytes, errno));
            }
            _ => state.flush(range),
        }
        state.end();
        answer
    }

    fn extend(&self, len_bytes: u64, tail: &[u8], _allocates: bool) -> Result<()> {
        let tail_len_bytes = tail.len() as u64;
        let start = len_bytes.saturating_sub(tail_len_bytes);
        range::check_blocks(len_bytes, start, tail_len_bytes)?;
        let device_len_bytes = self.len_bytes();
        if len_bytes < device_len_bytes || !len_bytes.is_multiple_of(BLOCK_SIZE as u64) {
            return Err(Error::OutOfRange { offset: start, len_bytes, device_len_bytes });
        }
        let mut state = self.state.lock();
        let effect = state.begin(Call::Write, start, tail_len_bytes)?;
        let answer = match effect {
            Some(Effect::Fail { errno, .. }) => {
                Err(failed(Call::Write, start, tail_len_bytes, errno))
            }
            // Other faults are those of writes to places that exist.
            _ => {
                state.set_len(len_bytes, Some(Change::write(start, tail)));
                self.len_bytes.store(len_bytes, Ordering::Relaxed);
                Ok(())
            }
        };
        state.end();
        answer
    }

    fn truncate(&self, len_bytes: u64) -> Result<()> {
        range::check_blocks(self.len_bytes(), len_bytes, 0)?;
        let mut state = self.state.lock();
        state.begin(Call::Write, len_bytes, 0)?;
        state.set_len(len_bytes, None);
        self.len_bytes.store(len_bytes, Ordering::Relaxed);
        state.end();
        Ok(())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        range::check_blocks(self.len_bytes(), offset, len_bytes)?;
        let mut state = self.state.lock();
        let mut answer = Ok(());
        match state.begin(Call::Discard, offset, len_bytes)? {
            Some(Effect::Lose) => {}
            Some(Effect::Fail { errno, .. }) => {
                answer = Err(failed(Call::Discard, offset, len_bytes, errno));
            }
            Some(Effect::Misdirect { offset }) => {
                state.discard(self.misdirected(offset, len_bytes), len_bytes);
            }
            _ => state.discard(offset, len_bytes),
        }
        state.end();
        answer
    }
}

impl std::fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimDevice")
            .field("len_bytes", &self.len_bytes())
            .field("power", &state.power)
            .field("unflushed", &state.pending.len())
            .field("counts", &state.counts)
            .finish_non_exhaustive()
    }
}

impl Recording {
    /// A device as a crash leaves it when the first `event_index` events have happened and no
    /// other: from 0, nothing, to [`Self::len`], all. It follows from the point, the style and the
    /// state of `rng` alone.
    ///
    /// # Panics
    /// When `event_index` is past [`Self::len`].
    #[must_use]
    pub fn image_at(&self, event_index: usize, rng: &mut Rng, style: CrashStyle) -> SimDevice {
        let content = self.content_at(event_index, rng, style);
        SimDevice::with_content(self.len_bytes_at(event_index), content, rng.next_u64())
    }
}
