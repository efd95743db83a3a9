//! Nodes of the map, a B+tree. A node has as many bytes as it needs, and lies where the log placed
//! it. A pointer to it holds its length and checksum.

use std::mem::size_of;
use std::sync::Arc;

use dendro_base::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::chunk::{CHUNK_PAGES, Chunk, MAX_PAGE_COUNT};
use crate::hints::Hints;
use crate::key::{Key, Space};
use crate::layout::Addr;
use crate::varint::{Reader, put};
use crate::{Malformed, Result, checksum};

/// Bytes in a node's header.
pub const NODE_HEADER_LEN_BYTES: usize = 64;
/// No node is longer than this.
pub const MAX_NODE_LEN_BYTES: usize = 1 << 16;
/// No node above the leaves has more children: with so many, it is never too long.
pub const MAX_CHILD_COUNT: usize = 512;
const MAGIC: [u8; 4] = *b"DND1";
const LEAF_VERSION: u16 = 1;
/// The version of nodes above the leaves. In version 1 they did not hold the newest epoch below.
const INNER_VERSION: u16 = 2;

const VALUE_MASK: u8 = 0b11;
const VALUE_LIST: u8 = 0;
const VALUE_RECORD: u8 = 1;
const VALUE_CHUNK: u8 = 2;
const VALUE_TOMBSTONE: u8 = 3;
const TAG_LIST_CHANGES: u8 = 1 << 2;
const SPACE_SHIFT: u8 = 3;
const TAG_VERSION_CHANGES: u8 = 1 << 5;
const TAG_UNUSED: u8 = 0b11 << 6;

/// The header of a node. Its entries follow.
///
/// | offset | size | field            | meaning                                        |
/// |-------:|-----:|------------------|------------------------------------------------|
/// |      0 |    4 | `magic`          | "DND1"                                         |
/// |      4 |    4 | `crc32c`         | over bytes 8..`len`                            |
/// |      8 |    2 | `version`        | of a leaf 1, above the leaves 2                |
/// |     10 |    1 | `level`          | 0 for a leaf                                   |
/// |     11 |    1 | `flags`          | zero                                           |
/// |     12 |    4 | `len`            | bytes of the node                              |
/// |     16 |    4 | `entry_count`    | at least 1                                     |
/// |     20 |    4 | `reserved_a`     | zero                                           |
/// |     24 |   16 | `uuid`           | the volume                                     |
/// |     40 |    8 | `checkpoint_seq` | the checkpoint that wrote it                   |
/// |     48 |    8 | `log_seq`        | the main log's next partial segment at the time|
/// |     56 |    8 | `reserved_b`     | zero                                           |
///
/// An entry is a tag, the key as far as it differs from the one before (a first entry: from
/// [`Key::MIN`]), and the value. The tag's bits 0 and 1 are the value's kind (0 list, 1 record, 2
/// chunk, 3 tombstone; 0 in nodes above the leaves), bit 2 says that the list changes, bits 3 and 4
/// are the key's space, bit 5 says that branch and epoch change. Then, each as LEB128: the step to
/// the list, if it changes; the index, as a step if list and space are the same; branch and epoch,
/// if they change. Bits 6 and 7 are zero. A list's value is its hints (16 bits), a record's is its
/// length and bytes, a chunk's is as [`Chunk::encode`] describes, a tombstone's is nothing, a
/// child's is its address, length and checksum, and since version 2 the newest epoch that is named
/// below it.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NodeHeaderV1 {
    magic: [u8; 4],
    crc32c: U32,
    version: U16,
    level: u8,
    flags: u8,
    len: U32,
    entry_count: U32,
    reserved_a: U32,
    uuid: [u8; 16],
    checkpoint_seq: U64,
    log_seq: U64,
    reserved_b: [u8; 8],
}

const _: () = assert!(size_of::<NodeHeaderV1>() == NODE_HEADER_LEN_BYTES);

/// The address, length and checksum of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodePtr {
    /// Where it starts.
    pub addr: Addr,
    /// Its length in bytes.
    pub len_bytes: u32,
    /// The checksum in its header.
    pub crc32c: u32,
}

/// A child as its parent describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildPtr {
    /// Where it lies.
    pub place: NodePtr,
    /// No entry below it has a later epoch in its key. A search for later ones need not read it.
    pub newest_epoch: u64,
}

impl ChildPtr {
    /// A child of which only the place is known.
    #[must_use]
    pub const fn of_unknown_age(place: NodePtr) -> Self {
        Self { place, newest_epoch: u64::MAX }
    }
}

/// The value of an entry of the map.
// Values are moved often. A tag of eight bytes aligns what follows it, so a move reads that in the
// units in which it was written, and does not wait until the processor has stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Value {
    /// A list exists; its hints.
    List(Hints),
    /// A record's bytes.
    Record(Arc<[u8]>),
    /// Where pages lie.
    Chunk(Arc<Chunk>),
    /// A list or a record was deleted in this version; this hides older versions.
    Tombstone,
}

impl Value {
    /// Whether such a value may lie under keys of `space`.
    #[must_use]
    pub const fn lies_in(&self, space: Space) -> bool {
        match self {
            Self::List(_) => matches!(space, Space::List),
            Self::Record(_) => matches!(space, Space::Records),
            Self::Chunk(_) => matches!(space, Space::Chunks),
            Self::Tombstone => matches!(space, Space::List | Space::Records),
        }
    }
}

/// The entries of a node, in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// A leaf's keys and values.
    Leaf(Vec<(Key, Value)>),
    /// The first key that may lie under each child, and the child.
    Inner(Vec<(Key, ChildPtr)>),
}

impl Entries {
    /// No entry in or below the node has a later epoch in its key.
    #[must_use]
    pub fn newest_epoch(&self) -> u64 {
        let newest = match self {
            Self::Leaf(entries) => entries.iter().map(|(key, _)| key.epoch).max(),
            Self::Inner(entries) => entries.iter().map(|(_, child)| child.newest_epoch).max(),
        };
        newest.unwrap_or(0)
    }
}

/// The header of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// 0 for a leaf.
    pub level: u8,
    /// The volume.
    pub uuid: Uuid,
    /// The checkpoint that wrote it.
    pub checkpoint_seq: u64,
    /// The main log's next partial segment at the time.
    pub log_seq: u64,
}

/// The bytes of a node, and their checksum.
///
/// # Panics
/// As [`encode_leaf`] and [`encode_inner`].
#[must_use]
pub fn encode(info: &NodeInfo, entries: &Entries) -> (Vec<u8>, u32) {
    let mut out = Vec::new();
    let crc32c = match entries {
        Entries::Leaf(entries) => encode_leaf(info, entries, &mut out),
        Entries::Inner(entries) => encode_inner(info, entries.iter().copied(), &mut out),
    };
    (out, crc32c)
}

/// Makes `out` the bytes of a leaf. Returns their checksum.
///
/// # Panics
/// When there is no entry, they are not in order or are not at level 0, or take more than
/// [`MAX_NODE_LEN_BYTES`]: the map never writes such a node.
pub fn encode_leaf(info: &NodeInfo, entries: &[(Key, Value)], out: &mut Vec<u8>) -> u32 {
    assert_eq!(info.level, 0, "leaves are at level 0");
    let mut keys = KeyWriter::begin(out);
    for (key, value) in entries {
        encode_value(out, &mut keys, key, value);
    }
    finish(info, entries.len(), out)
}

/// Makes `out` the bytes of a node above the leaves. Returns their checksum.
///
/// # Panics
/// When there is no child, they are not in order or are at level 0, or there are more than
/// [`MAX_CHILD_COUNT`]: the map never writes such a node.
pub fn encode_inner(
    info: &NodeInfo,
    children: impl ExactSizeIterator<Item = (Key, ChildPtr)>,
    out: &mut Vec<u8>,
) -> u32 {
    let count = children.len();
    assert!(info.level > 0, "leaves are at level 0");
    assert!(count <= MAX_CHILD_COUNT, "a node has a bounded number of children");
    let mut keys = KeyWriter::begin(out);
    for (key, child) in children {
        keys.put(out, &key, 0);
        put(out, child.place.addr.0);
        put(out, u64::from(child.place.len_bytes));
        out.extend_from_slice(&child.place.crc32c.to_le_bytes());
        put(out, child.newest_epoch);
    }
    finish(info, count, out)
}

/// Writes the header in front of the entries.
fn finish(info: &NodeInfo, count: usize, out: &mut [u8]) -> u32 {
    assert!(
        count > 0 && out.len() <= MAX_NODE_LEN_BYTES,
        "a node has entries and a bounded length"
    );
    let header = NodeHeaderV1 {
        magic: MAGIC,
        crc32c: U32::ZERO,
        version: if info.level == 0 { LEAF_VERSION } else { INNER_VERSION }.into(),
        level: info.level,
        flags: 0,
        len: (out.len() as u32).into(),
        entry_count: (count as u32).into(),
        reserved_a: U32::ZERO,
        uuid: info.uuid.0,
        checkpoint_seq: info.checkpoint_seq.into(),
        log_seq: info.log_seq.into(),
        reserved_b: [0; 8],
    };
    out[..NODE_HEADER_LEN_BYTES].copy_from_slice(header.as_bytes());
    let crc32c = checksum(&out[8..]);
    out[4..8].copy_from_slice(&crc32c.to_le_bytes());
    crc32c
}

fn encode_value(out: &mut Vec<u8>, keys: &mut KeyWriter, key: &Key, value: &Value) {
    debug_assert!(value.lies_in(key.space), "a value lies in its own space");
    match value {
        Value::List(hints) => {
            keys.put(out, key, VALUE_LIST);
            let near_follows = if hints.near == 0 { 0 } else { Hints::NEAR_FOLLOWS };
            out.extend_from_slice(&(hints.bits | near_follows).to_le_bytes());
            if hints.near != 0 {
                put(out, hints.near);
            }
        }
        Value::Record(bytes) => {
            keys.put(out, key, VALUE_RECORD);
            put(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
        Value::Chunk(chunk) => {
            keys.put(out, key, VALUE_CHUNK);
            chunk.encode(out);
        }
        Value::Tombstone => keys.put(out, key, VALUE_TOMBSTONE),
    }
}

/// Reads a node: `bytes` are exactly its own.
///
/// # Errors
/// When they are not a node of volume `uuid`, or are damaged.
pub fn decode(bytes: &[u8], uuid: &Uuid) -> Result<(NodeInfo, Entries)> {
    decode_without(bytes, uuid, |_| false)
}

/// Reads a node as [`decode`] does, but for the bytes of the records whose keys are in `left_out`:
/// these have none.
///
/// # Errors
/// As [`decode`].
pub fn decode_without(
    bytes: &[u8],
    uuid: &Uuid,
    left_out: impl Fn(&Key) -> bool,
) -> Result<(NodeInfo, Entries)> {
    const WRONG: fn(&'static str) -> Malformed = |problem| Malformed::new("map node", problem);
    let (header, _) = NodeHeaderV1::ref_from_prefix(bytes).map_err(|_| WRONG("ends too early"))?;
    if header.magic != MAGIC {
        return Err(WRONG("there is none"));
    }
    if header.len.get() as usize != bytes.len() || bytes.len() > MAX_NODE_LEN_BYTES {
        return Err(WRONG("its length is wrong"));
    }
    if header.crc32c.get() != checksum(&bytes[8..]) {
        return Err(WRONG("its checksum is wrong"));
    }
    let newest_version = if header.level == 0 { LEAF_VERSION } else { INNER_VERSION };
    let version = header.version.get();
    if !(1..=newest_version).contains(&version) || header.uuid != uuid.0 {
        return Err(WRONG("it is of another version or volume"));
    }
    let info = NodeInfo {
        level: header.level,
        uuid: *uuid,
        checkpoint_seq: header.checkpoint_seq.get(),
        log_seq: header.log_seq.get(),
    };
    let mut reader = Reader::new(&bytes[NODE_HEADER_LEN_BYTES..], "map node");
    let count = header.entry_count.get();
    let max_count = if info.level == 0 { MAX_NODE_LEN_BYTES } else { MAX_CHILD_COUNT };
    if count == 0 || count as usize > max_count {
        return Err(WRONG("it has no entries, or too many"));
    }
    let entries = match info.level {
        0 => decode_leaf(&mut reader, count, left_out)?,
        _ => decode_inner(&mut reader, count, version >= INNER_VERSION)?,
    };
    if !reader.is_empty() {
        return Err(WRONG("bytes follow its last entry"));
    }
    Ok((info, entries))
}

/// The length of a node according to its header, so that a search of the segments can find its end.
///
/// # Errors
/// When `bytes` do not start with a node's header.
pub fn peek_len_bytes(bytes: &[u8]) -> Result<usize> {
    const WRONG: fn(&'static str) -> Malformed = |problem| Malformed::new("map node", problem);
    let (header, _) = NodeHeaderV1::ref_from_prefix(bytes).map_err(|_| WRONG("ends too early"))?;
    let len_bytes = header.len.get() as usize;
    if header.magic != MAGIC || !(NODE_HEADER_LEN_BYTES..=MAX_NODE_LEN_BYTES).contains(&len_bytes) {
        return Err(WRONG("there is none"));
    }
    Ok(len_bytes)
}

/// Room for `count` entries, but for no more than would fit into the bytes if they were small: the
/// count is not trusted.
fn room_for<T>(count: u32) -> Vec<T> {
    Vec::with_capacity(count.min(4096) as usize)
}

fn decode_leaf(
    reader: &mut Reader<'_>,
    count: u32,
    left_out: impl Fn(&Key) -> bool,
) -> Result<Entries> {
    let mut keys = KeyReader::default();
    let mut entries = room_for(count);
    let mut empty: Option<Arc<[u8]>> = None;
    for _ in 0..count {
        let (key, kind) = keys.next(reader)?;
        let value = match kind {
            VALUE_LIST => {
                let bytes = reader.take(2)?;
                let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
                let mut hints = Hints::of_bits(bits);
                if bits & Hints::NEAR_FOLLOWS != 0 {
                    hints.near = reader.varint()?;
                }
                Value::List(hints)
            }
            VALUE_RECORD => {
                let len: usize = reader.number()?;
                let bytes = reader.take(len)?;
                Value::Record(match left_out(&key) {
                    true => Arc::clone(empty.get_or_insert_with(|| Arc::from([]))),
                    false => Arc::from(bytes),
                })
            }
            VALUE_CHUNK => Value::Chunk(Arc::new(Chunk::decode(reader)?)),
            _ => Value::Tombstone,
        };
        if !value.lies_in(key.space) {
            return Err(reader.malformed("a value lies in another's space"));
        }
        entries.push((key, value));
    }
    Ok(Entries::Leaf(entries))
}

fn decode_inner(reader: &mut Reader<'_>, count: u32, tells_epochs: bool) -> Result<Entries> {
    let mut keys = KeyReader::default();
    let mut entries = room_for(count);
    for _ in 0..count {
        let (key, kind) = keys.next(reader)?;
        if kind != 0 {
            return Err(reader.malformed("a child is marked as a value"));
        }
        let addr = Addr(reader.varint()?);
        let len_bytes = reader.number()?;
        let place = NodePtr { addr, len_bytes, crc32c: reader.u32_le()? };
        let newest_epoch = if tells_epochs { reader.varint()? } else { u64::MAX };
        entries.push((key, ChildPtr { place, newest_epoch }));
    }
    Ok(Entries::Inner(entries))
}

/// Writes each key as its difference from the one before.
#[derive(Default)]
struct KeyWriter {
    last: Option<Key>,
}

impl KeyWriter {
    /// Begins a node in `out`, with room for the header.
    fn begin(out: &mut Vec<u8>) -> Self {
        out.clear();
        out.resize(NODE_HEADER_LEN_BYTES, 0);
        Self::default()
    }

    fn put(&mut self, out: &mut Vec<u8>, key: &Key, value_kind: u8) {
        assert!(self.last.is_none_or(|last| last < *key), "a node's keys are in order");
        let last = self.last.replace(*key).unwrap_or(Key::MIN);
        let list_changes = key.list != last.list;
        let version_changes = (key.branch, key.epoch) != (last.branch, last.epoch);
        let mut tag = value_kind | (key.space as u8) << SPACE_SHIFT;
        if list_changes {
            tag |= TAG_LIST_CHANGES;
        }
        if version_changes {
            tag |= TAG_VERSION_CHANGES;
        }
        out.push(tag);
        if list_changes {
            put(out, key.list - last.list);
        }
        let is_step = !list_changes && key.space == last.space;
        put(out, if is_step { key.index - last.index } else { key.index });
        if version_changes {
            put(out, u64::from(key.branch));
            put(out, key.epoch);
        }
    }
}

/// Reads what [`KeyWriter`] wrote, and checks the order of the keys.
#[derive(Default)]
struct KeyReader {
    last: Option<Key>,
}

impl KeyReader {
    fn next(&mut self, reader: &mut Reader<'_>) -> Result<(Key, u8)> {
        let last = self.last.unwrap_or(Key::MIN);
        let tag = reader.byte()?;
        if tag & TAG_UNUSED != 0 {
            return Err(reader.malformed("an entry's tag has unknown bits"));
        }
        let space = Space::from_number(tag >> SPACE_SHIFT & 0b11)
            .ok_or(reader.malformed("a key is in an unknown space"))?;
        let overflow = reader.malformed("a key's number is out of range");
        let list_changes = tag & TAG_LIST_CHANGES != 0;
        let step = if list_changes { reader.varint()? } else { 0 };
        let list = last.list.checked_add(step).ok_or(overflow)?;
        let base = if !list_changes && space == last.space { last.index } else { 0 };
        let index = base.checked_add(reader.varint()?).ok_or(overflow)?;
        let (branch, epoch) = if tag & TAG_VERSION_CHANGES == 0 {
            (last.branch, last.epoch)
        } else {
            (reader.number()?, reader.varint()?)
        };
        let key = Key { list, space, index, branch, epoch };
        let last_index = match space {
            Space::List => 0,
            Space::Records => u64::MAX,
            Space::Chunks => MAX_PAGE_COUNT / CHUNK_PAGES - 1,
        };
        if index > last_index {
            return Err(reader.malformed("a key's index is out of range"));
        }
        if self.last.is_some_and(|last| last >= key) {
            return Err(reader.malformed("keys are out of order"));
        }
        self.last = Some(key);
        Ok((key, tag & VALUE_MASK))
    }
}
