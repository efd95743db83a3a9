//! fusermount3, which mounts and unmounts for users who are not root.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use super::request::{Access, Error, MountRequest, Result, UnmountMode};

const HELPER: &str = "fusermount3";
/// The variable that names the socket over which it passes the opened device.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// Mounts, and receives the device.
pub(super) fn mount(mount_point: &Path, request: &MountRequest) -> io::Result<OwnedFd> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The helper inherits it. So does a process that another thread starts at this moment, which
    // does no harm.
    fcntl_setfd(&theirs, fcntl_getfd(&theirs)? - FdFlags::CLOEXEC)?;
    let output = Command::new(HELPER)
        .args(["-o", &options(request), "--"])
        .arg(mount_point)
        .env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string())
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(named)?;
    drop(theirs);
    if !output.status.success() {
        return Err(explained(&output));
    }
    receive(&ours)
}

fn options(request: &MountRequest) -> String {
    // fusermount3 splits its options at commas that have no backslash before them.
    let source = request.source.replace('\\', "\\\\").replace(',', "\\,");
    let choose = |yes, if_yes, if_no| if yes { if_yes } else { if_no };
    let mut options = vec![
        format!("fsname={source}"),
        format!("subtype={}", request.subtype),
        choose(request.read_only, "ro", "rw").into(),
        choose(request.exec, "exec", "noexec").into(),
        choose(request.sync, "sync", "async").into(),
    ];
    if request.default_permissions {
        options.push("default_permissions".into());
    }
    if request.access != Access::Owner {
        options.push("allow_other".into());
    }
    if request.dirsync {
        options.push("dirsync".into());
    }
    if request.noatime {
        options.push("noatime".into());
    }
    options.join(",")
}

fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let received = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.ok_or_else(|| io::Error::other(format!("{HELPER} passed no device")))
}

/// Unmounts.
pub(super) fn unmount(mount_point: &Path, mode: UnmountMode) -> Result<()> {
    let fail = |source| Error::Unmount { path: mount_point.to_path_buf(), source };
    let lazily: &[&str] = if mode == UnmountMode::Idle { &[] } else { &["-z"] };
    let output = Command::new(HELPER)
        .arg("-u")
        .args(lazily)
        .arg("--")
        .arg(mount_point)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| fail(io::Error::new(error.kind(), format!("{HELPER}: {error}"))))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("busy") {
        return Err(Error::Busy(mount_point.to_path_buf()));
    }
    let advice = match message.contains("/etc/mtab") {
        true => "; root can make it: ln -s ../proc/self/mounts /etc/mtab",
        false => "",
    };
    Err(fail(io::Error::other(format!("{}{advice}", message.trim()))))
}

fn named(error: io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => {
            "; users other than root need fusermount3 (Debian: apt install fuse3)"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{HELPER}: {error}{advice}"))
}

/// The error of a failed mount. For the most frequent ones it says what to do.
fn explained(output: &Output) -> io::Error {
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if message.contains("allow_other") || message.contains("allow_root") {
        let advice = "leave allow_other out, or let root put user_allow_other into /etc/fuse.conf";
        return io::Error::new(io::ErrorKind::PermissionDenied, format!("{message}; {advice}"));
    }
    io::Error::other(message)
}
