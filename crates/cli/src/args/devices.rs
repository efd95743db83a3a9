//! The arguments of `dendro device` and `dendro migrate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(after_help = "\
A volume can lie on several image files or block devices, each of which holds all of it. What is
written goes to all of them. One that fails, or is not there, is missing from then on; when it comes
back it gets what was written meanwhile. Or it is spread over them (--copies 1): it is as large as
all of them, needs all of them, and grows and shrinks with those that are added and removed.
A device is named by its path or its UUID.")]
pub(crate) struct DeviceArgs {
    #[command(subcommand)]
    pub(crate) verb: DeviceVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeviceVerb {
    /// List the devices of a volume
    List {
        /// One of them, a mount point or a path inside a mount
        #[arg(default_value = ".")]
        target: PathBuf,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a device, and copy the volume to it, or spread it over one more; one that was missing
    /// gets what it lacks
    Add {
        /// One of the devices, a mount point or a path inside a mount
        target: PathBuf,
        /// The device; an image file that does not exist is made
        device: PathBuf,
        /// 1: spread a volume that lies on one device over both, as large as both together; 2: each
        /// device holds all of it, as it is without this option
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
        copies: Option<u8>,
        /// It is a fast one: the log goes there first
        #[arg(long)]
        fast: bool,
        #[command(flatten)]
        common: AddArgs,
    },
    /// Say whether a device of a spread volume is a fast one
    Set {
        /// One of the devices, a mount point or a path inside a mount
        target: PathBuf,
        /// The device
        device: String,
        #[command(flatten)]
        class: ClassArgs,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a device for good; what a spread volume has there is moved to the others
    Remove {
        /// Another one of the devices, a mount point or a path inside a mount
        target: PathBuf,
        /// The device
        device: String,
        /// Do not wait until all was moved; the daemon goes on with it
        #[arg(long)]
        no_wait: bool,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Copy the volume to a new device, and then remove another one
    Replace {
        /// One of the devices, a mount point or a path inside a mount
        target: PathBuf,
        /// The device that is to be removed
        old: String,
        /// The new device; an image file that does not exist is made
        new: PathBuf,
        #[command(flatten)]
        common: AddArgs,
    },
    /// Take a device that is not in use out of its volume, whatever it holds
    Forget {
        /// The device
        device: PathBuf,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop using a device of a mounted volume, until it is added again or the next mount finds it
    Offline {
        /// A mount point or a path inside a mount
        target: PathBuf,
        /// The device
        device: String,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[group(required = true)]
pub(crate) struct ClassArgs {
    /// It is a fast one: the log goes there first
    #[arg(long)]
    pub(crate) fast: bool,
    /// It is none
    #[arg(long)]
    pub(crate) slow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Destroy what the new device holds
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Do not wait until the volume was copied; the daemon goes on with it
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Print the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The volume goes on being used meanwhile if it is mounted. Until all of it was copied it lies on the
old device, after that on the new one; what is left on the old one is taken for the volume no more. If
that is interrupted, the next mount goes on with it. A smaller device takes a smaller volume: `dendro
resize` makes it so first.")]
pub(crate) struct MigrateArgs {
    /// An image file, a block device, a mount point or a path inside a mount
    pub(crate) target: PathBuf,
    /// The new device; an image file that does not exist is made
    pub(crate) new: PathBuf,
    #[command(flatten)]
    pub(crate) common: AddArgs,
}
