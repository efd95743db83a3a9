//! A disk on a fast device and a slow one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

use std::sync::Arc;

use dendro_base::{Rng, Uuid};
use dendro_check::{Options, verify};
use dendro_device::Device;
use dendro_device::sim::SimDevice;
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::external::SegmentStatus;
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};
use dendro_set::{DeviceSet, Found};

use crate::common::clock;

const SEGMENT: u64 = 128 << 10;
const LIST: Lid = Lid(1);
const SLOW: usize = 0;
const FAST: usize = 1;

type Member = Arc<SimDevice>;

struct Tiered {
    members: [Member; 2],
    set: Arc<DeviceSet<Member>>,
    disk: LogDisk,
}

/// A volume on a slow device and a faster one, if that is to be one, of so many segments each.
fn tiered(slow: u64, fast: u64, is_fast: bool) -> Tiered {
    let len_bytes = |segments: u64| (segments + 3) * SEGMENT + (128 << 10);
    let members = [slow, fast].map(|segments| Arc::new(SimDevice::new(len_bytes(segments), 1)));
    let uuid = |at: usize| Uuid([at as u8 + 1; 16]);
    let named = members.iter().enumerate();
    let named = named.map(|(at, it)| (uuid(at), "".into(), Arc::clone(it))).collect();
    let volume = Uuid([9; 16]);
    let made = DeviceSet::create_spread(volume, 17, named, clock()).unwrap();
    made.set_fast(&uuid(FAST), is_fast).unwrap();
    let device: Arc<dyn Device> = Arc::new(made);
    let options = FormatOptions {
        segment_size_bytes: SEGMENT,
        uuid: volume,
        is_on_set: true,
        is_spread: true,
        metadata_copies: 1,
        ..FormatOptions::default()
    };
    format(&device, &options, &clock()).unwrap();
    drop(device);
    let tiered = opened(members);
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(LIST, ListHints::default());
    tiered.disk.commit(aru).unwrap();
    tiered
}

fn opened(members: [Member; 2]) -> Tiered {
    let look = |member: &Member| Found::look(Arc::clone(member), "".into()).ok();
    let found = members.iter().filter_map(look).collect();
    let set = Arc::new(DeviceSet::assemble(found, false, clock()).unwrap());
    let options = OpenOptions { is_on_set: true, stream_bytes: 0, ..OpenOptions::default() };
    let disk = LogDisk::open(Arc::clone(&set) as Arc<dyn Device>, options, clock()).unwrap();
    Tiered { members, set, disk }
}

fn page(seed: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    Rng::new(seed).fill(&mut page);
    page
}

impl Tiered {
    fn write(&self, first: u64, seeds: std::ops::Range<u64>) -> Result<(), Error> {
        let mut aru = Aru::new(View::HEAD);
        let pages: Vec<u8> = seeds.flat_map(page).collect();
        aru.write_pages(LIST, first, pages);
        self.disk.commit(aru).map(drop)
    }

    fn fsync(&self, number: u64, seed: u64) {
        self.write(number, seed..seed + 1).unwrap();
        self.disk.flush(CommitSeq::LATEST).unwrap();
    }

    /// The writes and flushes of a member so far.
    fn changes(&self, member: usize) -> u64 {
        let counts = self.members[member].counts();
        counts.writes + counts.flushes
    }

    /// Of the fast segments, how many there are of which that holds.
    fn fast_segments(&self, is: impl Fn(SegmentStatus) -> bool) -> usize {
        let all = self.disk.segments(0, 8192);
        let is_fast = |number: u32| self.set.part_at(u64::from(number) * SEGMENT).unwrap().is_fast;
        let counted = all.iter().filter(|it| is(it.status) && is_fast(it.number));
        counted.count()
    }

    fn work(&self) {
        while self.disk.background_step().unwrap() {}
    }

    fn check(self) {
        self.disk.shut_down().unwrap();
        self.set.close().unwrap();
        drop((self.disk, self.set));
        let again = opened(self.members);
        drop(again.disk);
        let found = verify(&*again.set, &Options { data: true }).findings;
        assert!(found.is_empty(), "{found:?}");
    }
}

/// The writes and flushes of the slow device while clients flush small writes.
fn slow_changes(is_fast: bool) -> u64 {
    let tiered = tiered(200, 60, is_fast);
    tiered.work();
    let before = tiered.changes(SLOW);
    for number in 0..500 {
        tiered.fsync(number % 100, number);
    }
    let changes = tiered.changes(SLOW) - before;
    assert!(tiered.changes(FAST) >= if is_fast { 1000 } else { 0 });
    tiered.check();
    changes
}

#[test]
fn what_is_flushed_goes_to_the_fast_device_alone() {
    assert_eq!(slow_changes(true), 0);
    assert!(slow_changes(false) > 500);
}

#[test]
fn what_is_cold_makes_room_on_the_fast_device() {
    let tiered = tiered(300, 40, true);
    // More than the fast device holds, in pieces, and the log goes on there.
    let all_pages = 40 * SEGMENT / PAGE_SIZE as u64 * 3;
    for first in (0..all_pages).step_by(16) {
        tiered.write(first, first..first + 16).unwrap();
        tiered.work();
    }
    tiered.disk.checkpoint().unwrap();
    assert!(tiered.fast_segments(|it| it == SegmentStatus::Clean) >= 10);
    let before = tiered.changes(SLOW);
    for number in 0..20 {
        tiered.fsync(number, all_pages + number);
    }
    assert_eq!(tiered.changes(SLOW), before);
    let mut read = vec![0; PAGE_SIZE];
    for number in 20..all_pages {
        tiered.disk.read_pages(View::HEAD, LIST, number, &mut read).unwrap();
        assert_eq!(read, page(number), "{number}");
    }
    tiered.check();
}

#[test]
fn a_full_volume_with_few_fast_segments_is_filled_and_emptied_again_and_again() {
    for fast in [1, 3, 9] {
        let tiered = tiered(40, fast, true);
        let mut rng = Rng::new(fast);
        let mut least = u64::MAX;
        for round in 0..6 {
            let mut number = 0;
            let full = loop {
                if rng.chance(30) {
                    tiered.disk.background_step().unwrap();
                }
                match tiered.write(number, number..number + 8) {
                    Ok(()) => number += 8,
                    Err(error) => break error,
                }
            };
            assert!(matches!(full, Error::NoSpace { .. }), "{full}");
            least = least.min(number);
            // Overwriting what is there goes on for as long as one likes.
            for _ in 0..100 {
                let first = rng.below(number / 8) * 8;
                match tiered.write(first, round..round + 8) {
                    Ok(()) | Err(Error::NoSpace { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            let mut aru = Aru::new(View::HEAD);
            aru.punch_pages(LIST, 0, number);
            tiered.disk.commit(aru).unwrap();
            tiered.work();
        }
        assert!(least * PAGE_SIZE as u64 > 20 * SEGMENT, "{least} pages with {fast} fast segments");
        tiered.check();
    }
}
