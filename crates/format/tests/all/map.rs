//! What the map's nodes and chunks promise beyond reading back.

use std::sync::Arc;

use dendro_base::units::PAGE_SIZE;
use dendro_base::{Rng, Uuid};
use dendro_format::node::{self, MAX_NODE_LEN_BYTES, NODE_HEADER_LEN_BYTES, NodeInfo};
use dendro_format::testing::sample;
use dendro_format::{
    Addr, ChildPtr, Chunk, Entries, Hints, Key, NodePtr, PageRef, Space, Value, checksum,
};

const INFO: NodeInfo = NodeInfo { level: 0, uuid: Uuid([7; 16]), checkpoint_seq: 1, log_seq: 2 };

fn leaf(entries: Vec<(Key, Value)>) -> Entries {
    Entries::Leaf(entries)
}

fn list(number: u64) -> (Key, Value) {
    (Key::first(number, Space::List, 0), Value::List(Hints::of_bits(0)))
}

fn whole(page: u64) -> PageRef {
    let addr = Addr::from_bytes((1 << 30) + page * PAGE_SIZE as u64);
    PageRef { addr, crc32c: page as u32, len_bytes: 4096, compression: 0, flags: 0 }
}

fn block(len_bytes: u16) -> PageRef {
    PageRef { len_bytes, ..whole(1) }
}

fn chunk(page: impl Fn(usize) -> Option<PageRef>) -> Chunk {
    Chunk::from_slots(&std::array::from_fn(page))
}

#[test]
fn records_that_are_left_out_have_no_bytes_and_all_else_is_read() {
    let record = |list, byte| {
        (Key::first(list, Space::Records, 4), Value::Record(Arc::from(vec![byte; 100])))
    };
    let entries = |first| leaf(vec![list(1), first, list(2), record(2, 2)]);
    let (bytes, _) = node::encode(&INFO, &entries(record(1, 1)));
    let found = node::decode_without(&bytes, &INFO.uuid, |key| key.list == 1);
    let without = (Key::first(1, Space::Records, 4), Value::Record(Arc::from([])));
    assert_eq!(found, Ok((INFO, entries(without))));
}

fn chunk_bytes(chunk: &Chunk) -> Vec<u8> {
    let mut bytes = Vec::new();
    chunk.encode(&mut bytes);
    assert!(bytes.len() <= chunk.encoded_len_bound());
    let key = Key::first(1, Space::Chunks, 0);
    let entries = leaf(vec![(key, Value::Chunk(Arc::new(chunk.clone())))]);
    let (node, _) = node::encode(&INFO, &entries);
    assert_eq!(node::decode(&node, &INFO.uuid), Ok((INFO, entries)));
    bytes
}

/// A node whose entries are `body`, with the header that fits.
fn forge(level: u8, count: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = node::encode(&INFO, &leaf(vec![list(1)])).0;
    bytes.truncate(NODE_HEADER_LEN_BYTES);
    bytes.extend_from_slice(body);
    let len = bytes.len() as u32;
    bytes[10] = level;
    bytes[12..16].copy_from_slice(&len.to_le_bytes());
    bytes[16..20].copy_from_slice(&count.to_le_bytes());
    let crc32c = checksum(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc32c.to_le_bytes());
    bytes
}

fn problem(level: u8, count: u32, body: &[u8]) -> &'static str {
    node::decode(&forge(level, count, body), &INFO.uuid).expect_err("it is damaged").problem
}

#[test]
fn pages_one_after_the_other_take_four_bytes_each() {
    let run = chunk(|slot| Some(whole(slot as u64)));
    // Five bytes of owned slots, one of holes, the run's tag, four of address, the checksums.
    assert_eq!(chunk_bytes(&run).len(), 5 + 1 + 1 + 4 + 32 * 4);
}

#[test]
fn pages_of_zeros_take_a_byte_for_all_of_them() {
    assert_eq!(chunk_bytes(&chunk(|_| Some(PageRef::ZERO))).len(), 5 + 1 + 1);
}

#[test]
fn a_run_goes_on_over_slots_that_are_not_owned() {
    let every_other = chunk(|slot| (slot % 2 == 0).then(|| whole(slot as u64 / 2)));
    assert_eq!(chunk_bytes(&every_other).len(), 5 + 1 + 1 + 4 + 16 * 4);
}

#[test]
fn kinds_that_alternate_and_pages_that_lie_apart_read_back() {
    chunk_bytes(&chunk(|slot| match slot % 4 {
        0 => Some(whole(100 - slot as u64)),
        1 => Some(PageRef::ZERO),
        2 => Some(block(1 + slot as u16)),
        _ => None,
    }));
    chunk_bytes(&chunk(|_| Some(PageRef { compression: 1, flags: 1, ..block(4096) })));
    let far = PageRef { addr: Addr(u64::MAX), compression: 9, flags: 9, ..block(4095) };
    chunk_bytes(&chunk(|_| Some(far)));
    assert_eq!(chunk_bytes(&Chunk::default()), [0, 0]);
}

#[test]
fn the_bound_of_a_chunks_length_is_one() {
    for seed in 0..5000 {
        chunk_bytes(&sample::chunk(&mut Rng::new(seed)));
    }
}

#[test]
fn a_chunk_answers_for_each_slot() {
    for seed in 0..500 {
        let chunk = sample::chunk(&mut Rng::new(seed));
        let slots = chunk.slots();
        for (slot, page) in slots.iter().enumerate() {
            assert_eq!(chunk.get(slot as u32), *page);
            assert_eq!(chunk.present() >> slot & 1 == 1, page.is_some());
        }
        assert_eq!(chunk.len(), slots.iter().flatten().count());
        assert_eq!(chunk.is_empty(), chunk.iter().next().is_none());
        assert_eq!(Chunk::from_slots(&slots).with_skip(chunk.skip()), chunk);
    }
}

#[test]
fn a_block_takes_whole_grains() {
    let footprints = [0, 1, 64, 65, 4096].map(|len| block(len).footprint_bytes());
    assert_eq!(footprints, [0, 64, 64, 128, 4096]);
}

#[test]
fn neighbouring_keys_share_what_they_have_in_common() {
    let key =
        |index| Key { list: 1 << 40, space: Space::Records, index, branch: 3, epoch: 1 << 40 };
    let len = |indexes: &[u64]| {
        let entries = indexes.iter().map(|&i| (key(i), Value::Record([].into()))).collect();
        node::encode(&INFO, &leaf(entries)).0.len()
    };
    let one = len(&[1 << 60]);
    // A tag, a step of one, a length of zero.
    assert_eq!(len(&[1 << 60, (1 << 60) + 1]), one + 3);
}

#[test]
fn keys_out_of_order_are_refused() {
    // Tag "list changes" and steps to list 5; then the same list, space and index again.
    let five = [0b100, 5, 0, 0, 0];
    assert!(node::decode(&forge(0, 1, &five), &INFO.uuid).is_ok());
    let twice = [&five[..], &[0, 0, 0, 0]].concat();
    assert_eq!(problem(0, 2, &twice), "keys are out of order");
    // From the chunks of a list back to its records.
    let back = [0b10100 | 2, 5, 0, 0, 0, 0b01000 | 1, 9, 0];
    assert_eq!(problem(0, 2, &back), "keys are out of order");
    // An older version of the same key after a newer one.
    let older = [0b10_0100, 5, 0, 0, 9, 0, 0, 0b10_0000, 0, 0, 8, 0, 0];
    assert_eq!(problem(0, 2, &older), "keys are out of order");
    let past_the_end = [
        [0b100, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0].as_slice(),
        &[0b100, 1, 0, 0, 0],
    ];
    assert_eq!(problem(0, 2, &past_the_end.concat()), "a key's number is out of range");
}

#[test]
fn entries_that_contradict_their_node_are_refused() {
    assert_eq!(problem(0, 1, &[0b11000, 0, 0, 0]), "a key is in an unknown space");
    assert_eq!(problem(0, 1, &[0b10000 | 3, 0]), "a value lies in another's space");
    assert!(node::decode(&forge(0, 1, &[0b01000 | 3, 0]), &INFO.uuid).is_ok(), "a tombstone");
    assert_eq!(problem(0, 1, &[0b01000, 0, 0, 0]), "a value lies in another's space");
    assert_eq!(problem(0, 1, &[0, 1, 0, 0]), "a key's index is out of range");
    let past_the_last_page = [0b10000 | 2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10, 0, 0];
    assert_eq!(problem(0, 1, &past_the_last_page), "a key's index is out of range");
    assert_eq!(problem(0, 1, &[1 << 6, 0, 0, 0]), "an entry's tag has unknown bits");
    assert_eq!(problem(1, 1, &[0b01000 | 1, 0, 0, 0, 0, 0, 0, 0]), "a child is marked as a value");
    assert_eq!(problem(0, 1, &[0, 0, 0, 0, 0]), "bytes follow its last entry");
    assert_eq!(problem(0, 2, &[0, 0, 0, 0]), "ends too early");
    assert_eq!(problem(0, 0, &[]), "it has no entries, or too many");
    assert_eq!(problem(0, u32::MAX, &[0, 0, 0, 0]), "it has no entries, or too many");
    assert_eq!(problem(0, 1, &[0b01000 | 1, 0, 0xff, 0xff, 3, 0]), "ends too early");
}

#[test]
fn chunks_that_contradict_themselves_are_refused() {
    let with = |chunk: &[u8]| problem(0, 1, &[&[0b10000 | 2, 0], chunk].concat());
    assert_eq!(with(&[1, 1]), "a page is there and not there");
    assert_eq!(with(&[1, 0, 0b010_00001]), "a run is longer than its chunk");
    assert_eq!(with(&[1, 0, 0b100_00000]), "a run is of an unknown kind");
    assert_eq!(
        with(&[1, 0, 0b001_00000, 1, 0x80, 1, 0, 0, 0, 0, 0]),
        "a block alone is said to be a frame"
    );
    assert_eq!(with(&[3, 0, 0b011_00001, 1, 31, 9, 0, 0]), "a frame has too many pages");
    assert_eq!(with(&[1, 0, 0b011_00000, 1, 31, 0, 0, 0]), "a frame is empty or too long");
    assert_eq!(with(&[1, 0, 0b011_00000, 1, 31, 0x81, 0x40, 0]), "a frame is empty or too long");
    assert_eq!(with(&[3, 0, 0b001_00001, 0, 0, 1, 0, 0, 0, 0, 0]), "a run is of an unknown kind");
    assert_eq!(
        with(&[1, 0, 0b001_00000, 0, 0, 0, 0, 0, 0, 0, 0]),
        "a block is empty or longer than a page"
    );
    assert_eq!(
        with(&[1, 0, 0b001_00000, 0, 0, 0x81, 0x20, 0, 0, 0, 0, 0]),
        "a block is empty or longer than a page"
    );
    assert_eq!(with(&[0xff, 0xff, 0xff, 0xff, 0x3f, 0]), "a number is out of range");
}

#[test]
fn holes_read_back() {
    let bytes = forge(0, 1, &[0b10000 | 2, 0, 1, 2, 0b010_00000]);
    let (info, entries) = node::decode(&bytes, &INFO.uuid).unwrap();
    assert_eq!(node::encode(&info, &entries).0, bytes);
    let Entries::Leaf(entries) = entries else { panic!("it is a leaf") };
    let Value::Chunk(chunk) = &entries[0].1 else { panic!("it is a chunk") };
    assert_eq!((chunk.len(), chunk.get(1)), (1, None));
}

#[test]
fn a_node_may_be_64_kib_long_and_no_longer() {
    let filled = |value_len: usize| {
        let key = Key::first(0, Space::Records, 0);
        let value = Value::Record(vec![0; value_len].into());
        std::panic::catch_unwind(|| node::encode(&INFO, &leaf(vec![(key, value)])).0)
    };
    // The header, a tag, an index, three bytes of length.
    let longest = MAX_NODE_LEN_BYTES - NODE_HEADER_LEN_BYTES - 5;
    let bytes = filled(longest).unwrap();
    assert_eq!(bytes.len(), MAX_NODE_LEN_BYTES);
    assert!(node::decode(&bytes, &INFO.uuid).is_ok());
    assert!(filled(longest + 1).is_err());
}

#[test]
#[should_panic(expected = "in order")]
fn a_node_with_keys_out_of_order_is_never_written() {
    let _ = node::encode(&INFO, &leaf(vec![list(2), list(1)]));
}

#[test]
#[should_panic(expected = "leaves are at level 0")]
fn a_leaf_above_the_leaves_is_never_written() {
    let _ = node::encode(&NodeInfo { level: 1, ..INFO }, &leaf(vec![list(1)]));
}

#[test]
fn an_inner_node_names_its_children() {
    let child = |n: u64| ChildPtr {
        place: NodePtr { addr: Addr(n), len_bytes: n as u32, crc32c: n as u32 },
        newest_epoch: n >> 10,
    };
    let children = (1..50).map(|n| (Key::first(n, Space::List, 0), child(n << 20))).collect();
    let (info, entries) = (NodeInfo { level: 3, ..INFO }, Entries::Inner(children));
    let (bytes, _) = node::encode(&info, &entries);
    assert_eq!(entries.newest_epoch(), 49 << 10);
    assert_eq!(node::decode(&bytes, &info.uuid), Ok((info, entries)));
}
