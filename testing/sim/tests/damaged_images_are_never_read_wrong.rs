//! Damaged images in short; `make damage ARGS="--damaged 100000"` has more of them.

use dendro_sim::damaged::{Tally, run_images};

#[test]
fn a_damaged_image_is_never_read_wrong() {
    let tally = Tally::default();
    run_images(1, 240, 2, &tally).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{tally}");
    let (partly, sound) = tally.partly_and_sound();
    assert!(tally.count() >= 240 && partly > 5 && sound > 50, "{tally}");
}
