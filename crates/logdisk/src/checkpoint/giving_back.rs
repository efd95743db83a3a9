//! Giving back: clean segments are discarded, so that the image file shrinks.
//!
//! A file system that holds an image as one file of holes allocates blocks when a segment is
//! written that was discarded, and each flush then waits for its journal. So clean segments that
//! are backed are kept for the log to fill again, and only their surplus is discarded: what has
//! been clean for long, and what goes beyond a share of the volume or of the free space there.
//!
//! Segments that are being discarded are pinned, so that nobody fills them meanwhile, and are not
//! counted as clean, so that nobody relies on filling them. The lock of [`Checkpoints`] is held. So
//! a volume that becomes shorter is not cut off meanwhile (it takes a checkpoint first).
//! Discarding is a hint to the device. A failure changes nothing.
//!
//! [`Checkpoints`]: super::Checkpoints

use std::ops::Range;
use std::time::Duration;

use dendro_base::Timestamp;
use dendro_base::sync::atomic::Ordering;
use dendro_disk::Result;
use dendro_format::SegmentNo;
use roaring::RoaringBitmap;

use super::{Checkpointer, unless_put_off};
use crate::log::segments::Surplus;
use crate::options::Discards;
use crate::volume::Volume;

/// The time after which segments that have been clean since it began are discarded.
const AGE_EVERY: Duration = Duration::from_secs(600);
/// The time between two looks for a surplus.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The most segments that are pinned at a time.
const BATCH_LEN: u32 = 16;
/// The part of the volume's segments that may be backed and clean.
const VOLUME_SHARE: u64 = 16;
/// The part of the free space of the file system that holds the image.
const HOST_SHARE: u64 = 4;

/// Whether `period` has passed since a time, or the clock was set back. If so, the time is now.
fn is_due(since: &mut Option<Timestamp>, period: Duration, now: Timestamp) -> bool {
    let is_due = since.is_none_or(|before| now < before || now.since(before) >= period);
    if is_due {
        *since = Some(now);
    }
    is_due
}

impl Checkpointer {
    /// Discards some segments of a surplus, if one is due to be looked for. Returns whether it did.
    pub(crate) fn give_back_step(&self) -> bool {
        let Some(mut checkpoints) = self.checkpoints.try_lock() else { return false };
        let now = self.volume.now();
        let times = &mut checkpoints.gave_back;
        if self.discards == Discards::Never {
            return false;
        }
        let has_surplus = self.has_surplus.swap(false, Ordering::Relaxed);
        if !is_due(&mut times.looked, LOOK_EVERY, now) && !has_surplus {
            return false;
        }
        // Nothing has aged yet when the disk is opened.
        let is_first = times.aged.is_none();
        if is_due(&mut times.aged, AGE_EVERY, now) && !is_first {
            self.volume.write().state_mut().segments_mut().age_backed();
        }
        let did = !self.discard_some(self.surplus()).is_empty();
        if did {
            times.looked = None;
        }
        did
    }

    /// Discards all clean segments that are backed, as long as some are left that can be filled.
    pub(crate) fn give_back_all(&self) {
        let _checkpoints = self.checkpoints.lock();
        if self.discards != Discards::Never {
            self.discard_all(Surplus::Beyond(0));
        }
    }

    /// Discards some of what is too much after a checkpoint. The caller has locked the checkpoints,
    /// and others wait for that, a mount after a crash too: [`Self::give_back_step`] does the rest.
    pub(super) fn give_back_some(&self) {
        if self.discards != Discards::Never {
            let did = !self.discard_some(self.surplus()).is_empty();
            self.has_surplus.store(did, Ordering::Relaxed);
        }
    }

    /// See [`LogicalDisk::trim`](dendro_disk::LogicalDisk::trim).
    ///
    /// # Errors
    /// As [`Self::take`], apart from a lack of room.
    pub(crate) fn trim(&self, range: Range<u64>) -> Result<u64> {
        if self.volume.newest_superblock().is_allocated() {
            return Ok(0);
        }
        // What was deleted becomes clean, and so do the nodes that are superseded by that.
        for _ in 0..2 {
            unless_put_off(self.take())?;
        }
        let _checkpoints = self.checkpoints.lock();
        let layout = self.volume.layout();
        let size = layout.segment_size_bytes();
        let is_within = |segment: &SegmentNo| {
            let offset = layout.segment_offset(*segment);
            range.start <= offset && offset + size <= range.end
        };
        let (mut next, mut trimmed_bytes) = (0, 0);
        loop {
            let seen = self.discard_those(Surplus::From(next), is_within);
            trimmed_bytes += seen.iter().filter(|segment| is_within(segment)).count() as u64 * size;
            match seen.last() {
                Some(last) if layout.segment_offset(*last) < range.end => next = last.0 + 1,
                _ => return Ok(trimmed_bytes),
            }
        }
    }

    /// The clean segments that are too many, or have been clean for too long.
    pub(super) fn surplus(&self) -> Surplus {
        if self.discards == Discards::AtOnce {
            return Surplus::Beyond(0);
        }
        let layout = self.volume.layout();
        let size = layout.segment_size_bytes();
        // A checkpoint empties about as much as was written since the one before. That is more than
        // the log that recovery reads, of which payload streams are a small part.
        let opened = u64::from(self.volume.read().state().segments().most_opened_count());
        let of_log = (self.max_log_bytes / size).max(opened).saturating_mul(2);
        let kept = of_log.max(u64::from(layout.segment_count()) / VOLUME_SHARE);
        let room = self.volume.device().host_room();
        let of_host = room.map_or(u64::MAX, |room| room.free_bytes / HOST_SHARE / size);
        Surplus::Beyond(u32::try_from(kept.min(of_host)).unwrap_or(u32::MAX))
    }

    fn discard_all(&self, surplus: Surplus) {
        while !self.discard_some(surplus).is_empty() {}
    }

    fn discard_some(&self, surplus: Surplus) -> Vec<SegmentNo> {
        self.discard_those(surplus, |_| true)
    }

    /// Discards some of a surplus, those that are `wanted`. Returns all of these, in their order,
    /// also those that are not. The caller has locked the checkpoints.
    fn discard_those(
        &self,
        surplus: Surplus,
        wanted: impl Fn(&SegmentNo) -> bool,
    ) -> Vec<SegmentNo> {
        let discarding = {
            let mut engine = self.volume.write();
            let kept = self.accounts.kept_segments(&engine).all();
            let segments = engine.state_mut().segments_mut();
            let most = segments.clean_count().saturating_sub(kept).min(BATCH_LEN);
            segments.begin_discard(surplus, most as usize)
        };
        if discarding.segments().is_empty() {
            return Vec::new();
        }
        let segments: Vec<_> = discarding.segments().iter().copied().filter(&wanted).collect();
        let layout = self.volume.layout();
        for run in segments.chunk_by(|before, after| before.0 + 1 == after.0) {
            let len_bytes = run.len() as u64 * layout.segment_size_bytes();
            let _ = self.volume.device().discard(layout.segment_offset(run[0]), len_bytes);
        }
        self.volume.write().state_mut().segments_mut().end_discard(discarding, wanted)
    }
}

impl Volume {
    /// Finds out which clean segments are backed. For a device that does not know, none is.
    pub(crate) fn find_backed_segments(&self) {
        let (clean, layout) = {
            let engine = self.read();
            (engine.state().segments().clean().clone(), self.layout())
        };
        let mut backed = RoaringBitmap::new();
        // The first segment that has not been asked about.
        let mut next = 0;
        while let Some(number) = clean.range(next..).next() {
            let from = layout.segment_offset(SegmentNo(number));
            let Some(offset) = self.device().next_written(from) else { break };
            if offset >= layout.len_bytes() {
                break;
            }
            let found = offset / layout.segment_size_bytes();
            next = u32::try_from(found).map_or(u32::MAX, |found| found.max(number));
            if clean.contains(next) {
                backed.insert(next);
                next += 1;
            }
        }
        self.write().state_mut().segments_mut().note_backed(backed);
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::units::PAGE_SIZE;
    use dendro_disk::{Aru, Error, LogicalDisk, View};

    use crate::OpenOptions;
    use crate::log::segments::Surplus;
    use crate::testing::{disk_in_memory, make_list};

    #[test]
    fn what_is_being_discarded_is_not_room_for_the_log() {
        let options = OpenOptions { stream_bytes: 0, ..OpenOptions::default() };
        let disk = disk_in_memory(16, 128, options);
        let list = make_list(&disk);
        let mut next_page = 0;
        let mut write = || {
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, next_page, vec![7; 4 * PAGE_SIZE]);
            next_page += 4;
            disk.commit(aru)
        };
        let discarding = {
            let mut engine = disk.volume().write();
            let segments = engine.state_mut().segments_mut();
            let count = segments.clean_count() - 12;
            segments.begin_discard(Surplus::From(0), count as usize)
        };
        let refused = (0..4 * 128).find_map(|_| write().err());
        assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
        disk.volume().write().state_mut().segments_mut().end_discard(discarding, |_| true);
        write().unwrap();
    }
}
