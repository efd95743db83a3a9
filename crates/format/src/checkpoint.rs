//! A checkpoint: a state of the volume from which the log is rolled forward.

use std::mem::{offset_of, size_of};

use dendro_base::{Timestamp, Uuid};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::{Addr, Layout, SegmentNo};
use crate::node::NodePtr;
use crate::superblock::{INCOMPATIBLE_MIRRORS, Superblock};
use crate::usage::{FIRST_SYSTEM_LIST, USAGE_LEN_BYTES, Usage};
use crate::{Malformed, Result, can_be_counted, checksum};

const MAGIC: [u8; 4] = *b"DCP1";
const VERSION: u16 = 1;
const OVERRIDE_LEN_BYTES: usize = 4 + USAGE_LEN_BYTES;
/// Bytes of the entry of a segment with a mirror.
pub const MIRROR_LEN_BYTES: usize = 8;

/// The fixed part of a checkpoint, version 1. The usage overrides follow: a segment's number
/// (4 bytes) and its usage (16) each, in ascending order. Behind them are the mirrors: the number
/// of a segment and that of its mirror (4 bytes) each, in ascending order of the former.
///
/// | offset | size | field             | meaning                                              |
/// |-------:|-----:|-------------------|------------------------------------------------------|
/// |      0 |    4 | `magic`           | "DCP1"                                               |
/// |      4 |    4 | `crc32c`          | over bytes 8.. to the end                            |
/// |      8 |    2 | `version`         | 1                                                    |
/// |     10 |    1 | `root_level`      | level of the map's root                              |
/// |     11 |    1 | `flags`           | what is exact: bit 0: the counts of pages; bit 1: the totals |
/// |     12 |    4 | `override_count`  | usage overrides that follow                          |
/// |     16 |   16 | `uuid`            | the volume                                           |
/// |     32 |    8 | `seq`             | counts checkpoints                                   |
/// |     40 |    8 | `root_addr`       | the map's root; all three zero for an empty map      |
/// |     48 |    4 | `root_len`        | its bytes                                            |
/// |     52 |    4 | `root_crc32c`     | its checksum                                         |
/// |     56 |    4 | `log_segment`     | where the main log goes on                           |
/// |     60 |    4 | `log_offset`      | in that segment                                      |
/// |     64 |    8 | `log_seq`         | the number of the next partial segment there         |
/// |     72 |    4 | `log_prev_crc32c` | the checksum of the one before it                    |
/// |     76 |    4 | `next_segment`    | or where it goes on when it isn't there              |
/// |     80 |    4 | `map_segment`     | where the map's head stood                           |
/// |     84 |    4 | `map_offset`      | in that segment, behind this checkpoint              |
/// |     88 |    8 | `next_list`       | the next number for a list                           |
/// |     96 |    8 | `commit_seq`      | the last commit in it                                |
/// |    104 |    8 | `epoch`           | the epoch at the time                                |
/// |    112 |    8 | `live_bytes`      | of all segments                                      |
/// |    120 |    8 | `time_ns`         | when it was taken                                    |
/// |    128 |    8 | `log_clock`       | bytes of blocks that clients had written by then     |
/// |    136 |    8 | `short_count`     | pages it refers to whose blocks are short            |
/// |    144 |    8 | `zero_count`      | pages it refers to that have none, being zeros       |
/// |    152 |   16 | `hash_key`        | as in the superblock                                 |
/// |    168 |    8 | `incompatible`    | as in the superblock                                 |
/// |    176 |    4 | `read_only`       | as in the superblock, its low half                   |
/// |    180 |    4 | `compatible`      | as in the superblock, its low half                   |
/// |    184 |    4 | `segment_count`   | as in the superblock                                 |
/// |    188 |    1 | `segment_size_log2` | as in the superblock; 0: the checkpoint does not say |
/// |    189 |    3 | `reserved`        | zero                                                 |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CheckpointV1 {
    magic: [u8; 4],
    crc32c: U32,
    version: U16,
    root_level: u8,
    flags: u8,
    override_count: U32,
    uuid: [u8; 16],
    seq: U64,
    root_addr: U64,
    root_len: U32,
    root_crc32c: U32,
    log_segment: U32,
    log_offset: U32,
    log_seq: U64,
    log_prev_crc32c: U32,
    next_segment: U32,
    map_segment: U32,
    map_offset: U32,
    next_list: U64,
    commit_seq: U64,
    epoch: U64,
    live_bytes: U64,
    time_ns: I64,
    log_clock: U64,
    short_count: U64,
    zero_count: U64,
    hash_key: [u8; 16],
    incompatible: U64,
    read_only: U32,
    compatible: U32,
    segment_count: U32,
    segment_size_log2: u8,
    reserved: [u8; 3],
}

impl CheckpointV1 {
    fn identity(&self) -> Result<Option<Identity>> {
        if self.segment_size_log2 == 0 {
            return Ok(None);
        }
        Ok(Some(Identity {
            layout: Layout::new(self.segment_size_log2, self.segment_count.get())?,
            hash_key: self.hash_key,
            incompatible: self.incompatible.get(),
            read_only: self.read_only.get(),
            compatible: self.compatible.get(),
        }))
    }
}

/// In the flags: the counts of pages are exact.
const COUNTS_ARE_EXACT: u8 = 1;
/// In the flags: the totals in the map are exact.
const TOTALS_ARE_EXACT: u8 = 2;

/// Bytes of the fixed part.
pub const CHECKPOINT_FIXED_LEN_BYTES: usize = size_of::<CheckpointV1>();
const _: () = assert!(CHECKPOINT_FIXED_LEN_BYTES == 192);
const _: () = assert!(offset_of!(CheckpointV1, next_list) == 88);
const _: () = assert!(offset_of!(CheckpointV1, hash_key) == 152);

/// What only superblocks said before, kept with each checkpoint too, so that superblocks can be
/// made anew from a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// How the volume is divided into segments.
    pub layout: Layout,
    /// The key for the clients' hash tables.
    pub hash_key: [u8; 16],
    /// Feature flags that older software must refuse.
    pub incompatible: u64,
    /// Feature flags that older software may read but not write: those below 2³².
    pub read_only: u32,
    /// Feature flags that older software may ignore: those below 2³².
    pub compatible: u32,
}

impl Identity {
    /// What a superblock says.
    #[must_use]
    pub const fn of(superblock: &Superblock) -> Self {
        Self {
            layout: superblock.layout,
            hash_key: superblock.hash_key,
            incompatible: superblock.incompatible,
            read_only: superblock.read_only as u32,
            compatible: superblock.compatible as u32,
        }
    }
}

/// A place in a head's log: the end of what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadPosition {
    /// The segment.
    pub segment: SegmentNo,
    /// Bytes from its start.
    pub offset_bytes: u32,
}

/// A checkpoint in memory; [`CheckpointV1`] describes each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The volume.
    pub uuid: Uuid,
    /// Counts checkpoints.
    pub seq: u64,
    /// The map's root with its level; `None` for an empty map.
    pub root: Option<(NodePtr, u8)>,
    /// Where the main log continues.
    pub log: HeadPosition,
    /// The number of the next partial segment there.
    pub log_seq: u64,
    /// The checksum of the partial segment before it.
    pub log_prev_crc32c: u32,
    /// The segment in which the log continues if it does not continue there.
    pub next_segment: SegmentNo,
    /// The position of the map's head.
    pub map: HeadPosition,
    /// The next number for a list.
    pub next_list: u64,
    /// The last commit in it.
    pub commit_seq: u64,
    /// The epoch at the time.
    pub epoch: u64,
    /// The live bytes of all segments.
    pub live_bytes: u64,
    /// When it was taken.
    pub time: Timestamp,
    /// The log clock: bytes of blocks that clients had written by then.
    pub log_clock: u64,
    /// Pages that it refers to whose blocks are shorter than a page: each has a record of its own
    /// beside it in the log.
    pub short_count: u64,
    /// Pages that it refers to that have no block because they are zeros. They too may be written
    /// later, and need space then.
    pub zero_count: u64,
    /// Whether these two have been counted since the volume was made. Older software leaves them
    /// zero, and newer software counts from there.
    pub counts_are_exact: bool,
    /// Whether the map's [totals](crate::totals) are exact. Older software does not keep them.
    pub totals_are_exact: bool,
    /// What superblocks say too; `None` in a checkpoint of older software.
    pub identity: Option<Identity>,
    /// Usage that differs from the map's records, by ascending segment: the changes that were
    /// caused by writing the checkpoint itself.
    pub usage_overrides: Vec<(SegmentNo, Usage)>,
    /// Segments of the map that have a mirror, in ascending order, each with its mirror: a segment
    /// in which the same bytes lie at the same offsets. Only with
    /// [`INCOMPATIBLE_MIRRORS`].
    pub mirrors: Vec<(SegmentNo, SegmentNo)>,
}

impl Checkpoint {
    /// Where the main log continued, as far as it can be read from a damaged checkpoint: the number
    /// of the next partial segment and the checksum of the one before it. Both may be wrong.
    #[must_use]
    pub fn log_position_in(bytes: &[u8]) -> Option<(u64, u32)> {
        let (raw, _) = CheckpointV1::ref_from_prefix(bytes).ok()?;
        Some((raw.log_seq.get(), raw.log_prev_crc32c.get()))
    }

    /// Its bytes.
    ///
    /// # Panics
    /// When the usage overrides are not in ascending order of segments.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.usage_overrides.is_sorted_by(|(one, _), (next, _)| one < next),
            "usage overrides are in order"
        );
        let (root, root_level) =
            self.root.unwrap_or((NodePtr { addr: Addr(0), len_bytes: 0, crc32c: 0 }, 0));
        let id = self.identity;
        let raw = CheckpointV1 {
            magic: MAGIC,
            crc32c: U32::ZERO,
            version: VERSION.into(),
            root_level,
            flags: if self.counts_are_exact { COUNTS_ARE_EXACT } else { 0 }
                | if self.totals_are_exact { TOTALS_ARE_EXACT } else { 0 },
            override_count: (self.usage_overrides.len() as u32).into(),
            uuid: self.uuid.0,
            seq: self.seq.into(),
            root_addr: root.addr.0.into(),
            root_len: root.len_bytes.into(),
            root_crc32c: root.crc32c.into(),
            log_segment: self.log.segment.0.into(),
            log_offset: self.log.offset_bytes.into(),
            log_seq: self.log_seq.into(),
            log_prev_crc32c: self.log_prev_crc32c.into(),
            next_segment: self.next_segment.0.into(),
            map_segment: self.map.segment.0.into(),
            map_offset: self.map.offset_bytes.into(),
            next_list: self.next_list.into(),
            commit_seq: self.commit_seq.into(),
            epoch: self.epoch.into(),
            live_bytes: self.live_bytes.into(),
            time_ns: self.time.0.into(),
            log_clock: self.log_clock.into(),
            short_count: self.short_count.into(),
            zero_count: self.zero_count.into(),
            hash_key: id.map_or([0; 16], |id| id.hash_key),
            incompatible: id.map_or(0, |id| id.incompatible).into(),
            read_only: id.map_or(0, |id| id.read_only).into(),
            compatible: id.map_or(0, |id| id.compatible).into(),
            segment_count: id.map_or(0, |id| id.layout.segment_count()).into(),
            segment_size_log2: id.map_or(0, |id| id.layout.segment_size_log2()),
            reserved: [0; 3],
        };
        let mut out = raw.as_bytes().to_vec();
        for (segment, usage) in &self.usage_overrides {
            out.extend_from_slice(&segment.0.to_le_bytes());
            out.extend_from_slice(&usage.encode());
        }
        for (segment, mirror) in &self.mirrors {
            out.extend_from_slice(&segment.0.to_le_bytes());
            out.extend_from_slice(&mirror.0.to_le_bytes());
        }
        let crc32c = checksum(&out[8..]);
        out[4..8].copy_from_slice(&crc32c.to_le_bytes());
        out
    }

    /// Reads a checkpoint: `bytes` are exactly its own.
    ///
    /// # Errors
    /// When they are not a checkpoint of volume `uuid`, or are damaged.
    pub fn decode(bytes: &[u8], uuid: &Uuid) -> Result<Self> {
        const WRONG: fn(&'static str) -> Malformed =
            |problem| Malformed::new("checkpoint", problem);
        let (raw, rest) =
            CheckpointV1::ref_from_prefix(bytes).map_err(|_| WRONG("ends too early"))?;
        if raw.magic != MAGIC {
            return Err(WRONG("there is none"));
        }
        if raw.crc32c.get() != checksum(&bytes[8..]) {
            return Err(WRONG("its checksum is wrong"));
        }
        if raw.version.get() != VERSION || raw.uuid != uuid.0 {
            return Err(WRONG("it is of another version or volume"));
        }
        let counters = [&raw.seq, &raw.log_seq, &raw.commit_seq, &raw.epoch, &raw.log_clock];
        let counters = counters.map(|raw| raw.get());
        if !can_be_counted(&counters) || raw.next_list.get() > FIRST_SYSTEM_LIST {
            return Err(WRONG("a number in it is out of range"));
        }
        let overrides_len_bytes = raw.override_count.get() as usize * OVERRIDE_LEN_BYTES;
        let (overrides, mirrors) =
            rest.split_at_checked(overrides_len_bytes).ok_or(WRONG("its length is wrong"))?;
        let has_mirrors = raw.incompatible.get() & INCOMPATIBLE_MIRRORS != 0;
        if !mirrors.len().is_multiple_of(MIRROR_LEN_BYTES) || !mirrors.is_empty() && !has_mirrors {
            return Err(WRONG("its length is wrong"));
        }
        let mirrors = decode_mirrors(mirrors).ok_or(WRONG("its mirrors are wrong"))?;
        let usage_overrides = overrides
            .chunks_exact(OVERRIDE_LEN_BYTES)
            .map(|entry| {
                let number = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
                Ok((SegmentNo(number), Usage::decode(&entry[4..])?))
            })
            .collect::<Result<Vec<_>>>()?;
        if !usage_overrides.is_sorted_by(|(one, _), (next, _)| one < next) {
            return Err(WRONG("its usage overrides are out of order"));
        }
        let root = NodePtr {
            addr: Addr(raw.root_addr.get()),
            len_bytes: raw.root_len.get(),
            crc32c: raw.root_crc32c.get(),
        };
        Ok(Self {
            uuid: *uuid,
            seq: raw.seq.get(),
            root: (root.len_bytes != 0).then_some((root, raw.root_level)),
            log: HeadPosition {
                segment: SegmentNo(raw.log_segment.get()),
                offset_bytes: raw.log_offset.get(),
            },
            log_seq: raw.log_seq.get(),
            log_prev_crc32c: raw.log_prev_crc32c.get(),
            next_segment: SegmentNo(raw.next_segment.get()),
            map: HeadPosition {
                segment: SegmentNo(raw.map_segment.get()),
                offset_bytes: raw.map_offset.get(),
            },
            next_list: raw.next_list.get(),
            commit_seq: raw.commit_seq.get(),
            epoch: raw.epoch.get(),
            live_bytes: raw.live_bytes.get(),
            time: Timestamp(raw.time_ns.get()),
            log_clock: raw.log_clock.get(),
            short_count: raw.short_count.get(),
            zero_count: raw.zero_count.get(),
            counts_are_exact: raw.flags & COUNTS_ARE_EXACT != 0,
            totals_are_exact: raw.flags & TOTALS_ARE_EXACT != 0,
            identity: raw.identity()?,
            usage_overrides,
            mirrors,
        })
    }
}

impl Checkpoint {
    /// Where the bytes at `addr` lie once more, if their segment has a mirror.
    #[must_use]
    pub fn mirror_of(&self, layout: Layout, addr: Addr) -> Option<Addr> {
        let segment = layout.segment_of(addr);
        let at = self.mirrors.binary_search_by_key(&segment, |(of, _)| *of).ok()?;
        Some(layout.counterpart(addr, self.mirrors[at].1))
    }
}

/// Reads the list of mirrors. No segment is a mirror twice, or has one and is one.
fn decode_mirrors(bytes: &[u8]) -> Option<Vec<(SegmentNo, SegmentNo)>> {
    let number = |bytes: &[u8]| Some(SegmentNo(u32::from_le_bytes(bytes.try_into().ok()?)));
    let entries = bytes.chunks_exact(MIRROR_LEN_BYTES);
    let list: Vec<(SegmentNo, SegmentNo)> =
        entries.map(|entry| number(&entry[..4]).zip(number(&entry[4..]))).collect::<Option<_>>()?;
    let mut all: Vec<SegmentNo> = list.iter().flat_map(|(of, mirror)| [*of, *mirror]).collect();
    all.sort_unstable();
    let is_sound =
        list.is_sorted_by(|(one, _), (next, _)| one < next) && all.is_sorted_by(|a, b| a < b);
    is_sound.then_some(list)
}
