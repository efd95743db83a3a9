//! What the rest of the system is told: udev, magic(5), tags of fstab, fsck.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::common::{Said, Scratch, is_root, skips_mounts};

const UUID: &str = "123e4567-e89b-42d3-a456-426614174000";

fn with_label(label: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch
        .dendro(["mkfs", "-q", "-L", label, "-U", UUID, "--size", "64M", &scratch.image()])
        .succeeds();
    scratch
}

/// The command under one of its other names.
fn linked(scratch: &Scratch, name: &str, arguments: &[&str]) -> Said {
    let link = scratch.path(name);
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dendro"), &link).unwrap();
    }
    let mut command = Command::new(link);
    scratch.prepare(&mut command);
    crate::common::said(command.args(arguments).output().unwrap())
}

/// A loop device, detached when it goes.
struct Loop(String);

impl Loop {
    fn new(image: &str) -> Self {
        let made = Command::new("losetup").args(["--find", "--show", image]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        Self(String::from_utf8(made.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn udev_is_told_what_a_volume_is_and_nothing_of_others() {
    let scratch = with_label("my disk");
    let told = scratch.dendro(["udev", &scratch.image()]).succeeds();
    let lines: Vec<&str> = told.out.lines().collect();
    assert_eq!(
        lines,
        [
            "ID_FS_TYPE=dendro",
            "ID_FS_USAGE=filesystem",
            "ID_FS_VERSION=1.0",
            &format!("ID_FS_UUID={UUID}"),
            &format!("ID_FS_UUID_ENC={UUID}"),
            "ID_FS_LABEL=my_disk",
            "ID_FS_LABEL_ENC=my\\x20disk",
        ]
    );
    let foreign = scratch.text("foreign");
    fs::write(&foreign, vec![0; 32 << 20]).unwrap();
    let told = scratch.dendro(["udev", &foreign]);
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (Some(1), "", ""));
    scratch.dendro(["udev", "/nowhere"]).fails(1, &["/nowhere", "No such file"]);
}

#[test]
fn udev_is_told_while_the_volume_is_mounted() {
    if skips_mounts() {
        return;
    }
    let scratch = with_label("home");
    scratch.mount();
    let told = scratch.dendro(["udev", &scratch.image()]).succeeds();
    assert!(told.out.contains("ID_FS_LABEL=home"), "{told:?}");
    scratch.umount();
}

#[test]
fn the_rule_asks_where_the_command_is_installed() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let rule = fs::read_to_string(packaging.join("udev/61-dendro.rules.in")).unwrap();
    assert!(rule.contains("IMPORT{program}=\"@BINDIR@/dendro udev $devnode\""), "{rule}");
}

#[test]
fn file_1_knows_a_volume_by_its_magic_entry() {
    if Command::new("file").arg("--version").output().is_err() {
        eprintln!("left out: there is no file(1)");
        return;
    }
    let scratch = with_label("home");
    let magic = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/magic/dendrofs");
    let command = |more: &[&str]| {
        let mut command = Command::new("file");
        command.arg("-b").arg("-m").arg(&magic).args(more).arg(scratch.image());
        let said = command.output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    let expected =
        format!("dendrofs volume, format 1.0, label \"home\", UUID {UUID}, shut down cleanly\n");
    assert_eq!(command(&[]), expected);
    assert_eq!(command(&["--mime-type"]), "application/x-dendrofs\n");
}

#[test]
fn a_large_disk_gets_its_map_twice_and_others_do_not() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    for (len_bytes, options, copies) in [
        (1_u64 << 30, &[][..], 2),
        (1 << 30, &["--metadata-copies", "1"], 1),
        ((1 << 30) - (1 << 20), &[], 1),
    ] {
        fs::File::create(scratch.path("image")).unwrap().set_len(len_bytes).unwrap();
        let disk = Loop::new(&scratch.text("image"));
        scratch.dendro(["mkfs", "--force"].iter().chain(options).chain(&[&*disk.0])).succeeds();
        assert_eq!(scratch.info(&disk.0)["metadata_copies"], copies, "{len_bytes}, {options:?}");
    }
}

#[test]
fn a_volume_is_found_by_its_uuid_and_by_its_label() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    // Others may have volumes attached, too.
    let label = format!("tag {}", std::process::id());
    scratch.dendro(["mkfs", "-q", "-L", &label, "--size", "64M", &scratch.image()]).succeeds();
    let uuid = scratch.info(&scratch.image())["uuid"].as_str().unwrap().to_owned();
    let mount = |tag: &str| scratch.dendro(["mount", tag, &scratch.mount_point()]);
    mount(&format!("UUID={uuid}")).fails(32, &["no block device holds this volume"]);
    mount("UUID=home").fails(32, &["\"home\" is no UUID"]);
    {
        let _first = Loop::new(&scratch.image());
        // One image, twice: it does not matter which.
        let _second = Loop::new(&scratch.image());
        for tag in [format!("UUID={uuid}"), format!("LABEL={label}")] {
            mount(&tag).succeeds();
            assert!(scratch.is_mounted());
            scratch.umount();
        }
        // So are its block devices.
        scratch.dendro(["block", "create", &format!("UUID={uuid}/disk"), "1G"]).succeeds();
        let listed = scratch.dendro(["block", "list", &format!("LABEL={label}")]).succeeds();
        assert!(listed.out.contains("disk"), "{listed:?}");
        scratch.dendro(["block", "delete", &format!("UUID={uuid}:disk")]).succeeds();
        scratch.dendro(["block", "list", "UUID=home"]).fails(1, &["\"home\" is no UUID"]);
    }
    // A copy is another volume of the same name.
    fs::copy(scratch.path("image"), scratch.path("copy")).unwrap();
    let (first, second) = (Loop::new(&scratch.image()), Loop::new(&scratch.text("copy")));
    mount(&format!("UUID={uuid}")).fails(32, &[&first.0, &second.0, "name the device"]);
    assert!(!scratch.is_mounted());
}

#[test]
fn a_sound_volume_passes_fsck_and_is_not_touched() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.dendro(["snapshot", "create", &format!("{image}@one")]).succeeds();
    let before = fs::read(&image).unwrap();
    let full = linked(&scratch, "fsck.dendro", &["-n", &image]).succeeds();
    assert!(full.out.contains("is sound") && full.out.contains("trees of 2 versions"), "{full:?}");
    let glance = linked(&scratch, "fsck.dendro", &["-a", &image]).succeeds();
    assert!(glance.out.contains("shut down cleanly; not checked"), "{glance:?}");
    linked(&scratch, "fsck.dendro", &["-a", "-f", &image]).succeeds();
    let json = scratch.dendro(["check", "--data", "--json", &image]).succeeds();
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json["sound"], &json["data_read"]), (&true.into(), &true.into()));
    assert!(fs::read(&image).unwrap() == before, "a check changes nothing");
}

#[test]
fn a_check_ends_as_fsck_8_says() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    let zeros = scratch.text("zeros");
    fs::write(&zeros, vec![0; 32 << 20]).unwrap();
    linked(&scratch, "fsck.dendro", &["-a", &zeros]).fails(8, &[&zeros, "no dendrofs volume"]);
    scratch.dendro(["check", &zeros]).fails(8, &[&zeros]);
    scratch.dendro(["check", "/nowhere"]).fails(8, &["/nowhere"]);
    scratch.dendro(["check", "--no-such", &image]).fails(16, &["--no-such"]);
    // The checkpoint, overwritten: there is nothing behind it to go on from.
    let info = scratch.dendro(["dump", "--json", &image, "superblocks"]).succeeds();
    let last: serde_json::Value = serde_json::from_str(info.out.lines().last().unwrap()).unwrap();
    let offset = last["superblock"]["checkpoint_offset"].as_u64().unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0xff; 64], offset).unwrap();
    let damaged = scratch.dendro(["check", &image]);
    assert_eq!(damaged.code, Some(4), "{damaged:?}");
    assert!(damaged.out.contains("the checkpoint cannot be used"), "{damaged:?}");
    assert!(damaged.out.contains("is damaged, see above"), "{damaged:?}");
}

#[test]
fn what_is_mounted_is_not_mended_and_a_crash_is_no_damage() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.mount();
    for option in ["-y", "-p"] {
        let parts = [&*image, "is mounted on", option, "unmount it"];
        scratch.dendro(["check", option, &image]).fails(8, &parts);
    }
    for number in 0..200 {
        fs::write(scratch.inside(&format!("file-{number}")), vec![7; 9000]).unwrap();
    }
    scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    scratch.kill_daemon();
    let _ = scratch.dendro(["umount", &scratch.mount_point()]);
    let before = fs::read(&image).unwrap();
    let glance = linked(&scratch, "fsck.dendro", &["-p", &image]).succeeds();
    assert!(glance.out.contains("mounting it rolls the log forward"), "{glance:?}");
    let full = scratch.dendro(["check", "-n", "--data", &image]).succeeds();
    assert!(
        full.out.contains("is sound") && full.out.contains("rolled forward in memory"),
        "{full:?}"
    );
    assert!(fs::read(&image).unwrap() == before, "a check changes nothing");
}

#[test]
fn fsck_8_runs_the_check_of_a_device_that_fstab_names() {
    if !is_root() {
        return;
    }
    let scratch = with_label("home");
    let device = Loop::new(&scratch.image());
    // The boot runs fsck(8) with the device, and fstab has one of its names.
    let name = scratch.path("by-uuid");
    std::os::unix::fs::symlink(&device.0, &name).unwrap();
    fs::write(scratch.path("fstab"), format!("{} /home dendro noauto 0 2\n", name.display()))
        .unwrap();
    let helper = scratch.path("fsck.dendro");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dendro"), helper).unwrap();
    let mut command = Command::new("fsck");
    command.args(["-a", "-T", &device.0]);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", scratch.text("")));
    command.env("FSTAB_FILE", scratch.path("fstab"));
    scratch.prepare(&mut command);
    let said = crate::common::said(command.output().unwrap()).succeeds();
    assert!(said.out.contains("was shut down cleanly; not checked"), "{said:?}");
}

#[test]
fn a_damaged_file_fails_the_check_that_reads_contents() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.mount();
    let pages: Vec<u8> = (b'0'..b'5').flat_map(|digit| [digit; 4096]).collect();
    fs::create_dir(scratch.inside("dir")).unwrap();
    fs::write(scratch.inside("dir/file"), &pages).unwrap();
    fs::hard_link(scratch.inside("dir/file"), scratch.inside("other")).unwrap();
    let gone = scratch.inside("gone");
    fs::write(&gone, [b'x'; 8192]).unwrap();
    fs::write(scratch.inside("dir/tail"), [vec![b's'; 4096], vec![b't'; 904]].concat()).unwrap();
    let one = format!("{}@one", scratch.mount_point());
    scratch.dendro(["snapshot", "create", &one]).succeeds();
    fs::remove_file(gone).unwrap();
    scratch.umount();
    let bytes = fs::read(&image).unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    for damaged in [b'2', b'x'] {
        let at = bytes.windows(100).position(|window| window == [damaged; 100]).unwrap();
        file.write_all_at(b"A", at as u64).unwrap();
    }
    scratch.dendro(["check", &image]).succeeds();
    let read = scratch.dendro(["check", "--data", &image]);
    assert_eq!(read.code, Some(4), "{read:?}");
    // The page that a file ends in is looked at with its contents, and so are all other files.
    let at = bytes.windows(100).position(|window| window == [b't'; 100]).unwrap();
    file.write_all_at(b"A", at as u64).unwrap();
    scratch.dendro(["check", &image]).succeeds();
    let tail = scratch.dendro(["check", "--data", &image]);
    assert_eq!(tail.code, Some(4), "{tail:?}");
    for part in ["error 219: ", "in /dir/tail (@one, :main)\n"] {
        assert!(tail.out.contains(part), "no {part} in {tail:?}");
    }
    // By all its names; and what the past alone has, by where it is there.
    for part in [
        "a page's block is damaged",
        "in /dir/file and /other (@one, :main)\n",
        "in @one/gone (@one)\n",
    ] {
        assert!(read.out.contains(part), "no {part} in {read:?}");
    }
}

#[test]
fn the_daemon_is_called_after_its_volume() {
    if skips_mounts() {
        return;
    }
    for (label, expected) in
        [("home", "dendro: home"), ("", "dendro: image"), ("Bäume im Wald", "dendro: Bäume")]
    {
        let scratch = with_label(label);
        scratch.mount();
        let pid = scratch.daemon_pid();
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        assert_eq!(name.trim(), expected);
        scratch.umount();
    }
}

#[test]
fn the_debian_package_has_all_that_it_should() {
    let has = |tool| Command::new(tool).arg("--version").output().is_ok();
    if !has("dpkg-shlibdeps") || !has("dpkg-deb") {
        eprintln!("left out: it takes dpkg-dev");
        return;
    }
    let scratch = Scratch::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/make-deb");
    let made = Command::new(script)
        .args([env!("CARGO_BIN_EXE_dendro"), &scratch.text("out")])
        .output()
        .unwrap();
    let made = crate::common::said(made).succeeds();
    let package = made.out.lines().last().unwrap();
    let list = Command::new("dpkg-deb").args(["--contents", package]).output().unwrap();
    let list = crate::common::said(list).succeeds().out;
    for part in [
        "./usr/bin/dendro\n",
        "./usr/sbin/mkfs.dendro -> ../bin/dendro\n",
        "./usr/sbin/fsck.dendro -> ../bin/dendro\n",
        "./usr/sbin/mount.dendro -> ../bin/dendro\n",
        "./usr/sbin/umount.fuseblk.dendro -> ../bin/dendro\n",
        "./usr/lib/udev/rules.d/61-dendro.rules\n",
        "./usr/share/dendrofs/magic\n",
        "./usr/share/man/man1/dendro-mount.1.gz\n",
        "./usr/share/man/man8/mkfs.dendro.8.gz\n",
        "./usr/share/bash-completion/completions/dendro\n",
        "./usr/share/zsh/vendor-completions/_dendro\n",
        "./usr/share/doc/dendrofs/copyright\n",
        "./usr/share/doc/dendrofs/changelog.gz\n",
        "./usr/share/doc/dendrofs/libraries.gz\n",
    ] {
        assert!(list.contains(part), "no {part} in {list}");
    }
    assert!(!list.contains("/usr/local/"), "{list}");
    let field = |name: &str| {
        let said = Command::new("dpkg-deb").args(["--field", package, name]).output().unwrap();
        crate::common::said(said).succeeds().out
    };
    assert!(field("Depends").contains("libc6 (>=") && field("Depends").contains("fuse3"));
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
}
