//! Which entries of the map are visible in some version. The answer is found version by version:
//! slowly, and in another way than the engine's.

use std::collections::{BTreeMap, BTreeSet};

use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{Key, Space, Value, VersionRecord};

/// The branches whose entries a version can see, its own first and then that of each ancestor, each
/// with the last epoch that it sees of it.
type Ancestry = Vec<(u32, u64)>;

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
pub(super) struct Visibility {
    views: Vec<View>,
    /// A collection is under way that looks for such entries among what was written after this
    /// epoch, so that some may be left.
    collects_since: Option<u64>,
    /// Deleted lists of which entries may be left.
    removed: BTreeSet<u64>,
    /// The entries of the list that the walk is in, and whether each says that the list exists.
    list: Vec<(Key, bool)>,
    /// The entries of the item that the walk is at.
    item: Vec<ItemEntry>,
}

impl Visibility {
    /// The versions in the table of versions, and the lists that are being removed. `entries` are
    /// those of the disk's own lists, from the table on.
    pub(super) fn new(entries: impl Iterator<Item = (Key, Value)>) -> Self {
        let mut parents = BTreeMap::from([(0, None)]);
        let mut snapshots = Vec::new();
        let mut forks = Vec::new();
        let mut heads = BTreeMap::from([(0, true)]);
        let mut collects_since = None;
        let mut removed = BTreeSet::new();
        for (key, value) in entries {
            let Value::Record(bytes) = value else { continue };
            if key.list == REMOVALS_LIST {
                removed.extend(removal::decode(key.index, &bytes).is_ok().then_some(key.index));
            }
            if key.list != VERSIONS_LIST {
                continue;
            }
            match VersionRecord::decode(key.index, &bytes) {
                Ok(VersionRecord::Counters(counters)) => {
                    collects_since = counters.sweep_since;
                }
                Ok(VersionRecord::Branch { branch, name, parent, .. }) => {
                    heads.insert(branch, name.is_some());
                    parents.insert(branch, parent);
                    forks.extend(parent);
                }
                Ok(VersionRecord::Snapshot { branch, epoch, .. }) => {
                    snapshots.push((branch, epoch));
                }
                // A version is missing, so nothing can be said to be visible in none.
                Err(_) => collects_since = Some(0),
            }
        }
        let heads = heads.into_iter().filter(|(_, exists)| *exists);
        let heads = heads.map(|(branch, _)| (branch, u64::MAX));
        let versions = snapshots.into_iter().chain(heads).map(|version| (version, false));
        let versions = versions.chain(forks.into_iter().map(|fork| (fork, true)));
        let view = |(version, is_fork)| View { ancestry: ancestry(version, &parents), is_fork };
        let views = versions.map(view).collect();
        Self { views, collects_since, removed, list: Vec::new(), item: Vec::new() }
    }

    /// Whether entries may be left of a list that no version has.
    pub(super) fn is_being_removed(&self, list: u64) -> bool {
        self.removed.contains(&list)
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
        let Some(since) = self.collects_since else { return false };
        let of_list = self.list.iter().map(|(key, _)| key);
        item.iter().map(|entry| &entry.key).chain(of_list).any(|key| key.epoch > since)
    }

    /// As [`Self::visit`], after the last entry of the map.
    pub(super) fn finish(&mut self) -> Vec<Key> {
        let mut item = std::mem::take(&mut self.item);
        let Some(Key { list, .. }) = item.first().map(|entry| entry.key) else { return Vec::new() };
        // A list that exists in no version is another finding.
        let list_exists = self.list.first().is_some_and(|(key, _)| key.list == list);
        let is_exempt = self.is_being_removed(list) || self.will_collect(&item);
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

/// The ancestry of a version. Parents have lower numbers than their branches; a table in which one
/// does not is damaged, and the ancestry ends there.
fn ancestry(mut at: (u32, u64), parents: &BTreeMap<u32, Option<(u32, u64)>>) -> Ancestry {
    let mut ancestry = vec![at];
    while let Some(parent) = parents.get(&at.0).copied().flatten().filter(|of| of.0 < at.0) {
        ancestry.push(parent);
        at = parent;
    }
    ancestry
}

/// What the newest of the entries says that are visible along `ancestry`.
fn newest<'a, T: Copy>(
    ancestry: &Ancestry,
    entries: impl DoubleEndedIterator<Item = (&'a Key, T)> + Clone,
) -> Option<T> {
    ancestry.iter().find_map(|(branch, last)| {
        let own = |(key, _): &(&Key, T)| key.branch == *branch && key.epoch <= *last;
        entries.clone().rev().find(own).map(|(_, value)| value)
    })
}
