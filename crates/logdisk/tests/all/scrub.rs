//! Scrubbing finds what is damaged, all of it and nothing else, whatever others do meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dendro_base::Rng;
use dendro_check::Volume;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_format::{Entries, Head, Key, PageRef, Space, Value};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, Part, Scrub, format};

use crate::common::clock;

const MIB: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = 512 << 10;

fn make(device: &Arc<dyn Device>) {
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(device, &options, &clock()).expect("the device is large enough");
}

fn open_with(device: &Arc<dyn Device>, options: OpenOptions) -> LogDisk {
    LogDisk::open(Arc::clone(device), options, clock()).expect("it was formatted")
}

fn open(device: &Arc<dyn Device>) -> LogDisk {
    open_with(device, OpenOptions::default())
}

fn new_list(disk: &LogDisk, view: View) -> Lid {
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(view);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    list
}

/// Writes some pages and records of random sizes.
fn write(disk: &LogDisk, view: View, list: Lid, rng: &mut Rng) {
    let mut aru = Aru::new(view);
    let first_page = rng.below(600);
    let len = match rng.below(3) {
        0 => 1 + rng.below(PAGE_SIZE as u64) as usize,
        _ => PAGE_SIZE * (1 + rng.below(20) as usize),
    };
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    aru.write_pages(list, first_page, bytes);
    aru.put_record(list, rng.below(300), vec![7; 1 + rng.below(200) as usize]);
    if rng.chance(10) {
        aru.punch_pages(list, rng.below(600), rng.below(50));
    }
    disk.commit(aru).expect("there is room");
}

/// Lists with pages that only a snapshot, a clone or the head has.
fn fill(disk: &LogDisk, seed: u64) -> Vec<(View, Lid)> {
    let mut rng = Rng::new(seed);
    let mut lists: Vec<_> = (0..6).map(|_| (View::HEAD, new_list(disk, View::HEAD))).collect();
    for round in 0..3 {
        for _ in 0..60 {
            let (view, list) = lists[rng.below(lists.len() as u64) as usize];
            write(disk, view, list, &mut rng);
        }
        disk.snapshot(0, None).expect("there is room");
        if round == 1 {
            let clone = disk.branch_off(View::HEAD, "clone").expect("there is room").head();
            lists.push((clone, lists[0].1));
        }
        disk.checkpoint().expect("the device works");
    }
    lists
}

fn volume(len_bytes: u64, seed: u64) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(len_bytes));
    make(&device);
    let disk = open(&device);
    fill(&disk, seed);
    disk.shut_down().expect("the device works");
    device
}

/// The blocks that the map on the device names, by their addresses in bytes.
fn blocks(device: &dyn Device) -> BTreeMap<u64, (Key, PageRef)> {
    let volume = Volume::open(device).expect("it is a volume");
    let checkpoint = volume.checkpoint().expect("it is sound");
    let mut blocks = BTreeMap::new();
    for (key, value) in volume.entries(&checkpoint, None, None).flatten() {
        if let Value::Chunk(chunk) = value {
            let here = chunk.iter().filter(|(_, page)| page.len_bytes > 0);
            blocks.extend(here.map(|(_, page)| (page.addr.bytes(), (key, page))));
        }
    }
    blocks
}

/// Changes a byte on the device.
fn damage(device: &dyn Device, at_bytes: u64) {
    let base = at_bytes - at_bytes % PAGE_SIZE as u64;
    let mut page = vec![0; PAGE_SIZE];
    device.read_at(base, &mut page).expect("the device works");
    page[(at_bytes - base) as usize] ^= 0x40;
    device.write_at(base, &page).expect("the device works");
}

fn scrub_to_end(disk: &LogDisk, scrub: &mut Scrub) {
    while disk.scrub_step(scrub).expect("the map is sound") {}
}

fn found(disk: &LogDisk) -> BTreeSet<u64> {
    disk.damage().places().iter().map(|of| of.addr_bytes).collect()
}

#[test]
fn damaged_blocks_of_heads_and_snapshots_are_found_and_nothing_else() {
    for seed in 0..8 {
        let device = volume(64 * MIB, seed);
        let blocks = blocks(&*device);
        let mut rng = Rng::new(seed + 100);
        let every = blocks.len() as u64 / 15;
        let chosen: BTreeSet<u64> =
            blocks.keys().copied().filter(|_| rng.below(every) == 0).collect();
        for addr in &chosen {
            let len_bytes = u64::from(blocks[addr].1.len_bytes);
            damage(&*device, addr + rng.below(len_bytes));
        }
        let disk = open(&device);
        // With so little memory there are many batches.
        let mut scrub = Scrub::new().with_memory(1 << (10 + seed));
        scrub_to_end(&disk, &mut scrub);
        assert_eq!(found(&disk), chosen, "seed {seed}");
        let progress = scrub.progress();
        assert_eq!(progress.found_count, chosen.len() as u64);
        let block_bytes: u64 = blocks.values().map(|(_, page)| u64::from(page.len_bytes)).sum();
        assert!(progress.checked_bytes > block_bytes);
        for place in disk.damage().places() {
            let Part::Page(list, page_index) = place.part else { panic!("{place:?}") };
            let key = blocks[&place.addr_bytes].0;
            assert_eq!((key.list, key.index), (list.0, page_index / 32));
        }
    }
}

/// A volume with so many records that its map has three levels.
fn with_high_map() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
    make(&device);
    let disk = open(&device);
    let lists: Vec<_> = (0..60).map(|_| new_list(&disk, View::HEAD)).collect();
    for (number, &list) in lists.iter().enumerate() {
        let mut aru = Aru::new(View::HEAD);
        for index in 0..400 {
            aru.put_record(list, index, vec![number as u8; 200]);
            aru.write_pages(list, 40 * index, vec![1 + number as u8; 300]);
        }
        disk.commit(aru).expect("there is room");
    }
    disk.shut_down().expect("the device works");
    device
}

#[test]
fn a_damaged_node_is_found_at_each_level_and_what_it_does_not_hide_is_still_read() {
    let device = with_high_map();
    let volume = Volume::open(&*device).expect("it is a volume");
    let checkpoint = volume.checkpoint().expect("it is sound");
    let nodes: Vec<_> = volume.nodes(&checkpoint).map(|node| node.expect("it is sound")).collect();
    let top = nodes[0].info.level;
    assert!(top >= 2);
    let blocks = blocks(&*device);
    for level in 0..top {
        let of_level: Vec<_> = nodes.iter().filter(|node| node.info.level == level).collect();
        let first_key = |node: &dendro_check::Node| match &node.entries {
            Entries::Leaf(leaf) => leaf[0].0,
            Entries::Inner(children) => children[0].0,
        };
        let range_of =
            |at: usize| (first_key(of_level[at]), of_level.get(at + 1).map(|next| first_key(next)));
        let hides = |at: &usize| {
            let (from, to) = range_of(*at);
            blocks.values().any(|(key, _)| *key >= from && to.is_none_or(|to| *key < to))
        };
        let at = (of_level.len() / 2..).find(hides).expect("there is one");
        let (node, (from, to)) = (of_level[at], range_of(at));
        let is_hidden = |key: &Key| *key >= from && to.is_none_or(|to| *key < to);
        let (before, behind) = {
            let seen = || blocks.iter().filter(|(_, (key, _))| !is_hidden(key));
            let before = *seen().find(|(_, (key, _))| *key < from).expect("there is one").0;
            (before, *seen().find(|(_, (key, _))| *key > from).expect("there is one").0)
        };
        let hidden = *blocks.iter().find(|(_, (key, _))| is_hidden(key)).expect("there is one").0;
        let memory = MemoryDevice::new(device.len_bytes());
        let mut all = vec![0; device.len_bytes() as usize];
        device.read_at(0, &mut all).expect("the device works");
        memory.write_at(0, &all).expect("the device works");
        let copy: Arc<dyn Device> = Arc::new(memory);
        let node_addr = node.place.addr.bytes();
        for at_bytes in [before, behind, hidden, node_addr + 40] {
            damage(&*copy, at_bytes);
        }
        let disk = open(&copy);
        let mut scrub = Scrub::new().with_memory(16 << 10);
        scrub_to_end(&disk, &mut scrub);
        assert_eq!(found(&disk), BTreeSet::from([before, behind, node_addr]), "level {level}");
        let node = disk.damage().places().into_iter().find(|of| of.addr_bytes == node_addr);
        assert_eq!(node.map(|of| of.part), Some(Part::Node));
        assert_eq!(scrub.progress().found_count, 3, "level {level}");
    }
}

#[test]
fn a_node_is_read_from_the_device_even_if_it_is_in_the_cache() {
    let device = with_high_map();
    let disk = open(&device);
    scrub_to_end(&disk, &mut Scrub::new());
    assert!(found(&disk).is_empty());
    let volume = Volume::open(&*device).expect("it is a volume");
    let checkpoint = volume.checkpoint().expect("it is sound");
    let leaf = volume.nodes(&checkpoint).flatten().last().expect("there is a map");
    damage(&*device, leaf.place.addr.bytes() + 20);
    scrub_to_end(&disk, &mut Scrub::new());
    assert_eq!(found(&disk), BTreeSet::from([leaf.place.addr.bytes()]));
}

#[test]
fn damaged_headers_and_records_of_the_log_are_found_if_blocks_lie_there() {
    for part in 0..2 {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
        make(&device);
        let (disk, mut rng) = (open(&device), Rng::new(5));
        let list = new_list(&disk, View::HEAD);
        for _ in 0..100 {
            // Flushed so often, all blocks stay in the main log.
            write(&disk, View::HEAD, list, &mut rng);
            disk.flush(CommitSeq::LATEST).expect("the device works");
        }
        disk.shut_down().expect("the device works");
        let volume = Volume::open(&*device).expect("it is a volume");
        let blocks = blocks(&*device);
        let layout = volume.layout();
        let mut chosen = BTreeSet::new();
        for segment in layout.log_segments() {
            let base = layout.segment_offset(segment);
            let partials: Vec<_> = volume.partials(segment).collect();
            let Some(at) = partials.len().checked_sub(1).map(|last| last / 2) else { continue };
            let header = partials[at].header;
            let here = base + u64::from(header.offset_bytes);
            let is_needed = blocks.range(here..base + SEGMENT_BYTES).next().is_some();
            if header.head != Head::Main || !is_needed {
                continue;
            }
            let in_records = u64::from(header.records_offset_bytes + header.records_len_bytes / 2);
            damage(&*device, here + [70, in_records][part]);
            chosen.insert(here);
        }
        assert!(chosen.len() > 3, "{chosen:?}");
        let disk = open(&device);
        let mut scrub = Scrub::new();
        scrub_to_end(&disk, &mut scrub);
        assert_eq!(found(&disk), chosen);
        assert!(disk.damage().places().iter().all(|of| of.part == Part::Records));
        assert_eq!(scrub.progress().found_count, chosen.len() as u64);
    }
}

#[test]
fn what_a_mount_begins_with_is_read_too() {
    let device = volume(64 * MIB, 5);
    let disk = open(&device);
    let superblock = disk.superblock();
    let checkpoint = superblock.checkpoint_addr.bytes();
    let slot = superblock.layout.superblock_offset(superblock.seq);
    damage(&*device, checkpoint + 30);
    damage(&*device, slot + 2000);
    let mut scrub = Scrub::new();
    scrub_to_end(&disk, &mut scrub);
    let parts: Vec<_> = disk.damage().places().iter().map(|of| (of.addr_bytes, of.part)).collect();
    assert_eq!(parts, [(slot, Part::Superblock), (checkpoint, Part::Checkpoint)]);
    assert_eq!(scrub.progress().found_count, 2);
    disk.damage().forget();
    disk.checkpoint().expect("the device works");
    scrub_to_end(&disk, &mut Scrub::new());
    assert!(found(&disk).is_empty(), "another checkpoint takes their place");
}

#[test]
fn a_pass_continues_where_it_was_after_the_volume_was_opened_again() {
    for (seed, is_clean) in [(1, true), (2, false), (3, true), (4, false)] {
        let device = volume(64 * MIB, seed);
        let blocks = blocks(&*device);
        let chosen: BTreeSet<u64> = blocks.keys().copied().step_by(blocks.len() / 12).collect();
        for &addr in &chosen {
            damage(&*device, addr);
        }
        let mut all_found = BTreeSet::new();
        let (mut position, mut restarts) = (Scrub::new().position(), 0);
        let whole_bytes = loop {
            let disk = open(&device);
            let pass = Scrub::resume(&position).expect("it is a position");
            let mut scrub = pass.with_memory(if seed < 3 { 4 << 10 } else { 16 << 20 });
            let before = scrub.progress().checked_bytes;
            let mut has_more = true;
            while has_more && scrub.progress().checked_bytes - before < MIB / 2 {
                has_more = disk.scrub_step(&mut scrub).expect("the map is sound");
            }
            all_found.extend(found(&disk));
            position = scrub.position();
            let list = new_list(&disk, View::HEAD);
            write(&disk, View::HEAD, list, &mut Rng::new(seed));
            if is_clean {
                disk.shut_down().expect("the device works");
            } else {
                disk.flush(CommitSeq::LATEST).expect("the device works");
            }
            if !has_more {
                break scrub.progress().checked_bytes;
            }
            restarts += 1;
        };
        assert!(restarts > 3, "{restarts}");
        assert_eq!(all_found, chosen, "seed {seed}");
        let disk = open(&device);
        let mut again = Scrub::new();
        scrub_to_end(&disk, &mut again);
        let live_bytes = again.progress().checked_bytes;
        assert!(whole_bytes < live_bytes + live_bytes / 10, "{whole_bytes} of {live_bytes} bytes");
    }
}

/// A device that counts what is read.
struct Counting {
    memory: MemoryDevice,
    read_bytes: AtomicU64,
    read_count: AtomicU64,
    longest_bytes: AtomicU64,
}

impl Device for Counting {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.read_bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.read_count.fetch_add(1, Ordering::Relaxed);
        self.longest_bytes.fetch_max(buf.len() as u64, Ordering::Relaxed);
        self.memory.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.memory.write_at(offset, bytes)
    }
    fn flush(&self) -> dendro_device::Result<()> {
        self.memory.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.memory.discard(offset, len_bytes)
    }
}

#[test]
fn each_block_is_read_once_in_long_reads_whatever_number_of_versions_see_it() {
    let counting = Arc::new(Counting {
        memory: MemoryDevice::new(64 * MIB),
        read_bytes: AtomicU64::new(0),
        read_count: AtomicU64::new(0),
        longest_bytes: AtomicU64::new(0),
    });
    let device = Arc::clone(&counting) as Arc<dyn Device>;
    make(&device);
    let disk = open(&device);
    let list = new_list(&disk, View::HEAD);
    for round in 0..20 {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, round * 128, vec![1 + round as u8; 128 * PAGE_SIZE]);
        disk.commit(aru).expect("there is room");
        disk.snapshot(0, None).expect("there is room");
    }
    disk.checkpoint().expect("the device works");
    let live_bytes = disk.stats().live_bytes;
    for counter in [&counting.read_bytes, &counting.read_count, &counting.longest_bytes] {
        counter.store(0, Ordering::Relaxed);
    }
    let mut scrub = Scrub::new();
    scrub_to_end(&disk, &mut scrub);
    let read_bytes = counting.read_bytes.load(Ordering::Relaxed);
    let reads = counting.read_count.load(Ordering::Relaxed);
    assert!(scrub.progress().checked_bytes <= live_bytes);
    assert!(read_bytes < live_bytes + live_bytes / 10, "{read_bytes} of {live_bytes} bytes");
    assert!(reads < live_bytes / (128 << 10), "{reads} reads");
    assert!(counting.longest_bytes.load(Ordering::Relaxed) <= 256 << 10);
}

#[test]
fn a_small_batch_holds_few_nodes_of_the_map_also_where_none_is_in_memory() {
    let device = with_high_map();
    let mut bytes = vec![0; device.len_bytes() as usize];
    device.read_at(0, &mut bytes).expect("the device works");
    let counting = Arc::new(Counting {
        memory: MemoryDevice::from_bytes(&bytes),
        read_bytes: AtomicU64::new(0),
        read_count: AtomicU64::new(0),
        longest_bytes: AtomicU64::new(0),
    });
    let disk = open(&(Arc::clone(&counting) as _));
    let mut scrub = Scrub::new().with_memory(1 << 10);
    // The superblock and the checkpoint.
    disk.scrub_step(&mut scrub).expect("it is sound");
    let before = counting.read_count.load(Ordering::Relaxed);
    disk.scrub_step(&mut scrub).expect("it is sound");
    let reads = counting.read_count.load(Ordering::Relaxed) - before;
    assert!((1..=64).contains(&reads), "{reads} nodes");
    scrub_to_end(&disk, &mut scrub);
    assert!(scrub.progress().checked_count > 60 * 400);
    assert!(found(&disk).is_empty());
}

#[test]
fn a_place_that_cannot_be_read_is_found_and_its_neighbours_are_read() {
    let device = Arc::new(SimDevice::new(64 * MIB, 1));
    let dynamic = Arc::clone(&device) as Arc<dyn Device>;
    make(&dynamic);
    let disk = open(&dynamic);
    let list = new_list(&disk, View::HEAD);
    let mut aru = Aru::new(View::HEAD);
    aru.write_pages(list, 0, vec![5; 100 * PAGE_SIZE]);
    disk.commit(aru).expect("there is room");
    disk.checkpoint().expect("the device works");
    let blocks: Vec<u64> = blocks(&*dynamic).into_keys().collect();
    let bad = blocks[blocks.len() / 2];
    device.inject(Fault::fail(Call::Read).within(bad..bad + 1).forever());
    let mut scrub = Scrub::new();
    scrub_to_end(&disk, &mut scrub);
    assert_eq!(found(&disk), BTreeSet::from([bad]));
    assert!(scrub.progress().checked_count > 100);
}

/// One random step of somebody else.
fn disturb(disk: &LogDisk, lists: &mut Vec<(View, Lid)>, rng: &mut Rng) {
    match rng.below(40) {
        0 => disk.checkpoint().expect("the device works"),
        1 => disk.flush(CommitSeq::LATEST).expect("the device works"),
        2 => drop(disk.snapshot(0, None).expect("there is room")),
        3 => {
            let table = disk.versions();
            let oldest = table.snapshots().next().map(|snapshot| snapshot.view());
            if let Some(view) = oldest
                && table.snapshots().count() > 4
            {
                // A branch may need it.
                let _ = disk.delete(view);
            }
        }
        4 if lists.len() > 4 => {
            let (view, list) = lists.swap_remove(rng.below(lists.len() as u64) as usize);
            let mut aru = Aru::new(view);
            aru.delete_list(list);
            disk.commit(aru).expect("there is room");
            lists.push((View::HEAD, new_list(disk, View::HEAD)));
        }
        5..20 => drop(disk.background_step()),
        20..24 => drop(disk.idle_step()),
        _ => {
            let (view, list) = lists[rng.below(lists.len() as u64) as usize];
            write(disk, view, list, rng);
        }
    }
}

#[test]
fn beside_writers_and_the_cleaner_all_damage_that_still_lives_is_found_and_no_other() {
    let (mut all_found, mut still_there) = (0, 0);
    for seed in 0..12 {
        let device = volume(40 * MIB, seed);
        let mut rng = Rng::new(seed + 1000);
        let before = blocks(&*device);
        let chosen: BTreeSet<u64> = before.keys().copied().filter(|_| rng.below(60) == 0).collect();
        for &addr in &chosen {
            damage(&*device, addr);
        }
        let disk = open(&device);
        let mut lists: Vec<_> = disk
            .lists(View::HEAD, Lid::FIRST, 100)
            .expect("the map is sound")
            .into_iter()
            .map(|list| (View::HEAD, list))
            .collect();
        let mut scrub = Scrub::new().with_memory(1 << (10 + seed % 8));
        let mut has_more = true;
        while has_more {
            for _ in 0..rng.below(4) {
                disturb(&disk, &mut lists, &mut rng);
            }
            if rng.chance(5) {
                scrub = Scrub::resume(&scrub.position())
                    .expect("it is a position")
                    .with_memory(1 << (10 + rng.below(8)));
            }
            has_more = disk.scrub_step(&mut scrub).expect("the map is sound");
        }
        disk.checkpoint().expect("the device works");
        let after = blocks(&*device);
        let lives = |addr: &u64| after.get(addr).is_some_and(|(_, page)| *page == before[addr].1);
        let found = found(&disk);
        assert!(found.is_subset(&chosen), "seed {seed}: {:?}", disk.damage().places());
        for addr in chosen.iter().filter(|addr| lives(addr)) {
            assert!(found.contains(addr), "seed {seed}: {addr} of {:?}", before[addr]);
            still_there += 1;
        }
        all_found += scrub.progress().found_count;
    }
    assert!(all_found >= still_there && still_there > 50, "{all_found} found, {still_there} live");
}

#[test]
fn threads_that_write_and_clean_cause_no_false_alarm() {
    let device = volume(40 * MIB, 9);
    let disk =
        open_with(&device, OpenOptions { cache_size_bytes: 256 << 10, ..Default::default() });
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (disk, is_done) = (&disk, &is_done);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                let mut lists: Vec<_> =
                    (0..5).map(|_| (View::HEAD, new_list(disk, View::HEAD))).collect();
                while !is_done.load(Ordering::Relaxed) {
                    disturb(disk, &mut lists, &mut rng);
                }
            });
        }
        for _ in 0..6 {
            let mut scrub = Scrub::new().with_memory(64 << 10);
            scrub_to_end(&disk, &mut scrub);
            assert_eq!(scrub.progress().found_count, 0);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(disk.damage().places(), []);
}

#[test]
fn an_empty_volume_and_one_that_is_open_for_reading_are_scrubbed() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 * MIB));
    make(&device);
    let mut scrub = Scrub::new();
    scrub_to_end(&open(&device), &mut scrub);
    assert_eq!(scrub.progress().found_count, 0);
    let device = volume(64 * MIB, 3);
    let blocks = blocks(&*device);
    let (&addr, (key, _)) = blocks.iter().next().expect("there is one");
    assert_eq!(key.space, Space::Chunks);
    damage(&*device, addr);
    let disk = open_with(&device, OpenOptions { read_only: true, ..OpenOptions::default() });
    scrub_to_end(&disk, &mut Scrub::new());
    assert_eq!(found(&disk), BTreeSet::from([addr]));
}
