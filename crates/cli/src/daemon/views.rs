//! The mounts that a daemon serves.
//!
//! Each has a file system of its own, open on its view of the volume, and threads of its own. The
//! daemon ends when the last of them is gone. One that arrives after that is told so, and its
//! command starts another daemon.
//!
//! A mount that the kernel has unmounted is *closing* until all that was written to it is on the device.
//! From the first moment on it is no mount any more to those who ask: its device number may be that of
//! another file system by then. What must not happen beside it waits for it, or is refused.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dendro_base::sync::{Condvar, Mutex};
use dendro_control::{MountNamed, ViewInfo};
use dendro_disk::View;
use dendro_fs::FileSystem;
use dendro_fuse::{Mount, Switch, UnmountMode, unmount};
use dendro_logdisk::LogDisk;

use super::lending;
use crate::mount_options::MountOptions;
use crate::versions::Automatic;
use crate::volume;

/// How long one wait for the end of a mount lasts at most, and how many there are.
const GONE_WAIT: Duration = Duration::from_millis(100);
const GONE_WAITS: u32 = 300;

/// Closes a file system when its mount goes, once.
pub(crate) struct Closing {
    switch: Switch,
    /// The mount is gone, or goes.
    has_begun: AtomicBool,
    state: Mutex<Closed>,
}

#[derive(Default)]
struct Closed {
    outcome: Option<Result<(), String>>,
    has_shut_down: bool,
}

impl Closing {
    /// Closes what the mount shows by then.
    pub(crate) fn new(switch: Switch) -> Self {
        Self { switch, has_begun: AtomicBool::default(), state: Mutex::default() }
    }

    /// Nobody shall take the mount for one that is there any more.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::Release);
    }

    /// Whether the mount is gone, or goes.
    fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire) || !self.switch.is_mounted()
    }

    /// Closes it, unless that has been done, and then shuts down the disk that `disk` names, if any.
    pub(crate) fn close<'a>(
        &self,
        disk: impl FnOnce() -> Option<&'a LogDisk>,
    ) -> Result<(), String> {
        self.begin();
        let mut state = self.state.lock();
        if let Some(outcome) = &state.outcome {
            return outcome.clone();
        }
        let mut outcome = self.switch.fs().close().map_err(|error| error.to_string());
        if let (Ok(()), Some(disk)) = (&outcome, disk()) {
            outcome = volume::shut_down(disk).map_err(|error| error.to_string());
            state.has_shut_down = true;
        }
        state.outcome = Some(outcome.clone());
        outcome
    }

    /// Whether the disk has been shut down with it.
    pub(crate) fn has_shut_down(&self) -> bool {
        self.state.lock().has_shut_down
    }
}

/// A view, mounted.
pub(crate) struct MountedView {
    /// Which it is of all that the daemon has ever served.
    pub(crate) id: u64,
    /// Shows another file system in it.
    pub(crate) switch: Switch,
    /// How it was mounted, and has been changed since.
    pub(crate) options: Mutex<MountOptions>,
    /// What the kernel was told when it was remounted, as far as it was.
    pub(crate) told: Mutex<Vec<String>>,
    pub(crate) closing: Arc<Closing>,
    /// It is mounted as a block device, which the mount has claimed.
    pub(crate) is_fuseblk: bool,
    pub(crate) mount_point: PathBuf,
    /// The mounted file system's number, as the table of mounts has it.
    pub(crate) device: String,
    /// The mount's own number, which is never given again, where the kernel has those.
    pub(crate) mount_id: Option<u64>,
    /// The mount namespace in which it was mounted.
    pub(crate) namespace: String,
    /// That is another one than this process's, in which the mount point means something else.
    pub(crate) is_elsewhere: bool,
    pub(crate) since_unix_s: i64,
    /// Which way requests come.
    pub(crate) transport: String,
    /// The user for whom the daemon has mounted it.
    pub(crate) lent_to: Option<u32>,
    /// Keeps how it was.
    pub(crate) automatic: Mutex<Option<Automatic>>,
}

impl MountedView {
    /// What it shows.
    pub(crate) fn fs(&self) -> Arc<FileSystem> {
        self.switch.fs()
    }

    /// Which version of the disk that is.
    pub(crate) fn view(&self) -> View {
        self.fs().view()
    }

    /// Whether the kernel has unmounted it.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.has_begun()
    }

    /// Whether its mount point leads to it from here: not in another mount namespace, nor where a user may
    /// have put something else in the way.
    pub(crate) const fn is_at_hand(&self) -> bool {
        !self.is_elsewhere && self.lent_to.is_none()
    }

    /// Unmounts it, as far as that can be done from here.
    pub(crate) fn unmount(&self, mode: UnmountMode) -> Result<(), String> {
        let done = match self.lent_to {
            _ if self.is_elsewhere => return Ok(()),
            None => unmount(&self.mount_point, mode).map_err(|error| error.to_string()),
            Some(_) => lending::unmount(self, mode),
        };
        // What is gone is gone.
        done.or_else(|why| if self.is_closing() { Ok(()) } else { Err(why) })
    }

    /// Where it is, for messages.
    pub(crate) fn place(&self) -> String {
        let note = match (self.is_closing(), self.is_elsewhere) {
            (true, _) => ", from where it is just being unmounted",
            (false, true) => " (in another mount namespace)",
            (false, false) => "",
        };
        format!("{}{note}", self.mount_point.display())
    }

    /// What can be told without waiting for anything.
    pub(crate) fn info(&self) -> ViewInfo {
        let View { branch, epoch } = self.view();
        ViewInfo {
            id: self.id,
            mount_point: self.mount_point.display().to_string(),
            device: self.device.clone(),
            mount_id: self.mount_id,
            namespace: self.namespace.clone(),
            branch,
            epoch,
            is_main: false,
            version: String::new(),
            read_only: self.fs().is_read_only().then(|| "mounted so".into()),
            since_unix_s: self.since_unix_s,
            transport: self.transport.clone(),
            options: Vec::new(),
        }
    }
}

#[derive(Default)]
struct State {
    /// Those that are served, and those that will be next; the oldest first.
    all: Vec<Arc<MountedView>>,
    /// Those that nobody serves yet.
    unserved: Vec<(Mount, Arc<MountedView>)>,
    /// How many may be added any moment.
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

/// As long as it is there, the daemon does not end.
pub(crate) struct Arrival<'a>(&'a Views);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.state.lock().arriving -= 1;
        self.0.changed.notify_all();
    }
}

impl Views {
    /// A number that no mount had before.
    pub(crate) fn new_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Announces a mount; `None` when the daemon is about to end, as it is when all its mounts are
    /// closing: it may have failed, and who mounts now is to open the volume anew, with options of
    /// their own.
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

    /// Adds a mount, to be served by whoever asks for the [`Self::next`] one.
    pub(crate) fn add(&self, mount: Mount, view: MountedView) -> Arc<MountedView> {
        let view = Arc::new(view);
        let mut state = self.state.lock();
        state.all.push(Arc::clone(&view));
        state.unserved.push((mount, Arc::clone(&view)));
        self.changed.notify_all();
        view
    }

    /// Waits for a mount that nobody serves yet. `None`: all are gone, and no more will come.
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

    /// Whether all mounts but the one with this number, which is going, are gone. No other will come
    /// then. Waits for those that are going too.
    pub(crate) fn end_with_last(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        for _ in 0..GONE_WAITS {
            let others = || state.all.iter().filter(|view| view.id != id);
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

    /// Forgets a mount that is gone.
    pub(crate) fn remove(&self, view: &Arc<MountedView>) {
        self.state.lock().all.retain(|other| !Arc::ptr_eq(other, view));
        self.changed.notify_all();
    }

    /// Waits until those are closed that `matter` of the mounts that are closing, for as long as that may
    /// take; whether they are.
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

    /// All mounts, the oldest first; none any more when the last one is about to be gone.
    pub(crate) fn all(&self) -> Vec<Arc<MountedView>> {
        let state = self.state.lock();
        let is_there = |view: &&Arc<MountedView>| !state.is_ending && !view.is_closing();
        state.all.iter().filter(is_there).cloned().collect()
    }

    /// All mounts and those that are closing, the oldest first.
    pub(crate) fn all_open(&self) -> Vec<Arc<MountedView>> {
        self.state.lock().all.clone()
    }

    /// The mount that is meant, if it is there.
    pub(crate) fn find(&self, mount: MountNamed<'_>) -> Option<Arc<MountedView>> {
        self.all().into_iter().find(|view| match mount {
            MountNamed::View(id) => view.id == id,
            MountNamed::Device(device) => view.device == device,
        })
    }
}
