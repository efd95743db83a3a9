//! Damaged disks.

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_disk::model::ModelDisk;
use dendro_disk::{Aru, Lid, LogicalDisk, Op, View};

use super::{Fixture, USER, errno, noatime};
use crate::format::{DIR_BASE, HEAD_INDEX, ORPHAN_LIST, PUNCHED_RANGES, VOLUME_LIST};
use crate::layout::inode::{Inode, InodeState};
use crate::testing::{Driver, Generator, Model, Profile, StepClock, Tree};
use crate::{FileKind, FileSystem, FindingCode, Ino, Options, XattrFlags, verify};

/// A file system with a file of each kind.
pub(super) fn sample() -> Fixture {
    let fixture = Fixture::new();
    let dir = fixture.dir("d");
    fixture.fs.mkdir(&USER, dir, b"sub", 0o755).unwrap();
    fixture.file_with("f", &[7; 10_000]);
    let ino = fixture.file_with("short", b"abc");
    fixture.fs.setxattr(ino, b"user.a", b"value", XattrFlags::empty()).unwrap();
    fixture.fs.setxattr(ino, b"user.b", &[1; 3000], XattrFlags::empty()).unwrap();
    fixture.fs.symlink(&USER, dir, b"link", b"../f").unwrap();
    fixture.assert_sound();
    fixture
}

fn find(fixture: &Fixture, path: &[u8]) -> Ino {
    fixture.fs.lookup(Ino::ROOT, path).unwrap().ino
}

/// Causes one kind of damage, and expects exactly the findings for it.
fn expect(damage: impl FnOnce(&Fixture, &mut Aru<'_>), codes: &[FindingCode]) {
    let fixture = sample();
    let mut aru = Aru::new(View::HEAD);
    damage(&fixture, &mut aru);
    fixture.disk.commit(aru).unwrap();
    let mut found: Vec<_> =
        verify(&*fixture.disk, View::HEAD).unwrap().iter().map(|finding| finding.code).collect();
    found.dedup();
    assert_eq!(found, codes);
}

fn change_inode(fixture: &Fixture, aru: &mut Aru<'_>, path: &[u8], change: fn(&mut Inode)) {
    let ino = find(fixture, path);
    let record = fixture.disk.record(View::HEAD, ino.lid(), HEAD_INDEX).unwrap().unwrap();
    let mut inode = Inode::decode(ino, &record).unwrap();
    change(&mut inode);
    aru.put_record(ino.lid(), HEAD_INDEX, inode.encode());
}

#[test]
fn what_was_in_a_directory_that_takes_itself_for_empty_is_found_when_it_is_removed() {
    let mut fixture = sample();
    assert_eq!(errno(fixture.fs.rmdir(Ino::ROOT, b"d")), 39, "ENOTEMPTY");
    let mut aru = Aru::new(View::HEAD);
    change_inode(&fixture, &mut aru, b"d", |inode| inode.size = 0);
    fixture.disk.commit(aru).unwrap();
    fixture.remount();
    fixture.fs.rmdir(Ino::ROOT, b"d").unwrap();
    let found = verify(&*fixture.disk, View::HEAD).unwrap();
    assert!(found.iter().any(|of| of.code == FindingCode::Unreachable), "{found:?}");
}

#[test]
fn the_verifier_finds_a_wrong_number_in_an_inode() {
    let of = |path: &'static [u8], change: fn(&mut Inode)| {
        move |fixture: &Fixture, aru: &mut Aru<'_>| change_inode(fixture, aru, path, change)
    };
    expect(of(b"f", |inode| inode.nlink = 2), &[FindingCode::WrongLinkCount]);
    expect(of(b"d", |inode| inode.nlink = 2), &[FindingCode::WrongLinkCount]);
    expect(of(b"f", |inode| inode.pages = 99), &[FindingCode::LostPages]);
    expect(of(b"f", |inode| inode.pages = 2), &[FindingCode::WrongPageCount]);
    expect(of(b"f", |inode| inode.size = 9_000), &[FindingCode::DataPastEnd]);
    expect(
        of(b"f", |inode| inode.size = 8_192),
        &[FindingCode::PagesPastEnd, FindingCode::DataPastEnd],
    );
    expect(of(b"d", |inode| inode.size += 1), &[FindingCode::WrongDirectorySize]);
    expect(of(b"d", |inode| inode.parent = 77), &[FindingCode::WrongParent]);
    expect(of(b"short", |inode| inode.xattr_names_len = 1), &[FindingCode::WrongXattrAccount]);
    expect(
        of(b"f", |inode| inode.state |= InodeState::CAPABILITY),
        &[FindingCode::WrongXattrAccount],
    );
    expect(of(b"f", |inode| inode.state |= InodeState::TRUNCATING), &[FindingCode::BadOrphan]);
    let punches = |inode: &mut Inode| {
        inode.state |= InodeState::PUNCHING;
        inode.punched = Some(Box::new(1..2));
        inode.pages -= 1;
    };
    expect(of(b"f", punches), &[FindingCode::BadOrphan]);
    expect(
        of(b"f", |inode| inode.kind = FileKind::Fifo),
        &[FindingCode::WrongPageCount, FindingCode::WrongKind],
    );
}

#[test]
fn the_verifier_finds_records_that_should_not_be() {
    expect(
        |_, aru| {
            aru.put_record(VOLUME_LIST, HEAD_INDEX, vec![1; 100]);
        },
        &[FindingCode::BadVolume],
    );
    expect(
        |fixture, aru| {
            aru.put_record(find(fixture, b"f").lid(), HEAD_INDEX, vec![9; 50]);
        },
        &[FindingCode::BadInode],
    );
    expect(
        |fixture, aru| {
            aru.put_record(find(fixture, b"f").lid(), 5, vec![1]);
        },
        &[FindingCode::StrayRecord],
    );
    expect(
        |fixture, aru| {
            aru.put_record(find(fixture, b"f").lid(), DIR_BASE | 5, vec![1]);
        },
        &[FindingCode::StrayRecord],
    );
    expect(
        |fixture, aru| {
            aru.put_record(find(fixture, b"d").lid(), DIR_BASE | 5, vec![1, 2, 3]);
        },
        &[FindingCode::BadDirectoryRecord],
    );
    expect(
        |_, aru| {
            aru.put_record(ORPHAN_LIST, 99, vec![1, 1, 0, 0, 0, 0, 0, 0]);
        },
        &[FindingCode::BadOrphan],
    );
    expect(
        |_, aru| {
            aru.put_record(ORPHAN_LIST, 99, vec![1]);
        },
        &[FindingCode::BadOrphan],
    );
}

#[test]
fn the_verifier_finds_lists_that_are_missing_or_too_many() {
    expect(
        |fixture, aru| {
            aru.delete_list(find(fixture, b"f").lid());
        },
        &[FindingCode::DanglingEntry],
    );
    expect(
        |fixture, aru| {
            aru.delete_list(find(fixture, b"d").lid());
        },
        &[FindingCode::LostDirectory, FindingCode::Unreachable],
    );
    expect(
        |fixture, aru| {
            let list = fixture.disk.allocate_list().unwrap();
            aru.create_list(list, dendro_disk::ListHints::default());
            let mut inode = Inode::new(FileKind::Regular, 0o644, crate::FileTime::default());
            inode.nlink = 1;
            aru.put_record(list, HEAD_INDEX, inode.encode());
        },
        &[FindingCode::Unreachable],
    );
    expect(
        |fixture, aru| {
            let lid = find(fixture, b"short").lid();
            let parts = fixture.disk.records(View::HEAD, lid, 1, 100).unwrap();
            let part = parts.iter().find(|(index, _)| index & 0xff == 1).unwrap().0;
            aru.delete_record(lid, part);
        },
        &[FindingCode::BadXattr],
    );
    expect(
        |fixture, aru| {
            let (d, root) = (find(fixture, b"d").lid(), Ino::ROOT.lid());
            let index = fixture.fs.state().hasher().dir_index(b"f");
            let record = fixture.disk.record(View::HEAD, root, index).unwrap().unwrap();
            aru.delete_record(root, index);
            aru.put_record(d, DIR_BASE | 77, record.to_vec());
        },
        &[FindingCode::WrongDirectorySize, FindingCode::WrongHash, FindingCode::WrongDirectorySize],
    );
}

/// Malformed records cause errors, but no panic, and no endless loop.
#[test]
fn no_damage_to_records_panics() {
    survive_damage(0..150);
}

#[test]
#[ignore = "takes minutes"]
fn soak() {
    survive_damage(1_000..10_000);
}

fn survive_damage(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let fixture = sample();
        let disk = damaged(&fixture, &mut rng);
        let _ = verify(&*disk, View::HEAD);
        let clock = Arc::new(StepClock::default());
        let Ok(fs) = FileSystem::mount(disk, noatime(), clock.clone()) else { continue };
        let fs = Arc::new(fs);
        // A loop among directories makes an endless tree. The verifier finds it.
        if verify(fs.state().disk(), View::HEAD).is_ok_and(|findings| findings.is_empty()) {
            let _ = Tree::of_fs(&fs);
        }
        for ino in 1..12 {
            let _ = fs.listxattr(Ino(ino));
            let _ = fs.readdir(Ino(ino), 0, &mut |_| true);
            let _ = fs.readdirplus(Ino(ino), 0, &mut |_, _| true);
            let _ = fs.readlink(Ino(ino));
            let _ = fs.read(Ino(ino), 0, &mut [0; 5000]);
            let _ = fs.getxattr(Ino(ino), b"user.b");
        }
        let mut driver = Driver::new(fs);
        let mut model = Model::new(clock.set_step(0), 0, 0, 0o755);
        let mut generator = Generator::new(seed, Profile::default());
        for number in 0..100 {
            let step = generator.next(&model);
            let _ = driver.run(&step);
            let _ = model.run(&step, clock.set_step(number));
        }
        let _ = driver.fs().shut_down();
    }
}

/// The disk of the sample, with some bytes of some records changed.
fn damaged(fixture: &Fixture, rng: &mut Rng) -> Arc<ModelDisk> {
    let disk = Arc::new(ModelDisk::from_state(fixture.disk.state(), None));
    let mut records = Vec::new();
    for list in disk.lists(View::HEAD, Lid(0), 100).unwrap() {
        for (index, record) in disk.records(View::HEAD, list, 0, 100).unwrap() {
            records.push((list, index, record.to_vec()));
        }
    }
    let mut aru = Aru::new(View::HEAD);
    for _ in 0..=rng.below(4) {
        let (list, index, mut value) = records[rng.below(records.len() as u64) as usize].clone();
        match rng.below(6) {
            0 => value.truncate(1 + rng.below(value.len() as u64) as usize),
            1 => rng.fill(&mut value),
            _ => {
                let at = rng.below(value.len() as u64) as usize;
                value[at] ^= 1 << rng.below(8);
            }
        }
        aru.push(Op::PutRecord { list, index, value: value.into() });
    }
    disk.commit(aru).unwrap();
    disk
}

#[test]
fn a_later_versions_features_are_refused() {
    for (at, bit, read_write, read_only) in [
        (12, 1, true, true),
        (16, 1, false, true),
        (20, PUNCHED_RANGES as u8, true, true),
        (20, 2, false, false),
    ] {
        let fixture = sample();
        let mut record =
            fixture.disk.record(View::HEAD, VOLUME_LIST, HEAD_INDEX).unwrap().unwrap().to_vec();
        record[at] = bit;
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(VOLUME_LIST, HEAD_INDEX, record);
        fixture.disk.commit(aru).unwrap();
        let mount = |read_only| {
            let options = Options { read_only, ..Options::default() };
            FileSystem::mount(fixture.disk.clone(), options, fixture.clock.clone()).is_ok()
        };
        assert_eq!((mount(false), mount(true)), (read_write, read_only), "at {at}");
    }
}
