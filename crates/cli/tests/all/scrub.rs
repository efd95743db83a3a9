//! Scrubbing on a real mount: damage is found with its path and version, and a pass goes on where
//! it was, whatever becomes of the daemon.

use std::fs;

use crate::common::Scratch;
use crate::common::pages::{PAGE, damage, page};
use serde_json::Value;

fn write(scratch: &Scratch, name: &str, pages: usize) {
    let bytes: Vec<u8> = (0..pages).flat_map(|number| page(name, number)).collect();
    fs::write(scratch.inside(name), bytes).unwrap();
}

/// Runs `dendro scrub --json`; returns what it says and its exit status.
fn scrub(scratch: &Scratch, more: &[&str]) -> (Value, Option<i32>) {
    let said = scratch.dendro(["scrub"].iter().chain(more).copied().chain(["--json"]));
    let value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    (value, said.code)
}

fn status(scratch: &Scratch) -> Value {
    scrub(scratch, &["status", &scratch.mount_point()]).0
}

/// The paths and versions of the places that a scrub has found.
fn places(outcome: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let places = outcome["places"].as_array().unwrap();
    let mut all: Vec<_> =
        places.iter().map(|place| (text(&place["path"]), text(&place["version"]))).collect();
    all.sort();
    all
}

#[test]
fn damage_in_heads_and_snapshots_is_found_with_its_path_and_version() {
    if crate::common::skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    fs::create_dir(scratch.inside("dir")).unwrap();
    write(&scratch, "dir/file", 16);
    write(&scratch, "gone", 16);
    scratch.dendro(["snapshot", "create", &format!("{mount}@full")]).succeeds();
    fs::remove_file(scratch.inside("gone")).unwrap();
    assert_eq!(status(&scratch)["state"], "never");
    let (sound, code) = scrub(&scratch, &["--wait", &mount]);
    assert_eq!(
        (code, &sound["state"], &sound["found_count"]),
        (Some(0), &"finished".into(), &0.into())
    );
    assert!(sound["checked_bytes"].as_u64() >= Some(32 * PAGE as u64), "{sound}");
    scratch.umount();
    damage(&scratch, "dir/file", 3);
    damage(&scratch, "gone", 5);
    let expected =
        [("/dir/file".to_owned(), ":main".to_owned()), ("/gone".to_owned(), "@full".to_owned())];

    // By the command itself.
    let (offline, code) = scrub(&scratch, &[&scratch.image()]);
    assert_eq!((code, places(&offline)), (Some(4), expected.to_vec()), "{offline}");
    // By the daemon, which keeps it with the volume.
    scratch.mount();
    let (found, code) = scrub(&scratch, &["start", "--wait", &mount]);
    assert_eq!((code, places(&found)), (Some(4), expected.to_vec()), "{found}");
    assert_eq!(found["found_count"], 2);
    assert_eq!(found["last_complete"]["found_count"], 2);
    let text = scratch.dendro(["scrub", "status", &mount]);
    assert!(text.out.contains("/gone in @full, at byte 20480: "), "{text:?}");
    let stat = scratch.dendro(["stat", "--json", &mount]).succeeds().out;
    let stat: Value = serde_json::from_str(&stat).unwrap();
    assert_eq!((&stat["scrub_last_found"], &stat["damage_places"]), (&2.into(), &2.into()));
    let metrics = scratch.dendro(["stat", "--metrics", &mount]).succeeds().out;
    assert!(metrics.contains("\ndendro_scrub_found 2\n"), "{metrics}");
    scratch.umount();
    let (kept, _) = scrub(&scratch, &["status", &scratch.image()]);
    assert_eq!((&kept["state"], places(&kept)), (&"finished".into(), expected.to_vec()));
}

#[test]
fn a_pass_is_paused_and_goes_on_after_restarts_and_kills_until_it_is_cancelled() {
    if crate::common::skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    write(&scratch, "large", 3000);
    for verb in ["pause", "resume", "cancel"] {
        let refused = scratch.dendro(["scrub", verb, &mount]);
        assert!(refused.code == Some(1) && refused.err.contains("no scrub"), "{refused:?}");
    }
    scrub(&scratch, &["--rate", "1M", "--memory", "8M", &mount]);
    let checked = || status(&scratch)["checked_bytes"].as_u64().unwrap();
    crate::common::wait_until("something is read", || checked() > 1 << 20);
    let again = scratch.dendro(["scrub", "start", &mount]);
    assert!(again.code == Some(1) && again.err.contains("is under way"), "{again:?}");
    assert_eq!(scrub(&scratch, &["pause", &mount]).0["state"], "paused");
    let paused = checked();
    // An end, and a next mount, change nothing.
    scratch.umount();
    scratch.mount();
    let after = status(&scratch);
    assert_eq!(
        (&after["state"], after["checked_bytes"].as_u64()),
        (&"paused".into(), Some(paused))
    );
    let resumed = scrub(&scratch, &["resume", "--rate", "2M", &mount]).0;
    assert_eq!(
        (&resumed["state"], &resumed["rate_bytes_per_sec"], &resumed["memory_bytes"]),
        (&"running".into(), &(2 << 20).into(), &(8 << 20).into())
    );
    scratch.dendro(["sync", &mount]).succeeds();
    // kill -9, and it goes on by itself, not from the beginning.
    scratch.kill_daemon();
    scratch.mount();
    let after = status(&scratch);
    assert_eq!(after["state"], "running", "{after}");
    assert!(after["checked_bytes"].as_u64() >= Some(paused), "{after}");
    crate::common::wait_until("it goes on", || checked() > paused + (1 << 20));
    // A clean end while it runs keeps all that was read.
    let before = checked();
    scratch.umount();
    let (kept, _) = scrub(&scratch, &["status", &scratch.image()]);
    assert_eq!(kept["state"], "running", "{kept}");
    assert!(kept["checked_bytes"].as_u64() >= Some(before), "{kept}");
    scratch.mount();
    assert_eq!(scrub(&scratch, &["cancel", &mount]).0["state"], "cancelled");
    let (whole, code) = scrub(&scratch, &["--wait", &mount]);
    assert_eq!((code, &whole["state"]), (Some(0), &"finished".into()), "{whole}");
    let read = whole["checked_bytes"].as_u64().unwrap();
    assert!(read > 3000 * PAGE as u64, "{whole}");
    // Nobody leaves time to others for a volume that is not mounted, and nothing waits there.
    scratch.umount();
    for verb in [["pause"].as_slice(), &["start", "--rate", "1M"]] {
        let image = scratch.image();
        let refused = scratch.dendro(["scrub"].iter().chain(verb).copied().chain([&*image]));
        assert!(refused.code == Some(1) && refused.err.contains("not mounted"), "{refused:?}");
    }
}

#[test]
fn a_rollback_does_not_lose_a_pass() {
    if crate::common::skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    write(&scratch, "file", 100);
    scratch.dendro(["snapshot", "create", &format!("{mount}@before")]).succeeds();
    scrub(&scratch, &["--wait", &mount]);
    scratch.dendro(["rollback", &format!("{mount}@before")]).succeeds();
    scratch.dendro(["sync", &mount]).succeeds();
    scratch.kill_daemon();
    scratch.mount();
    assert_eq!(status(&scratch)["state"], "finished");
}
