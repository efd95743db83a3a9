//! Crash images with one bit flipped in what was durable; `soak --flipped 10000` has more of them.

use dendro_sim::flipped::{Tally, run_flips};

#[test]
fn a_flipped_bit_costs_nothing_in_silence() {
    let tally = Tally::default();
    run_flips(1, 600, 2, &tally).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{tally}");
    assert!(tally.count() >= 600 && tally.refused() > 10, "{tally}");
}
