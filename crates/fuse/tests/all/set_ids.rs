//! Set-id bits are cleared when a user changes a file who may not keep them: on the volume, and at
//! the same time in the kernel, which would otherwise run the changed program with them.
//!
//! The tests need root, to act as another user. `DENDRO_SKIP_MOUNT=1` skips them.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::common::{Mounted, mounted_with, new_disk};
use dendro_fs::Ino;
use dendro_fuse::{Access, Choice, MountOptions};
use rustix::fs::{AtFlags, CWD, FallocateFlags, StatxFlags};
use rustix::process::{Gid, Uid};

/// A user who owns none of the files.
const NOBODY: u32 = 65_534;

const LEN: usize = 3 * 4096;

/// How a file is opened before the bits are set.
struct Opened {
    file: File,
    appending: File,
    direct: File,
}

impl Opened {
    fn new(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        Self {
            file: options.open(path).unwrap(),
            appending: OpenOptions::new().append(true).open(path).unwrap(),
            direct: options.custom_flags(libc::O_DIRECT).open(path).unwrap(),
        }
    }
}

/// An operation that changes a file's data.
type Way = (&'static str, fn(&Opened, &Path));

fn allocate(opened: &Opened, flags: FallocateFlags, offset: u64) {
    rustix::fs::fallocate(&opened.file, flags, offset, 4096).unwrap();
}

const WAYS: &[Way] = &[
    ("a write", |opened, _| opened.file.write_all_at(b"changed", 5).unwrap()),
    ("a write of pages", |opened, _| opened.file.write_all_at(&[1; 8192], 0).unwrap()),
    ("a write at the end", |opened, _| (&opened.appending).write_all(b"more").unwrap()),
    ("a direct write", |opened, _| {
        let buffer = [1; 8192];
        let at = buffer.as_ptr().align_offset(4096);
        opened.direct.write_all_at(&buffer[at..at + 4096], 4096).unwrap();
    }),
    ("an allocation", |opened, _| allocate(opened, FallocateFlags::empty(), LEN as u64)),
    ("an allocation past the end", |opened, _| {
        allocate(opened, FallocateFlags::KEEP_SIZE, LEN as u64);
    }),
    ("a hole", |opened, _| {
        allocate(opened, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0);
    }),
    ("zeros", |opened, _| allocate(opened, FallocateFlags::ZERO_RANGE, 0)),
    ("a copy", |opened, path| {
        let from = File::open(path.with_file_name("source")).unwrap();
        let copied =
            rustix::fs::copy_file_range(&from, Some(&mut 0), &opened.file, Some(&mut 0), 4096);
        assert_eq!(copied, Ok(4096));
    }),
    ("a truncation", |opened, _| opened.file.set_len(10).unwrap()),
    ("an extension", |opened, _| opened.file.set_len(100_000).unwrap()),
    ("a truncation by name", |_, path| {
        OpenOptions::new().write(true).truncate(true).open(path).map(drop).unwrap();
    }),
];

/// The user who changes a file, with two groups.
#[derive(Clone, Copy, Debug)]
struct User {
    uid: u32,
    gid: u32,
    more: Option<u32>,
}

const STRANGER: User = User { uid: NOBODY, gid: NOBODY, more: None };
const MEMBER: User = User { uid: NOBODY, gid: 0, more: None };
const MEMBER_AMONG_OTHERS: User = User { uid: NOBODY, gid: NOBODY, more: Some(0) };
const ROOT: User = User { uid: 0, gid: 0, more: None };

/// Does `work` as that user, on a thread of its own.
fn as_user(user: User, work: impl FnOnce() + Send) {
    #[allow(clippy::disallowed_methods, reason = "rights are a thread's")]
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            let more: Vec<_> = user.more.map(Gid::from_raw).into_iter().collect();
            rustix::thread::set_thread_groups(&more).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            work();
        });
        worker.join().unwrap();
    });
}

/// The mode that the kernel uses when it runs a program, the mode in stat(2), and the mode on the
/// volume.
fn modes(mounted: &Mounted, path: &Path) -> [u32; 3] {
    let known = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::MODE).unwrap();
    let told = fs::metadata(path).unwrap().mode();
    let name = path.file_name().unwrap().as_encoded_bytes();
    let attr = mounted.fs.lookup(Ino::ROOT, name).unwrap();
    mounted.fs.forget(attr.ino, 1);
    [u32::from(known.stx_mode) & 0o7777, told & 0o7777, attr.perm]
}

/// Changes a file that has `mode` as `user`, and checks the mode after that.
fn check(mounted: &Mounted, user: User, (name, change): &Way, mode: u32, expected: u32) {
    let path = mounted.path("program");
    fs::write(&path, [7; LEN]).unwrap();
    let opened = Opened::new(&path);
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    assert_eq!(modes(mounted, &path), [mode; 3]);
    as_user(user, || change(&opened, &path));
    let what = format!("{name} by {user:?} to a file of mode {mode:o}");
    assert_eq!(modes(mounted, &path), [expected; 3], "{what}");
    fs::remove_file(&path).unwrap();
}

/// Calls `test` with a mount over each transport.
fn over_both(test: impl Fn(&Mounted)) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can act for another user");
        return;
    }
    for transport in [Choice::Device, Choice::Auto] {
        let options = MountOptions { access: Access::All, transport, ..MountOptions::default() };
        let Some(mounted) = mounted_with(&new_disk(), options) else { return };
        fs::write(mounted.path("source"), [9; LEN]).unwrap();
        test(&mounted);
        mounted.finish();
    }
}

#[test]
fn whoever_else_changes_a_program_takes_its_set_id_bits_away_at_once() {
    over_both(|mounted| {
        for way in WAYS {
            check(mounted, STRANGER, way, 0o4777, 0o777);
            check(mounted, STRANGER, way, 0o2777, 0o777);
            check(mounted, STRANGER, way, 0o6777, 0o777);
            check(mounted, MEMBER, way, 0o6777, 0o777);
        }
    });
}

#[test]
fn a_set_group_id_bit_without_group_execution_stays_if_a_member_changes_the_file() {
    over_both(|mounted| {
        for way in WAYS {
            check(mounted, STRANGER, way, 0o6767, 0o767);
            check(mounted, STRANGER, way, 0o2767, 0o767);
            for member in [MEMBER, MEMBER_AMONG_OTHERS] {
                check(mounted, member, way, 0o6767, 0o2767);
                check(mounted, member, way, 0o2767, 0o2767);
            }
        }
    });
}

#[test]
fn root_changes_programs_and_they_keep_their_set_id_bits() {
    over_both(|mounted| {
        for way in WAYS {
            check(mounted, ROOT, way, 0o6777, 0o6777);
            check(mounted, ROOT, way, 0o6767, 0o6767);
        }
    });
}

#[test]
fn giving_a_program_to_nobody_in_particular_takes_its_set_id_bits_away() {
    over_both(|mounted| {
        // As chown(path, -1, -1) does on every file system of Linux.
        let change: Way = ("chown", |_, path| std::os::unix::fs::chown(path, None, None).unwrap());
        check(mounted, ROOT, &change, 0o6777, 0o777);
        let directory = mounted.path("directory");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o6777)).unwrap();
        std::os::unix::fs::chown(&directory, None, None).unwrap();
        assert_eq!(modes(mounted, &directory), [0o6777; 3], "what they mean there is no right");
    });
}

#[test]
fn a_program_that_a_stranger_has_changed_runs_with_the_strangers_rights() {
    over_both(|mounted| {
        let path = mounted.path("program");
        fs::copy(fs::canonicalize("/usr/bin/id").unwrap(), &path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o4777)).unwrap();
        let run = || {
            let out = Command::new(&path).arg("-u").uid(NOBODY).gid(NOBODY).output().unwrap();
            String::from_utf8(out.stdout).unwrap()
        };
        assert_eq!(run(), "0\n", "the test shows nothing where set-id bits do not work");
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        as_user(STRANGER, || (&file).write_all(b"more").unwrap());
        drop(file);
        assert_eq!(run(), format!("{NOBODY}\n"));
    });
}
