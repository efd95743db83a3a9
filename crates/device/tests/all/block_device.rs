//! Block devices, over a loop device. Needs root and a free loop device; says so where it is
//! skipped.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dendro_device::{AlignedBuf, Device, Error, FileDevice, FileKind, OpenOptions};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A loop device over an image in a folder of its own; both go when it is dropped.
struct LoopDevice {
    path: PathBuf,
    image: PathBuf,
    _folder: TempDir,
}

impl LoopDevice {
    fn attach(len_bytes: u64) -> Option<Self> {
        Self::attach_with(len_bytes, &[])
    }

    fn attach_with(len_bytes: u64, options: &[&str]) -> Option<Self> {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let image = folder.path().join("image");
        fs::File::create(&image).unwrap().set_len(len_bytes).unwrap();
        let answer =
            Command::new("losetup").args(["--find", "--show"]).args(options).arg(&image).output();
        match answer {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8(output.stdout).unwrap().trim().into();
                Some(Self { path, image, _folder: folder })
            }
            Ok(output) => {
                println!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("skipped: losetup: {error}");
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let status = Command::new("losetup").arg("--detach").arg(&self.path).status();
        assert!(status.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

fn is_in_use(answer: &Result<FileDevice, Error>) -> bool {
    matches!(answer, Err(Error::InUse { .. }))
}

fn read_only(path: &Path) -> Result<FileDevice, Error> {
    OpenOptions::new().read_only(true).open(path)
}

#[test]
fn a_block_device_reads_writes_flushes_and_discards() {
    let Some(disk) = LoopDevice::attach(16 * MIB + 1024) else { return };
    let device = FileDevice::open(&disk.path).unwrap();
    assert_eq!(device.kind(), FileKind::BlockDevice);
    assert_eq!(device.len_bytes(), 16 * MIB);
    let mut buf = AlignedBuf::zeroed(4 << 20);
    buf.fill(5);
    device.write_at(0, &buf).unwrap();
    device.write_at(4 * MIB, &vec![6; 8192]).unwrap();
    device.flush().unwrap();
    let mut edge = [0; 2];
    device.read_at(4 * MIB - 1, &mut edge).unwrap();
    assert_eq!(edge, [5, 6]);

    let allocated = || fs::metadata(&disk.image).unwrap().blocks() * 512;
    assert!(allocated() >= 4 * MIB);
    device.discard(0, 3 * MIB).unwrap();
    device.flush().unwrap();
    assert!(!device.discards() || allocated() < 2 * MIB, "{} bytes", allocated());
    device.read_at(3 * MIB, &mut edge).unwrap();
    assert_eq!(edge, [5, 5]);
    let refused = |outcome: Result<(), Error>| matches!(outcome, Err(Error::FixedLen { .. }));
    assert!(refused(device.extend(32 * MIB, &[0; 4096], false)));
    assert!(refused(device.truncate(8 * MIB)));
    assert_eq!((device.len_bytes(), device.present_len_bytes().unwrap()), (16 * MIB, 16 * MIB));
    drop(device);

    let answer = OpenOptions::new().overwrite(true).create(&disk.path, MIB);
    assert!(answer.unwrap_err().to_string().contains("is a block device"));
}

#[test]
fn a_loop_device_becomes_longer_and_shorter_with_the_file_behind_it_if_that_is_wanted() {
    let Some(disk) = LoopDevice::attach(4 * MIB) else { return };
    let device = OpenOptions::new().resizes_backing_file(true).open(&disk.path).unwrap();
    device.extend(8 * MIB, &[3; 8192], false).unwrap();
    assert_eq!((device.len_bytes(), device.present_len_bytes().unwrap()), (8 * MIB, 8 * MIB));
    assert_eq!(fs::metadata(&disk.image).unwrap().len(), 8 * MIB);
    let mut edge = [9; 2];
    device.read_at(8 * MIB - 8193, &mut edge).unwrap();
    assert_eq!(edge, [0, 3]);
    device.write_at(6 * MIB, &[4; 4096]).unwrap();
    device.flush().unwrap();
    device.truncate(2 * MIB).unwrap();
    assert_eq!(fs::metadata(&disk.image).unwrap().len(), 2 * MIB);
    assert!(device.write_at(2 * MIB, &[4; 4096]).is_err());
    drop(device);
    assert_eq!(FileDevice::open(&disk.path).unwrap().len_bytes(), 2 * MIB);
}

#[test]
fn a_block_device_is_locked_and_so_is_the_image_behind_it() {
    let Some(disk) = LoopDevice::attach(4 * MIB) else { return };
    let device = FileDevice::open(&disk.path).unwrap();
    assert!(is_in_use(&FileDevice::open(&disk.path)));
    assert!(is_in_use(&read_only(&disk.path)));
    assert!(is_in_use(&FileDevice::open(&disk.image)));
    drop(device);

    let image = FileDevice::open(&disk.image).unwrap();
    assert!(is_in_use(&FileDevice::open(&disk.path)));
    drop(image);
    let _readers = [read_only(&disk.path).unwrap(), read_only(&disk.path).unwrap()];
    assert!(is_in_use(&FileDevice::open(&disk.path)));
}

#[test]
fn udev_can_lock_a_block_device_that_is_open_and_is_waited_for_before() {
    use rustix::fs::FlockOperation::{NonBlockingLockExclusive, NonBlockingLockShared, Unlock};
    let Some(disk) = LoopDevice::attach(4 * MIB) else { return };
    let udev = fs::File::open(&disk.path).unwrap();
    let device = FileDevice::open(&disk.path).unwrap();
    rustix::fs::flock(&udev, NonBlockingLockShared).unwrap();
    assert!(is_in_use(&read_only(&disk.path)), "it is locked all the same");
    device.release();
    assert!(is_in_use(&FileDevice::open(&disk.path)), "udev looks at it");
    let _reader = read_only(&disk.path).unwrap();
    rustix::fs::flock(&udev, Unlock).unwrap();
    assert!(is_in_use(&FileDevice::open(&disk.path)), "somebody reads it");
    rustix::fs::flock(&udev, NonBlockingLockExclusive).unwrap();
    assert!(is_in_use(&read_only(&disk.path)), "somebody divides it");
}

/// Claims a block device as a mount does.
fn claim(path: &Path) -> rustix::io::Result<rustix::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty())
}

#[test]
fn a_claimed_block_device_is_refused_and_an_open_one_is_claimed_until_released() {
    let Some(disk) = LoopDevice::attach(4 * MIB) else { return };
    let other = claim(&disk.path).unwrap();
    assert!(is_in_use(&FileDevice::open(&disk.path)));
    drop(other);

    let device = FileDevice::open(&disk.path).unwrap();
    assert!(claim(&disk.path).is_err());
    device.release_claim();
    claim(&disk.path).unwrap();
    assert!(is_in_use(&FileDevice::open(&disk.path)));
    device.write_at(0, &[1; 4096]).unwrap();
}

#[test]
fn a_write_protected_block_device_opens_for_reading_only() {
    let Some(disk) = LoopDevice::attach_with(4 * MIB, &["--read-only"]) else { return };
    let error = FileDevice::open(&disk.path).unwrap_err();
    assert!(
        matches!(&error, Error::Open { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied),
        "{error}"
    );
    read_only(&disk.path).unwrap();
}
