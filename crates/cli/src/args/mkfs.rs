//! The arguments of `dendro mkfs`.

use std::path::PathBuf;

use clap::Args;
use dendro_base::Uuid;
use dendro_daemon::text;
use dendro_format::Compression;

#[derive(Debug, Args)]
pub(crate) struct MkfsArgs {
    /// The image file or block device
    pub(crate) target: PathBuf,
    /// More of them, each of which is to hold the whole volume, or a part of it
    #[arg(value_name = "TARGET")]
    pub(crate) others: Vec<PathBuf>,
    /// On how many devices each file is kept: on all of them, or on 1, which spreads
    /// the volume over them, so that all are needed [default: all]
    #[arg(long, value_name = "COPIES", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) copies: Option<u8>,
    /// One more of them, a fast one, with --copies 1: the log goes there first, and
    /// what is cold moves to the others
    #[arg(long, value_name = "TARGET")]
    pub(crate) fast: Vec<PathBuf>,
    /// Make or grow the image file to this size, such as 10G
    #[arg(short, long, value_parser = text::parse_size)]
    pub(crate) size: Option<u64>,
    /// Have the image file become longer by itself when the volume gets full, up
    /// to this size
    #[arg(long, value_name = "SIZE", value_parser = text::parse_size)]
    pub(crate) max_size: Option<u64>,
    /// A name for the volume, up to 64 bytes
    #[arg(short = 'L', long, default_value = "", hide_default_value = true)]
    pub(crate) label: String,
    /// The volume's UUID [default: a random one]
    #[arg(short = 'U', long)]
    pub(crate) uuid: Option<Uuid>,
    /// The size of a segment, a power of two from 128K to 64M [default: 4M, below
    /// 16G less]
    #[arg(long, value_name = "SIZE", value_parser = text::parse_size)]
    pub(crate) segment_size: Option<u64>,
    /// Destroy what is there now
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Do not give the blocks that the image or device has back first
    #[arg(short = 'K', long)]
    pub(crate) nodiscard: bool,
    /// Allocate all of the image on the file system that holds it, for good
    #[arg(long)]
    pub(crate) allocate: bool,
    /// Keep the map of files and its checkpoints once or twice, far apart: with 2
    /// no bad sector of theirs loses anything [default: 2 on block devices from 1G
    /// on and on several devices with --copies 1, else 1]
    #[arg(long, value_name = "COPIES", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) metadata_copies: Option<u8>,
    /// Compress files: lz4, zstd, or zstd:1 to zstd:15 [default: none]
    #[arg(long, value_name = "KIND")]
    pub(crate) compress: Option<Compression>,
    /// Compress what the cleaner moves, and has not been compressed so hard yet
    #[arg(long, value_name = "KIND")]
    pub(crate) compress_cold: Option<Compression>,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
