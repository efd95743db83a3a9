//! lsattr(1) and chattr(1) on a mount, and what the flags forbid.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::IFlags;

use crate::common::{Scratch, is_root, skips_mounts};

const EPERM: i32 = 1;

/// `FS_NOCOMP_FL`, which rustix does not name.
const NOT_COMPRESSED: IFlags = IFlags::from_bits_retain(0x400);

fn chattr(how: &str, path: &Path) -> Output {
    Command::new("chattr").arg(how).arg(path).output().unwrap()
}

#[track_caller]
fn set(how: &str, path: &Path) {
    let output = chattr(how, path);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The letters that lsattr(1) shows.
#[track_caller]
fn flags(path: &Path) -> String {
    let output = Command::new("lsattr").arg("-d").arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(' ').next().unwrap().replace('-', "")
}

#[track_caller]
fn refused<T>(answer: io::Result<T>) {
    let error = answer.err().expect("it was allowed");
    assert_eq!(error.raw_os_error(), Some(EPERM), "{error}");
}

fn has_chattr() -> bool {
    let has = Command::new("chattr").output().is_ok();
    if !has {
        eprintln!("left out: there is no chattr");
    }
    has
}

/// A mounted volume, if there can be one here.
fn mounted() -> Option<Scratch> {
    if skips_mounts() || !is_root() || !has_chattr() {
        return None;
    }
    let scratch = Scratch::with_volume();
    scratch.mount_with("nofuseblk,strictatime");
    Some(scratch)
}

#[test]
fn flags_are_shown_as_they_were_set_and_stay_with_the_file_in_each_version() {
    let Some(scratch) = mounted() else { return };
    let (file, dir) = (scratch.inside("file"), scratch.inside("dir"));
    fs::write(&file, "text").unwrap();
    fs::create_dir(&dir).unwrap();
    assert_eq!(flags(&file), "");
    let ctime =
        |path: &PathBuf| fs::metadata(path).map(|of| (of.ctime(), of.ctime_nsec())).unwrap();
    for path in [&file, &dir] {
        let before = ctime(path);
        set("+iadA", path);
        assert!(ctime(path) > before, "the kernel goes on with the old change time");
        assert_eq!(flags(path), "iadA");
        set("-iA", path);
        assert_eq!(flags(path), "ad");
        set("=d", path);
        assert_eq!(flags(path), "d");
    }
    let mount = scratch.mount_point();
    scratch.dendro(["snapshot", "create", &format!("{mount}@one")]).succeeds();
    set("=A", &file);
    scratch.umount();
    scratch.mount_with("nofuseblk");
    assert_eq!((flags(&file), flags(&dir)), ("A".into(), "d".into()));
    let past = scratch.inside(".dendro/snapshots/one/file");
    assert_eq!((flags(&past), flags(&scratch.inside(".dendro"))), ("d".into(), String::new()));
    let answer = chattr("+A", &past);
    assert!(String::from_utf8_lossy(&answer.stderr).contains("Read-only"), "{answer:?}");
    // What is not there is not pretended to be.
    for how in ["+S", "+j", "+C"] {
        let answer = chattr(how, &file);
        assert!(!answer.status.success(), "{how}");
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(said.contains("not supported"), "{how}: {said}");
    }
    let answer = Command::new("chattr").args(["-p", "7"]).arg(&file).output().unwrap();
    assert!(!answer.status.success(), "projects are not there");
    scratch.umount();
}

#[test]
fn compression_is_chosen_for_files_and_for_what_is_made_in_directories() {
    let Some(scratch) = mounted() else { return };
    let (file, dir) = (scratch.inside("file"), scratch.inside("dir"));
    fs::write(&file, "text").unwrap();
    fs::create_dir(&dir).unwrap();
    set("+c", &file);
    assert_eq!(flags(&file), "c");
    // Many a chattr does not know the flag that forbids it.
    let open = fs::File::open(&file).unwrap();
    rustix::fs::ioctl_setflags(&open, NOT_COMPRESSED).unwrap();
    assert_eq!(rustix::fs::ioctl_getflags(&open).unwrap(), NOT_COMPRESSED);
    let both = rustix::fs::ioctl_setflags(&open, NOT_COMPRESSED | IFlags::COMPRESSED);
    assert_eq!(both, Err(rustix::io::Errno::INVAL), "both at once");
    drop(open);
    set("+dc", &dir);
    let text = "a line like any other\n".repeat(50_000);
    fs::write(dir.join("inner"), &text).unwrap();
    assert_eq!(flags(&dir.join("inner")), "c");
    scratch.umount();
    scratch.mount_with("nofuseblk,compress=none");
    assert_eq!(fs::read_to_string(dir.join("inner")).unwrap(), text);
    let live = scratch.info(&scratch.mount_point())["space"]["live_bytes"].as_u64().unwrap();
    assert!(live < 600_000, "{live} bytes are stored");
    fs::hard_link(dir.join("inner"), dir.join("other-name")).unwrap();
    let path = dir.to_str().unwrap();
    let usage = scratch.dendro(["usage", "--files", "--json", path]).succeeds().out;
    let usage: serde_json::Value = serde_json::from_str(&usage).unwrap();
    assert_eq!((&usage["file_count"], &usage["apparent_bytes"]), (&1.into(), &text.len().into()));
    assert_eq!(usage["plain_bytes"], text.len().next_multiple_of(4096));
    let stored = usage["stored_bytes"].as_u64().unwrap();
    assert!((10_000..live).contains(&stored), "{usage}");
    assert!(usage["ratio"].as_f64().unwrap() > 1.8, "{usage}");
    let said = scratch.dendro(["usage", "--files", path]).succeeds().out;
    assert!(said.contains("on the device") && said.contains(" to 1"), "{said}");
    let image = scratch.image();
    scratch.dendro(["usage", "--files", &image]).fails(1, &[&image, "is not in a mount"]);
    scratch.dendro(["snapshot", "create", &format!("{}@kept", scratch.mount_point())]).succeeds();
    let kept = scratch.inside(".dendro/snapshots/kept");
    let kept = kept.to_str().unwrap();
    for command in [["usage", "--files"], ["clean", "coalesce"]] {
        scratch.dendro([command[0], command[1], kept]).fails(1, &[kept, "is in a snapshot"]);
    }
    scratch.umount();
}

#[test]
fn nothing_of_an_immutable_file_changes() {
    let Some(scratch) = mounted() else { return };
    let file = scratch.inside("file");
    fs::write(&file, "text").unwrap();
    let open = OpenOptions::new().write(true).open(&file).unwrap();
    set("+i", &file);
    refused(open.write_at(b"x", 0));
    refused(fs::write(&file, "other"));
    refused(OpenOptions::new().append(true).open(&file).and_then(|mut file| file.write_all(b"x")));
    refused(open.set_len(0));
    refused(fs::remove_file(&file));
    refused(fs::rename(&file, scratch.inside("other")));
    refused(fs::hard_link(&file, scratch.inside("other")));
    refused(fs::set_permissions(&file, fs::Permissions::from_mode(0o600)));
    refused(chown(&file, Some(1), None));
    refused(open.set_modified(std::time::SystemTime::UNIX_EPOCH));
    fs::write(scratch.inside("new"), "new").unwrap();
    refused(fs::rename(scratch.inside("new"), &file));
    let xattr = rustix::fs::setxattr(&file, "user.a", b"", rustix::fs::XattrFlags::empty());
    assert_eq!(xattr, Err(rustix::io::Errno::PERM));
    assert_eq!(fs::read(&file).unwrap(), b"text");
    drop(open);
    // And of a directory: names.
    let dir = scratch.inside("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("inside"), "inside").unwrap();
    set("+i", &dir);
    refused(fs::write(dir.join("new"), ""));
    refused(fs::remove_file(dir.join("inside")));
    refused(fs::create_dir(dir.join("new")));
    refused(fs::remove_dir_all(&dir));
    fs::write(dir.join("inside"), "still a file").unwrap();
    for path in [&file, &dir] {
        set("-i", path);
    }
    fs::write(&file, "other").unwrap();
    fs::remove_dir_all(&dir).unwrap();
    scratch.umount();
}

#[test]
fn an_append_only_file_grows_and_does_nothing_else() {
    let Some(scratch) = mounted() else { return };
    let file = scratch.inside("log");
    fs::write(&file, "one\n").unwrap();
    set("+a", &file);
    let mut log = OpenOptions::new().append(true).open(&file).unwrap();
    log.write_all(b"two\n").unwrap();
    refused(OpenOptions::new().write(true).open(&file).and_then(|file| file.write_at(b"x", 0)));
    refused(log.set_len(1));
    refused(File::create(&file));
    refused(fs::remove_file(&file));
    refused(fs::rename(&file, scratch.inside("other")));
    log.write_all(b"three\n").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntwo\nthree\n");
    drop(log);
    // To a directory names may only come.
    let dir = scratch.inside("dir");
    fs::create_dir(&dir).unwrap();
    set("+a", &dir);
    fs::write(dir.join("new"), "new").unwrap();
    refused(fs::remove_file(dir.join("new")));
    refused(fs::rename(dir.join("new"), dir.join("other")));
    scratch.umount();
}

#[test]
fn a_file_with_noatime_keeps_its_access_time() {
    let Some(scratch) = mounted() else { return };
    for (how, changes) in [("+A", false), ("-A", true)] {
        let file = scratch.inside(how);
        fs::write(&file, "text").unwrap();
        set(how, &file);
        let before = fs::metadata(&file).unwrap().accessed().unwrap();
        scratch.umount();
        scratch.mount_with("nofuseblk,strictatime");
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::read(&file).unwrap();
        scratch.umount();
        scratch.mount_with("nofuseblk,strictatime");
        assert_eq!(fs::metadata(&file).unwrap().accessed().unwrap() > before, changes, "{how}");
    }
    scratch.umount();
}

#[test]
fn who_may_set_which_flags() {
    let Some(scratch) = mounted() else { return };
    let file = scratch.inside("file");
    fs::write(&file, "text").unwrap();
    chown(&file, Some(1234), Some(1234)).unwrap();
    fs::set_permissions(scratch.inside(""), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let by = |user: &str, capabilities: &str, how: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--clear-groups", "--inh-caps", capabilities]);
        command.args(["--ambient-caps", capabilities, "chattr", how]).arg(&file);
        let output = command.output().unwrap();
        eprintln!("{user} {capabilities} {how}: {}", String::from_utf8_lossy(&output.stderr));
        output.status.success()
    };
    assert!(by("1234", "-all", "+dA"), "an owner's");
    assert!(!by("1234", "-all", "+i") && !by("1234", "-all", "+a"), "root's");
    assert!(!by("1235", "-all", "-d"), "another user's");
    assert_eq!(flags(&file), "dA");
    assert!(by("1234", "+linux_immutable", "+i"), "of whoever has the capability");
    assert!(!by("1234", "-all", "-i") && !by("1234", "-all", "-d"));
    assert_eq!(flags(&file), "idA");
    // Root without it may not either.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-linux_immutable", "chattr", "-i"]).arg(&file);
    assert!(!command.output().unwrap().status.success());
    set("-i", &file);
    scratch.umount();
}
