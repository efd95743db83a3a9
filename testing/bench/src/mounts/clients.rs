//! Several clients that do the same at the same time.

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Lets `clients` threads, on no CPU in particular, do `step` `count_each` times, each on what
/// `prepare` has made for it; from the moment when all begin to the end of the last.
#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(super) fn timed<S>(
    clients: usize,
    count_each: usize,
    prepare: impl Fn(usize) -> io::Result<S> + Sync,
    step: impl Fn(&mut S, usize) -> io::Result<()> + Sync,
) -> io::Result<Duration> {
    let barrier = Barrier::new(clients);
    let client = |number: usize| -> io::Result<(Instant, Instant)> {
        let prepared = prepare(number);
        // Also after a failure: the others wait.
        barrier.wait();
        let mut state = prepared?;
        let start = Instant::now();
        for index in 0..count_each {
            step(&mut state, index)?;
        }
        Ok((start, Instant::now()))
    };
    let spans = thread::scope(|scope| {
        let client = &client;
        let threads: Vec<_> =
            (0..clients).map(|number| scope.spawn(move || client(number))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a client stopped")))
        };
        threads.into_iter().map(join).collect::<io::Result<Vec<_>>>()
    })?;
    let first = spans.iter().map(|(start, _)| *start).min();
    let last = spans.iter().map(|(_, end)| *end).max();
    match (first, last) {
        (Some(first), Some(last)) => Ok(last.duration_since(first)),
        _ => Err(io::Error::other("there are no clients")),
    }
}
