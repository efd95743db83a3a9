//! `dendro replicate`: a standby is like the source at one moment, whatever interrupts it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use crate::common::{Scratch, said, signal, skips_mounts, wait_until};
use crate::receive::{mkfs, tree, tree_of};
use serde_json::Value;

fn names(scratch: &Scratch, target: &str) -> Vec<String> {
    let out = scratch.dendro(["snapshot", "list", "--json", target]).succeeds().out;
    let listed: Value = serde_json::from_str(&out).unwrap();
    let all = listed["snapshots"].as_array().unwrap().iter();
    all.map(|of| of["name"].as_str().unwrap_or("-").to_owned()).collect()
}

fn once(scratch: &Scratch, arguments: &[&str]) -> Value {
    let all = [&["replicate", "--once", "--json"], arguments].concat();
    serde_json::from_str(&scratch.dendro(all).succeeds().out).unwrap()
}

/// What stands for ssh: runs the command line here, unless the file `broken` exists.
fn rsh(scratch: &Scratch) -> String {
    let path = scratch.path("rsh");
    let broken = scratch.text("broken");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = somewhere ] || exit 9\n[ -e {broken} ] && {{ echo unreachable >&2; \
         exit 255; }}\nexec sh -c \"$2\"\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_standby_has_what_the_source_had_and_old_snapshots_go() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    let standby = mkfs(&scratch, "stand by");
    let mut last = String::new();
    for round in 0..3 {
        fs::write(scratch.inside(&format!("file-{round}")), vec![round; 50_000]).unwrap();
        // By turns here and on another machine.
        let remote = format!("somewhere:{standby}");
        let (rsh, dendro) = (rsh(&scratch), env!("CARGO_BIN_EXE_dendro"));
        let there = ["--rsh", &rsh, "--remote-dendro", dendro, &mount, &remote];
        let here = [&*mount, &*standby];
        let line = if round == 1 { once(&scratch, &there) } else { once(&scratch, &here) };
        assert_eq!(line["state"], "sent", "{line}");
        assert!(line["lag_ns"].as_u64().unwrap() < 60_000_000_000, "{line}");
        let bytes = line["stream_bytes"].as_u64().unwrap();
        assert!((50_000..70_000).contains(&bytes) || round == 0, "{line}");
        last = line["last_snapshot"].as_str().unwrap().to_owned();
        assert_eq!(names(&scratch, &standby), [&*last]);
        assert_eq!(names(&scratch, &mount), [&*last]);
        let expected = tree(&scratch.inside(""));
        assert_eq!(tree_of(&scratch, &standby, &last), expected);
    }
    // Nothing has changed.
    let line = once(&scratch, &[&mount, &standby]);
    assert_eq!((&line["state"], &line["stream_bytes"]), (&"unchanged".into(), &0.into()));
    assert_eq!(line["last_snapshot"], *last);
    // What is held, or has another name, stays; and with a rule also what that keeps.
    scratch.dendro(["snapshot", "hold", &format!("{standby}@{last}")]).succeeds();
    scratch.dendro(["snapshot", "create", &format!("{standby}@own")]).succeeds();
    for round in 3..5 {
        fs::write(scratch.inside("file"), vec![round; 50_000]).unwrap();
        let line = once(&scratch, &["--keep", "1h:all", &mount, &standby]);
        assert_eq!(line["state"], "sent", "{line}");
    }
    assert_eq!(names(&scratch, &standby).len(), 4);
    fs::write(scratch.inside("file"), "last").unwrap();
    once(&scratch, &[&mount, &standby]);
    let left = names(&scratch, &standby);
    assert!(
        left.len() == 3 && left.contains(&last) && left.contains(&"own".to_owned()),
        "{left:?}"
    );
    // The standby takes over.
    let newest = names(&scratch, &mount).pop().unwrap();
    scratch.dendro(["clone", &format!("{standby}@{newest}"), "live"]).succeeds();
    scratch.dendro(["promote", &format!("{standby}:live")]).succeeds();
    scratch.dendro(["check", "--data", &standby]).succeeds();
    scratch.dendro(["replicate", "--once", &mount, &mount]).fails(2, &["the volume itself"]);
    let nowhere = scratch.text("nowhere");
    scratch.dendro(["replicate", "--once", &mount, &nowhere]).fails(1, &["nowhere"]);
    scratch.dendro(["replicate", "--once", &format!("{mount}:b"), &standby]).fails(1, &["b"]);
}

/// The lines that a replication has printed so far.
fn lines(scratch: &Scratch) -> Vec<Value> {
    let text = fs::read_to_string(scratch.path("lines")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn begin(scratch: &Scratch, standby: &str) -> Child {
    let out = fs::File::create(scratch.path("lines")).unwrap();
    let rsh = rsh(scratch);
    let dendro = env!("CARGO_BIN_EXE_dendro");
    let standby = format!("somewhere:{standby}");
    let mut command = scratch.command(["replicate", "--json", "--every", "200ms"]);
    command.args(["--rsh", &rsh, "--remote-dendro", dendro, &scratch.mount_point(), &standby]);
    command.stdout(out).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn replication_goes_on_after_failures_and_ends_with_a_signal() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let standby = mkfs(&scratch, "standby");
    let child = begin(&scratch, &standby);
    let sent_count = || {
        let lines = lines(&scratch);
        lines.iter().filter(|line| line["state"] == "sent").count()
    };
    fs::write(scratch.inside("a"), "a").unwrap();
    wait_until("it was sent", || sent_count() >= 1);
    let broken = scratch.path("broken");
    fs::write(&broken, "").unwrap();
    fs::write(scratch.inside("b"), "b").unwrap();
    wait_until("a failure is told", || {
        lines(&scratch).iter().any(|line| {
            line["state"] == "failed" && line["problem"].as_str().unwrap().contains("unreachable")
        })
    });
    let count = sent_count();
    fs::remove_file(&broken).unwrap();
    wait_until("it goes on", || sent_count() > count);
    // timeout(1) passes it on.
    signal(child.id(), "TERM");
    let ended = said(child.wait_with_output().unwrap()).succeeds();
    assert!(ended.err.contains("ended; it has @replica-"), "{ended:?}");
    // What had broken off before is sent to its end first.
    let last = names(&scratch, &standby).pop().unwrap();
    assert_eq!(tree_of(&scratch, &standby, &last).len(), 3);
    scratch.dendro(["check", "--data", &standby]).succeeds();
}

#[test]
fn what_broke_off_is_sent_to_its_end_or_given_up() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    let standby = mkfs(&scratch, "standby");
    fs::write(scratch.inside("a"), vec![7; 3 << 20]).unwrap();
    once(&scratch, &[&mount, &standby]);
    let base = names(&scratch, &mount).pop().unwrap();
    let name = format!("{}9999-01-01T00.00.00.000Z", &base[..base.len() - 24]);
    fs::write(scratch.inside("b"), vec![8; 3 << 20]).unwrap();
    scratch.dendro(["snapshot", "create", &format!("{mount}@{name}")]).succeeds();
    let file = scratch.text("stream");
    let cut_off = |base: &str, of: &str| {
        let (from, of) = (format!("@{base}"), format!("{mount}@{of}"));
        let _ = fs::remove_file(&file);
        scratch.dendro(["send", "--from", &from, "-o", &file, &of]).succeeds();
        let stream = fs::read(&file).unwrap();
        fs::write(&file, &stream[..stream.len() / 2]).unwrap();
        scratch.dendro(["receive", "--resumable", &standby, &file]).fails(1, &["--resume"]);
    };
    cut_off(&base, &name);
    let line = once(&scratch, &[&mount, &standby]);
    // The rest, and then nothing more: the source is as in that snapshot.
    assert_eq!((&line["state"], &line["last_snapshot"]), (&"sent".into(), &name.as_str().into()));
    assert!(line["stream_bytes"].as_u64().unwrap() < 5 << 20);
    // A snapshot that the source has no more cannot be gone on with.
    let later = name.replace("9999", "9998");
    fs::write(scratch.inside("c"), vec![9; 3 << 20]).unwrap();
    scratch.dendro(["snapshot", "create", &format!("{mount}@{later}")]).succeeds();
    cut_off(&name, &later);
    scratch.dendro(["snapshot", "delete", &format!("{mount}@{later}")]).succeeds();
    let line = once(&scratch, &[&mount, &standby]);
    assert_eq!(line["state"], "sent");
    assert!(line["stream_bytes"].as_u64().unwrap() < 4 << 20, "only what changed: {line}");
    let last = line["last_snapshot"].as_str().unwrap();
    assert_eq!(names(&scratch, &standby), [last]);
    assert_eq!(tree_of(&scratch, &standby, last), tree(&scratch.inside("")));
    scratch.dendro(["check", "--data", &standby]).succeeds();
}
