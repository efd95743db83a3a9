//! Names and directories.

use std::collections::BTreeSet;

use dendro_disk::LogicalDisk;
use dendro_disk::model::ModelDisk;

use super::{Fixture, USER, errno, noatime};
use crate::testing::StepClock;
use crate::{
    Caller, FileKind, FileSystem, FileTime, Ino, OpenOptions, Options, RenameFlags, SetAttr,
    SetTime, XattrFlags,
};

const ENOENT: i32 = 2;
const EISDIR: i32 = 21;
const ENOSPC: i32 = 28;
const ENODATA: i32 = 61;
const ESTALE: i32 = 116;

#[test]
fn a_new_file_system_has_an_empty_root_and_a_label() {
    let fixture = Fixture::new();
    let root = fixture.attr(Ino::ROOT);
    assert_eq!((root.kind, root.nlink, root.perm), (FileKind::Directory, 2, 0o755));
    assert_eq!(fixture.fs.label(), "test");
    assert!(fixture.list(Ino::ROOT).is_empty());
    assert_eq!(fixture.fs.lookup(Ino::ROOT, b"..").unwrap().ino, Ino::ROOT);
    fixture.assert_sound();
}

#[test]
fn a_file_system_is_made_on_an_empty_disk_alone() {
    let fixture = Fixture::new();
    let again =
        FileSystem::create_on(&*fixture.disk, &super::format_options(), &StepClock::default());
    assert_eq!(errno(again), 17);
    let empty = std::sync::Arc::new(ModelDisk::new(None));
    let nothing = FileSystem::mount(empty, Options::default(), fixture.clock.clone());
    assert_eq!(errno(nothing), 5);
}

#[test]
fn new_files_take_the_callers_identity_and_umask_or_the_directorys_group() {
    let fixture = Fixture::new();
    let caller = Caller { uid: 7, gid: 8, umask: 0o027, security_context: &[] };
    let dir = fixture.fs.mkdir(&caller, Ino::ROOT, b"d", 0o777).unwrap();
    assert_eq!((dir.uid, dir.gid, dir.perm), (7, 8, 0o750));
    fixture.set(dir.ino, SetAttr { mode: Some(0o2770), gid: Some(55), ..SetAttr::default() });
    let sub = fixture.fs.mkdir(&caller, dir.ino, b"s", 0o777).unwrap();
    assert_eq!((sub.gid, sub.perm), (55, 0o2750));
    let file = fixture.fs.mknod(&caller, dir.ino, b"f", 0o100_666, 0).unwrap();
    assert_eq!((file.gid, file.perm), (55, 0o640));
    assert_eq!(fixture.attr(dir.ino).nlink, 3);
}

#[test]
fn new_files_of_all_kinds_have_their_security_context_in_the_unit_that_creates_them() {
    let disk = ModelDisk::new(None).recording();
    let fixture = Fixture::with(disk, super::noatime(), u64::MAX);
    let security_context: &[(&[u8], &[u8])] =
        &[(b"security.selinux", b"system_u:object_r:etc_t:s0\0"), (b"security.other", &[7; 3000])];
    let caller = Caller { security_context, ..USER };
    let fs = &fixture.fs;
    let before = fixture.disk.history().len();
    let made = [
        fs.mkdir(&caller, Ino::ROOT, b"d", 0o777).unwrap().ino,
        fs.mknod(&caller, Ino::ROOT, b"n", 0o010_666, 0).unwrap().ino,
        fs.symlink(&caller, Ino::ROOT, b"s", b"target").unwrap().ino,
        fs.create(&caller, Ino::ROOT, b"f", 0o666, OpenOptions::default()).unwrap().ino,
        fs.tmpfile(&caller, Ino::ROOT, 0o666).unwrap().ino,
    ];
    assert_eq!(fixture.disk.history().len() - before, made.len(), "one unit each");
    for ino in made {
        for (name, value) in security_context {
            assert_eq!(fs.getxattr(ino, name).unwrap(), *value);
        }
    }
    fixture.assert_sound();
    // Nothing is created with an attribute that is not allowed.
    let too_long = [0; 65_537];
    let refused: [(&[u8], &[u8], i32); 3] =
        [(b"user.mine", b"x", 95), (b"security.", b"x", 22), (b"security.long", &too_long, 7)];
    for (name, value, expected) in refused {
        let caller = Caller { security_context: &[(name, value)], ..USER };
        assert_eq!(errno(fs.mkdir(&caller, Ino::ROOT, b"x", 0o777)), expected);
        assert_eq!(errno(fs.lookup(Ino::ROOT, b"x")), 2);
    }
}

#[test]
fn whatever_is_there_is_found_by_its_number_and_what_is_gone_is_not() {
    let fixture = Fixture::new();
    let file = fixture.file_with("f", b"x");
    let link = fixture.fs.symlink(&USER, Ino::ROOT, b"s", b"t").unwrap().ino;
    let dir = fixture.dir("d");
    for ino in [file, link, dir, Ino::ROOT] {
        assert_eq!(fixture.fs.lookup(ino, b".").unwrap(), fixture.attr(ino));
    }
    assert_eq!(fixture.fs.lookup(dir, b"..").unwrap().ino, Ino::ROOT);
    assert_eq!(errno(fixture.fs.lookup(file, b"..")), 20);
    fixture.fs.forget(file, 1);
    fixture.fs.unlink(Ino::ROOT, b"f").unwrap();
    fixture.fs.forget(file, 10);
    assert_eq!(errno(fixture.fs.lookup(file, b".")), 116);
    assert_eq!(errno(fixture.fs.lookup(Ino(77_777), b".")), 116);
}

#[test]
fn names_of_255_bytes_and_targets_of_4095_fit() {
    let mut fixture = Fixture::new();
    let name = [b'n'; 255];
    let target = vec![b't'; 4095];
    let link = fixture.fs.symlink(&USER, Ino::ROOT, &name, &target).unwrap();
    assert_eq!((link.size_bytes, link.perm), (4095, 0o777));
    assert_eq!(errno(fixture.fs.lookup(Ino::ROOT, &[b'n'; 256])), 36);
    assert_eq!(errno(fixture.fs.symlink(&USER, Ino::ROOT, b"x", &[b't'; 4096])), 36);
    let short = fixture.fs.symlink(&USER, Ino::ROOT, b"short", b"..").unwrap();
    fixture.remount();
    assert_eq!(fixture.fs.readlink(link.ino).unwrap(), target);
    assert_eq!(fixture.fs.readlink(short.ino).unwrap(), b"..");
    assert_eq!(errno(fixture.fs.readlink(Ino::ROOT)), 22);
    fixture.assert_sound();
}

#[test]
fn a_directory_of_a_hundred_thousand_lists_each_once() {
    let fixture = Fixture::with(
        ModelDisk::new(None),
        Options { inode_cache_len: 100, ..noatime() },
        u64::MAX,
    );
    for number in 0..100_000 {
        let name = format!("file-{number}");
        let attr = fixture.fs.mknod(&USER, Ino::ROOT, name.as_bytes(), 0, 0).unwrap();
        fixture.fs.forget(attr.ino, 1);
    }
    let names = fixture.list(Ino::ROOT);
    assert_eq!(names.len(), 100_000);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 100_000);
    for number in [0, 50_000, 99_999] {
        assert!(fixture.fs.lookup(Ino::ROOT, format!("file-{number}").as_bytes()).is_ok());
    }
    assert!(fixture.fs.state().cached_inode_count() < 1000);
    for name in names {
        fixture.fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
    }
    assert!(fixture.list(Ino::ROOT).is_empty());
    fixture.assert_sound();
    assert_eq!(fixture.disk.state().list_count(), 3);
}

/// A listing in small pieces, with changes between them, has every name once that existed all the
/// time.
fn list_under_change(hash_mask: u64, count: usize) {
    let fixture = Fixture::with(ModelDisk::new(None), noatime(), hash_mask);
    for number in 0..count {
        fixture.file(&format!("stay-{number}"));
        fixture.file(&format!("go-{number}"));
    }
    let mut seen = Vec::new();
    let mut cookie = 0;
    for round in 0.. {
        let mut taken = 0;
        let from = cookie;
        let sink = &mut |entry: crate::DirEntry<'_>| {
            if taken == 3 {
                return false;
            }
            taken += 1;
            assert!(entry.cookie > cookie && i64::try_from(entry.cookie).is_ok());
            cookie = entry.cookie;
            seen.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        };
        fixture.fs.readdir(Ino::ROOT, from, sink).unwrap();
        if taken == 0 {
            break;
        }
        let _ = fixture.fs.unlink(Ino::ROOT, format!("go-{round}").as_bytes());
        if round < count {
            fixture.file(&format!("new-{round}"));
        }
    }
    let unique: BTreeSet<_> = seen.iter().cloned().collect();
    assert_eq!(unique.len(), seen.len(), "a name came twice");
    for number in 0..count {
        assert!(unique.contains(&format!("stay-{number}")), "stay-{number} is missing");
    }
}

#[test]
fn a_listing_is_stable_while_entries_come_and_go() {
    list_under_change(u64::MAX, 200);
}

#[test]
fn a_listing_is_stable_among_names_with_one_hash() {
    list_under_change(0, 14);
}

#[test]
fn a_record_of_colliding_names_fills_up_and_says_so() {
    let fixture = Fixture::with(ModelDisk::new(None), noatime(), 0);
    let made = (0..200)
        .take_while(|number| {
            let name = format!("a-name-of-some-length-{number}");
            fixture.fs.mknod(&USER, Ino::ROOT, name.as_bytes(), 0, 0).is_ok()
        })
        .count();
    assert!((20..40).contains(&made), "{made}");
    let full = fixture.fs.mknod(&USER, Ino::ROOT, b"a-name-of-some-length-x", 0, 0);
    assert_eq!(errno(full), ENOSPC);
    fixture.fs.unlink(Ino::ROOT, b"a-name-of-some-length-3").unwrap();
    fixture.fs.mknod(&USER, Ino::ROOT, b"a-name-of-some-length-x", 0, 0).unwrap();
    fixture.assert_sound();
}

#[test]
fn readdirplus_counts_lookups_of_what_was_taken() {
    let options = Options { lookups_keep_files: true, ..noatime() };
    let fixture = Fixture::with(ModelDisk::new(None), options, u64::MAX);
    let ino = fixture.file_with("f", &[1; 5000]);
    fixture.fs.forget(ino, 1);
    let mut kinds = Vec::new();
    let sink = &mut |entry: crate::DirEntry<'_>, attr: &crate::Attr| {
        assert_eq!(entry.kind, attr.kind);
        kinds.push((entry.name.to_vec(), attr.ino));
        true
    };
    fixture.fs.readdirplus(Ino::ROOT, 0, sink).unwrap();
    assert_eq!(kinds.last(), Some(&(b"f".to_vec(), ino)));
    fixture.fs.unlink(Ino::ROOT, b"f").unwrap();
    assert_eq!(fixture.contents(ino), [1; 5000], "the lookup holds the file");
    fixture.fs.forget(ino, 1);
    assert_eq!(errno(fixture.fs.getattr(ino)), ESTALE);
    assert_eq!(fixture.disk.state().list_count(), 3);
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed_or_the_next_mount() {
    let mut fixture = Fixture::new();
    let (closed, open) = (fixture.file_with("a", b"abc"), fixture.file_with("b", b"def"));
    for ino in [closed, open] {
        fixture.fs.open(ino, OpenOptions::default()).unwrap();
    }
    fixture.fs.unlink(Ino::ROOT, b"a").unwrap();
    fixture.fs.unlink(Ino::ROOT, b"b").unwrap();
    assert_eq!(fixture.attr(closed).nlink, 0);
    assert_eq!(fixture.contents(closed), b"abc");
    fixture.fs.write(closed, 3, &[7; 9000], false).unwrap();
    fixture.assert_sound();
    assert_eq!(errno(fixture.fs.link(closed, Ino::ROOT, b"again")), ENOENT);
    fixture.fs.release(closed);
    assert_eq!(fixture.disk.state().list_count(), 4);
    fixture.remount();
    assert_eq!(fixture.disk.state().list_count(), 3);
    assert_eq!(errno(fixture.fs.getattr(open)), ESTALE);
    fixture.assert_sound();
}

#[test]
fn a_removed_directory_answers_and_changes_until_it_is_forgotten() {
    let fixture = Fixture::new();
    let dir = fixture.dir("d");
    fixture.fs.setxattr(dir, b"user.x", b"1", XattrFlags::empty()).unwrap();
    fixture.fs.rmdir(Ino::ROOT, b"d").unwrap();
    assert_eq!(fixture.attr(dir).nlink, 0);
    assert_eq!(errno(fixture.fs.mkdir(&USER, dir, b"x", 0o755)), ENOENT);
    assert_eq!(errno(fixture.fs.lookup(dir, b"x")), ENOENT);
    fixture.fs.readdir(dir, 0, &mut |_| panic!("it has no entries")).unwrap();
    let at = FileTime { secs: -1, nanos: 7 };
    let changes =
        SetAttr { mode: Some(0o1750), mtime: Some(SetTime::At(at)), ..SetAttr::default() };
    fixture.fs.setattr(&USER, dir, &changes).unwrap();
    assert_eq!((fixture.attr(dir).perm, fixture.attr(dir).mtime), (0o1750, at));
    let shorter = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
    assert_eq!(errno(fixture.fs.setattr(&USER, dir, &shorter)), EISDIR);
    assert_eq!(errno(fixture.fs.getxattr(dir, b"user.x")), ENODATA);
    assert_eq!(fixture.fs.listxattr(dir).unwrap(), b"");
    fixture.fs.forget(dir, 1);
    assert_eq!(errno(fixture.fs.setattr(&USER, dir, &changes)), ESTALE);
    let other = Fixture::new();
    assert_eq!(errno(other.fs.getattr(Ino(99))), ESTALE);
    for system in [2, 3, 0] {
        assert_eq!(errno(other.fs.getattr(Ino(system))), ESTALE);
    }
}

#[test]
fn a_file_without_name_gets_one_by_linking() {
    let mut fixture = Fixture::new();
    let ino = fixture.fs.tmpfile(&USER, Ino::ROOT, 0o600).unwrap().ino;
    fixture.fs.write(ino, 0, b"contents", false).unwrap();
    fixture.assert_sound();
    assert_eq!(fixture.fs.link(ino, Ino::ROOT, b"named").unwrap().nlink, 1);
    fixture.fs.release(ino);
    fixture.fs.forget(ino, 2);
    fixture.remount();
    assert_eq!(fixture.contents(ino), b"contents");
    let lost = fixture.fs.tmpfile(&USER, Ino::ROOT, 0o600).unwrap().ino;
    fixture.fs.release(lost);
    fixture.assert_sound();
    assert_eq!(fixture.list(Ino::ROOT), ["named"]);
}

#[test]
fn rename_refuses_loops_and_keeps_link_counts() {
    let fixture = Fixture::new();
    let fs = &fixture.fs;
    let a = fixture.dir("a");
    let b = fs.mkdir(&USER, a, b"b", 0o755).unwrap().ino;
    let c = fs.mkdir(&USER, b, b"c", 0o755).unwrap().ino;
    let rename =
        |parent, name: &[u8], to, new: &[u8], flags| fs.rename(&USER, parent, name, to, new, flags);
    let none = RenameFlags::empty();
    assert_eq!(errno(rename(Ino::ROOT, b"a", c, b"x", none)), 22);
    assert_eq!(errno(rename(b, b"c", Ino::ROOT, b"a", none)), 39);
    assert_eq!(errno(rename(b, b"c", Ino::ROOT, b"a", RenameFlags::EXCHANGE)), 22);
    rename(b, b"c", Ino::ROOT, b"c", none).unwrap();
    assert_eq!([a, b, c, Ino::ROOT].map(|ino| fixture.attr(ino).nlink), [3, 2, 2, 4]);
    assert_eq!(fs.lookup(c, b"..").unwrap().ino, Ino::ROOT);
    fixture.file("f");
    rename(Ino::ROOT, b"f", a, b"b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!([a, b, Ino::ROOT].map(|ino| fixture.attr(ino).nlink), [2, 2, 5]);
    fixture.assert_sound();
}

#[test]
fn rename_can_leave_a_whiteout() {
    let fixture = Fixture::new();
    let ino = fixture.file_with("f", b"x");
    let dir = fixture.dir("d");
    fixture.fs.rename(&USER, Ino::ROOT, b"f", dir, b"g", RenameFlags::WHITEOUT).unwrap();
    let left = fixture.fs.lookup(Ino::ROOT, b"f").unwrap();
    assert_eq!((left.kind, left.rdev, left.perm), (FileKind::CharDevice, 0, 0));
    assert_eq!(fixture.fs.lookup(dir, b"g").unwrap().ino, ino);
    fixture.assert_sound();
}

#[test]
fn a_past_or_failed_disk_refuses_all_changes_and_still_reads() {
    let fixture = Fixture::new();
    let ino = fixture.file_with("f", b"abc");
    fixture.disk.fail("the device is gone");
    assert!(fixture.fs.is_read_only());
    assert_eq!(errno(fixture.fs.write(ino, 0, b"x", false)), 30);
    assert_eq!(errno(fixture.fs.mkdir(&USER, Ino::ROOT, b"d", 0o755)), 30);
    assert_eq!(errno(fixture.fs.unlink(Ino::ROOT, b"f")), 30);
    assert_eq!(errno(fixture.fs.sync_all()), 5);
    assert_eq!(fixture.contents(ino), b"abc");
    assert_eq!(fixture.list(Ino::ROOT), ["f"]);
    let disk: std::sync::Arc<dyn LogicalDisk> = fixture.disk.clone();
    let options = Options { read_only: true, ..Options::default() };
    let fs = FileSystem::mount(disk, options, fixture.clock.clone()).unwrap();
    assert_eq!(errno(fs.mkdir(&USER, Ino::ROOT, b"d", 0o755)), 30);
    assert_eq!(errno(fs.open(ino, OpenOptions { write: true, ..OpenOptions::default() })), 30);
    assert!(fs.getattr(ino).is_ok());
}

#[test]
fn a_full_disk_says_so_and_takes_writes_again_after_a_removal() {
    let fixture = Fixture::with(ModelDisk::new(Some(1 << 20)), noatime(), u64::MAX);
    let full = (0..)
        .find_map(|number| {
            let name = format!("f{number}");
            let made =
                fixture.fs.create(&USER, Ino::ROOT, name.as_bytes(), 0o644, OpenOptions::default());
            let written = made.and_then(|attr| fixture.fs.write(attr.ino, 0, &[9; 50_000], false));
            written.err().map(|error| (number, error))
        })
        .unwrap();
    assert_eq!(full.1.errno(), ENOSPC);
    assert!(full.0 > 15, "{full:?}");
    fixture.assert_sound();
    let ino = fixture.fs.lookup(Ino::ROOT, b"f3").unwrap().ino;
    fixture.fs.unlink(Ino::ROOT, b"f3").unwrap();
    fixture.fs.release(ino);
    fixture.file_with("again", &[1; 40_000]);
    fixture.assert_sound();
    let statfs = fixture.fs.statfs();
    assert!(statfs.blocks == 256 && statfs.blocks_available < 20);
}
