//! Flushing the members of a set.

use std::thread::{Builder, ScopedJoinHandle};

use dendro_base::sync::atomic::Ordering;
use dendro_device::{Device, Result};

use crate::set::{DeviceSet, State, settled};

impl<D: Device> State<D> {
    /// Flushes these members, at the same time unless it is to be `in_turn`. Returns what each of
    /// them answered.
    fn flush_members(&self, members: &[usize], in_turn: bool) -> Vec<Result<()>> {
        let devices = members.iter().map(|at| self.slots[*at].device.as_deref());
        let flush = |device: Option<&D>| device.map_or(Ok(()), Device::flush);
        // For one member no scope is made, which would give the main thread a handle that it keeps.
        if in_turn || members.len() < 2 {
            return devices.map(flush).collect();
        }
        std::thread::scope(|scope| {
            let mut devices = devices;
            let Some(first) = devices.next() else { return Vec::new() };
            let begin = |device| Builder::new().spawn_scoped(scope, move || flush(device));
            // Without another thread, the member is flushed here.
            let others: Vec<_> = devices.map(|device| begin(device).map_err(|_| device)).collect();
            let mut answers = vec![flush(first)];
            answers.extend(others.into_iter().map(|other| match other {
                Ok(thread) => joined(thread),
                Err(device) => flush(device),
            }));
            answers
        })
    }

    /// Flushes the members of a spread volume with writes that no flush has made durable.
    fn flush_dirty(&self, in_turn: bool) -> Result<()> {
        self.check_recorded()?;
        let is_dirty = |at: &usize| self.slots[*at].is_dirty.swap(false, Ordering::AcqRel);
        let dirty: Vec<usize> = (0..self.slots.len()).filter(is_dirty).collect();
        let mut outcome = Ok(());
        for (at, flushed) in dirty.iter().zip(self.flush_members(&dirty, in_turn)) {
            self.slots[*at].is_dirty.fetch_or(flushed.is_err(), Ordering::Release);
            if flushed.is_err()
                && let Some(spread) = &self.spread
                && spread.moved_to() == Some(*at)
            {
                // What was copied there may be lost, which no later flush tells.
                spread.fail_move();
            }
            outcome = outcome.and(flushed);
        }
        outcome
    }
}

/// What a thread returns.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl<D: Device> DeviceSet<D> {
    /// The same set, whose members are flushed one after the other: for simulations, which repeat
    /// what they record.
    #[must_use]
    pub fn in_turn(mut self) -> Self {
        self.is_in_turn = true;
        self
    }

    /// See [`Device::flush`].
    pub(crate) fn flush_all(&self) -> Result<()> {
        if self.is_read_only {
            return Ok(());
        }
        self.open_for_writing()?;
        let mut flushing = self.is_listed().then(|| self.flushing.lock());
        let outcome = loop {
            let state = self.state.read();
            if state.is_listed && flushing.is_none() {
                // It has become a set meanwhile.
                drop(state);
                flushing = Some(self.flushing.lock());
                continue;
            }
            if state.spread.is_some() {
                return state.flush_dirty(self.is_in_turn);
            }
            if !state.is_recorded {
                drop(state);
                self.record()?;
                continue;
            }
            // With the lock: a member that is lost before the flush lacks them too.
            let flushed = std::mem::take(&mut *state.unflushed.lock());
            let is_written = |at: &usize| state.slots[*at].written().is_some();
            let members: Vec<usize> = (0..state.slots.len()).filter(is_written).collect();
            let answers =
                members.iter().copied().zip(state.flush_members(&members, self.is_in_turn));
            let outcome = settled(&state, answers);
            if !matches!(&outcome, Ok(failed) if failed.is_empty()) {
                // A member that is lost now lacks them (invariant 2).
                state.unflushed.lock().extend(flushed);
            }
            break outcome;
        };
        let failed = outcome?;
        if failed.is_empty() { Ok(()) } else { self.lose(failed, None) }
    }
}
