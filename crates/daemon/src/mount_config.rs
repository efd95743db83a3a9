//! What to mount where, and how the kernel and the transport treat the mount.

use std::path::PathBuf;

use dendro_fs::AtimePolicy;
use dendro_fuse::{Access, MountOptions as FuseOptions};

use crate::mounts;
use crate::options::MountOptions;

/// What to mount where. Both paths are absolute and without symbolic links.
#[derive(Clone, Debug)]
pub struct Config {
    /// The image file or block device.
    pub source: PathBuf,
    /// The directory.
    pub mount_point: PathBuf,
    /// How it is mounted.
    pub options: MountOptions,
}

/// The mount options of the kernel and of the transport.
pub fn fuse_options(config: &Config) -> FuseOptions {
    let options = &config.options;
    let for_everyone = rustix::process::geteuid().is_root();
    FuseOptions {
        source: match &options.fs_name {
            Some(name) => name.clone(),
            None => mounts::source_name(&config.source, &options.version),
        },
        read_only: options.read_only,
        access: options.access.unwrap_or(if for_everyone { Access::All } else { Access::Owner }),
        dev: options.dev,
        suid: options.suid,
        exec: options.exec,
        sync: options.sync,
        dirsync: options.dirsync,
        noatime: options.atime == AtimePolicy::Noatime,
        nosymfollow: !options.symfollow,
        order: options.order,
        xattr: options.xattr,
        block_device: false,
        threads: options.threads,
        transport: options.transport,
        enable_uring: options.enable_uring,
        past: None,
        timings: None,
    }
}
