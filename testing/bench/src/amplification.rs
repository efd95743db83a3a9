//! (d) Bytes written to the device for what users write: records, map, checkpoints and superblocks
//! included. Counts, so they are the same on every machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, MemoryDevice, Result};
use dendro_disk::{LogicalDisk, PAGE_SIZE};
use dendro_fs::{Caller, FileSystem, FormatOptions, Ino, Options};
use dendro_logdisk::LogDisk;

use crate::engine;
use crate::measure::print_alone;

const GIB: u64 = 1 << 30;
const FILES: u64 = 100_000;
const FILES_IN_A_DIRECTORY: u64 = 1000;
const FILE_BYTES: usize = 1024;
const BIG_FILE_BYTES: u64 = 512 << 20;
const OVERWRITES: u64 = 200_000;

/// A device that counts what is written to it.
struct Counting {
    device: MemoryDevice,
    written_bytes: AtomicU64,
}

impl Device for Counting {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.device.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.device.write_at(offset, bytes)
    }
    fn flush(&self) -> Result<()> {
        self.device.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.device.discard(offset, len_bytes)
    }
}

struct Bench {
    counting: Arc<Counting>,
    disk: Arc<LogDisk>,
    fs: FileSystem,
}

impl Bench {
    fn new() -> Self {
        let counting = Arc::new(Counting {
            device: MemoryDevice::new(4 * GIB),
            written_bytes: AtomicU64::new(0),
        });
        let disk = Arc::new(engine::disk(Arc::clone(&counting) as Arc<dyn Device>));
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        FileSystem::create_on(&*disk, &format_options(), &*clock).expect("the disk is empty");
        let shared: Arc<dyn LogicalDisk> = Arc::clone(&disk) as _;
        let fs = FileSystem::mount(shared, Options::default(), clock).expect("it was just made");
        Self { counting, disk, fs }
    }

    /// Does `work`, with the background steps that a daemon would do, and a checkpoint at the end.
    fn bytes_written_by(&self, work: impl FnOnce()) -> u64 {
        let before = self.counting.written_bytes.load(Ordering::Relaxed);
        work();
        self.disk.checkpoint().expect("the device works");
        self.counting.written_bytes.load(Ordering::Relaxed) - before
    }

    fn step(&self) {
        while self.disk.background_step().expect("the device works") {}
    }
}

pub(crate) const CALLER: Caller<'_> =
    Caller { uid: 0, gid: 0, umask: 0o022, security_context: &[] };

pub(crate) fn run() {
    let bench = Bench::new();
    let data = [0x5a_u8; FILE_BYTES];
    let mut directory = Ino::ROOT;
    let bytes = bench.bytes_written_by(|| {
        for number in 0..FILES {
            if number % FILES_IN_A_DIRECTORY == 0 {
                let name = format!("directory-{number}");
                let made = bench.fs.mkdir(&CALLER, Ino::ROOT, name.as_bytes(), 0o755);
                directory = made.expect("there is room").ino;
                bench.step();
            }
            let name = format!("file-{number}");
            let made =
                bench.fs.create(&CALLER, directory, name.as_bytes(), 0o644, Default::default());
            let ino = made.expect("there is room").ino;
            bench.fs.write(ino, 0, &data, false).expect("there is room");
            bench.fs.release(ino);
        }
    });
    print_alone("d  device bytes per created 1 KiB file", " B", bytes as f64 / FILES as f64);

    let made = bench.fs.create(&CALLER, Ino::ROOT, b"big", 0o644, Default::default());
    let ino = made.expect("there is room").ino;
    let megabyte = vec![0x5a_u8; 1 << 20];
    for offset in (0..BIG_FILE_BYTES).step_by(1 << 20) {
        bench.fs.write(ino, offset, &megabyte, false).expect("there is room");
    }
    let mut rng = Rng::new(1);
    let bytes = bench.bytes_written_by(|| {
        for number in 0..OVERWRITES {
            let page = rng.below(BIG_FILE_BYTES / PAGE_SIZE as u64);
            let offset = page * PAGE_SIZE as u64;
            bench.fs.write(ino, offset, &megabyte[..PAGE_SIZE], false).expect("there is room");
            if number % 1000 == 0 {
                bench.step();
            }
        }
    });
    print_alone(
        "d  device bytes per random 4 KiB overwrite",
        " B",
        bytes as f64 / OVERWRITES as f64,
    );
}

pub(crate) fn format_options() -> FormatOptions {
    FormatOptions { uid: 0, gid: 0, mode: 0o755, label: String::new(), hash_key: [7; 16] }
}
