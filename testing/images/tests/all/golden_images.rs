//! Volumes of every version so far are read by this one.

use std::sync::Arc;

use dendro_base::ManualClock;
use dendro_check::{FindingKind, Options, Volume, verify};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, CommitSeq, Lid, LogicalDisk, View};
use dendro_format::superblock::{
    COMPATIBLE_ALLOCATED, COMPATIBLE_BACKUPS, COMPATIBLE_GROWS, INCOMPATIBLE_VERSIONS,
    KNOWN_INCOMPATIBLE, KNOWN_READ_ONLY_COMPATIBLE,
};
use dendro_format::{CHUNK_PAGES, Superblock, Value};
use dendro_images::contents::{Contents, End, image};
use dendro_images::golden::{Golden, all, name};
use dendro_images::{manifest, sets};
use dendro_logdisk::{LogDisk, OpenOptions};

fn open(image: &[u8], read_only: bool) -> (Arc<MemoryDevice>, LogDisk) {
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    let dynamic = Arc::clone(&device) as Arc<dyn Device>;
    let disk = LogDisk::open(dynamic, options, Arc::new(ManualClock::default()))
        .expect("a golden image opens");
    (device, disk)
}

fn kinds() -> impl Iterator<Item = (Contents, End)> {
    Contents::ALL
        .into_iter()
        .flat_map(|contents| [End::Clean, End::Crashed].map(|end| (contents, end)))
}

fn every_image(test: impl Fn(&Golden)) {
    let images = all().expect("the images can be read");
    assert!(!images.is_empty());
    images.iter().for_each(test);
}

fn findings(device: &dyn Device) -> Vec<FindingKind> {
    let report = verify(device, &Options { data: true });
    report.findings.into_iter().map(|finding| finding.kind).collect()
}

#[test]
fn the_current_version_has_its_images() {
    let names: Vec<String> =
        all().expect("the images can be read").into_iter().map(|golden| golden.name).collect();
    for (contents, end) in kinds() {
        assert!(
            names.contains(&name(contents, end)),
            "make the images of this version with `cargo run -p dendro-images`"
        );
    }
}

#[test]
fn the_images_have_every_feature_that_a_volume_may_have() {
    let superblock = |device: &dyn Device| Volume::open(device).unwrap().superblock().clone();
    let mut superblocks: Vec<Superblock> = Vec::new();
    for golden in all().expect("the images can be read") {
        superblocks.push(superblock(&MemoryDevice::from_bytes(&golden.image)));
    }
    for golden in sets::all().expect("the images can be read") {
        let set = sets::assemble(sets::devices(&golden.members)).expect("it is one");
        superblocks.push(superblock(&set));
    }
    let has = |flags: fn(&Superblock) -> u64| superblocks.iter().map(flags).fold(0, |a, b| a | b);
    assert_eq!(has(|it| it.incompatible), KNOWN_INCOMPATIBLE);
    assert_eq!(has(|it| it.read_only), KNOWN_READ_ONLY_COMPATIBLE);
    // Copies of metadata are made of volumes, and not written to.
    assert_eq!(
        has(|it| it.compatible),
        COMPATIBLE_ALLOCATED | COMPATIBLE_BACKUPS | COMPATIBLE_GROWS
    );
}

#[test]
fn every_image_holds_what_it_held() {
    every_image(|golden| {
        for read_only in [true, false] {
            let (_, disk) = open(&golden.image, read_only);
            assert!(manifest::of(&disk).unwrap() == golden.manifest, "{}", golden.name);
        }
    });
}

#[test]
fn opening_for_reading_changes_nothing() {
    every_image(|golden| {
        let (device, disk) = open(&golden.image, true);
        drop(disk);
        assert!(device.to_bytes() == golden.image, "{}", golden.name);
    });
}

#[test]
fn every_image_is_sound() {
    every_image(|golden| {
        let found = findings(&MemoryDevice::from_bytes(&golden.image));
        let expected: &[_] =
            if golden.name.ends_with("clean") { &[] } else { &[FindingKind::LogGoesOn] };
        assert_eq!(found, expected, "{}", golden.name);
    });
}

#[test]
fn every_image_can_be_written_to() {
    every_image(|golden| {
        let (device, disk) = open(&golden.image, false);
        let list = disk.allocate_list().unwrap();
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, Default::default()).put_record(list, 1, &b"new"[..]);
        aru.delete_list(Lid::FIRST);
        disk.commit(aru).unwrap();
        disk.flush(CommitSeq::LATEST).unwrap();
        disk.shut_down().unwrap();
        drop(disk);
        assert_eq!(findings(&*device), [], "{}", golden.name);
        let (_, disk) = open(&device.to_bytes(), true);
        assert_eq!(disk.record(View::HEAD, list, 1).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(disk.hints(View::HEAD, Lid::FIRST).unwrap(), None);
    });
}

#[test]
fn the_offline_readers_see_the_same_lists_and_pages_as_the_engine() {
    every_image(|golden| {
        let device = MemoryDevice::from_bytes(&golden.image);
        let volume = Volume::open(&device).unwrap();
        let has_versions = volume.superblock().incompatible & INCOMPATIBLE_VERSIONS != 0;
        if !golden.name.ends_with("clean") || has_versions {
            return;
        }
        let checkpoint = volume.checkpoint().unwrap();
        let mut lines = Vec::new();
        for entry in volume.entries(&checkpoint, None, None) {
            let (key, value) = entry.unwrap();
            if key.list >= Lid::CLIENT_END.0 {
                continue;
            }
            match value {
                Value::Tombstone => {}
                Value::List(_) => lines.push(format!("list {}", key.list)),
                Value::Record(_) => lines.push(format!("  record {}", key.index)),
                Value::Chunk(chunk) => lines.extend(chunk.iter().map(|(slot, _)| {
                    format!("  page {}", key.index * CHUNK_PAGES + u64::from(slot))
                })),
            }
        }
        let expected = golden.manifest.lines();
        assert_eq!(expected.clone().count(), lines.len(), "{}", golden.name);
        for (line, expected) in lines.iter().zip(expected) {
            assert!(format!("{expected} ").starts_with(&format!("{line} ")), "{line}: {expected}");
        }
    });
}

#[test]
fn compressed_pages_are_counted_where_no_older_software_compressed_any() {
    every_image(|golden| {
        let (device, disk) = open(&golden.image, false);
        let counted = disk.stats().compressed;
        if golden.name.contains("-compressed") {
            assert_eq!(counted, None, "{}", golden.name);
        } else {
            let pages = counted.unwrap().page_count();
            let kinds = ["-counted", "-frames", "-block"];
            let has_some = kinds.iter().any(|kind| golden.name.contains(kind));
            assert_eq!(pages > 0, has_some, "{}", golden.name);
        }
        disk.shut_down().unwrap();
        drop(disk);
        // That it is not known is not forgotten.
        let (_, disk) = open(&device.to_bytes(), true);
        assert_eq!(disk.stats().compressed, counted, "{}", golden.name);
    });
}

#[test]
fn what_is_made_today_holds_what_the_image_of_today_holds() {
    for (contents, end) in kinds() {
        let (_, disk) = open(&image(contents, end).unwrap(), true);
        let name = name(contents, end);
        let golden = all().unwrap().into_iter().find(|golden| golden.name == name).unwrap();
        assert!(manifest::of(&disk).unwrap() == golden.manifest, "{name}");
    }
}

#[test]
fn the_log_of_images_made_for_it_tells_of_segments_filled_anew() {
    let images = all().expect("the images can be read");
    let tells = |golden: &&Golden| {
        let device = MemoryDevice::from_bytes(&golden.image);
        let volume = Volume::open(&device).expect("it is one");
        let checkpoint = volume.checkpoint().expect("it has one");
        !volume.log_summary(&checkpoint).reused_segments.is_empty()
    };
    let mut of_reuse = images.iter().filter(|golden| golden.name.ends_with("-reuse-crashed"));
    assert!(of_reuse.clone().count() > 0 && of_reuse.all(|golden| tells(&golden)));
}
