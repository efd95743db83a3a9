//! The header: which version a stream is of, and which version it is based on.

use std::mem::size_of;

use dendro_base::{Origin, Timestamp, Uuid};
use dendro_format::versions::MAX_VERSION_NAME_LEN_BYTES;
use dendro_format::{Malformed, Result, checksum_append};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header without the names.
pub const HEADER_FIXED_LEN_BYTES: usize = 128;
const MAGIC: [u8; 8] = *b"DENDSTRM";
const VERSION: u16 = 1;

/// The feature of a stream with frames that are compressed with zstd.
const INCOMPATIBLE_ZSTD: u32 = 1 << 0;
const INCOMPATIBLE_KNOWN: u32 = INCOMPATIBLE_ZSTD;

/// The header of a stream, version 1. The names follow: of the version, then of its base. The first
/// frame follows these.
///
/// | offset | size | field           | meaning                                                   |
/// |-------:|-----:|-----------------|-----------------------------------------------------------|
/// |      0 |    8 | `magic`         | "DENDSTRM"                                                |
/// |      8 |    4 | `crc32c`        | over bytes 12..128, then the names                        |
/// |     12 |    2 | `version`       | 1                                                         |
/// |     14 |    2 | `header_len`    | 128                                                       |
/// |     16 |    4 | `compatible`    | features that a reader may ignore; none is defined        |
/// |     20 |    4 | `incompatible`  | features that a reader must know; 1: frames may be compressed with zstd |
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
/// |    124 |    4 | `reserved`      | zero                                                      |
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
    reserved: U32,
}

const _: () = assert!(size_of::<HeaderV1>() == HEADER_FIXED_LEN_BYTES);

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
}

impl Header {
    /// The bytes of the header, and its checksum, which the first frame continues.
    ///
    /// # Panics
    /// When a name is longer than a version's can be.
    pub(crate) fn encode(&self) -> (Vec<u8>, u32) {
        let base = self.base.as_ref();
        let (name, base_name) = (name_of(Some(&self.version)), name_of(base));
        let base_origin = base.map(|base| base.origin);
        let mut raw = HeaderV1 {
            magic: MAGIC,
            crc32c: U32::ZERO,
            version: VERSION.into(),
            header_len: (HEADER_FIXED_LEN_BYTES as u16).into(),
            compatible: U32::ZERO,
            incompatible: (if self.is_compressed { INCOMPATIBLE_ZSTD } else { 0 }).into(),
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
            reserved: U32::ZERO,
        };
        let names = [name.as_bytes(), base_name.as_bytes()].concat();
        let crc32c = checksum_of(raw.as_bytes(), &names);
        raw.crc32c = crc32c.into();
        ([raw.as_bytes(), &names].concat(), crc32c)
    }

    /// The bytes of the names that follow the fixed part of a header.
    ///
    /// # Errors
    /// When it is no header, or one of an unknown version.
    pub(crate) fn names_len_bytes(fixed: &[u8; HEADER_FIXED_LEN_BYTES]) -> Result<usize> {
        let raw = raw_of(fixed)?;
        let lens = [raw.name_len.get(), raw.base_name_len.get()].map(usize::from);
        if lens.iter().any(|len| *len > MAX_VERSION_NAME_LEN_BYTES) {
            return Err(WRONG("a name is too long"));
        }
        Ok(lens.iter().sum())
    }

    /// Reads a header with its names; returns it with its checksum.
    ///
    /// # Errors
    /// When something in it is wrong or not known.
    pub(crate) fn decode(
        fixed: &[u8; HEADER_FIXED_LEN_BYTES],
        names: &[u8],
    ) -> Result<(Self, u32)> {
        let raw = raw_of(fixed)?;
        let crc32c = checksum_of(fixed, names);
        if raw.crc32c.get() != crc32c {
            return Err(WRONG("its checksum is wrong: it was altered"));
        }
        if usize::from(raw.header_len.get()) != HEADER_FIXED_LEN_BYTES {
            return Err(WRONG("its length is wrong"));
        }
        let incompatible = raw.incompatible.get();
        if incompatible & !INCOMPATIBLE_KNOWN != 0 {
            return Err(WRONG("it has features of a later version of the program"));
        }
        let names = std::str::from_utf8(names).map_err(|_| WRONG("a name is no text"))?;
        let (name, base_name) = names
            .split_at_checked(usize::from(raw.name_len.get()))
            .ok_or(WRONG("a name is missing"))?;
        let version = |volume, epoch: U64, time: I64, name: &str| Version {
            origin: Origin { volume: Uuid(volume), epoch: epoch.get() },
            time: Timestamp(time.get()),
            name: (!name.is_empty()).then(|| name.to_owned()),
        };
        let of = version(raw.origin_uuid, raw.origin_epoch, raw.time_ns, name);
        let base = version(raw.base_uuid, raw.base_epoch, raw.base_time_ns, base_name);
        if !(1..1 << 63).contains(&of.origin.epoch) || base.origin.epoch >= 1 << 63 {
            return Err(WRONG("there is no such epoch"));
        }
        let header = Self {
            stream: Uuid(raw.stream_uuid),
            source: Uuid(raw.source_uuid),
            version: of,
            base: (base.origin.epoch > 0).then_some(base),
            is_compressed: incompatible & INCOMPATIBLE_ZSTD != 0,
        };
        Ok((header, crc32c))
    }
}

const WRONG: fn(&'static str) -> Malformed =
    |problem| Malformed { structure: "header of a stream", problem };

/// The name of a version, empty if it has none.
fn name_of(version: Option<&Version>) -> &str {
    let name = version.and_then(|version| version.name.as_deref()).unwrap_or_default();
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

fn checksum_of(fixed: &[u8], names: &[u8]) -> u32 {
    checksum_append(dendro_format::checksum(&fixed[12..]), names)
}
