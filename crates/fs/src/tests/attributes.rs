//! Modes, owners, flags, extended attributes, ACLs.

use dendro_disk::model::ModelDisk;
use dendro_disk::{Lid, ListCompression, LogicalDisk, View};

use super::{Fixture, USER, errno, noatime};
use crate::{
    Caller, FallocateFlags, FileFlags, FileTime, Ino, LongChange, SetAttr, SetTime, XattrFlags,
};

const ROOT_USER: Caller<'_> = Caller { uid: 0, gid: 0, umask: 0, security_context: &[] };
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

fn chmod(fixture: &Fixture, ino: Ino, mode: u32) {
    fixture.set(ino, SetAttr { mode: Some(mode), ..SetAttr::default() });
}

#[test]
fn changes_by_others_take_set_id_bits_and_capabilities_away() {
    let fixture = Fixture::new();
    let fs = &fixture.fs;
    let ino = fixture.file_with("f", b"abc");
    let none = XattrFlags::empty();
    let arm = |mode| {
        chmod(&fixture, ino, mode);
        fs.setxattr(ino, b"security.capability", b"cap", none).unwrap();
    };
    let perm = || {
        assert_eq!(errno(fs.getxattr(ino, b"security.capability")), 61);
        fixture.attr(ino).perm
    };
    arm(0o6755);
    fs.write(ino, 0, b"x", true).unwrap();
    assert_eq!(perm(), 0o755);
    arm(0o6745);
    fs.write(ino, 0, b"x", true).unwrap();
    assert_eq!(perm(), 0o2745, "without group execution the bit means something else");
    arm(0o6755);
    fs.write(ino, 0, b"x", false).unwrap();
    assert_eq!(perm(), 0o6755, "the superuser's writing leaves the bits, not the capability");
    arm(0o6755);
    fs.write_back(ino, 0, b"x").unwrap();
    assert_eq!(fs.getxattr(ino, b"security.capability").unwrap(), b"cap", "it came later");
    assert_eq!(fixture.attr(ino).perm, 0o6755);
    fixture.set(ino, SetAttr { size_bytes: Some(1), kill_priv: true, ..SetAttr::default() });
    assert_eq!(perm(), 0o755);
    arm(0o6755);
    fixture.set(ino, SetAttr { uid: Some(5), ..SetAttr::default() });
    assert_eq!(perm(), 0o755);
    arm(0o6755);
    fs.fallocate(ino, 0, 10, FallocateFlags::empty(), &LongChange::uncancelled(true)).unwrap();
    assert_eq!(perm(), 0o755);
    let dir = fixture.dir("d");
    chmod(&fixture, dir, 0o6755);
    fixture.set(dir, SetAttr { gid: Some(5), ..SetAttr::default() });
    assert_eq!(fixture.attr(dir).perm, 0o6755, "on directories they stay");
    fixture.assert_sound();
}

#[test]
fn before_a_change_by_others_set_id_bits_go_and_nothing_else_changes() {
    let fixture = Fixture::with(ModelDisk::new(None).recording(), noatime(), u64::MAX);
    let fs = &fixture.fs;
    let ino = fixture.file_with("f", b"abc");
    let group = fixture.attr(ino).gid;
    for (mode, for_others, for_members) in [
        (0o6755, 0o755, 0o755),
        (0o4644, 0o644, 0o644),
        (0o6745, 0o745, 0o2745),
        (0o2745, 0o745, 0o2745),
        (0o1777, 0o1777, 0o1777),
    ] {
        for is_member in [false, true] {
            chmod(&fixture, ino, mode);
            fs.setxattr(ino, b"security.capability", b"cap", XattrFlags::empty()).unwrap();
            let left = if is_member { for_members } else { for_others };
            let ask = |gid| {
                assert_eq!(gid, group);
                is_member
            };
            assert_eq!(fs.drop_set_ids(ino, ask).unwrap().perm, left);
            assert_eq!(fixture.attr(ino).perm, left);
            assert_eq!(errno(fs.getxattr(ino, b"security.capability")), 61);
        }
    }
    assert_eq!(fixture.contents(ino), b"abc");
    chmod(&fixture, ino, 0o2745);
    let commits = fixture.disk.history().len();
    let before = fixture.attr(ino);
    assert_eq!(fs.drop_set_ids(ino, |_| true), Ok(before));
    assert_eq!(fixture.disk.history().len(), commits, "there was nothing to take away");
    let dir = fixture.dir("d");
    chmod(&fixture, dir, 0o6755);
    assert_eq!(fs.drop_set_ids(dir, |_| false).unwrap().perm, 0o6755);
    fixture.assert_sound();
}

#[test]
fn immutable_files_do_not_change_and_append_only_ones_grow() {
    let fixture = Fixture::new();
    let fs = &fixture.fs;
    let ino = fixture.file_with("f", b"abc");
    let flag = |ino, flags| {
        fixture.set(ino, SetAttr { flags: Some(flags), ..SetAttr::default() });
    };
    let wanted = SetAttr { flags: Some(FileFlags::IMMUTABLE), ..SetAttr::default() };
    assert_eq!(errno(fs.setattr(&USER, ino, &wanted)), 1);
    flag(ino, FileFlags::APPEND);
    assert_eq!(errno(fs.write(ino, 0, b"x", false)), 1);
    assert_eq!(fs.write(ino, 3, b"def", false), Ok(3));
    let truncate = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
    assert_eq!(errno(fs.setattr(&ROOT_USER, ino, &truncate)), 1);
    assert_eq!(errno(fs.unlink(Ino::ROOT, b"f")), 1);
    flag(ino, FileFlags::IMMUTABLE);
    assert_eq!(errno(fs.write(ino, 6, b"x", false)), 1);
    assert_eq!(errno(fs.link(ino, Ino::ROOT, b"g")), 1);
    assert_eq!(errno(fs.setxattr(ino, b"user.a", b"", XattrFlags::empty())), 1);
    let rename = fs.rename(&USER, Ino::ROOT, b"f", Ino::ROOT, b"g", crate::RenameFlags::empty());
    assert_eq!(errno(rename), 1);
    flag(ino, FileFlags::empty());
    let dir = fixture.dir("d");
    flag(dir, FileFlags::APPEND);
    fs.mknod(&USER, dir, b"x", 0, 0).unwrap();
    assert_eq!(errno(fs.unlink(dir, b"x")), 1);
    flag(dir, FileFlags::IMMUTABLE);
    assert_eq!(errno(fs.mknod(&USER, dir, b"y", 0, 0)), 1);
    let unknown = SetAttr { flags: Some(FileFlags::from_bits_retain(1)), ..SetAttr::default() };
    assert_eq!(errno(fs.setattr(&ROOT_USER, ino, &unknown)), 95);
}

#[test]
fn compression_is_asked_for_by_flags_and_inherited() {
    let fixture = Fixture::new();
    let fs = &fixture.fs;
    let flag = |ino, flags| {
        fixture.set(ino, SetAttr { flags: Some(flags), ..SetAttr::default() });
    };
    let hint = |ino: Ino| {
        let hints = fixture.disk.hints(View::HEAD, Lid(ino.0)).unwrap().unwrap();
        hints.compression
    };
    let file = fixture.file_with("f", b"abc");
    assert_eq!(hint(file), ListCompression::AsOthers);
    flag(file, FileFlags::COMPRESS | FileFlags::NO_DUMP);
    assert_eq!(hint(file), ListCompression::Zstd);
    flag(file, FileFlags::NO_COMPRESS);
    assert_eq!(hint(file), ListCompression::Never);
    let both = FileFlags::COMPRESS | FileFlags::NO_COMPRESS;
    let wanted = SetAttr { flags: Some(both), ..SetAttr::default() };
    assert_eq!(errno(fs.setattr(&ROOT_USER, file, &wanted)), 22);
    let dir = fixture.dir("d");
    flag(dir, FileFlags::COMPRESS | FileFlags::NO_DUMP);
    let inner = fs.mkdir(&USER, dir, b"inner", 0o755).unwrap();
    let made = fs.mknod(&USER, inner.ino, b"x", 0o100_644, 0).unwrap();
    for attr in [inner, made] {
        assert_eq!(attr.flags, FileFlags::COMPRESS);
        assert_eq!(hint(attr.ino), ListCompression::Zstd);
    }
    flag(file, FileFlags::empty());
    assert_eq!(hint(file), ListCompression::AsOthers);
}

#[test]
fn attribute_values_of_all_lengths_come_back() {
    for mask in [u64::MAX, 0] {
        let mut fixture = Fixture::with(ModelDisk::new(None), noatime(), mask);
        let ino = fixture.file("f");
        let lens = [0, 1, 500, 990, 1000, 1024, 1025, 4096, 65_535, 65_536];
        let value = |len: usize, n: u8| vec![n; len];
        for round in 0..2_u8 {
            for (n, &len) in lens.iter().enumerate() {
                let name = format!("user.{n}");
                let len = if round == 0 { len } else { lens[lens.len() - 1 - n] };
                fixture
                    .fs
                    .setxattr(ino, name.as_bytes(), &value(len, round), XattrFlags::empty())
                    .unwrap();
            }
            fixture.remount();
            fixture.assert_sound();
            for (n, &len) in lens.iter().enumerate() {
                let len = if round == 0 { len } else { lens[lens.len() - 1 - n] };
                let read = fixture.fs.getxattr(ino, format!("user.{n}").as_bytes()).unwrap();
                assert!(read == value(len, round), "{n} of {len}");
            }
        }
        let names = fixture.fs.listxattr(ino).unwrap();
        assert_eq!(names.split(|&byte| byte == 0).count(), lens.len() + 1);
        for n in 0..lens.len() {
            fixture.fs.removexattr(ino, format!("user.{n}").as_bytes()).unwrap();
        }
        assert!(fixture.fs.listxattr(ino).unwrap().is_empty());
        fixture.assert_sound();
        fixture.fs.unlink(Ino::ROOT, b"f").unwrap();
        assert_eq!(fixture.disk.state().list_count(), 3);
    }
}

#[test]
fn attributes_keep_to_their_rules_and_limits() {
    let fixture = Fixture::new();
    let fs = &fixture.fs;
    let ino = fixture.file("f");
    let none = XattrFlags::empty();
    assert_eq!(errno(fs.setxattr(ino, b"user.a", &[0; 65_537], none)), 7);
    assert_eq!(errno(fs.setxattr(ino, b"user.a", b"", XattrFlags::REPLACE)), 61);
    fs.setxattr(ino, b"user.a", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(errno(fs.setxattr(ino, b"user.a", b"", XattrFlags::CREATE)), 17);
    assert_eq!(errno(fs.getxattr(ino, b"user.b")), 61);
    assert_eq!(errno(fs.getxattr(ino, b"nonsense")), 95);
    assert_eq!(errno(fs.removexattr(ino, b"user.b")), 61);
    let full = (0..1000)
        .find_map(|n| fs.setxattr(ino, format!("user.{n:0>250}").as_bytes(), b"", none).err())
        .unwrap();
    assert_eq!(full.errno(), 28);
    assert!(fs.listxattr(ino).unwrap().len() <= 65_536);
    fixture.assert_sound();
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = vec![2, 0, 0, 0];
    for &(tag, perm, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&perm.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

const NOBODY: u32 = u32::MAX;

fn full_acl(mask: u16) -> Vec<u8> {
    acl(&[(1, 7, NOBODY), (2, 6, 77), (4, 5, NOBODY), (0x10, mask, NOBODY), (0x20, 0, NOBODY)])
}

#[test]
fn an_acl_and_the_mode_follow_each_other() {
    let fixture = Fixture::new();
    let fs = &fixture.fs;
    let ino = fixture.file("f");
    let none = XattrFlags::empty();
    chmod(&fixture, ino, 0o2644);
    fs.setxattr(ino, ACCESS, &full_acl(6), none).unwrap();
    assert_eq!(fixture.attr(ino).perm, 0o2760);
    chmod(&fixture, ino, 0o640);
    let expected = acl(&[(1, 6, NOBODY), (2, 6, 77), (4, 5, NOBODY), (0x10, 4, NOBODY)]);
    assert!(fs.getxattr(ino, ACCESS).unwrap().starts_with(&expected));
    let minimal = acl(&[(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 1, NOBODY)]);
    fs.setxattr(ino, ACCESS, &minimal, none).unwrap();
    assert_eq!(fixture.attr(ino).perm, 0o751);
    assert_eq!(errno(fs.getxattr(ino, ACCESS)), 61, "the mode says it all");
    assert_eq!(errno(fs.setxattr(ino, DEFAULT, &minimal, none)), 13);
    assert_eq!(errno(fs.setxattr(ino, ACCESS, &minimal[..9], none)), 22);
    chmod(&fixture, ino, 0o2755);
    fs.setxattr(ino, ACCESS, &full_acl(6), XattrFlags::ACL_KILL_SGID).unwrap();
    assert_eq!(fixture.attr(ino).perm, 0o760);
    fs.setxattr(ino, ACCESS, b"", none).unwrap();
    assert_eq!(errno(fs.getxattr(ino, ACCESS)), 61);
    let link = fs.symlink(&USER, Ino::ROOT, b"l", b"f").unwrap().ino;
    assert_eq!(errno(fs.setxattr(link, ACCESS, &minimal, none)), 95);
    fixture.assert_sound();
}

#[test]
fn removing_an_acl_that_is_not_there_changes_nothing() {
    let fixture = Fixture::new();
    let fs = &fixture.fs;
    let ino = fixture.file_with("f", b"abc");
    let before = fixture.attr(ino);
    for name in [ACCESS, DEFAULT] {
        fs.removexattr(ino, name).unwrap();
        fs.removexattr(Ino::ROOT, name).unwrap();
    }
    assert_eq!(fixture.attr(ino), before);
    assert_eq!(errno(fs.removexattr(ino, b"user.a")), 61, "other attributes have to be there");
}

#[test]
fn a_default_acl_takes_the_umasks_place() {
    let fixture = Fixture::new();
    let fs = &fixture.fs;
    let dir = fixture.dir("d");
    fs.setxattr(dir, DEFAULT, &full_acl(7), XattrFlags::empty()).unwrap();
    let caller = Caller { umask: 0o777, ..USER };
    let file = fs.mknod(&caller, dir, b"f", 0o100_664, 0).unwrap();
    assert_eq!(file.perm, 0o660);
    let expected =
        acl(&[(1, 6, NOBODY), (2, 6, 77), (4, 5, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)]);
    assert_eq!(fs.getxattr(file.ino, ACCESS).unwrap(), expected);
    assert_eq!(errno(fs.getxattr(file.ino, DEFAULT)), 61);
    let sub = fs.mkdir(&caller, dir, b"s", 0o777).unwrap();
    assert_eq!(sub.perm, 0o770);
    assert_eq!(fs.getxattr(sub.ino, DEFAULT).unwrap(), full_acl(7));
    assert!(fs.getxattr(sub.ino, ACCESS).is_ok());
    let link = fs.symlink(&caller, dir, b"l", b"f").unwrap();
    assert_eq!(link.perm, 0o777);
    assert!(fs.listxattr(link.ino).unwrap().is_empty());
    let minimal = acl(&[(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 1, NOBODY)]);
    fs.setxattr(dir, DEFAULT, &minimal, XattrFlags::empty()).unwrap();
    let plain = fs.mknod(&caller, dir, b"g", 0o100_666, 0).unwrap();
    assert_eq!(plain.perm, 0o640);
    assert!(fs.listxattr(plain.ino).unwrap().is_empty());
    fixture.assert_sound();
}

#[test]
fn times_that_a_file_has_already_are_not_stored_again() {
    let fixture = Fixture::new();
    let ino = fixture.file_with("f", b"abc");
    let attr = fixture.attr(ino);
    let (mtime, ctime) = (Some(SetTime::At(attr.mtime)), attr.ctime);
    let before = fixture.disk.last_commit();
    let set = fixture.set(ino, SetAttr { mtime, ctime: Some(ctime), ..SetAttr::default() });
    assert_eq!((set, fixture.disk.last_commit()), (attr, before));
    let later = FileTime { secs: ctime.secs + 1, ..ctime };
    fixture.set(ino, SetAttr { mtime, ctime: Some(later), ..SetAttr::default() });
    assert_eq!(fixture.attr(ino).ctime, later);
    assert!(fixture.disk.last_commit() > before);
}
