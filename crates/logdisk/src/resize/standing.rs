//! How far it is that a volume becomes shorter.

use std::collections::BTreeSet;

use dendro_format::{Layout, SegmentNo};

use crate::reclaim::make_room::Tries;

/// How far it is.
#[derive(Debug)]
pub(super) struct Shrinking {
    /// What the volume is to have.
    pub(super) layout: Layout,
    pub(super) device_len_bytes: u64,
    /// The number of segments that are to be given up.
    pub(super) count: u32,
    /// Where the last step ended.
    pub(super) standing: Standing,
    /// The segment from which on the next one is looked for that is to be emptied.
    pub(super) next: u32,
    /// Segments with something that cannot be read.
    pub(super) damaged: BTreeSet<SegmentNo>,
    /// Those with which that was so once. A read may fail once, so they are tried again.
    pub(super) suspect: BTreeSet<SegmentNo>,
    /// How many steps in a row have gained nothing.
    pub(super) fruitless: u32,
    /// The most segments that were clean, while too few were, since something else was gained.
    pub(super) most_clean: u32,
    pub(super) tries: Tries,
}

/// What is left to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Segments that are not given up yet.
    pub(super) kept_count: u32,
    /// Segments that are given up, and others of which a part lies in them, in which something is
    /// needed.
    pub(super) needed_count: u32,
}

/// How far it is that a volume becomes shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShrinkProgress {
    /// The segments that the volume gives up.
    pub segment_count: u32,
    /// Those of them that are not empty yet.
    pub left_count: u32,
}

impl Shrinking {
    pub(super) fn progress(&self) -> ShrinkProgress {
        let Standing { kept_count, needed_count } = self.standing;
        let left_count = (kept_count + needed_count).min(self.count);
        ShrinkProgress { segment_count: self.count, left_count }
    }

    /// Notes that a step has gained something.
    pub(super) fn note_gain(&mut self) {
        (self.fruitless, self.most_clean) = (0, 0);
        self.tries = Tries::default();
    }

    /// Notes how many segments are clean while too few are. That is a gain if they are more than
    /// before: as many of them as cleaning takes and gives back by turns are none.
    pub(super) fn note_clean(&mut self, count: u32) {
        if count > self.most_clean {
            self.note_gain();
            self.most_clean = count;
        }
    }
}
