//! Damage that no checksum tells: an image is changed, and then every checksum and every pointer's
//! checksum is put right. What an adversary would do, and what a bug in the engine would.

mod lies;

use std::collections::HashMap;
use std::ops::Range;

use dendro_base::units::PAGE_SIZE;
use dendro_base::{Rng, Uuid};
use dendro_check::{Error, Volume};
use dendro_device::MemoryDevice;
use dendro_disk::MAX_RECORD_LEN_BYTES;
use dendro_format::node::NodeInfo;
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use dendro_format::testing::mutate;
use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::{
    Addr, ChildPtr, Entries, Key, NodePtr, PartialHeader, Value, checksum, checksum_append, node,
};

pub use self::lies::by_input;

/// An image that can be forged.
pub struct Forge {
    image: Vec<u8>,
    /// The parts of segments that lie elsewhere.
    moved: Vec<Moved>,
    superblock_at: usize,
    checkpoint: Range<usize>,
    /// The map's nodes, children before parents.
    nodes: Vec<ForgedNode>,
    /// The partial segments behind the checkpoint.
    log: Vec<ForgedPartial>,
}

struct ForgedNode {
    place: NodePtr,
    range: Range<usize>,
    parent: Option<Range<usize>>,
    level: u8,
    /// Whether it is a leaf that names blocks.
    has_blocks: bool,
    /// Whether it is a leaf with records of the disk's own.
    has_own: bool,
}

impl ForgedNode {
    fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

struct ForgedPartial {
    start: usize,
    records: Range<usize>,
}

/// A part of a retired segment, which lies elsewhere.
struct Moved {
    from: Range<usize>,
    to: usize,
}

/// Where what has this address lies in the image.
fn place_of(addr: Addr, moved: &[Moved]) -> usize {
    let at = addr.bytes() as usize;
    let part = moved.iter().find(|part| part.from.contains(&at));
    part.map_or(at, |part| part.to + (at - part.from.start))
}

impl Forge {
    /// Learns where everything lies in a sound image.
    ///
    /// # Errors
    /// When it is not sound.
    pub fn new(image: &[u8]) -> Result<Self, Error> {
        let device = MemoryDevice::from_bytes(image);
        let volume = Volume::open(&device)?;
        let found = volume.superblocks().current();
        let layout = volume.layout();
        let parts = found.superblock.retired.iter().filter_map(|one| one.moved_range(layout));
        let parts = parts.map(|(from, len_bytes, to)| Moved {
            from: from as usize..(from + len_bytes) as usize,
            to: to as usize,
        });
        let moved: Vec<_> = parts.collect();
        let start = place_of(found.superblock.checkpoint_addr, &moved);
        let checkpoint = volume.checkpoint()?;
        let mut parents: HashMap<NodePtr, Range<usize>> = HashMap::new();
        let mut nodes = Vec::new();
        for node in volume.nodes(&checkpoint) {
            let node = node?;
            let start = place_of(node.place.addr, &moved);
            let range = start..start + node.place.len_bytes as usize;
            if let Entries::Inner(children) = &node.entries {
                let place = |(_, child): &(_, ChildPtr)| (child.place, range.clone());
                parents.extend(children.iter().map(place));
            }
            let has = |is_wanted: fn(&(Key, Value)) -> bool| match &node.entries {
                Entries::Leaf(entries) => entries.iter().any(is_wanted),
                Entries::Inner(_) => false,
            };
            nodes.push(ForgedNode {
                place: node.place,
                range,
                parent: parents.remove(&node.place),
                level: node.info.level,
                has_blocks: has(|(_, value)| matches!(value, Value::Chunk(_))),
                has_own: has(|(key, _)| key.list >= FIRST_SYSTEM_LIST),
            });
        }
        nodes.reverse();
        let log = volume.log(&checkpoint).map(|partial| {
            let PartialHeader { segment, offset_bytes, .. } = partial.header;
            let start = layout.segment_offset(segment) + u64::from(offset_bytes);
            let start = place_of(Addr::from_bytes(start), &moved);
            let records = start + partial.header.records_offset_bytes as usize;
            let records = records..records + partial.header.records_len_bytes as usize;
            ForgedPartial { start, records }
        });
        Ok(Self {
            image: image.to_vec(),
            superblock_at: found.offset as usize,
            checkpoint: start..start + found.superblock.checkpoint_len_bytes as usize,
            nodes,
            log: log.collect(),
            moved,
        })
    }

    /// The parts whose damage is most telling: the superblock, the checkpoint, the nodes, and the
    /// log's headers and records.
    #[must_use]
    pub fn targets(&self) -> Vec<Range<usize>> {
        let superblock = self.superblock_at..self.superblock_at + 256;
        let nodes = self.nodes.iter().map(ForgedNode::range);
        let log = self
            .log
            .iter()
            .flat_map(|partial| [partial.start..partial.start + 128, partial.records.clone()]);
        [superblock, self.checkpoint.clone()].into_iter().chain(nodes).chain(log).collect()
    }

    /// Where the nodes of the map lie, children before their parents.
    pub fn nodes(&self) -> impl Iterator<Item = Range<usize>> {
        self.nodes.iter().map(ForgedNode::range)
    }

    /// Where the checkpoint lies.
    #[must_use]
    pub fn checkpoint(&self) -> Range<usize> {
        self.checkpoint.clone()
    }

    /// Where the records of the log behind the checkpoint lie.
    pub fn records(&self) -> impl Iterator<Item = Range<usize>> {
        self.log.iter().map(|partial| partial.records.clone())
    }

    /// The image after `damage`, with all checksums right.
    #[must_use]
    pub fn forge(&self, damage: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut image = self.image.clone();
        damage(&mut image);
        for node in &self.nodes {
            let Range { start, end } = node.range();
            let crc32c = checksum(&image[start + 8..end]);
            put(&mut image, start + 4, crc32c);
            let pointer = match &node.parent {
                Some(parent) => {
                    find(&image[parent.clone()], node.place.crc32c).map(|at| parent.start + at)
                }
                None => Some(self.checkpoint.start + 52),
            };
            // A parent that was damaged itself may not name its child any more.
            if let Some(at) = pointer {
                put(&mut image, at, crc32c);
            }
        }
        let mut prev_crc32c = None;
        for partial in &self.log {
            if let Some(crc32c) = prev_crc32c {
                put(&mut image, partial.start + 48, crc32c);
            }
            let header = checksum(&image[partial.start + 8..partial.start + 128]);
            let crc32c = checksum_append(header, &image[partial.records.clone()]);
            put(&mut image, partial.start + 4, crc32c);
            prev_crc32c = Some(crc32c);
        }
        let checkpoint = self.checkpoint.clone();
        let crc32c = checksum(&image[checkpoint.start + 8..checkpoint.end]);
        put(&mut image, checkpoint.start + 4, crc32c);
        let crc32c = checksum(&image[checkpoint]);
        put(&mut image, self.superblock_at + 84, crc32c);
        let end = self.superblock_at + SUPERBLOCK_LEN_BYTES;
        let crc32c = checksum(&image[self.superblock_at + 12..end]);
        put(&mut image, self.superblock_at + 8, crc32c);
        image
    }

    /// The image with other children in the map's root, as `change` has it, which is given where
    /// the root lies. A child that is the root itself has the checksum that the root will have.
    ///
    /// # Panics
    /// When the root is a leaf, or takes another length after the change.
    #[must_use]
    pub fn with_root(&self, change: impl FnOnce(NodePtr, &mut [(Key, ChildPtr)])) -> Vec<u8> {
        let root = self.nodes.len() - 1;
        self.forge(|image| {
            let is_changed = self.change_node(image, root, |entries| match entries {
                Entries::Inner(children) => change(self.nodes[root].place, children),
                Entries::Leaf(_) => panic!("the root is a leaf"),
            });
            assert!(is_changed, "places take as much as they did");
        })
    }

    fn node(&self, image: &[u8], which: usize) -> (NodeInfo, Entries) {
        let bytes = &image[self.nodes[which].range()];
        let uuid = Uuid(bytes[24..40].try_into().expect("16 bytes"));
        node::decode(bytes, &uuid).expect("it is sound")
    }

    /// Changes the entries of a node. It keeps its checksum, so what names it stays right, be it
    /// the node itself or one below it. Says whether it was changed: not if it would take another
    /// length, and no record can make up for that.
    fn change_node(
        &self,
        image: &mut [u8],
        which: usize,
        change: impl FnOnce(&mut Entries),
    ) -> bool {
        let (info, before) = self.node(image, which);
        let mut entries = before.clone();
        change(&mut entries);
        let place = self.nodes[which].place;
        let bytes = &mut image[self.nodes[which].range()];
        if let Entries::Leaf(entries) = &mut entries {
            fit(&info, entries, bytes.len());
        }
        let (mut changed, _) = node::encode(&info, &entries);
        if entries == before || changed.len() != bytes.len() {
            return false;
        }
        give_checksum(&mut changed, place.crc32c);
        put(&mut changed, 4, place.crc32c);
        bytes.copy_from_slice(&changed);
        true
    }

    /// Forges what a fuzzer's input says: patches, each a place among the telling parts (4 bytes),
    /// a length (1 byte), and the bytes that go there.
    #[must_use]
    pub fn patched(&self, mut input: &[u8]) -> Vec<u8> {
        let targets = self.targets();
        let total: usize = targets.iter().map(ExactSizeIterator::len).sum();
        self.forge(|image| {
            while let Some((head, rest)) = input.split_at_checked(5) {
                let place = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
                let len = usize::from(head[4] % 16 + 1).min(rest.len());
                let mut at = place % total;
                for target in &targets {
                    if at < target.len() {
                        let start = target.start + at;
                        let len = len.min(image.len() - start).min(PAGE_SIZE);
                        image[start..start + len].copy_from_slice(&rest[..len]);
                        break;
                    }
                    at -= target.len();
                }
                input = &rest[len..];
            }
        })
    }
}

/// Changes one of `targets` in some way.
pub fn mutate_one(rng: &mut Rng, targets: &[Range<usize>], image: &mut [u8]) {
    let target = targets[rng.below(targets.len() as u64) as usize].clone();
    let mut bytes = image[target.clone()].to_vec();
    let len = bytes.len();
    mutate(rng, &mut bytes);
    bytes.resize(len, 0);
    image[target].copy_from_slice(&bytes);
}

/// Makes records of clients longer or shorter, so that a leaf takes `len_bytes`, if that can be.
pub fn fit(info: &NodeInfo, entries: &mut [(Key, Value)], len_bytes: usize) {
    let encoded = |entries: &[(Key, Value)]| {
        let mut bytes = Vec::new();
        node::encode_leaf(info, entries, &mut bytes);
        bytes.len()
    };
    let mut len = encoded(entries);
    for at in (0..entries.len()).rev() {
        // A length may take a byte more when it gets larger.
        for _ in 0..3 {
            let (key, Value::Record(value)) = &entries[at] else { break };
            let wanted = (value.len() + len_bytes).saturating_sub(len).min(MAX_RECORD_LEN_BYTES);
            if wanted == value.len() || key.list >= FIRST_SYSTEM_LIST {
                break;
            }
            let mut value = value.to_vec();
            value.resize(wanted, 0);
            entries[at].1 = Value::Record(value.into());
            len = encoded(entries);
        }
    }
}

/// Gives the node in `bytes` a checksum, by what is in a field of its header that readers ignore. A
/// checksum is linear: each bit of the field that is set changes the same bits of it.
fn give_checksum(bytes: &mut [u8], crc32c: u32) {
    const FIELD: usize = 56;
    let checksum_with = |bytes: &mut [u8], field: u32| {
        bytes[FIELD..FIELD + 4].copy_from_slice(&field.to_le_bytes());
        checksum(&bytes[8..])
    };
    let without = checksum_with(bytes, 0);
    // For each bit of the checksum what changes that bit and lower ones only, and by which bits of
    // the field.
    let mut rows: [Option<(u32, u32)>; 32] = [None; 32];
    for bit in 0..32 {
        let (mut effect, mut field) = (checksum_with(bytes, 1 << bit) ^ without, 1_u32 << bit);
        while let Some(high) = effect.checked_ilog2() {
            let Some((other, bits)) = rows[high as usize] else {
                rows[high as usize] = Some((effect, field));
                break;
            };
            (effect, field) = (effect ^ other, field ^ bits);
        }
    }
    let (mut missing, mut field) = (without ^ crc32c, 0);
    while let Some(high) = missing.checked_ilog2() {
        let (effect, bits) = rows[high as usize].expect("32 bits give any checksum");
        (missing, field) = (missing ^ effect, field ^ bits);
    }
    assert_eq!(checksum_with(bytes, field), crc32c);
}

fn put(image: &mut [u8], at: usize, crc32c: u32) {
    image[at..at + 4].copy_from_slice(&crc32c.to_le_bytes());
}

fn find(bytes: &[u8], crc32c: u32) -> Option<usize> {
    bytes.windows(4).position(|window| window == crc32c.to_le_bytes())
}
