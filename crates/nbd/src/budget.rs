//! The memory of requests.
//!
//! Each thread of a connection has [`OWN_LEN_BYTES`] of its own, so that requests up to that length
//! wait for nobody. Longer ones take a share: of what the connection may have, and then of what the
//! server has. Whoever takes one waits for its turn, so that a long request is not kept waiting by
//! short ones.
//!
//! A share is held as long as the client sends the request's data, as long as the request is
//! carried out, and as long as the client takes the data that were read. A client can stop in the
//! first and the last of these. While others wait for the server's memory, it is given up if it is
//! slower than [`Pace`] allows, and so everybody's turn comes.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dendro_base::sync::{Condvar, Mutex};

use crate::wire::MAX_LEN_BYTES;

/// The memory that each thread has for its requests.
pub(crate) const OWN_LEN_BYTES: usize = 64 << 10;
/// A client that is waited for has to send or take so much at a time.
const STEP_LEN_BYTES: usize = 256 << 10;
/// The longest buffer that is kept for the next share.
const MAX_SPARE_LEN_BYTES: usize = 1 << 20;
/// How many buffers are kept.
const MAX_SPARES: usize = 16;

/// Bytes that may be taken, first come, first served.
struct Budget {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    taken_bytes: u64,
    max_bytes: u64,
    /// Whose turn it is. All from here up to `next` wait.
    turn: u64,
    /// Who comes next.
    next: u64,
}

impl State {
    const fn has_waiters(&self) -> bool {
        self.turn != self.next
    }

    const fn has_left(&self, len_bytes: u64) -> bool {
        self.taken_bytes + len_bytes <= self.max_bytes
    }
}

impl Budget {
    const fn new(max_bytes: u64) -> Self {
        let state = State { taken_bytes: 0, max_bytes, turn: 0, next: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn take(&self, len_bytes: u64) {
        let mut state = self.state.lock();
        let own = state.next;
        state.next += 1;
        while state.turn != own || !state.has_left(len_bytes) {
            self.changed.wait(&mut state);
        }
        state.turn += 1;
        state.taken_bytes += len_bytes;
        // There may be enough for the next one, too.
        self.changed.notify_all();
    }

    /// Takes them if nobody waits and they are there.
    fn try_take(&self, len_bytes: u64) -> bool {
        let mut state = self.state.lock();
        let is_there = !state.has_waiters() && state.has_left(len_bytes);
        if is_there {
            state.taken_bytes += len_bytes;
        }
        is_there
    }

    fn give_back(&self, len_bytes: u64) {
        self.state.lock().taken_bytes -= len_bytes;
        self.changed.notify_all();
    }

    fn taken_bytes(&self) -> u64 {
        self.state.lock().taken_bytes
    }

    fn has_waiters(&self) -> bool {
        self.state.lock().has_waiters()
    }
}

/// The memory for all connections.
pub(crate) struct Memory {
    budget: Budget,
    patience: Duration,
    /// Buffers for shares, the last one used at the end. They are not part of the budget.
    spares: Mutex<Vec<Vec<u8>>>,
}

impl Memory {
    /// So many bytes, and at least what the longest request takes. `patience` is how long a client
    /// may take for a step while others wait.
    pub(crate) fn new(max_bytes: u64, patience: Duration) -> Self {
        let budget = Budget::new(max_bytes.max(MAX_LEN_BYTES.into()));
        Self { budget, patience, spares: Mutex::default() }
    }

    /// How much of it is taken.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.budget.taken_bytes()
    }

    fn buffer(&self, len_bytes: usize) -> Vec<u8> {
        let spare = self.spares.lock().pop().filter(|spare| spare.len() >= len_bytes);
        spare.unwrap_or_else(|| vec![0; len_bytes])
    }

    fn keep(&self, buffer: Vec<u8>) {
        let mut spares = self.spares.lock();
        if buffer.len() <= MAX_SPARE_LEN_BYTES && spares.len() < MAX_SPARES {
            spares.push(buffer);
        }
    }
}

/// What a connection takes of the memory.
pub(crate) struct Account {
    memory: Arc<Memory>,
    own: Budget,
}

impl Account {
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        Self { memory, own: Budget::new(MAX_LEN_BYTES.into()) }
    }

    /// How long the client may take for a step while others wait.
    pub(crate) fn patience(&self) -> Duration {
        self.memory.patience
    }

    /// Waits for `len_bytes`, which are at most [`MAX_LEN_BYTES`], and takes them.
    pub(crate) fn take(&self, len_bytes: usize) -> Share<'_> {
        debug_assert!(len_bytes <= MAX_LEN_BYTES as usize);
        self.own.take(len_bytes as u64);
        self.memory.budget.take(len_bytes as u64);
        self.share(len_bytes)
    }

    /// Takes `len_bytes` if they are there.
    pub(crate) fn try_take(&self, len_bytes: usize) -> Option<Share<'_>> {
        if !self.own.try_take(len_bytes as u64) {
            return None;
        }
        if !self.memory.budget.try_take(len_bytes as u64) {
            self.own.give_back(len_bytes as u64);
            return None;
        }
        Some(self.share(len_bytes))
    }

    fn share(&self, len_bytes: usize) -> Share<'_> {
        Share { account: self, buffer: self.memory.buffer(len_bytes), len_bytes }
    }

    /// Fails if the client is too slow, and others wait for what it has taken.
    pub(crate) fn check(&self, pace: &mut Pace) -> io::Result<()> {
        let is_in_the_way =
            pace.is_too_slow() && self.own.taken_bytes() > 0 && self.memory.budget.has_waiters();
        if !is_in_the_way {
            return Ok(());
        }
        log::warn!("a client of NBD was sent away: it does not go on, and others need its memory");
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// Memory that a request has taken. It returns when this is dropped.
pub(crate) struct Share<'a> {
    account: &'a Account,
    buffer: Vec<u8>,
    len_bytes: usize,
}

impl Share<'_> {
    /// As many bytes as were taken, with anything in them.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.len_bytes]
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let Account { memory, own } = self.account;
        memory.keep(std::mem::take(&mut self.buffer));
        memory.budget.give_back(self.len_bytes as u64);
        own.give_back(self.len_bytes as u64);
    }
}

/// How fast a client goes on with what it sends or takes. Most do all of it at once, and then no
/// clock is read.
pub(crate) struct Pace {
    patience: Duration,
    since: Option<Instant>,
    /// What it has done since then.
    len_bytes: usize,
}

impl Pace {
    pub(crate) const fn new(patience: Duration) -> Self {
        Self { patience, since: None, len_bytes: 0 }
    }

    /// Notes that it has sent or taken something.
    pub(crate) const fn note(&mut self, len_bytes: usize) {
        self.len_bytes += len_bytes;
        if self.len_bytes >= STEP_LEN_BYTES {
            *self = Self::new(self.patience);
        }
    }

    /// Notes that it has done nothing for as long as a step may take.
    pub(crate) fn note_nothing(&mut self) {
        self.since = now().checked_sub(self.patience);
    }

    /// Whether a step, which is not done, takes longer than it may.
    pub(crate) fn is_too_slow(&mut self) -> bool {
        let now = now();
        now - *self.since.get_or_insert(now) >= self.patience
    }
}

#[allow(clippy::disallowed_methods, reason = "how long a client may take is real time")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn who_wants_much_is_not_kept_waiting_by_those_who_want_little() {
        let memory = Arc::new(Memory::new(0, Duration::from_secs(60)));
        let accounts = [(); 3].map(|()| Account::new(Arc::clone(&memory)));
        let all = MAX_LEN_BYTES as usize;
        let first = accounts[0].take(1 << 20);
        thread::scope(|scope| {
            let long = scope.spawn(|| assert_eq!(accounts[1].take(all).bytes().len(), all));
            while !memory.budget.has_waiters() {
                thread::yield_now();
            }
            // There is enough for it, but it is not its turn.
            assert!(accounts[2].try_take(1 << 20).is_none());
            drop(first);
            long.join().expect("its turn has come");
        });
        assert_eq!(memory.taken_bytes(), 0);
        assert!(accounts[2].try_take(all).is_some());
    }

    #[test]
    fn a_connection_has_a_limit_of_its_own() {
        let memory = Arc::new(Memory::new(1 << 30, Duration::from_secs(60)));
        let (one, other) = (Account::new(Arc::clone(&memory)), Account::new(Arc::clone(&memory)));
        let all = MAX_LEN_BYTES as usize;
        let share = one.take(all);
        assert!(one.try_take(1).is_none() && other.try_take(all).is_some());
        assert_eq!(memory.taken_bytes(), all as u64);
        drop(share);
    }

    #[test]
    fn a_client_is_given_up_only_where_it_has_what_others_wait_for() {
        let memory = Arc::new(Memory::new(0, Duration::ZERO));
        let (one, other) = (Account::new(Arc::clone(&memory)), Account::new(Arc::clone(&memory)));
        let mut slow = Pace::new(Duration::ZERO);
        let share = one.take(MAX_LEN_BYTES as usize);
        assert!(one.check(&mut slow).is_ok(), "nobody waits");
        thread::scope(|scope| {
            scope.spawn(|| drop(other.take(1)));
            while !memory.budget.has_waiters() {
                thread::yield_now();
            }
            assert!(
                one.check(&mut Pace::new(Duration::from_secs(60))).is_ok(),
                "it is fast enough"
            );
            assert!(one.check(&mut slow).is_err());
            drop(share);
        });
    }
}
