//! Which blocks are live, and writing them again.

use dendro_base::sync::atomic::Ordering;
use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up};
use dendro_disk::Result;
use dendro_format::chunk::{CHUNK_PAGES, MAX_FRAME_LEN_BYTES};
use dendro_format::superblock::INCOMPATIBLE_FRAMES;
use dendro_format::{Addr, Key, NodePtr, PageRef, checksum};

use super::access::ExternalAccess;
use super::names::{Block, BlockName, MAX_BLOCKS_PER_CALL, Rewritten};
use crate::checkpoint::unless_put_off;
use crate::clean::named_page::NamedPage;
use crate::clean::relocate::note_damage;
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::log::partial::{Content, page_record_bytes};
use crate::log::segments::{Pin, SegmentState};
use crate::map::Nodes;
use crate::state::item::ItemKey;
use crate::volume::holds::LockHolder;

/// The number of blocks that are looked at or moved in one batch (external 3).
const BATCH_LEN: usize = 64;

/// A page that the map names at the given address; it will be read and moved.
struct FoundPage {
    /// Its index in the batch.
    at: usize,
    block: NamedPage,
    /// Keeps its segment from being filled again until the page has been read and compared.
    _pin: Pin,
}

/// What the map states about a block.
enum Lookup {
    Page(FoundPage),
    Node,
    Settled(Rewritten),
}

impl ExternalAccess {
    /// See [`LogDisk::locate`](crate::LogDisk::locate).
    pub(crate) fn locate(&self, names: &[BlockName]) -> Result<Vec<Option<Addr>>> {
        let mut places = Vec::new();
        for batch in names[..names.len().min(MAX_BLOCKS_PER_CALL)].chunks(BATCH_LEN) {
            places.extend(self.volume.look(|engine, nodes| {
                batch.iter().map(|name| engine.place(name, nodes)).collect::<Outcome<Vec<_>>>()
            })?);
        }
        Ok(places)
    }

    /// See [`LogDisk::rewrite`](crate::LogDisk::rewrite).
    pub(crate) fn rewrite(&self, blocks: &[Block]) -> Result<Vec<Rewritten>> {
        self.check_writable()?;
        let mut outcomes = Vec::new();
        for batch in blocks[..blocks.len().min(MAX_BLOCKS_PER_CALL)].chunks(BATCH_LEN) {
            outcomes.extend(self.rewrite_batch(batch)?);
            self.volume.relieve_writer()?;
        }
        Ok(outcomes)
    }

    fn rewrite_batch(&self, batch: &[Block]) -> Result<Vec<Rewritten>> {
        if !self.may_write_batch() {
            // The segments that are pending may be enough once a checkpoint makes them clean.
            if self.volume.read().state().segments().has_pending() {
                self.checkpointer.take()?;
            }
            if !self.may_write_batch() {
                return Ok(vec![Rewritten::NoRoom; batch.len()]);
            }
        }
        let looks = self.volume.look(|engine, nodes| {
            let look = |(at, block)| engine.look_at(at, block, nodes);
            batch.iter().enumerate().map(look).collect::<Outcome<Vec<_>>>()
        })?;
        let mut outcomes = vec![Rewritten::Dead; batch.len()];
        let (mut pages, mut nodes) = (Vec::new(), Vec::new());
        for (at, look) in looks.into_iter().enumerate() {
            match look {
                Lookup::Page(found) => pages.push(found),
                Lookup::Node => nodes.push(at),
                Lookup::Settled(outcome) => outcomes[at] = outcome,
            }
        }
        self.rewrite_pages(pages, &mut outcomes)?;
        self.rewrite_nodes(batch, &nodes, &mut outcomes)?;
        Ok(outcomes)
    }

    /// Whether a batch can be written without the reserve for checkpoints (external 4).
    fn may_write_batch(&self) -> bool {
        self.has_room(&self.volume.read(), BATCH_LEN)
    }

    /// Whether so many blocks can be written without the reserve for checkpoints (external 4), and
    /// nobody needs the clean segments more.
    fn has_room(&self, engine: &Engine, block_count: usize) -> bool {
        // Each page takes a record of its own, and the end of a partial segment adds some pages.
        let most_bytes = if self.volume.compressors().are_marked(INCOMPATIBLE_FRAMES) {
            MAX_FRAME_LEN_BYTES + page_record_bytes(CHUNK_PAGES as usize)
        } else {
            PAGE_SIZE + page_record_bytes(1)
        };
        let bytes = block_count * most_bytes + 4 * PAGE_SIZE;
        !self.accounts.is_claimed()
            && engine.room_bytes(self.accounts.checkpoint_reserve(engine)) >= bytes as u64
    }

    fn rewrite_pages(&self, mut pages: Vec<FoundPage>, outcomes: &mut [Rewritten]) -> Result<()> {
        pages.sort_by_key(|found| found.block.page.addr);
        let mut sound = Vec::new();
        let joins = |a: &FoundPage, b: &FoundPage| {
            let (a, b) = (&a.block.page, &b.block.page);
            a.is_whole() && b.addr == a.addr.plus_bytes(PAGE_SIZE as u64)
        };
        let mut bytes = Vec::new();
        for run in pages.chunk_by(joins) {
            let start = bytes.len();
            let (first, last) = (&run[0].block.page, &run[run.len() - 1].block.page);
            let len = (last.addr.bytes() - first.addr.bytes()) as usize + last_room(last);
            bytes.resize(start + len, 0);
            let is_read = self.volume.read_device(first.addr, &mut bytes[start..]).is_ok();
            for found in run {
                let page = &found.block.page;
                let at = start + (page.addr.bytes() - first.addr.bytes()) as usize;
                let stored = at..at + usize::from(page.len_bytes);
                if is_read && checksum(&bytes[stored.clone()]) == page.crc32c {
                    sound.push((found, stored));
                } else {
                    note_damage(&self.volume, &found.block);
                    outcomes[found.at] = Rewritten::Unreadable;
                }
            }
        }
        // The order makes neighbours in a file neighbours in the log.
        sound.sort_by_key(|(found, _)| (found.block.key(), found.block.page_index));
        let mut frames: Vec<(PageRef, Rewritten)> = Vec::new();
        for (found, stored) in sound {
            // A frame moves with all of its pages.
            let page = found.block.page;
            if let Some((_, outcome)) = frames.iter().find(|(of, _)| of.shares_frame_with(&page)) {
                outcomes[found.at] = *outcome;
                continue;
            }
            let moved_bytes = self.volume.change(LockHolder::Cleaning, |engine, nodes| {
                // Other threads may have written since the room for the whole batch was checked.
                if !self.has_room(engine, 1) {
                    return Ok(None);
                }
                engine.keep_segments(self.accounts.kept_from_survivors(engine).into());
                let content = Content::stored(&bytes[stored.clone()], &found.block.page);
                engine.relocate(&[(found.block, content)], None, nodes).map(Some)
            })?;
            match moved_bytes {
                None => outcomes[found.at] = Rewritten::NoRoom,
                Some(0) => {}
                Some(moved_bytes) => {
                    outcomes[found.at] = Rewritten::Moved;
                    self.moved_bytes.fetch_add(moved_bytes, Ordering::Relaxed);
                }
            }
            if page.is_in_frame() {
                frames.push((page, outcomes[found.at]));
            }
        }
        Ok(())
    }

    fn rewrite_nodes(
        &self,
        batch: &[Block],
        found: &[usize],
        outcomes: &mut [Rewritten],
    ) -> Result<()> {
        for &at in found {
            let Block { name: BlockName::Node { level, first_key }, addr } = batch[at] else {
                continue;
            };
            let (is_moved, is_over_memory_limit) =
                self.volume.change(LockHolder::Cleaning, |engine, nodes| {
                    let place = engine.state().map().node_place(level, &first_key, nodes)?;
                    let is_moved = match place.filter(|place| place.addr == addr) {
                        Some(place) => {
                            engine.state_mut().rewrite_node(&place, level, &first_key, nodes)?
                        }
                        None => false,
                    };
                    Ok((is_moved, self.volume.is_over_memory_limit(engine)))
                })?;
            if is_moved {
                outcomes[at] = Rewritten::Moved;
            }
            if is_over_memory_limit {
                unless_put_off(self.checkpointer.relieve_memory())?;
            }
        }
        Ok(())
    }
}

/// The bytes that a block takes on the device.
fn last_room(page: &PageRef) -> usize {
    align_up(u64::from(page.len_bytes), GRAIN_SIZE as u64) as usize
}

impl Engine {
    /// Returns where the block with this name lies, if it lies anywhere.
    fn place(&self, name: &BlockName, nodes: &dyn Nodes) -> Outcome<Option<Addr>> {
        Ok(match name {
            BlockName::Page { .. } => self.page(name, nodes)?.map(|block| block.page.addr),
            BlockName::Node { level, first_key } => {
                self.node(*level, first_key, nodes)?.map(|place| place.addr)
            }
        })
    }

    /// Returns the page with this name, if it has a block.
    fn page(&self, name: &BlockName, nodes: &dyn Nodes) -> Outcome<Option<NamedPage>> {
        let BlockName::Page { list, page_index, branch, epoch } = *name else { return Ok(None) };
        let key = ItemKey::chunk(list, page_index / CHUNK_PAGES).key(branch, epoch);
        let chunk = self.state().chunk_at(&key, nodes)?;
        let page = chunk.and_then(|chunk| chunk.get((page_index % CHUNK_PAGES) as u32));
        let page = page.filter(|page| page.len_bytes > 0);
        let version = (branch, epoch);
        Ok(page.map(|page| NamedPage { list, page_index, version, page }))
    }

    fn node(&self, level: u8, first_key: &Key, nodes: &dyn Nodes) -> Outcome<Option<NodePtr>> {
        self.state().map().node_place(level, first_key, nodes)
    }

    /// Returns what the map states now about `block`, number `at` of its batch.
    fn look_at(&self, at: usize, block: &Block, nodes: &dyn Nodes) -> Outcome<Lookup> {
        if self.place(&block.name, nodes)? != Some(block.addr) {
            return Ok(Lookup::Settled(Rewritten::Dead));
        }
        let segment = self.state().segments().layout().segment_of(block.addr);
        if self.state().segments().state(segment) != SegmentState::Dirty
            || self.unwritten().any(|closed| closed.segment() == segment)
        {
            return Ok(Lookup::Settled(Rewritten::Open));
        }
        Ok(match block.name {
            BlockName::Node { .. } => Lookup::Node,
            BlockName::Page { .. } => match self.page(&block.name, nodes)? {
                Some(block) => {
                    let pin = self.state().segments().pin(block.page.addr);
                    Lookup::Page(FoundPage { at, block, _pin: pin })
                }
                None => Lookup::Settled(Rewritten::Dead),
            },
        })
    }
}
