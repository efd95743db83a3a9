//! Options of what is mounted already.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use crate::common::{Scratch, is_root, mounts, skips_mounts, wait_until};

/// The options in force, as `info` tells them.
fn in_force(scratch: &Scratch) -> Vec<String> {
    let info = scratch.info(&scratch.mount_point());
    let options = info["mount"]["views"][0]["options"].as_array().unwrap().clone();
    options.iter().map(|option| option.as_str().unwrap().to_owned()).collect()
}

fn snapshot_count(scratch: &Scratch) -> usize {
    let list = scratch.dendro(["snapshot", "list", &scratch.mount_point()]).succeeds().out;
    list.lines().count() - 2
}

#[test]
fn what_can_be_changed_while_it_is_mounted_takes_effect_and_the_rest_is_refused() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount_with("commit=3600,cache=8M");
    let mount = scratch.mount_point();
    let before = in_force(&scratch);
    for option in ["rw", "commit=3600", "cache=8M", "checkpoint=128M", "reserve=4", "coalesce=on"] {
        assert!(before.iter().any(|other| other == option), "no {option} in {before:?}");
    }
    let durable = |scratch: &Scratch| {
        let info = scratch.info(&scratch.mount_point());
        let checkpoint = &info["checkpoint"];
        checkpoint["last_commit"] == checkpoint["durable_commit"]
    };
    fs::write(scratch.inside("file"), "x").unwrap();
    assert!(!durable(&scratch));
    // All of it or nothing.
    let refused = scratch.dendro(["set", &mount, "commit=1", "cache=1G"]);
    refused.fails(1, &["cache=1G cannot be changed while it is mounted"]);
    scratch.dendro(["set", &mount, "bogus"]).fails(1, &["unknown mount option bogus"]);
    scratch.dendro(["set", &mount, "noexec"]).fails(1, &["mount -o remount,noexec"]);
    assert_eq!(in_force(&scratch), before);
    let set = ["set", &mount, "commit=1", "retain=1d:all", "policy=greedy", "strictatime"];
    let said = scratch.dendro(set).succeeds();
    assert!(said.out.contains("commit=1,") && said.out.contains("retain=1d:all"), "{said:?}");
    wait_until("it is durable by itself", || durable(&scratch));
    wait_until("a snapshot is kept", || snapshot_count(&scratch) == 1);
    let info = scratch.dendro(["info", &mount]).succeeds().out;
    assert!(info.contains("policy=greedy") && info.contains("strictatime"), "{info}");
    let status = scratch.dendro(["clean", "status", &mount]).succeeds().out;
    assert!(status.contains("greedy"), "{status}");
    scratch.dendro(["set", &mount, "retain=none", "noatime"]).succeeds();
    fs::write(scratch.inside("file"), "y").unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(snapshot_count(&scratch), 1, "no more is kept");
    let json = scratch.dendro(["set", "--json", &mount]).succeeds().out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["options"].as_array().unwrap().contains(&"noatime".into()), "{json}");
    scratch.umount();
}

#[test]
fn a_remount_changes_what_it_can_and_names_what_it_cannot() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount_with("commit=3600");
    let remount = |options: &str| {
        let options = format!("remount,{options}");
        scratch.dendro(["mount", "-o", &options, &scratch.image(), &scratch.mount_point()])
    };
    // As mount(8) calls it, with what the table of mounts has.
    let table = "rw,relatime,user_id=0,group_id=0,default_permissions,allow_other";
    remount(&format!("{table},commit=7,retain=10m:all,1d:1m")).succeeds();
    let now = in_force(&scratch);
    assert!(now.contains(&"commit=7".into()), "{now:?}");
    assert!(now.contains(&"retain=10m:all,1d:1m".into()), "{now:?}");
    remount("cache=1G,ro").fails(32, &["cache=1G cannot be changed while it is mounted"]);
    fs::write(scratch.inside("file"), "still writable").unwrap();
    remount("ro,nosuid,noexec").succeeds();
    fs::write(scratch.inside("file"), "x").unwrap_err();
    let now = in_force(&scratch);
    for option in ["ro", "nosuid", "noexec", "commit=7"] {
        assert!(now.iter().any(|other| other == option), "no {option} in {now:?}");
    }
    remount("rw").succeeds();
    fs::write(scratch.inside("file"), "x").unwrap();
    assert!(in_force(&scratch).contains(&"rw".into()));
    scratch.dendro(["clone", &scratch.image(), "b"]).succeeds();
    scratch.umount();
    // By the source that the table of mounts has, which names the branch.
    scratch.mount_with("clone=b");
    let source = format!("{}:b", scratch.image());
    assert!(mounts().lines().any(|line| line.starts_with(&format!("{source} "))));
    scratch
        .dendro(["mount", "-o", "remount,ro,clone=b", &source, &scratch.mount_point()])
        .succeeds();
    fs::write(scratch.inside("file"), "y").unwrap_err();
    scratch.umount();
}

#[test]
fn what_fstab_files_have_is_taken() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount_with(
        "defaults,nodiratime,lazytime,iversion,mand,x-systemd.automount,user,users,nofail,_netdev,\
         comment=none",
    );
    fs::write(scratch.inside("file"), "x").unwrap();
    symlink("file", scratch.inside("link")).unwrap();
    assert_eq!(fs::read_to_string(scratch.inside("link")).unwrap(), "x");
    scratch.umount();
    if !is_root() {
        let refused = ["mount", "-o", "nosymfollow", &scratch.image(), &scratch.mount_point()];
        scratch.dendro(refused).fails(32, &["nosymfollow"]);
        return;
    }
    scratch.mount_with("nosymfollow");
    assert_eq!(fs::read(scratch.inside("link")).unwrap_err().raw_os_error(), Some(40), "ELOOP");
    assert!(
        mounts()
            .lines()
            .any(|line| line.contains(&scratch.mount_point()) && line.contains("nosymfollow"))
    );
    assert!(in_force(&scratch).contains(&"nosymfollow".into()));
    scratch.umount();
}

#[test]
fn a_remount_with_sync_makes_each_change_durable_and_one_without_ends_that() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    // Nothing becomes durable by time alone.
    scratch.mount_with("commit=3600");
    let remount = |options: &str| {
        let options = format!("remount,{options}");
        scratch.dendro(["mount", "-o", &options, &scratch.image(), &scratch.mount_point()])
    };
    remount("sync").succeeds();
    assert!(in_force(&scratch).contains(&"sync".into()));
    fs::create_dir(scratch.inside("directory")).unwrap();
    scratch.kill_daemon();
    scratch.mount_with("commit=3600,sync");
    assert!(scratch.inside("directory").is_dir());
    remount("rw").succeeds();
    assert!(!in_force(&scratch).contains(&"sync".into()));
    fs::create_dir(scratch.inside("volatile")).unwrap();
    scratch.kill_daemon();
    scratch.mount();
    assert!(!scratch.inside("volatile").exists(), "changes still wait for the device");
    scratch.umount();
}

#[test]
fn a_remount_refuses_dirsync_unless_it_is_in_force() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount_with("commit=3600");
    let remount = |options: &str| {
        let options = format!("remount,{options}");
        scratch.dendro(["mount", "-o", &options, &scratch.image(), &scratch.mount_point()])
    };
    remount("ro,dirsync").fails(32, &["dirsync cannot be changed while it is mounted"]);
    fs::write(scratch.inside("file"), "still writable").unwrap();
    let mount = scratch.mount_point();
    let refused = scratch.dendro(["set", &mount, "dirsync"]);
    refused.fails(1, &["dirsync cannot be changed while it is mounted"]);
    scratch.umount();
    scratch.mount_with("commit=3600,dirsync");
    // As mount(8) calls it, with what the table of mounts has.
    remount("rw,dirsync,sync").succeeds();
    remount("rw").succeeds();
    assert!(in_force(&scratch).contains(&"dirsync".into()));
    fs::create_dir(scratch.inside("directory")).unwrap();
    scratch.kill_daemon();
    scratch.mount();
    assert!(scratch.inside("directory").is_dir(), "names are still durable at once");
    scratch.umount();
}

#[test]
fn on_a_mount_without_extended_attributes_there_are_none_and_they_stay_in_the_volume() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let flags = rustix::fs::XattrFlags::empty();
    let marked = scratch.inside("marked");
    fs::write(&marked, "x").unwrap();
    rustix::fs::setxattr(&marked, "user.colour", b"green", flags).unwrap();
    scratch.umount();

    scratch.mount_with("noxattr");
    let mut value = [0; 16];
    let found = rustix::fs::getxattr(&marked, "user.colour", &mut value);
    assert_eq!(found, Err(rustix::io::Errno::OPNOTSUPP));
    let set = rustix::fs::setxattr(&marked, "user.colour", b"red", flags);
    assert_eq!(set, Err(rustix::io::Errno::OPNOTSUPP));
    for number in 0..50 {
        fs::write(scratch.inside(&format!("new{number}")), "x").unwrap();
    }
    assert!(in_force(&scratch).contains(&"noxattr".into()));
    let mount = scratch.mount_point();
    let refused = scratch.dendro(["set", &mount, "xattr"]);
    refused.fails(1, &["xattr cannot be changed while it is mounted"]);
    scratch.umount();

    scratch.mount_with("xattr");
    let len = rustix::fs::getxattr(&marked, "user.colour", &mut value).unwrap();
    assert_eq!(&value[..len], b"green");
}

#[test]
fn how_a_volume_is_compressed_is_told() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = (scratch.image(), scratch.mount_point());
    let kinds = ["--compress", "zstd:7", "--compress-cold", "lz4"];
    scratch.dendro([&["mkfs", "--size", "64M", &*image], &kinds[..]].concat()).succeeds();
    let told = |member: &str| scratch.info(&image)[member].clone();
    assert_eq!(
        (told("default_compress"), told("default_compress_cold")),
        ("zstd:7".into(), "lz4".into())
    );
    assert!(told("compress_in_force").is_null());
    let text = || scratch.dendro(["info", &image]).succeeds().out;
    let default = "compress    zstd:7; what the cleaner moves: lz4\n";
    assert!(text().contains(default), "{}", text());
    scratch.mount();
    assert_eq!(
        (told("compress_in_force"), told("compress_cold_in_force")),
        ("zstd:7".into(), "lz4".into())
    );
    assert!(text().contains(default) && !text().contains("as mounted: "), "{}", text());
    let set = || scratch.dendro(["set", &mount]).succeeds().out;
    assert!(set().contains("compress=zstd:7,compress-cold=lz4"), "{}", set());
    // What holds already is no change.
    scratch.dendro(["set", &mount, "compress=zstd:7"]).succeeds();
    scratch.dendro(["set", &mount, "compress=lz4"]).fails(1, &["cannot be changed"]);
    scratch.umount();
    scratch.mount_with("compress=none");
    assert_eq!(
        (told("default_compress"), told("compress_in_force")),
        ("zstd:7".into(), "none".into())
    );
    let mounted = format!("{default}    as mounted: none; what the cleaner moves: lz4\n");
    assert!(text().contains(&mounted), "{}", text());
    assert!(set().contains("compress=none,compress-cold=lz4"), "{}", set());
    scratch.umount();
}
