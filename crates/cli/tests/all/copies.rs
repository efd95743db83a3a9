//! Volumes that keep their metadata twice: they say so, live with the loss of one copy, and a scrub
//! makes the pair whole again.

use std::fs;

use crate::common::{Scratch, skips_mounts};
use dendro_check::find_superblocks;
use dendro_device::MemoryDevice;
use dendro_format::{Checkpoint, checksum};
use serde_json::Value;

fn volume() -> Scratch {
    let scratch = Scratch::new();
    let image = scratch.image();
    scratch.dendro(["mkfs", "--metadata-copies", "2", "--size", "64M", &image]).succeeds();
    scratch
}

/// Destroys all segments of the map, or else their mirrors.
fn destroy(image: &str, scratch: &Scratch, mirrors: bool) {
    let dumped = scratch.dendro(["dump", "--json", image, "checkpoint"]).succeeds();
    let dumped: Value = serde_json::from_str(&dumped.out).unwrap();
    let size = scratch.info(image)["segment_bytes"].as_u64().unwrap() as usize;
    let mut bytes = fs::read(image).unwrap();
    let pairs = dumped["checkpoint"]["mirrors"].as_array().unwrap();
    assert!(!pairs.is_empty(), "{dumped}");
    for pair in pairs {
        let lost = if mirrors { &pair["mirror"] } else { &pair["segment"] };
        let start = lost.as_u64().unwrap() as usize * size;
        bytes[start..start + size].fill(0xa5);
    }
    fs::write(image, bytes).unwrap();
}

#[test]
fn a_volume_says_how_often_its_map_is_kept() {
    let scratch = volume();
    let image = scratch.image();
    let info = scratch.info(&image);
    assert_eq!(info["metadata_copies"], 2, "{info}");
    assert!(info["features"].to_string().contains("mirrors"), "{info}");
    let said = scratch.dendro(["info", &image]).succeeds();
    assert!(said.out.contains("the map is kept twice\n"), "{said:?}");
    assert_eq!(info["unmirrored_bytes"], 0, "{info}");
    let checked = scratch.dendro(["check", "--json", &image]).succeeds();
    let checked: Value = serde_json::from_str(&checked.out).unwrap();
    assert_eq!(checked["counts"]["unmirrored_node_count"], 0, "{checked}");

    let once = scratch.text("once.img");
    scratch.dendro(["mkfs", "--size", "64M", &once]).succeeds();
    assert_eq!(scratch.info(&once)["metadata_copies"], 1);
    let said = scratch.dendro(["info", &once]).succeeds();
    assert!(!said.out.contains("twice"), "{said:?}");
    let thrice = scratch.text("thrice.img");
    scratch.dendro(["mkfs", "--metadata-copies", "3", "--size", "64M", &thrice]).fails(2, &["3"]);
}

/// Gives the checkpoint in force no mirrors.
fn forget_mirrors(image: &str) {
    let mut bytes = fs::read(image).unwrap();
    let found = find_superblocks(&MemoryDevice::from_bytes(&bytes)).unwrap();
    let mut superblock = found.current().superblock.clone();
    let at = superblock.checkpoint_addr.bytes() as usize;
    let end = at + superblock.checkpoint_len_bytes as usize;
    let mut checkpoint = Checkpoint::decode(&bytes[at..end], &superblock.uuid).unwrap();
    checkpoint.mirrors.clear();
    let encoded = checkpoint.encode();
    bytes[at..at + encoded.len()].copy_from_slice(&encoded);
    superblock.seq += 1;
    superblock.checkpoint_len_bytes = encoded.len() as u32;
    superblock.checkpoint_crc32c = checksum(&encoded);
    superblock.checkpoint_mirror = None;
    let at = superblock.layout.superblock_offset(superblock.seq) as usize;
    let slot = superblock.encode();
    bytes[at..at + slot.as_slot().len()].copy_from_slice(slot.as_slot());
    fs::write(image, bytes).unwrap();
}

#[test]
fn what_is_kept_once_is_told() {
    let scratch = volume();
    let image = scratch.image();
    forget_mirrors(&image);
    let info = scratch.info(&image);
    assert!(info["unmirrored_bytes"].as_u64() > Some(0), "{info}");
    let said = scratch.dendro(["info", &image]).succeeds();
    assert!(said.out.contains("kept twice, but for"), "{said:?}");
    let checked = scratch.dendro(["check", "--json", &image]).succeeds();
    let checked: Value = serde_json::from_str(&checked.out).unwrap();
    let count = &checked["counts"]["unmirrored_node_count"];
    assert!(count.as_u64() > Some(0) && *count == checked["counts"]["node_count"], "{checked}");
    let said = scratch.dendro(["check", &image]).succeeds();
    assert!(said.out.contains("kept once; a scrub"), "{said:?}");
}

#[test]
fn the_loss_of_all_of_one_copy_costs_nothing_and_a_scrub_makes_it_anew() {
    for mirrors in [false, true] {
        let scratch = volume();
        let image = scratch.image();
        let has_files = !skips_mounts();
        if has_files {
            scratch.mount();
            fs::create_dir(scratch.inside("directory")).unwrap();
            fs::write(scratch.inside("directory/file"), "contents").unwrap();
            scratch.umount();
        }
        destroy(&image, &scratch, mirrors);
        let checked = scratch.dendro(["check", "--data", &image]);
        assert_eq!(checked.code, Some(4), "{checked:?}");
        for part in ["warning 12", "warning 28", "a scrub"] {
            assert!(checked.out.contains(part), "{checked:?}");
        }
        assert!(!checked.out.contains("error"), "{checked:?}");
        // It keeps no computer from booting.
        scratch.dendro(["check", "-p", "-f", &image]).succeeds();
        scratch.dendro(["ls", &image, "/"]).succeeds();
        if !has_files {
            continue;
        }
        scratch.mount();
        assert_eq!(fs::read_to_string(scratch.inside("directory/file")).unwrap(), "contents");
        let mount = scratch.mount_point();
        let scrubbed = scratch.dendro(["scrub", "--wait", "--json", &mount]);
        let outcome: Value = serde_json::from_str(&scrubbed.out).unwrap();
        assert_eq!(outcome["state"], "finished", "{scrubbed:?}");
        assert!(outcome["found_count"].as_u64() > Some(0), "{scrubbed:?}");
        let damage = scratch.dendro(["damage", &mount]);
        assert!(damage.out.contains("a checkpoint"), "{damage:?}");
        scratch.umount();
        scratch.dendro(["check", "--data", &image]).succeeds();
        assert_eq!(scratch.info(&image)["metadata_copies"], 2);
    }
}
