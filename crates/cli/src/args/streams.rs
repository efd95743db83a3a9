//! The arguments of `dendro send`, `dendro receive` and `dendro stream`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(after_help = "\
The stream has the snapshot as it is on the volume, with numbers of files, times, holes and
attributes. What did not change since the snapshot that --from names is not read. Programs go on
using the volume meanwhile. Without -o, the stream goes to standard output.
--all makes snapshots of heads that have changed since their last one, called sent-BRANCH-TIME.")]
pub(crate) struct SendArgs {
    /// The snapshot, such as home.img@monday, mnt@monday or mnt:work@12; with --all and --resume
    /// the volume
    #[arg(value_name = "TARGET@SNAPSHOT")]
    pub(crate) target: String,
    /// Send only what is otherwise than in this snapshot of the same volume
    #[arg(short = 'i', long, value_name = "@SNAPSHOT")]
    pub(crate) from: Option<String>,
    /// Send all snapshots and the heads of all branches, one after the other
    #[arg(short, long, conflicts_with = "from")]
    pub(crate) all: bool,
    /// Send the rest of what `dendro receive` has kept a part of, and with --all what follows it
    #[arg(short = 't', long, value_name = "TOKEN", conflicts_with = "from")]
    pub(crate) resume: Option<String>,
    /// Compress it with zstd, with a level from 1 to 19
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, require_equals = true,
          default_missing_value = "3", value_parser = clap::value_parser!(u8).range(1..=19))]
    pub(crate) compress: Option<u8>,
    /// Write it into this new file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// With -o: print what is in it as JSON
    #[arg(long, requires = "output")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The snapshot appears when all of the stream was read and is right; until then, and after an error,
nothing has changed. It is equal to the one that was sent. A stream that was made with --from needs
the snapshot that --from names to be here, under whatever name. To go on from it: dendro clone
TARGET@NAME BRANCH, and dendro promote TARGET:BRANCH if that is to be the main branch. Of several
streams each counts for itself, and those that are here are passed over. What -s has kept, dendro
info shows, too.")]
pub(crate) struct ReceiveArgs {
    /// The volume, and if it is to have another one the name of the snapshot
    #[arg(value_name = "TARGET[@NAME]")]
    pub(crate) target: String,
    /// The stream; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// If it breaks off, keep what was received, and say the token for dendro send --resume
    #[arg(short = 's', long)]
    pub(crate) resumable: bool,
    /// Make the branches whose heads are among the snapshots, except the main one
    #[arg(short, long)]
    pub(crate) branches: bool,
    /// Give up what was kept, and receive nothing
    #[arg(long, conflicts_with_all = ["file", "resumable", "branches"])]
    pub(crate) abort: bool,
    /// Print what was received as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB")]
pub(crate) struct StreamArgs {
    #[command(subcommand)]
    pub(crate) verb: StreamVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StreamVerb {
    /// Read all of a stream, and tell whether it is whole and as it was written
    Verify(StreamFileArgs),
    /// List the files in a stream, and what of each is in it
    List(StreamListArgs),
    /// Copy files out of a stream, with all that they have, without a volume
    Restore(StreamRestoreArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A stream that was made with --from has only the names that changed: a path that is not known from
the root on begins with .../, and - is one that is not known at all. With the streams before it all
are known. Nor are there paths where FILE is standard input, which cannot be read twice.")]
pub(crate) struct StreamListArgs {
    /// The file; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// A stream before it, for the names of files; several, the oldest first
    #[arg(short, long = "base", value_name = "FILE")]
    pub(crate) bases: Vec<PathBuf>,
    /// Print an object a line for each file
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
PATH begins at the root of what was sent; without one, all files are restored. A stream that was
made with --from needs all streams before it, as --base. Meanwhile the file system of DIRECTORY
holds a copy of all that is in the streams.")]
pub(crate) struct StreamRestoreArgs {
    /// The stream; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Files, and directories with all that is in them
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// The directory into which they go, or a new name
    #[arg(short = 'C', long, value_name = "DIRECTORY")]
    pub(crate) to: OsString,
    /// A stream before it; several, the oldest first
    #[arg(short, long = "base", value_name = "FILE")]
    pub(crate) bases: Vec<PathBuf>,
    /// Of several streams in FILE, the snapshot of this name instead of the last one
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    /// Leave out what cannot be made here, and go on
    #[arg(short, long)]
    pub(crate) keep_going: bool,
    /// Print how much was restored, and what was not, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StreamFileArgs {
    /// The file; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
