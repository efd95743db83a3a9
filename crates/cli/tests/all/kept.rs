//! What a command takes away is kept, and comes back.

use std::fs::{self, File};
use std::io::Write;

use crate::common::{Scratch, skips_mounts};
use serde_json::Value;

fn snapshot(scratch: &Scratch, name: &str) {
    let target = format!("{}@{name}", scratch.mount_point());
    scratch.dendro(["snapshot", "create", &target]).succeeds();
}

fn read(scratch: &Scratch, name: &str) -> String {
    fs::read_to_string(scratch.inside(name)).unwrap()
}

/// The name that stands behind `kept as ` in what a command said.
fn kept_name(out: &str) -> &str {
    let behind = out.split("kept as @").nth(1).unwrap_or_else(|| panic!("nothing kept: {out}"));
    behind.split_whitespace().next().unwrap()
}

fn json(out: &str) -> Value {
    serde_json::from_str(out).unwrap()
}

#[test]
fn a_rollback_keeps_what_was_written_since() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    fs::write(scratch.inside("file"), "one").unwrap();
    snapshot(&scratch, "one");
    fs::write(scratch.inside("file"), "two").unwrap();
    fs::write(scratch.inside("new"), "since").unwrap();
    let to_one = format!("{mount}@one");
    let said = scratch.dendro(["rollback", &to_one]).succeeds();
    assert!(said.out.starts_with("the main branch, main, is as it was at @one; "), "{said:?}");
    let name = kept_name(&said.out).to_owned();
    assert!(name.starts_with("before-rollback-20"), "{name}");
    for advice in [
        format!("dendro rollback --undo {mount} "),
        format!("dendro snapshot delete {mount}@{name} "),
    ] {
        assert!(said.out.contains(&advice), "no {advice} in {said:?}");
    }
    assert_eq!(read(&scratch, "file"), "one");
    assert!(!scratch.inside("new").exists());
    // It can be read at once, by any program, and after a crash.
    scratch.kill_daemon();
    scratch.mount();
    assert_eq!(read(&scratch, &format!(".dendro/snapshots/{name}/new")), "since");
    let list = scratch.dendro(["snapshot", "list", &mount]).succeeds().out;
    let line = list.lines().find(|line| line.contains(&name)).unwrap();
    assert!(line.ends_with(" main"), "{line}");
    let of_one = scratch.dendro(["rollback", &format!("{mount}@{name}")]);
    of_one.fails(1, &["not in the past of :main", "--undo"]);
    fs::write(scratch.inside("file"), "three").unwrap();
    let undone = scratch.dendro(["rollback", "--undo", "--json", &mount]).succeeds();
    let undone = json(&undone.out);
    assert_eq!(undone["replaced"]["like"], format!("@{name}"));
    let second = undone["replaced"]["kept"]["name"].as_str().unwrap();
    assert!(second.starts_with("before-undo-20"), "{undone}");
    assert_eq!((&*read(&scratch, "file"), &*read(&scratch, "new")), ("two", "since"));
    // Also where nobody has it mounted.
    scratch.umount();
    let image = scratch.image();
    scratch.dendro(["rollback", "--undo", &format!("{image}@{second}")]).succeeds();
    scratch.mount();
    assert_eq!(read(&scratch, "file"), "three");
    let thrown = scratch.dendro(["rollback", "--discard", &to_one]).succeeds();
    assert!(thrown.out.contains("was thrown away"), "{thrown:?}");
    assert_eq!(read(&scratch, "file"), "one");
    let again = scratch.dendro(["rollback", &to_one]).succeeds();
    assert!(again.out.contains("it was so before"), "{again:?}");
    assert_eq!(scratch.dendro(["-q", "rollback", &to_one]).succeeds().out, "");
    scratch.umount();
}

#[test]
fn a_promotion_says_what_it_replaced_and_how_to_take_it_back() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    fs::write(scratch.inside("file"), "one").unwrap();
    scratch.dendro(["clone", &mount, "b"]).succeeds();
    fs::write(scratch.inside("file"), "two").unwrap();
    let said = scratch.dendro(["promote", &format!("{mount}:b")]).succeeds();
    assert!(said.out.contains("what was the main branch is kept as :b\n"), "{said:?}");
    assert_eq!(read(&scratch, "file"), "one");
    let back = format!("{mount}:b");
    assert!(said.out.contains(&format!("dendro promote {back} ")), "{said:?}");
    let kept = json(&scratch.dendro(["promote", "--json", &back]).succeeds().out);
    assert_eq!(kept["replaced"]["kept"]["name"], "b");
    assert_eq!(read(&scratch, "file"), "two");
    scratch.dendro(["promote", "--discard", &back]).succeeds();
    assert_eq!(read(&scratch, "file"), "one");
    let list = scratch.dendro(["snapshot", "list", &mount]).succeeds().out;
    assert!(!list.contains(":b"), "{list}");
    scratch.umount();
}

#[test]
fn with_force_files_may_be_open_and_it_is_told_whose_they_are() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    fs::write(scratch.inside("file"), "one").unwrap();
    snapshot(&scratch, "one");
    scratch.dendro(["clone", &mount, "b"]).succeeds();
    fs::write(scratch.inside("file"), "two, and longer").unwrap();
    fs::write(scratch.inside("new"), "since").unwrap();
    let mut open = File::options().append(true).open(scratch.inside("file")).unwrap();
    let mut gone = File::options().append(true).open(scratch.inside("new")).unwrap();
    let own = format!("by process {} (", std::process::id());
    let user = if crate::common::is_root() { " of root)" } else { ")" };
    let one = format!("{mount}@one");
    let refused = scratch.dendro(["rollback", &one]);
    refused.fails(1, &["files are open", &own, user, "close them first, or use --force"]);
    let b = format!("{mount}:b");
    scratch.dendro(["promote", &b]).fails(1, &["files are open", &own, "--force"]);
    let said = scratch.dendro(["rollback", "--force", "--json", &one]).succeeds();
    let files = &json(&said.out)["replaced"]["open_files"];
    assert!(files.as_array().unwrap().iter().any(|of| of["pid"] == std::process::id()), "{files}");
    assert_eq!(read(&scratch, "file"), "one");
    // What is there now goes on, what is not says so.
    open.write_all(b" more").unwrap();
    assert_eq!(read(&scratch, "file"), "one more");
    assert_eq!(gone.write_all(b"x").unwrap_err().raw_os_error(), Some(116), "ESTALE");
    let said = scratch.dendro(["promote", "-f", &b]).succeeds();
    assert!(said.out.contains("files were open there:") && said.out.contains(&own), "{said:?}");
    assert_eq!(read(&scratch, "file"), "one");
    drop((open, gone));
    scratch.umount();
}

#[test]
fn on_a_full_volume_it_is_said_what_can_be_done() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    fs::write(scratch.inside("file"), "one").unwrap();
    snapshot(&scratch, "one");
    let mut number = 0;
    // With smaller and smaller pieces, so that nothing fits any more.
    for len in [1 << 20, 4096, 100] {
        let fits = |number| fs::write(scratch.inside(&format!("f{number}")), vec![7; len]).is_ok();
        while fits(number) {
            number += 1;
        }
    }
    let one = format!("{mount}@one");
    let said = scratch.dendro(["rollback", &one]);
    if said.code == Some(0) {
        assert!(said.out.contains("dendro snapshot delete"), "how to get room: {said:?}");
        let name = kept_name(&said.out).to_owned();
        assert_eq!(read(&scratch, "file"), "one");
        scratch.dendro(["snapshot", "delete", &format!("{mount}@{name}")]).succeeds();
    } else {
        said.fails(1, &["there is no room to keep", "--discard"]);
        assert!(scratch.inside("f0").exists(), "nothing was done");
        let thrown = scratch.dendro(["rollback", "--discard", &one]).succeeds();
        assert!(thrown.out.contains("was thrown away"), "{thrown:?}");
    }
    assert_eq!(read(&scratch, "file"), "one");
    assert!(!scratch.inside("f0").exists());
    crate::common::wait_until("there is room again", || {
        fs::write(scratch.inside("again"), vec![1; 8 << 20]).is_ok()
    });
    scratch.umount();
}
