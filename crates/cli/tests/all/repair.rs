//! `dendro check -y`: files are mended, and how it was before stays.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::common::{Scratch, harm, harm_a_count, skips_mounts};
use dendro_disk::{Lid, LogicalDisk};
use dendro_fs::Ino;
use dendro_fs::format::{DIR_BASE, HEAD_INDEX};

/// A volume with a directory, in it a file, and a snapshot that lacks a second file.
fn filled() -> Scratch {
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::create_dir(scratch.inside("dir")).unwrap();
    fs::write(scratch.inside("dir/file"), [b'x'; 9000]).unwrap();
    let one = format!("{}@one", scratch.mount_point());
    scratch.dendro(["snapshot", "create", &one]).succeeds();
    fs::write(scratch.inside("late"), "late").unwrap();
    scratch.umount();
    scratch
}

/// Takes away the i-node of the root directory and all entries in it.
fn clear_root(image: &str) {
    harm(image, |disk, aru| {
        let root = Lid(Ino::ROOT.0);
        aru.delete_record(root, HEAD_INDEX);
        for (index, _) in disk.records(aru.view(), root, DIR_BASE, 100).unwrap() {
            aru.delete_record(root, index);
        }
    });
}

#[test]
fn names_come_back_from_a_snapshot_or_are_in_lost_and_found_and_the_state_before_is_kept() {
    if skips_mounts() {
        return;
    }
    let scratch = filled();
    let image = scratch.image();
    clear_root(&image);
    let before = fs::read(&image).unwrap();
    let found = scratch.dendro(["check", "-n", &image]);
    assert_eq!(found.code, Some(4), "{found:?}");
    let mending = "-y, for 215: gives it the name that another version has, or its number as one";
    for part in ["error 202: ", "error 215: ", mending] {
        assert!(found.out.contains(part), "no {part} in {found:?}");
    }
    // That takes decisions.
    let preened = scratch.dendro(["check", "-p", "-f", &image]);
    assert_eq!(preened.code, Some(4), "{preened:?}");
    assert!(fs::read(&image).unwrap() == before, "something was changed");

    let mended = scratch.dendro(["check", "-y", "--json", &image]);
    assert_eq!(mended.code, Some(1), "{mended:?}");
    let json: serde_json::Value = serde_json::from_str(&mended.out).unwrap();
    assert_eq!(json["sound"], true, "{json}");
    let kept = json["before_repairs"][0].as_str().unwrap().to_owned();
    assert!(json["findings"].as_array().unwrap().iter().all(|of| of["mended"] == true), "{json}");
    let findings = json["findings"].as_array().unwrap();
    let is_of_root = |of: &&serde_json::Value| of["number"] == 215 && of["paths"][0] == "/";
    let told = findings.iter().find(is_of_root).unwrap()["detail"].as_str().unwrap();
    assert!(told.starts_with("files in this directory have lost their names, 1 of them"), "{told}");
    scratch.dendro(["check", "--data", &image]).succeeds();

    scratch.mount();
    assert_eq!(fs::read(scratch.inside("dir/file")).unwrap(), [b'x'; 9000]);
    let entries = fs::read_dir(scratch.inside("lost+found")).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(fs::read(&names[0]).unwrap(), b"late");
    let now = names[0].strip_prefix(scratch.inside("")).unwrap().to_str().unwrap();
    assert!(findings.iter().any(|of| of["paths"][0] == format!("/{now}")), "{now}: {json}");
    assert_eq!(fs::read(scratch.inside(".dendro/snapshots/one/dir/file")).unwrap(), [b'x'; 9000]);
    let versions = scratch.dendro(["snapshot", "list", &scratch.mount_point()]).succeeds();
    assert!(versions.out.contains(&kept), "{versions:?}");
    scratch.umount();
    scratch.dendro(["snapshot", "delete", &format!("{image}@{kept}")]).succeeds();
    let sound = scratch.dendro(["check", &image]).succeeds();
    assert!(!sound.out.contains("before a repair"), "{sound:?}");
}

#[test]
fn a_count_is_mended_at_boot_and_a_damaged_disk_is_left_alone() {
    if skips_mounts() {
        return;
    }
    let scratch = filled();
    let image = scratch.image();
    harm_a_count(&image);
    let found = scratch.dendro(["check", &image]);
    assert_eq!(found.code, Some(4), "{found:?}");
    assert!(found.out.contains("warning 210: ") && found.out.contains("in / (:main)"), "{found:?}");
    let preened = scratch.dendro(["check", "-p", "-f", &image]);
    assert_eq!(preened.code, Some(1), "{preened:?}");
    assert!(preened.out.contains("mended: warning 210: "), "{preened:?}");
    scratch.dendro(["check", "-p", "-f", &image]).succeeds();

    clear_root(&image);
    let nodes = scratch.dendro(["dump", "--json", &image, "nodes"]).succeeds().out;
    let root: serde_json::Value = serde_json::from_str(nodes.lines().next().unwrap()).unwrap();
    let at = root["node"]["place"]["offset"].as_u64().unwrap() + 100;
    let file = fs::File::options().read(true).write(true).open(&image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    let before = fs::read(&image).unwrap();
    let left = scratch.dendro(["check", "-y", &image]);
    assert_eq!(left.code, Some(4), "{left:?}");
    assert!(fs::read(&image).unwrap() == before, "a damaged disk was written to");
}

#[test]
fn what_snapshots_alone_have_is_told_apart_and_ends_with_them() {
    if skips_mounts() {
        return;
    }
    let scratch = filled();
    let image = scratch.image();
    harm_a_count(&image);
    scratch.dendro(["snapshot", "create", &format!("{image}@bad")]).succeeds();
    let check = |options: &[&str], code: i32| {
        let said = scratch.dendro(["check", "--json"].iter().chain(options).chain(&[&*image]));
        assert_eq!(said.code, Some(code), "{said:?}");
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap()
    };
    let found = check(&[], 4);
    assert_eq!((&found["sound"], &found["branches_sound"]), (&false.into(), &false.into()));

    // The head is mended, and the snapshot stays as it is.
    let mended = check(&["-y"], 1 | 4);
    assert_eq!((&mended["sound"], &mended["branches_sound"]), (&false.into(), &true.into()));
    assert_eq!(mended["before_repairs"].as_array().unwrap().len(), 1, "{mended}");
    let kept = mended["before_repairs"][0].as_str().unwrap().to_owned();
    let findings = mended["findings"].as_array().unwrap();
    let left: Vec<_> = findings.iter().filter(|of| of["mended"] == false).collect();
    assert_eq!(left.len(), 1, "{mended}");
    assert_eq!((&left[0]["number"], &left[0]["in_past"]), (&210.into(), &true.into()));
    assert_eq!(left[0]["found_in"], serde_json::json!(["@bad"]), "{mended}");
    // Another repair has nothing to do, and says which snapshot has it.
    let before = fs::read(&image).unwrap();
    let said = scratch.dendro(["check", "-y", &image]).fails(4, &[]).out;
    for part in ["is sound but for snapshots", "1 of these is in snapshots alone", "delete @bad\n"]
    {
        assert!(said.contains(part), "no {part} in {said}");
    }
    assert!(fs::read(&image).unwrap() == before, "something was changed");
    check(&["-p", "-f"], 0);

    // How it was before is read as ever.
    let file = scratch.dendro(["cat", &format!("{image}@{kept}"), "/dir/file"]).succeeds().out;
    assert_eq!(file.as_bytes(), [b'x'; 9000]);
    scratch.dendro(["snapshot", "delete", &format!("{image}@bad")]).succeeds();
    let sound = check(&[], 0);
    assert_eq!((&sound["sound"], &sound["branches_sound"]), (&true.into(), &true.into()));
    scratch.dendro(["snapshot", "delete", &format!("{image}@{kept}")]).succeeds();
    assert_eq!(check(&[], 0)["before_repairs"], serde_json::json!([]));
}

#[test]
fn a_repair_that_can_change_nothing_leaves_no_snapshot() {
    if skips_mounts() {
        return;
    }
    let scratch = filled();
    let image = scratch.image();
    // The list cannot be made again as long as the snapshot has it, and nothing has a name without.
    harm(&image, |_, aru| {
        aru.delete_list(Lid(Ino::ROOT.0));
    });
    let said = scratch.dendro(["check", "-y", "--json", &image]);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((report["sound"].clone(), said.code), (false.into(), Some(4)), "{said:?}");
    assert_eq!(report["before_repairs"], serde_json::json!([]), "{report}");
    let versions = scratch.dendro(["snapshot", "list", "--json", &image]).succeeds();
    assert!(before_repairs(&versions.out).is_empty(), "{versions:?}");
    // Going back is the way out.
    scratch.dendro(["rollback", &format!("{image}@one")]).succeeds();
    scratch.dendro(["cat", &image, "/dir/file"]).succeeds();
}

#[test]
fn the_snapshot_of_a_repair_that_was_killed_before_its_first_change_serves_the_next_one() {
    if skips_mounts() {
        return;
    }
    let scratch = filled();
    let image = scratch.image();
    clear_root(&image);
    let killed = "before-repair-20260102T030405";
    scratch.dendro(["snapshot", "create", &format!("{image}@{killed}")]).succeeds();
    assert_eq!(scratch.dendro(["check", "-y", &image]).code, Some(1));
    let kept = || {
        let said = scratch.dendro(["snapshot", "list", "--json", &image]).succeeds();
        before_repairs(&said.out)
    };
    assert_eq!(kept(), [killed]);
    // That one is needed now: the next repair makes another one.
    clear_root(&image);
    assert_eq!(scratch.dendro(["check", "-y", &image]).code, Some(1));
    assert_eq!(kept().len(), 2);
}

#[test]
fn progress_is_told_at_a_descriptor_as_e2fsck_does() {
    if skips_mounts() {
        return;
    }
    let scratch = filled();
    let image = scratch.image();
    let told = scratch.text("told");
    let script = format!("exec 3>{told}; \"$0\" check -C 3 {image}");
    let dendro = env!("CARGO_BIN_EXE_dendro");
    let status = std::process::Command::new("sh").args(["-c", &script, dendro]).status().unwrap();
    assert_eq!(status.code(), Some(0));
    let told = fs::read_to_string(told).unwrap();
    let mut last = (0, 0);
    for line in told.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [pass, done, of, device] = words[..] else { panic!("{line}") };
        let [pass, done, of]: [u64; 3] = [pass, done, of].map(|number| number.parse().unwrap());
        assert!((1..=5).contains(&pass) && done <= of && device == image, "{line}");
        assert!((pass, done) >= last, "{told}");
        last = (pass, done);
    }
    assert_eq!(last, (5, 1), "{told}");
    let closed = scratch.dendro(["check", "-C", "77", &image]);
    assert_eq!(closed.code, Some(16), "{closed:?}");
    scratch.dendro(["check", "-C", &image]).succeeds();
    scratch.dendro(["check", "--memory", "8M", &image]).succeeds();
    assert_eq!(scratch.dendro(["check", "--memory", "1M", &image]).code, Some(16));
}

#[test]
fn a_check_that_has_no_room_for_its_temporary_file_says_so() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    scratch.mkfs("256M");
    scratch.mount();
    // More than fit in the memory that is allowed below.
    for directory in 0..60 {
        fs::create_dir(scratch.inside(&format!("{directory}"))).unwrap();
        for number in 0..1000 {
            fs::File::create(scratch.inside(&format!("{directory}/{number}"))).unwrap();
        }
    }
    scratch.umount();
    let image = scratch.image();
    let before = fs::read(&image).unwrap();
    let check = |options: &[&str], directory: &std::path::Path| {
        let mut command = scratch.command(["check"].iter().chain(options).chain(&[&*image]));
        crate::common::said(command.env("TMPDIR", directory).output().unwrap())
    };
    let missing = scratch.path("missing");
    let little = ["--memory", "8M"];
    let advice = "set TMPDIR to a directory with more room, or allow more memory";
    check(&little, &missing).fails(8, &[&image, missing.to_str().unwrap(), advice]);
    check(&["--memory", "8M", "-y"], &missing).fails(8, &[advice]);
    // With more memory it needs none.
    check(&["--memory", "64M"], &missing).succeeds();
    fs::create_dir(&missing).unwrap();
    check(&little, &missing).succeeds();
    assert_eq!(fs::read_dir(&missing).unwrap().count(), 0, "something was left there");
    // A file system that is full.
    if crate::common::is_root() {
        let full = ["-t", "tmpfs", "-o", "size=64k", "none", missing.to_str().unwrap()];
        let mounted = std::process::Command::new("mount").args(full).status().unwrap();
        assert!(mounted.success());
        check(&little, &missing).fails(8, &[missing.to_str().unwrap(), "No space left", advice]);
    }
    assert!(fs::read(&image).unwrap() == before, "something was changed");
}

/// Writes until there is no room, and then less at a time.
fn fill_up(scratch: &Scratch) {
    for (number, len) in [1 << 20, 64 << 10, 4096, 1].into_iter().enumerate() {
        for part in 0.. {
            let name = scratch.inside(&format!("fill/{number}-{part}"));
            if fs::write(&name, vec![7; len]).is_err() {
                let _ = fs::remove_file(&name);
                break;
            }
        }
    }
}

#[test]
fn a_repair_on_a_full_volume_says_so_and_goes_on_once_there_is_room() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::create_dir(scratch.inside("dir")).unwrap();
    fs::create_dir(scratch.inside("fill")).unwrap();
    for number in 0..4000 {
        fs::write(scratch.inside(&format!("dir/file-{number}")), format!("{number}")).unwrap();
    }
    let dir = Lid(fs::metadata(scratch.inside("dir")).unwrap().ino());
    scratch.umount();
    // The files lose their names, and need new ones.
    harm(&scratch.image(), |disk, aru| {
        for (index, _) in disk.records(aru.view(), dir, DIR_BASE, 5000).unwrap() {
            aru.delete_record(dir, index);
        }
    });
    scratch.mount();
    fill_up(&scratch);
    scratch.umount();

    let image = scratch.image();
    scratch
        .dendro(["check", "-y", &image])
        .fails(8, &["the repair ended early", "no space left", "delete files"]);
    // It is not stuck: further tries say the same, and what was done is no worse. A try for which
    // there is no room at all leaves no snapshot.
    let kept = || {
        let said = scratch.dendro(["snapshot", "list", "--json", &image]).succeeds();
        before_repairs(&said.out)
    };
    let mut before = kept();
    let is_idle = (0..10).any(|_| {
        scratch.dendro(["check", "-y", &image]).fails(8, &["the repair ended early"]);
        std::mem::replace(&mut before, kept()) == before
    });
    assert!(is_idle, "each try leaves a snapshot: {before:?}");
    let left = scratch.dendro(["check", "--data", &image]);
    assert_eq!(left.code, Some(4), "{left:?}");
    assert!(left.out.contains("error 215: ") && !left.out.contains("error 207: "), "{left:?}");

    scratch.mount();
    fs::remove_dir_all(scratch.inside("fill")).unwrap();
    let versions = scratch.dendro(["snapshot", "list", "--json", &scratch.mount_point()]);
    scratch.umount();
    for name in before_repairs(&versions.succeeds().out) {
        scratch.dendro(["snapshot", "delete", &format!("{image}@{name}")]).succeeds();
    }
    assert_eq!(scratch.dendro(["check", "-y", &image]).code, Some(1));
    scratch.dendro(["check", "--data", &image]).succeeds();
    scratch.mount();
    let found = fs::read_dir(scratch.inside("lost+found")).unwrap();
    let mut contents: Vec<u32> = found
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap().parse().unwrap())
        .collect();
    contents.sort_unstable();
    assert!(contents == (0..4000).collect::<Vec<u32>>(), "{} files", contents.len());
    scratch.umount();
}

/// The snapshots that repairs have made.
fn before_repairs(json: &str) -> Vec<String> {
    let names = json.split('"').filter(|part| part.starts_with("before-repair-"));
    let names: std::collections::BTreeSet<&str> = names.collect();
    names.into_iter().map(str::to_owned).collect()
}
