//! Crashes while a tree is being restored.

use super::*;
use crate::versions::Restored;

/// A tree `top` in the directory `dir` of a snapshot.
fn with_a_past(fixture: &Fixture) -> (FileSystem, Ino, Ino) {
    let dir = fixture.dir("dir");
    let top = fixture.fs.mkdir(&USER, dir, b"top", 0o555).unwrap().ino;
    for number in 0..3 {
        let name = format!("sub{number}");
        let sub = fixture.fs.mkdir(&USER, top, name.as_bytes(), 0o755).unwrap().ino;
        for number in 0..4 {
            let file = file_in(fixture, sub, &format!("file{number}"));
            write(fixture, file, &[number; 5000]);
        }
    }
    let view = snapshot(fixture);
    let past = mount(fixture, view);
    remove(&fixture.fs, dir, b"top");
    (past, dir, top)
}

fn remove(fs: &FileSystem, parent: Ino, name: &[u8]) {
    let ino = fs.lookup(parent, name).unwrap().ino;
    let mut entries = Vec::new();
    fs.readdir(ino, 0, &mut |entry| {
        entries.push((entry.name.to_vec(), entry.kind));
        true
    })
    .unwrap();
    for (name, kind) in entries.into_iter().skip(2) {
        match kind {
            FileKind::Directory => remove(fs, ino, &name),
            _ => fs.unlink(ino, &name).unwrap(),
        }
    }
    fs.rmdir(parent, name).unwrap();
}

#[test]
fn after_a_crash_at_any_time_a_tree_is_whole_or_not_there() {
    let fixture = Fixture::with(ModelDisk::new(None).recording(), noatime(), u64::MAX);
    let (past, dir, top) = with_a_past(&fixture);
    let begun = fixture.disk.version_history().len();
    let done = restore(&past, top, &fixture.fs, dir, b"top", None).unwrap();
    assert_eq!(done, Restored { file_count: 12, directory_count: 4, data_bytes: 60_000 });
    assert_eq!(fixture.fs.listxattr(Ino::ROOT), Ok(vec![]), "the mark is gone");
    let expected = comparable(&fixture.fs, "dir");
    let mut was_whole = Vec::new();
    for (seq, versions) in fixture.disk.version_history().split_off(begun) {
        let disk = ModelDisk::from_versions(versions, None);
        let crashed = Fixture::over(disk, noatime(), u64::MAX);
        crashed.assert_sound();
        assert_eq!(crashed.fs.listxattr(Ino::ROOT), Ok(vec![]), "after {seq:?}");
        let names = crashed.list(dir);
        was_whole.push(!names.is_empty());
        if names.is_empty() {
            continue;
        }
        assert_eq!(names, ["top"], "after {seq:?}");
        assert_eq!(comparable(&crashed.fs, "dir"), expected, "after {seq:?}");
    }
    assert!(was_whole.len() > 30 && !was_whole[0] && was_whole.ends_with(&[true]), "{was_whole:?}");
}

#[test]
fn nothing_is_left_of_a_tree_that_did_not_fit_or_whose_name_is_taken() {
    let fixture = Fixture::with(ModelDisk::new(Some(8 << 20)), noatime(), u64::MAX);
    let top = fixture.dir("top");
    let file = file_in(&fixture, top, "file");
    write(&fixture, file, &[1; 5 << 20]);
    let view = snapshot(&fixture);
    let past = mount(&fixture, view);
    let taken = restore(&past, top, &fixture.fs, Ino::ROOT, b"top", None);
    assert_eq!(taken, Err(FsError::Exists));
    let answer = restore(&past, top, &fixture.fs, Ino::ROOT, b"copy", None);
    assert!(matches!(answer, Err(FsError::Disk(dendro_disk::Error::NoSpace { .. }))), "{answer:?}");
    assert_eq!(fixture.list(Ino::ROOT), ["top"]);
    assert_eq!(fixture.fs.listxattr(Ino::ROOT), Ok(vec![]));
}
