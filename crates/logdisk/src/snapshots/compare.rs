//! Where two versions differ. Parts of the map in which nothing was written since their ancestries
//! parted are passed over.

use std::ops::{ControlFlow, Range};

use dendro_disk::{Lid, Result, View};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Key, Space};

use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::read::{check_all_settled, check_settled};
use crate::state::Slots;
use crate::state::item::space_end;
use crate::state::slice::Slice;
use crate::versions::ancestry::Ancestry;
use crate::volume::Volume;

/// The maximum number of map entries that are visited while the lock is held once.
pub(super) const STEP_LEN: usize = 4096;

/// Calls `visit` with entries from `from` to before `end` of which only one of the two views sees
/// each. It returns the key at which to continue, or breaks. It may be called again with the same
/// entry if it misses a node. Of views that `check` refuses, nothing is visited.
fn visit_changed(
    volume: &Volume,
    (a, b): (View, View),
    from: Key,
    end: &Key,
    check: impl Fn(&Engine, View) -> Outcome<()>,
    mut visit: impl FnMut(&Engine, [Ancestry<'_>; 2], &Key, &dyn Nodes) -> Outcome<ControlFlow<(), Key>>,
) -> Result<()> {
    let mut next = from;
    volume.walk_slices(&mut next, |engine, next, nodes| {
        [a, b].into_iter().try_for_each(|view| check(engine, view))?;
        let versions = engine.state().versions();
        let ancestries = [versions.ancestry(a)?, versions.ancestry(b)?];
        let common = ancestries[0].parts_after(&ancestries[1]);
        let mut count = 0;
        let mut at = *next;
        let mut changed = None;
        let walked = engine.state().map().visit_newer(next, end, common, nodes, &mut |key, _| {
            count += 1;
            at = *key;
            if ancestries[0].sees(key) != ancestries[1].sees(key) {
                changed = Some(*key);
            }
            if changed.is_some() || count > STEP_LEN {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        // What was visited is not visited again, except the last entry.
        *next = at;
        walked?;
        let Some(changed) = changed else {
            let is_done = count <= STEP_LEN;
            return Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
        };
        Ok(match visit(engine, ancestries, &changed, nodes)? {
            ControlFlow::Break(()) => ControlFlow::Break(()),
            ControlFlow::Continue(to) => {
                *next = to;
                ControlFlow::Continue(())
            }
        })
    })
}

/// The lists that have an entry which only one of the two views sees.
pub(crate) fn changed_lists(
    volume: &Volume,
    views: (View, View),
    from: Lid,
    max: usize,
) -> Result<Vec<Lid>> {
    let mut lists = Vec::new();
    if max == 0 {
        return Ok(lists);
    }
    let from = Key::first(from.0, Space::List, 0);
    let end = Key::first(Lid::CLIENT_END.0, Space::List, 0);
    visit_changed(volume, views, from, &end, check_all_settled, |_, _, key, _| {
        lists.push(Lid(key.list));
        let is_done = lists.len() >= max;
        let next = Key::first(key.list + 1, Space::List, 0);
        Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(next) })
    })?;
    Ok(lists)
}

/// The records of a list, which both views have, that have an entry which only one of the views
/// sees.
pub(crate) fn changed_records(
    volume: &Volume,
    views: (View, View),
    list: Lid,
    from: u64,
    max: usize,
) -> Result<Vec<u64>> {
    let mut records = Vec::new();
    if max == 0 || list >= Lid::CLIENT_END {
        return Ok(records);
    }
    let end = space_end(list.0, Space::Records);
    let from = Key::first(list.0, Space::Records, from);
    visit_changed(
        volume,
        views,
        from,
        &end,
        |_, _| Ok(()),
        |_, _, key, _| {
            records.push(key.index);
            let next = key.index.checked_add(1).filter(|_| records.len() < max);
            Ok(match next {
                Some(next) => ControlFlow::Continue(Key::first(key.list, Space::Records, next)),
                None => ControlFlow::Break(()),
            })
        },
    )?;
    Ok(records)
}

/// The first pages from `from` on of a list, which both views have, that the views do not have in
/// common.
pub(crate) fn changed_pages(
    volume: &Volume,
    views: (View, View),
    list: Lid,
    from: u64,
) -> Result<Option<Range<u64>>> {
    let mut found = None;
    if list >= Lid::CLIENT_END {
        return Ok(None);
    }
    let end = space_end(list.0, Space::Chunks);
    let first = Key::first(list.0, Space::Chunks, from / CHUNK_PAGES);
    let check = |engine: &Engine, view| check_settled(engine, view, list);
    visit_changed(volume, views, first, &end, check, |engine, [a, b], key, nodes| {
        let pages = key.index * CHUNK_PAGES..(key.index + 1) * CHUNK_PAGES;
        let a = seen_slots(engine, a, list, &pages, nodes)?;
        let b = seen_slots(engine, b, list, &pages, nodes)?;
        let differs = |page_index: &u64| {
            let slot = (page_index - pages.start) as usize;
            a[slot] != b[slot]
        };
        let mut rest = from.max(pages.start)..pages.end;
        let Some(first) = rest.find(differs) else {
            let next = Key::first(list.0, Space::Chunks, key.index + 1);
            return Ok(ControlFlow::Continue(next));
        };
        found = Some(first..rest.find(|page_index| !differs(page_index)).unwrap_or(pages.end));
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// What a view sees of the pages of one chunk.
fn seen_slots(
    engine: &Engine,
    ancestry: Ancestry<'_>,
    list: Lid,
    pages: &Range<u64>,
    nodes: &dyn Nodes,
) -> Outcome<Slots> {
    let mut slots: Slots = [None; CHUNK_PAGES as usize];
    let mut slice = Slice::whole(0);
    let state = engine.state();
    state.visit_chunks(ancestry, list.0, pages, &mut slice, nodes, &mut |_, chunk| {
        slots = chunk.slots();
        ControlFlow::Break(())
    })?;
    Ok(slots)
}
