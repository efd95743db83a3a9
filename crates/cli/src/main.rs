//! `dendro`: one command to make, mount and look after volumes.
//!
//! It also answers to `mkfs.dendro`, `fsck.dendro`, `mount.dendro` and the like, so that mkfs(8), fsck(8), mount(8),
//! umount(8) and fstab work. This is where the concrete types of all layers are joined, and the
//! only place where threads are started (see [`daemon`]).
//!
//! - [`args`]: what can be said on the command line; help, man pages and completions come from it.
//! - [`mkfs`], [`mount`], [`umount`], [`volume_commands`], [`stat`], [`segments`], [`dump`]: the
//!   commands. [`cleaning`]: those that clean, and what the daemon does for them.
//! - [`check`]: whether a volume is sound.
//! - [`versions`]: snapshots, branches, and files in the past.
//! - [`attempt`]: `dendro try`. [`fork`]: working trees that go on from another one.
//! - [`daemon`]: the process behind the mounts of a volume. [`join`] lets it serve one more. [`volume`]
//!   opens what it serves, [`block_source`] says by
//!   which name. [`remount`] changes how the kernel treats a mount.
//! - [`svg`]: drawings; [`space`]: what holds the space, drawn.
//! - [`json`]: what commands print as JSON.
//! - [`identity`]: whose volume lies on a device, for [`udev`] and for [`tag`], which finds `UUID=…`.
//! - [`target`]: from what the user names to a daemon or a device. [`mount_table`] and
//!   [`mount_identity`] say which mount it is, [`way`] and [`life`] that nobody waits for a daemon that does
//!   not answer.

#![forbid(unsafe_code)]

mod accounts;
mod args;
mod attempt;
mod block_source;
mod check;
mod cleaning;
mod counters;
mod daemon;
mod damage;
mod delegation;
mod dump;
mod failure;
mod fork;
mod generate;
mod identity;
mod join;
mod json;
mod life;
mod logging;
mod memory;
mod mkfs;
mod mount;
mod mount_identity;
mod mount_options;
mod mount_table;
mod output;
mod progress;
mod remount;
mod segments;
mod signature;
mod space;
mod stat;
mod svg;
mod tag;
mod target;
mod text;
mod udev;
mod umount;
mod versions;
mod volume;
mod volume_commands;
mod way;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use args::Command;
use failure::Failure;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let name = arguments.first().map(|name| Path::new(name).to_path_buf()).unwrap_or_default();
    let name = name.file_name().map(|name| name.to_string_lossy().into_owned());
    let invocation = match args::parse(name.as_deref().unwrap_or("dendro"), &arguments) {
        Ok(invocation) => invocation,
        Err(code) => return code,
    };
    let quiet = invocation.quiet;
    let ended = match &invocation.command {
        // These end in more ways than with success or without: as the command does that is run, or
        // as what is found says.
        Command::Try(args) => attempt::run(args, quiet),
        Command::Check(args) => check::run(args, quiet),
        Command::Udev { device } => udev::run(device),
        command => run(command, quiet).map(|()| ExitCode::SUCCESS),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => {
            output::tell(format_args!("{}: {}", invocation.name, failure.message));
            ExitCode::from(failure.code)
        }
    }
}

fn run(command: &Command, quiet: bool) -> Result<(), Failure> {
    match command {
        Command::Mkfs(args) => mkfs::run(args, quiet),
        Command::Mount(args) => mount::run(args, quiet),
        Command::Umount(args) => umount::run(args, quiet),
        Command::Sync(args) => volume_commands::sync(args),
        Command::Info(args) => volume_commands::info(args),
        Command::Damage(args) => damage::run(args, quiet),
        Command::Set(args) => volume_commands::set(args, quiet),
        Command::Stat(args) => stat::run(args),
        Command::Segments(args) => segments::run(args),
        Command::Clean(args) => cleaning::run(&args.verb, quiet),
        Command::Cleanerd(args) => cleaning::cleanerd::run(args, quiet),
        Command::Snapshot(args) => versions::snapshot(args, quiet),
        Command::Clone(args) => versions::clone(args),
        Command::Promote(args) => versions::promote(args, quiet),
        Command::Rollback(args) => versions::rollback(args, quiet),
        Command::Log(args) => versions::log(args),
        Command::Diff(args) => versions::diff(args),
        Command::History(args) => versions::history(args),
        Command::Undelete(args) => versions::undelete(args),
        Command::Usage(args) => versions::usage_of(args),
        Command::Fork(args) => fork::fork(args, quiet),
        Command::Forks(args) => fork::forks(args),
        Command::Drop(args) => fork::drop_forks(args, quiet),
        Command::Branch(args) => fork::branch(args, quiet),
        Command::Try(args) => attempt::run(args, quiet).map(drop),
        Command::Dump(args) => dump::run(args, quiet),
        Command::Check(args) => check::run(args, quiet).map(drop),
        Command::Udev { device } => udev::run(device).map(drop),
        Command::Completions { shell } => generate::print_completions(*shell),
        Command::Complete { what, words } => generate::print_candidates(*what, words),
        Command::Man { directory } => generate::man_pages(directory),
    }
}
