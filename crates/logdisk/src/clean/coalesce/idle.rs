//! Coalescing in idle times: a walk over all lists, and what it may cost.

use dendro_disk::{Lid, Result, Versions, View};

use super::stretch::{RunSearch, STRETCH_BYTES};
use super::{Moved, Place};
use crate::disk::LogDisk;
use crate::engine::Engine;

/// So many stretches a step looks at.
const MAX_LOOKS: usize = 64;
/// A walk begins anew when so much has been written since the last, as a share of what lives,
const REST_SHARE_OF_LIVE: u64 = 8;
/// and in segments.
const REST_SEGMENTS: u64 = 16;
/// What may be written again is saved up to this share of the capacity.
const MOST_CREDIT_SHARE: u64 = 8;
/// As much of what lives may be at once after the volume was opened: what was written before the
/// disk was opened left no credit.
const FIRST_CREDIT_SHARE: u64 = 64;

/// How far the walk has come, and what it may still write.
#[derive(Debug)]
pub(super) struct Pass {
    next: Place,
    /// The log clock when the last walk ended; `None` while one is under way.
    ended_at: Option<u64>,
    /// Bytes that may be written again; `None` when nothing has been done yet.
    credit_bytes: Option<u64>,
    /// What clients had written when that was reckoned.
    user_bytes: u64,
}

impl Default for Pass {
    fn default() -> Self {
        Self { next: Place::START, ended_at: None, credit_bytes: None, user_bytes: 0 }
    }
}

impl Pass {
    /// Adds to the credit what clients have written since.
    fn earn(&mut self, user_bytes: u64, share_percent: u32, first_bytes: u64, most_bytes: u64) {
        let earned = (user_bytes - self.user_bytes).saturating_mul(share_percent.into()) / 100;
        self.user_bytes = user_bytes;
        let credit = self.credit_bytes.unwrap_or(first_bytes);
        self.credit_bytes = Some(credit.saturating_add(earned).min(most_bytes));
    }

    fn spend(&mut self, bytes: u64) {
        self.credit_bytes = self.credit_bytes.map(|credit| credit.saturating_sub(bytes));
    }
}

impl LogDisk {
    /// Does a piece of coalescing, of what the main branch's head sees, if there is something that has
    /// been left alone for a while and clean segments are many; says whether it did. For times in
    /// which nobody uses the disk: it gives up as soon as somebody writes.
    ///
    /// # Errors
    /// As [`Self::clean_step`].
    pub fn coalesce_step(&self) -> Result<bool> {
        let settings = self.clean_settings();
        if settings.is_suspended || !settings.coalescing.is_on || self.failure().is_some() {
            return Ok(false);
        }
        let mut pass = self.coalescing.pass.lock();
        let commit_seq = {
            let engine = self.engine.read();
            if engine.closed_reason.is_some() || !self.is_idle_pass_due(&mut pass, &engine) {
                return Ok(false);
            }
            engine.commit_seq
        };
        let view = View { branch: self.versions().main, epoch: None };
        let is_undisturbed = || self.engine.read().commit_seq == commit_seq;
        for _ in 0..MAX_LOOKS {
            if !is_undisturbed() {
                break;
            }
            let stretch = match self.find_stretch(view, pass.next, Lid::CLIENT_END) {
                // A map that cannot be read here is tried again by the next walk; who reads it is
                // told.
                Ok(RunSearch::Nothing) | Err(_) => {
                    pass.next = Place::START;
                    pass.ended_at = Some(self.engine.read().state.clock);
                    break;
                }
                Ok(RunSearch::Elsewhere(next)) => {
                    pass.next = next;
                    continue;
                }
                Ok(RunSearch::Here(stretch)) => stretch,
            };
            if stretch.is_worth_it && stretch.is_quiet {
                match self.move_stretch(&stretch, &is_undisturbed)? {
                    Moved::Bytes(bytes) => pass.spend(bytes),
                    Moved::Unreadable => {}
                    Moved::NoRoom | Moved::Stopped => break,
                }
                pass.next = stretch.end();
                break;
            }
            pass.next = stretch.end();
        }
        Ok(true)
    }

    /// Whether there is a walk to go on with, or to begin, and it may move something.
    fn is_idle_pass_due(&self, pass: &mut Pass, engine: &Engine) -> bool {
        let share_percent = self.clean_settings().coalescing.share_percent;
        let live_bytes = engine.state.segments.live_bytes();
        pass.earn(
            engine.user_page_bytes,
            share_percent,
            live_bytes / FIRST_CREDIT_SHARE,
            self.capacity_bytes() / MOST_CREDIT_SHARE,
        );
        let rest_bytes =
            (live_bytes / REST_SHARE_OF_LIVE).max(REST_SEGMENTS * self.layout.segment_size_bytes());
        let is_rested = |ended_at: u64| engine.state.clock.saturating_sub(ended_at) >= rest_bytes;
        if pass.ended_at.is_some_and(|ended_at| !is_rested(ended_at))
            || pass.credit_bytes.is_none_or(|credit| credit < STRETCH_BYTES)
            // Half of what cleaning makes in idle times is left for those who write next.
            || !self.may_coalesce(engine, STRETCH_BYTES, self.idle_segments() / 2)
        {
            return false;
        }
        pass.ended_at = None;
        true
    }
}
