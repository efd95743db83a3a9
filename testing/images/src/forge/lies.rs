//! Lies that a few bytes choose, such as a fuzzer gives: a cycle in the map, a node or a block that
//! two entries name, accounts that are wrong, ranges that nobody can walk through. Every checksum
//! is right, and every structure is sound by itself.

use std::sync::Arc;

use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE};
use dendro_format::checkpoint::CHECKPOINT_FIXED_LEN_BYTES;
use dendro_format::rearrangement::{self, REARRANGEMENT_INDEX, Task};
use dendro_format::usage::{FIRST_SYSTEM_LIST, USAGE_LEN_BYTES};
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{
    CHUNK_PAGES, Entries, Key, MAX_PAGE_COUNT, NodePtr, PageRef, Record, Space, Value, checksum,
};

use super::{Forge, place_of};

/// The most lies of one input.
const MAX_LIES: usize = 4;

/// How many places are tried for what must take as many bytes as what was there.
const MAX_TRIES: usize = 8;

/// Numbers that are more telling than others.
const NUMBERS: [u64; 15] = [
    0,
    1,
    31,
    64,
    4096,
    1 << 20,
    1 << 26,
    u32::MAX as u64,
    1 << 40,
    MAX_PAGE_COUNT / CHUNK_PAGES - 1,
    MAX_PAGE_COUNT - 1,
    MAX_PAGE_COUNT,
    FIRST_SYSTEM_LIST,
    1 << 63,
    u64::MAX,
];

/// Where numbers of a checkpoint stand, and their lengths: where heads go on, the next list, the
/// commit, the epoch, and what is counted.
const CHECKPOINT_NUMBERS: [(usize, usize); 14] = [
    (56, 4),
    (60, 4),
    (64, 8),
    (76, 4),
    (80, 4),
    (84, 4),
    (88, 8),
    (96, 8),
    (104, 8),
    (112, 8),
    (128, 8),
    (136, 8),
    (144, 8),
    (12, 4),
];

/// An input, which is taken piece by piece. Zeros follow its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()])) % count.max(1)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len())).cloned()
    }

    /// A telling number, or, of four, one that is any.
    fn number(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..192 => NUMBERS[usize::from(byte) % NUMBERS.len()],
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    /// Pages that a list may have.
    fn pages(&mut self) -> (u64, u64) {
        let first = self.number().min(MAX_PAGE_COUNT - 1);
        (first, self.number().min(MAX_PAGE_COUNT - first))
    }
}

/// An image that an input chooses among `forges` with its first byte, and forges: with patches, or
/// mostly with lies.
///
/// # Panics
/// When there are no forges.
#[must_use]
pub fn by_input(forges: &[Forge], input: &[u8]) -> Vec<u8> {
    let mut input = Input(input);
    let forge = &forges[usize::from(input.byte()) % forges.len()];
    match input.byte() % 4 {
        0 => forge.patched(input.0),
        _ => forge.lying(input.0),
    }
}

impl Forge {
    /// The image with what an input says, up to four lies: the kind of each, and what it takes.
    #[must_use]
    pub fn lying(&self, input: &[u8]) -> Vec<u8> {
        self.forge(|image| {
            let mut input = Input(input);
            for _ in 0..MAX_LIES {
                if input.0.is_empty() {
                    break;
                }
                match input.byte() % 7 {
                    0 => self.close_cycle(image, &mut input),
                    1 => self.name_node_twice(image, &mut input),
                    2 => self.name_block_twice(image, &mut input),
                    3 => self.forge_checkpoint(image, &mut input),
                    4 => self.forge_record_of_disk(image, &mut input),
                    5 => self.forge_index(image, &mut input),
                    _ => self.forge_log(image, &mut input),
                }
            }
        })
    }

    fn place(&self, which: usize) -> NodePtr {
        self.nodes[which].place
    }

    /// The nodes of which `is_wanted`.
    fn nodes_that(&self, is_wanted: impl Fn(&super::ForgedNode) -> bool) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&which| is_wanted(&self.nodes[which])).collect()
    }

    /// A child of a node is the node itself, or one above it.
    fn close_cycle(&self, image: &mut [u8], input: &mut Input<'_>) {
        let Some(which) = input.pick(&self.nodes_that(|node| node.level > 0)) else { return };
        let mut path = vec![which];
        while let Some(parent) = &self.nodes[path[path.len() - 1]].parent {
            path.extend(self.nodes.iter().position(|node| node.range() == *parent));
        }
        let place = self.place(path[input.below(path.len())]);
        self.redirect(image, which, place, input);
    }

    /// A child of a node is the child of another, or another child of the same.
    fn name_node_twice(&self, image: &mut [u8], input: &mut Input<'_>) {
        let Some(which) = input.pick(&self.nodes_that(|node| node.level > 0)) else { return };
        let level = self.nodes[which].level - 1;
        let Some(child) = input.pick(&self.nodes_that(|node| node.level == level)) else { return };
        self.redirect(image, which, self.place(child), input);
    }

    /// Has an entry of a node name a node that lies at `place`. What is said of epochs fills what
    /// a shorter address leaves.
    fn redirect(&self, image: &mut [u8], which: usize, place: NodePtr, input: &mut Input<'_>) {
        let first = input.below(1 << 16);
        for step in 0..MAX_TRIES {
            for epoch_bits in [None, Some(0)].into_iter().chain((6..64).step_by(7).map(Some)) {
                let is_changed = self.change_node(image, which, |entries| {
                    let Entries::Inner(children) = entries else { return };
                    let at = (first + step) % children.len();
                    let child = &mut children[at].1;
                    child.place = place;
                    child.newest_epoch = epoch_bits.map_or(child.newest_epoch, |bits| 1 << bits);
                });
                if is_changed {
                    return;
                }
            }
        }
    }

    /// A page lies in the block of another, or partly in it, or in a node of the map.
    fn name_block_twice(&self, image: &mut [u8], input: &mut Input<'_>) {
        let leaves = self.nodes_that(|node| node.has_blocks);
        let (Some(to), Some(from)) = (input.pick(&leaves), input.pick(&leaves)) else { return };
        let (_, Entries::Leaf(entries)) = self.node(image, from) else { return };
        let chunks = entries.iter().filter_map(|(_, value)| match value {
            Value::Chunk(chunk) => Some(chunk),
            _ => None,
        });
        let pages = chunks.flat_map(|chunk| chunk.iter()).map(|(_, page)| page);
        let blocks: Vec<PageRef> = pages.filter(|page| page.len_bytes > 0).collect();
        let Some(mut page) = input.pick(&blocks) else { return };
        match input.byte() % 4 {
            0 => page.addr = page.addr.plus_bytes(GRAIN_SIZE as u64),
            1 => {
                let place = self.place(input.below(self.nodes.len()));
                let len_bytes = place.len_bytes.min(PAGE_SIZE as u32) as u16;
                page = PageRef { addr: place.addr, len_bytes, ..PageRef::ZERO };
            }
            _ => {}
        }
        let start = place_of(page.addr, &self.moved);
        if let Some(bytes) = image.get(start..start + usize::from(page.len_bytes)) {
            page.crc32c = checksum(bytes);
        }
        let (first, slot) = (input.below(1 << 16), input.below(CHUNK_PAGES as usize));
        self.try_leaf(image, to, first, |entries, nth| {
            let is_chunk = |(_, value): &&mut (Key, Value)| matches!(value, Value::Chunk(_));
            let mut chunks: Vec<_> = entries.iter_mut().filter(is_chunk).collect();
            let count = chunks.len();
            if let Some((_, Value::Chunk(chunk))) = chunks.get_mut(nth % count.max(1)) {
                let slots = chunk.present().checked_ilog2().unwrap_or(0) as usize + 2;
                Arc::make_mut(chunk).set((slot % slots) as u32 % CHUNK_PAGES as u32, page);
            }
        });
    }

    /// Another number in the checkpoint, or in the usage of a segment there.
    fn forge_checkpoint(&self, image: &mut [u8], input: &mut Input<'_>) {
        let bytes = &mut image[self.checkpoint()];
        let overrides = bytes.len().saturating_sub(CHECKPOINT_FIXED_LEN_BYTES);
        let overrides = overrides / (4 + USAGE_LEN_BYTES);
        let (at, len) = if input.byte().is_multiple_of(2) || overrides == 0 {
            CHECKPOINT_NUMBERS[input.below(CHECKPOINT_NUMBERS.len())]
        } else {
            let nth = input.below(overrides);
            let (at, len) = [(0, 4), (4, 4), (4, 4), (8, 2), (12, 8)][input.below(5)];
            (CHECKPOINT_FIXED_LEN_BYTES + nth * (4 + USAGE_LEN_BYTES) + at, len)
        };
        bytes[at..at + len].copy_from_slice(&input.number().to_le_bytes()[..len]);
    }

    /// Another number in a record of the disk's own: of usage, versions, removals, totals.
    fn forge_record_of_disk(&self, image: &mut [u8], input: &mut Input<'_>) {
        let Some(which) = input.pick(&self.nodes_that(|node| node.has_own)) else { return };
        let (nth, at, number) = (input.below(1 << 16), input.below(1 << 16), input.number());
        let len = [4, 8][input.below(2)];
        self.change_node(image, which, |entries| {
            let Entries::Leaf(entries) = entries else { return };
            let is_own = |(key, _): &&mut (Key, Value)| key.list >= FIRST_SYSTEM_LIST;
            let mut own: Vec<_> = entries.iter_mut().filter(is_own).collect();
            let count = own.len();
            if let Some((_, Value::Record(record))) = own.get_mut(nth % count.max(1)) {
                let record = Arc::make_mut(record);
                let at = at % record.len().max(1) / 4 * 4;
                let len = len.min(record.len() - at);
                record[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
            }
        });
    }

    /// The last record or chunk of a list has a greater index.
    fn forge_index(&self, image: &mut [u8], input: &mut Input<'_>) {
        let Some(which) = input.pick(&self.nodes_that(|node| node.level == 0)) else { return };
        let (first, number) = (input.below(1 << 16), input.number());
        self.try_leaf(image, which, first, |entries, nth| {
            let kind = |at: usize| entries.get(at).map(|(key, _)| (key.list, key.space));
            let is_last = |&at: &usize| {
                kind(at) != kind(at + 1) && kind(at).is_some_and(|(_, space)| space != Space::List)
            };
            let ends: Vec<usize> = (0..entries.len()).filter(is_last).collect();
            if let Some(&at) = ends.get(nth % ends.len().max(1)) {
                let of_chunks = entries[at].0.space == Space::Chunks;
                let max = if of_chunks { MAX_PAGE_COUNT / CHUNK_PAGES - 1 } else { u64::MAX };
                entries[at].0.index = entries[at].0.index.max(number.min(max));
            }
        });
    }

    /// A partial segment of the log says that ranges were changed, or are still to be.
    fn forge_log(&self, image: &mut [u8], input: &mut Input<'_>) {
        let all: Vec<_> = self.records().collect();
        let Some(place) = input.pick(&all) else { return };
        let mut out = Vec::new();
        for _ in 0..=input.below(3) {
            let (a, b) = (1 + input.below(64) as u64, 1 + input.below(64) as u64);
            let (first_page, count) = input.pages();
            let to_page = input.number().min(MAX_PAGE_COUNT - count);
            let shift = Task::Shift { from: a, from_page: first_page, to: b, to_page, count };
            let put_off = |out: &mut Vec<u8>, task| {
                let value = &rearrangement::encode(0, &[task])[..];
                let index = REARRANGEMENT_INDEX;
                Record::PutRecord { list: VERSIONS_LIST, index, value }.encode(out);
            };
            match input.byte() % 7 {
                0 => Record::ZeroPages { list: a, first_page, count }.encode(&mut out),
                1 => Record::PunchPages { list: a, first_page, count }.encode(&mut out),
                2 => Record::MovePages { from: a, from_page: first_page, to: b, to_page, count }
                    .encode(&mut out),
                3 => Record::SwapRange { a, b, first_page, count }.encode(&mut out),
                4 => put_off(&mut out, Task::Punch { list: a, first_page, count }),
                5 => put_off(&mut out, Task::Swap { a, b, first_page, count }),
                _ => put_off(&mut out, shift),
            }
        }
        let records = &mut image[place];
        if out.len() <= records.len() {
            records.fill(0);
            records[..out.len()].copy_from_slice(&out);
        }
    }

    /// Changes a leaf, at the first of some places, from `first` on, where it takes as many bytes
    /// as before, if a record is made longer or shorter where needed.
    fn try_leaf(
        &self,
        image: &mut [u8],
        which: usize,
        first: usize,
        change: impl Fn(&mut [(Key, Value)], usize),
    ) {
        let _ = (first..first + MAX_TRIES).any(|nth| {
            self.change_node(image, which, |entries| {
                if let Entries::Leaf(entries) = entries {
                    change(entries, nth);
                }
            })
        });
    }
}
