//! The background threads of a volume.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dendro_base::priority;
use dendro_base::sync::{Condvar, Mutex};
use dendro_disk::{CommitSeq, LogicalDisk};
use dendro_logdisk::{CLEANER_NICENESS, LogDisk};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// How often the log is made durable unless another interval is given.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// How long a thread waits for work at a time. It is woken for work and for the end.
const LONG_WAIT: Duration = Duration::from_secs(5);

/// How long it rests after an error.
const ERROR_REST: Duration = Duration::from_secs(1);

/// How long the background thread rests without work. If nothing is changed meanwhile, it cleans
/// segments in advance.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The threads that write the log of a volume, take checkpoints and clean segments, make the log
/// durable at intervals, and copy what a device of a mirrored volume lacks to it. They end when
/// this value is dropped, which is best done before the volume is closed.
///
/// Without them, or [`Volume::step`], nothing is copied to devices. All else happens when changes
/// find no room or ask for it, on the thread that makes the change.
#[derive(Debug)]
pub struct Runner {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads do.
#[derive(Clone, Copy, Debug)]
enum Work {
    Log,
    Commit,
    Clean,
    Background,
}

const WORK_COUNT: usize = 4;

struct Shared {
    disk: Arc<LogDisk>,
    /// Keeps the volume open until the threads have ended.
    volume: Volume,
    commit_interval: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_ending: bool,
    /// The last error of each kind of work, unless that work has succeeded since.
    failures: [Option<dendro_disk::Error>; WORK_COUNT],
    /// What the first panic of a thread says. Its work is not done any more.
    panic: Option<String>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("commit_interval", &self.commit_interval)
            .finish_non_exhaustive()
    }
}

impl Runner {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`Error::HasRunner`]: a volume has one runner, once. [`Error::System`].
    pub fn start(volume: &Volume) -> Result<Self> {
        Self::start_with_interval(volume, COMMIT_INTERVAL)
    }

    /// Starts the threads, which make the log durable after each `commit_interval`. That is how
    /// much can be missing after a crash.
    ///
    /// # Errors
    /// As [`Self::start`]; [`Error::BadOption`] for an interval of no length.
    pub fn start_with_interval(volume: &Volume, commit_interval: Duration) -> Result<Self> {
        if commit_interval.is_zero() {
            return Err(Error::BadOption { why: "the interval between commits is 0".into() });
        }
        if !volume.open_disk().take_runner() {
            return Err(Error::HasRunner);
        }
        let shared = Arc::new(Shared {
            disk: Arc::clone(volume.open_disk().disk()),
            volume: volume.clone(),
            commit_interval,
            state: Mutex::default(),
            changed: Condvar::default(),
        });
        let mut runner = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        // A device takes two writes of the log in less time than one after the other.
        for work in [Work::Log, Work::Log, Work::Commit, Work::Clean, Work::Background] {
            let shared = Arc::clone(&shared);
            let name = format!("dendrofs-{work:?}").to_lowercase();
            // Those that were started end with `runner` if one cannot be.
            let thread = thread::Builder::new().name(name).spawn(move || shared.work(work))?;
            runner.threads.push(thread);
        }
        Ok(runner)
    }

    /// The last error of background work, unless that work has succeeded since. The volume says
    /// by [`Volume::read_only_reason`] whether it takes no more changes because of it.
    ///
    /// [`Error::Panic`] stays: a thread that has panicked has ended, and its work is not done. What
    /// [`disk::LogicalDisk::when_durable`] was given may then be called by the closing of the
    /// volume only.
    ///
    /// [`disk::LogicalDisk::when_durable`]: crate::disk::LogicalDisk::when_durable
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        let state = self.shared.state.lock();
        match &state.panic {
            Some(why) => Some(Error::Panic { why: why.clone() }),
            None => state.failures.iter().flatten().next().cloned().map(Error::Disk),
        }
    }

    /// Ends the threads, and waits for them.
    pub fn stop(self) {}
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.state.lock().is_ending = true;
        self.shared.changed.notify_all();
        self.shared.disk.end_waiting();
        for thread in self.threads.drain(..) {
            // Its panics were noted.
            let _ = thread.join();
        }
    }
}

/// What a panic says.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl Shared {
    fn is_ending(&self) -> bool {
        self.state.lock().is_ending
    }

    /// Waits for at most `timeout`; returns whether the threads are to end.
    fn wait(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_ending {
            let _ = self.changed.wait_for(&mut state, timeout);
        }
        state.is_ending
    }

    /// Notes how a piece of work ended, and rests after an error. Returns its result.
    fn note<T>(&self, work: Work, done: dendro_disk::Result<T>) -> Option<T> {
        match done {
            Ok(value) => {
                self.state.lock().failures[work as usize] = None;
                Some(value)
            }
            Err(error) => {
                let before = self.state.lock().failures[work as usize].replace(error.clone());
                if before.is_none() {
                    log::error!("background work ({work:?}) fails: {error}");
                }
                self.wait(ERROR_REST);
                None
            }
        }
    }

    /// Does the work until the threads are to end. A panic ends it for good: what was left half
    /// done is not to be gone on with.
    fn work(&self, work: Work) {
        let done = catch_unwind(AssertUnwindSafe(|| match work {
            Work::Log => self.write_log(),
            Work::Commit => self.commit(),
            Work::Clean => self.clean(),
            Work::Background => self.work_in_background(),
        }));
        if let Err(panic) = done {
            let why = text_of(&*panic);
            log::error!("a background thread ({work:?}) has panicked: {why}");
            self.state.lock().panic.get_or_insert_with(|| why.to_owned());
        }
    }

    fn write_log(&self) {
        priority::raise_thread();
        while !self.is_ending() {
            self.note(Work::Log, self.disk.write_step(LONG_WAIT));
        }
    }

    fn commit(&self) {
        let mut is_ending = false;
        while !is_ending {
            let flushed = self.disk.flush_for_others(self.commit_interval);
            // The last flush is for what was done just before the end.
            is_ending = self.is_ending();
            let flushed = match flushed {
                Ok(true) if !is_ending => Ok(()),
                _ => self.disk.flush(CommitSeq::LATEST),
            };
            self.note(Work::Commit, flushed);
        }
    }

    fn clean(&self) {
        priority::lower_thread(CLEANER_NICENESS);
        while !self.is_ending() {
            if self.note(Work::Clean, self.disk.clean_step()) == Some(false) {
                self.disk.wait_for_background_work(LONG_WAIT);
            }
        }
    }

    fn work_in_background(&self) {
        priority::lower_thread(CLEANER_NICENESS);
        // Whether nothing was changed while this thread rested last.
        let mut is_quiet = false;
        while !self.is_ending() {
            let done = match self.volume.open_disk().background_step() {
                Ok(false) if is_quiet => self.disk.idle_step(),
                other => other,
            };
            if self.note(Work::Background, done) == Some(false) {
                let before = self.disk.stats().commit_seq;
                self.disk.wait_for_background_work(IDLE_AFTER);
                is_quiet = self.disk.stats().commit_seq == before;
            }
        }
    }
}
