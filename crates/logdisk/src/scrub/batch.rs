//! A batch: what a part of the map names on the device, in the order of the device.

use dendro_disk::{Lid, Result};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Addr, Key, Layout, NodePtr, PageRef, Value};

use crate::damage::Part;
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::log::mirrors::Mirrors;
use crate::map::Nodes;
use crate::volume::Volume;
use crate::walk::{MapWalk, Visit, WalkPoint};

/// How the map names something.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name {
    /// Pages of the chunk under this key.
    Chunk(Key),
    /// The node of this level that the key belongs under.
    Node(u8, Key),
}

/// A block or a node on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) addr: Addr,
    pub(super) crc32c: u32,
    /// The index of its name in the batch.
    name: u32,
    pub(super) len_bytes: u32,
    /// The slot of a page in its chunk. Of a node: which copy it is.
    slot: u8,
}

/// In the place of the slot: the copy of a node in its segment's mirror.
const IN_MIRROR: u8 = 1;

impl Extent {
    /// The end, in bytes from the start of the device.
    pub(super) const fn end_bytes(&self) -> u64 {
        self.addr.bytes() + self.len_bytes as u64
    }

    pub(super) const fn node_ptr(&self) -> NodePtr {
        NodePtr { addr: self.addr, len_bytes: self.len_bytes, crc32c: self.crc32c }
    }
}

/// What a part of the map names.
#[derive(Debug)]
pub(super) struct Batch {
    /// By their addresses.
    pub(super) extents: Vec<Extent>,
    names: Vec<Name>,
    /// Where the part of the map ends; `None` at the end of the map.
    pub(super) upto: Option<WalkPoint>,
}

impl Batch {
    pub(super) fn name_of(&self, extent: &Extent) -> Name {
        self.names[extent.name as usize]
    }

    /// What the extent is, as damage is told.
    pub(super) fn part_of(&self, extent: &Extent) -> Part {
        match self.name_of(extent) {
            Name::Node(..) => Part::Node,
            Name::Chunk(key) => {
                let page_index = key.index.saturating_mul(CHUNK_PAGES) | u64::from(extent.slot);
                Part::Page(Lid(key.list), page_index)
            }
        }
    }
}

/// The visitor of the walk.
struct Collector<'a> {
    batch: &'a mut Batch,
    layout: Layout,
    mirrors: &'a Mirrors,
    /// Nothing from here on is collected.
    end: Option<WalkPoint>,
}

impl Collector<'_> {
    fn is_past_end(&self, point: WalkPoint) -> bool {
        self.end.is_some_and(|end| point >= end)
    }
}

impl Visit for Collector<'_> {
    fn entry(&mut self, key: &Key, value: &Value) {
        let Value::Chunk(chunk) = value else { return };
        if self.is_past_end(WalkPoint::Entries(*key)) {
            return;
        }
        let name = self.batch.names.len() as u32;
        self.batch.names.push(Name::Chunk(*key));
        let blocks = chunk.blocks().filter(|(_, page)| page.len_bytes > 0);
        self.batch.extents.extend(blocks.map(|(slots, page)| Extent {
            addr: page.addr,
            crc32c: page.crc32c,
            name,
            len_bytes: u32::from(page.len_bytes),
            slot: slots.trailing_zeros() as u8,
        }));
    }

    fn node(&mut self, place: &NodePtr, level: u8, key: &Key) {
        if self.is_past_end(WalkPoint::Nodes(*key)) {
            return;
        }
        let NodePtr { addr, len_bytes, crc32c } = *place;
        let name = self.batch.names.len() as u32;
        self.batch.names.push(Name::Node(level, *key));
        let extent = Extent { addr, crc32c, name, len_bytes, slot: 0 };
        let mirror = self.mirrors.place_of(self.layout, addr);
        let mirror = mirror.map(|addr| Extent { addr, slot: IN_MIRROR, ..extent });
        self.batch.extents.extend([extent].into_iter().chain(mirror));
    }
}

impl Volume {
    /// Collects what the map names from `from` on, up to `upto` if that is known, in about
    /// `max_bytes` of memory. The lock is held for a slice at a time.
    ///
    /// # Errors
    /// As [`Volume::walk_over_damage`].
    pub(super) fn collect_batch(
        &self,
        from: WalkPoint,
        upto: Option<WalkPoint>,
        max_bytes: usize,
    ) -> Result<Batch> {
        // Room that is never used takes no memory, and a vector that grows takes twice its length.
        let extents = Vec::with_capacity(max_bytes / size_of::<Extent>());
        let names = Vec::with_capacity(max_bytes / size_of::<Name>());
        let mut batch = Batch { extents, names, upto: None };
        let mut walk = MapWalk::at(from);
        let (layout, mirrors) = (self.layout(), self.read().state().segments().mirrors().clone());
        loop {
            let mut collector =
                Collector { batch: &mut batch, layout, mirrors: &mirrors, end: upto };
            let has_more = self.walk_over_damage(&mut walk, &mut collector)?;
            let point = walk.point();
            let has_ended = upto.is_some_and(|upto| point >= upto);
            let taken_bytes =
                batch.extents.len() * size_of::<Extent>() + batch.names.len() * size_of::<Name>();
            if !has_more || has_ended || taken_bytes >= max_bytes {
                let end = if has_more { Some(point) } else { None };
                batch.upto = if has_ended { upto } else { end };
                break;
            }
        }
        // An inner node is visited with each slice of the nodes below it.
        batch.extents.sort_unstable_by_key(|extent| (extent.addr, extent.name));
        batch.extents.dedup_by_key(|extent| extent.addr);
        Ok(batch)
    }
}

impl Engine {
    /// Whether the map still names `extent` by `name` and the device has it: its partial segment
    /// has been written.
    pub(super) fn has_on_device(
        &self,
        extent: &Extent,
        name: Name,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let is_named = match name {
            Name::Node(level, key) => {
                let place = self.state().map().node_place(level, &key, nodes)?;
                let segments = self.state().segments();
                let in_mirror = |place: NodePtr| {
                    let addr = segments.mirrors().place_of(segments.layout(), place.addr)?;
                    Some(NodePtr { addr, ..place })
                };
                let place =
                    if extent.slot == IN_MIRROR { place.and_then(in_mirror) } else { place };
                place == Some(extent.node_ptr())
            }
            Name::Chunk(key) => {
                let chunk = self.state().chunk_at(&key, nodes)?;
                let is_it = |page: PageRef| {
                    page.addr == extent.addr
                        && page.crc32c == extent.crc32c
                        && u32::from(page.len_bytes) == extent.len_bytes
                };
                // Another page of a frame may be left.
                chunk.is_some_and(|chunk| chunk.iter().any(|(_, page)| is_it(page)))
            }
        };
        Ok(is_named && self.block_in_memory(extent.addr, extent.len_bytes as usize).is_none())
    }
}
