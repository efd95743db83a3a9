//! The arguments of the commands that read files of a volume without mounting it.

use std::ffi::OsString;

use clap::Args;

/// The part of a help text that says how the volume and its version are named.
const NAMING: &str = "\
IMAGE is an image file or a block device that is not mounted, and behind it
  @NAME, @123, @-15m            a snapshot by its name or epoch, or the last one before that time
  :BRANCH, :BRANCH@…            a branch, or a moment in its past
PATH begins at the root of the volume. A backslash is itself; nothing is written to IMAGE.
If IMAGE is damaged, what can be read of it is shown, and a message says which state that is.";

#[derive(Debug, Args)]
#[command(after_help = NAMING)]
pub(crate) struct LsArgs {
    /// IMAGE, IMAGE@MOMENT or IMAGE:BRANCH
    #[arg(value_name = "IMAGE")]
    pub(crate) target: String,
    /// Directories and files
    #[arg(value_name = "PATH", default_value = "/")]
    pub(crate) paths: Vec<OsString>,
    /// Show modes, owners, sizes and times, too
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Show directories below, too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Show directories themselves, not what is in them
    #[arg(short, long, conflicts_with = "recursive")]
    pub(crate) directory: bool,
    /// Print an object a line for each directory or file that is listed
    #[arg(long, conflicts_with = "long")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = NAMING)]
pub(crate) struct CatArgs {
    /// IMAGE, IMAGE@MOMENT or IMAGE:BRANCH
    #[arg(value_name = "IMAGE")]
    pub(crate) target: String,
    /// Files; symbolic links are followed
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
    /// Write zeros for what cannot be read, and go on
    #[arg(short, long)]
    pub(crate) keep_going: bool,
    /// Print an object a line for each part of a file
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = NAMING)]
pub(crate) struct CpArgs {
    /// IMAGE, IMAGE@MOMENT or IMAGE:BRANCH
    #[arg(value_name = "IMAGE")]
    pub(crate) target: String,
    /// What to copy, and last the directory or the new name where it goes
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    pub(crate) paths: Vec<OsString>,
    /// Copy directories with all that is in them
    #[arg(short, long, short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Leave holes for what cannot be read, and go on
    #[arg(short, long)]
    pub(crate) keep_going: bool,
    /// Print how much was copied, and what was not, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
