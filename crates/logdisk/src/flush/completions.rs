//! Who is told when a commit has become durable, without waiting for it.

use std::collections::BTreeMap;
use std::time::Duration;

use dendro_base::sync::{Condvar, Mutex};
use dendro_disk::{Completion, Error, Result};

/// Calls that are made when commits become durable.
#[derive(Default)]
pub(super) struct Completions {
    waiting: Mutex<Waiting>,
    asked: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// By the commit that each waits for, and in the order in which they came.
    calls: BTreeMap<(u64, u64), Completion>,
    count: u64,
    is_ending: bool,
}

impl Completions {
    /// Has `then` called when the commit is durable.
    pub(super) fn add(&self, commit_seq: u64, then: Completion) {
        let mut waiting = self.waiting.lock();
        let key = (commit_seq, waiting.count);
        waiting.count += 1;
        waiting.calls.insert(key, then);
        drop(waiting);
        self.asked.notify_all();
    }

    /// Calls those that wait for commits up to this one. The caller holds no lock.
    pub(super) fn finish(&self, durable_seq: u64, outcome: &Result<()>) {
        let due = {
            let mut waiting = self.waiting.lock();
            if waiting.calls.first_key_value().is_none_or(|(key, _)| key.0 > durable_seq) {
                return;
            }
            match durable_seq.checked_add(1) {
                Some(next) => {
                    let later = waiting.calls.split_off(&(next, 0));
                    std::mem::replace(&mut waiting.calls, later)
                }
                None => std::mem::take(&mut waiting.calls),
            }
        };
        due.into_values().for_each(|then| then(outcome.clone()));
    }

    /// Waits until somebody waits, for at most `timeout`. Returns whether somebody does.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.calls.is_empty() && !waiting.is_ending {
            let _ = self.asked.wait_for(&mut waiting, timeout);
        }
        !waiting.calls.is_empty()
    }

    /// Ends all waits, now and later.
    pub(super) fn end_waiting(&self) {
        self.waiting.lock().is_ending = true;
        self.asked.notify_all();
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        let closed = Err(Error::Failed("the disk was closed before that".into()));
        self.finish(u64::MAX, &closed);
    }
}
