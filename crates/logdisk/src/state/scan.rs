//! A scan: one walk over everything that a view sees.

use std::ops::ControlFlow;

use dendro_base::sync::Arc;
use dendro_disk::{GROUP_PAGES, Lid, ScanPlace, ScanPoint, Scanned};
use dendro_format::{Key, Space, Value};

use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::State;
use crate::state::item::ItemKey;
use crate::state::slice::SLICE_LEN;
use crate::versions::ancestry::Ancestry;

/// The list that a scan is in.
#[derive(Clone, Copy)]
struct OfList {
    number: u64,
    exists: bool,
    /// Older entries belong to a deleted list of its number.
    first_epoch: u64,
}

/// The item that a scan is at, as far as its entries were visited, the oldest first.
struct OfItem {
    key: ItemKey,
    /// The newest value of a record.
    record: Option<Arc<[u8]>>,
    /// The pages of a chunk.
    present: u32,
}

impl OfItem {
    const fn new(key: ItemKey) -> Self {
        Self { key, record: None, present: 0 }
    }

    /// Takes an entry that the view sees.
    fn add(&mut self, list: &mut OfList, value: &Value) {
        match value {
            Value::List(_) => list.exists = true,
            Value::Record(bytes) => self.record = Some(Arc::clone(bytes)),
            Value::Chunk(chunk) => self.present = self.present & !chunk.holes() | chunk.present(),
            Value::Tombstone if self.key.space == Space::List => list.exists = false,
            Value::Tombstone => self.record = None,
        }
    }

    /// What the view sees, after the last entry of the item.
    fn seen(self, list: OfList) -> Option<Scanned> {
        let ItemKey { list: number, space, index } = self.key;
        match space {
            _ if !list.exists => None,
            Space::List => Some(Scanned::List(Lid(number))),
            Space::Records => self.record.map(|record| Scanned::Record(index, record)),
            Space::Chunks => (self.present != 0).then_some(Scanned::Pages {
                first_page: index * GROUP_PAGES,
                present: self.present,
            }),
        }
    }
}

const fn point_before(item: ItemKey) -> ScanPoint {
    let place = match item.space {
        Space::List => ScanPlace::Beginning,
        Space::Records => ScanPlace::Records(item.index),
        Space::Chunks => ScanPlace::Pages(item.index * GROUP_PAGES),
    };
    ScanPoint { list: Lid(item.list), place }
}

const fn first_key(point: ScanPoint) -> Key {
    let list = point.list.0;
    match point.place {
        ScanPlace::Beginning => Key::first(list, Space::List, 0),
        ScanPlace::Records(index) => Key::first(list, Space::Records, index),
        ScanPlace::Pages(page) => Key::first(list, Space::Chunks, page / GROUP_PAGES),
    }
}

impl State {
    /// Adds to `items` what `ancestry` sees from `point` on, until there are `max`, or as much was
    /// visited as may be while the lock is held once. `point` then states where to go on. Returns
    /// whether that was all.
    pub(crate) fn scan(
        &self,
        ancestry: Ancestry<'_>,
        point: &mut ScanPoint,
        (items, max): (&mut Vec<Scanned>, usize),
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let (from, end) = (first_key(*point), Key::first(Lid::CLIENT_END.0, Space::List, 0));
        let of_list = |number, exists| {
            let first_epoch = self.removals.first_epoch(number);
            OfList { number, exists, first_epoch }
        };
        let mut list = of_list(point.list.0, false);
        if from.space != Space::List {
            list.exists = self.has_list(ancestry, list.number, nodes)?;
        }
        let last_epoch = self.versions.epoch();
        let mut item: Option<OfItem> = None;
        let mut left = SLICE_LEN;
        let mut is_cut = false;
        self.map.visit(&from, &end, nodes, &mut |key, value| {
            let own = item.as_mut().filter(|item| item.key == ItemKey::of(key));
            let own = match own {
                Some(own) => own,
                None => {
                    items.extend(item.take().and_then(|before| before.seen(list)));
                    *point = point_before(ItemKey::of(key));
                    is_cut = left == 0 || items.len() >= max;
                    if is_cut {
                        return ControlFlow::Break(());
                    }
                    if list.number != key.list {
                        list = of_list(key.list, false);
                    }
                    item.insert(OfItem::new(ItemKey::of(key)))
                }
            };
            left = left.saturating_sub(1);
            let is_own = (list.first_epoch..=last_epoch).contains(&key.epoch);
            if is_own && ancestry.sees(key) {
                own.add(&mut list, value);
            }
            ControlFlow::Continue(())
        })?;
        if !is_cut {
            items.extend(item.and_then(|last| last.seen(list)));
        }
        Ok(!is_cut)
    }
}
