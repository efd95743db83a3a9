//! `dendro check` of a volume that is mounted, and `-o check`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::failing::FailingDevice;
use crate::common::pages::{damage, page};
use crate::common::{Said, Scratch, harm, signal, skips_mounts, wait_until};
use dendro_disk::Lid;
use dendro_fs::format::HEAD_INDEX;

fn stat(scratch: &Scratch) -> serde_json::Value {
    let said = scratch.dendro(["stat", "--json", &scratch.mount_point()]).succeeds();
    serde_json::from_str(&said.out).unwrap()
}

fn numbers(json: &str) -> Vec<u64> {
    let report: serde_json::Value = serde_json::from_str(json).unwrap();
    let findings = report["findings"].as_array().unwrap();
    findings.iter().map(|of| of["number"].as_u64().unwrap()).collect()
}

/// The value of a metric; `None` if it is missing.
fn metric(scratch: &Scratch, name: &str) -> Option<u64> {
    let metrics = scratch.dendro(["stat", "--metrics", &scratch.mount_point()]).succeeds().out;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// The last check in `dendro damage`.
fn last_check(scratch: &Scratch) -> serde_json::Value {
    let said = scratch.dendro(["damage", "--json", &scratch.mount_point()]).succeeds();
    let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    told["last_check"].clone()
}

/// Writes some files. Returns the i-node number of one of them.
fn write_files(scratch: &Scratch) -> u64 {
    for number in 0..20 {
        fs::write(scratch.inside(&format!("file-{number}")), page("whole", number)).unwrap();
    }
    fs::metadata(scratch.inside("file-7")).unwrap().ino()
}

/// Takes away the i-node of a file.
fn clear_inode(scratch: &Scratch, inode: u64) {
    harm(&scratch.image(), |_, aru| {
        aru.delete_record(Lid(inode), HEAD_INDEX);
    });
}

/// Ends writers, also when an assertion fails.
struct EndAtDrop<'a>(&'a AtomicBool);

impl Drop for EndAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test is no engine")]
fn nothing_is_found_beside_writers_and_the_cleaner() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    scratch.mkfs("256M");
    scratch.mount_with("checkpoint=4M");
    let is_over = &AtomicBool::new(false);
    // What the writers may still write during a check.
    let left_bytes = &AtomicUsize::new(0);
    thread::scope(|scope| {
        let _end = EndAtDrop(is_over);
        for writer in 0..4 {
            let directory = scratch.inside(&format!("dir-{writer}"));
            scope.spawn(move || {
                fs::create_dir(&directory).unwrap();
                for number in 0_usize.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let bytes = vec![number as u8; 3000 + number * 977 % 90_000];
                    let take = |left: usize| left.checked_sub(bytes.len());
                    while left_bytes
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                        .is_err()
                        && !is_over.load(Ordering::Relaxed)
                    {
                        thread::sleep(Duration::from_millis(1));
                    }
                    let name = |number: usize| directory.join(format!("file-{}", number % 50));
                    fs::write(name(number), bytes).unwrap();
                    match number % 4 {
                        1 => fs::rename(name(number), directory.join("renamed")).unwrap(),
                        2 => drop(fs::hard_link(name(number), directory.join("linked"))),
                        3 => drop(fs::remove_file(directory.join("linked"))),
                        _ => {}
                    }
                }
            });
        }
        for round in 0..8 {
            let data = if round % 2 == 0 { "--data" } else { "-n" };
            // A check keeps what was deleted after it began. If the writers fill the volume before
            // it is done, they write less beside the next attempt.
            let mut share_bytes = 32 << 20;
            let check = || {
                left_bytes.store(share_bytes, Ordering::Relaxed);
                share_bytes /= 2;
                scratch.dendro(["check", data, &scratch.mount_point()])
            };
            let is_done = |said: &Said| !said.err.contains("writers need the room");
            let said = std::iter::repeat_with(check).take(20).find(is_done);
            let said = said.expect("a check is done in time").succeeds();
            assert!(
                said.out.contains("is sound") && said.out.contains("as it was when"),
                "{said:?}"
            );
        }
    });
    assert_eq!(stat(&scratch)["check_last_errors"], 0);
    scratch.umount();
    scratch.dendro(["check", "--data", &scratch.image()]).succeeds();
}

#[test]
fn damage_is_found_as_it_is_offline_and_nothing_is_mended() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let inode = write_files(&scratch);
    scratch.umount();
    clear_inode(&scratch, inode);
    damage(&scratch, "whole", 3);
    let image = scratch.image();
    let offline = scratch.dendro(["check", "--data", "--json", &image]);
    assert_eq!(offline.code, Some(4), "{offline:?}");
    scratch.mount();
    let mounted = scratch.dendro(["check", "--data", "--json", &scratch.mount_point()]);
    assert_eq!(mounted.code, Some(4), "{mounted:?}");
    assert!(numbers(&offline.out).contains(&32), "{offline:?}");
    assert_eq!(numbers(&mounted.out), numbers(&offline.out));
    scratch.dendro(["check", "-y", &image]).fails(8, &["-y mends only what is not mounted"]);
    fs::write(scratch.inside("new"), "a check asked for closes nothing").unwrap();
    scratch.umount();
}

#[test]
fn a_killed_client_ends_the_check_and_a_killed_daemon_leaves_nothing() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    for number in 0..3000 {
        fs::write(scratch.inside(&format!("file-{number}")), "x").unwrap();
    }
    let versions = || scratch.dendro(["snapshot", "list", &scratch.mount_point()]).succeeds().out;
    let before = versions();
    for _ in 0..5 {
        let mut command = scratch.command(["check", "--data", &scratch.mount_point()]);
        let mut client = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        client.kill().unwrap();
        client.wait().unwrap();
        wait_until("the check has ended", || stat(&scratch)["check_running"] == false);
        assert_eq!(versions(), before);
    }
    let mut command = scratch.command(["check", "--data", &scratch.mount_point()]);
    let mut client = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    scratch.kill_daemon();
    client.wait().unwrap();
    let _ = scratch.dendro(["umount", &scratch.mount_point()]);
    scratch.dendro(["check", "--data", &scratch.image()]).succeeds();
    scratch.mount();
    assert_eq!(versions(), before);
    scratch.dendro(["check", &scratch.mount_point()]).succeeds();
    scratch.umount();
}

/// Ends the daemon as a crash would, and the mount.
fn crash(scratch: &Scratch) {
    scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    signal(scratch.daemon_pid(), "KILL");
    let _ = scratch.dendro(["umount", &scratch.mount_point()]);
}

#[test]
fn after_a_crash_the_volume_is_checked_and_closed_only_if_it_is_damaged() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let inode = write_files(&scratch);
    scratch.umount();
    // A clean end needs no check.
    scratch.mount_with("check");
    assert_eq!(stat(&scratch)["check_last_unix_ns"], serde_json::Value::Null);
    assert_eq!(stat(&scratch)["check_last_errors"], serde_json::Value::Null);
    assert_eq!(metric(&scratch, "dendro_check_last_timestamp_seconds"), Some(0));
    assert_eq!(metric(&scratch, "dendro_check_last_errors"), None);
    assert_eq!(last_check(&scratch), serde_json::Value::Null);
    fs::write(scratch.inside("more"), "to roll forward").unwrap();
    crash(&scratch);
    scratch.mount_with("check");
    wait_until("it was checked", || stat(&scratch)["check_last_unix_ns"].is_number());
    assert_eq!(stat(&scratch)["check_problem"], serde_json::Value::Null);
    assert_eq!(metric(&scratch, "dendro_check_last_errors"), Some(0));
    assert_eq!(metric(&scratch, "dendro_check_last_failed"), Some(0));
    assert_eq!(last_check(&scratch)["state"], "ended");
    fs::write(scratch.inside("after"), "it stays writable").unwrap();
    scratch.umount();

    clear_inode(&scratch, inode);
    scratch.mount_with("nocheck");
    fs::write(scratch.inside("again"), "to roll forward").unwrap();
    crash(&scratch);
    scratch.mount_with("check");
    wait_until("it is closed", || fs::write(scratch.inside("refused"), "x").is_err());
    wait_until("it is told", || stat(&scratch)["check_problem"].is_string());
    assert!(stat(&scratch)["check_last_errors"].as_u64() >= Some(1));
    assert!(metric(&scratch, "dendro_check_last_errors") >= Some(1));
    assert_eq!(last_check(&scratch)["error_count"], stat(&scratch)["check_last_errors"]);
    let said = scratch.dendro(["damage", &scratch.mount_point()]).succeeds().out;
    assert!(said.contains("the check of ") && said.contains("202"), "{said}");
    let info = scratch.info(&scratch.mount_point());
    let why = info["mount"]["read_only"].as_str().unwrap();
    assert!(why.contains("the check after an unclean end") && why.contains("202"), "{why}");
    assert_eq!(fs::read(scratch.inside("again")).unwrap(), b"to roll forward");
    let log = fs::read_to_string(scratch.path("log")).unwrap();
    assert!(log.contains("the volume is read-only now"), "{log}");
    scratch.umount();
    assert_eq!(scratch.dendro(["check", "-y", &scratch.image()]).code, Some(1));
}

/// Where a leaf in the middle of the map lies.
fn a_leaf(image: &str, scratch: &Scratch) -> std::ops::Range<u64> {
    let said = scratch.dendro(["dump", "--json", image, "nodes"]).succeeds();
    let nodes =
        said.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let leaves: Vec<_> = nodes.filter(|of| of["node"]["level"] == 0).collect();
    assert!(leaves.len() > 8, "{} leaves", leaves.len());
    let place = &leaves[leaves.len() / 2]["node"]["place"];
    let at = place["offset"].as_u64().unwrap();
    at..at + 512
}

#[test]
fn a_part_of_the_map_that_the_device_does_not_read_is_found_after_a_crash() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::create_dir(scratch.inside("dir")).unwrap();
    let name = |number: u32| scratch.inside(&format!("dir/a-name-of-some-length-{number}"));
    for number in 0..3000 {
        fs::write(name(number), format!("{number}")).unwrap();
    }
    scratch.umount();
    scratch.mount_with("nocheck");
    fs::write(scratch.inside("late"), "to roll forward").unwrap();
    crash(&scratch);

    let image = scratch.image();
    let device = FailingDevice::new(Path::new(&image), scratch.path("device"));
    device.fail(Some(a_leaf(&image, &scratch)));
    let (log, mount) = (scratch.text("log"), scratch.mount_point());
    let mount_it = |option: &str| {
        let options = ["mount", "--log-file", &log, "-o", option, &device.image(), &mount];
        scratch.dendro(options).succeeds();
    };
    mount_it("check");
    wait_until("it was checked", || stat(&scratch)["check_last_unix_ns"].is_number());
    wait_until("it is closed", || fs::write(scratch.inside("refused"), "x").is_err());
    assert!(stat(&scratch)["check_last_errors"].as_u64() >= Some(1));
    let info = scratch.info(&mount);
    let why = info["mount"]["read_only"].as_str().unwrap();
    assert!(why.contains("the check after an unclean end") && why.contains("21: "), "{why}");
    // What does not lie there is read, and what does fails alone.
    assert_eq!(fs::read(scratch.inside("late")).unwrap(), b"to roll forward");
    let read =
        |number: u32| fs::read(name(number)).map(|bytes| bytes == format!("{number}").as_bytes());
    let read: Vec<_> = (0..3000).map(read).collect();
    assert!(read.iter().flatten().all(|is_right| *is_right));
    let failed: Vec<_> = read.iter().filter_map(|of| of.as_ref().err()).collect();
    assert!(!failed.is_empty() && failed.len() < 1500, "{} failed", failed.len());
    assert!(failed.iter().all(|error| error.raw_os_error() == Some(5)), "{failed:?}");
    scratch.umount();

    // The device reads again, and nothing was lost.
    device.fail(None);
    mount_it("check");
    wait_until("it is sound", || stat(&scratch)["check_last_errors"] == 0);
    fs::write(scratch.inside("after"), "it is writable").unwrap();
    assert!(
        (0..3000).all(|number| fs::read(name(number)).unwrap() == format!("{number}").as_bytes())
    );
    scratch.umount();
}
