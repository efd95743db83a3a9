//! What can be said about versions on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// How versions are named, for the end of a help text.
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
    /// Call a snapshot or a branch otherwise; retention leaves alone what has a name
    Rename {
        /// TARGET@NAME, TARGET@EPOCH or TARGET:BRANCH
        target: String,
        /// The new name
        name: String,
    },
    /// Keep a snapshot from being deleted
    Hold {
        /// TARGET@NAME or TARGET@EPOCH
        target: String,
    },
    /// Let a snapshot be deleted again
    Release {
        /// TARGET@NAME or TARGET@EPOCH
        target: String,
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

#[derive(Debug, Args)]
pub(crate) struct PromoteArgs {
    /// TARGET:BRANCH
    pub(crate) target: String,
}

#[derive(Debug, Args)]
#[command(after_help = NAMING)]
pub(crate) struct RollbackArgs {
    /// The branch and a moment in its past; where it is mounted, no file may be open
    pub(crate) target: String,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Signs: - removed, + added, M modified, R renamed.
A range is TARGET@A..B; without ..B it ends now.")]
pub(crate) struct DiffArgs {
    /// TARGET@A or TARGET@A..B
    pub(crate) target: String,
    /// The other end of the range, as @B or :BRANCH@B
    pub(crate) to: Option<String>,
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
pub(crate) struct UsageArgs {
    /// The volume
    #[arg(default_value = ".")]
    pub(crate) target: String,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
