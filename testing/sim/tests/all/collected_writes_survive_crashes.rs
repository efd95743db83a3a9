//! The file system below a kernel that collects what programs write, under simulated power cuts.

use dendro_sim::campaign::{Tally, run_images, run_seeds};
use dendro_sim::collected::{Bug, CollectedSystem};
use dendro_sim::workload;

/// What the test looks at at least.
const IMAGE_COUNT: u64 = 3000;

#[test]
fn every_crash_leaves_names_and_closed_files_in_order_and_of_open_ones_what_was_written() {
    let tally = Tally::default();
    run_images(1, IMAGE_COUNT, 2, &tally, workload::collected_of_seed)
        .unwrap_or_else(|e| panic!("{e}"));
    println!("of the file system below a kernel that collects: {tally}");
}

#[test]
fn every_mistake_of_a_kernel_that_collects_is_found() {
    for bug in Bug::ALL {
        let tally = Tally::default();
        let failure = run_seeds(1..200, 2, &tally, |seed| {
            let (sound, effort) = workload::collected_of_seed(seed);
            (CollectedSystem { bug: Some(bug), ..sound }, effort)
        })
        .expect_err(&format!("{bug:?} was not found"));
        println!("{bug:?}, found with {tally}: {failure}");
    }
}
