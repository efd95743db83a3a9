//! Group commit: making the log durable, with one flush for several callers.
//!
//! Invariants:
//! 1. (flush 1) A flush covers everything that was committed when it began.
//!
//! A caller that arrives while a flush is under way waits for the next one. The callers that a
//! flush covered often return soon with another commit. If the next flush began at once, they would
//! miss it and wait for the one after it. Two clients would then alternate, and each could use the
//! device half of the time. So the next flush is delayed a little until as many callers have
//! arrived as the last flush released, as long as such delays pay.

use std::time::Duration;

use dendro_base::sync::atomic::Ordering;
use dendro_base::sync::{Arc, Condvar, Mutex, MutexGuard};
use dendro_base::{Clock, Timestamp};
use dendro_disk::{CommitSeq, Result};

use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::fault::Outcome;

/// The longest delay for a batch, however slow the device is.
const MAX_PATIENCE: Duration = Duration::from_millis(20);
/// The number of failed delays in a row, about, after which delays stop.
const MAX_TRUST: u32 = 3;
/// The number of flushes without a delay after which a delay is tried again.
const CHANCES_PASSED: u32 = 30;

/// The callers of flushes, and statistics that decide about delays.
#[derive(Debug, Default)]
struct Callers {
    is_flushing: bool,
    /// The number of the flush that began last.
    begun: u64,
    /// Callers for which no flush has begun yet.
    waiting: u32,
    /// Callers for which the flush under way was begun.
    covered: u32,
    /// The callers that the last flush released, when it did, and how many have arrived since.
    released: u32,
    released_at: Timestamp,
    come: u32,
    /// The average duration of recent flushes.
    mean_ns: u64,
    /// Whether delays have paid lately.
    trust: Trust,
}

#[derive(Debug)]
struct Trust {
    left: u32,
    chances_passed: u32,
}

impl Default for Trust {
    fn default() -> Self {
        Self { left: MAX_TRUST, chances_passed: 0 }
    }
}

impl Trust {
    /// Whether a delay should be tried.
    const fn is_justified(&mut self) -> bool {
        if self.left > 0 {
            return true;
        }
        self.chances_passed += 1;
        let is_time = self.chances_passed > CHANCES_PASSED;
        if is_time {
            self.chances_passed = 0;
        }
        is_time
    }

    /// Updates the estimate after a delay of `waited`, in which the number of callers rose from
    /// `before` to `after`; a flush takes `flush`. The delay has paid if more callers are served in
    /// the same time.
    fn learn(&mut self, before: u32, after: u32, waited: Duration, flush: Duration) {
        let joined = u128::from(after.saturating_sub(before));
        let has_paid = joined * flush.as_nanos() > u128::from(before) * waited.as_nanos();
        self.left =
            if has_paid { (self.left + 1).min(MAX_TRUST) } else { self.left.saturating_sub(1) };
    }
}

impl Callers {
    fn begin(&mut self) {
        self.begun += 1;
        self.covered = std::mem::take(&mut self.waiting);
    }

    /// Records that a flush ended that took `time`.
    fn end(&mut self, time: Duration, now: Timestamp) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.mean_ns = match self.mean_ns {
            0 => nanos,
            mean => mean - mean / 8 + nanos / 8,
        };
        // A flush that the engine needs for itself may cover no caller.
        if self.covered > 0 {
            self.released = std::mem::take(&mut self.covered);
            self.released_at = now;
            self.come = 0;
        }
    }

    const fn flush_time(&self) -> Duration {
        Duration::from_nanos(self.mean_ns)
    }

    const fn is_batch_incomplete(&self) -> bool {
        self.come < self.released
    }
}

/// Decides which thread flushes.
pub(crate) struct GroupCommit {
    callers: Mutex<Callers>,
    /// Notified when a flush has ended.
    ended: Condvar,
    /// Notified when as many callers have arrived as the last flush released.
    complete: Condvar,
    clock: Arc<dyn Clock>,
}

/// The right to flush; one thread has it at a time.
struct FlushTurn<'a>(&'a GroupCommit);

impl Drop for FlushTurn<'_> {
    fn drop(&mut self) {
        self.0.callers.lock().is_flushing = false;
        // All waiting threads continue at once: those that were covered, and the one that flushes
        // next.
        self.0.ended.notify_all();
    }
}

impl GroupCommit {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { callers: Mutex::default(), ended: Condvar::new(), complete: Condvar::new(), clock }
    }

    /// Counts a caller that needs its commits made durable.
    fn come(&self) -> MutexGuard<'_, Callers> {
        let mut callers = self.callers.lock();
        callers.waiting += 1;
        callers.come += 1;
        if callers.come == callers.released {
            self.complete.notify_one();
        }
        callers
    }

    /// Waits until no other thread flushes, or until `stop` returns why the flush is not needed any
    /// more.
    fn take_turn<T>(
        &self,
        callers: &mut MutexGuard<'_, Callers>,
        stop: impl Fn() -> Option<T>,
    ) -> std::result::Result<FlushTurn<'_>, T> {
        loop {
            if let Some(reason) = stop() {
                return Err(reason);
            }
            if !std::mem::replace(&mut callers.is_flushing, true) {
                return Ok(FlushTurn(self));
            }
            self.ended.wait(callers);
        }
    }

    /// Waits for the callers that the last flush released, until half the duration of a flush has
    /// passed since it released them. The caller has the right to flush.
    fn wait_for_batch(&self, callers: &mut MutexGuard<'_, Callers>) {
        if !callers.is_batch_incomplete() {
            return;
        }
        let (before, began) = (callers.waiting, self.clock.now());
        let flush = callers.flush_time();
        let patience = (flush / 2).min(MAX_PATIENCE);
        let patience = patience.saturating_sub(began.since(callers.released_at));
        if patience.is_zero() || !callers.trust.is_justified() {
            return;
        }
        let _ = self.complete.wait_while_for(
            callers,
            |callers| callers.is_batch_incomplete(),
            patience,
        );
        let (after, waited) = (callers.waiting, self.clock.now().since(began));
        callers.trust.learn(before, after, waited, flush);
    }
}

impl LogDisk {
    /// Makes everything durable that was committed up to `up_to` or before the call, whichever is
    /// less.
    pub(crate) fn flush_up_to(&self, up_to: CommitSeq) -> Result<()> {
        let target = up_to.0.min(self.engine.read().commit_seq);
        let is_durable = || self.durable.load(Ordering::Acquire) >= target;
        if is_durable() {
            return self.failure().map_or(Ok(()), Err);
        }
        let mut callers = self.group_commit.come();
        let begun = callers.begun;
        // A flush that ended while this call waited may have covered it.
        let stop = || match is_durable() {
            true => Some(Ok(())),
            false => self.failure().map(Err),
        };
        let turn = match self.group_commit.take_turn(&mut callers, stop) {
            Ok(turn) => turn,
            Err(outcome) => {
                if callers.begun == begun {
                    callers.waiting -= 1;
                }
                return outcome;
            }
        };
        self.group_commit.wait_for_batch(&mut callers);
        drop(callers);
        self.engine.write().streams.note_flush();
        let outcome = self.flush_log();
        drop(turn);
        outcome
    }

    /// Flushes the log if `prepare` returns that this is worth it, and returns whether it did.
    pub(crate) fn flush_if(
        &self,
        prepare: impl FnOnce(&mut Engine) -> Outcome<bool>,
    ) -> Result<bool> {
        let mut callers = self.group_commit.callers.lock();
        let _turn = self.group_commit.take_turn(&mut callers, || self.failure())?;
        drop(callers);
        let is_worth_it = prepare(&mut self.engine.write()).map_err(|fault| self.latch(fault))?;
        if is_worth_it {
            self.flush_log()?;
        }
        Ok(is_worth_it)
    }

    /// Writes everything that is in the order of the log, and makes it durable. The caller has the
    /// right to flush.
    fn flush_log(&self) -> Result<()> {
        // Callers that have arrived by now have committed what the flush covers (flush 1).
        self.group_commit.callers.lock().begin();
        let began = self.group_commit.clock.now();
        let (commit_seq, partial_seq) = {
            let mut engine = self.engine.write();
            engine.close_partial();
            (engine.commit_seq, engine.log.seq.saturating_sub(1))
        };
        self.write_log_through(partial_seq)?;
        self.flush_device()?;
        self.note_durable(commit_seq, partial_seq);
        let now = self.group_commit.clock.now();
        self.group_commit.callers.lock().end(now.since(began), now);
        Ok(())
    }

    pub(crate) fn flush_device(&self) -> Result<()> {
        self.device.flush().map_err(|error| self.latch_write(error.to_string()))
    }

    pub(crate) fn note_durable(&self, commit_seq: u64, partial_seq: u64) {
        self.durable.fetch_max(commit_seq, Ordering::AcqRel);
        let mut engine = self.engine.write();
        engine.durable_seq = engine.durable_seq.max(partial_seq);
        engine.reuse_queue.note_durable(partial_seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: Duration = Duration::from_micros(500);
    const WAITED: Duration = Duration::from_micros(250);

    #[test]
    fn who_waits_in_vain_soon_waits_no_more_but_tries_again_now_and_then() {
        let mut trust = Trust::default();
        let mut waits = 0;
        for _ in 0..310 {
            if trust.is_justified() {
                waits += 1;
                trust.learn(1, 1, WAITED, FLUSH);
            }
        }
        assert_eq!(waits, MAX_TRUST + 9);
        // After one delay that pays, delays are used again.
        while !trust.is_justified() {}
        trust.learn(1, 2, WAITED, FLUSH);
        assert!(trust.is_justified());
    }

    #[test]
    fn a_wait_pays_if_more_are_served_in_the_same_time() {
        for (before, after, waited_micros, has_paid) in [
            (1, 2, 250, true),
            (4, 8, 250, true),
            (7, 8, 250, false),
            (7, 8, 20, true),
            (1, 1, 0, false),
        ] {
            let mut trust = Trust { left: 1, chances_passed: 0 };
            trust.learn(before, after, Duration::from_micros(waited_micros), FLUSH);
            assert_eq!(trust.left > 1, has_paid, "{before} {after} {waited_micros}");
        }
    }
}
