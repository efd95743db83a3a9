//! What a cleaner in another process says and hears: the operations of BSD-LFS's cleaner (Seltzer,
//! Bostic, McKusick, Staelin, 1993). `docs/CONTROL.md` describes them for those who write one.
//!
//! Addresses and lengths are in bytes from the start of the device. A daemon believes nothing: each
//! block is compared with the map at the moment at which it is moved.

use serde::{Deserialize, Serialize};

use crate::protocol::AdminError;

/// How many blocks one request may name, or one reply tells of.
pub const MAX_BLOCKS: usize = 1024;

/// How many segments one request may name, or one reply tells of.
pub const MAX_SEGMENTS: usize = 8192;

/// The longest that [`SegwaitRequest`] waits.
pub const MAX_WAIT_MS: u64 = 600_000;

/// Asks for segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentsRequest {
    /// The first number to tell of.
    #[serde(default)]
    pub from: u32,
    /// How many to tell of, [`MAX_SEGMENTS`] at most; all that one reply holds when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<usize>,
}

/// Some of the segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segments {
    /// The volume as it is now.
    pub present: Present,
    /// The segments, by ascending number.
    pub segments: Vec<SegmentFacts>,
    /// What to ask for next; nothing after the last.
    pub next: Option<u32>,
}

/// The volume as it is now, as far as a cleaner needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Clean segments kept in reserve: with no more than these, writers wait for cleaning.
    pub reserved_count: u32,
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
}

/// What a segment was filled with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// The log itself, with blocks that are kept nowhere else.
    #[default]
    Main,
    /// Nodes of the map, which die by themselves while they are young.
    Map,
    /// Blocks alone, kept apart by temperature.
    Payload,
}

/// A segment. Its times are on the clock of [`Present::clock`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentFacts {
    /// Which segment it is.
    pub number: u32,
    /// What may be done with it.
    pub state: SegmentState,
    /// Bytes in it that can be reached.
    pub live_bytes: u32,
    /// What it was filled with.
    #[serde(default)]
    pub head: Head,
    /// The temperature of what it was filled with: a number of the policies' classes.
    pub class: u8,
    /// When what lives in it was written, in the mean.
    pub written_at: u64,
    /// When something in it last died.
    pub last_death: u64,
    /// When it was filled.
    pub filled_at: u64,
    /// How often something in it has died since, as far as it is known: a record's blocks die
    /// together.
    #[serde(default)]
    pub deaths: u32,
}

/// Asks for the blocks of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlocksRequest {
    /// Which segment.
    pub segment: u32,
    /// Who is to tell.
    #[serde(default)]
    pub source: BlockSource,
    /// Where to go on: what the reply before this one said; nothing to begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// How many to tell of, [`MAX_BLOCKS`] at most; all that one reply holds when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<usize>,
}

/// Who tells of a segment's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockSource {
    /// Its own summaries: quick; most blocks may be dead, and those that were moved between files
    /// are called as they were called before.
    #[default]
    Summaries,
    /// The map, all of it: slow; live pages only, all of them, and no nodes.
    Map,
}

/// Some of the blocks of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// The blocks. There may be none though more follow.
    pub blocks: Vec<Block>,
    /// Where to go on; nothing when these are the last.
    pub next: Option<String>,
}

/// A block, and where it lies or is said to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Block {
    /// A page of a list; a file's list is its i-node number.
    Page {
        /// The list.
        list: u64,
        /// Which of its pages of 4096 bytes.
        page: u64,
        /// The branch that it was written in.
        #[serde(default, skip_serializing_if = "is_first_branch")]
        branch: u32,
        /// The epoch that it was written in.
        #[serde(default = "first_epoch", skip_serializing_if = "is_first_epoch")]
        epoch: u64,
        /// Where it begins.
        addr: u64,
    },
    /// A node of the map.
    Node {
        /// What it is called.
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

/// What a node of the map is called.
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
    pub blocks: Vec<Block>,
}

/// Where blocks lie now, in the order in which they were named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Whether each lies where it was said to.
    pub live: Vec<bool>,
    /// Where each lies now; nothing for one that lies nowhere.
    pub addrs: Vec<Option<u64>>,
}

/// What became of blocks, in the order in which they were named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// What became of each.
    pub blocks: Vec<BlockOutcome>,
}

/// What became of a block that was to be written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockOutcome {
    /// It lies elsewhere now; a node of the map, with the next checkpoint.
    Moved,
    /// The map does not name it at that address.
    Dead,
    /// Its segment is being filled, or has not been written yet.
    Open,
    /// The device does not give it back as it was written. It stays where it is.
    Unreadable,
    /// There is no room to write it to before segments have become clean.
    NoRoom,
}

/// Waits until segments should be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegwaitRequest {
    /// Waits until fewer segments than this are clean,
    pub clean_below: u32,
    /// or until so much time has passed, [`MAX_WAIT_MS`] at most.
    pub timeout_ms: u64,
}

/// What a wait came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// Whether fewer segments are clean than were asked about; if not, the time was over.
    pub is_low: bool,
    /// The volume as it is now.
    pub present: Present,
}

/// Changes how the daemon's own cleaner goes about it. What is missing stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanerChange {
    /// The policy by which it chooses what to clean, and what is written together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// It cleans when fewer segments than this are clean, beyond those in reserve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_clean_segments: Option<u32>,
    /// In idle times it makes so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_clean_segments: Option<u32>,
    /// Whether it cleans only for a writer that finds no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
    /// Whether what lies scattered is coalesced in idle times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce: Option<bool>,
    /// How long nobody has used the volume then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce_after_ms: Option<u64>,
    /// What lies together in so many bytes stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce_piece_bytes: Option<u32>,
    /// So much of what clients write may be written again in idle times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce_share_percent: Option<u32>,
}

/// How the daemon's own cleaner goes about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanerSettings {
    /// The policy by which it chooses what to clean, and what is written together.
    pub policy: String,
    /// It cleans when fewer segments than this are clean, beyond those in reserve; nothing: as
    /// befits the volume's size.
    pub min_clean_segments: Option<u32>,
    /// In idle times it makes so many; nothing: as befits the former.
    pub max_clean_segments: Option<u32>,
    /// Whether it cleans only for a writer that finds no room.
    pub suspended: bool,
    /// Whether what lies scattered is coalesced in idle times.
    #[serde(default)]
    pub coalesce: bool,
    /// How long nobody has used the volume then.
    #[serde(default)]
    pub coalesce_after_ms: u64,
    /// What lies together in so many bytes stays as it is.
    #[serde(default)]
    pub coalesce_piece_bytes: u32,
    /// So much of what clients write may be written again in idle times.
    #[serde(default)]
    pub coalesce_share_percent: u32,
}

/// Names segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentsNamed {
    /// Their numbers, [`MAX_SEGMENTS`] at most.
    pub segments: Vec<u32>,
}

/// What became of segments, in the order in which they were named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// What became of each.
    pub segments: Vec<SegmentOutcome>,
}

/// What became of a segment that was to be made clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentOutcome {
    /// It is clean.
    Clean,
    /// It is empty, and somebody reads it at this moment; a later checkpoint makes it clean.
    Pending,
    /// Refused: it is being filled, or will be next.
    Open,
    /// Refused: something in it can be reached.
    Live,
    /// Refused: the log has no such segment.
    Unknown,
}

/// What a daemon does for cleaners. Calls come from several threads at once.
///
/// No error of a cleaner is an error here: what it names wrongly is told to it block by block. An
/// error says that the disk cannot answer, or takes no changes.
pub trait Cleaning: Send + Sync {
    /// The volume as it is now. Must not wait for anything: it is asked while others wait.
    fn present(&self) -> Present;

    /// Some of the segments.
    ///
    /// # Errors
    /// When they cannot be had.
    fn segments(&self, request: &SegmentsRequest) -> Result<Segments, AdminError>;

    /// Some of a segment's blocks.
    ///
    /// # Errors
    /// When there is no such segment, or it is clean or being filled, or cannot be read, or the
    /// cursor is none.
    fn blocks(&self, request: &BlocksRequest) -> Result<Blocks, AdminError>;

    /// Where blocks lie now.
    ///
    /// # Errors
    /// When the map cannot be read.
    fn bmapv(&self, blocks: &[Block]) -> Result<Places, AdminError>;

    /// Writes blocks again.
    ///
    /// # Errors
    /// When the disk takes no changes.
    fn markv(&self, blocks: &[Block]) -> Result<Marked, AdminError>;

    /// Makes segments clean that are empty.
    ///
    /// # Errors
    /// When the disk takes no changes.
    fn segclean(&self, segments: &[u32]) -> Result<Released, AdminError>;
}

/// Refuses what is longer than the protocol allows.
pub(crate) fn check_count(what: &str, count: usize, max: usize) -> Result<(), AdminError> {
    if count <= max {
        return Ok(());
    }
    Err(AdminError(format!("{count} {what} in one request; {max} are the most")))
}
