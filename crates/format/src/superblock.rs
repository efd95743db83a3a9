//! The superblock, from which a volume is found.

use std::mem::{offset_of, size_of};
use std::ops::Range;

use dendro_base::{Timestamp, Uuid};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::{Addr, Layout, backup_area};
use crate::retired::{self, MAX_RETIRED, Retired, RetiredV1};
use crate::{Malformed, Result, can_be_counted, checksum};

/// Bytes in a superblock and in its slot.
pub const SUPERBLOCK_LEN_BYTES: usize = 4096;
/// What every superblock starts with.
pub const MAGIC: [u8; 8] = *b"dendrofs";
/// The format that this code writes. Another major number cannot be read at all.
pub const MAJOR_VERSION: u16 = 1;
/// A higher minor number was written by newer software. Its feature flags say what it has used.
pub const MINOR_VERSION: u16 = 0;
/// The incompatible feature of having more than one version, or having had: the map may hold
/// tombstones and several versions of an entry, and the log records that say which versions they
/// are of.
pub const INCOMPATIBLE_VERSIONS: u64 = 1 << 0;
/// Feature flag: nodes of the map above the leaves hold the newest epoch below each child.
pub const INCOMPATIBLE_MAP_EPOCHS: u64 = 1 << 1;
/// Feature flag: chunks may have a skip over older entries ([`crate::chunk::Skip`]).
pub const INCOMPATIBLE_CHUNK_SKIPS: u64 = 1 << 2;
/// Feature flag: segments may have been filled again since the checkpoint
/// ([`crate::Record::Reuse`]).
pub const INCOMPATIBLE_REUSE: u64 = 1 << 3;
/// Feature flag: the superblock has a list of retired segments ([`crate::retired`]).
pub const INCOMPATIBLE_RETIRED: u64 = 1 << 4;
/// Feature flag: segments of the map may have mirrors ([`crate::Checkpoint::mirrors`]).
pub const INCOMPATIBLE_MIRRORS: u64 = 1 << 5;
/// Feature flag: lists may have been made again before what their deleted namesakes had was
/// removed ([`crate::removal::RemovalV2`]).
pub const INCOMPATIBLE_REMADE_LISTS: u64 = 1 << 6;
/// Feature flag: versions may have been received from other volumes
/// ([`crate::versions::OriginV1`]), so that a list's number may be in use in several versions that
/// do not descend from each other.
pub const INCOMPATIBLE_RECEIVED: u64 = 1 << 7;
/// Feature flag: the volume lies on a set of devices ([`crate::roster`]). Software that does not
/// know of sets would write to one of them alone.
pub const INCOMPATIBLE_SET: u64 = 1 << 8;
/// Feature flag: branches may be of other clients than the first
/// ([`crate::versions::VersionEntryV1`]). Their lists may have numbers that lists of others have,
/// and need not be those of a file system.
pub const INCOMPATIBLE_CLIENTS: u64 = 1 << 9;
/// Feature flag: blocks may be compressed ([`crate::compression`]), and lists may ask for that.
pub const INCOMPATIBLE_COMPRESSION: u64 = 1 << 10;
/// Feature flag: the volume is spread over the devices of its set
/// ([`crate::roster::Roster::extents`]). Software that does not know of that would take a part of
/// it for the whole.
pub const INCOMPATIBLE_SPREAD: u64 = 1 << 11;
/// Feature flag: lists may be near others ([`crate::Hints::near`]).
pub const INCOMPATIBLE_NEIGHBOURS: u64 = 1 << 12;
/// Feature flag: clients may have quotas ([`crate::versions::QuotaV1`]). Software that does not
/// know of them would neither keep them nor count.
pub const INCOMPATIBLE_QUOTAS: u64 = 1 << 13;
/// The incompatible feature of blocks that are frames of several pages ([`crate::compression`]).
pub const INCOMPATIBLE_FRAMES: u64 = 1 << 14;
/// The incompatible feature of units that are committed before all of their pages have been
/// rearranged ([`crate::rearrangement`]). Software that does not know of that would show a part.
pub const INCOMPATIBLE_REARRANGEMENTS: u64 = 1 << 15;
/// Incompatible features that this code knows. A volume with another is refused.
pub const KNOWN_INCOMPATIBLE: u64 = INCOMPATIBLE_VERSIONS
    | INCOMPATIBLE_MAP_EPOCHS
    | INCOMPATIBLE_CHUNK_SKIPS
    | INCOMPATIBLE_REUSE
    | INCOMPATIBLE_RETIRED
    | INCOMPATIBLE_MIRRORS
    | INCOMPATIBLE_REMADE_LISTS
    | INCOMPATIBLE_RECEIVED
    | INCOMPATIBLE_SET
    | INCOMPATIBLE_CLIENTS
    | INCOMPATIBLE_COMPRESSION
    | INCOMPATIBLE_SPREAD
    | INCOMPATIBLE_NEIGHBOURS
    | INCOMPATIBLE_QUOTAS
    | INCOMPATIBLE_FRAMES
    | INCOMPATIBLE_REARRANGEMENTS;
/// The compatible feature of an image that is completely allocated on the file system that holds
/// it. Nothing of it is discarded, so that no write finds that file system full. Software that
/// ignores the feature may discard parts of it.
pub const COMPATIBLE_ALLOCATED: u64 = 1 << 0;
/// The compatible feature of a copy of a volume's metadata: contents of files are zeros, and names
/// are hidden.
pub const COMPATIBLE_METADATA_COPY: u64 = 1 << 1;
/// The compatible feature of backup superblocks at the end of the device
/// ([`crate::layout::backup_area`]).
pub const COMPATIBLE_BACKUPS: u64 = 1 << 2;
/// The compatible feature of a volume that becomes longer by itself when it gets full
/// ([`Superblock::max_len_bytes`]). With software that ignores the feature it keeps its length.
pub const COMPATIBLE_GROWS: u64 = 1 << 3;
/// The read-only compatible feature of deleted lists of which the map still has entries
/// ([`crate::removal`]).
pub const READ_ONLY_REMOVALS: u64 = 1 << 0;
/// Read-only compatible features that this code knows. A volume with another one is opened for
/// reading only.
pub const KNOWN_READ_ONLY_COMPATIBLE: u64 = READ_ONLY_REMOVALS;
/// Bytes that a label may have.
pub const LABEL_LEN_BYTES: usize = 64;
/// The most ends of members that a superblock states: two for each.
pub const MAX_MEMBER_ENDS: usize = 16;

const RETIRED_LEN_BYTES: usize = MAX_RETIRED * size_of::<RetiredV1>();
const STATE_CLEAN: u8 = 1;
const CHECKSUM_CRC32C: u8 = 1;

/// The superblock, version 1.
///
/// | offset | size | field                | meaning                                            |
/// |-------:|-----:|----------------------|----------------------------------------------------|
/// |      0 |    8 | `magic`              | "dendrofs"                                         |
/// |      8 |    4 | `crc32c`             | over bytes 12..4096                                |
/// |     12 |    2 | `major_version`      | 1                                                  |
/// |     14 |    2 | `minor_version`      | 0                                                  |
/// |     16 |   16 | `uuid`               | the volume's identity                              |
/// |     32 |    8 | `seq`                | counts superblocks; the highest valid one counts   |
/// |     40 |    8 | `compatible`         | features older software may ignore                 |
/// |     48 |    8 | `read_only`          | features older software may read but not write     |
/// |     56 |    8 | `incompatible`       | features older software must refuse                |
/// |     64 |    1 | `segment_size_log2`  | 17 to 26                                           |
/// |     65 |    1 | `state`              | 1: shut down cleanly and not opened since          |
/// |     66 |    1 | `checksum_kind`      | 1: CRC-32C                                         |
/// |     67 |    1 | `compression`        | how new pages are compressed by default; 0: not    |
/// |     68 |    4 | `segment_count`      | all segments, superblock logs included             |
/// |     72 |    8 | `checkpoint_addr`    | the checkpoint, in grains                          |
/// |     80 |    4 | `checkpoint_len`     | its bytes                                          |
/// |     84 |    4 | `checkpoint_crc32c`  | the checksum of all its bytes                      |
/// |     88 |    8 | `created_ns`         | when the volume was made                           |
/// |     96 |    8 | `written_ns`         | when this superblock was written                   |
/// |    104 |   16 | `hash_key`           | a random key for the clients' hash tables          |
/// |    120 |   64 | `label`              | UTF-8, zero-padded                                 |
/// |    184 |    4 | `retired_count`      | entries of the list of retired segments, 128 at most |
/// |    188 | 2048 | `retired`            | the list ([`RetiredV1`]); zero behind its end      |
/// |   2236 |    8 | `mirror_addr`        | where the checkpoint lies once more; 0: nowhere    |
/// |   2244 |    8 | `max_len`            | bytes up to which the device grows by itself; 0: it does not |
/// |   2252 |  128 | `member_ends`        | the bytes at which members of the set end, or are about to; zero behind the last |
/// |   2380 |    1 | `cold_compression`   | how what the cleaner moves is compressed by default; 0: not |
/// |   2381 | 1715 | `reserved`           | zero                                               |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SuperblockV1 {
    magic: [u8; 8],
    crc32c: U32,
    major_version: U16,
    minor_version: U16,
    uuid: [u8; 16],
    seq: U64,
    compatible: U64,
    read_only: U64,
    incompatible: U64,
    segment_size_log2: u8,
    state: u8,
    checksum_kind: u8,
    compression: u8,
    segment_count: U32,
    checkpoint_addr: U64,
    checkpoint_len: U32,
    checkpoint_crc32c: U32,
    created_ns: I64,
    written_ns: I64,
    hash_key: [u8; 16],
    label: [u8; LABEL_LEN_BYTES],
    retired_count: U32,
    retired: [u8; 2048],
    mirror_addr: U64,
    max_len: U64,
    member_ends: [u8; 128],
    cold_compression: u8,
    reserved: [u8; 1715],
}

const _: () = assert!(size_of::<SuperblockV1>() == SUPERBLOCK_LEN_BYTES);
const _: () = assert!(offset_of!(SuperblockV1, segment_size_log2) == 64);
const _: () = assert!(offset_of!(SuperblockV1, label) == 120);
const _: () = assert!(offset_of!(SuperblockV1, mirror_addr) == 188 + RETIRED_LEN_BYTES);
const _: () = assert!(MAX_MEMBER_ENDS * size_of::<u64>() == 128);

/// A superblock in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The volume's identity.
    pub uuid: Uuid,
    /// Counts superblocks.
    pub seq: u64,
    /// Feature flags that older software may ignore.
    pub compatible: u64,
    /// Feature flags that older software may read but not write.
    pub read_only: u64,
    /// Feature flags that older software must refuse.
    pub incompatible: u64,
    /// How the volume is divided into segments.
    pub layout: Layout,
    /// Whether the volume was shut down cleanly and has not been opened for writing since.
    pub clean: bool,
    /// How new pages are compressed by default; 0: not.
    pub compression: u8,
    /// How the cleaner compresses what it moves by default; 0: not.
    pub cold_compression: u8,
    /// Where the checkpoint lies.
    pub checkpoint_addr: Addr,
    /// Its length in bytes.
    pub checkpoint_len_bytes: u32,
    /// The checksum of all its bytes, its own checksum field included.
    pub checkpoint_crc32c: u32,
    /// When the volume was made.
    pub created: Timestamp,
    /// When this superblock was written.
    pub written: Timestamp,
    /// A random key for the clients' hash tables.
    pub hash_key: [u8; 16],
    /// The volume's name, 64 bytes of UTF-8 at most.
    pub label: String,
    /// Segments that are not filled again, [`retired::MAX_RETIRED`] entries at most. It counts with
    /// [`INCOMPATIBLE_RETIRED`] alone.
    pub retired: Vec<Retired>,
    /// Where the checkpoint lies once more. It counts with [`INCOMPATIBLE_MIRRORS`] alone.
    pub checkpoint_mirror: Option<Addr>,
    /// The length in bytes up to which the device becomes longer by itself when the volume gets
    /// full; 0: it does not. It counts with [`COMPATIBLE_GROWS`] alone.
    pub max_len_bytes: u64,
    /// The bytes at which the members of the set end that were there, or are about to: before them
    /// lie their rosters. A device that has become longer by other means is found by that. They
    /// count with [`INCOMPATIBLE_SET`] alone.
    pub member_ends: Vec<u64>,
}

impl Superblock {
    /// The bytes that go into its slot.
    #[must_use]
    pub fn encode(&self) -> Box<SuperblockV1> {
        let mut label = [0; LABEL_LEN_BYTES];
        let len = self.label.floor_char_boundary(LABEL_LEN_BYTES);
        label[..len].copy_from_slice(&self.label.as_bytes()[..len]);
        let entries: Vec<RetiredV1> =
            self.retired.iter().take(MAX_RETIRED).map(Retired::encode).collect();
        let mut retired = [0; RETIRED_LEN_BYTES];
        retired[..size_of_val(&entries[..])].copy_from_slice(entries.as_bytes());
        let mut ends = [0; MAX_MEMBER_ENDS * size_of::<u64>()];
        for (slot, end) in ends.chunks_mut(size_of::<u64>()).zip(&self.member_ends) {
            slot.copy_from_slice(&end.to_le_bytes());
        }
        let mut raw = Box::new(SuperblockV1 {
            magic: MAGIC,
            crc32c: U32::ZERO,
            major_version: MAJOR_VERSION.into(),
            minor_version: MINOR_VERSION.into(),
            uuid: self.uuid.0,
            seq: self.seq.into(),
            compatible: self.compatible.into(),
            read_only: self.read_only.into(),
            incompatible: self.incompatible.into(),
            segment_size_log2: self.layout.segment_size_log2(),
            state: if self.clean { STATE_CLEAN } else { 0 },
            checksum_kind: CHECKSUM_CRC32C,
            compression: self.compression,
            segment_count: self.layout.segment_count().into(),
            checkpoint_addr: self.checkpoint_addr.0.into(),
            checkpoint_len: self.checkpoint_len_bytes.into(),
            checkpoint_crc32c: self.checkpoint_crc32c.into(),
            created_ns: self.created.0.into(),
            written_ns: self.written.0.into(),
            hash_key: self.hash_key,
            label,
            retired_count: (entries.len() as u32).into(),
            retired,
            mirror_addr: self.checkpoint_mirror.map_or(0, |mirror| mirror.0).into(),
            max_len: self.max_len_bytes.into(),
            member_ends: ends,
            cold_compression: self.cold_compression,
            reserved: FromZeros::new_zeroed(),
        });
        raw.crc32c = checksum(&raw.as_bytes()[12..]).into();
        raw
    }

    /// Reads a slot.
    ///
    /// # Errors
    /// When there is no superblock in it, it is damaged, or it is of a format that this code does
    /// not know.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        const WRONG: fn(&'static str) -> Malformed =
            |problem| Malformed::new("superblock", problem);
        let raw = SuperblockV1::ref_from_bytes(bytes).map_err(|_| WRONG("is not 4096 bytes"))?;
        if raw.magic != MAGIC {
            return Err(WRONG("there is none"));
        }
        if raw.crc32c.get() != checksum(&bytes[12..]) {
            return Err(WRONG("its checksum is wrong"));
        }
        if raw.major_version.get() != MAJOR_VERSION || raw.checksum_kind != CHECKSUM_CRC32C {
            return Err(WRONG("it is of a format that this version of dendrofs cannot read"));
        }
        if !can_be_counted(&[raw.seq.get()]) {
            return Err(WRONG("its number is out of range"));
        }
        let layout = Layout::new(raw.segment_size_log2, raw.segment_count.get())?;
        let retired = match raw.incompatible.get() & INCOMPATIBLE_RETIRED {
            0 => Vec::new(),
            _ => retired::decode_list(raw.retired_count.get(), &raw.retired, layout)?,
        };
        let grows = raw.compatible.get() & COMPATIBLE_GROWS != 0;
        let has_mirrors = raw.incompatible.get() & INCOMPATIBLE_MIRRORS != 0;
        let is_on_set = raw.incompatible.get() & INCOMPATIBLE_SET != 0;
        let ends = <[U64]>::ref_from_bytes(&raw.member_ends).unwrap_or_default();
        let ends = ends.iter().map(|end| end.get()).filter(|end| is_on_set && *end > 0);
        let label_len = raw.label.iter().position(|&byte| byte == 0).unwrap_or(LABEL_LEN_BYTES);
        Ok(Self {
            uuid: Uuid(raw.uuid),
            seq: raw.seq.get(),
            compatible: raw.compatible.get(),
            read_only: raw.read_only.get(),
            incompatible: raw.incompatible.get(),
            layout,
            clean: raw.state == STATE_CLEAN,
            compression: raw.compression,
            cold_compression: raw.cold_compression,
            checkpoint_addr: Addr(raw.checkpoint_addr.get()),
            checkpoint_len_bytes: raw.checkpoint_len.get(),
            checkpoint_crc32c: raw.checkpoint_crc32c.get(),
            created: Timestamp(raw.created_ns.get()),
            written: Timestamp(raw.written_ns.get()),
            hash_key: raw.hash_key,
            label: String::from_utf8_lossy(&raw.label[..label_len]).into_owned(),
            retired,
            checkpoint_mirror: Some(Addr(raw.mirror_addr.get()))
                .filter(|mirror| has_mirrors && mirror.0 != 0),
            max_len_bytes: if grows { raw.max_len.get() } else { 0 },
            member_ends: ends.collect(),
        })
    }
}

impl Superblock {
    /// How often nodes of the map and checkpoints are kept.
    #[must_use]
    pub const fn metadata_copies(&self) -> u8 {
        if self.incompatible & INCOMPATIBLE_MIRRORS == 0 { 1 } else { 2 }
    }

    /// Where its volume has backup superblocks on a device of this length, if it has any.
    #[must_use]
    pub fn backup_area(&self, device_len_bytes: u64) -> Option<Range<u64>> {
        let has_backups = self.compatible & COMPATIBLE_BACKUPS != 0;
        let area = backup_area(device_len_bytes).filter(|_| has_backups)?;
        (self.layout.len_bytes() <= area.start).then_some(area)
    }
}

impl Superblock {
    /// Whether all of its volume's image is allocated on the file system that holds it.
    #[must_use]
    pub const fn is_allocated(&self) -> bool {
        self.compatible & COMPATIBLE_ALLOCATED != 0
    }

    /// The layout that its volume gets when it takes the first `len_bytes` of a device of
    /// `device_len_bytes`: whole segments, and with room for backups behind them if it has any.
    ///
    /// # Errors
    /// When the segments would be too few or too many.
    pub fn layout_on(&self, len_bytes: u64, device_len_bytes: u64) -> Result<Layout> {
        let area = match self.compatible & COMPATIBLE_BACKUPS {
            0 => None,
            _ => backup_area(device_len_bytes),
        };
        let end = area.map_or(device_len_bytes, |area| area.start).min(len_bytes);
        let log2 = self.layout.segment_size_log2();
        let count = u32::try_from(end >> log2)
            .map_err(|_| Malformed::new("layout", "there are too many segments"))?;
        Layout::new(log2, count)
    }
}

impl SuperblockV1 {
    /// The slot's bytes.
    #[must_use]
    pub fn as_slot(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Fields of a damaged superblock, which may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperblockRemains {
    /// Its number.
    pub seq: u64,
    /// Feature flags that older software must refuse.
    pub incompatible: u64,
    /// Where the checkpoint lies.
    pub checkpoint_addr: Addr,
    /// Its length in bytes.
    pub checkpoint_len_bytes: u32,
}

impl SuperblockRemains {
    /// Reads a slot in which there is no valid superblock; `None` if there seems to have been none
    /// of the volume `uuid`.
    #[must_use]
    pub fn find(slot: &[u8], uuid: &Uuid) -> Option<Self> {
        let raw = SuperblockV1::ref_from_bytes(slot).ok()?;
        let is_ours = raw.uuid == uuid.0 && *uuid != Uuid::default();
        (raw.magic == MAGIC || is_ours).then(|| Self {
            seq: raw.seq.get(),
            incompatible: raw.incompatible.get(),
            checkpoint_addr: Addr(raw.checkpoint_addr.get()),
            checkpoint_len_bytes: raw.checkpoint_len.get(),
        })
    }
}
