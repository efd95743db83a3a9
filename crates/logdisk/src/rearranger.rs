//! Rearrangements: pages that a unit punches, moves or exchanges after it has committed.
//!
//! A unit that would change too many groups at once ([`crate::commit::deferral`]) commits with a
//! record of what is to be done. That is then done in steps. Each step is a unit of the log, which
//! also replaces the record by what is left. So a crash leaves the rest to the next mount, and
//! what reads the log needs to know nothing but the steps. A volume that is opened for reading
//! finishes the rest in memory, and so does one that has latched.
//!
//! Nobody sees a part of it. Whoever wants pages of one of its lists at the head of its branch, or
//! wants to change versions, finishes it first (`Fault::Rearranged`), and so does opening the
//! volume. Others go on: each step takes the lock for a fraction of a millisecond. There is one
//! rearrangement at a time.
//!
//! The space that the steps can take is reserved before the unit commits: for copies of pages that
//! other versions see, and for entries of the map.
//!
//! Invariants:
//! 1. Nobody sees the pages of a list at a head of which something is put off, and no version is
//!    made or changed, before it is done.
//!
//! Lock order: who does steps locks [`Rearranger::working`] before all others.

use dendro_base::sync::{Arc, Mutex, Weak};
use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Aru, Error, Op, Reservation, Result, View};
use dendro_format::Record;
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::rearrangement::{MAX_REARRANGEMENT_LEN_BYTES, REARRANGEMENT_INDEX};
use dendro_format::record::{MAX_FIXED_LEN_BYTES, PUT_RECORD_LEN_BYTES, VERSION_LEN_BYTES};
use dendro_format::superblock::{INCOMPATIBLE_FRAMES, INCOMPATIBLE_REARRANGEMENTS};
use dendro_format::versions::VERSIONS_LIST;

use crate::engine::Engine;
use crate::fault::{Fault, Outcome};
use crate::map::Nodes;
use crate::map::store::PinnedNodes;
use crate::reclaim::no_space::Reclaimer;
use crate::resize::Resizer;
use crate::snapshots::unshare::{Payer, unshare};
use crate::space::shortage::Need;
use crate::versions::rearrangement::{Rearrangement, tasks_of};
use crate::volume::{Settle, Volume};

/// The groups that a step changes.
const STEP_GROUPS: u64 = 64;
/// The most that the records of a step take.
const STEP_RECORD_BYTES: usize = VERSION_LEN_BYTES
    + (STEP_GROUPS as usize + 1) * MAX_FIXED_LEN_BYTES
    + PUT_RECORD_LEN_BYTES
    + MAX_REARRANGEMENT_LEN_BYTES;
/// About what an entry of the map takes besides its pages.
const ENTRY_BYTES: u64 = 64;

/// Does what units have put off.
pub(crate) struct Rearranger {
    volume: Arc<Volume>,
    reclaimer: Arc<Reclaimer>,
    resizer: Arc<Resizer>,
    /// See [`OpenOptions`](crate::OpenOptions).
    put_off_groups: u64,
    /// Held by who does steps.
    working: Mutex<()>,
    /// What is reserved for the steps to come.
    reserved: Mutex<Option<Reservation>>,
}

/// What became of a step.
enum Stepped {
    /// It was done.
    Done,
    /// Other versions see pages of this group of a list at the head of the branch.
    Shared(u32, dendro_disk::Lid, u64),
    /// Nothing is left to be done.
    NothingLeft,
}

impl Rearranger {
    pub(crate) fn new(
        volume: Arc<Volume>,
        reclaimer: Arc<Reclaimer>,
        resizer: Arc<Resizer>,
        put_off_groups: u64,
    ) -> Arc<Self> {
        let (working, reserved) = (Mutex::default(), Mutex::default());
        let rearranger =
            Arc::new(Self { volume, reclaimer, resizer, put_off_groups, working, reserved });
        let weak: Weak<Self> = Arc::downgrade(&rearranger);
        rearranger.volume.set_settler(weak);
        rearranger
    }

    /// The groups above which units put something off.
    pub(crate) const fn put_off_groups(&self) -> u64 {
        self.put_off_groups
    }

    /// What makes the volume longer by itself.
    pub(crate) const fn resizer(&self) -> &Arc<Resizer> {
        &self.resizer
    }

    /// Does a step, unless another thread does, or it cannot be done now: those who need it are
    /// told why. Returns whether it did.
    ///
    /// # Errors
    /// [`Error::Failed`] when the disk does not accept writes.
    pub(crate) fn step(&self) -> Result<bool> {
        let Some(_working) = self.working.try_lock() else { return Ok(false) };
        match self.step_alone() {
            Err(Error::NoSpace { .. } | Error::Corrupted(_) | Error::Io(_)) => Ok(false),
            stepped => stepped,
        }
    }

    /// Does all that is left before the disk takes no changes any more. The next opening does what
    /// cannot be done.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub(crate) fn finish_before_closing(&self) -> Result<()> {
        while self.volume.is_writable() && self.step()? {}
        Ok(())
    }

    fn step_alone(&self) -> Result<bool> {
        if self.volume.read().state().versions().rearrangement().is_none() {
            *self.reserved.lock() = None;
            return Ok(false);
        }
        let need = Need::reclaiming((STEP_RECORD_BYTES + 4 * PAGE_SIZE) as u64);
        let has_frames = self.volume.compressors().are_marked(INCOMPATIBLE_FRAMES);
        loop {
            let stepped = self.reclaimer.with_room(need, |engine, nodes| {
                // A group that must be copied first ends a step.
                let may_be_shared = has_frames || engine.state().versions().are_several();
                let most_groups = if may_be_shared { 1 } else { STEP_GROUPS };
                engine.rearrange(most_groups, nodes)
            })?;
            match stepped {
                Stepped::Done => break,
                Stepped::Shared(branch, list, group) => {
                    let whose = (View { branch, epoch: None }, Payer::Reserved);
                    unshare(&self.volume, &self.reclaimer, whose, (list, group))?;
                }
                Stepped::NothingLeft => return Ok(false),
            }
        }
        self.volume.relieve_writer()?;
        Ok(true)
    }

    /// Finishes in memory what was put off, on a volume to which nothing is written any more: it
    /// was opened for reading alone, or has latched.
    ///
    /// # Errors
    /// [`Error::Corrupted`] or [`Error::Io`] when the map cannot be read.
    pub(crate) fn finish_in_memory(&self) -> Result<()> {
        let nodes = PinnedNodes::keeping(self.volume.store());
        loop {
            let mut engine = self.volume.write();
            let Some(rearrangement) = engine.state().versions().rearrangement().cloned() else {
                return Ok(());
            };
            let done = engine.transact(&nodes, |engine| {
                let state = engine.state_mut();
                state.rearrange_in_memory(&rearrangement, STEP_GROUPS, &nodes)
            });
            match done {
                Err(Fault::Miss(place)) => {
                    let _pins = nodes.pins(&place, engine.state().segments());
                    drop(engine);
                    nodes.load(&place)?;
                }
                done => done.map_err(Fault::into_error)?,
            }
        }
    }

    /// Reserves what the steps can take that `aru` may put off, and states on the device that
    /// units put something off.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::OverQuota`], [`Error::ReadOnly`], or an error when the map
    /// cannot be read.
    pub(crate) fn prepare(&self, aru: &Aru<'_>) -> Result<Option<Reservation>> {
        let view = aru.view();
        let mut cost = Cost::default();
        aru.ops().iter().try_for_each(|op| self.add_cost(view, op, &mut cost))?;
        if aru.reclaims() {
            // It uses the reserve for such units.
            cost.entry_bytes = 0;
        }
        let copies_bytes = cost.copy_bytes.saturating_mul(17) / 16;
        let bytes = cost.entry_bytes.saturating_add(copies_bytes);
        self.volume.mark_features(INCOMPATIBLE_REARRANGEMENTS)?;
        if bytes == 0 {
            return Ok(None);
        }
        let reserved = self.resizer.reserve_exactly(bytes)?;
        self.resizer.reserve_of_quota(reserved, view, cost.copy_bytes).map(Some)
    }

    /// Adds what `op` can take if it is put off.
    fn add_cost(&self, view: View, op: &Op<'_>, cost: &mut Cost) -> Result<()> {
        let takes_pages = !matches!(op, Op::PunchPages { .. });
        let shifts = match op {
            Op::MovePages { from_page, to_page, .. } => {
                from_page % CHUNK_PAGES != to_page % CHUNK_PAGES
            }
            _ => false,
        };
        let has_frames = self.volume.compressors().are_marked(INCOMPATIBLE_FRAMES);
        for (list, pages) in tasks_of(op).flat_map(|task| task.changed()) {
            self.volume.look_in_slices(pages.start / CHUNK_PAGES, |engine, slice, nodes| {
                let state = engine.state();
                if state.is_rearranged(view.branch, list) {
                    return Err(Fault::Rearranged);
                }
                let ancestry = state.versions().ancestry(view)?;
                let are_several = state.versions().are_several();
                // A group becomes holes and pages elsewhere, in one group or in two.
                let entries = if are_several { 3 } else { u64::from(shifts) };
                let may_be_shared = takes_pages && (are_several || has_frames);
                let rest = pages.start.max(slice.next() * CHUNK_PAGES)..pages.end;
                let mut groups = Vec::new();
                state.visit_chunks(ancestry, list, &rest, slice, nodes, &mut |group, chunk| {
                    groups.push((group, chunk.present().count_ones()));
                    std::ops::ControlFlow::Continue(())
                })?;
                let mut bytes = Cost::default();
                for (group, page_count) in groups {
                    bytes.entry_bytes += entries * ENTRY_BYTES;
                    if may_be_shared {
                        let shared = state.shared_count(view.branch, list, group, nodes)?;
                        bytes.copy_bytes += shared.min(page_count.into()) * PAGE_SIZE as u64;
                    }
                }
                cost.entry_bytes += bytes.entry_bytes;
                cost.copy_bytes += bytes.copy_bytes;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Keeps what was reserved for the rearrangement that a unit has begun.
    pub(crate) fn keep(&self, reserved: Option<Reservation>) {
        *self.reserved.lock() = reserved;
    }
}

/// What a rearrangement can take.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    entry_bytes: u64,
    copy_bytes: u64,
}

impl Settle for Rearranger {
    fn settle(&self) -> Result<()> {
        let _working = self.working.lock();
        loop {
            match self.step_alone() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(_) if self.volume.failure().is_some() => return self.finish_in_memory(),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Engine {
    /// Enters in the log what is left of a rearrangement.
    pub(crate) fn push_rearrangement(&mut self, rest: Option<&Rearrangement>) {
        let (list, index) = (VERSIONS_LIST, REARRANGEMENT_INDEX);
        match rest.map(Rearrangement::encode) {
            Some(value) => self.partial().push(&Record::PutRecord { list, index, value: &value }),
            None => self.partial().push(&Record::DeleteRecord { list, index }),
        }
    }

    /// Does a step of the rearrangement, as a unit of its own.
    fn rearrange(&mut self, most_groups: u64, nodes: &dyn Nodes) -> Outcome<Stepped> {
        let Some(rearrangement) = self.state().versions().rearrangement().cloned() else {
            return Ok(Stepped::NothingLeft);
        };
        let branch = rearrangement.branch;
        let unit = self.begin_unit(self.head_context(branch), 0, 0, STEP_RECORD_BYTES)?;
        let stepped = self.transact(nodes, |engine| {
            let done = engine.state_mut().rearrange(&rearrangement, most_groups, nodes)?;
            engine.partial().set_context(unit.context());
            done.records.iter().for_each(|record| engine.partial().push(record));
            engine.push_rearrangement(done.rest.as_ref());
            engine.state_mut().set_rearrangement(done.rest);
            Ok(())
        });
        match stepped {
            Err(Fault::Shared(list, group)) => Ok(Stepped::Shared(branch, list, group)),
            Err(fault) => Err(fault),
            Ok(()) => {
                self.end_unit(unit);
                Ok(Stepped::Done)
            }
        }
    }
}
