//! Damaged blocks in the segments that are cleaned.

use std::collections::{BTreeMap, BTreeSet};

use dendro_device::Device;
use dendro_disk::{Aru, Lid, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::external::{
    Block, BlockName, MAX_BLOCKS_PER_CALL, MAX_SEGMENTS_PER_CALL, SegmentFacts, SegmentStatus,
    SummaryCursor,
};
use dendro_logdisk::{CleanSettings, Damage, LogDisk, Part};

use crate::common::busy::disk_with_large_list;
use crate::common::new_list;

const DAMAGED_COUNT: usize = 100;
/// Every second one of these pages is written again.
const PAGES: u64 = 8 * DAMAGED_COUNT as u64;

/// The live blocks of a list in segments that are worth cleaning, in the order of their places.
fn live_blocks(disk: &LogDisk, list: Lid) -> Vec<Block> {
    let mut found = Vec::new();
    let facts = disk.segments(0, MAX_SEGMENTS_PER_CALL).into_iter();
    let most_live = disk.volume_facts().segment_bytes as u32 / 4 * 3;
    let is_victim =
        |facts: &SegmentFacts| facts.status == SegmentStatus::Dirty && facts.live_bytes < most_live;
    for facts in facts.filter(is_victim) {
        let mut from = Some(SummaryCursor::default());
        while let Some(cursor) = from {
            let part = disk.segment_blocks(facts.number, cursor, MAX_BLOCKS_PER_CALL);
            let part = part.expect("it can be read");
            found.extend(part.blocks.into_iter().filter(
                |block| matches!(block.name, BlockName::Page { list: of, .. } if of == list.0),
            ));
            from = part.next;
        }
    }
    let places = places_of(disk, &found);
    let mut places = places.into_iter();
    found.retain(|block| places.next().expect("each has one") == Some(block.addr.bytes()));
    found.sort_by_key(|block| block.addr.bytes());
    found
}

/// Where the blocks with the names of these lie now.
fn places_of(disk: &LogDisk, blocks: &[Block]) -> Vec<Option<u64>> {
    let names: Vec<_> = blocks.iter().map(|block| block.name).collect();
    let places = names.chunks(MAX_BLOCKS_PER_CALL);
    let places = places.flat_map(|names| disk.locate(names).expect("the map can be read"));
    places.map(|place| place.map(|addr| addr.bytes())).collect()
}

fn page_index_of(block: &Block) -> u64 {
    let BlockName::Page { page_index, .. } = block.name else { panic!("{block:?} is no page") };
    page_index
}

/// Where a damaged page lies, its list, and its index in the list.
fn place_of(damage: Damage) -> (u64, Lid, u64) {
    let Part::Page(list, page_index) = damage.part else { panic!("{damage:?} is no page") };
    (damage.addr_bytes, list, page_index)
}

fn write(disk: &LogDisk, list: Lid, pages: impl Iterator<Item = u64>, content: u8) {
    for page_index in pages {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, page_index, vec![content; PAGE_SIZE]);
        disk.commit(aru).expect("there is room");
    }
}

#[test]
fn many_damaged_blocks_cost_cleaning_one_walk_for_each_victim_and_commits_go_on_meanwhile() {
    let (device, disk, _, node_count) = disk_with_large_list(100_000);
    let [list, others] = [(); 2].map(|()| new_list(&disk));
    write(&disk, list, 0..PAGES, 1);
    write(&disk, list, (1..PAGES).step_by(2), 2);
    disk.checkpoint().expect("the device works");
    let mut damaged = live_blocks(&disk, list);
    damaged.retain(|block| page_index_of(block).is_multiple_of(2));
    // They are spread over more segments than cleaning could gain without them, so that it goes on
    // until it has met them all.
    damaged = damaged.into_iter().step_by(3).take(DAMAGED_COUNT).collect();
    assert_eq!(damaged.len(), DAMAGED_COUNT);
    let segment_bytes = disk.volume_facts().segment_bytes;
    let mut victims = BTreeMap::new();
    for block in &damaged {
        let garbage = [0xee; PAGE_SIZE];
        device.memory.write_at(block.addr.bytes(), &garbage).expect("it is on the device");
        let victim = (block.addr.bytes() / segment_bytes) as u32;
        *victims.entry(victim).or_insert(0) += PAGE_SIZE as u32;
    }

    let min_clean_segments = Some(u32::MAX / 2);
    disk.set_clean_settings(CleanSettings { min_clean_segments, ..disk.clean_settings() });
    let commits_before = disk.stats().commit_seq;
    let (mut reads, mut longest, mut is_done) = (0, 0, false);
    let at_most = 3 * (victims.len() as u64 + 1) * node_count;
    // Cleaning that would never end is ended here.
    while !is_done && reads <= at_most {
        let own_before = device.own_reads();
        reads += device.reads_of(&disk, others, || {
            is_done = !disk.clean_step().expect("the device works");
        });
        longest = longest.max(device.own_reads() - own_before);
    }
    assert!(reads <= at_most, "cleaning takes {reads} reads of a map of {node_count} nodes");
    // A slice reads some leaves ahead, which the small cache forgets.
    assert!(longest <= node_count, "one step takes {longest} reads");
    let commits = disk.stats().commit_seq - commits_before;
    assert!(commits >= node_count, "other threads made {commits} commits");

    let reported: BTreeSet<_> = disk.damage().places().into_iter().map(place_of).collect();
    let expected = damaged.iter().map(|block| (block.addr.bytes(), list, page_index_of(block)));
    assert_eq!(reported, expected.collect(), "all damage is reported, and nothing else");
    let places = damaged.iter().map(|block| Some(block.addr.bytes()));
    assert_eq!(places_of(&disk, &damaged), places.collect::<Vec<_>>(), "evidence stays");
    for facts in disk.segments(0, MAX_SEGMENTS_PER_CALL) {
        if let Some(damaged_bytes) = victims.get(&facts.number) {
            assert_eq!(facts.live_bytes, *damaged_bytes, "all else leaves {facts:?}");
        }
    }
}
