//! The process behind all mounts of a volume, from opening it to its clean end.
//!
//! Of all of dendrofs, threads are started here alone. Beside those that serve FUSE requests:
//!
//! | thread       | what it does                                                     |
//! |--------------|------------------------------------------------------------------|
//! | `view`       | sees one mount to its end, and closes its file system            |
//! | `writer`     | writes full buffers of the log                                   |
//! | `background` | checkpoints, cleans, when nobody writes also for later, and then |
//! |              | puts together what lies scattered                                |
//! | `cleaner`    | cleans beside it when segments get few; both give way to others  |
//! | `commit`     | makes the tail of the log durable every few seconds              |
//! | `control-N`  | answer at the control socket                                     |
//! | `metrics`    | answers at the port of metrics=                                  |
//! | `damage`     | tells of blocks that are not as they were written, see [`mod@damage`]|
//! | `waits`      | answers those who wait there for segments to become few          |
//! | `signals`    | unmounts at Ctrl-C or SIGTERM                                    |
//!
//! The end always comes in the same order: the last mount goes away (by umount(8), a signal, or the
//! control socket), the threads stop, the disk is shut down, the device's lock is released with the
//! process. A kill -9 is a crash, and the next mount recovers.
//!
//! - [`views`]: which mounts there are. [`admin`]: what is answered at the control socket.
//! - [`others`]: what other users are answered there. [`lending`]: mounts that are made for these.
//! - [`options`]: which are in force, and how they are changed.
//! - [`pace`]: when threads rest, what they say of failures, and how they are told to end.
//! - [`succession`]: another head in the place of one that is mounted; [`open_files`]: who has files
//!   open there.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::{self, Scope};
use std::time::Duration;

use dendro_base::sync::Mutex;
use dendro_base::{Clock, SystemClock, Uuid};
use dendro_control::{Scrape, Server, farewell, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::damage::DamageTable;
use crate::failure::Failure;
use crate::mount_config::Config;
use crate::serving::not_shut_down;
use crate::state::Daemon;
use crate::threads::{Stop, spawn};
use crate::volume::{BlockSource, LAST_DAEMON_GRACE, NotOpened, Volume, random_bytes};
use crate::{holder, mounts};

/// Threads that write the log. While one waits for the device another hands it the next: who has to tell
/// that a write is done, as a loop device's thread, may wait for the CPU.
const WRITERS: usize = 2;

/// Requests that wait for the device, as a cleaner's do, must not keep others from being answered.
const CONTROL_THREADS: usize = 6;

/// How long to wait for the device before looking whether a daemon serves the volume by now.
const LOCK_WAIT: Duration = Duration::from_millis(250);

/// Why nothing was mounted, or what went wrong later.
pub enum NotServed {
    /// Another daemon has the volume, and can serve the mount.
    ByThis,
    /// Anything else.
    Failed(Failure),
}

impl<T: Into<Failure>> From<T> for NotServed {
    fn from(failure: T) -> Self {
        Self::Failed(failure.into())
    }
}

/// Mounts, calls `on_ready`, serves until all views of the volume are unmounted, and shuts it down.
pub fn run(config: &Config, on_ready: impl FnOnce()) -> Result<(), NotServed> {
    raise_descriptor_limit();
    dendro_device::share_one_arena();
    // Caught from here on, so that no signal ends the process while it has a mount.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    if holder::answering(&config.source)?.is_some() {
        return Err(NotServed::ByThis);
    }
    let block = BlockSource::new(&config.source, &config.options)?;
    let volume = open_volume(config, &block)?;
    // Before anything is mounted: what cannot be had as it was asked for is said.
    let scrape = config.options.metrics.map(Scrape::bind).transpose().map_err(|error| {
        Failure::new(format_args!("mount option metrics=: {error}; name another port"))
    });
    let scrape = scrape.inspect_err(|_| {
        let _ = volume.shut_down();
    })?;
    let daemon = Daemon {
        volume: &volume,
        name: Uuid::from_random(random_bytes()?).to_string(),
        socket: OnceLock::new(),
        gate: OnceLock::new(),
        card: Mutex::default(),
        mount_point: config.mount_point.clone(),
        since: SystemClock.now(),
        timings: Arc::default(),
        namespace: mounts::namespace(),
        views: Arc::default(),
        options: Mutex::new(config.options.clone()),
        changes: Mutex::default(),
        damage: DamageTable::of(&volume),
        failure: Mutex::default(),
        waits_for_room: AtomicBool::default(),
        stop: Stop::default(),
    };
    let how_requests_come = daemon.mount_first(config, &block).inspect_err(|_| {
        // Nothing was written; the error that matters is why it is not mounted.
        let _ = volume.shut_down();
    })?;
    let server = match Server::bind(&socket::directory(), &volume.uuid().to_string()) {
        Ok(server) => Some(server),
        Err(error) => {
            log::warn!("no control socket, so `dendro sync` and the like do not work: {error}");
            None
        }
    };
    if let Some(server) = &server {
        let _ = daemon.socket.set(server.path().to_path_buf());
        let _ = daemon.gate.set(server.gate());
        daemon.leave_card();
    }
    let signals_handle = signals.handle();
    let started = thread::scope(|scope| {
        let started = daemon.start_threads(scope, server.as_ref(), scrape.as_ref());
        let started = started.and_then(|()| {
            spawn(scope, "signals", || {
                for _ in &mut signals {
                    daemon.unmount_on_signal();
                }
            })
        });
        match &started {
            Ok(()) => {
                on_ready();
                log::info!("{how_requests_come}");
            }
            Err(_) => daemon.detach_all(),
        }
        while let Some((mount, view)) = daemon.views.next() {
            daemon.start_serving(scope, mount, view);
        }
        daemon.stop.set();
        daemon.volume.disk().end_waiting();
        daemon.volume.disk().damage().end_waiting();
        signals_handle.close();
        if let Some(server) = &server {
            server.stop();
        }
        if let Some(scrape) = &scrape {
            scrape.stop();
        }
        started
    });
    let socket = server.map(|server| server.path().to_path_buf());
    let shut_down =
        volume.shut_down().map_err(|error| Failure::new(not_shut_down(&volume, &error)));
    if let (Err(failure), Some(socket)) = (&shut_down, &socket) {
        // Where that fails the log has it.
        let _ = farewell::leave(socket, &failure.message);
    }
    started?;
    if let Some(failure) = daemon.failure.into_inner() {
        return Err(failure.into());
    }
    Ok(shut_down?)
}

/// Allows as many open descriptors as this process may have: each mount takes some for each thread, and
/// the usual limit would be met by some fifty.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Where that fails, mounts fail that are too many, and say why.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Opens the volume, and waits for a daemon that is about to end.
fn open_volume(config: &Config, block: &BlockSource) -> Result<Volume, NotServed> {
    let mut waited = Duration::ZERO;
    loop {
        if holder::answering(&config.source)?.is_some() {
            return Err(NotServed::ByThis);
        }
        match Volume::open(&config.source, &block.path, &config.options, LOCK_WAIT) {
            Ok(volume) => return Ok(volume),
            Err(NotOpened::InUse(_)) if waited < LAST_DAEMON_GRACE => waited += LOCK_WAIT,
            Err(NotOpened::InUse(failure) | NotOpened::Failed(failure)) => {
                return Err(failure.into());
            }
        }
    }
}

impl Daemon<'_> {
    fn start_threads<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        server: Option<&'scope Server>,
        scrape: Option<&'scope Scrape>,
    ) -> io::Result<()> {
        if let Some(scrape) = scrape {
            spawn(scope, "metrics", move || scrape.run(self))?;
        }
        if !self.volume.is_read_only() {
            for number in 0..WRITERS {
                spawn(scope, &format!("writer-{number}"), || self.write_log())?;
            }
            spawn(scope, "background", || self.work_in_background())?;
            spawn(scope, "cleaner", || self.clean())?;
            spawn(scope, "commit", || self.commit_at_intervals())?;
        }
        spawn(scope, "damage", || self.watch_damage())?;
        if let Some(server) = server {
            for number in 0..CONTROL_THREADS {
                spawn(scope, &format!("control-{number}"), move || server.run(self))?;
            }
            spawn(scope, "waits", move || server.run_waits(self))?;
        }
        Ok(())
    }
}
