//! What the engine writes the verifier finds sound, at every moment: the state of the last
//! checkpoint stays whole while the log goes on.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock};
use dendro_check::{Severity, find_superblocks, verify};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::LogicalDisk;
use dendro_disk::conformance::random::differential;
use dendro_disk::testgen::Profile;
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

fn assert_sound(device: &dyn Device, when: &str) {
    let report = verify(device, &dendro_check::Options { data: true });
    assert!(report.worst().is_none_or(|worst| worst == Severity::Note), "{when}:\n{report}");
}

/// Three rounds of random units, in which the log goes around the device more than once.
fn run(seed: u64, unit_count: u64, profile: &Profile, device_len_bytes: u64) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(device_len_bytes));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 256 << 10, ..FormatOptions::default() };
    format(&device, &options, &clock).expect("the device is large enough");
    assert_sound(&*device, "made just now");
    let mut written_bytes = 0;
    for round in 0..3 {
        let checkpoint_log_bytes = device_len_bytes / 64;
        let options = OpenOptions { checkpoint_log_bytes, ..OpenOptions::default() };
        let disk = LogDisk::open(Arc::clone(&device), options, Arc::clone(&clock))
            .expect("it was left in order");
        let mut units = 0;
        differential(&disk, seed + round, unit_count, profile, &mut || {
            while disk.background_step().expect("the device works") {}
            units += 1;
            if units % 97 == 0 {
                assert_sound(&*device, &format!("seed {seed}, round {round}, after unit {units}"));
            }
        });
        // Every other round ends as a crash ends it.
        if round % 2 == 0 {
            disk.shut_down().expect("the device works");
            let found = find_superblocks(&*device).expect("there is a volume");
            assert!(found.current().superblock.clean);
        } else {
            disk.flush(dendro_disk::CommitSeq::LATEST).expect("the device works");
        }
        written_bytes += disk.stats().written_bytes;
        drop(disk);
        assert_sound(&*device, &format!("seed {seed}, after round {round}"));
    }
    assert!(written_bytes > device_len_bytes, "{written_bytes} bytes are too few to go around");
}

#[test]
fn a_volume_is_sound_throughout_large_units() {
    run(100, 2000, &Profile::default(), 64 << 20);
}

#[test]
fn a_volume_is_sound_throughout_many_small_units() {
    let profile = Profile {
        max_write_bytes: 12 << 10,
        max_large_write_bytes: 200 << 10,
        target_bytes: 1 << 20,
        ..Profile::default()
    };
    run(200, 3000, &profile, 24 << 20);
}
