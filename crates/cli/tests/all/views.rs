//! Several views of one volume, mounted at once by one daemon.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use crate::common::{Said, Scratch, is_running, mounts, signal, skips_mounts, wait_until};

/// Mounts the volume once more, at a directory of its own.
fn mount_at(scratch: &Scratch, name: &str, options: &str) -> Said {
    fs::create_dir_all(scratch.path(name)).unwrap();
    let (image, place, log) = (scratch.image(), scratch.text(name), scratch.text("log"));
    scratch.dendro(["mount", "--log-file", &log, "-o", options, &image, &place])
}

fn umount(scratch: &Scratch, name: &str) {
    scratch.dendro(["umount", &scratch.text(name)]).succeeds();
}

fn read(scratch: &Scratch, path: &str) -> String {
    fs::read_to_string(scratch.path(path)).unwrap()
}

/// A mounted volume with a file, a snapshot of it, and another content since.
fn with_a_past() -> Scratch {
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::write(scratch.inside("file"), "before").unwrap();
    let mount = scratch.mount_point();
    scratch.dendro(["snapshot", "create", &format!("{mount}@one")]).succeeds();
    fs::write(scratch.inside("file"), "after").unwrap();
    scratch
}

#[test]
fn one_daemon_serves_heads_clones_and_the_past_at_once() {
    if skips_mounts() {
        return;
    }
    let scratch = with_a_past();
    let (image, mount) = (scratch.image(), scratch.mount_point());
    let pid = scratch.daemon_pid();
    scratch.dendro(["clone", &format!("{mount}@one"), "b"]).succeeds();
    mount_at(&scratch, "past", "snapshot=one").succeeds();
    mount_at(&scratch, "again", "snapshot=one").succeeds();
    mount_at(&scratch, "clone", "clone=b,noatime").succeeds();
    fs::write(scratch.path("clone/file"), "of the clone").unwrap();
    assert_eq!(read(&scratch, "past/file"), "before");
    assert_eq!(read(&scratch, "again/file"), "before");
    assert_eq!(read(&scratch, "clone/file"), "of the clone");
    assert_eq!(read(&scratch, "mnt/file"), "after");
    let refused = fs::write(scratch.path("past/file"), "x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    for place in ["past", "again", "clone", "mnt"] {
        let info = scratch.info(&scratch.text(place));
        assert_eq!(info["mount"]["pid"], pid);
        assert_eq!(info["mount"]["mount_point"], scratch.text(place));
        assert_eq!(info["mount"]["views"].as_array().unwrap().len(), 4);
    }
    let text = scratch.dendro(["info", &image]).succeeds().out;
    assert!(text.contains(&format!(":b on {}", scratch.text("clone"))), "{text}");
    assert!(text.contains(&format!("@one on {} since", scratch.text("past"))), "{text}");
    // Names without a branch refer to the mount that is named, or else to the main branch.
    scratch.dendro(["snapshot", "create", &format!("{}@of-b", scratch.text("clone"))]).succeeds();
    scratch.dendro(["snapshot", "create", &format!("{image}@of-main")]).succeeds();
    let list = scratch.dendro(["snapshot", "list", &image]).succeeds().out;
    let branch_of = |name: &str| {
        let line = list.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        line.split_whitespace().nth(4).unwrap().to_owned()
    };
    assert_eq!((branch_of("@of-b"), branch_of("@of-main")), ("b".into(), "main".into()));
    // Each goes by itself, the first one too, and is written by then.
    umount(&scratch, "mnt");
    umount(&scratch, "past");
    fs::write(scratch.path("clone/more"), "more").unwrap();
    umount(&scratch, "clone");
    assert!(is_running(pid));
    scratch.mount();
    assert_eq!(scratch.daemon_pid(), pid);
    assert_eq!(read(&scratch, "mnt/file"), "after");
    scratch.umount();
    mount_at(&scratch, "clone", "clone=b").succeeds();
    assert_eq!(read(&scratch, "clone/more"), "more");
    umount(&scratch, "clone");
    umount(&scratch, "again");
    assert!(!is_running(pid));
    assert_eq!(scratch.info(&image)["checkpoint"]["clean"], true);
}

#[test]
fn what_is_mounted_is_neither_deleted_nor_mounted_for_writing_again() {
    if skips_mounts() {
        return;
    }
    let scratch = with_a_past();
    let (image, mount) = (scratch.image(), scratch.mount_point());
    scratch.dendro(["clone", &mount, "b"]).succeeds();
    mount_at(&scratch, "past", "snapshot=one").succeeds();
    mount_at(&scratch, "clone", "clone=b").succeeds();
    let (past, clone) = (scratch.text("past"), scratch.text("clone"));
    let delete = |what: &str| scratch.dendro(["snapshot", "delete", &format!("{image}{what}")]);
    delete("@one").fails(1, &["is mounted on", &past]);
    delete(":b").fails(1, &["is mounted on", &clone]);
    mount_at(&scratch, "more", "clone=b").fails(32, &[":b is mounted already", &clone]);
    mount_at(&scratch, "more", "clone=b,ro").fails(32, &[":b is mounted already", &clone]);
    mount_at(&scratch, "more", "clone=c").fails(32, &["no branch called c"]);
    mount_at(&scratch, "more", "snapshot=c").fails(32, &["no snapshot called c"]);
    mount_at(&scratch, "more", "at=2200-01-01").fails(32, &["in the future"]);
    mount_at(&scratch, "more", "at=2000-01-01").fails(32, &["nothing was kept"]);
    let foreground = ["mount", "-f", "-o", "snapshot=one", &image, &scratch.text("more")];
    scratch.dendro(foreground).fails(32, &["leave -f out"]);
    assert!(!mounts().contains(&scratch.text("more")), "nothing was left");
    let noted = mount_at(&scratch, "more", "snapshot=one,cache=9M,commit=1").succeeds();
    assert!(noted.err.contains("commit= cache= hold for the whole volume"), "{noted:?}");
    umount(&scratch, "past");
    delete("@one").fails(1, &["is mounted on", &scratch.text("more")]);
    umount(&scratch, "more");
    delete("@one").succeeds();
    umount(&scratch, "clone");
    delete(":b").succeeds();
    scratch.umount();
}

#[test]
fn a_volume_that_is_read_only_serves_nothing_else() {
    if skips_mounts() {
        return;
    }
    let scratch = with_a_past();
    let image = scratch.image();
    scratch.dendro(["clone", &image, "b"]).succeeds();
    scratch.umount();
    scratch.mount_with("ro");
    mount_at(&scratch, "clone", "clone=b").fails(32, &["open for reading alone", "-o ro"]);
    scratch.dendro(["clone", &image, "c"]).fails(1, &["read-only"]);
    mount_at(&scratch, "clone", "clone=b,ro").succeeds();
    mount_at(&scratch, "again", "ro").succeeds();
    assert_eq!(read(&scratch, "again/file"), "after");
    umount(&scratch, "again");
    umount(&scratch, "clone");
    scratch.umount();
    // A view of the past is read-only, but the volume is not.
    mount_at(&scratch, "past", "snapshot=one").succeeds();
    scratch.mount();
    fs::write(scratch.inside("file"), "again").unwrap();
    assert_eq!(read(&scratch, "past/file"), "before");
    umount(&scratch, "past");
    scratch.umount();
}

#[test]
fn a_signal_to_the_daemon_unmounts_all() {
    if skips_mounts() {
        return;
    }
    let scratch = with_a_past();
    mount_at(&scratch, "past", "snapshot=one").succeeds();
    let pid = scratch.daemon_pid();
    let _open = File::open(scratch.path("past/file")).unwrap();
    signal(pid, "TERM");
    wait_until("the daemon ends", || !is_running(pid));
    for place in ["mnt", "past"] {
        assert!(!mounts().contains(&scratch.text(place)), "{place}");
        assert!(Path::new(&scratch.path(place)).read_dir().unwrap().next().is_none());
    }
    assert_eq!(scratch.info(&scratch.image())["checkpoint"]["clean"], true);
}

#[test]
fn more_views_are_served_than_descriptors_are_allowed_at_first() {
    if skips_mounts() {
        return;
    }
    let scratch = with_a_past();
    scratch.umount();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -Sn 40 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_dendro")]);
    command.args(["mount", "--log-file", &scratch.text("log")]);
    command.args([scratch.image(), scratch.mount_point()]);
    scratch.prepare(&mut command);
    assert!(command.status().unwrap().success());
    for number in 0..12 {
        mount_at(&scratch, &format!("m{number}"), "snapshot=one").succeeds();
    }
    for number in 0..12 {
        assert_eq!(read(&scratch, &format!("m{number}/file")), "before");
        umount(&scratch, &format!("m{number}"));
    }
    scratch.umount();
}

#[test]
fn mounts_that_begin_at_the_same_time_find_one_daemon() {
    if skips_mounts() {
        return;
    }
    let scratch = with_a_past();
    scratch.umount();
    let children: Vec<_> = (0..4)
        .map(|number| {
            let place = scratch.text(&format!("m{number}"));
            fs::create_dir(&place).unwrap();
            let (image, log) = (scratch.image(), scratch.text("log"));
            let mount = ["mount", "--log-file", &log, "-o", "snapshot=one", &image, &place];
            scratch.command(mount).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    for number in 0..4 {
        assert_eq!(read(&scratch, &format!("m{number}/file")), "before");
        umount(&scratch, &format!("m{number}"));
    }
}

#[test]
fn a_head_that_is_put_back_or_replaced_is_shown_by_its_mount_at_once() {
    if skips_mounts() {
        return;
    }
    let scratch = with_a_past();
    let (image, mount) = (scratch.image(), scratch.mount_point());
    fs::create_dir_all(scratch.inside("dir/deep")).unwrap();
    fs::write(scratch.inside("dir/deep/kept"), "kept").unwrap();
    scratch.dendro(["clone", &mount, "b"]).succeeds();
    mount_at(&scratch, "clone", "clone=b").succeeds();
    fs::write(scratch.path("clone/file"), "of the clone, and longer").unwrap();
    fs::write(scratch.path("clone/dir/deep/new"), "new").unwrap();
    fs::rename(scratch.path("clone/dir/deep/kept"), scratch.path("clone/dir/moved")).unwrap();
    // A process that works in a directory stays there.
    let script = "cd dir/deep && read line && cat new && pwd -P";
    let mut shell = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(&mount)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // What the kernel believes now is wrong then.
    assert_eq!(read(&scratch, "mnt/file"), "after");
    assert!(!scratch.inside("dir/deep/new").exists() && !scratch.inside("dir/moved").exists());
    assert_eq!(read(&scratch, "mnt/dir/deep/kept"), "kept");
    let promote = ["promote", &format!("{image}:b")];
    scratch.dendro(promote).fails(1, &["is mounted on", &scratch.text("clone")]);
    umount(&scratch, "clone");
    let open = File::open(scratch.inside("file")).unwrap();
    scratch.dendro(promote).fails(1, &["files are open", "/mnt/file"]);
    drop(open);
    scratch.dendro(promote).succeeds();
    assert_eq!(read(&scratch, "mnt/file"), "of the clone, and longer");
    assert_eq!(read(&scratch, "mnt/dir/deep/new"), "new");
    assert_eq!(read(&scratch, "mnt/dir/moved"), "kept");
    assert!(!scratch.inside("dir/deep/kept").exists());
    std::io::Write::write_all(&mut shell.stdin.take().unwrap(), b"go\n").unwrap();
    let said = shell.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), format!("new{mount}/dir/deep\n"));
    let view = &scratch.info(&mount)["mount"]["views"][0];
    assert_eq!((&view["version"], &view["main"]), (&":main".into(), &true.into()));
    // Files that were removed and made since are numbered on, and what is written stays.
    for round in 0..20 {
        fs::write(scratch.inside(&format!("dir/file{round}")), format!("{round}")).unwrap();
        fs::remove_file(scratch.inside(&format!("dir/file{}", round / 2))).ok();
    }
    scratch.dendro(["rollback", &format!("{mount}@one")]).succeeds();
    assert_eq!(read(&scratch, "mnt/file"), "before");
    assert_eq!(fs::read_dir(&mount).unwrap().count(), 1);
    scratch.dendro(["rollback", &format!("{mount}:b@one")]).succeeds();
    fs::write(scratch.inside("file"), "last").unwrap();
    scratch.umount();
    scratch.mount();
    assert_eq!(read(&scratch, "mnt/file"), "last");
    scratch.umount();
}
