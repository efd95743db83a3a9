//! Each damage is found as what it is, and nothing else is.

use std::collections::HashSet;

use crate::support::*;
use dendro_check::FindingKind::{self, *};
use dendro_check::{Extent, Options, RebuildOptions, Severity, rebuild, verify};
use dendro_device::MemoryDevice;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_format::compression::{Compression, Packer};
use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::totals::{COMPRESSED_INDEX, TOTALS_LIST};
use dendro_format::usage::USAGE_LIST;
use dendro_format::versions::{COUNTERS_INDEX, Counters, VERSIONS_LIST};
use dendro_format::{
    Addr, CompressedPages, Head, Hints, Key, PageRef, SegmentNo, Usage, Value, VersionRecord,
};

/// Where the first page of list 1, the first leaf and the root of [`sound`] lie.
const PAGE_AT: usize = LOG_SEGMENT as usize * SEGMENT_SIZE + 4096;
const FIRST_LEAF_AT: usize = MAP_SEGMENT as usize * SEGMENT_SIZE + 4096;

fn usage(live_bytes: u32) -> Usage {
    Usage { live_bytes, head: Head::Main, class: 0, written_at: 0 }
}

/// A volume whose map is one leaf.
fn with_leaf(change: impl FnOnce(&mut Builder, &mut Vec<(dendro_format::Key, Value)>)) -> Vec<u8> {
    let mut builder = Builder::new();
    let mut entries = first_entries(&mut builder);
    change(&mut builder, &mut entries);
    let root = builder.leaf(entries);
    builder.finish(Some((root, 0)))
}

#[test]
fn a_sound_volume_has_no_findings() {
    let report = report(&sound());
    assert_eq!(report.findings, []);
    assert!(report.is_sound());
    let counts = report.counts;
    assert_eq!((counts.list_count, counts.record_count, counts.page_count), (2, 1, 3));
    assert_eq!((counts.node_count, counts.verified_bytes), (3, 4096 + 5));
    assert!(report.to_string().ends_with("bytes live"));
}

#[test]
fn an_empty_volume_has_no_findings() {
    assert_eq!(kinds(&Builder::new().finish(None)), []);
}

#[test]
fn a_foreign_device_is_no_volume() {
    assert_eq!(kinds(&[0; 4096]), [NoVolume]);
    assert_eq!(kinds(&[]), [NoVolume]);
    assert_eq!(kinds(&vec![0xff; 3 << 20]), [NoVolume]);
}

#[test]
fn a_volume_with_unknown_features_is_not_looked_at() {
    assert_eq!(kinds(&built(|builder| builder.superblock.incompatible = 1 << 63)), [NoVolume]);
}

#[test]
fn a_volume_with_other_unknown_features_is() {
    let image = built(|builder| {
        builder.superblock.compatible = u64::MAX;
        builder.superblock.read_only = u64::MAX;
    });
    assert_eq!(kinds(&image), []);
}

#[test]
fn a_truncated_image_is_too_short() {
    let image = sound();
    assert_eq!(kinds(&image[..image.len() - 4096]), [DeviceTooShort]);
}

#[test]
fn a_damaged_checkpoint_is_unusable() {
    let image = sound();
    let at = image.windows(4).position(|window| window == b"DCP1").unwrap();
    for offset in [0, 4, 8, 20, 100] {
        let mut image = image.clone();
        image[at + offset] ^= 1;
        assert_eq!(kinds(&image), [CheckpointUnusable], "{offset}");
    }
}

#[test]
fn a_checkpoint_that_is_another_is_unusable() {
    let mut image = sound();
    let mut superblock = dendro_format::Superblock::decode(&image[..4096]).unwrap();
    superblock.checkpoint_crc32c ^= 1;
    write_superblock(&mut image, &superblock);
    assert_eq!(kinds(&image), [CheckpointUnusable]);
    superblock.checkpoint_addr = Addr(u64::MAX);
    write_superblock(&mut image, &superblock);
    assert_eq!(kinds(&image), [CheckpointUnusable]);
}

#[test]
fn a_log_position_outside_the_log_is_found() {
    let image = built(|builder| builder.checkpoint.next_segment = SegmentNo(1));
    assert_eq!(kinds(&image), [CheckpointPosition]);
    let image = built(|builder| builder.checkpoint.next_segment = SegmentNo(0));
    assert_eq!(kinds(&image), []);
    let image = built(|builder| {
        builder.checkpoint.map.segment = SegmentNo(16);
        builder.checkpoint.map.offset_bytes = 4096;
    });
    assert_eq!(kinds(&image), [CheckpointPosition]);
}

#[test]
fn a_node_outside_the_log_is_found() {
    let mut builder = Builder::new();
    let entries = first_entries(&mut builder);
    let root = builder.leaf(entries);
    for addr in [Addr(0), Addr::from_bytes(16 * SEGMENT_SIZE as u64), Addr(u64::MAX)] {
        let mut builder = Builder::new();
        first_entries(&mut builder);
        let root = dendro_format::NodePtr { addr, ..root };
        assert_eq!(kinds(&builder.finish(Some((root, 0)))), [NodeOutside]);
    }
    let root = dendro_format::NodePtr { len_bytes: 63, ..root };
    assert_eq!(kinds(&Builder::new().finish(Some((root, 0)))), [NodeOutside]);
}

#[test]
fn a_damaged_node_is_found_wherever_it_is() {
    let image = sound();
    for at in (FIRST_LEAF_AT..FIRST_LEAF_AT + 64).step_by(8) {
        let mut image = image.clone();
        image[at] ^= 0x10;
        assert_eq!(kinds(&image), [NodeDamaged]);
    }
}

#[test]
fn a_node_that_is_another_is_found() {
    let mut builder = Builder::new();
    let entries = first_entries(&mut builder);
    let root = builder.leaf(entries);
    let root = dendro_format::NodePtr { crc32c: root.crc32c ^ 1, ..root };
    assert_eq!(kinds(&builder.finish(Some((root, 0)))), [NodeDamaged]);
}

#[test]
fn a_node_of_the_wrong_level_is_found() {
    let mut builder = Builder::new();
    let entries = first_entries(&mut builder);
    let leaf = builder.leaf(entries);
    assert_eq!(kinds(&builder.finish(Some((leaf, 1)))), [NodeLevel]);
    let mut builder = Builder::new();
    let leaf = builder.leaf(vec![(list_key(1), Value::List(Hints::of_bits(0)))]);
    assert_eq!(kinds(&builder.finish(Some((leaf, 255)))), [NodeLevel]);
}

#[test]
fn keys_that_belong_elsewhere_are_found() {
    for (from, next) in [(2, 3), (0, 1)] {
        let mut builder = Builder::new();
        let first = builder.leaf(vec![(list_key(1), Value::List(Hints::of_bits(0)))]);
        let second = builder.leaf(vec![(list_key(5), Value::List(Hints::of_bits(0)))]);
        let children = vec![(list_key(from), first), (list_key(next), second)];
        let root = builder.inner(children);
        builder.checkpoint.next_list = 6;
        assert_eq!(kinds(&builder.finish(Some((root, 1)))), [NodeKeys]);
    }
}

#[test]
fn entries_newer_than_their_parent_says_are_found() {
    let key = dendro_format::Key { epoch: 2, ..list_key(1) };
    let mut builder = Builder::new();
    let leaf = builder.leaf(vec![(key, Value::List(Hints::of_bits(0)))]);
    let root = builder.inner(vec![(list_key(0), leaf)]);
    assert_eq!(kinds(&builder.finish(Some((root, 1)))), [NodeEpoch]);
}

#[test]
fn a_child_named_twice_is_visited_once() {
    let mut builder = Builder::new();
    let leaf = builder.leaf(vec![(list_key(1), Value::List(Hints::of_bits(0)))]);
    let children = (0..500).map(|list| (list_key(list), leaf)).collect();
    let root = builder.inner(children);
    let report = report(&builder.finish(Some((root, 1))));
    assert_eq!(report.counts.node_count, 2);
    assert!(report.findings.iter().all(|finding| matches!(finding.kind, NodeKeys | TooMany)));
}

#[test]
fn a_node_newer_than_its_checkpoint_is_found() {
    let mut builder = Builder::new();
    builder.checkpoint_seq_of_nodes = 2;
    let root = builder.leaf(vec![(list_key(1), Value::List(Hints::of_bits(0)))]);
    assert_eq!(kinds(&builder.finish(Some((root, 0)))), [NodeNewer]);
}

#[test]
fn a_block_outside_the_log_is_found() {
    for addr in [Addr(0), Addr(u64::MAX), Addr::from_bytes(3 * SEGMENT_SIZE as u64 - 64)] {
        let image = with_leaf(|_, entries| {
            let page = PageRef { addr, len_bytes: 4096, ..PageRef::ZERO };
            entries.push((chunk_key(1, 1), chunk(&[page])));
        });
        assert_eq!(kinds(&image), [BlockOutside]);
    }
}

#[test]
fn a_damaged_block_is_found_when_data_is_read() {
    let mut image = sound();
    image[PAGE_AT + 4095] ^= 1;
    assert_eq!(kinds(&image), [BlockDamaged]);
    let report = verify(&MemoryDevice::from_bytes(&image), &Options { data: false });
    assert_eq!(report.findings, []);
}

#[test]
fn what_the_device_fails_to_read_is_named() {
    for (at, kind) in [(PAGE_AT, BlockUnreadable), (FIRST_LEAF_AT, NodeUnreadable)] {
        let device = SimDevice::from_bytes(&sound(), 1);
        device.inject(Fault::fail(Call::Read).within(at as u64..at as u64 + 64).forever());
        let report = verify(&device, &Options { data: true });
        let found: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(found, [kind]);
    }
}

#[test]
fn an_unknown_compression_is_found() {
    let image = with_leaf(|builder, entries| {
        let page = PageRef { compression: 77, ..builder.page(32, b"?") };
        entries.push((chunk_key(1, 1), chunk(&[page])));
    });
    assert_eq!(kinds(&image), [BlockCompression]);
}

#[test]
fn a_block_that_cannot_be_decompressed_is_found() {
    for compression in [1, 2] {
        let image = with_leaf(|builder, entries| {
            let page = PageRef { compression, ..builder.page(32, b"?") };
            entries.push((chunk_key(1, 1), chunk(&[page])));
        });
        assert_eq!(kinds(&image), [BlockDamaged]);
    }
}

/// A frame of two pages, and where it lies.
fn frame(builder: &mut Builder) -> PageRef {
    let pages = [[1; 4096], [2; 4096]].concat();
    let mut stored = Vec::new();
    let packed = Packer::new().pack_frame(Compression::ZSTD, &pages, &mut stored);
    packed.expect("they are all the same");
    PageRef { compression: Compression::ZSTD.kind(), ..builder.page(32, &stored) }
}

#[test]
fn pages_of_a_frame_are_checked_and_counted_once_together() {
    let image = with_leaf(|builder, entries| {
        let frame = frame(builder);
        entries.push((chunk_key(1, 1), chunk(&[frame.of_frame(0), frame.of_frame(1)])));
    });
    assert_eq!(kinds(&image), []);
    // It has no third page.
    let image = with_leaf(|builder, entries| {
        let frame = frame(builder);
        entries.push((chunk_key(1, 1), chunk(&[frame.of_frame(0), frame.of_frame(2)])));
    });
    assert_eq!(kinds(&image), [BlockDamaged]);
    // One entry alone may name it.
    let image = with_leaf(|builder, entries| {
        let frame = frame(builder);
        entries.push((chunk_key(1, 1), chunk(&[frame.of_frame(0)])));
        entries.push((chunk_key(1, 2), chunk(&[frame.of_frame(1)])));
        *builder.usage.get_mut(&LOG_SEGMENT).unwrap() += 64;
        builder.live_bytes += 64;
    });
    assert_eq!(kinds(&image), [Overlap]);
}

#[test]
fn an_unknown_flag_of_a_block_is_found() {
    let image = with_leaf(|builder, entries| {
        let page = PageRef { flags: 1, ..builder.page(32, b"?") };
        entries.push((chunk_key(1, 1), chunk(&[page])));
    });
    assert_eq!(kinds(&image), [BlockCompression]);
}

#[test]
fn a_block_named_twice_overlaps() {
    let image = with_leaf(|builder, entries| {
        let page = builder.page(32, b"twice");
        entries.push((chunk_key(1, 1), chunk(&[page, page])));
        *builder.usage.get_mut(&LOG_SEGMENT).unwrap() += 64;
        builder.live_bytes += 64;
    });
    assert_eq!(kinds(&image), [Overlap]);
}

#[test]
fn a_rebuild_leaves_a_block_to_the_entry_whose_checksum_it_has() {
    let image = with_leaf(|builder, entries| {
        let page = builder.page(32, b"twice");
        let foreign = PageRef { crc32c: !page.crc32c, ..page };
        entries.push((chunk_key(1, 1), chunk(&[foreign, page])));
        *builder.usage.get_mut(&LOG_SEGMENT).unwrap() += 64;
        builder.live_bytes += 64;
    });
    assert!(kinds(&image).contains(&Overlap));
    let device = MemoryDevice::from_bytes(&image);
    let options = RebuildOptions::default();
    let report = rebuild(&device, &options, &mut |_, _| ()).expect("there is room");
    let lost: Vec<_> = report.lost_pages.iter().map(|it| (it.list, it.page_index)).collect();
    assert_eq!((report.extent, lost), (Extent::Parts, vec![(1, 32)]));
    // What is lost reads as damage.
    assert_eq!(kinds(&device.to_bytes()), [BlockDamaged]);
    let again = rebuild(&device, &options, &mut |_, _| ()).expect("it is a volume");
    assert_eq!(again.extent, Extent::Nothing);
}

#[test]
fn a_block_behind_the_log_is_found() {
    let image = built(|builder| builder.checkpoint.log.offset_bytes = 4096);
    let found: HashSet<FindingKind> = kinds(&image).into_iter().collect();
    assert_eq!(found, HashSet::from([BehindLog]));
}

#[test]
fn records_of_no_list_are_found_once_a_list() {
    let image = with_leaf(|_, entries| {
        entries.extend((0..5).map(|index| (record_key(2, index), record(b"lost"))));
    });
    assert_eq!(kinds(&image), [NoSuchList]);
}

#[test]
fn a_list_number_that_comes_again_is_found() {
    assert_eq!(kinds(&built(|builder| builder.checkpoint.next_list = 2)), [ListNumber]);
}

#[test]
fn usage_that_cannot_be_read_is_found() {
    let image =
        with_leaf(|_, entries| entries.push((record_key(USAGE_LIST, 2), record(b"garbage"))));
    assert_eq!(kinds(&image), [UsageUnreadable]);
    let image = with_leaf(|_, entries| {
        entries.push((record_key(USAGE_LIST, 1 << 32), record(&usage(0).encode())));
    });
    assert_eq!(kinds(&image), [UsageUnreadable]);
}

#[test]
fn what_is_left_of_a_list_is_found_unless_it_is_being_removed() {
    let left = |entries: &mut Vec<_>| {
        let key = record_key(77, 3);
        let at = entries.partition_point(|(entry, _)| *entry < key);
        entries.insert(at, (key, record(b"left")));
    };
    assert_eq!(kinds(&with_leaf(|_, entries| left(entries))), [NoSuchList]);
    let removal = record(&removal::encode(None));
    let image = with_leaf(|_, entries| {
        left(entries);
        entries.push((record_key(REMOVALS_LIST, 77), removal.clone()));
    });
    assert_eq!(kinds(&image), []);
    let image = with_leaf(|_, entries| entries.push((record_key(REMOVALS_LIST, 77), record(b"x"))));
    assert_eq!(kinds(&image), [RemovalUnreadable]);
}

#[test]
fn what_no_version_sees_is_found_unless_a_collection_is_going_to_find_it() {
    // Record 7 was replaced in the epoch after the one in which it was put, and nothing sees the
    // older value any more.
    let collecting = |sweep_since, list_epoch| {
        with_leaf(|builder, entries| {
            builder.checkpoint.epoch = 6;
            let newer = Key { epoch: 5, ..record_key(1, 7) };
            entries.insert(2, (newer, record(b"newer")));
            entries[0].0.epoch = list_epoch;
            let counters = Counters { epoch: 5, main: 0, next_branch: 1, sweep_since };
            let counters = record(&VersionRecord::Counters(counters).encode());
            entries.push((record_key(VERSIONS_LIST, COUNTERS_INDEX), counters));
        })
    };
    assert_eq!(kinds(&collecting(None, 1)), [Unseen]);
    assert_eq!(kinds(&collecting(Some(4), 1)), []);
    assert_eq!(kinds(&collecting(Some(5), 1)), [Unseen]);
    assert_eq!(kinds(&collecting(Some(10), 1)), [Unseen]);
    // All of a list is collected that is itself newer.
    assert_eq!(kinds(&collecting(Some(5), 6)), []);
}

#[test]
fn wrong_usage_is_found_wherever_it_is_recorded() {
    let image = with_leaf(|_, entries| {
        entries.push((record_key(USAGE_LIST, 9), record(&usage(64).encode())));
    });
    assert_eq!(kinds(&image), [UsageWrong]);
    let image = built(|builder| *builder.usage.get_mut(&LOG_SEGMENT).unwrap() += 64);
    assert_eq!(kinds(&image), [UsageWrong]);
}

#[test]
fn the_checkpoint_overrides_what_the_map_says_of_usage() {
    let image = with_leaf(|_, entries| {
        entries.push((record_key(USAGE_LIST, 2), record(&usage(12_345).encode())));
    });
    assert_eq!(kinds(&image), []);
}

#[test]
fn usage_of_what_is_no_segment_is_found() {
    let image = built(|builder| builder.usage.extend([(16, 0)]));
    assert_eq!(kinds(&image), [UsageOutside]);
    let image = built(|builder| builder.usage.extend([(1, 0)]));
    assert_eq!(kinds(&image), [UsageOutside]);
}

#[test]
fn a_wrong_sum_is_found() {
    assert_eq!(kinds(&built(|builder| builder.live_bytes += 1)), [LiveBytesWrong]);
}

#[test]
fn a_use_of_a_quota_that_is_recorded_wrongly_is_found() {
    let quota = |client, used_bytes| {
        let record = VersionRecord::Quota { client, limit_bytes: 1, used_bytes };
        (record_key(VERSIONS_LIST, record.index()), record.encode())
    };
    let with = |client, used_bytes| {
        with_leaf(|_, entries| {
            let (key, bytes) = quota(client, used_bytes);
            entries.push((key, record(&bytes)));
        })
    };
    let wrong = report(&with(0, Some(5)));
    assert_eq!(wrong.findings.len(), 1, "{:?}", wrong.findings);
    assert_eq!(wrong.findings[0].kind, QuotaWrong);
    // It says what it should be.
    let detail = &wrong.findings[0].detail;
    let counted = detail.split(' ').rev().nth(1).and_then(|count| count.parse().ok());
    assert!(counted > Some(4096), "{detail}");
    assert_eq!(kinds(&with(0, counted)), []);
    assert_eq!(kinds(&with(0, None)), []);
    assert_eq!(kinds(&with(7, Some(0))), []);
    assert_eq!(kinds(&with(7, Some(64))), [QuotaWrong]);
}

#[test]
fn wrong_counts_of_pages_are_found_where_they_are_kept() {
    let counted = |short, zero, are_exact| {
        built(|builder| {
            builder.checkpoint.short_count = short;
            builder.checkpoint.zero_count = zero;
            builder.checkpoint.counts_are_exact = are_exact;
        })
    };
    let counts = report(&counted(0, 0, false)).counts;
    let (short, zero) = (counts.short_page_count, counts.zero_page_count);
    assert!(short > 0, "{counts:?}");
    assert_eq!(kinds(&counted(short, zero, true)), []);
    assert_eq!(kinds(&counted(short + 1, zero, true)), [PageCountsWrong]);
    assert_eq!(kinds(&counted(short, zero + 1, true)), [PageCountsWrong]);
    assert_eq!(kinds(&counted(short + 1, zero, false)), []);
}

#[test]
fn wrong_counts_of_compressed_pages_are_found_where_they_are_kept() {
    let counted = |stated: Option<&[u8]>, are_exact| {
        with_leaf(|builder, entries| {
            builder.checkpoint.totals_are_exact = are_exact;
            if let Some(bytes) = stated {
                entries.push((record_key(TOTALS_LIST, COMPRESSED_INDEX), record(bytes)));
            }
        })
    };
    let wrong = CompressedPages::new(1, 64).encode().unwrap();
    assert_eq!(kinds(&counted(None, true)), []);
    assert_eq!(kinds(&counted(Some(&wrong), true)), [PageCountsWrong]);
    assert_eq!(kinds(&counted(Some(&wrong[1..]), true)), [PageCountsWrong]);
    assert_eq!(kinds(&counted(Some(&wrong), false)), []);
}

#[test]
fn a_log_behind_a_clean_checkpoint_is_found_and_else_noted() {
    for (clean, kind) in [(true, NotClean), (false, LogGoesOn)] {
        let (mut image, link) = with_log(|builder| builder.superblock.clean = clean);
        Part::new(Head::Main, LOG_SEGMENT, link.0, 2, link.1).write(&mut image);
        assert_eq!(kinds(&image), [kind]);
    }
}

#[test]
fn damage_to_a_durable_part_of_the_log_is_found() {
    let (mut image, link) = with_log(|_| ());
    let mut part = Part::new(Head::Main, LOG_SEGMENT, link.0, 2, link.1);
    part.push_block(1, 5, b"precious");
    let at = part.addr().bytes() as usize - 64;
    let end = link.0 + part.len();
    let crc32c = part.write(&mut image);
    let mut flushed = Part::new(Head::Main, LOG_SEGMENT, end, 3, crc32c);
    flushed.header.durable_seq = 2;
    flushed.write(&mut image);
    assert_eq!(kinds(&image), [LogGoesOn]);
    image[at] ^= 1;
    assert_eq!(kinds(&image), [LogGoesOn, LogLost]);
}

/// A small volume whose log has two partial segments, the second in `segment`, and how long the
/// first one is and where it lies.
fn with_flushed_log(segment: u32) -> (Vec<u8>, std::ops::Range<usize>) {
    let (mut image, link) = with_log(|_| ());
    let mut part = Part::new(Head::Main, LOG_SEGMENT, link.0, 2, link.1);
    part.push_block(1, 5, b"precious");
    let start = LOG_SEGMENT as usize * SEGMENT_SIZE + link.0;
    let place = start..start + part.len();
    let end = if segment == LOG_SEGMENT { link.0 + part.len() } else { 0 };
    let crc32c = part.write(&mut image);
    let mut flushed = Part::new(Head::Main, segment, end, 3, crc32c);
    flushed.header.durable_seq = 2;
    flushed.write(&mut image);
    (image, place)
}

#[test]
fn durable_log_behind_a_break_is_found_where_the_log_may_go_on() {
    // Behind the place itself, in the next segment, and in another that was clean.
    for segment in [LOG_SEGMENT, NEXT_SEGMENT, 11] {
        let (whole, place) = with_flushed_log(segment);
        for damage in [0..128, 0..place.len()] {
            let mut image = whole.clone();
            image[place.start + damage.start..place.start + damage.end].fill(0);
            assert_eq!(kinds(&image), [LogLost], "{segment}, {damage:?}");
        }
    }
}

#[test]
fn log_behind_a_break_that_need_not_have_been_durable_is_a_torn_end() {
    let (mut image, link) = with_log(|_| ());
    let part = Part::new(Head::Main, LOG_SEGMENT, link.0, 2, link.1);
    let (start, end) = (LOG_SEGMENT as usize * SEGMENT_SIZE + link.0, link.0 + part.len());
    let crc32c = part.write(&mut image);
    Part::new(Head::Main, LOG_SEGMENT, end, 3, crc32c).write(&mut image);
    image[start..start + 128].fill(0);
    assert_eq!(kinds(&image), []);
}

#[test]
fn a_unit_that_ends_in_the_middle_of_a_record_is_found() {
    for (complete_len_bytes, expected) in [(35, &[LogGoesOn, LogLost][..]), (36, &[LogGoesOn])] {
        let (mut image, link) = with_log(|_| ());
        let mut part = Part::new(Head::Main, LOG_SEGMENT, link.0, 2, link.1);
        part.push_block(1, 5, b"precious");
        part.push_block(1, 6, b"too");
        part.header.complete_len_bytes = complete_len_bytes;
        part.write(&mut image);
        assert_eq!(kinds(&image), expected, "{complete_len_bytes}");
    }
}

/// A small volume, and where its log goes on after which checksum.
fn with_log(change: impl FnOnce(&mut Builder)) -> (Vec<u8>, (usize, u32)) {
    let image = built(change);
    let checkpoint = {
        let device = MemoryDevice::from_bytes(&image);
        let volume = dendro_check::Volume::open(&device).expect("it is sound");
        volume.checkpoint().expect("it is sound")
    };
    (image, (checkpoint.log.offset_bytes as usize, checkpoint.log_prev_crc32c))
}

#[test]
fn of_a_thousand_findings_of_a_kind_a_hundred_are_listed() {
    let mut builder = Builder::new();
    let entries = (1..=1000).map(|list| (record_key(list, 0), record(b""))).collect();
    let root = builder.leaf(entries);
    let found = kinds(&builder.finish(Some((root, 0))));
    assert_eq!(found.len(), 101);
    assert_eq!(found[100], TooMany);
}

#[test]
fn numbers_and_titles_of_findings_are_given_once() {
    let numbers: HashSet<u16> = FindingKind::ALL.iter().map(|kind| kind.number()).collect();
    let titles: HashSet<&str> = FindingKind::ALL.iter().map(|kind| kind.title()).collect();
    assert_eq!(numbers.len(), FindingKind::ALL.len());
    assert_eq!(titles.len(), FindingKind::ALL.len());
    assert!(FindingKind::ALL.is_sorted_by_key(|kind| kind.number()));
}

#[test]
fn findings_serialise() {
    let report = report(&built(|builder| builder.live_bytes += 1));
    assert_eq!(report.worst(), Some(Severity::Warning));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["findings"][0]["number"], 53);
    assert_eq!(json["findings"][0]["severity"], "warning");
    assert_eq!(json["counts"]["page_count"], 3);
}
