//! The hidden directory in the root of a mount.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::{Scratch, skips_mounts};

fn snapshot(scratch: &Scratch, name: &str) {
    let target = format!("{}@{name}", scratch.mount_point());
    scratch.dendro(["snapshot", "create", &target]).succeeds();
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A mounted volume with two snapshots, and a change since.
fn with_a_past() -> Scratch {
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::create_dir_all(scratch.inside("dir/deep")).unwrap();
    for number in 0..300 {
        fs::write(scratch.inside(&format!("dir/deep/file{number}")), vec![b'1'; number]).unwrap();
    }
    symlink("deep/file7", scratch.inside("dir/link")).unwrap();
    snapshot(&scratch, "one");
    fs::write(scratch.inside("dir/deep/file7"), "2").unwrap();
    snapshot(&scratch, "two");
    fs::remove_dir_all(scratch.inside("dir")).unwrap();
    scratch
}

#[test]
fn a_name_that_is_given_again_shows_the_new_snapshot_at_once() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let target = format!("{}@backup", scratch.mount_point());
    let seen = scratch.inside(".dendro/snapshots/backup/file");
    for round in ["1", "2", "3"] {
        fs::write(scratch.inside("file"), round).unwrap();
        snapshot(&scratch, "backup");
        assert_eq!(fs::read_to_string(&seen).unwrap(), round);
        scratch.dendro(["snapshot", "delete", &target]).succeeds();
        let gone = fs::read_to_string(&seen).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound, "in round {round}");
    }
    scratch.umount();
}

#[test]
fn the_past_can_be_walked_and_does_not_get_into_walks() {
    if skips_mounts() {
        return;
    }
    let scratch = with_a_past();
    assert_eq!(names(&scratch.path("mnt")), [""; 0], "it is not listed");
    let hidden = scratch.inside(".dendro");
    assert_eq!(names(&hidden), ["README", "at", "snapshots"]);
    assert_eq!(names(&hidden.join("snapshots")), ["one", "two"]);
    assert_eq!(names(&hidden.join("at")).len(), 2);
    for (snapshot, content) in [("one", &b"1111111"[..]), ("two", b"2")] {
        let root = hidden.join("snapshots").join(snapshot);
        assert_eq!(names(&root.join("dir/deep")).len(), 300);
        assert_eq!(fs::read(root.join("dir/deep/file7")).unwrap(), content);
        assert_eq!(fs::read(root.join("dir/link")).unwrap(), content, "links are followed");
        assert_eq!(fs::read(root.join("dir/deep/file200")).unwrap(), [b'1'; 200]);
    }
    // By time, as it is listed and as people say it.
    let times = names(&hidden.join("at"));
    let file = |time: &str| fs::read(hidden.join("at").join(time).join("dir/deep/file7"));
    assert_eq!(file(&times[0]).unwrap(), b"1111111");
    assert_eq!(file(&times[1]).unwrap(), b"2");
    assert_eq!(file("-0s").unwrap(), b"2");
    for none in ["-10Y", "2200-01-01", "one", "x"] {
        assert_eq!(file(none).unwrap_err().kind(), ErrorKind::NotFound, "{none}");
    }
    // tar archives it, and what it archives is what there was.
    let archive = scratch.text("archive.tar");
    let root = hidden.join("snapshots/two");
    let tar = |arguments: &[&str]| {
        assert!(Command::new("tar").args(arguments).status().unwrap().success());
    };
    tar(&["-C", root.to_str().unwrap(), "-cf", &archive, "."]);
    tar(&["-C", root.to_str().unwrap(), "-df", &archive]);
    // A copy out of the past, by copy_file_range where the kernel has it.
    fs::copy(root.join("dir/deep/file200"), scratch.inside("copy")).unwrap();
    assert_eq!(fs::read(scratch.inside("copy")).unwrap(), [b'1'; 200]);
    assert!(fs::rename(root.join("dir/deep/file9"), scratch.inside("moved")).is_err());
    scratch.umount();
}

#[test]
fn numbers_stay_and_are_unlike_those_of_other_versions() {
    if skips_mounts() {
        return;
    }
    let scratch = with_a_past();
    fs::write(scratch.inside("now"), "").unwrap();
    let all = || {
        let mut numbers = HashSet::new();
        let root = scratch.path("mnt");
        numbers.insert(fs::metadata(root.join("now")).unwrap().ino());
        numbers.insert(fs::metadata(&root).unwrap().ino());
        for snapshot in ["one", "two"] {
            for path in ["", "dir", "dir/deep", "dir/deep/file8", "dir/deep/file9"] {
                let path = root.join(".dendro/snapshots").join(snapshot).join(path);
                let number = fs::metadata(&path).unwrap().ino();
                assert!(numbers.insert(number), "{}", path.display());
                let parent = path.parent().unwrap();
                let name = path.file_name();
                let listed = fs::read_dir(parent).unwrap().flatten();
                let mut listed = listed.filter(|entry| Some(&*entry.file_name()) == name);
                use std::os::unix::fs::DirEntryExt;
                if let Some(entry) = listed.next() {
                    assert_eq!(entry.ino(), number, "{}", path.display());
                }
            }
        }
        numbers
    };
    let before = all();
    scratch.umount();
    scratch.mount();
    assert_eq!(all(), before);
    scratch.umount();
}

#[test]
fn nothing_in_the_past_can_be_changed_and_its_name_is_taken() {
    if skips_mounts() {
        return;
    }
    let scratch = with_a_past();
    let root = scratch.inside(".dendro/snapshots/one");
    let refused = |done: std::io::Result<()>| {
        assert_eq!(done.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    };
    let file = root.join("dir/deep/file9");
    refused(fs::write(&file, "x"));
    refused(fs::write(root.join("new"), "x"));
    refused(fs::remove_file(&file));
    refused(fs::create_dir(root.join("new")));
    refused(fs::remove_dir(scratch.inside(".dendro/snapshots/one")));
    refused(fs::create_dir(scratch.inside(".dendro/snapshots/new")));
    refused(fs::set_permissions(&file, fs::metadata(&file).unwrap().permissions()));
    refused(fs::hard_link(&file, root.join("link")));
    refused(fs::rename(&file, root.join("name")));
    refused(fs::remove_dir(scratch.inside(".dendro")));
    refused(fs::rename(scratch.inside(".dendro"), scratch.inside("other")));
    let making = OpenOptions::new().write(true).create_new(true).open(scratch.inside(".dendro"));
    assert_eq!(making.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let making = fs::create_dir(scratch.inside(".dendro"));
    assert_eq!(making.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&file).unwrap(), [b'1'; 9]);
    // A snapshot that is deleted while somebody looks at it.
    let mount = scratch.mount_point();
    scratch.dendro(["snapshot", "delete", &format!("{mount}@one")]).succeeds();
    let gone = fs::read(root.join("dir/deep/file100")).unwrap_err();
    let stale = gone.raw_os_error() == Some(116) || gone.kind() == ErrorKind::NotFound;
    assert!(stale, "{gone}");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert!(!root.exists());
    assert_eq!(names(&scratch.inside(".dendro/snapshots")), ["two"]);
    // Where there is no such directory, a file may have the name, and keeps it.
    scratch.umount();
    scratch.mount_with("nosnapdir");
    assert!(!scratch.inside(".dendro").exists());
    fs::write(scratch.inside(".dendro"), "mine").unwrap();
    scratch.umount();
    scratch.mount();
    assert_eq!(fs::read(scratch.inside(".dendro")).unwrap(), b"mine");
    fs::remove_file(scratch.inside(".dendro")).unwrap();
    assert_eq!(names(&scratch.inside(".dendro")), ["README", "at", "snapshots"]);
    scratch.umount();
}

#[test]
fn more_snapshots_than_are_open_at_once_are_read_side_by_side() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    const COUNT: usize = 50;
    for number in 0..COUNT {
        fs::write(scratch.inside("file"), format!("{number}")).unwrap();
        snapshot(&scratch, &format!("s{number}"));
    }
    let path = |number: usize| scratch.inside(&format!(".dendro/snapshots/s{number}/file"));
    let files: Vec<_> = (0..COUNT).map(|number| fs::File::open(path(number)).unwrap()).collect();
    for (number, file) in files.iter().enumerate() {
        assert_eq!(std::io::read_to_string(file).unwrap(), format!("{number}"));
        assert_eq!(
            fs::read_to_string(path(COUNT - 1 - number)).unwrap(),
            format!("{}", COUNT - 1 - number)
        );
    }
    assert_eq!(names(&scratch.inside(".dendro/snapshots")).len(), COUNT);
    // What the kernel forgets, and is asked again.
    let _ = fs::write("/proc/sys/vm/drop_caches", "2");
    for number in [0, 7, COUNT - 1] {
        assert_eq!(fs::read_to_string(path(number)).unwrap(), format!("{number}"));
    }
    drop(files);
    scratch.umount();
}

#[test]
fn who_looks_for_the_past_before_there_is_any_reads_how_to_keep_it() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let then = fs::metadata(scratch.inside(".dendro/at/-1m"));
    assert_eq!(then.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let readme = scratch.inside(".dendro/README");
    let text = fs::read_to_string(&readme).unwrap();
    for advice in ["dendro snapshot create", "-o retain=", "at/-15m"] {
        assert!(text.contains(advice), "{text}");
    }
    let told = fs::metadata(&readme).unwrap();
    assert!(told.is_file() && told.len() == text.len() as u64, "{told:?}");
    let entry = fs::read_dir(scratch.inside(".dendro")).unwrap().flatten();
    let entry = entry.into_iter().find(|entry| entry.file_name() == "README").unwrap();
    assert!(entry.file_type().unwrap().is_file());
    // It is no directory, and nobody changes it.
    assert_eq!(fs::read_dir(&readme).unwrap_err().kind(), std::io::ErrorKind::NotADirectory);
    let below = fs::metadata(readme.join("x")).unwrap_err();
    assert_eq!(below.kind(), std::io::ErrorKind::NotADirectory);
    assert!(fs::write(&readme, "mine").is_err() && fs::remove_file(&readme).is_err());
    assert_eq!(fs::read_to_string(&readme).unwrap(), text);
}
