//! Mounts with `order=close`, where the kernel collects what programs write.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{SeekFrom, XattrFlags, fgetxattr, fsetxattr, seek};
use rustix::io::Errno;

use crate::common::{Scratch, is_root, skips_mounts, wait_until};

fn mounted(options: &str) -> Scratch {
    let scratch = Scratch::with_volume();
    scratch.mount_with(&format!("order=close,{options}"));
    scratch
}

/// A program that writes to a file and keeps it open. Whoever starts a program passes its own open
/// files on, and these are closed there, which hands over what was written to them. Other tests
/// start programs at any moment, so what must be handed over once is written by a program too.
struct Writer {
    program: Child,
    path: PathBuf,
    len_bytes: u64,
}

impl Writer {
    fn new(scratch: &Scratch, name: &str) -> Self {
        let path = scratch.inside(name);
        let mut dd = Command::new("dd");
        dd.args(["bs=5", "status=none", &format!("of={}", path.display())]);
        let program = dd.stdin(Stdio::piped()).spawn().unwrap();
        Self { program, path, len_bytes: 0 }
    }

    /// Appends five bytes.
    fn write(&mut self, text: &[u8; 5]) {
        self.program.stdin.as_mut().unwrap().write_all(text).unwrap();
        self.len_bytes += 5;
        let len = || fs::metadata(&self.path).map_or(0, |meta| meta.len());
        wait_until("it is written", || len() == self.len_bytes);
    }

    fn end(mut self) {
        drop(self.program.stdin.take());
        self.program.wait().unwrap();
    }
}

fn in_snapshot(scratch: &Scratch, snapshot: &str, name: &str) -> PathBuf {
    scratch.inside(".dendro/snapshots").join(snapshot).join(name)
}

#[test]
fn what_is_written_waits_until_the_file_is_closed() {
    if skips_mounts() {
        return;
    }
    let scratch = mounted("commit=3600");
    let mut closed = Writer::new(&scratch, "closed");
    (0..20_000).for_each(|_| closed.program.stdin.as_mut().unwrap().write_all(&[7; 5]).unwrap());
    closed.end();
    let meta = fs::metadata(scratch.inside("closed")).unwrap();
    assert_eq!((meta.len(), meta.blocks()), (100_000, 200));
    let mut open = Writer::new(&scratch, "open");
    open.write(b"later");
    // All that came before is durable with this, as far as it was handed over.
    File::create(scratch.inside("other")).unwrap().sync_all().unwrap();
    scratch.kill_daemon();
    open.end();
    scratch.mount();
    assert_eq!(fs::metadata(scratch.inside("open")).unwrap().len(), 0);
    assert_eq!(fs::read(scratch.inside("closed")).unwrap(), [7; 100_000]);
    let after = fs::metadata(scratch.inside("closed")).unwrap();
    assert_eq!((after.mtime(), after.mtime_nsec()), (meta.mtime(), meta.mtime_nsec()));
    assert_eq!((after.ctime(), after.ctime_nsec()), (meta.ctime(), meta.ctime_nsec()));
    scratch.umount();
}

#[test]
fn an_fsync_of_an_open_file_makes_all_of_it_durable() {
    if skips_mounts() {
        return;
    }
    let scratch = mounted("commit=3600");
    let file = File::create(scratch.inside("file")).unwrap();
    file.write_all_at(&[7; 5000], 0).unwrap();
    // The page that this lies in is not read: it was just written.
    file.write_all_at(&[8; 10], 4090).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[9; 10], 0).unwrap();
    scratch.kill_daemon();
    drop(file);
    scratch.mount();
    let mut expected = vec![7; 5000];
    expected[4090..4100].fill(8);
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), expected);
    scratch.umount();
}

#[test]
fn a_snapshot_and_a_clone_have_what_open_files_had_by_then() {
    if skips_mounts() {
        return;
    }
    let scratch = mounted("commit=3600");
    let mount = scratch.mount_point();
    let mut writer = Writer::new(&scratch, "file");
    writer.write(b"first");
    scratch.dendro(["snapshot", "create", &format!("{mount}@one")]).succeeds();
    writer.write(b"other");
    scratch.dendro(["clone", &mount, "fork"]).succeeds();
    scratch.dendro(["snapshot", "create", &format!("{mount}:fork@two")]).succeeds();
    writer.write(b"third");
    assert_eq!(fs::read(in_snapshot(&scratch, "one", "file")).unwrap(), b"first");
    assert_eq!(fs::read(in_snapshot(&scratch, "two", "file")).unwrap(), b"firstother");
    writer.end();
    scratch.umount();
}

#[test]
fn what_an_open_file_has_is_durable_after_sync_and_by_itself_at_intervals() {
    if skips_mounts() {
        return;
    }
    let scratch = mounted("commit=3600");
    let mut writer = Writer::new(&scratch, "file");
    writer.write(b"sync1");
    scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    scratch.kill_daemon();
    writer.end();
    scratch.mount_with("order=close,commit=1");
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"sync1");
    let mut writer = Writer::new(&scratch, "file");
    writer.write(b"after");
    std::thread::sleep(Duration::from_secs(4));
    scratch.kill_daemon();
    writer.end();
    scratch.mount();
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"after");
    scratch.umount();
}

#[test]
fn a_mounted_head_is_not_replaced_because_the_kernel_knows_how_long_its_files_are() {
    if skips_mounts() {
        return;
    }
    let scratch = mounted("commit=3600");
    let mount = scratch.mount_point();
    fs::write(scratch.inside("file"), "old").unwrap();
    scratch.dendro(["snapshot", "create", &format!("{mount}@one")]).succeeds();
    fs::write(scratch.inside("file"), "longer than before").unwrap();
    let rollback = ["rollback", &format!("{mount}@one")];
    scratch.dendro(rollback).fails(1, &["order=close", "unmount it first"]);
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"longer than before");
    scratch.umount();
    scratch.dendro(["rollback", &format!("{}@one", scratch.image())]).succeeds();
    scratch.mount_with("order=close");
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"old");
    let set = scratch.dendro(["set", &mount, "order=strict"]);
    set.fails(1, &["order=strict cannot be changed while it is mounted"]);
    scratch.umount();
}

#[test]
fn the_error_of_a_write_that_does_not_fit_comes_with_fsync() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.mkfs("32M");
    scratch.mount_with("order=close,commit=3600");
    let mut file = File::create(scratch.inside("file")).unwrap();
    let chunk = vec![7; 1 << 20];
    let failed = (0..64).find_map(|_| file.write_all(&chunk).err());
    let error = failed.or_else(|| file.sync_all().err()).expect("64 MiB do not fit into 32");
    assert_eq!(error.raw_os_error(), Some(28), "{error}");
    drop(file);
    fs::remove_file(scratch.inside("file")).unwrap();
    fs::write(scratch.inside("small"), "fits").unwrap();
    scratch.umount();
    scratch.dendro(["check", "-q", &scratch.image()]).succeeds();
}

#[test]
fn a_copy_of_an_open_file_has_what_is_collected_of_it() {
    if skips_mounts() {
        return;
    }
    let scratch = mounted("commit=3600");
    let mut writer = Writer::new(&scratch, "file");
    writer.write(b"there");
    let file = File::open(scratch.inside("file")).unwrap();
    // Copying programs look for data in this way, and leave out the rest.
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(0));
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(5));
    drop(file);
    writer.end();
    scratch.umount();
}

#[test]
fn a_capability_stays_that_is_given_to_a_file_between_writing_and_closing() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = mounted("commit=3600");
    let capability: Vec<u8> =
        [0x0200_0001_u32, 1 << 10, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    let name = "security.capability";
    let read = |file: &File| {
        let mut value = [0; 64];
        fgetxattr(file, name, &mut value[..]).map(|len| value[..len].to_vec())
    };
    // As `cp --preserve=xattr` does it.
    let mut file = File::create(scratch.inside("program")).unwrap();
    file.write_all(&[7; 5000]).unwrap();
    fsetxattr(&file, name, &capability, XattrFlags::empty()).unwrap();
    file.sync_all().unwrap();
    assert_eq!(read(&file), Ok(capability));
    file.write_all(b"changed").unwrap();
    assert_eq!(read(&file), Err(Errno::NODATA), "a write takes it away");
    drop(file);
    scratch.umount();
}

#[test]
fn the_blocks_of_an_open_file_are_shown_after_the_commit_interval() {
    if skips_mounts() {
        return;
    }
    let scratch = mounted("commit=1");
    let mut writer = Writer::new(&scratch, "file");
    writer.write(b"there");
    let blocks = || fs::metadata(scratch.inside("file")).unwrap().blocks();
    wait_until("the blocks are counted", || blocks() > 0);
    writer.end();
    scratch.umount();
}

#[test]
fn appending_and_closing_asks_for_no_attributes() {
    if skips_mounts() {
        return;
    }
    let scratch = mounted("commit=3600");
    let append = |count: u32| {
        for _ in 0..count {
            let mut options = File::options();
            let mut file = options.append(true).create(true).open(scratch.inside("log")).unwrap();
            file.write_all(&[7; 4096]).unwrap();
        }
    };
    append(1);
    let lookups = || {
        let stat = scratch.dendro(["stat", "--json", &scratch.mount_point()]).succeeds().out;
        let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
        stat["latency"]["lookup"]["requests"].as_u64().unwrap()
    };
    let before = lookups();
    append(100);
    assert!(lookups() - before < 50, "{} after {before}", lookups());
    scratch.umount();
}
