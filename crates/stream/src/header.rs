//! The header: which version a stream is of, which version it is based on, and what it is a part
//! of.

use std::mem::size_of;

use dendro_base::{ClientKind, Origin, Timestamp, Uuid};
use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::versions::MAX_VERSION_NAME_LEN_BYTES;
use dendro_format::{MAX_PAGE_COUNT, Malformed, Result, checksum_append};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header without what follows its fields.
pub const HEADER_FIXED_LEN_BYTES: usize = 128;
const MAGIC: [u8; 8] = *b"DENDSTRM";
const VERSION: u16 = 1;

/// The feature of a stream with frames that are compressed with zstd.
const INCOMPATIBLE_ZSTD: u32 = 1 << 0;
/// The feature of a stream with flags or with a branch.
const INCOMPATIBLE_SEQUENCE: u32 = 1 << 1;
/// The feature of a stream that is the rest of one.
const INCOMPATIBLE_REST: u32 = 1 << 2;
/// The feature of a stream of another client than the first of its volume.
const INCOMPATIBLE_CLIENT: u32 = 1 << 3;
const INCOMPATIBLE_KNOWN: u32 =
    INCOMPATIBLE_ZSTD | INCOMPATIBLE_SEQUENCE | INCOMPATIBLE_REST | INCOMPATIBLE_CLIENT;

const IS_FOLLOWED: u16 = 1 << 0;
const IS_MAIN: u16 = 1 << 1;
const FLAGS_KNOWN: u16 = IS_FOLLOWED | IS_MAIN;
/// Where the kind of the client is in the flags.
const KIND_SHIFT: u32 = 8;

/// The header of a stream, version 1. The names follow: of the version, of its base, and of the
/// branch. With feature 4 a [`RestV1`] follows these. Then the first frame follows.
///
/// | offset | size | field           | meaning                                                   |
/// |-------:|-----:|-----------------|-----------------------------------------------------------|
/// |      0 |    8 | `magic`         | "DENDSTRM"                                                |
/// |      8 |    4 | `crc32c`        | over bytes 12..128, then all that follows up to the first frame |
/// |     12 |    2 | `version`       | 1                                                         |
/// |     14 |    2 | `header_len`    | 128                                                       |
/// |     16 |    4 | `compatible`    | features that a reader may ignore; none is defined        |
/// |     20 |    4 | `incompatible`  | features that a reader must know; 1: frames may be compressed with zstd; 2: there are flags, or a branch; 4: it is the rest of a stream; 8: bits 8 to 15 of the flags are the kind of its client |
/// |     24 |   16 | `stream_uuid`   | the stream, which no other has                            |
/// |     40 |   16 | `source_uuid`   | the volume that sent it                                   |
/// |     56 |   16 | `origin_uuid`   | the volume on which the version was made                  |
/// |     72 |    8 | `origin_epoch`  | its epoch there; at least 1                               |
/// |     80 |    8 | `time_ns`       | when it was made, ns since 1970                           |
/// |     88 |   16 | `base_uuid`     | the volume on which the base was made; zero without a base |
/// |    104 |    8 | `base_epoch`    | its epoch there; zero: there is no base                   |
/// |    112 |    8 | `base_time_ns`  | when it was made                                          |
/// |    120 |    2 | `name_len`      | bytes of the version's name; zero if it has none          |
/// |    122 |    2 | `base_name_len` | bytes of the base's name                                  |
/// |    124 |    2 | `branch_name_len` | bytes of the name of the branch whose head the version was when it was sent; zero if it was none |
/// |    126 |    2 | `flags`         | 1: another stream follows this one; 2: the branch is the main one; bits 8 to 15: with feature 8 the kind of the client, as volumes name it, otherwise zero |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct HeaderV1 {
    magic: [u8; 8],
    crc32c: U32,
    version: U16,
    header_len: U16,
    compatible: U32,
    incompatible: U32,
    stream_uuid: [u8; 16],
    source_uuid: [u8; 16],
    origin_uuid: [u8; 16],
    origin_epoch: U64,
    time_ns: I64,
    base_uuid: [u8; 16],
    base_epoch: U64,
    base_time_ns: I64,
    name_len: U16,
    base_name_len: U16,
    branch_name_len: U16,
    flags: U16,
}

const _: () = assert!(size_of::<HeaderV1>() == HEADER_FIXED_LEN_BYTES);

/// Where a stream begins that is the rest of one, version 1.
///
/// | offset | size | field      | meaning                                                        |
/// |-------:|-----:|------------|----------------------------------------------------------------|
/// |      0 |    8 | `list`     | the list in which it begins; it has nothing of lists before it |
/// |      8 |    1 | `part`     | 0: it has records and pages of that list; 1: it has pages alone |
/// |      9 |    7 | `reserved` | zero                                                           |
/// |     16 |    8 | `index`    | the first record, or page, that it may have                    |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RestV1 {
    list: U64,
    part: u8,
    reserved: [u8; 7],
    index: U64,
}

const _: () = assert!(size_of::<RestV1>() == 24);

/// A place in the order of what a version has: lists in ascending order, of each its records, then
/// its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The list.
    pub list: u64,
    /// Whether all of its records lie before this place.
    pub is_in_pages: bool,
    /// The first record, or page, that does not.
    pub index: u64,
}

impl Position {
    /// The place before everything.
    pub const START: Self = Self { list: 1, is_in_pages: false, index: 0 };

    /// Whether there is such a place.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.list >= 1
            && self.list < FIRST_SYSTEM_LIST
            && (!self.is_in_pages || self.index <= MAX_PAGE_COUNT)
    }
}

/// A branch whose head a version was when it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadOf {
    /// The name of the branch, not empty.
    pub branch: String,
    /// Whether it was the main branch.
    pub is_main: bool,
}

/// A version that a stream is of, or that it is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Where it was made.
    pub origin: Origin,
    /// When it was made.
    pub time: Timestamp,
    /// The name that it has on the volume that sent the stream.
    pub name: Option<String>,
}

/// The header of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The identity of the stream.
    pub stream: Uuid,
    /// The volume that sent it.
    pub source: Uuid,
    /// The version that it is of.
    pub version: Version,
    /// The version that the receiver must have; `None` for a stream that has all of the version.
    pub base: Option<Version>,
    /// Whether frames may be compressed.
    pub is_compressed: bool,
    /// The kind of client that the version belongs to; `None` for that which its volume was made
    /// for.
    pub kind: Option<ClientKind>,
    /// The branch whose head the version was.
    pub head_of: Option<HeadOf>,
    /// Whether another stream follows, in a sequence of several.
    pub is_followed: bool,
    /// Where it begins, if it is the rest of a stream of which a receiver has the part before.
    pub rest: Option<Position>,
}

impl Header {
    /// The bytes of the header, and its checksum, which the first frame continues.
    ///
    /// # Panics
    /// When a name is longer than a version's can be.
    pub(crate) fn encode(&self) -> (Vec<u8>, u32) {
        let base = self.base.as_ref();
        let (name, base_name) = (name_of(Some(&self.version)), name_of(base));
        let branch_name = self.head_of.as_ref().map_or("", |of| checked_name(&of.branch));
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let is_main = self.head_of.as_ref().is_some_and(|of| of.is_main);
        let flags = flag(self.is_followed, IS_FOLLOWED) | flag(is_main, IS_MAIN);
        let feature = |is_set, feature| if is_set { feature } else { 0 };
        let incompatible = feature(self.is_compressed, INCOMPATIBLE_ZSTD)
            | feature(flags != 0 || !branch_name.is_empty(), INCOMPATIBLE_SEQUENCE)
            | feature(self.rest.is_some(), INCOMPATIBLE_REST)
            | feature(self.kind.is_some(), INCOMPATIBLE_CLIENT);
        let flags = flags | u16::from(self.kind.map_or(0, ClientKind::code)) << KIND_SHIFT;
        let base_origin = base.map(|base| base.origin);
        let mut raw = HeaderV1 {
            magic: MAGIC,
            crc32c: U32::ZERO,
            version: VERSION.into(),
            header_len: (HEADER_FIXED_LEN_BYTES as u16).into(),
            compatible: U32::ZERO,
            incompatible: incompatible.into(),
            stream_uuid: self.stream.0,
            source_uuid: self.source.0,
            origin_uuid: self.version.origin.volume.0,
            origin_epoch: self.version.origin.epoch.into(),
            time_ns: self.version.time.0.into(),
            base_uuid: base_origin.map_or([0; 16], |origin| origin.volume.0),
            base_epoch: base_origin.map_or(0, |origin| origin.epoch).into(),
            base_time_ns: base.map_or(0, |base| base.time.0).into(),
            name_len: (name.len() as u16).into(),
            base_name_len: (base_name.len() as u16).into(),
            branch_name_len: (branch_name.len() as u16).into(),
            flags: flags.into(),
        };
        let mut tail = [name, base_name, branch_name].concat().into_bytes();
        if let Some(Position { list, is_in_pages, index }) = self.rest {
            let (list, index) = (list.into(), index.into());
            let rest = RestV1 { list, part: is_in_pages.into(), reserved: [0; 7], index };
            tail.extend_from_slice(rest.as_bytes());
        }
        let crc32c = checksum_of(raw.as_bytes(), &tail);
        raw.crc32c = crc32c.into();
        ([raw.as_bytes(), &tail].concat(), crc32c)
    }

    /// The bytes of what follows the fixed part of a header, up to the first frame.
    ///
    /// # Errors
    /// When it is no header, or one of an unknown version.
    pub(crate) fn tail_len_bytes(fixed: &[u8; HEADER_FIXED_LEN_BYTES]) -> Result<usize> {
        let raw = raw_of(fixed)?;
        let lens = [raw.name_len.get(), raw.base_name_len.get(), raw.branch_name_len.get()];
        let lens = lens.map(usize::from);
        if lens.iter().any(|len| *len > MAX_VERSION_NAME_LEN_BYTES) {
            return Err(WRONG("a name is too long"));
        }
        let has_rest = raw.incompatible.get() & INCOMPATIBLE_REST != 0;
        Ok(lens.iter().sum::<usize>() + if has_rest { size_of::<RestV1>() } else { 0 })
    }

    /// Reads a header with what follows its fixed part; returns it with its checksum.
    ///
    /// # Errors
    /// When something in it is wrong or not known.
    pub(crate) fn decode(fixed: &[u8; HEADER_FIXED_LEN_BYTES], tail: &[u8]) -> Result<(Self, u32)> {
        let raw = raw_of(fixed)?;
        let crc32c = checksum_of(fixed, tail);
        if raw.crc32c.get() != crc32c {
            return Err(WRONG("its checksum is wrong: it was altered"));
        }
        if usize::from(raw.header_len.get()) != HEADER_FIXED_LEN_BYTES {
            return Err(WRONG("its length is wrong"));
        }
        let (incompatible, flags) = (raw.incompatible.get(), raw.flags.get());
        let kind = ClientKind::from_code((flags >> KIND_SHIFT) as u8);
        let has_kind = incompatible & INCOMPATIBLE_CLIENT != 0;
        let is_known = flags & !(0xff << KIND_SHIFT) & !FLAGS_KNOWN == 0;
        if incompatible & !INCOMPATIBLE_KNOWN != 0 || !is_known || has_kind != kind.is_some() {
            return Err(WRONG("it has features of a later version of the program"));
        }
        let (name, tail) = name_from(tail, raw.name_len)?;
        let (base_name, tail) = name_from(tail, raw.base_name_len)?;
        let (branch, tail) = name_from(tail, raw.branch_name_len)?;
        let version = |volume, epoch: U64, time: I64, name: Option<String>| Version {
            origin: Origin { volume: Uuid(volume), epoch: epoch.get() },
            time: Timestamp(time.get()),
            name,
        };
        let of = version(raw.origin_uuid, raw.origin_epoch, raw.time_ns, name);
        let base = version(raw.base_uuid, raw.base_epoch, raw.base_time_ns, base_name);
        if !(1..1 << 63).contains(&of.origin.epoch) || base.origin.epoch >= 1 << 63 {
            return Err(WRONG("there is no such epoch"));
        }
        let is_main = flags & IS_MAIN != 0;
        if is_main && branch.is_none() {
            return Err(WRONG("the main branch has no name"));
        }
        let header = Self {
            stream: Uuid(raw.stream_uuid),
            source: Uuid(raw.source_uuid),
            version: of,
            base: (base.origin.epoch > 0).then_some(base),
            is_compressed: incompatible & INCOMPATIBLE_ZSTD != 0,
            kind,
            head_of: branch.map(|branch| HeadOf { branch, is_main }),
            is_followed: flags & IS_FOLLOWED != 0,
            rest: rest_from(tail)?,
        };
        Ok((header, crc32c))
    }
}

/// Takes a name of so many bytes from the front of `bytes`; `None` if it is empty.
fn name_from(bytes: &[u8], len: U16) -> Result<(Option<String>, &[u8])> {
    let (name, rest) =
        bytes.split_at_checked(usize::from(len.get())).ok_or(WRONG("a name is missing"))?;
    let name = std::str::from_utf8(name).map_err(|_| WRONG("a name is no text"))?;
    Ok(((!name.is_empty()).then(|| name.to_owned()), rest))
}

/// Where a stream begins, if it is the rest of one.
fn rest_from(bytes: &[u8]) -> Result<Option<Position>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let raw = RestV1::ref_from_bytes(bytes).map_err(|_| WRONG("its length is wrong"))?;
    let (list, index) = (raw.list.get(), raw.index.get());
    let rest = Position { list, is_in_pages: raw.part == 1, index };
    if raw.part > 1 || !rest.is_valid() {
        return Err(WRONG("there is no such place as the one where it begins"));
    }
    Ok(Some(rest))
}

const WRONG: fn(&'static str) -> Malformed =
    |problem| Malformed { structure: "header of a stream", problem };

/// The name of a version, empty if it has none.
fn name_of(version: Option<&Version>) -> &str {
    checked_name(version.and_then(|version| version.name.as_deref()).unwrap_or_default())
}

fn checked_name(name: &str) -> &str {
    assert!(name.len() <= MAX_VERSION_NAME_LEN_BYTES, "a version's name is short");
    name
}

/// The fixed part of a header of a known version.
fn raw_of(fixed: &[u8; HEADER_FIXED_LEN_BYTES]) -> Result<&HeaderV1> {
    let raw = HeaderV1::ref_from_bytes(fixed).map_err(|_| WRONG("its length is wrong"))?;
    if raw.magic != MAGIC {
        return Err(WRONG("there is none: this is no stream that `dendro send` wrote"));
    }
    if raw.version.get() != VERSION {
        return Err(WRONG("it is of an unknown version"));
    }
    Ok(raw)
}

fn checksum_of(fixed: &[u8], tail: &[u8]) -> u32 {
    checksum_append(dendro_format::checksum(&fixed[12..]), tail)
}
