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

mod admin;
mod damage;
mod lending;
mod open_files;
mod options;
mod others;
mod pace;
mod succession;
mod views;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Scope};
use std::time::Duration;

use dendro_base::sync::Mutex;
use dendro_base::{Clock, SystemClock, Timestamp, Uuid};
use dendro_control::{
    Admin, Client, Found, Gate, Mute, Pong, Scrape, Server, card, farewell, socket,
};
use dendro_disk::{Error as DiskError, View};
use dendro_fs::{AtimePolicy, FileSystem, FsError};
use dendro_fuse::{Access, Mount, MountOptions as FuseOptions, Past, Report, Timings, UnmountMode};
use dendro_logdisk::CLEANER_NICENESS;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use rustix::thread::gettid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::block_source::BlockSource;
use crate::failure::Failure;
use crate::mount_identity::MountIdentity;
use crate::mount_options::MountOptions;
use crate::mount_table;
use crate::target;
use crate::versions::Automatic;
use crate::volume::{LAST_DAEMON_GRACE, NotOpened, Volume, random_bytes};
use damage::DamageTable;
use pace::{Failing, Quiet, Stop};
use views::{Closing, MountedView, Views};

/// Threads that write the log. While one waits for the device another hands it the next: who has to tell
/// that a write is done, as a loop device's thread, may wait for the CPU.
const WRITERS: usize = 2;
/// How long a writer waits for a buffer at most. It is woken for one, and when it is to stop.
const WRITER_WAIT: Duration = Duration::from_secs(5);
/// How long the background thread rests when there is nothing to do, unless a commit wakes it.
const BACKGROUND_REST: Duration = Duration::from_millis(100);
/// The same when nothing has happened for a while: a volume that nobody uses should wake no CPU.
const LONG_REST: Duration = Duration::from_secs(1);
/// After so long in which nobody wrote, what can be cleaned for later is.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// How long a thread rests after an error, which does not go away.
const ERROR_REST: Duration = Duration::from_secs(1);
/// How long until a write is tried again for which there was no room below the device.
const ROOM_REST: Duration = Duration::from_millis(250);
/// Requests that wait for the device, as a cleaner's do, must not keep others from being answered.
const CONTROL_THREADS: usize = 6;
/// How long to wait for the device before looking whether a daemon serves the volume by now.
const LOCK_WAIT: Duration = Duration::from_millis(250);

/// What to mount where. Both paths are absolute and without symbolic links.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) source: PathBuf,
    pub(crate) mount_point: PathBuf,
    pub(crate) options: MountOptions,
}

/// Why nothing was mounted, or what went wrong later.
pub(crate) enum NotServed {
    /// Another daemon has the volume, and can serve the mount.
    ByThis,
    Failed(Failure),
}

impl<T: Into<Failure>> From<T> for NotServed {
    fn from(failure: T) -> Self {
        Self::Failed(failure.into())
    }
}

/// Mounts, calls `on_ready`, serves until all views of the volume are unmounted, and shuts it down.
pub(crate) fn run(config: &Config, on_ready: impl FnOnce()) -> Result<(), NotServed> {
    raise_descriptor_limit();
    dendro_device::share_one_arena();
    // Caught from here on, so that no signal ends the process while it has a mount.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    if holder(&config.source)?.is_some() {
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
        namespace: mount_table::namespace(),
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

fn not_shut_down(volume: &Volume, error: &dyn std::fmt::Display) -> String {
    if volume.disk().waits_for_host() {
        return format!(
            "{}, so the last of it could not be written; the next mount recovers what was synced",
            volume.host_is_full()
        );
    }
    format!(
        "{}: could not be shut down cleanly, the next mount recovers it: {error}",
        volume.source().display()
    )
}

/// Opens the volume, and waits for a daemon that is about to end.
fn open_volume(config: &Config, block: &BlockSource) -> Result<Volume, NotServed> {
    let mut waited = Duration::ZERO;
    loop {
        if holder(&config.source)?.is_some() {
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

/// The daemon that has mounts of the volume on `source`. It is an error if that does not answer.
pub(crate) fn holder(source: &Path) -> Result<Option<(Client, Pong)>, Failure> {
    match target::holder(source) {
        Found::Nobody => Ok(None),
        Found::Daemon(found) => Ok(Some(*found)),
        Found::Mute(mute) => Err(mute_failure(source, &mute)),
    }
}

/// Nothing can be mounted of a volume whose daemon is silent.
fn mute_failure(source: &Path, mute: &Mute) -> Failure {
    Failure::new(format_args!("{} is in use: {mute}", source.display()))
}

/// How the kernel and the transport are to treat the mount of `config`.
pub(crate) fn fuse_options(config: &Config) -> FuseOptions {
    let options = &config.options;
    let for_everyone = rustix::process::geteuid().is_root();
    FuseOptions {
        source: match &options.fs_name {
            Some(name) => name.clone(),
            None => mount_table::source_name(&config.source, &options.version),
        },
        read_only: options.read_only,
        access: options.access.unwrap_or(if for_everyone { Access::All } else { Access::Owner }),
        dev: options.dev,
        suid: options.suid,
        exec: options.exec,
        sync: options.sync,
        dirsync: options.dirsync,
        noatime: options.atime == AtimePolicy::Noatime,
        nosymfollow: !options.symfollow,
        block_device: false,
        threads: options.threads,
        transport: options.transport,
        enable_uring: options.enable_uring,
        past: None,
        timings: None,
    }
}

/// Where file systems say what a bare errno does not.
fn report(volume: &Volume) -> Arc<Report> {
    let (disk, _) = volume.parts();
    Arc::new(move |operation: &str, error: &FsError| {
        // Of damaged blocks it is told once, and where they are.
        let is_told = match error {
            FsError::Disk(DiskError::Corrupted(why) | DiskError::Io(why)) => {
                disk.damage().knows(why)
            }
            _ => false,
        };
        if !is_told {
            log::error!("{operation}: {error}");
        }
    })
}

/// Lets others have the CPU before this thread. That it may not is no reason not to clean.
fn give_way() {
    let _ = setpriority_process(Some(gettid()), CLEANER_NICENESS);
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
    /// Tells this run from all others.
    name: String,
    /// The control socket, if there is one.
    socket: OnceLock<PathBuf>,
    gate: OnceLock<Gate>,
    /// Held while the card beside it is written.
    card: Mutex<()>,
    /// The first mount's.
    mount_point: PathBuf,
    since: Timestamp,
    /// How long requests took, those of all mounts.
    timings: Arc<Timings>,
    /// The mount namespace of this process.
    namespace: String,
    views: Arc<Views>,
    /// The options that hold for the whole volume: the first mount's, and what was changed since.
    options: Mutex<MountOptions>,
    /// Held while a view is being mounted, and while versions are taken away.
    changes: Mutex<()>,
    /// Blocks that were met damaged.
    damage: DamageTable,
    /// What went wrong first.
    failure: Mutex<Option<Failure>>,
    /// Whether it was said that what is below the device is full.
    waits_for_room: AtomicBool,
    stop: Stop,
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
                spawn(scope, &format!("writer-{number}"), || self.write())?;
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

    /// Leaves word which volume and which mounts this process has, for when it does not answer, and lets
    /// those connect whom they are for.
    fn leave_card(&self) {
        let Some(socket) = self.socket.get() else { return };
        let _one_at_a_time = self.card.lock();
        // Other users are answered as soon as one of the mounts is for them.
        if self.is_for_others()
            && let Some(Err(error)) = self.gate.get().map(Gate::open)
        {
            log::warn!("{}: others cannot be let in: {error}", socket.display());
        }
        if let Err(error) = card::leave(socket, &self.ping()) {
            log::warn!("{}: no card can be left beside it: {error}", socket.display());
        }
    }

    fn write(&self) {
        let mut failing = Failing::new("writing the log");
        let disk = self.volume.disk();
        while !self.stop.is_set() {
            let step = disk.write_step(WRITER_WAIT);
            self.tell_whether_it_waits_for_room();
            let is_waiting = matches!(step, Err(dendro_disk::Error::NoSpace { .. }));
            if is_waiting || failing.note(step).is_none() {
                self.stop.wait(if is_waiting { ROOM_REST } else { ERROR_REST });
            }
        }
    }

    /// Says once that what is below the device is full, and once that there is room again.
    fn tell_whether_it_waits_for_room(&self) {
        let waits = self.volume.disk().waits_for_host();
        if self.waits_for_room.swap(waits, Ordering::Relaxed) == waits {
            return;
        }
        if waits {
            log::error!(
                "{}: changes answer ENOSPC until there is room again; what was accepted waits for it",
                self.volume.host_is_full()
            );
        } else {
            log::info!("{}: there is room again, it goes on", self.volume.source().display());
        }
    }

    /// What background work failed for, unless it is told of otherwise.
    fn unless_it_waits<T>(
        &self,
        done: Result<T, dendro_disk::Error>,
        none: T,
    ) -> Result<T, dendro_disk::Error> {
        match done {
            Err(dendro_disk::Error::NoSpace { .. }) if self.volume.disk().waits_for_host() => {
                Ok(none)
            }
            done => done,
        }
    }

    /// Cleans beside the background thread when segments get few: one of the two reads while the
    /// other moves what it has read, and neither waits for the other's checkpoint.
    fn clean(&self) {
        give_way();
        let mut failing = Failing::new("cleaning");
        let disk = self.volume.disk();
        while !self.stop.is_set() {
            match failing.note(disk.clean_step()) {
                Some(true) => {}
                // Whatever makes segments few wakes it.
                Some(false) => disk.wait_for_background_work(LONG_REST),
                None => drop(self.stop.wait(ERROR_REST)),
            }
        }
    }

    fn work_in_background(&self) {
        give_way();
        let mut failing = Failing::new("background work");
        let disk = self.volume.disk();
        // Who writes is soon helped; who only reads is disturbed by more reading and writing.
        let (mut unwritten, mut unused) = (Quiet::default(), Quiet::default());
        loop {
            let done = match disk.background_step() {
                Ok(false) if unwritten.lasts_for() >= IDLE_AFTER => disk.idle_step(),
                other => other,
            };
            let done = match done {
                Ok(false) if unused.lasts_for() >= disk.clean_settings().coalescing.after => {
                    disk.coalesce_step()
                }
                other => other,
            };
            self.tell_whether_it_waits_for_room();
            let rest = match failing.note(self.unless_it_waits(done, false)) {
                Some(true) => Duration::ZERO,
                Some(false) => {
                    let is_quiet = unused.lasts_for() > IDLE_AFTER;
                    let rest = if is_quiet { LONG_REST } else { BACKGROUND_REST };
                    disk.wait_for_background_work(rest);
                    rest
                }
                None => {
                    self.stop.wait(ERROR_REST);
                    ERROR_REST
                }
            };
            if self.stop.is_set() {
                return;
            }
            unwritten.note(disk.stats().commit_seq, rest);
            unused.note(disk.activity(), rest);
        }
    }

    fn commit_at_intervals(&self) {
        let interval = || self.options.lock().commit_interval;
        let mut failing = Failing::new("making the log durable");
        let mut failing_snapshots = Failing::new("keeping how it was");
        while !self.stop.wait(interval()) {
            failing_snapshots.note(self.keep_how_it_was());
            failing.note(self.unless_it_waits(self.volume.commit(), ()));
        }
    }

    /// Makes the snapshots that mounts are to make by themselves.
    fn keep_how_it_was(&self) -> Result<(), dendro_disk::Error> {
        let views = self.views.all();
        let keeps = |view: &&Arc<MountedView>| view.automatic.lock().is_some();
        let mut keeping = views.iter().filter(keeps).peekable();
        if keeping.peek().is_none() {
            return Ok(());
        }
        // A snapshot must not be taken away while it is being mounted.
        let _changes = self.changes.lock();
        let mounted: Vec<_> = self.views.all_open().iter().map(|view| view.view()).collect();
        keeping.try_for_each(|view| match &mut *view.automatic.lock() {
            Some(automatic) => {
                let now = SystemClock.now();
                automatic.tick(self.volume.disk(), view.view(), &mounted, now)
            }
            None => Ok(()),
        })
    }

    /// The mount that the process was started for; says how its requests come.
    fn mount_first(&self, config: &Config, block: &BlockSource) -> Result<String, Failure> {
        let fail = |why: &dyn std::fmt::Display| {
            Failure::new(format_args!("{}: {why}", config.source.display()))
        };
        let options = &config.options;
        let view = self.volume.resolve(&options.version).map_err(|why| fail(&why))?;
        let fs = self.volume.open_view(view, options).map_err(|error| fail(&error))?;
        let (mount, is_fuseblk) = self.mount_view(&fs, config, block)?;
        let how = match mount.why_no_uring() {
            None => format!("requests come over {}", mount.transport()),
            Some(why) => format!("requests come by {}: {why}", mount.transport()),
        };
        let mount_point = config.mount_point.clone();
        let (device, mount_id) = MountIdentity::told_of(&mount_point);
        let namespace = self.namespace.clone();
        let closing = Arc::new(Closing::new(mount.switch()));
        let id = self.views.new_id();
        if is_fuseblk {
            let (closing, views) = (Arc::clone(&closing), Arc::clone(&self.views));
            let (disk, device) = self.volume.parts();
            // umount(2) waits for this. Afterwards the device may be another's.
            mount.set_on_unmount(move || {
                // What went wrong is told when serving has ended.
                let _ = closing.close(|| views.end_with_last(id).then_some(&*disk));
                if closing.has_shut_down() {
                    device.release();
                }
            });
        }
        let lent_to = None;
        let place =
            MountPlace { id, mount_point, device, mount_id, namespace, is_fuseblk, lent_to };
        self.add(mount, closing, place, options);
        Ok(how)
    }

    /// What a mount of `view` shows of the past.
    fn past(&self, view: View, options: &MountOptions) -> Option<Arc<dyn Past>> {
        let is_shown = view.epoch.is_none() && options.snapdir;
        is_shown.then(|| self.volume.past())
    }

    /// Mounts as a block device, if that is wanted and possible; says whether it is.
    fn mount_view(
        &self,
        fs: &Arc<FileSystem>,
        config: &Config,
        block: &BlockSource,
    ) -> Result<(Mount, bool), Failure> {
        let past = self.past(fs.view(), &config.options);
        let timings = Some(Arc::clone(&self.timings));
        let plain = FuseOptions { past, timings, ..fuse_options(config) };
        let mount = |options: &FuseOptions| {
            Mount::new(Arc::clone(fs), &config.mount_point, options, report(self.volume))
        };
        if !block.is_fuseblk {
            return Ok((mount(&plain)?, false));
        }
        let source = block.path.display().to_string();
        self.volume.leave_claim();
        let mounted = mount(&FuseOptions { source, block_device: true, ..plain.clone() });
        let error = match mounted {
            Ok(mount) => return Ok((mount, true)),
            Err(error) => error,
        };
        self.volume.take_claim()?;
        let is_impossible = match &error {
            dendro_fuse::Error::Mount { source, .. } => {
                matches!(Errno::from_io_error(source), Some(Errno::PERM | Errno::NODEV))
            }
            _ => false,
        };
        if !block.may_be_plain || !is_impossible {
            return Err(error.into());
        }
        log::info!("it is mounted as plain FUSE: {error}");
        Ok((mount(&plain)?, false))
    }

    fn add(
        &self,
        mount: Mount,
        closing: Arc<Closing>,
        place: MountPlace,
        options: &MountOptions,
    ) -> Arc<MountedView> {
        let MountPlace { id, mount_point, device, mount_id, namespace, is_fuseblk, lent_to } =
            place;
        let retain = options.retain.clone().filter(|_| !options.read_only);
        let view = MountedView {
            id,
            switch: mount.switch(),
            closing,
            options: Mutex::new(options.clone()),
            told: Mutex::default(),
            mount_point,
            device,
            mount_id,
            is_fuseblk,
            lent_to,
            is_elsewhere: namespace != self.namespace,
            namespace,
            since_unix_s: SystemClock.now().secs(),
            transport: mount.transport().to_string(),
            automatic: Mutex::new(retain.map(Automatic::new)),
        };
        self.views.add(mount, view)
    }

    fn start_serving<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mount: Mount,
        view: Arc<MountedView>,
    ) {
        let served = Arc::clone(&view);
        if let Err(error) = spawn(scope, "view", move || self.serve(mount, &served)) {
            // The connection is closed by now; who uses the mount gets errors.
            log::error!("{}: cannot be served: {error}", view.place());
            detach(&view);
            self.views.remove(&view);
        }
    }

    /// Serves a mount to its end.
    fn serve(&self, mount: Mount, view: &Arc<MountedView>) {
        let served = mount.serve();
        view.closing.begin();
        self.leave_card();
        if view.is_fuseblk && !view.closing.has_shut_down() {
            // The mount had the claim on the device, and other views still need it, or this one, which
            // was cut off.
            if let Err(failure) = self.volume.take_claim() {
                log::error!("{}; nothing more is written to it", failure.message);
                std::process::exit(1);
            }
        }
        let closed = view.closing.close(|| None);
        let failures = [
            served.err().map(|error| format!("{}: serving ended: {error}", view.place())),
            closed.err().map(|error| not_shut_down(self.volume, &error)),
        ];
        for message in failures.into_iter().flatten() {
            log::error!("{message}");
            self.failure.lock().get_or_insert(Failure::new(message));
        }
        self.views.remove(view);
        self.leave_card();
    }

    fn detach_all(&self) {
        self.views.all_open().iter().for_each(|view| detach(view));
    }

    /// Ctrl-C and SIGTERM: everything accepted is kept, and files that are open are no reason to
    /// stay.
    fn unmount_on_signal(&self) {
        let views = self.views.all();
        let mut stays_mounted = false;
        for view in &views {
            if view.is_elsewhere {
                log::warn!("{}: goes with its processes", view.place());
                continue;
            }
            if view.is_at_hand() {
                // Pages that programs have mapped and changed are in the kernel still.
                let synced = File::open(&view.mount_point).map(|root| rustix::fs::syncfs(&root));
                if let Ok(Err(error)) = synced {
                    log::error!("changes to mapped files are lost: {error}");
                }
            }
            let unmounted = view.unmount(UnmountMode::Idle).or_else(|error| {
                log::warn!("{error}; cutting it off");
                view.unmount(UnmountMode::Abort)
            });
            // What has gone meanwhile need not be taken away.
            if let Err(error) = unmounted
                && view.switch.is_mounted()
            {
                let place = view.place();
                log::error!(
                    "{error}; {place} stays there, dead: `dendro umount {place}` clears it away"
                );
                stays_mounted = true;
            }
        }
        if stays_mounted || views.iter().any(|view| view.is_elsewhere) {
            self.end_without_unmounting();
        }
    }

    /// A mount in another namespace cannot be taken away from here, nor can a user's that fusermount3 fails for.
    /// It is cut off when its connection
    /// is closed, with the process; so nothing must be left to write by then.
    fn end_without_unmounting(&self) -> ! {
        let closed = self.views.all_open().iter().try_for_each(|view| view.closing.close(|| None));
        let ended =
            closed.and_then(|()| self.volume.shut_down().map_err(|error| error.to_string()));
        if let Err(error) = &ended {
            log::error!("{}", not_shut_down(self.volume, error));
        }
        std::process::exit(i32::from(ended.is_err()))
    }
}

/// Where a view is mounted.
struct MountPlace {
    id: u64,
    mount_point: PathBuf,
    device: String,
    mount_id: Option<u64>,
    namespace: String,
    is_fuseblk: bool,
    lent_to: Option<u32>,
}

/// Takes a mount out of the tree, as far as that can be done from here.
fn detach(view: &MountedView) {
    let _ = view.unmount(UnmountMode::Detach);
}
