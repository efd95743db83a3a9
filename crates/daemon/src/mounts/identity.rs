//! The identity of a mount.
//!
//! The kernel reuses the numbers in its table of mounts, of mounts and of mounted file systems, as
//! soon as something is unmounted. From Linux 6.8 on, each mount also has a unique number, which is
//! never reused. Two looks that find the same unique number have seen the same mount, and
//! everything about it, including the number of its file system, was the same in between.
//!
//! Nothing here sends a request to a file system, so nothing waits for one that does not answer, as
//! long as the kernel can resolve the path by itself.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};

/// `STATX_MNT_ID_UNIQUE`.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The mount that a path lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountIdentity {
    /// The device number of the mounted file system.
    pub device: (u32, u32),
    /// The number in the table of mounts; `None` before Linux 5.8.
    pub table_id: Option<u64>,
    /// The unique number; `None` before Linux 6.8.
    pub unique_id: Option<u64>,
}

impl MountIdentity {
    /// The mount that `path` lies in, or that is on top of it; `None` if the kernel does not say.
    pub fn of(path: &Path) -> Option<Self> {
        for _ in 0..TRIES {
            let found = ask(path, MNT_ID_UNIQUE)?;
            let in_table = ask(path, StatxFlags::MNT_ID)?;
            let again = ask(path, MNT_ID_UNIQUE)?;
            let unique_id = number(&found, MNT_ID_UNIQUE);
            // Otherwise something was mounted there at that moment.
            if number(&again, MNT_ID_UNIQUE) == unique_id {
                let device = (found.stx_dev_major, found.stx_dev_minor);
                let table_id = number(&in_table, StatxFlags::MNT_ID);
                return Some(Self { device, table_id, unique_id });
            }
        }
        None
    }

    /// Whether `path` still lies in this mount.
    pub fn is_still_at(&self, path: &Path) -> bool {
        Self::of(path).as_ref() == Some(self)
    }
}

/// How often the look is repeated while mounts come and go.
const TRIES: u32 = 10;

/// Attributes that the kernel knows without a request to the file system.
fn ask(path: &Path, wanted: StatxFlags) -> Option<Statx> {
    statx(CWD, path, AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT, wanted).ok()
}

fn number(found: &Statx, wanted: StatxFlags) -> Option<u64> {
    (found.stx_mask & wanted.bits() != 0).then_some(found.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts;

    #[test]
    fn a_mount_is_found_by_its_number_in_the_table() {
        let table = mounts::read().unwrap();
        for path in ["/", "/proc", "/proc/self/status"] {
            let Some(identity) = MountIdentity::of(Path::new(path)) else { panic!("{path}") };
            let Some(id) = identity.table_id else { continue };
            let entry = table.iter().find(|entry| entry.id == id).unwrap();
            assert!(Path::new(path).starts_with(&entry.mount_point), "{path}: {entry:?}");
            assert!(identity.is_still_at(Path::new(path)));
            assert!(!identity.is_still_at(Path::new("/nowhere")));
        }
    }
}
