//! A disk on two devices: what is wrong on one is read from the other, and mended.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

use std::sync::Arc;

use dendro_base::{Rng, Uuid};
use dendro_check::{Options, Volume, verify};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_format::Value;
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, Scrub, format};
use dendro_set::{DeviceSet, Found};

use crate::common::clock;

const LEN: u64 = 24 << 20;
const PAGES: u64 = 700;
const LIST: Lid = Lid(1);

type Member = Arc<MemoryDevice>;

fn set(members: &[Member], is_degraded: bool) -> Arc<DeviceSet<Member>> {
    let look = |(at, member): (usize, &Member)| {
        Found::look(Arc::clone(member), format!("{at}").into()).ok()
    };
    let found = members.iter().enumerate().filter_map(look).collect();
    Arc::new(DeviceSet::assemble(found, is_degraded, clock()).unwrap())
}

fn open(set: &Arc<DeviceSet<Member>>) -> LogDisk {
    // Next to no node stays in memory.
    let cache_size_bytes = 64 << 10;
    let options = OpenOptions { is_on_set: true, cache_size_bytes, ..OpenOptions::default() };
    LogDisk::open(Arc::clone(set) as Arc<dyn Device>, options, clock()).unwrap()
}

fn page(number: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    Rng::new(number).fill(&mut page);
    page
}

/// A volume with pages of one list and records, and the two devices that it lies on.
fn filled() -> [Member; 2] {
    let members = [LEN; 2].map(|len| Arc::new(MemoryDevice::new(len)));
    let named = (1..).zip(&members);
    let named = named.map(|(at, it)| (Uuid([at; 16]), "".into(), Arc::clone(it))).collect();
    let uuid = Uuid([9; 16]);
    let device: Arc<dyn Device> = Arc::new(DeviceSet::create(uuid, named, clock()).unwrap());
    let options = FormatOptions {
        segment_size_bytes: 512 << 10,
        uuid,
        is_on_set: true,
        ..FormatOptions::default()
    };
    format(&device, &options, &clock()).unwrap();
    drop(device);
    let both = set(&members, false);
    let disk = open(&both);
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(LIST, ListHints::default());
    for number in 0..PAGES {
        aru.write_pages(LIST, number, page(number));
    }
    for index in 0..2000 {
        aru.put_record(LIST, index, vec![index as u8; 100]);
    }
    disk.commit(aru).unwrap();
    disk.shut_down().unwrap();
    both.close().unwrap();
    members
}

/// Changes a byte of each block and each node, on the two devices in turn.
fn damage_all(members: &[Member; 2]) {
    let whole = set(members, false);
    let volume = Volume::open(&*whole).unwrap();
    let checkpoint = volume.checkpoint().unwrap();
    let mut places = Vec::new();
    for (_, value) in volume.entries(&checkpoint, None, None).flatten() {
        if let Value::Chunk(chunk) = value {
            let here = chunk.iter().filter(|(_, page)| page.len_bytes > 0);
            places.extend(here.map(|(_, page)| page.addr.bytes()));
        }
    }
    assert!(places.len() as u64 >= PAGES);
    let root = checkpoint.root.unwrap().0;
    places.push(root.addr.bytes());
    for (number, at) in places.into_iter().enumerate() {
        let member = &members[number % 2];
        let base = at - at % PAGE_SIZE as u64;
        let mut block = vec![0; PAGE_SIZE];
        member.read_at(base, &mut block).unwrap();
        block[(at - base) as usize + 20] ^= 0x40;
        member.write_at(base, &block).unwrap();
    }
}

fn read_all(disk: &LogDisk) {
    for number in 0..PAGES {
        let mut found = vec![0; PAGE_SIZE];
        disk.read_pages(View::HEAD, LIST, number, &mut found).unwrap();
        assert!(found == page(number), "page {number}");
    }
    for index in 0..2000 {
        assert!(disk.record(View::HEAD, LIST, index).unwrap().is_some());
    }
}

#[test]
fn reads_find_the_copy_that_is_right() {
    let members = filled();
    damage_all(&members);
    let both = set(&members, false);
    read_all(&open(&both));
    assert!(both.members().iter().all(|member| member.failed_reads > 0));
}

#[test]
fn a_scrub_makes_each_device_whole_again() {
    let members = filled();
    damage_all(&members);
    let both = set(&members, false);
    let disk = open(&both);
    let mut scrub = Scrub::new();
    while disk.scrub_step(&mut scrub).unwrap() {}
    assert_eq!(scrub.progress().found_count, 0);
    assert!(!both.take_notes().is_empty());
    disk.shut_down().unwrap();
    drop(disk);
    both.close().unwrap();
    for member in &members {
        let alone = set(std::slice::from_ref(member), true);
        let report = verify(&*alone, &Options { data: true });
        assert!(report.is_sound(), "{report}");
    }
    read_all(&open(&set(&members[1..], true)));
}
