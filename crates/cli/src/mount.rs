//! `dendro mount`, and the start of the process in the background.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dendro_fuse::UnmountMode;
use serde::{Deserialize, Serialize};

use crate::args::MountArgs;
use crate::daemon::{self, Config};
use crate::failure::{Failure, code};
use crate::logging::{self, Destination};
use crate::mount_options::MountOptions;
use crate::mount_table;

/// What the process in the background tells the one that started it, on one line.
#[derive(Debug, Serialize, Deserialize)]
enum Report {
    Ready,
    Failed { message: String, code: u8 },
}

pub(crate) fn run(args: &MountArgs, quiet: bool) -> Result<(), Failure> {
    if args.daemon {
        return in_background(args);
    }
    let config = config(args)?;
    if args.fake {
        return Ok(());
    }
    clear_dead_mount(&config.mount_point)?;
    if args.foreground { in_foreground(&config, quiet) } else { start_daemon(args, &config) }
}

/// What is to be mounted where, with paths that do not depend on the working directory.
fn config(args: &MountArgs) -> Result<Config, Failure> {
    let options = MountOptions::parse(args.options.iter().map(String::as_str))
        .map_err(|why| Failure::new(why).with_code(code::MOUNT_USAGE))?;
    let source = args.source.canonicalize().map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => "; `dendro mkfs --size 10G` makes an image",
            _ => "",
        };
        mount_failure(format_args!("{}: {error}{advice}", args.source.display()))
    })?;
    let mount_point = match args.directory.canonicalize() {
        Ok(directory) => directory,
        // A dead mount: its name is all there is.
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
    Ok(Config { source, mount_point, options })
}

fn mount_failure(why: impl std::fmt::Display) -> Failure {
    Failure::new(why).with_code(code::MOUNT_FAILED)
}

/// Takes away what the killed daemon of an earlier mount left at `mount_point`.
fn clear_dead_mount(mount_point: &Path) -> Result<(), Failure> {
    while mount_table::is_dead(mount_point) {
        let table = mount_table::read()?;
        let is_ours = table
            .iter()
            .rev()
            .find(|entry| entry.mount_point == mount_point)
            .is_some_and(mount_table::MountEntry::is_dendro);
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

fn in_foreground(config: &Config, quiet: bool) -> Result<(), Failure> {
    logging::start(&Destination::StandardError, &config.source)?;
    logging::abort_on_panic();
    daemon::run(config, || {
        if !quiet {
            eprintln!(
                "{} is mounted on {}; Ctrl-C unmounts it",
                config.source.display(),
                config.mount_point.display()
            );
        }
    })
    .map_err(|failure| failure.with_code(code::MOUNT_FAILED))
}

/// Starts this program once more, in the background, and waits until it has mounted or failed.
/// It is not a fork of this process, so that no lock and no thread of it can be in between states.
fn start_daemon(args: &MountArgs, config: &Config) -> Result<(), Failure> {
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
    let mut said = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        // An unreadable report is no report.
        let _ = pipe.read_to_string(&mut said);
    }
    match serde_json::from_str(&said) {
        Ok(Report::Ready) => Ok(()),
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
    // Out of the reach of Ctrl-C and of the shell's job control. Not a session of its own: with
    // autogroups the scheduler would take it for another group than the programs that use the mount,
    // and move these to another CPU with every answer, which takes three times as long.
    // It fails only where this process leads a group already.
    let _ = rustix::process::setpgid(None, None);
    let mut is_ready = false;
    let ended = config(args).and_then(|config| {
        let destination = match &args.log_file {
            Some(file) => Destination::File(PathBuf::from(file)),
            None => Destination::Syslog,
        };
        logging::start(&destination, &config.source)?;
        logging::abort_on_panic();
        daemon::run(&config, || {
            is_ready = true;
            report(&Report::Ready);
            leave_terminal();
        })
        .map_err(|failure| failure.with_code(code::MOUNT_FAILED))
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

fn report(report: &Report) {
    if let Ok(line) = serde_json::to_string(report) {
        // If the other process is gone, nobody wants to know.
        let _ = writeln!(io::stdout(), "{line}");
    }
}

/// Lets go of the terminal, and of the pipe to the other process, which waits for its end.
fn leave_terminal() {
    let Ok(null) = fs::File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    let _ = rustix::stdio::dup2_stdin(&null);
    let _ = rustix::stdio::dup2_stdout(&null);
    let _ = rustix::stdio::dup2_stderr(&null);
}
