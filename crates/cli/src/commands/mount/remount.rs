//! `mount -o remount`: changes the options of an existing mount.

use std::path::Path;

use dendro_control::SetRequest;
use dendro_daemon::mounts::{self, MountEntry};
use dendro_daemon::options::MountOptions;
use dendro_fs::AtimePolicy;
use dendro_fuse::while_busy;
use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::failure::{Failure, code};
use crate::target::{self, Behind};

/// Gives the mount on `mount_point` the flags in `options`: ro, sync, noatime, nodev, nosuid,
/// noexec, nosymfollow, or their opposites. The daemon gets the other options of `lists`, which
/// holds the same options as text. An option that cannot be changed is refused before any change.
pub(crate) fn run(
    mount_point: &Path,
    options: &MountOptions,
    lists: &[String],
) -> Result<(), Failure> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::new(format_args!("{}: {why}", mount_point.display())).with_code(code::MOUNT_FAILED)
    };
    let table = mounts::read()?;
    let entry = table.iter().rev().find(|entry| entry.mount_point == mount_point);
    let entry = entry
        .filter(|entry| entry.is_dendro())
        .ok_or_else(|| fail(&"no dendrofs volume is mounted there"))?;
    let served = match target::daemon_behind(&table, entry, mount_point) {
        Behind::Daemon(served) => served,
        Behind::Unresponsive(mute) => return Err(fail(&mute)),
        Behind::Nobody => {
            return Err(fail(&"its daemon does not answer, so nothing can be changed"));
        }
    };
    let view = served.view.as_ref();
    if let Some(why) = view.and_then(|view| view.read_only.clone()).filter(|_| !options.read_only) {
        return Err(fail(&format_args!(
            "cannot be made writable: {why}; unmount it, and mount it again without ro"
        )));
    }
    let request = SetRequest {
        mount: served.device().map(str::to_owned),
        options: lists.to_vec(),
        remount: true,
        told: Vec::new(),
    };
    served.client.set(request.clone()).map_err(|error| fail(&error))?;
    if options.read_only {
        make_durable(entry).map_err(|error| fail(&error))?;
    }
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::NOSYMFOLLOW, !options.symfollow);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    flags.set(MountFlags::NOATIME, options.atime == AtimePolicy::Noatime);
    change(mount_point, flags).map_err(|errno| match errno {
        Errno::BUSY => fail(&"is busy: a file is open there for writing"),
        Errno::PERM => fail(&"root alone can change how it is mounted"),
        errno => fail(&errno),
    })?;
    // The daemon applies `sync` to changes that are no writes, and shows the other options.
    let told = SetRequest { options: Vec::new(), told: options.of_kernel(), ..request };
    served.client.set(told).map(drop).map_err(|error| {
        fail(&format_args!(
            "the kernel has the new options, but the daemon does not have them: {error}; \
             repeat the remount"
        ))
    })
}

/// Tries a busy mount again for a while: the kernel takes a moment to release a file that nobody
/// uses any more.
fn change(mount_point: &Path, flags: MountFlags) -> rustix::io::Result<()> {
    let is_busy = |errno: &Errno| *errno == Errno::BUSY;
    while_busy(is_busy, || rustix::mount::mount_remount(mount_point, flags, c""))
}

/// Makes what was written durable before a mount becomes read-only, as other file systems do; the
/// kernel does not notify plain FUSE mounts.
fn make_durable(entry: &MountEntry) -> std::io::Result<()> {
    let root = std::fs::File::open(&entry.mount_point)?;
    rustix::fs::syncfs(&root)?;
    root.sync_all()
}
