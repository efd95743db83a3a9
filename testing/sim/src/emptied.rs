//! Volumes that are filled and emptied again: whatever a volume was filled with, everything can be
//! removed, and all space is free afterwards.
//!
//! Volumes of different sizes are filled with files of different kinds, in the root or in
//! directories (`tree`). Some versions are made, and the remaining space is filled completely.
//! Then everything is removed in some order, with or without crashes, and with a random amount of
//! background work. No removal may be refused. At the end, as much can be written as on the new
//! volume.

mod tree;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{CommitSeq, LogicalDisk, Versions, View};
use dendro_fs::testing::StepClock;
use dendro_fs::{
    Attr, FileKind, FileSystem, FormatOptions, FsError, Ino, OpenOptions, Options, SetAttr,
};
use dendro_logdisk::LogDisk;

use crate::disk::Engine;
use crate::log::LogEngine;
use crate::system::Outcome;
use crate::tiered::Tiered;
use tree::{Name, ROOT, Tree, names_in};

const PAGE: u64 = 4096;
/// The size of the pieces that fill the remaining space.
const PIECE_LEN_BYTES: usize = 256 << 10;
/// The size of the pieces that are written when the larger ones no longer fit.
const SMALL_LEN_BYTES: usize = 4096;
/// More steps of background work than there can be to do.
const MAX_BACKGROUND_STEPS: usize = 200_000;
/// How much of what could be written at first must be writable at the end, in percent.
const GIVEN_BACK_PERCENT: u64 = 97;

/// The files that a volume is filled with first.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Empty files.
    Empty,
    /// Small files, of at most so many bytes.
    Small(u64),
    /// A file of short pages, each so many pages behind the one before.
    Sparse(u64),
    /// Files of short pages that lie so far from each other.
    Scattered { pages: u64, stride: u64 },
    /// Files written in order.
    Plain(u64),
}

/// One volume, filled and emptied.
struct Session {
    engine: LogEngine,
    device: Arc<dyn Device>,
    disk: Arc<LogDisk>,
    fs: FileSystem,
    clock: Arc<StepClock>,
    step: u64,
    rng: Rng,
    /// Where files are made, if not in the root.
    tree: Option<Tree>,
    /// How many crashes there have been.
    crashes: u64,
    /// After how many of a thousand steps there is a crash.
    crash_per_mille: u64,
    /// After how many of a hundred steps there is background work.
    background_percent: u64,
    snapshots: Vec<View>,
    branches: Vec<View>,
    /// What was done, for the message of a failure.
    story: Vec<String>,
}

/// How many volumes were filled and emptied.
#[derive(Debug, Default)]
pub struct Tally {
    done: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    /// Of how many something could not be removed, or space was not freed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = self.done.load(Ordering::Relaxed);
        write!(f, "{done} volumes were filled and emptied, {} were stuck", self.failed())
    }
}

/// Fills and empties the volumes of `seeds` on several threads. `failed` is called for those that
/// fail.
pub fn run_seeds(
    seeds: Range<u64>,
    thread_count: usize,
    tally: &Tally,
    failed: &(dyn Fn(&str) + Sync),
) {
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    if let Err(failure) = run(seed) {
                        tally.failed.fetch_add(1, Ordering::Relaxed);
                        failed(&failure);
                    }
                    tally.done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
}

/// Fills and empties the volume that `seed` makes.
///
/// # Errors
/// What was refused, or not freed.
pub fn run(seed: u64) -> Outcome<()> {
    let mut session = Session::begin(seed)?;
    let outcome = session.run();
    outcome.map_err(|error| {
        let story = session.story.join("\n  ");
        format!("seed {seed}: {error}\n  {story}\n  {}", session.describe())
    })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn mount(
    engine: &LogEngine,
    device: &Arc<dyn Device>,
    clock: &Arc<StepClock>,
) -> Outcome<(Arc<LogDisk>, FileSystem)> {
    let disk = Arc::new(engine.open(Arc::clone(device))?);
    let options = Options { inode_cache_len: 100, ..Options::default() };
    let fs = FileSystem::mount(
        Arc::clone(&disk) as Arc<dyn LogicalDisk>,
        options,
        Arc::clone(clock) as Arc<dyn dendro_base::Clock>,
    )
    .map_err(|error| format!("mounting: {error}"))?;
    Ok((disk, fs))
}

impl Session {
    fn begin(seed: u64) -> Outcome<Self> {
        let mut rng = Rng::new(seed.rotate_left(24) ^ 0x5eed);
        let mut engine = LogEngine::draw(&mut rng, 20);
        engine.open.policy = crate::log::users_policy(&mut rng);
        engine.open.reserve_percent = engine.open.reserve_percent.min(4);
        engine.open.cleaning.is_suspended = false;
        let size = engine.format.segment_size_bytes;
        let len_bytes = (8 << 20) + size * rng.below((24 << 20) / size);
        let len_bytes = len_bytes.max(24 * size) / size * size;
        let below = MemoryDevice::new(len_bytes);
        // Some have few fast segments.
        let mut tiers = Rng::new(seed ^ 0x71e4);
        let one_in = if tiers.chance(40) { Some(2 + tiers.below(40)) } else { None };
        let device: Arc<dyn Device> = match one_in {
            Some(one_in) => Arc::new(Tiered { below, segment_len_bytes: size, one_in }),
            None => Arc::new(below),
        };
        engine.format(Arc::clone(&device))?;
        let clock = Arc::new(StepClock::default());
        {
            let disk = engine.open(Arc::clone(&device))?;
            let options = FormatOptions {
                uid: 0,
                gid: 0,
                mode: 0o755,
                label: "emptied".into(),
                hash_key: [7; 16],
            };
            FileSystem::create_on(&disk, &options, &*clock).map_err(text)?;
            disk.shut_down().map_err(text)?;
        }
        let (disk, fs) = mount(&engine, &device, &clock)?;
        let crash_per_mille = if rng.chance(60) { 0 } else { 1 };
        let background_percent = [0, 2, 30][rng.below(3) as usize];
        let tree = Tree::draw(seed);
        let story = vec![format!(
            "{} segments of {size} bytes, one in {one_in:?} fast, a cache of {} bytes, {:?}, {tree:?}",
            len_bytes / size,
            engine.open.cache_size_bytes,
            engine.open.policy,
        )];
        Ok(Self {
            engine,
            device,
            disk,
            fs,
            clock,
            step: 0,
            rng,
            tree,
            crashes: 0,
            crash_per_mille,
            background_percent,
            snapshots: Vec::new(),
            branches: Vec::new(),
            story,
        })
    }

    fn describe(&self) -> String {
        format!("{:?}\n  {:?}", self.disk.space(), self.disk.stats())
    }

    fn tell(&mut self, what: String) {
        let stats = self.disk.stats();
        let space = self.disk.space();
        self.story.push(format!(
            "{what}: {} of {} KiB, {:?}, {} KiB dirty",
            space.live_bytes >> 10,
            space.capacity_bytes >> 10,
            stats.segments,
            stats.dirty_node_bytes >> 10
        ));
    }

    fn run(&mut self) -> Outcome<()> {
        let available_bytes = self.disk.space().available_bytes;
        let shape = self.draw_shape();
        let may_fill = self.rng.chance(40);
        let count = self.fill_with(shape, available_bytes, may_fill)?;
        self.tell(format!("{count} steps of {shape:?}"));
        let versions = self.rng.below(4);
        for number in 0..versions {
            self.make_version(number)?;
        }
        self.fill_up()?;
        if self.rng.chance(30) {
            self.make_version(versions)?;
        }
        let deletes_versions_first = self.rng.chance(20);
        if deletes_versions_first {
            self.delete_versions()?;
        }
        // A crash while versions are deleted can bring files back.
        loop {
            self.remove_all()?;
            self.tell("everything was removed".into());
            self.delete_versions()?;
            if names_in(&self.fs, Ino::ROOT).map_err(text)?.is_empty() {
                break;
            }
        }
        self.settle()?;
        self.tell("versions were deleted".into());
        self.verify()?;
        self.is_as_at_first(available_bytes)
    }

    fn draw_shape(&mut self) -> Shape {
        match self.rng.below(5) {
            0 => Shape::Empty,
            1 => Shape::Small(1 + self.rng.below(3000)),
            2 => Shape::Sparse(1 + self.rng.below(40)),
            3 => {
                let pages = 1 + self.rng.below(400);
                Shape::Scattered { pages, stride: 1 + self.rng.below(40) }
            }
            _ => Shape::Plain(1 + self.rng.below(1 << 20)),
        }
    }

    /// Crashes, works in the background, or does nothing.
    fn pause(&mut self) -> Outcome<()> {
        self.step += 1;
        self.clock.set_step(self.step);
        if self.rng.below(1000) < self.crash_per_mille {
            self.crash()?;
        }
        if self.rng.below(100) < self.background_percent {
            self.disk.write_step(Duration::ZERO).map_err(text)?;
            self.disk.background_step().map_err(|error| format!("in the background: {error}"))?;
        }
        if self.rng.below(1000) == 0 {
            self.disk.flush(CommitSeq::LATEST).map_err(|error| format!("syncing: {error}"))?;
        }
        Ok(())
    }

    /// Abandons the volume as a killed process does, and mounts it again. Sometimes what was not
    /// durable is lost, and is then done again.
    fn crash(&mut self) -> Outcome<()> {
        if self.rng.chance(50) {
            self.disk.flush(CommitSeq::LATEST).map_err(text)?;
        }
        let (disk, fs) = mount(&self.engine, &self.device, &self.clock)
            .map_err(|error| format!("after a crash: {error}"))?;
        (self.disk, self.fs) = (disk, fs);
        self.crashes += 1;
        if let Some(tree) = &mut self.tree {
            tree.begin_again();
        }
        // Versions that are lost need not be deleted, and lost deletions are done again.
        let table = self.disk.versions();
        self.snapshots = table.snapshots().map(|snapshot| snapshot.view()).collect();
        let heads = table.branches().map(|branch| branch.head());
        self.branches = heads.filter(|head| *head != View::HEAD).collect();
        Ok(())
    }

    /// Whether a call found room.
    fn fits<T>(result: Result<T, FsError>) -> Outcome<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(FsError::Disk(dendro_disk::Error::NoSpace { .. }) | FsError::Stale) => Ok(None),
            Err(error) => Err(format!("while there was room: {error}")),
        }
    }

    fn fill_with(&mut self, shape: Shape, available_bytes: u64, may_fill: bool) -> Outcome<u64> {
        let share = if may_fill { 100 } else { 10 + self.rng.below(80) };
        let least = available_bytes - available_bytes * share / 100;
        let mut count = 0;
        let mut file = None;
        while self.disk.space().available_bytes > least.max(1) {
            self.pause()?;
            count += 1;
            let filled = match shape {
                Shape::Empty => self.create(count)?.is_some(),
                Shape::Small(most) => {
                    let len = 1 + self.rng.below(most);
                    self.write_new(count, len, 1 << 17)?
                }
                Shape::Plain(most) => {
                    let len = 1 + self.rng.below(most);
                    self.write_new(count, len, 1 << 17)?
                }
                Shape::Scattered { pages, stride } => match self.create(count)? {
                    Some(attr) => self.write_scattered(&attr, 0..pages, stride)?,
                    None => false,
                },
                Shape::Sparse(stride) => {
                    if file.is_none() {
                        file = self.create(0)?.map(|attr| attr.ino);
                    }
                    let attr = file.map(|ino| self.fs.getattr(ino));
                    match attr {
                        Some(Ok(attr)) => {
                            self.write_scattered(&attr, (count - 1) * 64..count * 64, stride)?
                        }
                        // A crash has lost it.
                        Some(Err(_)) => {
                            file = None;
                            continue;
                        }
                        None => false,
                    }
                }
            };
            if !filled {
                break;
            }
        }
        Ok(count)
    }

    fn create(&mut self, number: u64) -> Outcome<Option<Attr>> {
        let parent = match &mut self.tree {
            Some(tree) => Self::fits(tree.directory_for_file(&self.fs))?,
            None => Some(Ino::ROOT),
        };
        let Some(parent) = parent else { return Ok(None) };
        let name = format!("file-{number:08}");
        let options = OpenOptions::default();
        let made = self.fs.create(&ROOT, parent, name.as_bytes(), 0o644, options);
        let made = Self::fits(made)?;
        if let Some(attr) = &made {
            self.fs.release(attr.ino);
            self.fs.forget(attr.ino, 1);
            if let Some(tree) = &mut self.tree {
                Self::fits(tree.add_other(&self.fs, attr.ino, parent, &name))?;
            }
        }
        Ok(made)
    }

    fn write_new(&mut self, number: u64, len: u64, piece: usize) -> Outcome<bool> {
        let Some(attr) = self.create(number)? else { return Ok(false) };
        let mut bytes = vec![0; len as usize];
        self.rng.fill(&mut bytes);
        let mut offset = 0;
        for piece in bytes.chunks(piece) {
            if Self::fits(self.fs.write(attr.ino, offset, piece, false))?.is_none() {
                return Ok(false);
            }
            offset += piece.len() as u64;
        }
        Ok(true)
    }

    fn write_scattered(&mut self, attr: &Attr, pages: Range<u64>, stride: u64) -> Outcome<bool> {
        let mut bytes = [0; 64];
        for page in pages {
            self.rng.fill(&mut bytes);
            let offset = page * stride * PAGE;
            if Self::fits(self.fs.write(attr.ino, offset, &bytes, false))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fills the remaining space, in large pieces and then in small ones.
    fn fill_up(&mut self) -> Outcome<()> {
        let mut len = PIECE_LEN_BYTES;
        let mut offset = 0;
        let mut ino = None;
        let mut bytes = vec![0; len];
        while len >= SMALL_LEN_BYTES {
            self.pause()?;
            let known = match ino {
                Some(ino) => Self::fits(self.fs.getattr(ino))?,
                None => None,
            };
            let attr = match known {
                Some(attr) => Some(attr),
                None => self.create(99_999_999)?,
            };
            let Some(attr) = attr else { break };
            ino = Some(attr.ino);
            self.rng.fill(&mut bytes[..len]);
            match Self::fits(self.fs.write(attr.ino, offset, &bytes[..len], false))? {
                Some(_) => offset += len as u64,
                None => len /= 4,
            }
        }
        self.tell(format!("filled up with {} KiB", offset >> 10));
        Ok(())
    }

    fn make_version(&mut self, number: u64) -> Outcome<()> {
        let made = if self.rng.chance(75) {
            let name = self.rng.chance(80).then(|| format!("s{number}"));
            let made = self.disk.snapshot(0, name.as_deref());
            made.map(|snapshot| self.snapshots.push(snapshot.view()))
        } else {
            let made = self.disk.branch_off(View::HEAD, &format!("b{number}"));
            made.map(|branch| self.branches.push(branch.head()))
        };
        match made {
            Ok(()) => self.tell(format!("version {number}")),
            Err(dendro_disk::Error::NoSpace { .. }) => {
                self.tell(format!("no room for version {number}"));
            }
            Err(error) => return Err(format!("making a version: {error}")),
        }
        Ok(())
    }

    fn delete_versions(&mut self) -> Outcome<()> {
        while let Some(view) = self.snapshots.pop().or_else(|| self.branches.pop()) {
            self.disk.delete(view).map_err(|error| format!("deleting {view:?}: {error}"))?;
            self.pause()?;
        }
        Ok(())
    }

    fn has_versions(&self) -> bool {
        !self.snapshots.is_empty() || !self.branches.is_empty()
    }

    /// Removes everything, in order, backwards or in random order. Some files are truncated before.
    fn remove_all(&mut self) -> Outcome<()> {
        let order = self.rng.below(3);
        let cut_percent = [0, 0, 10][self.rng.below(3) as usize];
        let mut removed = 0;
        while !names_in(&self.fs, Ino::ROOT).map_err(text)?.is_empty() {
            self.remove_names(Ino::ROOT, order, cut_percent, &mut removed)?;
        }
        Ok(())
    }

    /// Removes what is in a directory, once.
    fn remove_names(
        &mut self,
        parent: Ino,
        order: u64,
        cut_percent: u64,
        removed: &mut u64,
    ) -> Outcome<()> {
        let mut names = names_in(&self.fs, parent).map_err(text)?;
        match order {
            0 => {}
            1 => names.reverse(),
            _ => {
                for at in (1..names.len()).rev() {
                    names.swap(at, self.rng.below(at as u64 + 1) as usize);
                }
            }
        }
        for Name { ino, kind, name } in names {
            self.pause()?;
            let is_gone = if kind == FileKind::Directory {
                let crashes = self.crashes;
                self.remove_names(ino, order, cut_percent, removed)?;
                self.remove_directory(parent, &name, crashes)
            } else {
                if kind == FileKind::Regular && self.rng.below(100) < cut_percent {
                    self.cut_in_half(ino, *removed)?;
                }
                match self.fs.unlink(parent, &name) {
                    Ok(()) => Ok(true),
                    // After the crash it may exist again, so it is looked up.
                    Err(FsError::NotFound | FsError::Stale) => Ok(false),
                    Err(error) => Err(error),
                }
            };
            let is_gone = is_gone.map_err(|error| format!("removing number {removed}: {error}"))?;
            *removed += u64::from(is_gone);
        }
        Ok(())
    }

    /// Removes a directory whose names have been removed. `crashes` had happened before they were.
    /// Returns whether it was there.
    fn remove_directory(&self, parent: Ino, name: &[u8], crashes: u64) -> Result<bool, FsError> {
        match self.fs.rmdir(parent, name) {
            Ok(()) => Ok(true),
            // A crash has brought back what was in it, or it has gone.
            Err(FsError::NotFound | FsError::Stale) => Ok(false),
            Err(FsError::NotEmpty) if self.crashes != crashes => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn cut_in_half(&self, ino: Ino, removed: u64) -> Outcome<()> {
        let size = self.fs.getattr(ino).map_or(0, |attr| attr.size_bytes);
        let changes = SetAttr { size_bytes: Some(size / 2), ..SetAttr::default() };
        match self.fs.setattr(&ROOT, ino, &changes) {
            Ok(_) | Err(FsError::Stale | FsError::NotFound) => Ok(()),
            // A version keeps the page, so a new one has to be written.
            Err(FsError::Disk(dendro_disk::Error::NoSpace { .. }))
                if size > 2 && self.has_versions() =>
            {
                Ok(())
            }
            Err(error) => Err(format!("cutting number {removed} in half: {error}")),
        }
    }

    /// Does all background work.
    fn settle(&mut self) -> Outcome<()> {
        for _ in 0..MAX_BACKGROUND_STEPS {
            if !self.disk.background_step().map_err(text)? {
                return self.disk.checkpoint().map_err(text);
            }
        }
        Err("background work has no end".into())
    }

    fn verify(&mut self) -> Outcome<()> {
        self.fs.shut_down().map_err(|error| format!("shutting down: {error}"))?;
        self.tree = None;
        self.engine.verify(&*self.device)?;
        (self.disk, self.fs) = mount(&self.engine, &self.device, &self.clock)?;
        Ok(())
    }

    fn is_as_at_first(&mut self, available_bytes: u64) -> Outcome<()> {
        let now_bytes = self.disk.space().available_bytes;
        if now_bytes < available_bytes * GIVEN_BACK_PERCENT / 100 {
            return Err(format!("{now_bytes} bytes are available, of {available_bytes} at first"));
        }
        let mut offset = 0;
        let mut bytes = vec![0; PIECE_LEN_BYTES];
        let Some(attr) = self.create(1)? else { return Err("nothing can be created".into()) };
        while offset < available_bytes * 9 / 10 {
            self.rng.fill(&mut bytes);
            self.fs
                .write(attr.ino, offset, &bytes, false)
                .map_err(|error| format!("writing again at {offset}: {error}"))?;
            offset += PIECE_LEN_BYTES as u64;
        }
        Ok(())
    }
}
