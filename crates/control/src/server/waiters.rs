//! Clients that wait for clean segments to become few. They occupy no thread while they wait, so
//! other clients are served meanwhile.

use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::messages::Request;
use crate::messages::cleaning::{CleaningStatus, MAX_WAIT_MS, SegwaitRequest};
use crate::socket::now;

/// How many clients may wait at a time.
const MAX_WAITING: usize = 64;

/// How often the waits are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A client that waits for its answer.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) stream: UnixStream,
    /// Its request, a `segwait`.
    pub(super) asked: Box<Request>,
    request: SegwaitRequest,
    deadline: Instant,
}

/// All clients that wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    all: Mutex<Vec<Waiter>>,
    more: Condvar,
}

impl Waiter {
    pub(super) fn new(stream: UnixStream, asked: Box<Request>, request: SegwaitRequest) -> Self {
        let timeout = Duration::from_millis(request.timeout_ms.min(MAX_WAIT_MS));
        Self { stream, asked, request, deadline: now() + timeout }
    }

    /// Whether the wait is over, with the volume as it is at `now`.
    pub(super) fn is_over(&self, present: &CleaningStatus, now: Instant) -> bool {
        self.request.is_met(present) || now >= self.deadline
    }

    fn is_gone(&self) -> bool {
        is_gone(&self.stream)
    }
}

/// Whether the client at the other end has closed it.
pub(super) fn is_gone(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut polled, Some(&zero)) {
        Ok(_) => polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
        Err(_) => false,
    }
}

/// Whether the client at the other end sends nothing more.
pub(super) fn has_ended(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut polled, Some(&zero)).is_ok() && polled[0].revents().intersects(ends)
}

impl Waiters {
    /// Adds `waiter`, or returns it when too many wait.
    pub(super) fn add(&self, waiter: Waiter) -> Result<(), Waiter> {
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

    /// Waits until the waits are to be checked again, or for [`Self::wake`].
    pub(super) fn pause(&self) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // With no client, nothing is to be checked but whether the server was stopped.
        let pause = if all.is_empty() { 20 * POLL_INTERVAL } else { POLL_INTERVAL };
        drop(self.more.wait_timeout(all, pause));
    }

    pub(super) fn wake(&self) {
        self.more.notify_all();
    }

    /// Takes out those for which `is_over` holds, and drops those that are gone.
    pub(super) fn take(&self, is_over: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|waiter| !waiter.is_gone());
        let (over, waiting) = std::mem::take(&mut *all).into_iter().partition(is_over);
        *all = waiting;
        over
    }
}
