//! Records of partial segments.

use std::fmt;

use dendro_format::Record;
use serde::Serialize;

use super::entry::HintsInfo;
use super::key::KeyInfo;
use super::place::{NodePlace, PageInfo};
use super::text::{hex, hex32};

/// A record: what has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields are those of dendro_format::Record")]
pub enum RecordInfo {
    /// A list is made.
    CreateList {
        list: u64,
        #[serde(flatten)]
        hints: HintsInfo,
    },
    /// A list is deleted, with all that it holds.
    DeleteList { list: u64 },
    /// A list's hints change.
    SetHints {
        list: u64,
        #[serde(flatten)]
        hints: HintsInfo,
    },
    /// A record is put; its bytes are hexadecimal.
    PutRecord { list: u64, index: u64, value: String },
    /// A record is deleted.
    DeleteRecord { list: u64, index: u64 },
    /// Whole pages were written, one after the other.
    WriteRun { list: u64, first_page: u64, offset: u64, crc32cs: Vec<String> },
    /// A page was written as one block.
    WriteBlock { list: u64, page: u64, block: PageInfo },
    /// Pages become zeros that are no holes.
    ZeroPages { list: u64, first_page: u64, count: u64 },
    /// Pages become holes.
    PunchPages { list: u64, first_page: u64, count: u64 },
    /// Pages move.
    MovePages { from: u64, from_page: u64, to: u64, to_page: u64, count: u64 },
    /// Two lists exchange their pages.
    SwapPages { a: u64, b: u64 },
    /// Two lists exchange their pages in a range.
    SwapRange { a: u64, b: u64, first_page: u64, count: u64 },
    /// A node of the map lies here.
    Node { place: NodePlace, level: u8, first_key: KeyInfo },
    /// The records behind it are about this version, or say where its blocks lie now.
    Version { branch: u32, epoch: u64, is_moved: bool },
    /// A segment that holds no live block may be filled again.
    Reuse { segment: u32 },
    /// A checkpoint lies here.
    Checkpoint { offset: u64, len_bytes: u32, crc32c: String },
}

impl From<Record<'_>> for RecordInfo {
    fn from(record: Record<'_>) -> Self {
        match record {
            Record::CreateList { list, hints } => Self::CreateList { list, hints: hints.into() },
            Record::DeleteList { list } => Self::DeleteList { list },
            Record::SetHints { list, hints } => Self::SetHints { list, hints: hints.into() },
            Record::PutRecord { list, index, value } => {
                Self::PutRecord { list, index, value: hex(value) }
            }
            Record::DeleteRecord { list, index } => Self::DeleteRecord { list, index },
            Record::WriteRun { list, first_page, addr, crcs } => {
                let crc32cs = crcs.iter().map(|crc32c| hex32(crc32c.get())).collect();
                Self::WriteRun { list, first_page, offset: addr.bytes(), crc32cs }
            }
            Record::WriteBlock { list, page, block } => {
                Self::WriteBlock { list, page, block: block.into() }
            }
            Record::ZeroPages { list, first_page, count } => {
                Self::ZeroPages { list, first_page, count }
            }
            Record::PunchPages { list, first_page, count } => {
                Self::PunchPages { list, first_page, count }
            }
            Record::MovePages { from, from_page, to, to_page, count } => {
                Self::MovePages { from, from_page, to, to_page, count }
            }
            Record::SwapPages { a, b } => Self::SwapPages { a, b },
            Record::SwapRange { a, b, first_page, count } => {
                Self::SwapRange { a, b, first_page, count }
            }
            Record::Node { place, level, first_key } => {
                Self::Node { place: place.into(), level, first_key: first_key.into() }
            }
            Record::Version { branch, epoch, is_moved } => {
                Self::Version { branch, epoch, is_moved }
            }
            Record::Reuse { segment } => Self::Reuse { segment: segment.0 },
            Record::Checkpoint { addr, len_bytes, crc32c } => {
                Self::Checkpoint { offset: addr.bytes(), len_bytes, crc32c: hex32(crc32c) }
            }
        }
    }
}

impl fmt::Display for RecordInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateList { list, hints } => write!(f, "create list {list}, hints {hints}"),
            Self::DeleteList { list } => write!(f, "delete list {list}"),
            Self::SetHints { list, hints } => write!(f, "set hints of {list} to {hints}"),
            Self::PutRecord { list, index, value } => {
                write!(f, "put record {index} of {list}: {} bytes {value}", value.len() / 2)
            }
            Self::DeleteRecord { list, index } => write!(f, "delete record {index} of {list}"),
            Self::WriteRun { list, first_page, offset, crc32cs } => {
                let count = crc32cs.len();
                write!(f, "write {count} pages of {list} from {first_page} on at byte {offset}")
            }
            Self::WriteBlock { list, page, block } => {
                write!(f, "write page {page} of {list} at {block}")
            }
            Self::ZeroPages { list, first_page, count } => {
                write!(f, "zero {count} pages of {list} from {first_page} on")
            }
            Self::PunchPages { list, first_page, count } => {
                write!(f, "punch {count} pages of {list} from {first_page} on")
            }
            Self::MovePages { from, from_page, to, to_page, count } => {
                write!(f, "move {count} pages of {from} from {from_page} on to {to} at {to_page}")
            }
            Self::SwapPages { a, b } => write!(f, "swap the pages of {a} and {b}"),
            Self::SwapRange { a, b, first_page, count } => {
                write!(f, "swap {count} pages of {a} and {b} from {first_page} on")
            }
            Self::Node { place, level, first_key } => {
                write!(f, "node of level {level} at {place}, first key {first_key}")
            }
            Self::Version { branch, epoch, is_moved } => {
                let what = if *is_moved { "where blocks lie now" } else { "changes" };
                write!(f, "{what} of branch {branch}, epoch {epoch}:")
            }
            Self::Reuse { segment } => write!(f, "fill segment {segment} anew"),
            Self::Checkpoint { offset, len_bytes, crc32c } => {
                write!(f, "checkpoint at byte {offset}, {len_bytes} bytes, checksum {crc32c}")
            }
        }
    }
}
