//! Group commit: which caller flushes, and for which other callers it does so.
//!
//! A caller that arrives while a flush is under way waits for the next one. The callers that a
//! flush covered often return soon with another commit. If the next flush began at once, they would
//! miss it and wait for the one after it. Two clients would then alternate, and each could use the
//! device half of the time. So the next flush is delayed a little until as many callers have
//! arrived as the last flush released, as long as such delays pay.

use std::time::Duration;

use dendro_base::sync::{Arc, Condvar, Mutex, MutexGuard};
use dendro_base::{Clock, Timestamp};

/// The longest delay for a batch, however slow the device is.
const MAX_DELAY: Duration = Duration::from_millis(20);
/// The number of failed delays in a row, about, after which delays stop.
const MAX_FAILED_DELAYS: u32 = 3;
/// The number of flushes without a delay after which a delay is tried again.
const SKIPPED_DELAYS: u32 = 30;

/// The callers of flushes, and statistics that decide about delays.
#[derive(Debug, Default)]
struct Callers {
    is_flushing: bool,
    /// The number of the flush that began last.
    begun: u64,
    /// Callers for which no flush has begun yet, and the last commit that one of them, or the disk
    /// itself, wants durable.
    waiting: u32,
    wanted: u64,
    /// Callers for which the flush under way was begun.
    covered: u32,
    /// The callers that the last flush released, when it did, and how many have arrived since.
    released: u32,
    released_at: Timestamp,
    arrived: u32,
    /// The average duration of recent flushes.
    mean_ns: u64,
    /// Whether delays have paid lately.
    delay_benefit: DelayBenefit,
}

#[derive(Debug)]
struct DelayBenefit {
    left: u32,
    skipped_delays: u32,
}

impl Default for DelayBenefit {
    fn default() -> Self {
        Self { left: MAX_FAILED_DELAYS, skipped_delays: 0 }
    }
}

impl DelayBenefit {
    /// Whether a delay should be tried.
    const fn should_try(&mut self) -> bool {
        if self.left > 0 {
            return true;
        }
        self.skipped_delays += 1;
        let is_time = self.skipped_delays > SKIPPED_DELAYS;
        if is_time {
            self.skipped_delays = 0;
        }
        is_time
    }

    /// Updates the estimate after a delay of `waited`, in which the number of callers rose from
    /// `before` to `after`; a flush takes `flush`. The delay has paid if more callers are served in
    /// the same time.
    fn learn(&mut self, before: u32, after: u32, waited: Duration, flush: Duration) {
        let joined = u128::from(after.saturating_sub(before));
        let has_paid = joined * flush.as_nanos() > u128::from(before) * waited.as_nanos();
        self.left = if has_paid {
            (self.left + 1).min(MAX_FAILED_DELAYS)
        } else {
            self.left.saturating_sub(1)
        };
    }
}

impl Callers {
    /// Records that a flush begins; returns the last commit that it must cover.
    fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.covered = std::mem::take(&mut self.waiting);
        std::mem::take(&mut self.wanted)
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
            self.arrived = 0;
        }
    }

    const fn flush_time(&self) -> Duration {
        Duration::from_nanos(self.mean_ns)
    }

    const fn is_batch_incomplete(&self) -> bool {
        self.arrived < self.released
    }
}

/// Decides which thread flushes.
pub(super) struct GroupCommit {
    callers: Mutex<Callers>,
    /// Notified when a flush has ended.
    ended: Condvar,
    /// Notified when as many callers have arrived as the last flush released.
    complete: Condvar,
    clock: Arc<dyn Clock>,
}

/// The right to flush; one thread has it at a time.
pub(super) struct FlushTurn<'a>(&'a GroupCommit);

impl FlushTurn<'_> {
    /// Notes that a flush begins. It covers the callers that have arrived by now. Returns when it
    /// began, and the last commit that it must make durable.
    pub(super) fn begin(&self) -> (Timestamp, u64) {
        let wanted = self.0.callers.lock().begin();
        (self.0.clock.now(), wanted)
    }

    /// Notes that the flush has succeeded that began at `began`.
    pub(super) fn end(&self, began: Timestamp) {
        let now = self.0.clock.now();
        self.0.callers.lock().end(now.since(began), now);
    }
}

impl Drop for FlushTurn<'_> {
    fn drop(&mut self) {
        self.0.callers.lock().is_flushing = false;
        // All waiting threads continue at once: those that were covered, and the one that flushes
        // next.
        self.0.ended.notify_all();
    }
}

impl GroupCommit {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { callers: Mutex::default(), ended: Condvar::new(), complete: Condvar::new(), clock }
    }

    /// Waits for the right to flush on behalf of a caller that needs the commits up to `wanted`
    /// made durable, or until `stop` returns why the caller need not flush any more. A thread that
    /// gets the right also waits for others that are expected soon.
    pub(super) fn join<T>(
        &self,
        wanted: u64,
        stop: impl Fn() -> Option<T>,
    ) -> Result<FlushTurn<'_>, T> {
        let mut callers = self.callers.lock();
        callers.waiting += 1;
        callers.wanted = callers.wanted.max(wanted);
        callers.arrived += 1;
        if callers.arrived == callers.released {
            self.complete.notify_one();
        }
        let begun = callers.begun;
        match self.wait_for_turn(&mut callers, stop) {
            Ok(turn) => {
                self.wait_for_batch(&mut callers);
                drop(callers);
                Ok(turn)
            }
            Err(reason) => {
                if callers.begun == begun {
                    callers.waiting -= 1;
                }
                Err(reason)
            }
        }
    }

    /// Waits for the right to flush everything on behalf of the disk itself, or until `stop`
    /// returns why it cannot be had.
    pub(super) fn take_turn<T>(&self, stop: impl Fn() -> Option<T>) -> Result<FlushTurn<'_>, T> {
        let mut callers = self.callers.lock();
        let turn = self.wait_for_turn(&mut callers, stop)?;
        callers.wanted = u64::MAX;
        drop(callers);
        Ok(turn)
    }

    /// Waits until no other thread flushes, or until `stop` returns why the flush is not needed any
    /// more.
    fn wait_for_turn<T>(
        &self,
        callers: &mut MutexGuard<'_, Callers>,
        stop: impl Fn() -> Option<T>,
    ) -> Result<FlushTurn<'_>, T> {
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
        let delay = (flush / 2).min(MAX_DELAY);
        let delay = delay.saturating_sub(began.since(callers.released_at));
        if delay.is_zero() || !callers.delay_benefit.should_try() {
            return;
        }
        let _ =
            self.complete.wait_while_for(callers, |callers| callers.is_batch_incomplete(), delay);
        let (after, waited) = (callers.waiting, self.clock.now().since(began));
        callers.delay_benefit.learn(before, after, waited, flush);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: Duration = Duration::from_micros(500);
    const WAITED: Duration = Duration::from_micros(250);

    #[test]
    fn delays_that_do_not_pay_stop_and_are_tried_again_now_and_then() {
        let mut delay_benefit = DelayBenefit::default();
        let mut waits = 0;
        for _ in 0..310 {
            if delay_benefit.should_try() {
                waits += 1;
                delay_benefit.learn(1, 1, WAITED, FLUSH);
            }
        }
        assert_eq!(waits, MAX_FAILED_DELAYS + 9);
        // After one delay that pays, delays are used again.
        while !delay_benefit.should_try() {}
        delay_benefit.learn(1, 2, WAITED, FLUSH);
        assert!(delay_benefit.should_try());
    }

    #[test]
    fn a_delay_pays_if_more_callers_are_served_in_the_same_time() {
        for (before, after, waited_micros, has_paid) in [
            (1, 2, 250, true),
            (4, 8, 250, true),
            (7, 8, 250, false),
            (7, 8, 20, true),
            (1, 1, 0, false),
        ] {
            let mut delay_benefit = DelayBenefit { left: 1, skipped_delays: 0 };
            delay_benefit.learn(before, after, Duration::from_micros(waited_micros), FLUSH);
            assert_eq!(delay_benefit.left > 1, has_paid, "{before} {after} {waited_micros}");
        }
    }
}
