//! What lies where in a sound image, and what of it a damage has touched.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use dendro_base::units::PAGE_SIZE;
use dendro_check::Volume;
use dendro_device::MemoryDevice;
use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::{Addr, CHUNK_PAGES, Entries, Key, NodePtr, Record, Value};

/// How images are compared.
const PIECE_LEN_BYTES: usize = 4096;

/// What lies somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Organ {
    /// One of the newest superblocks.
    Superblock,
    Checkpoint,
    /// A partial segment of the log behind the checkpoint: its header, its records.
    Log,
    /// A node of the map, with the first and the last list that it may have something of.
    Node(u64, u64),
    /// The block of a page of a list.
    Block(u64, u64),
}

/// What lies where in an image.
pub(super) struct Anatomy {
    parts: Vec<(Range<usize>, Organ)>,
    /// Blocks that the log names are verified when it is rolled forward.
    log_blocks: Vec<Range<usize>>,
    /// All places of each node of the map.
    nodes: Vec<Vec<Range<usize>>>,
}

/// What a damage has touched, if that is blocks and nodes alone.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pages: BTreeSet<(u64, u64)>,
    /// Lists from the first to the second one.
    lists: Vec<(u64, u64)>,
    /// The log may have moved pages inside their lists.
    may_have_moved: bool,
}

impl Touched {
    /// Whether the map may have lost something of the list.
    pub(super) fn has_list(&self, list: u64) -> bool {
        self.lists.iter().any(|(from, to)| (*from..=*to).contains(&list))
    }

    /// Whether a page of a list may be lost.
    pub(super) fn has_page(&self, list: u64, page: u64) -> bool {
        let is_touched = match self.may_have_moved {
            true => self.pages.range((list, 0)..=(list, u64::MAX)).next().is_some(),
            false => self.pages.contains(&(list, page)),
        };
        is_touched || self.has_list(list)
    }

    /// Whether a node was touched.
    pub(super) fn has_nodes(&self) -> bool {
        !self.lists.is_empty()
    }

    /// Whether the map may have lost something of the disk's own lists.
    pub(super) fn has_system_lists(&self) -> bool {
        self.lists.iter().any(|(_, to)| *to >= FIRST_SYSTEM_LIST)
    }
}

impl Anatomy {
    /// Learns where everything lies; `None` if the image is not sound.
    pub(super) fn of(image: &[u8]) -> Option<Self> {
        let device = MemoryDevice::from_bytes(image);
        let volume = Volume::open(&device).ok()?;
        let checkpoint = volume.checkpoint().ok()?;
        let range = |start: u64, len: u64| start as usize..(start + len) as usize;
        let superblock = volume.superblock();
        let newest = volume.superblocks().all().iter().rev().take(3);
        let mut parts: Vec<_> =
            newest.map(|found| (range(found.offset, 256), Organ::Superblock)).collect();
        let at = superblock.checkpoint_addr.bytes();
        parts.push((range(at, superblock.checkpoint_len_bytes.into()), Organ::Checkpoint));
        let mut ends: HashMap<NodePtr, (u64, u64)> = HashMap::new();
        let mut nodes = Vec::new();
        for node in volume.nodes(&checkpoint) {
            let node = node.ok()?;
            let (from, to) = ends.remove(&node.place).unwrap_or((0, u64::MAX));
            let place = |addr: Addr| range(addr.bytes(), node.place.len_bytes.into());
            let mirror = volume.mirror_of(node.place.addr);
            nodes.push([Some(node.place.addr), mirror].into_iter().flatten().map(place).collect());
            parts.push((place(node.place.addr), Organ::Node(from, to)));
            match &node.entries {
                Entries::Inner(children) => {
                    let firsts = children.iter().map(|(key, _)| key.list);
                    let nexts = firsts.clone().skip(1).chain([to]);
                    let each = children.iter().zip(firsts.zip(nexts));
                    ends.extend(each.map(|((_, child), lists)| (child.place, lists)));
                }
                Entries::Leaf(entries) => entries.iter().for_each(|(key, value)| {
                    parts.extend(blocks_of(key, value));
                }),
            }
        }
        let mut log_blocks = Vec::new();
        for partial in volume.log(&checkpoint) {
            let header = &partial.header;
            let start =
                volume.layout().segment_offset(header.segment) + u64::from(header.offset_bytes);
            parts.push((range(start, 128), Organ::Log));
            let records = start + u64::from(header.records_offset_bytes);
            parts.push((range(records, header.records_len_bytes.into()), Organ::Log));
            for record in partial.records().flatten() {
                match record.record {
                    Record::WriteRun { addr, crcs, .. } => {
                        log_blocks.push(range(addr.bytes(), (crcs.len() * PAGE_SIZE) as u64));
                    }
                    Record::WriteBlock { block, .. } => {
                        log_blocks.push(range(block.addr.bytes(), block.len_bytes.into()));
                    }
                    _ => {}
                }
            }
        }
        parts.retain(|(place, _)| !place.is_empty() && place.end <= image.len());
        log_blocks.retain(|place| place.end <= image.len());
        Some(Self { parts, log_blocks, nodes })
    }

    /// Whether there is a log to be rolled forward.
    pub(super) fn has_log(&self) -> bool {
        self.parts.iter().any(|(_, organ)| *organ == Organ::Log)
    }

    /// All places of each node of the map.
    pub(super) fn nodes(&self) -> &[Vec<Range<usize>>] {
        &self.nodes
    }

    /// The places of structures on which much depends.
    pub(super) fn structures(&self) -> impl Iterator<Item = &Range<usize>> {
        let is_structure = |organ: &Organ| !matches!(organ, Organ::Block(..));
        self.parts.iter().filter(move |(_, organ)| is_structure(organ)).map(|(place, _)| place)
    }

    /// The places of pages that some version has.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &Range<usize>> {
        let of_map = self.parts.iter().filter(|(_, organ)| matches!(organ, Organ::Block(..)));
        of_map.map(|(place, _)| place).chain(&self.log_blocks)
    }

    /// What was touched, if it is nothing but nodes and blocks of the checkpointed map.
    pub(super) fn touched(&self, before: &[u8], after: &[u8]) -> Option<Touched> {
        if before.len() != after.len() {
            return None;
        }
        let mut restored = after.to_vec();
        let mut touched = Touched { may_have_moved: self.has_log(), ..Touched::default() };
        for (place, organ) in &self.parts {
            if before[place.clone()] == after[place.clone()] {
                continue;
            }
            match *organ {
                Organ::Superblock | Organ::Checkpoint | Organ::Log => return None,
                Organ::Node(from, to) => touched.lists.push((from, to)),
                Organ::Block(list, page) => drop(touched.pages.insert((list, page))),
            }
            restored[place.clone()].copy_from_slice(&before[place.clone()]);
        }
        let differs = |place: &Range<usize>| before[place.clone()] != after[place.clone()];
        if self.log_blocks.iter().any(differs) {
            return None;
        }
        let mut pieces = before.chunks(PIECE_LEN_BYTES).zip(restored.chunks(PIECE_LEN_BYTES));
        pieces.all(|(before, restored)| before == restored).then_some(touched)
    }
}

/// The blocks that an entry of the map names.
fn blocks_of(key: &Key, value: &Value) -> Vec<(Range<usize>, Organ)> {
    let Value::Chunk(chunk) = value else { return Vec::new() };
    let block = |(slot, page): (u32, dendro_format::PageRef)| {
        let start = page.addr.bytes() as usize;
        let place = start..start + usize::from(page.len_bytes);
        (place, Organ::Block(key.list, key.index * CHUNK_PAGES + u64::from(slot)))
    };
    chunk.iter().map(block).collect()
}
