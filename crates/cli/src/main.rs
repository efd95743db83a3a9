//! `dendro`: one command to make, mount and look after volumes.
//!
//! It also answers to `mkfs.dendro`, `fsck.dendro`, `mount.dendro` and the like, so that mkfs(8),
//! fsck(8), mount(8), umount(8) and fstab work. The process behind the mounts of a volume is the
//! crate [`dendro_daemon`]'s, which [`commands::mount`] starts.
//!
//! - [`args`]: what can be said on the command line; help, man pages and completions come from it.
//! - [`commands`]: a module for each command, or for a family of them.
//! - [`target`]: what an argument names. [`offline`]: volumes that nobody has mounted.
//! - [`mount_request`]: lets the daemon that has a volume serve one more mount.
//! - [`output`]: what is printed, for people and as JSON. [`failure`]: exit codes.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod mount_request;
mod offline;
mod output;
mod target;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use args::Command;
use commands::{
    block, check, cleaning, clients, damage, devices, dump, files, fork, generate, image, mkfs,
    mount, nbd, rebuild, replicate, resize, scrub, segments, stat, streams, try_command, udev,
    umount, versions, volume,
};
use failure::Failure;
use signal_hook::consts::SIGXFSZ;

fn main() -> ExitCode {
    // A write behind what `ulimit -f` allows fails with a message, and does not end the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
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
        Command::Try(args) => try_command::run(args, quiet),
        Command::Check(args) => check::run(args, quiet),
        Command::Rebuild(args) => rebuild::run(args, quiet),
        Command::Image(args) => image::run(args, quiet),
        Command::Scrub(args) => scrub::run(args, quiet),
        Command::Udev { device } => udev::run(device),
        command => run(command, quiet).map(|()| ExitCode::SUCCESS),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => {
            output::message(format_args!("{}: {}", invocation.name, failure.message));
            ExitCode::from(failure.code)
        }
    }
}

fn run(command: &Command, quiet: bool) -> Result<(), Failure> {
    match command {
        Command::Mkfs(args) => mkfs::run(args, quiet),
        Command::Mount(args) => mount::run(args, quiet),
        Command::Umount(args) => umount::run(args, quiet),
        Command::Sync(args) => volume::sync(args),
        Command::Info(args) => volume::info(args),
        Command::Damage(args) => damage::run(args, quiet),
        Command::Resize(args) => resize::run(args, quiet),
        Command::Device(args) => devices::device(args, quiet),
        Command::Migrate(args) => devices::migrate(args, quiet),
        Command::Set(args) => volume::set(args, quiet),
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
        Command::Send(args) => streams::send(args, quiet),
        Command::Receive(args) => streams::receive(args, quiet),
        Command::Stream(args) => streams::stream(&args.verb, quiet),
        Command::Replicate(args) => replicate::run(args, quiet),
        Command::Fork(args) => fork::fork(args, quiet),
        Command::Forks(args) => fork::forks(args),
        Command::Drop(args) => fork::drop_forks(args, quiet),
        Command::Branch(args) => fork::branch(args, quiet),
        Command::Block(args) => block::run(args, quiet),
        Command::Nbd(args) => nbd::run(args, quiet),
        Command::Client(args) => clients::run(args),
        Command::Try(args) => try_command::run(args, quiet).map(drop),
        Command::Ls(args) => files::ls::run(args, quiet),
        Command::Cat(args) => files::cat::run(args, quiet),
        Command::Cp(args) => files::cp::run(args, quiet),
        Command::Dump(args) => dump::run(args, quiet),
        Command::Check(args) => check::run(args, quiet).map(drop),
        Command::Rebuild(args) => rebuild::run(args, quiet).map(drop),
        Command::Image(args) => image::run(args, quiet).map(drop),
        Command::Scrub(args) => scrub::run(args, quiet).map(drop),
        Command::Udev { device } => udev::run(device).map(drop),
        Command::Completions { shell } => generate::print_completions(*shell),
        Command::Complete { what, words } => generate::print_candidates(*what, words),
        Command::Man { directory } => generate::man_pages(directory),
    }
}
