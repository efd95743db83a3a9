//! Committing a unit: it is checked, given room, applied, and counted.

use dendro_base::sync::{Arc, BriefWriteGuard};
use dendro_disk::{
    Aru, CommitSeq, Error, MAX_UNIT_GROUPS, Op, PageRange, Reservation, Result, in_whole_pages,
};
use dendro_format::superblock::{
    INCOMPATIBLE_NEIGHBOURS, INCOMPATIBLE_REMADE_LISTS, INCOMPATIBLE_VERSIONS,
};

use crate::background::Background;
use crate::checkpoint::{Checkpointer, unless_put_off};
use crate::commit::conditions::check_conditions;
use crate::commit::credit::shortage;
use crate::commit::deferral::can_be_put_off;
use crate::commit::packing::names_a_neighbour;
use crate::commit::unit::{Contents, WorstCase, check_arguments};
use crate::engine::Engine;
use crate::engine::watched::Watch;
use crate::fault::Fault;
use crate::map::store::PinnedNodes;
use crate::read::Reader;
use crate::reclaim::make_room::Tries;
use crate::reclaim::no_space::Reclaimer;
use crate::reclaim::removal::{MAX_WAITING, Remover};
use crate::reclaim::throttle::Throttle;
use crate::snapshots::unshare::{Payer, unshare};
use crate::space::reserve::Accounts;
use crate::space::shortage::{Need, Shortage};
use crate::volume::{Pressure, Volume};

/// Commits units.
pub(crate) struct Committer {
    volume: Arc<Volume>,
    accounts: Arc<Accounts>,
    checkpointer: Arc<Checkpointer>,
    remover: Arc<Remover>,
    reclaimer: Arc<Reclaimer>,
    throttle: Throttle,
    background: Arc<Background>,
}

impl Committer {
    pub(crate) const fn new(
        volume: Arc<Volume>,
        accounts: Arc<Accounts>,
        checkpointer: Arc<Checkpointer>,
        remover: Arc<Remover>,
        reclaimer: Arc<Reclaimer>,
        throttle: Throttle,
        background: Arc<Background>,
    ) -> Self {
        Self { volume, accounts, checkpointer, remover, reclaimer, throttle, background }
    }

    /// Commits a unit, and clears it. `reader` reads what a unit leaves of pages that it changes in
    /// part.
    ///
    /// # Errors
    /// As [`dendro_disk::LogicalDisk::commit`]; nothing has changed then, nor has the unit.
    pub(crate) fn commit(&self, aru: &mut Aru<'_>, reader: &Reader) -> Result<CommitSeq> {
        if aru.view().epoch.is_some() {
            return Err(Error::NoSuchView(aru.view()));
        }
        if aru.ops().iter().any(|op| matches!(op, Op::WriteBytes { .. })) {
            return self.commit_in_whole_pages(aru, reader);
        }
        let seq = self.commit_unless_changed(aru, None)?;
        Ok(seq.expect("nothing is watched"))
    }

    /// Commits a unit that writes parts of pages. The rest of such a page is read before. If it
    /// changes until the unit is applied, that is done again; another unit was committed then.
    #[inline(never)]
    fn commit_in_whole_pages(&self, aru: &mut Aru<'_>, reader: &Reader) -> Result<CommitSeq> {
        let view = aru.view();
        self.volume.read().state().versions().head_ancestry(view.branch)?;
        let mut reservation = aru.take_reservation();
        let committed = loop {
            let watch = Watch::default();
            let mut read = |list, page_index, page: &mut [u8]| {
                self.volume.write().watched_pages().add(view, list, page_index, &watch);
                let range = PageRange { list, first_page: page_index, count: 1 };
                reader.read_range(view, range, page)
            };
            let mut whole = match in_whole_pages(aru, &mut read) {
                Ok(whole) => whole,
                Err(error) => break Err(error),
            };
            whole.require_all(aru.conditions());
            if let Some(reservation) = reservation.take() {
                whole.use_reservation(reservation);
            }
            let outcome = self.commit_unless_changed(&mut whole, Some(&watch));
            // A unit that was committed has used it.
            reservation = whole.take_reservation();
            if let Some(committed) = outcome.transpose() {
                break committed;
            }
        };
        if committed.is_ok() {
            aru.clear();
        } else if let Some(reservation) = reservation {
            aru.use_reservation(reservation);
        }
        committed
    }

    /// As [`Self::commit`], for units that write whole pages. `None`: something that is watched has
    /// changed, so nothing was done.
    fn commit_unless_changed(
        &self,
        aru: &mut Aru<'_>,
        watch: Option<&Watch>,
    ) -> Result<Option<CommitSeq>> {
        let mut worst = WorstCase::of(aru);
        if aru.ops().iter().any(names_a_neighbour) {
            self.mark_neighbours()?;
        }
        let packed = self.volume.pack(aru)?;
        let contents = Contents::of(aru, packed.as_ref());
        self.accounts.host().look();
        let mut nodes = PinnedNodes::keeping(self.volume.store());
        let mut tries = Tries::default();
        // What is reserved for what the unit puts off.
        let mut reserved = self.defer_early(aru, &mut worst);
        let (mut engine, seq, kept, was_rearranging) = loop {
            let mut engine = self.volume.write();
            self.volume.check_writable(&engine)?;
            engine.state().versions().head_ancestry(aru.view().branch)?;
            aru.ops().iter().try_for_each(check_arguments)?;
            let kept = tries.kept_segments(&self.accounts, &engine);
            let short = match check_conditions(&mut engine, aru, &nodes) {
                Ok(()) if aru.ops().is_empty() => {
                    drop(contents);
                    aru.clear();
                    return Ok(Some(CommitSeq(engine.commit_seq())));
                }
                Ok(()) if watch.is_some_and(Watch::has_changed) => return Ok(None),
                Ok(()) => shortage(&self.accounts, &engine, (aru, &contents), worst, kept, &nodes),
                Err(fault) => Err(fault),
            };
            let log_bytes = engine.log_bytes();
            let was_rearranging = engine.state().versions().rearrangement().is_some();
            let applied = match short {
                Ok((_, None)) => {
                    engine.keep_segments(kept.all().into());
                    engine.apply(aru, &contents, worst, &nodes)
                }
                Ok((need, Some(shortage))) => {
                    drop(engine);
                    self.mend_shortage(shortage, need, &mut tries)?;
                    // The nodes that were looked at have moved.
                    nodes = PinnedNodes::keeping(self.volume.store());
                    continue;
                }
                Err(fault) => Err(fault),
            };
            match applied {
                Ok(seq) => {
                    if engine.log_bytes() != log_bytes {
                        self.background.wake_if_due(&engine);
                    }
                    break (engine, seq, kept, was_rearranging);
                }
                Err(Fault::Error(error @ Error::OverQuota { .. })) => {
                    drop(engine);
                    // What was deleted may not have been given back yet.
                    if !self.reclaimer.free_for_quota(tries.seen_pruning())? {
                        return Err(error);
                    }
                    nodes = PinnedNodes::keeping(self.volume.store());
                }
                Err(Fault::Error(Error::UnitTooLong)) if may_defer_more(aru, worst) => {
                    drop(engine);
                    reserved = self.defer(aru, &mut worst)?;
                    nodes = PinnedNodes::keeping(self.volume.store());
                }
                Err(fault) => self.mend(fault, engine, aru, &mut worst, &mut nodes)?,
            }
        };
        drop(contents);
        // The unit leaves the map so that checkpoints find their segments (space 1).
        debug_assert!(
            self.accounts.checkpoints_fit(&engine),
            "{}",
            self.accounts.describe_reserve(&engine)
        );
        self.volume.note_lists_of(&engine);
        engine.note_changed(aru);
        if !was_rearranging {
            self.begin_deferred(&engine, reserved);
        }
        // What was reserved for the unit is used now: nobody sees it free in between.
        drop(aru.take_reservation());
        let owed_bytes = self.throttle.share_of_cleaning(&engine, worst.len_bytes(), kept);
        let waits_for_removal = engine.state().removals().len() > MAX_WAITING;
        let pressure = self.volume.unlock_after_commit(engine);
        aru.clear();
        // The unit is committed, even if the work that follows fails.
        if waits_for_removal {
            unless_put_off(self.remover.step().map(drop))?;
        }
        self.relieve(pressure)?;
        if owed_bytes > 0 {
            unless_put_off(self.throttle.assist_cleaning(owed_bytes))?;
        }
        self.volume.relieve_writer()?;
        Ok(Some(seq))
    }

    /// Has what the unit has put off, if anything, be done in the background.
    fn begin_deferred(&self, engine: &Engine, reserved: Option<Reservation>) {
        if engine.state().versions().rearrangement().is_some() {
            self.background.rearranger().keep(reserved);
            self.background.wake();
        }
    }

    /// Has the unit put off what is too much for it. Returns what is reserved for that.
    fn defer(&self, aru: &Aru<'_>, worst: &mut WorstCase) -> Result<Option<Reservation>> {
        if worst.defers_above().is_some() {
            // What follows cannot be put off, so all is done at once.
            worst.defer_above(None);
            return Ok(None);
        }
        worst.defer_above(Some(MAX_UNIT_GROUPS));
        self.background.rearranger().prepare(aru)
    }

    /// Has the unit put off what it could do at once, if that is wanted and there is space for it.
    fn defer_early(&self, aru: &Aru<'_>, worst: &mut WorstCase) -> Option<Reservation> {
        let max_groups = self.background.rearranger().put_off_groups();
        if max_groups >= MAX_UNIT_GROUPS || !aru.ops().iter().any(can_be_put_off) {
            return None;
        }
        let reserved = self.background.rearranger().prepare(aru).ok()?;
        worst.defer_above(Some(max_groups));
        reserved
    }

    /// States on the device that lists may be near others.
    #[inline(never)]
    fn mark_neighbours(&self) -> Result<()> {
        self.volume.check_writable(&self.volume.read())?;
        self.volume.mark_features(INCOMPATIBLE_NEIGHBOURS)
    }

    /// Removes what kept a unit from being applied, so that it can be tried again.
    ///
    /// # Errors
    /// The reason why it cannot be.
    fn mend<'v>(
        &'v self,
        fault: Fault,
        engine: BriefWriteGuard<'_, Engine>,
        aru: &Aru<'_>,
        worst: &mut WorstCase,
        nodes: &mut PinnedNodes<'v>,
    ) -> Result<()> {
        let pins = match &fault {
            Fault::Miss(place) => Some(nodes.pins(place, engine.state().segments())),
            _ => None,
        };
        // A failed attempt leaves the nodes dirty that it would have changed. After a missed node
        // the unit is tried again at once: a checkpoint would make it miss them all.
        let is_over_memory_limit = pins.is_none() && self.volume.is_over_memory_limit(&engine);
        drop(engine);
        if is_over_memory_limit {
            unless_put_off(self.checkpointer.relieve_memory())?;
        }
        match fault {
            Fault::NeedsNewEpoch => {
                self.volume.mark_features(INCOMPATIBLE_VERSIONS | INCOMPATIBLE_REMADE_LISTS)?;
                worst.begin_epoch();
            }
            Fault::BeingRemoved(list) if !self.remover.finish(list.0)? => {
                return Err(fault.into_error());
            }
            Fault::BeingRemoved(_) => {}
            Fault::Shared(list, chunk) => {
                let whose = (aru.view(), Payer::Unit(aru));
                unshare(&self.volume, &self.reclaimer, whose, (list, chunk))?;
                *nodes = PinnedNodes::keeping(self.volume.store());
            }
            fault => self.volume.recover_from(fault, nodes)?,
        }
        drop(pins);
        Ok(())
    }

    /// Acts on a shortage. If nothing else helps, the volume becomes longer, if it may.
    ///
    /// # Errors
    /// As [`Reclaimer::mend_shortage`].
    fn mend_shortage(&self, shortage: Shortage, need: Need, tries: &mut Tries) -> Result<()> {
        match self.reclaimer.mend_shortage(shortage, need, tries) {
            // What was put off may give space back.
            Err(Error::NoSpace { .. }) if self.background.rearranger().step()? => {
                *tries = Tries::default();
                Ok(())
            }
            Err(Error::NoSpace { .. })
                if self.background.resizer().grow_by_itself(need.total_bytes())? =>
            {
                *tries = Tries::default();
                Ok(())
            }
            mended => mended,
        }
    }

    /// Does what the memory of the map's nodes asks for after a commit.
    fn relieve(&self, pressure: Pressure) -> Result<()> {
        match pressure {
            Pressure::None => Ok(()),
            // The log may grow little while the map changes much.
            Pressure::CheckpointIsDue => {
                self.background.wake();
                Ok(())
            }
            Pressure::CommitsWait => unless_put_off(self.checkpointer.relieve_memory()).map(drop),
        }
    }
}

/// Whether a unit that is too long may be tried in another way.
fn may_defer_more(aru: &Aru<'_>, worst: WorstCase) -> bool {
    worst.defers_above() != Some(MAX_UNIT_GROUPS) && aru.ops().iter().any(can_be_put_off)
}
