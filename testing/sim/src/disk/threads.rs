//! Work on one disk by several threads at the same time.
//!
//! What happens in which order follows from no seed here. But the numbers of the commits say what
//! order it was, and that gives the states that a crash may leave.

pub mod crowded;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dendro_base::Rng;
use dendro_base::sync::{Arc, Mutex};
use dendro_device::Device;
use dendro_device::sim::SimDevice;
use dendro_disk::model::{ModelState, apply};
use dendro_disk::testgen::Generator;
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, Op, View};

use super::engine::Engine;
use super::state::{DiskState, DiskSystem};
use crate::crash::{Failure, Run};
use crate::system::{Outcome, System};
use crate::trace::Trace;

/// A commit that was accepted.
struct Committed {
    seq: CommitSeq,
    /// How many events had happened, at least, when it began.
    event_count: usize,
    ops: Vec<Op<'static>>,
}

/// A flush that worked: how many events had happened, at most, when it returned, and what it
/// covers.
type Flushed = (usize, CommitSeq);

#[derive(Default)]
struct Log {
    commits: Mutex<Vec<Committed>>,
    flushes: Mutex<Vec<Flushed>>,
    /// The highest commit that has returned.
    returned: AtomicU64,
}

/// Formats a device and lets `thread_count` threads commit `unit_count` units each, while another
/// does background work. Each has lists of its own and changes a list of all in every unit.
///
/// # Errors
/// The work itself failed, without any crash.
pub fn record<E: Engine>(
    system: &DiskSystem<E>,
    seed: u64,
    device_len_bytes: u64,
    thread_count: u64,
    unit_count: u64,
) -> Result<Run<DiskState>, Failure> {
    let attempt = || {
        let mut rng = Rng::new(seed);
        let device = Arc::new(SimDevice::new(device_len_bytes, rng.next_u64()));
        let empty = system.format(&device)?;
        device.start_recording();
        let disk = system.engine.open(Arc::clone(&device) as Arc<dyn Device>)?;
        let log = Log::default();
        let shared = create_shared(&disk, &device, &log)?;
        let workers = (0..thread_count).map(|number| {
            let rng = rng.fork();
            (Worker { system, disk: &disk, device: &device, log: &log, shared, number }, rng)
        });
        work_together(workers.collect(), unit_count)?;
        let trace = log.into_trace(empty)?;
        let last = trace.state(trace.last());
        let found =
            ModelState::read_from(&disk).map_err(|error| format!("reading failed: {error}"))?;
        if let Some(difference) = found.diff(last.contents.main()) {
            return Err(format!("without a crash: {difference}"));
        }
        let recording = device.take_recording().ok_or("the recording was taken")?;
        Ok(Run { seed, recording, trace })
    };
    attempt().map_err(|message| Failure { seed, crash: None, message })
}

/// Lets all work at the same time, with background work beside them.
fn work_together<E: Engine>(workers: Vec<(Worker<'_, E>, Rng)>, unit_count: u64) -> Outcome<()> {
    let Some((first, rng)) = workers.first() else { return Ok(()) };
    let (system, disk, mut background_rng) = (first.system, first.disk, rng.clone().fork());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let background = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                system.engine.background(disk, &mut background_rng)?;
                std::thread::yield_now();
            }
            Ok(())
        });
        let threads: Vec<_> = workers
            .iter()
            .map(|(worker, rng)| scope.spawn(|| worker.work(rng.clone(), unit_count)))
            .collect();
        let outcomes: Vec<Outcome<()>> = threads.into_iter().map(joined).collect();
        done.store(true, Ordering::Relaxed);
        joined(background)?;
        outcomes.into_iter().collect()
    })
}

fn joined(thread: std::thread::ScopedJoinHandle<'_, Outcome<()>>) -> Outcome<()> {
    thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
}

fn create_shared(disk: &dyn LogicalDisk, device: &SimDevice, log: &Log) -> Outcome<Lid> {
    let list = disk.allocate_list().map_err(|error| error.to_string())?;
    log.commit(disk, device, vec![Op::CreateList { list, hints: ListHints::default() }], false)
        .map_err(|error| error.to_string())?;
    Ok(list)
}

struct Worker<'a, E: Engine> {
    system: &'a DiskSystem<E>,
    disk: &'a E::Disk,
    device: &'a SimDevice,
    log: &'a Log,
    shared: Lid,
    number: u64,
}

impl<E: Engine> Worker<'_, E> {
    fn work(&self, mut rng: Rng, unit_count: u64) -> Outcome<()> {
        let mut generator = Generator::new(rng.fork(), self.system.profile.clone());
        // Nobody else touches this thread's lists, so it knows what they hold.
        let mut own = ModelState::default();
        for round in 0..unit_count {
            let mut ops = generator.unit(&own, &mut || self.disk.allocate_list().ok());
            let expected = apply(&mut own, &ops);
            let tag = [self.number.to_le_bytes(), round.to_le_bytes()].concat();
            for index in [0, 1 + self.number] {
                ops.push(Op::PutRecord { list: self.shared, index, value: tag.clone().into() });
            }
            let answer = self.log.commit(self.disk, self.device, ops, false);
            match (&answer, &expected) {
                (Ok(_), Ok(())) => {}
                (Err(answer), Err(expected)) if answer == expected => {}
                _ => {
                    let space = self.disk.space();
                    return Err(format!(
                        "a commit answered {answer:?}, not {expected:?}; {space:?}"
                    ));
                }
            }
            if rng.chance(15) {
                let asked = (!rng.chance(50)).then_some(CommitSeq::LATEST);
                let flushed = self.log.flush(self.disk, self.device, asked);
                flushed.map_err(|error| format!("a flush failed: {error}"))?;
            }
        }
        Ok(())
    }
}

impl Log {
    fn commit(
        &self,
        disk: &dyn LogicalDisk,
        device: &SimDevice,
        ops: Vec<Op<'static>>,
        reclaims: bool,
    ) -> Result<CommitSeq, Error> {
        let mut aru = Aru::new(View::HEAD);
        for op in &ops {
            aru.push(op.clone());
        }
        if reclaims {
            aru.set_reclaims();
        }
        let event_count = device.recorded_count();
        let seq = disk.commit(aru)?;
        self.returned.fetch_max(seq.0, Ordering::AcqRel);
        self.commits.lock().push(Committed { seq, event_count, ops });
        Ok(seq)
    }

    /// Flushes all that has returned, or more if that is `asked` for.
    fn flush(
        &self,
        disk: &dyn LogicalDisk,
        device: &SimDevice,
        asked: Option<CommitSeq>,
    ) -> Result<(), Error> {
        let seq = CommitSeq(self.returned.load(Ordering::Acquire));
        disk.flush(asked.unwrap_or(seq))?;
        self.flushes.lock().push((device.recorded_count(), seq));
        Ok(())
    }

    /// The states, in the order of the commits' numbers.
    fn into_trace(self, empty: DiskState) -> Outcome<Trace<DiskState>> {
        let mut commits = self.commits.into_inner();
        commits.sort_by_key(|commit| commit.seq);
        let mut state = empty.clone();
        let mut trace = Trace::new(empty);
        let mut event_count = 0;
        let mut entries = Vec::new();
        for commit in commits {
            let head = state.contents.table().main_head();
            state.contents.apply(head, &commit.ops).map_err(|error| error.to_string())?;
            for op in &commit.ops {
                if let Op::CreateList { list, .. } = op {
                    state.highest_list = state.highest_list.max(*list);
                }
            }
            // A state is there when the last of the commits up to it is.
            event_count = event_count.max(commit.event_count);
            entries.push((commit.seq, trace.push(state.clone(), event_count)));
        }
        let mut flushes = self.flushes.into_inner();
        flushes.sort_unstable();
        for (event_count, seq) in flushes {
            if let Ok(at) = entries.binary_search_by_key(&seq, |&(seq, _)| seq) {
                trace.promise(entries[at].1, event_count);
            }
        }
        Ok(trace)
    }
}
