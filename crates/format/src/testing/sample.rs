//! Random structures, all of them valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dendro_base::units::{PAGE_SIZE, align_up_usize};
use dendro_base::{Rng, Timestamp, Uuid};
use zerocopy::little_endian::U32;

use crate::checkpoint::HeadPosition;
use crate::chunk::Skip;
use crate::hints::Hints;
use crate::layout::{MAX_SEGMENT_SIZE_LOG2, MIN_SEGMENT_COUNT, MIN_SEGMENT_SIZE_LOG2};
use crate::node::{self, NodeInfo};
use crate::partial::HEADER_LEN_BYTES;
use crate::superblock::{COMPATIBLE_GROWS, INCOMPATIBLE_MIRRORS, INCOMPATIBLE_SET};
use crate::usage::FIRST_SYSTEM_LIST;
use crate::{
    Addr, CHUNK_PAGES, Checkpoint, ChildPtr, Chunk, Entries, Head, Identity, Key, Layout,
    MAX_PAGE_COUNT, NodePtr, PageRef, PartialHeader, Record, SegmentNo, Space, Superblock, Usage,
    Value,
};

/// A number of any magnitude.
pub const fn number(rng: &mut Rng) -> u64 {
    rng.next_u64() >> rng.below(64)
}

/// A number that counts up.
const fn counter(rng: &mut Rng) -> u64 {
    number(rng) >> 1
}

const fn number_u32(rng: &mut Rng) -> u32 {
    (rng.next_u64() >> 32) as u32 >> rng.below(32)
}

/// A volume's identity.
pub fn uuid(rng: &mut Rng) -> Uuid {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    Uuid::from_random(bytes)
}

const fn time(rng: &mut Rng) -> Timestamp {
    Timestamp(rng.next_u64().cast_signed())
}

const fn head(rng: &mut Rng) -> Head {
    match rng.below(3) {
        0 => Head::Main,
        1 => Head::Map,
        _ => Head::Payload,
    }
}

/// A superblock with a short label.
pub fn superblock(rng: &mut Rng) -> Superblock {
    let log2_span = u64::from(MAX_SEGMENT_SIZE_LOG2 - MIN_SEGMENT_SIZE_LOG2) + 1;
    let segment_size_log2 = MIN_SEGMENT_SIZE_LOG2 + rng.below(log2_span) as u8;
    let segment_count = MIN_SEGMENT_COUNT.saturating_add(number_u32(rng));
    let mut hash_key = [0; 16];
    rng.fill(&mut hash_key);
    let label_len = rng.below(22) as usize;
    let uuid = uuid(rng);
    let [seq, compatible, read_only, incompatible] =
        [counter(rng), number(rng), number(rng), number(rng)];
    let ends = if incompatible & INCOMPATIBLE_SET == 0 { 0 } else { rng.below(9) };
    Superblock {
        uuid,
        seq,
        compatible,
        read_only,
        incompatible,
        layout: Layout::new(segment_size_log2, segment_count).expect("it is within bounds"),
        clean: rng.chance(50),
        compression: rng.below(3) as u8,
        cold_compression: rng.below(3) as u8,
        checkpoint_addr: Addr(number(rng)),
        checkpoint_len_bytes: number_u32(rng),
        checkpoint_crc32c: number_u32(rng),
        created: time(rng),
        written: time(rng),
        hash_key,
        label: (0..label_len).map(|_| if rng.chance(80) { 'a' } else { 'Ω' }).collect(),
        retired: Vec::new(),
        checkpoint_mirror: Some(Addr(1 + number(rng) / 2))
            .filter(|_| incompatible & INCOMPATIBLE_MIRRORS != 0),
        max_len_bytes: if compatible & COMPATIBLE_GROWS == 0 { 0 } else { number(rng) },
        member_ends: (0..ends).map(|_| 1 + number(rng) / 2).collect(),
    }
}

/// Usage of a segment.
pub const fn usage(rng: &mut Rng) -> Usage {
    Usage {
        live_bytes: number_u32(rng),
        head: head(rng),
        class: rng.below(256) as u8,
        written_at: counter(rng),
    }
}

/// A checkpoint with some overrides.
pub fn checkpoint(rng: &mut Rng) -> Checkpoint {
    let overrides: BTreeMap<u32, Usage> =
        (0..rng.below(20)).map(|_| (number_u32(rng), usage(rng))).collect();
    let identity = rng.chance(50).then(|| Identity::of(&superblock(rng)));
    let has_mirrors = identity.is_some_and(|it| it.incompatible & INCOMPATIBLE_MIRRORS != 0);
    let mirror_count = if has_mirrors { rng.below(5) as u32 } else { 0 };
    let root = NodePtr { len_bytes: 64 + number_u32(rng) / 2, ..node_ptr(rng) };
    Checkpoint {
        uuid: uuid(rng),
        seq: counter(rng),
        root: rng.chance(90).then(|| (root, rng.below(8) as u8)),
        log: position(rng),
        log_seq: counter(rng),
        log_prev_crc32c: number_u32(rng),
        next_segment: SegmentNo(number_u32(rng)),
        map: position(rng),
        next_list: list(rng),
        commit_seq: counter(rng),
        epoch: counter(rng),
        live_bytes: number(rng),
        time: time(rng),
        log_clock: counter(rng),
        short_count: counter(rng),
        zero_count: counter(rng),
        counts_are_exact: rng.chance(50),
        totals_are_exact: rng.chance(50),
        identity,
        usage_overrides: overrides
            .into_iter()
            .map(|(segment, usage)| (SegmentNo(segment), usage))
            .collect(),
        mirrors: (0..mirror_count).map(|of| (SegmentNo(2 * of), SegmentNo(2 * of + 1))).collect(),
    }
}

const fn position(rng: &mut Rng) -> HeadPosition {
    HeadPosition { segment: SegmentNo(number_u32(rng)), offset_bytes: number_u32(rng) }
}

/// Where a node lies.
pub const fn node_ptr(rng: &mut Rng) -> NodePtr {
    NodePtr { addr: Addr(number(rng)), len_bytes: number_u32(rng), crc32c: number_u32(rng) }
}

/// A key; small numbers are likely, so that keys share fields.
pub const fn key(rng: &mut Rng) -> Key {
    let space = match rng.below(3) {
        0 => Space::List,
        1 => Space::Records,
        _ => Space::Chunks,
    };
    let list = if rng.chance(80) { rng.below(8) } else { number(rng) };
    let index = match space {
        Space::List => 0,
        _ if rng.chance(50) => rng.below(64),
        Space::Records => number(rng),
        Space::Chunks => number(rng) % (MAX_PAGE_COUNT / CHUNK_PAGES),
    };
    let (branch, epoch) = if rng.chance(70) { (0, 0) } else { (number_u32(rng), number(rng)) };
    Key { list, space, index, branch, epoch }
}

/// A page: a whole one, a short one, a compressed one, one of a frame, or zeros.
pub const fn page_ref(rng: &mut Rng) -> PageRef {
    let addr = Addr(number(rng));
    let crc32c = number_u32(rng);
    let short = 1 + rng.below(PAGE_SIZE as u64) as u16;
    match rng.below(5) {
        0 => PageRef::ZERO,
        4 => {
            let (len_bytes, compression) = (1 + rng.below(8192) as u16, rng.below(4) as u8);
            let frame = PageRef { addr, crc32c, len_bytes, compression, flags: 0 };
            frame.of_frame(rng.below(CHUNK_PAGES) as u32)
        }
        1 => PageRef { addr, crc32c, len_bytes: PAGE_SIZE as u16, compression: 0, flags: 0 },
        2 => PageRef { addr, crc32c, len_bytes: short, compression: 0, flags: 0 },
        _ => {
            let (compression, flags) = (rng.below(4) as u8, rng.below(2) as u8);
            PageRef { addr, crc32c, len_bytes: short, compression, flags }
        }
    }
}

/// A chunk of pages that often lie one after the other.
pub fn chunk(rng: &mut Rng) -> Chunk {
    let mut slots = [None; CHUNK_PAGES as usize];
    let density = rng.below(101);
    let mut last = page_ref(rng);
    for slot in &mut slots {
        let follows = rng.chance(70) && last.is_whole();
        let is_in_frame = rng.chance(70) && last.is_in_frame();
        last = if is_in_frame {
            let index = last.frame_index().unwrap_or_default();
            last.of_frame((index + 1 + u32::from(rng.chance(20))) % CHUNK_PAGES as u32)
        } else if follows {
            let addr = last.addr.plus_bytes(PAGE_SIZE as u64);
            PageRef { addr, crc32c: number_u32(rng), ..last }
        } else {
            page_ref(rng)
        };
        *slot = rng.chance(density).then_some(last);
    }
    let number = |rng: &mut Rng| number_u32(rng);
    let skip = rng.chance(30).then(|| Skip {
        depth: number(rng),
        epoch: rng.next_u64(),
        len: number(rng),
        said: number(rng),
    });
    Chunk::from_slots(&slots).with_skip(skip)
}

fn hints(rng: &mut Rng) -> Hints {
    let near = if rng.chance(50) { number(rng) } else { 0 };
    Hints { near, ..Hints::of_bits(number(rng) as u16) }
}

fn value(rng: &mut Rng, space: Space) -> Value {
    match space {
        Space::List | Space::Records if rng.chance(20) => Value::Tombstone,
        Space::List => Value::List(hints(rng)),
        Space::Records => {
            let mut bytes = vec![0; (number(rng) % 1024) as usize];
            rng.fill(&mut bytes);
            Value::Record(Arc::from(bytes))
        }
        Space::Chunks => Value::Chunk(Arc::new(chunk(rng))),
    }
}

/// What a node holds: up to 40 entries.
pub fn entries(rng: &mut Rng, level: u8) -> Entries {
    let keys: BTreeSet<Key> = (0..=rng.below(40)).map(|_| key(rng)).collect();
    if level == 0 {
        Entries::Leaf(keys.into_iter().map(|key| (key, value(rng, key.space))).collect())
    } else {
        let child = |rng: &mut Rng| ChildPtr { place: node_ptr(rng), newest_epoch: number(rng) };
        Entries::Inner(keys.into_iter().map(|key| (key, child(rng))).collect())
    }
}

/// A node.
pub fn node(rng: &mut Rng) -> (NodeInfo, Entries) {
    let level = rng.below(3) as u8;
    let info =
        NodeInfo { level, uuid: uuid(rng), checkpoint_seq: number(rng), log_seq: number(rng) };
    (info, entries(rng, level))
}

/// A node's bytes.
pub fn node_bytes(rng: &mut Rng) -> Vec<u8> {
    let (info, entries) = node(rng);
    node::encode(&info, &entries).0
}

/// A record; the longer ones take their value from `value` and their checksums from `crcs`.
pub fn record<'a>(rng: &mut Rng, value: &'a [u8], crcs: &'a [U32]) -> Record<'a> {
    let (list, index) = (list(rng), number(rng));
    let (first_page, count) = pages(rng);
    match rng.below(16) {
        0 => Record::CreateList { list, hints: hints(rng) },
        1 => Record::DeleteList { list },
        2 => Record::SetHints { list, hints: hints(rng) },
        3 => Record::PutRecord { list, index, value },
        4 => Record::DeleteRecord { list, index },
        5 => {
            let first_page = first_page.min(MAX_PAGE_COUNT - crcs.len() as u64);
            Record::WriteRun { list, first_page, addr: Addr(index), crcs }
        }
        6 => {
            let page = page_ref(rng);
            let len_bytes = page.len_bytes.max(1);
            let block = PageRef { len_bytes, ..page };
            Record::WriteBlock { list, page: first_page.min(MAX_PAGE_COUNT - 1), block }
        }
        7 => Record::ZeroPages { list, first_page, count },
        8 => Record::PunchPages { list, first_page, count },
        9 => {
            let (from, to) = (list, self::list(rng));
            let to_page = number(rng) % (MAX_PAGE_COUNT - count + 1);
            Record::MovePages { from, from_page: first_page, to, to_page, count }
        }
        10 => Record::SwapPages { a: list, b: self::list(rng) },
        15 => Record::SwapRange { a: list, b: self::list(rng), first_page, count },
        13 => Record::Version { branch: number_u32(rng), epoch: index, is_moved: rng.chance(50) },
        14 => Record::Reuse { segment: SegmentNo(number_u32(rng)) },
        11 => Record::Node { place: node_ptr(rng), level: list as u8, first_key: key(rng) },
        _ => {
            let NodePtr { addr, len_bytes, crc32c } = node_ptr(rng);
            Record::Checkpoint { addr, len_bytes, crc32c }
        }
    }
}

/// A client's list.
const fn list(rng: &mut Rng) -> u64 {
    number(rng) % FIRST_SYSTEM_LIST
}

/// Some pages of a list: the first, and how many.
const fn pages(rng: &mut Rng) -> (u64, u64) {
    let first = number(rng) % MAX_PAGE_COUNT;
    (first, number(rng) % (MAX_PAGE_COUNT - first + 1))
}

/// Up to 20 records' bytes.
pub fn records(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.below(20) {
        let mut value = vec![0; (number(rng) % 300) as usize];
        rng.fill(&mut value);
        let crcs: Vec<U32> = (0..rng.below(40)).map(|_| number_u32(rng).into()).collect();
        record(rng, &value, &crcs).encode(&mut out);
    }
    out
}

/// A partial segment: its header and all of its bytes, the header's included.
pub fn partial(rng: &mut Rng) -> (PartialHeader, Vec<u8>) {
    let records = records(rng);
    let records_offset = HEADER_LEN_BYTES + rng.below(200) as usize;
    let len = align_up_usize(records_offset + records.len() + rng.below(8000) as usize, PAGE_SIZE);
    let header = PartialHeader {
        head: head(rng),
        class: rng.below(256) as u8,
        len_bytes: len as u32,
        uuid: uuid(rng),
        seq: counter(rng),
        segment: SegmentNo(number_u32(rng)),
        offset_bytes: number_u32(rng),
        prev_crc32c: number_u32(rng),
        next_segment: SegmentNo(number_u32(rng)),
        records_offset_bytes: records_offset as u32,
        records_len_bytes: records.len() as u32,
        complete_len_bytes: rng.below(records.len() as u64 + 1) as u32,
        commit_seq: counter(rng),
        durable_seq: counter(rng),
        time: time(rng),
        epoch: counter(rng),
    };
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes[records_offset..records_offset + records.len()].copy_from_slice(&records);
    header.encode_into(&mut bytes);
    (header, bytes)
}
