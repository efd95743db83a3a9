//! Pages that are compressed together, and what becomes of them, with power cuts: what is there is
//! a prefix of the work, at or past the last flush.

use std::sync::atomic::Ordering;

use dendro_base::Rng;
use dendro_check::find_superblocks;
use dendro_device::sim::CrashStyle;
use dendro_format::superblock::INCOMPATIBLE_FRAMES;
use dendro_sim::campaign::{Effort, Tally, run_images};
use dendro_sim::crash;
use dendro_sim::workload;

const IMAGE_COUNT: u64 = 4_000;

#[test]
fn pages_of_frames_survive_crashes_whatever_happened_to_others_of_the_frame() {
    let tally = Tally::default();
    run_images(100, IMAGE_COUNT, 2, &tally, workload::framed_of_seed)
        .unwrap_or_else(|e| panic!("{e}"));
    println!("{tally}");
    assert!(tally.images.load(Ordering::Relaxed) >= IMAGE_COUNT);
}

/// The test of crashes would notice nothing if there were no frames.
#[test]
fn there_are_frames_in_these_tests() {
    let framed = (100..110).filter(|&seed| {
        let (system, Effort { device_len_bytes, .. }) = workload::framed_of_seed(seed);
        let run = crash::record(&system, seed, device_len_bytes, 400).unwrap();
        let mut rng = Rng::new(seed);
        let image = run.recording.image_at(run.recording.len(), &mut rng, CrashStyle::Everything);
        let found = find_superblocks(&image).unwrap();
        found.current().superblock.incompatible & INCOMPATIBLE_FRAMES != 0
    });
    let count = framed.count();
    assert!(count >= 7, "{count} of 10");
}
