//! Small volumes, laid down by hand.

#![allow(dead_code, unreachable_pub, reason = "a module that several tests share")]

use std::collections::BTreeMap;
use std::sync::Arc;

use dendro_base::units::{PAGE_SIZE, align_up_usize};
use dendro_base::{Timestamp, Uuid};
use dendro_check::{FindingKind, Options, Report, verify};
use dendro_device::MemoryDevice;
use dendro_format::checkpoint::HeadPosition;
use dendro_format::node::{self, NodeInfo};
use dendro_format::partial::HEADER_LEN_BYTES;
use dendro_format::{
    Addr, Checkpoint, ChildPtr, Chunk, Entries, Head, Hints, Key, Layout, NodePtr, PageRef,
    PartialHeader, Record, SegmentNo, Space, Superblock, Usage, Value, checksum,
};

pub const UUID: Uuid = Uuid([0x5a; 16]);
pub const SEGMENT_SIZE: usize = 128 << 10;
pub const LOG_SEGMENT: u32 = 2;
pub const MAP_SEGMENT: u32 = 3;
pub const NEXT_SEGMENT: u32 = 5;
/// List 1 has the pages, list 2 is empty, and this is the next number.
pub const NEXT_LIST: u64 = 3;

pub fn layout() -> Layout {
    Layout::new(17, 16).expect("it is within bounds")
}

/// A partial segment to be appended.
#[derive(Clone, Debug)]
pub struct Part {
    pub header: PartialHeader,
    pub payload: Vec<u8>,
    pub records: Vec<u8>,
}

impl Part {
    pub fn new(head: Head, segment: u32, offset: usize, seq: u64, prev_crc32c: u32) -> Self {
        let header = PartialHeader {
            class: 0,
            head,
            len_bytes: 0,
            uuid: UUID,
            seq,
            segment: SegmentNo(segment),
            offset_bytes: offset as u32,
            prev_crc32c,
            next_segment: SegmentNo(NEXT_SEGMENT),
            records_offset_bytes: 0,
            records_len_bytes: 0,
            complete_len_bytes: u32::MAX,
            commit_seq: seq,
            durable_seq: 0,
            time: Timestamp(seq as i64),
            epoch: 1,
        };
        Self { header, payload: Vec::new(), records: Vec::new() }
    }

    /// Where payload goes next.
    pub fn addr(&self) -> Addr {
        let start = layout().segment_offset(self.header.segment);
        let at = self.header.offset_bytes as usize + PAGE_SIZE + self.payload.len();
        Addr::from_bytes(start + at as u64)
    }

    /// Adds a block in whole grains.
    pub fn push(&mut self, bytes: &[u8]) -> Addr {
        let addr = self.addr();
        self.payload.extend_from_slice(bytes);
        self.payload.resize(align_up_usize(self.payload.len(), 64), 0);
        addr
    }

    pub fn push_block(&mut self, list: u64, page: u64, bytes: &[u8]) -> PageRef {
        let block = PageRef {
            addr: self.push(bytes),
            crc32c: checksum(bytes),
            len_bytes: bytes.len() as u16,
            compression: 0,
            flags: 0,
        };
        Record::WriteBlock { list, page, block }.encode(&mut self.records);
        block
    }

    pub fn len(&self) -> usize {
        let records_at = PAGE_SIZE + self.payload.len();
        align_up_usize(records_at + self.records.len(), PAGE_SIZE)
    }

    /// Lays it down in an image and returns its checksum.
    pub fn write(mut self, image: &mut [u8]) -> u32 {
        let len = self.len();
        let records_at = PAGE_SIZE + self.payload.len();
        self.header.len_bytes = len as u32;
        self.header.records_offset_bytes = records_at as u32;
        self.header.records_len_bytes = self.records.len() as u32;
        self.header.complete_len_bytes =
            self.header.complete_len_bytes.min(self.records.len() as u32);
        let start = self.header.segment.0 as usize * SEGMENT_SIZE;
        let at = start + self.header.offset_bytes as usize;
        let bytes = &mut image[at..at + len];
        bytes[HEADER_LEN_BYTES..].fill(0);
        bytes[PAGE_SIZE..records_at].copy_from_slice(&self.payload);
        bytes[records_at..records_at + self.records.len()].copy_from_slice(&self.records);
        self.header.encode_into(bytes)
    }
}

/// A volume under construction.
pub struct Builder {
    pub log: Part,
    pub map: Part,
    pub usage: BTreeMap<u32, u32>,
    pub live_bytes: u64,
    pub superblock: Superblock,
    pub checkpoint: Checkpoint,
    pub checkpoint_seq_of_nodes: u64,
}

impl Builder {
    pub fn new() -> Self {
        let position = |segment| HeadPosition { segment: SegmentNo(segment), offset_bytes: 0 };
        Self {
            log: Part::new(Head::Main, LOG_SEGMENT, 0, 1, 0),
            map: Part::new(Head::Map, MAP_SEGMENT, 0, 1, 0),
            usage: BTreeMap::new(),
            live_bytes: 0,
            superblock: Superblock {
                uuid: UUID,
                seq: 0,
                compatible: 0,
                read_only: 0,
                incompatible: 0,
                layout: layout(),
                clean: false,
                compression: 0,
                cold_compression: 0,
                checkpoint_addr: Addr(0),
                checkpoint_len_bytes: 0,
                checkpoint_crc32c: 0,
                created: Timestamp(1),
                written: Timestamp(2),
                hash_key: [3; 16],
                label: "small".into(),
                retired: Vec::new(),
                checkpoint_mirror: None,
                max_len_bytes: 0,
                member_ends: Vec::new(),
            },
            checkpoint: Checkpoint {
                log_clock: 0,
                short_count: 0,
                zero_count: 0,
                counts_are_exact: false,
                totals_are_exact: false,
                identity: None,
                uuid: UUID,
                seq: 1,
                root: None,
                log: position(LOG_SEGMENT),
                log_seq: 2,
                log_prev_crc32c: 0,
                next_segment: SegmentNo(NEXT_SEGMENT),
                map: position(MAP_SEGMENT),
                next_list: NEXT_LIST,
                commit_seq: 1,
                epoch: 1,
                live_bytes: 0,
                time: Timestamp(3),
                usage_overrides: Vec::new(),
                mirrors: Vec::new(),
            },
            checkpoint_seq_of_nodes: 1,
        }
    }

    fn count(&mut self, segment: u32, len: usize) {
        let len = align_up_usize(len, 64);
        *self.usage.entry(segment).or_default() += len as u32;
        self.live_bytes += len as u64;
    }

    pub fn page(&mut self, page: u64, bytes: &[u8]) -> PageRef {
        self.count(LOG_SEGMENT, bytes.len());
        self.log.push_block(1, page, bytes)
    }

    pub fn node(&mut self, level: u8, entries: &Entries) -> NodePtr {
        let checkpoint_seq = self.checkpoint_seq_of_nodes;
        let info = NodeInfo { level, uuid: UUID, checkpoint_seq, log_seq: 2 };
        let (bytes, crc32c) = node::encode(&info, entries);
        self.count(MAP_SEGMENT, bytes.len());
        NodePtr { addr: self.map.push(&bytes), len_bytes: bytes.len() as u32, crc32c }
    }

    pub fn leaf(&mut self, entries: Vec<(Key, Value)>) -> NodePtr {
        self.node(0, &Entries::Leaf(entries))
    }

    /// A node above leaves in which all was written in epoch 1.
    pub fn inner(&mut self, children: Vec<(Key, NodePtr)>) -> NodePtr {
        let child = |place| ChildPtr { place, newest_epoch: 1 };
        let children = children.into_iter().map(|(key, place)| (key, child(place))).collect();
        self.node(1, &Entries::Inner(children))
    }

    /// Lays everything down.
    pub fn finish(mut self, root: Option<(NodePtr, u8)>) -> Vec<u8> {
        let mut image = vec![0; 16 * SEGMENT_SIZE];
        let usage = |live_bytes| Usage { live_bytes, head: Head::Main, class: 0, written_at: 1 };
        self.checkpoint.root = root;
        self.checkpoint.live_bytes = self.live_bytes;
        if self.checkpoint.usage_overrides.is_empty() {
            let rows = self.usage.iter().map(|(&segment, &live)| (SegmentNo(segment), usage(live)));
            self.checkpoint.usage_overrides = rows.collect();
        }
        if self.checkpoint.log.offset_bytes == 0 {
            self.checkpoint.log.offset_bytes = self.log.len() as u32;
        }
        self.checkpoint.log_prev_crc32c = self.log.write(&mut image);
        let mut bytes = self.checkpoint.encode();
        let addr = self.map.addr();
        if self.checkpoint.map.offset_bytes == 0 {
            let len = PAGE_SIZE + self.map.payload.len() + bytes.len();
            self.checkpoint.map.offset_bytes = align_up_usize(len, PAGE_SIZE) as u32;
            bytes = self.checkpoint.encode();
        }
        self.map.push(&bytes);
        self.map.write(&mut image);
        self.superblock.checkpoint_addr = addr;
        self.superblock.checkpoint_len_bytes = bytes.len() as u32;
        self.superblock.checkpoint_crc32c = checksum(&bytes);
        write_superblock(&mut image, &self.superblock);
        image
    }
}

pub fn write_superblock(image: &mut [u8], superblock: &Superblock) {
    let at = superblock.layout.superblock_offset(superblock.seq) as usize;
    image[at..at + PAGE_SIZE].copy_from_slice(superblock.encode().as_slot());
}

pub fn list_key(list: u64) -> Key {
    Key { epoch: 1, ..Key::first(list, Space::List, 0) }
}

pub fn record_key(list: u64, index: u64) -> Key {
    Key { epoch: 1, ..Key::first(list, Space::Records, index) }
}

pub fn chunk_key(list: u64, index: u64) -> Key {
    Key { epoch: 1, ..Key::first(list, Space::Chunks, index) }
}

pub fn record(bytes: &[u8]) -> Value {
    Value::Record(Arc::from(bytes))
}

pub fn chunk(pages: &[PageRef]) -> Value {
    let mut slots = [None; 32];
    for (slot, page) in slots.iter_mut().zip(pages) {
        *slot = Some(*page);
    }
    Value::Chunk(Arc::new(Chunk::from_slots(&slots)))
}

/// What a small sound volume's first leaf holds: list 1 with a record and three pages.
pub fn first_entries(builder: &mut Builder) -> Vec<(Key, Value)> {
    let pages = [builder.page(0, &[1; 4096]), PageRef::ZERO, builder.page(2, b"short")];
    vec![
        (list_key(1), Value::List(Hints::of_bits(0))),
        (record_key(1, 7), record(b"seven")),
        (chunk_key(1, 0), chunk(&pages)),
    ]
}

/// A small sound volume: two leaves under a root.
pub fn sound() -> Vec<u8> {
    built(|_| ())
}

/// A small volume, sound but for what `change` does to it before it is laid down.
pub fn built(change: impl FnOnce(&mut Builder)) -> Vec<u8> {
    let mut builder = Builder::new();
    let first = first_entries(&mut builder);
    let first = builder.leaf(first);
    let second = builder.leaf(vec![(list_key(2), Value::List(Hints::of_bits(1)))]);
    let children = vec![(list_key(1), first), (list_key(2), second)];
    let root = builder.inner(children);
    change(&mut builder);
    builder.finish(Some((root, 1)))
}

pub fn report(image: &[u8]) -> Report {
    verify(&MemoryDevice::from_bytes(image), &Options { data: true })
}

/// The kinds of what a verification finds.
pub fn kinds(image: &[u8]) -> Vec<FindingKind> {
    report(image).findings.iter().map(|finding| finding.kind).collect()
}
