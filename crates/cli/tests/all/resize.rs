//! `dendro resize`: volumes that become longer and shorter, mounted or not.

use std::fs;
use std::process::Command;

use crate::common::{Scratch, is_root, skips_mounts};
use crate::devices::{mirrored, mount};
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn resized(scratch: &Scratch, target: &str, size: &str) -> Value {
    let said = scratch.dendro(["resize", "--json", target, size]).succeeds();
    serde_json::from_str(&said.out).unwrap()
}

fn image_len_bytes(scratch: &Scratch) -> u64 {
    fs::metadata(scratch.image()).unwrap().len()
}

#[test]
fn an_image_becomes_longer_and_the_volume_with_it() {
    let scratch = Scratch::new();
    let image = scratch.image();
    scratch.mkfs("16M");
    let before = scratch.info(&image)["space"]["available_bytes"].as_u64().unwrap();
    let done = resized(&scratch, &image, "+16M");
    assert_eq!(done["size_bytes"], 32 * MIB);
    assert_eq!(done["size_bytes_before"], 16 * MIB);
    assert_eq!(done["rounded_down"], false);
    assert!(done["available_bytes"].as_u64().unwrap() > before + 14 * MIB, "{done}");
    assert_eq!(image_len_bytes(&scratch), 32 * MIB);
    // No multiple of a segment.
    let text = scratch.dendro(["resize", &image, "40000001"]).succeeds();
    assert!(text.out.contains("rounded down to whole segments of 1 MiB"), "{text:?}");
    assert_eq!(image_len_bytes(&scratch), 38 * MIB);
    // A file that somebody has made longer.
    fs::File::options().write(true).open(&image).unwrap().set_len(64 * MIB).unwrap();
    assert_eq!(resized(&scratch, &image, "48M")["size_bytes"], 48 * MIB);
    assert_eq!(resized(&scratch, &image, "max")["size_bytes"], 64 * MIB);
    assert_eq!(resized(&scratch, &image, "max")["size_bytes_before"], 64 * MIB);
    scratch.dendro(["check", "-n", &image]).succeeds();
    scratch.dendro(["resize", &image, "8M"]).fails(1, &["fewer than 16 segments"]);
    scratch.dendro(["resize", &image, "+20000000T"]).fails(2, &["no size"]);
    scratch.dendro(["resize", &image, "+8000T"]).fails(1, &["too many segments"]);
    assert_eq!(image_len_bytes(&scratch), 64 * MIB);
}

#[test]
fn a_mounted_volume_grows_while_it_is_full_and_written_to() {
    if skips_mounts() {
        return;
    }
    for options in ["fuseblk", "nofuseblk"] {
        if options == "fuseblk" && !is_root() {
            continue;
        }
        let scratch = Scratch::new();
        scratch.mkfs("16M");
        scratch.mount_with(options);
        let chunk = vec![7; 1 << 20];
        let write = |from: u32| {
            let mut all =
                (from..).map(|number| fs::write(scratch.inside(&format!("file-{number}")), &chunk));
            from + all.position(|written| written.is_err()).unwrap() as u32
        };
        let first = write(0);
        assert!(first < 16, "{first}");
        let done = resized(&scratch, &scratch.mount_point(), "64M");
        assert_eq!(
            (&done["size_bytes"], image_len_bytes(&scratch)),
            (&(64 * MIB).into(), 64 * MIB)
        );
        let host = rustix::fs::statvfs(scratch.mount_point()).unwrap();
        assert!(host.f_blocks * host.f_frsize > 48 * MIB, "{options}");
        let second = write(first);
        assert!(second > first + 40, "{options}: {first} {second}");
        // The same, after the daemon was killed.
        scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
        scratch.kill_daemon();
        let _ = Command::new("umount").arg("-l").arg(scratch.mount_point()).status();
        scratch.mount_with(options);
        for number in 0..second {
            assert_eq!(
                fs::read(scratch.inside(&format!("file-{number}"))).unwrap().len() % 4096,
                0
            );
        }
        assert_eq!(fs::read(scratch.inside("file-3")).unwrap(), chunk);
        scratch.umount();
        scratch.dendro(["check", "-n", &scratch.image()]).succeeds();
    }
}

#[test]
fn a_volume_shrinks_and_its_image_with_it() {
    let scratch = Scratch::new();
    let image = scratch.image();
    scratch.mkfs("64M");
    let said = scratch.dendro(["resize", &image, "32M"]).succeeds();
    assert!(said.out.contains("32 MiB, 64 MiB before"), "{said:?}");
    assert_eq!(image_len_bytes(&scratch), 32 * MIB);
    scratch.dendro(["check", "-n", &image]).succeeds();
    if skips_mounts() {
        return;
    }
    for options in ["fuseblk", "nofuseblk"] {
        if options == "fuseblk" && !is_root() {
            continue;
        }
        resized(&scratch, &image, "80M");
        scratch.mount_with(options);
        let chunk = |number: u32| vec![number as u8; 1 << 20];
        for number in 0..60 {
            fs::write(scratch.inside(&format!("file-{number}")), chunk(number)).unwrap();
        }
        let target = scratch.mount_point();
        let refused = scratch.dendro(["resize", &target, "40M"]);
        refused.fails(1, &["does not fit into 40 MiB", "at least"]);
        for number in (0..60).filter(|number| number % 4 > 0) {
            fs::remove_file(scratch.inside(&format!("file-{number}"))).unwrap();
        }
        let done = resized(&scratch, &target, "32M");
        assert_eq!(
            (&done["size_bytes"], image_len_bytes(&scratch)),
            (&(32 * MIB).into(), 32 * MIB)
        );
        let host = rustix::fs::statvfs(&target).unwrap();
        assert!(host.f_blocks * host.f_frsize < 32 * MIB, "{options}");
        for number in (0..60).step_by(4) {
            assert!(fs::read(scratch.inside(&format!("file-{number}"))).unwrap() == chunk(number));
        }
        scratch.umount();
        scratch.dendro(["check", "--data", "-n", &image]).succeeds();
    }
}

#[test]
fn a_volume_grows_by_itself_up_to_its_limit() {
    let scratch = Scratch::new();
    let image = scratch.image();
    let mkfs = |max| ["mkfs", "-f", "--size", "16M", "--max-size", max, &image];
    scratch.dendro(mkfs("8M")).fails(1, &["more than --max-size says"]);
    scratch.dendro(mkfs("48M")).succeeds();
    assert_eq!(scratch.info(&image)["max_size_bytes"], 48 * MIB);
    if skips_mounts() {
        return;
    }
    for options in ["fuseblk", "nofuseblk"] {
        if options == "fuseblk" && !is_root() {
            continue;
        }
        fs::remove_file(&image).unwrap();
        scratch.dendro(mkfs("48M")).succeeds();
        scratch.mount_with(options);
        let chunk = vec![7; 1 << 20];
        let written =
            |number: &u32| fs::write(scratch.inside(&format!("file-{number}")), &chunk).is_ok();
        let count = (0..100).take_while(written).count();
        assert!((28..48).contains(&count), "{options}: {count}");
        assert_eq!(image_len_bytes(&scratch), 48 * MIB);
        scratch.umount();
        scratch.dendro(["check", "-n", &image]).succeeds();
    }
}

#[test]
fn a_volume_that_is_read_only_does_not_grow() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    scratch.mkfs("16M");
    scratch.mount_with("ro");
    let refused = scratch.dendro(["resize", &scratch.mount_point(), "32M"]);
    refused.fails(1, &["read-only", "open for reading only"]);
    assert_eq!(image_len_bytes(&scratch), 16 * MIB);
    scratch.umount();
}

#[test]
fn devices_that_hold_the_same_become_longer_together_and_shorter_again_but_for_themselves() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::new();
    let [one, two] = mirrored(&scratch);
    let size = |target: &str| scratch.info(target)["device_size_bytes"].as_u64().unwrap();
    let len = |path: &str| fs::metadata(path).unwrap().len();
    assert_eq!(resized(&scratch, &one, "24M")["size_bytes"], 24 * MIB);
    assert!((23 * MIB..=24 * MIB).contains(&size(&two)));
    assert!(len(&one) > 24 * MIB && len(&one) == len(&two));
    scratch.dendro(["check", "--data", &two]).succeeds();

    mount(&scratch, "nofuseblk", &one).succeeds();
    let there = scratch.mount_point();
    for number in 0..3_u8 {
        scratch.dendro(["resize", "-q", &there, "+20M"]).succeeds();
        let data = vec![number; 15 << 20];
        fs::write(scratch.inside(&format!("file{number}")), data).unwrap();
    }
    fs::File::open(scratch.inside("file2")).unwrap().sync_all().unwrap();
    scratch.kill_daemon();
    scratch.dendro(["umount", &there]);
    for (each, other) in [(&one, &two), (&two, &one)] {
        // Each device alone has all of it.
        fs::rename(other, scratch.text("away")).unwrap();
        mount(&scratch, "ro,degraded", each).succeeds();
        for number in 0..3_u8 {
            let found = fs::read(scratch.inside(&format!("file{number}"))).unwrap();
            assert!(found == vec![number; 15 << 20], "{each} {number}");
        }
        scratch.umount();
        fs::rename(scratch.text("away"), other).unwrap();
    }
    mount(&scratch, "nofuseblk", &two).succeeds();
    scratch.dendro(["device", "offline", &there, &one]).succeeds();
    scratch.dendro(["resize", "-q", &there, "+20M"]).fails(1, &["one", "does not have everything"]);
    (0..3).for_each(|number| fs::remove_file(scratch.inside(&format!("file{number}"))).unwrap());
    let before = len(&two);
    assert_eq!(resized(&scratch, &there, "30M")["size_bytes"], 30 * MIB);
    assert_eq!(len(&two), before);
    fs::write(scratch.inside("file"), vec![7; 10 << 20]).unwrap();
    scratch.umount();
    scratch.dendro(["check", "--data", &two]).succeeds();
    // What is said to be the least is that.
    let said = scratch.dendro(["resize", &two, "8M"]).fails(1, &["it needs"]).err;
    let least = said.split("it needs ").nth(1).unwrap().split(' ').next().unwrap();
    // It is told with three digits, and rounded up.
    let segments = (least.parse::<f64>().unwrap() * 8.0).floor() as u64;
    let to = |segments: u64| (segments * MIB / 8).to_string();
    scratch.dendro(["resize", "-q", &two, &to(segments - 1)]).fails(1, &["it needs"]);
    scratch.dendro(["resize", "-q", &two, &to(segments)]).succeeds();
}
