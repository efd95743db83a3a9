//! What users with limited permissions see of versions, and what they can restore.

use super::*;
use crate::Credentials;
use crate::versions::{forget_maker, maker, note_maker, seen};

const ALICE: u32 = 501;

fn alice() -> Credentials {
    Credentials { uid: ALICE, gid: 601, groups: vec![602] }
}

/// An ACL that lets user 501 and the owner read and search, and no other user.
fn acl() -> Vec<u8> {
    let entries = [
        (1_u16, 7_u16, u32::MAX),
        (2, 5, ALICE),
        (4, 0, u32::MAX),
        (0x10, 5, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut value = vec![2, 0, 0, 0];
    for (tag, perm, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&perm.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

fn set(fixture: &Fixture, ino: Ino, mode: u32, (uid, gid): (u32, u32)) {
    let owner = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    fixture.set(ino, owner);
    fixture.set(ino, SetAttr { mode: Some(mode), ..SetAttr::default() });
}

/// Three directories: one for all users, one that others may search but not list, and one that an
/// ACL opens to Alice.
fn directories(fixture: &Fixture) -> [Ino; 3] {
    set(fixture, Ino::ROOT, 0o755, (0, 0));
    let make = |name: &str, mode| {
        let ino = fixture.fs.mkdir(&USER, Ino::ROOT, name.as_bytes(), 0o755).unwrap().ino;
        set(fixture, ino, mode, (0, 0));
        ino
    };
    let [open, narrow, shut] = [make("open", 0o755), make("narrow", 0o711), make("shut", 0o700)];
    fixture.fs.setxattr(shut, b"system.posix_acl_access", &acl(), XattrFlags::empty()).unwrap();
    [open, narrow, shut]
}

fn seen_lines(fixture: &Fixture, old: View, new: View, user: &Credentials) -> Vec<String> {
    let changes = diff(&*fixture.disk, old, new).unwrap();
    let changes = seen(&*fixture.disk, old, new, changes, user).unwrap();
    changes
        .iter()
        .map(|of| format!("{} {}", of.sign(), String::from_utf8_lossy(of.path())))
        .collect()
}

#[test]
fn changes_are_reported_where_the_names_can_be_listed() {
    let fixture = Fixture::new();
    let [open, narrow, shut] = directories(&fixture);
    file_in(&fixture, open, "moved");
    file_in(&fixture, narrow, "appears");
    let before = snapshot(&fixture);
    for (dir, name) in [(open, "a"), (narrow, "b"), (shut, "c")] {
        file_in(&fixture, dir, name);
    }
    rename(&fixture, (open, "moved"), (narrow, "moved"));
    rename(&fixture, (narrow, "appears"), (open, "appears"));
    let visible = seen_lines(&fixture, before, View::HEAD, &alice());
    let expected = [
        "M /narrow",
        "M /open",
        "+ /open/a",
        "+ /open/appears",
        "- /open/moved",
        "M /shut",
        "+ /shut/c",
    ];
    assert_eq!(BTreeSet::from_iter(visible.iter().map(String::as_str)), BTreeSet::from(expected));
    let stranger = Credentials { uid: 502, gid: 0, groups: Vec::new() };
    let visible = seen_lines(&fixture, before, View::HEAD, &stranger);
    assert!(!visible.contains(&"+ /shut/c".to_owned()), "{visible:?}");
}

#[test]
fn the_permissions_of_the_version_count() {
    let fixture = Fixture::new();
    let [_, _, shut] = directories(&fixture);
    let file = file_in(&fixture, shut, "file");
    set(&fixture, file, 0o600, (0, 0));
    let past = snapshot(&fixture);
    fixture.fs.unlink(shut, b"file").unwrap();
    let found = |user: &Credentials| history(&*fixture.disk, View::HEAD, b"/shut/file", Some(user));
    assert_eq!(found(&alice()).unwrap().len(), 2);
    let stranger = Credentials { uid: 502, ..alice() };
    assert_eq!(errno(found(&stranger)), 13);
    let gone = |user: &Credentials| removed(&*fixture.disk, View::HEAD, b"/shut", Some(user));
    assert_eq!(gone(&alice()).unwrap().len(), 1);
    assert_eq!(errno(gone(&stranger)), 13);
    // The directory is closed to Alice now, but was open to her.
    fixture.fs.removexattr(shut, b"system.posix_acl_access").unwrap();
    fixture.set(shut, SetAttr { mode: Some(0o700), ..SetAttr::default() });
    assert_eq!(found(&alice()).unwrap().iter().map(|of| of.view).collect::<Vec<_>>(), [past]);
    assert_eq!(errno(gone(&alice())), 13);
}

#[test]
fn a_copy_for_somebody_has_only_what_that_one_can_give() {
    let fixture = Fixture::new();
    let top = fixture.fs.mkdir(&USER, Ino::ROOT, b"top", 0o755).unwrap().ino;
    let [own, foreign] = ["own", "foreign"].map(|name| file_in(&fixture, top, name));
    for (ino, uid) in [(own, ALICE), (foreign, 7)] {
        write(&fixture, ino, b"data");
        fixture.set(ino, SetAttr { uid: Some(uid), gid: Some(602), ..SetAttr::default() });
        fixture.fs.setxattr(ino, b"user.note", b"x", XattrFlags::empty()).unwrap();
        fixture.fs.setxattr(ino, b"trusted.note", b"x", XattrFlags::empty()).unwrap();
        fixture.fs.setxattr(ino, b"security.capability", b"cap", XattrFlags::empty()).unwrap();
        fixture.set(ino, SetAttr { mode: Some(0o6755), ..SetAttr::default() });
    }
    let flags = Some(FileFlags::IMMUTABLE | FileFlags::NO_DUMP);
    fixture.set(own, SetAttr { flags, ..SetAttr::default() });
    let past = mount(&fixture, snapshot(&fixture));
    let user = alice();
    restore(&past, top, &fixture.fs, Ino::ROOT, b"copy", Some(&user)).unwrap();
    let copy = fixture.fs.lookup(Ino::ROOT, b"copy").unwrap();
    assert_eq!((copy.uid, copy.gid), (ALICE, 601), "the directory was of a group that is not hers");
    for (name, mode) in [("own", 0o6755), ("foreign", 0o755)] {
        let file = fixture.fs.lookup(copy.ino, name.as_bytes()).unwrap();
        assert_eq!((file.uid, file.gid, file.perm), (ALICE, 602, mode), "{name}");
        assert_eq!(fixture.fs.listxattr(file.ino).unwrap(), b"user.note\0", "{name}");
        assert!(!file.flags.contains(FileFlags::IMMUTABLE));
    }
    // All of the tree must be readable.
    fixture.set(own, SetAttr { flags: Some(FileFlags::empty()), ..SetAttr::default() });
    set(&fixture, foreign, 0o600, (7, 7));
    let past = mount(&fixture, snapshot(&fixture));
    let refused = restore(&past, top, &fixture.fs, Ino::ROOT, b"second", Some(&user));
    assert_eq!(errno(refused), 13);
    assert_eq!(errno(fixture.fs.lookup(Ino::ROOT, b"second")), 2);
    fixture.fs.mknod(&Caller::default(), top, b"device", 0o020_666, 0x0103).unwrap();
    fixture.fs.unlink(top, b"foreign").unwrap();
    let past = mount(&fixture, snapshot(&fixture));
    let refused = restore(&past, top, &fixture.fs, Ino::ROOT, b"third", Some(&user));
    assert_eq!(errno(refused), 1);
    fixture.assert_sound();
}

#[test]
fn who_made_a_version_stands_in_that_alone() {
    let fixture = Fixture::new();
    let disk = &*fixture.disk;
    let head = View::HEAD;
    assert_eq!(maker(disk, head), Ok(None));
    let next = View { branch: 0, epoch: Some(disk.versions().epoch) };
    note_maker(disk, next, ALICE).unwrap();
    let hers = disk.snapshot(0, Some("hers")).unwrap().view();
    let others = disk.snapshot(0, Some("others")).unwrap().view();
    assert_eq!((hers, maker(disk, hers), maker(disk, others)), (next, Ok(Some(ALICE)), Ok(None)));
    let branch = disk.branch_off(hers, "branch").unwrap().head();
    assert_eq!(maker(disk, branch), Ok(None));
    note_maker(disk, branch, ALICE).unwrap();
    let further = disk.branch_off(branch, "further").unwrap().head();
    assert_eq!((maker(disk, branch), maker(disk, further)), (Ok(Some(ALICE)), Ok(None)));
    assert_eq!(maker(disk, head), Ok(None));
    // A snapshot of her branch belongs to another user.
    note_maker(disk, View { epoch: Some(disk.versions().epoch), ..branch }, 7).unwrap();
    let of_branch = disk.snapshot(branch.branch, None).unwrap().view();
    assert_eq!((maker(disk, branch), maker(disk, of_branch)), (Ok(Some(ALICE)), Ok(Some(7))));
    forget_maker(disk, branch).unwrap();
    assert_eq!((maker(disk, branch), maker(disk, hers)), (Ok(None), Ok(Some(ALICE))));
    fixture.assert_sound();
    assert!(verify(disk, hers).unwrap().is_empty());
}
