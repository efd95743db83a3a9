//! Image files: opening, creating, locking, growing, punching holes.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dendro_device::{
    AlignedBuf, BLOCK_SIZE, Device, Direct, Error, FileDevice, FileKind, OpenOptions,
};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A folder on the file system of the build, which is more likely a disk than `/tmp` is.
fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// What opening it said, as its users will read it.
fn complaint(answer: Result<FileDevice, Error>) -> String {
    answer.expect_err("should not have been opened").to_string()
}

fn is_in_use(answer: &Result<FileDevice, Error>) -> bool {
    matches!(answer, Err(Error::InUse { .. }))
}

#[test]
fn a_new_image_is_sparse_and_as_long_as_asked() {
    let folder = folder();
    let path = folder.path().join("volume");
    let device = FileDevice::create(&path, 1024 * MIB + 5000).unwrap();
    assert_eq!(device.len_bytes(), 1024 * MIB + 4096);
    assert_eq!(device.kind(), FileKind::Image);
    assert_eq!(device.path(), path);
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), device.len_bytes());
    assert!(metadata.blocks() * 512 < MIB);
}

#[test]
fn a_file_that_exists_is_overwritten_only_when_asked_and_not_in_use() {
    let folder = folder();
    let path = folder.path().join("volume");
    fs::write(&path, b"precious").unwrap();
    let create = |options: OpenOptions| options.create(&path, MIB);
    assert!(matches!(
        create(OpenOptions::new()),
        Err(Error::Open { source, .. }) if source.kind() == ErrorKind::AlreadyExists
    ));
    assert_eq!(fs::read(&path).unwrap(), b"precious");

    let device = create(OpenOptions::new().overwrite(true)).unwrap();
    let mut start = [1; 8];
    device.read_at(0, &mut start).unwrap();
    assert_eq!(start, [0; 8]);
    device.write_at(0, &[9; 4096]).unwrap();
    assert!(is_in_use(&create(OpenOptions::new().overwrite(true))));
    device.read_at(0, &mut start).unwrap();
    assert_eq!(start, [9; 8]);
}

#[test]
fn what_cannot_be_created_leaves_no_file_behind() {
    let folder = folder();
    let path = folder.path().join("volume");
    assert!(complaint(FileDevice::create(&path, 4095)).contains("too small"));
    // More than any file system of Linux takes.
    FileDevice::create(&path, u64::MAX / 2).unwrap_err();
    assert!(!path.exists());
    let error = complaint(FileDevice::create(folder.path().join("no/volume"), MIB));
    assert!(error.contains("no/volume"), "{error}");
}

#[test]
fn what_is_no_image_is_refused_by_name_and_reason() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("short"), [0; 4095]).unwrap();
    fs::create_dir(at("folder")).unwrap();
    symlink(at("nowhere"), at("dangling")).unwrap();
    let made = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success() && fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
    for (name, reason) in [
        ("short", "too small"),
        ("folder", "is a directory"),
        ("pipe", "neither a regular file nor a block device"),
        ("missing", "No such file"),
        ("dangling", "No such file"),
    ] {
        for read_only in [false, true] {
            let error = complaint(OpenOptions::new().read_only(read_only).open(at(name)));
            assert!(error.contains(name) && error.contains(reason), "{error}");
        }
    }
    let error = complaint(FileDevice::open("/dev/null"));
    assert!(error.contains("/dev/null: is neither"), "{error}");
    let error = complaint(OpenOptions::new().overwrite(true).create(at("folder"), MIB));
    assert!(error.contains("is a directory"), "{error}");
}

#[test]
fn a_length_that_is_no_multiple_of_a_block_is_rounded_down() {
    let folder = folder();
    let path = folder.path().join("volume");
    fs::write(&path, vec![3; 4096 * 3 + 100]).unwrap();
    let device = FileDevice::open(&path).unwrap();
    assert_eq!(device.len_bytes(), 4096 * 3);
    let mut bytes = [0; 10];
    device.read_at(4096 * 3 - 10, &mut bytes).unwrap();
    assert_eq!(bytes, [3; 10]);
}

#[test]
fn direct_io_is_asked_for_tried_and_reported() {
    let folder = folder();
    let path = folder.path().join("volume");
    let device = FileDevice::create(&path, MIB).unwrap();
    let direct_works = device.is_direct();
    drop(device);
    println!("direct I/O here: {direct_works}");
    let device = OpenOptions::new().direct(Direct::Never).open(&path).unwrap();
    assert!(!device.is_direct());
    drop(device);
    match OpenOptions::new().direct(Direct::Always).open(&path) {
        Ok(device) => assert!(device.is_direct() && direct_works),
        Err(error) => assert!(!direct_works && error.to_string().contains("direct I/O")),
    }
}

#[test]
fn discarding_gives_the_file_systems_space_back() {
    for direct in [Direct::Auto, Direct::Never] {
        let folder = folder();
        let path = folder.path().join("volume");
        let device = OpenOptions::new().direct(direct).create(&path, 16 * MIB).unwrap();
        let mut buf = AlignedBuf::zeroed(8 << 20);
        buf.fill(7);
        device.write_at(0, &buf).unwrap();
        device.flush().unwrap();
        let allocated = || fs::metadata(&path).unwrap().blocks() * 512;
        assert!(allocated() >= 8 * MIB);
        device.discard(MIB, 6 * MIB).unwrap();
        device.flush().unwrap();
        if !device.discards() {
            println!("skipped: this file system cannot punch holes");
            return;
        }
        assert!(allocated() < 3 * MIB, "{} bytes", allocated());
        assert_eq!(fs::metadata(&path).unwrap().len(), 16 * MIB);
        let mut edge = [0; 2];
        device.read_at(MIB - 1, &mut edge).unwrap();
        assert_eq!(edge, [7, 0]);
        device.read_at(7 * MIB - 1, &mut edge).unwrap();
        assert_eq!(edge, [0, 7]);
        let written = [0, MIB, 7 * MIB, 8 * MIB].map(|offset| device.next_written(offset));
        assert_eq!(written, [Some(0), Some(7 * MIB), Some(7 * MIB), None]);
    }
}

#[test]
fn an_image_becomes_longer_with_the_end_that_is_written_and_shorter() {
    let folder = folder();
    let path = folder.path().join("volume");
    let device = FileDevice::create(&path, MIB).unwrap();
    assert!(device.write_at(MIB, &[1; 4096]).is_err());
    device.extend(2 * MIB, &[1; 8192], false).unwrap();
    assert_eq!((device.len_bytes(), device.present_len_bytes().unwrap()), (2 * MIB, 2 * MIB));
    let mut edge = [9; 2];
    device.read_at(2 * MIB - 8193, &mut edge).unwrap();
    assert_eq!(edge, [0, 1]);
    device.write_at(MIB, &[1; 4096]).unwrap();
    assert!(matches!(device.extend(MIB, &[0; 4096], false), Err(Error::OutOfRange { .. })));
    assert!(matches!(device.extend(3 * MIB + 1, &[0; 4096], false), Err(Error::Misaligned { .. })));
    device.truncate(MIB).unwrap();
    assert!(device.write_at(MIB, &[1; 4096]).is_err());
    assert_eq!(fs::metadata(&path).unwrap().len(), MIB);
    assert!(matches!(device.truncate(2 * MIB), Err(Error::OutOfRange { .. })));
    // Somebody else made it longer.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4 * MIB).unwrap();
    assert_eq!((device.len_bytes(), device.present_len_bytes().unwrap()), (MIB, 4 * MIB));
    device.extend(4 * MIB, &[1; 4096], true).unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 3 * MIB);
}

#[test]
fn a_file_cut_short_under_us_is_an_error() {
    let folder = folder();
    let path = folder.path().join("volume");
    let device = FileDevice::create(&path, MIB).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let error = device.read_at(8192, &mut [0; 100]).unwrap_err().to_string();
    assert!(error.contains("read of 100 bytes at 8192") && error.contains("shorter"), "{error}");
}

#[test]
fn one_writer_excludes_all_and_readers_only_writers() {
    let folder = folder();
    let path = folder.path().join("volume");
    let writer = FileDevice::create(&path, MIB).unwrap();
    let read_only = || OpenOptions::new().read_only(true).open(&path);
    assert!(is_in_use(&FileDevice::open(&path)));
    assert!(is_in_use(&read_only()));
    let error = complaint(FileDevice::open(&path));
    assert!(error.contains("volume is in use by another process"), "{error}");
    // By another name too.
    let link = folder.path().join("link");
    fs::hard_link(&path, &link).unwrap();
    assert!(is_in_use(&FileDevice::open(&link)));
    drop(writer);

    let readers = [read_only().unwrap(), read_only().unwrap()];
    assert!(is_in_use(&FileDevice::open(&path)));
    drop(readers);
    FileDevice::open(&path).unwrap();
}

#[test]
fn an_open_without_a_lock_reads_beside_a_writer_and_writes_nothing() {
    let folder = folder();
    let path = folder.path().join("volume");
    let writer = FileDevice::create(&path, MIB).unwrap();
    let reader = OpenOptions::new().unlocked().open(&path).unwrap();
    writer.write_at(0, &[7; BLOCK_SIZE]).unwrap();
    let mut buf = [0; BLOCK_SIZE];
    reader.read_at(0, &mut buf).unwrap();
    assert_eq!(buf, [7; BLOCK_SIZE]);
    assert!(matches!(reader.write_at(0, &buf), Err(Error::ReadOnly)));
    drop(writer);
    // Nor is it in the way of the next writer.
    FileDevice::open(&path).unwrap();
}

#[test]
fn whoever_waits_gets_the_lock_when_it_is_given_up() {
    let folder = folder();
    let path = folder.path().join("volume");
    let device = FileDevice::create(&path, MIB).unwrap();
    let short = OpenOptions::new().lock_wait(Duration::from_millis(30));
    assert!(is_in_use(&short.open(&path)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            drop(device);
        });
        OpenOptions::new().lock_wait(Duration::from_secs(30)).open(&path).unwrap();
    });
}

const LOCK_PATH: &str = "DENDRO_TEST_LOCK_PATH";

/// No test of its own: what another process does for the test below.
#[test]
fn helper_that_holds_a_lock_until_it_is_killed() {
    let Ok(path) = std::env::var(LOCK_PATH) else { return };
    match FileDevice::open(path) {
        Ok(_device) => {
            println!("\nlocked");
            std::thread::sleep(Duration::from_secs(60));
        }
        Err(error) => println!("\nrefused: {error}"),
    }
}

/// Another process that tries the lock, and what it said of it.
struct OtherProcess {
    child: Child,
    said: String,
    /// Kept open, or the process would fail to print.
    _stdout: BufReader<ChildStdout>,
}

impl OtherProcess {
    fn start(path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "image_file::helper_that_holds_a_lock_until_it_is_killed",
                "--nocapture",
            ])
            .env(LOCK_PATH, path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.starts_with("locked") && !said.starts_with("refused") {
            said.clear();
            assert!(stdout.read_line(&mut said).unwrap() > 0, "it said nothing");
        }
        Self { child, said, _stdout: stdout }
    }
}

#[test]
fn the_lock_holds_between_processes_and_ends_with_a_killed_one() {
    let folder = folder();
    let path = folder.path().join("volume");
    let device = FileDevice::create(&path, MIB).unwrap();
    let mut other = OtherProcess::start(&path);
    assert!(other.said.contains("in use"), "{}", other.said);
    other.child.wait().unwrap();
    drop(device);

    let mut other = OtherProcess::start(&path);
    assert_eq!(other.said, "locked\n");
    assert!(is_in_use(&FileDevice::open(&path)));
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    FileDevice::open(&path).unwrap();
}

#[test]
fn reads_through_the_page_cache_see_each_write_that_has_returned() {
    let folder = folder();
    let path = folder.path().join("volume");
    let device = OpenOptions::new().direct(Direct::Writes).create(&path, MIB).unwrap();
    if !device.is_direct() {
        return;
    }
    const ROUNDS: u64 = 1000;
    let place = 7 * BLOCK_SIZE as u64;
    let written = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut all = vec![0; MIB as usize];
                while written.load(Ordering::Acquire) < ROUNDS {
                    let least = written.load(Ordering::Acquire);
                    // With what lies around, so that the page cache has it while it is written.
                    device.read_at(0, &mut all).unwrap();
                    let at = place as usize;
                    let seen = u64::from_le_bytes(all[at..at + 8].try_into().unwrap());
                    assert!(seen >= least, "{seen} after {least}");
                }
            });
        }
        let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
        for round in 1..=ROUNDS {
            block[..8].copy_from_slice(&round.to_le_bytes());
            device.write_at(place, &block).unwrap();
            written.store(round, Ordering::Release);
        }
    });
}
