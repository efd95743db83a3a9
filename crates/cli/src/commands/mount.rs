//! `dendro mount`, and the start of the process in the background.

mod remount;

use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dendro_daemon::logging::{self, Destination};
use dendro_daemon::mount_config::Config;
use dendro_daemon::options::MountOptions;
use dendro_daemon::volume::block_source;
use dendro_daemon::{NotServed, holder, mounts, text};
use dendro_disk::check_name;
use dendro_fuse::UnmountMode;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::args::{MountArgs, MountKind};
use crate::failure::{Failure, code};
use crate::mount_request::{self, Requested};
use crate::output::{self, json};
use crate::target::liveness::{self, Liveness};
use crate::target::{self, identity, tag};

/// The report of the background process to the process that started it, on one line.
#[derive(Debug, Serialize, Deserialize)]
enum Report {
    Ready,
    /// Another daemon has the volume by now, and can serve the mount.
    ByAnother,
    Failed {
        message: String,
        code: u8,
    },
}

/// How often daemons may start and end while this process looks for one.
const TRIES: u32 = 10;

pub(crate) fn run(args: &MountArgs, quiet: bool) -> Result<(), Failure> {
    if args.daemon {
        return in_background(args);
    }
    let (source, branch) = split_branch(&args.source);
    let source = tag::resolve(source).map_err(mount_failure_of)?;
    let mut args = as_typed(&MountArgs { source, ..args.clone() });
    args.options.extend(branch.map(|name| format!("clone={name}")));
    let args = &args;
    let config = config(args)?;
    if args.fake {
        return Ok(());
    }
    if config.options.is_remount {
        return remount::run(&config.mount_point, &config.options, &args.options);
    }
    clear_dead_mount(&config.mount_point)?;
    for _ in 0..TRIES {
        match ask_running_daemon(args, &config)? {
            Requested::Served(_) => return print_mounted(args, &config),
            Requested::NoDaemon => {}
        }
        clear_dead_mounts_of(&config.source)?;
        let is_served = match args.foreground {
            true => in_foreground(&config, quiet)?,
            false => start_daemon(args, &config)?,
        };
        if is_served {
            return print_mounted(args, &config);
        }
    }
    Err(mount_failure(format_args!(
        "{}: others mount and unmount it all the time; try again",
        config.source.display()
    )))
}

/// The new mount.
#[derive(Serialize)]
struct MountedNow {
    source: String,
    uuid: String,
    mount_point: String,
    branch: Option<u32>,
    epoch: Option<u64>,
    pid: u32,
}

/// Prints the new mount, if that is wanted.
fn print_mounted(args: &MountArgs, config: &Config) -> Result<(), Failure> {
    if !args.json {
        return Ok(());
    }
    let served = target::find_mounted(&config.mount_point)?;
    let mount_point = served.place().to_owned();
    let view = served.view.as_ref();
    json::print(&MountedNow {
        mount_point,
        branch: view.map(|view| view.branch),
        epoch: view.and_then(|view| view.epoch),
        source: served.pong.source.clone(),
        uuid: served.pong.uuid.clone(),
        pid: served.pong.pid,
    })
}

/// The volume and the branch that `SOURCE:BRANCH` names, where there is no file of that name.
fn split_branch(named: &Path) -> (&Path, Option<&str>) {
    let split = || {
        let (source, branch) = named.to_str()?.rsplit_once(':')?;
        let source = Path::new(source);
        let is_branch = check_name(branch).is_ok() && !branch.contains(',');
        (is_branch && !named.exists() && source.exists()).then_some((source, Some(branch)))
    };
    split().unwrap_or((named, None))
}

/// Adds what mount(8)'s file system type implies, unless the options say otherwise. Without a
/// specific type, users of mount(8) expect sync(2) to work and umount(2) to wait, also for images.
fn as_typed(args: &MountArgs) -> MountArgs {
    let mut args = args.clone();
    let says_how = |option| matches!(option, "fuseblk" | "nofuseblk" | "loop" | "remount");
    let is_said = args.options.iter().flat_map(|list| list.split(',')).any(says_how);
    let more = match args.kind {
        _ if is_said => None,
        Some(MountKind::Best) => block_source::can_attach(&args.source).then_some("loop"),
        Some(MountKind::Plain) => Some("nofuseblk"),
        Some(MountKind::BlockDevice) => Some("fuseblk"),
        None => None,
    };
    args.options.extend(more.map(str::to_owned));
    args
}

/// Has the daemon that has the volume serve this mount too, if there is one.
fn ask_running_daemon(args: &MountArgs, config: &Config) -> Result<Requested, Failure> {
    match holder::answering(&config.source).map_err(mount_failure_of)? {
        None => Ok(Requested::NoDaemon),
        Some((_, pong)) if args.foreground => Err(mount_failure(format_args!(
            "{}: process {} has it open already, for {}, and serves this mount too; leave -f out",
            config.source.display(),
            pong.pid,
            pong.mount_point
        ))),
        Some((client, pong)) => mount_request::request_mount(&client, &pong, config, &args.options)
            .map_err(mount_failure_of),
    }
}

/// What to mount where, with paths that do not depend on the working directory.
fn config(args: &MountArgs) -> Result<Config, Failure> {
    let options = MountOptions::parse(args.options.iter().map(String::as_str))
        .map_err(|why| Failure::new(why).with_code(code::MOUNT_USAGE))?;
    let source = match args.source.canonicalize() {
        // The table of mounts has the version behind it, or the value of fsname=.
        Err(_) if options.is_remount => args.source.clone(),
        found => found.map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::NotFound => "; `dendro mkfs --size 10G` makes an image",
                _ => "",
            };
            mount_failure(format_args!("{}: {error}{advice}", args.source.display()))
        })?,
    };
    config_of(args, source)
}

/// The same, for the volume on `source`, which this process need not be able to reach.
pub(crate) fn config_of(args: &MountArgs, source: PathBuf) -> Result<Config, Failure> {
    let options = MountOptions::parse(args.options.iter().map(String::as_str))
        .map_err(|why| Failure::new(why).with_code(code::MOUNT_USAGE))?;
    if !args.daemon {
        // The directory may be a mount whose daemon was killed, or lie in one, but the daemon must
        // not be unresponsive.
        let table = mounts::read()?;
        target::check_alive(&table, &args.directory).map_err(mount_failure_of)?;
    }
    let mount_point = match args.directory.canonicalize() {
        Ok(directory) => directory,
        // A dead mount cannot be looked up; its text must do.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => {
            std::path::absolute(&args.directory)?
        }
        Err(error) => {
            return Err(mount_failure(format_args!(
                "mount point {}: {error}",
                args.directory.display()
            )));
        }
    };
    if !options.symfollow && !rustix::process::geteuid().is_root() {
        return Err(mount_failure("nosymfollow: root alone can mount so"));
    }
    options.check_delegation().map_err(mount_failure)?;
    Ok(Config { source, mount_point, options })
}

fn mount_failure(why: impl std::fmt::Display) -> Failure {
    Failure::new(why).with_code(code::MOUNT_FAILED)
}

fn mount_failure_of(failure: Failure) -> Failure {
    failure.with_code(code::MOUNT_FAILED)
}

/// Unmounts what a killed daemon left at `mount_point`.
fn clear_dead_mount(mount_point: &Path) -> Result<(), Failure> {
    while liveness::of(mount_point) == Liveness::Dead {
        let table = mounts::read()?;
        let is_ours = table
            .iter()
            .rev()
            .find(|entry| entry.mount_point == mount_point)
            .is_some_and(mounts::MountEntry::is_dendro);
        if !is_ours {
            return Err(mount_failure(format_args!(
                "{}: a file system of another kind is mounted there, and its daemon is gone; \
                 unmount it",
                mount_point.display()
            )));
        }
        dendro_fuse::unmount(mount_point, UnmountMode::Detach).map_err(mount_failure)?;
    }
    Ok(())
}

/// Unmounts mounts of the block device `source` whose daemon was killed: they still claim it.
fn clear_dead_mounts_of(source: &Path) -> Result<(), Failure> {
    for entry in mounts::read()? {
        if entry.is_fuseblk()
            && holder::is_same_file(&entry.volume(), source)
            && liveness::of(&entry.mount_point) == Liveness::Dead
        {
            dendro_fuse::unmount(&entry.mount_point, UnmountMode::Detach).map_err(mount_failure)?;
        }
    }
    Ok(())
}

/// Serves the mount to its end; returns false if another daemon can serve it.
fn in_foreground(config: &Config, quiet: bool) -> Result<bool, Failure> {
    logging::start(&Destination::StandardError, &config.source)?;
    logging::abort_on_panic();
    let ended = dendro_daemon::run(config, || {
        if !quiet {
            output::message(format_args!(
                "{} is mounted on {}; Ctrl-C unmounts it",
                config.source.display(),
                config.mount_point.display()
            ));
        }
    });
    match ended {
        Ok(()) => Ok(true),
        Err(NotServed::ByThis) => Ok(false),
        Err(NotServed::Failed(failure)) => Err(failure.with_code(code::MOUNT_FAILED)),
    }
}

/// Starts this program once more, in the background, and waits until it has mounted or failed;
/// returns false if another daemon can serve the mount. It is not a fork of this process, so that
/// no lock and no thread is in an intermediate state.
fn start_daemon(args: &MountArgs, config: &Config) -> Result<bool, Failure> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("dendro").args(["mount", "--daemon"]);
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    if let Some(file) = &args.log_file {
        command.arg("--log-file").arg(std::path::absolute(file)?);
    }
    let mut child = command
        .arg("--")
        .args([&config.source, &config.mount_point])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| mount_failure(format_args!("cannot start the daemon: {error}")))?;
    let mut text = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        // An unreadable report counts as none.
        let _ = pipe.read_to_string(&mut text);
    }
    match serde_json::from_str(&text) {
        Ok(Report::Ready) => Ok(true),
        Ok(Report::ByAnother) => {
            let _ = child.wait();
            Ok(false)
        }
        Ok(Report::Failed { message, code }) => {
            let _ = child.wait();
            Err(Failure { message, code })
        }
        Err(_) => {
            let status = child.wait()?;
            Err(mount_failure(format_args!(
                "the daemon ended before it had mounted {}: {status}",
                config.source.display()
            )))
        }
    }
}

/// The process that [`start_daemon`] starts.
fn in_background(args: &MountArgs) -> Result<(), Failure> {
    // The process that waits for the mount may give up. Then nothing must be mounted later, when
    // the volume is free.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    let mut is_ready = false;
    let ended = config(args).and_then(|config| {
        let destination = match &args.log_file {
            Some(file) => Destination::File(PathBuf::from(file)),
            None => Destination::Syslog,
        };
        logging::start(&destination, &config.source)?;
        logging::abort_on_panic();
        name_process(&config.source);
        match dendro_daemon::run(&config, || {
            is_ready = true;
            let _ = set_parent_process_death_signal(None);
            leave_process_group();
            report(&Report::Ready);
            leave_terminal();
        }) {
            Ok(()) => Ok(()),
            Err(NotServed::ByThis) => {
                report(&Report::ByAnother);
                Ok(())
            }
            Err(NotServed::Failed(failure)) => Err(failure.with_code(code::MOUNT_FAILED)),
        }
    });
    match &ended {
        Err(failure) if is_ready => log::error!("{}", failure.message),
        Err(failure) => {
            report(&Report::Failed { message: failure.message.clone(), code: failure.code });
            // The other process prints the message.
            leave_terminal();
        }
        Ok(()) => {}
    }
    ended
}

/// Puts this process out of the reach of Ctrl-C and of the shell's job control.
///
/// - It comes after mounting, and before the report. On a mount point that autofs watches, as with
///   `x-systemd.automount`, autofs lets nobody pass before the mount is reported, except the
///   process group of the automounter, to which the caller and this process belong.
/// - The process does not get a session of its own. With autogroups, the scheduler would separate
///   it from the programs that use the mount, and move these to another CPU with every reply, which
///   takes three times as long.
fn leave_process_group() {
    // It fails only if this process already leads a group.
    let _ = rustix::process::setpgid(None, None);
}

/// Sets the name in ps(1), top(1) and pgrep(1): the command, and the volume's label or file name,
/// as far as there is room.
fn name_process(source: &Path) {
    const MOST_BYTES: usize = 15;
    let label = identity::of(source).ok().flatten().map(|superblock| superblock.label);
    let volume = label
        .filter(|label| !label.is_empty())
        .unwrap_or_else(|| source.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    let mut name = format!("dendro: {}", text::printable(&volume).replace('\0', ""));
    while name.len() > MOST_BYTES {
        name.pop();
    }
    if let Ok(name) = CString::new(name) {
        // A failure does not matter.
        let _ = rustix::thread::set_name(&name);
    }
}

fn report(report: &Report) {
    if let Ok(line) = serde_json::to_string(report) {
        // The other process may have gone; then nobody needs the report.
        let _ = writeln!(io::stdout(), "{line}");
    }
}

/// Closes the terminal, and the pipe to the other process, which waits for its end.
fn leave_terminal() {
    let Ok(null) = fs::File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    let _ = rustix::stdio::dup2_stdin(&null);
    let _ = rustix::stdio::dup2_stdout(&null);
    let _ = rustix::stdio::dup2_stderr(&null);
}
