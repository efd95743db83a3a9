//! Maps whose nodes are sound one by one, and lie where they must not: cycles, keys that belong
//! elsewhere, one node in two places. Reading them is an error, and never without an end.

use std::sync::Arc;

use dendro_base::ManualClock;
use dendro_check::{Finding, FindingKind, Options, Volume, verify};
use dendro_device::MemoryDevice;
use dendro_disk::{Aru, Error, Lid, ListHints, LogicalDisk, View};
use dendro_format::{ChildPtr, Entries, Key, NodePtr, Value, node};
use dendro_images::forge::Forge;
use dendro_images::hostile;
use dendro_logdisk::{LogDisk, OpenOptions};

use crate::common::new_disk;

const RECORDS: u64 = 2000;

/// A volume whose map has some fifty leaves under one root.
fn image() -> Vec<u8> {
    let (disk, device) = new_disk(16 << 20, 256 << 10, OpenOptions::default());
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(Lid::FIRST, ListHints::default());
    for index in 0..RECORDS {
        aru.put_record(Lid::FIRST, index, vec![index as u8; 200]);
    }
    disk.commit(aru).expect("the device works");
    disk.shut_down().expect("the device works");
    device.to_bytes()
}

/// Whatever is asked of the volume is answered, and each record is as it was or an error.
fn check(what: &str, kind: FindingKind, change: impl FnOnce(NodePtr, &mut [(Key, ChildPtr)])) {
    let image = Forge::new(&image()).expect("it is sound").with_root(change);
    dendro_check::testing::image(&image);
    let report = verify(&MemoryDevice::from_bytes(&image), &Options { data: false });
    assert!(report.findings.iter().any(|finding| finding.kind == kind), "{what}: {report}");
    hostile::exercise(&image);
    for read_only in [true, false] {
        let device = Arc::new(MemoryDevice::from_bytes(&image));
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        let disk = match LogDisk::open(device, options, Arc::new(ManualClock::default())) {
            Ok(disk) => disk,
            Err(Error::Corrupted(why)) => {
                assert!(why.contains("the map's node"), "{what}: {why}");
                continue;
            }
            Err(error) => panic!("{what}: {error}"),
        };
        let mut errors = 0;
        for index in 0..RECORDS {
            match disk.record(View::HEAD, Lid::FIRST, index) {
                Ok(record) => {
                    assert_eq!(record.as_deref(), Some(&[index as u8; 200][..]), "{what}")
                }
                Err(Error::Corrupted(_)) => errors += 1,
                Err(error) => panic!("{what}: {error}"),
            }
        }
        assert!(errors > 0, "{what}");
        assert!(disk.records(View::HEAD, Lid::FIRST, 0, usize::MAX).is_err(), "{what}");
        let mut aru = Aru::new(View::HEAD);
        aru.delete_list(Lid::FIRST);
        let _ = disk.commit(aru);
        while matches!(disk.background_step(), Ok(true)) {}
    }
}

#[test]
fn a_root_that_is_its_own_child_is_an_error() {
    check("the first child", FindingKind::NodeLevel, |root, children| children[0].1.place = root);
    check("the last", FindingKind::NodeLevel, |root, children| {
        children.last_mut().unwrap().1.place = root;
    });
}

#[test]
fn children_that_have_changed_places_are_an_error() {
    check("two in the middle", FindingKind::NodeKeys, |_, children| {
        let (one, other) = (children[7].1, children[8].1);
        (children[7].1, children[8].1) = (other, one);
    });
}

#[test]
fn a_child_in_two_places_is_an_error() {
    check("one twice", FindingKind::NodeKeys, |_, children| children[9].1 = children[8].1);
}

#[test]
fn an_epoch_that_has_not_been_is_an_error() {
    let (disk, device) = new_disk(16 << 20, 256 << 10, OpenOptions::default());
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(Lid::FIRST, ListHints::default()).put_record(Lid::FIRST, 7, vec![7; 50]);
    disk.commit(aru).expect("the device works");
    disk.shut_down().expect("the device works");
    let image = device.to_bytes();
    let uuid = Volume::open(&*device).expect("it is sound").superblock().uuid;
    let forge = Forge::new(&image).expect("it is sound");
    let place = forge.nodes().next().expect("the map has a node").clone();
    for epoch in [0, 9] {
        let image = forge.forge(|image| {
            let bytes = &mut image[place.clone()];
            let Ok((info, Entries::Leaf(mut entries))) = node::decode(bytes, &uuid) else {
                panic!("the map is one leaf");
            };
            entries.iter_mut().for_each(|(key, _)| key.epoch = epoch);
            let with_record = |len: usize| {
                let of = |(key, value): &(Key, Value)| match value {
                    Value::Record(_) if key.list == Lid::FIRST.0 => {
                        (*key, Value::Record(vec![7; len].into()))
                    }
                    _ => (*key, value.clone()),
                };
                node::encode(&info, &Entries::Leaf(entries.iter().map(of).collect())).0
            };
            let changed = (0..100).map(with_record).find(|changed| changed.len() == bytes.len());
            bytes.copy_from_slice(&changed.expect("a record of some length takes as much"));
        });
        let report = verify(&MemoryDevice::from_bytes(&image), &Options { data: false });
        let is_found = |of: &Finding| of.kind == FindingKind::EntryEpoch;
        assert!(report.findings.iter().any(is_found), "epoch {epoch}: {report}");
        hostile::exercise(&image);
    }
}
