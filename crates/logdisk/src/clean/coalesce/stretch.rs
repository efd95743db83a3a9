//! A stretch of a list: where its pages lie on the device, and which of them are worth moving.

use std::ops::ControlFlow;

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Lid, Locality, View};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Key, Space, Value};
use dendro_policy::Class;
use smallvec::{SmallVec, smallvec};

use super::place::Place;
use crate::blocks::{Fetch, gap_between, room_bytes};
use crate::clean::named_page::{NamedPage, distinct, frame_before, len_bytes};
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::options::CoalesceSettings;
use crate::state::chunk_edit::past;
use crate::state::item::ItemKey;
use crate::versions::ancestry::Ancestry;

/// The number of pages in a stretch. It is the most that the kernel reads at once.
pub(super) const STRETCH_PAGES: u64 = 256;
/// The same in bytes.
pub(super) const STRETCH_BYTES: u64 = STRETCH_PAGES * PAGE_SIZE as u64;

/// A list with at most so many pages in its first stretch is short.
pub(super) const MAX_SHORT_PAGES: usize = 64;

/// Moving is worth it if it saves at least so many reads,
const LEAST_SAVED: u64 = 2;
/// and these are half of all reads, or at least so many.
const MANY_SAVED: u64 = 4;
/// In a list whose client wants its blocks together, each read that is saved is worth it.
const LEAST_SAVED_IN_CLUSTERED: u64 = 1;

/// A page is quiet if at least so many segments have been written since it was written,
const QUIET_SEGMENTS: u64 = 4;
/// and if at least one part in so many of the time over which the stretch was written has passed
/// since. Pages that are written at random all the time are rarely all quiet for so long at once.
const QUIET_SHARE: u64 = 4;

/// The result of a search for a stretch.
pub(super) enum RunSearch {
    /// There are no more pages.
    Nothing,
    /// The search has not found a stretch yet and continues at this place.
    Elsewhere(Place),
    Here(Stretch),
}

/// Which blocks of a stretch are to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// They say which pieces are small.
    pub(super) settings: CoalesceSettings,
    /// All blocks are wanted, not only those of small pieces.
    pub(super) is_whole: bool,
}

/// What a stretch consists of: a stretch of one list, or short lists that are neighbours.
#[derive(Clone, Debug, Default)]
pub(super) struct Span {
    /// In ascending order; there is at least one.
    pub(super) places: SmallVec<[Place; 1]>,
    /// The list that gives the neighbourhood its name. It belongs to the stretch if it is short.
    beside: Option<Lid>,
}

impl Span {
    /// A span beside a list, without places yet.
    pub(super) fn beside(list: Lid) -> Self {
        Self { places: SmallVec::new(), beside: Some(list) }
    }

    fn of_list(place: Place) -> Self {
        Self { places: smallvec![place], beside: None }
    }

    /// Its first place.
    pub(super) fn first(&self) -> Place {
        self.places[0]
    }
}

/// A stretch that has pages.
pub(super) struct Stretch {
    pub(super) span: Span,
    /// The list that its list is near; `None` for a stretch of several lists.
    pub(super) near: Option<Lid>,
    /// The number of its pages, without pages of zeros,
    pub(super) page_count: usize,
    /// and their bytes.
    pub(super) page_bytes: u64,
    /// What they take on the device,
    pub(super) stored_bytes: u64,
    /// and what they would take if nothing were compressed.
    pub(super) plain_bytes: u64,
    /// The number of reads of the device that these pages take.
    pub(super) reads: u64,
    /// The number of reads that are saved when all small pieces become one.
    pub(super) saved_reads: u64,
    /// Whether moving the small pieces is worth it.
    pub(super) is_worth_it: bool,
    /// The blocks of the small pieces, in the order of the pages. In a stretch that is whole, all
    /// blocks, in the order of the map's entries, with all pages of their frames.
    pub(super) scattered: Vec<NamedPage>,
    /// The place of each of these blocks in a buffer for all of them. Pages of a frame have the
    /// same.
    pub(super) places: Vec<usize>,
    /// The length of that buffer.
    pub(super) buffer_bytes: usize,
    /// The reads for these blocks, in the order of addresses.
    pub(super) fetches: Vec<Fetch>,
    /// The class that the blocks are written to.
    pub(super) class: Class,
    /// Whether the stretch has not been written for a while.
    pub(super) is_quiet: bool,
}

impl Stretch {
    /// The place where the next stretch of its list may begin.
    pub(super) fn end(&self) -> Place {
        let first = self.span.first();
        Place { page: first.page + STRETCH_PAGES, ..first }
    }

    pub(super) fn scattered_bytes(&self) -> u64 {
        len_bytes(&self.scattered)
    }
}

/// Splits `blocks`, sorted by [`order`], into what one read of the device fetches together.
fn pieces(blocks: &[NamedPage]) -> impl Iterator<Item = &[NamedPage]> {
    blocks.chunk_by(|a, b| gap_between(&a.page, &b.page).is_some())
}

/// The order in which blocks are read: whole pages by address, then shorter blocks by address.
fn order(block: &NamedPage) -> (bool, dendro_format::Addr) {
    (!block.page.is_whole(), block.page.addr)
}

impl Engine {
    /// Finds the first stretch from `from` on that has entries in the map, in the lists before
    /// `until`.
    pub(super) fn stretch_from(
        &self,
        view: View,
        from: Place,
        until: u64,
        wanted: &Wanted,
        nodes: &dyn Nodes,
    ) -> Outcome<RunSearch> {
        let start = Key::first(from.list, Space::Chunks, from.page / CHUNK_PAGES);
        let end = Key::first(until, Space::List, 0);
        let mut first = None;
        self.state().map().visit(&start, &end, nodes, &mut |key, _| {
            first = Some(*key);
            ControlFlow::Break(())
        })?;
        let Some(Key { list, space, index, .. }) = first else { return Ok(RunSearch::Nothing) };
        if space != Space::Chunks {
            return Ok(RunSearch::Elsewhere(Place { list, page: 0 }));
        }
        let ancestry = self.state().versions().ancestry(view)?;
        if !self.state().may_have(ancestry, list, nodes)? {
            return Ok(RunSearch::Elsewhere(Place { list: list + 1, page: 0 }));
        }
        let page = index * CHUNK_PAGES / STRETCH_PAGES * STRETCH_PAGES;
        let span = Span::of_list(Place { list, page });
        self.stretch_of(ancestry, span, wanted, nodes).map(RunSearch::Here)
    }

    /// The stretch of `span` as `ancestry` sees it.
    pub(super) fn stretch_of(
        &self,
        ancestry: Ancestry<'_>,
        span: Span,
        &Wanted { ref settings, is_whole }: &Wanted,
        nodes: &dyn Nodes,
    ) -> Outcome<Stretch> {
        let (mut blocks, mut is_clustered, mut near) = (Vec::new(), false, None);
        for place in &span.places {
            // A list may have been deleted since it was found.
            let Some(hints) = self.state().list_hints(ancestry, place.list, nodes)? else {
                continue;
            };
            is_clustered |= hints.locality == Locality::Clustered;
            near = hints.near.filter(|_| span.places.len() == 1 && span.beside.is_none());
            blocks.extend(self.blocks_of(ancestry, *place, is_whole, nodes)?);
        }
        if let Some(list) = span.beside
            && !is_whole
            && self.state().has_list(ancestry, list.0, nodes)?
            && !span.places.iter().any(|place| place.list == list.0)
        {
            let place = Place { list: list.0, page: 0 };
            let beside = self.blocks_of(ancestry, place, is_whole, nodes)?;
            blocks.extend(beside.into_iter().take(MAX_SHORT_PAGES));
        }
        blocks.sort_by_key(order);
        let page_bytes = distinct(&blocks).map(|block| u64::from(block.page.len_bytes)).sum();
        let stored_bytes = len_bytes(&blocks);
        let plain = |block: &NamedPage| u64::from(block.page.plain_footprint_bytes());
        let plain_bytes = blocks.iter().map(plain).sum();
        let is_small = |piece: &[NamedPage]| {
            len_bytes(piece) < u64::from(settings.piece_bytes) || settings.moves_everything
        };
        // Whole pages become one piece, and shorter blocks become one.
        let (mut reads, mut small_pieces, mut small) = (0, [0_u64; 2], Vec::new());
        for piece in pieces(&blocks) {
            reads += 1;
            // A block that has not been written yet cannot be read.
            if piece.iter().any(|block| self.is_in_memory(block)) {
                continue;
            }
            let is_small = is_small(piece);
            small_pieces[usize::from(piece[0].page.is_whole())] += u64::from(is_small);
            if is_small || is_whole {
                small.extend_from_slice(piece);
            }
        }
        small.sort_by_key(|block| {
            let version = is_whole.then_some(block.version);
            (block.list, block.page_index / CHUNK_PAGES, version, block.page_index)
        });
        let (mut places, mut fetches, mut buffer_bytes) = (Vec::new(), Vec::new(), 0);
        for (number, block) in small.iter().enumerate() {
            if let Some(before) = frame_before(&small, number) {
                places.push(places[before]);
                continue;
            }
            let pin = self.state().segments().pin(block.page.addr);
            let list = Lid(block.list);
            fetches.push(Fetch::new(list, block.page_index, block.page, buffer_bytes, pin));
            places.push(buffer_bytes);
            buffer_bytes += room_bytes(&block.page);
        }
        fetches.sort_by_key(Fetch::addr);
        let saved_reads = small_pieces.iter().map(|count| count.saturating_sub(1)).sum();
        let is_worth_it = saved_reads >= MANY_SAVED
            || (saved_reads >= LEAST_SAVED && 2 * saved_reads >= reads)
            || (saved_reads >= LEAST_SAVED_IN_CLUSTERED && is_clustered)
            || (settings.moves_everything && !small.is_empty());
        Ok(Stretch {
            span,
            near,
            page_count: blocks.len(),
            page_bytes,
            stored_bytes,
            plain_bytes,
            reads,
            saved_reads,
            is_worth_it,
            class: self.class_of(&small),
            is_quiet: self.is_quiet(&small) || settings.moves_everything,
            scattered: small,
            places,
            buffer_bytes,
            fetches,
        })
    }

    fn is_in_memory(&self, block: &NamedPage) -> bool {
        self.block_in_memory(block.page.addr, usize::from(block.page.len_bytes)).is_some()
    }

    /// The blocks of a stretch as `ancestry` sees them, in the order of their pages; those that are
    /// frames with the pages that only others see, if `with_frames`.
    fn blocks_of(
        &self,
        ancestry: Ancestry<'_>,
        place: Place,
        with_frames: bool,
        nodes: &dyn Nodes,
    ) -> Outcome<Vec<NamedPage>> {
        let list = place.list;
        let mut blocks = Vec::new();
        let first = place.page / CHUNK_PAGES;
        for number in first..first + STRETCH_PAGES / CHUNK_PAGES {
            let mut wanted = u32::MAX;
            let item = ItemKey::chunk(list, number);
            self.state().look_back_past(ancestry, item, nodes, &mut |key, value| {
                let Value::Chunk(chunk) = value else { return ControlFlow::Break(()) };
                let named = |(slot, page)| NamedPage {
                    list,
                    page_index: number * CHUNK_PAGES + u64::from(slot),
                    version: (key.branch, key.epoch),
                    page,
                };
                let start = blocks.len();
                let stored = chunk.iter_masked(wanted).filter(|(_, page)| page.len_bytes > 0);
                blocks.extend(stored.map(named));
                if with_frames && blocks[start..].iter().any(|block| block.page.is_in_frame()) {
                    let seen = start..blocks.len();
                    let others = chunk.iter_masked(!wanted).filter(|(_, page)| {
                        let seen = &blocks[seen.clone()];
                        seen.iter().any(|block| block.page.shares_frame_with(page))
                    });
                    let others: SmallVec<[NamedPage; 4]> = others.map(named).collect();
                    blocks.extend(others);
                }
                wanted &= !chunk.said();
                if wanted == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(past(chunk, wanted))
                }
            })?;
        }
        Ok(blocks)
    }

    /// The class that the policy chooses for blocks that are written together: that of survivors as
    /// old as these blocks are on average.
    fn class_of(&self, blocks: &[NamedPage]) -> Class {
        let segments = self.state().segments();
        let policy_view = |block: &NamedPage| segments.policy_view_at(block.page.addr);
        // The class is never hotter than the coldest one that the blocks come from.
        let Some(coldest) = blocks.iter().map(policy_view).max_by_key(|from| from.class) else {
            return Class::MAIN;
        };
        let sum: u128 = blocks.iter().map(|block| u128::from(policy_view(block).written_at)).sum();
        let written_at = (sum / blocks.len() as u128) as u64;
        let left = dendro_policy::Segment { written_at, ..coldest };
        self.streams().policy().survivor_class(&left, &self.state().present())
    }

    /// Whether the blocks have not been written for a while. The time of a block is the average
    /// time at which the blocks in its segment were written.
    fn is_quiet(&self, blocks: &[NamedPage]) -> bool {
        let segments = self.state().segments();
        let times =
            || blocks.iter().map(|block| segments.policy_view_at(block.page.addr).written_at);
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return false };
        let quiet = self.state().clock().saturating_sub(last);
        let least = QUIET_SEGMENTS * segments.layout().segment_size_bytes();
        quiet >= least.max((last - first) / QUIET_SHARE)
    }
}
