//! Random calls of a file system.

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::LogicalDisk;
use dendro_fs::testing::{Driver, Generator, Model, Step};

use super::script::{Act, Script};
use super::state::{FsState, FsSystem, Mounted, tree_of, verify};
use crate::disk::Engine;
use crate::system::{Outcome, System};
use crate::trace::Trace;

/// `ENOSPC`.
pub(crate) const NO_SPACE: i32 = 28;

struct Session<'a, E: Engine> {
    system: &'a FsSystem<E>,
    device: &'a Arc<SimDevice>,
    rng: &'a mut Rng,
    trace: &'a mut Trace<FsState>,
    generator: Generator,
    /// The number of the last step.
    number: u64,
    mounted: Mounted<E::Disk>,
    driver: Driver,
    model: Model,
    script: Script,
    /// The state that the file system is in.
    newest: usize,
    /// The device fails, or is full.
    ended: bool,
}

/// Mounts, and does `step_count` steps.
pub(super) fn run<E: Engine>(
    system: &FsSystem<E>,
    device: &Arc<SimDevice>,
    rng: &mut Rng,
    step_count: usize,
    trace: &mut Trace<FsState>,
) -> Outcome<()> {
    device.clear_faults();
    let generator = Generator::new(rng.next_u64(), system.profile.clone());
    // Times must be later than those of the work before; how much there was is not known here.
    let first_number = u64::from(trace.last() > 0) * (1_000_000 + rng.below(1_000_000_000));
    let opened = open(system, device, trace)?;
    let mut session = Session {
        system,
        device,
        rng,
        trace,
        generator,
        number: first_number,
        mounted: opened.mounted,
        driver: opened.driver,
        model: opened.model,
        script: opened.script,
        newest: opened.newest,
        ended: false,
    };
    let break_at = session.rng.chance(15).then(|| session.rng.below(step_count as u64 + 1));
    for count in 0..step_count {
        if break_at == Some(count as u64) {
            let call = if session.rng.chance(50) { Call::Write } else { Call::Flush };
            device.inject(Fault::fail(call).nth(1 + session.rng.below(4)));
        }
        session.step().map_err(|message| format!("step {count}: {message}"))?;
        if session.ended {
            return Ok(());
        }
    }
    device.clear_faults();
    session.compare()?;
    if session.rng.chance(30) {
        session.shut_down()?;
    }
    Ok(())
}

struct Opened<D> {
    mounted: Mounted<D>,
    driver: Driver,
    model: Model,
    script: Script,
    newest: usize,
}

fn open<E: Engine>(
    system: &FsSystem<E>,
    device: &Arc<SimDevice>,
    trace: &mut Trace<FsState>,
) -> Outcome<Opened<E::Disk>> {
    let event_count = device.recorded_count();
    let mounted = system.mount(device)?;
    let found = tree_of(&mounted.fs)?;
    let is_found = |state: &FsState| system.is_state(&found, state);
    let newest = trace.reopened(event_count, event_count, is_found).map_err(|not_found| {
        let (newest, state) =
            trace.allowed(event_count).next_back().expect("one is always allowed");
        format!("{not_found}; unlike state {newest}: {}", system.explain(&found, state))
    })?;
    let script = trace.state(newest).script.then(Act::CloseAll);
    let model = script.perform();
    let driver = Driver::new(Arc::clone(&mounted.fs));
    Ok(Opened { mounted, driver, model, script, newest })
}

impl<E: Engine> Session<'_, E> {
    fn step(&mut self) -> Outcome<()> {
        match self.rng.below(100) {
            0..75 => self.call()?,
            75..95 => {
                let done = self.system.engine.background(&self.mounted.disk, self.rng);
                done.or_else(|error| self.end(&format!("background work failed: {error}")))?;
            }
            95..98 => self.compare()?,
            98 => {
                self.shut_down()?;
                if !self.ended {
                    self.reopen()?;
                }
            }
            _ => self.reopen()?,
        }
        Ok(())
    }

    fn call(&mut self) -> Outcome<()> {
        let step = self.generator.next(&self.model);
        self.number += 1;
        let now = self.mounted.clock.set_step(self.number);
        let event_count = self.device.recorded_count();
        let mut after = self.model.clone();
        let expected = after.run(&step, now);
        let answer = self.driver.run(&step);
        if answer == Err(NO_SPACE) && expected.is_ok() {
            self.ended = true;
            return self.compare();
        }
        if answer != expected {
            // Nobody was told that it worked, but it may have been done.
            self.push(&step, &after, event_count);
            return self.end(&format!("{step:?} answered {answer:?} rather than {expected:?}"));
        }
        self.push(&step, &after, event_count);
        self.model = after;
        if step.operation.is_barrier() && answer.is_ok() {
            self.trace.promise(self.newest, self.device.recorded_count());
        }
        Ok(())
    }

    fn push(&mut self, step: &Step, after: &Model, event_count: usize) {
        self.script = self.script.then(Act::Step(self.number, step.clone()));
        let tree = Arc::new(after.tree());
        let state = FsState { tree, script: self.script.clone() };
        self.newest = self.trace.push(state, event_count);
    }

    /// Takes an error for what it is when the device fails and the disk has latched.
    fn end(&mut self, message: &str) -> Outcome<()> {
        let is_latched = self.mounted.disk.read_only_reason().is_some();
        self.ended = self.device.struck_count() > 0 && is_latched;
        if self.ended { Ok(()) } else { Err(message.to_owned()) }
    }

    fn compare(&mut self) -> Outcome<()> {
        let found = tree_of(&self.mounted.fs)?;
        match found.difference(&self.model.tree()) {
            None => verify(&*self.mounted.disk),
            Some(difference) => Err(format!("without a crash: {difference}")),
        }
    }

    fn shut_down(&mut self) -> Outcome<()> {
        if let Err(error) = self.mounted.fs.shut_down() {
            return self.end(&format!("the shutdown failed: {error}"));
        }
        self.trace.promise(self.newest, self.device.recorded_count());
        let verified = self.system.engine.verify(&**self.device);
        verified.map_err(|error| format!("inconsistent after the shutdown: {error}"))
    }

    /// Leaves the file system as a process does that is killed (or has shut it down), and mounts
    /// it anew.
    fn reopen(&mut self) -> Outcome<()> {
        self.device.clear_faults();
        let opened = open(self.system, self.device, self.trace)
            .map_err(|message| format!("mounted again: {message}"))?;
        (self.mounted, self.driver) = (opened.mounted, opened.driver);
        (self.model, self.script, self.newest) = (opened.model, opened.script, opened.newest);
        Ok(())
    }
}
