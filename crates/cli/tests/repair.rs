//! `dendro check -y`: files are mended, and how it was before stays.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod common;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use common::{Scratch, harm, harm_a_count, skips_mounts};
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
    let mending = "-y, for 215: gives it the name that another version has, or one in /lost+found";
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
    // It is not stuck: a second try says the same, and what was done is no worse.
    scratch.dendro(["check", "-y", &image]).fails(8, &["the repair ended early"]);
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
