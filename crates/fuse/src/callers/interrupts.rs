//! Requests that take long, and whether their callers still wait for them.
//!
//! The kernel sends an INTERRUPT for every signal that the caller gets. If each of them ended the
//! request, a program with a timer could never finish a long one. So only a signal that kills the
//! caller ends it. The caller's process exists until the reply has come.

use std::collections::VecDeque;

use dendro_base::sync::Arc;
use dendro_base::sync::Mutex;
use dendro_base::sync::atomic::{AtomicBool, Ordering};

/// How many interruptions are kept of requests that are not in the table: short ones, and long ones
/// that have not begun.
const MAX_EARLY: usize = 256;

/// SIGKILL is pending for each thread of a process that is dying, whatever killed it.
const SIGKILL_BIT: u64 = 1 << (libc::SIGKILL - 1);

/// The long requests of a mount.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Each long request, and whether it was interrupted.
    running: Vec<(u64, Arc<AtomicBool>)>,
    /// Interruptions that came before their requests, over another connection.
    early: VecDeque<u64>,
}

/// A long request that is in progress.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    interrupts: &'a Interrupts,
    unique: u64,
    thread: u32,
    is_interrupted: Arc<AtomicBool>,
}

impl Interrupts {
    /// Records that the caller of the request `unique` got a signal.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut table = self.table.lock();
        if let Some((_, flag)) = table.running.iter().find(|(running, _)| *running == unique) {
            flag.store(true, Ordering::Relaxed);
            return;
        }
        if table.early.len() == MAX_EARLY {
            table.early.pop_front();
        }
        table.early.push_back(unique);
    }

    /// Begins the request `unique` of `thread`. It ends when the watch is dropped.
    pub(crate) fn watch(&self, unique: u64, thread: u32) -> Watch<'_> {
        let mut table = self.table.lock();
        let early = table.early.iter().position(|&early| early == unique);
        let is_interrupted = Arc::new(AtomicBool::new(early.is_some()));
        if let Some(at) = early {
            table.early.remove(at);
        }
        table.running.push((unique, Arc::clone(&is_interrupted)));
        Watch { interrupts: self, unique, thread, is_interrupted }
    }
}

impl Watch<'_> {
    /// Whether the caller does not wait for the reply any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed) && is_dying(self.thread)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.interrupts.table.lock().running.retain(|(running, _)| *running != self.unique);
    }
}

/// Whether a thread is dying. A thread in another pid namespace (0) cannot be seen, and counts as
/// dying.
fn is_dying(thread: u32) -> bool {
    if thread == 0 {
        return true;
    }
    std::fs::read_to_string(format!("/proc/{thread}/status"))
        .map_or(true, |status| has_pending_kill(&status))
}

fn has_pending_kill(status: &str) -> bool {
    status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & SIGKILL_BIT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_is_known_before_and_while_its_request_runs() {
        let interrupts = Interrupts::default();
        let watch = interrupts.watch(4, 0);
        assert!(!watch.is_cancelled());
        interrupts.interrupt(6);
        assert!(!watch.is_cancelled());
        interrupts.interrupt(4);
        assert!(watch.is_cancelled());
        assert!(interrupts.watch(6, 0).is_cancelled(), "it came first");
        assert!(!interrupts.watch(6, 0).is_cancelled(), "it counts once");
        drop(watch);
        assert!(interrupts.table.lock().running.is_empty());
    }

    #[test]
    fn a_thread_that_lives_on_waits_whatever_signals_it_gets() {
        let interrupts = Interrupts::default();
        let watch = interrupts.watch(4, std::process::id());
        interrupts.interrupt(4);
        assert!(!watch.is_cancelled());
    }

    #[test]
    fn interruptions_of_unknown_requests_take_bounded_memory() {
        let interrupts = Interrupts::default();
        for unique in 0..10_000 {
            interrupts.interrupt(unique);
        }
        assert_eq!(interrupts.table.lock().early.len(), MAX_EARLY);
        assert!(interrupts.watch(9_999, 0).is_cancelled());
        assert!(!interrupts.watch(3, 0).is_cancelled());
    }

    #[test]
    fn a_pending_kill_is_found_among_other_signals() {
        let status = |own: &str, shared: &str| {
            format!("Name:\tcp\nSigQ:\t1/2\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0100\n")
        };
        assert!(!has_pending_kill(&status("0000000000000000", "0000000000002000")));
        assert!(has_pending_kill(&status("0000000000000100", "0000000000000000")));
        assert!(has_pending_kill(&status("0000000000000000", "0000000000004100")));
    }
}
