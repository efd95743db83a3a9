//! Making the log durable.
//!
//! - [`group_commit`]: which thread flushes, and for whom.
//! - [`completions`]: who is told of it without waiting.
//!
//! Invariants:
//! 1. (flush 1) A flush covers everything that those wait for who had come when it began.
//!
//! What a failed flush means is (flush 2), in [`crate::volume`].

mod completions;
mod group_commit;

use std::time::Duration;

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_disk::{CommitSeq, Completion, Result};

use self::completions::Completions;
use self::group_commit::{FlushTurn, GroupCommit};
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::volume::Volume;

/// Flushes the log, once for all callers that wait for it.
pub(crate) struct Flusher {
    volume: Arc<Volume>,
    group_commit: GroupCommit,
    /// The last commit known to be durable.
    durable: AtomicU64,
    completions: Completions,
}

impl Flusher {
    pub(crate) fn new(volume: Arc<Volume>) -> Self {
        let (clock, commit_seq) = {
            let engine = volume.read();
            (Arc::clone(engine.clock()), engine.commit_seq())
        };
        let (group_commit, durable) = (GroupCommit::new(clock), AtomicU64::new(commit_seq));
        Self { volume, group_commit, durable, completions: Completions::default() }
    }

    /// The last commit known to be durable.
    pub(crate) fn durable_seq(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Makes everything durable that was committed up to `up_to` or before the call, whichever is
    /// less.
    pub(crate) fn flush_up_to(&self, up_to: CommitSeq) -> Result<()> {
        let target = up_to.0.min(self.volume.read().commit_seq());
        let is_durable = || self.durable_seq() >= target;
        if is_durable() {
            return self.volume.failure().map_or(Ok(()), Err);
        }
        // A flush that ended while this call waited may have covered it.
        let stop = || match is_durable() {
            true => Some(Ok(())),
            false => self.volume.failure().map(Err),
        };
        let turn = match self.group_commit.join(target, stop) {
            Ok(turn) => turn,
            Err(outcome) => return outcome,
        };
        self.volume.write().note_flush();
        let flushed = self.flush_log(&turn);
        if let Some(failure) = self.volume.failure() {
            // No later flush will do it.
            self.completions.finish(u64::MAX, &Err(failure));
        }
        flushed
    }

    /// Has everything written that was committed up to `up_to` or before the call, whichever is
    /// less. The device need not make it durable.
    pub(crate) fn write_up_to(&self, up_to: CommitSeq) -> Result<()> {
        {
            let mut engine = self.volume.write();
            let target = up_to.0.min(engine.commit_seq());
            if self.durable_seq() >= target {
                return self.volume.failure().map_or(Ok(()), Err);
            }
            if target > engine.log().closed_commit_seq() {
                engine.close_partial();
            }
        }
        self.volume.write_queued()
    }

    /// Calls `then` when everything up to `up_to` that is committed by now is durable.
    pub(crate) fn call_when_durable(&self, up_to: CommitSeq, then: Completion) {
        let target = up_to.0.min(self.volume.read().commit_seq());
        if let Some(error) = self.volume.failure() {
            return then(Err(error));
        }
        self.completions.add(target, then);
        // It may have become durable before it was entered.
        self.completions.finish(self.durable_seq(), &Ok(()));
    }

    /// Waits for at most `timeout` until somebody wants to be told when something is durable, and
    /// makes everything durable then. Returns whether it did.
    pub(crate) fn flush_for_others(&self, timeout: Duration) -> Result<bool> {
        if !self.completions.wait(timeout) {
            return Ok(false);
        }
        let flushed = self.flush_up_to(CommitSeq::LATEST);
        if flushed.is_err() {
            self.completions.finish(u64::MAX, &flushed);
        }
        flushed.map(|()| true)
    }

    /// Ends the waits of [`Self::flush_for_others`], now and later.
    pub(crate) fn end_waiting(&self) {
        self.completions.end_waiting();
    }

    /// Flushes the log if `prepare` returns that this is worth it, and returns whether it did.
    pub(crate) fn flush_if(
        &self,
        prepare: impl FnOnce(&mut Engine) -> Outcome<bool>,
    ) -> Result<bool> {
        let turn = self.group_commit.take_turn(|| self.volume.failure())?;
        let is_worth_it =
            prepare(&mut self.volume.write()).map_err(|fault| self.volume.latch(fault))?;
        if is_worth_it {
            self.flush_log(&turn)?;
        }
        Ok(is_worth_it)
    }

    /// Writes what has been closed of the log, and makes it durable. The open partial segment is
    /// closed if somebody waits for a commit in it.
    fn flush_log(&self, turn: &FlushTurn<'_>) -> Result<()> {
        // Callers that have arrived by now have committed what the flush covers (flush 1).
        let (began, wanted) = turn.begin();
        let (commit_seq, partial_seq) = {
            let mut engine = self.volume.write();
            if wanted > engine.log().closed_commit_seq() {
                engine.close_partial();
            }
            (engine.log().closed_commit_seq(), engine.log().seq().saturating_sub(1))
        };
        self.volume.write_queued()?;
        self.volume.flush_device()?;
        self.note_durable(commit_seq, partial_seq);
        turn.end(began);
        Ok(())
    }

    /// Notes that the log is durable up to this commit and up to this partial segment.
    pub(crate) fn note_durable(&self, commit_seq: u64, partial_seq: u64) {
        self.durable.fetch_max(commit_seq, Ordering::AcqRel);
        self.volume.write().note_durable(partial_seq);
        self.completions.finish(commit_seq, &Ok(()));
    }
}
