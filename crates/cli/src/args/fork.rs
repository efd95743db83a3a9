//! The arguments of the commands for forks and branches.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(
    after_help = "The fork is a branch of the volume, mounted on DEST: what is done there is seen there alone. It
takes no space but for what differs. `dendro drop DEST` takes it back, `dendro promote DEST:NAME`
puts it in the place of the main branch, and `dendro diff TREE DEST` shows what differs.

Where TREE is a directory in the volume, DEST shows that directory alone if root makes the fork; else
all of the volume, and it is told where in it the directory is."
)]
pub(crate) struct ForkArgs {
    /// A mount or any directory in it, an image, or a version of it as TARGET@NAME
    pub(crate) tree: String,
    /// The directory to make and to mount the fork on; an empty one may be there
    pub(crate) dest: PathBuf,
    /// Make so many, on DEST/1, DEST/2 …
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) count: Option<u32>,
    /// What to call the branch [default: the last part of DEST]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// How to mount it, as in dendro mount
    #[arg(short, long, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "What takes no space alone takes none at all but for some records. Branches that are mounted nowhere
are listed too, such as those that a try left which was killed; `dendro drop TARGET:NAME` deletes one."
)]
pub(crate) struct ForksArgs {
    /// An image file, a block device, a mount point or a path inside a mount
    #[arg(default_value = ".")]
    pub(crate) target: String,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "What was done in the fork is gone then. Where several were made on DEST/1, DEST/2 …, DEST means
all of them."
)]
pub(crate) struct DropArgs {
    /// Where the fork is mounted, or TARGET:NAME
    #[arg(required = true, value_name = "DEST")]
    pub(crate) forks: Vec<String>,
    /// Cut off those who use it
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BranchArgs {
    #[command(subcommand)]
    pub(crate) verb: BranchVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BranchVerb {
    /// List branches
    List(ForksArgs),
    /// Give a branch another name
    Rename {
        /// TARGET:BRANCH
        target: String,
        /// The new name
        name: String,
        /// Print what it is called now as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete branches, all of those named or none; their snapshots stay
    Delete {
        /// TARGET:BRANCH
        target: String,
        /// More of the same volume: :BRANCH
        more: Vec<String>,
        /// Only say what would be deleted, and what each alone would free
        #[arg(short = 'n', long)]
        dry_run: bool,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
}
