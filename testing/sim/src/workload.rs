//! What a seed's work is like.

use dendro_base::Rng;
use dendro_disk::testgen::Profile;

use crate::campaign::Effort;

/// The units that `seed` makes, and how much is done with them.
#[must_use]
pub fn of_seed(seed: u64) -> (Profile, Effort) {
    let mut rng = Rng::new(seed.rotate_left(32));
    let profile = match rng.below(3) {
        // Many commits in a batch, and images that are checked fast.
        0 => Profile {
            max_lists: 4,
            max_ops: 30,
            max_write_bytes: 9000,
            max_large_write_bytes: 100 << 10,
            target_bytes: 64 << 10,
            wrong_percent: 3,
        },
        1 => Profile {
            max_write_bytes: 32 << 10,
            max_large_write_bytes: 300 << 10,
            target_bytes: 256 << 10,
            ..Profile::default()
        },
        // Units larger than a small segment.
        _ => Profile {
            max_large_write_bytes: 1200 << 10,
            target_bytes: 1 << 20,
            ..Profile::default()
        },
    };
    (profile, if rng.chance(85) { Effort::SHORT } else { Effort::LONG })
}
