//! The way to a path, one name after the other, as far as it leads into mounts of ours.
//!
//! Whoever looks up a name in a mount whose daemon does not answer waits until it does, and no signal but
//! one that kills ends that. So before anything is looked up in a mount it is seen who serves it; the way
//! there, and its root, the kernel knows by itself.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use dendro_daemon::mounts::MountEntry;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, openat, readlinkat, statx};

use crate::failure::Failure;

/// As many symbolic links the kernel follows.
const MOST_LINKS: u32 = 40;

/// Goes along `path`, and calls `enter` for each of our mounts in `table` before anything is looked up in
/// it. Where there is nothing, or what is there cannot be entered, the way ends, and all is well.
///
/// # Errors
/// The first that `enter` answers.
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

/// A place on the way.
struct Place {
    descriptor: OwnedFd,
    device: (u32, u32),
    /// The mount's number in the table, where the kernel tells it.
    mount_id: Option<u64>,
    is_link: bool,
}

impl Place {
    /// Without opening what is there, or following it.
    fn open(directory: impl std::os::fd::AsFd, name: &OsStr) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = openat(directory, name.as_bytes(), flags, Mode::empty()).ok()?;
        let as_known = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let wanted = StatxFlags::TYPE | StatxFlags::MNT_ID;
        let told = statx(&descriptor, c"", as_known, wanted).ok()?;
        let has_id = told.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Some(Self {
            descriptor,
            device: (told.stx_dev_major, told.stx_dev_minor),
            mount_id: has_id.then_some(told.stx_mnt_id),
            is_link: FileType::from_raw_mode(told.stx_mode.into()) == FileType::Symlink,
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

    /// Which mounts are entered, where the one that `inside` lies in is taken for one of ours.
    fn entered(inside: &Path, path: &Path) -> usize {
        let identity = MountIdentity::of(inside).unwrap();
        let table = [MountEntry {
            id: identity.table_id.unwrap_or_default(),
            device: identity.device,
            mount_point: "/".into(),
            root: "/".into(),
            fs_type: "fuse.dendro".into(),
            source: "image".into(),
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
