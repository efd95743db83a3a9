//! Random streams, all of them valid.

use dendro_base::units::PAGE_SIZE;
use dendro_base::{ClientKind, Origin, Rng, Timestamp, Uuid};
use dendro_format::MAX_PAGE_COUNT;
use dendro_format::usage::FIRST_SYSTEM_LIST;

use crate::encoder::{Encoder, Level};
use crate::header::{HeadOf, Header, Position, Version};
use crate::item::{Item, ListChange};
use crate::order::MAX_VALUE_LEN_BYTES;

/// An item that owns its content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are those of `Item`")]
pub enum OwnItem {
    List { list: u64, change: ListChange, hints: u16, near: u64 },
    Record { index: u64, value: Option<Vec<u8>> },
    Page { page_index: u64, bytes: Vec<u8> },
    Zeros(std::ops::Range<u64>),
    Holes(std::ops::Range<u64>),
}

impl OwnItem {
    /// The item as an encoder takes it.
    #[must_use]
    pub fn borrowed(&self) -> Item<'_> {
        match self {
            Self::List { list, change, hints, near } => {
                Item::List { list: *list, change: *change, hints: *hints, near: *near }
            }
            Self::Record { index, value } => {
                Item::Record { index: *index, value: value.as_deref() }
            }
            Self::Page { page_index, bytes } => Item::Page { page_index: *page_index, bytes },
            Self::Zeros(pages) => Item::Zeros(pages.clone()),
            Self::Holes(pages) => Item::Holes(pages.clone()),
        }
    }
}

impl From<Item<'_>> for OwnItem {
    fn from(item: Item<'_>) -> Self {
        match item {
            Item::List { list, change, hints, near } => Self::List { list, change, hints, near },
            Item::Record { index, value } => {
                Self::Record { index, value: value.map(<[u8]>::to_vec) }
            }
            Item::Page { page_index, bytes } => Self::Page { page_index, bytes: bytes.to_vec() },
            Item::Zeros(pages) => Self::Zeros(pages),
            Item::Holes(pages) => Self::Holes(pages),
        }
    }
}

fn uuid(rng: &mut Rng) -> Uuid {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    Uuid::from_random(bytes)
}

fn version(rng: &mut Rng) -> Version {
    let epoch = 1 + (rng.next_u64() >> rng.below(63) >> 2);
    Version {
        origin: Origin { volume: uuid(rng), epoch },
        time: Timestamp(rng.next_u64().cast_signed()),
        name: rng.chance(70).then(|| "ä".repeat(1 + rng.below(20) as usize)),
    }
}

/// A header; `has_base` says whether of a stream with a base.
pub fn header(rng: &mut Rng, has_base: bool) -> Header {
    Header {
        stream: uuid(rng),
        source: uuid(rng),
        version: version(rng),
        base: has_base.then(|| version(rng)),
        is_compressed: false,
        kind: ClientKind::from_code(rng.below(5) as u8),
        head_of: rng.chance(30).then(|| HeadOf {
            branch: "b".repeat(1 + rng.below(20) as usize),
            is_main: rng.chance(50),
        }),
        is_followed: rng.chance(30),
        // What is in order from the first list on is in order from there on.
        rest: rng.chance(30).then(|| Position {
            list: 1,
            is_in_pages: rng.chance(50),
            index: rng.below(MAX_PAGE_COUNT),
        }),
    }
}

/// A number that is at least `least`, mostly close to it, and below `end`, if there is one.
fn next(rng: &mut Rng, least: u64, end: u64) -> Option<u64> {
    let distance = rng.next_u64() >> rng.below(64).max(if rng.chance(80) { 60 } else { 0 });
    let number = least.checked_add(distance).filter(|number| *number < end);
    number.or_else(|| (least < end).then_some(least))
}

/// Bytes, of which at most the first few are random, and the last is not zero.
fn content(rng: &mut Rng, max_len: usize) -> Vec<u8> {
    let mut bytes = vec![b'x'; 1 + rng.below(max_len as u64) as usize];
    let random_len = bytes.len().min(rng.below(4096) as usize);
    rng.fill(&mut bytes[..random_len]);
    if let Some(last) = bytes.last_mut() {
        *last |= 1;
    }
    bytes
}

/// Items in order, with or without what only a stream with a base has. None of them would be joined
/// with the one before it.
pub fn items(rng: &mut Rng, has_base: bool, list_count: u64) -> Vec<OwnItem> {
    let mut items = Vec::new();
    let mut least_list = 1;
    for _ in 0..list_count {
        let Some(list) = next(rng, least_list, FIRST_SYSTEM_LIST) else { break };
        least_list = list + 1;
        let change = match rng.below(if has_base { 4 } else { 1 }) {
            0 => ListChange::Made,
            3 => ListChange::Deleted,
            _ => ListChange::Changed,
        };
        let is_near = change != ListChange::Deleted && rng.chance(30);
        let near = if is_near { 1 + rng.below(1 << 40) } else { 0 };
        items.push(OwnItem::List { list, change, hints: rng.below(2) as u16, near });
        if change != ListChange::Deleted {
            put_records(rng, change, &mut items);
            put_pages(rng, change, &mut items);
        }
    }
    items
}

fn put_records(rng: &mut Rng, change: ListChange, items: &mut Vec<OwnItem>) {
    let mut least = Some(0);
    for _ in 0..rng.below(5) {
        let Some(index) = least.and_then(|least| next(rng, least, u64::MAX)) else { return };
        let is_deleted = change == ListChange::Changed && rng.chance(30);
        let value = (!is_deleted).then(|| content(rng, MAX_VALUE_LEN_BYTES));
        items.push(OwnItem::Record { index, value });
        least = index.checked_add(1);
    }
}

fn put_pages(rng: &mut Rng, change: ListChange, items: &mut Vec<OwnItem>) {
    let mut least = 0;
    for _ in 0..rng.below(5) {
        let Some(start) = next(rng, least, MAX_PAGE_COUNT) else { return };
        let range = |rng: &mut Rng| {
            let end = next(rng, start + 1, MAX_PAGE_COUNT + 1).unwrap_or(start + 1);
            start..end
        };
        let item = match rng.below(if change == ListChange::Changed { 4 } else { 3 }) {
            0 => OwnItem::Zeros(range(rng)),
            3 => OwnItem::Holes(range(rng)),
            _ => OwnItem::Page { page_index: start, bytes: content(rng, PAGE_SIZE) },
        };
        // A range that follows at once could be joined with the one before.
        least = match &item {
            OwnItem::Zeros(pages) | OwnItem::Holes(pages) => pages.end + 1,
            _ => start + 1,
        };
        items.push(item);
    }
}

/// The stream that has these items.
///
/// # Panics
/// When they are not in order.
#[must_use]
pub fn encode(header: &Header, items: &[OwnItem], level: Option<Level>) -> Vec<u8> {
    let mut encoder = Encoder::begin(Vec::new(), header, level).expect("a vector grows");
    for item in items {
        encoder.put(&item.borrowed()).expect("the items are in order");
    }
    encoder.end().expect("a vector grows").0
}

/// The same with a frame for each item.
///
/// # Panics
/// When they are not in order.
#[must_use]
pub fn encode_in_small_frames(header: &Header, items: &[OwnItem]) -> Vec<u8> {
    let mut encoder = Encoder::begin(Vec::new(), header, None).expect("a vector grows");
    for item in items {
        encoder.put(&item.borrowed()).expect("the items are in order");
        encoder.end_frame().expect("a vector grows");
    }
    encoder.end().expect("a vector grows").0
}

/// A stream of a few lists.
pub fn stream(rng: &mut Rng) -> Vec<u8> {
    let has_base = rng.chance(60);
    let list_count = rng.below(8);
    let (header, items) = (header(rng, has_base), items(rng, has_base, list_count));
    let level = if rng.chance(50) { Level::new(1) } else { None };
    encode(&header, &items, level)
}
