//! Closed partial segments on their way to the device.
//!
//! Whoever has the time writes them: the daemon's writer thread, a committing thread when too many
//! wait, a flush. Their order does not matter: recovery takes none without those before it. What lies
//! one after the other is written at once: a device is the faster the more it gets at a time.

use std::collections::VecDeque;
use std::time::Duration;

use dendro_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use dendro_base::sync::{Arc, Condvar, Mutex};
use dendro_device::{AlignedBuf, Device, IoSlice};
use dendro_disk::Error;

use dendro_format::{Addr, SegmentNo};

use crate::fault::no_space;

/// Committing threads lend a hand when so many partial segments wait: enough that they need not
/// because the device answers late now and then.
const MAX_WAITING: usize = 12;

/// So much is written with one call at most.
const MAX_WRITE_BYTES: usize = 4 << 20;

/// A partial segment that will not change any more.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) buf: AlignedBuf,
    pub(crate) len_bytes: usize,
    pub(crate) base: Addr,
    pub(crate) segment: SegmentNo,
    /// Its number in the main log, or that of the one that names its blocks.
    pub(crate) seq: u64,
}

impl Closed {
    /// The stored bytes of a block, if it lies in here.
    pub(crate) fn block(&self, addr: Addr, len_bytes: usize) -> Option<&[u8]> {
        let offset = usize::try_from(addr.bytes().checked_sub(self.base.bytes())?).ok()?;
        self.bytes().get(offset..offset.checked_add(len_bytes)?)
    }

    fn bytes(&self) -> &[u8] {
        &self.buf[..self.len_bytes]
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Arc<Closed>>,
    /// The numbers of those being written now.
    writing: Vec<u64>,
    /// Those on the device, which the log still holds.
    written: Vec<Arc<Closed>>,
    failure: Option<String>,
    /// Nobody waits for more.
    is_ending: bool,
}

impl Queue {
    /// The one that waits longest, and those that lie behind it on the device. None: nothing waits.
    fn take_next(&mut self) -> Vec<Arc<Closed>> {
        let Some(first) = self.waiting.pop_front() else { return Vec::new() };
        let mut end = first.base.plus_bytes(first.len_bytes as u64);
        let mut room = MAX_WRITE_BYTES.saturating_sub(first.len_bytes);
        let mut taken = vec![first];
        let next = |waiting: &VecDeque<Arc<Closed>>, end, room| {
            waiting.iter().position(|closed| closed.base == end && closed.len_bytes <= room)
        };
        while let Some(closed) =
            next(&self.waiting, end, room).and_then(|at| self.waiting.remove(at))
        {
            end = end.plus_bytes(closed.len_bytes as u64);
            room -= closed.len_bytes;
            taken.push(closed);
        }
        self.writing.extend(taken.iter().map(|closed| closed.seq));
        taken
    }
}

/// Why nothing was written.
pub(crate) enum Refusal {
    /// There is no room below the device. What was to be written waits as before.
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
    /// How many wait in the queue, for those who do not lock it.
    waiting: AtomicUsize,
    /// Whether the last write found no room below the device.
    is_out_of_room: AtomicBool,
    more: Condvar,
    done: Condvar,
}

impl Writer {
    /// Queues one. Who does so writes it later, or wakes somebody ([`Self::wake`]).
    pub(crate) fn push(&self, closed: Arc<Closed>) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(closed);
        self.waiting.store(queue.waiting.len(), Ordering::Relaxed);
    }

    /// Wakes one that waits for something to write, if there is something. Not called with the engine
    /// locked, for it takes a system call, nor by those who write all of it themselves.
    pub(crate) fn wake(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.more.notify_one();
        }
    }

    pub(crate) fn is_over_limit(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= MAX_WAITING
    }

    /// Whether what waits waits for room below the device.
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

    /// From now on [`Self::wait`] returns at once.
    pub(crate) fn end_waiting(&self) {
        self.queue.lock().is_ending = true;
        self.more.notify_all();
    }

    /// Writes one, if one waits, with those that lie right behind it, and says whether one did: they
    /// are on the device then, though not yet durable, and [`Self::take_written`] has them.
    ///
    /// # Errors
    /// What the device said. If it failed, every call does from then on: what was to come after it in the
    /// log must not be believed to be there.
    pub(crate) fn write_one(&self, device: &dyn Device) -> Result<bool, Refusal> {
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
            taken.iter().map(|closed| IoSlice::new(closed.bytes())).collect();
        let result = device.write_vectored_at(first.base.bytes(), &parts);
        let mut queue = self.queue.lock();
        for closed in &taken {
            // Only one: what other heads hold is written under the same number.
            if let Some(at) = queue.writing.iter().position(|&seq| seq == closed.seq) {
                queue.writing.swap_remove(at);
            }
        }
        self.done.notify_all();
        let len_bytes = parts.iter().map(|part| part.len() as u64).sum();
        let no_space = result.as_ref().err().and_then(|error| no_space(error, len_bytes));
        self.is_out_of_room.store(no_space.is_some(), Ordering::Relaxed);
        if let Some(error) = no_space {
            for closed in taken.into_iter().rev() {
                queue.waiting.push_front(closed);
            }
            self.waiting.store(queue.waiting.len(), Ordering::Relaxed);
            return Err(Refusal::NoSpace(error));
        }
        match result {
            // Those that were not written are read from memory as before.
            Err(error) => drop(queue.failure.get_or_insert_with(|| error.to_string())),
            Ok(()) => queue.written.extend(taken),
        }
        queue.failure.clone().map_or(Ok(true), |why| Err(why.into()))
    }

    /// What was written since the last call.
    pub(crate) fn take_written(&self) -> Vec<Arc<Closed>> {
        std::mem::take(&mut self.queue.lock().written)
    }

    /// Waits until nothing up to number `seq` is being written by others; says whether all of it is on the
    /// device, and does not wait anew because there was no room for it.
    ///
    /// # Errors
    /// Why the device failed.
    pub(crate) fn wait_written(&self, seq: u64) -> Result<bool, String> {
        let mut queue = self.queue.lock();
        while queue.failure.is_none() && queue.writing.iter().any(|&writing| writing <= seq) {
            self.done.wait(&mut queue);
        }
        let is_written = queue.waiting.iter().all(|closed| closed.seq > seq);
        queue.failure.clone().map_or(Ok(is_written), Err)
    }
}
