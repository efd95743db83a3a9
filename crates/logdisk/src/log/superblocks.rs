//! The two superblock logs.
//!
//! The newest superblock counts. A superblock that is damaged or cannot be read may have been newer
//! than the newest valid one, so it is always reported ([`Behind`]).

use dendro_base::Uuid;
use dendro_base::sync::Arc;
use dendro_device::{AlignedBuf, Device};
use dendro_disk::Error;
use dendro_format::layout::{MAX_SEGMENT_SIZE_LOG2, MIN_SEGMENT_SIZE_LOG2};
use dendro_format::superblock::{
    COMPATIBLE_ALLOCATED, INCOMPATIBLE_SPREAD, KNOWN_INCOMPATIBLE, KNOWN_READ_ONLY_COMPATIBLE,
    SUPERBLOCK_LEN_BYTES, SuperblockRemains,
};
use dendro_format::{Layout, Superblock};

use super::backups;
use crate::fault::no_space;

/// The superblocks of a volume.
pub(crate) struct Superblocks {
    valid: Vec<Superblock>,
    behind: Vec<Behind>,
    is_backup: bool,
}

/// What lies in the slot of a superblock that would be newer than the newest valid one.
pub(crate) enum Behind {
    /// A damaged superblock of this volume: what can be read of it, and whether it may be an old
    /// one that was left when the logs last began again.
    Damaged { remains: SuperblockRemains, may_be_older: bool },
    /// The device cannot read the slot.
    Unreadable,
    /// Bytes that are no superblock's. A device may leave them where it discarded something; or
    /// superblocks were overwritten.
    Foreign,
}

impl Superblocks {
    /// The valid superblocks, the newest first; there is at least one.
    pub(crate) fn valid(&self) -> &[Superblock] {
        &self.valid
    }

    /// The newest valid superblock.
    pub(crate) fn into_newest(mut self) -> Superblock {
        self.valid.swap_remove(0)
    }

    /// What lies in the slots behind the newest superblock, up to the first slot in which nothing
    /// was written since the logs last began again.
    pub(crate) fn behind(&self) -> &[Behind] {
        &self.behind
    }

    /// The number of the last superblock that was written, as far as is known. Foreign bytes count
    /// only if they replaced a superblock, which a newer one behind them shows.
    pub(crate) fn last_seq(&self) -> u64 {
        let is_newer = |slot: &Behind| match slot {
            Behind::Damaged { may_be_older, .. } => !may_be_older,
            Behind::Unreadable => true,
            Behind::Foreign => false,
        };
        let count = self.behind.iter().rposition(is_newer).map_or(0, |last| last as u64 + 1);
        self.valid[0].seq + count
    }

    /// Whether the newest one is a backup, because the logs have none that is as new.
    pub(crate) const fn is_backup(&self) -> bool {
        self.is_backup
    }

    /// Finds the superblocks of the volume on `device`.
    ///
    /// The first slot of either log states the layout of the volume, and so where all slots are.
    /// While one log begins again, the other holds the newest superblock ([`seq_sparing`]).
    ///
    /// # Errors
    /// [`Error::Corrupted`] when there is none, [`Error::Io`] when none can be read.
    pub(crate) fn find(device: &dyn Device) -> Result<Self, Error> {
        let mut problems = Problems { text: "no superblock was found", io: None };
        let mut valid = find_valid(device, &mut problems);
        let backup = backups::newest(device).filter(|backup| {
            valid.first().is_none_or(|newest| newest.uuid == backup.uuid && newest.seq < backup.seq)
        });
        let is_backup = backup.is_some();
        backup.into_iter().for_each(|backup| valid.insert(0, backup));
        let Some(newest) = valid.first() else {
            return Err(problems.io.map_or_else(
                || {
                    let what = "this is not a dendrofs volume, or its start is damaged";
                    Error::Corrupted(format!("{what}: {}", problems.text))
                },
                |error| Error::Io(format!("reading the superblock: {error}")),
            ));
        };
        check(newest, device)?;
        let behind = find_behind(device, newest);
        Ok(Self { valid, behind, is_backup })
    }
}

/// Checks that this software can read the volume, and that the device is long enough for it.
fn check(newest: &Superblock, device: &dyn Device) -> Result<(), Error> {
    let is_too_short = newest.layout.len_bytes() > device.len_bytes();
    if is_too_short && newest.incompatible & INCOMPATIBLE_SPREAD != 0 {
        return Err(Error::Corrupted(
            "it is no part of the volume that is spread over several devices and that its \
             superblock names: it was removed, or not added to the end; if this is wrong, the list \
             of devices that it should have at its end is missing or damaged"
                .into(),
        ));
    }
    if is_too_short {
        return Err(Error::Corrupted(format!(
            "the volume is {} bytes long, but the device has only {}: it was cut off (\"dendro \
             rebuild\" keeps what is left)",
            newest.layout.len_bytes(),
            device.len_bytes()
        )));
    }
    if newest.incompatible & !KNOWN_INCOMPATIBLE != 0 {
        return Err(Error::Corrupted(format!(
            "the volume uses features that this version of dendrofs does not know ({:#x})",
            newest.incompatible & !KNOWN_INCOMPATIBLE
        )));
    }
    Ok(())
}

/// Whether this version may write to the volume.
pub(crate) const fn is_writable(superblock: &Superblock) -> bool {
    superblock.read_only & !KNOWN_READ_ONLY_COMPATIBLE == 0
}

/// Why no superblock was found.
struct Problems {
    text: &'static str,
    io: Option<dendro_device::Error>,
}

/// The valid superblocks, the newest first.
fn find_valid(device: &dyn Device, problems: &mut Problems) -> Vec<Superblock> {
    let second_log = (MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2).map(|log2| 1_u64 << log2);
    for offset in std::iter::once(0).chain(second_log) {
        if offset + SUPERBLOCK_LEN_BYTES as u64 > device.len_bytes() {
            break;
        }
        match read(device, offset, SUPERBLOCK_LEN_BYTES).map(|slot| Superblock::decode(&slot)) {
            Ok(Ok(first)) => {
                let found = of_layout(device, first.layout, Some(first.uuid));
                if !found.is_empty() {
                    return found;
                }
                break;
            }
            Ok(Err(malformed)) if malformed.problem != "there is none" => {
                problems.text = malformed.problem;
            }
            Ok(Err(_)) => {}
            Err(error) => problems.io = Some(error),
        }
    }
    // A log whose first slot is damaged may still hold newer superblocks, so every layout is tried.
    for log2 in MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2 {
        let count = u32::try_from(device.len_bytes() >> log2).unwrap_or(u32::MAX);
        let Ok(layout) = Layout::new(log2, count) else { continue };
        let found = of_layout(device, layout, None);
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// The valid superblocks of a volume with segments as in `layout`, the newest first.
fn of_layout(device: &dyn Device, layout: Layout, uuid: Option<Uuid>) -> Vec<Superblock> {
    let mut all: Vec<Superblock> = Vec::new();
    for area in [0, 1] {
        for_each_slot(device, layout, area, |offset, slot| {
            all.extend(slot.and_then(|slot| Superblock::decode(slot).ok()).filter(|found| {
                found.layout.segment_size_log2() == layout.segment_size_log2()
                    && found.layout.superblock_offset(found.seq) == offset
                    && uuid.is_none_or(|uuid| found.uuid == uuid)
            }));
        });
    }
    all.sort_by_key(|found| std::cmp::Reverse(found.seq));
    let uuid = all.first().map(|newest| newest.uuid);
    all.retain(|found| Some(found.uuid) == uuid);
    all
}

/// Calls `visit` with the offset of each slot of a log, and with its bytes if they can be read.
fn for_each_slot(
    device: &dyn Device,
    layout: Layout,
    area: u32,
    mut visit: impl FnMut(u64, Option<&[u8]>),
) {
    let range = layout.superblock_area(area);
    if range.end > device.len_bytes() {
        return;
    }
    let offsets = range.clone().step_by(SUPERBLOCK_LEN_BYTES);
    match read(device, range.start, (range.end - range.start) as usize) {
        Ok(bytes) => {
            for (offset, slot) in offsets.zip(bytes.chunks_exact(SUPERBLOCK_LEN_BYTES)) {
                visit(offset, Some(slot));
            }
        }
        // A slot that cannot be read must not make the other slots unreadable.
        Err(_) => {
            for offset in offsets {
                visit(offset, read(device, offset, SUPERBLOCK_LEN_BYTES).ok().as_deref());
            }
        }
    }
}

/// See [`Superblocks::behind`].
fn find_behind(device: &dyn Device, newest: &Superblock) -> Vec<Behind> {
    let slot_count = 2 * newest.layout.superblock_slot_count();
    let mut behind = Vec::new();
    // A write that failed may have left its slot empty, and the next one not (`append`).
    let mut empty_count = 0;
    for seq in (newest.seq + 1..).take(slot_count as usize - 1) {
        let offset = newest.layout.superblock_offset(seq);
        let slot = read(device, offset, SUPERBLOCK_LEN_BYTES);
        if slot.as_ref().is_ok_and(|slot| slot.iter().all(|&byte| byte == 0)) {
            empty_count += 1;
            if empty_count == SLOT_TRIES {
                break;
            }
            continue;
        }
        let Ok(slot) = slot else {
            behind.extend((0..std::mem::take(&mut empty_count)).map(|_| Behind::Foreign));
            behind.push(Behind::Unreadable);
            continue;
        };
        let is_from_before =
            |seq| seq < newest.seq && newest.layout.superblock_offset(seq) == offset;
        if Superblock::decode(&slot).is_ok_and(|older| is_from_before(older.seq)) {
            break;
        }
        behind.extend((0..std::mem::take(&mut empty_count)).map(|_| Behind::Foreign));
        match SuperblockRemains::find(&slot, &newest.uuid) {
            Some(remains) => {
                behind.push(Behind::Damaged { remains, may_be_older: is_from_before(remains.seq) });
            }
            None => behind.push(Behind::Foreign),
        }
    }
    behind
}

fn read(
    device: &dyn Device,
    offset: u64,
    len_bytes: usize,
) -> Result<AlignedBuf, dendro_device::Error> {
    let mut bytes = AlignedBuf::zeroed(len_bytes);
    device.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// The number from which superblocks continue after number `last`, so that the next one destroys
/// none of those `in_use`. They are needed until the next one is durable, and a log that begins
/// again loses all that it has. After many bad slots the next number may lie there.
pub(crate) fn seq_sparing(layout: Layout, last: u64, in_use: &[u64]) -> u64 {
    let slot_count = layout.superblock_slot_count();
    let log_of = |seq: u64| seq / slot_count % 2;
    let destroys = |next: u64, seq: u64| {
        log_of(next) == log_of(seq)
            && (next.is_multiple_of(slot_count) || next % slot_count == seq % slot_count)
    };
    let mut seq = last;
    while in_use.iter().any(|&used| destroys(seq.wrapping_add(1), used)) {
        seq = seq.wrapping_add(1);
    }
    seq
}

/// Makes the device allocate the place of the next superblock. The zeros there are no superblock.
///
/// # Errors
/// [`Error::NoSpace`] when the file system that holds the image is full.
pub(crate) fn allocate_next(device: &Arc<dyn Device>, newest: &Superblock) -> Result<(), Error> {
    let offset = newest.layout.superblock_offset(newest.seq.wrapping_add(1));
    let zeros = AlignedBuf::zeroed(SUPERBLOCK_LEN_BYTES);
    match device.write_at(offset, &zeros) {
        Err(error) if error.is_no_space() => Err(failed(error)),
        // A slot that cannot be written is passed over later.
        _ => Ok(()),
    }
}

/// Why a superblock could not be appended.
fn failed(error: dendro_device::Error) -> Error {
    no_space(&error, SUPERBLOCK_LEN_BYTES as u64)
        .unwrap_or_else(|| Error::Failed(format!("writing the superblock: {error}")))
}

/// How many slots are tried for a superblock.
const SLOT_TRIES: u32 = 3;

/// Appends a superblock, which gets to state where the members of a set end; it is durable after a
/// flush. A slot that cannot be written is passed over: the superblock gets a higher number, so
/// that whatever was left in that slot does not count.
///
/// # Errors
/// [`Error::NoSpace`] when the file system that holds the image is full: the same superblock may be
/// appended again. [`Error::Failed`] when the device fails.
pub(crate) fn append(device: &Arc<dyn Device>, superblock: &mut Superblock) -> Result<(), Error> {
    superblock.member_ends = device.member_ends();
    for _ in 1..SLOT_TRIES {
        match write(device, superblock) {
            Err(error) if !error.is_no_space() => {
                superblock.seq = superblock.seq.wrapping_add(1);
            }
            written => return written.map_err(failed),
        }
    }
    write(device, superblock).map_err(failed)
}

/// Writes a superblock to its slot.
fn write(device: &Arc<dyn Device>, superblock: &Superblock) -> dendro_device::Result<()> {
    let offset = superblock.layout.superblock_offset(superblock.seq);
    for area in [0, 1] {
        let range = superblock.layout.superblock_area(area);
        if offset == range.start && superblock.compatible & COMPATIBLE_ALLOCATED == 0 {
            // The log begins again, and the other log holds the newest superblock. A device that
            // does not discard keeps old superblocks, which have lower numbers than new ones.
            let _ = device.discard(range.start, range.end - range.start);
        }
    }
    let slot = superblock.encode();
    let mut aligned = AlignedBuf::zeroed(SUPERBLOCK_LEN_BYTES);
    aligned.copy_from_slice(slot.as_slot());
    device.write_at(offset, &aligned)
}
