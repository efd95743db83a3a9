//! Coalescing in idle times: a walk over all lists with a limited write budget.

use dendro_base::sync::{Arc, Mutex};
use dendro_disk::{Lid, Result, View};

use super::mover::{Moved, Mover};
use super::place::Place;
use super::search::Search;
use super::stretch::{RunSearch, STRETCH_BYTES};
use crate::engine::Engine;
use crate::space::reserve::Accounts;
use crate::volume::Volume;

/// The number of stretches that one step looks at.
const MAX_LOOKS: usize = 64;
/// A new walk begins when clients have written, since the last one, the live bytes divided by this,
const REST_SHARE_OF_LIVE: u64 = 8;
/// and at least so many segments.
const REST_SEGMENTS: u64 = 16;
/// The credit is limited to the capacity divided by this.
const MOST_CREDIT_SHARE: u64 = 8;
/// The credit after the volume was opened is the live bytes divided by this. The credit that
/// earlier writes earned is not stored.
const FIRST_CREDIT_SHARE: u64 = 64;

/// The position of the walk, and the bytes that it may still write.
#[derive(Debug)]
struct Pass {
    search: Search,
    /// The log clock when the last walk ended; `None` while one is under way.
    ended_at: Option<u64>,
    /// The bytes that may still be written; `None` before the first step.
    credit_bytes: Option<u64>,
    /// The bytes that clients had written when the credit was last computed.
    user_bytes: u64,
}

impl Default for Pass {
    fn default() -> Self {
        Self {
            search: Search::new(Place::START, false),
            ended_at: None,
            credit_bytes: None,
            user_bytes: 0,
        }
    }
}

impl Pass {
    /// Adds a share of what clients have written since the last call to the credit.
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

/// Coalesces in idle times.
pub(crate) struct IdleCoalescing {
    volume: Arc<Volume>,
    accounts: Arc<Accounts>,
    mover: Arc<Mover>,
    pass: Mutex<Pass>,
}

impl IdleCoalescing {
    pub(crate) fn new(volume: Arc<Volume>, accounts: Arc<Accounts>, mover: Arc<Mover>) -> Self {
        Self { volume, accounts, mover, pass: Mutex::default() }
    }

    /// See [`LogDisk::coalesce_step`](crate::LogDisk::coalesce_step).
    pub(crate) fn step(&self) -> Result<bool> {
        let settings = self.accounts.clean_settings();
        if settings.is_suspended || !settings.coalescing.is_on || self.volume.failure().is_some() {
            return Ok(false);
        }
        let mut pass = self.pass.lock();
        let (commit_seq, main) = {
            let engine = self.volume.read();
            if engine.closed_reason().is_some() || !self.is_idle_pass_due(&mut pass, &engine) {
                return Ok(false);
            }
            (engine.commit_seq(), engine.state().versions().table().main)
        };
        let view = View { branch: main, epoch: None };
        let is_undisturbed = || self.volume.read().commit_seq() == commit_seq;
        let cold = self.volume.compressors().cold();
        for _ in 0..MAX_LOOKS {
            if !is_undisturbed() {
                break;
            }
            let stretch = match pass.search.step(&self.mover, view, Lid::CLIENT_END) {
                // A part of the map cannot be read. The next walk tries again; a client that reads
                // there gets the error.
                Ok(RunSearch::Nothing) | Err(_) => {
                    pass.search = Search::new(Place::START, false);
                    pass.ended_at = Some(self.volume.read().state().clock());
                    break;
                }
                Ok(RunSearch::Elsewhere(_)) => continue,
                Ok(RunSearch::Here(stretch)) => stretch,
            };
            if stretch.is_worth_it && stretch.is_quiet {
                match self.mover.move_stretch(&stretch, cold, false, &is_undisturbed)? {
                    Moved::Bytes { moved, .. } => pass.spend(moved),
                    Moved::Unreadable => {}
                    Moved::NoRoom | Moved::Stopped => pass.search.put_back(stretch),
                }
                break;
            }
        }
        Ok(true)
    }

    /// Whether there is a walk to continue or to begin, and it may move something.
    fn is_idle_pass_due(&self, pass: &mut Pass, engine: &Engine) -> bool {
        let share_percent = self.accounts.clean_settings().coalescing.share_percent;
        let live_bytes = engine.state().segments().live_bytes();
        pass.earn(
            engine.user_page_bytes(),
            share_percent,
            live_bytes / FIRST_CREDIT_SHARE,
            self.accounts.capacity_bytes(engine) / MOST_CREDIT_SHARE,
        );
        let rest_bytes = (live_bytes / REST_SHARE_OF_LIVE)
            .max(REST_SEGMENTS * self.volume.layout().segment_size_bytes());
        let is_rested =
            |ended_at: u64| engine.state().clock().saturating_sub(ended_at) >= rest_bytes;
        if pass.ended_at.is_some_and(|ended_at| !is_rested(ended_at))
            || pass.credit_bytes.is_none_or(|credit| credit < STRETCH_BYTES)
            // Half of what idle cleaning makes stays for the clients that write next.
            || !self.mover.may_coalesce(engine, STRETCH_BYTES, self.accounts.idle_segments() / 2)
        {
            return false;
        }
        pass.ended_at = None;
        true
    }
}
