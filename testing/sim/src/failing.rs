//! Spread disks with members that fail while they are written to, and while segments are moved off
//! one of them: calls that fail once, for a while or for good, a full host below one, writes that
//! are torn, flushes that lose what they should make durable, and blocks that are damaged.
//!
//! Each unit writes a few pages, and says its number there. So what is found after the next opening
//! has to be what some number of units has left: all that were flushed, and no part of another one.
//! Without damage nothing less will do. With damage a page, or the disk, may be refused instead.

use std::fmt::{self, Display};
use std::ops::Range;

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dendro_base::{Clock, Rng, Uuid};
use dendro_check::{FindingKind, Options, verify};
use dendro_device::Device;
use dendro_device::sim::{Call, CrashStyle, Fault, SimDevice};
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};
use dendro_set::{DeviceSet, Found};

use crate::log::clock;

const SEGMENT_LEN_BYTES: u64 = 128 << 10;
const PAGES: u64 = 96;
const LIST: Lid = Lid(1);
const ENOSPC: i32 = 28;
/// Openings of each disk, every one of which ends with a crash.
const OPENINGS: usize = 5;
const STEPS: usize = 120;

type Member = Arc<SimDevice>;

/// What was done.
#[derive(Debug, Default)]
pub struct Tally {
    /// Openings that were checked.
    openings: AtomicU64,
    /// Those in which a call failed.
    struck: AtomicU64,
    /// Those of them after which the disk took no more writes.
    ended: AtomicU64,
    /// Segments that were moved, as far as their rosters were written.
    moved: AtomicU64,
    /// Pages that were refused because they were damaged.
    refused: AtomicU64,
}

impl Tally {
    /// Openings that were checked, those in which a call failed, and those after which the disk
    /// took no more writes.
    #[must_use]
    pub fn counts(&self) -> [u64; 3] {
        [&self.openings, &self.struck, &self.ended].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [openings, struck, ended] = self.counts();
        let moved = self.moved.load(Ordering::Relaxed);
        let refused = self.refused.load(Ordering::Relaxed);
        write!(
            f,
            "{openings} openings, in {struck} a call failed, {ended} ended with it; {moved} moves \
             ended; {refused} damaged pages were refused"
        )
    }
}

/// A disk, and what was written to it.
struct Run<'t> {
    rng: Rng,
    tally: &'t Tally,
    /// All that were ever members, as they are now.
    members: Vec<Member>,
    set: Arc<DeviceSet<Member>>,
    disk: Option<LogDisk>,
    /// The pages of each unit, in order; the last one may not have been committed.
    units: Vec<Range<u64>>,
    /// So many units were flushed.
    flushed: usize,
    is_damaged: bool,
}

fn page(number: usize) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    Rng::new(number as u64).fill(&mut page);
    page[..8].copy_from_slice(&(number as u64).to_le_bytes());
    page
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// Makes disks of a seed, has members fail, and looks at what is left.
///
/// # Errors
/// What was wrong.
pub fn run_seed(seed: u64, tally: &Tally) -> Result<(), String> {
    let with_seed = |why: String| format!("seed {seed}: {why}");
    let mut run = Run::new(seed, tally).map_err(with_seed)?;
    for opening in 0..OPENINGS {
        let in_opening = |why: String| with_seed(format!("opening {opening}: {why}"));
        run.inject();
        run.work().map_err(in_opening)?;
        run.crash();
        if !run.reopen().map_err(in_opening)? {
            break;
        }
    }
    Ok(())
}

/// Runs seeds one after the other until one fails, or `is_over`.
///
/// # Errors
/// What was wrong with the one that failed.
pub fn run_seeds(seeds: Range<u64>, tally: &Tally, is_over: &AtomicBool) -> Result<(), String> {
    for seed in seeds {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        run_seed(seed, tally)?;
    }
    Ok(())
}

impl<'t> Run<'t> {
    fn new(seed: u64, tally: &'t Tally) -> Result<Self, String> {
        let mut rng = Rng::new(seed.rotate_left(16));
        let mut device = || {
            let segments = 18 + rng.below(16);
            Arc::new(SimDevice::new(segments * SEGMENT_LEN_BYTES, rng.next_u64()))
        };
        let members = vec![device(), device()];
        let named = members.iter().enumerate();
        let named = named.map(|(at, it)| (uuid(at), path(at).into(), Arc::clone(it))).collect();
        let volume = Uuid::from_random([9; 16]);
        let log2 = SEGMENT_LEN_BYTES.ilog2() as u8;
        let set = DeviceSet::create_spread(volume, log2, named, clock()).map_err(text)?.in_turn();
        let set = Arc::new(set);
        let options = FormatOptions {
            segment_size_bytes: SEGMENT_LEN_BYTES,
            uuid: volume,
            is_on_set: true,
            is_spread: true,
            metadata_copies: 1 + rng.below(2) as u8,
            ..FormatOptions::default()
        };
        format(&(Arc::clone(&set) as Arc<dyn Device>), &options, &clock()).map_err(text)?;
        let disk = open(&set)?;
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(LIST, ListHints::default());
        disk.commit(aru).map_err(text)?;
        disk.flush(CommitSeq::LATEST).map_err(text)?;
        let is_damaged = rng.chance(25);
        let (units, flushed) = (Vec::new(), 0);
        Ok(Self { rng, tally, members, set, disk: Some(disk), units, flushed, is_damaged })
    }

    /// Has a member fail some time from now.
    fn inject(&mut self) {
        let member = self.rng.below(self.members.len() as u64) as usize;
        self.inject_into(member);
    }

    fn inject_into(&mut self, member: usize) {
        let nth = 1 + self.rng.below(60);
        let times = 1 + self.rng.below(5);
        let fault = match self.rng.below(10) {
            0 => Fault::fail(Call::Write).nth(nth).times(times),
            1 => Fault::fail(Call::Write).nth(nth).forever(),
            2 => Fault::fail(Call::Write).os_error(ENOSPC).nth(nth).times(times),
            3 => Fault::fail(Call::Write).os_error(ENOSPC).nth(nth).forever(),
            4 => Fault::fail_write_after(512 * self.rng.below(200)).nth(nth).times(times),
            5 | 6 => Fault::fail(Call::Flush).nth(nth / 4),
            7 => Fault::fail(Call::Flush).nth(nth / 4).forever(),
            8 => Fault::fail(Call::Read).nth(nth).times(times),
            _ => return,
        };
        self.members[member].inject(fault);
    }

    fn has_struck(&self) -> bool {
        self.members.iter().any(|member| member.struck_count() > 0)
    }

    /// Works until the disk takes no more, and a little longer.
    fn work(&mut self) -> Result<(), String> {
        let mut is_over = false;
        for _ in 0..STEPS {
            match self.step() {
                Ok(()) | Err(Error::NoSpace { .. }) => {}
                Err(_) if self.has_struck() || self.is_damaged => {
                    is_over = true;
                    break;
                }
                Err(error) => return Err(format!("without a fault: {error}")),
            }
        }
        let counted = |count: &AtomicU64, is: bool| count.fetch_add(is.into(), Ordering::Relaxed);
        counted(&self.tally.struck, self.has_struck());
        counted(&self.tally.ended, is_over);
        if is_over {
            // Nobody has told the set, which goes on.
            (0..40).for_each(|_| drop(self.set.bring_up_step()));
        } else if self.rng.chance(50)
            && let Some(disk) = self.disk.take()
            && disk.shut_down().is_ok()
        {
            self.flushed = self.units.len();
            let _ = self.set.close();
        }
        Ok(())
    }

    fn step(&mut self) -> dendro_disk::Result<()> {
        let Some(disk) = &self.disk else { return Ok(()) };
        match self.rng.below(40) {
            0..20 => {
                let first = self.rng.below(PAGES);
                let pages = first..(first + 1 + self.rng.below(12)).min(PAGES);
                let number = self.units.len() + 1;
                let mut aru = Aru::new(View::HEAD);
                aru.write_pages(LIST, first, page(number).repeat((pages.end - first) as usize));
                let outcome = disk.commit(aru);
                if !matches!(outcome, Err(Error::NoSpace { .. })) {
                    self.units.push(pages);
                }
                outcome.map(drop)
            }
            20..24 => {
                disk.flush(CommitSeq::LATEST)?;
                self.flushed = self.units.len();
                Ok(())
            }
            24..28 => disk.background_step().map(drop),
            28 => disk.checkpoint(),
            29..37 => {
                if let Ok(Some(step)) = self.set.bring_up_step() {
                    let is_moved = step.copied_bytes == 0 || step.is_done;
                    self.tally.moved.fetch_add(is_moved.into(), Ordering::Relaxed);
                }
                Ok(())
            }
            37 => self.change(),
            _ => self.read(),
        }
    }

    /// Has a member leave, or move to a new one.
    fn change(&mut self) -> dendro_disk::Result<()> {
        let members = self.set.members();
        let old = members[self.rng.below(members.len() as u64) as usize].uuid;
        if members.len() < 4 && self.rng.chance(70) {
            let segments = 18 + self.rng.below(30);
            let device = SimDevice::new(segments * SEGMENT_LEN_BYTES, self.rng.next_u64());
            let at = self.members.len();
            self.members.push(Arc::new(device));
            let replaced = Some(old).filter(|_| self.rng.chance(70));
            if self.rng.chance(60) {
                self.inject_into(at);
            }
            let added =
                self.set.add(Arc::clone(&self.members[at]), path(at).into(), uuid(at), replaced);
            if added.is_err() || self.rng.chance(30) {
                return Ok(());
            }
            let most_bytes = self.set.most_len_bytes().unwrap_or(0);
            return match &self.disk {
                Some(disk) if most_bytes > self.set.len_bytes() => disk.grow(u64::MAX, most_bytes),
                _ => Ok(()),
            };
        }
        // There may be no room for what it holds.
        let _ = self.set.remove(&old);
        if self.is_damaged && self.rng.chance(50) {
            self.damage(&old);
        }
        Ok(())
    }

    /// Damages blocks of a member between head and tail.
    fn damage(&mut self, member: &Uuid) {
        let Some(at) = (0..self.members.len()).find(|at| uuid(*at) == *member) else { return };
        let end = self.members[at].len_bytes() - 2 * SEGMENT_LEN_BYTES;
        let count = 1 + self.rng.below(20);
        self.members[at].corrupt(2 * SEGMENT_LEN_BYTES..end, count);
    }

    fn read(&mut self) -> dendro_disk::Result<()> {
        let number = self.rng.below(PAGES);
        let wanted = expected(&self.units, number);
        let Some(disk) = &self.disk else { return Ok(()) };
        let mut found = vec![0; PAGE_SIZE];
        match disk.read_pages(View::HEAD, LIST, number, &mut found) {
            Ok(_) if found == wanted => Ok(()),
            Ok(_) => panic!("page {number} was read wrong"),
            // Somebody reads it again later.
            Err(_) if self.is_damaged || self.has_struck() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Cuts the power of all.
    fn crash(&mut self) {
        self.disk = None;
        let style = CrashStyle::draw(&mut self.rng);
        let rng = &mut self.rng;
        let images = self.members.iter().map(|it| Arc::new(it.crash_image(rng, style)));
        self.members = images.collect();
    }

    /// Opens what is left and looks at it. Returns whether the run goes on.
    fn reopen(&mut self) -> Result<bool, String> {
        self.tally.openings.fetch_add(1, Ordering::Relaxed);
        self.set = Arc::new(assemble(&self.members)?);
        let report = verify(&*self.set, &Options { data: true });
        let is_sound = report.findings.iter().all(|it| it.kind == FindingKind::LogGoesOn);
        if !is_sound && !self.is_damaged {
            return Err(report.to_string());
        }
        let disk = match open(&self.set) {
            Err(_) if self.is_damaged => return Ok(false),
            opened => opened?,
        };
        let mut found: Vec<Option<Vec<u8>>> = Vec::new();
        for number in 0..PAGES {
            let mut bytes = vec![0; PAGE_SIZE];
            match disk.read_pages(View::HEAD, LIST, number, &mut bytes) {
                Ok(_) => found.push(Some(bytes)),
                Err(_) if self.is_damaged => {
                    self.tally.refused.fetch_add(1, Ordering::Relaxed);
                    found.push(None);
                }
                Err(error) => return Err(format!("page {number}: {error}")),
            }
        }
        let is_state = |count: &usize| {
            (0..).zip(&found).all(|(number, found)| {
                let wanted = || expected(&self.units[..*count], number);
                found.as_ref().is_none_or(|found| *found == wanted())
            })
        };
        // What was damaged may have been the log behind the last checkpoint.
        let least = if self.is_damaged { 0 } else { self.flushed };
        let Some(count) = (least..=self.units.len()).rev().find(is_state) else {
            let stamps: Vec<u64> = found.iter().flatten().map(|page| stamp(page)).collect();
            return Err(format!(
                "{} of {} units were flushed, and found was {stamps:?}",
                self.flushed,
                self.units.len()
            ));
        };
        self.units.truncate(count);
        // It goes on.
        let mut aru = Aru::new(View::HEAD);
        self.units.push(0..1);
        aru.write_pages(LIST, 0, page(self.units.len()));
        match disk.commit(aru).and_then(|_| disk.flush(CommitSeq::LATEST)) {
            Ok(()) => self.flushed = self.units.len(),
            Err(Error::NoSpace { .. }) => return Ok(false),
            Err(_) if self.is_damaged => return Ok(false),
            Err(error) => return Err(text(error)),
        }
        self.disk = Some(disk);
        Ok(true)
    }
}

/// What a page holds after these units.
fn expected(units: &[Range<u64>], number: u64) -> Vec<u8> {
    match units.iter().rposition(|pages| pages.contains(&number)) {
        Some(last) => page(last + 1),
        None => vec![0; PAGE_SIZE],
    }
}

fn stamp(page: &[u8]) -> u64 {
    page.iter().take(8).rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

fn uuid(at: usize) -> Uuid {
    Uuid::from_random([at as u8 + 1; 16])
}

fn path(at: usize) -> String {
    format!("member {at}")
}

/// The set, as it is opened by any of its members.
fn assemble(members: &[Member]) -> Result<DeviceSet<Member>, String> {
    let look = |(at, it): (usize, &Member)| Found::look(Arc::clone(it), path(at).into()).ok();
    let mut found: Vec<_> = members.iter().enumerate().filter_map(look).collect();
    let newest = found.iter().max_by_key(|one| one.roster().generation);
    let newest = newest.ok_or("nothing has a roster")?.roster().clone();
    // One that has left, and whose rosters a crash has kept, is refused if it was named.
    let is_listed = |one: &Found<Member>| newest.find(&one.roster().member).is_some();
    if let Some(at) = found.iter().position(is_listed) {
        found.swap(0, at);
    }
    let clock: Arc<dyn Clock> = clock();
    Ok(DeviceSet::assemble(found, false, clock).map_err(text)?.in_turn())
}

fn open(set: &Arc<DeviceSet<Member>>) -> Result<LogDisk, String> {
    let options = OpenOptions {
        is_on_set: true,
        cache_size_bytes: 64 << 10,
        checkpoint_log_bytes: 256 << 10,
        ..OpenOptions::default()
    };
    LogDisk::open(Arc::clone(set) as Arc<dyn Device>, options, clock()).map_err(text)
}
