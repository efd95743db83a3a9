//! Space that clients are about to give back.

use std::collections::BTreeMap;
use std::time::Duration;

use dendro_base::sync::{Arc, Condvar, Mutex};
use dendro_base::{Clock, Timestamp};

/// The releases that the clients of one disk expect.
#[derive(Debug, Default)]
pub struct Releases {
    expected: Mutex<Expected>,
    /// Notified when one of them has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Expected {
    /// When each was expected first, by its number. The numbers ascend.
    since: BTreeMap<u64, Timestamp>,
    next_number: u64,
    ended_count: u64,
}

impl Releases {
    /// Notes that a client is about to give space back, at the time `now`.
    #[must_use]
    pub fn expect(self: &Arc<Self>, now: Timestamp) -> ExpectedRelease {
        let mut expected = self.expected.lock();
        let number = expected.next_number;
        expected.next_number += 1;
        expected.since.insert(number, now);
        ExpectedRelease(Some((number, Arc::clone(self))))
    }

    /// How many have ended.
    #[must_use]
    pub fn ended_count(&self) -> u64 {
        self.expected.lock().ended_count
    }

    /// Waits until more than `ended_count` have ended, as long as one is expected that has been
    /// expected for less than `longest`. Returns whether more have ended.
    #[must_use]
    pub fn await_more_than(&self, ended_count: u64, longest: Duration, clock: &dyn Clock) -> bool {
        let mut expected = self.expected.lock();
        loop {
            if expected.ended_count > ended_count {
                return true;
            }
            let newest = expected.since.last_key_value();
            let waited = newest.map(|(_, since)| clock.now().since(*since));
            let Some(left) = waited.and_then(|waited| longest.checked_sub(waited)) else {
                return false;
            };
            // The clock of a simulation may stand.
            if self.ended.wait_for(&mut expected, left).timed_out() {
                return expected.ended_count > ended_count;
            }
        }
    }
}

/// A release that is expected until this is dropped. See
/// [`LogicalDisk::expect_release`](crate::LogicalDisk::expect_release).
#[derive(Debug, Default)]
pub struct ExpectedRelease(Option<(u64, Arc<Releases>)>);

impl Drop for ExpectedRelease {
    fn drop(&mut self) {
        let Some((number, releases)) = &self.0 else { return };
        let mut expected = releases.expected.lock();
        expected.since.remove(number);
        expected.ended_count += 1;
        releases.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_base::ManualClock;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn who_lacks_space_waits_for_a_release_that_is_expected() {
        let (releases, clock) = (Arc::new(Releases::default()), ManualClock::default());
        let first = releases.expect(clock.now());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| releases.await_more_than(0, LONG, &clock));
            drop(first);
            assert!(waiting.join().unwrap());
        });
        assert_eq!(releases.ended_count(), 1);
        assert!(releases.await_more_than(0, LONG, &clock), "it has ended since");
        assert!(!releases.await_more_than(1, LONG, &clock), "nothing is expected");
    }

    #[test]
    fn nobody_waits_for_a_release_that_has_been_expected_for_long() {
        let (releases, clock) = (Arc::new(Releases::default()), ManualClock::default());
        let _held = releases.expect(clock.now());
        assert!(!releases.await_more_than(0, Duration::from_millis(5), &clock));
        clock.advance(LONG * 2);
        assert!(!releases.await_more_than(0, LONG, &clock));
        drop(ExpectedRelease::default());
        assert_eq!(releases.ended_count(), 0);
    }
}
