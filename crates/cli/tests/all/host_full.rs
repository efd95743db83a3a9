//! An image on a file system that others fill.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Scratch, is_root, skips_mounts, wait_until};

const MIB: u64 = 1 << 20;
/// ext4 that keeps half of its blocks for root.
const WITH_RESERVE: &str = "ext4 with a reserve";

/// A small file system with an image on it that is larger.
struct Host {
    scratch: Scratch,
}

impl Host {
    /// A host of `size_mib` on a file system of that type, and a volume of 256 MiB on it.
    fn new(fs_type: &str, size_mib: u64) -> Self {
        let host = Self { scratch: Scratch::new() };
        let place = host.scratch.path("host");
        fs::create_dir(&place).unwrap();
        let mount = |arguments: &[&str]| {
            let status = Command::new("mount").args(arguments).arg(&place).status().unwrap();
            assert!(status.success());
        };
        match fs_type {
            "tmpfs" => mount(&["-t", "tmpfs", "-o", &format!("size={size_mib}m"), "none"]),
            _ => {
                let disk = host.scratch.path("disk");
                fs::File::create(&disk).unwrap().set_len(size_mib * MIB).unwrap();
                let reserve = if fs_type == WITH_RESERVE { "50" } else { "0" };
                let made =
                    Command::new("mkfs.ext4").args(["-q", "-m", reserve]).arg(&disk).status();
                assert!(made.unwrap().success());
                mount(&["-o", "loop", disk.to_str().unwrap()]);
            }
        }
        host.scratch.dendro(["mkfs", "-q", "-s", "256M", &host.image()]).succeeds();
        host
    }

    fn image(&self) -> String {
        self.scratch.text("host/image")
    }

    fn mount(&self, options: &str) {
        let log = self.scratch.text("log");
        let (image, point) = (self.image(), self.scratch.mount_point());
        self.scratch
            .dendro(["mount", "--log-file", &log, "-o", options, &image, &point])
            .succeeds();
    }

    fn free_bytes(&self, path: &str) -> u64 {
        let host = rustix::fs::statvfs(self.scratch.path(path)).unwrap();
        host.f_bavail * host.f_frsize
    }

    fn filler(&self) -> PathBuf {
        self.scratch.path("host/filler")
    }

    /// Takes all that is free but for so much.
    fn fill(&self, left_bytes: u64) {
        let _ = fs::remove_file(self.filler());
        let bytes = self.free_bytes("host").saturating_sub(left_bytes);
        // A file system's own records of it may take some.
        let _ = fs::write(self.filler(), vec![7; bytes as usize]);
    }

    fn make_room(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.path("log")).unwrap_or_default()
    }
}

fn content(number: u64) -> Vec<u8> {
    (0..256 * 1024_u64).flat_map(|at| ((at * 7 + number) as u32).to_le_bytes()).collect()
}

fn is_full(answer: std::io::Result<()>) -> bool {
    answer.is_err_and(|error| error.raw_os_error() == Some(28))
}

fn synced(path: PathBuf) -> std::io::Result<()> {
    fs::File::open(path)?.sync_all()
}

fn goes_on_by_itself(fs_type: &str, options: &str) {
    let host = Host::new(fs_type, 120);
    host.mount(options);
    let file = |number: u64| host.scratch.inside(&format!("file{number}"));
    for number in 0..20 {
        fs::write(file(number), content(number)).unwrap();
    }
    synced(file(0)).unwrap();
    let roomy_bytes = host.free_bytes("mnt");
    assert!(roomy_bytes <= host.free_bytes("host"), "df promised more than the host has");
    assert!(roomy_bytes > 60 * MIB, "{roomy_bytes}");

    // Nearly full: writing is refused before the device refuses, and all that was accepted is kept.
    host.fill(24 * MIB);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let mut accepted = 20;
    while fs::write(file(accepted), content(accepted)).is_ok() {
        accepted += 1;
        assert!(accepted < 50, "24 MiB take no more");
    }
    assert!(is_full(fs::write(file(accepted), content(accepted))));
    synced(file(0)).unwrap();
    assert!(!host.log().contains("full"), "{}", host.log());
    assert!(host.free_bytes("mnt") < 4 * MIB, "{}", host.free_bytes("mnt"));
    let _ = fs::remove_file(file(accepted));

    // Full: what is written waits, or is refused, and nothing latches.
    host.fill(0);
    let mut refused = is_full(fs::write(host.scratch.inside("more"), content(99)));
    refused |= is_full(synced(host.scratch.inside("")));
    assert!(refused);
    for number in 0..accepted {
        assert!(fs::read(file(number)).unwrap() == content(number), "{number}");
    }
    host.make_room();
    wait_until("it goes on", || fs::write(host.scratch.inside("more"), content(99)).is_ok());
    wait_until("it is durable", || synced(host.scratch.inside("more")).is_ok());
    assert!(host.free_bytes("mnt") > 40 * MIB);
    host.scratch.umount();

    host.mount(options);
    for number in 0..accepted {
        assert!(fs::read(file(number)).unwrap() == content(number), "{number}");
    }
    assert!(fs::read(host.scratch.inside("more")).unwrap() == content(99));
    host.scratch.umount();
    host.scratch.dendro(["check", "-q", "--data", &host.image()]).succeeds();
}

#[test]
fn a_volume_on_a_full_tmpfs_answers_enospc_and_goes_on_when_there_is_room() {
    if !skips_mounts() && is_root() {
        goes_on_by_itself("tmpfs", "nofuseblk,commit=1");
    }
}

#[test]
fn a_volume_on_a_full_ext4_answers_enospc_and_goes_on_when_there_is_room() {
    if !skips_mounts() && is_root() {
        goes_on_by_itself("ext4", "nofuseblk,commit=1");
    }
}

#[test]
fn a_volume_on_a_loop_device_over_a_full_file_system_does_so_too() {
    if !skips_mounts() && is_root() {
        goes_on_by_itself("ext4", "loop,commit=1");
    }
}

#[test]
fn root_writes_to_what_its_host_keeps_for_root() {
    if skips_mounts() || !is_root() {
        return;
    }
    for options in ["nofuseblk,commit=1", "loop,commit=1"] {
        let host = Host::new(WITH_RESERVE, 200);
        // All that others may use.
        host.fill(0);
        assert_eq!(host.free_bytes("host"), 0);
        host.mount(options);
        assert!(host.free_bytes("mnt") > 40 * MIB, "{options}: {}", host.free_bytes("mnt"));
        let file = |number: u64| host.scratch.inside(&format!("file{number}"));
        let mut accepted = 0;
        while fs::write(file(accepted), content(accepted)).is_ok() {
            accepted += 1;
            assert!(accepted < 150, "{options}: more than there is");
        }
        assert!(accepted > 40, "{options}: {accepted}");
        synced(file(0)).unwrap();
        assert!(!host.log().contains("full"), "{options}: {}", host.log());
        host.scratch.umount();
        host.mount(options);
        for number in 0..accepted {
            assert!(fs::read(file(number)).unwrap() == content(number), "{options}: {number}");
        }
        host.scratch.umount();
    }
}

#[test]
fn a_daemon_killed_on_a_full_host_has_kept_what_was_durable_and_mounts_when_there_is_room() {
    if skips_mounts() || !is_root() {
        return;
    }
    let host = Host::new("tmpfs", 100);
    host.mount("nofuseblk,commit=3600");
    let file = |number: u64| host.scratch.inside(&format!("file{number}"));
    for number in 0..10 {
        fs::write(file(number), content(number)).unwrap();
    }
    synced(file(0)).unwrap();
    host.fill(0);
    // Accepted from memory, or refused: in neither case durable.
    let _ = fs::write(host.scratch.inside("lost"), content(1));
    assert!(is_full(synced(host.scratch.inside(""))) || !host.scratch.inside("lost").exists());
    host.scratch.kill_daemon();
    Command::new("umount").args(["-l", &host.scratch.mount_point()]).status().unwrap();
    let (image, point) = (host.image(), host.scratch.mount_point());
    host.scratch
        .dendro(["mount", &image, &point])
        .fails(32, &["the file system that holds it is full", "-o ro"]);
    host.mount("ro");
    for number in 0..10 {
        assert!(fs::read(file(number)).unwrap() == content(number), "{number}");
    }
    host.scratch.umount();
    host.make_room();
    host.mount("nofuseblk");
    for number in 0..10 {
        assert!(fs::read(file(number)).unwrap() == content(number), "{number}");
    }
    fs::write(host.scratch.inside("new"), content(5)).unwrap();
    host.scratch.umount();
    host.scratch.dendro(["check", "-q", "--data", &host.image()]).succeeds();
}

#[test]
fn unmounting_waits_a_while_for_room_on_the_host() {
    if skips_mounts() || !is_root() {
        return;
    }
    let host = Host::new("tmpfs", 100);
    host.mount("nofuseblk,commit=3600");
    fs::write(host.scratch.inside("file"), content(3)).unwrap();
    host.fill(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(3));
            host.make_room();
        });
        host.scratch.umount();
    });
    host.mount("nofuseblk");
    assert!(fs::read(host.scratch.inside("file")).unwrap() == content(3));
    host.scratch.umount();
}

#[test]
fn an_image_that_is_allocated_whole_can_be_filled_though_the_host_is_full() {
    if skips_mounts() || !is_root() {
        return;
    }
    let host = Host::new("tmpfs", 100);
    let mkfs = |size: &str| {
        host.scratch.dendro([
            "mkfs",
            "-q",
            "-f",
            "--allocate",
            "-s",
            size,
            &host.scratch.text("host/whole"),
        ])
    };
    mkfs("200M").fails(1, &["200 MiB are missing", "free"]);
    assert!(!host.scratch.path("host/whole").exists());
    mkfs("64M").succeeds();
    let whole = host.scratch.text("host/whole");
    assert!(fs::metadata(&whole).unwrap().blocks() * 512 >= 64 * MIB);
    assert!(host.scratch.info(&whole)["features"]["compatible"].to_string().contains("allocated"));
    host.fill(0);
    let point = host.scratch.mount_point();
    for round in 0..3 {
        host.scratch.dendro(["mount", "-o", "nofuseblk", &whole, &point]).succeeds();
        let mut count = 0;
        while fs::write(host.scratch.inside(&format!("{count}")), content(count)).is_ok() {
            count += 1;
        }
        assert!(count > 35, "round {round}: {count}");
        for number in 0..=count {
            fs::remove_file(host.scratch.inside(&format!("{number}"))).unwrap();
        }
        host.scratch.umount();
        assert!(fs::metadata(&whole).unwrap().blocks() * 512 >= 64 * MIB, "round {round}");
    }
    let device = host.scratch.dendro(["mkfs", "--allocate", "-f", "/dev/null"]);
    assert_ne!(device.code, Some(0));
}
