//! Recognises what lies on a device, so that a slip does not destroy data.

use dendro_device::Device;
use dendro_format::superblock::MAGIC;

/// How much of the start is examined: enough for every signature below, and to recognise that an
/// image file is in use for something unknown.
pub const LOOKED_AT_BYTES: u64 = 1 << 20;

/// Offset, bytes, and what they identify.
const SIGNATURES: [(usize, &[u8], &str); 26] = [
    (0, &MAGIC, "a dendrofs volume"),
    (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (0x1018, &[0xc6, 0x85, 0x73, 0xf6], "a bcachefs file system"),
    (0x400, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    (0x406, &[0x34, 0x34], "a NILFS2 file system"),
    (0x400, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS file system"),
    (0x1_0034, b"ReIsEr", "a ReiserFS file system"),
    (0x8000, b"JFS1", "a JFS file system"),
    (0, b"hsqs", "a squashfs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (0x2_0000, &[0x0c, 0xb1, 0xba, 0], "a ZFS pool"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (0, b"LUKS\xba\xbe", "an encrypted LUKS volume"),
    (0x218, b"LVM2 001", "an LVM physical volume"),
    (0x1000, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a RAID array"),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a RAID array"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (0, b"QFI\xfb", "a QEMU disk image"),
    (510, &[0x55, 0xaa], "a partition table or boot sector"),
];

/// What lies on `device`, if anything is recognised. `is_file`: it is an image file, in which any
/// data count; a disk may hold leftovers.
pub fn find(
    device: &dyn Device,
    is_file: bool,
) -> Result<Option<&'static str>, dendro_device::Error> {
    let len_bytes = device.len_bytes().min(LOOKED_AT_BYTES);
    let mut start = vec![0; usize::try_from(len_bytes).unwrap_or(0)];
    device.read_at(0, &mut start)?;
    Ok(find_in(&start, is_file))
}

/// The same for a device that begins with `start`.
pub fn find_in(start: &[u8], is_file: bool) -> Option<&'static str> {
    let known = SIGNATURES
        .iter()
        .find(|(offset, bytes, _)| start.get(*offset..).is_some_and(|at| at.starts_with(bytes)))
        .map(|&(_, _, what)| what);
    if known.is_some() || !is_file {
        return known;
    }
    start.iter().any(|&byte| byte != 0).then_some("a file of another kind")
}

#[cfg(test)]
mod tests {
    use dendro_device::MemoryDevice;

    use super::*;

    fn device(offset: u64, bytes: &[u8]) -> MemoryDevice {
        let device = MemoryDevice::new(2 << 20);
        let mut block = vec![0; 8192];
        let start = offset & !4095;
        let at = (offset - start) as usize;
        block[at..at + bytes.len()].copy_from_slice(bytes);
        device.write_at(start, &block).unwrap();
        device
    }

    #[test]
    fn every_signature_is_found() {
        for (offset, bytes, what) in SIGNATURES {
            let found = find(&device(offset as u64, bytes), false).unwrap();
            assert_eq!(found, Some(what));
        }
    }

    #[test]
    fn zeros_are_nothing_and_a_foreign_file_is_something() {
        let zeros = MemoryDevice::new(2 << 20);
        zeros.write_at(0, &vec![0; 2 << 20]).unwrap();
        assert_eq!(find(&zeros, true).unwrap(), None);
        let text = device(5000, b"dear diary");
        assert_eq!(find(&text, true).unwrap(), Some("a file of another kind"));
        assert_eq!(find(&text, false).unwrap(), None);
    }
}
