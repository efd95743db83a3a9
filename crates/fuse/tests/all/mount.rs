//! The file system on the model of the logical disk, in a real mount.
//!
//! The mounts need /dev/fuse and, unless run by root, fusermount3. `DENDRO_SKIP_MOUNT=1` skips
//! them.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::common::{CAPACITY_BYTES, mounted, mounted_with, new_disk};
use dendro_base::{Clock, Rng, SystemClock};
use dendro_disk::LogicalDisk;
use dendro_disk::model::ModelDisk;
use dendro_fs::{FileSystem, Options};
use dendro_fuse::{Access, Choice, Error, Mount, MountOptions, UnmountMode, unmount};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, SeekFrom as Place, Timespec,
    Timestamps, XattrFlags,
};

const MIB: usize = 1 << 20;

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn what_is_written_is_read_and_is_there_after_mounting_again() {
    let disk = new_disk();
    let options = || MountOptions { access: Access::All, ..MountOptions::default() };
    let Some(mounted) = mounted_with(&disk, options()) else { return };
    let bytes = random_bytes(1, 5 * MIB + 123);
    fs::write(mounted.path("large"), &bytes).unwrap();
    fs::write(mounted.path("small"), b"hello").unwrap();
    fs::create_dir(mounted.path("dir")).unwrap();
    fs::write(mounted.path("dir/empty"), b"").unwrap();
    assert_eq!(fs::read(mounted.path("large")).unwrap(), bytes);
    mounted.finish();

    let disk = Arc::new(ModelDisk::from_state(disk.state(), Some(CAPACITY_BYTES)));
    let Some(mounted) = mounted_with(&disk, options()) else { return };
    assert_eq!(fs::read(mounted.path("large")).unwrap(), bytes);
    assert_eq!(fs::read(mounted.path("small")).unwrap(), b"hello");
    assert_eq!(names(mounted.root()), ["dir", "large", "small"].map(String::from).into());
    assert_eq!(fs::metadata(mounted.path("dir/empty")).unwrap().len(), 0);
    mounted.finish();
}

#[test]
fn a_file_is_changed_in_the_middle_appended_to_truncated_and_extended() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    let mut expected = random_bytes(2, 300_000);
    fs::write(&path, &expected).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"middle", 150_001).unwrap();
    expected[150_001..150_007].copy_from_slice(b"middle");
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"end").unwrap();
    expected.extend_from_slice(b"end");
    assert_eq!(fs::read(&path).unwrap(), expected);

    file.set_len(10_000).unwrap();
    file.set_len(20_000).unwrap();
    expected.truncate(10_000);
    expected.resize(20_000, 0);
    assert_eq!(fs::read(&path).unwrap(), expected);

    // O_TRUNC of a file that exists must have its effect though there is no open request.
    drop(File::create(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    drop(file);
    mounted.finish();
}

#[test]
fn writes_at_random_offsets_read_back_like_those_to_a_plain_array() {
    let Some(mounted) = mounted() else { return };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mounted.path("file"))
        .unwrap();
    let mut rng = Rng::new(3);
    let mut expected = vec![0; 2 * MIB];
    file.set_len(expected.len() as u64).unwrap();
    for _ in 0..200 {
        let start = rng.below(expected.len() as u64) as usize;
        let len = (rng.below(200_000) as usize).min(expected.len() - start);
        let bytes = random_bytes(rng.next_u64(), len);
        file.write_all_at(&bytes, start as u64).unwrap();
        expected[start..start + len].copy_from_slice(&bytes);
    }
    let mut actual = vec![0; expected.len()];
    file.read_exact_at(&mut actual, 0).unwrap();
    assert!(actual == expected);
    drop(file);
    mounted.finish();
}

#[test]
fn a_large_directory_lists_every_name_once_and_can_be_emptied_while_it_is_read() {
    let Some(mounted) = mounted() else { return };
    let directory = mounted.path("many");
    fs::create_dir(&directory).unwrap();
    let expected: BTreeSet<String> = (0..3000).map(|index| format!("file-{index}")).collect();
    for name in &expected {
        fs::write(directory.join(name), name).unwrap();
    }
    // The second listing comes from the kernel's cache.
    assert_eq!(names(&directory), expected);
    assert_eq!(names(&directory), expected);
    assert_eq!(fs::read_to_string(directory.join("file-2999")).unwrap(), "file-2999");
    let mut removed = BTreeSet::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let entry = entry.unwrap();
        fs::remove_file(entry.path()).unwrap();
        assert!(removed.insert(entry.file_name().into_string().unwrap()));
    }
    assert_eq!(removed, expected);
    fs::remove_dir(&directory).unwrap();
    assert!(!directory.exists());
    mounted.finish();
}

#[test]
fn a_name_that_was_absent_is_seen_once_it_is_made() {
    let Some(mounted) = mounted() else { return };
    let (path, other) = (mounted.path("name"), mounted.path("other"));
    for _ in 0..3 {
        assert_eq!(fs::metadata(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!other.exists());
        fs::write(&path, b"x").unwrap();
        assert!(path.exists());
        fs::rename(&path, &other).unwrap();
        assert!(other.exists() && !path.exists());
        fs::remove_file(&other).unwrap();
    }
    mounted.finish();
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed_and_then_gives_its_space_back() {
    let Some(mounted) = mounted() else { return };
    let free = || rustix::fs::statvfs(mounted.root()).unwrap().f_bavail;
    let before = free();
    let bytes = random_bytes(4, 3 * MIB);
    fs::write(mounted.path("reopened"), &bytes).unwrap();
    // Once through the descriptor that created it, once through another one.
    let mut created = File::create_new(mounted.path("created")).unwrap();
    created.write_all(&bytes).unwrap();
    let mut reopened = File::open(mounted.path("reopened")).unwrap();
    fs::remove_file(mounted.path("created")).unwrap();
    fs::remove_file(mounted.path("reopened")).unwrap();
    assert!(names(mounted.root()).is_empty());
    created.write_all(b"more").unwrap();
    assert_eq!(created.metadata().unwrap().len(), bytes.len() as u64 + 4);
    assert_eq!(created.metadata().unwrap().nlink(), 0);
    let mut actual = Vec::new();
    reopened.read_to_end(&mut actual).unwrap();
    assert!(actual == bytes);
    assert!(free() < before);
    drop((created, reopened));
    // The kernel sends FORGET later.
    let mut tries_left = 200;
    while free() < before && tries_left > 0 {
        tries_left -= 1;
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(free(), before);
    mounted.finish();
}

#[test]
fn every_kind_of_file_is_made_and_told_apart() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.path("file"), b"data").unwrap();
    fs::hard_link(mounted.path("file"), mounted.path("link")).unwrap();
    symlink("file", mounted.path("symlink")).unwrap();
    fs::DirBuilder::new().mode(0o700).create(mounted.path("dir")).unwrap();
    let make = |name: &str, kind| {
        rustix::fs::mknodat(CWD, mounted.path(name), kind, Mode::RUSR | Mode::WUSR, 0).unwrap();
    };
    make("fifo", FileType::Fifo);
    make("socket", FileType::Socket);

    let metadata = |name: &str| fs::symlink_metadata(mounted.path(name)).unwrap();
    assert_eq!(metadata("file").nlink(), 2);
    assert_eq!(metadata("file").ino(), metadata("link").ino());
    assert_eq!(fs::read_link(mounted.path("symlink")).unwrap(), Path::new("file"));
    assert_eq!(fs::read(mounted.path("symlink")).unwrap(), b"data");
    assert_eq!(metadata("dir").mode() & 0o7777, 0o700);
    assert!(metadata("fifo").file_type().is_fifo());
    assert!(metadata("socket").file_type().is_socket());
    fs::remove_file(mounted.path("file")).unwrap();
    assert_eq!(metadata("link").nlink(), 1);
    mounted.finish();
}

#[test]
fn a_process_that_is_killed_in_the_middle_of_a_copy_ends_before_the_copy_would() {
    for transport in [Choice::Auto, Choice::Device] {
        copy_and_kill(transport);
    }
}

fn copy_and_kill(transport: Choice) {
    const LEN: usize = 256 * MIB;
    let options = MountOptions { access: Access::All, transport, ..MountOptions::default() };
    let Some(mounted) = mounted_with(&new_disk(), options) else { return };
    let whole = File::create(mounted.path("from")).unwrap();
    let bytes = random_bytes(5, MIB);
    for offset in (0..LEN).step_by(MIB) {
        whole.write_all_at(&bytes, offset as u64).unwrap();
    }
    File::create(mounted.path("to")).unwrap();
    // Copies by copy_file_range(2), all at once.
    let mut copier =
        Command::new("cp").arg(mounted.path("from")).arg(mounted.path("to")).spawn().unwrap();
    // The kernel does not read the size before it has the reply.
    let to = mounted.fs.lookup(dendro_fs::Ino::ROOT, b"to").unwrap().ino;
    let copied = || mounted.fs.getattr(to).unwrap().size_bytes;
    while copied() == 0 && copier.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    copier.kill().unwrap();
    copier.wait().unwrap();
    let copied = copied();
    assert!(0 < copied && copied < LEN as u64, "{copied} bytes were copied");
    mounted.fs.forget(to, 1);
    drop(whole);
    mounted.finish();
}

#[test]
fn files_are_always_ready_and_locks_are_the_kernels() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    let file = File::create_new(&path).unwrap();
    use rustix::event::{PollFd, PollFlags};
    let wanted = PollFlags::IN | PollFlags::OUT;
    for _ in 0..2 {
        // The kernel sends the request only once.
        let mut ready = [PollFd::new(&file, wanted)];
        assert_eq!(rustix::event::poll(&mut ready, None), Ok(1));
        assert_eq!(ready[0].revents(), wanted);
    }
    let other = File::open(&path).unwrap();
    use rustix::fs::FlockOperation as Flock;
    rustix::fs::flock(&file, Flock::LockExclusive).unwrap();
    let busy = rustix::io::Errno::WOULDBLOCK;
    assert_eq!(rustix::fs::flock(&other, Flock::NonBlockingLockShared), Err(busy));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| rustix::fs::flock(&other, Flock::LockShared));
        rustix::fs::flock(&file, Flock::Unlock).unwrap();
        waiter.join().unwrap().unwrap();
    });
    drop((file, other));
    mounted.finish();
}

#[test]
fn rename_replaces_refuses_and_exchanges_as_it_is_told() {
    let Some(mounted) = mounted() else { return };
    let (first, second) = (mounted.path("first"), mounted.path("second"));
    let rename = |flags| rustix::fs::renameat_with(CWD, &first, CWD, &second, flags);
    fs::write(&first, b"1").unwrap();
    fs::write(&second, b"2").unwrap();
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(&first).unwrap(), b"2");
    assert_eq!(fs::read(&second).unwrap(), b"1");
    fs::rename(&first, &second).unwrap();
    assert_eq!(fs::read(&second).unwrap(), b"2");
    assert!(!first.exists());

    fs::create_dir_all(mounted.path("a/b")).unwrap();
    assert!(fs::rename(mounted.path("a"), mounted.path("a/b/c")).is_err());
    mounted.finish();
}

#[test]
fn times_modes_and_owners_are_kept_to_the_nanosecond() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").unwrap();
    let set = |secs, nanos| {
        let time = Timespec { tv_sec: secs, tv_nsec: nanos };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (secs, nanos));
        assert_eq!((metadata.atime(), metadata.atime_nsec()), (secs, nanos));
    };
    set(1_000_000_000, 123_456_789);
    set(-2, 800_000_000);
    set(1 << 33, 1);
    let before = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 33);
    fs::write(&path, b"y").unwrap();
    assert!(fs::metadata(&path).unwrap().modified().unwrap() < before);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4711);
    mounted.finish();
}

#[test]
fn the_umask_holds_and_a_strangers_write_takes_the_set_id_bits_away() {
    let Some(mounted) = mounted() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can act for another user");
        return mounted.finish();
    }
    fs::set_permissions(mounted.root(), fs::Permissions::from_mode(0o777)).unwrap();
    let parent = mounted.root().to_str().unwrap();
    let as_stranger = |script: &str| {
        let status = Command::new("sh")
            .args(["-c", script])
            .current_dir("/")
            .env("M", parent)
            .uid(65_534)
            .gid(65_534)
            .status()
            .unwrap();
        assert!(status.success(), "{script}");
    };
    // Other users must be able to reach the mount, which is in a private temporary directory.
    as_stranger("umask 027; echo data > $M/file; mkdir $M/dir");
    let metadata = fs::metadata(mounted.path("file")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (65_534, 65_534));
    assert_eq!(metadata.mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(mounted.path("dir")).unwrap().mode() & 0o7777, 0o750);

    for change in ["echo x >> $M/set-id", "truncate -s 1 $M/set-id", ": > $M/set-id"] {
        fs::write(mounted.path("set-id"), b"program").unwrap();
        fs::set_permissions(mounted.path("set-id"), fs::Permissions::from_mode(0o6777)).unwrap();
        as_stranger(change);
        let mode = fs::metadata(mounted.path("set-id")).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o777, "{change}");
    }
    mounted.finish();
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").unwrap();
    let value = random_bytes(5, 5000);
    rustix::fs::setxattr(&path, "user.large", &value, XattrFlags::CREATE).unwrap();
    rustix::fs::setxattr(&path, "user.small", b"s", XattrFlags::empty()).unwrap();
    let again = rustix::fs::setxattr(&path, "user.small", b"t", XattrFlags::CREATE);
    assert_eq!(again, Err(rustix::io::Errno::EXIST));
    let mut buffer = vec![0; 8192];
    let count = rustix::fs::getxattr(&path, "user.large", &mut buffer[..]).unwrap();
    assert!(buffer[..count] == value);
    let short = rustix::fs::getxattr(&path, "user.large", &mut buffer[..10]);
    assert_eq!(short, Err(rustix::io::Errno::RANGE));
    let count = rustix::fs::listxattr(&path, &mut buffer[..]).unwrap();
    let mut listed: Vec<&[u8]> = buffer[..count].split(|&byte| byte == 0).collect();
    listed.sort_unstable();
    assert_eq!(listed, [&b""[..], b"user.large", b"user.small"]);
    rustix::fs::removexattr(&path, "user.large").unwrap();
    let gone = rustix::fs::getxattr(&path, "user.large", &mut buffer[..]);
    assert_eq!(gone, Err(rustix::io::Errno::NODATA));
    mounted.finish();
}

#[test]
fn holes_are_punched_found_and_copied() {
    let Some(mounted) = mounted() else { return };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mounted.path("sparse"))
        .unwrap();
    let bytes = random_bytes(6, MIB);
    file.write_all(&bytes).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, 64 << 10, 64 << 10).unwrap();
    let mut expected = bytes;
    expected[64 << 10..128 << 10].fill(0);
    let mut actual = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut actual).unwrap();
    assert!(actual == expected);
    assert_eq!(rustix::fs::seek(&file, Place::Hole(0)).unwrap(), 64 << 10);
    assert_eq!(rustix::fs::seek(&file, Place::Data(64 << 10)).unwrap(), 128 << 10);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 * MIB as u64).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 * MIB as u64);

    let copy = File::create_new(mounted.path("copy")).unwrap();
    let (mut from, mut to) = (0, 0);
    while rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 4 * MIB)
        .unwrap()
        > 0
    {}
    expected.resize(2 * MIB, 0);
    assert!(fs::read(mounted.path("copy")).unwrap() == expected);
    drop((file, copy));
    mounted.finish();
}

#[test]
fn a_file_without_a_name_can_be_given_one() {
    let Some(mounted) = mounted() else { return };
    let open = || {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o640).custom_flags(libc::O_TMPFILE);
        options.open(mounted.root())
    };
    let mut file = match open() {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            eprintln!("left out: before Linux 6.1 the kernel does not ask");
            return mounted.finish();
        }
        Err(error) => panic!("{error}"),
    };
    let bytes = random_bytes(11, 100_000);
    file.write_all(&bytes).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
    assert!(names(mounted.root()).is_empty());
    let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let named = mounted.path("named");
    rustix::fs::linkat(CWD, &*descriptor, CWD, &named, AtFlags::SYMLINK_FOLLOW).unwrap();
    drop(file);
    assert!(fs::read(&named).unwrap() == bytes);
    assert_eq!(fs::metadata(&named).unwrap().nlink(), 1);
    // A file that stays without a name is deleted.
    drop(open().unwrap());
    assert_eq!(names(mounted.root()), ["named"].map(String::from).into());
    mounted.finish();
}

#[test]
fn the_time_a_file_was_made_is_shown() {
    let Some(mounted) = mounted() else { return };
    let seconds_since = |then: i64| SystemClock.now().secs() - then;
    fs::write(mounted.path("file"), b"x").unwrap();
    match fs::metadata(mounted.path("file")).unwrap().created() {
        Ok(made) => {
            let made = made.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
            assert!((0..60).contains(&seconds_since(i64::try_from(made).unwrap())));
        }
        Err(error) => eprintln!("left out: before Linux 6.6 the kernel does not ask: {error}"),
    }
    mounted.finish();
}

#[test]
fn an_acl_set_by_a_stranger_to_the_group_takes_the_set_group_id_bit_away() {
    let Some(mounted) = mounted() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can act for another user");
        return mounted.finish();
    }
    let path = mounted.path("file");
    fs::write(&path, b"x").unwrap();
    // The owner is no member of the group.
    std::os::unix::fs::chown(&path, Some(65_534), Some(12_345)).unwrap();
    for (uid, mode) in [(0, 0o2710), (65_534, 0o0710)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2750)).unwrap();
        // Version 2: owner rwx, group x, others nothing.
        let acl = "0x0200000001000700ffffffff04000100ffffffff20000000ffffffff";
        let script = format!(
            "import os; os.setxattr('{}', 'system.posix_acl_access', bytes.fromhex('{}'))",
            "file",
            &acl[2..]
        );
        let status = Command::new("python3")
            .args(["-c", &script])
            .current_dir(mounted.root())
            .uid(uid)
            .gid(uid)
            .status();
        match status {
            Ok(status) => assert!(status.success()),
            Err(error) => {
                eprintln!("left out: python3: {error}");
                break;
            }
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode, "{uid}");
    }
    mounted.finish();
}

#[test]
fn a_program_on_the_mount_can_be_run() {
    let Some(mounted) = mounted() else { return };
    let program = fs::canonicalize("/bin/true").unwrap();
    fs::copy(program, mounted.path("program")).unwrap();
    assert!(Command::new(mounted.path("program")).status().unwrap().success());
    mounted.finish();
}

#[test]
fn direct_io_reads_what_buffered_io_wrote() {
    let Some(mounted) = mounted() else { return };
    let bytes = random_bytes(7, MIB);
    fs::write(mounted.path("file"), &bytes).unwrap();
    let status = Command::new("dd")
        .arg(format!("if={}", mounted.path("file").display()))
        .arg(format!("of={}", mounted.path("copy").display()))
        .args(["bs=128k", "iflag=direct", "oflag=direct", "status=none"])
        .status()
        .unwrap();
    assert!(status.success());
    assert!(fs::read(mounted.path("copy")).unwrap() == bytes);
    mounted.finish();
}

#[test]
fn fsync_of_files_and_directories_succeeds() {
    let Some(mounted) = mounted() else { return };
    let file = File::create_new(mounted.path("file")).unwrap();
    (&file).write_all(b"x").unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    File::open(mounted.root()).unwrap().sync_all().unwrap();
    OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DSYNC)
        .open(mounted.path("file"))
        .unwrap()
        .write_all(b"y")
        .unwrap();
    drop(file);
    mounted.finish();
}

#[test]
fn on_a_mount_with_sync_every_change_is_durable_when_it_has_returned() {
    let disk =
        Arc::new(ModelDisk::from_state(new_disk().state(), Some(CAPACITY_BYTES)).recording());
    let options = MountOptions { access: Access::All, sync: true, ..MountOptions::default() };
    let Some(mounted) = mounted_with(&disk, options) else { return };
    let mut last = disk.history().len();
    let mut check = |what: &str, change: &dyn Fn()| {
        change();
        let history = disk.history();
        assert!(history.len() > last, "{what} changes nothing");
        last = history.len();
        assert_eq!(disk.flushed(), history.last().unwrap().0, "{what}");
    };
    let path = mounted.path("file");
    check("create", &|| drop(File::create_new(&path).unwrap()));
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    check("write", &|| file.write_all_at(&[1; 10_000], 0).unwrap());
    check("fallocate", &|| {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20_000).unwrap();
    });
    check("copy", &|| {
        let copied =
            rustix::fs::copy_file_range(&file, Some(&mut 0), &file, Some(&mut 30_000), 5000);
        assert_eq!(copied, Ok(5000));
    });
    check("truncate", &|| file.set_len(5).unwrap());
    check("chmod", &|| file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap());
    check("setxattr", &|| {
        rustix::fs::setxattr(&path, "user.a", b"x", XattrFlags::empty()).unwrap();
    });
    check("removexattr", &|| rustix::fs::removexattr(&path, "user.a").unwrap());
    check("link", &|| fs::hard_link(&path, mounted.path("link")).unwrap());
    check("rename", &|| fs::rename(&path, mounted.path("other")).unwrap());
    check("unlink", &|| fs::remove_file(mounted.path("link")).unwrap());
    check("mkdir", &|| fs::create_dir(mounted.path("dir")).unwrap());
    drop(file);
    mounted.finish();
}

#[test]
fn after_the_disk_has_failed_every_fsync_says_that_writes_are_lost_and_changes_are_refused() {
    let disk = new_disk();
    let options = MountOptions { access: Access::All, ..MountOptions::default() };
    let Some(mounted) = mounted_with(&disk, options) else { return };
    let open = |name| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(mounted.path(name)).unwrap()
    };
    let (changed, other) = (open("changed"), open("other"));
    (&changed).write_all(b"x").unwrap();
    disk.fail("the device is gone");
    let number = |outcome: io::Result<()>| outcome.unwrap_err().raw_os_error().unwrap();
    for file in [&changed, &other, &open("changed"), &File::open(mounted.root()).unwrap()] {
        for _ in 0..2 {
            assert_eq!(number(file.sync_data()), libc::EIO);
            assert_eq!(number(file.sync_all()), libc::EIO);
        }
    }
    assert_eq!(number(changed.write_all_at(b"y", 0)), libc::EROFS);
    assert_eq!(number(fs::remove_file(mounted.path("other"))), libc::EROFS);
    assert_eq!(fs::read(mounted.path("changed")).unwrap(), b"x");
}

#[test]
fn many_threads_work_in_one_directory() {
    let Some(mounted) = mounted() else { return };
    thread::scope(|scope| {
        for worker in 0..6u64 {
            let mounted = &mounted;
            scope.spawn(move || {
                let mut rng = Rng::new(worker);
                for round in 0..60 {
                    let bytes = random_bytes(rng.next_u64(), rng.below(40_000) as usize);
                    let path = mounted.path(&format!("{worker}-{round}"));
                    fs::write(&path, &bytes).unwrap();
                    let moved = mounted.path(&format!("{worker}-{round}-moved"));
                    fs::rename(&path, &moved).unwrap();
                    assert!(fs::read(&moved).unwrap() == bytes);
                    if round % 2 == 0 {
                        fs::remove_file(&moved).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(names(mounted.root()).len(), 6 * 30);
    mounted.finish();
}

#[test]
fn a_listing_has_what_was_there_before_it_began_whatever_others_do() {
    let Some(mounted) = mounted() else { return };
    for number in 0..400 {
        fs::write(mounted.path(&format!("old-{number}")), "").unwrap();
    }
    thread::scope(|scope| {
        for worker in 0..5 {
            let mounted = &mounted;
            scope.spawn(move || {
                let mut own = std::collections::VecDeque::new();
                for round in 0..300 {
                    let name = format!("{worker}-{round}");
                    fs::write(mounted.path(&name), "").unwrap();
                    own.push_back(name);
                    if own.len() > 60 {
                        fs::remove_file(mounted.path(&own.pop_front().unwrap())).unwrap();
                    }
                    if round % 3 == 0 {
                        let listed = names(mounted.root());
                        let missing: Vec<_> =
                            own.iter().filter(|name| !listed.contains(*name)).collect();
                        assert!(missing.is_empty(), "{missing:?}");
                    }
                }
            });
        }
    });
    mounted.finish();
}

#[test]
fn a_busy_mount_stays_and_a_detached_one_serves_those_who_use_it() {
    let Some(mounted) = mounted() else { return };
    let mut file = File::create_new(mounted.path("file")).unwrap();
    match unmount(mounted.root(), UnmountMode::Idle) {
        Err(Error::Busy(path)) => assert_eq!(path, mounted.root()),
        other => panic!("{other:?}"),
    }
    unmount(mounted.root(), UnmountMode::Detach).unwrap();
    assert!(names(mounted.root()).is_empty());
    file.write_all(b"still here").unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mut mounted = mounted;
    mounted.server.take().unwrap().join().unwrap().unwrap();
    mounted.fs.shut_down().unwrap();
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let disk = new_disk();
    let read_only = MountOptions { read_only: true, ..MountOptions::default() };
    let Some(mounted) = mounted_with(&disk, read_only) else { return };
    let error = fs::write(mounted.path("file"), b"x").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert!(names(mounted.root()).is_empty());
    mounted.finish();
}

#[test]
fn a_mount_point_of_no_use_is_named_in_the_error() {
    let disk = new_disk();
    let open = || {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let disk: Arc<dyn LogicalDisk> = Arc::clone(&disk) as _;
        Arc::new(FileSystem::mount(disk, Options::default(), clock).unwrap())
    };
    for path in ["/nonexistent/mount/point", "/etc/passwd"] {
        let error =
            Mount::new(open(), Path::new(path), &MountOptions::default(), Arc::new(|_, _| ()))
                .err()
                .unwrap();
        assert!(matches!(&error, Error::MountPoint { .. }), "{error}");
        assert!(error.to_string().contains(path), "{error}");
    }
}
