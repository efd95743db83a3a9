//! Random steps on the file system and on the reference model: same answers, same trees.

use dendro_base::sync::Arc;
use dendro_disk::model::ModelDisk;

use super::{Fixture, noatime};
use crate::testing::{Driver, Generator, Model, Profile, StepClock, Tree};
use crate::{FreeingLimits, Options};

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

    /// All names have the same hash, and so share a record. Their values must fit it.
    fn with_collisions(self) -> Self {
        let profile = Profile { max_xattr_len: 100, ..self.profile };
        Self { hash_mask: 0, profile, ..self }
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
            if number % 3 == 0 {
                driver.free_some();
            }
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
fn so_they_do_when_lookups_keep_files() {
    for seed in 100..106 {
        let options = Options { lookups_keep_files: true, inode_cache_len: 16, ..noatime() };
        Run { options, ..Run::new(seed, 1500) }.compare();
    }
}

#[test]
fn so_they_do_when_pages_are_freed_a_few_at_a_time() {
    for seed in 400..412 {
        let freeing = FreeingLimits { pages_in_unit: 1 + seed % 7, units_in_call: seed as u32 % 3 };
        let options = Options { freeing, ..noatime() };
        Run { options, ..Run::new(seed, 1500) }.compare();
    }
}

#[test]
fn so_they_do_when_all_names_collide() {
    for seed in 200..206 {
        Run::new(seed, 1500).with_collisions().compare();
    }
}

#[test]
fn most_random_steps_succeed() {
    let clock = StepClock::default();
    let mut model = Model::new(clock.set_step(0), 0, 0, 0o755);
    let mut generator = Generator::new(1, Profile::default());
    let succeeded = (1..=3000)
        .filter(|&number| {
            let step = generator.next(&model);
            model.run(&step, clock.set_step(number)).is_ok()
        })
        .count();
    assert!((1800..2900).contains(&succeeded), "{succeeded}");
}

/// After a crash, the disk is in the state after some commit. In each such state it must mount,
/// hold a sound file system, and have the tree after some step.
#[test]
fn a_crash_after_any_commit_shows_the_tree_after_some_step() {
    for seed in 300..304 {
        let profile = Profile { one_unit_only: true, max_write_len: 9000, ..Profile::default() };
        let disk = ModelDisk::new(None).recording();
        let fixture = Fixture::with(disk, noatime(), u64::MAX);
        let mut generator = Generator::new(seed, profile);
        let mut model = Model::new(fixture.clock.set_step(0), 0, 0, 0o755);
        let mut driver = Driver::new(Arc::clone(&fixture.fs));
        let first = fixture.disk.history().len() - 1;
        // For each commit, the trees before and after its step.
        let mut before = model.tree();
        let mut expected = vec![(before.clone(), before.clone()); first + 1];
        for number in 1..=200 {
            let step = generator.next(&model);
            let now = fixture.clock.set_step(number);
            assert_eq!(driver.run(&step), model.run(&step, now), "seed {seed}: {step:?}");
            let after = model.tree();
            expected.resize(fixture.disk.history().len(), (before, after.clone()));
            before = after;
        }
        for ((seq, state), (before, after)) in
            fixture.disk.history().into_iter().zip(expected).skip(first)
        {
            let mut crashed = Fixture {
                disk: Arc::new(ModelDisk::from_state(state, None)),
                clock: Arc::clone(&fixture.clock),
                fs: Arc::clone(&fixture.fs),
                options: noatime(),
                hash_mask: u64::MAX,
            };
            crashed.assert_sound();
            crashed.remount();
            crashed.assert_sound();
            let tree = Tree::of_fs(&crashed.fs).unwrap();
            let is_prefix = tree == before || tree == after;
            assert!(is_prefix, "seed {seed}, {seq:?}: {:?}", tree.difference(&after));
        }
    }
}

/// Takes minutes: `cargo test -p dendro-fs --release -- --ignored soak`.
#[test]
#[ignore = "takes minutes"]
fn soak() {
    for seed in 10_000..14_000 {
        let lookups_keep_files = seed % 2 == 0;
        let inode_cache_len = if seed % 3 == 0 { 0 } else { 1000 };
        let options = Options { lookups_keep_files, inode_cache_len, ..noatime() };
        let run = Run { options, ..Run::new(seed, 2000) };
        if seed % 7 == 0 { run.with_collisions().compare() } else { run.compare() }
    }
}
