//! Spread disks with a member that fails at any call, while segments are moved off one of them.

use std::sync::atomic::AtomicBool;

use dendro_sim::failing::{Tally, run_seeds};

const SEEDS: u64 = 400;

#[test]
fn what_was_flushed_is_there_whatever_call_of_a_member_fails() {
    let (tally, is_over) = (Tally::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let half = |seeds| run_seeds(seeds, &tally, &is_over).unwrap_or_else(|why| panic!("{why}"));
        scope.spawn(move || half(1..SEEDS / 2));
        half(SEEDS / 2..SEEDS);
    });
    println!("{tally}");
    let [openings, struck, ended] = tally.counts();
    assert!(openings > 2 * SEEDS && struck > SEEDS / 2 && ended > SEEDS / 4, "{tally}");
}
