//! `dendro umount`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dendro_control::{
    Client, ClientError, Pong, UnmountRequest, Unresponsive, ViewInfo, closing_error,
};
use dendro_daemon::holder;
use dendro_daemon::mounts::open_files::busy_text;
use dendro_daemon::mounts::{self, MountEntry};
use dendro_device::{Direct, OpenOptions};
use dendro_fuse::{Error, UnmountMode, unmount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;

use crate::args::UmountArgs;
use crate::failure::{Failure, code};
use crate::mount_request;
use crate::output::{self, json};
use crate::target::liveness::{self, Liveness};
use crate::target::{self, Behind, Served};

/// After this time the user gets a message about the wait.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two questions whether the daemon is done: at first, and later.
const SHORT_PAUSE: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for the device's lock if the daemon's process is not known.
const LOCK_WAIT: Duration = Duration::from_secs(60);
/// The wait ends if a daemon has not answered so often, or has been stopped for so long.
const MOST_SILENCES: u32 = 4;
const MOST_STOPPED: Duration = Duration::from_secs(8);

pub(crate) fn run(args: &UmountArgs, quiet: bool) -> Result<(), Failure> {
    let mode = match (args.lazy, args.force) {
        (true, _) => UnmountMode::Detach,
        (_, true) => UnmountMode::Abort,
        _ => UnmountMode::Idle,
    };
    let targets = if args.all { all_mounts()? } else { args.targets.clone() };
    let (mut unmounted, mut failures) = (Vec::new(), Vec::new());
    for target in &targets {
        match unmount_one(target, mode, quiet, "--lazy, which lets that go on until it ends") {
            Ok(entry) => unmounted.push(Unmounted::from(&entry)),
            Err(failure) => failures.push(failure),
        }
    }
    if args.json {
        json::print_list("unmounted", &unmounted)?;
    }
    let Some(last) = failures.pop() else { return Ok(()) };
    failures.iter().for_each(|other| output::message(format_args!("dendro: {}", other.message)));
    Err(last)
}

/// All mounts that this user may unmount, the newest first: they may lie in others.
fn all_mounts() -> Result<Vec<PathBuf>, Failure> {
    let user = rustix::process::geteuid();
    let is_own = |entry: &&MountEntry| {
        entry.is_dendro() && (user.is_root() || entry.user == Some(user.as_raw()))
    };
    Ok(mounts::read()?.iter().rev().filter(is_own).map(|entry| entry.mount_point.clone()).collect())
}

/// What was unmounted.
#[derive(Serialize)]
struct Unmounted {
    source: String,
    mount_point: String,
}

impl From<&MountEntry> for Unmounted {
    fn from(entry: &MountEntry) -> Self {
        Self {
            source: entry.volume().display().to_string(),
            mount_point: entry.mount_point.display().to_string(),
        }
    }
}

/// Unmounts the fork that `named` names, and waits until all data are written.
pub(crate) fn run_for_drop(named: &Path, mode: UnmountMode) -> Result<(), Failure> {
    unmount_one(named, mode, true, "--force, which cuts that off").map(drop)
}

/// Unmounts what `named` names, and waits until all data are written; returns what was mounted.
/// `advice` is what a user of a busy mount can do.
fn unmount_one(
    named: &Path,
    mode: UnmountMode,
    quiet: bool,
    advice: &str,
) -> Result<MountEntry, Failure> {
    let failed = |failure: Failure| failure.with_code(code::MOUNT_FAILED);
    let table = mounts::read()?;
    let entry = find(&table, named).map_err(failed)?;
    // This comes before the unmount: the process number could belong to another process afterwards.
    let daemon = match target::daemon_behind(&table, &entry, &entry.mount_point) {
        Behind::Daemon(mut served) => {
            served.client = served.client.without_root();
            Some(served)
        }
        Behind::Unresponsive(mute) => {
            return cut_off(&entry, mode, &mute).map(|()| entry).map_err(failed);
        }
        Behind::Nobody => None,
    };
    let process = daemon.as_ref().and_then(|served| watch(&served.client, &served.pong));
    // This comes before the unmount, too: the device number is reused soon.
    let has_other_mounts = table.iter().filter(|other| other.device == entry.device).count() > 1;
    let life = if daemon.is_some() { Liveness::Answers } else { liveness::of(&entry.mount_point) };
    if life == Liveness::Silent && mode != UnmountMode::Abort {
        return Err(failed(Failure::new(format_args!(
            "{}: its daemon does not answer; --force cuts it off",
            entry.mount_point.display()
        ))));
    }
    let is_dead = life == Liveness::Dead;
    let mode = if is_dead { UnmountMode::Detach } else { mode };
    match &daemon {
        // The daemon unmounts what it has mounted for this user.
        Some(served) if mount_request::is_foreign(&served.client) => {
            let request = UnmountRequest { force: mode == UnmountMode::Abort };
            let done = served.client.unmount(request);
            done.map_err(|error| {
                failed(Failure::new(format_args!("{}: {error}", entry.mount_point.display())))
            })?;
        }
        _ => unmount(&entry.mount_point, mode).map_err(|error| match error {
            Error::Busy(place) => {
                failed(Failure::new(busy_text(&place, &entry.device_text(), advice)))
            }
            error => failed(Failure::new(error)),
        })?,
    }
    if mode == UnmountMode::Detach || has_other_mounts {
        return Ok(entry);
    }
    let ended = match (process, daemon) {
        (Some(process), Some(served)) => {
            match wait_for_end(&process, &served, &entry, quiet).map_err(failed)? {
                End::OfDaemon => check_has_written(&served),
                End::OfView => Ok(()),
            }
        }
        _ => wait_for_lock(&entry.volume()),
    };
    ended.map(|()| entry)
}

/// Unmounts a mount whose daemon does not answer, if that was requested. A normal unmount might
/// take forever.
fn cut_off(entry: &MountEntry, mode: UnmountMode, mute: &Unresponsive) -> Result<(), Failure> {
    let place = entry.mount_point.display();
    if mode != UnmountMode::Abort {
        return Err(Failure::new(format_args!(
            "{place}: {mute}, and `dendro umount --force {place}` cuts the mount off"
        )));
    }
    unmount(&entry.mount_point, UnmountMode::Abort)?;
    Err(not_finished(&place, mute))
}

/// A failure if something is unmounted and perhaps not written.
fn not_finished(place: &dyn std::fmt::Display, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format_args!(
        "{place}: it is unmounted, but the last of what was written to it may not be on the device \
         yet: {why}"
    ))
}

/// The mount that the user names, by its mount point or by what is mounted.
fn find(table: &[MountEntry], named: &Path) -> Result<MountEntry, Failure> {
    let fail = |why: &str| Failure::new(format_args!("{}: {why}", named.display()));
    // A mount that is dead, or whose daemon does not answer, cannot be looked up, but it has a
    // name.
    let absolute = std::path::absolute(named)?;
    let is_there = |path: &Path| table.iter().any(|entry| entry.mount_point == path);
    let path = match is_there(&absolute) {
        true => absolute,
        false => {
            target::check_alive(table, named)?;
            named.canonicalize().unwrap_or(absolute)
        }
    };
    let at_path = table.iter().rev().find(|entry| entry.mount_point == path);
    if let Some(entry) = at_path {
        return match entry.is_dendro() {
            true => Ok(entry.clone()),
            false => {
                Err(fail(&format!("is a mount of type {}; umount(8) is for that", entry.fs_type)))
            }
        };
    }
    let mounts: Vec<&MountEntry> = table
        .iter()
        .filter(|entry| entry.is_dendro() && holder::is_same_volume(&entry.volume(), &path))
        .collect();
    match mounts[..] {
        [entry] => Ok(entry.clone()),
        [] if !path.exists() => Err(fail("there is no such file or directory")),
        [] => Err(fail("is not mounted")),
        _ => {
            let points: Vec<String> =
                mounts.iter().map(|entry| entry.mount_point.display().to_string()).collect();
            Err(fail(&format!("is mounted on {}; say which", points.join(" and "))))
        }
    }
}

/// A handle on the daemon's process, if that is the one that answers.
fn watch(client: &Client, pong: &Pong) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pong.pid).ok()?)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // The daemon still answers, so this is its process and not another one with the same number.
    client.ping().ok().filter(|again| again.pid == pong.pid).map(|_| process)
}

/// What has ended.
enum End {
    /// Only the mount; the daemon serves others.
    OfView,
    OfDaemon,
}

/// Waits until the daemon has closed the view, or, if that was its last one, has ended.
fn wait_for_end(
    process: &OwnedFd,
    served: &Served,
    entry: &MountEntry,
    quiet: bool,
) -> Result<End, Failure> {
    let place = entry.mount_point.display();
    let mut waited = Duration::ZERO;
    let mut silences = 0;
    let mut stopped = Duration::ZERO;
    loop {
        let pause = if waited < PAUSE { SHORT_PAUSE } else { PAUSE };
        match served.client.ping() {
            Ok(pong) if serves_others_alone(&pong, served.view.as_ref()) => return Ok(End::OfView),
            Err(ClientError::Unresponsive(mute)) if silences >= MOST_SILENCES => {
                return Err(not_finished(&place, &mute));
            }
            Err(ClientError::Unresponsive(_)) => silences += 1,
            // It does not listen any more when it is about to end.
            _ => silences = 0,
        }
        if has_ended(process, pause)? {
            return Ok(End::OfDaemon);
        }
        stopped = if is_stopped(served.pong.pid) { stopped + pause } else { Duration::ZERO };
        if stopped >= MOST_STOPPED {
            return Err(not_finished(&place, &Unresponsive { pid: served.pong.pid }));
        }
        if waited < PATIENCE && waited + pause >= PATIENCE && !quiet {
            output::message(format_args!(
                "dendro: {}: waiting until all is written",
                entry.volume().display()
            ));
        }
        waited += pause;
    }
}

/// Whether the daemon has closed `view` and still serves other mounts.
fn serves_others_alone(pong: &Pong, view: Option<&ViewInfo>) -> bool {
    let has_others = !pong.views.is_empty() || !pong.closing.is_empty();
    has_others && view.is_none_or(|view| !pong.has(view))
}

/// Whether the process was stopped by a signal.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may contain any of these characters.
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

/// Whether the process ends within `pause`.
fn has_ended(process: &OwnedFd, pause: Duration) -> Result<bool, Failure> {
    let timeout =
        Timespec { tv_sec: pause.as_secs().cast_signed(), tv_nsec: pause.subsec_nanos().into() };
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    Ok(rustix::io::retry_on_intr(|| poll(&mut watched, Some(&timeout)))? > 0)
}

/// Reports if the daemon that has ended could not write the last data that it had accepted.
fn check_has_written(served: &Served) -> Result<(), Failure> {
    match closing_error::take(served.client.path()) {
        None => Ok(()),
        Some(why) => Err(Failure::new(format_args!(
            "it is unmounted, but the last of what was written to it is lost: {why}"
        ))
        .with_code(code::MOUNT_FAILED)),
    }
}

/// Waits for a daemon that cannot be asked, by the lock that it holds. Without the right to open
/// the device there is nothing to wait for.
fn wait_for_lock(source: &Path) -> Result<(), Failure> {
    let opened =
        OpenOptions::new().read_only(true).direct(Direct::Never).lock_wait(LOCK_WAIT).open(source);
    match opened {
        Err(error @ dendro_device::Error::InUse { .. }) => Err(Failure::new(format_args!(
            "it is unmounted, but its daemon has not finished: {error}"
        ))
        .with_code(code::MOUNT_FAILED)),
        _ => Ok(()),
    }
}
