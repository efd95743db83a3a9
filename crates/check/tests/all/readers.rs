//! The readers that a dump is made of.

use crate::support::*;
use dendro_base::Rng;
use dendro_check::{Break, Error, Volume, find_superblocks, info};
use dendro_device::MemoryDevice;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_format::{Entries, Head, Hints, Layout, Record, SegmentNo, Superblock, Value};

fn superblock(seq: u64, layout: Layout) -> Superblock {
    Superblock { seq, layout, ..Builder::new().superblock }
}

/// A device with just these superblocks, each in its slot.
fn superblocks(log2: u8, seqs: &[u64]) -> Vec<u8> {
    let layout = Layout::new(log2, 16).expect("it is within bounds");
    let mut image = vec![0; 2 << log2];
    for &seq in seqs {
        write_superblock(&mut image, &superblock(seq, layout));
    }
    image
}

fn found(image: &[u8]) -> Vec<u64> {
    find_superblocks(&MemoryDevice::from_bytes(image)).map_or(Vec::new(), |superblocks| {
        assert_eq!(
            Some(superblocks.current()),
            superblocks.all().last(),
            "the newest is the current one"
        );
        superblocks.all().iter().map(|found| found.superblock.seq).collect()
    })
}

#[test]
fn superblocks_are_found_at_every_segment_size() {
    for log2 in 17..=26 {
        let slots = Layout::new(log2, 16).unwrap().superblock_slot_count();
        assert_eq!(found(&superblocks(log2, &[0])), [0]);
        assert_eq!(found(&superblocks(log2, &[0, 1, 2])), [0, 1, 2]);
        // The first log is being written anew, and its first slot was torn.
        assert_eq!(found(&superblocks(log2, &[slots, slots + 1])), [slots, slots + 1]);
        // Both logs are in use.
        let both = [slots + 5, 2 * slots, 2 * slots + 1];
        assert_eq!(found(&superblocks(log2, &both)), both);
        // The first slots of both are damaged.
        assert_eq!(found(&superblocks(log2, &[slots + 7])), [slots + 7]);
        assert_eq!(found(&superblocks(log2, &[7])), [7]);
    }
}

#[test]
fn a_superblock_in_anothers_slot_does_not_count() {
    let mut image = superblocks(17, &[0]);
    let stray = superblock(9, layout());
    image[4096..8192].copy_from_slice(stray.encode().as_slot());
    assert_eq!(found(&image), [0]);
}

#[test]
fn a_superblock_of_another_volume_does_not_count() {
    let mut image = superblocks(17, &[0]);
    let mut other = superblock(40, layout());
    other.uuid.0[0] ^= 1;
    write_superblock(&mut image, &other);
    assert_eq!(found(&image), [0]);
}

#[test]
fn a_damaged_superblock_leaves_the_one_before() {
    let mut image = superblocks(17, &[0, 1, 2]);
    image[2 * 4096 + 100] ^= 1;
    assert_eq!(found(&image), [0, 1]);
}

#[test]
fn an_unreadable_superblock_leaves_the_one_before() {
    let device = SimDevice::from_bytes(&superblocks(17, &[0, 1, 2]), 1);
    device.inject(Fault::fail(Call::Read).within(2 * 4096..3 * 4096).forever());
    assert_eq!(find_superblocks(&device).unwrap().current().superblock.seq, 1);
}

#[test]
fn what_is_there_instead_of_a_superblock_is_told() {
    let mut image = superblocks(17, &[0]);
    image[4000] = 1;
    let device = MemoryDevice::from_bytes(&image);
    let error = find_superblocks(&device).unwrap_err();
    assert!(error.to_string().contains("its checksum is wrong"), "{error}");
}

#[test]
fn the_map_is_walked_whole_and_in_part() {
    let image = sound();
    let device = MemoryDevice::from_bytes(&image);
    let volume = Volume::open(&device).unwrap();
    let checkpoint = volume.checkpoint().unwrap();
    let nodes: Vec<_> = volume.nodes(&checkpoint).collect::<Result<_, _>>().unwrap();
    assert_eq!(nodes.iter().map(|node| node.info.level).collect::<Vec<_>>(), [1, 0, 0]);
    assert!(matches!(nodes[0].entries, Entries::Inner(_)));
    let keys = |from, to| -> Vec<_> {
        let entries = volume.entries(&checkpoint, from, to);
        entries.map(|entry| entry.unwrap().0).collect()
    };
    let all = [list_key(1), record_key(1, 7), chunk_key(1, 0), list_key(2)];
    assert_eq!(keys(None, None), all);
    for from in 0..4 {
        assert_eq!(keys(Some(all[from]), None), all[from..]);
        assert_eq!(keys(None, Some(all[from])), all[..from]);
    }
    assert_eq!(keys(Some(record_key(1, 8)), Some(list_key(2))), [chunk_key(1, 0)]);
}

#[test]
fn damage_hides_no_more_than_its_part_of_the_map() {
    let mut image = sound();
    image[MAP_SEGMENT as usize * SEGMENT_SIZE + 4096] ^= 1;
    let device = MemoryDevice::from_bytes(&image);
    let volume = Volume::open(&device).unwrap();
    let checkpoint = volume.checkpoint().unwrap();
    let entries: Vec<_> = volume.entries(&checkpoint, None, None).collect();
    assert!(entries[0].is_err());
    assert_eq!(entries[1].as_ref().unwrap(), &(list_key(2), Value::List(Hints::of_bits(1))));
    assert_eq!(entries.len(), 2);
}

#[test]
fn the_partial_segments_of_a_segment_are_walked_to_their_end() {
    let mut image = sound();
    let volume_of = |image: &[u8]| -> (Vec<u64>, Break) {
        let device = MemoryDevice::from_bytes(image);
        let volume = Volume::open(&device).expect("it is sound");
        let mut partials = volume.partials(SegmentNo(LOG_SEGMENT));
        let seqs = partials.by_ref().map(|partial| partial.header.seq).collect();
        (seqs, partials.end().expect("it has ended").clone())
    };
    let (seqs, end) = volume_of(&image);
    assert_eq!(seqs, [1]);
    assert!(matches!(end, Break::NoHeader { .. }));
    let (at, crc32c) = log_position(&image);
    Part::new(Head::Main, LOG_SEGMENT, at, 3, crc32c).write(&mut image);
    assert_eq!(volume_of(&image).1, Break::OtherSequence { found: 3, expected: 2 });
    Part::new(Head::Main, LOG_SEGMENT, at, 2, crc32c ^ 1).write(&mut image);
    assert_eq!(volume_of(&image).1, Break::Chain);
    Part::new(Head::Map, LOG_SEGMENT, at, 2, crc32c).write(&mut image);
    assert_eq!(volume_of(&image).1, Break::OtherHead);
    Part::new(Head::Main, LOG_SEGMENT, at, 2, crc32c).write(&mut image);
    assert_eq!(volume_of(&image).0, [1, 2]);
    image[LOG_SEGMENT as usize * SEGMENT_SIZE + at + 90] ^= 1;
    assert_eq!(volume_of(&image).1, Break::Checksum);
}

#[test]
fn the_maps_head_may_count_anew_in_a_segment_that_it_began_before() {
    let image = sound();
    let end = {
        let device = MemoryDevice::from_bytes(&image);
        let volume = Volume::open(&device).unwrap();
        volume.checkpoint().unwrap().map.offset_bytes as usize
    };
    for (commit_seq, count) in [(0, 1), (1, 2), (9, 2)] {
        let mut image = image.clone();
        let mut part = Part::new(Head::Map, MAP_SEGMENT, end, 0, 0);
        part.header.commit_seq = commit_seq;
        part.write(&mut image);
        let device = MemoryDevice::from_bytes(&image);
        let volume = Volume::open(&device).unwrap();
        assert_eq!(volume.partials(SegmentNo(MAP_SEGMENT)).count(), count);
    }
}

fn log_position(image: &[u8]) -> (usize, u32) {
    let device = MemoryDevice::from_bytes(image);
    let volume = Volume::open(&device).expect("it is sound");
    let checkpoint = volume.checkpoint().expect("it is sound");
    (checkpoint.log.offset_bytes as usize, checkpoint.log_prev_crc32c)
}

fn summary(image: &[u8]) -> dendro_check::LogSummary {
    let device = MemoryDevice::from_bytes(image);
    let volume = Volume::open(&device).expect("it is sound");
    volume.log_summary(&volume.checkpoint().expect("it is sound"))
}

#[test]
fn the_log_goes_on_in_its_segment_or_in_the_next_one() {
    let mut image = sound();
    let (at, crc32c) = log_position(&image);
    assert_eq!(summary(&image).replayed_count, 0);
    let mut second = Part::new(Head::Main, LOG_SEGMENT, at, 2, crc32c);
    second.push_block(1, 9, b"nine");
    let crc32c = second.write(&mut image);
    let mut third = Part::new(Head::Main, NEXT_SEGMENT, 0, 3, crc32c);
    third.header.next_segment = SegmentNo(7);
    let crc32c = third.write(&mut image);
    Part::new(Head::Main, NEXT_SEGMENT, 4096, 4, crc32c).write(&mut image);
    let summary = summary(&image);
    assert_eq!((summary.replayed_count, summary.partial_count), (3, 3));
    assert_eq!((summary.record_count, summary.commit_seq), (1, 4));
    assert_eq!((summary.end.segment, summary.end.offset_bytes), (NEXT_SEGMENT, 8192));
    assert_eq!(summary.end.next.as_ref().unwrap().segment, NEXT_SEGMENT);
    assert!(summary.to_string().contains("3 partial segments"));
}

#[test]
fn a_log_with_torn_payload_ends_before_it() {
    let mut image = sound();
    let (at, crc32c) = log_position(&image);
    let crc32c = Part::new(Head::Main, LOG_SEGMENT, at, 2, crc32c).write(&mut image);
    let mut torn = Part::new(Head::Main, LOG_SEGMENT, at + 4096, 3, crc32c);
    let block = torn.push_block(1, 9, b"torn");
    let crc32c = torn.write(&mut image);
    Part::new(Head::Main, LOG_SEGMENT, at + 4096 + 8192, 4, crc32c).write(&mut image);
    assert_eq!(summary(&image).replayed_count, 3);
    image[block.addr.bytes() as usize] ^= 1;
    let summary = summary(&image);
    assert_eq!((summary.partial_count, summary.replayed_count), (3, 1));
    assert!(matches!(summary.end.here, Break::Payload { .. }));
    assert_eq!(summary.end.offset_bytes as usize, at + 4096);
}

#[test]
fn a_unit_whose_end_is_missing_is_counted_as_dropped() {
    let mut image = sound();
    let (at, mut crc32c) = log_position(&image);
    for (index, complete_len) in [12, 0, 0].into_iter().enumerate() {
        let offset = at + index * 8192;
        let mut part = Part::new(Head::Main, LOG_SEGMENT, offset, 2 + index as u64, crc32c);
        for list in [1, 2] {
            Record::DeleteList { list }.encode(&mut part.records);
        }
        part.header.complete_len_bytes = complete_len;
        crc32c = part.write(&mut image);
        let device = MemoryDevice::from_bytes(&image);
        let volume = Volume::open(&device).unwrap();
        let last = volume.partials(SegmentNo(LOG_SEGMENT)).last().unwrap();
        let complete: Vec<_> = last.records().map(|at| at.unwrap().is_complete).collect();
        assert_eq!(complete, [index == 0, false]);
    }
    assert_eq!(summary(&image).dropped_record_bytes, 12 + 24 + 24);
}

#[test]
fn a_segment_that_is_none_has_no_partial_segments() {
    let image = sound();
    let device = MemoryDevice::from_bytes(&image);
    let volume = Volume::open(&device).unwrap();
    for segment in [0, 1, 16, u32::MAX] {
        let mut partials = volume.partials(SegmentNo(segment));
        assert!(partials.next().is_none());
        assert_eq!(partials.end(), Some(&Break::NoSegment));
    }
}

#[test]
fn errors_say_what_and_where() {
    let mut image = sound();
    image.truncate(8 * SEGMENT_SIZE);
    let device = MemoryDevice::from_bytes(&image);
    assert!(matches!(Volume::open(&device), Err(Error::Truncated { .. })));
}

#[test]
fn everything_read_prints_and_serialises() {
    let image = sound();
    let device = MemoryDevice::from_bytes(&image);
    let volume = Volume::open(&device).unwrap();
    let checkpoint = volume.checkpoint().unwrap();
    let superblock = info::SuperblockInfo::from(volume.superblocks().current());
    assert!(superblock.to_string().contains("16 of 131072 bytes"));
    assert_eq!(serde_json::to_value(&superblock).unwrap()["label"], "small");
    let json = serde_json::to_value(info::CheckpointInfo::from(&checkpoint)).unwrap();
    assert_eq!(json["usage_overrides"][0]["source"], "checkpoint");
    let partial = volume.partials(SegmentNo(LOG_SEGMENT)).next().unwrap();
    assert_eq!(serde_json::to_value(info::PartialInfo::from(&partial)).unwrap()["head"], "main");
    let record = info::PartialRecordInfo::from(partial.records().next().unwrap().unwrap());
    let json = serde_json::to_value(&record).unwrap();
    assert_eq!((json["kind"].as_str(), json["page"].as_u64()), (Some("write_block"), Some(0)));
    let (key, value) = volume.entries(&checkpoint, None, None).nth(1).unwrap().unwrap();
    let entry = info::EntryInfo::from((&key, &value));
    assert_eq!(entry.to_string(), "1/record/7@0:1: 5 bytes 736576656e");
    let usage = volume.usage(&checkpoint).unwrap();
    assert_eq!(usage.rows().map(|row| row.segment.0).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(usage.live_bytes(), checkpoint.live_bytes);
}

#[test]
fn every_record_prints_and_serialises() {
    for seed in 0..500 {
        let rng = &mut Rng::new(seed);
        let record = dendro_format::testing::sample::record(rng, b"value", &[]);
        let info = info::RecordInfo::from(record);
        assert!(!info.to_string().is_empty());
        assert!(serde_json::to_value(&info).unwrap()["kind"].is_string());
    }
}
