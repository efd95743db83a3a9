//! Runs the command like a shell.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// The shell's exit codes if the command was not found, or could not be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;
/// The shell's exit code after a signal: this plus the signal's number.
const BY_SIGNAL: i32 = 128;

/// Runs the command to its end, whatever signals this process gets; returns the exit status. The
/// command gets Ctrl-C and the like from the terminal; other signals are passed on to it.
pub(super) fn run(command: &[OsString]) -> Result<u8, Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::new("there is no command").with_code(NOT_FOUND));
    };
    let mut signals = Signals::new([SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP])?;
    let spawned = Command::new(program).args(arguments).spawn();
    let mut child = spawned.map_err(|error| {
        let status = match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_RUN,
        };
        Failure::new(format_args!("{}: {error}", program.display())).with_code(status)
    })?;
    for signal in &mut signals {
        match signal {
            SIGTERM => pass_on(&child, Signal::TERM),
            SIGHUP => pass_on(&child, Signal::HUP),
            _ => {}
        }
        if let Some(status) = child.try_wait()? {
            return Ok(status_of(status));
        }
    }
    Ok(status_of(child.wait()?))
}

fn pass_on(child: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended just now.
        let _ = kill_process(pid, signal);
    }
}

fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_are_those_of_shells() {
        let run = |line: &[&str]| run(&line.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(run(&["true"]), Ok(0));
        assert_eq!(run(&["sh", "-c", "exit 7"]), Ok(7));
        assert_eq!(run(&["sh", "-c", "kill -9 $$"]), Ok(137));
        assert_eq!(run(&["/none"]).unwrap_err().code, 127);
        assert_eq!(run(&["/"]).unwrap_err().code, 126);
        assert_eq!(run(&[]).unwrap_err().code, 127);
    }
}
