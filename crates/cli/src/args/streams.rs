//! The arguments of `dendro send`, `dendro receive` and `dendro stream`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(after_help = "\
The stream has the snapshot as it is on the volume, with numbers of files, times, holes and
attributes. What did not change since the snapshot that --from names is not read. Programs go on
using the volume meanwhile. Without -o, the stream goes to standard output.")]
pub(crate) struct SendArgs {
    /// The snapshot, such as home.img@monday, mnt@monday or mnt:work@12
    #[arg(value_name = "TARGET@SNAPSHOT")]
    pub(crate) target: String,
    /// Send only what is otherwise than in this snapshot of the same volume
    #[arg(short = 'i', long, value_name = "@SNAPSHOT")]
    pub(crate) from: Option<String>,
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
TARGET@NAME BRANCH, or dendro rollback TARGET@NAME.")]
pub(crate) struct ReceiveArgs {
    /// The volume, and if it is to have another one the name of the snapshot
    #[arg(value_name = "TARGET[@NAME]")]
    pub(crate) target: String,
    /// The stream; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
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
    /// List what is in a stream, by the numbers of the files
    List(StreamFileArgs),
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
