//! `dendro try`: all of what a command does, or nothing.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use crate::common::{Said, Scratch, said, signal, skips_mounts, wait_until};

fn with_files() -> Option<Scratch> {
    if skips_mounts() || !crate::common::is_root() {
        return None;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::create_dir(scratch.inside("dir")).unwrap();
    for name in ["one", "two"] {
        fs::write(scratch.inside(&format!("dir/{name}")), name).unwrap();
    }
    Some(scratch)
}

/// Tries a script in the directory `dir` of the mount.
fn try_script(scratch: &Scratch, options: &[&str], script: &str) -> Said {
    let command = ["--", "sh", "-ec", script];
    let arguments = ["try"].iter().chain(options).chain(&command);
    let mut command = scratch.command(arguments);
    said(command.current_dir(scratch.inside("dir")).output().unwrap())
}

/// The names of all branches and snapshots, but for those that keep how it was before a try.
fn versions(scratch: &Scratch) -> Vec<String> {
    let list = scratch.dendro(["snapshot", "list", &scratch.mount_point()]).succeeds().out;
    let names = list.lines().skip(1).map(|line| line.split(' ').next().unwrap().to_owned());
    names.filter(|name| !name.starts_with("@before-")).collect()
}

/// The names of those.
fn all_kept(scratch: &Scratch) -> Vec<String> {
    let list = scratch.dendro(["snapshot", "list", &scratch.mount_point()]).succeeds().out;
    assert!(!list.contains("(gone)"), "{list}");
    let names = list.lines().map(|line| line.split(' ').next().unwrap().to_owned());
    names.filter(|name| name.starts_with("@before-")).collect()
}

fn read(scratch: &Scratch, name: &str) -> String {
    fs::read_to_string(scratch.inside(name)).unwrap()
}

#[test]
fn a_command_that_succeeds_changes_all_at_once_and_one_that_fails_nothing() {
    let Some(scratch) = with_files() else { return };
    assert!(!scratch.inside("dir/three").exists());
    let script = "pwd; cat one; echo 1 > one; mv two three; echo said >&2";
    let said = try_script(&scratch, &[], script).succeeds();
    assert_eq!(said.out, format!("{}/dir\none", scratch.mount_point()));
    let mut told = said.err.lines();
    assert_eq!(told.next(), Some("said"));
    let told = told.next().unwrap().to_owned();
    assert!(told.contains("kept as @before-try-") && told.contains("rollback --undo"), "{told}");
    assert_eq!(read(&scratch, "dir/one"), "1\n");
    assert_eq!(read(&scratch, "dir/three"), "two");
    assert!(!scratch.inside("dir/two").exists());
    assert_eq!(versions(&scratch), [":main"]);
    try_script(&scratch, &[], "rm one three; exit 7").fails(7, &["exit status 7", "nothing"]);
    try_script(&scratch, &[], "echo 2 > one; kill -TERM $$").fails(143, &["nothing"]);
    let mut absent = scratch.command(["try", &scratch.mount_point(), "--", "/absent"]);
    said_fails(absent.output().unwrap(), 127, "/absent");
    assert_eq!(read(&scratch, "dir/one"), "1\n");
    assert_eq!(versions(&scratch), [":main"]);
    let json = try_script(&scratch, &["--json", "-q"], "echo 3 > one").succeeds().out;
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["outcome"], &report["exit_status"]), (&"committed".into(), &0.into()));
    // The last one is kept, by the name that was told.
    let name = report["kept"]["name"].as_str().unwrap();
    assert_eq!(all_kept(&scratch), [format!("@{name}")]);
    let before = scratch.inside(&format!(".dendro/snapshots/{name}/dir/one"));
    assert_eq!(fs::read_to_string(before).unwrap(), "1\n");
    // In a clone of a clone, as well.
    let dendro = env!("CARGO_BIN_EXE_dendro");
    let nested = format!("echo 4 > one; {dendro} try -- sh -c 'echo 5 > one'; cat one; exit 0");
    assert_eq!(try_script(&scratch, &[], &nested).succeeds().out, "5\n");
    assert_eq!(read(&scratch, "dir/one"), "5\n");
    scratch.umount();
    scratch.mount();
    assert_eq!(read(&scratch, "dir/one"), "5\n");
    assert_eq!(versions(&scratch), [":main"]);
    scratch.umount();
}

fn said_fails(output: std::process::Output, code: i32, part: &str) {
    said(output).fails(code, &[part]);
}

#[test]
fn what_others_changed_meanwhile_is_told_and_decided_about() {
    let Some(scratch) = with_files() else { return };
    let mount = scratch.mount_point();
    // Runs the script while `name` changes in the tree.
    let meanwhile = |options: &[&str], name: &str| {
        let script = "echo mine > one; touch /proc/self/fd/1; echo begun; read line";
        let command = ["--", "sh", "-ec", script];
        let arguments = ["try"].iter().chain(options).chain(&command);
        let mut command = scratch.command(arguments);
        command.current_dir(scratch.inside("dir")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut begun = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut begun).unwrap();
        assert_eq!(read(&scratch, "dir/one"), "one", "nobody else sees it");
        fs::write(scratch.inside(name), "theirs").unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
        said(child.wait_with_output().unwrap())
    };
    let kept = meanwhile(&["--name", "mine"], "other");
    let diff = format!("dendro diff {mount}@mine :mine");
    let kept = kept.fails(125, &["it has changed meanwhile", "+\t/other", &diff, "dendro promote"]);
    assert!(!kept.err.contains("/dir/one"), "{kept:?}");
    assert_eq!(versions(&scratch), [":main", ":mine", "@mine"]);
    let diff = scratch.dendro(["diff", &format!("{mount}@mine"), ":mine"]).succeeds();
    assert_eq!(diff.out, "M\t/dir/one\n");
    try_script(&scratch, &["--name", "mine"], "true").fails(125, &["mine"]);
    scratch.dendro(["snapshot", "delete", &format!("{mount}:mine"), "@mine"]).succeeds();
    meanwhile(&["--on-conflict", "discard"], "another").fails(125, &["thrown away"]);
    assert_eq!(versions(&scratch), [":main"]);
    assert_eq!(read(&scratch, "dir/one"), "one");
    let said = meanwhile(&["--on-conflict", "promote"], "third").succeeds();
    assert!(said.err.contains("kept as @before-promote-"), "{said:?}");
    assert_eq!(read(&scratch, "dir/one"), "mine\n");
    let name = all_kept(&scratch).pop().unwrap();
    let theirs = scratch.inside(&format!(".dendro/snapshots/{}/third", &name[1..]));
    assert_eq!(fs::read_to_string(theirs).unwrap(), "theirs");
    assert!(!scratch.inside("third").exists() && scratch.inside("another").exists());
    try_script(&scratch, &["--keep", "--name", "k"], "echo k > one").succeeds();
    assert_eq!(versions(&scratch), [":main", ":k", "@k"]);
    let writing = File::options().append(true).open(scratch.inside("dir/two")).unwrap();
    try_script(&scratch, &["--name", "w"], "rm two").fails(125, &["files are open", "/dir/two"]);
    // Where nothing was done, nothing is exchanged.
    let before = versions(&scratch);
    try_script(&scratch, &[], "true").succeeds();
    assert_eq!(versions(&scratch), before);
    drop(writing);
    scratch.dendro(["promote", &format!("{mount}:w")]).succeeds();
    assert!(!scratch.inside("dir/two").exists());
    scratch.umount();
}

#[test]
fn a_command_that_is_interrupted_leaves_nothing() {
    let Some(scratch) = with_files() else { return };
    let script = "echo x > one; echo begun; exec sleep 100";
    let mut command = scratch.command(["try", "--", "sh", "-c", script]);
    command.current_dir(scratch.inside("dir")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut begun = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut begun).unwrap();
    // The first child of `timeout` is what it runs.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let children = fs::read_to_string(children).unwrap();
    let tried: u32 = children.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(versions(&scratch).len(), 3);
    signal(tried, "TERM");
    assert_eq!(said(child.wait_with_output().unwrap()).code, Some(143));
    assert_eq!(versions(&scratch), [":main"]);
    assert_eq!(read(&scratch, "dir/one"), "one");
    // What it leaves behind keeps the tree from being changed behind its back.
    let left = "echo y > one; sleep 2 >/dev/null 2>&1 &";
    try_script(&scratch, &["--name", "left"], left).fails(125, &["left processes behind", "left"]);
    let delete = ["snapshot", "delete", &format!("{}:left", scratch.mount_point()), "@left"];
    wait_until("the process has ended", || scratch.dendro(delete).code == Some(0));
    scratch.umount();
}

#[test]
fn what_a_killed_try_leaves_is_shown_and_can_be_dropped() {
    let Some(scratch) = with_files() else { return };
    let script = "echo x > one; echo begun; exec sleep 100";
    let mut command = scratch.command(["try", "--", "sh", "-c", script]);
    command.current_dir(scratch.inside("dir")).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut begun = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut begun).unwrap();
    let child_of = |pid: u32| -> u32 {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.split(' ').next().unwrap().parse().unwrap()
    };
    let tried = child_of(child.id());
    let sleep = child_of(tried);
    signal(tried, "KILL");
    signal(sleep, "KILL");
    child.wait().unwrap();
    let mount = scratch.mount_point();
    let left = format!(":try-{tried}");
    wait_until("its mount is gone", || {
        let forks = scratch.dendro(["forks", &mount]).succeeds().out;
        forks.lines().any(|line| line.starts_with(&left) && line.ends_with("not mounted"))
    });
    // A crash does not take it away either, and nobody else does.
    scratch.kill_daemon();
    scratch.mount();
    assert_eq!(versions(&scratch).len(), 3);
    scratch.dendro(["drop", &format!("{mount}{left}")]).succeeds();
    assert_eq!(versions(&scratch), [":main"]);
    assert_eq!(read(&scratch, "dir/one"), "one");
    scratch.umount();
}

#[test]
fn what_cannot_be_tried_is_said() {
    let Some(scratch) = with_files() else { return };
    let mount = scratch.mount_point();
    let tried = |arguments: &[&str]| {
        let all = ["try"].iter().chain(arguments).chain(&["--", "true"]).copied();
        scratch.dendro(all.collect::<Vec<_>>())
    };
    tried(&["/"]).fails(125, &["/"]);
    tried(&[&scratch.image()]).fails(125, &["name a directory in the mount"]);
    tried(&["-o", "snapshot=x", &mount]).fails(125, &["leave clone="]);
    tried(&["-o", "bogus", &mount]).fails(125, &["bogus"]);
    tried(&["--name", "a/b", &mount]).fails(125, &["a/b"]);
    scratch.dendro(["snapshot", "create", &format!("{mount}@one")]).succeeds();
    scratch.umount();
    scratch.mount_with("snapshot=one");
    tried(&[&mount]).fails(125, &["shows the past"]);
    scratch.umount();
    scratch.mount_with("ro");
    tried(&[&mount]).fails(125, &["read-only"]);
    scratch.umount();
    assert!(Path::new(&scratch.image()).exists());
}
