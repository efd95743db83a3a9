//! The table of versions: branches and snapshots, each a record of a list of the disk's own.
//!
//! The list is [`VERSIONS_LIST`]. Unlike other lists of the disk's own it is changed by records of
//! the log, puts and deletions, which are part of the order of all changes. Its record 0 is the
//! [`Counters`]; branch `n` is at index 2³² + `n`, the quota of client `n` at 2³³ + `n`, what is
//! left of a [rearrangement] at 2³⁴, and the snapshot of epoch `e` at 2⁶³ +
//! `e`, since each snapshot ends an epoch. A volume that never had a version but the first, nor a
//! quota, has no such records, but for a rearrangement.

use std::mem::size_of;

use dendro_base::units::PAGE_SIZE;
use dendro_base::{ClientKind, Origin, Timestamp, Uuid};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rearrangement::{self, REARRANGEMENT_INDEX, Task};
use crate::usage::FIRST_SYSTEM_LIST;
use crate::{Malformed, PageRef, Result, Value};

/// The list that the table is kept in.
pub const VERSIONS_LIST: u64 = FIRST_SYSTEM_LIST + 1;

/// Where the counters are.
pub const COUNTERS_INDEX: u64 = 0;
const FIRST_BRANCH_INDEX: u64 = 1 << 32;
const FIRST_QUOTA_INDEX: u64 = 1 << 33;
const FIRST_SNAPSHOT_INDEX: u64 = 1 << 63;

/// The longest name of a branch or snapshot, in bytes.
pub const MAX_VERSION_NAME_LEN_BYTES: usize = 255;
/// Bytes of the longest record of the table.
pub const MAX_VERSION_RECORD_LEN_BYTES: usize = 48 + MAX_VERSION_NAME_LEN_BYTES;

const _: () = assert!(rearrangement::MAX_REARRANGEMENT_LEN_BYTES <= MAX_VERSION_RECORD_LEN_BYTES);

/// The epochs that there can be.
const EPOCHS: std::ops::Range<u64> = 1..FIRST_SNAPSHOT_INDEX;

const HAS_HEAD: u8 = 1 << 0;
const HAS_PARENT: u8 = 1 << 1;
const HAS_NAME: u8 = 1 << 2;
const IS_HELD: u8 = 1 << 3;
const HAS_ORIGIN: u8 = 1 << 4;
const HAS_KIND: u8 = 1 << 5;

/// The counters, version 1.
///
/// | offset | size | field         | meaning                                                    |
/// |-------:|-----:|---------------|------------------------------------------------------------|
/// |      0 |    8 | `epoch`       | the epoch that heads write in; at least 1                  |
/// |      8 |    4 | `main`        | the branch that is meant where none is named               |
/// |     12 |    4 | `next_branch` | the number of the next branch                              |
/// |     16 |    8 | `sweep_since` | what no version sees any more was superseded after this epoch, or belongs to a later one; 2⁶⁴ − 1: there is no such thing |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CountersV1 {
    epoch: U64,
    main: U32,
    next_branch: U32,
    sweep_since: U64,
}

const _: () = assert!(size_of::<CountersV1>() == 24);

/// A branch or a snapshot, version 1. Its name follows, then its [`OriginV1`] if it has one.
///
/// | offset | size | field      | meaning                                                       |
/// |-------:|-----:|------------|---------------------------------------------------------------|
/// |      0 |    1 | `flags`    | 1: has a head; 2: has a parent; 4: has a name; 8: is held; 16: was received; 32: has a kind |
/// |      1 |    1 | `kind`     | of a branch with a kind: 1: files; 2: block; 3: application; otherwise zero |
/// |      2 |    2 | `name_len` | bytes of the name                                             |
/// |      4 |    4 | `branch`   | of a branch its parent, of a snapshot its branch              |
/// |      8 |    8 | `epoch`    | of a branch the last epoch of its parent that it sees, of a snapshot the last that it sees |
/// |     16 |    8 | `time_ns`  | when it was made, ns since 1970                               |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VersionEntryV1 {
    flags: u8,
    kind: u8,
    name_len: U16,
    branch: U32,
    epoch: U64,
    time_ns: I64,
}

const _: () = assert!(size_of::<VersionEntryV1>() == 24);

/// Where a snapshot was made that was received from another volume, version 1.
///
/// | offset | size | field    | meaning                                                         |
/// |-------:|-----:|----------|-----------------------------------------------------------------|
/// |      0 |   16 | `volume` | the volume on which it was made                                 |
/// |     16 |    8 | `epoch`  | its epoch there                                                 |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OriginV1 {
    volume: [u8; 16],
    epoch: U64,
}

const _: () = assert!(size_of::<OriginV1>() == 24);

/// The quota of a client, version 1.
///
/// | offset | size | field         | meaning                                                    |
/// |-------:|-----:|---------------|------------------------------------------------------------|
/// |      0 |    8 | `limit_bytes` | the most that the client may use                           |
/// |      8 |    8 | `used_bytes`  | what it used when the checkpoint was frozen; 2⁶⁴ − 1: it was not counted. Without meaning in the log |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QuotaV1 {
    limit_bytes: U64,
    used_bytes: U64,
}

const _: () = assert!(size_of::<QuotaV1>() == 16);

/// What each list and each record of a client counts against its quota, beside the bytes of the
/// record.
pub const QUOTA_ENTRY_BYTES: u64 = 64;

/// What an entry of the map counts against the quota of the client that its branch belongs to.
#[must_use]
pub fn quota_bytes(value: &Value) -> u64 {
    match value {
        Value::List(_) => QUOTA_ENTRY_BYTES,
        Value::Record(bytes) => QUOTA_ENTRY_BYTES + bytes.len() as u64,
        Value::Chunk(chunk) => chunk.blocks().map(|(_, page)| quota_bytes_of(page)).sum(),
        Value::Tombstone => 0,
    }
}

/// What the block of a page counts against a quota, or as much as a page that is all zeros may take
/// later. A frame counts once for all of its pages that an entry has.
#[must_use]
pub const fn quota_bytes_of(page: PageRef) -> u64 {
    if page.len_bytes == 0 { PAGE_SIZE as u64 } else { page.footprint_bytes() as u64 }
}

/// The counters of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The current epoch, in which heads are written.
    pub epoch: u64,
    /// The main branch.
    pub main: u32,
    /// The number of the next branch.
    pub next_branch: u32,
    /// See [`CountersV1`]; `None` when no collection is under way.
    pub sweep_since: Option<u64>,
}

/// A record of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionRecord {
    /// At [`COUNTERS_INDEX`].
    Counters(Counters),
    /// A branch.
    Branch {
        /// Its number.
        branch: u32,
        /// The name of its head; `None` when it has no head any more, but is an ancestor of others.
        name: Option<String>,
        /// The branch that it was made from, and the last epoch of that one that is visible in it.
        parent: Option<(u32, u64)>,
        /// The kind of client that it was made for. A branch without one is of the client of its
        /// parent; without a parent, it is of the client that the volume was made for.
        kind: Option<ClientKind>,
        /// When it was made.
        time: Timestamp,
    },
    /// The quota of a client.
    Quota {
        /// The client's number.
        client: u32,
        /// The most that it may use.
        limit_bytes: u64,
        /// What it uses, in the map that a checkpoint names; `None` if it was not counted.
        used_bytes: Option<u64>,
    },
    /// What is left of a rearrangement.
    Rearrangement {
        /// The branch whose head it changes.
        branch: u32,
        /// What is to be done, the next task first.
        tasks: Vec<Task>,
    },
    /// A snapshot.
    Snapshot {
        /// Its branch.
        branch: u32,
        /// The last epoch that is visible in it.
        epoch: u64,
        /// Its name; `None` for one that retention may delete.
        name: Option<String>,
        /// Whether it must not be deleted.
        is_held: bool,
        /// When it was made.
        time: Timestamp,
        /// Where it was made, if it was received from another volume.
        origin: Option<Origin>,
    },
}

/// Where the record of a branch is.
#[must_use]
pub const fn branch_index(branch: u32) -> u64 {
    FIRST_BRANCH_INDEX + branch as u64
}

/// Where the record of a client's quota is.
#[must_use]
pub const fn quota_index(client: u32) -> u64 {
    FIRST_QUOTA_INDEX + client as u64
}

/// The client whose quota is at `index`, if one can be there.
#[must_use]
pub const fn client_of_quota(index: u64) -> Option<u32> {
    match index.checked_sub(FIRST_QUOTA_INDEX) {
        Some(client) if client <= u32::MAX as u64 => Some(client as u32),
        _ => None,
    }
}

/// Where the record of the snapshot that ended `epoch` is.
#[must_use]
pub const fn snapshot_index(epoch: u64) -> u64 {
    FIRST_SNAPSHOT_INDEX | epoch
}

impl VersionRecord {
    /// Where it is in the list.
    #[must_use]
    pub const fn index(&self) -> u64 {
        match self {
            Self::Counters(_) => COUNTERS_INDEX,
            Self::Branch { branch, .. } => branch_index(*branch),
            Self::Quota { client, .. } => quota_index(*client),
            Self::Rearrangement { .. } => REARRANGEMENT_INDEX,
            Self::Snapshot { epoch, .. } => snapshot_index(*epoch),
        }
    }

    /// The record's bytes.
    ///
    /// # Panics
    /// When a name is longer than [`MAX_VERSION_NAME_LEN_BYTES`], or the number of tasks is not one
    /// of [`rearrangement::encode`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Counters(counters) => CountersV1 {
                epoch: counters.epoch.into(),
                main: counters.main.into(),
                next_branch: counters.next_branch.into(),
                sweep_since: counters.sweep_since.unwrap_or(u64::MAX).into(),
            }
            .as_bytes()
            .to_vec(),
            Self::Branch { name, parent, kind, time, .. } => {
                let head = if name.is_some() { HAS_HEAD } else { 0 };
                let flags = head | if parent.is_some() { HAS_PARENT } else { 0 };
                let (branch, epoch) = parent.unwrap_or((0, 0));
                encode_version((flags, *kind), branch, epoch, *time, name.as_deref())
            }
            Self::Quota { limit_bytes, used_bytes, .. } => QuotaV1 {
                limit_bytes: (*limit_bytes).into(),
                used_bytes: used_bytes.unwrap_or(u64::MAX).into(),
            }
            .as_bytes()
            .to_vec(),
            Self::Rearrangement { branch, tasks } => rearrangement::encode(*branch, tasks),
            Self::Snapshot { branch, epoch, name, is_held, time, origin } => {
                let flags = if *is_held { IS_HELD } else { 0 };
                let received = if origin.is_some() { HAS_ORIGIN } else { 0 };
                let flags = (flags | received, None);
                let mut bytes = encode_version(flags, *branch, *epoch, *time, name.as_deref());
                if let Some(Origin { volume, epoch }) = origin {
                    let raw = OriginV1 { volume: volume.0, epoch: (*epoch).into() };
                    bytes.extend_from_slice(raw.as_bytes());
                }
                bytes
            }
        }
    }

    /// Reads the record at `index`.
    ///
    /// # Errors
    /// When the bytes are not what [`Self::encode`] wrote for that index.
    pub fn decode(index: u64, bytes: &[u8]) -> Result<Self> {
        const WRONG: fn(&'static str) -> Malformed =
            |problem| Malformed::new("record of a version", problem);
        if index == COUNTERS_INDEX {
            let raw =
                CountersV1::ref_from_bytes(bytes).map_err(|_| WRONG("its length is wrong"))?;
            let since = raw.sweep_since.get();
            if !EPOCHS.contains(&raw.epoch.get()) {
                return Err(WRONG("there is no such epoch"));
            }
            return Ok(Self::Counters(Counters {
                epoch: raw.epoch.get(),
                main: raw.main.get(),
                next_branch: raw.next_branch.get(),
                sweep_since: (since != u64::MAX).then_some(since),
            }));
        }
        if let Some(client) = client_of_quota(index) {
            let raw = QuotaV1::ref_from_bytes(bytes).map_err(|_| WRONG("its length is wrong"))?;
            let (limit_bytes, used_bytes) = (raw.limit_bytes.get(), raw.used_bytes.get());
            let used_bytes = (used_bytes != u64::MAX).then_some(used_bytes);
            return Ok(Self::Quota { client, limit_bytes, used_bytes });
        }
        if index == REARRANGEMENT_INDEX {
            let (branch, tasks) = rearrangement::decode(bytes)?;
            return Ok(Self::Rearrangement { branch, tasks });
        }
        let (raw, rest) =
            VersionEntryV1::ref_from_prefix(bytes).map_err(|_| WRONG("its length is wrong"))?;
        let (name, origin) = match raw.flags & HAS_ORIGIN {
            0 => (rest, None),
            _ => {
                let (name, origin) =
                    OriginV1::ref_from_suffix(rest).map_err(|_| WRONG("its origin is missing"))?;
                let (volume, epoch) = (Uuid(origin.volume), origin.epoch.get());
                (name, Some(Origin { volume, epoch }))
            }
        };
        if name.len() != usize::from(raw.name_len.get()) || name.len() > MAX_VERSION_NAME_LEN_BYTES
        {
            return Err(WRONG("its name's length is wrong"));
        }
        let name = std::str::from_utf8(name).map_err(|_| WRONG("its name is no text"))?;
        let name = (raw.flags & HAS_NAME != 0).then(|| name.to_owned());
        let (branch, epoch, time) =
            (raw.branch.get(), raw.epoch.get(), Timestamp(raw.time_ns.get()));
        if index >= FIRST_SNAPSHOT_INDEX {
            if index != snapshot_index(epoch) || !EPOCHS.contains(&epoch) {
                return Err(WRONG("it is where another should be"));
            }
            let is_held = raw.flags & IS_HELD != 0;
            if origin.is_some_and(|origin| !EPOCHS.contains(&origin.epoch)) {
                return Err(WRONG("there is no such epoch"));
            }
            return Ok(Self::Snapshot { branch, epoch, name, is_held, time, origin });
        }
        let number = index
            .checked_sub(FIRST_BRANCH_INDEX)
            .and_then(|number| u32::try_from(number).ok())
            .ok_or(WRONG("it is where none should be"))?;
        if origin.is_some() {
            return Err(WRONG("a branch is not received"));
        }
        if (raw.flags & HAS_HEAD != 0) != name.is_some() {
            return Err(WRONG("a branch has a name if it has a head"));
        }
        let parent = (raw.flags & HAS_PARENT != 0).then_some((branch, epoch));
        if parent.is_some_and(|(_, epoch)| !EPOCHS.contains(&epoch)) {
            return Err(WRONG("there is no such epoch"));
        }
        // A parent that is not older could make an endless ancestry.
        if parent.is_some_and(|(parent, _)| parent >= number) {
            return Err(WRONG("a branch is older than its parent"));
        }
        let kind = match raw.flags & HAS_KIND {
            0 => None,
            _ => Some(ClientKind::from_code(raw.kind).ok_or(WRONG("its kind is 0"))?),
        };
        Ok(Self::Branch { branch: number, name, parent, kind, time })
    }
}

fn encode_version(
    (flags, kind): (u8, Option<ClientKind>),
    branch: u32,
    epoch: u64,
    time: Timestamp,
    name: Option<&str>,
) -> Vec<u8> {
    let text = name.unwrap_or_default();
    assert!(text.len() <= MAX_VERSION_NAME_LEN_BYTES, "a version's name is short");
    let raw = VersionEntryV1 {
        flags: flags
            | if name.is_some() { HAS_NAME } else { 0 }
            | if kind.is_some() { HAS_KIND } else { 0 },
        kind: kind.map_or(0, ClientKind::code),
        name_len: U16::new(text.len() as u16),
        branch: branch.into(),
        epoch: epoch.into(),
        time_ns: time.0.into(),
    };
    [raw.as_bytes(), text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<VersionRecord> {
        let time = Timestamp(-5);
        let name = Some("größer".to_owned());
        let branch = |branch, name: Option<&str>, parent, kind| {
            let name = name.map(str::to_owned);
            VersionRecord::Branch { branch, name, parent, kind, time }
        };
        vec![
            VersionRecord::Counters(Counters {
                epoch: 7,
                main: 2,
                next_branch: 3,
                sweep_since: None,
            }),
            VersionRecord::Counters(Counters {
                epoch: (1 << 63) - 1,
                main: 0,
                next_branch: 1,
                sweep_since: Some(0),
            }),
            branch(0, Some("main"), None, None),
            branch(9, None, Some((8, 4)), None),
            branch(5, Some("disk"), None, Some(ClientKind::Block)),
            branch(5, None, None, Some(ClientKind::Files)),
            branch(6, Some("disk"), Some((5, 4)), Some(ClientKind::Unknown(200))),
            VersionRecord::Quota { client: 0, limit_bytes: 1 << 40, used_bytes: Some(7 << 12) },
            VersionRecord::Quota { client: u32::MAX, limit_bytes: u64::MAX, used_bytes: None },
            VersionRecord::Snapshot {
                branch: 9,
                epoch: 5,
                name: name.clone(),
                is_held: true,
                time,
                origin: None,
            },
            VersionRecord::Snapshot {
                branch: 0,
                epoch: 6,
                name: None,
                is_held: false,
                time,
                origin: Some(Origin { volume: Uuid(*b"0123456789abcdef"), epoch: 3 }),
            },
            VersionRecord::Snapshot {
                branch: 4,
                epoch: 9,
                name,
                is_held: true,
                time,
                origin: Some(Origin { volume: Uuid([0xff; 16]), epoch: 1 }),
            },
        ]
    }

    #[test]
    fn records_of_versions_read_back() {
        for record in samples() {
            let bytes = record.encode();
            assert!(bytes.len() <= MAX_VERSION_RECORD_LEN_BYTES);
            assert_eq!(VersionRecord::decode(record.index(), &bytes), Ok(record));
        }
    }

    #[test]
    fn records_cut_off_or_in_another_place_are_refused() {
        for record in samples() {
            let bytes = record.encode();
            for len in 0..bytes.len() {
                assert!(VersionRecord::decode(record.index(), &bytes[..len]).is_err());
            }
            assert!(VersionRecord::decode(record.index() ^ 1 << 40, &bytes).is_err());
        }
    }

    #[test]
    fn a_kind_without_a_code_is_refused() {
        let (branch, time) = (3, Timestamp(0));
        let kind = Some(ClientKind::Block);
        let record = VersionRecord::Branch { branch, name: None, parent: None, kind, time };
        let mut bytes = record.encode();
        assert_eq!(VersionRecord::decode(branch_index(3), &bytes), Ok(record));
        bytes[1] = 0;
        assert!(VersionRecord::decode(branch_index(3), &bytes).is_err());
    }

    #[test]
    fn a_branch_that_descends_from_itself_is_refused() {
        let branch = |parent| VersionRecord::Branch {
            branch: 3,
            name: None,
            parent: Some((parent, 1)),
            kind: None,
            time: Timestamp(0),
        };
        assert!(VersionRecord::decode(branch_index(3), &branch(2).encode()).is_ok());
        assert!(VersionRecord::decode(branch_index(3), &branch(3).encode()).is_err());
        assert!(VersionRecord::decode(branch_index(3), &branch(4).encode()).is_err());
    }
}
