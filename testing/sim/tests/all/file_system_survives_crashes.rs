//! The file system over the log-structured disk under simulated power cuts.

use dendro_sim::campaign::{Tally, run_images};
use dendro_sim::workload;

/// What the test looks at at least.
const IMAGE_COUNT: u64 = 5000;

#[test]
fn every_crash_leaves_the_tree_after_some_call_at_or_past_the_last_sync() {
    let tally = Tally::default();
    run_images(1, IMAGE_COUNT, 2, &tally, workload::files_of_seed)
        .unwrap_or_else(|e| panic!("{e}"));
    println!("of the file system: {tally}");
}
