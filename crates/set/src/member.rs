//! A member, and the rosters on it.

use std::path::PathBuf;

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dendro_base::{Timestamp, Uuid};
use dendro_device::{AlignedBuf, Device, Result};
use dendro_format::layout::{MAX_SEGMENT_SIZE_LOG2, MIN_SEGMENT_SIZE_LOG2};
use dendro_format::roster::{
    Member, MemberState, ROSTER_SLOT_COUNT, ROSTER_SLOT_LEN_BYTES, Roster, roster_area,
};
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use dendro_format::{Superblock, layout};

/// Slots of the first superblock log that are looked at, should the first one be damaged.
const FIRST_SLOTS: u64 = 8;

/// The bytes of a superblock log that are read at a time.
const LOG_PIECE_LEN_BYTES: usize = 64 << 10;

/// A member of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Its identity.
    pub uuid: Uuid,
    /// Where it is, or was found last; empty if that is not known.
    pub path: PathBuf,
    /// What it has.
    pub state: MemberState,
    /// Whether the device is there.
    pub is_present: bool,
    /// Whether it leaves the set when all members that are brought up are in sync.
    pub leaves: bool,
    /// Whether it is one of the fast members of a spread volume.
    pub is_fast: bool,
    /// When its state became what it is.
    pub since: Timestamp,
    /// The length of the device; 0 if it is not there.
    pub len_bytes: u64,
    /// The bytes of the device that it takes; 0 if it is not there.
    pub end_bytes: u64,
    /// Reads that failed or returned wrong bytes, and were answered by another member.
    pub failed_reads: u64,
    /// The bytes of the volume that it holds, or is to hold when it is in sync. Of a member of a
    /// spread volume, the superblocks, which all hold, are not counted.
    pub held_bytes: u64,
}

/// A member of an open set.
pub(crate) struct Slot<D> {
    pub(crate) uuid: Uuid,
    pub(crate) device: Option<Arc<D>>,
    pub(crate) state: MemberState,
    pub(crate) leaves: bool,
    pub(crate) is_fast: bool,
    pub(crate) written_generation: u64,
    pub(crate) since: Timestamp,
    pub(crate) path: PathBuf,
    /// Where it ends: behind its rosters. The device may be longer.
    pub(crate) end_bytes: u64,
    /// Where it is about to end.
    pub(crate) next_end_bytes: Option<u64>,
    /// Which of its slots has the newest roster.
    pub(crate) roster_slot: usize,
    /// How far it has been brought up; what was copied need not be durable.
    pub(crate) cursor_bytes: AtomicU64,
    pub(crate) failed_reads: AtomicU64,
    /// Whether it has writes that no flush has made durable; of members of a spread volume alone.
    pub(crate) is_dirty: AtomicBool,
}

impl<D: Device> Slot<D> {
    pub(crate) fn new(uuid: Uuid, path: PathBuf, device: D, state: MemberState) -> Self {
        Self {
            uuid,
            end_bytes: device.len_bytes(),
            next_end_bytes: None,
            device: Some(Arc::new(device)),
            state,
            leaves: false,
            is_fast: false,
            written_generation: 0,
            since: Timestamp::default(),
            path,
            roster_slot: 0,
            cursor_bytes: AtomicU64::new(0),
            failed_reads: AtomicU64::new(0),
            is_dirty: AtomicBool::new(false),
        }
    }

    /// The device, if it has everything.
    pub(crate) fn in_sync(&self) -> Option<&Arc<D>> {
        self.device.as_ref().filter(|_| self.state == MemberState::InSync)
    }

    /// The device, if it gets what is written.
    pub(crate) fn written(&self) -> Option<&Arc<D>> {
        self.device.as_ref().filter(|_| self.state != MemberState::Missing)
    }

    /// Its name in messages.
    pub(crate) fn name(&self) -> String {
        name(&self.path, &self.uuid)
    }

    /// Its entry in a roster of this generation.
    pub(crate) fn entry(&self, generation: u64) -> Member {
        let is_written = self.written().is_some();
        Member {
            uuid: self.uuid,
            state: self.state,
            leaves: self.leaves,
            is_fast: self.is_fast,
            written_generation: if is_written { generation } else { self.written_generation },
            since: self.since,
            path: self.path.clone(),
        }
    }

    pub(crate) fn info(&self) -> MemberInfo {
        let state = match self.state {
            MemberState::BroughtUp { .. } => MemberState::BroughtUp {
                copied_to_bytes: self.cursor_bytes.load(Ordering::Relaxed),
            },
            state => state,
        };
        MemberInfo {
            uuid: self.uuid,
            path: self.path.clone(),
            state,
            is_present: self.device.is_some(),
            leaves: self.leaves,
            is_fast: self.is_fast,
            since: self.since,
            len_bytes: self.device.as_ref().map_or(0, |device| device.len_bytes()),
            end_bytes: self.device.as_ref().map_or(0, |_| self.end_bytes),
            failed_reads: self.failed_reads.load(Ordering::Relaxed),
            held_bytes: 0,
        }
    }
}

/// The name of a member in messages.
pub(crate) fn name(path: &std::path::Path, uuid: &Uuid) -> String {
    match path.as_os_str().is_empty() {
        true => format!("device {uuid}"),
        false => path.display().to_string(),
    }
}

/// The newest roster on a device, its slot, and where the member ends that it states: at the end of
/// the device, or before that if the device has become longer by other means. Then superblocks
/// state where. The longest counts: what lies before a member's rosters is the volume's.
pub(crate) fn read_roster(device: &impl Device) -> Option<(Roster, usize, u64)> {
    let len_bytes = device.len_bytes();
    let at = |end| Some((read_roster_before(device, end)?, end));
    let (found, end) = match at(len_bytes)? {
        (None, _) => {
            let mut ends = newest_superblock(device)?.member_ends;
            ends.retain(|end| *end < len_bytes);
            ends.sort_unstable();
            let is_one = |found: &Option<(Option<_>, u64)>| !matches!(found, Some((None, _)));
            ends.into_iter().rev().map(at).find(is_one)??
        }
        found => found,
    };
    found.map(|(roster, slot)| (roster, slot, end))
}

/// The newest roster before an end, if there is one. `None` if a slot cannot be read: that one may
/// be the newest, and an older one does not know all regions that are stale.
fn read_roster_before(device: &impl Device, end_bytes: u64) -> Option<Option<(Roster, usize)>> {
    let area = roster_area(end_bytes)?;
    let mut bytes = AlignedBuf::zeroed(ROSTER_SLOT_LEN_BYTES);
    let mut newest: Option<(Roster, usize)> = None;
    for slot in 0..ROSTER_SLOT_COUNT {
        let offset = area.start + (slot * ROSTER_SLOT_LEN_BYTES) as u64;
        let read = device.read_at(offset, &mut bytes);
        read.or_else(|_| device.read_at(offset, &mut bytes)).ok()?;
        let Ok(roster) = Roster::decode(&bytes) else { continue };
        // One that ends elsewhere may have a slot in the place of one that would end here.
        if roster.end_bytes.unwrap_or(device.len_bytes()) != end_bytes {
            continue;
        }
        if newest.as_ref().is_none_or(|(newest, _)| newest.generation < roster.generation) {
            newest = Some((roster, slot));
        }
    }
    Some(newest)
}

/// Writes a roster into a slot of a member that ends at this byte, durably.
pub(crate) fn write_roster(
    device: &impl Device,
    end_bytes: u64,
    roster: &Roster,
    slot: usize,
) -> Result<()> {
    let bytes = roster.encode();
    write_slot(device, end_bytes, slot, &bytes)?;
    device.flush()
}

/// Erases the rosters of a member that ends at this byte.
pub(crate) fn erase_rosters(device: &impl Device, end_bytes: u64) -> Result<()> {
    for slot in 0..ROSTER_SLOT_COUNT {
        write_slot(device, end_bytes, slot, &[])?;
    }
    device.flush()
}

fn write_slot(device: &impl Device, end_bytes: u64, slot: usize, bytes: &[u8]) -> Result<()> {
    let area = roster_area(end_bytes).ok_or(dendro_device::Error::OutOfRange {
        offset: 0,
        len_bytes: ROSTER_SLOT_LEN_BYTES as u64,
        device_len_bytes: end_bytes,
    })?;
    let mut buf = AlignedBuf::zeroed(ROSTER_SLOT_LEN_BYTES);
    buf[..bytes.len()].copy_from_slice(bytes);
    device.write_at(area.start + (slot * ROSTER_SLOT_LEN_BYTES) as u64, &buf)
}

/// The places of the superblocks by which a volume is known.
fn known_by() -> impl Iterator<Item = u64> {
    let second_log = (MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2).map(|log2| 1 << log2);
    (0..FIRST_SLOTS).map(|slot| slot * SUPERBLOCK_LEN_BYTES as u64).chain(second_log)
}

/// One of the first superblocks in the logs on a device.
fn first_superblock(device: &impl Device) -> Option<Superblock> {
    let mut slot = AlignedBuf::zeroed(SUPERBLOCK_LEN_BYTES);
    known_by().find_map(|offset| {
        device.read_at(offset, &mut slot).ok()?;
        let found = Superblock::decode(&slot).ok()?;
        (found.layout.superblock_offset(found.seq) == offset).then_some(found)
    })
}

/// The volume that lies on a device, by one of the first superblocks in its logs.
pub(crate) fn volume_on(device: &impl Device) -> Option<Uuid> {
    first_superblock(device).map(|found| found.uuid)
}

/// The newest superblock in the logs on a device.
pub(crate) fn newest_superblock(device: &impl Device) -> Option<Superblock> {
    let first = first_superblock(device)?;
    let mut newest = first.clone();
    let mut bytes = AlignedBuf::zeroed(LOG_PIECE_LEN_BYTES);
    let pieces = [0, 1]
        .into_iter()
        .flat_map(|log| first.layout.superblock_area(log).step_by(LOG_PIECE_LEN_BYTES));
    for piece in pieces {
        if device.read_at(piece, &mut bytes).is_err() {
            continue;
        }
        let offsets = (piece..).step_by(SUPERBLOCK_LEN_BYTES);
        for (slot, offset) in bytes.chunks(SUPERBLOCK_LEN_BYTES).zip(offsets) {
            let Ok(found) = Superblock::decode(slot) else { continue };
            let is_in_place = found.layout.superblock_offset(found.seq) == offset;
            if found.uuid == first.uuid && is_in_place && found.seq > newest.seq {
                newest = found;
            }
        }
    }
    Some(newest)
}

/// Copies what a volume is known by, to a device of which all is stale.
pub(crate) fn make_known(from: &impl Device, to: &impl Device, set_len_bytes: u64) -> Result<()> {
    let mut slot = AlignedBuf::zeroed(SUPERBLOCK_LEN_BYTES);
    let is_on_it = |offset: &u64| offset + SUPERBLOCK_LEN_BYTES as u64 <= set_len_bytes;
    for offset in known_by().filter(is_on_it) {
        from.read_at(offset, &mut slot)?;
        to.write_at(offset, &slot)?;
    }
    to.flush()
}

/// Where a mirrored member ends that was found to end at `end_bytes`: there, if it holds a volume
/// of this length; otherwise at the end of its device, as the volume became longer when it had no
/// roster there yet. `None`: the device is too short.
pub(crate) fn mirrored_end(
    device: &impl Device,
    end_bytes: u64,
    set_len_bytes: u64,
) -> Option<u64> {
    let holds_it = |end: &u64| usable_len(*end).is_some_and(|len| len >= set_len_bytes);
    [end_bytes, device.len_bytes()].into_iter().find(holds_it)
}

/// How long the part of a device is that can hold a volume, if it is a member of a set. `None`: it
/// is too short for any.
pub(crate) fn usable_len(device_len_bytes: u64) -> Option<u64> {
    let start = roster_area(device_len_bytes)?.start;
    (layout::backup_area(start).is_some()).then_some(start)
}
