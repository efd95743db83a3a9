//! The process behind all mounts of a volume, from opening the volume to its clean end.
//!
//! The threads of a daemon, besides those of the transport that serve FUSE requests:
//!
//! | thread       | what it does                                                      |
//! |--------------|-------------------------------------------------------------------|
//! | `view`       | serves one mount to its end, and closes its file system           |
//! | `writer`     | writes full buffers of the log                                    |
//! | `background` | takes checkpoints and cleans; in idle times also in advance, and  |
//! |              | coalesces scattered files                                         |
//! | `cleaner`    | cleans beside it when few segments are clean; both have a low     |
//! |              | priority                                                          |
//! | `commit`     | makes the tail of the log durable every few seconds               |
//! | `collector`  | has the kernel hand over what it collects (`order=close`)         |
//! | `control-N`  | carry out requests at the control socket                          |
//! | `metrics`    | serves the port of metrics=                                       |
//! | `damage`     | records blocks that are not as they were written                  |
//! | `devices`    | brings devices up that lack something                             |
//! | `scrub`      | reads everything and compares it with its checksums, when asked   |
//! | `check`      | checks a frozen state, when asked or after an unclean end         |
//! | `waits`      | answers clients that wait for clean segments to become few        |
//! | `signals`    | unmounts at Ctrl-C or SIGTERM                                     |
//!
//! The end always has the same order: the last mount goes (by umount(8), a signal, or the control
//! socket), the threads stop, the disk is shut down, and the process releases the device's lock. A
//! kill -9 is a crash, from which the next mount recovers.

use std::io;
use std::thread::{self, Scope};
use std::time::Duration;

use dendro_control::{Scrape, Server, closing_error, socket};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::holder;
use crate::limits;
use crate::mount_config::Config;
use crate::serving::not_shut_down;
use crate::state::Daemon;
use crate::threads::spawn;
use crate::volume::devices::check_not_served;
use crate::volume::{BlockSource, LAST_DAEMON_GRACE, NotOpened, Volume};

/// Threads that write the log. While one waits for the device, the other gives it the next buffer:
/// the thread that completes a write, such as a loop device's, may have to wait for the CPU.
const WRITERS: usize = 2;

/// Threads of the control socket. A request that waits for the device, as a cleaner's does, must
/// not delay others. One is occupied as long as block devices are served.
const CONTROL_THREADS: usize = 7;

/// How long to wait for the device before looking for a daemon that serves the volume by now.
const LOCK_WAIT: Duration = Duration::from_millis(250);

/// Why nothing was mounted, or what failed later.
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

/// Mounts, calls `on_ready`, serves until all views of the volume are unmounted, and shuts the
/// volume down.
pub fn run(config: &Config, on_ready: impl FnOnce()) -> Result<(), NotServed> {
    limits::lift();
    dendro_device::share_one_arena();
    // From here on a signal does not end the process while it has a mount.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    if holder::answering(&config.source)?.is_some() {
        return Err(NotServed::ByThis);
    }
    let block = BlockSource::new(&config.source, &config.options)?;
    let volume = open_volume(config, &block)?;
    // This comes before the mount, so that an option that cannot be granted is an error.
    let scrape = bind_metrics(config).inspect_err(|_| {
        let _ = volume.shut_down();
    })?;
    let daemon = Daemon::new(&volume, config)?;
    let how_requests_come = daemon.mount_first(config, &block).inspect_err(|_| {
        // Nothing was written; the error that matters is why the mount failed.
        let _ = volume.shut_down();
    })?;
    let server = bind_control_socket(&volume);
    if let Some(server) = &server {
        daemon.open_control_socket(server);
    }
    let started = daemon.serve_all(server.as_ref(), scrape.as_ref(), signals, || {
        on_ready();
        log::info!("{how_requests_come}");
    });
    let socket = server.map(|server| server.path().to_path_buf());
    let shut_down =
        volume.shut_down().map_err(|error| Failure::new(not_shut_down(&volume, &error)));
    if let (Err(failure), Some(socket)) = (&shut_down, &socket) {
        // If that fails, the message is still in the log.
        let _ = closing_error::record(socket, &failure.message);
    }
    started?;
    match daemon.into_failure() {
        Some(failure) => Err(failure.into()),
        None => Ok(shut_down?),
    }
}

/// The port of the option `metrics=`.
fn bind_metrics(config: &Config) -> Result<Option<Scrape>, Failure> {
    config.options.metrics.map(Scrape::bind).transpose().map_err(|error| {
        Failure::new(format_args!("mount option metrics=: {error}; name another port"))
    })
}

/// The control socket of the volume. A daemon also works without one.
fn bind_control_socket(volume: &Volume) -> Option<Server> {
    match Server::bind(&socket::directory(), &volume.uuid().to_string()) {
        Ok(server) => Some(server),
        Err(error) => {
            log::warn!("no control socket, so `dendro sync` and the like do not work: {error}");
            None
        }
    }
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
            Err(NotOpened::InUse(_)) if waited < LAST_DAEMON_GRACE => {
                check_not_served(&config.source)?;
                waited += LOCK_WAIT;
            }
            Err(NotOpened::InUse(failure) | NotOpened::Failed(failure)) => {
                return Err(failure.into());
            }
        }
    }
}

impl Daemon<'_> {
    /// Starts all threads, calls `on_ready`, and serves until all views of the volume are
    /// unmounted.
    ///
    /// # Errors
    /// A thread could not be started. Then the mounts are detached at once.
    fn serve_all(
        &self,
        server: Option<&Server>,
        scrape: Option<&Scrape>,
        mut signals: Signals,
        on_ready: impl FnOnce(),
    ) -> io::Result<()> {
        let signals_handle = signals.handle();
        thread::scope(|scope| {
            let started = self.start_threads(scope, server, scrape);
            let started = started.and_then(|()| {
                spawn(scope, "signals", || {
                    for _ in &mut signals {
                        self.unmount_on_signal();
                    }
                })
            });
            match &started {
                Ok(()) => on_ready(),
                Err(_) => self.detach_all(),
            }
            while let Some((mount, view)) = self.views.next() {
                self.start_serving(scope, mount, view);
            }
            // What clients of NBD have asked for is done while the threads are there.
            self.block_server.end();
            self.stop.set();
            self.volume.disk().end_waiting();
            self.volume.disk().damage().end_waiting();
            self.scrub.end_waiting();
            self.checks.end_waiting();
            signals_handle.close();
            if let Some(server) = server {
                server.stop();
            }
            if let Some(scrape) = scrape {
                scrape.stop();
            }
            started
        })
    }

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
            spawn(scope, "collector", || self.collect_at_intervals())?;
        }
        spawn(scope, "damage", || self.watch_damage())?;
        spawn(scope, "devices", || self.look_after_devices())?;
        spawn(scope, "scrub", || self.scrub())?;
        if self.options.lock().check && self.volume.disk().was_unclean() {
            self.checks.begin_own();
        }
        spawn(scope, "check", || self.check())?;
        if let Some(server) = server {
            for number in 0..CONTROL_THREADS {
                spawn(scope, &format!("control-{number}"), move || server.run(self))?;
            }
            spawn(scope, "waits", move || server.run_waits(self))?;
        }
        Ok(())
    }
}
