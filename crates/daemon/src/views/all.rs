//! All mounts of a daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dendro_base::sync::{Condvar, Mutex};
use dendro_control::MountNamed;
use dendro_fuse::Mount;

use super::view::MountedView;

/// The longest wait for the end of a mount, and the number of waits.
const GONE_WAIT: Duration = Duration::from_millis(100);

const GONE_WAITS: u32 = 300;

#[derive(Default)]
struct State {
    /// All mounts, served or about to be; the oldest first.
    all: Vec<Arc<MountedView>>,
    /// Mounts that no thread serves yet.
    unserved: Vec<(Mount, Arc<MountedView>)>,
    /// How many mounts are about to be added.
    arriving: usize,
    is_ending: bool,
}

/// All mounts of a daemon.
#[derive(Default)]
pub(crate) struct Views {
    state: Mutex<State>,
    changed: Condvar,
    last_id: AtomicU64,
}

/// The daemon does not end while this value exists.
pub(crate) struct Arrival<'a>(&'a Views);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.state.lock().arriving -= 1;
        self.0.changed.notify_all();
    }
}

impl Views {
    /// A number that no earlier mount had.
    pub(crate) fn new_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Announces a mount. `None`: the daemon is about to end, which it is when all its mounts are
    /// closing. It may have failed, and the new mount is to open the volume again, with its own
    /// options.
    pub(crate) fn arrive(&self) -> Option<Arrival<'_>> {
        let mut state = self.state.lock();
        let goes = |view: &Arc<MountedView>| view.is_closing();
        state.is_ending |=
            state.arriving == 0 && !state.all.is_empty() && state.all.iter().all(goes);
        if state.is_ending {
            return None;
        }
        state.arriving += 1;
        Some(Arrival(self))
    }

    /// Adds a mount, which the caller of [`Self::next`] serves.
    pub(crate) fn add(&self, mount: Mount, view: MountedView) -> Arc<MountedView> {
        let view = Arc::new(view);
        let mut state = self.state.lock();
        state.all.push(Arc::clone(&view));
        state.unserved.push((mount, Arc::clone(&view)));
        self.changed.notify_all();
        view
    }

    /// Waits for a mount that no thread serves yet. `None`: all mounts have ended, and no more will
    /// come.
    pub(crate) fn next(&self) -> Option<(Mount, Arc<MountedView>)> {
        let mut state = self.state.lock();
        loop {
            if let Some(next) = state.unserved.pop() {
                return Some(next);
            }
            if state.all.is_empty() && state.arriving == 0 {
                state.is_ending = true;
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Whether all mounts except the ending one with this number have ended; then no other will
    /// come. Waits for those that are ending too.
    pub(crate) fn end_with_last(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        for _ in 0..GONE_WAITS {
            let others = || state.all.iter().filter(|view| view.id() != id);
            if state.arriving > 0 || others().any(|view| !view.is_closing()) {
                return false;
            }
            if others().next().is_none() {
                state.is_ending = true;
                return true;
            }
            let _ = self.changed.wait_for(&mut state, GONE_WAIT);
        }
        false
    }

    /// Removes a mount that has ended.
    pub(crate) fn remove(&self, view: &Arc<MountedView>) {
        self.state.lock().all.retain(|other| !Arc::ptr_eq(other, view));
        self.changed.notify_all();
    }

    /// Waits, for a limited time, until the ending mounts that `matter` are closed; returns whether
    /// they are.
    pub(crate) fn settle(&self, matter: impl Fn(&MountedView) -> bool) -> bool {
        let mut state = self.state.lock();
        for _ in 0..GONE_WAITS {
            if !state.all.iter().any(|view| view.is_closing() && matter(view)) {
                return true;
            }
            let _ = self.changed.wait_for(&mut state, GONE_WAIT);
        }
        false
    }

    /// All mounts, the oldest first; none if the last one is about to end.
    pub(crate) fn all(&self) -> Vec<Arc<MountedView>> {
        let state = self.state.lock();
        let is_there = |view: &&Arc<MountedView>| !state.is_ending && !view.is_closing();
        state.all.iter().filter(is_there).cloned().collect()
    }

    /// All mounts and those that are closing, the oldest first.
    pub(crate) fn all_open(&self) -> Vec<Arc<MountedView>> {
        self.state.lock().all.clone()
    }

    /// The mount that a request names, if it is there.
    pub(crate) fn find(&self, mount: MountNamed<'_>) -> Option<Arc<MountedView>> {
        self.all().into_iter().find(|view| match mount {
            MountNamed::View(id) => view.id() == id,
            MountNamed::Device(device) => view.device() == device,
        })
    }
}
