//! A kernel that collects what programs write.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_fs::testing::{Answer, Driver, FileRef, Operation, Outcome, PAGE, Step};
use dendro_fs::{FallocateFlags, FileSystem, FileTime, FsError, Ino, SetAttr, SetTime};

use super::contents::Contents;

/// The most pages that one request hands over.
const MAX_REQUEST_PAGES: u64 = 256;

const CAPABILITY: &[u8] = b"security.capability";

/// A mistake that the crash tests must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A file that was closed is handed over after the next call, a rename for example.
    LateClose,
    /// fsync hands the file over when everything before is durable.
    LateFsync,
    /// The size is handed over before the data.
    SizeFirst,
    /// The last page is handed over whole, with what lies behind the end, which is cut off then.
    WholePages,
    /// Versions are made of what was handed over before.
    OldVersions,
    /// The times are not handed over.
    NoTimes,
    /// A write that is handed over takes capabilities away that the file was given since.
    LateDrop,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::LateClose,
        Self::LateFsync,
        Self::SizeFirst,
        Self::WholePages,
        Self::OldVersions,
        Self::NoTimes,
        Self::LateDrop,
    ];
}

/// A file of which something is collected.
struct Collected {
    contents: Arc<Contents>,
    mtime: FileTime,
    ctime: FileTime,
}

/// A kernel that collects what programs write to the files that they have open, and makes all other
/// calls at once.
pub(super) struct Kernel {
    fs: Arc<FileSystem>,
    driver: Driver,
    files: BTreeMap<Ino, Collected>,
    bug: Option<Bug>,
    /// What is left of a file that was cut off is to be handed over.
    cut: Option<Ino>,
    /// Files that are handed over too late.
    late: Vec<Ino>,
}

/// The number of an error, which programs see.
fn errno(error: FsError) -> i32 {
    error.errno()
}

impl Kernel {
    pub(super) fn new(fs: Arc<FileSystem>, bug: Option<Bug>) -> Self {
        let driver = Driver::new(Arc::clone(&fs));
        Self { fs, driver, files: BTreeMap::new(), bug, cut: None, late: Vec::new() }
    }

    /// The files of which something is collected.
    pub(super) fn files(&self) -> Vec<Ino> {
        self.files.keys().copied().collect()
    }

    /// What is collected of a file.
    pub(super) fn collected(&mut self, file: &FileRef) -> Option<Arc<Contents>> {
        let ino = self.driver.ino(file)?;
        self.files.get(&ino).map(|file| Arc::clone(&file.contents))
    }

    /// A file that must be handed over after the call, which cut it off.
    pub(super) const fn take_cut(&mut self) -> Option<Ino> {
        self.cut.take()
    }

    /// Makes a call, which begins at `now` and is expected to answer so.
    pub(super) fn call(
        &mut self,
        step: &Step,
        expected: &Outcome,
        now: FileTime,
        rng: &mut Rng,
    ) -> Outcome {
        match &step.operation {
            Operation::Write { file, offset, data, kill_priv: false } => {
                if let (Ok(Answer::Len(len @ 1..)), Some(ino)) = (expected, self.driver.ino(file)) {
                    self.collect(ino, *offset, &data.bytes()[..*len as usize], now)?;
                    return Ok(Answer::Len(*len));
                }
            }
            Operation::Read { file, .. } if self.collected(file).is_some() => {
                return expected.clone();
            }
            operation => self.prepare(operation, rng)?,
        }
        let answer = self.driver.run(step);
        if answer.is_ok() {
            self.follow(&step.operation, now)?;
        }
        if !matches!(step.operation, Operation::Close { .. }) {
            self.hand_over_late(rng)?;
        }
        answer
    }

    fn collect(&mut self, ino: Ino, offset: u64, data: &[u8], now: FileTime) -> Result<(), i32> {
        let fs = &self.fs;
        if fs.getxattr(ino, CAPABILITY).is_ok() {
            fs.removexattr(ino, CAPABILITY).map_err(errno)?;
        }
        let file = match self.files.entry(ino) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let size_bytes = fs.getattr(ino).map_err(errno)?.size_bytes;
                let contents = Arc::new(Contents::new(size_bytes));
                unknown.insert(Collected { contents, mtime: now, ctime: now })
            }
        };
        (file.mtime, file.ctime) = (now, now);
        Arc::make_mut(&mut file.contents).write(offset, data, |page| {
            let mut bytes = vec![0; PAGE];
            let len = fs.read(ino, page * PAGE as u64, &mut bytes).map_err(errno)?;
            bytes.truncate(len);
            Ok(bytes)
        })
    }

    /// Hands over what must be handed over before a call.
    fn prepare(&mut self, operation: &Operation, rng: &mut Rng) -> Result<(), i32> {
        let moves = FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE;
        let (file, from_page) = match operation {
            Operation::Close { slot } => {
                self.late_unless_sound(Bug::LateClose, &FileRef::Slot(*slot));
                (&FileRef::Slot(*slot), 0)
            }
            Operation::Fsync { file } => {
                self.late_unless_sound(Bug::LateFsync, file);
                (file, 0)
            }
            Operation::Write { file, .. }
            | Operation::Chmod { file, .. }
            | Operation::Chown { file, .. }
            | Operation::Utimes { file, .. } => (file, 0),
            Operation::Fallocate { file, flags, .. } if flags.intersects(moves) => (file, 0),
            Operation::Fallocate { file, offset, flags, .. }
                if !(*flags - FallocateFlags::KEEP_SIZE).is_empty() =>
            {
                (file, offset / PAGE as u64)
            }
            Operation::Sync => {
                return self.files().into_iter().try_for_each(|ino| self.hand_over(ino, 0, rng));
            }
            _ => return Ok(()),
        };
        match self.driver.ino(file) {
            Some(ino) if !self.late.contains(&ino) => self.hand_over(ino, from_page, rng),
            _ => Ok(()),
        }
    }

    /// With this mistake, the file is handed over later, if it has a name by which it is found.
    fn late_unless_sound(&mut self, bug: Bug, file: &FileRef) {
        let is_named = |ino: &Ino| self.fs.getattr(*ino).is_ok_and(|attr| attr.nlink > 0);
        if self.bug == Some(bug) {
            self.late.extend(self.driver.ino(file).filter(is_named));
        }
    }

    fn hand_over_late(&mut self, rng: &mut Rng) -> Result<(), i32> {
        for ino in std::mem::take(&mut self.late) {
            match self.fs.getattr(ino) {
                Ok(_) => self.hand_over(ino, 0, rng)?,
                Err(_) => _ = self.files.remove(&ino),
            }
        }
        Ok(())
    }

    /// Learns what a call has changed.
    fn follow(&mut self, operation: &Operation, now: FileTime) -> Result<(), i32> {
        match operation {
            Operation::Truncate { file, size, .. } => {
                if let Some((ino, contents)) = self.file_mut(file) {
                    let old_bytes = contents.size_bytes();
                    contents.resize(*size);
                    if old_bytes != *size {
                        // What is left of the pages is handed over when others were thrown away.
                        self.cut = Some(ino);
                    }
                }
            }
            Operation::Fallocate { file, offset, len, flags } => {
                let keeps_size = flags.contains(FallocateFlags::KEEP_SIZE);
                let file = self.file_mut(file).filter(|_| !keeps_size);
                if let Some((_, contents)) = file {
                    contents.extend(offset + len);
                }
            }
            _ => (),
        }
        for (&ino, file) in &mut self.files {
            let Ok(attr) = self.fs.getattr(ino) else { continue };
            if attr.ctime == now && file.ctime != now {
                file.ctime = now;
                file.mtime = if attr.mtime == now { now } else { file.mtime };
                self.fs.setattr(&Default::default(), ino, &times(file)).map_err(errno)?;
            }
        }
        Ok(())
    }

    fn file_mut(&mut self, file: &FileRef) -> Option<(Ino, &mut Contents)> {
        let ino = self.driver.ino(file)?;
        let file = self.files.get_mut(&ino)?;
        Some((ino, Arc::make_mut(&mut file.contents)))
    }

    /// Hands over what is collected of a file from a page on, in runs of pages in any order; then
    /// the times.
    pub(super) fn hand_over(&mut self, ino: Ino, from_page: u64, rng: &mut Rng) -> Result<(), i32> {
        let Some(file) = self.files.get(&ino) else { return Ok(()) };
        if self.bug == Some(Bug::SizeFirst) {
            let size_bytes = Some(file.contents.size_bytes());
            let changes = SetAttr { size_bytes, ..SetAttr::default() };
            self.fs.setattr(&Default::default(), ino, &changes).map_err(errno)?;
        }
        let pages: Vec<u64> = file.contents.pages().filter(|page| *page >= from_page).collect();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for page in pages {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == page && *count < MAX_REQUEST_PAGES => {
                    *count += 1;
                }
                _ => runs.push((page, 1)),
            }
        }
        while !runs.is_empty() {
            self.commit_at_times(rng)?;
            let (first, count) = runs.swap_remove(rng.below(runs.len() as u64) as usize);
            self.send(ino, first..first + count, rng)?;
        }
        self.commit_at_times(rng)?;
        if self.bug != Some(Bug::NoTimes) {
            self.fs.setattr(&Default::default(), ino, &times(&self.files[&ino])).map_err(errno)?;
        }
        if from_page == 0 {
            self.files.remove(&ino);
        }
        Ok(())
    }

    /// Hands over some pages of some file, as when memory is short.
    pub(super) fn hand_over_some(&mut self, rng: &mut Rng) -> Result<(), i32> {
        let files = self.files();
        if files.is_empty() {
            return Ok(());
        }
        let ino = files[rng.below(files.len() as u64) as usize];
        let pages: Vec<u64> = self.files[&ino].contents.pages().collect();
        let chosen: Vec<u64> = pages.into_iter().filter(|_| rng.chance(40)).collect();
        chosen.into_iter().try_for_each(|page| self.send(ino, page..page + 1, rng))
    }

    /// Between any two requests, what came before may be made durable.
    fn commit_at_times(&self, rng: &mut Rng) -> Result<(), i32> {
        if rng.chance(15) { self.fs.sync_all().map_err(errno) } else { Ok(()) }
    }

    /// One request.
    fn send(&mut self, ino: Ino, pages: Range<u64>, rng: &mut Rng) -> Result<(), i32> {
        let contents = &self.files[&ino].contents;
        let mut bytes: Vec<u8> = pages.clone().flat_map(|page| contents.bytes_of(page)).collect();
        let (offset, end) = (pages.start * PAGE as u64, contents.size_bytes());
        let is_cut = self.bug == Some(Bug::WholePages) && !bytes.len().is_multiple_of(PAGE);
        if is_cut {
            bytes.resize(bytes.len().next_multiple_of(PAGE), 0xaa);
        }
        let written = match self.bug {
            Some(Bug::LateDrop) => self.fs.write(ino, offset, &bytes, false),
            _ => self.fs.write_back(ino, offset, &bytes),
        };
        written.map_err(errno)?;
        if is_cut {
            self.commit_at_times(rng)?;
            let changes = SetAttr { size_bytes: Some(end), ..SetAttr::default() };
            self.fs.setattr(&Default::default(), ino, &changes).map_err(errno)?;
        }
        let file = self.files.get_mut(&ino).expect("it was there before");
        pages.for_each(|page| Arc::make_mut(&mut file.contents).hand_over(page));
        Ok(())
    }
}

fn times(file: &Collected) -> SetAttr {
    SetAttr { mtime: Some(SetTime::At(file.mtime)), ctime: Some(file.ctime), ..SetAttr::default() }
}
