//! Crash images with one bit flipped in what was durable; `soak --flipped 10000` has more of them.

use dendro_sim::flipped::{Tally, run_flips, run_seed};

#[test]
fn a_flipped_bit_costs_nothing_in_silence() {
    let tally = Tally::default();
    run_flips(1, 600, 2, &tally).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{tally}");
    assert!(tally.count() >= 600 && tally.refused() > 10, "{tally}");
}

/// The log from an older checkpoint has taken all clean segments but those that the main log needs.
#[test]
fn a_loss_can_be_accepted_where_no_segment_is_clean_for_the_map() {
    let tally = Tally::default();
    run_seed(990_102, &tally).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(tally.refused() > 0, "{tally}");
}

/// An older checkpoint has items that were collected since, and nodes in segments that the log has
/// filled with payload since.
#[test]
fn what_an_older_checkpoint_has_again_does_no_harm_once_its_loss_is_accepted() {
    for seed in [11_000_081, 13_000_051, 14_000_017] {
        run_seed(seed, &Tally::default()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
