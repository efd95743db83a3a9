//! The definition of the command line.

pub(crate) mod block;
pub(crate) mod check;
pub(crate) mod cleaning;
pub(crate) mod clients;
pub(crate) mod devices;
pub(crate) mod files;
pub(crate) mod fork;
pub(crate) mod mkfs;
pub(crate) mod replicate;
pub(crate) mod resize;
pub(crate) mod scrub;
pub(crate) mod streams;
pub(crate) mod versions;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use dendro_daemon::text;

use self::block::{BlockArgs, NbdArgs};
use self::check::{CheckArgs, ImageArgs, RebuildArgs};
use self::cleaning::{CleanArgs, CleanerdArgs};
use self::devices::{DeviceArgs, MigrateArgs};
use self::files::{CatArgs, CpArgs, LsArgs};
use self::fork::{BranchArgs, DropArgs, ForkArgs, ForksArgs};
use self::mkfs::MkfsArgs;
use self::streams::{ReceiveArgs, SendArgs, StreamArgs};
use self::versions::{
    CloneArgs, DiffArgs, HistoryArgs, LogArgs, PromoteArgs, RollbackArgs, SnapshotArgs,
    UndeleteArgs, UsageArgs,
};
use crate::failure::code;

/// One run of the command.
#[derive(Debug)]
pub(crate) struct Invocation {
    /// The name by which it was called. Its messages begin with this name.
    pub(crate) name: String,
    pub(crate) quiet: bool,
    pub(crate) command: Command,
}

/// A log-structured file system for Linux in user space
///
/// TARGET is an image file, a block device, a mount point or a path inside a mount.
#[derive(Debug, Parser)]
#[command(name = "dendro", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Say nothing unless it fails
    #[arg(short, long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a file system in an image file or on a block device
    #[command(version, display_name = "mkfs.dendro")]
    Mkfs(MkfsArgs),
    /// Mount a file system
    Mount(MountArgs),
    /// Unmount a file system and wait until all of it is written
    Umount(UmountArgs),
    /// Make everything durable that was written so far
    Sync(SyncArgs),
    /// Show what a volume is like
    Info(TargetArgs),
    /// Report what damage was met while a volume was in use, until it is taken note of
    Damage(DamageArgs),
    /// Read everything in a volume and compare it with its checksums, while it is in use
    Scrub(scrub::ScrubArgs),
    /// Make a volume longer or shorter, with its image file, also while it is mounted
    Resize(resize::ResizeArgs),
    /// List, add, replace and remove the devices that a volume lies on
    Device(DeviceArgs),
    /// Move a volume to another device, also while it is mounted
    Migrate(MigrateArgs),
    /// Change how a mounted volume is served, or show it
    Set(SetOptionsArgs),
    /// Show what a mounted volume has done so far, or does
    Stat(StatArgs),
    /// Show how full the segments are, in figures and in a picture
    Segments(SegmentsArgs),
    /// Clean segments of a mounted volume, and say how its own cleaner goes about it
    Clean(CleanArgs),
    /// Clean segments of a mounted volume whenever clean ones get few, until ended
    Cleanerd(CleanerdArgs),
    /// Make, list and delete snapshots
    Snapshot(SnapshotArgs),
    /// Make a branch that goes on from a version, to be written to
    Clone(CloneArgs),
    /// Make a branch the main one
    Promote(PromoteArgs),
    /// Put a branch back to a moment in its past
    Rollback(RollbackArgs),
    /// Show the history of a volume: its branches and snapshots
    Log(LogArgs),
    /// Show what changed between two versions
    Diff(DiffArgs),
    /// Show the versions of a file
    History(HistoryArgs),
    /// Bring back what was removed
    Undelete(UndeleteArgs),
    /// Show where the space goes, and what each version takes
    Usage(UsageArgs),
    /// Write a snapshot, or what changed since another, as a stream
    Send(SendArgs),
    /// Make a snapshot of what a stream has, or nothing
    Receive(ReceiveArgs),
    /// Look into a stream that was kept in a file
    Stream(StreamArgs),
    /// Keep a standby of a volume, here or on another machine, some seconds behind it
    Replicate(replicate::ReplicateArgs),
    /// Make a working tree that goes on from another, and mount it
    Fork(ForkArgs),
    /// List forks: where they are mounted, what differs, and what they take
    Forks(ForksArgs),
    /// Unmount forks and delete them
    Drop(DropArgs),
    /// List, rename and delete branches
    Branch(BranchArgs),
    /// Make, list, resize and delete block devices in a volume that is not mounted
    Block(BlockArgs),
    /// Serve the block devices of a volume, until ended, to clients of NBD
    Nbd(NbdArgs),
    /// Make, list, rename and delete what else than its own files is kept on a volume
    Client(clients::ClientArgs),
    /// Run a command on a clone of a mounted tree, which becomes the tree if it succeeds
    Try(TryArgs),
    /// Check whether a volume that is not mounted is sound, and mend it
    #[command(version, display_name = "fsck.dendro")]
    Check(CheckArgs),
    /// Make superblocks, checkpoint and map of a damaged volume anew, from all that is left
    Rebuild(RebuildArgs),
    /// Copy the metadata of a volume for a report of an error, with names hidden
    Image(ImageArgs),
    /// List files of a volume that is not mounted, also of a damaged one
    Ls(LsArgs),
    /// Write the contents of files of such a volume to standard output
    Cat(CatArgs),
    /// Copy files out of such a volume
    Cp(CpArgs),
    /// Show what lies on the device, structure by structure
    Dump(DumpArgs),
    /// Print the properties that udev's rules import for a device, if it holds a volume
    #[command(hide = true)]
    Udev { device: PathBuf },
    /// Write a shell's completions to standard output
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Print the candidates for a word that is being typed
    #[command(hide = true)]
    Complete {
        what: Candidates,
        /// That word, and then all words of the line from the command on
        #[arg(last = true, required = true)]
        words: Vec<String>,
    },
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man { directory: PathBuf },
}

/// The kinds of words that a shell asks to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Candidates {
    /// Mount options, which follow `-o`.
    Options,
    /// Options that `dendro set` changes.
    Settings,
    /// Versions, as `TARGET@NAME` or `TARGET:BRANCH`.
    Versions,
}

/// How a volume is mounted. The file system type that mount(8) was called with determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountKind {
    /// `dendro`: as a block device if possible. Images are attached to a loop device.
    Best,
    /// `fuse.dendro`.
    Plain,
    /// `fuseblk.dendro`.
    BlockDevice,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "OPTIONS of -o, separated by commas:
  allow_other, allow_root, noallow_other   let others, root, nobody in (root: allow_other by default)
  relatime (default), noatime, strictatime   when reading changes access times
  commit=SECONDS, order=close   what a crash may lose without fsync (default 5); collect writes until close
  cache=SIZE, checkpoint=SIZE, compress=none|lz4|zstd[:LEVEL], compress-cold=…   memory; log to a checkpoint; new data, what moves
  policy=NAME, reserve=PERCENT  how the cleaner chooses (dendro clean set --help), what stays dead when full (4)
  recover=stop|truncate|skip, degraded, device=PATH   at damage; without a lost device; another device of a set
  check, coalesce=on|off, direct[=writes], buffered, discard=batched|online, nodiscard   check after a crash; gather; page cache; give back
  transport=auto, uring, dev    requests over io_uring if allowed (root: enable_uring), or not, threads=N
  fuseblk, nofuseblk, loop      as a block device, so that sync(2) works (root; images by loop), or not
  clone=BRANCH, snapshot=NAME, at=TIME, nosnapdir, noxattr   another version; no hidden .dendro; no attributes, fewer requests
  retain=10m:all,1d:1m,30d:1h   keep what each commit= leaves for 10 minutes, then one a minute, …
  users=A:B, group=C, owner, metrics=PORT   who may make snapshots and forks too (root's mounts); Prometheus' port
  ro, sync, dirsync, dev, nodev, suid, nosuid, exec, noexec, nosymfollow, remount, fsname=NAME   as in mount(8)")]
pub(crate) struct MountArgs {
    /// The image file or block device, also as UUID=… or LABEL=…; of an image, also IMAGE:BRANCH
    pub(crate) source: PathBuf,
    /// The directory to mount on
    pub(crate) directory: PathBuf,
    /// Mount options, see below
    #[arg(short, long, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// Stay in the foreground; Ctrl-C unmounts
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Where a mount in the background says what goes wrong [default: syslog]
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// Print what is mounted now as JSON
    #[arg(long, conflicts_with = "foreground")]
    pub(crate) json: bool,
    /// This process is the daemon; it reports on standard output
    #[arg(long, hide = true)]
    pub(crate) daemon: bool,
    /// Called by mount(8): do everything but mount
    #[arg(skip)]
    pub(crate) fake: bool,
    /// Called by mount(8): the kind of mount, unless the options determine it
    #[arg(skip)]
    pub(crate) kind: Option<MountKind>,
}

#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// Mount points, image files or block devices
    #[arg(required_unless_present = "all", value_name = "TARGET")]
    pub(crate) targets: Vec<PathBuf>,
    /// All dendrofs mounts that you may unmount
    #[arg(short, long, conflicts_with = "targets")]
    pub(crate) all: bool,
    /// Take it out of the directory tree now, and let those who use it finish
    #[arg(short, long)]
    pub(crate) lazy: bool,
    /// Cut off those who use it, also where its daemon does not answer
    #[arg(short, long, conflicts_with = "lazy")]
    pub(crate) force: bool,
    /// Print what is unmounted now as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Nobody else sees what COMMAND does before it ends with exit status 0, and then all of it at once;
otherwise nothing of it stays. The exit status is COMMAND's; 125 when it could not be tried, or not
be taken over. How the tree was before is kept until the next success, as @before-try-…;
`dendro rollback --undo` puts it back.

When others have changed the tree meanwhile, --on-conflict says what happens:
  keep (default)   what COMMAND did stays in a branch; what can be done with it is told
  discard          what COMMAND did is thrown away
  promote          what COMMAND did stands; what others did is kept as @before-promote-…"
)]
pub(crate) struct TryArgs {
    /// The tree: any directory in its mount
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
    /// How to mount the clone, as in dendro mount
    #[arg(short, long, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// What to call the clone [default: try- and a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Leave what COMMAND did in the clone, however it ends
    #[arg(short, long)]
    pub(crate) keep: bool,
    /// Do not keep how the tree was before
    #[arg(long, conflicts_with = "keep")]
    pub(crate) discard: bool,
    /// What to do when the tree has changed meanwhile
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub(crate) on_conflict: OnConflict,
    /// Print what became of it as JSON, behind what COMMAND prints
    #[arg(long)]
    pub(crate) json: bool,
    /// What to run
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// What happens to a clone if the head has changed since the clone was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnConflict {
    #[default]
    Keep,
    Discard,
    Promote,
}

#[derive(Debug, Args)]
pub(crate) struct SyncArgs {
    /// Any path inside a mount, or the volume's image file or device
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    /// Print what is durable now as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DamageArgs {
    /// An image file, a block device, a mount point or a path inside a mount
    #[arg(default_value = ".")]
    pub(crate) target: PathBuf,
    /// Take note of it: it is shown once more, and forgotten
    #[arg(long)]
    pub(crate) clear: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// An image file, a block device, a mount point or a path inside a mount
    #[arg(default_value = ".")]
    pub(crate) target: PathBuf,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "What can be changed while it is mounted, as in dendro mount -o:
  commit=SECONDS                 what a crash may lose without fsync; of the whole volume
  policy=NAME, coalesce=on|off   how it is cleaned; of the whole volume
  retain=RULE, retain=none       which snapshots the mount makes by itself
  users=NAME[:NAME…], group=…, owner, noowner   who else may make versions; users= names nobody
  relatime, noatime, strictatime when reading changes access times
It lasts until the volume is unmounted. Without options, those in force are shown.")]
pub(crate) struct SetOptionsArgs {
    /// A mount point or a path inside a mount
    pub(crate) target: PathBuf,
    /// The options to change
    #[arg(value_name = "OPTION")]
    pub(crate) options: Vec<String>,
    /// Print the options in force as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Columns of --watch, each of the interval: requests; bytes that programs read, and wrote, and bytes
written to the device, a second; the latter for each byte that programs wrote; what half of all
requests took less than, 99% of them, and all; segments cleaned and how full they were; segments
clean now; how long writers waited for room. What the kernel has cached does not come to the daemon.

To have node-exporter's textfile collector pick the metrics up:
  dendro stat --metrics --to /var/lib/prometheus/node-exporter/home.prom /home"
)]
pub(crate) struct StatArgs {
    /// An image file, a block device, a mount point or a path inside a mount
    #[arg(default_value = ".")]
    pub(crate) target: PathBuf,
    /// Print a line each so many seconds, until ended
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = text::parse_interval)]
    pub(crate) watch: Option<Duration>,
    /// With --watch: end after so many lines
    #[arg(short, long, value_name = "N", requires = "watch")]
    pub(crate) count: Option<u64>,
    /// Print Prometheus's text format; see metrics= of dendro mount for a port
    #[arg(long, alias = "prometheus", conflicts_with_all = ["json", "watch"])]
    pub(crate) metrics: bool,
    /// With --metrics: put it into this file, all of it at once
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub(crate) to: Option<PathBuf>,
    /// Print the facts as JSON; with --watch, an object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "The picture has a character for each segment, or for several side by side:
  .        clean; lines of nothing else become one
  ▁ to █   how much is alive
  o        pending: empty, clean after the next checkpoint
  @        being filled, or will be next
Ages are told in bytes that were written to the log since.")]
pub(crate) struct SegmentsArgs {
    /// An image file, a block device, a mount point or a path inside a mount
    #[arg(default_value = ".")]
    pub(crate) target: PathBuf,
    /// Print a line for each segment instead
    #[arg(short, long)]
    pub(crate) list: bool,
    /// Draw them into this file instead, as SVG
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["list", "json"])]
    pub(crate) plot: Option<PathBuf>,
    /// Print the facts as JSON
    #[arg(long, conflicts_with = "list")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "WHAT is one of:
  superblocks   all superblocks, the oldest first
  checkpoint    the checkpoint that the newest superblock names
  segments      what the checkpoint says of each segment in use
  partials      headers of partial segments, those of a former use too
  records       the same with their records; + marks units that go on
  nodes         nodes of the map, each before its children
  map           entries of the map, in the order of their keys

Without it: the newest superblock, its checkpoint, and the log behind it.
With --path: where a file of a version (IMAGE@…) lies. With --offset: what lies at a place.
No lock is taken: of a mounted volume, parts of different moments may be seen.")]
pub(crate) struct DumpArgs {
    /// An image file, a block device, a mount point or a path inside a mount
    pub(crate) target: PathBuf,
    /// What to show, see below
    #[arg(value_enum, hide_possible_values = true)]
    pub(crate) what: Option<DumpWhat>,
    /// Only this segment (segments, partials, records)
    #[arg(long, value_name = "N")]
    pub(crate) segment: Option<u32>,
    /// Only the log behind the checkpoint, in its order (partials, records)
    #[arg(long, conflicts_with = "segment")]
    pub(crate) log: bool,
    /// Only this list; a file's is its inode number (map)
    #[arg(long, value_name = "N")]
    pub(crate) list: Option<u64>,
    /// Where this file lies: the nodes that lead to it, its entries, its pages, and its log
    #[arg(long, value_name = "PATH", conflicts_with_all = ["what", "offset"])]
    pub(crate) path: Option<OsString>,
    /// What lies at this byte of the device, and which file and version it belongs to
    #[arg(long, value_name = "BYTE", conflicts_with = "what", value_parser = text::parse_size)]
    pub(crate) offset: Option<u64>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The structures that a dump shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpWhat {
    Superblocks,
    Checkpoint,
    Segments,
    Partials,
    Records,
    Nodes,
    Map,
}

/// The command line that mount(8) passes to its helpers.
#[derive(Debug, Parser)]
#[command(version, about = "Mount a dendrofs volume; called by mount(8)")]
struct MountHelper {
    /// The image file or block device
    source: PathBuf,
    /// The directory to mount on
    directory: PathBuf,
    /// Mount options, as in `dendro mount --help`
    #[arg(short)]
    options: Vec<String>,
    /// Do everything but mount
    #[arg(short)]
    fake: bool,
    /// Ignore options that are not known
    #[arg(short)]
    sloppy: bool,
    /// Do not write to mtab, which nobody does any more
    #[arg(short)]
    no_mtab: bool,
    /// Say what is done
    #[arg(short)]
    verbose: bool,
    /// Mount read-only
    #[arg(short)]
    read_only: bool,
    /// Mount for reading and writing
    #[arg(short = 'w')]
    writable: bool,
    /// The file system's type
    #[arg(short = 't')]
    fs_type: Option<String>,
    /// The mount namespace, which mount(8) has entered already
    #[arg(short = 'N')]
    namespace: Option<PathBuf>,
}

impl MountHelper {
    fn into_args(self, name: &str) -> MountArgs {
        let mut options = self.options;
        if self.read_only {
            options.push("ro".into());
        }
        if self.sloppy {
            options.push("sloppy".into());
        }
        MountArgs {
            source: self.source,
            directory: self.directory,
            options,
            foreground: false,
            log_file: None,
            daemon: false,
            json: false,
            fake: self.fake,
            kind: Some(match name {
                "mount.fuse.dendro" => MountKind::Plain,
                "mount.fuseblk.dendro" => MountKind::BlockDevice,
                _ => MountKind::Best,
            }),
        }
    }
}

/// The command line that umount(8) passes to its helpers. The helper returns when all data is
/// written. umount(2) alone does not wait for that.
#[derive(Debug, Parser)]
#[command(version, about = "Unmount a dendrofs volume; called by umount(8)")]
struct UmountHelper {
    /// The mount point, image file or block device
    target: PathBuf,
    /// Cut off those who use it, also where its daemon does not answer
    #[arg(short, conflicts_with = "lazy")]
    force: bool,
    /// Take it out of the directory tree now, and let those who use it finish
    #[arg(short)]
    lazy: bool,
    /// Do not write to mtab, which nobody does any more
    #[arg(short)]
    no_mtab: bool,
    /// Make it read-only where it cannot be unmounted, which is not done
    #[arg(short = 'r')]
    read_only: bool,
    /// Say what is done
    #[arg(short)]
    verbose: bool,
    /// The file system's type
    #[arg(short = 't')]
    fs_type: Option<String>,
    /// The mount namespace, which umount(8) has entered already
    #[arg(short = 'N')]
    namespace: Option<PathBuf>,
}

/// The other names of the command, and the verb that each implies.
pub(crate) const LINKED_NAMES: [(&str, &str); 7] = [
    ("mkfs.dendro", "mkfs"),
    ("fsck.dendro", "check"),
    ("mount.dendro", "mount"),
    ("mount.fuse.dendro", "mount"),
    ("mount.fuseblk.dendro", "mount"),
    ("umount.fuse.dendro", "umount"),
    ("umount.fuseblk.dendro", "umount"),
];

/// The command line of the helper `name` of mount(8) or umount(8), which implies `verb`. `None` for
/// names that take the arguments of `dendro`.
pub(crate) fn helper_command(name: &'static str, verb: &str) -> Option<clap::Command> {
    match verb {
        "mount" => Some(MountHelper::command().name(name)),
        "umount" => Some(UmountHelper::command().name(name)),
        _ => None,
    }
}

/// Reads the command line of a process that was called as `name`. On failure the message has been
/// printed, and the exit code is returned.
pub(crate) fn parse(name: &str, arguments: &[OsString]) -> Result<Invocation, ExitCode> {
    let linked = LINKED_NAMES.iter().find(|(linked, _)| *linked == name);
    let parsed = match linked {
        Some(&(name, "mount")) => {
            let command = MountHelper::command().name(name);
            parse_as(command, arguments).map(|helper: MountHelper| Invocation {
                name: name.into(),
                quiet: true,
                command: Command::Mount(helper.into_args(name)),
            })
        }
        Some(&(name, "umount")) => {
            let command = UmountHelper::command().name(name);
            parse_as(command, arguments).map(|helper: UmountHelper| {
                let UmountHelper { target, lazy, force, .. } = helper;
                let args =
                    UmountArgs { targets: vec![target], all: false, lazy, force, json: false };
                Invocation { name: name.into(), quiet: true, command: Command::Umount(args) }
            })
        }
        Some(&(name, verb)) => {
            let mut arguments = arguments.to_vec();
            arguments.splice(..1.min(arguments.len()), ["dendro".into(), verb.into()]);
            check::complete(&mut arguments);
            parse_dendro(name, &arguments)
        }
        None => {
            let mut arguments = arguments.to_vec();
            check::complete(&mut arguments);
            parse_dendro("dendro", &arguments)
        }
    };
    parsed.map_err(|error| {
        // If printing fails, there is no other way to report.
        let _ = error.print();
        let given = || arguments.iter().skip(1).filter_map(|argument| argument.to_str());
        let verb = match linked {
            Some((_, verb)) => Some(*verb),
            None => given().find(|argument| !argument.starts_with('-')),
        };
        match (error.kind(), verb) {
            (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, _) => ExitCode::SUCCESS,
            (_, Some("mount")) => ExitCode::from(code::MOUNT_USAGE),
            (_, Some("check")) => ExitCode::from(code::CHECK_USAGE),
            (_, Some("try")) => ExitCode::from(code::TRY_FAILED),
            _ => ExitCode::from(code::USAGE),
        }
    })
}

fn parse_dendro(name: &str, arguments: &[OsString]) -> Result<Invocation, clap::Error> {
    let cli: Cli = parse_as(Cli::command(), arguments)?;
    Ok(Invocation { name: name.into(), quiet: cli.quiet, command: cli.command })
}

fn parse_as<T: FromArgMatches>(
    mut command: clap::Command,
    arguments: &[OsString],
) -> Result<T, clap::Error> {
    let matches = command.try_get_matches_from_mut(arguments)?;
    T::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
        MountHelper::command().debug_assert();
        UmountHelper::command().debug_assert();
    }

    #[test]
    fn every_other_name_is_installed() {
        let makefile = include_str!("../../../Makefile").replace("\\\n", " ");
        let links = makefile.lines().find(|line| line.starts_with("LINKS ")).unwrap();
        let installed: Vec<&str> = links.split_whitespace().skip(2).collect();
        assert_eq!(installed, LINKED_NAMES.map(|(name, _)| name));
    }

    #[test]
    fn help_fits_a_screen() {
        let mut cli = Cli::command();
        cli.build();
        for command in [&cli].into_iter().chain(cli.get_subcommands()) {
            let lines = command.clone().render_help().to_string().lines().count();
            // The lists of all commands have as many lines as there are commands.
            let most = if matches!(command.get_name(), "dendro" | "help") { 56 } else { 30 };
            assert!(lines <= most, "{}: {lines} lines", command.get_name());
        }
    }

    #[test]
    fn mount_8_calls_the_helper_in_its_own_way() {
        let line = "mount.fuse.dendro /image /mnt -n -v -o rw,noatime -t fuse.dendro";
        let invocation = parse("mount.fuse.dendro", &arguments(line)).unwrap();
        match invocation.command {
            Command::Mount(args) => {
                assert_eq!(args.source, PathBuf::from("/image"));
                assert_eq!(args.options, ["rw,noatime"]);
                assert!(!args.foreground && !args.fake);
            }
            other => panic!("{other:?}"),
        }
        let fake = parse("mount.dendro", &arguments("mount.dendro /image /mnt -f -r")).unwrap();
        assert!(
            matches!(fake.command, Command::Mount(args) if args.fake && args.options == ["ro"])
        );
    }

    #[test]
    fn umount_8_calls_the_helper_in_its_own_way() {
        let line = "umount.fuse.dendro /mnt -n -l -v -t fuse.dendro";
        let invocation = parse("umount.fuse.dendro", &arguments(line)).unwrap();
        assert!(matches!(invocation.command, Command::Umount(args) if args.lazy && !args.force
                && args.targets == [Path::new("/mnt")]));
    }

    #[test]
    fn mkfs_8_calls_the_same_command_as_people_do() {
        for (name, line) in
            [("mkfs.dendro", "mkfs.dendro -L x /dev/vdb"), ("dendro", "dendro mkfs -L x /dev/vdb")]
        {
            let invocation = parse(name, &arguments(line)).unwrap();
            assert!(matches!(invocation.command, Command::Mkfs(args) if args.label == "x"));
        }
    }

    #[test]
    fn fsck_8_calls_the_check_in_its_own_way() {
        for line in [
            "fsck.dendro -a /dev/vdb",
            "fsck.dendro -p -C 3 /dev/vdb",
            "fsck.dendro -C3 -a /dev/vdb",
            "fsck.dendro -a -C /dev/vdb",
        ] {
            let invocation = parse("fsck.dendro", &arguments(line)).unwrap();
            assert!(
                matches!(invocation.command, Command::Check(args) if args.preen && !args.force
                && args.target == Path::new("/dev/vdb")),
                "{line}"
            );
        }
        let full = parse("fsck.dendro", &arguments("fsck.dendro -f -y /dev/vdb")).unwrap();
        assert!(matches!(full.command, Command::Check(args) if args.force && !args.preen));
    }

    #[test]
    fn a_wrong_command_line_ends_as_the_command_says() {
        let ended = |name: &str, line| format!("{:?}", parse(name, &arguments(line)).err());
        let of = |code: u8| format!("{:?}", Some(ExitCode::from(code)));
        assert_eq!(ended("dendro", "dendro -q mount"), of(code::MOUNT_USAGE));
        assert_eq!(ended("dendro", "dendro try --no-such"), of(code::TRY_FAILED));
        assert_eq!(ended("dendro", "dendro info --no-such"), of(code::USAGE));
        assert_eq!(ended("mkfs.dendro", "mkfs.dendro"), of(code::USAGE));
        assert_eq!(ended("fsck.dendro", "fsck.dendro -Z"), of(code::CHECK_USAGE));
        assert_eq!(ended("dendro", "dendro check"), of(code::CHECK_USAGE));
        assert_eq!(ended("mkfs.dendro", "mkfs.dendro -V"), of(0));
        assert_eq!(ended("dendro", "dendro mkfs --version"), of(0));
        assert_eq!(ended("mount.dendro", "mount.dendro"), of(code::MOUNT_USAGE));
    }
}
