//! Connections that wait for segments to become few, kept without a thread each: a client that
//! waits must not keep others from being answered.

use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::cleaning::{MAX_WAIT_MS, SegwaitRequest};
use crate::protocol::Request;

/// How many clients may wait at a time.
const MAX_WAITING: usize = 64;

/// How often it is looked whether a wait is over.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A client that waits for its answer.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) stream: UnixStream,
    /// What it has asked, which is a `segwait`.
    pub(crate) asked: Box<Request>,
    request: SegwaitRequest,
    deadline: Instant,
}

/// All that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    all: Mutex<Vec<Waiter>>,
    more: Condvar,
}

/// What a socket's deadlines are counted by.
#[allow(clippy::disallowed_methods, reason = "how long a client may take is real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

impl Waiter {
    pub(crate) fn new(stream: UnixStream, asked: Box<Request>, request: SegwaitRequest) -> Self {
        let timeout = Duration::from_millis(request.timeout_ms.min(MAX_WAIT_MS));
        Self { stream, asked, request, deadline: now() + timeout }
    }

    /// Whether the wait ends with so many clean segments at this moment.
    pub(crate) fn is_over(&self, clean_count: u32, now: Instant) -> bool {
        clean_count < self.request.clean_below || now >= self.deadline
    }

    /// Whether the client has closed its end altogether.
    fn is_gone(&self) -> bool {
        let mut polled = [PollFd::new(&self.stream, PollFlags::empty())];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut polled, Some(&zero)) {
            Ok(_) => polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
            Err(_) => false,
        }
    }
}

impl Waiters {
    /// Keeps `waiter`, or gives it back when there are too many.
    pub(crate) fn add(&self, waiter: Waiter) -> Result<(), Waiter> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_WAITING {
            all.retain(|waiter| !waiter.is_gone());
        }
        if all.len() >= MAX_WAITING {
            return Err(waiter);
        }
        all.push(waiter);
        self.more.notify_one();
        Ok(())
    }

    /// Waits until it is time to look again. Returns early when it is told to by [`Self::wake`].
    pub(crate) fn rest(&self) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // Who waits for nothing need not wake up often; a stop is noticed by then.
        let pause = if all.is_empty() { 20 * POLL_INTERVAL } else { POLL_INTERVAL };
        drop(self.more.wait_timeout(all, pause));
    }

    pub(crate) fn wake(&self) {
        self.more.notify_all();
    }

    /// Takes out those for whom `is_over`, and forgets those that are gone.
    pub(crate) fn take(&self, is_over: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|waiter| !waiter.is_gone());
        let (over, waiting) = std::mem::take(&mut *all).into_iter().partition(is_over);
        *all = waiting;
        over
    }
}
