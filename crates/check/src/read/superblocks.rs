//! Finding a volume: its superblocks.

use dendro_device::{AlignedBuf, Device};
use dendro_format::layout::{MAX_SEGMENT_SIZE_LOG2, MIN_SEGMENT_SIZE_LOG2, backup_area};
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use dendro_format::{Malformed, Superblock};

use crate::error::{Error, Result};

/// Superblocks in the longest log of them.
const MAX_SLOT_COUNT: u64 = 256;

/// A superblock and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSuperblock {
    /// Its slot, in bytes from the start of the device.
    pub offset: u64,
    /// The superblock.
    pub superblock: Superblock,
}

/// All valid superblocks of a volume, at least one, by ascending sequence number.
#[derive(Clone, Debug)]
pub struct Superblocks(Vec<FoundSuperblock>);

impl Superblocks {
    /// A single one, which does not lie anywhere.
    pub(super) fn only(superblock: Superblock) -> Self {
        Self(vec![FoundSuperblock { offset: 0, superblock }])
    }

    /// The newest, which is the one in force.
    #[must_use]
    pub fn current(&self) -> &FoundSuperblock {
        self.0.last().expect("there is at least one")
    }

    /// Whether the newest is a backup, because the superblock logs have none that is as new.
    #[must_use]
    pub fn is_backup(&self) -> bool {
        let FoundSuperblock { offset, superblock } = self.current();
        *offset >= superblock.layout.len_bytes()
    }

    /// All of them, oldest first.
    #[must_use]
    pub fn all(&self) -> &[FoundSuperblock] {
        &self.0
    }
}

/// Finds the volume on a device whose segment size is not known. It looks at slot 0 of the first
/// superblock log and, in case that log is being written again, at slot 0 of the second one, at
/// each place where that may start. If both are damaged, it looks at the other slots. Then it reads
/// both logs. A backup at the end of the device counts if it is newer than all these.
///
/// # Errors
/// [`Error::NoVolume`] when there is no valid superblock. A part of the device that cannot be read
/// counts as one that holds none.
pub fn find_superblocks(device: &dyn Device) -> Result<Superblocks> {
    let mut problem = Malformed { structure: "superblock", problem: "there is none" };
    let backup = backup(device);
    let found = first(device, 0..1, &mut problem)
        .or_else(|| first(device, 1..MAX_SLOT_COUNT, &mut problem))
        .or_else(|| backup.clone())
        .ok_or(Error::NoVolume(problem))?;
    let layout = found.superblock.layout;
    let mut all = Vec::new();
    for area in [layout.superblock_area(0), layout.superblock_area(1)] {
        for_each_slot(device, area.start, 0..layout.superblock_slot_count(), |offset, slot| {
            all.extend(slot_at(offset, slot).ok().filter(|other| {
                let (other, found) = (&other.superblock, &found.superblock);
                other.uuid == found.uuid
                    && other.layout.segment_size_log2() == layout.segment_size_log2()
            }));
            false
        });
    }
    all.sort_by_key(|found| found.superblock.seq);
    all.extend(backup.filter(|backup| {
        backup.superblock.uuid == found.superblock.uuid
            && all.last().is_none_or(|newest| newest.superblock.seq < backup.superblock.seq)
    }));
    if all.is_empty() {
        // Read again, the device has returned something else.
        all.push(found);
    }
    Ok(Superblocks(all))
}

/// The newest backup at the end of the device.
fn backup(device: &dyn Device) -> Option<FoundSuperblock> {
    let area = backup_area(device.len_bytes())?;
    let slot_count = (area.end - area.start) / SUPERBLOCK_LEN_BYTES as u64;
    let mut newest: Option<FoundSuperblock> = None;
    for_each_slot(device, area.start, 0..slot_count, |offset, slot| {
        let found = Superblock::decode(slot).ok().filter(|found| {
            found.backup_area(device.len_bytes()).is_some()
                && newest.as_ref().is_none_or(|newest| newest.superblock.seq < found.seq)
        });
        newest = found.map(|superblock| FoundSuperblock { offset, superblock }).or(newest.take());
        false
    });
    newest
}

/// The first superblock in the given slots of a log, at each place where a log may start. The
/// places before the true start of the second log lie in segment 0, which holds no users' data. So
/// an image of another volume, in a file, is not mistaken for the volume.
fn first(
    device: &dyn Device,
    slots: std::ops::Range<u64>,
    problem: &mut Malformed,
) -> Option<FoundSuperblock> {
    let second_log = (MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2).map(|log2| 1_u64 << log2);
    for start in std::iter::once(0).chain(second_log) {
        let mut found = None;
        for_each_slot(device, start, slots.clone(), |offset, slot| {
            match slot_at(offset, slot) {
                Ok(superblock) => found = Some(superblock),
                // A damaged superblock is a better explanation than none.
                Err(worse) if worse.problem != "there is none" => *problem = worse,
                Err(_) => (),
            }
            found.is_some()
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The superblock in a slot, if it belongs there.
fn slot_at(offset: u64, slot: &[u8]) -> std::result::Result<FoundSuperblock, Malformed> {
    let superblock = Superblock::decode(slot)?;
    if superblock.layout.superblock_offset(superblock.seq) != offset {
        return Err(Malformed { structure: "superblock", problem: "it lies in another's slot" });
    }
    Ok(FoundSuperblock { offset, superblock })
}

/// Calls `visit` with each slot that can be read, until it returns true.
fn for_each_slot(
    device: &dyn Device,
    start: u64,
    slots: std::ops::Range<u64>,
    mut visit: impl FnMut(u64, &[u8]) -> bool,
) {
    let len = SUPERBLOCK_LEN_BYTES as u64;
    let (from, to) = (start + slots.start * len, start + slots.end * len);
    let to = to.min(device.len_bytes() / len * len);
    if from >= to {
        return;
    }
    let mut buf = AlignedBuf::zeroed((to - from) as usize);
    let whole = device.read_at(from, &mut buf).is_ok();
    for (offset, slot) in (from..to).step_by(SUPERBLOCK_LEN_BYTES).zip(buf.chunks_mut(len as usize))
    {
        if (whole || device.read_at(offset, slot).is_ok()) && visit(offset, slot) {
            return;
        }
    }
}
