//! Operations through mounts: dendrofs, and a file system that answers everything from memory on
//! the same transport, which is as fast as a mount can be.
//!
//! The client is one thread, and on no CPU in particular, as clients are.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use dendro_base::Rng;
use dendro_device::AlignedBuf;
use dendro_fuse_transport::{
    Access, Attr, AttrReply, Choice, CreateHow, Entry, Errno, FileSystem, InitFlags, MountRequest,
    OpenHow, Opened, OpenedFlags, Options, Request, Result, Session, SetAttr, UnmountMode, Wishes,
    WriteHow, enable_uring, mount, unmount,
};

use crate::measure::{median, time};

const ROUNDS: usize = 3;
const FILES: usize = 10_000;
const BLOCK_LEN: usize = 4096;
const FILE_BLOCKS: usize = 1024;
const OVERWRITES: usize = 40_000;
const READS: usize = 20_000;
const APPENDS: usize = 500;
const MIB: usize = 1 << 20;
const BULK_MIB: usize = 256;
const O_DIRECT: i32 = 0o40000;
const FOREVER: Duration = Duration::from_secs(1 << 30);

const OPERATIONS: [(&str, f64); 7] = [
    ("create a file /s", FILES as f64),
    ("stat an uncached file /s", FILES as f64),
    ("remove a file /s", FILES as f64),
    ("overwrite 4 KiB /s", OVERWRITES as f64),
    ("read 4 KiB directly /s", READS as f64),
    ("append 4 KiB and fsync /s", APPENDS as f64),
    ("write MiB/s", BULK_MIB as f64),
];

/// Measures, with the image file in `directory`.
pub(crate) fn run(directory: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(io::Error::other("this takes root: it mounts, and drops the kernel's caches"));
    }
    let dendro = std::env::var_os("DENDRO").map_or_else(
        || std::env::current_exe().map(|path| path.with_file_name("dendro")),
        |path| Ok(PathBuf::from(path)),
    )?;
    let has_uring = match enable_uring() {
        Ok(()) => true,
        Err(error) => {
            println!("io_uring is left out: {error}");
            false
        }
    };
    let image = directory.join("dendro-bench-mount.img");
    let mount_point = directory.join("dendro-bench-mount");
    fs::create_dir_all(&mount_point)?;
    let result = compare(&dendro, &image, &mount_point, has_uring);
    let _ = fs::remove_file(&image);
    let _ = fs::remove_dir(&mount_point);
    result
}

fn compare(dendro: &Path, image: &Path, mount_point: &Path, has_uring: bool) -> io::Result<()> {
    let ways: &[(&str, Choice)] = match has_uring {
        true => &[("uring", Choice::Uring), ("dev", Choice::Device)],
        false => &[("dev", Choice::Device)],
    };
    let mut seconds = vec![vec![[Vec::new(), Vec::new()]; ways.len()]; OPERATIONS.len()];
    for _ in 0..ROUNDS {
        for (at, (name, choice)) in ways.iter().enumerate() {
            let null = on_null(*choice, mount_point)?;
            let ours = on_dendro(dendro, image, mount_point, name)?;
            for (operation, times) in seconds.iter_mut().enumerate() {
                times[at][0].push(ours[operation].as_secs_f64());
                times[at][1].push(null[operation].as_secs_f64());
            }
        }
    }
    println!("{:<28} {:>6} {:>12} {:>12} {:>8}", "", "over", "dendrofs", "null", "ratio");
    for ((what, count), times) in OPERATIONS.iter().zip(seconds) {
        for ((way, _), [ours, null]) in ways.iter().zip(times) {
            let (ours, null) = (count / median(ours), count / median(null));
            println!("{what:<28} {way:>6} {ours:>12.0} {null:>12.0} {:>7.2}x", ours / null);
        }
    }
    Ok(())
}

fn on_dendro(
    dendro: &Path,
    image: &Path,
    mount_point: &Path,
    way: &str,
) -> io::Result<Vec<Duration>> {
    let run = |arguments: &[&str], paths: &[&Path]| {
        let status =
            Command::new(dendro).args(arguments).args(paths).stdout(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(io::Error::other(format!("dendro {}: {status}", arguments[0]))),
            Err(error) => {
                Err(io::Error::new(error.kind(), format!("{}: {error}", dendro.display())))
            }
        }
    };
    let _ = fs::remove_file(image);
    run(&["mkfs", "--size", "4G"], &[image])?;
    run(&["mount", "-o", &format!("transport={way}")], &[image, mount_point])?;
    let times = operations(mount_point);
    run(&["umount"], &[mount_point])?;
    times
}

fn on_null(choice: Choice, mount_point: &Path) -> io::Result<Vec<Duration>> {
    let request = MountRequest {
        source: "null".into(),
        subtype: "null".into(),
        read_only: false,
        access: Access::All,
        default_permissions: true,
        dev: false,
        suid: false,
        exec: true,
        sync: false,
        noatime: false,
    };
    let mounted = mount(mount_point, &request).map_err(io::Error::other)?;
    let flags = Wishes::default().flags
        | InitFlags::ASYNC_DIO
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::EXPLICIT_INVAL_DATA
        | InitFlags::DONT_MASK
        | InitFlags::HANDLE_KILLPRIV_V2;
    let options =
        Options { choice, wishes: Wishes { flags, ..Wishes::default() }, ..Options::default() };
    let session = match Session::start(mounted, Null::default(), options) {
        Ok(session) => session,
        Err(error) => {
            let _ = unmount(mount_point, UnmountMode::Detach);
            return Err(error);
        }
    };
    thread::scope(|scope| {
        let server = scope.spawn(move || session.run());
        let times = operations(mount_point);
        unmount(mount_point, UnmountMode::Abort).map_err(io::Error::other)?;
        server.join().map_err(|_| io::Error::other("the null file system stopped"))??;
        times
    })
}

/// Each of [`OPERATIONS`], in that order.
fn operations(mount_point: &Path) -> io::Result<Vec<Duration>> {
    let directory = mount_point.join("d");
    fs::create_dir(&directory)?;
    let paths: Vec<_> = (0..FILES).map(|number| directory.join(format!("f{number}"))).collect();
    let mut failed = Ok(());
    let mut times = vec![timed(&mut failed, || {
        paths.iter().try_for_each(|path| File::create_new(path).map(drop))
    })];
    fs::write("/proc/sys/vm/drop_caches", "2")?;
    times.push(timed(&mut failed, || {
        paths.iter().try_for_each(|path| fs::metadata(path).map(drop))
    }));
    times.push(timed(&mut failed, || paths.iter().try_for_each(fs::remove_file)));
    let mut rng = Rng::new(1);
    let mut block = AlignedBuf::zeroed(BLOCK_LEN);
    rng.fill(&mut block);
    let file = File::create_new(directory.join("data"))?;
    for at in 0..FILE_BLOCKS {
        file.write_all_at(&block, (at * BLOCK_LEN) as u64)?;
    }
    let mut place = move || rng.below(FILE_BLOCKS as u64) * BLOCK_LEN as u64;
    times.push(timed(&mut failed, || {
        (0..OVERWRITES).try_for_each(|_| file.write_all_at(&block, place()))
    }));
    file.sync_all()?;
    let direct =
        OpenOptions::new().read(true).custom_flags(O_DIRECT).open(directory.join("data"))?;
    times.push(timed(&mut failed, || {
        (0..READS).try_for_each(|_| direct.read_exact_at(&mut block, place()))
    }));
    let mut appended = File::create_new(directory.join("appended"))?;
    times.push(timed(&mut failed, || {
        (0..APPENDS).try_for_each(|_| {
            appended.write_all(&block)?;
            appended.sync_data()
        })
    }));
    let mut large = AlignedBuf::zeroed(MIB);
    Rng::new(2).fill(&mut large);
    let mut bulk = File::create_new(directory.join("bulk"))?;
    times.push(timed(&mut failed, || (0..BULK_MIB).try_for_each(|_| bulk.write_all(&large))));
    failed.map(|()| times)
}

fn timed(failed: &mut io::Result<()>, work: impl FnOnce() -> io::Result<()>) -> Duration {
    time(|| {
        if let Err(error) = work() {
            *failed = Err(error);
        }
    })
}

/// Has the names that were made; all else is made up.
#[derive(Default)]
struct Null {
    names: Mutex<HashSet<Vec<u8>>>,
}

const DIRECTORY: u64 = 2;

fn attr(node: u64) -> Attr {
    let is_directory = node <= DIRECTORY;
    Attr {
        ino: node,
        size_bytes: if is_directory { 0 } else { (FILE_BLOCKS * BLOCK_LEN) as u64 },
        mode: if is_directory { 0o040_777 } else { 0o100_666 },
        nlink: 1 + u32::from(is_directory),
        blksize_bytes: 4096,
        ..Attr::default()
    }
}

fn entry(name: &[u8]) -> Entry {
    // FNV-1a, past the directories' numbers.
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let node = if name == b"d" { DIRECTORY } else { hash | 1 << 62 };
    Entry { node, generation: 0, entry_valid: FOREVER, attr: attr(node), attr_valid: FOREVER }
}

impl Null {
    fn names(&self) -> std::sync::MutexGuard<'_, HashSet<Vec<u8>>> {
        self.names.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn make(&self, name: &[u8]) -> Entry {
        self.names().insert(name.to_vec());
        entry(name)
    }
}

impl FileSystem for Null {
    fn lookup(&self, _: &Request, _: u64, name: &[u8]) -> Result<Entry> {
        if self.names().contains(name) { Ok(entry(name)) } else { Ok(Entry::absent(FOREVER)) }
    }

    fn getattr(&self, _: &Request, node: u64, _: Option<u64>) -> Result<AttrReply> {
        Ok(AttrReply { attr: attr(node), valid: FOREVER })
    }

    fn setattr(&self, _: &Request, node: u64, _: &SetAttr) -> Result<AttrReply> {
        Ok(AttrReply { attr: attr(node), valid: FOREVER })
    }

    fn mkdir(&self, _: &Request, _: u64, name: &[u8], _: u32, _: u32) -> Result<Entry> {
        Ok(self.make(name))
    }

    fn unlink(&self, _: &Request, _: u64, name: &[u8]) -> Result<()> {
        if self.names().remove(name) { Ok(()) } else { Err(Errno::NOENT) }
    }

    fn read(&self, _: &Request, _: u64, _: u64, _: u64, out: &mut [u8]) -> Result<usize> {
        Ok(out.len())
    }

    fn write(&self, _: &Request, _: u64, _: &WriteHow, data: &[u8]) -> Result<usize> {
        Ok(data.len())
    }

    fn fsync(&self, _: &Request, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }

    fn opendir(&self, _: &Request, _: u64, _: OpenHow) -> Result<Opened> {
        Ok(Opened::default())
    }

    fn create(&self, _: &Request, _: u64, name: &[u8], _: &CreateHow) -> Result<(Entry, Opened)> {
        Ok((self.make(name), Opened { handle: 0, flags: OpenedFlags::KEEP_CACHE }))
    }
}
