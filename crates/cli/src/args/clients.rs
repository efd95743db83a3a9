//! The arguments of `dendro client`.

use clap::{Args, Subcommand, ValueEnum};
use dendro_daemon::text::parse_size;

#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    #[command(subcommand)]
    pub(crate) verb: ClientVerb,
}

/// What a client keeps.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Kind {
    /// Directories and files: `dendro mount TARGET:CLIENT`
    #[default]
    Files,
    /// Lists of a program that uses the library
    Application,
}

impl Kind {
    /// What requests call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Application => "application",
        }
    }
}

/// A quota as it is to be, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota(pub(crate) Option<u64>);

fn quota_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("a quota of 0 bytes leaves room for nothing".into()),
        size => Ok(size),
    }
}

fn quota(text: &str) -> Result<Quota, String> {
    if text == "none" { Ok(Quota(None)) } else { quota_size(text).map(|size| Quota(Some(size))) }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientVerb {
    /// List the clients of a volume: what it was made for, and those beside that
    List {
        /// The volume
        #[arg(default_value = ".")]
        target: String,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a client with nothing in it: an empty file system, or lists of a program (block devices
    /// are made by `dendro block create`)
    Create {
        /// TARGET:CLIENT, the volume and what to call the client
        target: String,
        /// What it keeps
        #[arg(short, long, value_enum, default_value_t)]
        kind: Kind,
        /// The most that it may take, with its snapshots
        #[arg(long, value_name = "SIZE", value_parser = quota_size)]
        quota: Option<u64>,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Change what holds for a client as a whole
    Set {
        /// TARGET:CLIENT; what the volume was made for is called `main` unless it was renamed
        target: String,
        /// The most that it may take, with its snapshots; `none`: as much as there is
        #[arg(long, value_name = "SIZE", value_parser = quota)]
        quota: Quota,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete a client with all its branches and snapshots
    Delete {
        /// TARGET:CLIENT
        target: String,
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
    /// Give a client another name
    Rename {
        /// TARGET:CLIENT
        target: String,
        /// The new name
        name: String,
        /// Print what it is called now as JSON
        #[arg(long)]
        json: bool,
    },
}
