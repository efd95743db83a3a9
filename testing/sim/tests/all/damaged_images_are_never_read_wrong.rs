//! Damaged images in short; `make damage ARGS="--damaged 100000"` has more of them.

use dendro_sim::damaged::{Tally, run_images};

#[test]
fn a_damaged_image_is_never_read_wrong() {
    let tally = Tally::default();
    run_images(1, 800, 2, &tally).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{tally}");
    let [partly, sound, mended] = tally.partly_sound_and_mended();
    assert!(tally.count() >= 800 && partly > 20 && sound > 100 && mended > 50, "{tally}");
}
