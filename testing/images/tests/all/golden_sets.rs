//! Volumes on several devices, of every version so far, are read and written by this one.

use std::sync::Arc;

use dendro_check::{FindingKind, Options, verify};
use dendro_device::{Device, Error, MemoryDevice, Result};
use dendro_disk::{Aru, Lid, LogicalDisk, View};
use dendro_images::contents::End;
use dendro_images::manifest;
use dendro_images::sets::{GoldenSet, Kind, Member, all, assemble, devices, make, name, open};
use dendro_set::DeviceSet;

fn every_set(test: impl Fn(&GoldenSet)) {
    let sets = all().expect("the images can be read");
    assert!(!sets.is_empty());
    sets.iter().for_each(test);
}

fn set_of(members: &[Member]) -> Arc<DeviceSet<Member>> {
    Arc::new(assemble(members.to_vec()).expect("they are a set"))
}

fn findings(set: &DeviceSet<Member>) -> Vec<FindingKind> {
    let report = verify(set, &Options { data: true });
    report.findings.into_iter().map(|finding| finding.kind).collect()
}

/// A member that can be read only.
struct ReadOnly(MemoryDevice);

impl Device for ReadOnly {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }
}

#[test]
fn the_current_version_has_its_sets_and_makes_the_same_today() {
    let kept = all().expect("the images can be read");
    for kind in Kind::ALL {
        for end in [End::Clean, End::Crashed] {
            let of_today = kept.iter().find(|set| set.name == name(kind, end));
            let of_today = of_today.expect("make them with `cargo run -p dendro-images`");
            let made = make(kind, end).unwrap();
            assert!(made.manifest == of_today.manifest, "{}", of_today.name);
        }
    }
}

#[test]
fn the_fast_member_of_a_set_is_known_and_so_are_its_segments() {
    every_set(|golden| {
        let set = set_of(&devices(&golden.members));
        let are_fast = set.members().into_iter().map(|member| member.is_fast);
        let has_tiers = golden.name.contains("-tiers");
        assert_eq!(are_fast.collect::<Vec<_>>(), [has_tiers, false], "{}", golden.name);
        let disk = open(&set, true).unwrap();
        let fast = disk.segments(0, usize::MAX).into_iter().filter(|segment| segment.is_fast);
        assert_eq!(fast.count() > 0, has_tiers, "{}", golden.name);
    });
}

#[test]
fn every_set_holds_what_it_held_and_is_sound() {
    every_set(|golden| {
        let members = devices(&golden.members);
        let set = set_of(&members);
        let expected: &[_] =
            if golden.name.ends_with("clean") { &[] } else { &[FindingKind::LogGoesOn] };
        assert_eq!(findings(&set), expected, "{}", golden.name);
        let disk = open(&set, true).unwrap();
        assert!(manifest::of(&disk).unwrap() == golden.manifest, "{}", golden.name);
        drop(disk);
        let images: Vec<Vec<u8>> = members.iter().map(|member| member.to_bytes()).collect();
        assert!(images == golden.members, "{}: reading has changed it", golden.name);
        assert!(manifest::of(&open(&set, false).unwrap()).unwrap() == golden.manifest);
    });
}

#[test]
fn every_set_can_be_written_to_and_gets_and_loses_members() {
    every_set(|golden| {
        let mut members = devices(&golden.members);
        let set = set_of(&members);
        let disk = open(&set, false).unwrap();
        let list = disk.allocate_list().unwrap();
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, Default::default()).put_record(list, 1, &b"new"[..]);
        aru.delete_list(Lid::FIRST);
        disk.commit(aru).unwrap();
        let old = set.members()[0].uuid;
        let new = dendro_base::Uuid::from_random([77; 16]);
        members.push(Arc::new(MemoryDevice::new(8 << 20)));
        set.add(Arc::clone(&members[2]), "2".into(), new, Some(old)).unwrap();
        // A mirror stays as long as the shortest of its members.
        if let Some(most_len_bytes) = set.most_len_bytes() {
            disk.grow(u64::MAX, most_len_bytes).unwrap();
        }
        while set.bring_up_step().unwrap().is_some() {}
        disk.shut_down().unwrap();
        set.close().unwrap();
        let set = set_of(&members[1..]);
        assert_eq!(findings(&set), [], "{}", golden.name);
        let disk = open(&set, true).unwrap();
        assert_eq!(disk.record(View::HEAD, list, 1).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(disk.hints(View::HEAD, Lid::FIRST).unwrap(), None);
    });
}

#[test]
fn each_member_alone_says_what_is_missing_and_shows_the_metadata() {
    every_set(|golden| {
        for bytes in &golden.members {
            let alone = devices(std::slice::from_ref(bytes));
            let refused = assemble(alone).map(drop).unwrap_err().to_string();
            assert!(refused.contains("not found"), "{refused}");
            let read_only = ReadOnly(MemoryDevice::from_bytes(bytes));
            let set = Arc::new(assemble(vec![read_only]).unwrap());
            if golden.name.ends_with("clean") {
                let disk = open(&set, true).unwrap();
                let lists = disk.lists(View::HEAD, Lid(0), 1000).unwrap();
                let wanted = golden.manifest.lines().filter(|line| line.starts_with("list"));
                assert_eq!(lists.len(), wanted.count(), "{}", golden.name);
            }
        }
    });
}
