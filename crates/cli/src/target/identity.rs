//! Recognises a volume on a device by one superblock, which is read without a lock and without the
//! engine.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dendro_format::Superblock;
use dendro_format::layout::{MAX_SEGMENT_SIZE_LOG2, MIN_SEGMENT_SIZE_LOG2};
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use rustix::fs::OFlags;

/// A superblock of the volume on `path`, if there is one. It may not be the newest, but all have
/// the volume's UUID and label. The search takes about a dozen small reads.
pub(crate) fn of(path: &Path) -> io::Result<Option<Superblock>> {
    // This does not wait for the medium of a drive.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let second_log = (MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2).map(|log2| 1 << log2);
    let mut slot = vec![0; SUPERBLOCK_LEN_BYTES];
    for offset in std::iter::once(0).chain(second_log) {
        // A small device ends before it, or the block cannot be read.
        if file.read_exact_at(&mut slot, offset).is_err() {
            continue;
        }
        let found = Superblock::decode(&slot)
            .ok()
            .filter(|found| found.layout.superblock_offset(found.seq) == offset);
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// A block device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockDevice {
    pub(crate) path: PathBuf,
    /// Other devices consist of it, such as a RAID array, and own what lies on it.
    pub(crate) is_part_of_another: bool,
}

/// All block devices that have a medium, except drives that a read would start.
pub(crate) fn block_devices() -> io::Result<Vec<BlockDevice>> {
    let mut devices = Vec::new();
    for entry in fs::read_dir("/sys/class/block")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let size = fs::read_to_string(entry.path().join("size")).unwrap_or_default();
        let is_drive = name.starts_with("sr") || name.starts_with("fd");
        if is_drive || matches!(size.trim(), "" | "0") {
            continue;
        }
        let has_holders = fs::read_dir(entry.path().join("holders"))
            .is_ok_and(|mut holders| holders.next().is_some());
        let path = Path::new("/dev").join(name.replace('!', "/"));
        devices.push(BlockDevice { path, is_part_of_another: has_holders });
    }
    devices.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use dendro_base::{Timestamp, Uuid};
    use dendro_format::{Addr, Layout};

    use super::*;

    fn superblock(seq: u64) -> Superblock {
        Superblock {
            uuid: Uuid([7; 16]),
            seq,
            compatible: 0,
            read_only: 0,
            incompatible: 0,
            layout: Layout::new(20, 16).unwrap(),
            clean: true,
            compression: 0,
            cold_compression: 0,
            checkpoint_addr: Addr(1 << 15),
            checkpoint_len_bytes: 4096,
            checkpoint_crc32c: 0,
            created: Timestamp::default(),
            written: Timestamp::default(),
            hash_key: [0; 16],
            label: "home".into(),
            retired: Vec::new(),
            checkpoint_mirror: None,
            max_len_bytes: 0,
            member_ends: Vec::new(),
        }
    }

    fn device(at: u64, superblock: &Superblock) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(16 << 20).unwrap();
        file.as_file().write_all_at(superblock.encode().as_slot(), at).unwrap();
        file
    }

    #[test]
    fn a_volume_is_known_by_the_first_slot_of_either_log() {
        let first = device(0, &superblock(0));
        assert_eq!(of(first.path()).unwrap().unwrap().label, "home");
        let second = device(1 << 20, &superblock(256));
        assert_eq!(of(second.path()).unwrap().unwrap().uuid, Uuid([7; 16]));
        // A superblock in a wrong place belongs to another volume, such as an image.
        let stray = device(1 << 21, &superblock(256));
        assert_eq!(of(stray.path()).unwrap(), None);
    }

    #[test]
    fn what_is_short_or_foreign_is_none() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(of(file.path()).unwrap(), None);
        file.write_all(b"dendrofs, the very word, and no more").unwrap();
        assert_eq!(of(file.path()).unwrap(), None);
        assert!(of(Path::new("/nowhere")).is_err());
    }
}
