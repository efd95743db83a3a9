//! Which mount it is.
//!
//! The numbers in the kernel's table of mounts, those of mounts and those of the file systems that are
//! mounted, are given again as soon as something is unmounted. From Linux 6.8 on each mount has a number
//! of its own too, which is never given again. So who wants to be sure that two looks saw the same mount
//! compares that: what was the mount's at both is so in between, its file system's number included.
//!
//! Nothing here asks a file system for anything, so nothing waits for one that does not answer, as long as
//! the kernel knows the way to the path.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};

/// `STATX_MNT_ID_UNIQUE`.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The mount that a path lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountIdentity {
    /// The mounted file system's number.
    pub device: (u32, u32),
    /// The mount's number in the table of mounts; nothing before Linux 5.8.
    pub table_id: Option<u64>,
    /// The mount's own number; nothing before Linux 6.8.
    pub unique_id: Option<u64>,
}

impl MountIdentity {
    /// The mount that `path` lies in, or that is on top of it; nothing where that cannot be told.
    pub fn of(path: &Path) -> Option<Self> {
        for _ in 0..TRIES {
            let told = ask(path, MNT_ID_UNIQUE)?;
            let tabled = ask(path, StatxFlags::MNT_ID)?;
            let again = ask(path, MNT_ID_UNIQUE)?;
            let unique_id = number(&told, MNT_ID_UNIQUE);
            // Or else something was mounted there at that moment.
            if number(&again, MNT_ID_UNIQUE) == unique_id {
                let device = (told.stx_dev_major, told.stx_dev_minor);
                let table_id = number(&tabled, StatxFlags::MNT_ID);
                return Some(Self { device, table_id, unique_id });
            }
        }
        None
    }

    /// Whether `path` lies in this very mount still.
    pub fn is_still_at(&self, path: &Path) -> bool {
        Self::of(path).as_ref() == Some(self)
    }
}

/// How often it is looked again where mounts come and go.
const TRIES: u32 = 10;

/// What the kernel knows without asking the file system.
fn ask(path: &Path, wanted: StatxFlags) -> Option<Statx> {
    statx(CWD, path, AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT, wanted).ok()
}

fn number(told: &Statx, wanted: StatxFlags) -> Option<u64> {
    (told.stx_mask & wanted.bits() != 0).then_some(told.stx_mnt_id)
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
