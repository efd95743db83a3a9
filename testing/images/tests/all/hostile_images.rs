//! Damaged volumes: clear errors, no panic, no wrong data.

use dendro_base::Rng;
use dendro_check::Volume;
use dendro_device::MemoryDevice;
use dendro_disk::View;
use dendro_format::SegmentNo;
use dendro_images::contents::{Contents, End, image};
use dendro_images::forge::{Forge, mutate_one};
use dendro_images::golden::all;
use dendro_images::{hostile, manifest};

/// The number of the superblock that counts.
fn superblock_seq(image: &[u8]) -> Option<u64> {
    let device = MemoryDevice::from_bytes(image);
    Volume::open(&device).map(|volume| volume.superblock().seq).ok()
}

#[test]
fn a_damaged_volume_never_panics_and_never_reads_wrong_data() {
    for golden in all().unwrap() {
        let healthy = hostile::exercise(&golden.image).unwrap();
        assert!(golden.manifest.contains(&healthy));
        let newest = superblock_seq(&golden.image);
        let rng = &mut Rng::new(3);
        let mut opened = 0;
        for case in 0..150 {
            let mut image = golden.image.clone();
            hostile::damage(rng, &mut image);
            let Some(read) = hostile::exercise(&image) else { continue };
            opened += 1;
            // Where the log is damaged it ends earlier: what is read then is an earlier state. So
            // it may be where the newest superblock is lost, and the log matters again.
            if golden.name.ends_with("clean") && superblock_seq(&image) == newest {
                assert!(read == healthy, "{}, case {case}", golden.name);
            }
        }
        assert!(opened > 0, "damage elsewhere hinders nobody");
    }
}

#[test]
fn forged_checksums_never_make_it_panic() {
    for golden in all().unwrap() {
        let forge = Forge::new(&golden.image).unwrap();
        let untouched = forge.forge(|_| ());
        assert!(untouched == golden.image, "{}", golden.name);
        let targets = forge.targets();
        let rng = &mut Rng::new(17);
        for _ in 0..200 {
            let image = forge.forge(|image| {
                for _ in 0..=rng.below(2) {
                    mutate_one(rng, &targets, image);
                }
            });
            dendro_check::testing::image(&image);
            hostile::exercise(&image);
        }
    }
}

#[test]
fn a_volume_that_was_cut_off_is_refused() {
    for golden in all().unwrap() {
        // Behind the volume there may be backups of its superblock, which it can do without.
        let whole = MemoryDevice::from_bytes(&golden.image);
        let layout = Volume::open(&whole).unwrap().layout();
        let end = layout.segment_offset(SegmentNo(layout.segment_count()));
        for len in (0..end as usize).step_by(100_000) {
            assert_eq!(hostile::exercise(&golden.image[..len]), None, "{len} bytes");
        }
    }
}

#[test]
fn a_foreign_device_is_refused() {
    let mut noise = vec![0; 4 << 20];
    Rng::new(5).fill(&mut noise);
    assert_eq!(hostile::exercise(&noise), None);
    assert_eq!(hostile::exercise(&[]), None);
    assert_eq!(hostile::exercise(&vec![0; 4 << 20]), None);
}

#[test]
fn manifests_are_of_as_many_lists_as_were_asked_for() {
    use dendro_base::ManualClock;
    use dendro_logdisk::{LogDisk, OpenOptions};
    use std::sync::Arc;

    let device = Arc::new(MemoryDevice::from_bytes(&image(Contents::Plain, End::Clean).unwrap()));
    let clock = Arc::new(ManualClock::default());
    let disk = LogDisk::open(device, OpenOptions::default(), clock).unwrap();
    for max in [0, 1, 63, 64, 65, 200] {
        let text = manifest::of_first(&disk, View::HEAD, max).unwrap();
        assert_eq!(text.lines().filter(|line| line.starts_with("list")).count(), max);
    }
}
