//! The locks under a model checker: `make model`.
#![cfg(feature = "shuttle")]

use dendro_base::sync::{Arc, BriefRwLock, Condvar, Mutex};
use shuttle::thread;

/// How many orders of events are tried.
const ORDERS: usize = 20_000;

#[test]
fn a_brief_lock_is_written_by_one_at_a_time_and_read_by_none_meanwhile() {
    let test = || {
        let lock = Arc::new(BriefRwLock::new((0, 0)));
        let mut threads = Vec::new();
        for _ in 0..2 {
            let lock = Arc::clone(&lock);
            threads.push(thread::spawn(move || {
                let mut pair = lock.write();
                pair.0 += 1;
                thread::yield_now();
                pair.1 += 1;
            }));
        }
        for _ in 0..2 {
            let lock = Arc::clone(&lock);
            threads.push(thread::spawn(move || {
                let pair = lock.read();
                let first = pair.0;
                thread::yield_now();
                assert_eq!((first, first), *pair);
            }));
        }
        let other = Arc::clone(&lock);
        threads.push(thread::spawn(move || {
            if let Some(mut pair) = other.try_write() {
                *pair = (pair.0 + 10, pair.1 + 10);
            }
        }));
        threads.into_iter().for_each(|thread| thread.join().expect("it has not panicked"));
        assert!([(2, 2), (12, 12)].contains(&lock.read()));
    };
    shuttle::check_random(test, ORDERS);
    // Priorities find orders in which few threads are delayed at rare moments.
    shuttle::check_pct(test, ORDERS, 3);
}

#[test]
fn a_brief_lock_is_always_free_again() {
    // A thread that waits for ever is reported by the model as a deadlock.
    shuttle::check_random(
        || {
            let lock = Arc::new(BriefRwLock::new(0));
            let threads: Vec<_> = (0..3)
                .map(|number| {
                    let lock = Arc::clone(&lock);
                    thread::spawn(move || {
                        if number == 0 {
                            drop(lock.try_write());
                        }
                        *lock.write() += 1;
                        drop(lock.read());
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("it has not panicked"));
            assert_eq!(*lock.read(), 3);
        },
        ORDERS,
    );
}

#[test]
fn a_condition_that_is_notified_is_noticed() {
    shuttle::check_random(
        || {
            let shared = Arc::new((Mutex::new(false), Condvar::new()));
            let other = Arc::clone(&shared);
            let waiter = thread::spawn(move || {
                let mut is_set = other.0.lock();
                while !*is_set {
                    other.1.wait(&mut is_set);
                }
            });
            *shared.0.lock() = true;
            shared.1.notify_one();
            waiter.join().expect("it has not panicked");
        },
        ORDERS,
    );
}
