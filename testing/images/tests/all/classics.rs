//! Damage that a checker is tried with from of old, as far as no other test does it.

use dendro_check::{Options, Restored, Volume, verify};
use dendro_device::MemoryDevice;
use dendro_disk::{Versions, View};
use dendro_format::Entries;
use dendro_format::versions::VERSIONS_LIST;

use crate::rebuild::{
    SEGMENT_LEN_BYTES, Whole, assert_sound, busy_rounds, contents, contents_if_any, destroy,
    destroy_older_checkpoints, difference, open, rebuilt, rebuilt_on, volumes,
};

/// A segment that is what it was some time ago: the device has lost all writes to it since.
#[test]
fn a_segment_may_be_an_older_copy_of_itself() {
    let (mut tried, mut noticed) = (0, 0);
    for (seed, has_versions) in [(1, false), (2, true)] {
        let rounds = busy_rounds(seed, has_versions);
        let (whole, before) = (&rounds[3], contents(&rounds[3]));
        for (round, older) in rounds[..3].iter().enumerate() {
            for at in (2..whole.len() / SEGMENT_LEN_BYTES).map(|of| of * SEGMENT_LEN_BYTES) {
                let segment = at..at + SEGMENT_LEN_BYTES;
                if older[segment.clone()] == whole[segment.clone()] {
                    continue;
                }
                let what = format!("busy {seed}, byte {at} of round {round}");
                let mut bytes = whole.clone();
                bytes[segment.clone()].copy_from_slice(&older[segment]);
                tried += 1;

                // What can be read is never what was there before.
                let read = contents_if_any(&bytes);
                let differs = |found| difference(&before, &found);
                assert_eq!(read.clone().and_then(differs), None, "{what}");
                let report = verify(&MemoryDevice::from_bytes(&bytes), &Options { data: true });
                assert!(read.is_some() || !report.is_sound(), "{what}: {report}");
                noticed += u32::from(!report.is_sound());

                let device = MemoryDevice::from_bytes(&bytes);
                let report = rebuilt_on(&device).expect("it can be rebuilt");
                assert_sound(&device.to_bytes(), &what);
                if report.is_complete() {
                    // Blocks may have lain in the segment, too.
                    let found = contents_if_any(&device.to_bytes());
                    assert_eq!(found.and_then(differs), None, "{what}: {report:?}");
                }
            }
        }
    }
    assert!(tried > 50 && noticed > 30, "{noticed} of {tried} copies were noticed");
}

/// The leaves that have the entries of snapshots and branches are lost, with all that an older
/// checkpoint has of them.
#[test]
fn the_entries_of_snapshots_may_be_gone() {
    let has_snapshots = |of: &&Whole| of.before.table().snapshots().next().is_some();
    let (mut known, mut lost) = (0, 0);
    for Whole { name, bytes: whole, before } in volumes().iter().filter(has_snapshots) {
        let mut bytes = whole.clone();
        destroy_older_checkpoints(&mut bytes);
        let device = MemoryDevice::from_bytes(whole);
        let volume = Volume::open(&device).expect("it works");
        let mut has_leaf = false;
        for node in volume.nodes(&volume.checkpoint().expect("it works")).flatten() {
            let Entries::Leaf(entries) = &node.entries else { continue };
            if entries.iter().any(|(key, _)| key.list == VERSIONS_LIST) {
                destroy(&mut bytes, &node.place);
                has_leaf = true;
            }
        }
        if !has_leaf {
            // The log behind the checkpoint has them.
            continue;
        }
        assert!(open(&bytes).is_err(), "{name}: it is not known what versions there are");
        let report = rebuilt(&mut bytes);
        assert_sound(&bytes, name);
        let (disk, _) = open(&bytes).expect("it was opened just now");
        let table = disk.versions();
        let is_there = |view: View| table.views().any(|of| of == view);
        assert!(before.table().branches().all(|branch| is_there(branch.head())), "{name}");
        let is_lost = |part: &Restored| {
            !part.is_complete && (part.from.list..=part.to.list).contains(&VERSIONS_LIST)
        };
        if !report.restored.iter().any(is_lost) {
            // The log has what the leaves had.
            assert!(before.table().views().all(is_there), "{name}: {report:?}");
            known += 1;
        }
        lost += u32::from(report.restored.iter().any(is_lost));
    }
    assert!(known > 0 && lost > 0, "{known} and {lost}");
}
