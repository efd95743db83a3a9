//! Random calls of programs, and hand-overs between them.

use std::collections::{BTreeMap, VecDeque};

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::{LogicalDisk, Versions};
use dendro_fs::testing::{FileRef, Generator, Model, Operation, Pattern, SLOT_COUNT, Step, Tree};
use dendro_fs::{FileKind, Ino, RenameFlags, XattrFlags};

use super::contents::Contents;
use super::kernel::{Bug, Kernel};
use super::state::{CollectedState, CollectedSystem, Found};
use crate::disk::Engine;
use crate::files::{Act, FsState, Mounted, NO_SPACE, Script, verify};
use crate::system::{Outcome, System};
use crate::trace::Trace;

/// More snapshots than these are deleted again: every crash image reads them all.
const MAX_SNAPSHOTS: usize = 2;

/// A name under which a program writes what then replaces another file.
const NEW_NAME: &str = "new";

struct Session<'a, E: Engine> {
    system: &'a CollectedSystem<E>,
    device: &'a Arc<SimDevice>,
    rng: &'a mut Rng,
    trace: &'a mut Trace<CollectedState>,
    generator: Generator,
    /// The calls that come before those of the generator.
    planned: VecDeque<Step>,
    /// The number of the last call or hand-over.
    number: u64,
    life: Life<E::Disk>,
    /// The device fails, or is full.
    ended: bool,
}

/// The file system from being mounted to the next crash.
struct Life<D> {
    mounted: Mounted<D>,
    kernel: Kernel,
    model: Model,
    script: Script,
    /// Files of which a part was handed over before the last crash. They are removed first of all:
    /// the model has the whole.
    partial: BTreeMap<String, Arc<Contents>>,
    snapshots: BTreeMap<u64, Arc<Tree>>,
    /// The state that the file system is in.
    newest: usize,
}

/// Mounts, and does `step_count` steps.
pub(super) fn run<E: Engine>(
    system: &CollectedSystem<E>,
    device: &Arc<SimDevice>,
    rng: &mut Rng,
    step_count: usize,
    trace: &mut Trace<CollectedState>,
) -> Outcome<()> {
    device.clear_faults();
    let generator = Generator::new(rng.next_u64(), system.files.profile.clone());
    // Times must be later than those of the work before; how much there was is not known here.
    let first_number = u64::from(trace.last() > 0) * (1_000_000 + rng.below(1_000_000_000));
    let life = open(system, device, trace)?;
    let mut session = Session {
        system,
        device,
        rng,
        trace,
        generator,
        planned: VecDeque::new(),
        number: first_number,
        life,
        ended: false,
    };
    session.remove_partial()?;
    let break_at = session.rng.chance(15).then(|| session.rng.below(step_count as u64 + 1));
    for count in 0..step_count {
        if session.ended {
            return Ok(());
        }
        if break_at == Some(count as u64) {
            let call = if session.rng.chance(50) { Call::Write } else { Call::Flush };
            device.inject(Fault::fail(call).nth(1 + session.rng.below(4)));
        }
        session.step().map_err(|message| format!("step {count}: {message}"))?;
    }
    if session.ended {
        return Ok(());
    }
    device.clear_faults();
    session.compare()?;
    if session.rng.chance(30) {
        session.shut_down()?;
    }
    Ok(())
}

fn open<E: Engine>(
    system: &CollectedSystem<E>,
    device: &Arc<SimDevice>,
    trace: &mut Trace<CollectedState>,
) -> Outcome<Life<E::Disk>> {
    let event_count = device.recorded_count();
    let mounted = system.files.mount(device)?;
    let found = system.look(&mounted)?;
    let is_found = |state: &CollectedState| system.is_state(&found, state);
    let newest = trace.reopened(event_count, event_count, is_found).map_err(|not_found| {
        let (newest, state) =
            trace.allowed(event_count).next_back().expect("one is always allowed");
        format!("{not_found}; unlike state {newest}: {}", system.explain(&found, state))
    })?;
    let state = trace.state(newest);
    let script = state.seen.script.then(Act::CloseAll);
    let model = script.perform();
    let kernel = Kernel::new(Arc::clone(&mounted.fs), system.bug);
    let (partial, snapshots) = (state.collected.clone(), state.snapshots.clone());
    Ok(Life { mounted, kernel, model, script, partial, snapshots, newest })
}

impl<E: Engine> Session<'_, E> {
    fn step(&mut self) -> Outcome<()> {
        match self.rng.below(100) {
            0..68 => self.call(),
            68..76 => self.hand_over_some(),
            76..79 => self.hand_over_all(),
            79..82 => self.keep_version(),
            82..94 => {
                let engine = &self.system.files.engine;
                let done = engine.background(&self.life.mounted.disk, self.rng);
                done.or_else(|error| self.end(&format!("background work failed: {error}")))
            }
            94..97 => self.compare(),
            97 => {
                self.shut_down()?;
                if self.ended { Ok(()) } else { self.reopen() }
            }
            _ => self.reopen(),
        }
    }

    /// The next call of a program. Programs write to what they have open, and open nothing under a
    /// number that is taken.
    fn next(&mut self) -> Step {
        if self.planned.is_empty() {
            if self.rng.chance(10) {
                self.plan_replacement();
            } else {
                let step = self.generator.next(&self.life.model);
                self.plan(step);
            }
        }
        let step = self.planned.pop_front().expect("something is planned");
        match opens_as(&step.operation) {
            Some(slot) if self.life.model.open_slots().contains(&slot) => {
                let close = Step { operation: Operation::Close { slot }, ..step };
                self.planned.push_front(step);
                close
            }
            _ => step,
        }
    }

    fn plan(&mut self, step: Step) {
        let Step { caller, operation } = step;
        let steps = match operation {
            Operation::Write { file: FileRef::Path(path), offset, data, kill_priv } => {
                let slot = self.any_slot();
                let file = FileRef::Slot(slot);
                vec![
                    Operation::Open { path, slot },
                    Operation::Write { file, offset, data, kill_priv },
                    Operation::Close { slot },
                ]
            }
            other => vec![other],
        };
        let step = |operation| Step { caller, operation };
        self.planned.extend(steps.into_iter().map(step));
    }

    fn any_slot(&mut self) -> usize {
        self.rng.below(SLOT_COUNT as u64) as usize
    }

    /// A file is written, with a capability and fsync at times, closed, and renamed over another.
    fn plan_replacement(&mut self) {
        let paths = self.life.model.paths();
        let files: Vec<&String> = paths
            .iter()
            .filter(|(_, kind)| *kind == FileKind::Regular)
            .map(|(path, _)| path)
            .collect();
        let Some(last) = files.len().checked_sub(1) else {
            let step = self.generator.next(&self.life.model);
            return self.plan(step);
        };
        let to = files[self.rng.below(last as u64 + 1) as usize].clone();
        let (slot, path) = (self.any_slot(), NEW_NAME.to_owned());
        let mut steps = vec![Operation::Create {
            path: path.clone(),
            mode: 0o644,
            exclusive: false,
            slot: Some(slot),
        }];
        for _ in 0..1 + self.rng.below(4) {
            let data = Pattern { len: self.rng.below(9000) as usize, seed: self.rng.next_u64() };
            let offset = self.rng.below(12_000);
            let file = FileRef::Slot(slot);
            steps.push(Operation::Write { file, offset, data, kill_priv: false });
        }
        let file = || FileRef::Slot(slot);
        if self.rng.chance(30) {
            let name = "security.capability".to_owned();
            let value = Pattern { len: 20, seed: self.rng.next_u64() };
            let flags = XattrFlags::empty();
            steps.push(Operation::SetXattr { file: file(), name, value, flags });
        }
        if self.rng.chance(30) {
            steps.push(Operation::Fsync { file: file() });
        }
        steps.push(Operation::Close { slot });
        steps.push(Operation::Rename { from: path, to, flags: RenameFlags::empty() });
        let step = |operation| Step { caller: Default::default(), operation };
        self.planned.extend(steps.into_iter().map(step));
    }

    fn call(&mut self) -> Outcome<()> {
        let step = self.next();
        self.run_step(&step)
    }

    fn run_step(&mut self, step: &Step) -> Outcome<()> {
        self.number += 1;
        let now = self.life.mounted.clock.set_step(self.number);
        let event_count = self.device.recorded_count();
        let mut after = self.life.model.clone();
        let expected = after.run(step, now);
        let answer = self.life.kernel.call(step, &expected, now, self.rng);
        if answer == Err(NO_SPACE) && expected.is_ok() {
            // A part may have been handed over, which the state before allows.
            self.ended = true;
            return Ok(());
        }
        self.life.script = self.life.script.then(Act::Step(self.number, step.clone()));
        self.life.model = after;
        self.push(event_count);
        if answer != expected {
            // Nobody was told that it worked, but it may have been done.
            return self.end(&format!("{step:?} answered {answer:?} rather than {expected:?}"));
        }
        if step.operation.is_barrier() && answer.is_ok() {
            self.trace.promise(self.life.newest, self.device.recorded_count());
        }
        match self.life.kernel.take_cut() {
            Some(ino) => self.hand_over(ino),
            None => Ok(()),
        }
    }

    /// Enters the state that the file system is in now, after a change that began so late.
    fn push(&mut self, event_count: usize) {
        let life = &mut self.life;
        let tree = Arc::new(life.model.tree());
        life.partial.retain(|path, _| tree.nodes.contains_key(path));
        let mut collected = life.partial.clone();
        for slot in life.model.open_slots() {
            let file = FileRef::Slot(slot);
            if let Some(contents) = life.kernel.collected(&file) {
                let paths = life.model.paths_of(&file).into_iter();
                collected.extend(paths.map(|path| (path, Arc::clone(&contents))));
            }
        }
        let seen = FsState { tree, script: life.script.clone() };
        let snapshots = life.snapshots.clone();
        self.life.newest =
            self.trace.push(CollectedState { seen, collected, snapshots }, event_count);
    }

    /// Hands something over, at a time of its own.
    fn hand_over_by(
        &mut self,
        act: impl FnOnce(&mut Kernel, &mut Rng) -> Result<(), i32>,
    ) -> Outcome<()> {
        self.number += 1;
        self.life.mounted.clock.set_step(self.number);
        let event_count = self.device.recorded_count();
        match act(&mut self.life.kernel, self.rng) {
            Ok(()) => {
                self.push(event_count);
                Ok(())
            }
            Err(NO_SPACE) => {
                self.ended = true;
                Ok(())
            }
            Err(number) => self.end(&format!("handing over failed with {number}")),
        }
    }

    fn hand_over(&mut self, ino: Ino) -> Outcome<()> {
        self.hand_over_by(|kernel, rng| kernel.hand_over(ino, 0, rng))
    }

    fn hand_over_some(&mut self) -> Outcome<()> {
        self.hand_over_by(|kernel, rng| kernel.hand_over_some(rng))
    }

    fn hand_over_all(&mut self) -> Outcome<()> {
        let mut files = self.life.kernel.files();
        while !files.is_empty() && !self.ended {
            let ino = files.swap_remove(self.rng.below(files.len() as u64) as usize);
            self.hand_over(ino)?;
        }
        Ok(())
    }

    /// Makes a snapshot when everything has been handed over, or deletes one.
    fn keep_version(&mut self) -> Outcome<()> {
        if self.system.bug != Some(Bug::OldVersions) {
            self.hand_over_all()?;
        }
        let disk = Arc::clone(&self.life.mounted.disk);
        let Some(versions) = self.system.files.engine.versions(&disk) else { return Ok(()) };
        if self.ended {
            return Ok(());
        }
        let event_count = self.device.recorded_count();
        let done = match self.life.snapshots.keys().next().copied() {
            Some(oldest) if self.life.snapshots.len() >= MAX_SNAPSHOTS => {
                self.life.snapshots.remove(&oldest);
                delete(versions, oldest)
            }
            _ => {
                let head = versions.versions().main_head();
                let snapshot = versions.snapshot(head.branch, None);
                let tree = Arc::new(self.life.model.tree());
                snapshot.map(|snapshot| _ = self.life.snapshots.insert(snapshot.epoch, tree))
            }
        };
        match done {
            Ok(()) => self.push(event_count),
            Err(dendro_disk::Error::NoSpace { .. }) => self.ended = true,
            Err(error) => return self.end(&format!("a version: {error}")),
        }
        Ok(())
    }

    /// Takes an error for what it is when the device fails and the disk has latched.
    fn end(&mut self, message: &str) -> Outcome<()> {
        let is_latched = self.life.mounted.disk.read_only_reason().is_some();
        self.ended = self.device.struck_count() > 0 && is_latched;
        if self.ended { Ok(()) } else { Err(message.to_owned()) }
    }

    fn compare(&mut self) -> Outcome<()> {
        let found: Found = self.system.look(&self.life.mounted)?;
        match self.trace.state(self.life.newest).difference(&found) {
            None => verify(&*self.life.mounted.disk),
            Some(difference) => Err(format!("without a crash: {difference}")),
        }
    }

    fn shut_down(&mut self) -> Outcome<()> {
        self.hand_over_all()?;
        if self.ended {
            return Ok(());
        }
        if let Err(error) = self.life.mounted.fs.shut_down() {
            return self.end(&format!("the shutdown failed: {error}"));
        }
        self.trace.promise(self.life.newest, self.device.recorded_count());
        let verified = self.system.files.engine.verify(&**self.device);
        verified.map_err(|error| format!("inconsistent after the shutdown: {error}"))
    }

    /// Leaves the file system as a process does that is killed (or has shut it down), and mounts
    /// it anew. What was collected is lost.
    fn reopen(&mut self) -> Outcome<()> {
        self.device.clear_faults();
        self.planned.clear();
        self.life = open(self.system, self.device, self.trace)
            .map_err(|message| format!("mounted again: {message}"))?;
        self.remove_partial()
    }

    fn remove_partial(&mut self) -> Outcome<()> {
        while let Some((path, _)) = self.life.partial.first_key_value()
            && !self.ended
        {
            let operation = Operation::Unlink { path: path.clone() };
            self.run_step(&Step { caller: Default::default(), operation })?;
        }
        Ok(())
    }
}

fn delete(versions: &dyn Versions, epoch: u64) -> dendro_disk::Result<()> {
    let table = versions.versions();
    let oldest = table.snapshots().find(|snapshot| snapshot.epoch == epoch);
    let oldest = oldest.expect("the table has what was made").view();
    versions.delete(oldest)
}

/// The number under which a call opens a file.
const fn opens_as(operation: &Operation) -> Option<usize> {
    match operation {
        Operation::Create { slot, .. } => *slot,
        Operation::Open { slot, .. } | Operation::Tmpfile { slot, .. } => Some(*slot),
        _ => None,
    }
}
