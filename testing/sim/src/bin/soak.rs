//! Crashes one seed after the other, without end, until something is wrong.

use std::fmt::Display;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use dendro_base::Rng;
use dendro_base::sync::Mutex;
use dendro_sim::campaign::{Effort, Tally, images_at, run_seed, run_seeds};
use dendro_sim::crash::{self, CrashId, Failure, Run};
use dendro_sim::damaged;
use dendro_sim::disk::threads::{self, crowded};
use dendro_sim::emptied;
use dendro_sim::failing;
use dendro_sim::flipped;
use dendro_sim::system::System;
use dendro_sim::workload;

/// Bytes of the device that several threads work on.
const THREADS_DEVICE_LEN_BYTES: u64 = 64 << 20;

/// More than damaged images may make the process map: what they state is bounded before it is used.
const MAX_PEAK_BYTES: u64 = 4 << 30;

/// How often it is said how far a run is.
const MINUTE: Duration = Duration::from_secs(60);

/// Simulated power cuts: random work on a simulated device, crash images of it, and a check that
/// each holds a prefix of the work at or past the last flush.
///
/// The work is done on the log-structured disk, or with --files on the file system over it; volumes
/// of all shapes, with tiny caches and checkpoints all the time. It goes on until something is
/// wrong, and then says which seed, event and image to repeat: with --seed alone all of a seed is
/// done again, with --event the crashes at one point of it, with --image one of them (and --files
/// or --large as before).
#[derive(Parser)]
struct Arguments {
    /// Repeat this seed only
    #[arg(long)]
    seed: Option<u64>,
    /// Repeat the crashes after this many device events of the seed only
    #[arg(long, requires = "seed")]
    event: Option<usize>,
    /// Repeat this crash image at the event only
    #[arg(long, requires = "seed")]
    image: Option<u64>,
    /// The seed to start from
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Stop after so many seeds
    #[arg(long)]
    seeds: Option<u64>,
    /// Crash the file system over the disk, rather than the disk alone
    #[arg(long)]
    files: bool,
    /// Crash the file system below a kernel that collects what programs write (order=close)
    #[arg(long, conflicts_with_all = ["files", "large"])]
    collected: bool,
    /// Crash each seed at so many random points, rather than as its kind of work says
    #[arg(long)]
    points: Option<u64>,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Crash large disks: many segments, most of them full, and checkpoints of many nodes
    #[arg(long, conflicts_with = "files")]
    large: bool,
    /// Crash disks that put pages into frames all the time: blocks of several compressed pages
    #[arg(long, conflicts_with_all = ["files", "large"])]
    framed: bool,
    /// Crash disks that lie on two devices, with one of them left out now and then
    #[arg(long, conflicts_with_all = ["files", "large"])]
    mirrored: bool,
    /// Crash disks that are spread over two devices, one of which moves to a third now and then;
    /// another thread has devices of such disks fail
    #[arg(long, conflicts_with_all = ["files", "large", "mirrored"])]
    spread: bool,
    /// Let so many threads work on each disk at the same time. Such a run cannot be repeated
    #[arg(long, conflicts_with_all = ["seed", "files", "large"])]
    workers: Option<u64>,
    /// Let many threads write and clean on small disks that stay nearly full. Such a run cannot be
    /// repeated
    #[arg(long, conflicts_with_all = ["seed", "files", "large", "workers"])]
    crowded: bool,
    /// Fill volumes of all shapes until nothing more fits, and remove everything again
    #[arg(long, conflicts_with_all = ["event", "files", "large", "workers", "crowded"])]
    emptied: bool,
    /// Flip so many single bits of what was durable in crash images
    #[arg(long, conflicts_with_all = ["event", "files", "large", "workers", "crowded", "emptied"])]
    flipped: Option<u64>,
    /// Damage so many images in all ways: flips, zeros, old sectors, exchanged segments, cut-off
    /// ends, forged checksums. With --image only that of the seed
    #[arg(long, conflicts_with_all = ["event", "files", "large", "workers", "crowded", "emptied"])]
    damaged: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.emptied {
        return fill_and_empty(&arguments);
    }
    if let Some(count) = arguments.flipped {
        return flip_bits(&arguments, count);
    }
    if let Some(count) = arguments.damaged {
        return damage_images(&arguments, count);
    }
    let tally = Tally::default();
    let outcome = telling(&tally, || {
        if arguments.crowded {
            soak_runs(&arguments, &tally, |seed| {
                let (system, device_len_bytes, crowd) = workload::crowded_of_seed(seed);
                let run = crowded::record(&system, seed, device_len_bytes, &crowd)?;
                Ok((system, run))
            })
        } else if let Some(workers) = arguments.workers {
            soak_runs(&arguments, &tally, |seed| {
                let (system, _) = workload::of_seed(seed);
                let run = threads::record(&system, seed, THREADS_DEVICE_LEN_BYTES, workers, 100)?;
                Ok((system, run))
            })
        } else if arguments.files {
            run(&arguments, &tally, workload::files_of_seed)
        } else if arguments.collected {
            run(&arguments, &tally, workload::collected_of_seed)
        } else if arguments.framed {
            run(&arguments, &tally, workload::framed_of_seed)
        } else if arguments.mirrored {
            run(&arguments, &tally, workload::mirrored_of_seed)
        } else if arguments.spread {
            run_spread(&arguments, &tally)
        } else if arguments.large {
            run(&arguments, &tally, workload::large_of_seed)
        } else {
            run(&arguments, &tally, workload::of_seed)
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Works, and says each minute and at the end how far it is.
fn telling<T>(tally: &(impl Display + Sync), work: impl FnOnce() -> T) -> T {
    each_minute(tally, || (), work)
}

/// Works, and says each minute and at the end how far it is. `look` is called each minute too.
fn each_minute<T>(
    tally: &(impl Display + Sync),
    look: impl Fn() + Sync,
    work: impl FnOnce() -> T,
) -> T {
    let done = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            std::thread::park_timeout(MINUTE);
            while !done.load(Ordering::Relaxed) {
                println!("{tally}");
                look();
                std::thread::park_timeout(MINUTE);
            }
        });
        let outcome = work();
        done.store(true, Ordering::Relaxed);
        watch.thread().unpark();
        outcome
    });
    println!("{tally}");
    outcome
}

/// Flips single bits in crash images, of the seed that was asked for or of as many as it takes.
fn flip_bits(arguments: &Arguments, count: u64) -> ExitCode {
    let tally = flipped::Tally::default();
    let outcome = telling(&tally, || match arguments.seed {
        Some(seed) => flipped::run_seed(seed, &tally),
        None => flipped::run_flips(arguments.from, count, arguments.threads, &tally),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure} --flipped {count}");
            ExitCode::FAILURE
        }
    }
}

/// Damages images, of the seed that was asked for or of as many as it takes. Ends the process if
/// one of them takes far too long, or too much memory.
fn damage_images(arguments: &Arguments, count: u64) -> ExitCode {
    let tally = damaged::Tally::default();
    let before = Mutex::new((u64::MAX, Vec::new()));
    let ends = || {
        let now = (tally.count(), tally.running());
        let mut before = before.lock();
        if now == *before && !now.1.is_empty() {
            eprintln!("no end of (seed, image) {:?}", now.1);
            std::process::exit(1);
        }
        *before = now;
    };
    let outcome = each_minute(&tally, ends, || match arguments.seed {
        Some(seed) => damaged::run_seed(seed, arguments.image, &tally),
        None => damaged::run_images(arguments.from, count, arguments.threads, &tally),
    });
    let peak_bytes = peak_bytes();
    println!("{} MiB of memory at most", peak_bytes >> 20);
    match outcome {
        Ok(()) if peak_bytes < MAX_PEAK_BYTES => ExitCode::SUCCESS,
        Ok(()) => {
            eprintln!("an image took far too much memory");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("{failure} --damaged {count}");
            ExitCode::FAILURE
        }
    }
}

/// The most memory that this process had mapped, used or not.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Fills and empties the volume of the seed that was asked for, or of all, and says how many could
/// not be emptied.
fn fill_and_empty(arguments: &Arguments) -> ExitCode {
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => {
            let count = arguments.seeds.unwrap_or(u64::MAX);
            arguments.from..arguments.from.saturating_add(count)
        }
    };
    let tally = emptied::Tally::default();
    telling(&tally, || {
        emptied::run_seeds(seeds, arguments.threads, &tally, &|failure| eprintln!("{failure}"));
    });
    if tally.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Crashes spread disks, and has devices of others fail meanwhile.
fn run_spread(arguments: &Arguments, tally: &Tally) -> Result<(), Failure> {
    let (failures, is_over) = (failing::Tally::default(), AtomicBool::new(false));
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => arguments.from..u64::MAX,
    };
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(why) = failing::run_seeds(seeds, &failures, &is_over) {
                eprintln!("with a device that fails: {why}");
                std::process::exit(1);
            }
        });
        let outcome = run(arguments, tally, workload::spread_of_seed);
        is_over.store(true, Ordering::Relaxed);
        outcome
    });
    println!("{failures}");
    outcome
}

/// Runs the seed that was asked for, or all.
fn run<S: System>(
    arguments: &Arguments,
    tally: &Tally,
    of_seed: impl Fn(u64) -> (S, Effort) + Sync,
) -> Result<(), Failure> {
    let make = |seed| {
        let (system, effort) = of_seed(seed);
        let point_count = arguments.points.or(effort.point_count);
        (system, Effort { point_count, ..effort })
    };
    match arguments.seed {
        Some(seed) => {
            let (system, effort) = make(seed);
            repeat(&system, seed, &effort, arguments, tally)
        }
        None => soak(arguments, tally, make),
    }
}

/// Runs seeds until one fails.
fn soak<S: System>(
    arguments: &Arguments,
    tally: &Tally,
    make: impl Fn(u64) -> (S, Effort) + Sync,
) -> Result<(), Failure> {
    let end = arguments.seeds.map_or(u64::MAX, |count| arguments.from.saturating_add(count));
    run_seeds(arguments.from..end, arguments.threads, tally, make)
}

/// Does with each seed what several threads do on a disk, and crashes that, until one fails.
fn soak_runs<S: System>(
    arguments: &Arguments,
    tally: &Tally,
    record: impl Fn(u64) -> Result<(S, Run<S::State>), Failure>,
) -> Result<(), Failure> {
    let end = arguments.seeds.map_or(u64::MAX, |count| arguments.from.saturating_add(count));
    for seed in arguments.from..end {
        let (system, run) = record(seed)?;
        tally.runs.fetch_add(1, Ordering::Relaxed);
        tally.events.fetch_add(run.recording.len() as u64, Ordering::Relaxed);
        let mut rng = Rng::new(seed);
        for image in 0..arguments.points.unwrap_or(100) {
            let event = rng.below(run.recording.len() as u64 + 1) as usize;
            let count = crash::check(&system, &run, CrashId { seed, event, image })?;
            tally.images.fetch_add(count, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Does one seed again: all of it, one point, or one image.
fn repeat<S: System>(
    system: &S,
    seed: u64,
    effort: &Effort,
    arguments: &Arguments,
    tally: &Tally,
) -> Result<(), Failure> {
    let Some(event) = arguments.event else { return run_seed(system, seed, effort, tally) };
    let run = crash::record(system, seed, effort.device_len_bytes, effort.step_count)?;
    let images = match arguments.image {
        Some(image) => image..image + 1,
        None => images_at(&run, event, effort.images_per_point),
    };
    for image in images {
        let count = crash::check(system, &run, CrashId { seed, event, image })?;
        tally.images.fetch_add(count, Ordering::Relaxed);
    }
    Ok(())
}
