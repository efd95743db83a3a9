//! `dendro ls`, `cat` and `cp`: files of volumes that are not mounted, sound and damaged.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::common::failing::FailingDevice;
use crate::common::{Scratch, is_root, skips_mounts};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use serde_json::Value;

/// What a file is: kind and mode, owner, size, time, content, and an extended attribute.
type Facts = (u32, u32, u32, u64, i64, i64, Vec<u8>, Vec<u8>);

fn facts(path: &Path) -> Facts {
    let of = fs::symlink_metadata(path).unwrap();
    let content = match of.file_type() {
        kind if kind.is_symlink() => {
            fs::read_link(path).unwrap().into_os_string().into_encoded_bytes()
        }
        kind if kind.is_file() => fs::read(path).unwrap(),
        _ => Vec::new(),
    };
    let mut value = vec![0; 100];
    let value_len = rustix::fs::lgetxattr(path, "user.colour", &mut value).unwrap_or(0);
    value.truncate(value_len);
    let size = if of.is_dir() { 0 } else { of.len() };
    (of.mode(), of.uid(), of.gid(), size, of.mtime(), of.mtime_nsec(), content, value)
}

/// All files below a directory, by their paths in it.
fn tree(root: &Path) -> Vec<(String, Facts)> {
    let mut all = vec![(String::new(), facts(root))];
    let mut rest = vec![root.to_path_buf()];
    while let Some(directory) = rest.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if name == ".dendro" {
                continue;
            }
            all.push((name, facts(&path)));
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                rest.push(path);
            }
        }
    }
    all.sort();
    all
}

fn set_time(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// A tree with a file of each kind.
fn fill(root: &Path) {
    fs::create_dir_all(root.join("dir/below")).unwrap();
    fs::write(root.join("dir/small"), "small").unwrap();
    fs::write(root.join("dir/below/large"), [5; 300_000]).unwrap();
    fs::hard_link(root.join("dir/below/large"), root.join("dir/again")).unwrap();
    rustix::fs::symlink("below/large", root.join("dir/link")).unwrap();
    rustix::fs::symlink("/dir", root.join("dir/below/up")).unwrap();
    let sparse = File::create(root.join("dir/sparse")).unwrap();
    sparse.write_all_at(b"end", 20 << 20).unwrap();
    sparse.set_len(30 << 20).unwrap();
    let fifo = root.join("dir/fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    for name in ["dir/small", "dir/below"] {
        let flags = XattrFlags::empty();
        rustix::fs::setxattr(root.join(name), "user.colour", b"green", flags).unwrap();
    }
    if is_root() {
        std::os::unix::fs::chown(root.join("dir/small"), Some(12), Some(34)).unwrap();
    }
    fs::set_permissions(root.join("dir/small"), Permissions::from_mode(0o4751)).unwrap();
    set_time(&root.join("dir/small"), 1_000_000);
    fs::set_permissions(root.join("dir/below"), Permissions::from_mode(0o555)).unwrap();
    set_time(&root.join("dir/below"), 2_000_000);
    set_time(&root.join("dir"), 3_000_000);
}

/// A volume with that tree, unmounted; and the tree as it was in the mount.
fn filled() -> (Scratch, Vec<(String, Facts)>) {
    let scratch = Scratch::with_volume();
    scratch.mount();
    fill(&scratch.inside(""));
    let tree = tree(&scratch.inside("dir"));
    scratch.umount();
    (scratch, tree)
}

#[test]
fn a_copy_has_all_that_the_files_had() {
    if skips_mounts() {
        return;
    }
    let (scratch, tree_before) = filled();
    let image = scratch.image();
    let before = fs::read(&image).unwrap();
    let out = scratch.text("out");
    scratch.dendro(["cp", "-r", &image, "/dir", &out]).succeeds();
    let mut copied = tree(Path::new(&out));
    if !is_root() {
        // The bits that run a program as its owner go with the owner.
        copied
            .iter_mut()
            .for_each(|(_, facts)| facts.0 |= 0o4000 * u32::from(facts.0 & 0o751 == 0o751));
    }
    assert_eq!(copied, tree_before);
    let inode = |name: &str| fs::metadata(scratch.path("out").join(name)).unwrap().ino();
    assert_eq!(inode("again"), inode("below/large"), "one file with two names");
    let sparse = fs::metadata(scratch.path("out/sparse")).unwrap();
    assert!(sparse.len() == 30 << 20 && sparse.blocks() * 512 < 1 << 20, "{sparse:?}");
    assert!(fs::read(&image).unwrap() == before, "nothing was written to the image");

    // What is in the root goes into a directory that is there.
    fs::create_dir(scratch.path("into")).unwrap();
    let json =
        scratch.dendro(["cp", "-r", "--json", &image, "/", &scratch.text("into")]).succeeds();
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(
        (&json["copied_directories"], &json["problem_count"]),
        (&2.into(), &0.into()),
        "{json}"
    );
    assert_eq!(tree(&scratch.path("into/dir")).len(), tree_before.len());

    // Nothing that is there is overwritten.
    scratch.dendro(["cp", &image, "/dir/small", &scratch.text("out")]).fails(1, &["/dir/small"]);
    scratch.dendro(["cp", &image, "/dir", &scratch.text("new")]).fails(1, &["/dir", "-r"]);
    scratch.dendro(["cp", &image, "/none", &scratch.text("new")]).fails(1, &["/none", "no such"]);
    scratch
        .dendro(["cp", &image, "/dir/small", "/dir/link", &scratch.text("new")])
        .fails(1, &["no such directory"]);
    fs::set_permissions(scratch.path("out/below"), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(scratch.path("into/dir/below"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn files_are_listed_and_written_out() {
    if skips_mounts() {
        return;
    }
    let (scratch, _) = filled();
    let image = scratch.image();
    assert_eq!(scratch.dendro(["ls", &image]).succeeds().out, "dir\n");
    let names = scratch.dendro(["ls", &image, "dir"]).succeeds().out;
    assert_eq!(names, "again\nbelow\nfifo\nlink\nsmall\nsparse\n");
    let long = scratch.dendro(["ls", "-l", &image, "/dir"]).succeeds().out;
    assert!(long.contains("-rwsr-x--x") && long.contains("link -> below/large"), "{long}");
    let deep = scratch.dendro(["ls", "-R", &image]).succeeds().out;
    assert!(deep.contains("/dir/below:\nlarge\nup\n"), "{deep}");
    let own = scratch.dendro(["ls", "-ld", &image, "/dir/below/up"]).succeeds().out;
    assert!(own.contains("/dir/below/up -> /dir"), "{own}");
    let json = scratch.dendro(["ls", "--json", &image, "/dir"]).succeeds().out;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["entries"][4]["name"], "small");
    assert_eq!(json["entries"][4]["mode"], "4751");
    assert_eq!(json["entries"][3]["target"], "below/large");

    assert_eq!(scratch.dendro(["cat", &image, "/dir/small"]).succeeds().out, "small");
    let through = scratch.dendro(["cat", &image, "/dir/below/up/link"]).succeeds().out;
    assert!(through.as_bytes() == [5; 300_000]);
    let json = scratch.dendro(["cat", "--json", &image, "/dir/sparse"]).succeeds().out;
    let parts: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let whole: u64 = parts.iter().map(|part| part["len_bytes"].as_u64().unwrap()).sum();
    assert_eq!((whole, parts[0]["content"].is_null()), (30 << 20, true));
    scratch.dendro(["cat", &image, "/dir"]).fails(1, &["/dir", "is a directory"]);
    scratch.dendro(["cat", &image, "/dir/none"]).fails(1, &["/dir/none", "no such file"]);
    scratch.dendro(["ls", &image, "/dir/none", "/dir"]).fails(1, &["/dir/none", "no such file"]);
    scratch.dendro(["ls", &format!("{image}@none")]).fails(1, &[&image, "none"]);
}

#[test]
fn any_version_is_read_and_a_mounted_volume_is_not() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.mount();
    fs::write(scratch.inside("file"), "first").unwrap();
    scratch.dendro(["snapshot", "create", &format!("{}@one", scratch.mount_point())]).succeeds();
    fs::write(scratch.inside("file"), "second").unwrap();
    scratch.dendro(["ls", &image]).fails(1, &[&image, "is mounted on", ".dendro"]);
    scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    // A crash leaves a log, which is rolled forward in memory.
    scratch.kill_daemon();
    let before = fs::read(&image).unwrap();
    let cat = |target: &str| scratch.dendro(["cat", target, "file"]).succeeds().out;
    assert_eq!(cat(&image), "second");
    assert_eq!(cat(&format!("{image}@one")), "first");
    assert!(fs::read(&image).unwrap() == before);
    scratch.dendro(["clone", &format!("{image}@one"), "draft"]).succeeds();
    assert_eq!(cat(&format!("{image}:draft")), "first");
}

/// Where the bytes `pattern` first lie in the image.
fn offset_of(image: &str, pattern: &[u8]) -> usize {
    let bytes = fs::read(image).unwrap();
    bytes.windows(pattern.len()).position(|window| window == pattern).unwrap()
}

fn damage(image: &str, at: usize) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at as u64).unwrap();
}

#[test]
fn a_file_with_an_unreadable_page_is_copied_as_far_as_it_can_be() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.mount();
    let content: Vec<u8> = (0..40_000_u32).map(|at| (at / 4096) as u8 + 1).collect();
    fs::write(scratch.inside("file"), &content).unwrap();
    fs::write(scratch.inside("other"), "other").unwrap();
    scratch.umount();
    damage(&image, offset_of(&image, &[3; 4096]));
    let out = scratch.text("out");
    scratch.dendro(["cp", &image, "/file", &out]).fails(1, &["/file", "4096 bytes from byte 8192"]);
    assert!(!scratch.path("out").exists(), "half a file is none");
    fs::create_dir(&out).unwrap();
    scratch
        .dendro(["cp", "-rk", &image, "/", &out])
        .fails(1, &["/file", "4096 bytes cannot be read", "byte 8192", "one file"]);
    let mut expected = content.clone();
    expected[8192..12_288].fill(0);
    assert!(fs::read(scratch.path("out/file")).unwrap() == expected);
    assert_eq!(fs::read(scratch.path("out/other")).unwrap(), b"other");
    scratch.dendro(["cat", &image, "/file"]).fails(1, &["/file", "byte 8192"]);
    let said = scratch.dendro(["cat", "-k", &image, "/file"]).fails(1, &["4096 bytes"]);
    assert!(said.out.as_bytes() == expected);
    let said = scratch.dendro(["cat", "-k", "--json", &image, "/file"]).fails(1, &["/file"]);
    assert!(said.out.contains("\"problem\":\""), "{said:?}");
}

#[test]
fn a_file_that_the_device_does_not_read_fails_alone() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.mount();
    let content: Vec<u8> = (0..40_000_u32).map(|at| (at / 4096) as u8 + 1).collect();
    fs::write(scratch.inside("file"), &content).unwrap();
    fs::create_dir(scratch.inside("dir")).unwrap();
    for number in 0..50 {
        fs::write(scratch.inside(&format!("dir/{number}")), format!("{number}").repeat(3000))
            .unwrap();
    }
    let before = tree(&scratch.inside(""));
    scratch.umount();
    let at = offset_of(&image, &[3; 4096]) as u64;
    let device = FailingDevice::new(Path::new(&image), scratch.path("device"));
    device.fail(Some(at..at + 512));
    let out = |name: &str| {
        fs::create_dir(scratch.path(name)).unwrap();
        scratch.text(name)
    };
    let image = device.image();
    // Without -k half a file is none, and with it what cannot be read is zeros.
    scratch
        .dendro(["cp", "-r", &image, "/", &out("whole")])
        .fails(1, &["/file", "4096 bytes from byte 8192"]);
    assert!(!scratch.path("whole/file").exists());
    let others = |mut all: Vec<(String, Facts)>| {
        all.retain(|(name, _)| name.contains('/'));
        all
    };
    assert!(others(tree(&scratch.path("whole"))) == others(before));
    scratch
        .dendro(["cp", "-rk", &image, "/", &out("kept")])
        .fails(1, &["/file", "4096 bytes cannot be read", "byte 8192", "one file"]);
    let mut expected = content.clone();
    expected[8192..12_288].fill(0);
    assert!(fs::read(scratch.path("kept/file")).unwrap() == expected);
    scratch.dendro(["cat", &image, "/file"]).fails(1, &["/file", "byte 8192"]);
    scratch.dendro(["cat", &image, "/dir/7"]).succeeds();
    // A check with --data says so, and a device that reads again gives all of it.
    let said = scratch.dendro(["check", "--data", &image]).fails(4, &[]);
    assert!(said.out.contains("error 31: ") && said.out.contains("that is in /file"), "{said:?}");
    device.fail(None);
    scratch.dendro(["cp", "-r", &image, "/", &out("again")]).succeeds();
    assert!(fs::read(scratch.path("again/file")).unwrap() == content);
    scratch.dendro(["check", "--data", &image]).succeeds();
}

#[test]
fn an_image_that_does_not_mount_is_read_as_it_was_before() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    for content in ["first", "second"] {
        scratch.mount();
        fs::write(scratch.inside("file"), content).unwrap();
        scratch.umount();
    }
    let nodes = scratch.dendro(["dump", "--json", &image, "nodes"]).succeeds().out;
    let root: Value = serde_json::from_str(nodes.lines().next().unwrap()).unwrap();
    damage(&image, root["node"]["place"]["offset"].as_u64().unwrap() as usize + 100);
    let log = scratch.text("log");
    let mount = ["mount", "--log-file", &log, &image, &scratch.mount_point()];
    assert_ne!(scratch.dendro(mount).code, Some(0));
    let said = scratch.dendro(["cat", &image, "/file"]).succeeds();
    assert!(said.err.contains("older superblock"), "{said:?}");
    // The log behind the older checkpoint leads to what was written last.
    assert_eq!(said.out, "second", "{said:?}");
    let quiet = scratch.dendro(["-q", "cat", &image, "/file"]).succeeds();
    assert_eq!(quiet.err, "");
}

#[test]
fn an_image_whose_end_is_missing_is_read() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.mount();
    fs::write(scratch.inside("file"), "there").unwrap();
    scratch.umount();
    File::options().write(true).open(&image).unwrap().set_len(48 << 20).unwrap();
    let said = scratch.dendro(["cat", &image, "/file"]).succeeds();
    assert_eq!(said.out, "there");
    assert!(said.err.contains("50331648 of 66060288 bytes are there"), "{said:?}");
    let zeros = scratch.text("zeros");
    fs::write(&zeros, vec![0; 4 << 20]).unwrap();
    scratch.dendro(["ls", &zeros]).fails(1, &[&zeros]);
}
