//! The arguments of the commands that find and mend damage: `check` and `rebuild`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status, as fsck(8) has it, added up: 0 nothing is wrong, 1 what was wrong was \
                        mended, 4 something is wrong and stays so, 8 it could not be checked, 16 \
                        the command line is wrong.\n\
                        fsck(8) checks only what is named by a path that begins with a slash: fsck -t dendro /srv/home.img"
)]
pub(crate) struct CheckArgs {
    /// The image file or block device, also as UUID=… or LABEL=…
    pub(crate) target: PathBuf,
    /// Change nothing, which is so without -y and -p, too
    #[arg(short = 'n', conflicts_with = "yes")]
    pub(crate) no_changes: bool,
    /// Mend what can be mended; how it was before stays as a snapshot
    #[arg(short = 'y')]
    pub(crate) yes: bool,
    /// At boot: only say how it was left; with -f, mend what takes no decision
    #[arg(short = 'p', short_alias = 'a')]
    pub(crate) preen: bool,
    /// Check it however it was left
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Read the contents of all files, too
    #[arg(short, long)]
    pub(crate) data: bool,
    /// Print what is found as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// What fsck(8) passes on, and people are used to
    #[arg(short = 'r', hide = true)]
    pub(crate) interactive: bool,
    #[arg(short = 'v', hide = true)]
    pub(crate) verbose: bool,
    /// Where fsck(8) wants progress to be told
    #[arg(short = 'C', hide = true, num_args = 0..=1, require_equals = false, value_name = "FD")]
    pub(crate) progress: Option<Option<i32>>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 nothing had to be rebuilt, 1 rebuilt without loss, 4 something is lost, \
                        or with -n would be changed, 8 it could not be rebuilt, 2 the command line is wrong."
)]
pub(crate) struct RebuildArgs {
    /// The image file or block device, also as UUID=… or LABEL=…
    pub(crate) target: PathBuf,
    /// Rebuild a copy in this new file, and leave the volume as it is
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Change nothing; say what would be done
    #[arg(short = 'n')]
    pub(crate) no_changes: bool,
    /// Print what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
