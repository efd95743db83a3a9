//! Random units against the model.

use dendro_base::Rng;

use crate::model::{ModelState, apply};
use crate::testgen::{Generator, Profile};
use crate::{Aru, CommitSeq, LogicalDisk, View};

/// Commits `unit_count` random units, sees that each is accepted or refused as the model does it,
/// and compares everything now and then and at the end. `background` is called after each unit
/// for the work that a disk does on the side.
///
/// # Panics
/// When disk and model differ. The message says where; the same `seed` does it again.
pub fn differential(
    disk: &dyn LogicalDisk,
    seed: u64,
    unit_count: u64,
    profile: &Profile,
    background: &mut dyn FnMut(),
) {
    let mut rng = Rng::new(seed);
    let mut generator = Generator::new(rng.fork(), profile.clone());
    let mut model = ModelState::read_from(disk).expect("readable");
    for at in 0..unit_count {
        let ops = generator.unit(&model, &mut || disk.allocate_list().ok());
        let expected = apply(&mut model, &ops);
        let mut aru = Aru::new(View::HEAD);
        for op in ops {
            aru.push(op);
        }
        let answer = disk.commit(aru).map(drop);
        assert_eq!(answer, expected, "unit {at} of seed {seed}");
        if rng.chance(3) {
            disk.flush(CommitSeq::LATEST).expect("a flush");
        }
        background();
        if rng.chance(2) || at + 1 == unit_count {
            let found = ModelState::read_from(disk).expect("readable");
            if let Some(difference) = found.diff(&model) {
                panic!("seed {seed}, after unit {at}: {difference} (disk left, model right)");
            }
        }
    }
}

/// Large and small ones.
pub fn random_units_leave_what_the_model_has(disk: &dyn LogicalDisk) {
    for seed in 1..=3 {
        differential(disk, seed, 500, &Profile::default(), &mut || ());
    }
}

/// Thousands.
pub fn many_small_units_leave_what_the_model_has(disk: &dyn LogicalDisk) {
    let profile = Profile {
        max_write_bytes: 12 << 10,
        max_large_write_bytes: 200 << 10,
        target_bytes: 1 << 20,
        ..Profile::default()
    };
    for seed in 10..14 {
        differential(disk, seed, 3000, &profile, &mut || ());
    }
}
