//! Volumes that grow and shrink while they are worked on, with power cuts at every write: what is
//! there is a prefix of the work, at or past the last flush, and the size is one that the volume
//! had.

use std::sync::atomic::Ordering;

use dendro_base::Rng;
use dendro_check::find_superblocks;
use dendro_device::sim::{CrashStyle, EventKind};
use dendro_sim::campaign::{Effort, Tally, run_images};
use dendro_sim::crash;
use dendro_sim::workload;

const IMAGE_COUNT: u64 = 6_000;

#[test]
fn a_volume_that_grows_and_shrinks_survives_crashes_at_every_write() {
    let tally = Tally::default();
    run_images(1, IMAGE_COUNT, 2, &tally, |seed| {
        let (mut system, effort) = workload::of_seed(seed);
        system.engine.grows_to = 300;
        system.engine.shrinks = seed % 3 > 0;
        (system, Effort { images_per_point: 3, ..effort })
    })
    .unwrap_or_else(|e| panic!("{e}"));
    println!("{tally}");
    assert!(tally.images.load(Ordering::Relaxed) >= IMAGE_COUNT);
}

/// The tests of crashes would notice nothing if no volume grew.
#[test]
fn volumes_grow_in_these_tests() {
    let grown = (1..20).filter(|&seed| {
        let (mut system, Effort { device_len_bytes, .. }) = workload::of_seed(seed);
        system.engine.grows_to = 300;
        system.engine.shrinks = false;
        let run = crash::record(&system, seed, device_len_bytes, 200).unwrap();
        let mut rng = Rng::new(seed);
        let style = CrashStyle::Everything;
        let image = run.recording.image_at(run.recording.len(), &mut rng, style);
        let found = find_superblocks(&image).unwrap();
        let count = found.current().superblock.layout.segment_count();
        u64::from(count) * system.engine.format.segment_size_bytes > device_len_bytes
    });
    assert!(grown.count() >= 12);
}

/// Nor if none shrank.
#[test]
fn volumes_shrink_in_these_tests() {
    let shrunk = (1..20).filter(|&seed| {
        let (mut system, Effort { device_len_bytes, .. }) = workload::of_seed(seed);
        (system.engine.grows_to, system.engine.shrinks) = (0, true);
        system.engine.format.max_len_bytes = 0;
        let run = crash::record(&system, seed, device_len_bytes, 200).unwrap();
        let is_cut = |event| matches!(run.recording.event(event), EventKind::Len { .. });
        (0..run.recording.len()).any(is_cut)
    });
    assert!(shrunk.count() >= 8);
}
