//! The bytes of every structure, as they were when its version was fixed. A change of layout fails
//! here: it needs a new version of the structure, beside which the old one stays readable.
//!
//! The dumps are as `hexdump -C` prints them, without the characters. After adding a structure,
//! `UPDATE_GOLDEN=1 cargo test -p dendro-format golden` writes its dump.

use std::path::Path;
use std::sync::Arc;

use dendro_base::{ClientKind, Origin, Timestamp, Uuid};
use dendro_format::checkpoint::HeadPosition;
use dendro_format::node::{self, NodeInfo};
use dendro_format::rearrangement::{self, Task};
use dendro_format::record::Records;
use dendro_format::removal;
use dendro_format::roster::extents::{Column, Extent, spread_len_bytes};
use dendro_format::roster::{Member, MemberState, Regions};
use dendro_format::superblock::{
    COMPATIBLE_GROWS, INCOMPATIBLE_MIRRORS, INCOMPATIBLE_RETIRED, INCOMPATIBLE_SET,
};
use dendro_format::testing::dump;
use dendro_format::versions::{Counters, VersionRecord};
use dendro_format::{
    Addr, Checkpoint, ChildPtr, Chunk, CompressedPages, Entries, Head, Hints, Identity, Key,
    Layout, NodePtr, PageRef, PartialHeader, Record, Retired, Roster, SegmentNo, Space, Superblock,
    Usage, Value,
};
use zerocopy::little_endian::U32;

const ID: Uuid = Uuid(*b"\x10\x11\x12\x13\x14\x15\x46\x17\x98\x19\x1a\x1b\x1c\x1d\x1e\x1f");
const NODE: NodePtr =
    NodePtr { addr: Addr(0x0102_0304_0506), len_bytes: 0x0708, crc32c: 0x090a_0b0c };
const KEY: Key = Key {
    list: 0x2122_2324_2526_2728,
    space: Space::Records,
    index: 0x3132_3334_3536_3738,
    branch: 0x4142_4344,
    epoch: 0x5152_5354_5556_5758,
};
const BLOCK: PageRef = PageRef {
    addr: Addr(0x0a0b_0c0d),
    crc32c: 0xdead_beef,
    len_bytes: 0x0123,
    compression: 2,
    flags: 1,
};

/// The bytes of a dump in which no line was left out.
fn undump(text: &str) -> Vec<u8> {
    let byte = |hex| u8::from_str_radix(hex, 16).expect("a byte in hexadecimal digits");
    text.lines().flat_map(|line| line.split_whitespace().skip(1).map(byte)).collect()
}

fn check(name: &str, bytes: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.hex"));
    let actual = dump(bytes);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &actual).expect("the dump can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("the dump was committed");
    assert!(actual == golden, "{name} is laid out in another way than it was:\n{actual}");
}

/// Each begins a line of the dump, so that a reader finds it.
fn push_line(lines: &mut Vec<u8>, bytes: &[u8]) {
    lines.extend_from_slice(bytes);
    lines.resize(lines.len().next_multiple_of(16), 0);
}

#[test]
fn superblock_v1() {
    let superblock = Superblock {
        uuid: ID,
        seq: 0x0102_0304_0506_0708,
        compatible: 1,
        read_only: 2,
        incompatible: 4,
        layout: Layout::new(22, 0x0001_0203).unwrap(),
        clean: true,
        compression: 3,
        cold_compression: 0,
        checkpoint_addr: Addr(0x1122_3344_5566),
        checkpoint_len_bytes: 0x0004_0506,
        checkpoint_crc32c: 0x7788_99aa,
        created: Timestamp(0x1718_1920_2122_2324),
        written: Timestamp(-2),
        hash_key: *b"sixteen bytes ok",
        label: "Jahresringe ○".into(),
        retired: Vec::new(),
        checkpoint_mirror: None,
        max_len_bytes: 0,
        member_ends: Vec::new(),
    };
    let bytes = superblock.encode();
    check("superblock_v1", bytes.as_slot());
    assert_eq!(Superblock::decode(bytes.as_slot()), Ok(superblock.clone()));

    let mirrored = Superblock {
        incompatible: INCOMPATIBLE_MIRRORS,
        checkpoint_mirror: Some(Addr(0x0102_0304_0506)),
        ..superblock
    };
    let bytes = mirrored.encode();
    check("superblock_mirrored_v1", bytes.as_slot());
    assert_eq!(Superblock::decode(bytes.as_slot()), Ok(mirrored.clone()));

    let growing = Superblock {
        compatible: COMPATIBLE_GROWS,
        max_len_bytes: 0x0011_2233_4455_6677,
        ..mirrored
    };
    let bytes = growing.encode();
    check("superblock_growing_v1", bytes.as_slot());
    assert_eq!(Superblock::decode(bytes.as_slot()), Ok(growing.clone()));

    let on_set = Superblock {
        incompatible: INCOMPATIBLE_SET,
        checkpoint_mirror: None,
        member_ends: vec![0x0102_0304_0506_7000, 0x8000],
        ..growing
    };
    let bytes = on_set.encode();
    check("superblock_on_set_v1", bytes.as_slot());
    assert_eq!(Superblock::decode(bytes.as_slot()), Ok(on_set.clone()));

    let cold = Superblock { cold_compression: 0x92, ..on_set };
    let bytes = cold.encode();
    check("superblock_cold_v1", bytes.as_slot());
    assert_eq!(Superblock::decode(bytes.as_slot()), Ok(cold.clone()));

    let moved = Some((0x0001_0000..0x0003_2000, SegmentNo(0x0102)));
    let retired = Superblock {
        incompatible: INCOMPATIBLE_RETIRED | INCOMPATIBLE_SET,
        retired: vec![
            Retired { segment: SegmentNo(0x0304), moved: None },
            Retired { segment: SegmentNo(0x0506), moved },
        ],
        ..cold
    };
    let bytes = retired.encode();
    check("superblock_retired_v1", bytes.as_slot());
    assert_eq!(Superblock::decode(bytes.as_slot()), Ok(retired));
}

#[test]
fn partial_v1() {
    let mut bytes = vec![0xee; 4096];
    bytes[192..204].copy_from_slice(b"the records!");
    let header = PartialHeader {
        head: Head::Payload,
        class: 0x21,
        len_bytes: 4096,
        uuid: ID,
        seq: 0x0102_0304_0506_0708,
        segment: SegmentNo(0x090a_0b0c),
        offset_bytes: 0x0d0e_0f10,
        prev_crc32c: 0x1112_1314,
        next_segment: SegmentNo(0x1516_1718),
        records_offset_bytes: 192,
        records_len_bytes: 12,
        complete_len_bytes: 8,
        commit_seq: 0x191a_1b1c_1d1e_1f20,
        durable_seq: 0x2122_2324_2526_2728,
        time: Timestamp(0x292a_2b2c_2d2e_2f30),
        epoch: 0x3132_3334_3536_3738,
    };
    let crc32c = header.encode_into(&mut bytes);
    check("partial_v1", &bytes);
    assert_eq!(PartialHeader::decode(&bytes), Ok((header, crc32c)));
}

#[test]
fn records_v1() {
    let (list, index) = (KEY.list, KEY.index);
    let (first_page, count) = (0x0003_6162_6364_6566, 0x0004_6869_6a6b_6c6d);
    let crcs = [U32::new(0x0102_0304), U32::new(0x0506_0708)];
    let records = [
        Record::CreateList { list, hints: Hints::of_bits(0x0102) },
        Record::DeleteList { list },
        Record::SetHints { list, hints: Hints::of_bits(0x0304) },
        Record::PutRecord { list, index, value: b"value" },
        Record::DeleteRecord { list, index },
        Record::WriteRun { list, first_page, addr: NODE.addr, crcs: &crcs },
        Record::WriteBlock { list, page: first_page, block: BLOCK },
        Record::ZeroPages { list, first_page, count },
        Record::PunchPages { list, first_page, count },
        Record::MovePages { from: list, from_page: first_page, to: 1, to_page: 2, count },
        Record::SwapPages { a: list, b: index },
        Record::SwapRange { a: list, b: index, first_page, count },
        Record::Node { place: NODE, level: 5, first_key: KEY },
        Record::Checkpoint { addr: NODE.addr, len_bytes: NODE.len_bytes, crc32c: NODE.crc32c },
        Record::Version { branch: KEY.branch, epoch: KEY.epoch, is_moved: true },
        Record::Reuse { segment: SegmentNo(0x0a0b_0c0d) },
    ];
    let mut bytes = Vec::new();
    for record in &records {
        let mut line = Vec::new();
        record.encode(&mut line);
        assert_eq!(Records::new(&line).next(), Some(Ok(*record)));
        push_line(&mut bytes, &line);
    }
    check("records_v1", &bytes);
}

const NEAR: Hints = Hints { bits: 0x0506, near: 0x0708_090a_0b0c_0d0e };

#[test]
fn hints_with_a_neighbour() {
    let mut bytes = Vec::new();
    for record in [
        Record::CreateList { list: KEY.list, hints: NEAR },
        Record::SetHints { list: KEY.list, hints: NEAR },
    ] {
        let mut line = Vec::new();
        record.encode(&mut line);
        assert_eq!(Records::new(&line).next(), Some(Ok(record)));
        assert_eq!(Records::new(&line[..12]).next().map(|it| it.is_ok()), Some(false));
        line.resize(32, 0);
        bytes.extend(line);
    }
    check("hints_with_a_neighbour", &bytes);

    let entries = Entries::Leaf(vec![
        (Key::first(1, Space::List, 0), Value::List(NEAR)),
        (Key::first(2, Space::List, 0), Value::List(Hints::of_bits(0x0506))),
    ]);
    let info = NodeInfo { level: 0, uuid: ID, checkpoint_seq: 1, log_seq: 2 };
    let (bytes, _) = node::encode(&info, &entries);
    check("leaf_with_a_neighbour", &bytes);
    assert_eq!(node::decode(&bytes, &ID), Ok((info, entries)));
}

#[test]
fn leaf_v1() {
    let whole = |page: u64| PageRef {
        addr: Addr(0x10_0000 + page * 64),
        crc32c: 0x0101_0101 * (page as u32 + 1),
        len_bytes: 4096,
        compression: 0,
        flags: 0,
    };
    let mut slots = [None; 32];
    slots[..3].copy_from_slice(&[Some(whole(0)), Some(whole(1)), Some(whole(2))]);
    slots[5] = Some(BLOCK);
    slots[30..].copy_from_slice(&[Some(PageRef::ZERO); 2]);
    let key = |space, index| Key::first(300, space, index);
    let entries = Entries::Leaf(vec![
        (Key::first(1, Space::List, 0), Value::List(Hints::of_bits(0x0102))),
        (Key::first(1, Space::Records, 0), Value::Record(Arc::from(*b"i-node"))),
        (Key::first(1, Space::Records, 9), Value::Record(Arc::from(*b""))),
        (KEY, Value::Record(Arc::from(*b"far"))),
        (Key { epoch: u64::MAX, ..KEY }, Value::Record(Arc::from(*b"later"))),
    ]);
    let info = NodeInfo { level: 0, uuid: ID, checkpoint_seq: 0x0102, log_seq: 0x0304_0506 };
    let (bytes, _) = node::encode(&info, &entries);
    check("leaf_v1", &bytes);
    assert_eq!(node::decode(&bytes, &ID), Ok((info, entries)));

    let chunk = Value::Chunk(Arc::new(Chunk::from_slots(&slots)));
    let entries = Entries::Leaf(vec![
        (key(Space::List, 0), Value::List(Hints::of_bits(0))),
        (key(Space::Chunks, 1000), chunk.clone()),
        (key(Space::Chunks, 1001), chunk),
    ]);
    let (bytes, _) = node::encode(&info, &entries);
    check("leaf_of_chunks_v1", &bytes);
    assert_eq!(node::decode(&bytes, &ID), Ok((info, entries)));
}

#[test]
fn frames() {
    let frame = PageRef { len_bytes: 0x1e00, flags: 0, ..BLOCK };
    let mut bytes = Vec::new();
    for index in [0, 17] {
        let block = frame.of_frame(index);
        let record = Record::WriteBlock { list: KEY.list, page: 9 + u64::from(index), block };
        let mut line = Vec::new();
        record.encode(&mut line);
        assert_eq!(Records::new(&line).next(), Some(Ok(record)));
        line.resize(48, 0);
        bytes.extend(line);
    }
    check("records_of_frames", &bytes);

    let mut slots = [None; 32];
    // Pages 2 and 3 of the frame, a page that was written since, page 5, and another frame.
    slots[4..8].copy_from_slice(&[
        Some(frame.of_frame(2)),
        Some(frame.of_frame(3)),
        Some(BLOCK),
        Some(frame.of_frame(5)),
    ]);
    let other = PageRef { addr: Addr(7), ..frame };
    slots[9..11].copy_from_slice(&[Some(other.of_frame(30)), Some(other.of_frame(31))]);
    let chunk = Chunk::from_slots(&slots);
    let blocks: Vec<(u32, PageRef)> = chunk.blocks().collect();
    let expected = [
        (0b1011_0000, frame.of_frame(2)),
        (0b0100_0000, BLOCK),
        (0b0110_0000_0000, other.of_frame(30)),
    ];
    assert_eq!(blocks, expected);
    let value = Value::Chunk(Arc::new(chunk));
    let entries = Entries::Leaf(vec![(Key::first(300, Space::Chunks, 1000), value)]);
    let info = NodeInfo { level: 0, uuid: ID, checkpoint_seq: 1, log_seq: 2 };
    let (bytes, _) = node::encode(&info, &entries);
    check("leaf_of_frames", &bytes);
    assert_eq!(node::decode(&bytes, &ID), Ok((info, entries)));
}

fn inner_node(newest_epochs: [u64; 3]) -> (NodeInfo, Entries) {
    let info = NodeInfo { level: 2, uuid: ID, checkpoint_seq: 1, log_seq: u64::MAX };
    let places = [NODE, NodePtr { addr: Addr(1), len_bytes: 64, crc32c: 2 }, NODE];
    let keys = [Key::MIN, KEY, Key { space: Space::Chunks, index: 7, ..KEY }];
    let children = std::array::from_fn::<_, 3, _>(|n| {
        (keys[n], ChildPtr { place: places[n], newest_epoch: newest_epochs[n] })
    });
    (info, Entries::Inner(children.to_vec()))
}

#[test]
fn inner_node_v2() {
    let (info, entries) = inner_node([1, u64::MAX, 0x0102_0304]);
    let (bytes, _) = node::encode(&info, &entries);
    check("inner_node_v2", &bytes);
    assert_eq!(node::decode(&bytes, &ID), Ok((info, entries)));
}

/// It is not written any more.
#[test]
fn inner_node_v1_says_nothing_of_epochs() {
    let bytes = undump(include_str!("../golden/inner_node_v1.hex"));
    assert_eq!(node::decode(&bytes, &ID), Ok(inner_node([u64::MAX; 3])));
}

#[test]
fn checkpoint_v1() {
    let usage = |live_bytes, head| Usage { live_bytes, head, class: 0, written_at: 0x0102_0304 };
    let checkpoint = Checkpoint {
        uuid: ID,
        seq: 0x0102_0304_0506_0708,
        root: Some((NODE, 3)),
        log: HeadPosition { segment: SegmentNo(0x090a_0b0c), offset_bytes: 0x0d0e_0f10 },
        log_seq: 0x1112_1314_1516_1718,
        log_prev_crc32c: 0x191a_1b1c,
        next_segment: SegmentNo(0x1d1e_1f20),
        map: HeadPosition { segment: SegmentNo(0x2122_2324), offset_bytes: 0x2526_2728 },
        next_list: 0x292a_2b2c_2d2e_2f30,
        commit_seq: 0x3132_3334_3536_3738,
        epoch: 0x393a_3b3c_3d3e_3f40,
        live_bytes: 0x4142_4344_4546_4748,
        time: Timestamp(0x494a_4b4c_4d4e_4f50),
        log_clock: 0x5152_5354_5556_5758,
        short_count: 0,
        zero_count: 0,
        counts_are_exact: false,
        totals_are_exact: false,
        identity: None,
        usage_overrides: vec![
            (SegmentNo(2), usage(0x0a0b_0c0d, Head::Main)),
            (SegmentNo(0x0102_0304), usage(64, Head::Map)),
        ],
        mirrors: Vec::new(),
    };
    let bytes = checkpoint.encode();
    check("checkpoint_v1", &bytes);
    assert_eq!(Checkpoint::decode(&bytes, &ID), Ok(checkpoint.clone()));

    let incompatible = INCOMPATIBLE_MIRRORS;
    let identity = Identity {
        layout: Layout::new(20, 0x0a0b_0c0d).unwrap(),
        hash_key: [0; 16],
        incompatible,
        read_only: 0,
        compatible: 0,
    };
    let mirrors = vec![(SegmentNo(7), SegmentNo(0x0506_0708)), (SegmentNo(9), SegmentNo(2))];
    let mirrored = Checkpoint { identity: Some(identity), mirrors, ..checkpoint.clone() };
    let bytes = mirrored.encode();
    check("checkpoint_mirrored_v1", &bytes);
    assert_eq!(Checkpoint::decode(&bytes, &ID), Ok(mirrored.clone()));
    for wrong in [vec![(9, 2), (7, 8)], vec![(7, 8), (7, 9)], vec![(7, 8), (9, 8)], vec![(7, 7)]] {
        let mirrors = wrong.iter().map(|(of, mirror)| (SegmentNo(*of), SegmentNo(*mirror)));
        let wrong = Checkpoint { mirrors: mirrors.collect(), ..mirrored.clone() };
        assert!(Checkpoint::decode(&wrong.encode(), &ID).is_err(), "{:?}", wrong.mirrors);
    }
    let unmarked = Checkpoint { identity: None, ..mirrored };
    assert!(Checkpoint::decode(&unmarked.encode(), &ID).is_err());

    let empty = Checkpoint { root: None, usage_overrides: Vec::new(), ..checkpoint };
    let bytes = empty.encode();
    check("checkpoint_empty_v1", &bytes);
    assert_eq!(Checkpoint::decode(&bytes, &ID), Ok(empty.clone()));

    let identity = Some(Identity {
        layout: Layout::new(22, 0x0001_0203).unwrap(),
        hash_key: *b"sixteen bytes ok",
        incompatible: 0x0102_0304_0506_0708,
        read_only: 0x090a_0b0c,
        compatible: 0x0d0e_0f10,
    });
    let of_its_own = Checkpoint { identity, ..empty };
    let bytes = of_its_own.encode();
    check("checkpoint_identity_v1", &bytes);
    assert_eq!(Checkpoint::decode(&bytes, &ID), Ok(of_its_own));
}

#[test]
fn usage_v1() {
    let usage = Usage {
        live_bytes: 0x0102_0304,
        head: Head::Payload,
        class: 0x21,
        written_at: 0x0506_0708,
    };
    check("usage_v1", &usage.encode());
}

#[test]
fn versions_v1() {
    let (time, name) = (Timestamp(0x0102_0304_0506_0708), Some("größer".to_owned()));
    let counters = Counters {
        epoch: 0x1112_1314_1516_1718,
        main: 0x2122_2324,
        next_branch: 0x3132_3334,
        sweep_since: Some(0x4142_4344_4546_4748),
    };
    let snapshot = |origin, is_held, name| VersionRecord::Snapshot {
        branch: 0x5152_5354,
        epoch: 0x6162_6364_6566_6768,
        name,
        is_held,
        time,
        origin,
    };
    let branch = |name, parent, kind| VersionRecord::Branch {
        branch: 0x7172_7374,
        name,
        parent,
        kind,
        time,
    };
    let quota = |used_bytes| VersionRecord::Quota {
        client: 0x0a0b_0c0d,
        limit_bytes: 0x1a1b_1c1d_1e1f_2021,
        used_bytes,
    };
    let parent = Some((0x0708_090a, 0x4a4b_4c4d_4e4f_5051));
    let records = [
        VersionRecord::Counters(counters),
        VersionRecord::Counters(Counters { sweep_since: None, ..counters }),
        branch(name.clone(), parent, None),
        branch(None, parent, None),
        branch(Some("disk".to_owned()), None, Some(ClientKind::Files)),
        branch(Some("disk".to_owned()), None, Some(ClientKind::Block)),
        branch(Some("disk".to_owned()), None, Some(ClientKind::Application)),
        snapshot(None, true, name.clone()),
        snapshot(None, false, None),
        snapshot(Some(Origin { volume: ID, epoch: 0x3a3b_3c3d_3e3f_4041 }), false, name),
        quota(Some(0x2a2b_2c2d_2e2f_3031)),
        quota(None),
    ];
    let mut bytes = Vec::new();
    for record in records {
        let encoded = record.encode();
        push_line(&mut bytes, &encoded);
        assert_eq!(VersionRecord::decode(record.index(), &encoded), Ok(record));
    }
    check("versions_v1", &bytes);
}

#[test]
fn rearrangement_v1() {
    let (first_page, count) = (0x0003_6162_6364_6566, 0x0000_696a_6b6c_6d6e);
    let tasks = [
        Task::Punch { list: KEY.list, first_page, count },
        Task::Shift {
            from: KEY.list,
            from_page: first_page,
            to: KEY.index,
            to_page: 0x0001_7172_7374_7576,
            count,
        },
        Task::Swap { a: KEY.list, b: KEY.index, first_page, count },
    ];
    let bytes = rearrangement::encode(KEY.branch, &tasks);
    check("rearrangement_v1", &bytes);
    assert_eq!(rearrangement::decode(&bytes), Ok((KEY.branch, tasks.to_vec())));
}

#[test]
fn removals() {
    let mut bytes = Vec::new();
    for first_epoch in [None, Some(KEY.epoch)] {
        let encoded = removal::encode(first_epoch);
        push_line(&mut bytes, &encoded);
        assert_eq!(removal::decode(KEY.list, &encoded), Ok(first_epoch));
    }
    check("removals", &bytes);
}

#[test]
fn compressed_v1() {
    let pages = CompressedPages::new(0x0102_0304_0506_0708, 0x090a_0b0c_0d0e_0f10);
    check("compressed_v1", &pages.encode().unwrap());
}

#[test]
fn roster_v1() {
    let member = |uuid, state, path: &str| Member {
        uuid,
        state,
        leaves: state == MemberState::InSync,
        is_fast: false,
        written_generation: 0x0102_0304,
        since: Timestamp(0x1718_1920_2122_2324),
        path: path.into(),
    };
    let other = Uuid(*b"another member's");
    let third = Uuid(*b"a third member's");
    let mut stale = Regions::default();
    for region in [0, 9, 77] {
        stale.insert(region);
    }
    let roster = Roster {
        set: ID,
        member: other,
        end_bytes: None,
        generation: 0x0506_0708_090a_0b0c,
        set_len_bytes: 0x0001_0203_4000,
        region_size_log2: 22,
        is_clean: true,
        members: vec![
            member(other, MemberState::InSync, "/dev/one"),
            member(third, MemberState::BroughtUp { copied_to_bytes: 0x1112_1314 }, ""),
            member(ID, MemberState::Missing, "/srv/two.img"),
        ],
        stale,
        extents: None,
    };
    let bytes = roster.encode();
    check("roster_v1", &bytes);
    assert_eq!(Roster::decode(&bytes), Ok(roster.clone()));
    for wrong in [
        Roster { member: Uuid([9; 16]), ..roster.clone() },
        Roster { members: vec![roster.members[0].clone(); 2], ..roster.clone() },
        Roster { set_len_bytes: 4095, ..roster.clone() },
        Roster { region_size_log2: 12, ..roster.clone() },
        Roster { generation: 1 << 63, ..roster },
    ] {
        assert!(Roster::decode(&wrong.encode()).is_err(), "{wrong:?}");
    }
}

#[test]
fn roster_v1_spread() {
    let member = |uuid, leaves, path: &str| Member {
        uuid,
        state: MemberState::InSync,
        leaves,
        is_fast: false,
        written_generation: 0x0102_0304,
        since: Timestamp(0x1718_1920_2122_2324),
        path: path.into(),
    };
    let other = Uuid(*b"another member's");
    let column = |member, start| Column { member, start };
    let extents = vec![
        Extent { segment_count: 0x0020_0000, columns: vec![column(0, 2), column(1, 2)] },
        Extent { segment_count: 0x0102_0304, columns: vec![column(1, 0x0203_0405)] },
    ];
    let roster = Roster {
        set: ID,
        member: other,
        end_bytes: None,
        generation: 0x0506_0708_090a_0b0c,
        set_len_bytes: spread_len_bytes(&extents, 22),
        region_size_log2: 22,
        is_clean: false,
        members: vec![member(ID, false, "/dev/one"), member(other, true, "/srv/two.img")],
        stale: Regions::default(),
        extents: Some(extents),
    };
    let bytes = roster.encode();
    check("roster_v1_spread", &bytes);
    let ended = Roster { end_bytes: Some(0x0001_0203_0000_5000), ..roster.clone() };
    check("roster_v1_end", &ended.encode());
    assert_eq!(Roster::decode(&ended.encode()), Ok(ended));
    assert_eq!(Roster::decode(&bytes), Ok(roster.clone()));
    let mut fast = roster.clone();
    fast.members[0].is_fast = true;
    let fast_bytes = fast.encode();
    assert_eq!(Roster::decode(&fast_bytes), Ok(fast));
    // Beside the checksum they differ in the class of the first member.
    let differing = (12..bytes.len()).filter(|at| bytes[*at] != fast_bytes[*at]);
    assert_eq!(differing.collect::<Vec<_>>(), [128 + 18]);
    assert_eq!(fast_bytes[128 + 18], 1);
    for wrong in [
        Roster { set_len_bytes: roster.set_len_bytes + 4096, ..roster.clone() },
        Roster { region_size_log2: 27, ..roster.clone() },
        Roster { members: roster.members[..1].to_vec(), member: ID, ..roster.clone() },
        Roster { extents: Some(Vec::new()), ..roster },
    ] {
        assert!(Roster::decode(&wrong.encode()).is_err(), "{wrong:?}");
    }
}

#[test]
fn the_checksum_is_crc_32c() {
    // The check value of RFC 3720, appendix B.4 and of the catalogue of CRC algorithms.
    assert_eq!(dendro_format::checksum(b"123456789"), 0xe306_9283);
    assert_eq!(dendro_format::checksum(&[0; 32]), 0x8a91_36aa);
    let begun = dendro_format::checksum(b"1234");
    assert_eq!(dendro_format::checksum_append(begun, b"56789"), 0xe306_9283);
}
