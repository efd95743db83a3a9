//! Crash images in which one bit of durable data is flipped: no loss goes unreported.
//!
//! Either everything that was durable is there, or opening the volume reports a loss, or reading
//! the damaged data fails. If opening reports a loss, nothing is written. Opened for reading only,
//! the volume shows an earlier state, if any. Once the loss is accepted, the volume continues from
//! there.
//!
//! Nothing in the log says that the last flush took place. Damage to what it covered cannot be
//! distinguished from a torn write, so bits there are not flipped.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_check::Volume;
use dendro_device::Device;
use dendro_device::sim::{CrashStyle, EventKind, Recording, SimDevice};
use dendro_disk::model::ModelVersions;
use dendro_disk::{Error, Lid, LogicalDisk};
use dendro_format::Record;
use dendro_logdisk::{LogDisk, OnLoss, OpenOptions};

use crate::crash::{self, Failure, Run};
use crate::disk::{DiskState, DiskSystem, FoundDisk};
use crate::log::LogEngine;
use crate::seeds;
use crate::system::{Outcome, System};
use crate::trace::Trace;
use crate::workload;

/// Bits flipped on crash images of one run.
const FLIPS_PER_RUN: u64 = 40;
/// Steps of work after a loss was accepted, and bits flipped on crash images of them.
const STEPS_AFTER_LOSS: usize = 30;
const FLIPS_AFTER_LOSS: u64 = 4;

/// The results of the flips.
#[derive(Debug, Default)]
pub struct Tally {
    /// All durable data were there.
    whole: AtomicU64,
    /// They were, and opening reported the damage.
    mended: AtomicU64,
    /// Opening reported what was lost, and failed.
    refused: AtomicU64,
    /// What was damaged could not be opened or read.
    unreadable: AtomicU64,
}

impl Tally {
    /// How many bits were flipped.
    pub fn count(&self) -> u64 {
        let Self { whole, mended, refused, unreadable } = self;
        [whole, mended, refused, unreadable].map(|count| count.load(Ordering::Relaxed)).iter().sum()
    }

    /// How often opening failed, and reported what was lost.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whole, mended, refused, unreadable } = self;
        let [whole, mended, refused, unreadable] =
            [whole, mended, refused, unreadable].map(|count| count.load(Ordering::Relaxed));
        write!(
            f,
            "{} bits flipped in crash images: {whole} cost nothing, {mended} were told of and cost \
             nothing, {refused} were refused with what is lost, {unreadable} could not be read; 0 lost \
             something in silence",
            self.count()
        )
    }
}

/// Flips bits on the crash images of one seed after the other, until `flip_count` were.
///
/// # Errors
/// A loss went unreported, or damage was handled wrongly.
pub fn run_flips(
    first_seed: u64,
    flip_count: u64,
    thread_count: usize,
    tally: &Tally,
) -> Result<(), Failure> {
    seeds::run_until(
        first_seed,
        thread_count,
        || tally.count() >= flip_count,
        |seed| run_seed(seed, tally),
    )
}

/// Flips bits on crash images of one run.
///
/// # Errors
/// As [`run_flips`].
pub fn run_seed(seed: u64, tally: &Tally) -> Result<(), Failure> {
    let (system, effort) = workload::of_seed(seed);
    let run = crash::record(&system, seed, effort.device_len_bytes, effort.step_count)?;
    let failed = |message| Failure { seed, crash: None, message };
    for number in 0..FLIPS_PER_RUN {
        let mut rng = Rng::new(seed ^ number.rotate_left(20));
        let flip = || {
            match flip(&system, &run, None, &mut rng, tally)? {
                // What is kept must be told apart from what there is.
                Some((image, kept)) if system.versions_percent > 0 && rng.chance(40) => {
                    flip_again(&system, &run, (&image, kept), &mut rng, tally)
                }
                _ => Ok(()),
            }
        };
        crash::without_panic(flip)
            .map_err(|message| failed(format!("flip {number}: {message}")))?;
    }
    Ok(())
}

/// Continues on a volume whose loss was accepted, and flips bits on crash images of that.
fn flip_again(
    system: &DiskSystem<LogEngine>,
    before: &Run<DiskState>,
    (image, kept): (&Arc<SimDevice>, ModelVersions),
    rng: &mut Rng,
    tally: &Tally,
) -> Outcome<()> {
    let mut trace = Trace::new(DiskState { contents: kept, highest_list: Lid(0) });
    image.start_recording();
    system
        .work(image, rng, STEPS_AFTER_LOSS, &mut trace)
        .map_err(|error| format!("work after an accepted loss: {error}"))?;
    let recording = image.take_recording().ok_or("the recording was taken")?;
    let run = Run { seed: 0, recording, trace };
    for number in 0..FLIPS_AFTER_LOSS {
        flip(system, &run, Some(before), rng, tally)
            .map_err(|message| format!("after an accepted loss, flip {number}: {message}"))?;
    }
    Ok(())
}

/// Flips a bit on an image of `run`, which continued a volume that has lost what came last
/// `before`. If the bit loses something, returns the volume after the loss was accepted.
fn flip(
    system: &DiskSystem<LogEngine>,
    run: &Run<DiskState>,
    before: Option<&Run<DiskState>>,
    rng: &mut Rng,
    tally: &Tally,
) -> Outcome<Option<(Arc<SimDevice>, ModelVersions)>> {
    let event = rng.below(run.recording.len() as u64 + 1) as usize;
    let style = CrashStyle::draw(rng);
    let image = Arc::new(run.recording.image_at(event, rng, style));
    let parts = Parts::of(&image)?;
    let drawn = parts.draw(rng, &run.recording, event);
    // The device may have become shorter since.
    let Some(place) = drawn.filter(|place| *place < image.len_bytes()) else { return Ok(None) };
    image.corrupt(place..place + 1, 1);
    let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
    let describe = |what: String| format!("event {event}, {style:?}, byte {place}: {what}");
    image.start_recording();
    let options =
        |read_only, on_loss| OpenOptions { read_only, on_loss, ..system.engine.open.clone() };
    match open(system, &image, options(false, OnLoss::Stop)) {
        Ok(disk) => {
            let Ok(found) = read(system, &disk) else {
                count(&tally.unreadable);
                return Ok(None);
            };
            let has_told = !disk.recovery_notes().is_empty();
            run.trace
                .find(event, |state| system.is_state(&found, state))
                .map_err(|not_found| describe(format!("in silence: {not_found}")))?;
            count(if has_told { &tally.mended } else { &tally.whole });
        }
        Err(Error::Lost(what)) => {
            count(&tally.refused);
            let has_written = image.recorded_count() > 0;
            if has_written {
                return Err(describe(format!("something was written to what is lost: {what}")));
            }
            let was = |found: &ModelVersions| {
                let is_found = |it: &DiskState| it.contents.main().diff(found.main()).is_none();
                run.trace.states().any(|state| state.contents == *found)
                    || before.is_some_and(|before| before.trace.states().any(is_found))
            };
            let kept = check_given_up(system, &was, &image, rng, &options)
                .map_err(|why| describe(format!("{what}: {why}")))?;
            return Ok(kept.map(|kept| (image, kept)));
        }
        Err(_) => drop(count(&tally.unreadable)),
    }
    Ok(None)
}

/// Examines what is lost, and accepts the loss. A crash meanwhile costs nothing more. Returns what
/// there is then, if it can be read.
fn check_given_up(
    system: &DiskSystem<LogEngine>,
    was: &dyn Fn(&ModelVersions) -> bool,
    image: &Arc<SimDevice>,
    rng: &mut Rng,
    options: &dyn Fn(bool, OnLoss) -> OpenOptions,
) -> Outcome<Option<ModelVersions>> {
    let shown = open(system, image, options(true, OnLoss::Stop));
    let shown = shown.and_then(|disk| system.read(&disk));
    if let Ok(shown) = &shown
        && !was(shown)
    {
        return Err("opened for reading only it shows what never was".into());
    }
    let disk = match open(system, image, options(false, OnLoss::Truncate)) {
        Ok(disk) => disk,
        // The map is damaged too.
        Err(_) if shown.is_err() => return Ok(None),
        Err(error) => return Err(format!("it cannot be given up: {error}")),
    };
    let Ok(shown) = shown else { return Ok(None) };
    let recording = image.take_recording().ok_or("the recording was taken")?;
    let event = rng.below(recording.len() as u64 + 1) as usize;
    let style = CrashStyle::draw(rng);
    let cut_off = Arc::new(recording.image_at(event, rng, style));
    let accepted = open(system, &cut_off, options(false, OnLoss::Truncate))
        .and_then(|disk| system.read(&disk))
        .map_err(|error| format!("cut off at event {event}, {style:?}: {error}"))?;
    if accepted.main().diff(shown.main()).is_some() {
        return Err(format!("cut off at event {event}, {style:?}, it is not what was shown"));
    }
    let kept = ModelVersions::read_from(&disk).map_err(|error| error.to_string())?;
    if kept.main().diff(shown.main()).is_some() {
        return Err("given up, it is not what was shown".into());
    }
    let names = || kept.table().snapshots().filter_map(|it| it.name.as_deref());
    let notes = disk.recovery_notes().join("; ");
    if !names().any(|name| name.starts_with("recovered-")) && !notes.contains("is not kept") {
        return Err(format!("no snapshot keeps what was left: {notes}"));
    }
    drop(disk);
    let disk = open(system, image, options(false, OnLoss::Stop))
        .map_err(|error| format!("after it was given up: {error}"))?;
    let again = ModelVersions::read_from(&disk).map_err(|error| error.to_string())?;
    if again != kept {
        return Err("what was given up is gone after a crash".into());
    }
    system.read(&disk).map(Some).map_err(|error| error.to_string())
}

fn open(
    system: &DiskSystem<LogEngine>,
    image: &Arc<SimDevice>,
    options: OpenOptions,
) -> Result<LogDisk, Error> {
    system.engine.open_disk(Arc::clone(image) as Arc<dyn Device>, options)
}

fn read(system: &DiskSystem<LogEngine>, disk: &LogDisk) -> Result<FoundDisk, Error> {
    let contents = system.read(disk)?;
    Ok(FoundDisk { contents, next_list: disk.allocate_list()? })
}

/// Where bits are flipped on an image, and where not.
struct Parts {
    /// The current superblock, its checkpoint, and the headers and records of the log behind it.
    telling: Vec<Range<u64>>,
    /// What no partial segment says is durable.
    unproven: Vec<Range<u64>>,
}

impl Parts {
    fn of(image: &SimDevice) -> Outcome<Self> {
        let text = |error: dendro_check::Error| error.to_string();
        let volume = Volume::open(image).map_err(text)?;
        let found = volume.superblocks().current();
        let checkpoint = volume.checkpoint().map_err(text)?;
        let layout = volume.layout();
        let checkpoint_at = found.superblock.checkpoint_addr.bytes();
        let mut telling = vec![
            found.offset..found.offset + 184,
            checkpoint_at..checkpoint_at + u64::from(found.superblock.checkpoint_len_bytes),
        ];
        let partials: Vec<_> = volume.log(&checkpoint).collect();
        let durable_seq = partials.iter().map(|it| it.header.durable_seq).max().unwrap_or(0);
        let mut unproven = Vec::new();
        for partial in &partials {
            let header = &partial.header;
            let base = layout.segment_offset(header.segment) + u64::from(header.offset_bytes);
            if header.seq <= durable_seq {
                let records = base + u64::from(header.records_offset_bytes);
                telling.push(base..base + 128);
                telling.push(records..records + u64::from(header.records_len_bytes));
            } else {
                unproven.push(base..base + u64::from(header.len_bytes));
                unproven.extend(partial.records().flatten().flat_map(|at| blocks(at.record)));
            }
        }
        let retired = found.superblock.retired.iter();
        let moved: Vec<_> = retired.filter_map(|one| one.moved_range(layout)).collect();
        for ranges in [&mut telling, &mut unproven] {
            let spares: Vec<_> = ranges.iter().flat_map(|range| in_spares(range, &moved)).collect();
            ranges.extend(spares);
        }
        Ok(Self { telling, unproven })
    }

    /// A place at which something was durable after so many events.
    fn draw(&self, rng: &mut Rng, recording: &Recording, event: usize) -> Option<u64> {
        let flushed = (0..event).rev().find(|&at| recording.event(at) == EventKind::Flush);
        for _ in 0..100 {
            let range = if rng.chance(60) {
                self.telling[rng.below(self.telling.len() as u64) as usize].clone()
            } else {
                let Some(flushed) = flushed.filter(|&at| at > 0) else { continue };
                match recording.event(rng.below(flushed as u64) as usize) {
                    EventKind::Write { offset, len_bytes } => offset..offset + len_bytes,
                    _ => continue,
                }
            };
            if range.is_empty() {
                continue;
            }
            let place = range.start + rng.below(range.end - range.start);
            if !self.unproven.iter().any(|range| range.contains(&place)) {
                return Some(place);
            }
        }
        None
    }
}

/// Where parts of a range lie in spare segments. Each of `moved` has its offset, its length, and
/// the offset to which it was moved.
fn in_spares(range: &Range<u64>, moved: &[(u64, u64, u64)]) -> Vec<Range<u64>> {
    let overlaps = moved.iter().map(|&(offset, len_bytes, to)| {
        let start = range.start.max(offset);
        let end = range.end.min(offset + len_bytes).max(start);
        start - offset + to..end - offset + to
    });
    overlaps.filter(|range| !range.is_empty()).collect()
}

/// Where the blocks lie that a record names.
fn blocks(record: Record<'_>) -> Option<Range<u64>> {
    let (addr, len_bytes) = match record {
        Record::WriteRun { addr, crcs, .. } => (addr, crcs.len() as u64 * 4096),
        Record::WriteBlock { block, .. } => (block.addr, u64::from(block.len_bytes)),
        _ => return None,
    };
    Some(addr.bytes()..addr.bytes() + len_bytes)
}
