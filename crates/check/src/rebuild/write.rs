//! Writing the new map: its leaves, the nodes above them, and the checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dendro_base::Timestamp;
use dendro_base::units::{GRAIN_SIZE, align_up};
use dendro_format::checkpoint::{HeadPosition, MIRROR_LEN_BYTES};
use dendro_format::node::{self, NodeInfo};
use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::superblock::INCOMPATIBLE_MIRRORS;
use dendro_format::totals::{COMPRESSED_INDEX, TOTALS_LIST};
use dendro_format::usage::{FIRST_SYSTEM_LIST, USAGE_LIST};
use dendro_format::{
    Addr, CHUNK_PAGES, Checkpoint, ChildPtr, Chunk, Entries, Head, Key, NodePtr, PartialHeader,
    Record, SegmentNo, Space, Usage, Value, checksum,
};

use super::base::KeptLeaf;
use super::fill::Filler;
use super::plan::{Plan, lost_block};
use super::stream::{FreeSegments, Stream};
use super::sweep::{Sweep, SweptCheckpoint};
use super::version_table;
use crate::error::Result;
use crate::read::Volume;

/// About the length of a new leaf, and the children of a new node above the leaves.
const LEAF_LEN_BYTES: usize = 8192;
const FANOUT: usize = 256;
/// At most so many bytes are a key and what says how long its value is.
const KEY_LEN_BYTES: usize = 48;
/// The class of the segment of blocks that are lost: what clients wrote.
const LOST_CLASS: u8 = 1;
/// What is said in a block that is lost. Its checksum is wrong on purpose.
const LOST_BLOCK: [u8; GRAIN_SIZE] = [0; GRAIN_SIZE];

/// The new map under construction.
pub(super) struct MapWriter<'v> {
    volume: &'v Volume<'v>,
    plan: &'v Plan,
    sweep: &'v Sweep,
    info: NodeInfo,
    free: FreeSegments,
    nodes: Stream<'v>,
    lost: Stream<'v>,
    /// Entries of the leaf under construction, and about how long it is.
    open: Vec<(Key, Value)>,
    open_len_bytes: usize,
    leaves: Vec<(Key, ChildPtr)>,
    /// Entries of the disk's own lists, without usage.
    system: BTreeMap<Key, Value>,
    /// The last list that was seen to exist.
    list: Option<u64>,
    /// Lists that have entries and do not exist: they are being removed.
    removed: BTreeSet<u64>,
}

/// Everything but the map that the new checkpoint states.
pub(super) struct Facts {
    /// The checkpoint without its root, usage and place in the map stream.
    pub(super) checkpoint: Checkpoint,
    /// The nodes have what the log has before this number.
    pub(super) nodes_log_seq: u64,
    pub(super) time: Timestamp,
}

impl<'v> MapWriter<'v> {
    pub(super) fn new(
        volume: &'v Volume<'v>,
        sweep: &'v Sweep,
        plan: &'v Plan,
        free: FreeSegments,
        facts: &Facts,
        is_mirrored: bool,
    ) -> Self {
        let checkpoint = &facts.checkpoint;
        let is_mirrored = is_mirrored && may_list_mirrors(checkpoint);
        let header = |head, class| PartialHeader {
            head,
            class,
            len_bytes: 0,
            uuid: checkpoint.uuid,
            seq: 0,
            segment: SegmentNo(0),
            offset_bytes: 0,
            prev_crc32c: 0,
            next_segment: SegmentNo(0),
            records_offset_bytes: 0,
            records_len_bytes: 0,
            complete_len_bytes: 0,
            commit_seq: checkpoint.commit_seq,
            durable_seq: 0,
            time: facts.time,
            epoch: checkpoint.epoch,
        };
        Self {
            volume,
            plan,
            sweep,
            info: NodeInfo {
                level: 0,
                uuid: checkpoint.uuid,
                checkpoint_seq: checkpoint.seq,
                log_seq: facts.nodes_log_seq,
            },
            free,
            nodes: Stream::new(volume, header(Head::Map, 0)).mirrored(is_mirrored),
            lost: Stream::new(volume, header(Head::Payload, LOST_CLASS)),
            open: Vec::new(),
            open_len_bytes: 0,
            leaves: Vec::new(),
            system: BTreeMap::new(),
            list: None,
            removed: BTreeSet::new(),
        }
    }

    /// Writes everything. Returns the checkpoint with its place, and how many bytes were written.
    pub(super) fn write(mut self, facts: Facts) -> Result<(SweptCheckpoint, u64)> {
        let (plan, volume) = (self.plan, self.volume);
        let Plan { history, has_versions, later, .. } = plan;
        let filler = Filler { volume, history, has_versions: *has_versions, later };
        let slices = plan.slices().into_iter();
        let mut found = slices.flat_map(|slice| filler.fill(&slice).filled).peekable();
        for leaf in &plan.map.kept {
            while let Some((key, entry)) = found.next_if(|(key, _)| *key < leaf.first) {
                self.add_found(key, entry.value)?;
            }
            self.keep(leaf)?;
        }
        for (key, entry) in found {
            self.add_found(key, entry.value)?;
        }
        self.finish_system(&facts.checkpoint)?;
        self.close_leaf()?;
        self.lost.close()?;
        let root = self.build()?;
        self.finish(facts, root)
    }

    /// A leaf that stays where it is, unless it has entries of the disk's own.
    fn keep(&mut self, leaf: &KeptLeaf) -> Result<()> {
        let node = self.volume.node(leaf.child.place)?;
        let Entries::Leaf(entries) = node.entries else { return Ok(()) };
        if leaf.is_rewritten {
            for (key, value) in entries {
                self.add_found(key, value)?;
            }
            return Ok(());
        }
        self.close_leaf()?;
        for (key, _) in &entries {
            self.see(key);
        }
        self.leaves.push((leaf.first, leaf.child));
        Ok(())
    }

    /// Adds an entry without the pages that are lost.
    fn add_found(&mut self, key: Key, value: Value) -> Result<()> {
        let value = match value {
            Value::Chunk(chunk) => Value::Chunk(self.without_lost(&key, chunk)?),
            value => value,
        };
        self.add(key, value)
    }

    /// The chunk with blocks that report damage in place of those that belong to others.
    fn without_lost(&mut self, key: &Key, chunk: Arc<Chunk>) -> Result<Arc<Chunk>> {
        let Some(slots) = self.plan.map.lost.get(key) else { return Ok(chunk) };
        let mut chunk = Arc::unwrap_or_clone(chunk);
        for slot in (0..u32::BITS).filter(|slot| slots >> slot & 1 == 1) {
            let addr = self.lost.place(&LOST_BLOCK, &mut self.free)?;
            let block = lost_block(addr, checksum(&LOST_BLOCK));
            let Key { list, branch, epoch, .. } = *key;
            self.lost.push(&Record::Version { branch, epoch, is_moved: true });
            let page = (key.index * CHUNK_PAGES) | u64::from(slot);
            self.lost.push(&Record::WriteBlock { list, page, block });
            chunk.set(slot, block);
        }
        Ok(Arc::new(chunk))
    }

    /// Notes lists of which there are entries although they do not exist.
    fn see(&mut self, key: &Key) {
        if key.list >= FIRST_SYSTEM_LIST {
            return;
        }
        if key.space == Space::List {
            self.list = Some(key.list);
        } else if self.list != Some(key.list) {
            self.removed.insert(key.list);
        }
    }

    fn add(&mut self, key: Key, value: Value) -> Result<()> {
        self.see(&key);
        if key.list >= FIRST_SYSTEM_LIST {
            if ![USAGE_LIST, TOTALS_LIST].contains(&key.list) {
                self.system.insert(key, value);
            }
            return Ok(());
        }
        self.put(key, value)
    }

    fn put(&mut self, key: Key, value: Value) -> Result<()> {
        let len_bytes = KEY_LEN_BYTES
            + match &value {
                Value::Record(bytes) => bytes.len(),
                Value::Chunk(chunk) => chunk.encoded_len_bound(),
                Value::List(hints) => hints.len_bytes_bound(),
                Value::Tombstone => 0,
            };
        if self.open_len_bytes + len_bytes > LEAF_LEN_BYTES {
            self.close_leaf()?;
        }
        self.open.push((key, value));
        self.open_len_bytes += len_bytes;
        Ok(())
    }

    fn close_leaf(&mut self) -> Result<()> {
        let open = std::mem::take(&mut self.open);
        self.open_len_bytes = 0;
        if let Some((first, _)) = open.first() {
            let first = *first;
            let child = self.write_node(0, first, &Entries::Leaf(open))?;
            self.leaves.push((first, child));
        }
        Ok(())
    }

    fn write_node(&mut self, level: u8, first_key: Key, entries: &Entries) -> Result<ChildPtr> {
        let (bytes, crc32c) = node::encode(&NodeInfo { level, ..self.info }, entries);
        let addr = self.nodes.place(&bytes, &mut self.free)?;
        let place = NodePtr { addr, len_bytes: bytes.len() as u32, crc32c };
        self.nodes.push(&Record::Node { place, level, first_key });
        Ok(ChildPtr { place, newest_epoch: entries.newest_epoch() })
    }

    /// The disk's own entries: usage as it was counted, versions, and lists that are being removed.
    fn finish_system(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let mut system = std::mem::take(&mut self.system);
        for list in std::mem::take(&mut self.removed) {
            let key = system_key(REMOVALS_LIST, list);
            let removal = || Value::Record(Arc::from(&removal::encode(None)[..]));
            system.entry(key).or_insert_with(removal);
        }
        let account = &self.plan.map.account;
        version_table::mend(&mut system, account, checkpoint);
        for segment in account.layout().log_segments() {
            if account.live_bytes_of(segment) > 0 {
                let usage = self.usage_of(segment);
                let value = Value::Record(Arc::from(&usage.encode()[..]));
                self.put(system_key(USAGE_LIST, segment.0.into()), value)?;
            }
        }
        if let Some(totals) = account.compressed.encode() {
            let key = system_key(TOTALS_LIST, COMPRESSED_INDEX);
            system.insert(key, Value::Record(Arc::from(totals)));
        }
        for (key, value) in system {
            self.put(key, value)?;
        }
        Ok(())
    }

    fn usage_of(&self, segment: SegmentNo) -> Usage {
        let account = &self.plan.map.account;
        let old = account.old_usage.get(segment).map(|row| row.usage);
        let found = self.sweep.heads.get(&segment).copied();
        let (head, class) = found
            .or_else(|| old.map(|old| (old.head, old.class)))
            .unwrap_or((Head::Payload, LOST_CLASS));
        Usage {
            live_bytes: account.live_bytes_of(segment) as u32,
            head,
            class,
            written_at: old.map_or(0, |old| old.written_at),
        }
    }

    /// The nodes above the leaves. Returns the root.
    fn build(&mut self) -> Result<Option<(NodePtr, u8)>> {
        let mut nodes = std::mem::take(&mut self.leaves);
        let mut level = 0;
        while nodes.len() > 1 {
            level += 1;
            let mut above = Vec::with_capacity(nodes.len() / FANOUT + 1);
            for children in nodes.chunks(FANOUT) {
                let first = children[0].0;
                let child = self.write_node(level, first, &Entries::Inner(children.to_vec()))?;
                above.push((first, child));
            }
            nodes = above;
        }
        Ok(nodes.first().map(|(_, child)| (child.place, level)))
    }

    /// The mirrors of segments that stay, and of those that were filled.
    fn mirrors(&self, checkpoint: &Checkpoint) -> Vec<(SegmentNo, SegmentNo)> {
        if !may_list_mirrors(checkpoint) {
            return Vec::new();
        }
        let mut mirrors = self.nodes.mirrors.clone();
        mirrors.extend(self.plan.mirrors.iter().copied());
        mirrors.into_iter().collect()
    }

    fn finish(
        mut self,
        facts: Facts,
        root: Option<(NodePtr, u8)>,
    ) -> Result<(SweptCheckpoint, u64)> {
        let account = &self.plan.map.account;
        let mut overrides = BTreeMap::new();
        for stream in [&self.nodes, &self.lost] {
            let (head, class) = stream.head();
            for (&segment, &live_bytes) in &stream.added {
                let written_at = facts.checkpoint.log_clock;
                overrides.insert(segment, Usage { live_bytes, head, class, written_at });
            }
        }
        let layout = account.layout();
        let kept: u64 = layout.log_segments().map(|segment| account.live_bytes_of(segment)).sum();
        let added: u64 = overrides.values().map(|usage| u64::from(usage.live_bytes)).sum();
        let mut checkpoint = Checkpoint {
            root,
            live_bytes: kept + added,
            short_count: account.short_count,
            zero_count: account.zero_count,
            counts_are_exact: true,
            totals_are_exact: true,
            usage_overrides: overrides.into_iter().collect(),
            mirrors: self.mirrors(&facts.checkpoint),
            ..facts.checkpoint
        };
        let len = checkpoint.encode().len();
        self.nodes.make_room(len + MIRROR_LEN_BYTES, &mut self.free)?;
        checkpoint.mirrors = self.mirrors(&checkpoint);
        let len = checkpoint.encode().len();
        let mut place = Vec::new();
        Record::Checkpoint { addr: Addr(0), len_bytes: 0, crc32c: 0 }.encode(&mut place);
        let behind = align_up(len as u64, GRAIN_SIZE as u64) as usize + place.len();
        let (segment, offset_bytes) = self.nodes.end(behind);
        checkpoint.map = HeadPosition { segment, offset_bytes };
        let bytes = checkpoint.encode();
        let addr = self.nodes.place(&bytes, &mut self.free)?;
        let (len_bytes, crc32c) = (len as u32, checksum(&bytes));
        self.nodes.push(&Record::Checkpoint { addr, len_bytes, crc32c });
        self.nodes.close()?;
        let written_bytes = self.nodes.written_bytes + self.lost.written_bytes;
        Ok((SweptCheckpoint { addr, len_bytes, crc32c, checkpoint }, written_bytes))
    }
}

/// Whether a checkpoint says of itself that it may list mirrors.
fn may_list_mirrors(checkpoint: &Checkpoint) -> bool {
    checkpoint.identity.is_some_and(|identity| identity.incompatible & INCOMPATIBLE_MIRRORS != 0)
}

/// The key of a record of one of the disk's own lists.
const fn system_key(list: u64, index: u64) -> Key {
    Key { list, space: Space::Records, index, branch: 0, epoch: 1 }
}
