//! A copy of metadata that a power cut interrupted.

use crate::support::{sound, write_superblock};
use dendro_base::Rng;
use dendro_check::{Hide, MetadataOptions, Options, Volume, copy_metadata, verify};
use dendro_device::MemoryDevice;
use dendro_device::sim::{CrashStyle, SimDevice};
use dendro_format::Superblock;

/// Hides nothing.
struct Nothing;

impl Hide for Nothing {
    fn learn(&mut self, _: u64, _: u64, _: &[u8]) {}

    fn hide_record(&self, _: u64, _: u64, _: &mut [u8]) {}

    fn hide_name(&self, name: &str) -> String {
        name.to_owned()
    }

    fn end_bytes(&self, _: u64, _: &[u8]) -> Option<u64> {
        None
    }
}

#[test]
fn a_power_cut_leaves_a_whole_copy_or_none() {
    let mut image = sound();
    let first = {
        let device = MemoryDevice::from_bytes(&image);
        Volume::open(&device).expect("it is sound").superblock().clone()
    };
    // An older superblock, whose checkpoint is not copied.
    write_superblock(&mut image, &Superblock { seq: first.seq + 1, ..first.clone() });
    write_superblock(&mut image, &Superblock { checkpoint_crc32c: 7, ..first });
    let source = MemoryDevice::from_bytes(&image);
    let target = SimDevice::from_bytes(&vec![0; image.len()], 1);
    target.start_recording();
    copy_metadata(&source, &target, &mut Nothing, &MetadataOptions::default(), &mut |_| ())
        .expect("the device works");
    let recording = target.take_recording().expect("one was begun");
    let options = Options { data: true };
    let whole = verify(&MemoryDevice::from_bytes(&target.to_bytes()), &options);
    assert!(whole.is_sound(), "{whole}");

    let (mut none_count, mut whole_count) = (0, 0);
    let mut rng = Rng::new(1);
    for index in 0..=recording.len() {
        for style in CrashStyle::ALL.into_iter().cycle().take(40) {
            let cut = recording.image_at(index, &mut rng, style);
            if Volume::open(&cut).is_err() {
                none_count += 1;
                continue;
            }
            let report = verify(&cut, &options);
            assert_eq!(report.findings, whole.findings, "event {index}, {style:?}");
            whole_count += 1;
        }
    }
    assert!(none_count > 100 && whole_count > 40, "{none_count} none, {whole_count} whole");
}
