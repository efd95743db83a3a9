//! A mount namespace of this process.

use std::{fs, io};

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::UnshareFlags;

use crate::failure::Failure;

/// Hides later mounts of this process and its children from other processes. Users other than root
/// do this in a user namespace, in which they keep their identity.
pub(super) fn enter() -> Result<(), Failure> {
    let is_root = rustix::process::geteuid().is_root();
    let entered = match is_root {
        true => unshare(UnshareFlags::NEWNS),
        false => enter_as_user(),
    };
    entered.map_err(|error| {
        let is_chroot = error.kind() == io::ErrorKind::InvalidInput;
        let advice = match is_root {
            _ if is_chroot => "the root directory must be a mount, which that of chroot(8) is not",
            true => "in a container, it takes the capability SYS_ADMIN",
            false => "this system may keep user namespaces from users; root can do it",
        };
        Failure::new(format_args!("a mount namespace cannot be had: {error}; {advice}"))
    })
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    #[allow(deprecated, reason = "only the table of descriptors, which stays shared, is unsafe")]
    rustix::thread::unshare(flags)?;
    // Unmounts by others take effect here too, if they share their mounts; else a mount would stay
    // in use here.
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(mount_change("/", downstream)?)
}

fn enter_as_user() -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}
