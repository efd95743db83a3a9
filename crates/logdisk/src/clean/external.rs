//! Cleaning by somebody else: another process, in any language, with a policy of its own
//! (DESIGN §8).
//!
//! These are the operations of BSD-LFS's cleaner (Seltzer, Bostic, McKusick, Staelin: An
//! Implementation of a Log-Structured File System for UNIX, 1993), with what they were called
//! there:
//! - [`LogDisk::segments`]: each segment's state, live bytes, class and times (the ifile).
//! - [`LogDisk::segment_blocks`], [`LogDisk::mapped_blocks`]: what a segment holds, as its own
//!   summaries or the map tell.
//! - [`LogDisk::locate`]: where blocks lie now, and so which live (`lfs_bmapv`).
//! - [`LogDisk::rewrite`]: write these blocks again (`lfs_markv`).
//! - [`LogDisk::release`]: these segments are clean (`lfs_segclean`).
//!
//! `lfs_segwait` is the caller's to build: [`LogDisk::clean_segment_count`] waits for nothing.
//!
//! A cleaner may be wrong, outdated, hostile, or dead in the middle. So:
//! 1. Nothing is taken from it but names and addresses. What a block holds, how long it is and its
//!    checksum come from the map and the device; a block is moved only where the map names it, at
//!    that address, at the moment of the move.
//! 2. Nothing is kept for it from one call to the next, so nothing has to be cleared away when it
//!    dies.
//! 3. Each call does a bounded amount of work, in bounded memory, and holds the disk's lock for a
//!    batch of blocks at most.
//! 4. It may write only as long as the reserve for checkpoints is untouched.
//! 5. A segment becomes clean only by a checkpoint that is durable, as always: [`LogDisk::release`]
//!    does no more than take one.

mod blocks;
mod rewrite;

use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_disk::{Error, Result};
use dendro_format::{Addr, Head, Key, SegmentNo};

use crate::disk::LogDisk;
use crate::log::segments::{SegmentState, Segments};

pub use blocks::{Blocks, MapCursor, SummaryCursor};

/// How many segments are told of, or released, by one call.
pub const MAX_SEGMENTS_PER_CALL: usize = 8192;

/// How many blocks are told of, located or rewritten by one call.
pub const MAX_BLOCKS_PER_CALL: usize = 1024;

/// What is done elsewhere by those who clean from outside.
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

/// What may be done with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentStatus {
    /// Nothing: it holds nothing that anyone needs, and may be filled.
    Clean,
    /// Nothing: it is being filled, or will be next.
    Open,
    /// It may be cleaned: something in it can be reached.
    Dirty,
    /// It may be released: nothing in it can be reached, and a checkpoint makes it clean.
    Pending,
}

/// A segment, as a cleaner sees it. Times are on the clock of [`Present::clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Which segment it is.
    pub number: u32,
    /// What may be done with it.
    pub status: SegmentStatus,
    /// Bytes in it that can be reached.
    pub live_bytes: u32,
    /// Which head filled it. What lies in the map's dies by itself while it is young.
    pub head: Head,
    /// The temperature of what it was filled with: a number of the policy's classes.
    pub class: u8,
    /// When what lives in it was written, in the mean.
    pub written_at: u64,
    /// When something in it last died; when it was filled, if nothing has or nobody knows.
    pub last_death: u64,
    /// When it was filled.
    pub filled_at: u64,
    /// How often something in it has died since, as far as it is known; see
    /// [`dendro_policy::Segment::deaths`].
    pub deaths: u32,
}

/// The volume as it is now, as far as a cleaner needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// The time now, on the clock that segments' times are on.
    pub clock: u64,
    /// Bytes that can be reached.
    pub live_bytes: u64,
    /// Bytes in a segment.
    pub segment_bytes: u64,
    /// Segments of the volume, those that hold superblocks included.
    pub segment_count: u32,
    /// Segments that may be filled.
    pub clean_count: u32,
    /// Clean segments that are kept for checkpoints and for giving space back: with no more than
    /// these, commits wait for cleaning.
    pub reserved_count: u32,
}

/// What a block is called in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockName {
    /// A page of a list.
    Page {
        /// The list.
        list: u64,
        /// Which of its pages.
        page_index: u64,
        /// The branch that it was written in.
        branch: u32,
        /// The epoch that it was written in.
        epoch: u64,
    },
    /// A node of the map itself.
    Node {
        /// How far above the leaves it is.
        level: u8,
        /// The first key under it.
        first_key: Key,
    },
}

/// A block, and where it lies or is said to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Whose it is.
    pub name: BlockName,
    /// Where it begins.
    pub addr: Addr,
}

/// What became of a block that was to be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// It lies elsewhere now; or, a node of the map, will with the next checkpoint.
    Moved,
    /// The map does not name it at that address: it was overwritten, deleted or moved, or it never
    /// was there.
    Dead,
    /// It lies in a segment that is being filled, or has not been written yet.
    Open,
    /// The device does not give it back as it was written; it stays where it is.
    Unreadable,
    /// There is no room to write it to before segments have become clean.
    NoRoom,
}

/// What became of a segment that was to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It is clean now, or was.
    Clean,
    /// Somebody reads it at this moment: a later checkpoint makes it clean.
    Pending,
    /// It is being filled, or will be next.
    Open,
    /// So many bytes in it can be reached.
    Live(u32),
    /// The log has no such segment.
    Unknown,
}

/// Why a question of a cleaner has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// There is no such segment.
    #[error("there is no segment {number} in the log; it has 2 to {last}")]
    NoSuchSegment {
        /// The one asked for.
        number: u32,
        /// The highest that there is.
        last: u32,
    },
    /// The segment holds nothing that could be told.
    #[error("segment {0} is clean")]
    Clean(u32),
    /// What the segment holds is not settled yet.
    #[error("segment {0} is being filled")]
    Open(u32),
    /// The disk could not answer.
    #[error(transparent)]
    Disk(#[from] Error),
}

impl LogDisk {
    /// The volume as it is now.
    pub fn present(&self) -> Present {
        let engine = self.engine.read();
        Present {
            clock: engine.state.clock,
            live_bytes: engine.state.segments.live_bytes(),
            segment_bytes: self.layout.segment_size_bytes(),
            segment_count: self.layout.segment_count(),
            clean_count: engine.state.segments.clean_count(),
            reserved_count: self.checkpoint_reserve(&engine) + self.reclaim_reserve(),
        }
    }

    /// How many segments may be filled.
    pub fn clean_segment_count(&self) -> u32 {
        self.engine.read().state.segments.clean_count()
    }

    /// The segments of the log from number `from` on, in their order, `max` of them and
    /// [`MAX_SEGMENTS_PER_CALL`] at most.
    pub fn segments(&self, from: u32, max: usize) -> Vec<SegmentFacts> {
        let engine = self.engine.read();
        let segments = &engine.state.segments;
        self.layout
            .log_segments()
            .skip_while(|segment| segment.0 < from)
            .take(max.min(MAX_SEGMENTS_PER_CALL))
            .map(|segment| facts(segments, segment))
            .collect()
    }

    /// Makes those of `segments` clean in which nothing can be reached, by taking a checkpoint if
    /// there are any. Of each it says what it is now; more than [`MAX_SEGMENTS_PER_CALL`] are
    /// refused as [`Released::Unknown`].
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
        let engine = self.engine.read();
        let one = |(at, &number): (usize, &u32)| {
            let segment = SegmentNo(number);
            if at >= MAX_SEGMENTS_PER_CALL || !self.layout.is_log_segment(segment) {
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

    /// Whether the disk takes changes.
    fn check_cleanable(&self) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        self.engine.read().closed_reason.clone().map_or(Ok(()), Err)
    }

    /// The segment with this number, if it can be looked into: it has been filled and not become
    /// clean.
    fn filled_segment(&self, number: u32) -> std::result::Result<SegmentNo, QuestionError> {
        let segment = SegmentNo(number);
        if !self.layout.is_log_segment(segment) {
            let last = self.layout.segment_count() - 1;
            return Err(QuestionError::NoSuchSegment { number, last });
        }
        match self.engine.read().state.segments.state(segment) {
            SegmentState::Dirty => Ok(segment),
            SegmentState::Open => Err(QuestionError::Open(number)),
            SegmentState::Clean => Err(QuestionError::Clean(number)),
        }
    }
}

fn facts(segments: &Segments, segment: SegmentNo) -> SegmentFacts {
    let figures = segments.policy_view(segment);
    SegmentFacts {
        number: segment.0,
        status: match segments.state(segment) {
            SegmentState::Clean => SegmentStatus::Clean,
            SegmentState::Open => SegmentStatus::Open,
            SegmentState::Dirty if figures.live_bytes == 0 => SegmentStatus::Pending,
            SegmentState::Dirty => SegmentStatus::Dirty,
        },
        live_bytes: figures.live_bytes,
        head: segments.head(segment),
        class: figures.class.number(),
        written_at: figures.written_at,
        last_death: figures.last_death,
        filled_at: figures.filled_at,
        deaths: figures.deaths,
    }
}
