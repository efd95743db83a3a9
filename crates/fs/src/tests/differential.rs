//! Random steps on the file system and on the reference model: same answers, same trees.

use dendro_base::sync::Arc;
use dendro_disk::model::ModelDisk;

use super::{Fixture, noatime};
use crate::Options;
use crate::testing::{Driver, Generator, Model, Profile, Tree};

struct Run {
    seed: u64,
    steps: u64,
    profile: Profile,
    options: Options,
    hash_mask: u64,
}

impl Run {
    fn new(seed: u64, steps: u64) -> Self {
        let (profile, options) = (Profile::default(), noatime());
        Self { seed, steps, profile, options, hash_mask: u64::MAX }
    }

    fn compare(&self) {
        let mut fixture = Fixture::with(ModelDisk::new(None), self.options.clone(), self.hash_mask);
        let mut generator = Generator::new(self.seed, self.profile.clone());
        let mut model = Model::new(fixture.clock.set_step(0), 0, 0, 0o755);
        let mut driver = Driver::new(Arc::clone(&fixture.fs));
        let mut history = Vec::new();
        for number in 1..=self.steps {
            let step = generator.next(&model);
            let now = fixture.clock.set_step(number);
            let expected = model.run(&step, now);
            let outcome = driver.run(&step);
            history.push(step);
            let seed = self.seed;
            let tail = &history[history.len().saturating_sub(6)..];
            assert_eq!(outcome, expected, "seed {seed}, step {number}: {tail:#?}");
            if number % 64 == 0 || number == self.steps {
                let difference = Tree::of_fs(&fixture.fs).unwrap().difference(&model.tree());
                assert_eq!(difference, None, "seed {seed}, step {number}: {tail:#?}");
                fixture.assert_sound();
            }
            if number % 500 == 0 {
                drop(driver);
                fixture.remount();
                model.close_all();
                driver = Driver::new(Arc::clone(&fixture.fs));
                fixture.assert_sound();
            }
        }
    }
}

#[test]
fn random_steps_do_what_the_model_does() {
    for seed in 0..24 {
        Run::new(seed, 1500).compare();
    }
}

#[test]
fn so_they_do_when_lookups_hold_files() {
    for seed in 100..106 {
        let options = Options { lookups_hold_files: true, inode_cache_len: 16, ..noatime() };
        Run { options, ..Run::new(seed, 1500) }.compare();
    }
}
