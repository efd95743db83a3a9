//! Disks on two devices under power cuts of both, with one of them lost, left out and returned.

use std::sync::atomic::Ordering;

use dendro_sim::campaign::{Tally, run_images};
use dendro_sim::workload;

const IMAGE_COUNT: u64 = 7_000;

#[test]
fn whichever_device_is_left_holds_a_prefix_at_or_past_the_last_flush() {
    let tally = Tally::default();
    run_images(1, IMAGE_COUNT, 2, &tally, workload::mirrored_of_seed)
        .unwrap_or_else(|e| panic!("{e}"));
    println!("{tally}");
    assert!(tally.images.load(Ordering::Relaxed) >= IMAGE_COUNT);
}
