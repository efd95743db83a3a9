//! The arguments of `dendro scrub`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dendro_daemon::text;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_value_name = "VERB")]
#[command(after_help = "\
Without a verb it begins. While programs use a mounted volume, it takes a twentieth of the time of
the device. After a restart it goes on where it was. What it finds, dendro damage lists.
A volume that is not mounted is read by the command itself, and nothing is written to it.")]
pub(crate) struct ScrubArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<ScrubVerb>,
    #[command(flatten)]
    pub(crate) start: StartArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScrubVerb {
    /// Begin to read everything and compare it with its checksums
    Start(StartArgs),
    /// Show how far it is, what it found, and when one last came to the end
    Status(VerbArgs),
    /// Let it wait until it is resumed, also over a restart
    Pause(VerbArgs),
    /// Let it go on, or change its rate
    Resume(StartArgs),
    /// End it
    Cancel(VerbArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// A mount point, a path inside a mount, an image file or a block device
    #[arg(default_value = ".")]
    pub(crate) target: PathBuf,
    /// Read at most so many bytes in a second, whatever else goes on
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    pub(crate) rate: Option<u64>,
    /// The memory for what it reads next, as 8M; without it, 16 MiB. Of a volume that is not
    /// mounted, half of it is for the map
    #[arg(long, value_name = "SIZE", value_parser = super::check::memory)]
    pub(crate) memory: Option<u64>,
    /// Wait until it has come to the end, and report what it found
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerbArgs {
    /// A mount point, a path inside a mount, or the volume's image file or device
    #[arg(default_value = ".")]
    pub(crate) target: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match text::parse_size(text)? {
        0 => Err("a rate of 0 would never end".into()),
        rate => Ok(rate),
    }
}
