//! Which entries of the map are visible in some version. The answer is found version by version:
//! slowly, and in another way than the engine's.

use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::{Key, Space, Value};

use super::versions::{Ancestry, Versions, newest};

/// A version that sees entries.
struct View {
    ancestry: Ancestry,
    /// Whether it is the version that a branch was made from. Entries that only the branch inherits
    /// from it need not be kept while the branch hides them, but may be.
    is_fork: bool,
}

/// An entry of the item that the walk is at.
struct ItemEntry {
    key: Key,
    /// The slots of a chunk that it has pages in; all bits for a record or a list.
    has: u32,
    /// The slots that it decides, by a page or a hole.
    decides: u32,
    /// The slots that some version takes from it.
    visible: u32,
}

/// Looks for entries that no version sees.
pub(super) struct Visibility<'v> {
    versions: &'v Versions,
    views: Vec<View>,
    /// The entries of the list that the walk is in, and whether each says that the list exists.
    list: Vec<(Key, bool)>,
    /// The entries of the item that the walk is at.
    item: Vec<ItemEntry>,
}

impl<'v> Visibility<'v> {
    pub(super) fn new(versions: &'v Versions) -> Self {
        let view = |is_fork| move |ancestry| View { ancestry, is_fork };
        let mut views: Vec<View> = versions.ancestries().map(view(false)).collect();
        views.extend(versions.ancestries_of_forks().map(view(true)));
        Self { versions, views, list: Vec::new(), item: Vec::new() }
    }

    /// Takes the next entry of the map, in the order of keys. If it begins another item, returns
    /// the entries of the item before it that no version sees.
    pub(super) fn visit(&mut self, key: &Key, value: &Value) -> Vec<Key> {
        let begins_item = self.item.first().is_some_and(|entry| {
            let Key { list, space, index, .. } = entry.key;
            (list, space, index) != (key.list, key.space, key.index)
        });
        let invisible = if begins_item { self.finish() } else { Vec::new() };
        if self.list.first().is_some_and(|(first, _)| first.list != key.list) {
            self.list.clear();
        }
        if key.space == Space::List {
            self.list.push((*key, !matches!(value, Value::Tombstone)));
        }
        let (has, decides) = match value {
            Value::Chunk(chunk) => (chunk.present(), chunk.said()),
            // A tombstone that hides nothing is no finding: it takes next to no room.
            Value::Tombstone => (0, u32::MAX),
            _ => (u32::MAX, u32::MAX),
        };
        self.item.push(ItemEntry { key: *key, has, decides, visible: 0 });
        invisible
    }

    /// Whether the collection that is under way looks at an item of the list that the walk is in:
    /// it does if an entry of the item or of the list was written since.
    fn will_collect(&self, item: &[ItemEntry]) -> bool {
        let Some(since) = self.versions.collects_since else { return false };
        let of_list = self.list.iter().map(|(key, _)| key);
        item.iter().map(|entry| &entry.key).chain(of_list).any(|key| key.epoch > since)
    }

    /// As [`Self::visit`], after the last entry of the map.
    pub(super) fn finish(&mut self) -> Vec<Key> {
        let mut item = std::mem::take(&mut self.item);
        let Some(Key { list, .. }) = item.first().map(|entry| entry.key) else { return Vec::new() };
        // A list that exists in no version is another finding.
        let list_exists = self.list.first().is_some_and(|(key, _)| key.list == list);
        let is_exempt = self.versions.is_being_removed(list) || self.will_collect(&item);
        if is_exempt || !list_exists || list >= FIRST_SYSTEM_LIST {
            return Vec::new();
        }
        for View { ancestry, is_fork } in &self.views {
            if item.iter().all(|entry| entry.has & !entry.visible == 0) {
                break;
            }
            let sees_list = newest(ancestry, self.list.iter().map(|(key, exists)| (key, *exists)));
            // When a branch has deleted an inherited list, the parent's entry of the list is
            // removed before the entries in it.
            if sees_list != Some(true) && !(*is_fork && sees_list.is_none()) {
                continue;
            }
            let mut undecided = u32::MAX;
            for (branch, last) in ancestry {
                let own = |entry: &&mut ItemEntry| {
                    entry.key.branch == *branch && entry.key.epoch <= *last
                };
                for entry in item.iter_mut().rev().filter(own) {
                    entry.visible |= entry.decides & undecided;
                    undecided &= !entry.decides;
                }
            }
        }
        let invisible = item.into_iter().filter(|entry| entry.has & !entry.visible != 0);
        invisible.map(|entry| entry.key).collect()
    }
}
