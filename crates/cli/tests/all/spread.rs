//! Volumes that are spread over devices: what becomes one, and each command on one.

use std::fs;

use crate::common::{Scratch, skips_mounts};
use crate::devices::{devices, held_bytes, mirrored, mount, spread, umount};
use dendro_format::roster::ROSTER_AREA_LEN_BYTES;

const MIB: u64 = 1 << 20;

/// A file of this length.
fn sparse(scratch: &Scratch, name: &str, len_bytes: u64) -> String {
    let path = scratch.text(name);
    fs::File::create(&path).unwrap().set_len(len_bytes).unwrap();
    path
}

fn contents(number: u8) -> Vec<u8> {
    vec![number; 300 << 10]
}

/// Writes thirty files.
fn fill(scratch: &Scratch) {
    for number in 0..30 {
        fs::write(scratch.inside(&format!("{number}")), contents(number)).unwrap();
    }
}

fn are_there(directory: &std::path::Path) {
    for number in 0..30 {
        assert!(fs::read(directory.join(format!("{number}"))).unwrap() == contents(number));
    }
}

#[test]
fn a_volume_on_one_device_is_spread_over_another_one_too() {
    let scratch = Scratch::new();
    let [first, image] = [scratch.text("first"), scratch.image()];
    // There is room for the list of devices behind the segments.
    sparse(&scratch, "first", 24 * MIB);
    scratch.dendro(["mkfs", "-q", &first]).succeeds();
    let tiny = sparse(&scratch, "tiny", MIB / 2);
    let other = sparse(&scratch, "other", 40 * MIB);
    let add = |more: &[&str]| scratch.dendro(["device", "add"].iter().chain(more));
    add(&["--copies", "1", &first, &tiny]).fails(1, &["tiny", "needs"]);
    add(&["--copies", "1", &first, &first]).fails(1, &["already"]);
    add(&["--copies", "1", &first, &scratch.text("none")]).fails(1, &["none"]);
    add(&["--copies", "3", &first, &other]).fails(2, &["--copies"]);
    // It has stayed alone.
    assert_eq!(devices(&scratch, &first)["spread"], false);
    add(&["-q", "--copies", "1", &first, &other]).succeeds();
    let held = held_bytes(&scratch, &other);
    assert!(held.len() == 2 && held[0] < 24 * MIB && held[1] > 38 * MIB, "{held:?}");
    let features = scratch.info(&first)["features"]["incompatible"].clone();
    assert!(features.as_array().unwrap().iter().any(|it| it == "spread"), "{features}");
    scratch.dendro(["check", "--data", &other]).succeeds();
    let third = sparse(&scratch, "third", 24 * MIB);
    add(&["--copies", "2", &other, &third]).fails(1, &["spread", "mkfs --copies 2"]);
    add(&["-q", "--copies", "1", &other, &third]).succeeds();
    assert_eq!(held_bytes(&scratch, &other).len(), 3);
    let [one, _] = mirrored(&scratch);
    // There is no room behind it for the list.
    sparse(&scratch, "image", 16 * MIB + (64 << 10));
    add(&["--copies", "1", &one, &image]).fails(1, &["holds all of it"]);
    scratch.dendro(["mkfs", "-q", &image]).succeeds();
    add(&["--copies", "1", "--force", &image, &third]).fails(1, &["no room", "dendro resize"]);
}

#[test]
fn a_mounted_volume_is_spread_over_another_device_while_it_is_written_to() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    let first = scratch.image();
    scratch.mkfs("24M");
    let other = sparse(&scratch, "other", 40 * MIB);
    mount(&scratch, "nofuseblk", &first).succeeds();
    fill(&scratch);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let file = fs::File::create(scratch.inside("again")).unwrap();
                std::io::Write::write_all(&mut &file, &contents(99)).unwrap();
                file.sync_all().unwrap();
            }
        });
        let added = scratch.dendro(["device", "add", "-q", "--copies", "1", &first, &other]);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
        added.succeeds();
    });
    // More than the first device has.
    fs::write(scratch.inside("large"), vec![7; 30 << 20]).unwrap();
    scratch.kill_daemon();
    scratch.dendro(["umount", &scratch.mount_point()]);
    mount(&scratch, "nofuseblk", &other).succeeds();
    are_there(&scratch.inside(""));
    assert!(fs::read(scratch.inside("again")).unwrap() == contents(99));
    umount(&scratch);
    scratch.dendro(["check", "--data", &first]).succeeds();
}

#[test]
fn every_command_reads_the_whole_volume_or_says_why_not() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    let [one, two] = spread(&scratch);
    mount(&scratch, "nofuseblk", &one).succeeds();
    fill(&scratch);
    scratch.dendro(["snapshot", "create", &format!("{}@then", scratch.mount_point())]).succeeds();
    scratch.dendro(["scrub", &scratch.mount_point()]).succeeds();
    umount(&scratch);
    for each in [&one, &two] {
        scratch.dendro(["check", "--data", each]).succeeds();
        scratch.dendro(["scrub", each]).succeeds();
        let info = scratch.info(each);
        assert_eq!(info["devices"].as_array().unwrap().len(), 2, "{info}");
        let whole = info["device_size_bytes"].as_u64().unwrap();
        assert!((60 * MIB..64 * MIB).contains(&whole), "{whole}");
    }
    let new = scratch.text("new");
    scratch.dendro(["migrate", &one, &new]).fails(1, &["several", "dendro device replace"]);
    assert!(!scratch.path("new").exists());
    // A copy of the metadata lies in one file.
    let report = scratch.text("report");
    scratch.dendro(["image", "--metadata", "--data", &two, &report]).succeeds();
    scratch.dendro(["check", &report]).succeeds();
    scratch.dendro(["ls", "-R", &report]).succeeds();
    mount(&scratch, "nofuseblk,ro", &report).succeeds();
    assert_eq!(fs::read_dir(scratch.mount_point()).unwrap().count(), 30);
    umount(&scratch);
    // What is sent from two devices is received on one, and back on others.
    let stream = scratch.text("stream");
    scratch.dendro(["send", "-o", &stream, &format!("{two}@then")]).succeeds();
    scratch.dendro(["stream", "verify", &stream]).succeeds();
    let alone = scratch.text("alone");
    scratch.dendro(["mkfs", "-q", "--size", "64M", &alone]).succeeds();
    let away = [scratch.text("away"), scratch.text("away2")];
    fs::rename(&one, &away[0]).unwrap();
    fs::rename(&two, &away[1]).unwrap();
    let others = spread(&scratch);
    for target in [&alone, &others[1]] {
        scratch.dendro(["receive", target, &stream]).succeeds();
        mount(&scratch, "nofuseblk,ro", target).succeeds();
        are_there(&scratch.inside(".dendro/snapshots/then"));
        umount(&scratch);
        scratch.dendro(["check", "--data", target]).succeeds();
    }
}

/// Destroys both rosters of a device.
fn destroy_rosters(device: &str) {
    let file = fs::File::options().write(true).open(device).unwrap();
    let end = file.metadata().unwrap().len();
    let zeros = vec![0; ROSTER_AREA_LEN_BYTES as usize];
    std::os::unix::fs::FileExt::write_all_at(&file, &zeros, end - zeros.len() as u64).unwrap();
}

#[test]
fn files_are_copied_out_by_a_rebuild_of_the_devices_that_are_there() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    let [one, two] = spread(&scratch);
    mount(&scratch, "nofuseblk", &one).succeeds();
    fill(&scratch);
    umount(&scratch);
    scratch.dendro(["rebuild", &one]).fails(8, &["spread", "--to DIRECTORY"]);
    scratch.dendro(["rebuild", "-n", &one]).succeeds();
    let copy = |device: &str, name: &str| {
        fs::create_dir(scratch.path(name)).unwrap();
        scratch.dendro(["rebuild", "--to", &scratch.text(name), device])
    };
    copy(&two, "whole").succeeds();
    are_there(&scratch.path("whole"));
    // Without its rosters a device is no part of the volume, and nothing is made anew on it.
    let before = [&one, &two].map(|path| fs::read(path).unwrap());
    destroy_rosters(&one);
    let bytes = fs::read(&one).unwrap();
    for more in [&["-n"][..], &["--to", &scratch.text("file")], &[]] {
        let said = scratch.dendro(["rebuild"].iter().chain(more).chain(&[&*one]));
        said.fails(8, &[&one, "name another one"]);
    }
    copy(&one, "none").fails(8, &["name another one"]);
    assert!(fs::read(&one).unwrap() == bytes);
    mount(&scratch, "nofuseblk", &one).fails(32, &["list of devices"]);
    mount(&scratch, "nofuseblk", &two).fails(32, &[&one, "not found"]);
    for name in ["without rosters", "missing"] {
        let said = copy(&two, name);
        assert_eq!(said.code, Some(4), "{said:?}");
        let is_whole = |number: &u8| {
            let path = scratch.path(name).join(format!("{number}"));
            fs::read(path).is_ok_and(|found| found == contents(*number))
        };
        let whole = (0..30).filter(is_whole).count();
        // The metadata is kept on both.
        assert_eq!(fs::read_dir(scratch.path(name)).unwrap().count(), 30, "{said:?}");
        assert!((1..29).contains(&whole), "{name}: {whole} of 30: {said:?}");
        fs::remove_file(&one).ok();
    }
    fs::write(&one, &before[0]).unwrap();
    assert!(fs::read(&two).unwrap() == before[1]);
    scratch.dendro(["check", "--data", &one]).succeeds();
}

/// The bytes of the volume.
fn size(scratch: &Scratch, target: &str) -> u64 {
    scratch.info(target)["device_size_bytes"].as_u64().unwrap()
}

fn lengthen(path: &str, by_bytes: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() + by_bytes).unwrap();
}

#[test]
fn a_device_that_has_become_longer_is_found_and_taken_in() {
    let scratch = Scratch::new();
    let [one, two] = spread(&scratch);
    let before = size(&scratch, &one);
    lengthen(&one, 16 * MIB + 4096);
    lengthen(&two, 8 * MIB);
    for each in [&one, &two] {
        scratch.dendro(["check", "--data", each]).succeeds();
        assert_eq!(size(&scratch, each), before);
    }
    let too_large = scratch.dendro(["resize", &one, "+40M"]);
    too_large.fails(1, &["room for", "--device PATH", "device add"]);
    scratch.dendro(["resize", "-q", "--device", &two, &one, "max"]).succeeds();
    assert_eq!(size(&scratch, &one), before + 8 * MIB);
    scratch.dendro(["resize", "-q", &one, "max"]).succeeds();
    assert_eq!(size(&scratch, &two), before + 24 * MIB);
    scratch.dendro(["resize", "-q", "--device", &one, &two, "+10M"]).succeeds();
    assert_eq!(size(&scratch, &two), before + 34 * MIB);
    assert!((49 * MIB..52 * MIB).contains(&fs::metadata(&one).unwrap().len()));
    let wrong = scratch.dendro(["resize", "--device", &scratch.image(), &two, "+10M"]);
    wrong.fails(1, &["none of the volume's devices"]);
    lengthen(&one, 64 << 10);
    scratch.dendro(["check", "--data", &two]).succeeds();
    let scratch = Scratch::new();
    let [first, second] = mirrored(&scratch);
    scratch
        .dendro(["resize", "--device", &first, &second, "+10M"])
        .fails(1, &["leave out --device"]);
    lengthen(&first, 8 * MIB);
    scratch.dendro(["check", "--data", &first]).succeeds();
}

#[test]
fn a_device_of_a_mounted_volume_becomes_longer_while_it_is_written_to() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    let [one, two] = spread(&scratch);
    mount(&scratch, "nofuseblk", &one).succeeds();
    fill(&scratch);
    let before = size(&scratch, &scratch.mount_point());
    for round in 1..=3 {
        let grow = ["resize", "-q", "--device", &two, &scratch.mount_point(), "+20M"];
        scratch.dendro(grow).succeeds();
        assert_eq!(size(&scratch, &scratch.mount_point()), before + round * 20 * MIB);
        fs::write(scratch.inside(&format!("large{round}")), vec![7; 20 << 20]).unwrap();
    }
    fs::File::open(scratch.inside("large3")).unwrap().sync_all().unwrap();
    scratch.kill_daemon();
    scratch.dendro(["umount", &scratch.mount_point()]);
    lengthen(&two, 8 * MIB);
    mount(&scratch, "nofuseblk", &two).succeeds();
    are_there(&scratch.inside(""));
    assert!(fs::read(scratch.inside("large3")).unwrap() == vec![7; 20 << 20]);
    scratch.dendro(["resize", "-q", &scratch.mount_point(), "max"]).succeeds();
    assert_eq!(size(&scratch, &scratch.mount_point()), before + 68 * MIB);
    umount(&scratch);
    scratch.dendro(["check", "--data", &one]).succeeds();
}
