//! Where recovery starts: the newest superblock and its checkpoint.
//!
//! An older checkpoint is never used without a report. A damaged superblock mostly still names its
//! checkpoint, which was durable before the superblock was written (recovery 3). Such a checkpoint
//! is as good as one that a sound superblock names. Otherwise the log must show that the older
//! checkpoint leads to the same state ([`Doubt`]).

use dendro_base::Uuid;
use dendro_base::units::PAGE_SIZE;
use dendro_device::{AlignedBuf, Device};
use dendro_disk::{Error, Result};
use dendro_format::checkpoint::HeadPosition;
use dendro_format::record::Records;
use dendro_format::superblock::{KNOWN_INCOMPATIBLE, SuperblockRemains};
use dendro_format::{Addr, Checkpoint, Head, Layout, Record, Superblock, checksum};

use super::reader::SegmentReader;
use crate::log::redirection::{VolumeDevice, redirect};
use crate::log::superblocks::{Behind, Superblocks, seq_sparing};

/// The superblock and the checkpoint that recovery starts from.
pub(super) struct Start {
    /// Its number is that of the last superblock that was written, as far as is known, or a higher
    /// one where the next would destroy a superblock that is needed. It names the checkpoint that
    /// is used.
    pub(super) superblock: Superblock,
    pub(super) checkpoint: Checkpoint,
    pub(super) doubt: Option<Doubt>,
    /// Newer superblocks may have been overwritten by something else: the log tells.
    pub(super) may_be_old: bool,
    /// Whether a damaged superblock names the checkpoint. Until a valid superblock names it,
    /// nothing may be given up that the checkpoint of the last valid one needs (recovery 3).
    pub(super) is_adopted: bool,
    /// Notes that users should see.
    pub(super) notes: Vec<String>,
}

/// States that there was a newer checkpoint, or that there may have been.
pub(super) struct Doubt {
    /// Why it is not used.
    pub(super) why: String,
    /// Where the log continued behind it.
    pub(super) position: Option<LogPosition>,
    /// Whether it, and so the log before it, is known to have been durable.
    pub(super) was_durable: bool,
}

/// A place in the main log: between the partial segment with this checksum and the one with this
/// number. After a crash the two numbers do not follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogPosition {
    pub(super) seq: u64,
    pub(super) prev_crc32c: u32,
}

impl LogPosition {
    pub(super) const fn of(checkpoint: &Checkpoint) -> Self {
        Self { seq: checkpoint.log_seq, prev_crc32c: checkpoint.log_prev_crc32c }
    }
}

impl Start {
    /// Finds the start on a device, and redirects what lies in spare segments.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when there is no volume or no checkpoint that can be used;
    /// [`Error::Io`] when they cannot be read.
    pub(super) fn find(device: &VolumeDevice) -> Result<Self> {
        let found = Superblocks::find(device)?;
        let newest = found.valid()[0].clone();
        redirect(device, &newest)?;
        match read_checkpoint(device, &newest) {
            Ok(checkpoint) => {
                let start = Self {
                    superblock: newest,
                    checkpoint,
                    doubt: None,
                    may_be_old: false,
                    is_adopted: false,
                    notes: Vec::new(),
                };
                let start = start.looking_at(device, found.behind());
                let is_only = found.valid().len() == 1;
                Ok(if found.is_backup() { start.of_backup(device, is_only) } else { start })
            }
            Err(error) => Self::from_older(device, &found, error).map_err(|error| {
                if found.is_backup() { explain_backup(&newest, &error) } else { error }
            }),
        }
    }

    /// Takes into account what lies in the slots behind the newest valid superblock.
    fn looking_at(mut self, device: &dyn Device, behind: &[Behind]) -> Self {
        let Superblock { layout, seq: newest_seq, clean: was_clean, .. } = self.superblock;
        let mut unresolved = 0_u32;
        // Slots with foreign bytes that no other slot follows; new superblocks overwrite them.
        let mut foreign = 0_u32;
        for slot in behind {
            let seq = self.superblock.seq.wrapping_add(1 + u64::from(foreign));
            match slot {
                Behind::Foreign => {
                    foreign += 1;
                    self.may_be_old = true;
                    continue;
                }
                Behind::Damaged { remains, may_be_older } => {
                    if self.adopt(device, remains, seq) {
                        unresolved = 0;
                        self.may_be_old = false;
                    } else if *may_be_older {
                        break;
                    } else {
                        unresolved += 1;
                        self.notes.push(format!("superblock {seq} is damaged"));
                    }
                }
                Behind::Unreadable => {
                    unresolved += 1;
                    self.notes.push(format!("superblock {seq} cannot be read"));
                }
            }
            // The next superblock that is written does not overwrite the bad slot.
            self.superblock.seq = seq;
            self.superblock.clean = false;
            foreign = 0;
        }
        self.superblock.seq = seq_sparing(layout, self.superblock.seq, &[newest_seq]);
        // The superblock behind a clean shutdown states only that the volume is in use.
        let says_only_in_use = was_clean && unresolved == 1 && behind.len() == 1;
        if unresolved > 0 && !says_only_in_use {
            self.doubt =
                newest_checkpoint(device, &self.superblock, &self.checkpoint).map(|newer| Doubt {
                    why: format!(
                        "the newest superblock is damaged, and so checkpoint {} is not known to be \
                         whole; the one before it is {}",
                        newer.seq, self.checkpoint.seq
                    ),
                    position: Some(LogPosition::of(&newer)),
                    was_durable: false,
                });
        }
        self
    }

    /// Takes into account that the superblock is a backup: newer ones may be lost. If it `is_only`
    /// one, the device may have been given to something else, so nothing is written before the
    /// owner says so.
    fn of_backup(mut self, device: &dyn Device, is_only: bool) -> Self {
        let what = describe_backup(&self.superblock);
        let Superblock { layout, seq, .. } = self.superblock;
        self.superblock.seq = layout.superblock_seq_anew(seq) - 1;
        self.superblock.clean = false;
        if self.doubt.is_some() {
            self.notes.push(what);
            return self;
        }
        self.may_be_old = true;
        let newer = newest_checkpoint(device, &self.superblock, &self.checkpoint);
        let named = self.checkpoint.seq;
        self.doubt = match newer {
            Some(newer) => Some(Doubt {
                why: format!(
                    "{what}; checkpoint {} is not known to be whole; the one before it is {named}",
                    newer.seq
                ),
                position: Some(LogPosition::of(&newer)),
                was_durable: false,
            }),
            None if is_only => Some(Doubt {
                why: format!("{what}; it names checkpoint {named}"),
                position: Some(LogPosition::of(&self.checkpoint)),
                was_durable: false,
            }),
            None => {
                self.notes.push(what);
                None
            }
        };
        self
    }

    /// Uses the checkpoint that a damaged superblock names, if that is sound and not older
    /// (recovery 3).
    fn adopt(&mut self, device: &dyn Device, remains: &SuperblockRemains, seq: u64) -> bool {
        let Superblock { layout, uuid, .. } = self.superblock;
        let place = (remains.checkpoint_addr, remains.checkpoint_len_bytes);
        let Ok((found, crc32c)) = read_checkpoint_at(device, layout, &uuid, place) else {
            return false;
        };
        let ours = &self.checkpoint;
        if found.seq < ours.seq || found.log_seq < ours.log_seq {
            return false;
        }
        self.notes.push(format!(
            "superblock {seq} is damaged; checkpoint {}, which it names, is whole and was taken",
            found.seq
        ));
        self.superblock.incompatible |= remains.incompatible & KNOWN_INCOMPATIBLE;
        self.superblock.checkpoint_addr = remains.checkpoint_addr;
        self.superblock.checkpoint_len_bytes = remains.checkpoint_len_bytes;
        self.superblock.checkpoint_crc32c = crc32c;
        self.superblock.checkpoint_mirror = found.mirror_of(layout, remains.checkpoint_addr);
        self.checkpoint = found;
        self.is_adopted = true;
        true
    }

    /// Starts from the newest usable checkpoint before that of the newest superblock, which cannot
    /// be used.
    fn from_older(device: &dyn Device, found: &Superblocks, error: Error) -> Result<Self> {
        let newest = &found.valid()[0];
        let others = found.valid().iter().filter(|it| it.checkpoint_addr != newest.checkpoint_addr);
        let usable = others.into_iter().find_map(|older| {
            // The volume may have become shorter since.
            let now = Superblock { layout: newest.layout, ..older.clone() };
            let checkpoint = read_checkpoint(device, &now).ok()?;
            Some((older, checkpoint))
        });
        let Some((older, checkpoint)) = usable else { return Err(error) };
        let why = format!("{error}; the newest before it that can be used is {}", checkpoint.seq);
        let position = left_of_position(device, newest);
        let superblock = Superblock {
            // The newest one is needed too: it shows that there was a newer checkpoint.
            seq: seq_sparing(newest.layout, found.last_seq(), &[newest.seq, older.seq]),
            clean: false,
            checkpoint_addr: older.checkpoint_addr,
            checkpoint_len_bytes: older.checkpoint_len_bytes,
            checkpoint_crc32c: older.checkpoint_crc32c,
            checkpoint_mirror: older.checkpoint_mirror,
            ..newest.clone()
        };
        let doubt = Some(Doubt { why, position, was_durable: true });
        Ok(Self {
            superblock,
            checkpoint,
            doubt,
            may_be_old: false,
            is_adopted: false,
            notes: Vec::new(),
        })
    }
}

/// Says which backup is used, and why.
fn describe_backup(backup: &Superblock) -> String {
    format!(
        "superblocks at the device's beginning are lost (\"dendro rebuild\" makes them anew); the \
         backup at its end, superblock {}, was written at {}",
        backup.seq,
        backup.written.utc()
    )
}

/// The error if the checkpoint that a backup names cannot be used.
fn explain_backup(backup: &Superblock, error: &Error) -> Error {
    Error::Corrupted(format!("{}; {error}", describe_backup(backup)))
}

/// The log position in the remains of the checkpoint that a superblock names.
fn left_of_position(device: &dyn Device, superblock: &Superblock) -> Option<LogPosition> {
    let len = superblock.checkpoint_len_bytes;
    if !superblock.layout.holds(superblock.checkpoint_addr, u64::from(len)) {
        return None;
    }
    let mut bytes = vec![0; len as usize];
    device.read_at(superblock.checkpoint_addr.bytes(), &mut bytes).ok()?;
    let (seq, prev_crc32c) = Checkpoint::log_position_in(&bytes)?;
    Some(LogPosition { seq, prev_crc32c })
}

/// Finds the newest checkpoint that is newer than `known`, in all segments of the map stream.
fn newest_checkpoint(
    device: &dyn Device,
    superblock: &Superblock,
    known: &Checkpoint,
) -> Option<Checkpoint> {
    let Superblock { layout, uuid, .. } = *superblock;
    let mut reader = SegmentReader::new(device, layout, uuid);
    let mut block = AlignedBuf::zeroed(PAGE_SIZE);
    let mut newest: Option<Checkpoint> = None;
    for segment in layout.log_segments() {
        let first = reader.first_header(segment, &mut block);
        if first.is_none_or(|header| header.head != Head::Map) {
            continue;
        }
        reader.load(segment);
        for (header, _, records) in reader.partials(segment, 0) {
            if header.head != Head::Map {
                continue;
            }
            for record in Records::new(records).flatten() {
                let Record::Checkpoint { addr, len_bytes, .. } = record else { continue };
                let place = (addr, len_bytes);
                let Ok((found, _)) = read_checkpoint_at(device, layout, &uuid, place) else {
                    continue;
                };
                let than = newest.as_ref().unwrap_or(known);
                // After a crash the log continues with a much higher number (recovery 4), so a
                // checkpoint that the crash left behind has a lower number than `known`.
                if found.seq > than.seq && found.log_seq >= known.log_seq {
                    newest = Some(found);
                }
            }
        }
    }
    newest
}

/// Reads the checkpoint that a superblock names.
fn read_checkpoint(device: &dyn Device, superblock: &Superblock) -> Result<Checkpoint> {
    let read = |addr| {
        let place = (addr, superblock.checkpoint_len_bytes);
        let (checkpoint, crc32c) =
            read_checkpoint_at(device, superblock.layout, &superblock.uuid, place)?;
        if crc32c != superblock.checkpoint_crc32c {
            return Err(damaged(addr, "its checksum is wrong"));
        }
        Ok(checkpoint)
    };
    let len_bytes = u64::from(superblock.checkpoint_len_bytes);
    read(superblock.checkpoint_addr).or_else(|error| {
        // The segment of the first copy stays in use.
        let is_place = superblock.layout.holds(superblock.checkpoint_addr, len_bytes);
        let mirror = superblock.checkpoint_mirror.filter(|_| is_place);
        mirror.and_then(|mirror| read(mirror).ok()).ok_or(error)
    })
}

fn damaged(addr: Addr, problem: &str) -> Error {
    Error::Corrupted(format!("the checkpoint at {addr} of the device: {problem}"))
}

/// Reads the checkpoint at a place. Returns it with the checksum of its bytes.
fn read_checkpoint_at(
    device: &dyn Device,
    layout: Layout,
    uuid: &Uuid,
    (addr, len_bytes): (Addr, u32),
) -> Result<(Checkpoint, u32)> {
    if !layout.holds(addr, u64::from(len_bytes)) {
        return Err(damaged(addr, "it is not on the device"));
    }
    let mut bytes = vec![0; len_bytes as usize];
    device
        .read_at(addr.bytes(), &mut bytes)
        .map_err(|error| Error::Io(format!("reading the checkpoint at {addr}: {error}")))?;
    let checkpoint =
        Checkpoint::decode(&bytes, uuid).map_err(|malformed| damaged(addr, malformed.problem))?;
    let size = layout.segment_size_bytes();
    let is_sound = |at: &HeadPosition| {
        layout.is_log_segment(at.segment)
            && u64::from(at.offset_bytes) <= size
            && (at.offset_bytes as usize).is_multiple_of(PAGE_SIZE)
    };
    let root_is_sound =
        checkpoint.root.is_none_or(|(root, _)| layout.holds(root.addr, u64::from(root.len_bytes)));
    let overrides_are_sound =
        checkpoint.usage_overrides.iter().all(|(segment, _)| layout.is_log_segment(*segment));
    let mirrors_are_sound = (checkpoint.mirrors.iter())
        .all(|(of, mirror)| layout.is_log_segment(*of) && layout.is_log_segment(*mirror));
    if !is_sound(&checkpoint.log)
        || !is_sound(&checkpoint.map)
        || !root_is_sound
        || !overrides_are_sound
        || !mirrors_are_sound
    {
        return Err(damaged(addr, "it refers to places that are not on the device"));
    }
    Ok((checkpoint, checksum(&bytes)))
}
