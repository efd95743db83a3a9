//! The test of the tests: a sound disk passes, and every planted mistake is found.

use dendro_base::Rng;
use dendro_disk::testgen::Profile;
use dendro_sim::campaign::{Effort, Tally, run_seeds};
use dendro_sim::crash::{self, CrashId, Failure};
use dendro_sim::disk::{DiskSystem, threads};
use dendro_sim::journal::{Bug, JournalEngine};

fn system(bug: Option<Bug>) -> DiskSystem<JournalEngine> {
    let profile = Profile {
        max_write_bytes: 32 << 10,
        max_large_write_bytes: 200 << 10,
        target_bytes: 256 << 10,
        ..Profile::default()
    };
    DiskSystem { bulk_percent: 2, ..DiskSystem::new(JournalEngine { bug }, profile) }
}

#[test]
fn a_sound_disk_passes() {
    let tally = Tally::default();
    run_seeds(1..13, 2, &tally, |_| (system(None), Effort::SHORT))
        .unwrap_or_else(|e| panic!("{e}"));
    run_seeds(1..3, 2, &tally, |_| (system(None), Effort::LONG)).unwrap_or_else(|e| panic!("{e}"));
    println!("{tally}");
}

#[test]
fn what_threads_commit_at_the_same_time_survives_in_the_order_of_its_numbers() {
    for seed in 1..4 {
        let system = system(None);
        let run = threads::record(&system, seed, 48 << 20, 3, 80).unwrap_or_else(|e| panic!("{e}"));
        let mut rng = Rng::new(seed);
        for image in 0..100 {
            let event = rng.below(run.recording.len() as u64 + 1) as usize;
            let crash = CrashId { seed, event, image };
            crash::check(&system, &run, crash).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

#[test]
fn damage_is_not_taken_for_data_unless_the_check_is_left_out() {
    let damaged = |bug| -> Result<u64, Failure> {
        let mut readable = 0;
        for seed in 1..4 {
            let system = system(bug);
            let run = crash::record(&system, seed, 16 << 20, 60)?;
            for number in 0..100 {
                readable += u64::from(crash::check_damaged(&system, &run, number)?);
            }
        }
        Ok(readable)
    };
    let readable = damaged(None).unwrap_or_else(|e| panic!("{e}"));
    assert!(readable > 0, "a damaged tail leaves an earlier state");
    damaged(Some(Bug::SkipPayloadHash)).expect_err("damaged data");
}

#[test]
fn every_planted_bug_is_found_and_found_again_by_its_numbers() {
    for bug in Bug::ALL {
        let system = system(Some(bug));
        let tally = Tally::default();
        let failure = run_seeds(1..200, 2, &tally, |_| (system.clone(), Effort::SHORT))
            .expect_err(&format!("{bug:?} was not found"));
        println!("{bug:?}, found with {tally}: {failure}");
        let Effort { device_len_bytes, step_count, .. } = Effort::SHORT;
        let again = match crash::record(&system, failure.seed, device_len_bytes, step_count) {
            Ok(run) => {
                let crash = failure.crash.expect("the work itself went well this time");
                crash::check(&system, &run, crash).expect_err("the numbers name the failure")
            }
            Err(again) => again,
        };
        assert_eq!(again.message, failure.message);
    }
}

#[test]
fn a_seed_names_a_run() {
    let events = || {
        let run = crash::record(&system(None), 5, 16 << 20, 200).unwrap();
        let kinds: Vec<_> = (0..run.recording.len()).map(|at| run.recording.event(at)).collect();
        let crash = CrashId { seed: 5, event: kinds.len() / 2, image: 9 };
        let mut rng = crash.rng();
        let style = crash.style(&mut rng);
        let image = run.recording.image_at(crash.event, &mut rng, style).to_bytes();
        (kinds, style, image == vec![0; image.len()], rng.next_u64())
    };
    assert_eq!(events(), events());
    assert_ne!(Rng::new(1).next_u64(), Rng::new(2).next_u64());
}
