use std::sync::Arc;

use dendro_block::{Devices, Error};
use dendro_disk::ListCompression::AsOthers;
use dendro_disk::{Error as DiskError, ListCompression, Versions};
use dendro_logdisk::LogDisk;
use dendro_nbd::Exports;

use crate::volume;

const MIB: u64 = 1 << 20;

fn devices(disk: &Arc<LogDisk>) -> Devices {
    Devices::new(Arc::clone(disk) as Arc<dyn Versions>, false)
}

fn names(devices: &Devices) -> Vec<(String, u64)> {
    let all = devices.all().unwrap().into_iter();
    all.map(|device| (device.name, device.size_bytes)).collect()
}

#[test]
fn a_device_that_is_open_becomes_longer_alone() {
    let devices = devices(&volume(64 << 20));
    devices.create("disk", MIB, AsOthers).unwrap();
    let open = devices.open("disk").unwrap();
    open.write(0, &[7; 1 << 20], false).unwrap();
    assert_eq!(devices.resize("disk", MIB / 2, false), Err(Error::WouldShrink(MIB)));
    let refused = Error::CannotShrink { size_bytes: MIB, count: 1 };
    assert_eq!(devices.resize("disk", MIB / 2, true), Err(refused));
    assert_eq!(open.size_bytes(), MIB);
    devices.resize("disk", 2 * MIB, false).unwrap();
    assert_eq!(open.size_bytes(), 2 * MIB);
    open.write(2 * MIB - 3, b"end", true).unwrap();
    let mut read = [1; 3];
    open.read(MIB, &mut read).unwrap();
    assert_eq!(read, [0; 3]);
    drop(open);
    devices.resize("disk", MIB, true).unwrap();
    devices.resize("disk", 2 * MIB, false).unwrap();
    let open = devices.open("disk").unwrap();
    open.read(2 * MIB - 3, &mut read).unwrap();
    assert_eq!(read, [0; 3], "what was cut off has come back");
    open.read(MIB - 3, &mut read).unwrap();
    assert_eq!(read, [7; 3]);
}

/// Whoever reads alone counts on its device as well.
#[test]
fn a_device_that_is_open_for_reading_stays() {
    let devices = devices(&volume(64 << 20));
    devices.create("disk", MIB, AsOthers).unwrap();
    let reading = devices.for_reading();
    let open = reading.open("disk").unwrap();
    assert!(open.is_read_only());
    let second = devices.open("disk").unwrap();
    let refused = Error::CannotShrink { size_bytes: MIB, count: 2 };
    assert_eq!(devices.resize("disk", MIB / 2, true), Err(refused));
    let refused = devices.delete("disk", true).unwrap_err();
    assert_eq!(refused, Error::Connected { name: "disk".into(), count: 2 });
    for part in ["disk has 2 connections", "`dendro block list --connections`"] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    drop(second);
    devices.resize("disk", 2 * MIB, false).unwrap();
    assert_eq!(open.size_bytes(), 2 * MIB);
    // The two are no single value: one of them writes.
    let writing = devices.open("disk").unwrap();
    writing.write(5, b"bytes", false).unwrap();
    let mut read = [0; 5];
    open.read(5, &mut read).unwrap();
    assert_eq!(&read, b"bytes");
    drop((open, writing));
    devices.delete("disk", false).unwrap();
}

#[test]
fn what_is_open_is_not_deleted() {
    let disk = volume(64 << 20);
    let devices = devices(&disk);
    devices.create("disk", MIB, AsOthers).unwrap();
    devices.create("other", MIB, AsOthers).unwrap();
    let branch = disk.versions().branch_named("disk").unwrap().branch;
    let kept = disk.snapshot(branch, Some("kept")).unwrap().view();
    let open = devices.open("disk@kept").unwrap();
    assert_eq!(devices.open_views(), [kept]);
    assert_eq!(devices.delete("disk", false), Err(Error::HasSnapshots("@kept".into())));
    let refused = Error::Connected { name: "disk@kept".into(), count: 1 };
    assert_eq!(devices.delete("disk", true), Err(refused));
    assert_eq!(names(&devices).len(), 3, "nothing was deleted");
    devices.delete("other", false).unwrap();
    drop(open);
    assert_eq!(devices.open_views(), []);
    disk.hold(kept, true).unwrap();
    assert_eq!(devices.delete("disk", true), Err(Error::Held("@kept".into())));
    disk.hold(kept, false).unwrap();
    let deleted = devices.delete("disk", true).unwrap();
    let deleted: Vec<_> = deleted.iter().map(|device| &*device.name).collect();
    assert_eq!(deleted, ["disk@kept", "disk"]);
    assert_eq!(names(&devices), []);
    assert!(devices.open("disk").is_err());
}

#[test]
fn devices_are_found_by_their_names() {
    let devices = devices(&volume(64 << 20));
    devices.create("disk", MIB, AsOthers).unwrap();
    assert_eq!(names(&devices), [("disk".to_owned(), MIB)]);
    assert!(matches!(
        devices.create("disk", MIB, AsOthers),
        Err(Error::Disk(DiskError::NameTaken(_)))
    ));
    assert_eq!(devices.create("odd", 5, AsOthers), Err(Error::BadSize(5)));
    assert_eq!(devices.resize("none", MIB, false), Err(Error::NotFound));
    assert_eq!(devices.delete("none", false), Err(Error::NotFound));
    assert_eq!(devices.delete("main", false), Err(Error::NoDeviceNamed("main".into())));
    let refused = devices.open("main").err().unwrap();
    assert!(refused.to_string().contains("main is no block device"), "{refused}");
    assert_eq!(names(&devices).len(), 1);
}

#[test]
fn how_a_device_is_compressed_is_listed_with_its_versions() {
    let disk = volume(64 << 20);
    let devices = devices(&disk);
    for (name, compression) in [
        ("others", AsOthers),
        ("never", ListCompression::Never),
        ("lz4", ListCompression::Lz4),
        ("zstd", ListCompression::Zstd),
    ] {
        let made = devices.create(name, MIB, compression).unwrap();
        assert_eq!(made.compression, compression);
        let branch = disk.versions().branch_named(name).unwrap().branch;
        disk.snapshot(branch, Some(&format!("{name}-kept"))).unwrap();
        let listed = devices.all().unwrap();
        let versions: Vec<_> = listed.iter().filter(|of| of.name.starts_with(name)).collect();
        assert_eq!(versions.len(), 2);
        assert!(versions.iter().all(|of| of.compression == compression), "{versions:?}");
        let resized = devices.resize(name, 2 * MIB, false).unwrap();
        assert_eq!(resized.compression, compression);
    }
}
