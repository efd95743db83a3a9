//! `mount -o remount`: changes how the kernel treats a mount that is there.

use std::path::Path;
use std::time::Duration;

use dendro_fs::AtimePolicy;
use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::failure::{Failure, code};
use crate::mount_options::MountOptions;
use crate::mount_table::{self, MountEntry};
use crate::target::{self, Behind};

/// How often, and after what pause, a busy mount is tried again.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Gives the mount on `mount_point` the flags that `options` say: ro, sync, noatime, nodev, nosuid,
/// noexec, or their opposites. The daemon's own options stay as they are.
pub(crate) fn run(mount_point: &Path, options: &MountOptions) -> Result<(), Failure> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::new(format_args!("{}: {why}", mount_point.display())).with_code(code::MOUNT_FAILED)
    };
    let table = mount_table::read()?;
    let entry = table.iter().rev().find(|entry| entry.mount_point == mount_point);
    let entry = entry
        .filter(|entry| entry.is_dendro())
        .ok_or_else(|| fail(&"no dendrofs volume is mounted there"))?;
    let view = match target::daemon_behind(&table, entry, mount_point) {
        Behind::Daemon(served) => served.view,
        Behind::Mute(mute) => return Err(fail(&mute)),
        Behind::Nobody => None,
    };
    if let Some(why) = view.and_then(|view| view.read_only).filter(|_| !options.read_only) {
        return Err(fail(&format_args!(
            "cannot be made writable: {why}; unmount it, and mount it again without ro"
        )));
    }
    if options.read_only {
        make_durable(entry).map_err(|error| fail(&error))?;
    }
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    flags.set(MountFlags::NOATIME, options.atime == AtimePolicy::Noatime);
    change(mount_point, flags).map_err(|errno| match errno {
        Errno::BUSY => fail(&"is busy: a file is open there for writing"),
        Errno::PERM => fail(&"root alone can change how it is mounted"),
        errno => fail(&errno),
    })
}

/// A mount that is busy is tried again for a while: the kernel takes a moment to give back a file that
/// nobody uses any longer.
fn change(mount_point: &Path, flags: MountFlags) -> rustix::io::Result<()> {
    for _ in 1..BUSY_TRIES {
        match rustix::mount::mount_remount(mount_point, flags, c"") {
            Err(Errno::BUSY) => std::thread::sleep(BUSY_PAUSE),
            outcome => return outcome,
        }
    }
    rustix::mount::mount_remount(mount_point, flags, c"")
}

/// What was written before a mount becomes read-only is to outlast a crash, as on other file systems;
/// plain FUSE mounts are not told.
fn make_durable(entry: &MountEntry) -> std::io::Result<()> {
    let root = std::fs::File::open(&entry.mount_point)?;
    rustix::fs::syncfs(&root)?;
    root.sync_all()
}
