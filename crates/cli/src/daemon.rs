//! The process behind a mount, from opening the volume to its clean end.
//!
//! Of all of dendrofs, threads are started here alone. Beside those that serve FUSE requests:
//!
//! | thread       | what it does                                                     |
//! |--------------|------------------------------------------------------------------|
//! | `writer`     | writes full buffers of the log                                   |
//! | `background` | checkpoints, cleans, also for later when nobody writes           |
//! | `commit`     | makes the tail of the log durable every few seconds              |
//! | `control-N`  | answer at the control socket                                     |
//! | `waits`      | answers those who wait there for segments to become few          |
//! | `signals`    | unmounts at Ctrl-C or SIGTERM                                    |
//!
//! The end always comes in the same order: the mount goes away (by umount(8), a signal, or the
//! control socket), the threads stop, the disk is shut down, the device's lock is released with the
//! process. A kill -9 is a crash, and the next mount recovers.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::Duration;

use dendro_base::sync::{Condvar, Mutex};
use dendro_base::{Clock, SystemClock};
use dendro_control::cleaning::{
    Block, Blocks, BlocksRequest, CleanerChange, CleanerSettings, Cleaning, Marked, Places,
    Present, Released, Segments, SegmentsRequest,
};
use dendro_control::versions::{VersionsReply, VersionsRequest};
use dendro_control::{
    Admin, AdminError, Client, Facts, MountInfo, Pong, Server, VolumeInfo, socket,
};
use dendro_disk::LogicalDisk;
use dendro_fs::AtimePolicy;
use dendro_fuse::{Access, Mount, MountOptions as FuseOptions, UnmountMode, unmount};
use dendro_versions::Retention;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cleaning::service;
use crate::counters;
use crate::failure::Failure;
use crate::mount_options::MountOptions;
use crate::mount_table;
use crate::target;
use crate::versions::Automatic;
use crate::volume::Volume;

/// How long the writer waits for a buffer before it looks whether it is to stop.
const WRITER_WAIT: Duration = Duration::from_millis(50);
/// How long the background thread rests when there is nothing to do, unless a commit wakes it.
const BACKGROUND_REST: Duration = Duration::from_millis(100);
/// After so many rests in which nobody wrote, what can be cleaned for later is.
const IDLE_RESTS: u32 = 10;
/// How long a thread rests after an error, which does not go away.
const ERROR_REST: Duration = Duration::from_secs(1);
/// Requests that wait for the device, as a cleaner's do, must not keep others from being answered.
const CONTROL_THREADS: usize = 6;

/// What to mount where. Both paths are absolute and without symbolic links.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) source: PathBuf,
    pub(crate) mount_point: PathBuf,
    pub(crate) options: MountOptions,
}

/// Mounts, calls `on_ready`, serves until the volume is unmounted, and shuts it down.
pub(crate) fn run(config: &Config, on_ready: impl FnOnce()) -> Result<(), Failure> {
    // Caught from here on, so that no signal ends the process while it has a mount.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let is_mounted = refuse_second_mount(config)?;
    let volume = Volume::open(&config.source, &config.options, is_mounted)?;
    let report = |operation: &str, error: &_| log::error!("{operation}: {error}");
    let mount = Mount::new(
        Arc::clone(volume.fs()),
        &config.mount_point,
        &fuse_options(config),
        Arc::new(report),
    )
    .inspect_err(|_| {
        // Nothing was written; the error that matters is why it is not mounted.
        let _ = volume.fs().shut_down();
    })?;
    let daemon = Daemon {
        volume: &volume,
        mount_point: config.mount_point.clone(),
        since_unix_s: SystemClock.now().secs(),
        transport: mount.transport().to_string(),
        stop: Stop::default(),
    };
    let server = match Server::bind(&socket::directory(), &volume.uuid().to_string()) {
        Ok(server) => Some(server),
        Err(error) => {
            log::warn!("no control socket, so `dendro sync` and the like do not work: {error}");
            None
        }
    };
    let signals_handle = signals.handle();
    let served = thread::scope(|scope| {
        let started = daemon.start_threads(scope, config, server.as_ref());
        let started = started.and_then(|()| {
            spawn(scope, "signals", || {
                for _ in &mut signals {
                    daemon.unmount_on_signal();
                }
            })
        });
        if started.is_ok() {
            on_ready();
            match mount.why_no_uring() {
                None => log::info!("requests come over {}", daemon.transport),
                Some(why) => log::info!("requests come by {}: {why}", daemon.transport),
            }
        } else {
            let _ = unmount(&config.mount_point, UnmountMode::Detach);
        }
        let served = mount.serve();
        daemon.stop.set();
        signals_handle.close();
        if let Some(server) = &server {
            server.stop();
        }
        started.and(served)
    });
    drop(server);
    let shut_down = volume.fs().shut_down();
    served.map_err(|error| {
        Failure::new(format_args!("{}: serving ended: {error}", config.mount_point.display()))
    })?;
    shut_down.map_err(|error| {
        Failure::new(format_args!(
            "{}: could not be shut down cleanly, the next mount recovers it: {error}",
            config.source.display()
        ))
    })
}

/// Whether a daemon serves the volume; that it does so for writing is an error here already, with
/// a better message than the lock's.
fn refuse_second_mount(config: &Config) -> Result<bool, Failure> {
    let table = mount_table::read()?;
    let holder = Client::all()
        .into_iter()
        .find(|(_, pong)| target::is_same_file(Path::new(&pong.source), &config.source));
    let Some((client, pong)) = holder else { return Ok(false) };
    let is_there = table
        .iter()
        .any(|entry| entry.is_dendro() && entry.mount_point == Path::new(&pong.mount_point));
    if !is_there {
        // Unmounted, and about to end.
        return Ok(false);
    }
    let is_read_only =
        client.info().is_ok_and(|info| info.mount.is_some_and(|mount| mount.read_only.is_some()));
    if is_read_only && config.options.read_only {
        return Ok(true);
    }
    Err(Failure::new(format_args!(
        "{} is mounted already, on {} (process {}); unmount it first",
        config.source.display(),
        pong.mount_point,
        pong.pid
    )))
}

fn fuse_options(config: &Config) -> FuseOptions {
    let options = &config.options;
    let for_everyone = rustix::process::geteuid().is_root();
    FuseOptions {
        source: match &options.fs_name {
            Some(name) => name.clone(),
            None => config.source.display().to_string(),
        },
        read_only: options.read_only,
        access: options.access.unwrap_or(if for_everyone { Access::All } else { Access::Owner }),
        dev: options.dev,
        suid: options.suid,
        exec: options.exec,
        sync: options.sync,
        noatime: options.atime == AtimePolicy::Noatime,
        threads: options.threads,
        transport: options.transport,
        enable_uring: options.enable_uring,
    }
}

/// Starts a thread that is waited for at the end of `scope`.
fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn_scoped(scope, work).map(|_| ())
}

/// What all threads share.
struct Daemon<'volume> {
    volume: &'volume Volume,
    mount_point: PathBuf,
    since_unix_s: i64,
    /// Which way requests come.
    transport: String,
    stop: Stop,
}

impl Daemon<'_> {
    fn start_threads<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        config: &Config,
        server: Option<&'scope Server>,
    ) -> io::Result<()> {
        if !config.options.read_only {
            let interval = config.options.commit_interval;
            let retain = config.options.retain.clone();
            spawn(scope, "writer", || self.write())?;
            spawn(scope, "background", || self.work_in_background())?;
            spawn(scope, "commit", move || self.commit_at_intervals(interval, retain))?;
        }
        if let Some(server) = server {
            for number in 0..CONTROL_THREADS {
                spawn(scope, &format!("control-{number}"), move || server.run(self))?;
            }
            spawn(scope, "waits", move || server.run_waits(self))?;
        }
        Ok(())
    }

    fn write(&self) {
        let mut failing = Failing::new("writing the log");
        while !self.stop.is_set() {
            if failing.note(self.volume.disk().write_step(WRITER_WAIT)).is_none() {
                self.stop.wait(ERROR_REST);
            }
        }
    }

    fn work_in_background(&self) {
        let mut failing = Failing::new("background work");
        let disk = self.volume.disk();
        let (mut last_commit, mut quiet_rests) = (0, 0);
        loop {
            let done = match disk.background_step() {
                Ok(false) if quiet_rests >= IDLE_RESTS => disk.idle_step(),
                other => other,
            };
            let is_rest = match failing.note(done) {
                Some(true) => false,
                Some(false) => {
                    disk.wait_for_background_work(BACKGROUND_REST);
                    true
                }
                None => {
                    self.stop.wait(ERROR_REST);
                    true
                }
            };
            if self.stop.is_set() {
                return;
            }
            let commit = disk.stats().commit_seq;
            if std::mem::replace(&mut last_commit, commit) != commit {
                quiet_rests = 0;
            } else if is_rest {
                quiet_rests += 1;
            }
        }
    }

    fn commit_at_intervals(&self, interval: Duration, retain: Option<Retention>) {
        let mut failing = Failing::new("making the log durable");
        let mut failing_snapshots = Failing::new("keeping how it was");
        let (disk, view) = (self.volume.disk(), self.volume.fs().view());
        let mut automatic = retain.map(|rule| Automatic::new(rule, view));
        while !self.stop.wait(interval) {
            if let Some(automatic) = &mut automatic {
                failing_snapshots.note(automatic.tick(disk, SystemClock.now()));
            }
            failing.note(self.volume.commit());
        }
    }

    /// Ctrl-C and SIGTERM: everything accepted is kept, and files that are open are no reason to
    /// stay.
    fn unmount_on_signal(&self) {
        // Pages that programs have mapped and changed are in the kernel still.
        let synced = File::open(&self.mount_point).map(|root| rustix::fs::syncfs(&root));
        if let Ok(Err(error)) = synced {
            log::error!("changes to mapped files are lost: {error}");
        }
        let unmounted = unmount(&self.mount_point, UnmountMode::Idle).or_else(|error| {
            log::warn!("{error}; cutting it off");
            unmount(&self.mount_point, UnmountMode::Abort)
        });
        if let Err(error) = unmounted {
            log::error!("{error}");
        }
    }
}

impl Admin for Daemon<'_> {
    fn ping(&self) -> Pong {
        Pong {
            software: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uuid: self.volume.uuid().to_string(),
            source: self.volume.source().display().to_string(),
            mount_point: self.mount_point.display().to_string(),
        }
    }

    fn info(&self) -> Result<VolumeInfo, AdminError> {
        let mut info = self.volume.info();
        info.mount = Some(MountInfo {
            mount_point: self.mount_point.display().to_string(),
            pid: std::process::id(),
            software: env!("CARGO_PKG_VERSION").into(),
            read_only: self.volume.disk().read_only_reason(),
            since_unix_s: self.since_unix_s,
            transport: self.transport.clone(),
            // The one who asks knows.
            socket: String::new(),
        });
        Ok(info)
    }

    fn stat(&self) -> Result<Facts, AdminError> {
        Ok(self.volume.stat())
    }

    fn metrics(&self) -> Result<String, AdminError> {
        let source = self.volume.source().display().to_string();
        let mount_point = self.mount_point.display().to_string();
        Ok(counters::metrics(self.volume.disk(), &source, &mount_point))
    }

    fn change_cleaner(&self, change: &CleanerChange) -> Result<CleanerSettings, AdminError> {
        service::change_cleaner(self.volume.disk(), change)
    }

    fn versions(&self, request: &VersionsRequest) -> Result<VersionsReply, AdminError> {
        self.volume.versions().answer(request)
    }

    fn sync(&self) -> Result<(), AdminError> {
        self.volume.fs().sync_all().map_err(|error| AdminError(error.to_string()))
    }

    fn shut_down(&self) -> Result<(), AdminError> {
        unmount(&self.mount_point, UnmountMode::Idle).map_err(|error| AdminError(error.to_string()))
    }
}

impl Cleaning for Daemon<'_> {
    fn present(&self) -> Present {
        service::present(self.volume.disk())
    }

    fn segments(&self, request: &SegmentsRequest) -> Result<Segments, AdminError> {
        Ok(service::segments(self.volume.disk(), request))
    }

    fn blocks(&self, request: &BlocksRequest) -> Result<Blocks, AdminError> {
        service::blocks(self.volume.disk(), request)
    }

    fn bmapv(&self, blocks: &[Block]) -> Result<Places, AdminError> {
        service::bmapv(self.volume.disk(), blocks)
    }

    fn markv(&self, blocks: &[Block]) -> Result<Marked, AdminError> {
        service::markv(self.volume.disk(), blocks)
    }

    fn segclean(&self, segments: &[u32]) -> Result<Released, AdminError> {
        service::segclean(self.volume.disk(), segments)
    }
}

/// Says once that something has begun to fail, and once that it goes on again.
struct Failing {
    what: &'static str,
    is_failing: bool,
}

impl Failing {
    const fn new(what: &'static str) -> Self {
        Self { what, is_failing: false }
    }

    fn note<T>(&mut self, answer: Result<T, dendro_disk::Error>) -> Option<T> {
        let was_failing = std::mem::replace(&mut self.is_failing, answer.is_err());
        match answer {
            Ok(value) => {
                if was_failing {
                    log::info!("{} works again", self.what);
                }
                Some(value)
            }
            Err(error) => {
                if !was_failing {
                    log::error!("{}: {error}", self.what);
                }
                None
            }
        }
    }
}

/// Tells threads to end, and lets them sleep until then.
#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    fn is_set(&self) -> bool {
        *self.is_set.lock()
    }

    /// Waits for at most `timeout`; whether it is set.
    fn wait(&self, timeout: Duration) -> bool {
        let mut is_set = self.is_set.lock();
        if !*is_set && !timeout.is_zero() {
            // Waking up early does no harm to any of the threads.
            let _ = self.changed.wait_for(&mut is_set, timeout);
        }
        *is_set
    }
}
