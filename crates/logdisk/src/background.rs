//! Background work: what is due, in which order it is done, and how the threads that do it are
//! woken.

use std::time::Duration;

use dendro_base::sync::atomic::{AtomicBool, Ordering};
use dendro_base::sync::{Arc, Condvar, Mutex};
use dendro_disk::Result;

use crate::checkpoint::Checkpointer;
use crate::clean::cleaner::Cleaner;
use crate::engine::Engine;
use crate::rearranger::Rearranger;
use crate::reclaim::no_space::Reclaimer;
use crate::resize::Resizer;
use crate::space::reserve::Accounts;
use crate::space::reuse::Reuse;
use crate::volume::Volume;

/// Does background work.
pub(crate) struct Background {
    volume: Arc<Volume>,
    accounts: Arc<Accounts>,
    checkpointer: Arc<Checkpointer>,
    reuse: Arc<Reuse>,
    cleaner: Arc<Cleaner>,
    reclaimer: Arc<Reclaimer>,
    rearranger: Arc<Rearranger>,
    resizer: Arc<Resizer>,
    /// Whether the next step first looks for entries that no version sees.
    frees_next: AtomicBool,
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

impl Background {
    pub(crate) fn new(
        volume: Arc<Volume>,
        accounts: Arc<Accounts>,
        checkpointer: Arc<Checkpointer>,
        reuse: Arc<Reuse>,
        cleaner: Arc<Cleaner>,
        reclaimer: Arc<Reclaimer>,
        rearranger: Arc<Rearranger>,
    ) -> Self {
        let resizer = Arc::clone(rearranger.resizer());
        Self {
            volume,
            accounts,
            checkpointer,
            reuse,
            cleaner,
            reclaimer,
            rearranger,
            resizer,
            frees_next: AtomicBool::new(false),
            work: Mutex::new(Work { is_due: false, is_ending: false }),
            due: Condvar::new(),
        }
    }

    /// See [`LogDisk::background_step`](crate::LogDisk::background_step).
    pub(crate) fn step(&self) -> Result<bool> {
        if !self.volume.is_writable() {
            return Ok(false);
        }
        if self.accounts.waits_for_host() {
            self.volume.read().state().segments().end_hold();
            self.checkpointer.give_back_all();
            self.volume.write_queued()?;
            self.checkpointer.write_waiting_nodes()?;
        }
        self.give_way(&self.volume.read());
        if self.resizer.grow_early()? || self.reuse.step()? || self.checkpointer.step()? {
            return Ok(true);
        }
        if self.rearranger.step()? {
            return Ok(true);
        }
        // Freeing and cleaning alternate. Where many entries are to be removed from the map,
        // cleaning gains the less the longer freeing waits.
        let frees_first = self.frees_next.fetch_xor(true, Ordering::Relaxed);
        if frees_first && self.reclaimer.free_step()? {
            return Ok(true);
        }
        Ok(self.cleaner.step()?
            || (!frees_first && self.reclaimer.free_step()?)
            || self.checkpointer.give_back_step())
    }

    /// What does what units have put off.
    pub(crate) fn rearranger(&self) -> &Rearranger {
        &self.rearranger
    }

    /// What makes the volume longer by itself.
    pub(crate) fn resizer(&self) -> &Resizer {
        &self.resizer
    }

    /// See [`LogDisk::wait_for_background_work`](crate::LogDisk::wait_for_background_work).
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut work = self.work.lock();
        if !work.is_due && !work.is_ending {
            let _ = self.due.wait_for(&mut work, timeout);
        }
        std::mem::take(&mut work.is_due)
    }

    /// Ends all waits, now and later.
    pub(crate) fn end_waiting(&self) {
        self.work.lock().is_ending = true;
        self.due.notify_all();
    }

    /// Ends the hold on a state if it keeps segments that are needed.
    fn give_way(&self, engine: &Engine) {
        if self.accounts.needs_what_is_held(engine) {
            engine.state().segments().end_hold();
        }
    }

    /// Wakes the threads that do background work, if there is work. It is called when the log has
    /// grown.
    pub(crate) fn wake_if_due(&self, engine: &Engine) {
        self.give_way(engine);
        if self.checkpointer.is_due(engine)
            || self.accounts.room_is_short(engine, 0)
            || self.accounts.fast_is_short(engine)
            || self.accounts.reuse_is_wanted(engine)
            || self.resizer.wants_to_grow(engine)
        {
            self.wake();
        }
    }

    /// Wakes the threads that do background work.
    pub(crate) fn wake(&self) {
        self.work.lock().is_due = true;
        self.due.notify_all();
    }
}
