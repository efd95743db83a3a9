//! Entries of the map as a view sees them (DESIGN §7).
//!
//! A key of the map carries the branch and the epoch that its entry was written in, and a view sees
//! what lies on its ancestry ([`crate::versions::ancestry`]). Of several entries of one item the newest that is seen
//! counts; of a chunk's pages, each from the newest entry that speaks of it.
//!
//! A branch has a higher number than the one it was made from. So among the keys of one item, which
//! lie side by side in the map, what is nearer on the ancestry comes later, and the map need only be
//! walked backwards.

use std::ops::ControlFlow;

use dendro_format::{Key, Space, Value};

use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::State;
use crate::versions::ancestry::{Ancestry, AncestrySpan};

/// So many entries that are not seen are walked over before the next one that may be is looked for.
const MAX_PASSED: usize = 16;

/// Is called with entries; may name an epoch of the entry's branch from which to look on.
type VisitPast<'a> = dyn FnMut(&Key, &Value) -> ControlFlow<(), Option<u64>> + 'a;

/// What versions are kept of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemKey {
    pub(crate) list: u64,
    pub(crate) space: Space,
    pub(crate) index: u64,
}

impl ItemKey {
    pub(crate) const fn of(key: &Key) -> Self {
        Self { list: key.list, space: key.space, index: key.index }
    }

    pub(crate) const fn list(list: u64) -> Self {
        Self { list, space: Space::List, index: 0 }
    }

    pub(crate) const fn record(list: u64, index: u64) -> Self {
        Self { list, space: Space::Records, index }
    }

    pub(crate) const fn chunk(list: u64, index: u64) -> Self {
        Self { list, space: Space::Chunks, index }
    }

    pub(crate) const fn key(self, branch: u32, epoch: u64) -> Key {
        Key { list: self.list, space: self.space, index: self.index, branch, epoch }
    }
}

impl State {
    /// Calls `visit` with the entries of `item` that are seen from `ancestry`, newest first, until it
    /// breaks. It begins where the head of the ancestry's branch would write.
    pub(crate) fn look_back(
        &self,
        ancestry: Ancestry<'_>,
        item: ItemKey,
        nodes: &dyn Nodes,
        visit: &mut dyn FnMut(&Key, &Value) -> ControlFlow<()>,
    ) -> Outcome<()> {
        self.look_back_past(ancestry, item, nodes, &mut |key, value| match visit(key, value) {
            ControlFlow::Break(()) => ControlFlow::Break(()),
            ControlFlow::Continue(()) => ControlFlow::Continue(None),
        })
    }

    /// As [`Self::look_back`]; `visit` may name an epoch of the entry's branch from which to look on.
    pub(crate) fn look_back_past(
        &self,
        ancestry: Ancestry<'_>,
        item: ItemKey,
        nodes: &dyn Nodes,
        visit: &mut VisitPast<'_>,
    ) -> Outcome<()> {
        let first = item.key(0, 0);
        let mut at = ancestry.nearest();
        let mut is_done = false;
        let mut past = None;
        while !is_done {
            is_done = true;
            let AncestrySpan { branch, last_epoch } = at;
            let from = past.take().unwrap_or(last_epoch);
            let to = item.key(branch, from.min(last_epoch).min(self.versions.epoch()));
            let mut passed = 0;
            self.map.visit_back(&first, &to, nodes, &mut |key, value| {
                if at.branch > key.branch {
                    let Some(next) = ancestry.next_at_most(at, key.branch) else {
                        return ControlFlow::Break(());
                    };
                    at = next;
                }
                if at.branch != key.branch || key.epoch > at.last_epoch {
                    // What belongs to branches beside the ancestry is passed over; much of it by
                    // looking for what comes next.
                    passed += 1;
                    is_done = passed < MAX_PASSED;
                    return if is_done {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    };
                }
                let ControlFlow::Continue(to) = visit(key, value) else {
                    return ControlFlow::Break(());
                };
                if ancestry.ends_with(key) {
                    return ControlFlow::Break(());
                }
                // One that leads nowhere below is damage, and must not be followed for ever.
                let Some((to, below)) = to.zip(key.epoch.checked_sub(1)) else {
                    return ControlFlow::Continue(());
                };
                past = Some(to.min(below));
                is_done = false;
                ControlFlow::Break(())
            })?;
        }
        Ok(())
    }

    /// Whether in `list` a list was made or deleted after `epoch`, in any version.
    pub(crate) fn is_list_newer(&self, list: u64, epoch: u64, nodes: &dyn Nodes) -> Outcome<bool> {
        let mut is_newer = false;
        let (first, end) = (Key::first(list, Space::List, 0), Key::first(list, Space::Records, 0));
        self.map.visit_newer(&first, &end, epoch, nodes, &mut |key, _| {
            is_newer = key.epoch > epoch;
            if is_newer { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(is_newer)
    }

    /// The newest entry of `item` that is seen from `ancestry`.
    pub(crate) fn newest(
        &self,
        ancestry: Ancestry<'_>,
        item: ItemKey,
        nodes: &dyn Nodes,
    ) -> Outcome<Option<(Key, Value)>> {
        let mut newest = None;
        self.look_back(ancestry, item, nodes, &mut |key, value| {
            newest = Some((*key, value.clone()));
            ControlFlow::Break(())
        })?;
        Ok(newest)
    }
}
