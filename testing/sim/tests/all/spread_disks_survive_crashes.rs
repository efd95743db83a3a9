//! Disks that are spread over two devices under power cuts of all, while one moves to a third.

use std::sync::atomic::Ordering;

use dendro_sim::campaign::{Tally, run_images};
use dendro_sim::workload;

const IMAGE_COUNT: u64 = 5_000;

#[test]
fn the_devices_together_hold_a_prefix_at_or_past_the_last_flush() {
    let tally = Tally::default();
    run_images(1, IMAGE_COUNT, 2, &tally, workload::spread_of_seed)
        .unwrap_or_else(|e| panic!("{e}"));
    println!("{tally}");
    assert!(tally.images.load(Ordering::Relaxed) >= IMAGE_COUNT);
}
