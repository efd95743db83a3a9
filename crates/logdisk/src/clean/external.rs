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
//!
//! [`LogDisk::segments`]: crate::LogDisk::segments
//! [`LogDisk::segment_blocks`]: crate::LogDisk::segment_blocks
//! [`LogDisk::mapped_blocks`]: crate::LogDisk::mapped_blocks
//! [`LogDisk::locate`]: crate::LogDisk::locate
//! [`LogDisk::rewrite`]: crate::LogDisk::rewrite
//! [`LogDisk::release`]: crate::LogDisk::release
//! [`LogDisk::clean_segment_count`]: crate::LogDisk::clean_segment_count

mod access;
mod blocks;
mod names;
mod rewrite;
mod segments;

pub(crate) use access::ExternalAccess;
pub use blocks::{Blocks, MapCursor, SummaryCursor};
pub use names::{
    Block, BlockName, MAX_BLOCKS_PER_CALL, MAX_SEGMENTS_PER_CALL, QuestionError, Released,
    Rewritten, SegmentFacts, SegmentStatus, VolumeFacts,
};
