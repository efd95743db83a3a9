//! What an external cleaner and the disk tell each other.

use dendro_disk::Error;
use dendro_format::{Addr, Head, Key};

/// The number of segments that one call reports or releases.
pub const MAX_SEGMENTS_PER_CALL: usize = 8192;

/// The number of blocks that one call reports, locates or rewrites.
pub const MAX_BLOCKS_PER_CALL: usize = 1024;

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
    /// The device could not write it, or a part of such a segment lies in it: it is never filled
    /// again. A cleaner has nothing to do.
    Retired,
    /// It mirrors a segment of the map, and becomes clean with that. A cleaner has nothing to do.
    Mirror,
}

/// A segment, as a cleaner sees it. Times are on the clock of [`VolumeFacts::clock`].
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
    /// Whether it lies on a fast device of a volume that has others, too.
    pub is_fast: bool,
}

/// The state of the volume that a cleaner needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeFacts {
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
    /// The clean segments on fast devices; 0 if all are alike.
    pub fast_clean_count: u32,
    /// Fast segments should be emptied, whatever is live in them, while fewer of them are clean; 0
    /// if all are alike, others have no room, or the policy does not write what survives apart.
    pub fast_wanted_count: u32,
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
    /// It is being filled, or is the next to be filled, or it mirrors a segment of the map.
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
    /// The segment mirrors a segment of the map. Nothing is live in it by itself.
    #[error("segment {0} mirrors a segment of the map, and becomes clean with that")]
    Mirror(u32),
    /// The disk returned an error.
    #[error(transparent)]
    Disk(#[from] Error),
}
