//! Clean segments that are backed: the device is likely to have storage for them, because they were
//! written and not discarded since.
//!
//! Writing to a backed segment is cheap where the device is an image file: the file system that
//! holds the image need not allocate blocks, and a flush does not wait for its journal. So backed
//! segments are filled first, and are discarded only when they stay clean for long or are many.
//! None of this is needed for correctness: a segment may be taken for backed that is not, or the
//! other way round.

use std::ops::Range;

use dendro_format::SegmentNo;
use roaring::RoaringBitmap;

use super::pins::Pin;

/// The clean segments that are backed.
#[derive(Debug, Default)]
pub(super) struct Backed {
    pub(super) all: RoaringBitmap,
    /// Those that were clean when they were last looked through, and have been since.
    aged: RoaringBitmap,
    /// Those that have been clean from one time to the next, and should be discarded.
    pub(super) stale: RoaringBitmap,
    /// How often clients have waited for a flush since a segment was opened.
    pub(super) flush_count: u32,
    /// The segments that were filled under many flushes since segments aged last, and after which
    /// none was backed.
    pub(super) missed_count: u32,
    /// The segments that were opened since the last checkpoint.
    opened_count: u32,
    /// The most that were opened between two checkpoints, since segments aged last and in the time
    /// before that.
    most_opened: [u32; 2],
}

/// The number of flushes under which the last segment was filled, from which on it matters whether
/// the next one is backed.
const MANY_FLUSHES: u32 = 32;
/// How many backed segments are wanted for each time that none was there.
pub(super) const WANTED_FOR_ONE: u32 = 4;

/// Which clean segments are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surplus {
    /// Those that have been clean for long, and those beyond the number of backed ones that are
    /// kept.
    Beyond(u32),
    /// All from this one on, whether they are backed or not.
    From(u32),
}

/// Segments that are being discarded. They stay clean, but are not filled meanwhile
/// ([`Segments::clean_count`](super::Segments::clean_count)).
pub(crate) struct Discarding {
    pub(super) segments: Vec<SegmentNo>,
    pub(super) _pins: Vec<Pin>,
}

impl Discarding {
    /// The segments, in ascending order.
    pub(crate) fn segments(&self) -> &[SegmentNo] {
        &self.segments
    }
}

impl Backed {
    /// The approximate memory that this takes: a bit for each segment, or two bytes for each
    /// member.
    pub(super) fn memory_bytes(&self, segment_count: usize) -> usize {
        let of = |set: &RoaringBitmap| (set.len() as usize * 2).min(segment_count / 8);
        of(&self.all) + of(&self.aged) + of(&self.stale)
    }

    pub(super) fn insert(&mut self, number: u32) {
        self.all.insert(number);
    }

    pub(super) fn add(&mut self, numbers: RoaringBitmap) {
        self.all |= numbers;
    }

    /// Notes that a segment is opened.
    pub(super) const fn note_opened(&mut self, is_backed: bool) {
        let misses = !is_backed && self.flush_count >= MANY_FLUSHES;
        self.missed_count = self.missed_count.saturating_add(misses as u32);
        self.flush_count = 0;
        self.opened_count = self.opened_count.saturating_add(1);
    }

    /// Notes that a checkpoint is durable.
    pub(super) fn note_checkpoint(&mut self) {
        self.most_opened[0] = self.most_opened[0].max(std::mem::take(&mut self.opened_count));
    }

    /// The most segments that were opened between two checkpoints lately.
    pub(super) fn most_opened_count(&self) -> u32 {
        self.most_opened[0].max(self.most_opened[1])
    }

    /// Looks through them: what was there the last time, and has been since, is stale.
    pub(super) fn age(&mut self) {
        self.stale |= &self.aged;
        self.aged = self.all.clone();
        self.missed_count = 0;
        self.most_opened = [0, self.most_opened[0]];
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.remove_range(number..number.saturating_add(1));
    }

    pub(super) fn remove_range(&mut self, numbers: Range<u32>) {
        for set in [&mut self.all, &mut self.aged, &mut self.stale] {
            set.remove_range(numbers.clone());
        }
    }
}
