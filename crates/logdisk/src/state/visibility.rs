//! Visibility: which entries of the map a view sees (DESIGN §7).
//!
//! A key of the map contains the branch and the epoch that its entry was written in. A view sees
//! the entries that lie on its ancestry ([`crate::versions::ancestry`]). Of several entries of one
//! item, the newest that is seen counts. For a chunk, each page comes from the newest entry that
//! has the page or a hole in its place.
//!
//! A branch has a higher number than the one it was made from (ancestry invariant 1). So among the
//! keys of one item, which lie side by side in the map, those nearer on the ancestry come later,
//! and walking the map backwards is enough.

use std::ops::ControlFlow;

use dendro_disk::{Lid, Record};
use dendro_format::{Key, Space, Value};

use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::State;
use crate::state::item::ItemKey;
use crate::versions::ancestry::{Ancestry, AncestrySpan};

/// The number of unseen entries that are passed over one by one before the next span is searched
/// for.
const MAX_PASSED: usize = 16;

/// A function that is called with entries. It may return an older epoch of the entry's branch at
/// which the walk continues.
type VisitPast<'a> = dyn FnMut(&Key, &Value) -> ControlFlow<(), Option<u64>> + 'a;

impl State {
    /// The record at `index` of `list`.
    #[inline]
    pub(crate) fn record(
        &self,
        ancestry: Ancestry<'_>,
        list: Lid,
        index: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<Option<Record>> {
        if list >= Lid::CLIENT_END {
            return Ok(None);
        }
        let item = ItemKey::record(list.0, index);
        let may_be_left = self.removals().contains(list.0);
        if let Some(key) = self.sole_key(ancestry, item).filter(|_| !may_be_left) {
            return self.map.look(&key, nodes, |value| match value {
                Some(Value::Record(bytes)) => Some(Record::clone(bytes)),
                _ => None,
            });
        }
        let newest = self.newest(ancestry, item, nodes)?;
        let Some((key, Value::Record(bytes))) = newest else { return Ok(None) };
        // What the head wrote in this epoch disappears with its list.
        let own = (ancestry.nearest().branch, self.versions.epoch());
        let is_own = own == (key.branch, key.epoch) && !may_be_left;
        let is_there = is_own || self.may_have(ancestry, list.0, nodes)?;
        Ok(is_there.then_some(bytes))
    }

    /// Calls `visit` with the entries of `item` that `ancestry` sees, the newest first, until it
    /// breaks. Entries newer than the current epoch are not visited.
    pub(super) fn look_back(
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

    /// As [`Self::look_back`]; `visit` may return an older epoch of the entry's branch at which the
    /// walk continues.
    pub(crate) fn look_back_past(
        &self,
        ancestry: Ancestry<'_>,
        item: ItemKey,
        nodes: &dyn Nodes,
        visit: &mut VisitPast<'_>,
    ) -> Outcome<()> {
        let first = item.key(0, 0);
        let first_epoch = self.removals.first_epoch(item.list);
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
                if key.epoch < first_epoch {
                    return ControlFlow::Continue(());
                }
                if at.branch > key.branch {
                    let Some(next) = ancestry.next_at_most(at, key.branch) else {
                        return ControlFlow::Break(());
                    };
                    at = next;
                }
                if at.branch != key.branch || key.epoch > at.last_epoch {
                    // Entries of branches beside the ancestry are passed over. If there are many,
                    // the next span is searched for.
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
                // A skip that does not lead backwards is damage, and must not be followed
                // endlessly.
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

    /// Whether `list` was made or deleted after `epoch` in any version.
    pub(crate) fn is_list_newer(&self, list: u64, epoch: u64, nodes: &dyn Nodes) -> Outcome<bool> {
        let mut is_newer = false;
        let (first, end) = (Key::first(list, Space::List, 0), Key::first(list, Space::Records, 0));
        self.map.visit_newer(&first, &end, epoch, nodes, &mut |key, _| {
            is_newer = key.epoch > epoch;
            if is_newer { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(is_newer)
    }

    /// The newest entry of `item` that `ancestry` sees.
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
