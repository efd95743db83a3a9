//! Records: the changes in a partial segment. A record is both a change record for recovery and the
//! summary entry of its blocks for the cleaner.
//!
//! A record starts with its kind and a byte for flags, zero where nothing else is told. Kind 0 ends
//! the records.

use std::mem::size_of;

use dendro_base::units::PAGE_SIZE;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::chunk::{MAX_FRAME_LEN_BYTES, MAX_PAGE_COUNT, PageRef};
use crate::hints::Hints;
use crate::key::{Key, Space};
use crate::layout::{Addr, SegmentNo};
use crate::node::NodePtr;
use crate::usage::FIRST_SYSTEM_LIST;
use crate::versions::VERSIONS_LIST;
use crate::{Malformed, Result};

const CREATE_LIST: u8 = 1;
const DELETE_LIST: u8 = 2;
const SET_HINTS: u8 = 3;
const PUT_RECORD: u8 = 4;
const DELETE_RECORD: u8 = 5;
const WRITE_RUN: u8 = 6;
const WRITE_BLOCK: u8 = 7;
const ZERO_PAGES: u8 = 8;
const PUNCH_PAGES: u8 = 9;
const MOVE_PAGES: u8 = 10;
const SWAP_PAGES: u8 = 11;
const NODE: u8 = 12;
const CHECKPOINT: u8 = 13;
const VERSION: u8 = 14;
const REUSE: u8 = 15;
const SWAP_RANGE: u8 = 16;

/// The kind of a record that was withdrawn before it was written; see [`void`].
const VOID: u8 = 255;

macro_rules! raw {
    ($(#[$doc:meta])* $name:ident, $len:literal, { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($field: $type),* }
        const _: () = assert!(size_of::<$name>() == $len);
    };
}

raw! {
    /// Kinds 1 and 3: a list is made, or its hints change (12 bytes). With flag 1 the number of the
    /// list that it is near follows (8 bytes).
    HintsV1, 12, { kind: u8, flags: u8, hints: U16, list: U64 }
}
raw! {
    /// Kind 2: a list goes, with all it holds (12 bytes).
    DeleteListV1, 12, { kind: u8, flags: u8, reserved: [u8; 2], list: U64 }
}
raw! {
    /// Kinds 4 and 5: a record is put, `len` bytes that follow, or deleted, `len` 0 (20 bytes).
    RecordV1, 20, { kind: u8, flags: u8, len: U16, list: U64, index: U64 }
}
raw! {
    /// Kind 6: `count` whole pages were written one after the other from `addr` on; a checksum of
    /// 4 bytes each follows (28 bytes).
    WriteRunV1, 28, { kind: u8, flags: u8, count: U16, list: U64, first_page: U64, addr: U64 }
}
raw! {
    /// Kind 7: a page was written as a block of `len` bytes, or lies in one that is a frame
    /// (36 bytes).
    WriteBlockV1, 36, {
        kind: u8, flags: u8, len: U16, list: U64, page: U64, addr: U64, crc32c: U32,
        compression: u8, page_flags: u8, reserved: [u8; 2],
    }
}
raw! {
    /// Kinds 8 and 9: pages become zeros, or holes (28 bytes).
    RangeV1, 28, { kind: u8, flags: u8, reserved: [u8; 2], list: U64, first_page: U64, count: U64 }
}
raw! {
    /// Kind 10: pages move (44 bytes).
    MovePagesV1, 44, {
        kind: u8, flags: u8, reserved: [u8; 2], from: U64, from_page: U64, to: U64, to_page: U64,
        count: U64,
    }
}
raw! {
    /// Kind 11: two lists exchange their pages (20 bytes).
    SwapPagesV1, 20, { kind: u8, flags: u8, reserved: [u8; 2], a: U64, b: U64 }
}
raw! {
    /// Kind 16: two lists exchange their pages in a range (36 bytes).
    SwapRangeV1, 36, {
        kind: u8, flags: u8, reserved: [u8; 2], a: U64, b: U64, first_page: U64, count: U64,
    }
}
raw! {
    /// Kind 12, in the map's head: a node lies at `addr` (52 bytes). The rest is its first key.
    NodeV1, 52, {
        kind: u8, flags: u8, level: u8, space: u8, len: U32, addr: U64, crc32c: U32,
        branch: U32, list: U64, index: U64, epoch: U64, reserved: [u8; 4],
    }
}
raw! {
    /// Kind 13, in the map's head: a checkpoint lies at `addr` (20 bytes).
    CheckpointPlaceV1, 20, { kind: u8, flags: u8, reserved: [u8; 2], len: U32, addr: U64, crc32c: U32 }
}
raw! {
    /// Kind 14: the version that the records behind it are about (16 bytes). Flag 1: they tell
    /// where its blocks have been moved to.
    VersionV1, 16, { kind: u8, flags: u8, reserved: [u8; 2], branch: U32, epoch: U64 }
}
raw! {
    /// Kind 15: a segment in which nothing lives any more may be filled anew (8 bytes).
    ReuseV1, 8, { kind: u8, flags: u8, reserved: [u8; 2], segment: U32 }
}

/// Bytes of [`Record::Version`].
pub const VERSION_LEN_BYTES: usize = size_of::<VersionV1>();
const FLAG_MOVED: u8 = 1;
const FLAG_NEAR: u8 = 1;
/// Bytes of [`Record::Reuse`].
pub const REUSE_LEN_BYTES: usize = size_of::<ReuseV1>();
/// Bytes of [`Record::WriteRun`] before its checksums.
pub const WRITE_RUN_LEN_BYTES: usize = size_of::<WriteRunV1>();
/// Bytes of [`Record::WriteBlock`].
pub const WRITE_BLOCK_LEN_BYTES: usize = size_of::<WriteBlockV1>();
/// Bytes of [`Record::PutRecord`] before its value.
pub const PUT_RECORD_LEN_BYTES: usize = size_of::<RecordV1>();
/// Where the checksum lies in [`Record::WriteBlock`].
pub const WRITE_BLOCK_CRC_OFFSET: usize = 28;
/// Where the compression lies in [`Record::WriteBlock`].
pub const WRITE_BLOCK_COMPRESSION_OFFSET: usize = 32;
/// Where the length lies in [`Record::WriteBlock`] and [`Record::PutRecord`].
pub const LEN_OFFSET: usize = 2;
/// Bytes of the longest record that carries no value and no checksums of a run.
pub const MAX_FIXED_LEN_BYTES: usize = size_of::<NodeV1>();

/// A record in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A list is made.
    CreateList {
        /// The list.
        list: u64,
        /// Its hints.
        hints: Hints,
    },
    /// A list is deleted, with all that it holds.
    DeleteList {
        /// The list.
        list: u64,
    },
    /// A list's hints change.
    SetHints {
        /// The list.
        list: u64,
        /// Its hints.
        hints: Hints,
    },
    /// A record is put.
    PutRecord {
        /// The list.
        list: u64,
        /// Where in it.
        index: u64,
        /// Its bytes.
        value: &'a [u8],
    },
    /// A record is deleted.
    DeleteRecord {
        /// The list.
        list: u64,
        /// Where in it.
        index: u64,
    },
    /// Whole pages were written, one after the other.
    WriteRun {
        /// The list.
        list: u64,
        /// The first of its pages.
        first_page: u64,
        /// Where it lies.
        addr: Addr,
        /// Each page's checksum, 4 bytes each.
        crcs: &'a [U32],
    },
    /// A page was written as one block.
    WriteBlock {
        /// The list.
        list: u64,
        /// Its page.
        page: u64,
        /// Where the block lies.
        block: PageRef,
    },
    /// Pages become zeros that are no holes.
    ZeroPages {
        /// The list.
        list: u64,
        /// The first page.
        first_page: u64,
        /// How many.
        count: u64,
    },
    /// Pages become holes.
    PunchPages {
        /// The list.
        list: u64,
        /// The first page.
        first_page: u64,
        /// How many.
        count: u64,
    },
    /// Pages move.
    MovePages {
        /// The source list.
        from: u64,
        /// Its first page.
        from_page: u64,
        /// The destination list.
        to: u64,
        /// Its first page.
        to_page: u64,
        /// How many.
        count: u64,
    },
    /// Two lists exchange their pages.
    SwapPages {
        /// One.
        a: u64,
        /// The other.
        b: u64,
    },
    /// Two lists exchange their pages in a range.
    SwapRange {
        /// One.
        a: u64,
        /// The other.
        b: u64,
        /// The first page.
        first_page: u64,
        /// How many.
        count: u64,
    },
    /// A node of the map lies here.
    Node {
        /// Where.
        place: NodePtr,
        /// Its level.
        level: u8,
        /// Its first key.
        first_key: Key,
    },
    /// The records behind it, to the end of the partial segment or the next of this kind, are about
    /// this version. Those before the first such record are about branch 0, in the epoch of the
    /// header.
    Version {
        /// The branch.
        branch: u32,
        /// The epoch in which it was written.
        epoch: u64,
        /// Whether they say where blocks of that version lie now, instead of changing its branch.
        is_moved: bool,
    },
    /// A segment without live blocks may be filled again from here on, even if the checkpoint
    /// before refers to blocks in it.
    Reuse {
        /// The segment.
        segment: SegmentNo,
    },
    /// A checkpoint lies here.
    Checkpoint {
        /// Where.
        addr: Addr,
        /// Its length.
        len_bytes: u32,
        /// The checksum of all its bytes.
        crc32c: u32,
    },
}

impl Record<'_> {
    /// The lists whose entries it changes: none, one or two.
    #[must_use]
    pub const fn lists(&self) -> [Option<u64>; 2] {
        match *self {
            Self::CreateList { list, .. }
            | Self::DeleteList { list }
            | Self::SetHints { list, .. }
            | Self::PutRecord { list, .. }
            | Self::DeleteRecord { list, .. }
            | Self::WriteRun { list, .. }
            | Self::WriteBlock { list, .. }
            | Self::ZeroPages { list, .. }
            | Self::PunchPages { list, .. } => [Some(list), None],
            Self::MovePages { from, to, .. }
            | Self::SwapPages { a: from, b: to }
            | Self::SwapRange { a: from, b: to, .. } => [Some(from), Some(to)],
            Self::Node { .. }
            | Self::Version { .. }
            | Self::Reuse { .. }
            | Self::Checkpoint { .. } => [None, None],
        }
    }

    /// Appends a [`Self::WriteRun`]. The fields are passed one by one: whoever has just copied a
    /// page would wait for all of its bytes to leave the processor's store buffer if it put them
    /// into a record and read that.
    ///
    /// # Panics
    /// When the run has more than 65,535 pages.
    #[inline]
    pub fn encode_run(out: &mut Vec<u8>, list: u64, first_page: u64, addr: Addr, crcs: &[U32]) {
        let raw = WriteRunV1 {
            kind: WRITE_RUN,
            flags: 0,
            count: u16_len(crcs.len()),
            list: list.into(),
            first_page: first_page.into(),
            addr: addr.0.into(),
        };
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(crcs.as_bytes());
    }

    /// Appends the record.
    ///
    /// # Panics
    /// When the length of a value or a run exceeds 16 bits.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::CreateList { list, hints } => put_hints(out, CREATE_LIST, list, hints),
            Self::SetHints { list, hints } => put_hints(out, SET_HINTS, list, hints),
            Self::DeleteList { list } => {
                let raw = DeleteListV1 {
                    kind: DELETE_LIST,
                    flags: 0,
                    reserved: [0; 2],
                    list: list.into(),
                };
                out.extend_from_slice(raw.as_bytes());
            }
            Self::PutRecord { list, index, value } => {
                put_record(out, PUT_RECORD, list, index, value);
            }
            Self::DeleteRecord { list, index } => put_record(out, DELETE_RECORD, list, index, &[]),
            Self::WriteRun { list, first_page, addr, crcs } => {
                Self::encode_run(out, list, first_page, addr, crcs);
            }
            Self::WriteBlock { list, page, block } => put_block(out, list, page, &block),
            Self::ZeroPages { list, first_page, count } => {
                put_range(out, ZERO_PAGES, list, first_page, count);
            }
            Self::PunchPages { list, first_page, count } => {
                put_range(out, PUNCH_PAGES, list, first_page, count);
            }
            Self::MovePages { from, from_page, to, to_page, count } => {
                let raw = MovePagesV1 {
                    kind: MOVE_PAGES,
                    flags: 0,
                    reserved: [0; 2],
                    from: from.into(),
                    from_page: from_page.into(),
                    to: to.into(),
                    to_page: to_page.into(),
                    count: count.into(),
                };
                out.extend_from_slice(raw.as_bytes());
            }
            Self::SwapPages { a, b } => {
                let raw = SwapPagesV1 {
                    kind: SWAP_PAGES,
                    flags: 0,
                    reserved: [0; 2],
                    a: a.into(),
                    b: b.into(),
                };
                out.extend_from_slice(raw.as_bytes());
            }
            Self::SwapRange { a, b, first_page, count } => {
                let raw = SwapRangeV1 {
                    kind: SWAP_RANGE,
                    flags: 0,
                    reserved: [0; 2],
                    a: a.into(),
                    b: b.into(),
                    first_page: first_page.into(),
                    count: count.into(),
                };
                out.extend_from_slice(raw.as_bytes());
            }
            Self::Node { place, level, first_key } => put_node(out, &place, level, &first_key),
            Self::Version { branch, epoch, is_moved } => {
                let raw = VersionV1 {
                    kind: VERSION,
                    flags: if is_moved { FLAG_MOVED } else { 0 },
                    reserved: [0; 2],
                    branch: branch.into(),
                    epoch: epoch.into(),
                };
                out.extend_from_slice(raw.as_bytes());
            }
            Self::Reuse { segment } => {
                let raw =
                    ReuseV1 { kind: REUSE, flags: 0, reserved: [0; 2], segment: segment.0.into() };
                out.extend_from_slice(raw.as_bytes());
            }
            Self::Checkpoint { addr, len_bytes, crc32c } => {
                let raw = CheckpointPlaceV1 {
                    kind: CHECKPOINT,
                    flags: 0,
                    reserved: [0; 2],
                    len: len_bytes.into(),
                    addr: addr.0.into(),
                    crc32c: crc32c.into(),
                };
                out.extend_from_slice(raw.as_bytes());
            }
        }
    }
}

#[inline]
fn u16_len(len: usize) -> U16 {
    u16::try_from(len).expect("a record's length fits 16 bits").into()
}

fn put_hints(out: &mut Vec<u8>, kind: u8, list: u64, hints: Hints) {
    let flags = if hints.near == 0 { 0 } else { FLAG_NEAR };
    let raw = HintsV1 { kind, flags, hints: hints.bits.into(), list: list.into() };
    out.extend_from_slice(raw.as_bytes());
    if hints.near != 0 {
        out.extend_from_slice(&hints.near.to_le_bytes());
    }
}

fn put_record(out: &mut Vec<u8>, kind: u8, list: u64, index: u64, value: &[u8]) {
    let len = u16_len(value.len());
    let raw = RecordV1 { kind, flags: 0, len, list: list.into(), index: index.into() };
    out.extend_from_slice(raw.as_bytes());
    out.extend_from_slice(value);
}

fn put_block(out: &mut Vec<u8>, list: u64, page: u64, block: &PageRef) {
    let raw = WriteBlockV1 {
        kind: WRITE_BLOCK,
        flags: 0,
        len: block.len_bytes.into(),
        list: list.into(),
        page: page.into(),
        addr: block.addr.0.into(),
        crc32c: block.crc32c.into(),
        compression: block.compression,
        page_flags: block.flags,
        reserved: [0; 2],
    };
    out.extend_from_slice(raw.as_bytes());
}

fn put_range(out: &mut Vec<u8>, kind: u8, list: u64, first_page: u64, count: u64) {
    let raw = RangeV1 {
        kind,
        flags: 0,
        reserved: [0; 2],
        list: list.into(),
        first_page: first_page.into(),
        count: count.into(),
    };
    out.extend_from_slice(raw.as_bytes());
}

fn put_node(out: &mut Vec<u8>, place: &NodePtr, level: u8, first_key: &Key) {
    let raw = NodeV1 {
        kind: NODE,
        flags: 0,
        level,
        space: first_key.space as u8,
        len: place.len_bytes.into(),
        addr: place.addr.0.into(),
        crc32c: place.crc32c.into(),
        branch: first_key.branch.into(),
        list: first_key.list.into(),
        index: first_key.index.into(),
        epoch: first_key.epoch.into(),
        reserved: [0; 4],
    };
    out.extend_from_slice(raw.as_bytes());
}

/// Withdraws the [`Record::PutRecord`] at the front of `bytes`: [`Records`] skips it and
/// [`compact`] removes it.
pub fn void(bytes: &mut [u8]) {
    debug_assert_eq!(bytes[0], PUT_RECORD, "only puts are taken back");
    bytes[0] = VOID;
}

/// Removes what [`void`] withdrew. Returns how many of the bytes before `mark` stay.
pub fn compact(records: &mut Vec<u8>, mark: usize) -> usize {
    let mut kept = Vec::with_capacity(records.len());
    let mut kept_before_mark = 0;
    let mut at = 0;
    while let Some(len) = record_len(&records[at..]) {
        if records[at] != VOID {
            kept.extend_from_slice(&records[at..at + len]);
        }
        at += len;
        if at <= mark {
            kept_before_mark = kept.len();
        }
    }
    *records = kept;
    kept_before_mark
}

/// Bytes of the record at the front of `bytes`, if a whole one of a known kind is there.
fn record_len(bytes: &[u8]) -> Option<usize> {
    let len = match *bytes.first()? {
        CREATE_LIST | SET_HINTS => {
            let has_near = bytes.get(1)? & FLAG_NEAR != 0;
            size_of::<HintsV1>() + if has_near { size_of::<U64>() } else { 0 }
        }
        DELETE_LIST => size_of::<DeleteListV1>(),
        PUT_RECORD | VOID => size_of::<RecordV1>() + usize::from(u16_at(bytes, LEN_OFFSET)?),
        DELETE_RECORD => size_of::<RecordV1>(),
        WRITE_RUN => size_of::<WriteRunV1>() + 4 * usize::from(u16_at(bytes, LEN_OFFSET)?),
        WRITE_BLOCK => size_of::<WriteBlockV1>(),
        ZERO_PAGES | PUNCH_PAGES => size_of::<RangeV1>(),
        MOVE_PAGES => size_of::<MovePagesV1>(),
        SWAP_PAGES => size_of::<SwapPagesV1>(),
        SWAP_RANGE => size_of::<SwapRangeV1>(),
        NODE => size_of::<NodeV1>(),
        CHECKPOINT => size_of::<CheckpointPlaceV1>(),
        VERSION => size_of::<VersionV1>(),
        REUSE => size_of::<ReuseV1>(),
        _ => return None,
    };
    (len <= bytes.len()).then_some(len)
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes([*bytes.get(offset)?, *bytes.get(offset + 1)?]))
}

/// Iterates over records; ends at their end or at kind 0.
#[derive(Clone, Debug)]
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// The records in `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes that have not been read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.0.first().is_none_or(|&kind| kind == 0) {
                return None;
            }
            let Some(len) = record_len(self.0) else {
                self.0 = &[];
                return Some(Err(Malformed::new("record", "it is cut off or of an unknown kind")));
            };
            let (record, rest) = self.0.split_at(len);
            self.0 = rest;
            if record[0] != VOID {
                return Some(decode(record));
            }
        }
    }
}

fn view<T: FromBytes + Immutable + KnownLayout + Unaligned>(bytes: &[u8]) -> Result<&T> {
    T::ref_from_prefix(bytes)
        .map(|(raw, _)| raw)
        .map_err(|_| Malformed::new("record", "it is cut off"))
}

fn decode(bytes: &[u8]) -> Result<Record<'_>> {
    let record = decode_any(bytes)?;
    check_reach(&record)?;
    Ok(record)
}

/// Whether a record refers only to clients' lists, and to pages within bounds.
fn check_reach(record: &Record<'_>) -> Result<()> {
    let (lists, pages) = match *record {
        Record::CreateList { list, .. }
        | Record::SetHints { list, .. }
        | Record::DeleteList { list }
        | Record::PutRecord { list, .. }
        | Record::DeleteRecord { list, .. } => ([list; 2], [(0, 0); 2]),
        Record::WriteRun { list, first_page, crcs, .. } => {
            ([list; 2], [(first_page, crcs.len() as u64); 2])
        }
        Record::WriteBlock { list, page, .. } => ([list; 2], [(page, 1); 2]),
        Record::ZeroPages { list, first_page, count }
        | Record::PunchPages { list, first_page, count } => ([list; 2], [(first_page, count); 2]),
        Record::MovePages { from, from_page, to, to_page, count } => {
            ([from, to], [(from_page, count), (to_page, count)])
        }
        Record::SwapPages { a, b } => ([a, b], [(0, 0); 2]),
        Record::SwapRange { a, b, first_page, count } => ([a, b], [(first_page, count); 2]),
        Record::Node { .. }
        | Record::Checkpoint { .. }
        | Record::Version { .. }
        | Record::Reuse { .. } => return Ok(()),
    };
    let is_of_versions = matches!(
        record,
        Record::PutRecord { list: VERSIONS_LIST, .. }
            | Record::DeleteRecord { list: VERSIONS_LIST, .. }
    );
    if !is_of_versions && lists.iter().any(|&list| list >= FIRST_SYSTEM_LIST) {
        return Err(Malformed::new("record", "it changes a list of the disk's own"));
    }
    let is_inside = |&(first, count): &(u64, u64)| {
        first.checked_add(count).is_some_and(|end| end <= MAX_PAGE_COUNT)
    };
    if !pages.iter().all(is_inside) {
        return Err(Malformed::new("record", "its pages are past the last that there can be"));
    }
    Ok(())
}

fn decode_any(bytes: &[u8]) -> Result<Record<'_>> {
    Ok(match bytes[0] {
        kind @ (CREATE_LIST | SET_HINTS) => {
            let raw: &HintsV1 = view(bytes)?;
            let (list, mut hints) = (raw.list.get(), Hints::of_bits(raw.hints.get()));
            if raw.flags & FLAG_NEAR != 0 {
                hints.near = view::<U64>(&bytes[size_of::<HintsV1>()..])?.get();
            }
            if kind == CREATE_LIST {
                Record::CreateList { list, hints }
            } else {
                Record::SetHints { list, hints }
            }
        }
        DELETE_LIST => Record::DeleteList { list: view::<DeleteListV1>(bytes)?.list.get() },
        PUT_RECORD => {
            let raw: &RecordV1 = view(bytes)?;
            let value = &bytes[size_of::<RecordV1>()..];
            Record::PutRecord { list: raw.list.get(), index: raw.index.get(), value }
        }
        DELETE_RECORD => {
            let raw: &RecordV1 = view(bytes)?;
            Record::DeleteRecord { list: raw.list.get(), index: raw.index.get() }
        }
        WRITE_RUN => {
            let raw: &WriteRunV1 = view(bytes)?;
            let crcs = <[U32]>::ref_from_bytes(&bytes[size_of::<WriteRunV1>()..])
                .map_err(|_| Malformed::new("record", "it is cut off"))?;
            Record::WriteRun {
                list: raw.list.get(),
                first_page: raw.first_page.get(),
                addr: Addr(raw.addr.get()),
                crcs,
            }
        }
        WRITE_BLOCK => decode_block(bytes)?,
        kind @ (ZERO_PAGES | PUNCH_PAGES) => {
            let raw: &RangeV1 = view(bytes)?;
            let (list, first_page, count) = (raw.list.get(), raw.first_page.get(), raw.count.get());
            if kind == ZERO_PAGES {
                Record::ZeroPages { list, first_page, count }
            } else {
                Record::PunchPages { list, first_page, count }
            }
        }
        MOVE_PAGES => {
            let raw: &MovePagesV1 = view(bytes)?;
            Record::MovePages {
                from: raw.from.get(),
                from_page: raw.from_page.get(),
                to: raw.to.get(),
                to_page: raw.to_page.get(),
                count: raw.count.get(),
            }
        }
        SWAP_PAGES => {
            let raw: &SwapPagesV1 = view(bytes)?;
            Record::SwapPages { a: raw.a.get(), b: raw.b.get() }
        }
        SWAP_RANGE => {
            let raw: &SwapRangeV1 = view(bytes)?;
            let (first_page, count) = (raw.first_page.get(), raw.count.get());
            Record::SwapRange { a: raw.a.get(), b: raw.b.get(), first_page, count }
        }
        NODE => decode_node(bytes)?,
        VERSION => {
            let raw: &VersionV1 = view(bytes)?;
            Record::Version {
                branch: raw.branch.get(),
                epoch: raw.epoch.get(),
                is_moved: raw.flags & FLAG_MOVED != 0,
            }
        }
        REUSE => Record::Reuse { segment: SegmentNo(view::<ReuseV1>(bytes)?.segment.get()) },
        CHECKPOINT => {
            let raw: &CheckpointPlaceV1 = view(bytes)?;
            Record::Checkpoint {
                addr: Addr(raw.addr.get()),
                len_bytes: raw.len.get(),
                crc32c: raw.crc32c.get(),
            }
        }
        _ => return Err(Malformed::new("record", "it is of an unknown kind")),
    })
}

fn decode_block(bytes: &[u8]) -> Result<Record<'_>> {
    let raw: &WriteBlockV1 = view(bytes)?;
    let len_bytes = raw.len.get();
    let block = PageRef {
        addr: Addr(raw.addr.get()),
        crc32c: raw.crc32c.get(),
        len_bytes,
        compression: raw.compression,
        flags: raw.page_flags,
    };
    let most_bytes = if block.is_in_frame() { MAX_FRAME_LEN_BYTES } else { PAGE_SIZE };
    if !(1..=most_bytes).contains(&usize::from(len_bytes)) {
        return Err(Malformed::new("record", "a block is empty or too long"));
    }
    Ok(Record::WriteBlock { list: raw.list.get(), page: raw.page.get(), block })
}

fn decode_node(bytes: &[u8]) -> Result<Record<'_>> {
    let raw: &NodeV1 = view(bytes)?;
    let space = Space::from_number(raw.space)
        .ok_or(Malformed::new("record", "a node's key is in an unknown space"))?;
    Ok(Record::Node {
        place: NodePtr {
            addr: Addr(raw.addr.get()),
            len_bytes: raw.len.get(),
            crc32c: raw.crc32c.get(),
        },
        level: raw.level,
        first_key: Key {
            list: raw.list.get(),
            space,
            index: raw.index.get(),
            branch: raw.branch.get(),
            epoch: raw.epoch.get(),
        },
    })
}
