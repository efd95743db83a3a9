//! The block device of a mount of type fuseblk; for an image, a loop device.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use dendro_device::LoopDevice;

use crate::failure::Failure;
use crate::options::MountOptions;

const LOOP_CONTROL: &str = "/dev/loop-control";

/// What a volume is opened by.
pub struct BlockSource {
    /// The image file, or the block device.
    pub path: PathBuf,
    /// Whether it is to be mounted as a block device.
    pub is_fuseblk: bool,
    /// Whether it may be mounted as plain FUSE if a block device is not possible.
    pub may_be_plain: bool,
    /// Stays attached as long as this value or the mount exists.
    _loop_device: Option<LoopDevice>,
}

impl BlockSource {
    /// Chooses what to open for the volume on `source`, and how to mount it: a block device as such
    /// if root mounts, an image through a loop device if that is wanted.
    pub fn new(source: &Path, options: &MountOptions) -> Result<Self, Failure> {
        let is_root = rustix::process::geteuid().is_root();
        let is_block = is_block_device(source);
        let wants_loop = options.is_loop && !is_block;
        let is_fuseblk = options.fuseblk.unwrap_or(is_root && (is_block || wants_loop));
        if is_fuseblk && !is_root {
            return Err(Failure::new(format_args!(
                "{}: root alone can mount it as a block device; leave fuseblk out",
                source.display()
            )));
        }
        let may_be_plain = options.fuseblk.is_none();
        if !wants_loop && (is_block || !is_fuseblk) {
            let path = source.to_path_buf();
            return Ok(Self { path, is_fuseblk, may_be_plain, _loop_device: None });
        }
        let attached = LoopDevice::attach(source, options.read_only_device).map_err(|error| {
            Failure::new(format_args!(
                "{}: cannot be attached to a loop device: {error}; with nofuseblk it need not be",
                source.display()
            ))
        })?;
        let path = attached.path().to_path_buf();
        Ok(Self { path, is_fuseblk, may_be_plain, _loop_device: Some(attached) })
    }
}

/// Whether `source` is an image that can be mounted as a block device.
pub fn can_attach(source: &Path) -> bool {
    rustix::process::geteuid().is_root()
        && !is_block_device(source)
        && fs::metadata(LOOP_CONTROL).is_ok()
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}
