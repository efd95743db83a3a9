//! Which mount a path lies in, and the numbers of that mount.

use std::path::{Path, PathBuf};

use super::identity::MountIdentity;
use super::table::{MountEntry, read};
use crate::failure::Failure;

/// The mount that `path` lies in, as the kernel says. If the path cannot be looked up because the
/// daemon is gone, its text decides.
pub fn containing<'a>(table: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    let by_name = |path: &Path| {
        table
            .iter()
            .rev()
            .filter(|entry| path.starts_with(&entry.mount_point))
            .max_by_key(|entry| entry.mount_point.as_os_str().len())
    };
    let Some(MountIdentity { device, table_id, .. }) = MountIdentity::of(path) else {
        return by_name(&std::path::absolute(path).ok()?);
    };
    let by_id = table_id.and_then(|id| table.iter().find(|entry| entry.id == id));
    if by_id.is_some_and(|entry| entry.device == device) {
        return by_id;
    }
    let canonical = path.canonicalize().ok()?;
    by_name(&canonical)
        .filter(|entry| entry.device == device)
        .or_else(|| table.iter().rev().find(|entry| entry.device == device))
}

/// The path from the root of the file system that `path` lies in; empty for the root itself.
pub fn below_root(path: &Path) -> Result<PathBuf, Failure> {
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", path.display()));
    let path = path.canonicalize().map_err(|error| fail(&error))?;
    let table = read()?;
    let entry = containing(&table, &path).ok_or_else(|| fail(&"is in no mount"))?;
    let below = path.strip_prefix(&entry.mount_point).map_err(|_| fail(&"is in another mount"))?;
    let root = entry.root.strip_prefix("/").unwrap_or(&entry.root);
    Ok(root.join(below).components().collect())
}

/// The numbers of the mount on `mount_point` that was just made: that of the file system, as the
/// table of mounts has it, and the unique number of the mount.
#[must_use]
pub fn numbers_of(mount_point: &Path) -> (String, Option<u64>) {
    match MountIdentity::of(mount_point) {
        Some(MountIdentity { device: (major, minor), unique_id, .. }) => {
            (format!("{major}:{minor}"), unique_id)
        }
        None => (device_at(mount_point), None),
    }
}

/// The number of the file system that is mounted on `mount_point`, as the table of mounts has it;
/// empty if it is unknown.
pub fn device_at(mount_point: &Path) -> String {
    let table = read().unwrap_or_default();
    let topmost = table.iter().rev().find(|entry| entry.mount_point == mount_point);
    topmost.map(MountEntry::device_text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_lies_in_a_mount() {
        let table = read().unwrap();
        assert!(containing(&table, Path::new("/")).is_some());
    }
}
