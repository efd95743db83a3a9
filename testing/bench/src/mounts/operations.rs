//! The operations, and how each is measured.
//!
//! Everything before an operation is on the device when it begins. An operation is counted when its
//! system calls have returned, unless its name says that it is durable then.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dendro_base::Rng;
use dendro_base::sync::Mutex;
use dendro_device::AlignedBuf;

use super::clients::timed;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const BLOCK_LEN: usize = 4 * KIB;
const O_DIRECT: i32 = 0o40000;

/// What `drop_caches` takes: names and i-nodes, or data as well.
const NAMES: &str = "2";
const ALL: &str = "3";

/// How many of each kind, for all clients together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    files: usize,
    small_files: usize,
    blocks: usize,
    synced: usize,
    bulk_mib: usize,
}

impl Scale {
    pub(super) const FULL: Self =
        Self { files: 8000, small_files: 4000, blocks: 16_000, synced: 800, bulk_mib: 256 };
    pub(super) const QUICK: Self =
        Self { files: 1600, small_files: 800, blocks: 3200, synced: 160, bulk_mib: 64 };
}

/// One measured figure: a rate.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) operation: &'static str,
    pub(super) unit: &'static str,
    pub(super) rate: f64,
}

/// Measures one mount with a number of clients.
pub(super) struct Workload<'a> {
    pub(super) root: &'a Path,
    pub(super) clients: usize,
    pub(super) scale: Scale,
    pub(super) figures: Vec<Figure>,
}

/// The files of a client of PostMark.
const POOL_LEN: usize = 500;
/// The accounts of a client of TPC-B.
const ACCOUNTS_MIB: usize = 32;
const ACCOUNT_LEN: usize = 100;

/// The files of a client of PostMark, by number.
struct Pool<'a> {
    directory: &'a Path,
    files: Vec<u64>,
    made_count: u64,
    rng: Rng,
}

impl<'a> Pool<'a> {
    fn new(directory: &'a Path, client: usize) -> Self {
        Self { directory, files: Vec::new(), made_count: 0, rng: Rng::new(client as u64 + 3) }
    }

    fn path(&self, file: u64) -> PathBuf {
        self.directory.join(format!("mail{file}"))
    }

    /// A file of the pool.
    fn some(&mut self) -> usize {
        self.rng.below(self.files.len() as u64) as usize
    }

    /// The length of a file, or of a change of one.
    fn len(&mut self) -> usize {
        500 + self.rng.below(9_500) as usize
    }

    fn make(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.made_count += 1;
        self.files.push(self.made_count);
        let len = self.len();
        File::create_new(self.path(self.made_count))?.write_all(&bytes[..len])
    }

    fn remove(&mut self) -> io::Result<()> {
        let at = self.some();
        let file = self.files.swap_remove(at);
        fs::remove_file(self.path(file))?;
        // There is always one left for what comes next.
        if self.files.is_empty() { self.make(&[0; 500]) } else { Ok(()) }
    }

    fn read(&mut self) -> io::Result<()> {
        let at = self.some();
        fs::read(self.path(self.files[at])).map(drop)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (at, len) = (self.some(), self.len());
        let path = self.path(self.files[at]);
        OpenOptions::new().append(true).open(path)?.write_all(&bytes[..len])
    }
}

/// Each client's own directory or file.
fn own(root: &Path, what: &str, client: usize) -> PathBuf {
    root.join(format!("{what}-{client}"))
}

fn random_bytes(seed: usize, len: usize) -> AlignedBuf {
    let mut bytes = AlignedBuf::zeroed(len);
    Rng::new(seed as u64 + 1).fill(&mut bytes);
    bytes
}

/// A random block's offset in a file of `blocks`.
fn place(rng: &mut Rng, blocks: usize) -> u64 {
    rng.below(blocks as u64) * BLOCK_LEN as u64
}

impl Workload<'_> {
    /// The operations of some groups. What they made is left.
    pub(super) fn run(&mut self, groups: &[String]) -> io::Result<()> {
        for group in groups {
            match &**group {
                "names" => self.names()?,
                "small" => self.small_files()?,
                "blocks" => self.blocks()?,
                "bulk" => self.bulk()?,
                "synced" => self.synced()?,
                "programs" => self.programs()?,
                "tree" => {}
                other => return Err(io::Error::other(format!("no operations are \"{other}\""))),
            }
        }
        Ok(())
    }

    fn each(&self, all: usize) -> usize {
        all.div_ceil(self.clients)
    }

    /// Makes all of it durable, and lets the kernel forget what it has cached: `NAMES` or `ALL`.
    fn settle(&self, forget: Option<&str>) -> io::Result<()> {
        settle(self.root)?;
        forget.map_or(Ok(()), |what| fs::write("/proc/sys/vm/drop_caches", what))
    }

    /// Measures one operation after `forget`; `done` for each step is what the unit counts.
    fn measure<S>(
        &mut self,
        operation: (&'static str, &'static str, f64),
        forget: Option<&str>,
        count_each: usize,
        prepare: impl Fn(usize) -> io::Result<S> + Sync,
        step: impl Fn(&mut S, usize) -> io::Result<()> + Sync,
    ) -> io::Result<()> {
        self.settle(forget)?;
        let time = timed(self.clients, count_each, prepare, step)?;
        let (operation, unit, done) = operation;
        let rate = (count_each * self.clients) as f64 * done / time.as_secs_f64();
        self.figures.push(Figure { operation, unit, rate });
        Ok(())
    }

    /// Each client's directory of files, by number.
    fn directories(&self, what: &str) -> io::Result<Vec<PathBuf>> {
        let all: Vec<_> = (0..self.clients).map(|client| own(self.root, what, client)).collect();
        all.iter().try_for_each(fs::create_dir)?;
        Ok(all)
    }

    fn names(&mut self) -> io::Result<()> {
        let count = self.each(self.scale.files);
        let directories = self.directories(&format!("names-of-{}", self.clients))?;
        let path = |client: &mut usize, at: usize| directories[*client].join(format!("f{at}"));
        let moved = |client: &mut usize, at: usize| directories[*client].join(format!("g{at}"));
        let one = |name| (name, "/s", 1.0);
        self.measure(one("create"), None, count, Ok, |client, at| {
            File::create_new(path(client, at)).map(drop)
        })?;
        // As most programs ask, without the time the file was made: that is a round trip of its
        // own.
        self.measure(one("stat, uncached"), Some(NAMES), count, Ok, |client, at| {
            Ok(rustix::fs::stat(path(client, at)).map(drop)?)
        })?;
        self.measure(one("stat, warm"), None, count, Ok, |client, at| {
            Ok(rustix::fs::stat(path(client, at)).map(drop)?)
        })?;
        self.measure(one("open, uncached"), Some(NAMES), count, Ok, |client, at| {
            File::open(path(client, at)).map(drop)
        })?;
        self.measure(one("rename"), None, count, Ok, |client, at| {
            fs::rename(path(client, at), moved(client, at))
        })?;
        self.measure(one("unlink"), None, count, Ok, |client, at| {
            fs::remove_file(moved(client, at))
        })?;
        self.measure(one("mkdir"), None, count / 2, Ok, |client, at| {
            fs::create_dir(path(client, at))
        })
    }

    fn small_files(&mut self) -> io::Result<()> {
        let count = self.each(self.scale.small_files);
        let directories = self.directories(&format!("small-of-{}", self.clients))?;
        let content = random_bytes(7, KIB);
        let path = |client: usize, at: usize| directories[client].join(format!("f{at}"));
        let one = |name| (name, "/s", 1.0);
        self.measure(one("create + write 1 KiB"), None, count, Ok, |client, at| {
            File::create_new(path(*client, at))?.write_all(&content[..KIB])
        })?;
        let read = |(client, bytes): &mut (usize, Vec<u8>), at: usize| {
            let mut file = File::open(path(*client, at))?;
            while file.read(bytes)? > 0 {}
            Ok(())
        };
        let reader = |client| Ok((client, vec![0; 2 * KIB]));
        self.measure(one("read 1 KiB file, cold"), Some(ALL), count, reader, read)?;
        self.measure(one("read 1 KiB file, warm"), None, count, reader, read)
    }

    fn blocks(&mut self) -> io::Result<()> {
        let count = self.each(self.scale.blocks);
        let name = format!("blocks-of-{}", self.clients);
        let (root, block) = (self.root, random_bytes(1, BLOCK_LEN));
        let one = |name| (name, "/s", 1.0);
        self.measure(
            one("append 4 KiB"),
            None,
            count,
            |client| File::create_new(own(root, &name, client)),
            |file, _| file.write_all(&block),
        )?;
        let (in_order, two_blocks) =
            (format!("in-order-of-{}", self.clients), [&*block; 2].concat());
        self.measure(
            ("write by 8 KiB in order", "MiB/s", 8.0 / 1024.0),
            None,
            count / 2,
            |client| File::create_new(own(root, &in_order, client)),
            |file, _| file.write_all(&two_blocks),
        )?;
        let opened = |client: usize| {
            let file = OpenOptions::new().write(true).open(own(root, &name, client))?;
            Ok((file, Rng::new(client as u64 + 1)))
        };
        self.measure(one("overwrite 4 KiB"), None, count, opened, |(file, rng), _| {
            file.write_all_at(&block, place(rng, count))
        })?;
        let direct = |client: usize| {
            let mut how = OpenOptions::new();
            let file = how.read(true).custom_flags(O_DIRECT).open(own(root, &name, client))?;
            Ok((file, Rng::new(client as u64 + 1), AlignedBuf::zeroed(BLOCK_LEN)))
        };
        let count_direct = count / 2;
        self.measure(
            one("random read 4 KiB, O_DIRECT"),
            Some(ALL),
            count_direct,
            direct,
            |(file, rng, buffer), _| file.read_exact_at(buffer, place(rng, count)),
        )
    }

    fn bulk(&mut self) -> io::Result<()> {
        let count = self.each(self.scale.bulk_mib);
        let name = format!("bulk-of-{}", self.clients);
        let (root, large) = (self.root, random_bytes(2, MIB));
        self.measure(
            ("write by 1 MiB + fdatasync", "MiB/s", 1.0),
            None,
            count,
            |client| File::create_new(own(root, &name, client)),
            |file, at| {
                file.write_all(&large)?;
                if at + 1 == count { file.sync_data() } else { Ok(()) }
            },
        )?;
        self.measure(
            ("read by 1 MiB, cold", "MiB/s", 1.0),
            Some(ALL),
            count,
            |client| Ok((File::open(own(root, &name, client))?, AlignedBuf::zeroed(MIB))),
            |(file, buffer), _| file.read_exact(buffer),
        )?;
        (0..self.clients).try_for_each(|client| fs::remove_file(own(root, &name, client)))
    }

    fn synced(&mut self) -> io::Result<()> {
        let count = self.each(self.scale.synced);
        let block = random_bytes(3, BLOCK_LEN);
        let name = format!("synced-of-{}", self.clients);
        let directories = self.directories(&name)?;
        let path = |client: usize, what: &str| directories[client].join(what);
        let one = |name| (name, "/s", 1.0);
        self.measure(
            one("append 4 KiB + fsync"),
            None,
            count,
            |client| File::create_new(path(client, "appended")),
            |file, _| file.write_all(&block).and_then(|()| file.sync_all()),
        )?;
        self.measure(
            one("overwrite 4 KiB + fsync"),
            None,
            count,
            |client| {
                let file = OpenOptions::new().write(true).open(path(client, "appended"))?;
                Ok((file, Rng::new(client as u64 + 9)))
            },
            |(file, rng), _| {
                file.write_all_at(&block, place(rng, count))?;
                file.sync_all()
            },
        )?;
        self.measure(one("create + write 1 KiB + fsync"), None, count, Ok, |client, at| {
            let mut file = File::create_new(path(*client, &format!("f{at}")))?;
            file.write_all(&block[..KIB])?;
            file.sync_all()
        })?;
        let directory = |client: usize| Ok((client, File::open(&directories[client])?));
        let operation = one("replace by rename, both fsynced");
        self.measure(operation, None, count, directory, |(client, directory), _| {
            let new = path(*client, "new");
            let mut file = File::create(&new)?;
            file.write_all(&block)?;
            file.sync_all()?;
            fs::rename(&new, path(*client, "old"))?;
            directory.sync_all()
        })
    }

    /// What mail servers and databases do with files, in small.
    fn programs(&mut self) -> io::Result<()> {
        let name = format!("programs-of-{}", self.clients);
        let directories = self.directories(&name)?;
        let count = self.each(self.scale.files);
        // PostMark (Katcher 1997): a file is made or removed, and another one read or appended to.
        let bytes = random_bytes(4, 16 * KIB);
        let pool = |client: usize| {
            let mut files = Pool::new(&directories[client], client);
            (0..POOL_LEN).try_for_each(|_| files.make(&bytes))?;
            Ok(files)
        };
        self.measure(("PostMark", "/s", 1.0), None, count, pool, |files, _| {
            match files.rng.below(2) {
                0 => files.make(&bytes)?,
                _ => files.remove()?,
            }
            match files.rng.below(2) {
                0 => files.read(),
                _ => files.append(&bytes),
            }
        })?;
        // TPC-B: the balance of an account changes, and a line is written into the history.
        let accounts = |client: usize| {
            let path = directories[client].join("accounts");
            let mut how = OpenOptions::new();
            let file = how.read(true).write(true).create_new(true).open(path)?;
            let large = random_bytes(5, MIB);
            (0..ACCOUNTS_MIB).try_for_each(|at| file.write_all_at(&large, (at * MIB) as u64))?;
            file.sync_all()?;
            let history = File::create_new(directories[client].join("history"))?;
            Ok((file, history, Rng::new(client as u64 + 1)))
        };
        // So many that most pages of accounts are changed several times.
        let name = ("TPC-B, fsync each 50", "/s", 1.0);
        self.measure(name, None, 5 * count, accounts, |state, at| {
            let (accounts, history, rng) = state;
            let mut account = [0; ACCOUNT_LEN];
            let place = rng.below((ACCOUNTS_MIB * MIB / ACCOUNT_LEN) as u64) * ACCOUNT_LEN as u64;
            accounts.read_exact_at(&mut account, place)?;
            account[0] = account[0].wrapping_add(1);
            accounts.write_all_at(&account, place)?;
            history.write_all(&account[..ACCOUNT_LEN / 2])?;
            if at % 50 == 49 {
                history.sync_data()?;
                accounts.sync_data()?;
            }
            Ok(())
        })
    }

    /// What the device itself does: the same transfers with direct I/O, without a file system.
    pub(super) fn run_on_device(&mut self) -> io::Result<()> {
        let (device, clients) = (self.root, self.clients.max(IN_FLIGHT));
        let count = self.scale.bulk_mib / clients;
        let open = || OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(device);
        // In huge pages, as those of the engine: with others a device may be half as fast.
        let mut buffers = AlignedBuf::several(clients + 1, MIB);
        let mut large = buffers.pop().ok_or(io::ErrorKind::OutOfMemory)?;
        Rng::new(3).fill(&mut large);
        let buffers = Mutex::new(buffers);
        let mut push = |operation, unit, done: usize, time: std::time::Duration| {
            let rate = done as f64 / time.as_secs_f64();
            self.figures.push(Figure { operation, unit, rate });
        };
        let at = |client: usize, index: usize| ((index * clients + client) * MIB) as u64;
        let time = timed(
            clients,
            count,
            |client| Ok((client, open()?)),
            |(client, file), index| {
                file.write_all_at(&large, at(*client, index))?;
                if index + 1 == count { file.sync_data() } else { Ok(()) }
            },
        )?;
        push("write by 1 MiB + fdatasync", "MiB/s", count * clients, time);
        let opened = |client| {
            let buffer = buffers.lock().pop().ok_or(io::ErrorKind::OutOfMemory)?;
            Ok((client, open()?, buffer))
        };
        let time = timed(clients, count, opened, |(client, file, buffer), index| {
            file.read_exact_at(buffer, at(*client, index))
        })?;
        push("read by 1 MiB, cold", "MiB/s", count * clients, time);
        let (clients, blocks) = (self.clients, self.scale.bulk_mib * MIB / BLOCK_LEN);
        let opened =
            |client| Ok((Rng::new(client as u64 + 1), open()?, random_bytes(client, BLOCK_LEN)));
        let count = self.scale.blocks / 2 / clients;
        let time = timed(clients, count, opened, |(rng, file, buffer), _| {
            file.read_exact_at(buffer, place(rng, blocks))
        })?;
        push("random read 4 KiB, O_DIRECT", "/s", count * clients, time);
        let count = self.scale.synced / clients;
        let time = timed(clients, count, opened, |(rng, file, buffer), _| {
            file.write_all_at(buffer, place(rng, blocks))?;
            file.sync_data()
        })?;
        push("overwrite 4 KiB + fsync", "/s", count * clients, time);
        Ok(())
    }
}

/// How many transfers of 1 MiB the device gets at a time, as it does from a kernel's file system.
const IN_FLIGHT: usize = 4;

/// Makes everything below `root` durable. An fsync does it where sync(2) does not get through.
pub(super) fn settle(root: &Path) -> io::Result<()> {
    let root = File::open(root)?;
    rustix::fs::syncfs(&root)?;
    root.sync_all()
}
