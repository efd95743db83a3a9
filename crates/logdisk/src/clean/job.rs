//! A segment that is being cleaned, and what its steps move.

use dendro_base::units::PAGE_SIZE;
use dendro_format::chunk::{CHUNK_PAGES, MAX_FRAME_LEN_BYTES};
use dendro_format::{Key, NodePtr, SegmentNo};

use crate::clean::named_page::{self, NamedPage};
use crate::clean::relocate::MapSearch;
use crate::clean::victim::Body;
use crate::log::segments::Pin;

/// The number of blocks that one step moves at most, each as long as a page in the mean. This
/// suffices for those of one chunk, all of them frames.
const BATCH_LEN: usize = 64;
const BATCH_PAGE_BYTES: u64 = (BATCH_LEN * PAGE_SIZE) as u64;
const _: () = assert!(BATCH_PAGE_BYTES >= CHUNK_PAGES * MAX_FRAME_LEN_BYTES as u64);
/// More than the records of one block take, with its share of headers.
const BLOCK_RECORDS_BYTES: usize = PAGE_SIZE / 8;
/// The bytes that a batch takes in the log at most, with its records.
pub(super) const BATCH_BYTES: u64 = (BATCH_LEN * (PAGE_SIZE + BLOCK_RECORDS_BYTES)) as u64;

/// How many of the first blocks one step moves. It moves those of a chunk together, which may be
/// pages of one frame, or become so.
pub(super) fn batch_len(blocks: &[NamedPage]) -> usize {
    let (mut len, mut len_bytes) = (0, 0);
    for chunk in blocks.chunk_by(NamedPage::is_in_chunk_of) {
        len_bytes += named_page::len_bytes(chunk);
        if len > 0 && (len + chunk.len() > BATCH_LEN || len_bytes > BATCH_PAGE_BYTES) {
            break;
        }
        len += chunk.len();
    }
    len
}

/// A segment being cleaned.
#[derive(Debug)]
pub(super) struct CleaningJob {
    pub(super) victim: SegmentNo,
    /// The live bytes of the segment when the job began.
    pub(super) live_bytes: u32,
    /// The pin keeps the segment from being filled again if it becomes empty meanwhile. Otherwise
    /// the job would take what it found for the new content.
    pub(super) _pin: Pin,
    pub(super) body: Body,
    pub(super) blocks: Vec<NamedPage>,
    /// What the leaves of the map take that moving these makes dirty.
    pub(super) leaf_bytes: u64,
    /// The number of blocks that have been handled.
    pub(super) moved: usize,
    pub(super) nodes: Vec<(NodePtr, u8, Key)>,
    /// The search of the whole map for what the segment's records do not name, while it runs.
    /// `has_searched` states that it has ended.
    pub(super) search: Option<Box<MapSearch>>,
    pub(super) has_searched: bool,
    pub(super) is_sound: bool,
}

impl CleaningJob {
    /// An estimate of the bytes that one step gains.
    pub(super) fn gain_of_step(&self) -> i64 {
        let dead_bytes = self.body.bytes().len() as u64 - u64::from(self.live_bytes);
        let batches = self.blocks.len().div_ceil(BATCH_LEN).max(1) as u64;
        (dead_bytes / batches) as i64
    }

    /// About what the leaves take that moving the rest of the blocks makes dirty.
    pub(super) fn leaf_bytes_left(&self) -> u64 {
        let (left, all) = (self.blocks.len() - self.moved, self.blocks.len().max(1));
        self.leaf_bytes * left as u64 / all as u64
    }

    /// What the next step writes to the log at most. Nodes are written by the next checkpoint.
    pub(super) fn step_bytes(&self) -> u64 {
        let left = &self.blocks[self.moved..];
        let batch = &left[..batch_len(left)];
        let records_bytes = ((batch.len() + 1) * BLOCK_RECORDS_BYTES) as u64;
        let bytes = named_page::len_bytes(batch) + records_bytes;
        if batch.is_empty() { 0 } else { bytes.min(BATCH_BYTES) }
    }
}
