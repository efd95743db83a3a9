//! Mounts by the real binary: what is written stays, what is wrong is said, what ends ends well.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::common::{Scratch, is_root, is_running, mounts, said, signal, skips_mounts};

/// Bytes that differ from each other and from those of another seed.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(len)
    .collect()
}

#[test]
fn what_is_written_is_there_after_unmounting_and_mounting_again() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let large = bytes(1, 9_000_001);
    fs::create_dir_all(scratch.inside("a/b/c")).unwrap();
    fs::write(scratch.inside("a/b/large"), &large).unwrap();
    for index in 0..500 {
        fs::write(scratch.inside(&format!("a/small-{index}")), bytes(index, 700)).unwrap();
    }
    symlink("b/large", scratch.inside("a/link")).unwrap();
    for _ in 0..2 {
        scratch.umount();
        assert!(!scratch.is_mounted());
        assert_eq!(fs::read_dir(scratch.path("mnt")).unwrap().count(), 0);
        scratch.mount();
        assert!(fs::read(scratch.inside("a/link")).unwrap() == large);
        for index in 0..500 {
            let small = fs::read(scratch.inside(&format!("a/small-{index}"))).unwrap();
            assert!(small == bytes(index, 700));
        }
        assert_eq!(fs::read_dir(scratch.inside("a")).unwrap().count(), 502);
    }
    scratch.umount();
    assert_eq!(scratch.info(&scratch.image())["checkpoint"]["clean"], true);
}

#[test]
fn what_cannot_be_mounted_is_said_with_the_exit_codes_of_mount_8() {
    let scratch = Scratch::with_volume();
    let (image, mount_point) = (scratch.image(), scratch.mount_point());
    let missing = scratch.text("missing");
    scratch
        .dendro(["mount", &missing, &mount_point])
        .fails(32, &[&missing, "No such file", "mkfs"]);
    scratch.dendro(["mount", &image, &missing]).fails(32, &["mount point", &missing]);
    scratch
        .dendro(["mount", "-o", "bogus", &image, &mount_point])
        .fails(1, &["\"bogus\"", "commit="]);
    scratch.dendro(["mount", "-o", "commit=0", &image, &mount_point]).fails(1, &["commit="]);
    scratch.dendro(["mount", &image]).fails(1, &["DIRECTORY"]);
    let text = scratch.text("text");
    fs::write(&text, "no file system\n".repeat(10_000)).unwrap();
    scratch.dendro(["mount", &text, &mount_point]).fails(32, &[&text, "not a dendrofs volume"]);
    if !skips_mounts() {
        scratch.dendro(["mount", &image, &image]).fails(32, &[&image]);
    }
    assert!(!scratch.is_mounted());
    // None of it has done the volume any harm.
    assert_eq!(scratch.info(&image)["checkpoint"]["clean"], true);
}

#[test]
fn a_head_is_mounted_once() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::write(scratch.inside("file"), "x").unwrap();
    let second = scratch.text("second");
    fs::create_dir(&second).unwrap();
    let (image, mount_point) = (scratch.image(), scratch.mount_point());
    scratch
        .dendro(["mount", &image, &second])
        .fails(32, &[&image, ":main is mounted already", &mount_point, "--bind"]);
    scratch.dendro(["mkfs", "-f", &image]).fails(1, &[&image, "in use"]);
    // By another name too, and without waiting for the lock.
    let linked = scratch.text("linked");
    fs::hard_link(&image, &linked).unwrap();
    scratch.dendro(["mount", &linked, &second]).fails(32, &["mounted already", &mount_point]);
    scratch.dendro(["info", &linked]).succeeds();
    // Also for those who cannot see the daemon.
    let mut blind = scratch.command(["mount", &image, &second]);
    blind.env("DENDRO_RUNTIME_DIR", scratch.path("elsewhere"));
    if let Ok(child) = blind.env("DENDRO_TEST", "1").spawn() {
        // It waits for the lock, as for a daemon that is about to end, so it is not waited for.
        thread::sleep(Duration::from_millis(500));
        assert_eq!(fs::read_dir(&second).unwrap().count(), 0);
        signal(child.id(), "TERM");
    }
    assert_eq!(fs::read_to_string(scratch.inside("file")).unwrap(), "x");
    scratch.umount();
    // What was given up is not done later.
    thread::sleep(Duration::from_millis(700));
    assert!(!mounts().contains(&second));
}

#[test]
fn a_full_volume_says_so_and_works_again_once_files_are_removed() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    scratch.mkfs("48M");
    scratch.mount();
    fs::write(scratch.inside("kept"), bytes(7, 100_000)).unwrap();
    let mut count = 0;
    let error = loop {
        match fs::write(scratch.inside(&format!("filler-{count}")), bytes(count, 500_000)) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 200, "48 MiB do not hold 100 MB");
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(count > 20, "only {count} files of 500 kB in 48 MiB");
    for index in 0..count {
        let filler = fs::read(scratch.inside(&format!("filler-{index}"))).unwrap();
        assert!(filler == bytes(index, 500_000));
    }
    // To the last byte. Then an access time, which does not fit either, keeps fsync from nothing.
    let mut number = 0;
    for length in [4096, 100, 0] {
        while fs::write(scratch.inside(&format!("small-{number}")), vec![1; length]).is_ok() {
            number += 1;
        }
    }
    fs::read(scratch.inside("kept")).unwrap();
    fs::File::open(scratch.inside("kept")).unwrap().sync_all().unwrap();
    fs::File::open(scratch.mount_point()).unwrap().sync_all().unwrap();
    for index in 0..=count {
        let removed = fs::remove_file(scratch.inside(&format!("filler-{index}")));
        assert!(removed.is_ok() || index == count);
    }
    // The kernel tells later that nothing uses a removed file any more. Writers wait for that.
    for _ in 0..10 {
        fs::write(scratch.inside("again"), bytes(8, 10_000_000)).unwrap();
        fs::remove_file(scratch.inside("again")).unwrap();
    }
    fs::write(scratch.inside("again"), bytes(9, 5_000_000)).unwrap();
    assert!(fs::read(scratch.inside("kept")).unwrap() == bytes(7, 100_000));
    scratch.umount();
    scratch.mount();
    assert!(fs::read(scratch.inside("again")).unwrap() == bytes(9, 5_000_000));
    scratch.umount();
}

#[test]
fn what_a_removed_file_held_can_be_allocated_at_once() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    scratch.mkfs("256M");
    scratch.mount();
    // More than half of what there is, so that it fits once alone. What the map holds of a file of
    // so many pages is taken out in the background.
    let length = 160 << 20;
    for _ in 0..5 {
        let file = File::create(scratch.inside("large")).unwrap();
        // The kernel tells without waiting for an answer that it has closed and forgotten a file.
        // Until that has come, a file without a name is there still, and who lacks space waits.
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length).unwrap();
        drop(file);
        fs::remove_file(scratch.inside("large")).unwrap();
    }
    scratch.umount();
}

#[test]
fn an_allocation_that_does_not_fit_is_refused_before_any_of_it_is_done() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    scratch.mkfs("256M");
    scratch.mount();
    let free = || {
        let stat = rustix::fs::statvfs(scratch.mount_point()).unwrap();
        stat.f_bavail * stat.f_frsize
    };
    // What the map takes for it comes on top.
    let all = free();
    let mut file = File::options().create(true).append(true).open(scratch.inside("all")).unwrap();
    let refused = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, all);
    assert_eq!(refused, Err(Errno::NOSPC));
    assert!(free() > all - (1 << 20), "a part of it was done: {} of {all} are free", free());
    file.write_all(b"at the start").unwrap();
    drop(file);
    scratch.umount();
    scratch.mount();
    assert_eq!(fs::read(scratch.inside("all")).unwrap(), b"at the start");
    let mut file = File::options().append(true).open(scratch.inside("all")).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, all - all / 100).unwrap();
    file.write_all(b"at the end").unwrap();
    assert_eq!(file.metadata().unwrap().len(), all - all / 100 + 10);
    drop(file);
    scratch.umount();
}

#[test]
fn mount_8_and_umount_8_work() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    // mount(8) looks for helpers in /sbin alone; in a mount namespace of its own, the test puts
    // one there.
    let script = r#"
        set -e
        mkdir real farm
        mount --bind /usr/sbin real
        for file in real/*; do ln -s "$PWD/$file" farm/; done
        ln -sf "$DENDRO" farm/mount.fuse.dendro
        ln -sf "$DENDRO" farm/umount.fuse.dendro
        mount --bind farm /usr/sbin
        mount -t fuse.dendro "$PWD/image" "$PWD/mnt" -o noatime,nodev,x-test=1
        grep " $PWD/mnt fuse.dendro " /proc/mounts
        echo content > mnt/file
        umount mnt
        mount -t fuse.dendro -o ro "$PWD/image" "$PWD/mnt"
        cat mnt/file
        if echo x > mnt/file; then exit 9; fi
        umount mnt
        # umount(8) has waited for the daemon: what the log says is all in a checkpoint.
        "$DENDRO" info "$PWD/image" | grep -q "shut down cleanly"
        if mount -t fuse.dendro -o bogus "$PWD/image" "$PWD/mnt"; then exit 10; fi
        echo "$PWD/image $PWD/mnt fuse.dendro noauto,commit=7 0 0" > table
        mount -T table "$PWD/mnt"
        cat mnt/file
        umount mnt
        test -e /dev/loop-control || exit 0
        # As a block device: umount(2) waits by itself, and remounting goes through the helper.
        ln -sf "$DENDRO" farm/mount.dendro
        ln -sf "$DENDRO" farm/mount.fuseblk.dendro
        mount -t dendro "$PWD/image" "$PWD/mnt"
        grep " $PWD/mnt fuseblk.dendro " /proc/mounts
        mount -o remount,ro "$PWD/mnt"
        if echo x > mnt/file; then exit 11; fi
        mount -o remount,rw "$PWD/mnt"
        echo changed > mnt/file
        umount -i mnt
        "$DENDRO" info "$PWD/image" | grep "shut down cleanly"
    "#;
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120", "unshare", "--mount", "sh", "-c", script]);
    command.current_dir(scratch.path("")).env("DENDRO", env!("CARGO_BIN_EXE_dendro"));
    scratch.prepare(&mut command);
    let said = said(command.output().unwrap()).succeeds();
    assert!(said.out.contains("nodev") && said.out.contains("noatime"), "{said:?}");
    assert!(said.out.contains("content\ncontent\n"), "{said:?}");
    assert!(said.err.contains("\"bogus\""), "{said:?}");
}

#[test]
fn names_are_durable_at_once_where_that_is_asked_for() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    for option in ["sync", "dirsync"] {
        // Nothing becomes durable by time alone.
        scratch.mount_with(&format!("commit=3600,{option}"));
        let inside = |name: &str| scratch.inside(&format!("{option}-{name}"));
        fs::create_dir(inside("directory")).unwrap();
        File::create(inside("file")).unwrap();
        fs::rename(inside("file"), inside("renamed")).unwrap();
        std::os::unix::fs::symlink("x", inside("link")).unwrap();
        scratch.kill_daemon();
        scratch.mount();
        assert!(inside("directory").is_dir() && inside("renamed").is_file(), "{option}");
        assert!(inside("link").is_symlink(), "{option}");
        scratch.umount();
    }
}

#[test]
fn sigterm_and_ctrl_c_end_it_cleanly_even_when_files_are_open() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    for name in ["INT", "TERM"] {
        let mut daemon = scratch.mount_in_foreground();
        let mut file = File::create(scratch.inside(name)).unwrap();
        file.write_all(b"accepted").unwrap();
        signal(daemon.id(), name);
        let status = daemon.wait().unwrap();
        assert!(status.success(), "{status}");
        assert!(!scratch.is_mounted());
        assert!(file.write_all(b"too late").is_err());
        assert_eq!(scratch.info(&scratch.image())["checkpoint"]["clean"], true);
    }
    scratch.mount();
    for name in ["INT", "TERM"] {
        assert_eq!(fs::read_to_string(scratch.inside(name)).unwrap(), "accepted");
    }
    scratch.umount();
}

#[test]
fn a_killed_daemon_loses_nothing_that_was_synced_and_its_mount_is_replaced() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    // Nothing becomes durable by time alone.
    let options = "commit=3600";
    scratch.mount_with(options);
    for (round, name) in ["fsync", "directory", "command"].into_iter().enumerate() {
        let round = round as u64;
        for index in 0..50 {
            fs::write(scratch.inside(&format!("{name}-{index}")), bytes(round, 3000)).unwrap();
        }
        match name {
            "fsync" => {
                let mut file = File::create(scratch.inside("last")).unwrap();
                file.write_all(b"x").unwrap();
                file.sync_all().unwrap();
            }
            "directory" => File::open(scratch.path("mnt")).unwrap().sync_all().unwrap(),
            _ => {
                scratch.dendro(["sync", scratch.inside("command-0").to_str().unwrap()]).succeeds();
            }
        }
        scratch.kill_daemon();
        let mount_point = scratch.mount_point();
        scratch.dendro(["info", &mount_point]).fails(1, &[&mount_point, "gone", "umount"]);
        if name != "fsync" {
            scratch.dendro(["umount", &mount_point]).succeeds();
            assert!(!scratch.is_mounted());
            assert_eq!(scratch.info(&scratch.image())["checkpoint"]["clean"], false);
        }
        scratch.mount_with(options);
        for index in 0..50 {
            let file = fs::read(scratch.inside(&format!("{name}-{index}"))).unwrap();
            assert!(file == bytes(round, 3000), "{name}-{index}");
        }
    }
    scratch.umount();
}

#[test]
fn the_commit_interval_makes_things_durable_without_fsync() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount_with("commit=1");
    fs::write(scratch.inside("file"), "written, not synced").unwrap();
    thread::sleep(Duration::from_millis(3000));
    scratch.kill_daemon();
    scratch.mount();
    assert_eq!(fs::read_to_string(scratch.inside("file")).unwrap(), "written, not synced");
    scratch.umount();
}

#[test]
fn umount_waits_for_the_daemon_and_refuses_what_is_busy() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let (image, mount_point) = (scratch.image(), scratch.mount_point());
    scratch.mount();
    let pid = scratch.daemon_pid();
    let file = File::create(scratch.inside("file")).unwrap();
    let own = format!("{mount_point}/file by process {} (", std::process::id());
    scratch.dendro(["umount", &mount_point]).fails(32, &["is busy: in use are ", &own]);
    assert!(scratch.is_mounted());
    drop(file);
    // Who works in a directory keeps it busy too, without a file.
    fs::create_dir(scratch.inside("directory")).unwrap();
    let mut sleeper = Command::new("sleep");
    let mut sleeper = sleeper.arg("60").current_dir(scratch.inside("directory")).spawn().unwrap();
    let its = format!("{mount_point}/directory by process {} (sleep", sleeper.id());
    scratch.dendro(["umount", &mount_point]).fails(32, &["is busy: in use are ", &its]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    // By the image's name too.
    scratch.dendro(["umount", &image]).succeeds();
    assert!(!is_running(pid));
    scratch.dendro(["umount", &mount_point]).fails(32, &[&mount_point, "is not mounted"]);

    scratch.mount();
    let mut file = File::create(scratch.inside("lazy")).unwrap();
    scratch.dendro(["umount", "--lazy", &mount_point]).succeeds();
    assert!(!scratch.is_mounted());
    file.write_all(b"late").unwrap();
    drop(file);
    scratch.mount();
    assert_eq!(fs::read_to_string(scratch.inside("lazy")).unwrap(), "late");
    scratch.umount();
}

#[test]
fn umount_says_so_if_the_last_of_what_was_written_is_lost() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let host = scratch.text("host");
    fs::create_dir(&host).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        assert!(Command::new(program).args(arguments).status().unwrap().success());
    };
    run("mount", &["-t", "tmpfs", "-o", "size=16m", "none", &host]);
    let image = format!("{host}/image");
    scratch.dendro(["mkfs", "-q", "--segment-size", "1M", "--size", "64M", &image]).succeeds();
    let mount_point = scratch.mount_point();
    let options = |more: &str| format!("nofuseblk,commit=3600{more}");
    let mount = |more: &str| scratch.dendro(["mount", "-o", &options(more), &image, &mount_point]);
    mount("").succeeds();
    fs::write(scratch.inside("kept"), "kept").unwrap();
    scratch.dendro(["sync", &mount_point]).succeeds();
    // Accepted while the host has room for it, which it then has not.
    fs::write(scratch.inside("lost"), bytes(1, 1 << 20)).unwrap();
    let _ = fs::write(format!("{host}/filler"), bytes(2, 16 << 20));
    scratch.dendro(["umount", &mount_point]).fails(32, &[&image, "lost", "is full"]);
    assert!(!scratch.is_mounted());

    mount("").fails(32, &[&image, "is full", "-o ro"]);
    mount(",ro").succeeds();
    assert_eq!(fs::read_to_string(scratch.inside("kept")).unwrap(), "kept");
    scratch.dendro(["umount", &mount_point]).succeeds();
    run("mount", &["-o", "remount,size=64m", &host]);
    scratch.dendro(["mount", "-o", "nofuseblk", &image, &mount_point]).succeeds();
    assert_eq!(fs::read_to_string(scratch.inside("kept")).unwrap(), "kept");
    scratch.dendro(["umount", &mount_point]).succeeds();
    run("umount", &[&host]);
}

#[test]
fn info_and_stat_reach_the_daemon_from_anywhere() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let (image, mount_point) = (scratch.image(), scratch.mount_point());
    let offline = scratch.info(&image);
    scratch.mount();
    fs::create_dir(scratch.inside("dir")).unwrap();
    fs::write(scratch.inside("dir/file"), bytes(1, 1_000_000)).unwrap();
    let inside = scratch.inside("dir/file").to_str().unwrap().to_owned();
    for target in [&image, &mount_point, &inside] {
        let info = scratch.info(target);
        assert_eq!(info["uuid"], offline["uuid"]);
        assert_eq!(info["mount"]["mount_point"], *mount_point);
        assert!(info["mount"]["read_only"].is_null());
    }
    let stat = scratch.dendro(["stat", "--json", &inside]).succeeds();
    assert!(serde_json::from_str::<serde_json::Value>(&stat.out).unwrap().is_object());
    let text = scratch.dendro(["info", &mount_point]).succeeds().out;
    assert!(text.contains(&mount_point), "{text}");
    let here = said(scratch.command(["info"]).current_dir(scratch.inside("dir")).output().unwrap());
    assert!(here.succeeds().out.contains(&mount_point));
    scratch.umount();
}

#[test]
fn mount_options_take_effect() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::write(scratch.inside("file"), "x").unwrap();
    scratch.umount();
    scratch.mount_with("ro,noexec,fsname=my volume");
    let error = fs::write(scratch.inside("file"), "y").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    let table = mounts();
    let line = table.lines().find(|line| line.contains(&scratch.mount_point())).unwrap();
    assert!(line.starts_with("my\\040volume ") && line.contains("noexec"), "{line}");
    assert_eq!(
        scratch.info(&scratch.mount_point())["mount"]["mount_point"],
        *scratch.mount_point()
    );
    scratch.umount();
    scratch.mount_with("buffered,cache=8M,checkpoint=4M,threads=1,strictatime,nosuid,nodev");
    fs::write(scratch.inside("file"), "z").unwrap();
    scratch.umount();
}

#[test]
fn an_image_shrinks_unless_its_blocks_are_to_be_kept() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let blocks_bytes = || fs::metadata(scratch.image()).unwrap().blocks() * 512;
    let write_and_remove = |options: &str| {
        scratch.mount_with(options);
        fs::write(scratch.inside("large"), bytes(1, 40 << 20)).unwrap();
        fs::remove_file(scratch.inside("large")).unwrap();
        scratch.umount();
        blocks_bytes()
    };
    assert!(write_and_remove("nodiscard") > 40 << 20);
    assert!(write_and_remove("discard") < 20 << 20);
    assert!(write_and_remove("discard=online") < 20 << 20);
    assert!(write_and_remove("nodiscard") > 40 << 20);
    let image = scratch.image();
    scratch.dendro(["mkfs", "--force", "--nodiscard", &image]).succeeds();
    assert!(blocks_bytes() > 40 << 20);
    scratch.dendro(["mkfs", "--force", &image]).succeeds();
    assert!(blocks_bytes() < 20 << 20);
}

#[test]
fn copies_of_a_volume_are_told_apart() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let (copy, second) = (scratch.text("copy"), scratch.text("second"));
    fs::copy(scratch.path("image"), &copy).unwrap();
    fs::create_dir(&second).unwrap();
    scratch.mount();
    scratch.dendro(["mount", &copy, &second]).succeeds();
    let at = |target: &str| scratch.info(target)["mount"]["mount_point"].clone();
    assert_eq!(at(&copy), *second);
    assert_eq!(at(&scratch.image()), *scratch.mount_point());
    scratch.dendro(["umount", &second]).succeeds();
    scratch.umount();
    assert_eq!(fs::read_dir(scratch.path("run")).unwrap().count(), 0);
}

#[test]
fn unmounting_and_mounting_in_turn_needs_no_pause() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    for round in 0..5 {
        scratch.mount();
        fs::write(scratch.inside("file"), format!("{round}")).unwrap();
        // umount(8) does not wait for the daemon; the next mount does.
        let status = Command::new("umount").arg(scratch.mount_point()).status().unwrap();
        assert!(status.success());
    }
    scratch.mount();
    assert_eq!(fs::read_to_string(scratch.inside("file")).unwrap(), "4");
    scratch.umount();
}

#[test]
fn the_daemon_holds_no_directory_and_no_terminal() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let pid = scratch.daemon_pid();
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
    assert_eq!(link("cwd"), Path::new("/"));
    for descriptor in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(link(descriptor), Path::new("/dev/null"));
    }
    scratch.umount();
}

#[test]
fn fstrim_gives_back_what_is_free_and_what_is_not_stays() {
    if skips_mounts() || !is_root() || Command::new("fstrim").arg("--version").output().is_err() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount_with("nodiscard,allow_other");
    let kept = bytes(2, 3 << 20);
    fs::write(scratch.inside("large"), bytes(1, 40 << 20)).unwrap();
    fs::write(scratch.inside("kept"), &kept).unwrap();
    File::open(scratch.inside("kept")).unwrap().sync_all().unwrap();
    fs::remove_file(scratch.inside("large")).unwrap();
    let blocks_bytes = || fs::metadata(scratch.image()).unwrap().blocks() * 512;
    assert!(blocks_bytes() > 40 << 20);
    let trim = |program: &mut Command| program.arg(scratch.mount_point()).output().unwrap();
    let output = trim(Command::new("setpriv").args(["--reuid=4711", "--clear-groups", "fstrim"]));
    assert!(!output.status.success() && blocks_bytes() > 40 << 20);
    let output = trim(Command::new("fstrim").arg("-v"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("bytes) trimmed"), "{output:?}");
    assert!(blocks_bytes() < 20 << 20, "{}", blocks_bytes());
    assert!(fs::read(scratch.inside("kept")).unwrap() == kept);
    scratch.umount();
    scratch.mount();
    assert!(fs::read(scratch.inside("kept")).unwrap() == kept);
    scratch.umount();
}
