//! The arguments of the commands for block devices.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dendro_control::block_devices::BlockCompression;
use dendro_daemon::text;

/// The part of a help text that says how devices are named.
const NAMING: &str = "\
DEVICE is VOLUME/NAME or VOLUME:NAME, where VOLUME is an image file or a block device, or UUID=…
or LABEL=… of one; where it is mounted, also MOUNT:NAME. `dendro nbd` may serve it meanwhile.";

fn compression(text: &str) -> Result<BlockCompression, String> {
    match text {
        "none" => Ok(BlockCompression::None),
        "lz4" => Ok(BlockCompression::Lz4),
        "zstd" => Ok(BlockCompression::Zstd),
        _ if text.starts_with("zstd:") => Err(
            "a device has no level of its own; write zstd, and state the level for the volume, \
             with mkfs --compress or compress= of the mount"
                .into(),
        ),
        _ => Err(format!("\"{text}\" is none of none, lz4 and zstd")),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
A block device is a branch of the volume, so `dendro snapshot create VOLUME:NAME@SNAPSHOT`,
`dendro clone VOLUME:NAME NEW` and `dendro rollback` do with it what they do with other branches:
a clone is a device of its own, and takes space only for what differs. `dendro nbd` serves them.")]
pub(crate) struct BlockArgs {
    #[command(subcommand)]
    pub(crate) verb: BlockVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BlockVerb {
    /// Make a block device, which takes no space until it is written
    #[command(after_help = NAMING)]
    Create {
        /// The volume, and what to call the device
        device: String,
        /// The size, such as 20G; it may be more than the volume has room for
        #[arg(value_parser = text::parse_size)]
        size: u64,
        /// Compress what is written to it, and to clones of it, with `lz4` or `zstd`, or not
        /// (`none`), whatever the volume does. `zstd` has the level of the volume if that
        /// compresses with zstd, else 3 [default: as the volume]
        #[arg(long, value_name = "KIND", value_parser = compression)]
        compress: Option<BlockCompression>,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// List block devices and their snapshots, and how many clients of NBD are connected to each
    List {
        /// An image file, a block device, or a path in a mount
        volume: PathBuf,
        /// List these connections rather: the client, since when, and what it can do
        #[arg(long)]
        connections: bool,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a block device another size, more alone while clients of NBD are connected
    #[command(after_help = NAMING)]
    Resize {
        /// The volume, and the device in it
        device: String,
        /// The size, such as 20G
        #[arg(value_parser = text::parse_size)]
        size: u64,
        /// Make it smaller, too: what lies behind the new end is lost
        #[arg(long)]
        shrink: bool,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete a block device that no client of NBD is connected to
    #[command(after_help = NAMING)]
    Delete {
        /// The volume, and the device in it
        device: String,
        /// Delete its snapshots as well; clones of them stay
        #[arg(long)]
        snapshots: bool,
        /// Print what was deleted as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Clients choose a device by its name, and a snapshot as NAME@SNAPSHOT, which can be read only. The
only device of a volume needs no name. Ctrl-C and SIGTERM end it, once all is durable. If the volume
is mounted, its daemon does the work, and the last umount ends it too.

With TLS, DIR has ca-cert.pem, server-cert.pem and server-key.pem, and clients must have a
certificate of the same authority. Without, everybody who can connect can read and write: only this
user and root can connect to the socket, and all users of this machine to a port of localhost.")]
pub(crate) struct NbdArgs {
    /// An image file, a block device, or a path in a mount
    pub(crate) volume: PathBuf,
    /// Listen at this socket [default: UUID.nbd beside the control sockets]
    #[arg(short, long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Listen at this address rather, as HOST or HOST:PORT [default port: 10809]
    #[arg(short, long, value_name = "ADDRESS", conflicts_with = "socket")]
    pub(crate) listen: Option<String>,
    /// Serve encrypted connections alone, with the certificates in DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) tls_certificates: Option<PathBuf>,
    /// Listen at an address of other machines without TLS, for anybody
    #[arg(long, requires = "listen", conflicts_with = "tls_certificates")]
    pub(crate) allow_plain: bool,
    /// Let nobody write
    #[arg(short, long)]
    pub(crate) read_only: bool,
    /// Print where it listens as JSON, once it does
    #[arg(long)]
    pub(crate) json: bool,
}
