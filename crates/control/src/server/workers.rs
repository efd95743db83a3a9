//! Which serving thread does what: one of them only reads requests and answers pings, however long
//! the others take. Otherwise a client could not tell a busy daemon from one that hangs.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::limit::Permit;
use crate::messages::Request;
use crate::socket::Caller;

/// How many requests may wait for a thread.
const MAX_WAITING: usize = 256;

/// A request that has been read.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) stream: UnixStream,
    pub(super) received: Received,
    /// The user who asks; `None` for the daemon's own user and root, who may ask for anything.
    pub(super) other: Option<OtherUser>,
}

/// A user whose requests are restricted, and the permit under which one of them is served.
#[derive(Debug)]
pub(super) struct OtherUser {
    pub(super) caller: Caller,
    pub(super) permit: Permit,
}

/// What a client has sent.
#[derive(Debug)]
pub(super) enum Received {
    /// A request of the protocol, and the descriptor that came with it.
    Request(Box<Request>, Option<OwnedFd>),
    /// The head of an HTTP request.
    Http(Vec<u8>),
}

#[derive(Debug, Default)]
struct State {
    threads: usize,
    working: usize,
    waiting: VecDeque<Work>,
}

/// The threads that serve, and the work that waits for them.
#[derive(Debug, Default)]
pub(super) struct Workers {
    state: Mutex<State>,
}

impl Workers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more thread serves.
    pub(super) fn join(&self) {
        self.state().threads += 1;
    }

    /// Does `work` with `carry_out`, and then what has begun to wait meanwhile. If this is the last
    /// thread that has no work, it queues `work` for the others instead.
    ///
    /// # Errors
    /// Returns `work` when too much of it waits.
    pub(super) fn run_or_queue(&self, work: Work, carry_out: impl Fn(Work)) -> Result<(), Work> {
        {
            let mut state = self.state();
            // With a single thread, no other one could do the work.
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

    /// The work that has waited longest. If none waits, the calling thread counts as having no
    /// work.
    fn next(&self) -> Option<Work> {
        let mut state = self.state();
        let next = state.waiting.pop_front();
        state.working -= usize::from(next.is_none());
        next
    }

    /// Takes out all work that waits.
    pub(super) fn drain(&self) -> VecDeque<Work> {
        std::mem::take(&mut self.state().waiting)
    }
}
