//! Volumes that lie on several devices.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dendro_base::{SystemClock, Uuid};
use dendro_device::{Device, FileDevice};
use dendro_logdisk::FormatOptions;
use dendro_set::DeviceSet;
use dendrofs::disk::{Aru, CommitSeq, Error as DiskError, Outlasts};
use dendrofs::{CreateOptions, Error, OpenOptions, Runner, Volume};

const LEN_BYTES: u64 = 32 << 20;

/// A mirrored volume of lists on two images, as `dendro mkfs` makes it.
fn mirror(dir: &Path) -> [PathBuf; 2] {
    let paths = ["one.img", "two.img"].map(|name| dir.join(name));
    let members = (1..).zip(&paths).map(|(at, path)| {
        (Uuid([at; 16]), path.clone(), FileDevice::create(path, LEN_BYTES).unwrap())
    });
    let (uuid, clock) = (Uuid([9; 16]), Arc::new(SystemClock) as _);
    let set = DeviceSet::create(uuid, members.collect(), Arc::clone(&clock)).unwrap();
    let set: Arc<dyn Device> = Arc::new(set);
    let format = FormatOptions {
        uuid,
        is_on_set: true,
        segment_size_bytes: 512 << 10,
        ..FormatOptions::default()
    };
    let options = dendro_logdisk::OpenOptions::default();
    let disk = dendro_logdisk::create(&set, &format, options, &clock).unwrap();
    dendro_fs::describe_lists(&disk, "", &SystemClock).unwrap();
    disk.checkpoint().unwrap();
    drop(Volume::from(Arc::new(disk)));
    paths
}

fn put(volume: &Volume, value: &[u8]) -> CommitSeq {
    let mut unit = Aru::new(volume.main());
    unit.put_record(Volume::ROOT, 0, value);
    volume.disk().commit(unit).unwrap()
}

fn get(volume: &Volume) -> Vec<u8> {
    volume.disk().record(volume.main(), Volume::ROOT, 0).unwrap().unwrap().to_vec()
}

#[test]
fn what_outlasts_a_medium_needs_two_devices() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = mirror(dir.path());
    let volume = Volume::open(&one, &OpenOptions::new()).unwrap();
    let commit = put(&volume, b"on both");
    volume.disk().flush_for(Outlasts::Medium, commit).unwrap();
    volume.close().unwrap();

    std::fs::remove_file(&one).unwrap();
    let volume = Volume::open(&two, &OpenOptions::new().degraded(true)).unwrap();
    assert_eq!(get(&volume), b"on both");
    let commit = put(&volume, b"on one");
    assert_eq!(volume.disk().flush_for(Outlasts::Medium, commit), Err(DiskError::OneCopy));

    let alone = Volume::in_memory(LEN_BYTES, &CreateOptions::lists()).unwrap();
    let commit = put(&alone, b"on one");
    assert_eq!(alone.disk().flush_for(Outlasts::Medium, commit), Err(DiskError::OneCopy));
}

#[test]
fn a_device_that_has_moved_is_found_where_it_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = mirror(dir.path());
    let moved = dir.path().join("moved.img");
    std::fs::rename(&two, &moved).unwrap();
    let error = Volume::open(&one, &OpenOptions::new()).unwrap_err();
    assert!(matches!(error, Error::Devices { errno: libc::ENODEV, .. }), "{error}");
    assert!(error.to_string().contains("two.img"), "{error}");

    let foreign = dir.path().join("foreign.img");
    let other = Volume::create(&foreign, LEN_BYTES, &CreateOptions::lists()).unwrap();
    other.close().unwrap();
    let error = Volume::open(&one, &OpenOptions::new().device(&foreign)).unwrap_err();
    assert!(matches!(error, Error::Devices { errno: libc::EINVAL, .. }), "{error}");

    let volume = Volume::open(&one, &OpenOptions::new().device(&moved)).unwrap();
    let commit = put(&volume, b"on both");
    volume.disk().flush_for(Outlasts::Medium, commit).unwrap();
}

#[test]
fn a_runner_brings_up_a_device_that_was_away() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = mirror(dir.path());
    let away = dir.path().join("away.img");
    std::fs::rename(&two, &away).unwrap();
    let volume = Volume::open(&one, &OpenOptions::new().degraded(true)).unwrap();
    put(&volume, b"written without the other");
    volume.close().unwrap();
    std::fs::rename(&away, &two).unwrap();

    let volume = Volume::open(&one, &OpenOptions::new()).unwrap();
    let runner = Runner::start(&volume).unwrap();
    let commit = put(&volume, b"written to both");
    for tries in 0.. {
        match volume.disk().flush_for(Outlasts::Medium, commit) {
            Ok(()) => break,
            Err(error) => assert_eq!(error, DiskError::OneCopy),
        }
        assert!(tries < 10_000, "it was never brought up");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    runner.stop();
    volume.close().unwrap();

    std::fs::remove_file(&one).unwrap();
    let volume = Volume::open(&two, &OpenOptions::new().degraded(true)).unwrap();
    assert_eq!(get(&volume), b"written to both");
}
