//! Cleaning by another process, in any language, with a policy of its own (DESIGN §8).
//!
//! These are the operations of BSD-LFS's cleaner (Seltzer, Bostic, McKusick, Staelin: An
//! Implementation of a Log-Structured File System for UNIX, 1993). The names that they have there
//! are in parentheses:
//! - [`LogDisk::segments`]: each segment's state, live bytes, class and times (the ifile).
//! - [`LogDisk::segment_blocks`], [`LogDisk::mapped_blocks`]: what a segment holds, as its own
//!   summaries or the map state.
//! - [`LogDisk::locate`]: where blocks lie now, and so which are live (`lfs_bmapv`).
//! - [`LogDisk::rewrite`]: write these blocks again (`lfs_markv`).
//! - [`LogDisk::release`]: make these segments clean (`lfs_segclean`).
//!
//! There is no operation for `lfs_segwait`. The caller polls [`LogDisk::clean_segment_count`],
//! which does not wait.
//!
//! Such a cleaner may be wrong, out of date or hostile, and its process may end at any time.
//!
//! Invariants:
//! 1. (external 1) Nothing is taken from the cleaner but names and addresses. A block's content,
//!    length and checksum come from the map and the device. A block is moved only where the map
//!    names it, at that address, at the moment of the move.
//! 2. (external 2) Nothing is kept for the cleaner between two calls. So nothing has to be cleared
//!    away when its process ends.
//! 3. (external 3) Each call does a bounded amount of work in bounded memory, and holds the disk's
//!    lock for one batch of blocks at most.
//! 4. (external 4) The cleaner may write only while the reserve for checkpoints is untouched.
//! 5. (external 5) A segment becomes clean only as (segments 2) says. [`LogDisk::release`] only
//!    takes a checkpoint.

mod blocks;
mod rewrite;

use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_disk::{Error, Result};
use dendro_format::{Addr, Head, Key, SegmentNo};

use crate::disk::LogDisk;
use crate::log::segments::{SegmentState, Segments};

pub use blocks::{Blocks, MapCursor, SummaryCursor};

/// The number of segments that one call reports or releases.
pub const MAX_SEGMENTS_PER_CALL: usize = 8192;

/// The number of blocks that one call reports, locates or rewrites.
pub const MAX_BLOCKS_PER_CALL: usize = 1024;

/// Statistics of what external cleaners had done.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    moved_bytes: AtomicU64,
    released_segments: AtomicU64,
}

impl Counters {
    /// Bytes of blocks moved, and segments released.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.moved_bytes.load(Ordering::Relaxed), self.released_segments.load(Ordering::Relaxed))
    }
}

/// The state of a segment: it determines what a cleaner may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentStatus {
    /// It holds nothing live and may be filled. A cleaner has nothing to do.
    Clean,
    /// It is being filled, or is the next to be filled. A cleaner cannot do anything.
    Open,
    /// Something in it is live: it may be cleaned.
    Dirty,
    /// Nothing in it is live: it may be released, and a checkpoint makes it clean.
    Pending,
}

/// A segment, as a cleaner sees it. Times are on the clock of [`Present::clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// The segment's number.
    pub number: u32,
    /// The segment's state.
    pub status: SegmentStatus,
    /// The live bytes in it.
    pub live_bytes: u32,
    /// The stream that filled it. Blocks of the map stream become dead without cleaning while they
    /// are young.
    pub head: Head,
    /// The class of the data that it was filled with: a number of the policy's classes.
    pub class: u8,
    /// The average of the times at which its live blocks were written.
    pub written_at: u64,
    /// When a block in it last became dead. If none has, or the time is not known, when it was
    /// filled.
    pub last_death: u64,
    /// When it was filled.
    pub filled_at: u64,
    /// How often blocks in it became dead since, as far as it is known; see
    /// [`dendro_policy::Segment::deaths`].
    pub deaths: u32,
}

/// The state of the volume that a cleaner needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// The present time, on the clock that segments' times are on.
    pub clock: u64,
    /// The live bytes of the volume.
    pub live_bytes: u64,
    /// The size of a segment in bytes.
    pub segment_bytes: u64,
    /// Segments of the volume, with those that hold superblocks.
    pub segment_count: u32,
    /// Segments that may be filled.
    pub clean_count: u32,
    /// Clean segments that are kept for checkpoints and for units that give space back. If no more
    /// are clean, commits wait for cleaning.
    pub reserved_count: u32,
}

/// The name of a block in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockName {
    /// A page of a list.
    Page {
        /// The list.
        list: u64,
        /// The index of the page in the list.
        page_index: u64,
        /// The branch that it was written in.
        branch: u32,
        /// The epoch that it was written in.
        epoch: u64,
    },
    /// A node of the map itself.
    Node {
        /// Its level above the leaves.
        level: u8,
        /// The first key under it.
        first_key: Key,
    },
}

/// A block, and the address where it lies, or where the cleaner assumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The name of the block.
    pub name: BlockName,
    /// The address at which it begins.
    pub addr: Addr,
}

/// The result of rewriting one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// It lies elsewhere now. A node of the map will with the next checkpoint.
    Moved,
    /// The map does not name it at that address: it was overwritten, deleted or moved, or it was
    /// never there.
    Dead,
    /// It lies in a segment that is being filled, or that has not been written yet.
    Open,
    /// The device does not return it as it was written. It stays where it is.
    Unreadable,
    /// There is no room to write it before more segments are clean.
    NoRoom,
}

/// The result of releasing one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It is clean now, or was before.
    Clean,
    /// A thread reads it at this moment. A later checkpoint makes it clean.
    Pending,
    /// It is being filled, or is the next to be filled.
    Open,
    /// It has so many live bytes.
    Live(u32),
    /// The log has no such segment.
    Unknown,
}

/// The reason why a request of a cleaner cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// There is no such segment.
    #[error("there is no segment {number} in the log; it has 2 to {last}")]
    NoSuchSegment {
        /// The number in the request.
        number: u32,
        /// The highest number of a segment.
        last: u32,
    },
    /// The segment is clean, so it holds no blocks to report.
    #[error("segment {0} is clean")]
    Clean(u32),
    /// The segment is being filled, so its blocks are not all known yet.
    #[error("segment {0} is being filled")]
    Open(u32),
    /// The disk returned an error.
    #[error(transparent)]
    Disk(#[from] Error),
}

impl LogDisk {
    /// The state of the volume at this moment.
    pub fn present(&self) -> Present {
        let engine = self.volume.read();
        Present {
            clock: engine.state.clock,
            live_bytes: engine.state.segments.live_bytes(),
            segment_bytes: self.volume.layout().segment_size_bytes(),
            segment_count: self.volume.layout().segment_count(),
            clean_count: engine.state.segments.clean_count(),
            reserved_count: self.checkpoint_reserve(&engine) + self.reclaim_reserve(),
        }
    }

    /// The number of segments that may be filled.
    pub fn clean_segment_count(&self) -> u32 {
        self.volume.read().state.segments.clean_count()
    }

    /// The segments of the log from number `from` on, in their order: at most `max` of them and at
    /// most [`MAX_SEGMENTS_PER_CALL`].
    pub fn segments(&self, from: u32, max: usize) -> Vec<SegmentFacts> {
        let engine = self.volume.read();
        let segments = &engine.state.segments;
        self.volume
            .layout()
            .log_segments()
            .skip_while(|segment| segment.0 < from)
            .take(max.min(MAX_SEGMENTS_PER_CALL))
            .map(|segment| facts(segments, segment))
            .collect()
    }

    /// Makes those of `segments` clean that hold nothing live. It takes a checkpoint if there are
    /// any, as (external 5) requires. Returns the state of each segment after that. Segments beyond
    /// [`MAX_SEGMENTS_PER_CALL`] are refused as [`Released::Unknown`].
    ///
    /// # Errors
    /// [`Error::Failed`] when the device fails, [`Error::ReadOnly`] when the disk takes no changes.
    pub fn release(&self, segments: &[u32]) -> Result<Vec<Released>> {
        self.check_cleanable()?;
        let before = self.released(segments);
        if !before.contains(&Released::Pending) {
            return Ok(before);
        }
        self.checkpoint()?;
        let after = self.released(segments);
        let became_clean = |(before, after): &(&Released, &Released)| {
            **before == Released::Pending && **after != Released::Pending
        };
        let count = before.iter().zip(&after).filter(became_clean).count() as u64;
        self.external.released_segments.fetch_add(count, Ordering::Relaxed);
        Ok(after)
    }

    fn released(&self, segments: &[u32]) -> Vec<Released> {
        let engine = self.volume.read();
        let one = |(at, &number): (usize, &u32)| {
            let segment = SegmentNo(number);
            if at >= MAX_SEGMENTS_PER_CALL || !self.volume.layout().is_log_segment(segment) {
                return Released::Unknown;
            }
            let facts = facts(&engine.state.segments, segment);
            match facts.status {
                SegmentStatus::Clean => Released::Clean,
                SegmentStatus::Pending => Released::Pending,
                SegmentStatus::Open => Released::Open,
                SegmentStatus::Dirty => Released::Live(facts.live_bytes),
            }
        };
        segments.iter().enumerate().map(one).collect()
    }

    /// Returns an error if the disk takes no changes.
    fn check_cleanable(&self) -> Result<()> {
        if let Some(error) = self.volume.failure() {
            return Err(error);
        }
        self.volume.read().closed_reason.clone().map_or(Ok(()), Err)
    }

    /// Returns the segment with this number if its blocks can be listed: it has been filled, and is
    /// not clean.
    fn filled_segment(&self, number: u32) -> std::result::Result<SegmentNo, QuestionError> {
        let segment = SegmentNo(number);
        if !self.volume.layout().is_log_segment(segment) {
            let last = self.volume.layout().segment_count() - 1;
            return Err(QuestionError::NoSuchSegment { number, last });
        }
        match self.volume.read().state.segments.state(segment) {
            SegmentState::Dirty => Ok(segment),
            SegmentState::Open => Err(QuestionError::Open(number)),
            SegmentState::Clean => Err(QuestionError::Clean(number)),
        }
    }
}

fn facts(segments: &Segments, segment: SegmentNo) -> SegmentFacts {
    let view = segments.policy_view(segment);
    SegmentFacts {
        number: segment.0,
        status: match segments.state(segment) {
            SegmentState::Clean => SegmentStatus::Clean,
            SegmentState::Open => SegmentStatus::Open,
            SegmentState::Dirty if view.live_bytes == 0 => SegmentStatus::Pending,
            SegmentState::Dirty => SegmentStatus::Dirty,
        },
        live_bytes: view.live_bytes,
        head: segments.head(segment),
        class: view.class.number(),
        written_at: view.written_at,
        last_death: view.last_death,
        filled_at: view.filled_at,
        deaths: view.deaths,
    }
}
