//! What users are told: it names the thing, says why, and what to do.

use std::fs::{self, File};

use crate::common::{Said, Scratch, skips_mounts};

/// Asserts that it failed with `code`, in these words behind the command's name.
#[track_caller]
fn says(said: Said, code: i32, message: &str) {
    assert_eq!(said.code, Some(code), "{said:?}");
    assert_eq!(said.err, format!("dendro: {message}\n"));
}

#[test]
fn what_needs_a_mount_says_how_to_have_one() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let message = format!("{image}: is not mounted; `dendro mount {image} DIRECTORY` mounts it");
    for command in [&["sync"][..], &["stat"], &["set"], &["clean", "status"], &["clean", "run"]] {
        let arguments = command.iter().copied().chain([&*image]);
        says(scratch.dendro(arguments), 1, &message);
    }
}

#[test]
fn what_is_about_the_whole_volume_takes_no_version() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    for version in ["@one", ":main", ":main@-1h"] {
        let named = format!("{image}{version}");
        let advice = format!("name {image}, without a version");
        for command in ["info", "stat", "sync", "segments"] {
            let said = scratch.dendro([command, &named]);
            said.fails(1, &[&named, "No such file or directory; this is", &advice]);
        }
        scratch.dendro(["usage", &named]).fails(2, &[&named, "the whole volume", &advice]);
        scratch.dendro(["forks", &named]).fails(2, &[&named, "the whole volume", &advice]);
    }
    let moment = format!("{image}@one");
    let list = scratch.dendro(["snapshot", "list", &moment]);
    list.fails(2, &[&moment, &format!("{image}:BRANCH"), "name no moment"]);
    scratch.dendro(["snapshot", "list", &format!("{image}:main")]).succeeds();
    // What is not there at all is not there.
    let nowhere = scratch.text("nowhere");
    says(scratch.dendro(["info", &nowhere]), 1, &format!("{nowhere}: No such file or directory"));
}

#[test]
fn files_of_a_volume_that_is_not_mounted_are_named_from_its_root() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    for command in ["history", "undelete"] {
        says(
            scratch.dendro([command, &image]),
            2,
            &format!("{image}: is the volume itself; name a path in it: --volume {image} /PATH"),
        );
        let other = scratch.text("mnt/file");
        let said = scratch.dendro([command, &other]);
        said.fails(1, &[&other, "lies in no dendrofs mount", "--volume IMAGE /PATH"]);
    }
    says(
        scratch.dendro(["history", "--volume", &image, "/none"]),
        1,
        "/none: no version has it; `dendro undelete --list` of its directory lists what others do",
    );
    if skips_mounts() {
        return;
    }
    scratch.mount();
    let said = scratch.dendro(["history", &image]);
    said.fails(2, &[&image, "is the volume itself", &scratch.mount_point(), "--volume"]);
}

#[test]
fn what_is_compared_with_nothing_is_no_comparison() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    says(
        scratch.dendro(["diff", &image]),
        2,
        &format!("{image}: say what to compare it with, as in {image}@NAME or {image} TREE"),
    );
    let one = format!("{image}@one");
    scratch.dendro(["snapshot", "create", &one]).succeeds();
    // Of two, the one that is not there.
    let said = scratch.dendro(["diff", &format!("{image}@one..tow")]);
    said.fails(1, &[&image, "there is no snapshot called tow; there is one"]);
    let said = scratch.dendro(["diff", &one, "@tow"]);
    said.fails(1, &["there is no snapshot called tow; there is one"]);
    let said = scratch.dendro(["snapshot", "delete", &one, "@tow"]);
    said.fails(1, &["there is no snapshot called tow; there is one"]);
    scratch.dendro(["drop", &format!("{image}:tow")]).fails(1, &[":tow", "`dendro forks` lists"]);
    scratch.dendro(["promote", &one]).fails(2, &[&one, &format!("{image}:BRANCH")]);
    let past = scratch.dendro(["snapshot", "create", &format!("{image}:main@one")]);
    past.fails(1, &["called 'one' already"]);
}

#[test]
fn a_time_before_anything_was_kept_says_how_to_keep_something() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let keeping = ["nothing was kept of -1m", "`dendro snapshot create`", "-o retain="];
    scratch.dendro(["clone", &format!("{image}@-1m"), "x"]).fails(1, &keeping);
    scratch.dendro(["mount", "-o", "at=-1m", &image, &scratch.mount_point()]).fails(32, &keeping);
    if skips_mounts() {
        return;
    }
    scratch.mount();
    let then = scratch.inside(".dendro/at/-1m");
    assert_eq!(fs::metadata(&then).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let then = then.to_str().unwrap();
    let said = scratch.dendro(["info", then]);
    said.fails(1, &[then, "nothing was kept of that time", "`dendro snapshot create`"]);
}

#[test]
fn what_is_no_volume_is_no_small_one() {
    let scratch = Scratch::new();
    let said = scratch.dendro(["info", "/etc/passwd"]);
    said.fails(1, &["/etc/passwd", "is no dendrofs volume"]);
}

#[test]
fn open_files_are_named_once_and_so_is_where_they_are() {
    if skips_mounts() || !crate::common::is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    fs::write(scratch.inside("file"), "x").unwrap();
    let one = format!("{mount}@one");
    scratch.dendro(["snapshot", "create", &one]).succeeds();
    fs::write(scratch.inside("other"), "x").unwrap();
    let held = File::open(scratch.inside("file")).unwrap();
    let said = scratch.dendro(["rollback", &one]);
    let start = format!("dendro: {mount}: files are open: {mount}/file by process ");
    assert!(said.err.starts_with(&start), "{said:?}");
    said.fails(1, &["close them first, or use --force"]);
    drop(held);
}

#[test]
fn versions_are_called_by_the_names_that_users_gave_them() {
    if skips_mounts() || !crate::common::is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    fs::create_dir(scratch.inside("dir")).unwrap();
    fs::write(scratch.inside("dir/file"), "x").unwrap();
    scratch.dendro(["snapshot", "create", &format!("{mount}@one")]).succeeds();
    let past = scratch.text("past");
    fs::create_dir(&past).unwrap();
    scratch.dendro(["mount", "-o", "snapshot=one", &scratch.image(), &past]).succeeds();
    let said = scratch.dendro(["snapshot", "create", &format!("{past}@two")]);
    said.fails(1, &["@one is past; name a branch"]);
    let said = scratch.dendro(["undelete", &format!("{past}/gone")]);
    said.fails(1, &["@one is past, and nothing can be put there"]);
    fs::write(scratch.inside("new"), "x").unwrap();
    fs::remove_file(scratch.inside("new")).unwrap();
    let new = scratch.inside("new");
    let said = scratch.dendro(["undelete", "--from", "one", new.to_str().unwrap()]);
    said.fails(1, &["/new: @one does not have it"]);

    // What a directory had is asked of directories.
    let list = |name: &str| {
        let path = scratch.inside(name);
        scratch.dendro(["undelete", "--list", path.to_str().unwrap()])
    };
    list("dir/file").fails(1, &["/dir/file", "is no directory", "`dendro history`"]);
    list("nowhere").fails(1, &["/nowhere", "there is no such directory, and no snapshot has one"]);
    let all = list("dir").succeeds();
    assert_eq!(all.out, "");
    assert!(all.err.contains("/dir: everything that snapshots have of it is there"), "{all:?}");
}

#[test]
fn what_a_try_cannot_work_on_is_said_with_what_to_do() {
    if skips_mounts() || !crate::common::is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    let said = scratch.dendro(["try", "-o", "clone=x", &mount, "--", "true"]);
    said.fails(125, &["COMMAND works on a clone", "leave clone=, snapshot=, at= and ro out"]);
    scratch.dendro(["snapshot", "create", &format!("{mount}@one")]).succeeds();
    let past = scratch.text("past");
    fs::create_dir(&past).unwrap();
    scratch.dendro(["mount", "-o", "snapshot=one", &scratch.image(), &past]).succeeds();
    let said = scratch.dendro(["try", &past, "--", "true"]);
    said.fails(125, &[&past, "shows the past", "the mount of a branch"]);
    let said = scratch.dendro(["diff", &format!("{mount}@one..one"), "@one"]);
    said.fails(2, &["@one..one", "two ends already", "leave @one out"]);
    let said = scratch.dendro(["set", &mount, "bogus"]);
    said.fails(1, &["unknown mount option bogus", "`dendro set --help` lists"]);
}
