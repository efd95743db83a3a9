//! Damage of every kind is answered, never with a panic.

use dendro_base::Rng;
use dendro_format::compression::Packer;
use dendro_format::record::Records;
use dendro_format::testing::target::Target;
use dendro_format::testing::{mutate, sample, target};
use dendro_format::{
    Checkpoint, CompressedPages, Compression, Hints, PartialHeader, Superblock, Usage, node,
};

/// Valid bytes of what the target of that name reads.
fn valid(name: &str, rng: &mut Rng) -> Vec<u8> {
    match name {
        "superblock" => sample::superblock(rng).encode().as_slot().to_vec(),
        "partial" => sample::partial(rng).1,
        "records" => sample::records(rng),
        "node" => sample::node_bytes(rng),
        "checkpoint" => sample::checkpoint(rng).encode(),
        "block" => {
            let text = b"text of a page, ".repeat(1 + rng.below(200) as usize);
            let with = if rng.chance(50) { Compression::Lz4 } else { Compression::ZSTD };
            let mut stored = Vec::new();
            Packer::new().pack(with, &text, &mut stored);
            stored
        }
        "usage" => sample::usage(rng).encode().to_vec(),
        _ => panic!("{name} has no sample"),
    }
}

fn each_target(test: impl Fn(&str, Target, &mut Rng)) {
    for (name, target) in target::ALL {
        test(name, target, &mut Rng::new(7));
    }
}

#[test]
fn mutations_of_valid_structures_are_survived() {
    each_target(|name, target, rng| {
        for _ in 0..1000 {
            let valid = valid(name, rng);
            for _ in 0..100 {
                let mut bytes = valid.clone();
                mutate(rng, &mut bytes);
                target(&bytes);
            }
        }
    });
}

#[test]
fn random_bytes_are_survived() {
    each_target(|_, target, rng| {
        for _ in 0..20_000 {
            let limit = 1 << rng.below(10);
            let mut bytes = vec![0; rng.below(limit) as usize];
            rng.fill(&mut bytes);
            target(&bytes);
        }
    });
}

#[test]
fn truncation_at_every_length_is_survived() {
    each_target(|name, target, rng| {
        for _ in 0..5 {
            let valid = valid(name, rng);
            for len in 0..valid.len().min(3000) {
                target(&valid[..len]);
            }
        }
    });
}

/// Tells whether bytes are accepted as what they were.
type Accepts = Box<dyn Fn(&[u8]) -> bool>;

#[test]
fn a_flip_of_any_bit_and_any_truncation_is_noticed_by_everything_with_a_checksum() {
    for seed in 0..3 {
        let mut rng = Rng::new(seed);
        let superblock = sample::superblock(&mut rng).encode().as_slot().to_vec();
        let checkpoint = sample::checkpoint(&mut rng);
        let (info, entries) = sample::node(&mut rng);
        let (header, partial) = sample::partial(&mut rng);
        // The payload is covered by checksums in the records, not by the header's.
        let records_end = (header.records_offset_bytes + header.records_len_bytes) as usize;
        let header_and_records: Vec<u8> =
            [&partial[..128], &partial[header.records_offset_bytes as usize..records_end]].concat();
        let cases: [(&str, Vec<u8>, Accepts); 4] = [
            ("superblock", superblock, Box::new(|bytes| Superblock::decode(bytes).is_ok())),
            (
                "checkpoint",
                checkpoint.encode(),
                Box::new(move |bytes| Checkpoint::decode(bytes, &checkpoint.uuid).is_ok()),
            ),
            (
                "node",
                node::encode(&info, &entries).0,
                Box::new(move |bytes| node::decode(bytes, &info.uuid).is_ok()),
            ),
            (
                "partial",
                header_and_records,
                Box::new(|bytes| {
                    PartialHeader::decode(bytes).is_ok()
                        && PartialHeader::verify(bytes, &bytes[128..])
                }),
            ),
        ];
        for (name, valid, accepts) in cases {
            assert!(accepts(&valid), "{name} {seed}");
            for bit in 0..valid.len() * 8 {
                let mut bytes = valid.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(!accepts(&bytes), "{name} {seed}: bit {bit}");
            }
            for len in 0..valid.len() {
                assert!(!accepts(&valid[..len]), "{name} {seed}: {len} bytes");
            }
        }
    }
}

#[test]
fn records_cut_off_end_in_an_error_or_at_a_record() {
    for seed in 0..200 {
        let bytes = sample::records(&mut Rng::new(seed));
        let whole: Vec<_> = Records::new(&bytes).collect();
        for len in 0..bytes.len() {
            let read: Vec<_> = Records::new(&bytes[..len]).collect();
            let good = read.iter().take_while(|record| record.is_ok()).count();
            assert_eq!(read[..good], whole[..good]);
            assert!(read.len() - good <= 1, "an error is the last");
        }
    }
}

#[test]
fn counts_of_compressed_pages_are_of_one_length_or_there_are_none() {
    assert_eq!(CompressedPages::default().encode(), None);
    let pages = CompressedPages::new(3, 640);
    let bytes = pages.encode().unwrap();
    assert_eq!(CompressedPages::decode(&bytes), Ok(pages));
    assert!(CompressedPages::decode(&bytes[..15]).is_err());
    assert!(CompressedPages::decode(&[&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn usage_of_another_length_or_head_is_refused() {
    let bytes = sample::usage(&mut Rng::new(1)).encode();
    assert!(Usage::decode(&bytes[..15]).is_err());
    assert!(Usage::decode(&[&bytes[..], &[0]].concat()).is_err());
    for head in 3..=255 {
        let mut bytes = bytes;
        bytes[4] = head;
        assert!(Usage::decode(&bytes).is_err());
    }
}

#[test]
fn records_that_reach_too_far_are_refused() {
    use dendro_format::usage::FIRST_SYSTEM_LIST;
    use dendro_format::{MAX_PAGE_COUNT, Malformed, Record};

    let read = |record: Record<'_>| -> Result<(), Malformed> {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        Records::new(&bytes).next().unwrap().map(drop)
    };
    let end = MAX_PAGE_COUNT;
    let (list, own) = (FIRST_SYSTEM_LIST - 1, FIRST_SYSTEM_LIST);
    for (good, bad) in [(list, own), (1, u64::MAX)] {
        for record in [
            |list| Record::CreateList { list, hints: Hints::default() },
            |list| Record::DeleteList { list },
            |list| Record::SetHints { list, hints: Hints::default() },
            |list| Record::PutRecord { list, index: u64::MAX, value: b"" },
            |list| Record::DeleteRecord { list, index: u64::MAX },
            |list| Record::SwapPages { a: 1, b: list },
            |list| Record::SwapPages { a: list, b: 1 },
            |list| Record::SwapRange { a: 1, b: list, first_page: 0, count: 1 },
            |list| Record::SwapRange { a: list, b: 1, first_page: 0, count: 1 },
        ] {
            assert_eq!(read(record(good)), Ok(()));
            assert!(read(record(bad)).is_err());
        }
    }
    for (first_page, count) in [(0, end), (end - 1, 1), (end, 0)] {
        assert_eq!(read(Record::ZeroPages { list, first_page, count }), Ok(()));
        assert_eq!(read(Record::PunchPages { list, first_page, count }), Ok(()));
    }
    for (first_page, count) in [(1, end), (end, 1), (u64::MAX, 1), (1, u64::MAX)] {
        assert!(read(Record::ZeroPages { list, first_page, count }).is_err());
        assert!(read(Record::PunchPages { list, first_page, count }).is_err());
        assert!(read(Record::SwapRange { a: list, b: 1, first_page, count }).is_err());
        let (from, to) = (list, list);
        let outward = Record::MovePages { from, from_page: 0, to, to_page: first_page, count };
        let inward = Record::MovePages { from, from_page: first_page, to, to_page: 0, count };
        assert!(read(outward).is_err() && read(inward).is_err());
    }
}

#[test]
fn counters_that_cannot_be_are_refused() {
    use dendro_format::{Head, SegmentNo};

    let rng = &mut Rng::new(1);
    let (last, past) = ((1 << 63) - 1, 1 << 63);
    let superblock = sample::superblock(rng);
    let read = |seq| {
        let superblock = Superblock { seq, ..superblock.clone() };
        Superblock::decode(superblock.encode().as_slot()).is_ok()
    };
    assert!(read(last) && !read(past));
    let checkpoint = sample::checkpoint(rng);
    let read = |changed: Checkpoint| Checkpoint::decode(&changed.encode(), &changed.uuid).is_ok();
    for (value, is_good) in [(last, true), (past, false)] {
        assert_eq!(read(Checkpoint { seq: value, ..checkpoint.clone() }), is_good);
        assert_eq!(read(Checkpoint { log_seq: value, ..checkpoint.clone() }), is_good);
        assert_eq!(read(Checkpoint { commit_seq: value, ..checkpoint.clone() }), is_good);
        assert_eq!(read(Checkpoint { epoch: value, ..checkpoint.clone() }), is_good);
    }
    assert!(read(Checkpoint { next_list: 1 << 62, ..checkpoint.clone() }));
    assert!(!read(Checkpoint { next_list: (1 << 62) + 1, ..checkpoint }));
    let (header, mut bytes) = sample::partial(rng);
    let header = PartialHeader { head: Head::Main, segment: SegmentNo(2), ..header };
    let mut read = |changed: PartialHeader| {
        changed.encode_into(&mut bytes);
        PartialHeader::decode(&bytes).is_ok()
    };
    for (value, is_good) in [(last, true), (past, false)] {
        assert_eq!(read(PartialHeader { seq: value, ..header }), is_good);
        assert_eq!(read(PartialHeader { commit_seq: value, ..header }), is_good);
        assert_eq!(read(PartialHeader { durable_seq: value, ..header }), is_good);
        assert_eq!(read(PartialHeader { epoch: value, ..header }), is_good);
    }
}
