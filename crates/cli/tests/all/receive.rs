//! `dendro receive`: a version on another volume is equal to the one that was sent.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{Scratch, said, skips_mounts};

/// What a user can see of a tree, file by file.
pub(crate) fn tree(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let full = root.join(&path);
        let of = fs::symlink_metadata(&full).unwrap();
        let content = match of.file_type() {
            kind if kind.is_file() => format!("{:?}", crc(&fs::read(&full).unwrap())),
            kind if kind.is_symlink() => format!("{:?}", fs::read_link(&full).unwrap()),
            _ => String::new(),
        };
        let mut names = vec![0; 1000];
        let len = rustix::fs::llistxattr(&full, &mut names[..]).unwrap();
        let mut value = [0; 100];
        let value_len = rustix::fs::lgetxattr(&full, "user.mark", &mut value[..]).unwrap_or(0);
        lines.push(format!(
            "{} {} {:o} {}:{} {} {} {} {}.{} {}.{} {content} {:?} {:?}",
            path.display(),
            of.ino(),
            of.mode(),
            of.uid(),
            of.gid(),
            of.nlink(),
            of.size(),
            of.blocks(),
            of.mtime(),
            of.mtime_nsec(),
            of.ctime(),
            of.ctime_nsec(),
            &names[..len],
            &value[..value_len],
        ));
        if of.is_dir() {
            let entries = fs::read_dir(&full).unwrap();
            left.extend(entries.map(|entry| path.join(entry.unwrap().file_name())));
        }
    }
    lines.sort();
    lines
}

fn crc(bytes: &[u8]) -> (usize, u64) {
    let mix = |sum: u64, byte: &u8| sum.rotate_left(5) ^ u64::from(*byte).wrapping_mul(0x9e37);
    (bytes.len(), bytes.iter().fold(0, mix))
}

/// A tree with holes, links, attributes and a large directory, in three snapshots.
pub(crate) fn prepare(scratch: &Scratch) {
    let inside = |name: &str| scratch.inside(name);
    fs::create_dir_all(inside("dir/deep")).unwrap();
    fs::create_dir(inside("many")).unwrap();
    for number in 0..600 {
        fs::write(inside(&format!("many/{number}")), vec![number as u8; number * 7]).unwrap();
    }
    let sparse = fs::File::create(inside("dir/sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    sparse.write_all_at(&[7; 10_000], 1 << 20).unwrap();
    sparse.write_all_at(&[8; 10_000], (2 << 20) + 100).unwrap();
    fs::write(inside("file"), vec![1; 300_000]).unwrap();
    fs::hard_link(inside("file"), inside("dir/link")).unwrap();
    symlink("../file", inside("dir/symlink")).unwrap();
    rustix::fs::lsetxattr(inside("file"), "user.mark", b"one", rustix::fs::XattrFlags::empty())
        .unwrap();
    fs::set_permissions(inside("dir/deep"), fs::Permissions::from_mode(0o2750)).unwrap();
    snapshot(scratch, "a");
    fs::File::options().write(true).open(inside("file")).unwrap().write_all_at(b"x", 5000).unwrap();
    rustix::fs::lsetxattr(inside("file"), "user.mark", b"two", rustix::fs::XattrFlags::empty())
        .unwrap();
    fs::rename(inside("dir/deep"), inside("shallow")).unwrap();
    fs::remove_file(inside("dir/link")).unwrap();
    for number in (0..600).step_by(3) {
        fs::remove_file(inside(&format!("many/{number}"))).unwrap();
    }
    rustix::fs::fallocate(
        fs::File::options().write(true).open(inside("dir/sparse")).unwrap(),
        rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
        1 << 20,
        8192,
    )
    .unwrap();
    snapshot(scratch, "b");
    fs::remove_dir_all(inside("many")).unwrap();
    fs::write(inside("new"), "new").unwrap();
    snapshot(scratch, "c");
}

pub(crate) fn snapshot(scratch: &Scratch, name: &str) {
    let version = format!("{}@{name}", scratch.mount_point());
    scratch.dendro(["snapshot", "create", &version]).succeeds();
}

/// Sends a snapshot into a file.
pub(crate) fn sent(scratch: &Scratch, target: &str, name: &str, from: Option<&str>) -> String {
    let file = scratch.text(&format!("{name}-from-{}", from.unwrap_or("nothing")));
    let of = format!("{target}@{name}");
    let mut arguments = vec!["send", "-o", &file, &of];
    arguments.extend(from.iter().flat_map(|from| ["--from", from]));
    scratch.dendro(arguments).succeeds();
    file
}

/// Prepares the mounted volume, and writes its three snapshots into files, each from the one
/// before.
pub(crate) fn prepare_and_send(scratch: &Scratch) -> [String; 3] {
    prepare(scratch);
    let mount = scratch.mount_point();
    [("a", None), ("b", Some("@a")), ("c", Some("@b"))]
        .map(|(name, from)| sent(scratch, &mount, name, from))
}

/// The tree of a snapshot of an image, mounted.
pub(crate) fn tree_of(scratch: &Scratch, image: &str, name: &str) -> Vec<String> {
    let place = scratch.path("look");
    fs::create_dir_all(&place).unwrap();
    let options = format!("snapshot={name}");
    scratch.dendro(["mount", "-o", &options, image, place.to_str().unwrap()]).succeeds();
    let lines = tree(&place);
    scratch.dendro(["umount", place.to_str().unwrap()]).succeeds();
    lines
}

pub(crate) fn mkfs(scratch: &Scratch, name: &str) -> String {
    let image = scratch.text(name);
    let made = ["mkfs", "-q", "--segment-size", "1M", "--size", "64M", &image];
    scratch.dendro(made).succeeds();
    image
}

#[test]
fn what_is_received_is_equal_whether_sender_and_receiver_are_mounted_or_not() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let streams = prepare_and_send(&scratch);
    scratch.umount();
    let image = scratch.image();
    let expected = ["a", "b", "c"].map(|name| tree_of(&scratch, &image, name));
    assert!(expected[0].len() > 600 && expected[2].len() < 20);
    // Into a volume that is not mounted, and has files of its own.
    let copy = mkfs(&scratch, "copy");
    for stream in &streams {
        scratch.dendro(["receive", &copy, stream]).succeeds();
    }
    for (name, expected) in ["a", "b", "c"].iter().zip(&expected) {
        assert_eq!(tree_of(&scratch, &copy, name), *expected, "{name}");
    }
    scratch.dendro(["check", "--data", &copy]).succeeds();
    // Into a mounted one, beside files with the same numbers, under other names, by a pipe.
    let other = mkfs(&scratch, "other");
    let place = scratch.text("place");
    fs::create_dir(&place).unwrap();
    scratch.dendro(["mount", &other, &place]).succeeds();
    for number in 0..50 {
        fs::write(scratch.path(&format!("place/{number}")), vec![b'o'; 9000]).unwrap();
    }
    let own = tree(Path::new(&place));
    for (stream, name) in streams.iter().zip(["x", "y", "z"]) {
        let mut receiver = scratch.command(["receive", &format!("{place}@{name}")]);
        let mut receiver = receiver.stdin(Stdio::piped()).spawn().unwrap();
        receiver.stdin.take().unwrap().write_all(&fs::read(stream).unwrap()).unwrap();
        said(receiver.wait_with_output().unwrap()).succeeds();
    }
    assert_eq!(tree(Path::new(&place)), own);
    for (name, expected) in ["x", "y", "z"].iter().zip(&expected) {
        assert_eq!(tree_of(&scratch, &other, name), *expected, "{name}");
    }
    scratch.dendro(["check", "--data", &place]).succeeds();
    // A clone of a copy goes on, and comes back.
    scratch.dendro(["clone", &format!("{place}@z"), "work"]).succeeds();
    let work = scratch.text("work");
    fs::create_dir(&work).unwrap();
    scratch.dendro(["mount", "-o", "clone=work", &other, &work]).succeeds();
    fs::write(scratch.path("work/more"), "more").unwrap();
    let with_more = tree(Path::new(&work));
    scratch.dendro(["snapshot", "create", &format!("{work}@back")]).succeeds();
    let back = sent(&scratch, &place, "back", Some("@z"));
    scratch.dendro(["receive", &image, &back]).succeeds();
    assert_eq!(tree_of(&scratch, &image, "back"), with_more);
    for point in [&work, &place] {
        scratch.dendro(["umount", point]).succeeds();
    }
    for image in [&image, &other] {
        scratch.dendro(["check", "--data", image]).succeeds();
    }
}

#[test]
fn what_cannot_be_received_is_refused_and_changes_nothing() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    prepare(&scratch);
    let mount = scratch.mount_point();
    let full = sent(&scratch, &mount, "a", None);
    let step = sent(&scratch, &mount, "b", Some("@a"));
    let copy = mkfs(&scratch, "copy");
    let listed = |target: &str| scratch.dendro(["log", "--json", target]).succeeds().out;
    let before = listed(&copy);
    scratch.dendro(["receive", &copy, &step]).fails(1, &["@a, epoch", "not here"]);
    let whole = fs::read(&full).unwrap();
    let bad = scratch.text("bad");
    fs::write(&bad, &whole[..whole.len() - 100]).unwrap();
    scratch.dendro(["receive", &copy, &bad]).fails(1, &["frame", "the rest of it is missing"]);
    let mut altered = whole.clone();
    altered[whole.len() / 2] ^= 1;
    fs::write(&bad, &altered).unwrap();
    scratch.dendro(["receive", &copy, &bad]).fails(1, &["frame", "checksum is wrong"]);
    scratch.dendro(["receive", &format!("{copy}:work@x"), &full]).fails(2, &["branch of its own"]);
    assert_eq!(listed(&copy), before);
    // The sender has it, mounted or not.
    scratch.dendro(["receive", &mount, &full]).fails(1, &["is here, as @a"]);
    scratch.dendro(["receive", &copy, &full]).succeeds();
    scratch.dendro(["receive", &format!("{copy}@again"), &full]).fails(1, &["is here, as @a"]);
    scratch.dendro(["receive", &format!("{copy}@a"), &step]).fails(1, &["called 'a' already"]);
    scratch.dendro(["check", "--data", &copy]).succeeds();
}

#[test]
fn a_daemon_that_is_killed_while_it_receives_leaves_all_of_it_or_nothing() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    prepare(&scratch);
    let stream = fs::read(sent(&scratch, &scratch.mount_point(), "a", None)).unwrap();
    scratch.umount();
    let copy = mkfs(&scratch, "copy");
    let place = scratch.text("place");
    fs::create_dir(&place).unwrap();
    let names = || {
        let out = scratch.dendro(["snapshot", "list", "--json", &copy]).succeeds().out;
        let listed: serde_json::Value = serde_json::from_str(&out).unwrap();
        listed["snapshots"].as_array().map_or(0, Vec::len)
    };
    let before = names();
    for part in 1..8 {
        scratch.dendro(["mount", &copy, &place]).succeeds();
        let info = scratch.info(&place);
        let mut receiver = scratch.command(["-q", "receive", &place]);
        receiver.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut receiver = receiver.spawn().unwrap();
        let len = stream.len() * part / 8;
        let mut pipe = receiver.stdin.take().unwrap();
        pipe.write_all(&stream[..len]).unwrap();
        let pid = u32::try_from(info["mount"]["pid"].as_u64().unwrap()).unwrap();
        if part % 2 == 0 {
            scratch.dendro(["sync", &place]).succeeds();
        }
        crate::common::signal(pid, "KILL");
        drop(pipe);
        assert_ne!(said(receiver.wait_with_output().unwrap()).code, Some(0));
        scratch.dendro(["umount", "--force", &place]).succeeds();
        assert_eq!(names(), before);
        scratch.dendro(["check", "--data", "-f", &copy]).succeeds();
    }
    let file = scratch.text("stream");
    fs::write(&file, &stream).unwrap();
    scratch.dendro(["receive", &copy, &file]).succeeds();
    assert_eq!(names(), before + 1);
    scratch.dendro(["check", "--data", "-f", &copy]).succeeds();
}
