//! What was durable and is damaged: the mount says so, and how to go on.

use std::fs::{self, File};
use std::io::Write;

use crate::common::{Scratch, skips_mounts};
use dendro_check::Volume;
use dendro_device::MemoryDevice;

const FILES: usize = 20;

/// Flips a bit in the header of the partial segment of the log that holds the file in the middle.
fn damage(scratch: &Scratch) {
    let mut image = fs::read(scratch.image()).unwrap();
    let at = {
        let device = MemoryDevice::from_bytes(&image);
        let volume = Volume::open(&device).unwrap();
        let checkpoint = volume.checkpoint().unwrap();
        let layout = volume.superblocks().current().superblock.layout;
        let headers: Vec<_> = volume.log(&checkpoint).map(|partial| partial.header).collect();
        let header = &headers[headers.len() / 2];
        layout.segment_offset(header.segment) + u64::from(header.offset_bytes)
    };
    image[at as usize + 33] ^= 4;
    fs::write(scratch.image(), image).unwrap();
}

fn names(scratch: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(scratch.mount_point()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_mount_stops_at_damage_and_the_options_say_how_to_go_on() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    for number in 0..FILES {
        let mut file = File::create(scratch.inside(&format!("{number:02}"))).unwrap();
        file.write_all(b"contents").unwrap();
        file.sync_all().unwrap();
    }
    scratch.kill_daemon();
    damage(&scratch);
    let (image, mount) = (scratch.image(), scratch.mount_point());
    let before = fs::read(scratch.image()).unwrap();
    let refused = scratch.dendro(["mount", &image, &mount]);
    refused.fails(32, &["durable", "-o ro", "recover=skip", "recover=truncate"]);
    assert!(fs::read(scratch.image()).unwrap() == before, "something was written");

    scratch.dendro(["mount", "-o", "ro", &image, &mount]).succeeds();
    let left = names(&scratch);
    assert!((3..FILES - 3).contains(&left.len()), "{left:?}");
    scratch.dendro(["umount", &mount]).succeeds();

    scratch.dendro(["mount", "-o", "recover=skip", &image, &mount]).succeeds();
    let shown = names(&scratch);
    // At most what one partial segment held is missing.
    assert!(shown.len() >= FILES - 2 && shown.len() < FILES, "{shown:?}");
    for name in &shown {
        assert_eq!(fs::read(scratch.inside(name)).unwrap(), b"contents", "{name}");
    }
    let error = fs::write(scratch.inside("new"), "x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let info = scratch.dendro(["info", &mount]).succeeds();
    assert!(info.out.contains("no state that ever was"), "{info:?}");
    scratch.dendro(["umount", &mount]).succeeds();
    assert!(fs::read(scratch.image()).unwrap() == before, "something was written");

    scratch.dendro(["mount", "-o", "recover=truncate", &image, &mount]).succeeds();
    assert_eq!(names(&scratch), left);
    fs::write(scratch.inside("new"), "x").unwrap();
    scratch.dendro(["umount", &mount]).succeeds();
    scratch.dendro(["mount", &image, &mount]).succeeds();
    assert_eq!(names(&scratch).len(), left.len() + 1);
    let snapshots = scratch.dendro(["snapshot", "list", &mount]).succeeds();
    assert!(snapshots.out.contains("recovered-"), "{snapshots:?}");
}
