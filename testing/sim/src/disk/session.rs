//! Random work on a logical disk.

use dendro_base::Rng;
use dendro_base::sync::{Arc, Mutex};
use dendro_device::Device;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::model::{ModelState, ModelVersions};
use dendro_disk::testgen::Generator;
use dendro_disk::{
    Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, MAX_PAGE_COUNT, Op, PAGE_SIZE, Reservation,
    View,
};

use super::engine::Engine;
use super::state::{DiskState, DiskSystem};
use crate::system::{Outcome, System};
use crate::trace::Trace;

/// Units under construction at a time, at most: as many threads would have.
const MAX_OPEN_UNITS: usize = 4;

/// Pages of a list that is there before the work begins, at most.
const BALLAST_PAGES: u64 = 256;
/// How far apart the pages of most of these lists are.
const SPARSE_STRIDE: u64 = 32;

/// Changes of a unit that was begun some time ago.
type Unit = (View, Vec<Op<'static>>);

pub(super) struct Session<'a, E: Engine> {
    pub(super) system: &'a DiskSystem<E>,
    pub(super) device: &'a Arc<SimDevice>,
    pub(super) rng: &'a mut Rng,
    generator: Generator,
    /// What is waited for to be durable.
    pub(super) awaited: Vec<Awaited>,
    pub(super) trace: &'a mut Trace<DiskState>,
    units: Vec<Unit>,
    pub(super) life: Life<E::Disk>,
    /// The device is to fail a write or flush, or has done so.
    breaks: bool,
    /// It does, and the disk has noticed.
    failed: bool,
    /// What the commit would have made that failed with it.
    pub(super) doubtful: Option<ModelVersions>,
}

/// A state that somebody waits for to be durable.
pub(super) struct Awaited {
    pub(super) entry: usize,
    /// Whether it has become so, once that was told.
    pub(super) told: Arc<Mutex<Option<bool>>>,
}

/// A disk from its opening on.
pub(super) struct Life<D> {
    pub(super) disk: D,
    /// What it holds now.
    pub(super) state: DiskState,
    /// The state that was found when it was opened.
    opened_at: usize,
    /// The numbers of commits since then, and which state each made.
    pub(super) commits: Vec<(CommitSeq, usize)>,
    /// The state that outlasts the end of the process.
    pub(super) written: usize,
}

impl<D> Life<D> {
    /// The state that the disk is in.
    pub(super) fn newest(&self) -> usize {
        self.commits.last().map_or(self.opened_at, |&(_, entry)| entry)
    }
}

/// Opens the disk, and does `step_count` steps.
pub(super) fn run<E: Engine>(
    system: &DiskSystem<E>,
    device: &Arc<SimDevice>,
    rng: &mut Rng,
    step_count: usize,
    trace: &mut Trace<DiskState>,
) -> Outcome<()> {
    let generator = Generator::new(rng.fork(), system.profile.clone());
    system.restore_faults(device);
    let life = open(system, device, trace)?;
    let mut session = Session::begin(system, device, rng, generator, trace, life);
    session.load_ballast().map_err(|message| format!("loading the ballast: {message}"))?;
    let break_at = session.rng.chance(15).then(|| session.rng.below(step_count as u64 + 1));
    for step in 0..step_count {
        if break_at == Some(step as u64) {
            session.break_device();
        }
        session = session.step().map_err(|message| format!("step {step}: {message}"))?;
        if session.failed {
            return session.check_latched();
        }
    }
    system.restore_faults(device);
    session.compare_all()?;
    if session.rng.chance(30) {
        session.shut_down()?;
    }
    Ok(())
}

fn open<E: Engine>(
    system: &DiskSystem<E>,
    device: &Arc<SimDevice>,
    trace: &mut Trace<DiskState>,
) -> Outcome<Life<E::Disk>> {
    let event_count = device.recorded_count();
    let disk = system
        .engine
        .open(Arc::clone(device) as Arc<dyn Device>)
        .map_err(|error| format!("it cannot be opened: {error}"))?;
    let decides = system.engine.decides_when_open();
    let decides_at = if decides { device.recorded_count() } else { event_count };
    let found = system.examine(&disk, &**device)?;
    let is_found = |state: &DiskState| system.is_state(&found, state);
    let entry = trace.reopened(event_count, decides_at, is_found).map_err(|not_found| {
        let (newest, state) =
            trace.allowed(event_count).next_back().expect("one is always allowed");
        format!("{not_found}; unlike state {newest}: {}", system.explain(&found, state))
    })?;
    let state = trace.state(entry).clone();
    Ok(Life { disk, state, opened_at: entry, commits: Vec::new(), written: entry })
}

/// Whether a branch was made from a moment, be it that only snapshots are left of the branch, or
/// another client may have lists of the same numbers.
fn has_forks(contents: &ModelVersions) -> bool {
    let table = contents.table();
    let is_of_fork = |view| table.ancestry(view).len() > 1;
    table.are_clients_several() || table.views().any(is_of_fork)
}

/// What is in a version that there is.
pub(super) fn head_state(contents: &ModelVersions, view: View) -> &ModelState {
    contents.state(view).expect("it is one of the views")
}

/// Puts or deletes hundreds of records of a list, neighbours or anywhere.
fn change_records(rng: &mut Rng, list: Lid) -> Vec<Op<'static>> {
    let count = 1 + rng.below(400);
    let (first, scattered) = (rng.below(2000), rng.chance(50));
    let deletes = rng.chance(40);
    let max_len = 1 << rng.below(9);
    let changes = (first..first + count).map(|next| {
        let index = if scattered { rng.below(3000) } else { next };
        if deletes {
            return Op::DeleteRecord { list, index };
        }
        let mut value = vec![0; 1 + rng.below(max_len) as usize];
        rng.fill(&mut value);
        Op::PutRecord { list, index, value: value.into() }
    });
    changes.collect()
}

/// Writes over hundreds of pages, anywhere in any of the lists.
fn overwrite_pages(rng: &mut Rng, state: &ModelState, lists: &[Lid]) -> Vec<Op<'static>> {
    let count = 1 + rng.below(BALLAST_PAGES);
    let changes = (0..count).filter_map(|_| {
        let list = lists[rng.below(lists.len() as u64) as usize];
        let at = rng.below(BALLAST_PAGES) * SPARSE_STRIDE;
        let (first_page, _) = state.list(list)?.pages(at..MAX_PAGE_COUNT).next()?;
        Some(write_page(rng, list, first_page))
    });
    changes.collect()
}

fn write_page(rng: &mut Rng, list: Lid, first_page: u64) -> Op<'static> {
    let mut data = vec![0; PAGE_SIZE];
    rng.fill(&mut data);
    Op::WritePages { list, first_page, data: data.into() }
}

impl<'a, E: Engine> Session<'a, E> {
    fn step(mut self) -> Outcome<Self> {
        let struck_count = self.device.struck_count();
        let reads_fail = !self.breaks && self.rng.chance(10);
        if reads_fail {
            self.device.inject(Fault::fail(Call::Read).nth(1 + self.rng.below(8)));
        }
        self = self.act()?;
        self.hear();
        if reads_fail && !self.failed {
            let has_struck = self.device.struck_count() > struck_count;
            self.system.restore_faults(self.device);
            if has_struck {
                // Whatever was answered, nothing has changed by it.
                self.compare_some()?;
            }
        }
        Ok(self)
    }

    fn act(mut self) -> Outcome<Self> {
        if self.rng.chance(self.system.versions_percent) {
            self.change_versions()?;
            return Ok(self);
        }
        match self.rng.below(100) {
            0..30 => self.begin_unit(),
            30..70 => self.commit_any()?,
            70..80 => self.flush()?,
            80..92 => {
                match self.system.engine.background(&self.life.disk, self.rng) {
                    // What could not be read has changed nothing.
                    Err(message) if message.starts_with("reading") && self.has_struck() => {}
                    Err(error) => self.notice(&format!("background work failed: {error}"))?,
                    Ok(()) => {}
                }
            }
            92..97 => match self.compare_some() {
                // A read that fails may say so, but not answer anything else.
                Err(message) if message.starts_with("reading") && self.has_struck() => {}
                outcome => outcome?,
            },
            97 => self.units.clear(),
            98 => {
                self.shut_down()?;
                if !self.failed {
                    return self.reopen();
                }
            }
            _ => return self.reopen(),
        }
        Ok(self)
    }

    /// A head.
    pub(super) fn draw_head(&mut self) -> View {
        let mut branches = self.life.state.contents.table().branches();
        let at = self.rng.below(branches.len() as u64) as usize;
        branches.nth(at).expect("it is one of them").head()
    }

    /// Anything that can be read.
    pub(super) fn draw_view(&mut self) -> View {
        let views: Vec<View> = self.life.state.contents.table().views().collect();
        views[self.rng.below(views.len() as u64) as usize]
    }

    /// Whether any fault has struck that can make calls fail.
    pub(super) fn has_struck(&self) -> bool {
        !self.system.loses_flushes && self.device.struck_count() > 0
    }

    /// Writes what is to be there before the work begins, if nothing is there yet. Less fits on
    /// some disks: then some of it is deleted again.
    fn load_ballast(&mut self) -> Outcome<()> {
        if self.life.state.highest_list > Lid(0) {
            return Ok(());
        }
        let mut rest_bytes = self.system.ballast_bytes;
        while rest_bytes > 0 {
            let list = self.life.disk.allocate_list().map_err(|error| error.to_string())?;
            // Pages far apart have a chunk of the map each.
            let stride = if self.rng.chance(70) { SPARSE_STRIDE } else { 1 };
            let create = Op::CreateList { list, hints: ListHints::default() };
            let mut unit = vec![create];
            let page_count = 1 + self.rng.below(BALLAST_PAGES);
            for at in 0..page_count {
                unit.push(write_page(self.rng, list, at * stride));
            }
            rest_bytes = rest_bytes.saturating_sub(page_count * PAGE_SIZE as u64);
            let view = self.life.state.contents.table().main_head();
            self.units.push((view, unit));
            self.commit_any()?;
            if self.rng.chance(10) {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn begin_unit(&mut self) {
        if self.units.len() < MAX_OPEN_UNITS {
            if self.rng.chance(self.system.bulk_percent)
                && let Some(unit) = self.bulk_unit()
            {
                self.units.push(unit);
                return;
            }
            if self.system.versions_percent > 0
                && self.rng.chance(2)
                && let Some(unit) = self.restoring_unit()
            {
                self.units.push(unit);
                return;
            }
            let view = self.draw_head();
            let (disk, state) = (&self.life.disk, &self.life.state);
            let is_first = state.contents.table().kind_of(view.branch).is_none();
            let (rng, highest) = (&mut *self.rng, state.highest_list.0);
            let mut number = || match is_first || rng.chance(20) {
                true => disk.allocate_list().ok(),
                // A client may have any, those of other clients among them.
                false => Some(Lid(1 + rng.below(highest + 2))),
            };
            let state = head_state(&state.contents, view);
            let unit = self.generator.unit(state, &mut number);
            self.units.push((view, unit));
        }
    }

    /// Makes a list that another version has in a head that has none of its number.
    fn restoring_unit(&mut self) -> Option<Unit> {
        let (view, other) = (self.draw_head(), self.draw_view());
        let contents = &self.life.state.contents;
        let state = head_state(contents, view);
        let others = contents.state(other).ok()?.lists(Lid(0)).map(|(list, _)| list);
        let lost: Vec<Lid> = others.filter(|list| state.list(*list).is_none()).collect();
        let list = *lost.get(self.rng.below(lost.len().max(1) as u64) as usize)?;
        let restore = Op::RestoreList { list, hints: ListHints::default() };
        let page = self.rng.below(4);
        Some((view, vec![restore, write_page(self.rng, list, page)]))
    }

    /// Hundreds of changes that dirty many nodes of the map: of records of one list, or of the
    /// ballast.
    fn bulk_unit(&mut self) -> Option<Unit> {
        let view = self.draw_head();
        let state = head_state(&self.life.state.contents, view);
        let lists: Vec<Lid> = state.lists(Lid(0)).map(|(list, _)| list).collect();
        let list = *lists.get(self.rng.below(lists.len().max(1) as u64) as usize)?;
        let unit = if self.system.ballast_bytes > 0 && self.rng.chance(50) {
            overwrite_pages(self.rng, state, &lists)
        } else {
            change_records(self.rng, list)
        };
        (!unit.is_empty()).then_some((view, unit))
    }

    fn commit_any(&mut self) -> Outcome<()> {
        if self.units.is_empty() {
            self.begin_unit();
        }
        let which = self.rng.below(self.units.len() as u64) as usize;
        let (view, unit) = self.units.swap_remove(which);
        let mut aru = Aru::new(view);
        if self.rng.chance(20)
            && let Ok(reservation) = self.reserve(view)
        {
            aru.use_reservation(reservation);
        }
        for op in &unit {
            aru.push(op.clone());
        }
        self.set_conditions(&mut aru, &unit)?;
        let event_count = self.device.recorded_count();
        let answer = self.life.disk.commit(aru);
        self.follow_epochs(&unit, event_count);
        let mut after = self.life.state.clone();
        let expected = after.contents.apply(view, &unit);
        for list in unit.iter().filter_map(made_list) {
            after.highest_list = after.highest_list.max(list);
        }
        match (answer, expected) {
            (Ok(seq), Ok(())) => {
                self.life.state = after.clone();
                let entry = self.trace.push(after, event_count);
                if self.life.commits.last().is_some_and(|(last, _)| seq <= *last) {
                    return Err(format!("commit {seq:?} after {:?}", self.life.commits.last()));
                }
                self.life.commits.push((seq, entry));
                Ok(())
            }
            (Err(Error::NoSpace { .. }), Ok(())) => {
                let main = self.life.state.contents.table().main_head();
                self.make_room(main)
            }
            (Err(Error::OverQuota { .. }), _) if self.has_quota(view) => self.bear_refusal(view),
            (Err(answer), Err(expected)) if answer == expected => Ok(()),
            // It would not have fitted either.
            (Err(Error::NoSpace { .. }), Err(_)) => Ok(()),
            // Of several mistakes any may be answered.
            (Err(answer), Err(expected)) if is_mistake(&answer) && is_mistake(&expected) => Ok(()),
            // What branches were made from may have a list that no version has any more, and what a
            // client had of a list may not be removed yet.
            (Err(Error::ListExists(_)), _) if has_forks(&self.life.state.contents) => Ok(()),
            // Nor do they tell which lists a head had.
            (Err(Error::ListExists(_)), Ok(())) if unit.iter().any(restores) => Ok(()),
            // How many entries of a list are left to be removed, the contents do not tell.
            (Err(Error::UnitTooLong), Ok(())) if makes_changed_list_again(&unit) => Ok(()),
            // Nor how many groups the unit has changed before it puts off what comes then.
            (Err(Error::UnitTooLong), Ok(())) if writes_behind_rearranging(&unit) => Ok(()),
            // What the unit builds on could not be read.
            (Err(Error::Io(_)), _) if self.has_struck() => Ok(()),
            (Err(error @ Error::Failed(_)), Ok(())) => {
                self.notice(&format!("a commit failed: {error}"))?;
                // Nobody was told that it worked, but it may have been made, and logged.
                self.trace.push(after.clone(), event_count);
                self.doubtful = Some(after.contents);
                Ok(())
            }
            // The disk may have failed before it looked at the unit.
            (Err(error @ Error::Failed(_)), Err(_)) => {
                self.notice(&format!("a commit failed: {error}"))
            }
            (answer, expected) => {
                Err(format!("a commit answered {answer:?} rather than {expected:?}"))
            }
        }
    }

    /// Ends the epochs that the disk has ended to commit `unit`, whatever became of the unit: one
    /// that makes a list again may end some.
    fn follow_epochs(&mut self, unit: &[Op<'_>], event_count: usize) {
        let has_versions = self.system.versions_percent > 0;
        if !has_versions || unit.iter().find_map(made_list).is_none() {
            return;
        }
        let Some(disk) = self.system.engine.versions(&self.life.disk) else { return };
        let epoch = disk.versions().epoch;
        while self.life.state.contents.table().epoch < epoch {
            self.life.state.contents.end_epoch();
            self.trace.push(self.life.state.clone(), event_count);
        }
    }

    fn reserve(&mut self, view: View) -> dendro_disk::Result<Reservation> {
        let len_bytes = self.rng.below(1 << 20);
        // Which one is not drawn, so that seeds without quotas do what they always did.
        match self.has_quota(view) && len_bytes.is_multiple_of(2) {
            true => self.life.disk.reserve_in(view, len_bytes),
            false => self.life.disk.reserve(len_bytes),
        }
    }

    fn has_quota(&self, view: View) -> bool {
        let table = self.life.state.contents.table();
        table.quota_of(table.client_of(view.branch).0).is_some()
    }

    /// Checks that a unit that was refused for the quota has left nothing, and that lists can be
    /// deleted all the same.
    fn bear_refusal(&mut self, view: View) -> Outcome<()> {
        match self.compare_all() {
            Err(message) if message.starts_with("reading") && self.has_struck() => {}
            outcome => outcome?,
        }
        if self.rng.chance(50) { self.make_room(view) } else { Ok(()) }
    }

    /// Deletes the largest list of a head, which always works.
    fn make_room(&mut self, head: View) -> Outcome<()> {
        let state = head_state(&self.life.state.contents, head);
        let largest = state.lists(Lid(0)).max_by_key(|(_, list)| list.page_count());
        // One unit can be too large for an empty disk.
        let Some((list, _)) = largest else { return Ok(()) };
        let mut aru = Aru::new(head);
        aru.delete_list(list).set_reclaims();
        let mut after = self.life.state.clone();
        after.contents.apply(head, aru.ops()).map_err(|error| error.to_string())?;
        let event_count = self.device.recorded_count();
        let seq = match self.life.disk.commit(aru) {
            Ok(seq) => seq,
            Err(Error::NoSpace { .. }) => {
                let figures = self.system.engine.describe(&self.life.disk);
                return Err(format!("a deletion does not fit: {figures}"));
            }
            Err(Error::Io(_)) if self.has_struck() => return Ok(()),
            Err(error) => {
                self.notice(&format!("a deletion on a full disk failed: {error}"))?;
                self.trace.push(after.clone(), event_count);
                self.doubtful = Some(after.contents);
                return Ok(());
            }
        };
        self.life.state = after.clone();
        let entry = self.trace.push(after, event_count);
        self.life.commits.push((seq, entry));
        Ok(())
    }

    /// Makes the device fail one of its next flushes, some of its next writes, or all writes to a
    /// part of it from now on. Discards, whose failing must not matter, fail from now on.
    fn break_device(&mut self) {
        let fault = match self.rng.below(6) {
            0 => Fault::fail(Call::Flush),
            1 => Fault::fail(Call::Write).times(1 + self.rng.below(12)),
            2 => Fault::fail_write_after(self.rng.below(64 << 10)).times(1 + self.rng.below(12)),
            _ => {
                let len_bytes = 4096 << self.rng.below(9);
                let start = self.rng.below(self.device.len_bytes());
                let torn = Fault::fail_write_after(self.rng.below(64 << 10));
                torn.within(start..start + len_bytes).forever()
            }
        };
        self.device.inject(fault.nth(1 + self.rng.below(4)));
        self.device.inject(Fault::fail(Call::Discard).forever());
        self.breaks = true;
    }

    /// Takes an error for what it is when the device fails and the disk has latched.
    pub(super) fn notice(&mut self, message: &str) -> Outcome<()> {
        self.failed = self.has_struck() && self.life.disk.read_only_reason().is_some();
        if self.failed { Ok(()) } else { Err(message.to_owned()) }
    }

    /// A disk that met an error of the device reads on, and never says again that something is
    /// durable.
    fn check_latched(self) -> Outcome<()> {
        self.device.clear_faults();
        if let Err(message) = self.compare_all() {
            match self.system.read(&self.life.disk) {
                Ok(found) if self.doubtful.as_ref() == Some(&found) => {}
                // A unit stopped half-way, and must not be seen.
                Err(Error::Failed(_)) if self.doubtful.is_some() => {}
                answer => {
                    return Err(format!("after a device error: {message}; {:?}", answer.err()));
                }
            }
        }
        let disk = &self.life.disk;
        let mut aru = Aru::new(self.life.state.contents.table().main_head());
        aru.create_list(Lid(1 << 40), ListHints::default());
        let answers = [
            disk.commit(aru).map(drop),
            disk.flush(CommitSeq::LATEST),
            disk.shut_down(),
            disk.flush(CommitSeq::LATEST),
        ];
        match answers.iter().position(|answer| !matches!(answer, Err(Error::Failed(_)))) {
            None => Ok(()),
            Some(which) => Err(format!("call {which} after a device error: {answers:?}")),
        }
    }

    fn shut_down(&mut self) -> Outcome<()> {
        if let Err(error) = self.life.disk.shut_down() {
            return self.notice(&format!("the shutdown failed: {error}"));
        }
        self.trace.promise(self.life.newest(), self.device.recorded_count());
        if self.breaks {
            return Ok(());
        }
        self.system.restore_faults(self.device);
        let verified = self.system.engine.verify(&**self.device);
        verified.map_err(|error| format!("inconsistent after the shutdown: {error}"))
    }

    /// A session on a disk that was just opened, whose device works.
    fn begin(
        system: &'a DiskSystem<E>,
        device: &'a Arc<SimDevice>,
        rng: &'a mut Rng,
        generator: Generator,
        trace: &'a mut Trace<DiskState>,
        life: Life<E::Disk>,
    ) -> Self {
        Self {
            system,
            device,
            rng,
            generator,
            awaited: Vec::new(),
            trace,
            units: Vec::new(),
            life,
            breaks: false,
            failed: false,
            doubtful: None,
        }
    }

    /// Leaves the disk as a process does that is killed (or has shut it down), and opens it anew.
    fn reopen(self) -> Outcome<Self> {
        let Session { system, device, rng, generator, trace, life, .. } = self;
        // What a failed flush has doomed would be there and not be there. A set flushes when it is
        // dropped.
        system.restore_faults(device);
        let written = life.written;
        drop(life);
        let life =
            open(system, device, trace).map_err(|message| format!("opened again: {message}"))?;
        // Where nothing had to be written, an earlier state that is the same is found.
        let is_same = |entry| trace.state(entry).contents == life.state.contents;
        if life.opened_at < written && !is_same(written) {
            return Err(format!("state {} was written, and found {}", written, life.opened_at));
        }
        Ok(Session::begin(system, device, rng, generator, trace, life))
    }
}

/// Whether a unit is refused because it is wrong.
const fn is_mistake(error: &Error) -> bool {
    matches!(
        error,
        Error::NoSuchList(_)
            | Error::ListExists(_)
            | Error::RecordTooLong(_)
            | Error::OutOfRange { .. }
            | Error::UnitTooLong
    )
}

const fn restores(op: &Op<'_>) -> bool {
    matches!(op, Op::RestoreList { .. })
}

/// The list that `op` makes.
const fn made_list(op: &Op<'_>) -> Option<Lid> {
    match op {
        Op::CreateList { list, .. } | Op::RestoreList { list, .. } => Some(*list),
        _ => None,
    }
}

/// Whether a unit changes something before it deletes a list and creates it again.
fn makes_changed_list_again(unit: &[Op<'_>]) -> bool {
    unit.iter().enumerate().any(|(at, op)| {
        let Op::CreateList { list: made, .. } = op else { return false };
        let is_deletion = |op: &Op<'_>| matches!(op, Op::DeleteList { list } if list == made);
        let last = unit[..at].iter().rposition(is_deletion);
        last.is_some_and(|last| !unit[..last].is_empty())
    })
}

/// Whether a unit writes or zeroes pages of a list, or deletes it, behind a change of the list's
/// pages that a large unit puts off.
fn writes_behind_rearranging(unit: &[Op<'_>]) -> bool {
    let is_put_off = |op: &&Op<'_>| {
        matches!(op, Op::PunchPages { .. } | Op::MovePages { .. } | Op::SwapPages { .. })
    };
    unit.iter().enumerate().any(|(at, op)| {
        let (Op::WritePages { list, .. }
        | Op::WriteBytes { list, .. }
        | Op::ZeroPages { list, .. }
        | Op::DeleteList { list }) = op
        else {
            return false;
        };
        unit[..at].iter().filter(is_put_off).any(|op| {
            let (a, b) = op.lists();
            a == *list || b == *list
        })
    })
}
