//! How writers are slowed down, and background work is woken, when clean segments get few.

use std::time::Duration;

use dendro_base::Timestamp;
use dendro_base::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use dendro_base::sync::{Condvar, Mutex};
use dendro_disk::Result;

use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::options::CleanSettings;

/// The most steps of background work that one commit does.
const MAX_ASSIST_STEPS: usize = 8;

/// The room that commits owe to cleaning, and how long commits have waited.
#[derive(Debug)]
pub(crate) struct Pacing {
    settings: Mutex<CleanSettings>,
    owed_bytes: AtomicI64,
    stalled_ns: AtomicU64,
    work: Mutex<Work>,
    due: Condvar,
}

/// The state that threads wait on for background work.
#[derive(Debug)]
struct Work {
    /// Whether work has become due since a thread last waited for it.
    is_due: bool,
    /// Whether waiting has ended for good.
    is_ending: bool,
}

impl Pacing {
    pub(crate) const fn new(settings: CleanSettings) -> Self {
        Self {
            settings: Mutex::new(settings),
            owed_bytes: AtomicI64::new(0),
            stalled_ns: AtomicU64::new(0),
            work: Mutex::new(Work { is_due: false, is_ending: false }),
            due: Condvar::new(),
        }
    }

    fn wake(&self) {
        self.work.lock().is_due = true;
        self.due.notify_all();
    }

    /// How long commits have waited for room, all together.
    pub(crate) fn stalled(&self) -> Duration {
        Duration::from_nanos(self.stalled_ns.load(Ordering::Relaxed))
    }

    pub(super) fn note_stall(&self, began: Timestamp, ended: Timestamp) {
        let waited_ns = ended.since(began).as_nanos() as u64;
        self.stalled_ns.fetch_add(waited_ns, Ordering::Relaxed);
    }

    /// Adds to what is owed, and returns the sum.
    fn owe(&self, bytes: i64) -> i64 {
        self.owed_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    fn forgive(&self) {
        self.owed_bytes.store(0, Ordering::Relaxed);
    }
}

impl LogDisk {
    /// The settings of background cleaning.
    pub fn clean_settings(&self) -> CleanSettings {
        *self.pacing.settings.lock()
    }

    /// Changes the settings of background cleaning.
    pub fn set_clean_settings(&self, settings: CleanSettings) {
        *self.pacing.settings.lock() = settings;
    }

    /// Waits up to `timeout` until background work is due. It is for the threads that do this work,
    /// when [`Self::background_step`] or [`Self::clean_step`] had nothing to do.
    pub fn wait_for_background_work(&self, timeout: Duration) {
        let mut work = self.pacing.work.lock();
        if !work.is_due && !work.is_ending {
            let _ = self.pacing.due.wait_for(&mut work, timeout);
        }
        work.is_due = false;
    }

    /// Ends all waits in [`Self::write_step`] and [`Self::wait_for_background_work`], now and
    /// later, so that the threads that call them can end.
    pub fn end_waiting(&self) {
        self.volume.writer().end_waiting();
        self.pacing.work.lock().is_ending = true;
        self.pacing.due.notify_all();
    }

    /// Wakes the thread that does background work, if there is work. It is called when the log has
    /// grown.
    pub(crate) fn wake_background(&self, engine: &Engine) {
        if self.checkpoint_is_due_in(engine)
            || self.room_is_short(engine, 0)
            || self.reuse_is_wanted(engine)
        {
            self.pacing.wake();
        }
    }

    /// The room that a commit which took `bytes` should make itself. It is nothing while clean
    /// segments are many, and grows as they get fewer, up to twice what the commit took. So commits
    /// are slowed down gradually, long before one would have to stop.
    pub(crate) fn share_of_cleaning(&self, engine: &Engine, bytes: u64) -> i64 {
        let size = self.volume.layout().segment_size_bytes();
        let window = u64::from(self.pace_segments() + 2) * size;
        let room = engine.room_bytes(self.checkpoint_reserve(engine) + self.reclaim_reserve());
        let pending = u64::from(engine.state.segments.counts().pending) * size;
        let missing = window.saturating_sub(room + pending);
        (u128::from(2 * bytes) * u128::from(missing) / u128::from(window)) as i64
    }

    /// Performs background work until it has made so much room, or until there is nothing to do.
    pub(crate) fn assist_cleaning(&self, owed_bytes: i64) -> Result<()> {
        let began = self.volume.now();
        let mut owed = self.pacing.owe(owed_bytes);
        for _ in 0..MAX_ASSIST_STEPS {
            if owed <= 0 {
                break;
            }
            let Some(gained) = self.clean_for_room()? else {
                // There is nothing to gain now, and later commits do not have to make up for it.
                self.pacing.forgive();
                break;
            };
            owed = self.pacing.owe(-gained);
        }
        self.pacing.note_stall(began, self.volume.now());
        Ok(())
    }
}
