//! The arguments of the commands that clean.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use dendro_control::coalescing::USUAL_COMPRESSION;
use dendro_daemon::text;
use dendro_format::Compression;
use dendro_policy::Kind;

#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    #[command(subcommand)]
    pub(crate) verb: CleanVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CleanVerb {
    /// Show how the volume's own cleaner goes about it, and what there is to clean
    Status(CleanerArgs),
    /// Clean segments now
    Run(RunArgs),
    /// Put together what lies scattered, so that it is read with fewer reads of the device
    Coalesce(CoalesceArgs),
    /// Let the volume's own cleaner clean only for writers that find no room
    Suspend(CleanerArgs),
    /// Let it clean by itself again
    Resume(CleanerArgs),
    /// Change how it goes about it
    Set(SetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CleanerArgs {
    /// A mount point, a path inside a mount, or the volume's image file or device
    pub(crate) target: PathBuf,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Policies:
  ladder          blocks are written together by how long they will live (default)
  greedy          the segment in which the least is alive
  cost-benefit    (1-u) * age / (1+u), as BSD-LFS
  age-threshold   by age and emptiness, of the oldest fifth, as F2FS
  cost-age-times  as cost-benefit, less often what was cleaned often
  d-choices       the emptiest of ten drawn by lot

What is changed holds until the volume is unmounted; see the options of dendro mount.")]
pub(crate) struct SetArgs {
    #[command(flatten)]
    pub(crate) cleaner: CleanerArgs,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// The settings of the cleaner. At least one must be given. nilfs_cleanerd.conf has the same names.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Settings {
    /// How to choose what to clean, and what is written together
    #[arg(short = 'p', long, visible_alias = "policy", value_name = "NAME",
          value_parser = policy())]
    pub(crate) selection_policy: Option<Kind>,
    /// Clean when fewer segments are clean, beyond those in reserve
    #[arg(long, value_name = "N")]
    pub(crate) min_clean_segments: Option<u32>,
    /// Make so many in idle times
    #[arg(long, value_name = "N")]
    pub(crate) max_clean_segments: Option<u32>,
    /// Put together in idle times what lies scattered, or do not
    #[arg(long, value_name = "on|off", value_parser = text::parse_switch)]
    pub(crate) coalesce: Option<bool>,
    /// After so long in which nobody used the volume
    #[arg(long, value_name = "PERIOD", value_parser = text::parse_period)]
    pub(crate) coalesce_after: Option<Duration>,
    /// Let what lies together in so many bytes stay as it is
    #[arg(long, value_name = "SIZE", value_parser = parse_piece)]
    pub(crate) coalesce_piece: Option<u32>,
    /// Write no more in idle times than this share of what clients write
    #[arg(long, value_name = "PERCENT", value_parser = text::parse_percent)]
    pub(crate) coalesce_share: Option<f64>,
}

/// A policy by its name. Completions offer the names.
fn policy() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.map(Kind::name)).try_map(|name| name.parse::<Kind>())
}

fn parse_piece(text: &str) -> Result<u32, String> {
    let bytes = text::parse_size(text)?;
    let in_time = u32::try_from(bytes).ok().filter(|bytes| (4096..=1 << 20).contains(bytes));
    in_time.ok_or_else(|| format!("{text} is not from 4K to 1M"))
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A mount point, a path inside a mount, or the volume's image file or device
    pub(crate) target: PathBuf,
    /// Clean so many segments
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) segments: Option<u64>,
    /// Clean until so many segments are clean
    #[arg(short, long, value_name = "N", conflicts_with = "segments")]
    pub(crate) until_clean: Option<u32>,
    /// Clean all segments that are worth it (default)
    #[arg(short, long, conflicts_with_all = ["segments", "until_clean"])]
    pub(crate) all: bool,
    /// How to choose the next one
    #[arg(short, long, value_name = "NAME", default_value_t = Kind::Greedy, value_parser = policy())]
    pub(crate) policy: Kind,
    /// Leave segments alone of which more is alive
    #[arg(short, long, value_name = "PERCENT", default_value = "90%",
          value_parser = text::parse_percent)]
    pub(crate) most_live: f64,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A piece is what one read of the device fetches, when files are read in order and a MiB at a time. Small
pieces are written again side by side, with the snapshots and clones that share them; large ones stay
(coalesce_piece of dendro clean set). With --compress, all data are compressed that take less then; the
rest stays, and so do files with the flag m. It ends early when clean segments are few.")]
pub(crate) struct CoalesceArgs {
    /// A file or a directory in a mount, with all below it; a mount point or the volume's image
    /// file or device: everything; with :BRANCH behind it a branch or a block device
    pub(crate) target: String,
    /// Compress what is there, with lz4, zstd, or zstd:1 to zstd:15 [default: as compress-cold= or
    /// compress= of the volume, else zstd]
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true,
          default_missing_value = USUAL_COMPRESSION, hide_default_value = true,
          value_parser = compression)]
    pub(crate) compress: Option<String>,
    /// Only say what it would come to
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What requests call a way of compressing.
fn compression(text: &str) -> Result<String, String> {
    match text {
        USUAL_COMPRESSION => Ok(text.into()),
        _ => text.parse().map(|with: Compression| with.to_string()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct CleanerdArgs {
    /// A mount point, a path inside a mount, or the volume's image file or device
    pub(crate) target: PathBuf,
    /// How to choose the next one
    #[arg(short, long, value_name = "NAME", default_value_t = Kind::default(), value_parser = policy())]
    pub(crate) policy: Kind,
    /// Begin when fewer segments than this are clean, a number or a percentage
    #[arg(long, value_name = "SHARE", default_value = "10%")]
    pub(crate) min_clean_segments: Share,
    /// End when so many are
    #[arg(long, value_name = "SHARE", default_value = "20%")]
    pub(crate) max_clean_segments: Share,
    /// Leave segments alone of which more is alive
    #[arg(short, long, value_name = "PERCENT", default_value = "90%",
          value_parser = text::parse_percent)]
    pub(crate) most_live: f64,
    /// Rest for so long after each segment
    #[arg(long, value_name = "SECONDS", default_value = "0.01",
          value_parser = text::parse_interval)]
    pub(crate) pause: Duration,
    /// Say what becomes of each segment
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print that as JSON, an object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A number of segments, or a share of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Share {
    Count(u32),
    Fraction(f64),
}

impl Share {
    /// The number of segments if there are `total`.
    pub(crate) fn of(self, total: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Fraction(fraction) => (f64::from(total) * fraction).ceil() as u32,
        }
    }
}

impl std::str::FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.ends_with('%') {
            return text::parse_percent(text).map(Self::Fraction);
        }
        text.parse().map(Self::Count).map_err(|_| {
            format!("\"{text}\" is no number of segments; write for instance 20 or 10%")
        })
    }
}
