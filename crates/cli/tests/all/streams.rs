//! Streams that are kept in files, sequences of them, and streams that break off.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Scratch, said, skips_mounts, wait_until};
use crate::receive::{mkfs, prepare, prepare_and_send, sent, snapshot, tree, tree_of};
use serde_json::Value;

/// Lines of [`tree`] without what a copy has otherwise: the number of the file, its blocks, and its
/// change time.
fn copied(lines: &[String]) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        // path inode mode owner links size blocks mtime ctime …
        let is_directory = words[2].starts_with('4');
        let mut left = vec![words[0], words[2], words[3], words[7]];
        if !is_directory {
            left.extend([words[4], words[5]]);
        }
        left.extend(&words[9..]);
        kept.push(left.join(" "));
    }
    kept
}

#[test]
fn files_are_restored_from_streams_without_a_volume() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let [a, b, c] = prepare_and_send(&scratch);
    let inside = |name: &str| tree(&scratch.inside(&format!(".dendro/snapshots/{name}")));
    let expected = ["a", "b", "c"].map(|name| copied(&inside(name)));
    let restored = |arguments: &[&str], to: &str| {
        let to = scratch.text(to);
        scratch.dendro([&["stream", "restore", "--to", &to], arguments].concat()).succeeds();
        to
    };
    // A new directory gets the attributes of the root, too.
    let whole = restored(&[&a], "of-a");
    assert_eq!(copied(&tree(Path::new(&whole))), expected[0]);
    let later = restored(&["--base", &a, "--base", &b, &c], "of-c");
    assert_eq!(copied(&tree(Path::new(&later))), expected[2]);
    // Single files and directories.
    let some = scratch.text("some");
    fs::create_dir(&some).unwrap();
    restored(&["--base", &a, &b, "/dir", "shallow", "file"], "some");
    let names: Vec<String> = fs::read_dir(&some)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(Path::new(&some).join("dir/sparse").exists());
    // Nothing else is left behind.
    let left = fs::read_dir(scratch.path("")).unwrap();
    let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| !name.contains("dendro-restore")));
    let refused = |arguments: &[&str], parts: &[&str]| {
        let to = scratch.text("refused");
        scratch.dendro([&["stream", "restore", "--to", &to], arguments].concat()).fails(1, parts);
        assert!(!Path::new(&to).exists());
    };
    refused(&[&b], &["@a, epoch", "not here"]);
    refused(&["--base", &b, &a], &["@a, epoch", "not here"]);
    refused(&[&a, "/there/is/none"], &["/there/is/none"]);
    refused(&[&scratch.text("none")], &["none"]);
    let bytes = fs::read(&a).unwrap();
    let cut = scratch.text("cut");
    fs::write(&cut, &bytes[..bytes.len() - 10]).unwrap();
    refused(&[&cut], &["frame", "the rest of it is missing"]);
}

fn listed(scratch: &Scratch, arguments: &[&str]) -> Vec<Value> {
    let all = [&["stream", "list", "--json"], arguments].concat();
    let out = scratch.dendro(all).succeeds().out;
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_list_has_the_paths_of_files() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let [a, b, c] = prepare_and_send(&scratch);
    let paths = |lines: &[Value], change: &str| -> Vec<String> {
        let of = lines.iter().filter(|line| line["change"] == change);
        let mut paths: Vec<String> =
            of.map(|line| line["path"].as_str().unwrap_or("-").to_owned()).collect();
        paths.sort();
        paths
    };
    let of_a = paths(&listed(&scratch, &[&a]), "new");
    for path in ["/", "/dir", "/dir/sparse", "/dir/symlink", "/many/599", "/dir/deep"] {
        assert!(of_a.iter().any(|of| of == path), "{path}: {of_a:?}");
    }
    assert!(of_a.iter().any(|of| of == "/file" || of == "/dir/link"));
    // Without its base: names of what is directly in the root, and others that are not whole.
    let of_b = listed(&scratch, &[&b]);
    assert!(paths(&of_b, "deleted").iter().all(|path| path == "-"), "{of_b:?}");
    let of_b = listed(&scratch, &["--base", &a, &b]);
    let changed = paths(&of_b, "changed");
    for path in ["/", "/dir", "/file", "/many", "/dir/sparse", "/shallow"] {
        assert!(changed.iter().any(|of| of == path), "{path}: {changed:?}");
    }
    let deleted = paths(&of_b, "deleted");
    assert_eq!(deleted.len(), 200);
    assert!(deleted.iter().all(|path| path.starts_with("/many/")), "{deleted:?}");
    let of_c = listed(&scratch, &["--base", &a, "--base", &b, &c]);
    assert_eq!(paths(&of_c, "new"), ["/new"]);
    let deleted = paths(&of_c, "deleted");
    assert_eq!(deleted.len(), 401);
    assert!(deleted.iter().all(|path| path.starts_with("/many")), "{deleted:?}");
    let text = scratch.dendro(["stream", "list", &a]).succeeds().out;
    assert!(text.lines().any(|line| line.ends_with("  /many/17")), "{text}");
}

fn versions(scratch: &Scratch, target: &str) -> Value {
    let out = scratch.dendro(["snapshot", "list", "--json", target]).succeeds().out;
    serde_json::from_str(&out).unwrap()
}

fn names(listed: &Value, what: &str) -> Vec<String> {
    let all = listed[what].as_array().unwrap().iter();
    all.map(|of| of["name"].as_str().unwrap_or("-").to_owned()).collect()
}

#[test]
fn all_snapshots_and_branches_are_sent_in_one_sequence() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    prepare(&scratch);
    let (mount, image) = (scratch.mount_point(), scratch.image());
    // Two branches, one of which is written to; and an automatic snapshot.
    for (from, branch) in [("b", "work"), ("a", "same")] {
        scratch.dendro(["clone", &format!("{mount}@{from}"), branch]).succeeds();
    }
    let work = scratch.text("work");
    fs::create_dir(&work).unwrap();
    scratch.dendro(["mount", "-o", "clone=work", &image, &work]).succeeds();
    fs::write(scratch.path("work/more"), "more").unwrap();
    fs::write(scratch.inside("unsaved"), "unsaved").unwrap();
    scratch.dendro(["snapshot", "create", &mount]).succeeds();
    let file = scratch.text("all");
    let sent = scratch.dendro(["send", "--all", "-o", &file, "--json", &mount]).succeeds().out;
    let sent: Value = serde_json::from_str(&sent).unwrap();
    let source = versions(&scratch, &mount);
    // a, b, c, the automatic one, that of `work`, and that of the main branch.
    assert_eq!(sent["stream_count"], 6, "{sent}");
    assert_eq!(names(&source, "snapshots").len(), 6, "{source}");
    assert_eq!(sent["sequence_bytes"], fs::metadata(&file).unwrap().len());
    let verified = scratch.dendro(["stream", "verify", "--json", &file]).succeeds().out;
    let streams: Vec<Value> =
        verified.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(streams.len(), 6);
    assert_eq!(streams.iter().filter(|of| of["base_snapshot"].is_null()).count(), 1);
    // What is shared is sent once: two files of a megabyte would not fit in twice.
    let whole = streams[0]["stream_bytes"].as_u64().unwrap();
    assert!(sent["sequence_bytes"].as_u64().unwrap() < whole * 3 / 2, "{sent}");
    // Nothing has changed meanwhile, so no further snapshot is made.
    let again = scratch.dendro(["send", "--all", "-o", &scratch.text("x"), "--json", &mount]);
    let again: Value = serde_json::from_str(&again.succeeds().out).unwrap();
    assert_eq!(again["stream_count"], 6, "{again}");
    let copy = mkfs(&scratch, "copy");
    let got = scratch.dendro(["receive", "--branches", "--json", &copy, &file]).succeeds().out;
    let got: Value = serde_json::from_str(&got).unwrap();
    assert_eq!((&got["received_count"], &got["skipped_count"]), (&6.into(), &0.into()));
    assert_eq!(got["made_branches"], serde_json::json!(["same", "work"]));
    let main = got["main_snapshot"].as_str().unwrap().to_owned();
    let mut found = names(&versions(&scratch, &copy), "branches");
    found.sort();
    assert_eq!(found, ["main", "same", "work"]);
    // Each head is as it was.
    scratch.dendro(["clone", &format!("{copy}{main}"), "live"]).succeeds();
    scratch.dendro(["promote", &format!("{copy}:live")]).succeeds();
    let look = scratch.text("look");
    fs::create_dir_all(&look).unwrap();
    let shown = |options: &str| {
        scratch.dendro(["mount", "-o", options, &copy, &look]).succeeds();
        let lines = tree(Path::new(&look));
        scratch.dendro(["umount", &look]).succeeds();
        lines
    };
    assert!(shown("ro") == tree(&scratch.inside("")));
    assert!(shown("ro,clone=work") == tree(Path::new(&work)));
    assert!(shown("ro,clone=same") == tree_of(&scratch, &image, "a"));
    scratch.dendro(["check", "--data", &copy]).succeeds();
    // The same again is passed over.
    let got = scratch.dendro(["receive", "--json", &copy, &file]).succeeds().out;
    let got: Value = serde_json::from_str(&got).unwrap();
    assert_eq!((&got["received_count"], &got["skipped_count"]), (&0.into(), &6.into()));
    // Any file of it can be restored.
    let to = scratch.text("restored");
    let restore = ["stream", "restore", "--snapshot", "b", "--to", &to, &file, "/shallow"];
    scratch.dendro(restore).succeeds();
    assert!(scratch.path("restored").is_dir());
    cut_between_streams(&scratch, &file, &streams);
    scratch.dendro(["umount", &work]).succeeds();
}

/// A sequence that was cut off between two streams is noticed, and gone on with.
fn cut_between_streams(scratch: &Scratch, file: &str, streams: &[Value]) {
    let copy = mkfs(scratch, "cut-copy");
    let bytes = fs::read(file).unwrap();
    let len: u64 = streams[..2].iter().map(|of| of["stream_bytes"].as_u64().unwrap()).sum();
    let cut = scratch.text("cut");
    fs::write(&cut, &bytes[..usize::try_from(len).unwrap()]).unwrap();
    let parts = ["stream 3", "the rest of it is missing"];
    scratch.dendro(["stream", "verify", &cut]).fails(1, &parts);
    scratch.dendro(["receive", &copy, &cut]).fails(1, &parts);
    assert_eq!(names(&versions(scratch, &copy), "snapshots"), ["a", "b"]);
    let got = scratch.dendro(["receive", "--json", &copy, file]).succeeds().out;
    let got: Value = serde_json::from_str(&got).unwrap();
    assert_eq!((&got["received_count"], &got["skipped_count"]), (&4.into(), &2.into()));
}

/// The token that `dendro info` shows; `None` if nothing is kept.
fn token(scratch: &Scratch, target: &str) -> Option<String> {
    let info = scratch.info(target);
    let parts = info["received_parts"].as_array().unwrap();
    assert!(parts.len() <= 1);
    parts.first().map(|part| part["token"].as_str().unwrap().to_owned())
}

#[test]
fn a_stream_that_broke_off_is_gone_on_with() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    // Several frames, of 1 MiB at most.
    let noise = |number: u64| -> Vec<u8> {
        let mut rng = dendro_base::Rng::new(number);
        let mut bytes = vec![0; 3 << 20];
        rng.fill(&mut bytes);
        bytes
    };
    for number in 0..3 {
        fs::write(scratch.inside(&format!("{number}")), noise(number)).unwrap();
    }
    snapshot(&scratch, "a");
    let mount = scratch.mount_point();
    let file = sent(&scratch, &mount, "a", None);
    let stream = fs::read(&file).unwrap();
    let expected = tree_of(&scratch, &scratch.image(), "a");
    let copy = mkfs(&scratch, "copy");
    let place = scratch.text("place");
    fs::create_dir(&place).unwrap();
    let cut = scratch.text("cut");
    fs::write(&cut, &stream[..stream.len() * 2 / 3]).unwrap();
    for is_mounted in [false, true] {
        let target = if is_mounted { &place } else { &copy };
        let mounted = |verb: &[&str]| {
            if is_mounted {
                scratch.dendro(verb).succeeds();
            }
        };
        mounted(&["mount", &copy, &place]);
        // Without the option nothing is kept.
        scratch.dendro(["receive", target, &cut]).fails(1, &["the rest of it is missing"]);
        assert_eq!(token(&scratch, target), None);
        let said = scratch.dendro(["receive", "--resumable", target, &cut]);
        let kept = token(&scratch, target).unwrap();
        said.fails(1, &["the rest of it is missing", "--resume", &kept]);
        assert!(names(&versions(&scratch, target), "snapshots").is_empty());
        assert_eq!(names(&versions(&scratch, target), "branches"), ["main"]);
        scratch.dendro(["receive", target, &file]).fails(1, &["a part", &kept, "--abort"]);
        // It stays over a mount, and a check finds nothing wrong.
        mounted(&["umount", &place]);
        scratch.dendro(["check", "--data", "-f", &copy]).succeeds();
        mounted(&["mount", &copy, &place]);
        assert_eq!(token(&scratch, target).as_ref(), Some(&kept));
        if is_mounted {
            scratch.dendro(["receive", "--abort", target]).succeeds();
            assert_eq!(token(&scratch, target), None);
            scratch.dendro(["receive", "--resumable", target, &cut]).fails(1, &["--resume"]);
        }
        // The rest is a third of it, and what one frame has.
        let rest = scratch.text(&format!("rest-{is_mounted}"));
        let send = ["send", "--json", "--resume", &kept, "-o", &rest, &mount];
        let info: Value = serde_json::from_str(&scratch.dendro(send).succeeds().out).unwrap();
        assert_eq!(info["rest"], true);
        let len = fs::metadata(&rest).unwrap().len();
        assert!(len < stream.len() as u64 / 3 + (2 << 20), "{len}");
        let other = mkfs(&scratch, &format!("other-{is_mounted}"));
        scratch.dendro(["receive", &other, &rest]).fails(1, &["what came before it is not here"]);
        scratch.dendro(["receive", target, &rest]).succeeds();
        assert_eq!(token(&scratch, target), None);
        mounted(&["umount", &place]);
        assert!(tree_of(&scratch, &copy, "a") == expected);
        scratch.dendro(["check", "--data", "-f", &copy]).succeeds();
        scratch.dendro(["snapshot", "delete", &format!("{copy}@a")]).succeeds();
    }
    let wrong = |token: &str, parts: &[&str]| {
        let file = scratch.text("wrong");
        scratch.dendro(["send", "--resume", token, "-o", &file, &mount]).fails(1, parts);
        assert!(!scratch.path("wrong").exists());
    };
    wrong("d1", &["no token"]);
    scratch.dendro(["receive", "--resumable", &copy, &cut]).fails(1, &["--resume"]);
    let kept = token(&scratch, &copy).unwrap();
    scratch.dendro(["snapshot", "delete", &format!("{mount}@a")]).succeeds();
    wrong(&kept, &["the token names", "is not here"]);
}

#[test]
fn a_daemon_that_is_killed_while_it_receives_goes_on_where_it_was() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    prepare(&scratch);
    let mount = scratch.mount_point();
    let stream = fs::read(sent(&scratch, &mount, "a", None)).unwrap();
    let expected = tree_of(&scratch, &scratch.image(), "a");
    let copy = mkfs(&scratch, "copy");
    let place = scratch.text("place");
    fs::create_dir(&place).unwrap();
    let mut kept = None;
    for part in 1..6 {
        scratch.dendro(["mount", &copy, &place]).succeeds();
        assert_eq!(token(&scratch, &place), kept);
        let info = scratch.info(&place);
        let stream = match &kept {
            None => stream.clone(),
            Some(token) => {
                let rest = scratch.text(&format!("rest-{part}"));
                scratch.dendro(["send", "--resume", token, "-o", &rest, &mount]).succeeds();
                fs::read(rest).unwrap()
            }
        };
        let mut receiver = scratch.command(["-q", "receive", "-s", &place]);
        receiver.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut receiver = receiver.spawn().unwrap();
        let mut pipe = receiver.stdin.take().unwrap();
        pipe.write_all(&stream[..stream.len() * part / 6]).unwrap();
        wait_until("it is being received", || token(&scratch, &place).is_some());
        scratch.dendro(["sync", &place]).succeeds();
        let pid = u32::try_from(info["mount"]["pid"].as_u64().unwrap()).unwrap();
        crate::common::signal(pid, "KILL");
        drop(pipe);
        assert_ne!(said(receiver.wait_with_output().unwrap()).code, Some(0));
        scratch.dendro(["umount", "--force", &place]).succeeds();
        scratch.dendro(["check", "--data", "-f", &copy]).succeeds();
        kept = token(&scratch, &copy);
        assert!(kept.is_some(), "{part}");
        assert!(names(&versions(&scratch, &copy), "snapshots").is_empty());
    }
    let rest = scratch.text("rest");
    scratch.dendro(["send", "--resume", &kept.unwrap(), "-o", &rest, &mount]).succeeds();
    scratch.dendro(["receive", &copy, &rest]).succeeds();
    assert!(tree_of(&scratch, &copy, "a") == expected);
    scratch.dendro(["check", "--data", "-f", &copy]).succeeds();
}
