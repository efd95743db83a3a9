//! Damage that is met on a real mount: told where it is, once, counted, and kept until it is taken
//! note of.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::Scratch;
use crate::common::pages::{PAGE, damage, page};
use serde_json::Value;

/// A volume with the file `dir/file` of 16 pages, in the snapshot `full`; not mounted.
fn volume() -> Option<Scratch> {
    if crate::common::skips_mounts() {
        return None;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::create_dir(scratch.inside("dir")).unwrap();
    let bytes: Vec<u8> = (0..16).flat_map(|number| page("file", number)).collect();
    fs::write(scratch.inside("dir/file"), bytes).unwrap();
    let full = format!("{}@full", scratch.mount_point());
    scratch.dendro(["snapshot", "create", &full]).succeeds();
    scratch.umount();
    Some(scratch)
}

fn told(scratch: &Scratch, target: &str) -> Value {
    let said = scratch.dendro(["damage", "--json", target]).succeeds();
    serde_json::from_str(&said.out).unwrap()
}

fn stat(scratch: &Scratch) -> Value {
    let said = scratch.dendro(["stat", "--json", &scratch.mount_point()]).succeeds();
    serde_json::from_str(&said.out).unwrap()
}

fn log(scratch: &Scratch) -> String {
    fs::read_to_string(scratch.path("log")).unwrap()
}

/// Reads a page of the file, which fails.
fn read(path: &Path, number: usize) {
    let file = File::open(path).unwrap();
    let error = file.read_exact_at(&mut [0; PAGE], (number * PAGE) as u64).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
}

#[test]
fn as_often_as_damage_was_met_it_is_kept() {
    let Some(scratch) = volume() else { return };
    damage(&scratch, "file", 3);
    scratch.mount();
    for _ in 0..5 {
        read(&scratch.inside("dir/file"), 3);
    }
    let met_count = || told(&scratch, &scratch.mount_point())["met_count"].as_u64().unwrap();
    crate::common::wait_until("the damage is counted", || met_count() >= 5);
    let met = met_count();
    // Right before it is unmounted.
    read(&scratch.inside("dir/file"), 3);
    scratch.umount();
    let kept = told(&scratch, &scratch.image())["met_count"].as_u64().unwrap();
    assert!(kept > met, "{kept} of {met} and more");
}

#[test]
fn damage_is_told_once_with_its_path_and_kept_until_it_is_taken_note_of() {
    let Some(scratch) = volume() else { return };
    damage(&scratch, "file", 3);
    scratch.mount();
    let mount = scratch.mount_point();
    assert_eq!(told(&scratch, &mount)["place_count"], 0);
    for _ in 0..3 {
        read(&scratch.inside("dir/file"), 3);
    }
    crate::common::wait_until("it is told", || log(&scratch).contains("damage: "));
    let place = told(&scratch, &mount)["places"][0].clone();
    assert_eq!((&place["path"], &place["version"]), (&"/dir/file".into(), &":main".into()));
    assert_eq!(place["offset_bytes"], 3 * PAGE as u64);
    assert!(place["problem"].as_str().unwrap().contains("checksum"), "{place}");
    let info = scratch.dendro(["info", &mount]).succeeds().out;
    assert!(info.contains("damage      1 place, met "), "{info}");
    let facts = stat(&scratch);
    assert_eq!(facts["damage_places"], 1, "{facts}");
    assert!(facts["damage_met"].as_u64().unwrap() >= 1 && !facts["damage_last_unix_ns"].is_null());
    crate::common::wait_until("each time counts", || {
        read(&scratch.inside("dir/file"), 3);
        told(&scratch, &mount)["met_count"].as_u64() > facts["damage_met"].as_u64()
    });
    let about_it = log(&scratch);
    let lines = about_it.lines().filter(|line| line.contains("checksum is wrong"));
    assert_eq!(lines.count(), 1, "{about_it}");

    // It is the volume's: over an end and the next mount, and without one.
    scratch.umount();
    let offline = told(&scratch, &scratch.image());
    assert_eq!(offline["places"][0]["path"], "/dir/file", "{offline}");
    let info = scratch.dendro(["info", &scratch.image()]).succeeds().out;
    assert!(info.contains("damage      1 place"), "{info}");
    scratch.mount();
    let before = told(&scratch, &mount);
    assert_eq!(before["places"][0]["first_unix_ns"], offline["places"][0]["first_unix_ns"]);
    // A rollback to before it was met does not lose it.
    scratch.dendro(["rollback", &format!("{mount}@full")]).succeeds();
    scratch.kill_daemon();
    scratch.mount();
    assert_eq!(told(&scratch, &mount)["place_count"], 1);
    // Until somebody has taken note, who is told once more.
    let cleared = scratch.dendro(["damage", "--clear", &mount]).succeeds().out;
    assert!(cleared.contains("/dir/file in :main, at byte 12288"), "{cleared}");
    assert_eq!(told(&scratch, &mount)["place_count"], 0);
    scratch.kill_daemon();
    assert_eq!(told(&scratch, &scratch.image())["place_count"], 0);
    scratch.mount();
    assert_eq!(stat(&scratch)["damage_places"], 0);
    // And then it is new.
    read(&scratch.inside("dir/file"), 3);
    crate::common::wait_until("it is told", || told(&scratch, &mount)["place_count"] == 1);
    scratch.umount();
    scratch.dendro(["damage", "--clear", &scratch.image()]).succeeds();
    assert_eq!(told(&scratch, &scratch.image())["place_count"], 0);
    scratch.dendro(["check", &scratch.image()]);
}

#[test]
fn damage_in_the_past_alone_is_told_of_its_version() {
    let Some(scratch) = volume() else { return };
    damage(&scratch, "file", 5);
    scratch.mount();
    fs::remove_file(scratch.inside("dir/file")).unwrap();
    read(&scratch.inside(".dendro/snapshots/full/dir/file"), 5);
    let mount = scratch.mount_point();
    crate::common::wait_until("it is told", || told(&scratch, &mount)["place_count"] == 1);
    let place = told(&scratch, &mount)["places"][0].clone();
    assert_eq!((&place["path"], &place["version"]), (&"/dir/file".into(), &"@full".into()));
}

/// What a command that prints JSON found, and the exit status.
fn found(scratch: &Scratch, arguments: &[&str]) -> (Value, Option<i32>) {
    let said = scratch.dendro(arguments);
    (serde_json::from_str(&said.out).unwrap(), said.code)
}

#[test]
fn damage_that_many_versions_share_is_named_with_the_first_and_the_last_of_them() {
    let Some(scratch) = volume() else { return };
    scratch.mount();
    let (mount, image) = (scratch.mount_point(), scratch.image());
    fs::rename(scratch.inside("dir/file"), scratch.inside("dir/new")).unwrap();
    for number in 0..20 {
        let name = format!("{mount}@later-{number}");
        scratch.dendro(["snapshot", "create", &name]).succeeds();
    }
    scratch.umount();
    damage(&scratch, "file", 3);
    let before = fs::read(&image).unwrap();
    let first = serde_json::json!({ "version": "@full", "path": "/dir/file" });
    let last = serde_json::json!({ "version": ":main", "path": "/dir/new" });
    let check = ["check", "--data", "--json", &image];
    let (report, code) = found(&scratch, &check);
    let finding = report["findings"][0].clone();
    assert_eq!((&finding["number"], code), (&32.into(), Some(4)), "{report}");
    assert_eq!((&finding["first"], &finding["last"]), (&first, &last), "{finding}");
    assert_eq!((&finding["version_count"], &finding["in_past"]), (&22.into(), &false.into()));
    assert_eq!(finding["found_in"].as_array().unwrap().len(), 16, "{finding}");
    let text = scratch.dendro(["check", "--data", &image]).fails(4, &[]).out;
    let versions = "22 versions, from @full, there /dir/file, to :main";
    assert!(text.contains(versions) && text.contains("that is in /dir/new"), "{text}");
    // What a scrub says, and what is kept of it.
    let (scrubbed, _) = found(&scratch, &["scrub", "start", "--wait", "--json", &image]);
    let place = scrubbed["places"][0].clone();
    assert_eq!((&place["first"], &place["last"]), (&first, &last), "{scrubbed}");
    assert_eq!(place["version_count"], 22);
    assert_eq!(fs::read(&image).unwrap(), before);

    // Without the head, it is of the past alone.
    scratch.mount();
    let _ = fs::read(scratch.inside("dir/new"));
    crate::common::wait_until("it is told", || told(&scratch, &mount)["place_count"] == 1);
    let place = told(&scratch, &mount)["places"][0].clone();
    assert_eq!((&place["first"], &place["last"]), (&first, &last), "{place}");
    let text = scratch.dendro(["damage", &mount]).succeeds().out;
    assert!(text.contains(versions), "{text}");
    fs::remove_file(scratch.inside("dir/new")).unwrap();
    scratch.umount();
    let (report, code) = found(&scratch, &check);
    let finding = report["findings"][0].clone();
    assert_eq!((&finding["in_past"], code), (&true.into(), Some(4)), "{report}");
    assert_eq!(finding["last"]["version"], "@later-19", "{finding}");
    assert_eq!(finding["paths"][0], "@later-19/dir/new", "{finding}");
    scratch.dendro(["check", "-p", "-f", "--data", &image]).succeeds();
    // And it ends with those versions.
    for number in 0..20 {
        let name = format!("{image}@later-{number}");
        scratch.dendro(["snapshot", "delete", &name]).succeeds();
    }
    let (report, _) = found(&scratch, &check);
    assert_eq!(report["findings"][0]["found_in"], serde_json::json!(["@full"]), "{report}");
    scratch.dendro(["snapshot", "delete", &format!("{image}@full")]).succeeds();
    scratch.dendro(["check", "--data", &image]).succeeds();
}

#[test]
fn a_mount_that_cannot_write_counts_in_memory() {
    let Some(scratch) = volume() else { return };
    damage(&scratch, "file", 7);
    scratch.mount_with("ro");
    let before = fs::read(scratch.image()).unwrap();
    read(&scratch.inside("dir/file"), 7);
    let mount = scratch.mount_point();
    crate::common::wait_until("it is told", || told(&scratch, &mount)["place_count"] == 1);
    assert!(log(&scratch).contains("damage: /dir/file in :main, at byte 28672"));
    scratch.dendro(["damage", "--clear", &mount]).succeeds();
    assert_eq!(told(&scratch, &mount)["place_count"], 0);
    read(&scratch.inside("dir/file"), 7);
    scratch.umount();
    assert_eq!(told(&scratch, &scratch.image())["place_count"], 0);
    assert!(fs::read(scratch.image()).unwrap() == before, "nothing was written");
}

#[test]
fn what_the_cleaner_meets_is_told_too() {
    let Some(scratch) = volume() else { return };
    scratch.mount();
    // Segments of which one page in four stays, and that one is damaged in one of them.
    for number in 0..1024 {
        fs::write(scratch.inside(&format!("f{number}")), page("small", number)).unwrap();
    }
    scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    for number in (0..1024).filter(|number| number % 4 != 0) {
        fs::remove_file(scratch.inside(&format!("f{number}"))).unwrap();
    }
    scratch.umount();
    damage(&scratch, "small", 400);
    scratch.mount();
    let mount = scratch.mount_point();
    scratch.dendro(["clean", "run", &mount]);
    crate::common::wait_until("it is told", || {
        scratch.dendro(["clean", "run", &mount]);
        told(&scratch, &mount)["place_count"] == 1
    });
    let place = told(&scratch, &mount)["places"][0].clone();
    assert_eq!(place["path"], "/f400", "{place}");
}

#[test]
fn without_a_system_log_messages_go_to_a_file_that_is_told() {
    let Some(scratch) = volume() else { return };
    if Path::new("/dev/log").exists() {
        eprintln!("left out: there is a system log");
        return;
    }
    damage(&scratch, "file", 9);
    scratch.dendro(["mount", &scratch.image(), &scratch.mount_point()]).succeeds();
    read(&scratch.inside("dir/file"), 9);
    let mount = scratch.mount_point();
    crate::common::wait_until("it is told", || told(&scratch, &mount)["place_count"] == 1);
    let log = scratch.info(&mount)["mount"]["log"].as_str().unwrap().to_owned();
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("damage: /dir/file in :main"), "{log}: {text}");
    let info = scratch.dendro(["info", &mount]).succeeds().out;
    assert!(info.contains(&format!("  log         {log}\n")), "{info}");
}
