//! Who does what of the threads that serve: one of them always has nothing to do but to read requests
//! and say who the daemon is, however long the others take. Else a daemon that is at work could not be
//! told from one that hangs.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::caller::Caller;
use crate::protocol::Request;

/// How long one waits for a place at most, and how often it looks.
const LONGEST_WAIT: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(1);

/// How many requests may wait for a thread.
const MAX_WAITING: usize = 256;

/// A request that has been read.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) stream: UnixStream,
    pub(crate) what: What,
    /// Who asks; nothing for those who may ask for anything.
    pub(crate) other: Option<Other>,
}

/// Somebody who may not ask for anything, and a place among those who do so at a time.
#[derive(Debug)]
pub(crate) struct Other {
    pub(crate) caller: Caller,
    pub(crate) place: Place,
}

/// Places of which there are so many.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    count: usize,
}

/// One that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Places {
    pub(crate) fn new(count: usize) -> Self {
        Self { taken: Arc::default(), count }
    }

    /// Takes one, if one is free.
    fn take_now(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.taken));
        (self.taken.fetch_add(1, Ordering::AcqRel) < self.count).then_some(place)
    }

    /// The same, and waits a moment for one: who has been answered asks again before the thread that did it
    /// has given its place back.
    pub(crate) fn take(&self) -> Option<Place> {
        let mut waited = Duration::ZERO;
        loop {
            match self.take_now() {
                None if waited < LONGEST_WAIT => {
                    thread::sleep(PAUSE);
                    waited += PAUSE;
                }
                taken => return taken,
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Debug)]
pub(crate) enum What {
    /// One of the protocol, and the descriptor that came with it.
    Request(Box<Request>, Option<OwnedFd>),
    /// The head of one of HTTP.
    Http(Vec<u8>),
}

#[derive(Debug, Default)]
struct State {
    threads: usize,
    working: usize,
    waiting: VecDeque<Work>,
}

/// The threads that serve, and what waits for them.
#[derive(Debug, Default)]
pub(crate) struct Load {
    state: Mutex<State>,
}

impl Load {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more thread serves.
    pub(crate) fn join(&self) {
        self.state().threads += 1;
    }

    /// Does `work` with `carry_out`, and then what has come to wait for a thread; or lets it wait, if this
    /// is the last thread that has nothing to do. Gives it back when too many wait.
    pub(crate) fn take(&self, work: Work, carry_out: impl Fn(Work)) -> Result<(), Work> {
        {
            let mut state = self.state();
            // A thread that is alone has nobody to leave it to.
            if state.working + 1 >= state.threads.max(2) {
                if state.waiting.len() >= MAX_WAITING {
                    return Err(work);
                }
                state.waiting.push_back(work);
                return Ok(());
            }
            state.working += 1;
        }
        let mut next = Some(work);
        while let Some(work) = next {
            carry_out(work);
            next = self.next();
        }
        Ok(())
    }

    /// What waits longest; if nothing does, this thread has no work any more.
    fn next(&self) -> Option<Work> {
        let mut state = self.state();
        let next = state.waiting.pop_front();
        state.working -= usize::from(next.is_none());
        next
    }

    /// All that wait, which nobody will do.
    pub(crate) fn drain(&self) -> VecDeque<Work> {
        std::mem::take(&mut self.state().waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_places_and_each_is_given_back() {
        let places = Places::new(2);
        let first = places.take().unwrap();
        let _second = places.take().unwrap();
        assert!(places.take().is_none());
        assert!(places.take_now().is_none(), "what was not taken is not counted");
        drop(first);
        assert!(places.take().is_some());
    }
}
