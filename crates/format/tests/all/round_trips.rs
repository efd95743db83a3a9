//! What is written is read back, for random structures of every kind.

use dendro_base::{Rng, Uuid};
use dendro_format::record::{self, Records};
use dendro_format::testing::sample;
use dendro_format::{Checkpoint, PartialHeader, Record, Superblock, Usage, node};
use zerocopy::little_endian::U32;

const CASES: u64 = 2000;

fn each_seed(test: impl Fn(&mut Rng)) {
    for seed in 0..CASES {
        test(&mut Rng::new(seed));
    }
}

#[test]
fn superblocks_read_back() {
    each_seed(|rng| {
        let written = sample::superblock(rng);
        assert_eq!(Superblock::decode(written.encode().as_slot()), Ok(written));
    });
}

#[test]
fn a_label_that_is_too_long_is_cut_between_characters() {
    let mut rng = Rng::new(1);
    let label = "ä".repeat(31) + "a→";
    let written = Superblock { label, ..sample::superblock(&mut rng) };
    let read = Superblock::decode(written.encode().as_slot()).unwrap();
    assert_eq!(read.label, "ä".repeat(31) + "a");
}

#[test]
fn partial_segments_read_back() {
    each_seed(|rng| {
        let (written, bytes) = sample::partial(rng);
        let (read, crc32c) = PartialHeader::decode(&bytes).unwrap();
        assert_eq!(read, written);
        assert_eq!(bytes[4..8], crc32c.to_le_bytes());
        assert!(PartialHeader::verify(&bytes, read.records_of(&bytes).unwrap()));
    });
}

#[test]
fn nodes_read_back() {
    each_seed(|rng| {
        let (info, entries) = sample::node(rng);
        let (bytes, _) = node::encode(&info, &entries);
        assert_eq!(node::peek_len_bytes(&bytes), Ok(bytes.len()));
        assert_eq!(node::decode(&bytes, &info.uuid), Ok((info, entries)));
        assert!(node::decode(&bytes, &Uuid::default()).is_err(), "another volume's");
    });
}

#[test]
fn checkpoints_read_back() {
    each_seed(|rng| {
        let written = sample::checkpoint(rng);
        let bytes = written.encode();
        assert_eq!(Checkpoint::decode(&bytes, &written.uuid), Ok(written));
        assert!(Checkpoint::decode(&bytes, &Uuid::default()).is_err(), "another volume's");
    });
}

#[test]
fn usage_reads_back() {
    each_seed(|rng| {
        let written = sample::usage(rng);
        assert_eq!(Usage::decode(&written.encode()), Ok(written));
    });
}

#[test]
fn records_read_back_one_by_one_and_in_a_row() {
    each_seed(|rng| {
        let mut value = vec![0; rng.below(1025) as usize];
        rng.fill(&mut value);
        let crcs: Vec<U32> = (0..rng.below(33)).map(|_| (rng.next_u64() as u32).into()).collect();
        let mut bytes = Vec::new();
        let written: Vec<Record<'_>> =
            (0..rng.below(30)).map(|_| sample::record(rng, &value, &crcs)).collect();
        for record in &written {
            let start = bytes.len();
            record.encode(&mut bytes);
            assert_eq!(Records::new(&bytes[start..]).next(), Some(Ok(*record)));
        }
        let read: Vec<Record<'_>> = Records::new(&bytes).collect::<Result<_, _>>().unwrap();
        assert_eq!(read, written);
        bytes.push(0);
        bytes.resize(bytes.len() + 100, 0xa5);
        assert_eq!(Records::new(&bytes).count(), written.len(), "kind 0 ends the records");
    });
}

#[test]
fn records_taken_back_are_passed_over_and_dropped() {
    each_seed(|rng| {
        let mut bytes = Vec::new();
        let mut kept = Vec::new();
        let mut kept_before_mark = 0;
        let mut mark = 0;
        for index in 0..rng.below(20) {
            let value = vec![index as u8; rng.below(40) as usize];
            let put = Record::PutRecord { list: 1, index, value: &value };
            let start = bytes.len();
            put.encode(&mut bytes);
            if rng.chance(40) {
                record::void(&mut bytes[start..]);
            } else {
                put.encode(&mut kept);
            }
            if rng.chance(30) {
                (mark, kept_before_mark) = (bytes.len(), kept.len());
            }
        }
        let passed_over: Vec<_> = Records::new(&bytes).collect();
        assert_eq!(passed_over, Records::new(&kept).collect::<Vec<_>>());
        let mut compacted = bytes.clone();
        assert_eq!(record::compact(&mut compacted, mark), kept_before_mark);
        assert_eq!(compacted, kept);
    });
}
