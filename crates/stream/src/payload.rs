//! The payload of frames: items one after the other, and what ends a stream.

use std::mem::size_of;

use dendro_format::{Malformed, Result};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::item::{Counts, Item, ListChange};

const WRONG: fn(&'static str) -> Malformed =
    |problem| Malformed { structure: "item of a stream", problem };

/// The kinds of items.
const LIST: u8 = 1;
const RECORD: u8 = 2;
const PAGE: u8 = 3;
const ZEROS: u8 = 4;
const HOLES: u8 = 5;

/// The details of lists and records.
const MADE: u8 = 1;
const CHANGED: u8 = 2;
const DELETED: u8 = 3;
const MADE_NEAR: u8 = 4;
const CHANGED_NEAR: u8 = 5;

/// The front of an item, version 1. The value of a record, the bytes of a page, or the count of
/// zeros or holes (a u64) follow.
///
/// | offset | size | field    | meaning                                                          |
/// |-------:|-----:|----------|------------------------------------------------------------------|
/// |      0 |    1 | `kind`   | 1 list, 2 record, 3 page, 4 pages of zeros, 5 holes              |
/// |      1 |    1 | `detail` | of a list and a record: 1 made, 2 changed, 3 deleted; otherwise zero |
/// |      2 |    2 | `len`    | bytes of the record's value or of the page, which follow; of a list its hints; otherwise zero |
/// |      4 |    8 | `number` | of the list; of the record; of the page, or the first page       |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ItemV1 {
    kind: u8,
    detail: u8,
    len: U16,
    number: U64,
}

const _: () = assert!(size_of::<ItemV1>() == 12);

/// The payload of the last frame, version 1: how much was in the stream.
///
/// | offset | size | field             | meaning                                                 |
/// |-------:|-----:|-------------------|---------------------------------------------------------|
/// |      0 |    8 | `made_lists`      | lists that were made                                    |
/// |      8 |    8 | `changed_lists`   | lists that were changed                                 |
/// |     16 |    8 | `deleted_lists`   | lists that were deleted                                 |
/// |     24 |    8 | `put_records`     | records that were put                                   |
/// |     32 |    8 | `deleted_records` | records that were deleted                               |
/// |     40 |    8 | `pages`           | pages with content                                      |
/// |     48 |    8 | `zero_pages`      | pages of zeros                                          |
/// |     56 |    8 | `content`         | bytes of the values of records, and of pages            |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EndV1 {
    made_lists: U64,
    changed_lists: U64,
    deleted_lists: U64,
    put_records: U64,
    deleted_records: U64,
    pages: U64,
    zero_pages: U64,
    content: U64,
}

const _: () = assert!(size_of::<EndV1>() == 64);

/// The bytes that an item takes.
pub(crate) const fn len_bytes(item: &Item<'_>) -> usize {
    let content = match item {
        Item::List { near: 0, .. }
        | Item::List { change: ListChange::Deleted, .. }
        | Item::Record { value: None, .. } => 0,
        Item::List { .. } => size_of::<U64>(),
        Item::Record { value: Some(value), .. } => value.len(),
        Item::Page { bytes, .. } => bytes.len(),
        Item::Zeros(_) | Item::Holes(_) => size_of::<U64>(),
    };
    size_of::<ItemV1>() + content
}

/// Appends an item that is in order ([`crate::order`]).
pub(crate) fn encode(item: &Item<'_>, payload: &mut Vec<u8>) {
    let mut put = |kind, detail, len: u16, number: u64, content: &[u8]| {
        let front = ItemV1 { kind, detail, len: len.into(), number: number.into() };
        payload.extend_from_slice(front.as_bytes());
        payload.extend_from_slice(content);
    };
    match item {
        Item::List { list, change, hints, near } => {
            let near_bytes = U64::new(*near);
            let (detail, content) = match (change, near) {
                (ListChange::Made, 0) => (MADE, &[][..]),
                (ListChange::Made, _) => (MADE_NEAR, near_bytes.as_bytes()),
                (ListChange::Changed, 0) => (CHANGED, &[][..]),
                (ListChange::Changed, _) => (CHANGED_NEAR, near_bytes.as_bytes()),
                (ListChange::Deleted, _) => (DELETED, &[][..]),
            };
            put(LIST, detail, *hints, *list, content);
        }
        Item::Record { index, value: Some(value) } => {
            put(RECORD, MADE, value.len() as u16, *index, value);
        }
        Item::Record { index, value: None } => put(RECORD, DELETED, 0, *index, &[]),
        Item::Page { page_index, bytes } => put(PAGE, 0, bytes.len() as u16, *page_index, bytes),
        Item::Zeros(pages) => {
            put(ZEROS, 0, 0, pages.start, U64::new(pages.end - pages.start).as_bytes());
        }
        Item::Holes(pages) => {
            put(HOLES, 0, 0, pages.start, U64::new(pages.end - pages.start).as_bytes());
        }
    }
}

/// Reads the first item of `payload`; returns it with the bytes that it takes.
///
/// # Errors
/// When there is none, or it is longer than the payload.
pub(crate) fn decode(payload: &[u8]) -> Result<(Item<'_>, usize)> {
    let (front, rest) = ItemV1::ref_from_prefix(payload).map_err(|_| WRONG("it ends too early"))?;
    let (len, number) = (usize::from(front.len.get()), front.number.get());
    let content = || rest.get(..len).ok_or(WRONG("its content is missing"));
    let pages = || -> Result<_> {
        let (count, _) = U64::ref_from_prefix(rest).map_err(|_| WRONG("its count is missing"))?;
        let end = number.checked_add(count.get()).ok_or(WRONG("its pages have no end"))?;
        Ok(number..end)
    };
    let item = match (front.kind, front.detail) {
        (LIST, detail @ (MADE | CHANGED | DELETED | MADE_NEAR | CHANGED_NEAR)) => {
            let change = match detail {
                MADE | MADE_NEAR => ListChange::Made,
                CHANGED | CHANGED_NEAR => ListChange::Changed,
                _ => ListChange::Deleted,
            };
            let near = match detail {
                MADE_NEAR | CHANGED_NEAR => near_in(rest)?,
                _ => 0,
            };
            Item::List { list: number, change, hints: front.len.get(), near }
        }
        (RECORD, MADE) => Item::Record { index: number, value: Some(content()?) },
        (RECORD, DELETED) if len == 0 => Item::Record { index: number, value: None },
        (PAGE, 0) => Item::Page { page_index: number, bytes: content()? },
        (ZEROS, 0) if len == 0 => Item::Zeros(pages()?),
        (HOLES, 0) if len == 0 => Item::Holes(pages()?),
        _ => return Err(WRONG("it is of an unknown kind")),
    };
    let taken = len_bytes(&item);
    Ok((item, taken))
}

/// The neighbour that follows the front of a list.
fn near_in(rest: &[u8]) -> Result<u64> {
    let (near, _) = U64::ref_from_prefix(rest).map_err(|_| WRONG("its neighbour is missing"))?;
    match near.get() {
        0 => Err(WRONG("its neighbour is no list")),
        near => Ok(near),
    }
}

/// The payload that ends a stream.
pub(crate) fn encode_end(counts: &Counts) -> Vec<u8> {
    EndV1 {
        made_lists: counts.made_lists.into(),
        changed_lists: counts.changed_lists.into(),
        deleted_lists: counts.deleted_lists.into(),
        put_records: counts.put_records.into(),
        deleted_records: counts.deleted_records.into(),
        pages: counts.pages.into(),
        zero_pages: counts.zero_pages.into(),
        content: counts.content_bytes.into(),
    }
    .as_bytes()
    .to_vec()
}

/// Reads the payload that ends a stream.
///
/// # Errors
/// When its length is wrong.
pub(crate) fn decode_end(payload: &[u8]) -> Result<Counts> {
    let raw = EndV1::ref_from_bytes(payload)
        .map_err(|_| Malformed { structure: "end of a stream", problem: "its length is wrong" })?;
    Ok(Counts {
        made_lists: raw.made_lists.get(),
        changed_lists: raw.changed_lists.get(),
        deleted_lists: raw.deleted_lists.get(),
        put_records: raw.put_records.get(),
        deleted_records: raw.deleted_records.get(),
        pages: raw.pages.get(),
        zero_pages: raw.zero_pages.get(),
        content_bytes: raw.content.get(),
    })
}
