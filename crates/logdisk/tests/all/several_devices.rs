//! A disk on two devices: what is wrong on one is read from the other, and mended. A disk that is
//! spread over devices: the loss of one loses no metadata.
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

/// A member that is open for reading only.
struct ReadOnly(Member);

impl Device for ReadOnly {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> dendro_device::Result<()> {
        Err(dendro_device::Error::ReadOnly)
    }
    fn flush(&self) -> dendro_device::Result<()> {
        Ok(())
    }
    fn discard(&self, _offset: u64, _len_bytes: u64) -> dendro_device::Result<()> {
        Ok(())
    }
}

/// Reads what lies on these members of a spread volume: all records, and how many pages there are.
fn read_without_the_others(members: &[&Member]) -> u64 {
    let found = members
        .iter()
        .filter_map(|member| Found::look(ReadOnly(Arc::clone(member)), "member".into()).ok());
    let found = found.collect();
    let set = Arc::new(DeviceSet::assemble(found, true, clock()).unwrap());
    let options = OpenOptions { read_only: true, cache_size_bytes: 64 << 10, ..open_options() };
    let disk = LogDisk::open(set, options, clock()).unwrap();
    for index in 0..RECORDS {
        assert!(disk.record(View::HEAD, LIST, index).unwrap().is_some(), "{index}");
    }
    let mut found = vec![0; PAGE_SIZE];
    let mut is_read = |number: &u64| {
        let read = disk.read_pages(View::HEAD, LIST, *number, &mut found);
        assert!(read.is_err() || found == page(*number), "page {number}");
        read.is_ok()
    };
    (0..PAGES).filter(|number| is_read(number)).count() as u64
}

const RECORDS: u64 = 20_000;

fn open_options() -> OpenOptions {
    OpenOptions { is_on_set: true, ..OpenOptions::default() }
}

#[test]
fn the_loss_of_a_device_of_a_spread_volume_loses_no_metadata() {
    let lens = [20 << 20, 33 << 20, 24 << 20];
    let members = lens.map(|len| Arc::new(MemoryDevice::new(len)));
    let named = (1..).zip(&members);
    let named = named.map(|(at, it)| (Uuid([at; 16]), "".into(), Arc::clone(it))).collect();
    let uuid = Uuid([9; 16]);
    let made = DeviceSet::create_spread(uuid, 17, named, clock()).unwrap();
    let device: Arc<dyn Device> = Arc::new(made);
    let options = FormatOptions {
        segment_size_bytes: 128 << 10,
        uuid,
        is_on_set: true,
        is_spread: true,
        metadata_copies: 2,
        ..FormatOptions::default()
    };
    format(&device, &options, &clock()).unwrap();
    drop(device);
    let all = set(&members, false);
    let disk = LogDisk::open(Arc::clone(&all) as Arc<dyn Device>, open_options(), clock()).unwrap();
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(LIST, ListHints::default());
    disk.commit(aru).unwrap();
    for round in 0..10 {
        let mut aru = Aru::new(View::HEAD);
        for number in (round * PAGES / 10)..((round + 1) * PAGES / 10) {
            aru.write_pages(LIST, number, page(number));
        }
        for index in (0..RECORDS).filter(|index| index % 10 == round) {
            aru.put_record(LIST, index, vec![index as u8; 100]);
        }
        disk.commit(aru).unwrap();
        disk.checkpoint().unwrap();
    }
    disk.shut_down().unwrap();
    all.close().unwrap();
    drop((disk, all));
    for lost in 0..3 {
        let left: Vec<&Member> = (0..3).filter(|at| *at != lost).map(|at| &members[at]).collect();
        let read = read_without_the_others(&left);
        assert!((PAGES / 4..PAGES).contains(&read), "{read} of {PAGES} pages without {lost}");
    }
}
