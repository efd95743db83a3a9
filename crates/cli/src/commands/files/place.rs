//! Where copies go.
//!
//! An image may come from anybody, and may be damaged. So everything is made new below the
//! destination, no symbolic link is followed there, and names that lead elsewhere are refused.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use dendro_fs::{Attr, FileKind, FileTime};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::failure::Failure;

/// A directory in which copies are made.
pub(super) struct Destination {
    root: OwnedFd,
    /// Whether owners are set, which takes root.
    keeps_owners: bool,
}

/// An extended attribute: its name and its value.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

/// The names below the destination's root that lead to a file.
pub(super) type Names = Vec<Vec<u8>>;

impl Destination {
    /// The directory that copies are made in, and the new name if it is not an existing directory
    /// that was given.
    pub(super) fn find(path: &OsStr) -> Result<(Self, Option<OsString>), Failure> {
        let fail = |why: &dyn std::fmt::Display| {
            Failure::new(format_args!("{}: {why}", Path::new(path).display()))
        };
        let keeps_owners = rustix::process::geteuid().is_root();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            Ok(root) => return Ok((Self { root, keeps_owners }, None)),
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR) => return Err(fail(&"is there already, and is no directory")),
            Err(error) => return Err(fail(&error)),
        }
        let path = Path::new(path);
        let name = path.file_name().ok_or_else(|| fail(&"is no name"))?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let root = rustix::fs::openat(CWD, parent, flags, Mode::empty())
            .map_err(|error| Failure::new(format_args!("{}: {error}", parent.display())))?;
        Ok((Self { root, keeps_owners }, Some(name.to_owned())))
    }

    /// Opens a directory that was made.
    pub(super) fn directory(&self, names: &[Vec<u8>]) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = rustix::fs::openat(&self.root, ".", flags, Mode::empty())?;
        for name in names {
            at = rustix::fs::openat(&at, &name[..], flags, Mode::empty())?;
        }
        Ok(at)
    }

    /// Makes a directory, which nobody else can use until it is finished.
    pub(super) fn make_directory(&self, names: &[Vec<u8>]) -> rustix::io::Result<()> {
        let (parent, name) = self.split(names)?;
        rustix::fs::mkdirat(parent, name, Mode::RWXU)
    }

    /// Makes an empty regular file, which nobody else can use until it is finished.
    pub(super) fn make_file(&self, names: &[Vec<u8>]) -> rustix::io::Result<OwnedFd> {
        let (parent, name) = self.split(names)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Makes a symbolic link.
    pub(super) fn make_symlink(&self, names: &[Vec<u8>], target: &[u8]) -> rustix::io::Result<()> {
        let (parent, name) = self.split(names)?;
        rustix::fs::symlinkat(target, parent, name)
    }

    /// Makes a device, a pipe or a socket.
    pub(super) fn make_special(&self, names: &[Vec<u8>], attr: &Attr) -> rustix::io::Result<()> {
        let (parent, name) = self.split(names)?;
        let rdev = attr.rdev;
        let (major, minor) = ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00));
        let kind = match attr.kind {
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::CharDevice => FileType::CharacterDevice,
            FileKind::Fifo => FileType::Fifo,
            _ => FileType::Socket,
        };
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(parent, name, kind, Mode::RUSR | Mode::WUSR, device)
    }

    /// Gives a file that was made one more name.
    pub(super) fn link(&self, old: &[Vec<u8>], new: &[Vec<u8>]) -> rustix::io::Result<()> {
        let (old_parent, old_name) = self.split(old)?;
        let (new_parent, new_name) = self.split(new)?;
        rustix::fs::linkat(old_parent, old_name, new_parent, new_name, AtFlags::empty())
    }

    /// Removes a file that was made.
    pub(super) fn remove(&self, names: &[Vec<u8>]) -> rustix::io::Result<()> {
        let (parent, name) = self.split(names)?;
        rustix::fs::unlinkat(parent, name, AtFlags::empty())
    }

    fn split<'a>(&self, names: &'a [Vec<u8>]) -> rustix::io::Result<(OwnedFd, &'a [u8])> {
        let (name, parents) = names.split_last().ok_or(Errno::EXIST)?;
        Ok((self.directory(parents)?, name))
    }

    /// Sets what a copy has beside its content: owner, extended attributes, mode and times.
    /// Returns the attributes that could not be set.
    pub(super) fn finish(
        &self,
        names: &[Vec<u8>],
        attr: &Attr,
        xattrs: &[Xattr],
    ) -> rustix::io::Result<Vec<(Vec<u8>, Errno)>> {
        let (parent, name) = self.split(names)?;
        let no_follow = AtFlags::SYMLINK_NOFOLLOW;
        let mut perm = attr.perm;
        if self.keeps_owners {
            let (uid, gid) = (Uid::from_raw(attr.uid), Gid::from_raw(attr.gid));
            // This clears set-id bits and capabilities, so those come later.
            rustix::fs::chownat(&parent, name, Some(uid), Some(gid), no_follow)?;
        } else {
            // A program must not run as somebody whom the image's owner did not mean.
            perm &= 0o1777;
        }
        let refused = self.set_xattrs(parent.as_fd(), name, xattrs);
        if attr.kind != FileKind::Symlink {
            // What was just made under this name is no link.
            rustix::fs::chmodat(&parent, name, Mode::from_raw_mode(perm), AtFlags::empty())?;
        }
        let times = Timestamps {
            last_access: timespec(attr.atime),
            last_modification: timespec(attr.mtime),
        };
        rustix::fs::utimensat(&parent, name, &times, no_follow)?;
        Ok(refused)
    }

    fn set_xattrs(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        xattrs: &[Xattr],
    ) -> Vec<(Vec<u8>, Errno)> {
        let path = [format!("/proc/self/fd/{}/", parent.as_raw_fd()).as_bytes(), name].concat();
        let mut refused = Vec::new();
        for (attribute, value) in xattrs {
            // Only root has these, so nobody else misses them.
            let is_roots = !attribute.starts_with(b"user.") && !attribute.starts_with(b"system.");
            if is_roots && !self.keeps_owners {
                continue;
            }
            let set = rustix::fs::lsetxattr(&path[..], &attribute[..], value, XattrFlags::empty());
            refused.extend(set.err().map(|error| (attribute.clone(), error)));
        }
        refused
    }
}

/// Whether a name can be that of a copy. A damaged or forged directory may have others.
pub(super) fn is_sound_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name != b"."
        && name != b".."
        && !name.iter().any(|&byte| matches!(byte, 0 | b'/'))
}

fn timespec(time: FileTime) -> Timespec {
    Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0"] {
            assert!(!is_sound_name(name), "{name:?}");
        }
        assert!(is_sound_name(b"...") && is_sound_name(b"\xff\n"));
    }
}
