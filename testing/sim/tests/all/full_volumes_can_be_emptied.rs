//! Whatever a volume was filled with, everything can be removed, and all space comes back.

use dendro_sim::emptied;

#[test]
fn everything_on_a_full_volume_can_be_removed_and_all_space_comes_back() {
    let tally = emptied::Tally::default();
    emptied::run_seeds(1..41, 2, &tally, &|failure| eprintln!("{failure}"));
    assert_eq!(tally.failed(), 0, "{tally}");
}

#[test]
fn a_volume_with_one_clean_segment_or_two_can_be_emptied() {
    // Crashes in a row have used up the reserve of the first one, a checkpoint that of the second.
    for seed in [600_734, 800_640] {
        emptied::run(seed).unwrap();
    }
}

#[test]
fn making_room_moves_no_more_nodes_than_a_checkpoint_can_write() {
    // A map of so many directories takes most of the volume.
    emptied::run(3_000_901).unwrap();
}

#[test]
fn cleaning_leaves_what_takes_more_for_the_map_than_it_frees() {
    // Each block of 64 bytes makes a leaf of several KiB dirty, and few segments are clean.
    emptied::run(9_000_103).unwrap();
}
