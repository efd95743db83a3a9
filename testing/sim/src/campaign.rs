//! Many seeds on several threads.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dendro_base::Rng;
use dendro_base::sync::Mutex;

use crate::crash::{self, CrashId, Failure, Run};
use crate::system::System;

/// How much is done for one seed.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Bytes of the device.
    pub device_len_bytes: u64,
    /// Steps of the work.
    pub step_count: usize,
    /// Crash points: `None` for every event, else so many at random.
    pub point_count: Option<u64>,
    /// Images at each point where several are possible.
    pub images_per_point: u64,
}

impl Effort {
    /// Short work, crashed after every event.
    pub const SHORT: Self =
        Self { device_len_bytes: 16 << 20, step_count: 60, point_count: None, images_per_point: 8 };

    /// Long work, crashed at random.
    pub const LONG: Self = Self {
        device_len_bytes: 48 << 20,
        step_count: 1200,
        point_count: Some(150),
        images_per_point: 4,
    };
}

/// What was done.
#[derive(Debug, Default)]
pub struct Tally {
    /// Seeds.
    pub runs: AtomicU64,
    /// Writes, discards and flushes in their recordings.
    pub events: AtomicU64,
    /// Crash images that were checked.
    pub images: AtomicU64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [runs, events, images] =
            [&self.runs, &self.events, &self.images].map(|count| count.load(Ordering::Relaxed));
        write!(f, "{images} crash images of {runs} runs with {events} device events")
    }
}

/// Does the work of one seed and crashes it.
///
/// # Errors
/// The first thing that is not as it must be.
pub fn run_seed<S: System>(
    system: &S,
    seed: u64,
    effort: &Effort,
    tally: &Tally,
) -> Result<(), Failure> {
    let run = crash::record(system, seed, effort.device_len_bytes, effort.step_count)?;
    tally.runs.fetch_add(1, Ordering::Relaxed);
    tally.events.fetch_add(run.recording.len() as u64, Ordering::Relaxed);
    let last = run.recording.len();
    let mut rng = Rng::new(!seed);
    let points: Vec<usize> = match effort.point_count {
        None => (0..=last).collect(),
        Some(count) => (0..count).map(|_| rng.below(last as u64 + 1) as usize).collect(),
    };
    for event in points {
        for image in images_at(&run, event, effort.images_per_point) {
            let count = crash::check(system, &run, CrashId { seed, event, image })?;
            tally.images.fetch_add(count, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Which images are worth making at a point: all, unless they would all be the same.
#[must_use]
pub fn images_at<S>(run: &Run<S>, event: usize, images_per_point: u64) -> Range<u64> {
    let all_the_same = run.recording.unflushed_at(event) == 0;
    0..if all_the_same { 1 } else { images_per_point }
}

/// Runs `seeds` on `thread_count` threads, each with the system that `make` makes of the seed and
/// the effort that it says. Stops at the first failure.
///
/// # Errors
/// That failure.
pub fn run_seeds<S: System>(
    seeds: Range<u64>,
    thread_count: usize,
    tally: &Tally,
    make: impl Fn(u64) -> (S, Effort) + Sync,
) -> Result<(), Failure> {
    run_some(seeds, u64::MAX, thread_count, tally, make)
}

/// Runs seeds from `first` on, as [`run_seeds`] does, until `image_count` crash images have been
/// checked; what was begun is finished.
///
/// # Errors
/// The first failure.
pub fn run_images<S: System>(
    first: u64,
    image_count: u64,
    thread_count: usize,
    tally: &Tally,
    make: impl Fn(u64) -> (S, Effort) + Sync,
) -> Result<(), Failure> {
    run_some(first..u64::MAX, image_count, thread_count, tally, make)
}

fn run_some<S: System>(
    seeds: Range<u64>,
    image_count: u64,
    thread_count: usize,
    tally: &Tally,
    make: impl Fn(u64) -> (S, Effort) + Sync,
) -> Result<(), Failure> {
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicBool::new(false);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || tally.images.load(Ordering::Relaxed) >= image_count {
                        break;
                    }
                    let (system, effort) = make(seed);
                    if let Err(found) = run_seed(&system, seed, &effort, tally) {
                        failed.store(true, Ordering::Relaxed);
                        *failure.lock() = Some(found);
                    }
                }
            });
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}
