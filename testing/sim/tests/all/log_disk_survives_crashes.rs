//! The log-structured disk under simulated power cuts, failing devices and damage.

use std::sync::atomic::Ordering;

use dendro_base::Rng;
use dendro_sim::campaign::{Effort, Tally, run_images, run_seeds};
use dendro_sim::crash::{self, CrashId, Failure};
use dendro_sim::disk::threads::crowded::{self, Crowd};
use dendro_sim::disk::{DiskSystem, threads};
use dendro_sim::log::LogEngine;
use dendro_sim::workload;

/// What the tests look at at least, all together.
const IMAGE_COUNT: u64 = 12_000;

#[test]
fn every_crash_leaves_a_prefix_at_or_past_the_last_flush() {
    let tally = Tally::default();
    run_images(1, IMAGE_COUNT, 2, &tally, workload::of_seed).unwrap_or_else(|e| panic!("{e}"));
    println!("{tally}");
    assert!(tally.images.load(Ordering::Relaxed) >= IMAGE_COUNT);
}

#[test]
fn large_disks_with_long_checkpoints_survive_crashes_too() {
    let tally = Tally::default();
    run_seeds(3..5, 2, &tally, |seed| {
        let (system, effort) = workload::large_of_seed(seed);
        (system, Effort { point_count: Some(10), ..effort })
    })
    .unwrap_or_else(|e| panic!("{e}"));
    println!("{tally}");
}

#[test]
fn a_segment_is_filled_again_only_when_nothing_of_it_is_queued_any_more() {
    // A unit of this seed fails when it has filled a partial segment of a payload stream, which no
    // record names then. A flush that leaves that one queued is found.
    let tally = Tally::default();
    run_seeds(23_000_095..23_000_096, 2, &tally, workload::of_seed)
        .unwrap_or_else(|e| panic!("{e}"));
    println!("{tally}");
}

#[test]
fn a_list_made_again_ends_an_epoch_and_no_crash_comes_between_that_shows() {
    // Units of this seed make large lists again while there are snapshots.
    let tally = Tally::default();
    run_seeds(500_002..500_003, 2, &tally, |seed| {
        let (system, effort) = workload::of_seed(seed);
        (system, Effort { point_count: Some(30), ..effort })
    })
    .unwrap_or_else(|e| panic!("{e}"));
    println!("{tally}");
}

#[test]
fn what_threads_commit_at_the_same_time_survives_in_the_order_of_its_numbers() {
    for seed in 1..6 {
        let (mut system, _) = workload::of_seed(seed);
        // How short the disk becomes, and so what finds room, depends on the threads.
        system.engine.shrinks = false;
        let run = threads::record(&system, seed, 64 << 20, 3, 80).unwrap_or_else(|e| panic!("{e}"));
        let mut rng = Rng::new(seed);
        for image in 0..100 {
            let event = rng.below(run.recording.len() as u64 + 1) as usize;
            let crash = CrashId { seed, event, image };
            crash::check(&system, &run, crash).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

#[test]
fn many_threads_on_a_nearly_full_disk_are_refused_nothing_that_fits_and_lose_nothing() {
    for seed in 1..11 {
        let (system, device_len_bytes, crowd) = workload::crowded_of_seed(seed);
        // Who writes until refused is refused something.
        let crowd = Crowd { full_percent: crowd.full_percent.or(Some(95)), ..crowd };
        let run = crowded::record(&system, seed, device_len_bytes, &crowd)
            .unwrap_or_else(|e| panic!("{e}"));
        let mut rng = Rng::new(seed);
        for image in 0..40 {
            let event = rng.below(run.recording.len() as u64 + 1) as usize;
            let crash = CrashId { seed, event, image };
            crash::check(&system, &run, crash).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

/// Damages what `seeds` leave behind; returns how many of the images could be read whole.
fn damage(
    seeds: std::ops::Range<u64>,
    change: impl Fn(&mut DiskSystem<LogEngine>),
) -> Result<u64, Failure> {
    let mut readable = 0;
    for seed in seeds {
        let (mut system, Effort { device_len_bytes, .. }) = workload::of_seed(seed);
        change(&mut system);
        let run = crash::record(&system, seed, device_len_bytes, 80)?;
        for number in 0..150 {
            readable += u64::from(crash::check_damaged(&system, &run, number)?);
        }
    }
    Ok(readable)
}

#[test]
fn damage_is_never_taken_for_data_and_never_a_panic() {
    let readable = damage(1..21, |_| ()).unwrap_or_else(|e| panic!("{e}"));
    assert!(readable > 0, "damage where nothing lies any more does nothing");
}

#[test]
fn a_disk_that_does_not_check_its_payload_is_found_out() {
    let tally = Tally::default();
    let failure = run_seeds(1..400, 2, &tally, |seed| {
        let (mut system, effort) = workload::of_seed(seed);
        system.engine.open.skip_payload_checks = true;
        (system, effort)
    })
    .expect_err("payload was taken for what it is not");
    println!("found with {tally}: {failure}");
}

#[test]
fn a_device_that_forgets_to_flush_is_found_out() {
    let tally = Tally::default();
    let failure = run_seeds(1..400, 2, &tally, |seed| {
        let (mut system, effort) = workload::of_seed(seed);
        system.loses_flushes = true;
        (system, effort)
    })
    .expect_err("what was promised to be durable was lost");
    println!("found with {tally}: {failure}");
}

#[test]
fn a_seed_names_a_run_of_the_log() {
    let events = |seed| {
        let (system, Effort { device_len_bytes, .. }) = workload::of_seed(seed);
        let run = crash::record(&system, seed, device_len_bytes, 100).unwrap();
        let events: Vec<_> = (0..run.recording.len()).map(|at| run.recording.event(at)).collect();
        (events, run.trace.last())
    };
    assert_eq!(events(5), events(5));
    assert_ne!(events(5), events(6));
}
