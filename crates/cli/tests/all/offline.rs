//! What needs no mount: mkfs, info, and all that is refused.

use std::fs;

use crate::common::Scratch;

const BLOCK: usize = 4096;

#[test]
fn mkfs_makes_an_image_that_info_describes() {
    let scratch = Scratch::new();
    let uuid = "123e4567-e89b-42d3-a456-426614174000";
    let made = scratch
        .dendro(["mkfs", "-L", "home", "-U", uuid, "--size", "64M", &scratch.image()])
        .succeeds();
    assert!(made.out.contains("\"home\", 63.5 MiB") && made.out.contains(uuid), "{made:?}");
    assert_eq!(fs::metadata(scratch.path("image")).unwrap().len(), 64 << 20);
    let info = scratch.info(&scratch.image());
    assert_eq!(info["label"], "home");
    assert_eq!(info["uuid"], uuid);
    // The superblocks' backups lie behind the last segment, which is whole.
    assert_eq!(info["device_size_bytes"], (64 << 20) - (512 << 10));
    assert_eq!(info["checkpoint"]["clean"], true);
    assert!(info["mount"].is_null());
    let text = scratch.dendro(["info", &scratch.image()]).succeeds().out;
    assert!(text.contains("home") && text.contains("shut down cleanly"), "{text}");
}

#[test]
fn mkfs_prints_facts_as_json_or_nothing() {
    let scratch = Scratch::new();
    let json = scratch.dendro(["mkfs", "--json", "--size", "64M", &scratch.image()]).succeeds();
    let facts: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(facts["uuid"].as_str().unwrap().len(), 36);
    let quiet = scratch.dendro(["mkfs", "-q", "-f", &scratch.image()]).succeeds();
    assert_eq!(quiet.out, "");
    let again = scratch.info(&scratch.image());
    assert_ne!(again["uuid"], facts["uuid"]);
}

#[test]
fn mkfs_destroys_nothing_unless_forced() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.dendro(["mkfs", &image]).fails(1, &[&image, "a dendrofs volume", "--force"]);

    let foreign = scratch.text("foreign");
    let mut ext4 = vec![0; 32 << 20];
    ext4[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    fs::write(&foreign, &ext4).unwrap();
    scratch.dendro(["mkfs", &foreign]).fails(1, &["ext4", "--force"]);
    assert!(fs::read(&foreign).unwrap() == ext4);

    let diary = scratch.text("diary");
    fs::write(&diary, "dear diary\n".repeat(1 << 20)).unwrap();
    scratch.dendro(["mkfs", &diary]).fails(1, &["another kind", "--force"]);
    assert!(fs::read_to_string(&diary).unwrap().starts_with("dear diary"));
    scratch.dendro(["mkfs", "--force", &diary]).succeeds();
    scratch.dendro(["info", &diary]).succeeds();
}

#[test]
fn mkfs_leaves_no_mark_of_others_at_the_end() {
    let scratch = Scratch::new();
    let image = scratch.image();
    let mut disk = vec![0; 64 << 20];
    let second_table = disk.len() - 512;
    disk[second_table..][..8].copy_from_slice(b"EFI PART");
    let raid_member = disk.len() - 8192;
    disk[raid_member..][..4].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9]);
    fs::write(&image, &disk).unwrap();
    scratch.dendro(["mkfs", "-q", "--force", "--nodiscard", &image]).succeeds();
    let made = fs::read(&image).unwrap();
    assert!(made[second_table..].iter().all(|&byte| byte == 0));
    assert!(made[raid_member..][..BLOCK].iter().all(|&byte| byte == 0));
    assert!(made[made.len() - (512 << 10)..made.len() - (64 << 10)].iter().all(|&byte| byte == 0));
    scratch.dendro(["check", &image]).succeeds();
}

#[test]
fn mkfs_grows_an_image_and_never_cuts_it() {
    let scratch = Scratch::new();
    let image = scratch.image();
    fs::write(&image, "").unwrap();
    scratch.dendro(["mkfs", &image]).fails(1, &["is empty", "--size"]);
    scratch.dendro(["mkfs", "--size", "32M", &image]).succeeds();
    scratch.dendro(["mkfs", "-f", "--size", "64M", &image]).succeeds();
    assert_eq!(scratch.info(&image)["device_size_bytes"], (64 << 20) - (512 << 10));
    scratch.dendro(["mkfs", "-f", "--size", "32M", &image]).fails(1, &[&image, "64 MiB", "--size"]);
    assert_eq!(fs::metadata(&image).unwrap().len(), 64 << 20);
}

#[test]
fn mkfs_leaves_as_it_was_what_it_refuses() {
    let scratch = Scratch::new();
    let diary = scratch.text("diary");
    fs::write(&diary, "dear diary\n").unwrap();
    scratch.dendro(["mkfs", "--size", "64M", &diary]).fails(1, &["another kind", "--force"]);
    assert_eq!(fs::read_to_string(&diary).unwrap(), "dear diary\n");
    scratch.dendro(["mkfs", "-f", "--size", "1M", &diary]).fails(1, &["16 segments", "2 MiB"]);
    assert_eq!(fs::read_to_string(&diary).unwrap(), "dear diary\n");

    scratch.mkfs("64M");
    let (image, uuid) = (scratch.image(), scratch.info(&scratch.image())["uuid"].clone());
    scratch.dendro(["mkfs", "--size", "128M", &image]).fails(1, &["--force"]);
    scratch.dendro(["mkfs", "-f", "--segment-size", "64M", &image]).fails(1, &["1 GiB"]);
    scratch.dendro(["mkfs", "-f", "-L", "a\x1b[31m", &image]).fails(2, &["\\u{1b}"]);
    assert_eq!(fs::metadata(&image).unwrap().len(), 64 << 20);
    assert_eq!(scratch.info(&image)["uuid"], uuid);
}

#[test]
fn a_message_that_cannot_be_written_is_no_panic() {
    let scratch = Scratch::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let status = scratch.command(["info", "/nowhere"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn what_cannot_be_deleted_is_called_by_its_name() {
    let scratch = Scratch::with_volume();
    let (head, one) = (scratch.image() + ":main", scratch.image() + "@one");
    scratch.dendro(["snapshot", "create", &one]).succeeds();
    scratch.dendro(["snapshot", "hold", &one]).succeeds();
    scratch.dendro(["snapshot", "delete", &one]).fails(1, &["@one", "held", "release"]);
    scratch.dendro(["snapshot", "delete", &head]).fails(1, &[":main", "the main branch"]);
}

#[test]
fn mkfs_says_what_is_wrong_with_its_arguments() {
    let scratch = Scratch::new();
    let image = scratch.image();
    scratch.dendro(["mkfs", &image]).fails(1, &[&image, "does not exist", "--size"]);
    scratch.dendro(["mkfs", "--size", "big", &image]).fails(2, &["\"big\"", "512M"]);
    scratch.dendro(["mkfs", "--size", "1M", "--segment-size", "3M", &image]).fails(2, &["3 MiB"]);
    scratch.dendro(["mkfs", "--size", "64M", "-U", "nonsense", &image]).fails(2, &["UUID"]);
    let long = "x".repeat(65);
    scratch.dendro(["mkfs", "--size", "64M", "-L", &long, &image]).fails(2, &["65 bytes"]);
    let directory = scratch.mount_point();
    scratch.dendro(["mkfs", "-f", &directory]).fails(1, &[&directory, "neither"]);
    // Too small for a log: nothing is left behind.
    scratch.dendro(["mkfs", "--size", "8K", &image]).fails(1, &[&image]);
    assert!(!scratch.path("image").exists());
}

#[test]
fn mkfs_dendro_is_the_same_command() {
    let scratch = Scratch::new();
    let link = scratch.path("mkfs.dendro");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dendro"), &link).unwrap();
    let mut command = std::process::Command::new(link);
    scratch.prepare(&mut command);
    let done = command.args(["-L", "linked", "--size", "64M", &scratch.image()]).output().unwrap();
    crate::common::said(done).succeeds();
    assert_eq!(scratch.info(&scratch.image())["label"], "linked");
}

#[test]
fn a_file_that_is_too_short_is_no_volume() {
    let scratch = Scratch::new();
    let diary = scratch.text("diary");
    fs::write(&diary, "dear diary\n").unwrap();
    for command in ["info", "segments", "dump", "usage"] {
        scratch.dendro([command, &diary]).fails(1, &[&diary, "is no dendrofs volume", "2 MiB"]);
    }
    scratch.dendro(["check", &diary]).fails(8, &[&diary, "is no dendrofs volume"]);
    scratch
        .dendro(["mount", &diary, &scratch.mount_point()])
        .fails(32, &[&diary, "is no dendrofs volume"]);
}

#[test]
fn what_is_no_volume_is_said_to_be_none() {
    let scratch = Scratch::new();
    let missing = scratch.text("missing");
    scratch.dendro(["info", &missing]).fails(1, &[&missing, "No such file"]);
    scratch.dendro(["info", &scratch.mount_point()]).fails(1, &["neither in a dendrofs mount"]);
    scratch.dendro(["sync", "/proc"]).fails(1, &["/proc", "neither in a dendrofs mount"]);
    let zeros = scratch.text("zeros");
    fs::write(&zeros, vec![0; 32 << 20]).unwrap();
    scratch.dendro(["info", &zeros]).fails(1, &[&zeros]);
    scratch.dendro(["stat", &zeros]).fails(1, &[&zeros, "is not mounted"]);
    scratch.dendro(["umount", &zeros]).fails(32, &[&zeros, "is not mounted"]);
    let tiny = scratch.text("tiny");
    fs::write(&tiny, "x").unwrap();
    scratch.dendro(["info", &tiny]).fails(1, &[&tiny]);
}

#[test]
fn damaged_and_truncated_images_are_errors_that_name_them() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let whole = fs::read(&image).unwrap();
    for len in [0, 1, 4096, 1 << 20, (2 << 20) + 5000, 8 << 20] {
        fs::write(&image, &whole[..len]).unwrap();
        scratch.dendro(["info", &image]).fails(1, &[&image]);
        let mount = scratch.dendro(["mount", &image, &scratch.mount_point()]);
        mount.fails(32, &[&image]);
    }
    let mut zeroed = whole;
    zeroed[..4 << 20].fill(0);
    fs::write(&image, &zeroed).unwrap();
    let info = scratch.dendro(["info", &image]).succeeds();
    assert!(info.out.contains("superblocks at the device's beginning are lost"), "{info:?}");
    let end = zeroed.len() - (64 << 10);
    zeroed[end..].fill(0);
    fs::write(&image, &zeroed).unwrap();
    scratch.dendro(["info", &image]).fails(1, &[&image]);
}

#[test]
fn completions_and_man_pages_are_generated() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = scratch.dendro(["completions", shell]).succeeds();
        assert!(script.out.contains("umount"), "{shell}");
    }
    scratch.dendro(["man", &scratch.text("man")]).succeeds();
    let page = fs::read_to_string(scratch.path("man/man1/dendro-mount.1")).unwrap();
    assert!(page.contains("commit=SECONDS"));
    assert!(scratch.path("man/man8/mkfs.dendro.8").exists());
}

#[test]
fn a_volume_has_as_many_segments_whoever_counts_them() {
    let scratch = Scratch::new();
    let image = scratch.image();
    let made = scratch.dendro(["mkfs", "--segment-size", "1M", "--size", "64M", &image]).succeeds();
    assert!(made.out.contains("segments  63 of 1 MiB; 2 hold superblocks"), "{made:?}");
    let info = scratch.dendro(["info", &image]).succeeds();
    assert!(info.out.contains(": 63 segments of 1 MiB, 60 clean; 2 hold superblocks"), "{info:?}");
    let shown = scratch.dendro(["segments", &image]).succeeds();
    let counted = "segments  63 of 1 MiB: 60 clean, 1 dirty, 0 open, 0 pending; 2 hold superblocks";
    assert!(shown.out.contains(counted), "{shown:?}");
    for command in ["info", "segments"] {
        let printed = scratch.dendro([command, "--json", &image]).succeeds();
        let printed: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
        assert_eq!(printed["total_segments"], 63, "{command}");
        assert_eq!(printed["superblock_segments"], 2, "{command}");
    }
}

#[test]
fn versions_that_a_mount_option_names_are_completed() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.dendro(["clone", &image, "draft"]).succeeds();
    scratch.dendro(["snapshot", "create", &format!("{image}@before")]).succeeds();
    let complete = |word: &str, line: &[&str]| {
        let before = ["complete", "options", "--", word].into_iter();
        scratch.dendro(before.chain(line.iter().copied())).succeeds().out
    };
    let line = ["dendro", "mount", &image, &scratch.mount_point(), "-o", "clone="];
    assert_eq!(complete("clone=", &line), "clone=main\nclone=draft\n");
    assert_eq!(complete("ro,clone=d", &line), "ro,clone=draft\n");
    assert_eq!(complete("snapshot=", &line), "snapshot=before\n");
    assert_eq!(complete("clone=", &["mount.dendro", &image]), "clone=main\nclone=draft\n");
    assert_eq!(complete("clone=", &["dendro", "mount", "/no/such/image"]), "");
    assert_eq!(complete("noat", &line), "noatime\n");
}

#[test]
fn help_and_version_go_to_standard_output() {
    let scratch = Scratch::new();
    assert!(scratch.dendro(["--help"]).succeeds().out.contains("mkfs"));
    assert!(scratch.dendro(["--version"]).succeeds().out.starts_with("dendro "));
    scratch.dendro(["explode"]).fails(2, &["explode"]);
}
