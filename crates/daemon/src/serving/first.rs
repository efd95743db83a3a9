//! The mount that the process was started for.

use std::sync::Arc;

use dendro_fs::FileSystem;
use dendro_fuse::{Mount, MountOptions as FuseOptions};
use rustix::io::Errno;

use super::report;
use crate::failure::Failure;
use crate::mount_config::{Config, fuse_options};
use crate::mounts;
use crate::state::Daemon;
use crate::views::{Closing, MountPlace};
use crate::volume::BlockSource;

impl Daemon<'_> {
    /// Makes the mount that the process was started for; returns how its requests arrive.
    pub(crate) fn mount_first(
        &self,
        config: &Config,
        block: &BlockSource,
    ) -> Result<String, Failure> {
        let fail = |why: &dyn std::fmt::Display| {
            Failure::new(format_args!("{}: {why}", config.source.display()))
        };
        let options = &config.options;
        let view = self.volume.resolve(&options.version).map_err(|why| fail(&why))?;
        let fs = self.volume.open_view(view, options).map_err(|error| fail(&error))?;
        let (mount, is_fuseblk) = self.mount_view(&fs, config, block)?;
        let how = match mount.why_no_uring() {
            None => format!("requests come over {}", mount.transport()),
            Some(why) => format!("requests come by {}: {why}", mount.transport()),
        };
        let mount_point = config.mount_point.clone();
        let (device, mount_id) = mounts::numbers_of(&mount_point);
        let namespace = self.namespace.clone();
        let closing = Arc::new(Closing::new(mount.switch()));
        let id = self.views.new_id();
        if is_fuseblk {
            let (closing, views) = (Arc::clone(&closing), Arc::clone(&self.views));
            let block_server = Arc::clone(&self.block_server);
            let (disk, device) = self.volume.parts();
            // umount(2) waits for this. Afterwards another process may have the device.
            mount.set_on_unmount(move || {
                // A failure is logged when serving has ended.
                let _ = closing.close(|| {
                    let is_last = views.end_with_last(id);
                    // Nobody else uses the disk while it is shut down.
                    is_last.then(|| block_server.end());
                    is_last.then_some(&*disk)
                });
                if closing.has_shut_down() {
                    let _ = device.close();
                    device.release();
                }
            });
        }
        let on_behalf_of = None;
        let place =
            MountPlace { id, mount_point, device, mount_id, namespace, is_fuseblk, on_behalf_of };
        self.add(mount, closing, place, options);
        Ok(how)
    }

    /// Mounts as a block device if that is wanted and possible; returns whether it did.
    fn mount_view(
        &self,
        fs: &Arc<FileSystem>,
        config: &Config,
        block: &BlockSource,
    ) -> Result<(Mount, bool), Failure> {
        let past = self.past(fs.view(), &config.options);
        let timings = Some(Arc::clone(&self.timings));
        let plain = FuseOptions { past, timings, ..fuse_options(config) };
        let mount = |options: &FuseOptions| {
            Mount::new(Arc::clone(fs), &config.mount_point, options, report(self.volume))
        };
        if !block.is_fuseblk {
            return Ok((mount(&plain)?, false));
        }
        let source = block.path.display().to_string();
        self.volume.leave_claim();
        let mounted = mount(&FuseOptions { source, block_device: true, ..plain.clone() });
        let error = match mounted {
            Ok(mount) => return Ok((mount, true)),
            Err(error) => error,
        };
        self.volume.take_claim()?;
        let is_impossible = match &error {
            dendro_fuse::Error::Mount { source, .. } => {
                matches!(Errno::from_io_error(source), Some(Errno::PERM | Errno::NODEV))
            }
            _ => false,
        };
        if !block.may_be_plain || !is_impossible {
            return Err(error.into());
        }
        log::info!("it is mounted as plain FUSE: {error}");
        Ok((mount(&plain)?, false))
    }
}
