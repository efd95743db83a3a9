//! Writes that the device refuses: the bytes go to a spare segment.
//!
//! The addresses of the bytes stay as they are, because records, checksums and the chain of the log
//! contain them already. Two superblocks state that a range of the segment lies in the spare, at
//! the same offsets ([`dendro_format::retired`]), and [`crate::log::redirection`] reads and writes
//! it there. What the failed write has left in the old place is never looked at.
//!
//! If power is cut before a superblock is durable, the log ends before the write, as if that had
//! been torn.
//!
//! Invariants:
//! 1. (sparing 1) Two superblocks that name a spare are durable before anything that lies in it
//!    counts as written. So no flush returns, and no checkpoint is taken, whose data a crash could
//!    make unfindable, and damage to one superblock hides nothing.
//! 2. (sparing 2) A segment that is named in the superblock's list is never filled again.

use dendro_device::Device;
use dendro_disk::Error;
use dendro_format::retired::{self, MAX_RETIRED, Retired};
use dendro_format::superblock::INCOMPATIBLE_RETIRED;
use dendro_format::{Addr, SegmentNo, Superblock};

use super::Volume;
use crate::fault::no_space;
use crate::log::redirection::redirect;
use crate::log::superblocks;
use crate::log::writer::Refusal;

/// How often bytes are written to their place before that is given up. Repeating a write is sound
/// until a flush has failed, because the failed one has changed nothing but its own range.
const WRITE_TRIES: u32 = 2;
/// How many segments are tried in the place of one that cannot be written.
const SPARE_TRIES: usize = 3;
/// The clean segments that stay for checkpoints, if no commit has told how many these need.
const MIN_KEPT: usize = 4;

impl Volume {
    /// Writes bytes of one segment to the place at `offset`, or elsewhere if the device cannot
    /// write them there.
    ///
    /// # Errors
    /// [`Refusal::NoSpace`] when the file system that holds the image is full; nothing has changed
    /// then. [`Refusal::Failed`] when nothing has helped. The caller latches the volume.
    pub(crate) fn write_somewhere(&self, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let mut failed = None;
        for _ in 0..WRITE_TRIES {
            match self.device.write_at(offset, bytes) {
                Ok(()) => return Ok(()),
                Err(error) => match no_space(&error, bytes.len() as u64) {
                    Some(error) => return Err(Refusal::NoSpace(error)),
                    None => failed = Some(error),
                },
            }
        }
        let why = failed.map_or_else(String::new, |error| error.to_string());
        self.write_elsewhere(offset, bytes, &why)
    }

    /// Writes bytes of a segment to a spare one, and makes the superblock state that.
    fn write_elsewhere(&self, offset: u64, bytes: &[u8], why: &str) -> Result<(), Refusal> {
        // Held until the end, so that one thread does this at a time.
        let mut superblock = self.superblock.lock();
        let failed = |more: &str| Refusal::Failed(format!("{why}{more}"));
        let segment = self.layout().segment_of(Addr::from_bytes(offset));
        let start = (offset - self.layout().segment_offset(segment)) as u32;
        let range = start..start + bytes.len() as u32;
        // A new volume has no superblock that could say it. What lies elsewhere already stays
        // there.
        let is_moved = superblock.retired.iter().any(|one| {
            let moved = one.moved.as_ref().filter(|_| one.segment == segment);
            moved.is_some_and(|(other, _)| other.start < range.end && range.start < other.end)
        });
        if superblock.checkpoint_len_bytes == 0 || is_moved || self.failure().is_some() {
            return Err(failed(""));
        }
        let mut next = superblock.clone();
        let mut opened = Vec::new();
        let written = self.write_to_spare(&mut next, segment, range.start, bytes, &mut opened);
        let stated = written.and_then(|spare| {
            let spare =
                spare.ok_or_else(|| failed("; no segment could be written in its place"))?;
            retired::add(&mut next.retired, Retired { segment, moved: Some((range, spare)) });
            next.seq = superblock.seq.wrapping_add(1);
            next.incompatible |= INCOMPATIBLE_RETIRED;
            next.clean = false;
            next.written = self.now();
            self.append_twice(&mut next).map_err(|error| match error {
                Error::NoSpace { .. } => Refusal::NoSpace(error),
                error => failed(&format!("; {error}")),
            })
        });
        if let Err(refusal) = stated {
            let mut engine = self.engine.write();
            opened.into_iter().for_each(|spare| engine.state_mut().segments_mut().close(spare));
            return Err(refusal);
        }
        redirect(&self.device, &next).map_err(|error| failed(&format!("; {error}")))?;
        let mut engine = self.engine.write();
        opened.into_iter().for_each(|spare| engine.state_mut().segments_mut().retire_spare(spare));
        engine.state_mut().segments_mut().retire(segment);
        drop(engine);
        self.publish_superblock(&mut superblock, next);
        self.back_up(&superblock).map_err(|error| failed(&format!("; {error}")))
    }

    /// Appends two superblocks like `next` and makes them durable; `next` gets the number of the
    /// second one.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the file system that holds the image is full: there is none of them.
    /// [`Error::Failed`] when the device fails.
    fn append_twice(&self, next: &mut Superblock) -> Result<(), Error> {
        let device = self.device.below();
        superblocks::allocate_next(device, next)?;
        superblocks::append(device, next)?;
        next.seq = next.seq.wrapping_add(1);
        let appended = superblocks::append(device, next).and_then(|()| self.flush_device());
        appended.map_err(|error| match error {
            // The first one may count already, so nothing else may come in its place.
            Error::NoSpace { .. } => Error::Failed(error.to_string()),
            error => error,
        })
    }

    /// Writes bytes to a spare segment and returns that, if there is one that can be written. The
    /// segments that were opened for that are entered in `opened`, and those that could not be
    /// written either in the list of `superblock`.
    fn write_to_spare(
        &self,
        superblock: &mut Superblock,
        segment: SegmentNo,
        offset_bytes: u32,
        bytes: &[u8],
        opened: &mut Vec<SegmentNo>,
    ) -> Result<Option<SegmentNo>, Refusal> {
        while superblock.retired.len() + 1 < MAX_RETIRED && opened.len() < SPARE_TRIES {
            // The spare that has a part of the segment has room for all of it.
            let spare = match retired::spare_of(&superblock.retired, segment) {
                Some(spare) => spare,
                None => {
                    let mut engine = self.engine.write();
                    let kept = engine.kept_segments().saturating_sub(1).max(MIN_KEPT);
                    let Some(spare) = engine.state_mut().segments_mut().open_spare(kept) else {
                        break;
                    };
                    opened.push(spare);
                    spare
                }
            };
            let place = self.layout().segment_offset(spare) + u64::from(offset_bytes);
            match self.device.below().write_at(place, bytes) {
                Ok(()) => return Ok(Some(spare)),
                Err(error) => match no_space(&error, bytes.len() as u64) {
                    Some(error) => return Err(Refusal::NoSpace(error)),
                    None => superblock.retired.push(Retired { segment: spare, moved: None }),
                },
            }
        }
        Ok(None)
    }
}
