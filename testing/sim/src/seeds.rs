//! Runs of one seed after the other, on several threads.

use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::sync::Mutex;

use crate::crash::Failure;

/// Runs seeds from `first_seed` on, until enough is done or one fails.
///
/// # Errors
/// The first failure.
pub(crate) fn run_until(
    first_seed: u64,
    thread_count: usize,
    is_enough: impl Fn() -> bool + Sync,
    run: impl Fn(u64) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let next = AtomicU64::new(first_seed);
    let failure: Mutex<Option<Failure>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(|| {
                while !is_enough() && failure.lock().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if let Err(found) = run(seed) {
                        failure.lock().get_or_insert(found);
                    }
                }
            });
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}
