//! Walks along a path and reports each dendrofs mount before it is entered.
//!
//! A process that looks up a name in a mount whose daemon does not answer waits for it, and only a
//! signal that kills ends that. So the caller checks the server of each mount before anything is
//! looked up in it. The kernel resolves the path up to the mount, and the mount's root, by itself.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use dendro_daemon::mounts::MountEntry;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, openat, readlinkat, statx};

use crate::failure::Failure;

/// The kernel follows as many symbolic links.
const MOST_LINKS: u32 = 40;

/// Walks along `path`, and calls `enter` for each dendrofs mount in `table` before anything is
/// looked up in it. The walk ends without an error at a name that does not exist or cannot be
/// entered.
///
/// # Errors
/// The first error of `enter`.
pub(crate) fn follow<'table>(
    table: &'table [MountEntry],
    path: &Path,
    mut enter: impl FnMut(&'table MountEntry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut names = names_of(path);
    let start = if path.is_absolute() { "/" } else { "." };
    let Some(mut place) = Place::open(CWD, OsStr::new(start)) else { return Ok(()) };
    let mut entered = None;
    let mut links = 0;
    loop {
        let here = table.iter().find(|entry| entry.is_dendro() && place.is_in(entry));
        if let Some(entry) = here.filter(|entry| entered != Some(entry.id)) {
            enter(entry)?;
        }
        entered = here.map(|entry| entry.id);
        let Some(name) = names.pop_front() else { return Ok(()) };
        let Some(next) = Place::open(&place.descriptor, &name) else { return Ok(()) };
        if !next.is_link {
            place = next;
            continue;
        }
        links += 1;
        let Ok(target) = readlinkat(&next.descriptor, c"", Vec::new()) else { return Ok(()) };
        let target = OsString::from_vec(target.into_bytes());
        if links > MOST_LINKS {
            return Ok(());
        }
        if Path::new(&target).is_absolute() {
            let Some(root) = Place::open(CWD, OsStr::new("/")) else { return Ok(()) };
            place = root;
        }
        let rest = std::mem::replace(&mut names, names_of(Path::new(&target)));
        names.extend(rest);
    }
}

fn names_of(path: &Path) -> VecDeque<OsString> {
    let is_name =
        |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_name).map(|part| part.as_os_str().to_owned()).collect()
}

/// A directory or file on the path.
struct Place {
    descriptor: OwnedFd,
    device: (u32, u32),
    /// The number of the mount in the table, if the kernel has such numbers.
    mount_id: Option<u64>,
    is_link: bool,
}

impl Place {
    /// Opens a name without opening or following what it refers to.
    fn open(directory: impl std::os::fd::AsFd, name: &OsStr) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = openat(directory, name.as_bytes(), flags, Mode::empty()).ok()?;
        let as_known = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let wanted = StatxFlags::TYPE | StatxFlags::MNT_ID;
        let attributes = statx(&descriptor, c"", as_known, wanted).ok()?;
        let has_id = attributes.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Some(Self {
            descriptor,
            device: (attributes.stx_dev_major, attributes.stx_dev_minor),
            mount_id: has_id.then_some(attributes.stx_mnt_id),
            is_link: FileType::from_raw_mode(attributes.stx_mode.into()) == FileType::Symlink,
        })
    }

    fn is_in(&self, entry: &MountEntry) -> bool {
        self.mount_id.map_or(entry.device == self.device, |id| entry.id == id)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use dendro_daemon::mounts::MountIdentity;

    /// How many mounts are entered if the mount that `inside` lies in counts as a dendrofs mount.
    fn entered(inside: &Path, path: &Path) -> usize {
        let identity = MountIdentity::of(inside).unwrap();
        let table = [MountEntry {
            id: identity.table_id.unwrap_or_default(),
            device: identity.device,
            mount_point: "/".into(),
            root: "/".into(),
            fs_type: "fuse.dendro".into(),
            source: "image".into(),
            user: None,
        }];
        let mut count = 0;
        follow(&table, path, |_| {
            count += 1;
            Ok(())
        })
        .unwrap();
        count
    }

    #[test]
    fn a_mount_is_entered_once_by_whatever_way() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("dir")).unwrap();
        symlink("/proc/self", root.join("away")).unwrap();
        symlink("dir/../loop", root.join("loop")).unwrap();
        let proc = Path::new("/proc");
        assert_eq!(entered(proc, &root.join("dir")), 0);
        assert_eq!(entered(proc, &root.join("dir/../away/status")), 1);
        assert_eq!(entered(proc, &root.join("dir/none/../away")), 0, "the way ends before");
        assert_eq!(entered(proc, &root.join("loop/x")), 0);
        assert_eq!(entered(proc, Path::new("/proc/../proc/1/../self")), 2);
        assert!(entered(Path::new("."), Path::new("Cargo.toml")) >= 1);
    }
}
