//! The arguments of the commands for versions.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The part of a help text that says how versions are named.
const NAMING: &str = "\
TARGET is an image file, a block device, a mount point or a path inside a mount, and behind it
  @NAME, @123, @head            a snapshot by its name or its epoch; how it is now
  @2026-11-21T10:00, @-15m      what was kept last before that time (s m h d w M Y)
  :BRANCH, :BRANCH@…            a branch, or a moment in its past";

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    pub(crate) verb: SnapshotVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotVerb {
    /// Keep how a branch is now
    Create {
        /// TARGET@NAME or TARGET:BRANCH@NAME; without @NAME, until retention takes it
        target: String,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// List branches and snapshots
    List {
        /// The volume
        #[arg(default_value = ".")]
        target: String,
        /// Only snapshots that have a name
        #[arg(short, long)]
        named: bool,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete snapshots and branches, all of those named or none
    #[command(after_help = NAMING)]
    Delete {
        /// TARGET@NAME, TARGET@EPOCH or TARGET:BRANCH
        target: String,
        /// More of the same volume: @NAME, @EPOCH or :BRANCH
        more: Vec<String>,
        /// Only say what would be deleted, and what each alone would free
        #[arg(short = 'n', long)]
        dry_run: bool,
        /// Say what was deleted
        #[arg(short, long)]
        verbose: bool,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a snapshot or a branch another name; retention leaves alone what has a name
    Rename {
        /// TARGET@NAME, TARGET@EPOCH or TARGET:BRANCH
        target: String,
        /// The new name
        name: String,
        /// Print what it is called now as JSON
        #[arg(long)]
        json: bool,
    },
    /// Keep a snapshot from being deleted
    Hold {
        /// TARGET@NAME or TARGET@EPOCH
        target: String,
        /// Print what is held as JSON
        #[arg(long)]
        json: bool,
    },
    /// Let a snapshot be deleted again
    Release {
        /// TARGET@NAME or TARGET@EPOCH
        target: String,
        /// Print what is released as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = NAMING)]
pub(crate) struct CloneArgs {
    /// What it goes on from
    pub(crate) target: String,
    /// What to call the new branch
    pub(crate) name: String,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a head is replaced by another one.
#[derive(Debug, Args)]
pub(crate) struct ReplacingArgs {
    /// Throw away what was there, rather than keep it
    #[arg(long)]
    pub(crate) discard: bool,
    /// Even where files are open; those go on in what is there now, or get ESTALE
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The two branches change names, so what was the main branch is kept under the \
                        name that BRANCH had; promoting that takes it back."
)]
pub(crate) struct PromoteArgs {
    /// TARGET:BRANCH
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) how: ReplacingArgs,
}

#[derive(Debug, Args)]
#[command(after_help = ROLLBACK_HELP)]
pub(crate) struct RollbackArgs {
    /// The branch and a moment in its past
    #[arg(default_value = ".", hide_default_value = true)]
    pub(crate) target: String,
    /// Take a rollback or a try back: to what was kept last, or to TARGET@before-…
    #[arg(short, long)]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) how: ReplacingArgs,
}

const ROLLBACK_HELP: &str = "\
What is there until then is kept as a snapshot, whose name is told, such as
  @before-rollback-2026-11-24T20.31.05
It takes the space of what differs until `dendro snapshot delete` throws it away.
Users to whom the mount's users= or group= delegates versions can put branches back that they made,
and take their own `dendro try` back as long as nobody has changed anything since.

TARGET is an image file, a block device, a mount point or a path inside a mount, and behind it
  @NAME, @123, @2026-11-21T10:00, @-15m, :BRANCH@…   the moment";

#[derive(Debug, Args)]
#[command(after_help = "Signs: - removed, + added, M modified, R renamed.
A range is TARGET@A..B; without ..B it ends now. Two mounts of one volume, as forks are, can be
compared too: dendro diff TREE TREE. Without TARGET, @A is of the volume that one stands in.")]
pub(crate) struct DiffArgs {
    /// TARGET@A or TARGET@A..B, or a mount
    pub(crate) target: String,
    /// The other end of the range, as @B, :BRANCH@B, or another mount of the volume
    pub(crate) to: Option<String>,
    /// Only say how many there are of each kind
    #[arg(long)]
    pub(crate) stat: bool,
    /// Print a patch, as git apply takes it
    #[arg(short, long, conflicts_with_all = ["stat", "json"])]
    pub(crate) patch: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// A path in a mount, which need not be there any more; with --volume, from the volume's root
    pub(crate) path: PathBuf,
    /// The volume, if it is not mounted, and the version to look back from
    #[arg(long, value_name = "TARGET")]
    pub(crate) volume: Option<String>,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UndeleteArgs {
    /// A path in a mount; with --volume, from the volume's root
    pub(crate) path: PathBuf,
    /// From when, as NAME, EPOCH or a time [default: the last moment that has it]
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,
    /// Put it under this path instead, named as PATH is
    #[arg(long, value_name = "PATH", conflicts_with = "list")]
    pub(crate) to: Option<PathBuf>,
    /// List what the directory PATH had and can have back
    #[arg(short, long, conflicts_with = "from")]
    pub(crate) list: bool,
    /// The volume, if it is not mounted
    #[arg(long, value_name = "TARGET")]
    pub(crate) volume: Option<String>,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Snapshots that nobody named, one after the other, are one line; --all shows each.
In the graph, ○ stands for what is deleted that several branches go on from."
)]
pub(crate) struct LogArgs {
    /// The volume
    #[arg(default_value = ".")]
    pub(crate) target: String,
    /// Draw beside them which branch goes on from where
    #[arg(short, long)]
    pub(crate) graph: bool,
    /// Show all snapshots
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Draw it into this file instead, as SVG
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) plot: Option<PathBuf>,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// The volume; with --files a file, or a directory with all below it, in a mount
    #[arg(default_value = ".")]
    pub(crate) target: String,
    /// Show what files take on the device, and what compression gains for them
    #[arg(short, long, conflicts_with_all = ["all", "plot"])]
    pub(crate) files: bool,
    /// Show all versions, those too that hold nothing alone
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Draw it into this file instead, as SVG
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["all", "json"])]
    pub(crate) plot: Option<PathBuf>,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
