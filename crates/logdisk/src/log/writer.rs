//! Closed partial segments on their way to the device.
//!
//! Several threads write them: the daemon's writer threads, a committing thread when too many are
//! queued, and a thread that flushes. The order of the writes does not matter, because recovery
//! takes no partial segment without those before it. But whoever makes a segment clean has had
//! everything written before that was queued, records or none: what is written later would destroy
//! what fills the segment next. Partial segments that lie one behind the other on the device are
//! written with one call, because devices are faster with larger writes.

use std::collections::VecDeque;
use std::time::Duration;

use dendro_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use dendro_base::sync::{Arc, Condvar, Mutex};
use dendro_device::{AlignedBuf, Device, IoSlice};
use dendro_disk::Error;

use dendro_format::{Addr, SegmentNo};

use crate::fault::no_space;
use crate::log::segments::Generation;

/// With this many partial segments queued, committing threads assist. The number is large enough
/// that an occasional slow answer of the device does not cause it.
const MAX_WAITING: usize = 12;

/// The maximum length of one write.
const MAX_WRITE_BYTES: usize = 4 << 20;

/// A partial segment that does not change any more.
#[derive(Debug)]
pub(crate) struct Closed {
    buf: AlignedBuf,
    len_bytes: usize,
    base: Addr,
    generation: Generation,
    has_short_blocks: bool,
}

impl Closed {
    /// The partial segment that lies at `base`, in a segment of this `generation`: the first
    /// `len_bytes` of `buf`.
    pub(crate) const fn new(
        buf: AlignedBuf,
        len_bytes: usize,
        base: Addr,
        generation: Generation,
        has_short_blocks: bool,
    ) -> Self {
        Self { buf, len_bytes, base, generation, has_short_blocks }
    }

    /// Whether some of its blocks are shorter than a page.
    pub(crate) const fn has_short_blocks(&self) -> bool {
        self.has_short_blocks
    }

    pub(crate) const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(crate) const fn segment(&self) -> SegmentNo {
        self.generation.segment()
    }

    pub(crate) const fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether both are at the same place.
    pub(crate) fn is_at_place_of(&self, other: &Self) -> bool {
        self.base == other.base
    }

    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buf.len()
    }

    /// The buffer, to be used again.
    pub(crate) fn into_buf(self) -> AlignedBuf {
        self.buf
    }

    /// The stored bytes of a block, if it lies in here.
    pub(crate) fn block(&self, addr: Addr, len_bytes: usize) -> Option<&[u8]> {
        let offset = usize::try_from(addr.bytes().checked_sub(self.base.bytes())?).ok()?;
        self.bytes().get(offset..offset.checked_add(len_bytes)?)
    }

    fn bytes(&self) -> &[u8] {
        &self.buf[..self.len_bytes]
    }
}

/// A partial segment in the queue.
#[derive(Debug)]
struct Queued {
    /// How many were queued before it.
    place: u64,
    closed: Arc<Closed>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Queued>,
    /// The places of the partial segments that are being written now.
    writing: Vec<u64>,
    /// How many were queued so far.
    count: u64,
    /// Partial segments that are on the device and still in the engine's list.
    written: Vec<Arc<Closed>>,
    failure: Option<String>,
    /// Set when [`Writer::wait`] is to return at once.
    is_ending: bool,
}

impl Queue {
    /// Takes the partial segment that was queued first, and those that lie behind it on the device.
    /// Returns none if none is queued.
    fn take_next(&mut self) -> Vec<Queued> {
        let Some(first) = self.waiting.pop_front() else { return Vec::new() };
        let mut end = first.closed.base.plus_bytes(first.closed.len_bytes as u64);
        let mut room = MAX_WRITE_BYTES.saturating_sub(first.closed.len_bytes);
        let mut taken = vec![first];
        let next = |waiting: &VecDeque<Queued>, end, room| {
            let fits = |closed: &Closed| closed.base == end && closed.len_bytes <= room;
            waiting.iter().position(|queued| fits(&queued.closed))
        };
        while let Some(queued) =
            next(&self.waiting, end, room).and_then(|at| self.waiting.remove(at))
        {
            end = end.plus_bytes(queued.closed.len_bytes as u64);
            room -= queued.closed.len_bytes;
            taken.push(queued);
        }
        self.writing.extend(taken.iter().map(|queued| queued.place));
        taken
    }
}

/// Why nothing was written.
pub(crate) enum Refusal {
    /// The host has no room. The partial segments stay in the queue.
    NoSpace(Error),
    /// The device failed.
    Failed(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The queue of closed partial segments.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    queue: Mutex<Queue>,
    /// The length of the queue, for readers that do not lock it.
    waiting: AtomicUsize,
    /// Whether the last write found no room on the host.
    is_out_of_room: AtomicBool,
    more: Condvar,
    done: Condvar,
}

impl Writer {
    /// Queues a partial segment. The caller writes it later, or wakes a writer ([`Self::wake`]).
    pub(crate) fn push(&self, closed: Arc<Closed>) {
        let mut queue = self.queue.lock();
        let place = queue.count;
        queue.count += 1;
        queue.waiting.push_back(Queued { place, closed });
        self.waiting.store(queue.waiting.len(), Ordering::Relaxed);
    }

    /// Wakes a waiting writer if something is queued. This takes a system call, so it is not called
    /// with the engine locked, nor by a caller that writes everything itself.
    pub(crate) fn wake(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.more.notify_one();
        }
    }

    pub(crate) fn is_over_limit(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= MAX_WAITING
    }

    /// How many partial segments were queued so far.
    pub(crate) fn queued_count(&self) -> u64 {
        self.queue.lock().count
    }

    /// Whether one of the first `count` that were queued has not been taken to be written.
    pub(crate) fn is_waiting(&self, count: u64) -> bool {
        self.waiting_among(count) > 0
    }

    /// Whether so many of the first `count` that were queued wait that committing threads assist.
    pub(crate) fn is_over_limit_among(&self, count: u64) -> bool {
        self.waiting_among(count) >= MAX_WAITING
    }

    /// How many of the first `count` that were queued have not been taken to be written.
    fn waiting_among(&self, count: u64) -> usize {
        self.queue.lock().waiting.iter().filter(|queued| queued.place < count).count()
    }

    /// Whether the queue waits for room on the host.
    pub(crate) fn is_out_of_room(&self) -> bool {
        self.is_out_of_room.load(Ordering::Relaxed)
    }

    /// Waits up to `timeout` for something to write.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty() && !queue.is_ending {
            let _ = self.more.wait_for(&mut queue, timeout);
        }
    }

    /// Makes [`Self::wait`] return at once from now on.
    pub(crate) fn end_waiting(&self) {
        self.queue.lock().is_ending = true;
        self.more.notify_all();
    }

    /// Writes the first queued partial segment and those that lie directly behind it; returns
    /// whether one was queued. They are then on the device, but not durable, and
    /// [`Self::take_written`] returns them.
    ///
    /// # Errors
    /// What `write_again` returns. It is called with the place and the bytes of each partial
    /// segment if the device fails to write them together. After a failure every later call fails
    /// too, because the log after the failed write must not count as written.
    pub(crate) fn write_one(
        &self,
        device: &dyn Device,
        write_again: impl Fn(u64, &[u8]) -> Result<(), Refusal>,
    ) -> Result<bool, Refusal> {
        let taken = {
            let mut queue = self.queue.lock();
            if let Some(failure) = &queue.failure {
                return Err(failure.clone().into());
            }
            let taken = queue.take_next();
            self.waiting.store(queue.waiting.len(), Ordering::Relaxed);
            taken
        };
        let Some(first) = taken.first() else { return Ok(false) };
        let parts: Vec<IoSlice<'_>> =
            taken.iter().map(|queued| IoSlice::new(queued.closed.bytes())).collect();
        let result = match device.write_vectored_at(first.closed.base.bytes(), &parts) {
            Err(error) => {
                match no_space(&error, parts.iter().map(|part| part.len() as u64).sum()) {
                    Some(error) => Err(Refusal::NoSpace(error)),
                    None => taken
                        .iter()
                        .map(|queued| &queued.closed)
                        .try_for_each(|closed| write_again(closed.base.bytes(), closed.bytes())),
                }
            }
            Ok(()) => Ok(()),
        };
        let mut queue = self.queue.lock();
        queue.writing.retain(|place| taken.iter().all(|queued| queued.place != *place));
        self.done.notify_all();
        let is_out_of_room = matches!(result, Err(Refusal::NoSpace(_)));
        self.is_out_of_room.store(is_out_of_room, Ordering::Relaxed);
        if let Err(Refusal::NoSpace(error)) = result {
            for queued in taken.into_iter().rev() {
                queue.waiting.push_front(queued);
            }
            self.waiting.store(queue.waiting.len(), Ordering::Relaxed);
            return Err(Refusal::NoSpace(error));
        }
        match result {
            // Blocks of partial segments that were not written are still read from memory.
            Err(Refusal::Failed(why)) => drop(queue.failure.get_or_insert(why)),
            Err(Refusal::NoSpace(_)) => {}
            Ok(()) => queue.written.extend(taken.into_iter().map(|queued| queued.closed)),
        }
        queue.failure.clone().map_or(Ok(true), |why| Err(why.into()))
    }

    /// What was written since the last call.
    pub(crate) fn take_written(&self) -> Vec<Arc<Closed>> {
        std::mem::take(&mut self.queue.lock().written)
    }

    /// Waits until no other thread writes one of the first `count` that were queued. Returns
    /// whether all of them are on the device; they are not if the host had no room for them.
    ///
    /// # Errors
    /// Why the device failed.
    pub(crate) fn wait_written(&self, count: u64) -> Result<bool, String> {
        let mut queue = self.queue.lock();
        while queue.failure.is_none() && queue.writing.iter().any(|&place| place < count) {
            self.done.wait(&mut queue);
        }
        let is_written = queue.waiting.iter().all(|queued| queued.place >= count);
        queue.failure.clone().map_or(Ok(is_written), Err)
    }
}

#[cfg(test)]
mod tests;
