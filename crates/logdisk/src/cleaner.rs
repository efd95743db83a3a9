//! Cleaning: what can be reached in a segment is written to the log again, so that the segment
//! becomes empty (BSD-LFS; DESIGN §8).
//!
//! A block moved is a page written again with what it held: recovery needs no word for it, and a
//! crash in the middle loses nothing. Nodes of the map are marked dirty and move with the next
//! checkpoint. The segment is filled anew only after one.
//!
//! Which blocks a segment holds is told by the records of its own partial segments, and which of
//! them live by the map. Pages that were moved from one list to another are not where their
//! records say; when a segment's usage shows that some were missed, the whole map is asked.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_base::units::PAGE_SIZE;
use dendro_device::AlignedBuf;
use dendro_disk::Result;
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::record::Records;
use dendro_format::{
    Addr, Key, NodePtr, PageRef, PartialHeader, Record, SegmentNo, Value, checksum,
};

use crate::disk::LogDisk;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::partial::page_record_bytes;
use crate::segments::SegmentState;
use crate::store::Held;

/// Blocks moved with the lock held once.
const BATCH_LEN: usize = 64;
/// A segment of which a larger share lives is not worth cleaning.
const MOST_LIVE: f64 = 0.98;
/// Nor, unless space is needed now, one where less is dead: moving what lives, and the checkpoint
/// that follows, leave about as much unused in their turn, and cleaning would never end.
const LEAST_DEAD_BYTES: f64 = (8 * PAGE_SIZE) as f64;

/// What cleaning keeps between its steps.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    buf: Option<AlignedBuf>,
    /// Segments with blocks that could not be read: moving them would lose the evidence.
    damaged: BTreeSet<SegmentNo>,
}

/// What has been cleaned since the disk was opened.
#[derive(Debug, Default)]
pub(crate) struct Cleaned {
    segments: AtomicU64,
    moved_bytes: AtomicU64,
    live_bytes: AtomicU64,
}

impl Cleaned {
    /// Segments, bytes of blocks moved, and bytes that were alive in the segments.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (value(&self.segments), value(&self.moved_bytes), value(&self.live_bytes))
    }
}

/// Which segment to clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The one that lives least: space is needed now.
    MostToGain,
    /// The best benefit for its cost, as BSD-LFS has it: (1 - u) · age / (1 + u), with u the share
    /// that lives. Cold segments are worth cleaning at a higher u, for they stay clean longer.
    BenefitOverCost,
}

/// A page that a segment's records name.
#[derive(Clone, Copy, Debug)]
struct Block {
    list: u64,
    page_index: u64,
    page: PageRef,
}

/// What a segment holds, as its records tell.
#[derive(Debug, Default)]
struct Summary {
    blocks: Vec<Block>,
    nodes: Vec<(NodePtr, u8, Key)>,
}

impl LogDisk {
    /// Cleans one segment if clean ones are getting few; says whether it did.
    ///
    /// # Errors
    /// [`dendro_disk::Error::Failed`] when the device fails.
    pub fn clean_step(&self) -> Result<bool> {
        let Some(mut cleaner) = self.cleaner.try_lock() else { return Ok(false) };
        let is_needed = {
            let core = self.core.read();
            let counts = core.state.segments.counts();
            // What lives would take so many segments if it lay close; no cleaning gets below.
            let packed = core.state.segments.live_bytes().div_ceil(self.fillable_bytes());
            let possible = (self.layout.log_segments().count() as u64)
                .saturating_sub(packed + u64::from(counts.open));
            let target = u64::from(self.low_segments() + self.layout.segment_count() / 32);
            u64::from(counts.clean + counts.pending) < target.min(possible)
                && counts.clean > self.checkpoint_reserve()
        };
        Ok(is_needed && self.clean_one(&mut cleaner, Choice::BenefitOverCost)?)
    }

    /// Cleans one segment; says whether there was one to gain from.
    pub(crate) fn clean_now(&self, choice: Choice) -> Result<bool> {
        let mut cleaner = self.cleaner.lock();
        self.clean_one(&mut cleaner, choice)
    }

    fn clean_one(&self, cleaner: &mut Cleaner, choice: Choice) -> Result<bool> {
        let Some(victim) = self.pick_victim(cleaner, choice) else { return Ok(false) };
        self.clean_segment(victim, cleaner)?;
        Ok(true)
    }

    fn pick_victim(&self, cleaner: &Cleaner, choice: Choice) -> Option<SegmentNo> {
        let size = self.layout.segment_size_bytes() as f64;
        let core = self.core.read();
        let segments = &core.state.segments;
        let now = core.clock.now();
        let live = |segment| f64::from(segments.usage(segment).live_bytes) / size;
        let score = |segment| match choice {
            Choice::MostToGain => 1.0 - live(segment),
            Choice::BenefitOverCost => {
                let age = now.since(segments.usage(segment).written).as_secs_f64() + 1.0;
                (1.0 - live(segment)) * age / (1.0 + live(segment))
            }
        };
        // Moving what is nearly full gains less than its headers cost.
        let most_live = match choice {
            Choice::MostToGain => MOST_LIVE,
            Choice::BenefitOverCost => MOST_LIVE.min(1.0 - LEAST_DEAD_BYTES / size),
        };
        let may_be_cleaned = |segment: &SegmentNo| {
            segments.state(*segment) == SegmentState::Dirty
                && live(*segment) > 0.0
                && live(*segment) < most_live
                && !cleaner.damaged.contains(segment)
                // What has not been written yet cannot be read.
                && core.in_memory.iter().all(|closed| closed.segment != *segment)
        };
        self.layout
            .log_segments()
            .filter(may_be_cleaned)
            .max_by(|&a, &b| score(a).total_cmp(&score(b)))
    }

    /// Moves what lives in `victim`.
    fn clean_segment(&self, victim: SegmentNo, cleaner: &mut Cleaner) -> Result<()> {
        let size = self.layout.segment_size_bytes() as usize;
        let mut buf = cleaner.buf.take().unwrap_or_else(|| AlignedBuf::zeroed(size));
        let base = Addr::from_bytes(self.layout.segment_offset(victim));
        let live_bytes = self.core.read().state.segments.usage(victim).live_bytes;
        self.cleaned.live_bytes.fetch_add(u64::from(live_bytes), Ordering::Relaxed);
        let read = self.read_device(base, &mut buf);
        let result = read.and_then(|()| {
            let summary = self.summarize(victim, &buf);
            let mut is_sound = self.move_blocks(&summary.blocks, base, &buf)?;
            self.move_nodes(&summary.nodes)?;
            if self.core.read().state.segments.usage(victim).live_bytes > 0 {
                let missed = self.find_missed(victim)?;
                is_sound &= self.move_blocks(&missed.blocks, base, &buf)?;
                self.move_nodes(&missed.nodes)?;
                is_sound &= self.core.read().state.segments.usage(victim).live_bytes == 0;
            }
            Ok(is_sound)
        });
        cleaner.buf = Some(buf);
        self.cleaned.segments.fetch_add(1, Ordering::Relaxed);
        // A segment that cannot be read or emptied is left as it is; others can be cleaned.
        if !matches!(result, Ok(true)) {
            cleaner.damaged.insert(victim);
        }
        match (result, self.failure()) {
            (_, Some(error)) => Err(error),
            _ => {
                while self.writer.is_crowded() && self.write_one()? {}
                Ok(())
            }
        }
    }

    /// Reads the records of a segment's partial segments. Those of an earlier life of the segment
    /// that follow are read too: what they name is not where the map says.
    fn summarize(&self, segment: SegmentNo, bytes: &[u8]) -> Summary {
        let uuid = self.superblock.lock().uuid;
        let mut summary = Summary::default();
        let mut offset = 0;
        while let Some(rest) = bytes.get(offset..).filter(|rest| rest.len() >= PAGE_SIZE) {
            let Ok((header, _)) = PartialHeader::decode(rest) else { break };
            let partial = rest.get(..header.len_bytes as usize);
            let Some(records) = partial.and_then(|partial| header.records_of(partial)) else {
                break;
            };
            let is_here = header.uuid == uuid
                && header.segment == segment
                && header.offset_bytes as usize == offset
                && PartialHeader::verify(rest, records);
            if !is_here {
                break;
            }
            for record in Records::new(records).map_while(std::result::Result::ok) {
                summary.add(&record);
            }
            offset += header.len_bytes as usize;
        }
        summary
    }

    /// Writes those blocks again that the map still names; says whether all could be read.
    fn move_blocks(&self, blocks: &[Block], base: Addr, bytes: &[u8]) -> Result<bool> {
        let mut is_sound = true;
        let mut live = self.filter_live(blocks)?;
        // Neighbours in a file become neighbours in the log.
        live.sort_by_key(|block| (block.list, block.page_index));
        for batch in live.chunks(BATCH_LEN) {
            let nodes = Held::loading(&self.store);
            let mut core = self.core.write();
            if let Some(error) = self.failure() {
                return Err(error);
            }
            for block in batch {
                let start = (block.page.addr.bytes() - base.bytes()) as usize;
                let stored = &bytes[start..start + usize::from(block.page.len_bytes)];
                if checksum(stored) != block.page.crc32c {
                    is_sound = false;
                    continue;
                }
                let moved = core
                    .relocate(block.list, block.page_index, &block.page, stored, &nodes)
                    .map_err(|fault| self.latch(fault))?;
                if moved {
                    let bytes = u64::from(block.page.footprint_bytes());
                    self.cleaned.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
            }
        }
        Ok(is_sound)
    }

    fn filter_live(&self, blocks: &[Block]) -> Result<Vec<Block>> {
        let mut live = Vec::new();
        for block in blocks {
            let is_live = self.look(|core, nodes| {
                let chunk = core.state.chunk(block.list, block.page_index / CHUNK_PAGES, nodes)?;
                let slot = (block.page_index % CHUNK_PAGES) as u32;
                Ok(chunk.and_then(|chunk| chunk.get(slot)) == Some(block.page))
            })?;
            if is_live {
                live.push(*block);
            }
        }
        Ok(live)
    }

    fn move_nodes(&self, found: &[(NodePtr, u8, Key)]) -> Result<()> {
        for (place, level, first_key) in found {
            let is_live = self
                .look(|core, nodes| core.state.map.holds_node(place, *level, first_key, nodes))?;
            if is_live {
                let nodes = Held::loading(&self.store);
                let mut core = self.core.write();
                core.state
                    .map
                    .rewrite_node(place, *level, first_key, &nodes)
                    .map_err(|fault| self.latch(fault))?;
                core.state.account_for_nodes();
            }
        }
        Ok(())
    }

    /// Asks the whole map what lives in `segment`.
    fn find_missed(&self, segment: SegmentNo) -> Result<Summary> {
        let is_here = |addr: Addr| self.layout.segment_of(addr) == segment;
        self.look(|core, nodes| {
            let mut summary = Summary::default();
            core.state.map.visit_all(nodes, &mut |key, value| {
                if let Value::Chunk(chunk) = value {
                    for (slot, page) in chunk.iter().filter(|(_, page)| page.len_bytes > 0) {
                        if is_here(page.addr) {
                            let page_index = key.index * CHUNK_PAGES + u64::from(slot);
                            summary.blocks.push(Block { list: key.list, page_index, page });
                        }
                    }
                }
                ControlFlow::Continue(())
            })?;
            core.state.map.visit_places(nodes, &mut |place, level, key| {
                if is_here(place.addr) {
                    summary.nodes.push((*place, level, *key));
                }
            })?;
            Ok(summary)
        })
    }
}

impl Summary {
    fn add(&mut self, record: &Record<'_>) {
        match *record {
            Record::WriteRun { list, first_page, addr, crcs } => {
                self.blocks.extend((0_u64..).zip(crcs).map(|(index, crc)| Block {
                    list,
                    page_index: first_page.saturating_add(index),
                    page: PageRef {
                        addr: addr.plus_bytes(index * PAGE_SIZE as u64),
                        crc32c: crc.get(),
                        len_bytes: PAGE_SIZE as u16,
                        ..PageRef::ZERO
                    },
                }));
            }
            Record::WriteBlock { list, page, block } => {
                self.blocks.push(Block { list, page_index: page, page: block });
            }
            Record::Node { place, level, first_key } => self.nodes.push((place, level, first_key)),
            _ => {}
        }
    }
}

impl crate::core::Core {
    /// Writes a block again as it is stored, if the map still names it at its old place.
    pub(crate) fn relocate(
        &mut self,
        list: u64,
        page_index: u64,
        old: &PageRef,
        stored: &[u8],
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let group = page_index / CHUNK_PAGES;
        let mut slots = self.state.slots(list, group, nodes)?;
        let slot = &mut slots[(page_index % CHUNK_PAGES) as usize];
        if *slot != Some(*old) {
            return Ok(false);
        }
        self.open_partial()?;
        let is_whole = old.is_whole();
        let (pages, short) = if is_whole { (1, 0) } else { (0, stored.len()) };
        if !self.partial().fits(pages, short, page_record_bytes(1)) {
            self.close_partial();
            self.open_partial()?;
        }
        let block = if is_whole {
            self.partial().push_page(list, page_index, stored)
        } else {
            self.partial().push_short(list, page_index, stored)
        };
        self.partial().complete();
        self.state.replace(slot, block);
        self.state.put_slots(list, group, &slots, nodes)?;
        self.state.account_for_nodes();
        Ok(true)
    }
}
