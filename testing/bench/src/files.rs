//! What the file system and the disk below it cost, without the kernel: each operation is the
//! requests that one system call becomes on a mount, beside the same on a file system that answers
//! from memory.

use std::sync::Arc;
use std::time::Duration;

use dendro_base::{Clock, Rng, SystemClock};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::PAGE_SIZE;
use dendro_fs::{AtimePolicy, Caller, FileSystem, Ino, Options};
use dendro_fuse_transport::{FileSystem as Transport, Request, SecurityContext, WriteHow};
use dendro_logdisk::LogDisk;

use crate::amplification::format_options;
use crate::engine::{disk, with_writer};
use crate::measure::{median, time};
use crate::mounts::Null;

const DEVICE_BYTES: u64 = 1 << 30;
const ROUNDS: usize = 5;
const SMALL_LEN: usize = 1 << 10;
const REGULAR: u32 = 0o100_644;

/// Files, and blocks of one file, unless it is said otherwise.
const COUNT: u64 = 8000;

/// What is measured, in this order: each finds what those before it have left.
const OPERATIONS: [(&str, Operation); 9] = [
    ("create", Operation::Create),
    ("stat, uncached", Operation::Stat),
    ("rename", Operation::Rename),
    ("unlink", Operation::Unlink),
    ("create + write 1 KiB", Operation::CreateSmall),
    ("read 1 KiB file, in a buffer", Operation::ReadSmall),
    ("append 4 KiB", Operation::Append),
    ("overwrite 4 KiB", Operation::Overwrite),
    ("stat, i-node not in memory", Operation::StatAnew),
];

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Create,
    Stat,
    Rename,
    Unlink,
    CreateSmall,
    ReadSmall,
    Append,
    Overwrite,
    StatAnew,
}

/// The requests that the kernel makes. Numbers name files.
trait Requests {
    fn lookup(&self, parent: u64, name: &[u8]) -> Option<u64>;
    fn forget(&self, file: u64);
    fn getattr(&self, file: u64);
    fn mknod(&self, parent: u64, name: &[u8]) -> u64;
    fn rename(&self, parent: u64, name: &[u8], new_name: &[u8]);
    fn unlink(&self, parent: u64, name: &[u8]);
    fn getxattr(&self, file: u64, name: &[u8]);
    fn read(&self, file: u64, offset: u64, out: &mut [u8]);
    fn write(&self, file: u64, offset: u64, data: &[u8]);
}

impl Requests for FileSystem {
    fn lookup(&self, parent: u64, name: &[u8]) -> Option<u64> {
        Self::lookup(self, Ino(parent), name).ok().map(|attr| attr.ino.0)
    }

    fn forget(&self, file: u64) {
        Self::forget(self, Ino(file), 1);
    }

    fn getattr(&self, file: u64) {
        Self::getattr(self, Ino(file)).expect("it is there");
    }

    fn mknod(&self, parent: u64, name: &[u8]) -> u64 {
        let caller = Caller::default();
        Self::mknod(self, &caller, Ino(parent), name, REGULAR, 0).expect("there is room").ino.0
    }

    fn rename(&self, parent: u64, name: &[u8], new_name: &[u8]) {
        let (parent, flags) = (Ino(parent), dendro_fs::RenameFlags::empty());
        Self::rename(self, &Caller::default(), parent, name, parent, new_name, flags)
            .expect("it is there");
    }

    fn unlink(&self, parent: u64, name: &[u8]) {
        Self::unlink(self, Ino(parent), name).expect("it is there");
    }

    fn getxattr(&self, file: u64, name: &[u8]) {
        Self::getxattr(self, Ino(file), name).expect_err("it has none");
    }

    fn read(&self, file: u64, offset: u64, out: &mut [u8]) {
        Self::read(self, Ino(file), offset, out).expect("it is there");
    }

    fn write(&self, file: u64, offset: u64, data: &[u8]) {
        Self::write(self, Ino(file), offset, data, false).expect("there is room");
    }
}

fn nobody() -> Request<'static> {
    Request { unique: 0, uid: 0, gid: 0, pid: 0, security_context: SecurityContext::default() }
}

impl Requests for Null {
    fn lookup(&self, parent: u64, name: &[u8]) -> Option<u64> {
        let entry = Transport::lookup(self, &nobody(), parent, name).expect("it is there");
        (entry.node != 0).then_some(entry.node)
    }

    fn forget(&self, file: u64) {
        Transport::forget(self, file, 1);
    }

    fn getattr(&self, file: u64) {
        Transport::getattr(self, &nobody(), file, None).expect("it is there");
    }

    fn mknod(&self, parent: u64, name: &[u8]) -> u64 {
        let made = Transport::mknod(self, &nobody(), parent, name, REGULAR, 0, 0);
        made.expect("there is room").node
    }

    fn rename(&self, parent: u64, name: &[u8], new_name: &[u8]) {
        Transport::rename(self, &nobody(), parent, name, parent, new_name, 0).expect("it is there");
    }

    fn unlink(&self, parent: u64, name: &[u8]) {
        Transport::unlink(self, &nobody(), parent, name).expect("it is there");
    }

    fn getxattr(&self, file: u64, name: &[u8]) {
        Transport::getxattr(self, &nobody(), file, name, &mut []).expect_err("none");
    }

    fn read(&self, file: u64, offset: u64, out: &mut [u8]) {
        Transport::read(self, &nobody(), file, 0, offset, out).expect("it is there");
    }

    fn write(&self, file: u64, offset: u64, data: &[u8]) {
        let how = WriteHow { offset, handle: 0, flags: 0, is_cached: false, kill_priv: false };
        Transport::write(self, &nobody(), file, &how, data).expect("it is there");
    }
}

/// A directory of files, and a file of blocks, that requests are about.
#[derive(Clone)]
struct Kernel<'a> {
    requests: &'a dyn Requests,
    count: u64,
    blocks: u64,
    data: Vec<u8>,
    /// Each file's first name, and the one that it is given.
    names: Vec<[String; 2]>,
}

const ROOT: u64 = 1;
const CAPABILITY: &[u8] = b"security.capability";

impl<'a> Kernel<'a> {
    fn new(requests: &'a dyn Requests, count: u64) -> Self {
        let mut data = vec![0; PAGE_SIZE];
        Rng::new(1).fill(&mut data);
        let names = (0..count).map(|at| [format!("f{at}"), format!("g{at}")]).collect();
        Self { requests, count, blocks: requests.mknod(ROOT, b"blocks"), data, names }
    }

    fn create(&self, name: &[u8]) -> u64 {
        self.requests.lookup(ROOT, name);
        let made = self.requests.mknod(ROOT, name);
        self.requests.getattr(ROOT);
        made
    }

    /// Does an operation once with each file, or so often with the file of blocks.
    fn run(&self, operation: Operation, files: &mut Vec<u64>) {
        let mut rng = Rng::new(7);
        let mut out = vec![0; PAGE_SIZE];
        let mut last = 0;
        for at in 0..self.count {
            let [old, new] = self.names[at as usize].each_ref().map(String::as_bytes);
            match operation {
                Operation::Create => files.push(self.create(old)),
                Operation::Stat | Operation::StatAnew => last = self.stat(old),
                Operation::Rename => {
                    self.requests.lookup(ROOT, new);
                    self.requests.rename(ROOT, old, new);
                    self.requests.getattr(ROOT);
                }
                Operation::Unlink => {
                    self.requests.unlink(ROOT, new);
                    self.requests.getattr(ROOT);
                    self.requests.forget(files[at as usize]);
                }
                Operation::CreateSmall => {
                    last = self.create(old);
                    self.requests.getxattr(last, CAPABILITY);
                    self.requests.write(last, 0, &self.data[..SMALL_LEN]);
                }
                Operation::ReadSmall => {
                    last = self.stat(old);
                    self.requests.read(last, 0, &mut out);
                }
                Operation::Append => {
                    self.requests.write(self.blocks, at * PAGE_SIZE as u64, &self.data);
                }
                Operation::Overwrite => {
                    let offset = rng.below(self.count) * PAGE_SIZE as u64;
                    self.requests.write(self.blocks, offset, &self.data);
                }
            }
        }
        std::hint::black_box(last);
    }

    /// Looks for a file that the kernel has forgotten, which takes the lookup back some time.
    fn stat(&self, name: &[u8]) -> u64 {
        let found = self.requests.lookup(ROOT, name).expect("it was made");
        self.requests.forget(found);
        found
    }
}

/// Opens the file system on `disk`, which has one.
fn mount(disk: &Arc<LogDisk>, clock: &Arc<dyn Clock>) -> FileSystem {
    let options =
        Options { atime: AtimePolicy::Relatime, lookups_keep_files: true, ..Options::default() };
    FileSystem::mount(Arc::clone(disk) as _, options, Arc::clone(clock)).expect("it was made")
}

/// Nanoseconds that each operation takes in one round.
fn round_of(mut operations: impl FnMut(Operation, &mut Vec<u64>), count: u64) -> Vec<f64> {
    let each = |took: Duration| took.as_nanos() as f64 / count as f64;
    let mut files = Vec::new();
    let timed = |&(_, operation)| each(time(|| operations(operation, &mut files)));
    OPERATIONS.iter().map(timed).collect()
}

fn round(device: &Arc<dyn Device>, count: u64) -> Vec<f64> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let disk = Arc::new(disk(Arc::clone(device)));
    FileSystem::create_on(&*disk, &format_options(), &*clock).expect("it is empty");
    let fs = mount(&disk, &clock);
    let kernel = Kernel::new(&fs, count);
    let anew = mount(&disk, &clock);
    let of_anew = Kernel { requests: &anew, ..kernel.clone() };
    with_writer(&disk, || {
        round_of(
            |operation, files| match operation {
                Operation::StatAnew => of_anew.run(operation, files),
                _ => kernel.run(operation, files),
            },
            count,
        )
    })
}

fn null_round(count: u64) -> Vec<f64> {
    let null = Null::default();
    let kernel = Kernel::new(&null, count);
    round_of(|operation, files| kernel.run(operation, files), count)
}

/// Measures with so many files, or as many blocks.
pub(crate) fn run(count: Option<u64>) {
    let count = count.unwrap_or(COUNT);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (round(&device, count), null_round(count))).collect();
    println!("{:<32} {:>14} {:>14} {:>12}", "", "dendrofs", "null", "adds");
    for (at, (name, _)) in OPERATIONS.iter().enumerate() {
        let ours = median(rounds.iter().map(|(ours, _)| ours[at]).collect());
        let null = median(rounds.iter().map(|(_, null)| null[at]).collect());
        println!("{name:<32} {ours:>11.0} ns {null:>11.0} ns {:>9.0} ns", ours - null);
    }
}
