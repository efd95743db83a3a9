//! The roster: which devices hold a volume together, as each of them states it.
//!
//! A volume may lie on a *set* of devices, its *members*, which hold the same bytes at the same
//! places, or over which it is spread ([`extents`]). The last 128 KiB of each member, which the
//! volume does not use, have two slots for a roster ([`roster_area`]). A roster is written to the
//! slot that does not hold the newest one, so a torn write leaves that. The one with the highest
//! generation counts.

pub mod extents;

use std::ffi::OsStr;
use std::mem::{offset_of, size_of};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dendro_base::units::PAGE_SIZE;
use dendro_base::{Timestamp, Uuid};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use self::extents::{Extent, spread_len_bytes};
use crate::layout::{MAX_SEGMENT_SIZE_LOG2, MIN_SEGMENT_SIZE_LOG2};
use crate::superblock::MAX_MEMBER_ENDS;
use crate::{Malformed, Result, can_be_counted, checksum};

/// What every roster starts with.
pub const ROSTER_MAGIC: [u8; 8] = *b"dendrset";
/// Bytes in a slot: the roster proper, and the bits of stale regions.
pub const ROSTER_SLOT_LEN_BYTES: usize = 64 << 10;
/// Slots on each member.
pub const ROSTER_SLOT_COUNT: usize = 2;
/// Bytes at the end of each member that the slots take.
pub const ROSTER_AREA_LEN_BYTES: u64 = (ROSTER_SLOT_COUNT * ROSTER_SLOT_LEN_BYTES) as u64;
/// The most members of a set.
pub const MAX_MEMBERS: usize = 8;

const HEADER_LEN_BYTES: usize = 4096;
const MEMBER_LEN_BYTES: usize = 256;
const PATH_LEN_BYTES: usize = 208;
const BITS_LEN_BYTES: usize = ROSTER_SLOT_LEN_BYTES - HEADER_LEN_BYTES;
const VERSION: u16 = 1;
const KIND_MIRRORED: u8 = 1;
const KIND_SPREAD: u8 = 2;
const CLASS_FAST: u8 = 1;

/// The roster, version 1. 61,440 bytes follow it in its slot: bits, or extents.
///
/// | offset | size | field              | meaning                                              |
/// |-------:|-----:|--------------------|------------------------------------------------------|
/// |      0 |    8 | `magic`            | "dendrset"                                           |
/// |      8 |    4 | `crc32c`           | over bytes 12..65536 of the slot                     |
/// |     12 |    2 | `version`          | 1                                                    |
/// |     14 |    2 | `member_count`     | 1 to 8                                               |
/// |     16 |   16 | `set`              | the volume's UUID                                    |
/// |     32 |   16 | `member`           | the UUID of the member that it lies on               |
/// |     48 |    8 | `generation`       | grows with each roster that the set writes           |
/// |     56 |    8 | `set_len`          | bytes of the volume, behind which nothing is used    |
/// |     64 |    1 | `kind`             | 1: mirrored; 2: spread                               |
/// |     65 |    1 | `region_size_log2` | the bytes of a region, 12 to 48; of a segment        |
/// |     66 |    1 | `clean`            | 1: everything was flushed, and nothing written since |
/// |     67 |    1 | `reserved_a`       | zero                                                 |
/// |     68 |    2 | `extent_count`     | extents; zero in kind 1                              |
/// |     70 |    8 | `end`              | the byte at which the member ends, behind its rosters; 0 of older software |
/// |     78 |   50 | `reserved_c`       | zero                                                 |
/// |    128 | 2048 | `members`          | the members ([`MemberV1`]); zero behind the last     |
/// |   2176 | 1920 | `reserved_b`       | zero                                                 |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RosterV1 {
    magic: [u8; 8],
    crc32c: U32,
    version: U16,
    member_count: U16,
    set: [u8; 16],
    member: [u8; 16],
    generation: U64,
    set_len: U64,
    kind: u8,
    region_size_log2: u8,
    clean: u8,
    reserved_a: u8,
    extent_count: U16,
    end: U64,
    reserved_c: [u8; 50],
    members: [u8; 2048],
    reserved_b: [u8; 1920],
}

const _: () = assert!(size_of::<RosterV1>() == HEADER_LEN_BYTES);
const _: () = assert!(offset_of!(RosterV1, members) == 128);
const _: () = assert!(MAX_MEMBERS * MEMBER_LEN_BYTES == 2048);
const _: () = assert!(MAX_MEMBERS == extents::MAX_COLUMNS);
const _: () = assert!(2 * MAX_MEMBERS == MAX_MEMBER_ENDS);
const _: () = assert!(extents::MAX_EXTENTS * extents::EXTENT_LEN_BYTES <= BITS_LEN_BYTES);

/// A member in a roster, version 1.
///
/// | offset | size | field        | meaning                                                    |
/// |-------:|-----:|--------------|------------------------------------------------------------|
/// |      0 |   16 | `uuid`       | the member's UUID                                          |
/// |     16 |    1 | `state`      | 0: in sync, 1: missing, 2: being brought up                |
/// |     17 |    1 | `leaves`     | 1: it leaves the set when those in state 2 are in sync     |
/// |     18 |    1 | `class`      | 1: it is a fast one; of members of a spread volume alone   |
/// |     19 |    5 | `reserved`   | zero                                                       |
/// |     24 |    8 | `copied_to`  | in state 2: before this byte, it has what others have      |
/// |     32 |    8 | `written`    | the generation of the newest roster that lies on it        |
/// |     40 |    8 | `since_ns`   | when its state became what it is                           |
/// |     48 |  208 | `path`       | where it was found last, zero-padded; a hint               |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MemberV1 {
    uuid: [u8; 16],
    state: u8,
    leaves: u8,
    class: u8,
    reserved: [u8; 5],
    copied_to: U64,
    written: U64,
    since_ns: I64,
    path: [u8; 208],
}

const _: () = assert!(size_of::<MemberV1>() == MEMBER_LEN_BYTES);

/// What a member has of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It has everything that the volume has.
    InSync,
    /// It lacks what was written since it was lost.
    Missing,
    /// It gets what it lacks, and all that is written.
    BroughtUp {
        /// Before this byte of the device, it has what the others have.
        copied_to_bytes: u64,
    },
}

/// A member of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its identity.
    pub uuid: Uuid,
    /// What it has.
    pub state: MemberState,
    /// Whether it leaves the set when all members that are brought up are in sync.
    pub leaves: bool,
    /// Whether it is one of the fast members of a spread volume.
    pub is_fast: bool,
    /// The generation of the newest roster that is known to lie on it.
    pub written_generation: u64,
    /// When its state became what it is.
    pub since: Timestamp,
    /// Where it was found last; empty if that is not known.
    pub path: PathBuf,
}

/// Regions of the device in which members that are not in sync may lack something.
#[derive(Clone, PartialEq, Eq)]
pub struct Regions {
    bits: Vec<u8>,
}

impl std::fmt::Debug for Regions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Regions({} set)", self.count())
    }
}

impl Default for Regions {
    fn default() -> Self {
        Self { bits: vec![0; BITS_LEN_BYTES] }
    }
}

impl Regions {
    /// The most regions of a device.
    pub const MAX_COUNT: u64 = BITS_LEN_BYTES as u64 * 8;

    /// Every region.
    #[must_use]
    pub fn all() -> Self {
        Self { bits: vec![0xff; BITS_LEN_BYTES] }
    }

    /// Whether it has the region with this number.
    #[must_use]
    pub fn has(&self, region: u64) -> bool {
        let byte = usize::try_from(region / 8).ok().and_then(|at| self.bits.get(at));
        byte.is_some_and(|byte| byte & (1 << (region % 8)) != 0)
    }

    /// Adds a region. Returns whether it is new.
    pub fn insert(&mut self, region: u64) -> bool {
        let is_new = !self.has(region);
        if let Some(byte) = usize::try_from(region / 8).ok().and_then(|at| self.bits.get_mut(at)) {
            *byte |= 1 << (region % 8);
        }
        is_new
    }

    /// Adds the regions of others.
    pub fn add(&mut self, others: &Self) {
        for (byte, other) in self.bits.iter_mut().zip(&others.bits) {
            *byte |= other;
        }
    }

    /// How many it has.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.bits.iter().map(|byte| u64::from(byte.count_ones())).sum()
    }
}

/// Which devices hold a volume, as one of them states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    /// The volume's UUID.
    pub set: Uuid,
    /// The member that it lies on.
    pub member: Uuid,
    /// The byte at which that member ends, behind its rosters. `None`: at the end of its device, as
    /// older software has it.
    pub end_bytes: Option<u64>,
    /// Grows with each roster that the set writes.
    pub generation: u64,
    /// The length of the volume. Of mirrored members, each has so many bytes for it.
    pub set_len_bytes: u64,
    /// The bytes of a region, as a power of two.
    pub region_size_log2: u8,
    /// Whether all that was written is durable on all members in sync, so that they are alike.
    pub is_clean: bool,
    /// All members, itself included; [`MAX_MEMBERS`] at most.
    pub members: Vec<Member>,
    /// What members that are not in sync may lack.
    pub stale: Regions,
    /// Where the segments lie if the volume is spread over the members: then a region is a segment,
    /// and there are no stale ones. `None`: each member holds all of it.
    pub extents: Option<Vec<Extent>>,
}

/// Where a device that is a member of a set has its rosters. `None` if it is too short.
#[must_use]
pub fn roster_area(device_len_bytes: u64) -> Option<Range<u64>> {
    let end = device_len_bytes - device_len_bytes % PAGE_SIZE as u64;
    Some(end.checked_sub(ROSTER_AREA_LEN_BYTES)?..end)
}

/// The bytes of a region, as a power of two: 64 KiB to 4 MiB, a thousandth of the device or so, and
/// more on devices that would have too many regions.
#[must_use]
pub fn region_size_log2(set_len_bytes: u64) -> u8 {
    let wanted = (set_len_bytes / 1024).max(1).ilog2().clamp(16, 22);
    let needed = set_len_bytes.div_ceil(Regions::MAX_COUNT).next_power_of_two().ilog2();
    wanted.max(needed) as u8
}

impl Member {
    fn encode(&self) -> MemberV1 {
        let mut path = [0; PATH_LEN_BYTES];
        // A part of a path would name something else.
        let bytes = self.path.as_os_str().as_bytes();
        if bytes.len() <= PATH_LEN_BYTES {
            path[..bytes.len()].copy_from_slice(bytes);
        }
        let (state, copied_to) = match self.state {
            MemberState::InSync => (0, 0),
            MemberState::Missing => (1, 0),
            MemberState::BroughtUp { copied_to_bytes } => (2, copied_to_bytes),
        };
        MemberV1 {
            uuid: self.uuid.0,
            state,
            leaves: u8::from(self.leaves),
            class: if self.is_fast { CLASS_FAST } else { 0 },
            reserved: [0; 5],
            copied_to: copied_to.into(),
            written: self.written_generation.into(),
            since_ns: self.since.0.into(),
            path,
        }
    }

    fn decode(raw: &MemberV1) -> Result<Self> {
        let state = match raw.state {
            0 => MemberState::InSync,
            1 => MemberState::Missing,
            2 => MemberState::BroughtUp { copied_to_bytes: raw.copied_to.get() },
            _ => return Err(Malformed::new("roster", "a member has an unknown state")),
        };
        let len = raw.path.iter().position(|&byte| byte == 0).unwrap_or(PATH_LEN_BYTES);
        Ok(Self {
            uuid: Uuid(raw.uuid),
            state,
            leaves: raw.leaves == 1,
            is_fast: raw.class == CLASS_FAST,
            written_generation: raw.written.get(),
            since: Timestamp(raw.since_ns.get()),
            path: Path::new(OsStr::from_bytes(&raw.path[..len])).to_path_buf(),
        })
    }
}

impl Roster {
    /// The bytes that go into its slot.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut header = RosterV1::new_zeroed();
        header.magic = ROSTER_MAGIC;
        header.version = VERSION.into();
        header.member_count = (self.members.len().min(MAX_MEMBERS) as u16).into();
        header.set = self.set.0;
        header.member = self.member.0;
        header.end = self.end_bytes.unwrap_or(0).into();
        header.generation = self.generation.into();
        header.set_len = self.set_len_bytes.into();
        header.kind = if self.extents.is_some() { KIND_SPREAD } else { KIND_MIRRORED };
        header.extent_count = (self.extents.as_ref().map_or(0, Vec::len) as u16).into();
        header.region_size_log2 = self.region_size_log2;
        header.clean = u8::from(self.is_clean);
        for (slot, member) in header.members.chunks_mut(MEMBER_LEN_BYTES).zip(&self.members) {
            slot.copy_from_slice(member.encode().as_bytes());
        }
        let mut slot = Vec::with_capacity(ROSTER_SLOT_LEN_BYTES);
        slot.extend_from_slice(header.as_bytes());
        match &self.extents {
            Some(extents) => slot.extend_from_slice(&extents::encode(extents, BITS_LEN_BYTES)),
            None => slot.extend_from_slice(&self.stale.bits),
        }
        let crc32c = checksum(&slot[12..]);
        slot[8..12].copy_from_slice(&crc32c.to_le_bytes());
        slot
    }

    /// Reads a slot.
    ///
    /// # Errors
    /// When there is no roster in it, it is damaged, or it is of a version that this code does not
    /// know.
    pub fn decode(slot: &[u8]) -> Result<Self> {
        const WRONG: fn(&'static str) -> Malformed = |problem| Malformed::new("roster", problem);
        if slot.len() != ROSTER_SLOT_LEN_BYTES {
            return Err(WRONG("is not 65536 bytes"));
        }
        let (raw, bits) =
            RosterV1::ref_from_prefix(slot).map_err(|_| WRONG("is not 65536 bytes"))?;
        if raw.magic != ROSTER_MAGIC {
            return Err(WRONG("there is none"));
        }
        if raw.crc32c.get() != checksum(&slot[12..]) {
            return Err(WRONG("its checksum is wrong"));
        }
        let is_spread = raw.kind == KIND_SPREAD;
        if raw.version.get() != VERSION || !is_spread && raw.kind != KIND_MIRRORED {
            return Err(WRONG("it is of a version that this version of dendrofs cannot read"));
        }
        let count = usize::from(raw.member_count.get());
        let all = <[MemberV1]>::ref_from_bytes(&raw.members)
            .map_err(|_| WRONG("its members are wrong"))?;
        let listed = all.get(..count).ok_or(WRONG("it has too many members"))?;
        let members = listed.iter().map(Member::decode).collect::<Result<Vec<_>>>()?;
        let set_len_bytes = raw.set_len.get();
        let region_size_log2 = raw.region_size_log2;
        let extents = match is_spread {
            true => Some(extents::decode(bits, usize::from(raw.extent_count.get()), count)?),
            false => None,
        };
        let is_of_kind = match &extents {
            Some(extents) => {
                (MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2).contains(&region_size_log2)
                    && set_len_bytes == spread_len_bytes(extents, region_size_log2)
            }
            None => {
                (12..=48).contains(&region_size_log2)
                    && set_len_bytes >> region_size_log2 < Regions::MAX_COUNT
            }
        };
        let is_sound = can_be_counted(&[raw.generation.get()])
            && set_len_bytes > 0
            && set_len_bytes.is_multiple_of(PAGE_SIZE as u64)
            && is_of_kind;
        if !is_sound {
            return Err(WRONG("a number in it is out of range"));
        }
        let is_twice = |at: usize| members[..at].iter().any(|it| it.uuid == members[at].uuid);
        let roster = Self {
            set: Uuid(raw.set),
            member: Uuid(raw.member),
            end_bytes: Some(raw.end.get()).filter(|end| *end > 0),
            generation: raw.generation.get(),
            set_len_bytes,
            region_size_log2,
            is_clean: raw.clean == 1,
            stale: if is_spread { Regions::default() } else { Regions { bits: bits.to_vec() } },
            members: members.clone(),
            extents,
        };
        if roster.own().is_none() || (0..count).any(is_twice) {
            return Err(WRONG("its members are wrong"));
        }
        Ok(roster)
    }

    /// The entry of the member that it lies on; every roster that was read has one.
    #[must_use]
    pub fn own(&self) -> Option<&Member> {
        self.find(&self.member)
    }

    /// The entry of a member.
    #[must_use]
    pub fn find(&self, uuid: &Uuid) -> Option<&Member> {
        self.members.iter().find(|member| member.uuid == *uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_suit_the_device() {
        assert_eq!(region_size_log2(64 << 20), 16);
        assert_eq!(region_size_log2(1 << 30), 20);
        assert_eq!(region_size_log2(1 << 38), 22);
        for len in [1, 1 << 20, 1 << 40, (1 << 44) + 4096, 1 << 50] {
            assert!(len >> region_size_log2(len) < Regions::MAX_COUNT, "{len}");
        }
    }

    #[test]
    fn regions_are_added_once_and_none_lies_behind_the_last() {
        let mut regions = Regions::default();
        assert!(regions.insert(9) && !regions.insert(9) && regions.insert(0));
        assert!(regions.has(9) && !regions.has(8) && regions.count() == 2);
        assert!(!Regions::all().has(Regions::MAX_COUNT) && !Regions::all().has(u64::MAX));
        let mut others = Regions::default();
        others.insert(70);
        regions.add(&others);
        assert_eq!(regions.count(), 3);
    }

    #[test]
    fn the_rosters_lie_in_the_last_whole_blocks() {
        assert_eq!(roster_area((1 << 20) + 77), Some((1 << 20) - (128 << 10)..1 << 20));
        assert_eq!(roster_area((128 << 10) - 1), None);
    }
}
