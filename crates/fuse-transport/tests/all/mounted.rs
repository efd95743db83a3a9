//! Each request, sent by the kernel, over both transports.
//!
//! The mounts need /dev/fuse and root; `DENDRO_SKIP_MOUNT=1` skips them. The tests over io_uring
//! need a kernel that has it and allows it. Miri has no kernel.

#![cfg(not(miri))]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::common::Memory;
use crate::common::mounting::{is_left_out, over, over_both, request, wishes};
use dendro_fuse_transport::{Choice, Options, Session, UnmountMode, mount, unmount};
use rustix::fs::{CWD, RenameFlags, StatxFlags, XattrFlags};

const MIB: usize = 1 << 20;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn data_of_all_lengths_goes_in_and_comes_out() {
    over_both(|test| {
        for len in [0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 5 * MIB + 7] {
            let bytes = pattern(len);
            let path = test.path(&format!("file-{len}"));
            fs::write(&path, &bytes).unwrap();
            assert!(fs::read(&path).unwrap() == bytes, "{len}");
            assert_eq!(fs::metadata(&path).unwrap().len(), len as u64);
        }
        // Direct I/O: from the buffer of the caller to the server and back, without the page cache.
        let path = test.path("direct");
        let bytes = pattern(3 * MIB);
        fs::write(&path, &bytes).unwrap();
        let status = std::process::Command::new("dd")
            .arg(format!("if={}", path.display()))
            .arg(format!("of={}", test.path("copied").display()))
            .args(["bs=1M", "iflag=direct", "oflag=direct", "status=none"])
            .status()
            .unwrap();
        assert!(status.success());
        assert!(fs::read(test.path("copied")).unwrap() == bytes);
    });
}

#[test]
fn names_are_made_moved_linked_listed_and_removed() {
    over_both(|test| {
        fs::create_dir(test.path("dir")).unwrap();
        for number in 0..500 {
            fs::write(test.path(&format!("dir/{number:0200}")), "x").unwrap();
        }
        let listed: Vec<_> = fs::read_dir(test.path("dir"))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(listed, vec![1; 500]);
        symlink("a target", test.path("symlink")).unwrap();
        assert_eq!(fs::read_link(test.path("symlink")).unwrap(), Path::new("a target"));
        fs::write(test.path("a"), "1").unwrap();
        fs::hard_link(test.path("a"), test.path("b")).unwrap();
        assert_eq!(fs::metadata(test.path("b")).unwrap().nlink(), 2);
        let noreplace = RenameFlags::NOREPLACE;
        let moved = rustix::fs::renameat_with(CWD, test.path("a"), CWD, test.path("b"), noreplace);
        assert_eq!(moved, Err(rustix::io::Errno::EXIST));
        fs::rename(test.path("a"), test.path("dir/c")).unwrap();
        assert_eq!(fs::read(test.path("dir/c")).unwrap(), b"1");
        fs::remove_file(test.path("b")).unwrap();
        assert!(!test.path("b").exists() && !test.path("a").exists());
        fs::create_dir(test.path("empty")).unwrap();
        fs::remove_dir(test.path("empty")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(CWD, test.path("fifo"), fifo, 0o600.into(), 0).unwrap();
        assert_eq!(fs::metadata(test.path("fifo")).unwrap().mode() & libc::S_IFMT, libc::S_IFIFO);
    });
}

#[test]
fn attributes_are_told_and_changed() {
    over_both(|test| {
        let path = test.path("file");
        fs::write(&path, "12345").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
        let time = |secs, nanos| rustix::fs::Timespec { tv_sec: secs, tv_nsec: nanos };
        let times = rustix::fs::Timestamps {
            last_access: time(-2, 800_000_000),
            last_modification: time(1 << 33, 1),
        };
        rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(3).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o640);
        assert_eq!((metadata.uid(), metadata.gid(), metadata.len()), (12, 34, 3));
        assert_eq!((metadata.atime(), metadata.atime_nsec()), (-2, 800_000_000));

        let stat = rustix::fs::statvfs(test.root).unwrap();
        assert_eq!((stat.f_blocks, stat.f_bfree, stat.f_bavail), (1000, 500, 400));
        assert_eq!((stat.f_frsize, stat.f_namemax), (4096, 255));
    });
}

#[test]
fn the_time_a_file_was_made_comes_through_where_the_kernel_asks_for_it() {
    over_both(|test| {
        let path = test.path("file");
        fs::write(&path, "x").unwrap();
        let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = rustix::fs::statx(CWD, &path, rustix::fs::AtFlags::empty(), flags).unwrap();
        if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
            eprintln!("left out: before Linux 6.6 the kernel does not ask");
            return;
        }
        assert_eq!((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec), (1_234_567_890, 123_456_789));
        assert_eq!(stat.stx_size, 1);
    });
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    over_both(|test| {
        let path = test.path("file");
        fs::write(&path, "x").unwrap();
        let value = pattern(60_000);
        rustix::fs::setxattr(&path, "user.large", &value, XattrFlags::empty()).unwrap();
        rustix::fs::setxattr(&path, "user.empty", b"", XattrFlags::empty()).unwrap();
        let mut buffer = vec![0; 65_536];
        let len = rustix::fs::getxattr(&path, "user.large", &mut buffer).unwrap();
        assert!(buffer[..len] == value);
        assert_eq!(rustix::fs::getxattr_query(&path, "user.large"), Ok(60_000));
        assert_eq!(rustix::fs::getxattr(&path, "user.empty", &mut buffer), Ok(0));
        let short = &mut [0; 100];
        let error = rustix::io::Errno::RANGE;
        assert_eq!(rustix::fs::getxattr(&path, "user.large", short), Err(error));
        let len = rustix::fs::listxattr(&path, &mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"user.empty\0user.large\0");
        rustix::fs::removexattr(&path, "user.empty").unwrap();
        let error = rustix::io::Errno::NODATA;
        assert_eq!(rustix::fs::getxattr(&path, "user.empty", &mut buffer), Err(error));
        let name = format!("user.{}", "n".repeat(250));
        rustix::fs::setxattr(&path, &*name, b"v", XattrFlags::empty()).unwrap();
        assert_eq!(rustix::fs::getxattr(&path, &*name, &mut buffer), Ok(1));
    });
}

#[test]
fn open_files_are_synced_extended_searched_and_copied() {
    over_both(|test| {
        let file = File::create_new(test.path("file")).unwrap();
        file.write_all_at(&pattern(10_000), 0).unwrap();
        file.sync_all().unwrap();
        File::open(test.root).unwrap().sync_all().unwrap();
        assert_eq!(test.memory.syncs.load(Ordering::Relaxed), 2);
        let none = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, none, 0, 20_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 20_000);
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let error = rustix::io::Errno::OPNOTSUPP;
        assert_eq!(rustix::fs::fallocate(&file, punch, 0, 4096), Err(error));
        let place = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(5)).unwrap();
        assert_eq!(place, 20_000);
        let source = File::open(test.path("file")).unwrap();
        let copy = File::create_new(test.path("copy")).unwrap();
        let (mut from, mut to) = (1, 0);
        let copied =
            rustix::fs::copy_file_range(&source, Some(&mut from), &copy, Some(&mut to), 1 << 40);
        assert_eq!(copied, Ok(19_999));
        assert_eq!(fs::read(test.path("copy")).unwrap()[..9_999], pattern(10_000)[1..]);
    });
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed_and_can_be_given_one() {
    over_both(|test| {
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_TMPFILE).open(test.root)
        };
        let mut file = match open() {
            Ok(file) => file,
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                eprintln!("left out: before Linux 6.1 the kernel does not ask");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        file.write_all(b"no name").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let flags = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(CWD, &*descriptor, CWD, test.path("named"), flags).unwrap();
        assert_eq!(fs::read(test.path("named")).unwrap(), b"no name");
        let nodes = test.memory.len();
        drop(open().unwrap());
        wait_until(|| test.memory.len() == nodes);
    });
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it does not come to pass");
}

#[test]
fn every_reference_is_given_back() {
    over_both(|test| {
        for number in 0..300 {
            fs::write(test.path(&format!("{number}")), "x").unwrap();
        }
        for number in 0..300 {
            fs::remove_file(test.path(&format!("{number}"))).unwrap();
        }
        // Only the root remains.
        wait_until(|| test.memory.len() == 1);
        assert!(test.memory.forgotten.load(Ordering::Relaxed) >= 300);
    });
}

#[test]
fn what_is_absent_is_not_looked_up_twice() {
    over_both(|test| {
        assert!(!test.path("absent").exists());
        let before = test.memory.lookups.load(Ordering::Relaxed);
        for _ in 0..10 {
            assert!(!test.path("absent").exists());
        }
        assert_eq!(test.memory.lookups.load(Ordering::Relaxed), before);
    });
}

#[test]
fn the_kernel_is_told_of_changes_behind_its_back() {
    over_both(|test| {
        let path = test.path("file");
        fs::write(&path, "before").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
        let node = test.memory.change(b"file", b"and after");
        test.notifier.invalidate_data(node, 0, None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"and after");

        assert!(!test.path("moved").exists());
        let lookups = || test.memory.lookups.load(Ordering::Relaxed);
        let before = lookups();
        test.notifier.expire_entry(1, b"file").unwrap();
        assert!(path.exists());
        assert!(lookups() > before);

        let node = test.memory.take_away(b"file");
        assert!(path.exists());
        test.notifier.delete(1, node, b"file").unwrap();
        assert!(!path.exists());
        test.notifier.invalidate_entry(1, b"never heard of").unwrap();
        test.notifier.invalidate_attributes(987_654).unwrap();
        assert!(test.notifier.invalidate_entry(1, b"a/b").is_err());
    });
}

#[test]
fn the_kernel_says_when_set_id_bits_go() {
    over_both(|test| {
        let path = test.path("file");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4777)).unwrap();
        fs::set_permissions(test.root, fs::Permissions::from_mode(0o777)).unwrap();
        // The directory above is private to root. The working directory avoids it.
        let before = test.memory.kills.load(Ordering::Relaxed);
        let status = std::process::Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args(["sh", "-c", "echo more >> file"])
            .current_dir(test.root)
            .status()
            .unwrap();
        assert!(status.success());
        assert!(test.memory.kills.load(Ordering::Relaxed) > before);
    });
}

#[test]
fn what_is_not_there_is_refused_as_such() {
    over_both(|test| {
        let file = File::create_new(test.path("file")).unwrap();
        let answer = rustix::io::ioctl_fionread(&file);
        assert!(answer.is_ok() || answer == Err(rustix::io::Errno::NOTTY), "{answer:?}");
        let mut waited = [rustix::event::PollFd::new(&file, rustix::event::PollFlags::OUT)];
        assert_eq!(rustix::event::poll(&mut waited, None), Ok(1));
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    });
}

#[test]
fn many_threads_are_served_at_a_time() {
    for (threads_per_queue, entries_per_thread) in [(1, 1), (1, 4), (3, 2)] {
        for choice in [Choice::Device, Choice::Uring] {
            let options = Options {
                choice,
                wishes: wishes(),
                threads_per_queue,
                entries_per_thread,
                device_threads: 3,
                read_ahead_bytes: 0,
                only_user: None,
            };
            over(options, |test| {
                thread::scope(|scope| {
                    for worker in 0..6 {
                        scope.spawn(move || {
                            for round in 0..100 {
                                let path = test.path(&format!("{worker}-{round}"));
                                let bytes = pattern(round * 1000);
                                fs::write(&path, &bytes).unwrap();
                                let mut read = Vec::new();
                                File::open(&path).unwrap().read_to_end(&mut read).unwrap();
                                assert!(read == bytes);
                                if round % 2 == 0 {
                                    fs::remove_file(&path).unwrap();
                                }
                            }
                        });
                    }
                });
                assert_eq!(fs::read_dir(test.root).unwrap().count(), 300);
            });
        }
    }
}

#[test]
fn others_than_the_owner_and_root_are_turned_away() {
    for choice in [Choice::Device, Choice::Uring] {
        let options =
            Options { choice, wishes: wishes(), only_user: Some(0), ..Options::default() };
        over(options, |test| {
            fs::write(test.path("file"), "x").unwrap();
            fs::set_permissions(test.path("file"), fs::Permissions::from_mode(0o666)).unwrap();
            let status = std::process::Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .args(["sh", "-c", "test ! -e other && ! mkdir other 2> /dev/null"])
                .current_dir(test.root)
                .status()
                .unwrap();
            assert!(status.success());
            assert!(!test.path("other").exists());
        });
    }
}

#[test]
fn a_server_that_panics_leaves_nobody_waiting() {
    struct Broken;
    impl dendro_fuse_transport::FileSystem for Broken {}
    struct Panics;
    impl dendro_fuse_transport::FileSystem for Panics {
        fn statfs(
            &self,
            _: &dendro_fuse_transport::Request,
            _: u64,
        ) -> dendro_fuse_transport::Result<dendro_fuse_transport::StatFs> {
            panic!("as the test wants it")
        }
    }
    if is_left_out() {
        return;
    }
    for choice in [Choice::Device, Choice::Auto] {
        let directory = tempfile::tempdir().unwrap();
        let mounted = mount(directory.path(), &request()).unwrap();
        let session =
            Session::start(mounted, Panics, Options { choice, ..Options::default() }).unwrap();
        let served = thread::scope(|scope| {
            let server = scope.spawn(move || session.run());
            assert!(rustix::fs::statvfs(directory.path()).is_err());
            let _ = unmount(directory.path(), UnmountMode::Abort);
            server.join()
        });
        assert!(served.is_err());

        // A server that never replies does no harm.
        let mounted = mount(directory.path(), &request()).unwrap();
        let session =
            Session::start(mounted, Broken, Options { choice, ..Options::default() }).unwrap();
        thread::scope(|scope| {
            let server = scope.spawn(move || session.run());
            let error = fs::metadata(directory.path().join("x")).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
            unmount(directory.path(), UnmountMode::Abort).unwrap();
            server.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_detached_mount_serves_those_who_use_it() {
    if is_left_out() {
        return;
    }
    for choice in [Choice::Device, Choice::Auto] {
        let memory = Memory::new();
        let directory = tempfile::tempdir().unwrap();
        let mounted = mount(directory.path(), &request()).unwrap();
        let options = Options { choice, wishes: wishes(), ..Options::default() };
        let session = Session::start(mounted, &memory, options).unwrap();
        thread::scope(|scope| {
            let server = scope.spawn(move || session.run());
            let mut file = File::create_new(directory.path().join("file")).unwrap();
            let busy = unmount(directory.path(), UnmountMode::Idle).unwrap_err();
            assert!(matches!(busy, dendro_fuse_transport::Error::Busy(_)), "{busy}");
            unmount(directory.path(), UnmountMode::Detach).unwrap();
            file.write_all(b"still here").unwrap();
            drop(file);
            server.join().unwrap().unwrap();
        });
        assert_eq!(
            fs::read_dir(directory.path())
                .map_err(|error: io::Error| error.kind())
                .unwrap()
                .count(),
            0
        );
    }
}

/// Where the process that will be killed mounts, and over which transport.
const KILLED_AT: &str = "FUSE_TRANSPORT_KILLED_AT";
const KILLED_WITH: &str = "FUSE_TRANSPORT_KILLED_WITH";

/// Not a test of its own: the next test starts this, and kills it.
#[test]
fn a_server_to_be_killed() {
    let Some(directory) = std::env::var_os(KILLED_AT) else { return };
    let is_device = std::env::var_os(KILLED_WITH).is_some_and(|way| way == "device");
    let choice = if is_device { Choice::Device } else { Choice::Auto };
    let memory = Memory::new();
    let mounted = mount(Path::new(&directory), &request()).unwrap();
    let options = Options { choice, wishes: wishes(), ..Options::default() };
    Session::start(mounted, &memory, options).unwrap().run().unwrap();
}

#[test]
fn what_a_killed_server_leaves_is_unmounted_and_mounted_over_again() {
    if is_left_out() {
        return;
    }
    for way in ["device", "auto"] {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            let mut server = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "mounted::a_server_to_be_killed"])
                .env(KILLED_AT, directory.path())
                .env(KILLED_WITH, way)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let probe = directory.path().join("probe");
            wait_until(|| {
                let is_mounted = fs::read_to_string("/proc/self/mounts")
                    .unwrap()
                    .contains(directory.path().to_str().unwrap());
                is_mounted && fs::write(&probe, "x").is_ok()
            });
            let file = File::open(&probe).unwrap();
            let stopper = thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    // Until the server is killed, at any point of a request.
                    for number in 0.. {
                        if fs::write(directory.path().join(format!("{number}")), "x").is_err() {
                            return;
                        }
                    }
                });
                thread::sleep(Duration::from_millis(100));
                server.kill().unwrap();
                server.wait().unwrap();
                writer.join()
            });
            stopper.unwrap();
            // Over io_uring the kernel takes a moment to abort the connection.
            wait_until(|| {
                let answer = rustix::fs::statvfs(directory.path()).map(|_| ());
                assert!(answer.is_err());
                answer == Err(rustix::io::Errno::NOTCONN)
            });
            drop(file);
            unmount(directory.path(), UnmountMode::Detach).unwrap();
            assert!(!probe.exists());
        }
    }
}
