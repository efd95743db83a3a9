//! A file system of a client with a quota.

use dendro_disk::model::ModelDisk;
use dendro_disk::{LogicalDisk, Versions, View};

use super::{Fixture, USER, errno, noatime};
use crate::{FallocateFlags, Ino, LongChange, SetAttr};

const EDQUOT: i32 = 122;
const QUOTA_BYTES: u64 = 1 << 20;

fn fixture() -> Fixture {
    let fixture = Fixture::with(ModelDisk::new(Some(8 << 20)), noatime(), u64::MAX);
    fixture.disk.set_quota(0, Some(QUOTA_BYTES)).unwrap();
    fixture
}

#[test]
fn a_quota_is_used_up_and_given_back() {
    let fixture = fixture();
    let file = fixture.file_with("f", &[7; 900_000]);
    let small = fixture.file_with("g", &[7; 40_000]);
    assert_eq!(errno(fixture.fs.write(file, 900_000, &[7; 200_000], false)), EDQUOT);
    assert_eq!(fixture.attr(file).size_bytes, 900_000);
    // What is there can be written again, and cut off.
    assert_eq!(fixture.fs.write(file, 0, &[8; 800_000], false), Ok(800_000));
    let made = (0..).find_map(|number| {
        let name = format!("d{number}");
        fixture.fs.mkdir(&USER, Ino::ROOT, name.as_bytes(), 0o755).err()
    });
    assert_eq!(made.unwrap().errno(), EDQUOT);
    fixture.truncate(file, 800_001);
    fixture.fs.unlink(Ino::ROOT, b"g").unwrap();
    fixture.fs.release(small);
    fixture.fs.rmdir(Ino::ROOT, b"d0").unwrap();
    assert_eq!(fixture.fs.write(file, 800_000, &[9; 90_000], false), Ok(90_000));
    fixture.assert_sound();
}

#[test]
fn statfs_shows_the_quota_or_the_volume() {
    let fixture = fixture();
    let before = fixture.fs.statfs();
    assert_eq!(before.blocks, QUOTA_BYTES / 4096);
    fixture.file_with("f", &[7; 100 << 12]);
    let after = fixture.fs.statfs();
    let taken = before.blocks_free - after.blocks_free;
    assert!((100..103).contains(&taken), "{before:?} {after:?}");
    assert_eq!(after.blocks_free, after.blocks_available);
    // The volume is smaller than the quota.
    fixture.disk.set_quota(0, Some(1 << 40)).unwrap();
    let statfs = fixture.fs.statfs();
    assert_eq!(statfs.blocks, (8 << 20) / 4096);
    assert!(statfs.blocks_available < statfs.blocks);
}

#[test]
fn fallocate_is_refused_before_it_begins_and_counts_in_full() {
    let fixture = fixture();
    let ino = fixture.file("f");
    let allocate = |len| {
        let how = LongChange::uncancelled(false);
        fixture.fs.fallocate(ino, 0, len, FallocateFlags::empty(), &how)
    };
    assert_eq!(errno(allocate(QUOTA_BYTES)), EDQUOT);
    assert_eq!(fixture.attr(ino).size_bytes, 0);
    allocate(QUOTA_BYTES - 50_000).unwrap();
    assert!(fixture.fs.statfs().blocks_free < 13);
    assert_eq!(fixture.fs.write(ino, 0, &[7; 900_000], false), Ok(900_000));
    fixture.set(ino, SetAttr { size_bytes: Some(0), ..SetAttr::default() });
    assert!(fixture.fs.statfs().blocks_free > 250);
}

#[test]
fn cutting_within_a_page_that_a_snapshot_keeps_takes_a_page_of_the_quota() {
    let fixture = fixture();
    let file = fixture.file_with("f", &[7; 50 << 12]);
    fixture.disk.snapshot(0, None).unwrap();
    let used_bytes = fixture.disk.quota(View::HEAD).unwrap().used_bytes;
    fixture.disk.set_quota(0, Some(used_bytes)).unwrap();
    let punch = |offset, len| {
        let how = LongChange::uncancelled(false);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fixture.fs.fallocate(file, offset, len, flags, &how)
    };
    let resize = |size_bytes| {
        let to = SetAttr { size_bytes: Some(size_bytes), ..SetAttr::default() };
        fixture.fs.setattr(&USER, file, &to)
    };
    assert_eq!(errno(punch(100, 1)), EDQUOT);
    assert_eq!(errno(resize((10 << 12) + 1)), EDQUOT);
    assert_eq!(fixture.attr(file).size_bytes, 50 << 12);
    punch(0, 4 << 12).unwrap();
    resize(10 << 12).unwrap();
    let used_after = fixture.disk.quota(View::HEAD).unwrap().used_bytes;
    assert!(used_after < used_bytes + 2000, "{used_after} after {used_bytes}");
    fixture.assert_sound();
}
