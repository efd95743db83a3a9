//! Volumes on several devices, and those that move to another.

use std::fs;

use crate::common::{Scratch, skips_mounts, wait_until};
use rustix::io::Errno;
use serde_json::Value;

pub(crate) fn devices(scratch: &Scratch, target: &str) -> Value {
    let said = scratch.dendro(["device", "list", "--json", target]).succeeds();
    serde_json::from_str(&said.out).unwrap()
}

fn states(scratch: &Scratch, target: &str) -> Vec<String> {
    let listed = devices(scratch, target);
    let states = listed["devices"].as_array().unwrap().iter();
    states.map(|device| device["state"].as_str().unwrap().to_owned()).collect()
}

/// A volume on `one` and `two`.
pub(crate) fn mirrored(scratch: &Scratch) -> [String; 2] {
    let both = [scratch.text("one"), scratch.text("two")];
    scratch.dendro(["mkfs", "-q", "--copies", "2", "--size", "16M", &both[0], &both[1]]).succeeds();
    both
}

pub(crate) fn mount(scratch: &Scratch, options: &str, device: &str) -> crate::common::Said {
    let (log, mount) = (scratch.text("log"), scratch.mount_point());
    scratch.dendro(["mount", "--log-file", &log, "-o", options, device, &mount])
}

pub(crate) fn umount(scratch: &Scratch) {
    scratch.dendro(["umount", &scratch.mount_point()]).succeeds();
}

#[test]
fn either_device_holds_what_was_written_and_a_returning_one_gets_it() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    let [one, two] = mirrored(&scratch);
    mount(&scratch, "nofuseblk", &one).succeeds();
    fs::write(scratch.inside("early"), "early").unwrap();
    umount(&scratch);
    let away = scratch.text("away");
    // The first is away.
    fs::rename(&one, &away).unwrap();
    mount(&scratch, "nofuseblk", &two).fails(32, &[&one, "-o degraded"]);
    mount(&scratch, "nofuseblk,degraded", &two).succeeds();
    assert_eq!(fs::read(scratch.inside("early")).unwrap(), b"early");
    fs::write(scratch.inside("late"), "late").unwrap();
    assert_eq!(states(&scratch, &scratch.mount_point()), ["missing", "in_sync"]);
    umount(&scratch);
    // Alone it is no volume any more; with the other one it is brought up.
    mount(&scratch, &format!("nofuseblk,device={two}"), &away).succeeds();
    wait_until("it is in sync", || states(&scratch, &two) == ["in_sync"; 2]);
    umount(&scratch);
    fs::remove_file(&two).unwrap();
    mount(&scratch, "nofuseblk,degraded", &away).succeeds();
    assert_eq!(fs::read(scratch.inside("late")).unwrap(), b"late");
    umount(&scratch);
    scratch.dendro(["check", "--data", &away]).succeeds();
}

#[test]
fn devices_that_were_used_apart_are_refused_and_both_are_named() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    let [one, two] = mirrored(&scratch);
    for (there, other) in [(&one, &two), (&two, &one)] {
        let away = scratch.text("away");
        fs::rename(other, &away).unwrap();
        mount(&scratch, "nofuseblk,degraded", there).succeeds();
        fs::write(scratch.inside("file"), there).unwrap();
        umount(&scratch);
        fs::rename(&away, other).unwrap();
    }
    for device in [&one, &two] {
        mount(&scratch, "nofuseblk,degraded", device).fails(32, &[&one, &two, "without the other"]);
    }
    scratch.dendro(["device", "forget", &two]).succeeds();
    scratch.dendro(["device", "forget", &two]).fails(1, &["no device of a volume"]);
    mount(&scratch, "nofuseblk", &two).fails(32, &["list of devices"]);
    mount(&scratch, "nofuseblk,degraded", &one).succeeds();
    assert_eq!(fs::read_to_string(scratch.inside("file")).unwrap(), one);
    umount(&scratch);
}

#[test]
fn a_volume_moves_to_another_device_while_it_is_written_to_and_back() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    scratch.mkfs("32M");
    let (first, second) = (scratch.image(), scratch.text("second"));
    scratch.mount_with("nofuseblk");
    let mount_point = scratch.mount_point();
    let small = scratch.text("small");
    fs::File::create(&small).unwrap().set_len(16 << 20).unwrap();
    scratch.dendro(["migrate", &mount_point, &small]).fails(1, &["dendro resize", "33554432"]);
    assert_eq!(states(&scratch, &mount_point), ["in_sync"]);
    for (number, (from, to)) in [(&first, &second), (&second, &first)].into_iter().enumerate() {
        let mut moving = scratch.command(["-q", "migrate", "--force", &mount_point, to]);
        let mut moving = moving.spawn().unwrap();
        let mut written = 0;
        while moving.try_wait().unwrap().is_none() || written < 20 {
            let bytes = vec![written as u8; 50_000];
            fs::write(scratch.inside(&format!("{number}-{}", written % 40)), bytes).unwrap();
            written += 1;
        }
        assert!(moving.wait().unwrap().success());
        let listed = devices(&scratch, &mount_point);
        assert_eq!(listed["source"], **to);
        assert_eq!(listed["devices"].as_array().unwrap().len(), 1);
        // What is left on the old one is not taken for the volume.
        scratch.dendro(["mount", from, &scratch.text("run")]).fails(32, &[]);
    }
    umount(&scratch);
    scratch.dendro(["check", "--data", &first]).succeeds();
    scratch.mount_with("nofuseblk");
    assert_eq!(fs::read(scratch.inside("1-7")).unwrap().len(), 50_000);
    umount(&scratch);
}

/// A volume that is spread over `one`, of 24 MiB, and `two`, of 40 MiB.
pub(crate) fn spread(scratch: &Scratch) -> [String; 2] {
    let both = [scratch.text("one"), scratch.text("two")];
    for (path, megabytes) in both.iter().zip([24, 40]) {
        fs::File::create(path).unwrap().set_len(megabytes << 20).unwrap();
    }
    scratch.dendro(["mkfs", "-q", "--copies", "1", &both[0], &both[1]]).succeeds();
    both
}

pub(crate) fn held_bytes(scratch: &Scratch, target: &str) -> Vec<u64> {
    let listed = devices(scratch, target);
    assert_eq!(listed["spread"], true);
    let devices = listed["devices"].as_array().unwrap().iter();
    devices.map(|device| device["held_bytes"].as_u64().unwrap()).collect()
}

/// Resizes a volume, and returns its size.
fn size_bytes(scratch: &Scratch, target: &str, size: &str) -> u64 {
    let said = scratch.dendro(["resize", "--json", target, size]).succeeds();
    let done: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(done["rounded_down"], false, "{done}");
    done["size_bytes"].as_u64().unwrap()
}

#[test]
fn a_spread_volume_becomes_shorter_and_as_long_again_as_its_devices_have_room() {
    let scratch = Scratch::new();
    let [one, two] = spread(&scratch);
    let whole = held_bytes(&scratch, &two);
    let full_bytes = size_bytes(&scratch, &one, "max");
    // Behind the segments there are backups of the superblock.
    let backups_bytes = 64 << 10;
    assert_eq!(size_bytes(&scratch, &one, "32M"), (32 << 20) + backups_bytes);
    let held: u64 = held_bytes(&scratch, &two).iter().sum();
    assert!((30 << 20..32 << 20).contains(&held), "{held}");
    scratch.dendro(["check", &two]).succeeds();
    assert_eq!(size_bytes(&scratch, &two, "+8M"), (40 << 20) + backups_bytes);
    scratch.dendro(["resize", &two, "4M"]).fails(1, &["fewer than 16 segments"]);
    let text = "room for 62";
    scratch.dendro(["resize", &two, "64M"]).fails(1, &[text, "add", "replace"]);
    scratch.dendro(["resize", &two, "20000T"]).fails(1, &[text]);
    assert_eq!(size_bytes(&scratch, &two, "max"), full_bytes);
    assert_eq!(held_bytes(&scratch, &two), whole);
    scratch.dendro(["check", "--data", &two]).succeeds();
}

#[test]
fn a_spread_volume_gets_another_device_and_loses_one_while_it_is_written_to() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    let [one, two] = spread(&scratch);
    let [small, large] = held_bytes(&scratch, &two)[..] else { panic!("there are two") };
    assert!((22 << 20..24 << 20).contains(&small) && (38 << 20..40 << 20).contains(&large));
    mount(&scratch, "nofuseblk", &one).succeeds();
    let file = |number: u8| vec![number; 1 << 20];
    for number in 0..40 {
        fs::write(scratch.inside(&format!("{number}")), file(number)).unwrap();
    }
    let third = scratch.text("third");
    fs::File::create(&third).unwrap().set_len(32 << 20).unwrap();
    let mounted = scratch.mount_point();
    // Two thirds of it live, so without the larger one it does not fit.
    let text = "what it holds has to go to the other devices";
    scratch.dendro(["device", "remove", &mounted, &two]).fails(1, &[&two, text]);
    scratch.dendro(["device", "add", "-q", &mounted, &third]).succeeds();
    assert_eq!(held_bytes(&scratch, &mounted).len(), 3);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                for number in 0..4 {
                    fs::write(scratch.inside(&format!("{number}")), file(number + 100)).unwrap();
                }
            }
        });
        let said = scratch.dendro(["device", "remove", "-q", &mounted, &one]);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
        said.succeeds();
    });
    assert_eq!(held_bytes(&scratch, &mounted).len(), 2);
    scratch.dendro(["device", "offline", &mounted, &two]).fails(1, &["no other device holds"]);
    scratch.dendro(["resize", &mounted, "+1T"]).fails(1, &["`dendro device add`"]);
    // Of the 70 MiB or so that there are, 40 live.
    scratch.dendro(["resize", &mounted, "30M"]).fails(1, &["does not fit"]);
    assert_eq!(size_bytes(&scratch, &mounted, "55M") >> 20, 55);
    let held: u64 = held_bytes(&scratch, &mounted).iter().sum();
    assert!(held < 55 << 20, "{held}");
    umount(&scratch);
    fs::remove_file(&one).unwrap();
    mount(&scratch, "nofuseblk", &third).succeeds();
    for number in 0..40 {
        let wanted = file(if number < 4 { number + 100 } else { number });
        assert!(fs::read(scratch.inside(&format!("{number}"))).unwrap() == wanted, "{number}");
    }
    umount(&scratch);
    assert!(size_bytes(&scratch, &two, "max") > 65 << 20);
    scratch.dendro(["check", "--data", &two]).succeeds();
    let dump = scratch.dendro(["dump", &third, "superblocks"]).succeeds();
    assert!(!dump.out.is_empty());
}

#[test]
fn a_spread_volume_without_a_device_is_read_where_the_others_hold_it() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    let [one, two] = spread(&scratch);
    mount(&scratch, "nofuseblk", &one).succeeds();
    for number in 0..30_u8 {
        fs::write(scratch.inside(&format!("{number}")), vec![number; 64 << 10]).unwrap();
    }
    umount(&scratch);
    fs::rename(&one, scratch.text("away")).unwrap();
    mount(&scratch, "nofuseblk", &two).fails(32, &[&one, "-o ro,degraded"]);
    mount(&scratch, "nofuseblk,degraded", &two).fails(32, &[&one, "can only be read"]);
    mount(&scratch, "nofuseblk,ro,degraded", &two).succeeds();
    let names = fs::read_dir(scratch.mount_point()).unwrap().count();
    assert_eq!(names, 30);
    let read = |number: u8| fs::read(scratch.inside(&format!("{number}")));
    let contents: Vec<_> = (0..30).map(read).collect();
    let lost = contents.iter().filter(|it| it.is_err()).count();
    assert!((5..25).contains(&lost), "{lost} of 30 were lost");
    for (number, content) in (0..).zip(&contents) {
        match content {
            Ok(content) => assert!(*content == vec![number; 64 << 10], "{number}"),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{number}")
            }
        }
    }
    umount(&scratch);
    fs::rename(scratch.text("away"), &one).unwrap();
    mount(&scratch, "nofuseblk", &one).succeeds();
    assert!((0..30).all(|number| read(number).unwrap() == vec![number; 64 << 10]));
    umount(&scratch);
}

#[test]
fn wrong_use_of_devices_gets_a_clear_answer() {
    let scratch = Scratch::new();
    let [one, two] = mirrored(&scratch);
    let [three, four] = [scratch.text("three"), scratch.text("four")];
    let mkfs = |more: &[&str]| scratch.dendro(["mkfs", "-q", "--size", "16M"].iter().chain(more));
    mkfs(&["--copies", "3", &three, &four]).fails(2, &["2 devices are named"]);
    mkfs(&["--max-size", "1G", &three, &four]).fails(2, &["--max-size"]);
    mkfs(&[&three]).succeeds();
    mkfs(&[&four, &one]).fails(1, &[&one, "--force"]);
    assert!(!scratch.path("four").exists());
    // Of another volume.
    scratch.dendro(["device", "add", &one, &three]).fails(1, &["three: holds", "--force"]);
    scratch.dendro(["device", "add", &one, &two]).fails(1, &["already"]);
    scratch.dendro(["device", "offline", &one, &two]).fails(1, &["not mounted"]);
    scratch.dendro(["device", "remove", &one, &four]).fails(1, &["none of the volume's devices"]);
    scratch.dendro(["migrate", &one, &four]).fails(1, &["dendro device replace"]);
    scratch.dendro(["resize", "--device", &two, &one, "20M"]).fails(1, &["leave out --device"]);
    scratch.dendro(["rebuild", &one]).fails(8, &["--to DIRECTORY"]);
    scratch.dendro(["device", "remove", &one, &two]).succeeds();
    scratch.dendro(["device", "remove", &one, &one]).fails(1, &["the only device"]);
    assert_eq!(states(&scratch, &one), ["in_sync"]);
    scratch.dendro(["device", "add", "--force", &one, &three]).succeeds();
    assert_eq!(states(&scratch, &three), ["in_sync"; 2]);
    scratch.dendro(["check", &three]).succeeds();
}

/// Of each device, whether it is a fast one.
fn are_fast(scratch: &Scratch, target: &str) -> Vec<bool> {
    let listed = devices(scratch, target);
    let devices = listed["devices"].as_array().unwrap().iter();
    devices.map(|device| device["fast"].as_bool().unwrap()).collect()
}

#[test]
fn a_device_of_a_spread_volume_is_a_fast_one() {
    let scratch = Scratch::new();
    let [slow, fast, third] = ["slow", "fast", "third"].map(|name| scratch.text(name));
    for (path, megabytes) in [(&slow, 40), (&fast, 8), (&third, 24)] {
        fs::File::create(path).unwrap().set_len(megabytes << 20).unwrap();
    }
    scratch.dendro(["mkfs", "--fast", &fast, &slow]).fails(2, &["--fast", "--copies 1"]);
    scratch.dendro(["mkfs", "-q", "--copies", "1", "--fast", &fast, &slow]).succeeds();
    assert_eq!(are_fast(&scratch, &slow), [false, true]);
    let said = scratch.dendro(["device", "list", &slow]).succeeds();
    assert!(said.out.lines().nth(1).unwrap().ends_with("; fast"), "{said:?}");
    scratch.dendro(["device", "set", &slow, &fast, "--slow"]).succeeds();
    assert_eq!(are_fast(&scratch, &slow), [false, false]);
    scratch.dendro(["device", "set", &slow, &fast]).fails(2, &["--fast"]);
    scratch.dendro(["device", "set", &slow, &slow, "--fast"]).succeeds();
    scratch.dendro(["device", "add", "-q", "--fast", &slow, &third]).succeeds();
    assert_eq!(are_fast(&scratch, &third), [true, false, true]);
    scratch.dendro(["check", "--data", &slow]).succeeds();

    let [one, two] = ["a", "b"].map(|name| scratch.text(name));
    for path in [&one, &two] {
        fs::File::create(path).unwrap().set_len(16 << 20).unwrap();
    }
    scratch.dendro(["mkfs", "-q", &one, &two]).succeeds();
    scratch.dendro(["device", "set", &one, &two, "--fast"]).fails(1, &[&two, "--copies 1"]);
    scratch.dendro(["device", "add", "--fast", &one, &third]).fails(1, &[&third, "--copies 1"]);
}
