//! The operations for a cleaner in another process, after those of BSD-LFS's cleaner (Seltzer,
//! Bostic, McKusick, Staelin, 1993). `docs/CONTROL.md` describes them for authors of cleaners.
//!
//! Addresses and lengths are in bytes from the start of the device. A daemon trusts nothing that a
//! cleaner sends: it compares each block with the map at the moment at which it moves it.

use serde::{Deserialize, Serialize};

/// How many blocks one request or reply may hold.
pub const MAX_BLOCKS: usize = 1024;

/// How many segments one request or reply may hold.
pub const MAX_SEGMENTS: usize = 8192;

/// The longest that [`SegwaitRequest`] waits.
pub const MAX_WAIT_MS: u64 = 600_000;

/// Asks for segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentsRequest {
    /// The first number to list.
    #[serde(default)]
    pub from: u32,
    /// How many to list, [`MAX_SEGMENTS`] at most; `None`: as many as one reply may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<usize>,
}

/// Some of the segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segments {
    /// The volume as it is now.
    pub present: CleaningStatus,
    /// The segments, by ascending number.
    pub segments: Vec<SegmentFacts>,
    /// Where to continue; `None` after the last.
    pub next: Option<u32>,
}

/// The volume as it is now, as far as a cleaner needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleaningStatus {
    /// The time now, on the log clock, which segments' times are on.
    pub clock: u64,
    /// Live bytes.
    pub live_bytes: u64,
    /// Bytes in a segment.
    pub segment_bytes: u64,
    /// Segments of the volume, those for superblocks included.
    pub segment_count: u32,
    /// Segments that may be filled.
    pub clean_count: u32,
    /// Clean segments in reserve: when no more than these are clean, writers wait for cleaning.
    pub reserved_count: u32,
    /// Clean segments on fast devices.
    #[serde(default)]
    pub fast_clean_count: u32,
    /// Fast segments should be emptied, whatever is live in them, while fewer of them are clean; 0
    /// if all are alike, or what is moved off them would have no room elsewhere.
    #[serde(default)]
    pub fast_wanted_count: u32,
}

impl CleaningStatus {
    /// Whether fast segments should be emptied.
    #[must_use]
    pub const fn fast_is_short(&self) -> bool {
        self.fast_clean_count < self.fast_wanted_count
    }
}

/// What may be done with a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentState {
    /// Nothing: it may be filled.
    #[default]
    Clean,
    /// Nothing: it is being filled, or will be next.
    Open,
    /// It may be cleaned.
    Dirty,
    /// It is empty; segclean makes it clean, as does any checkpoint.
    Pending,
    /// Nothing: the device could not write it, or it serves in such a segment's place. It is never
    /// filled again.
    Retired,
    /// Nothing: it mirrors a segment of the map, and becomes clean with that.
    Mirror,
}

/// What a segment was filled with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// The log itself, with blocks that are kept nowhere else.
    #[default]
    Main,
    /// Nodes of the map. Young ones are soon superseded, without cleaning.
    Map,
    /// Blocks alone, separated by temperature.
    Payload,
}

/// A segment. Its times are on the clock of [`CleaningStatus::clock`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentFacts {
    /// Which segment it is.
    pub number: u32,
    /// What may be done with it.
    pub state: SegmentState,
    /// Live bytes in it.
    pub live_bytes: u32,
    /// What it was filled with.
    #[serde(default)]
    pub head: Head,
    /// The temperature of what it was filled with: the number of a policy's class.
    pub class: u8,
    /// The mean time at which its live blocks were written.
    pub written_at: u64,
    /// When a block in it last died.
    pub last_death: u64,
    /// When it was filled.
    pub filled_at: u64,
    /// How often blocks in it have died since, as far as it is known. Blocks of one record die
    /// together and count once.
    #[serde(default)]
    pub deaths: u32,
    /// Whether it lies on a fast device of a volume that has others, too.
    #[serde(default)]
    pub is_fast: bool,
}

/// Asks for the blocks of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlocksRequest {
    /// Which segment.
    pub segment: u32,
    /// What to read them from.
    #[serde(default)]
    pub source: BlockSource,
    /// Where to continue: [`Blocks::next`] of the last reply; `None` to begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// How many to list, [`MAX_BLOCKS`] at most; `None`: as many as one reply may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<usize>,
}

/// What a segment's blocks are read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockSource {
    /// Its own summaries. That is quick. Most blocks may be dead, and blocks that were moved
    /// between files have the names that they had before.
    #[default]
    Summaries,
    /// The whole map. That is slow. It lists all live pages, and no nodes.
    Map,
}

/// Some of the blocks of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// The blocks. There may be none even though more follow.
    pub blocks: Vec<NamedBlock>,
    /// Where to continue; `None` when these are the last.
    pub next: Option<String>,
}

/// The name of a block, and the address at which it lies or is supposed to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NamedBlock {
    /// A page of a list; a file's list is its i-node number.
    Page {
        /// The list.
        list: u64,
        /// Which of its pages of 4096 bytes.
        page: u64,
        /// The branch in which it was written.
        #[serde(default, skip_serializing_if = "is_first_branch")]
        branch: u32,
        /// The epoch in which it was written.
        #[serde(default = "first_epoch", skip_serializing_if = "is_first_epoch")]
        epoch: u64,
        /// Where it begins.
        addr: u64,
    },
    /// A node of the map.
    Node {
        /// Its name.
        node: NodeName,
        /// Where it begins.
        addr: u64,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_first_branch(branch: &u32) -> bool {
    *branch == 0
}

const fn first_epoch() -> u64 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_first_epoch(epoch: &u64) -> bool {
    *epoch == 1
}

/// The name of a node of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeName {
    /// How far above the leaves it is.
    pub level: u8,
    /// The first key under it: the list,
    pub list: u64,
    /// what its index counts,
    pub space: u8,
    /// the index,
    pub index: u64,
    /// the branch,
    pub branch: u32,
    /// and the epoch.
    pub epoch: u64,
}

/// Names blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlocksNamed {
    /// The blocks, [`MAX_BLOCKS`] at most.
    pub blocks: Vec<NamedBlock>,
}

/// Where blocks lie now, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Whether each lies at the address in the request.
    pub live: Vec<bool>,
    /// The address of each now; `None` for a block that no longer exists.
    pub addrs: Vec<Option<u64>>,
}

/// The outcomes for blocks, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// The outcome for each.
    pub blocks: Vec<BlockOutcome>,
}

/// The outcome for a block that was to be written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockOutcome {
    /// It has been written elsewhere. A node of the map will be, by the next checkpoint.
    Moved,
    /// The map does not name it at that address.
    Dead,
    /// Its segment is being filled, or has not been written yet.
    Open,
    /// It cannot be read, or its checksum is wrong. It stays where it is.
    Unreadable,
    /// There is no room for it until segments have become clean.
    NoRoom,
}

/// Waits until segments should be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegwaitRequest {
    /// Wait until fewer segments than this are clean,
    pub clean_below: u32,
    /// or until this time has passed, [`MAX_WAIT_MS`] at most,
    pub timeout_ms: u64,
    /// or, if this is set, until fast segments should be emptied.
    #[serde(default)]
    pub for_fast: bool,
}

impl SegwaitRequest {
    /// Whether the volume as it is now is what this waits for.
    #[must_use]
    pub const fn is_met(&self, present: &CleaningStatus) -> bool {
        present.clean_count < self.clean_below || (self.for_fast && present.fast_is_short())
    }
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// Whether segments should be cleaned, as the request says; if not, the time is over.
    pub is_low: bool,
    /// The volume as it is now.
    pub present: CleaningStatus,
}

/// Changes settings of the daemon's own cleaner. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanerChange {
    /// The policy that chooses what to clean, and which blocks are written together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Clean when fewer segments than this are clean, beyond those in reserve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_clean_segments: Option<u32>,
    /// In idle times, clean until so many are clean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_clean_segments: Option<u32>,
    /// Whether to clean only when a writer finds no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
    /// Whether to coalesce scattered pages in idle times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce: Option<bool>,
    /// After how long without use of the volume coalescing begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce_after_ms: Option<u64>,
    /// Pieces of this length and more are not moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce_piece_bytes: Option<u32>,
    /// The share of what clients write that coalescing may write again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce_share_percent: Option<u32>,
}

/// The settings of the daemon's own cleaner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanerSettings {
    /// The policy that chooses what to clean, and which blocks are written together.
    pub policy: String,
    /// It cleans when fewer segments than this are clean, beyond those in reserve; `None`: a number
    /// that follows from the volume's size.
    pub min_clean_segments: Option<u32>,
    /// In idle times, it cleans until so many are clean; `None`: a number that follows from
    /// [`Self::min_clean_segments`].
    pub max_clean_segments: Option<u32>,
    /// Whether to clean only when a writer finds no room.
    pub suspended: bool,
    /// Whether to coalesce scattered pages in idle times.
    #[serde(default)]
    pub coalesce: bool,
    /// After how long without use of the volume coalescing begins.
    #[serde(default)]
    pub coalesce_after_ms: u64,
    /// Pieces of this length and more are not moved.
    #[serde(default)]
    pub coalesce_piece_bytes: u32,
    /// The share of what clients write that coalescing may write again.
    #[serde(default)]
    pub coalesce_share_percent: u32,
}

/// Names segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentsNamed {
    /// Their numbers, [`MAX_SEGMENTS`] at most.
    pub segments: Vec<u32>,
}

/// The outcomes for segments, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The outcome for each.
    pub segments: Vec<SegmentOutcome>,
}

/// The outcome for a segment that was to be made clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentOutcome {
    /// It is clean.
    Clean,
    /// It is empty, but is being read at the moment; a later checkpoint makes it clean.
    Pending,
    /// Refused: it is being filled, or will be next.
    Open,
    /// Refused: it holds live blocks.
    Live,
    /// Refused: the log has no such segment.
    Unknown,
}
