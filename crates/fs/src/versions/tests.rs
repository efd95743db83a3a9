mod permissions;
mod staged;

use std::collections::{BTreeMap, BTreeSet};

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_disk::model::ModelDisk;
use dendro_disk::{LogicalDisk, Versions, View};

use super::{Change, Stale, diff, history, removed, restore, stale};
use crate::testing::Tree;
use crate::tests::{Fixture, USER, errno, noatime};
use crate::types::{FileFlags, SetTime};
use crate::{
    Caller, FileKind, FileSystem, FileTime, FsError, Ino, OpenOptions, Options, RenameFlags,
    SetAttr, XattrFlags, verify,
};

/// Creates a snapshot, and advances the clock.
fn snapshot(fixture: &Fixture) -> View {
    let snapshot = fixture.disk.snapshot(0, None).unwrap();
    fixture.clock.set_step(snapshot.epoch);
    snapshot.view()
}

fn mount(fixture: &Fixture, view: View) -> FileSystem {
    let disk = Arc::clone(&fixture.disk) as Arc<dyn LogicalDisk>;
    let options = Options { view, ..noatime() };
    let clock = Arc::clone(&fixture.clock) as Arc<dyn dendro_base::Clock>;
    FileSystem::mount(disk, options, clock).unwrap()
}

fn read(fs: &FileSystem, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0xee; fs.getattr(ino).unwrap().size_bytes as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes), Ok(bytes.len()));
    bytes
}

fn write(fixture: &Fixture, ino: Ino, data: &[u8]) {
    assert_eq!(fixture.fs.write(ino, 0, data, false), Ok(data.len()));
}

fn file_in(fixture: &Fixture, dir: Ino, name: &str) -> Ino {
    let options = OpenOptions::default();
    let ino = fixture.fs.create(&USER, dir, name.as_bytes(), 0o644, options).unwrap().ino;
    fixture.fs.release(ino);
    ino
}

fn rename(fixture: &Fixture, (dir, name): (Ino, &str), (new_dir, new_name): (Ino, &str)) {
    let flags = RenameFlags::empty();
    fixture.fs.rename(&USER, dir, name.as_bytes(), new_dir, new_name.as_bytes(), flags).unwrap();
}

/// Changes as lines of signs and paths.
fn lines(fixture: &Fixture, old: View, new: View) -> Vec<String> {
    let text = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
    let line = |change: &Change| match change {
        Change::Renamed { from, path, .. } => format!("R {} -> {}", text(from), text(path)),
        other => format!("{} {}", other.sign(), text(other.path())),
    };
    diff(&*fixture.disk, old, new).unwrap().iter().map(line).collect()
}

#[test]
fn a_view_of_the_past_is_read_without_a_write() {
    let fixture = Fixture::with(ModelDisk::new(None).recording(), noatime(), u64::MAX);
    let ino = fixture.file_with("file", b"before");
    let opened = fixture.file_with("open", &[7; 10_000]);
    fixture.fs.open(opened, OpenOptions::default()).unwrap();
    fixture.fs.unlink(Ino::ROOT, b"open").unwrap();
    let view = snapshot(&fixture);
    write(&fixture, ino, b"after!");
    let commits = fixture.disk.history().len();
    let options = Options { view, ..Options::default() };
    let disk = Arc::clone(&fixture.disk) as Arc<dyn LogicalDisk>;
    let past = FileSystem::mount(disk, options, Arc::clone(&fixture.clock) as _).unwrap();
    assert!(past.is_read_only());
    assert_eq!(past.lookup(Ino::ROOT, b"file").unwrap().ino, ino);
    assert_eq!(read(&past, ino), b"before");
    past.open(ino, OpenOptions::default()).unwrap();
    assert_eq!(past.write(ino, 0, b"x", false), Err(FsError::ReadOnly));
    assert_eq!(errno(past.unlink(Ino::ROOT, b"file")), 30);
    assert_eq!(errno(past.setattr(&USER, ino, &SetAttr::default())), 30);
    past.release(ino);
    past.forget(ino, 1);
    past.sync_all().unwrap();
    past.close().unwrap();
    assert_eq!(fixture.disk.history().len(), commits, "nothing was committed");
    assert_eq!(read(&fixture.fs, ino), b"after!");
    assert_eq!(fixture.contents(opened), [7; 10_000]);
}

#[test]
fn a_clone_removes_what_was_only_open_where_it_was_made_and_that_stays_there() {
    let fixture = Fixture::new();
    let opened = fixture.file_with("open", &[7; 10_000]);
    fixture.fs.open(opened, OpenOptions::default()).unwrap();
    fixture.fs.unlink(Ino::ROOT, b"open").unwrap();
    let clone = fixture.disk.branch_off(View::HEAD, "clone").unwrap().head();
    let fs = mount(&fixture, clone);
    assert_eq!(fs.getattr(opened), Err(FsError::Stale));
    assert_eq!(verify(&*fixture.disk, clone), Ok(vec![]));
    assert_eq!(fixture.contents(opened), [7; 10_000]);
    fixture.fs.release(opened);
    fixture.fs.forget(opened, 1);
    fixture.assert_sound();
}

#[test]
fn several_heads_are_written_to_at_the_same_time() {
    let fixture = Fixture::new();
    let ino = fixture.file_with("file", b"common");
    let heads: Vec<_> = (0..3)
        .map(|number| {
            let head = fixture.disk.branch_off(View::HEAD, &format!("clone{number}")).unwrap();
            mount(&fixture, head.head())
        })
        .collect();
    std::thread::scope(|scope| {
        for (number, fs) in heads.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..50 {
                    let name = format!("own{round}");
                    let options = OpenOptions::default();
                    let own =
                        fs.create(&USER, Ino::ROOT, name.as_bytes(), 0o644, options).unwrap().ino;
                    fs.write(own, 0, name.as_bytes(), false).unwrap();
                    fs.write(ino, 0, &[number as u8; 5000], false).unwrap();
                    if round % 2 == 0 {
                        fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
                    }
                    fs.release(own);
                    fs.forget(own, 1);
                }
            });
        }
    });
    for (number, fs) in heads.iter().enumerate() {
        assert_eq!(read(fs, ino), [number as u8; 5000]);
        fs.close().unwrap();
        assert_eq!(verify(&*fixture.disk, fs.view()), Ok(vec![]));
    }
    assert_eq!(fixture.contents(ino), b"common");
    write(&fixture, ino, b"the disk goes on");
    fixture.assert_sound();
}

#[test]
fn a_diff_reports_names_that_came_and_went_and_files_that_changed() {
    let fixture = Fixture::new();
    let (dir, sub) = (fixture.dir("dir"), fixture.dir("sub"));
    let (kept, doomed) = (file_in(&fixture, dir, "kept"), file_in(&fixture, dir, "doomed"));
    let moved = file_in(&fixture, dir, "moved");
    let touched = file_in(&fixture, sub, "touched");
    let old = snapshot(&fixture);
    assert_eq!(lines(&fixture, old, View::HEAD), [""; 0]);
    fixture.fs.unlink(dir, b"doomed").unwrap();
    assert_eq!(fixture.fs.getattr(doomed).unwrap().nlink, 0);
    rename(&fixture, (dir, "moved"), (sub, "there"));
    write(&fixture, touched, b"data");
    fixture.set(kept, SetAttr { mode: Some(0o600), ..SetAttr::default() });
    let new_dir = fixture.fs.mkdir(&USER, dir, b"new", 0o755).unwrap().ino;
    file_in(&fixture, new_dir, "inside");
    let expected = [
        "M /dir",
        "- /dir/doomed",
        "M /dir/kept",
        "+ /dir/new",
        "+ /dir/new/inside",
        "M /sub",
        "R /dir/moved -> /sub/there",
        "M /sub/touched",
    ];
    assert_eq!(lines(&fixture, old, View::HEAD), expected);
    let reverse = lines(&fixture, View::HEAD, old);
    for line in ["+ /dir/doomed", "- /dir/new", "- /dir/new/inside", "R /sub/there -> /dir/moved"] {
        assert!(reverse.iter().any(|found| found == line), "{line}: {reverse:?}");
    }
    write(&fixture, moved, b"changed too");
    let between = lines(&fixture, old, View::HEAD);
    assert!(between.contains(&"M /sub/there".into()), "{between:?}");
}

#[test]
fn a_diff_reports_a_renamed_directory_and_not_what_is_in_it() {
    let fixture = Fixture::new();
    let (dir, other) = (fixture.dir("dir"), fixture.dir("other"));
    let ino = file_in(&fixture, dir, "file");
    for number in 0..300 {
        file_in(&fixture, dir, &format!("more{number}"));
    }
    let old = snapshot(&fixture);
    rename(&fixture, (Ino::ROOT, "dir"), (other, "here"));
    let renamed = ["M /", "M /other", "R /dir -> /other/here"];
    assert_eq!(lines(&fixture, old, View::HEAD), renamed);
    write(&fixture, ino, b"x");
    let found = lines(&fixture, old, View::HEAD);
    assert_eq!(found, ["M /", "M /other", "R /dir -> /other/here", "M /other/here/file"]);
}

#[test]
fn a_diff_reports_hard_links_and_files_that_were_replaced() {
    let fixture = Fixture::new();
    let (dir, other) = (fixture.dir("dir"), fixture.dir("other"));
    let ino = file_in(&fixture, dir, "file");
    file_in(&fixture, dir, "replaced");
    let old = snapshot(&fixture);
    fixture.fs.link(ino, other, b"link").unwrap();
    let linked = snapshot(&fixture);
    assert_eq!(lines(&fixture, old, linked), ["M /other", "+ /other/link"]);
    // The i-node names the directory of the link, which is removed. The file is still found.
    fixture.fs.unlink(other, b"link").unwrap();
    write(&fixture, ino, b"data");
    assert_eq!(lines(&fixture, old, View::HEAD), ["M /dir/file", "M /other"]);
    let before = snapshot(&fixture);
    file_in(&fixture, dir, "temporary");
    rename(&fixture, (dir, "temporary"), (dir, "replaced"));
    assert_eq!(lines(&fixture, before, View::HEAD), ["M /dir", "M /dir/replaced"]);
}

#[test]
fn a_diff_leaves_out_reading_and_files_without_a_name() {
    let options = Options { atime: crate::AtimePolicy::Strictatime, ..Options::default() };
    let fixture = Fixture::with(ModelDisk::new(None), options, u64::MAX);
    let ino = fixture.file_with("file", b"data");
    let old = snapshot(&fixture);
    fixture.contents(ino);
    fixture.fs.tmpfile(&USER, Ino::ROOT, 0o600).unwrap();
    fixture.fs.sync_all().unwrap();
    assert_eq!(lines(&fixture, old, View::HEAD), [""; 0]);
}

type Walked = BTreeMap<String, (Ino, FileTime, FileTime)>;

/// The paths of all files in a view except the root, with their i-nodes, modification and change
/// times.
fn walk(fs: &FileSystem) -> Walked {
    let mut found = BTreeMap::new();
    let mut dirs = vec![(Ino::ROOT, String::new())];
    while let Some((dir, path)) = dirs.pop() {
        fs.readdir(dir, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                let path = format!("{path}/{}", String::from_utf8_lossy(entry.name));
                let attr = fs.getattr(entry.ino).unwrap();
                if attr.kind == FileKind::Directory {
                    dirs.push((entry.ino, path.clone()));
                }
                found.insert(path, (entry.ino, attr.mtime, attr.ctime));
            }
            true
        })
        .unwrap();
    }
    found
}

#[test]
fn random_diffs_are_what_walking_both_views_finds() {
    for seed in 0..60 {
        let fixture = Fixture::new();
        let mut rng = Rng::new(seed);
        let mut dirs = vec![Ino::ROOT];
        for number in 0..5 {
            let parent = dirs[rng.below(dirs.len() as u64) as usize];
            let name = format!("dir{number}");
            dirs.push(fixture.fs.mkdir(&USER, parent, name.as_bytes(), 0o755).unwrap().ino);
        }
        let mut views = Vec::new();
        for _ in 0..4 {
            for _ in 0..15 {
                random_change(&fixture, &mut rng, &dirs);
            }
            views.push(snapshot(&fixture));
        }
        for (old, new) in [(0, 1), (0, 3), (3, 1), (2, 2)] {
            let (old, new) = (views[old], views[new]);
            compare_with_walk(&fixture, old, new, seed);
        }
    }
}

fn random_change(fixture: &Fixture, rng: &mut Rng, dirs: &[Ino]) {
    let fs = &fixture.fs;
    let mut place = || {
        let dir = dirs[rng.below(dirs.len() as u64) as usize];
        (dir, format!("f{}", rng.below(6)))
    };
    let ((dir, name), (other_dir, other_name)) = (place(), place());
    let found = fs.lookup(dir, name.as_bytes());
    let Ok(attr) = found else {
        file_in(fixture, dir, &name);
        return;
    };
    match rng.below(5) {
        0 => fs.unlink(dir, name.as_bytes()).unwrap(),
        1 => drop(fs.link(attr.ino, other_dir, other_name.as_bytes())),
        2 | 3 => write(fixture, attr.ino, &rng.next_u64().to_le_bytes()),
        _ => rename(fixture, (dir, &name), (other_dir, &other_name)),
    }
}

fn compare_with_walk(fixture: &Fixture, old: View, new: View, seed: u64) {
    let (before, after) = (walk(&mount(fixture, old)), walk(&mount(fixture, new)));
    let named = |tree: &Walked| -> BTreeSet<(String, Ino)> {
        tree.iter().map(|(path, (ino, ..))| (path.clone(), *ino)).collect()
    };
    let (names_before, names_after) = (named(&before), named(&after));
    let paths = |set: BTreeSet<(String, Ino)>| -> BTreeSet<String> {
        set.into_iter().map(|(path, _)| path).collect()
    };
    let mut gone = paths(&names_before - &names_after);
    let mut come = paths(&names_after - &names_before);
    let times: BTreeMap<Ino, FileTime> =
        before.values().map(|(ino, mtime, _)| (*ino, *mtime)).collect();
    let written = |path: &str| {
        let (ino, mtime, _) = after[path];
        times.get(&ino).is_some_and(|before| *before != mtime)
    };
    let mut modified = BTreeSet::new();
    let mut changes = diff(&*fixture.disk, old, new).unwrap();
    // A modified file may have replaced another one. Renames are checked first.
    changes.sort_by_key(|change| change.sign() == 'M');
    for change in changes {
        let path = String::from_utf8(change.path().to_vec()).unwrap();
        match change {
            Change::Removed { .. } => assert!(gone.remove(&path), "seed {seed}: - {path}"),
            Change::Added { .. } => assert!(come.remove(&path), "seed {seed}: + {path}"),
            Change::Renamed { from, .. } => {
                let from = String::from_utf8(from).unwrap();
                assert!(gone.remove(&from) && come.remove(&path), "seed {seed}: {from} -> {path}");
            }
            Change::Modified { .. } => {
                let replaced = gone.remove(&path) && come.remove(&path);
                let changed = path == "/" || before.get(&path) != after.get(&path);
                assert!(replaced || changed || written(&path), "seed {seed}: M {path}");
                modified.insert(path);
            }
        }
    }
    assert!(gone.is_empty() && come.is_empty(), "seed {seed}: {gone:?} went, {come:?} came");
    let reported: BTreeSet<_> = modified.iter().filter_map(|path| after.get(path)).collect();
    for (path, file) in &after {
        assert!(!written(path) || reported.contains(file), "seed {seed}: {path} was written");
    }
}

#[test]
fn the_history_of_a_path_has_one_version_for_all_snapshots_alike() {
    let fixture = Fixture::new();
    let dir = fixture.dir("dir");
    let first = snapshot(&fixture);
    let ino = file_in(&fixture, dir, "file");
    write(&fixture, ino, b"one");
    let second = snapshot(&fixture);
    fixture.file("unrelated");
    let third = snapshot(&fixture);
    write(&fixture, ino, b"longer");
    let fourth = snapshot(&fixture);
    fixture.fs.unlink(dir, b"file").unwrap();
    let versions = history(&*fixture.disk, View::HEAD, b"/dir/file", None).unwrap();
    let found: Vec<_> = versions
        .iter()
        .map(|of| (of.view, of.snapshot_count, of.attr.map(|attr| attr.size_bytes)))
        .collect();
    let expected =
        [(View::HEAD, 0, None), (fourth, 1, Some(6)), (third, 2, Some(3)), (first, 1, None)];
    assert_eq!(found, expected);
    let time = |view| fixture.disk.versions().snapshot_of(view).map(|snapshot| snapshot.time);
    assert_eq!((versions[2].since, versions[2].until), (time(second), time(third)));
    assert_eq!((versions[0].since, versions[0].until), (None, None));
    let past = history(&*fixture.disk, third, b"dir//./file", None).unwrap();
    assert_eq!(past.iter().map(|of| of.view).collect::<Vec<_>>(), [third, first]);
}

#[test]
fn what_a_directory_had_is_found_in_the_newest_snapshot_that_has_it() {
    let fixture = Fixture::new();
    let dir = fixture.dir("dir");
    let one = file_in(&fixture, dir, "one");
    file_in(&fixture, dir, "kept");
    snapshot(&fixture);
    write(&fixture, one, b"written");
    let second = snapshot(&fixture);
    fixture.fs.unlink(dir, b"one").unwrap();
    file_in(&fixture, dir, "two");
    let third = snapshot(&fixture);
    fixture.fs.unlink(dir, b"two").unwrap();
    let found = |path: &[u8]| -> Vec<_> {
        removed(&*fixture.disk, View::HEAD, path, None)
            .unwrap()
            .into_iter()
            .map(|of| (String::from_utf8(of.name).unwrap(), of.snapshot.view(), of.attr.size_bytes))
            .collect()
    };
    assert_eq!(found(b"/dir"), [("one".into(), second, 7), ("two".into(), third, 0)]);
    assert_eq!(found(b"/nothing"), []);
    fixture.fs.unlink(dir, b"kept").unwrap();
    fixture.fs.rmdir(Ino::ROOT, b"dir").unwrap();
    let names: Vec<_> = found(b"/dir").into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["kept", "one", "two"]);
    assert_eq!(found(b"/").len(), 1);
}

/// Everything in which a copy equals the original.
fn comparable(fs: &FileSystem, top: &str) -> Tree {
    let mut tree = Tree::of_fs(fs).unwrap();
    tree.nodes.retain(|path, _| path == top || path.starts_with(&format!("{top}/")));
    for node in tree.nodes.values_mut() {
        (node.ctime, node.btime) = (FileTime::default(), FileTime::default());
    }
    tree
}

#[test]
fn a_tree_is_brought_back_with_all_that_can_be_seen_of_it() {
    let mut fixture = Fixture::new();
    let top = fixture.dir("top");
    let sub = fixture.fs.mkdir(&USER, top, b"sub", 0o711).unwrap().ino;
    let large = file_in(&fixture, top, "large");
    let mut rng = Rng::new(1);
    let mut data = vec![0; 3_000_000];
    rng.fill(&mut data);
    fixture.fs.write(large, 5000, &data, false).unwrap();
    fixture.fs.write(large, 50_000_000, b"behind a hole", false).unwrap();
    fixture.truncate(large, 60_000_001);
    fixture.fs.link(large, sub, b"second name").unwrap();
    let small = file_in(&fixture, sub, "small");
    write(&fixture, small, b"inline");
    fixture.fs.setxattr(small, b"user.note", &[9; 3000], XattrFlags::empty()).unwrap();
    fixture.fs.setxattr(small, b"security.capability", b"cap", XattrFlags::empty()).unwrap();
    fixture.fs.symlink(&USER, sub, b"link", b"../large").unwrap();
    fixture.fs.mknod(&USER, sub, b"fifo", 0o010_640, 0).unwrap();
    fixture.fs.mknod(&Caller::default(), sub, b"device", 0o020_600, 0x0103).unwrap();
    let then = SetTime::At(FileTime { secs: -7, nanos: 5 });
    for (ino, mode) in [(small, 0o4755), (sub, 0o1777), (large, 0o640)] {
        let mode = Some(mode);
        let times = SetAttr { mode, mtime: Some(then), atime: Some(then), ..SetAttr::default() };
        fixture.set(ino, times);
    }
    let flags = Some(FileFlags::IMMUTABLE);
    fixture.set(large, SetAttr { flags, ..SetAttr::default() });
    let view = snapshot(&fixture);
    let past = mount(&fixture, view);
    fixture.set(large, SetAttr { flags: Some(FileFlags::empty()), ..SetAttr::default() });
    for (dir, name) in [
        (sub, "second name"),
        (sub, "small"),
        (sub, "link"),
        (sub, "fifo"),
        (sub, "device"),
        (top, "large"),
    ] {
        fixture.fs.unlink(dir, name.as_bytes()).unwrap();
    }
    fixture.fs.rmdir(top, b"sub").unwrap();
    fixture.fs.rmdir(Ino::ROOT, b"top").unwrap();
    let done = restore(&past, top, &fixture.fs, Ino::ROOT, b"top", None).unwrap();
    assert_eq!((done.file_count, done.directory_count), (5, 2));
    assert_eq!(restore(&past, top, &fixture.fs, Ino::ROOT, b"top", None), Err(FsError::Exists));
    fixture.remount();
    let (found, expected) = (comparable(&fixture.fs, "top"), comparable(&past, "top"));
    assert_eq!(found, expected);
    let again = fixture.fs.lookup(Ino::ROOT, b"top").unwrap().ino;
    let large = fixture.fs.lookup(again, b"large").unwrap();
    assert_eq!((large.flags, large.nlink), (FileFlags::IMMUTABLE, 2));
    fixture.assert_sound();
}

#[test]
fn a_copy_has_no_acl_of_the_directory_where_it_is_put() {
    let fixture = Fixture::new();
    let dir = fixture.dir("dir");
    let ino = file_in(&fixture, dir, "file");
    let view = snapshot(&fixture);
    fixture.fs.unlink(dir, b"file").unwrap();
    // Version 2; owner rwx, user 5 rw-, group r-x, mask rwx, others ---.
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 6, 5), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&perm.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    let name = b"system.posix_acl_default";
    fixture.fs.setxattr(dir, name, &acl, XattrFlags::empty()).unwrap();
    restore(&mount(&fixture, view), ino, &fixture.fs, dir, b"file", None).unwrap();
    let copy = fixture.fs.lookup(dir, b"file").unwrap();
    assert_eq!(copy.perm, 0o644);
    assert_eq!(fixture.fs.listxattr(copy.ino), Ok(vec![]));
}

#[test]
fn nothing_is_left_of_a_copy_that_did_not_fit() {
    let fixture = Fixture::with(ModelDisk::new(Some(8 << 20)), noatime(), u64::MAX);
    let ino = fixture.file_with("file", &[1; 5 << 20]);
    let view = snapshot(&fixture);
    let past = mount(&fixture, view);
    let answer = restore(&past, ino, &fixture.fs, Ino::ROOT, b"copy", None);
    assert!(matches!(answer, Err(FsError::Disk(dendro_disk::Error::NoSpace { .. }))), "{answer:?}");
    assert_eq!(fixture.list(Ino::ROOT), ["file"]);
    fixture.fs.close().unwrap();
    fixture.assert_sound();
    assert!(fixture.disk.space().live_bytes < 6 << 20);
}

#[test]
fn what_differs_is_stale_and_the_rest_is_not() {
    let fixture = Fixture::new();
    let dir = fixture.fs.mkdir(&USER, Ino::ROOT, b"dir", 0o755).unwrap().ino;
    let [same, changed, moved, gone] =
        ["same", "changed", "moved", "gone"].map(|name| file_in(&fixture, dir, name));
    let replaced = file_in(&fixture, Ino::ROOT, "replaced");
    let old = snapshot(&fixture);
    write(&fixture, changed, b"x");
    rename(&fixture, (dir, "moved"), (Ino::ROOT, "here"));
    fixture.fs.unlink(dir, b"gone").unwrap();
    fixture.fs.unlink(Ino::ROOT, b"replaced").unwrap();
    let new = file_in(&fixture, Ino::ROOT, "replaced");
    for (a, b, gone, went) in
        [(old, View::HEAD, Some(gone), replaced), (View::HEAD, old, None, new)]
    {
        let entry = |parent, name: &[u8], gone| Stale::Entry { parent, name: name.to_vec(), gone };
        let expected = BTreeSet::from([
            entry(dir, b"moved", None),
            entry(dir, b"gone", gone),
            entry(Ino::ROOT, b"here", None),
            entry(Ino::ROOT, b"replaced", Some(went)),
        ]);
        let found: BTreeSet<_> = stale(&*fixture.disk, a, b).unwrap().into_iter().collect();
        let entries: BTreeSet<_> =
            found.iter().filter(|of| matches!(of, Stale::Entry { .. })).cloned().collect();
        assert_eq!(entries, expected);
        for ino in [Ino::ROOT, dir, changed, moved, replaced, new].into_iter().chain(gone) {
            assert!(found.contains(&Stale::Inode(ino)), "{ino:?}");
        }
        assert!(!found.contains(&Stale::Inode(same)));
    }
    assert_eq!(stale(&*fixture.disk, View::HEAD, View::HEAD).unwrap(), []);
}
