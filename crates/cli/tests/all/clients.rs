//! Several clients on one volume.

use std::fs;

use crate::common::{Scratch, skips_mounts};

/// The names and kinds of the clients.
fn clients(scratch: &Scratch, target: &str) -> Vec<(String, String)> {
    let out = scratch.dendro(["client", "list", "--json", target]).succeeds().out;
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    let all = list["clients"].as_array().unwrap().iter();
    all.map(|of| (text(&of["name"]), text(&of["kind"]))).collect()
}

fn named(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect()
}

#[test]
fn clients_are_made_listed_renamed_and_deleted() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let at = |name: &str| format!("{image}:{name}");
    let create = |name: &str, kind| scratch.dendro(["client", "create", &at(name), "--kind", kind]);
    assert_eq!(clients(&scratch, &image), named(&[("main", "files")]));
    scratch.dendro(["block", "create", &format!("{image}/vm"), "1M"]).succeeds();
    create("home", "files").succeeds();
    create("cache", "application").succeeds();
    create("vm", "files").fails(1, &["there is a version called 'vm' already"]);
    scratch.dendro(["client", "create", &image]).fails(2, &["say which client"]);
    let all = [("main", "files"), ("vm", "block"), ("home", "files"), ("cache", "application")];
    assert_eq!(clients(&scratch, &image), named(&all));
    // Files are there where files are kept.
    scratch.dendro(["ls", &at("home")]).succeeds();
    scratch.dendro(["ls", &at("vm")]).fails(1, &["a block device", "`dendro nbd`"]);
    scratch.dendro(["ls", &at("cache")]).fails(1, &["lists of a program"]);
    scratch.dendro(["promote", &at("vm")]).fails(1, &["different clients"]);
    scratch.dendro(["diff", &format!("{image}@head"), ":home"]).fails(1, &["different clients"]);
    let list = scratch.dendro(["snapshot", "list", &image]).succeeds().out;
    assert!(list.contains("branch (block)"), "{list}");
    scratch.dendro(["snapshot", "create", &format!("{image}:vm@kept")]).succeeds();
    scratch.dendro(["clone", &format!("{image}@kept"), "copy"]).succeeds();
    let check = scratch.dendro(["check", &image]).succeeds().out;
    assert!(check.contains("trees of 2 versions"), "{check}");
    assert!(check.contains("lists of 4 versions without files"), "{check}");
    scratch.dendro(["client", "rename", &at("vm"), "guest"]).succeeds();
    scratch.dendro(["client", "delete", &at("copy")]).fails(1, &["the client guest"]);
    scratch.dendro(["client", "delete", &at("main")]).fails(1, &["was made for"]);
    scratch.dendro(["client", "delete", &at("vm")]).fails(1, &["there is main, guest, home"]);
    scratch.dendro(["snapshot", "hold", &format!("{image}@kept")]).succeeds();
    scratch.dendro(["client", "delete", &at("guest")]).fails(1, &["@kept", "held"]);
    scratch.dendro(["snapshot", "release", &format!("{image}@kept")]).succeeds();
    let would = scratch.dendro(["client", "delete", "-n", &at("guest")]).succeeds().out;
    assert!(would.contains("would delete @kept") && would.contains(":copy"), "{would}");
    scratch.dendro(["client", "delete", &at("guest")]).succeeds();
    let left = [("main", "files"), ("home", "files"), ("cache", "application")];
    assert_eq!(clients(&scratch, &image), named(&left));
    scratch.dendro(["check", &image]).succeeds();
}

#[test]
fn clients_are_sent_with_their_kinds() {
    let scratch = Scratch::with_volume();
    let (image, other, stream) = (scratch.image(), scratch.text("other"), scratch.text("stream"));
    scratch.dendro(["block", "create", &format!("{image}/vm"), "1M"]).succeeds();
    scratch.dendro(["client", "create", &format!("{image}:home")]).succeeds();
    scratch.dendro(["send", "--all", "-o", &stream, &image]).succeeds();
    scratch.dendro(["mkfs", "--size", "64M", &other]).succeeds();
    scratch.dendro(["receive", "--branches", &other, &stream]).succeeds();
    let all = [("main", "files"), ("vm", "block"), ("home", "files")];
    assert_eq!(clients(&scratch, &other), named(&all));
    scratch.dendro(["ls", &format!("{other}:home")]).succeeds();
    scratch.dendro(["check", &other]).succeeds();
    // Nothing has changed, so nothing is sent again.
    scratch.dendro(["send", "--all", "-o", &scratch.text("again"), &image]).succeeds();
}

#[test]
fn a_client_of_files_is_mounted_beside_the_first() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.dendro(["block", "create", &format!("{}/vm", scratch.image()), "1M"]).succeeds();
    scratch.mount();
    let (image, mount, home) = (scratch.image(), scratch.mount_point(), scratch.text("home"));
    scratch.dendro(["client", "create", &format!("{mount}:home")]).succeeds();
    fs::create_dir(&home).unwrap();
    let vm = format!("{image}:vm");
    scratch.dendro(["mount", &vm, &home]).fails(32, &["a block device"]);
    scratch.dendro(["mount", &format!("{image}:home"), &home]).succeeds();
    fs::write(scratch.inside("file"), "of the first").unwrap();
    fs::write(scratch.path("home/file"), "of the second").unwrap();
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"of the first");
    // Each sees its own snapshots.
    scratch.dendro(["snapshot", "create", &format!("{home}@one")]).succeeds();
    let shown = |place: &str| fs::read_dir(format!("{place}/.dendro/snapshots")).unwrap().count();
    assert_eq!((shown(&mount), shown(&home)), (0, 1));
    assert!(fs::metadata(scratch.inside(".dendro/snapshots/one")).is_err());
    fs::write(scratch.path("home/file"), "changed").unwrap();
    let kept = scratch.path("home/.dendro/snapshots/one/file");
    assert_eq!(fs::read(kept).unwrap(), b"of the second");
    let client = format!("{mount}:home");
    scratch.dendro(["client", "delete", &client]).fails(1, &["mounted on", &home]);
    scratch.dendro(["umount", &home]).succeeds();
    scratch.dendro(["client", "delete", &client]).succeeds();
    assert_eq!(clients(&scratch, &mount), named(&[("main", "files"), ("vm", "block")]));
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"of the first");
    scratch.umount();
    scratch.dendro(["check", &image]).succeeds();
}

/// What is listed of the quota of a client, and of its use.
fn quota(scratch: &Scratch, target: &str, name: &str) -> (Option<u64>, Option<u64>) {
    let out = scratch.dendro(["client", "list", "--json", target]).succeeds().out;
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    let client = list["clients"].as_array().unwrap().iter().find(|of| of["name"] == name);
    let client = client.unwrap();
    (client["quota_bytes"].as_u64(), client["used_bytes"].as_u64())
}

#[test]
fn quotas_are_set_listed_and_taken_away() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let at = |name: &str| format!("{image}:{name}");
    assert_eq!(quota(&scratch, &image, "main"), (None, None));
    let made = scratch.dendro(["client", "create", &at("home"), "--quota", "1M", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made.succeeds().out).unwrap();
    assert_eq!(made["quota_bytes"], 1 << 20);
    let (limit, used) = quota(&scratch, &image, "home");
    assert_eq!((limit, used), (Some(1 << 20), made["used_bytes"].as_u64()));
    assert!(used.unwrap() > 0);
    scratch.dendro(["client", "create", &at("tiny"), "--quota", "10"]).fails(1, &["quota"]);
    scratch.dendro(["client", "set", &at("main"), "--quota", "20M"]).succeeds();
    let set = scratch.dendro(["client", "set", &at("main"), "--quota", "30M", "--json"]);
    let set: serde_json::Value = serde_json::from_str(&set.succeeds().out).unwrap();
    assert_eq!(set["quota_bytes"], 30 << 20);
    let table = scratch.dendro(["client", "list", &image]).succeeds().out;
    assert!(table.contains("QUOTA") && table.contains("30 MiB"), "{table}");
    scratch.dendro(["client", "set", &at("home"), "--quota", "0"]).fails(2, &["0 bytes"]);
    scratch.dendro(["client", "set", &at("nobody"), "--quota", "1M"]).fails(1, &["nobody"]);
    let info = scratch.dendro(["info", "--json", &image]).succeeds().out;
    assert!(info.contains("quotas"), "{info}");
    scratch.dendro(["check", &image]).succeeds();
    scratch.dendro(["client", "set", &at("main"), "--quota", "none"]).succeeds();
    assert_eq!(quota(&scratch, &image, "main"), (None, None));
    scratch.dendro(["check", &image]).succeeds();
}

#[test]
fn a_mount_keeps_its_quota() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let (image, mount, home) = (scratch.image(), scratch.mount_point(), scratch.text("home"));
    let client = format!("{mount}:home");
    scratch.dendro(["client", "create", &client, "--quota", "2M"]).succeeds();
    fs::create_dir(&home).unwrap();
    scratch.dendro(["mount", &format!("{image}:home"), &home]).succeeds();
    let file = scratch.path("home/file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let error = fs::write(scratch.path("home/other"), vec![7; 2 << 20]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(122), "{error}");
    let statfs = rustix::fs::statvfs(&home).unwrap();
    assert_eq!(statfs.f_blocks * statfs.f_frsize, 2 << 20);
    assert!(statfs.f_bavail < 256);
    fs::remove_file(scratch.path("home/other")).unwrap();
    fs::write(&file, vec![8; 1 << 20]).unwrap();
    // The other tree has room, and a larger quota gives some.
    fs::write(scratch.inside("file"), vec![7; 3 << 20]).unwrap();
    scratch.dendro(["client", "set", &client, "--quota", "8M"]).succeeds();
    fs::write(scratch.path("home/other"), vec![7; 4 << 20]).unwrap();
    scratch.dendro(["client", "set", &client, "--quota", "1M"]).succeeds();
    let error = fs::write(scratch.path("home/more"), vec![7; 10_000]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(122), "{error}");
    fs::remove_file(scratch.path("home/other")).unwrap();
    scratch.dendro(["umount", &home]).succeeds();
    scratch.umount();
    assert!(quota(&scratch, &image, "home").1.unwrap() > 1 << 20);
    scratch.dendro(["check", &image]).succeeds();
}

/// The first client may have another name by now.
#[test]
fn the_help_says_of_no_name_that_it_is_the_first_client() {
    let scratch = Scratch::new();
    let help = scratch.dendro(["client", "set", "--help"]).succeeds().out;
    assert!(help.contains("`main` unless it was renamed"), "{help}");
}
