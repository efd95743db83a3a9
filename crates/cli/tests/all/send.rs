//! `dendro send` and `dendro stream`: of volumes that are mounted and of others.

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;

use crate::common::{Scratch, said, signal, skips_mounts};
use serde_json::Value;

/// A mount with files, and the snapshots `one` and `two`.
fn with_snapshots() -> Scratch {
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::create_dir(scratch.inside("dir")).unwrap();
    for number in 0..30 {
        fs::write(scratch.inside(&format!("dir/{number}")), vec![b'a' + number; 40_000]).unwrap();
    }
    snapshot(&scratch, "one");
    fs::write(scratch.inside("dir/3"), vec![b'z'; 40_000]).unwrap();
    fs::write(scratch.inside("new"), "new").unwrap();
    fs::remove_file(scratch.inside("dir/4")).unwrap();
    fs::rename(scratch.inside("dir/5"), scratch.inside("5")).unwrap();
    snapshot(&scratch, "two");
    scratch
}

fn snapshot(scratch: &Scratch, name: &str) {
    let version = format!("{}@{name}", scratch.mount_point());
    scratch.dendro(["snapshot", "create", &version]).succeeds();
}

fn verified(scratch: &Scratch, file: &str) -> Value {
    let out = scratch.dendro(["stream", "verify", "--json", file]).succeeds().out;
    serde_json::from_str(&out).unwrap()
}

/// The facts without those that differ from stream to stream.
fn lasting(mut info: Value) -> Value {
    info.as_object_mut().unwrap().remove("stream_uuid");
    info
}

#[test]
fn what_a_mount_sends_is_what_the_image_sends() {
    if skips_mounts() {
        return;
    }
    let scratch = with_snapshots();
    let mount = scratch.mount_point();
    let uuid = scratch.info(&mount)["uuid"].clone();
    let files = ["full", "changes", "small"].map(|name| scratch.text(name));
    let send = |target: &str, prefix: &str| {
        let [full, changes, small] = files.clone().map(|file| file + prefix);
        let (one, two) = (format!("{target}@one"), format!("{target}@two"));
        scratch.dendro(["send", "-o", &full, &one]).succeeds();
        scratch.dendro(["send", "--from", "@one", "-o", &changes, &two]).succeeds();
        scratch.dendro(["send", "-z=9", "-o", &small, &two]).succeeds();
        [full, changes, small].map(|file| lasting(verified(&scratch, &file)))
    };
    let mounted = send(&mount, "");
    scratch.umount();
    assert_eq!(send(&scratch.image(), "2"), mounted);
    let [full, changes, small] = mounted;
    assert_eq!((&full["source_uuid"], &full["snapshot"]["volume_uuid"]), (&uuid, &uuid));
    assert_eq!((&full["snapshot"]["name"], &full["base_snapshot"]), (&"one".into(), &Value::Null));
    // The root, the volume's description, `dir` and what is in it.
    let lists = full["made_lists"].as_u64().unwrap();
    assert!((33..=34).contains(&lists), "{full}");
    assert!(full["content_bytes"].as_u64().unwrap() > 30 * 40_000);
    assert_eq!(changes["base_snapshot"]["name"], "one");
    assert_eq!((&changes["made_lists"], &changes["deleted_lists"]), (&1.into(), &1.into()));
    let len = changes["stream_bytes"].as_u64().unwrap();
    assert!(len < 40_000 + 4000, "{changes}");
    assert!(small["compressed"] == true && small["stream_bytes"].as_u64().unwrap() < 30_000);
    let listed = scratch.dendro(["stream", "list", &files[1]]).succeeds().out;
    let inode = |line: &&str| line.contains("changed");
    // Both directories, and the file that was written.
    assert_eq!(listed.lines().filter(inode).count(), 4, "{listed}");
}

#[test]
fn a_stream_goes_through_a_pipe_while_programs_write() {
    if skips_mounts() {
        return;
    }
    let scratch = with_snapshots();
    let target = format!("{}@one", scratch.mount_point());
    let mut sender = scratch.command(["-q", "send", &target]);
    let mut sender = sender.stdout(Stdio::piped()).spawn().unwrap();
    let mut stream = Vec::new();
    let mut out = sender.stdout.take().unwrap();
    let mut piece = vec![0; 10_000];
    while let Ok(count @ 1..) = out.read(&mut piece) {
        stream.extend_from_slice(&piece[..count]);
        fs::write(scratch.inside("dir/7"), &stream).unwrap();
    }
    assert!(sender.wait().unwrap().success());
    let mut verifier = scratch.command(["stream", "verify", "-"]);
    let verifier = verifier.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut verifier = verifier.unwrap();
    verifier.stdin.take().unwrap().write_all(&stream).unwrap();
    let shown = said(verifier.wait_with_output().unwrap()).succeeds().out;
    assert!(shown.contains("@one") && shown.contains("it is complete"), "{shown}");
}

#[test]
fn a_mount_ends_while_nobody_takes_what_it_sends() {
    if skips_mounts() {
        return;
    }
    let scratch = with_snapshots();
    let target = format!("{}@two", scratch.mount_point());
    let mut sender = scratch.command(["-q", "send", &target]);
    let mut sender = sender.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    sender.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    // The pipe and the sockets are full, and the daemon waits.
    scratch.umount();
    drop(sender.stdout.take());
    let ended = said(sender.wait_with_output().unwrap());
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(!scratch.is_mounted());
}

#[test]
fn a_sender_that_is_killed_leaves_the_mount_alone() {
    if skips_mounts() {
        return;
    }
    let scratch = with_snapshots();
    let target = format!("{}@two", scratch.mount_point());
    for _ in 0..5 {
        let mut sender = scratch.command(["-q", "send", &target]);
        let mut sender = sender.stdout(Stdio::piped()).spawn().unwrap();
        let mut byte = [0];
        sender.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        // timeout(1) takes what it runs with it.
        signal(sender.id(), "TERM");
        sender.wait().unwrap();
    }
    let file = scratch.text("stream");
    scratch.dendro(["send", "-o", &file, &target]).succeeds();
    verified(&scratch, &file);
}

#[test]
fn a_stream_that_was_cut_off_or_altered_is_refused_with_the_place() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.dendro(["snapshot", "create", &format!("{image}@empty")]).succeeds();
    let file = scratch.text("stream");
    scratch.dendro(["send", "-o", &file, &format!("{image}@empty")]).succeeds();
    let whole = fs::read(&file).unwrap();
    verified(&scratch, &file);
    let refused = |bytes: &[u8], parts: &[&str]| {
        fs::write(&file, bytes).unwrap();
        for verb in ["verify", "list"] {
            scratch.dendro(["stream", verb, &file]).fails(1, parts);
        }
    };
    refused(&whole[..whole.len() - 1], &[&file, "frame 1 at byte", "the rest of it is missing"]);
    refused(&whole[..100], &["frame 0 at byte 0", "the rest of it is missing"]);
    refused(&[&whole[..], b"x"].concat(), &["something follows the end"]);
    let mut altered = whole.clone();
    altered[200] ^= 1;
    refused(&altered, &["frame 0 at byte", "checksum is wrong"]);
    refused(b"no stream at all, but a text that is longer than what a header of one has; it goes on and on, until it is", &["frame 0 at byte 0"]);
    refused(&[b'x'; 300], &["there is none"]);
}

#[test]
fn what_cannot_be_sent_is_refused_and_leaves_no_file() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.dendro(["snapshot", "create", &format!("{image}@a")]).succeeds();
    let file = scratch.text("stream");
    let send = |more: &[&str]| scratch.dendro([&["send", "-o", &file], more].concat());
    send(&[&image]).fails(1, &["name a snapshot"]);
    send(&[&format!("{image}@b")]).fails(1, &["b"]);
    send(&["--from", "@b", &format!("{image}@a")]).fails(1, &["b"]);
    assert!(!scratch.path("stream").exists());
    send(&["-z=20", &format!("{image}@a")]).fails(2, &["20"]);
    fs::write(&file, "there").unwrap();
    send(&[&format!("{image}@a")]).fails(1, &["exists"]);
    assert_eq!(fs::read(&file).unwrap(), b"there");
}
