//! The bytes of a stream, as they were when its version was fixed. A change of layout fails here.

use std::fmt::Write as _;

use dendro_base::{Timestamp, Uuid};
use dendro_stream::testing::sample::OwnItem;
use dendro_stream::testing::{sample, target};
use dendro_stream::{HeadOf, Header, ListChange, Origin, Position, Version};

const GOLDEN: &str = include_str!("../golden/stream.hex");
const GOLDEN_REST: &str = include_str!("../golden/rest.hex");

fn stream() -> (Header, Vec<OwnItem>) {
    let uuid = |first: u8| Uuid(std::array::from_fn(|at| first + at as u8));
    let version = |first: u8, epoch, name: Option<&str>| Version {
        origin: Origin { volume: uuid(first), epoch },
        time: Timestamp(0x0102_0304_0506_0708),
        name: name.map(str::to_owned),
    };
    let header = Header {
        stream: uuid(0x10),
        source: uuid(0x20),
        version: version(0x30, 0x41, Some("größer")),
        base: Some(version(0x50, 0x40, Some("base"))),
        is_compressed: false,
        kind: None,
        head_of: None,
        is_followed: false,
        rest: None,
    };
    let list = |list, change| OwnItem::List { list, change, hints: 1, near: 0 };
    let items = vec![
        list(1, ListChange::Changed),
        OwnItem::Record { index: 0x1122_3344_5566_7788, value: Some(b"value".to_vec()) },
        OwnItem::Record { index: u64::MAX, value: None },
        OwnItem::Holes(0..0x100),
        OwnItem::Page { page_index: 0x100, bytes: b"page".to_vec() },
        OwnItem::Zeros(0x101..0x103),
        list(0x21, ListChange::Made),
        list(0x22, ListChange::Deleted),
    ];
    (header, items)
}

fn check(header: Header, items: Vec<OwnItem>, golden: &str) {
    let bytes = sample::encode(&header, &items, None);
    let mut text = String::new();
    for line in bytes.chunks(16) {
        for byte in line {
            write!(text, "{byte:02x}").expect("a string grows");
        }
        text.push('\n');
    }
    assert_eq!(text, golden);
    assert_eq!(target::read(&bytes).expect("it was encoded just now"), (header, items));
}

#[test]
fn a_stream_has_the_bytes_that_it_always_had() {
    let (header, items) = stream();
    check(header, items, GOLDEN);
}

#[test]
fn the_rest_of_a_stream_in_a_sequence_has_the_bytes_that_it_always_had() {
    let (header, items) = stream();
    let header = Header {
        head_of: Some(HeadOf { branch: "main".into(), is_main: true }),
        is_followed: true,
        rest: Some(Position { list: 1, is_in_pages: true, index: 0x0102_0304_0506 }),
        ..header
    };
    check(header, items, GOLDEN_REST);
}
