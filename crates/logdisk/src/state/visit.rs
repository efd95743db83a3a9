//! Walks over the chunks and the records of a list, as one view sees them.

use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::chunk_edit::{mask, past};
use crate::state::item::ItemKey;
use crate::state::item::space_end;
use crate::state::pages::chunks_of;
use crate::state::slice::Slice;
use crate::state::{Slots, State};
use crate::versions::ancestry::Ancestry;
use dendro_base::sync::Arc;
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Chunk, Key, Space, Value};
use std::ops::{ControlFlow, Range};

/// The maximum number of pages for which each chunk is searched for separately.
const FEW_PAGES: u64 = 8 * CHUNK_PAGES;

/// A function that is called with the indexes and values of records.
type VisitRecord<'a> = dyn FnMut(u64, &Arc<[u8]>) -> ControlFlow<()> + 'a;

impl State {
    /// Calls `visit` in order with the chunks that `pages` of `list` lie in, as `ancestry` sees
    /// them, until it breaks or `slice` ends.
    pub(crate) fn visit_chunks(
        &self,
        ancestry: Ancestry<'_>,
        list: u64,
        pages: &Range<u64>,
        slice: &mut Slice,
        nodes: &dyn Nodes,
        visit: &mut dyn FnMut(u64, &Chunk) -> ControlFlow<()>,
    ) -> Outcome<()> {
        if pages.is_empty() {
            return Ok(());
        }
        if pages.end - pages.start <= FEW_PAGES && self.versions.epoch() > 1 {
            return self.visit_few_chunks(ancestry, list, pages, slice, nodes, visit);
        }
        let from = Key::first(list, Space::Chunks, pages.start / CHUNK_PAGES);
        let to = Key::first(list, Space::Chunks, pages.end.div_ceil(CHUNK_PAGES));
        let first_epoch = self.removals.first_epoch(list);
        let mut layers = Layers::default();
        let mut has_ended = false;
        self.map.visit(&from, &to, nodes, &mut |key, value| {
            let Value::Chunk(chunk) = value else { return ControlFlow::Continue(()) };
            slice.count();
            if layers.number != Some(key.index) {
                let seen = layers.take();
                has_ended = seen.is_some_and(|(number, seen)| visit(number, &seen).is_break())
                    || slice.come_to(key.index).is_break();
                if has_ended {
                    return ControlFlow::Break(());
                }
                layers.number = Some(key.index);
            }
            if key.epoch >= first_epoch && ancestry.sees(key) {
                layers.add(chunk);
            }
            ControlFlow::Continue(())
        })?;
        if let Some((number, seen)) = layers.take().filter(|_| !has_ended) {
            let _ = visit(number, &seen);
        }
        Ok(())
    }

    /// As [`Self::visit_chunks`], with a search for each chunk. Where a chunk has many versions,
    /// this reads only the newest ones. It reports no pages outside `pages`.
    fn visit_few_chunks(
        &self,
        ancestry: Ancestry<'_>,
        list: u64,
        pages: &Range<u64>,
        slice: &mut Slice,
        nodes: &dyn Nodes,
        visit: &mut dyn FnMut(u64, &Chunk) -> ControlFlow<()>,
    ) -> Outcome<()> {
        for (number, slots) in chunks_of(pages.clone()) {
            slice.pass_to(number);
            let mut wanted = mask(slots);
            let mut seen: Slots = [None; CHUNK_PAGES as usize];
            let mut has_any = false;
            let item = ItemKey::chunk(list, number);
            self.look_back_past(ancestry, item, nodes, &mut |_, value| {
                let Value::Chunk(chunk) = value else { return ControlFlow::Break(()) };
                for (slot, page) in chunk.iter_masked(wanted) {
                    seen[slot as usize] = Some(page);
                    has_any = true;
                }
                wanted &= !chunk.said();
                if wanted == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(past(chunk, wanted))
                }
            })?;
            if has_any && visit(number, &Chunk::from_slots(&seen)).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Calls `visit` in order with the records of `list`, as `ancestry` sees them, until it breaks
    /// or `slice` ends. `slice` then states where to continue.
    pub(crate) fn visit_records(
        &self,
        ancestry: Ancestry<'_>,
        list: u64,
        slice: &mut Slice,
        nodes: &dyn Nodes,
        visit: &mut VisitRecord<'_>,
    ) -> Outcome<()> {
        let start = Key::first(list, Space::Records, slice.next());
        let end = space_end(list, Space::Records);
        let first_epoch = self.removals.first_epoch(list);
        let mut newest: Option<(u64, Arc<[u8]>)> = None;
        let mut at = None;
        let mut has_ended = false;
        // Of the entries of a record that are seen, the newest comes last.
        self.map.visit(&start, &end, nodes, &mut |key, value| {
            slice.count();
            if at.replace(key.index) != Some(key.index) {
                let seen = newest.take();
                has_ended = seen.is_some_and(|(index, bytes)| visit(index, &bytes).is_break())
                    || slice.come_to(key.index).is_break();
                if has_ended {
                    return ControlFlow::Break(());
                }
            }
            if key.epoch >= first_epoch && ancestry.sees(key) {
                newest = match value {
                    Value::Record(bytes) => Some((key.index, Arc::clone(bytes))),
                    _ => None,
                };
            }
            ControlFlow::Continue(())
        })?;
        if let Some((index, bytes)) = newest.filter(|_| !has_ended) {
            let _ = visit(index, &bytes);
        }
        Ok(())
    }
}

/// What a view sees of a chunk, assembled from the chunk's entries, the oldest first.
#[derive(Default)]
struct Layers {
    number: Option<u64>,
    first: Option<Arc<Chunk>>,
    merged: Option<Box<Slots>>,
}

impl Layers {
    fn add(&mut self, chunk: &Arc<Chunk>) {
        let Some(first) = &self.first else {
            self.first = Some(Arc::clone(chunk));
            return;
        };
        let merged = self.merged.get_or_insert_with(|| Box::new(first.slots()));
        for (slot, page) in merged.iter_mut().enumerate() {
            if chunk.holes() >> slot & 1 == 1 {
                *page = None;
            }
        }
        for (slot, page) in chunk.iter() {
            merged[slot as usize] = Some(page);
        }
    }

    fn take(&mut self) -> Option<(u64, Arc<Chunk>)> {
        let number = self.number.take()?;
        let first = self.first.take()?;
        let seen = match self.merged.take() {
            Some(merged) => Arc::new(Chunk::from_slots(&merged)),
            None => first,
        };
        Some((number, seen))
    }
}
