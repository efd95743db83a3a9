//! The partial segment: the unit that the log is written in, with one sequential write.
//!
//! It starts with its header. Payload (pages, map nodes) lies behind the header, whole pages
//! aligned to 4 KiB and shorter blocks packed in grains; the records lie wherever they fit, and
//! the header says where. It takes effect completely or not at all.

use std::mem::{offset_of, size_of};

use dendro_base::units::PAGE_SIZE;
use dendro_base::{Timestamp, Uuid};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::SegmentNo;
use crate::{Malformed, Result, can_be_counted, checksum, checksum_append};

/// Bytes in a header; payload may follow at once.
pub const HEADER_LEN_BYTES: usize = 128;
const MAGIC: [u8; 4] = *b"DLP1";
const VERSION: u16 = 1;

/// Which of the log's heads wrote a partial segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Head {
    /// The main log. Only this one has an order and is rolled forward.
    Main = 0,
    /// Nodes of the map, and checkpoints.
    Map = 1,
    /// Blocks outside the main log, named by the main log's records: clients' data by temperature,
    /// and blocks that the cleaner has moved.
    Payload = 2,
}

/// The header of a partial segment, version 1.
///
/// | offset | size | field            | meaning                                                  |
/// |-------:|-----:|------------------|----------------------------------------------------------|
/// |      0 |    4 | `magic`          | "DLP1"                                                   |
/// |      4 |    4 | `crc32c`         | over bytes 8..128, then the records                      |
/// |      8 |    2 | `version`        | 1                                                        |
/// |     10 |    1 | `head`           | 0 main, 1 map, 2 payload                                 |
/// |     11 |    1 | `class`          | temperature of a payload head's data; zero in others     |
/// |     12 |    4 | `len`            | bytes of the whole, a multiple of 4096                   |
/// |     16 |   16 | `uuid`           | the volume                                               |
/// |     32 |    8 | `seq`            | counts the head's partial segments                       |
/// |     40 |    4 | `segment`        | the segment it lies in                                   |
/// |     44 |    4 | `offset`         | where in it, in bytes                                    |
/// |     48 |    4 | `prev_crc32c`    | `crc32c` of the head's partial segment before            |
/// |     52 |    4 | `next_segment`   | where the head goes on when this segment ends            |
/// |     56 |    4 | `records_offset` | from the start of the partial segment, in bytes          |
/// |     60 |    4 | `records_len`    | in bytes                                                 |
/// |     64 |    4 | `complete_len`   | records up to here end the recovery units they belong to |
/// |     68 |    4 | `reserved_a`     | zero                                                     |
/// |     72 |    8 | `commit_seq`     | the last unit that is complete                           |
/// |     80 |    8 | `durable_seq`    | the head was durable up to this `seq` when it was written|
/// |     88 |    8 | `time_ns`        | when it was written                                      |
/// |     96 |    8 | `epoch`          | of the changes in it                                     |
/// |    104 |   24 | `reserved_b`     | zero                                                     |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PartialHeaderV1 {
    magic: [u8; 4],
    crc32c: U32,
    version: U16,
    head: u8,
    class: u8,
    len: U32,
    uuid: [u8; 16],
    seq: U64,
    segment: U32,
    offset: U32,
    prev_crc32c: U32,
    next_segment: U32,
    records_offset: U32,
    records_len: U32,
    complete_len: U32,
    reserved_a: U32,
    commit_seq: U64,
    durable_seq: U64,
    time_ns: I64,
    epoch: U64,
    reserved_b: [u8; 24],
}

const _: () = assert!(size_of::<PartialHeaderV1>() == HEADER_LEN_BYTES);
const _: () = assert!(offset_of!(PartialHeaderV1, records_offset) == 56);
const _: () = assert!(offset_of!(PartialHeaderV1, epoch) == 96);

/// A partial segment's header in memory; [`PartialHeaderV1`] describes each field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialHeader {
    /// The head that wrote it.
    pub head: Head,
    /// The temperature of a payload head's data; zero in others.
    pub class: u8,
    /// Its length in bytes, a multiple of 4096.
    pub len_bytes: u32,
    /// The volume.
    pub uuid: Uuid,
    /// Counts the head's partial segments.
    pub seq: u64,
    /// The segment it lies in.
    pub segment: SegmentNo,
    /// Its offset in the segment.
    pub offset_bytes: u32,
    /// The checksum of the one before.
    pub prev_crc32c: u32,
    /// The segment in which the head continues when this one ends.
    pub next_segment: SegmentNo,
    /// Where its records lie.
    pub records_offset_bytes: u32,
    /// Their length.
    pub records_len_bytes: u32,
    /// How many bytes of them belong to recovery units that end in it.
    pub complete_len_bytes: u32,
    /// The last unit that is complete.
    pub commit_seq: u64,
    /// The last of the head's partial segments known to be durable.
    pub durable_seq: u64,
    /// When it was written.
    pub time: Timestamp,
    /// The epoch of the changes in it.
    pub epoch: u64,
}

impl PartialHeader {
    /// Writes the header to the front of `partial`, the whole partial segment, whose records lie
    /// where the header says. Returns the checksum, which the next partial segment repeats.
    ///
    /// # Panics
    /// When the records do not lie inside `partial`.
    pub fn encode_into(&self, partial: &mut [u8]) -> u32 {
        let mut raw = PartialHeaderV1 {
            magic: MAGIC,
            crc32c: U32::ZERO,
            version: VERSION.into(),
            head: self.head as u8,
            class: self.class,
            len: self.len_bytes.into(),
            uuid: self.uuid.0,
            seq: self.seq.into(),
            segment: self.segment.0.into(),
            offset: self.offset_bytes.into(),
            prev_crc32c: self.prev_crc32c.into(),
            next_segment: self.next_segment.0.into(),
            records_offset: self.records_offset_bytes.into(),
            records_len: self.records_len_bytes.into(),
            complete_len: self.complete_len_bytes.into(),
            reserved_a: U32::ZERO,
            commit_seq: self.commit_seq.into(),
            durable_seq: self.durable_seq.into(),
            time_ns: self.time.0.into(),
            epoch: self.epoch.into(),
            reserved_b: [0; 24],
        };
        let records = self.records_of(partial).expect("records lie inside their partial segment");
        let crc32c = checksum_append(checksum(&raw.as_bytes()[8..]), records);
        raw.crc32c = crc32c.into();
        partial[..HEADER_LEN_BYTES].copy_from_slice(raw.as_bytes());
        crc32c
    }

    /// Reads a header from the front of `bytes`, and checks everything that can be checked without
    /// the records; [`Self::verify`] checks the rest. Returns it with its checksum.
    ///
    /// # Errors
    /// When there is none, or its numbers contradict each other.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u32)> {
        const WRONG: fn(&'static str) -> Malformed =
            |problem| Malformed::new("partial segment", problem);
        let (raw, _) =
            PartialHeaderV1::ref_from_prefix(bytes).map_err(|_| WRONG("ends too early"))?;
        if raw.magic != MAGIC {
            return Err(WRONG("there is none"));
        }
        if raw.version.get() != VERSION {
            return Err(WRONG("it is of an unknown version"));
        }
        let head = match raw.head {
            0 => Head::Main,
            1 => Head::Map,
            2 => Head::Payload,
            _ => return Err(WRONG("it is of an unknown head")),
        };
        let header = Self {
            head,
            class: raw.class,
            len_bytes: raw.len.get(),
            uuid: Uuid(raw.uuid),
            seq: raw.seq.get(),
            segment: SegmentNo(raw.segment.get()),
            offset_bytes: raw.offset.get(),
            prev_crc32c: raw.prev_crc32c.get(),
            next_segment: SegmentNo(raw.next_segment.get()),
            records_offset_bytes: raw.records_offset.get(),
            records_len_bytes: raw.records_len.get(),
            complete_len_bytes: raw.complete_len.get(),
            commit_seq: raw.commit_seq.get(),
            durable_seq: raw.durable_seq.get(),
            time: Timestamp(raw.time_ns.get()),
            epoch: raw.epoch.get(),
        };
        let records_end =
            u64::from(header.records_offset_bytes) + u64::from(header.records_len_bytes);
        let sound = header.len_bytes as usize >= PAGE_SIZE
            && (header.len_bytes as usize).is_multiple_of(PAGE_SIZE)
            && header.records_offset_bytes as usize >= HEADER_LEN_BYTES
            && records_end <= u64::from(header.len_bytes)
            && header.complete_len_bytes <= header.records_len_bytes;
        let PartialHeader { seq, commit_seq, durable_seq, epoch, .. } = header;
        if !can_be_counted(&[seq, commit_seq, durable_seq, epoch]) {
            return Err(WRONG("a number in it is out of range"));
        }
        if !sound {
            return Err(WRONG("its lengths contradict each other"));
        }
        Ok((header, raw.crc32c.get()))
    }

    /// Whether the checksum fits the header's bytes and `records`.
    ///
    /// # Panics
    /// When `header_bytes` is shorter than a header.
    #[must_use]
    pub fn verify(header_bytes: &[u8], records: &[u8]) -> bool {
        let header = &header_bytes[..HEADER_LEN_BYTES];
        let stored = U32::read_from_bytes(&header[4..8]).expect("four bytes");
        stored.get() == checksum_append(checksum(&header[8..]), records)
    }

    /// The records inside `partial`, if they lie inside it.
    #[must_use]
    pub fn records_of<'a>(&self, partial: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.records_offset_bytes as usize;
        partial.get(start..start.checked_add(self.records_len_bytes as usize)?)
    }
}
