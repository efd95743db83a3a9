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
    /// A version whose entries in the list are seen in their own branch, unless newer ones hide
    /// them: what was found last.
    seen: Option<(u32, u64)>,
}

impl<'v> Visibility<'v> {
    pub(super) fn new(versions: &'v Versions) -> Self {
        let view = |is_fork| move |ancestry| View { ancestry, is_fork };
        let mut views: Vec<View> = versions.ancestries().map(view(false)).collect();
        views.extend(versions.ancestries_of_forks().map(view(true)));
        Self { versions, views, list: Vec::new(), item: Vec::new(), seen: None }
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
            self.seen = None;
        }
        if key.space == Space::List {
            self.list.push((*key, !matches!(value, Value::Tombstone)));
            self.seen = None;
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
        // Nearly all items have one entry, of the same version as others of the list.
        if let [ItemEntry { key, .. }] = &self.item[..] {
            let version = (key.branch, key.epoch);
            if self.seen == Some(version) || self.is_seen_in_own_branch(key, None) {
                self.seen = Some(version);
                self.item.clear();
                return Vec::new();
            }
        }
        let mut item = std::mem::take(&mut self.item);
        self.look(&mut item);
        let invisible = item.iter().filter(|entry| entry.has & !entry.visible != 0);
        let invisible = invisible.map(|entry| entry.key).collect();
        // Its memory is used again.
        item.clear();
        self.item = item;
        invisible
    }

    /// Notes for the entries of an item what versions take from each.
    fn look(&self, item: &mut [ItemEntry]) {
        let Some(Key { list, .. }) = item.first().map(|entry| entry.key) else { return };
        // A list that exists in no version is another finding.
        let list_exists = self.list.first().is_some_and(|(key, _)| key.list == list);
        let is_exempt = self.versions.is_being_removed(list) || self.will_collect(item);
        if is_exempt || !list_exists || list >= FIRST_SYSTEM_LIST {
            item.iter_mut().for_each(|entry| entry.visible = u32::MAX);
            return;
        }
        for at in 0..item.len() {
            if self.is_seen_in_own_branch(&item[at].key, item.get(at + 1).map(|next| &next.key)) {
                item[at].visible = u32::MAX;
            }
        }
        self.look_in_all(item);
    }

    /// Asks all versions, until nothing is left that none has taken.
    fn look_in_all(&self, item: &mut [ItemEntry]) {
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
    }

    /// Whether the first version of the entry's branch that may see it does, and takes all of it:
    /// no newer entry of the item is as old as that. Most entries are found so, without a look at
    /// all versions.
    fn is_seen_in_own_branch(&self, key: &Key, next: Option<&Key>) -> bool {
        let Some(version) = self.versions.first_from(key.branch, key.epoch) else { return false };
        if next.is_some_and(|next| next.branch == key.branch && next.epoch <= version.1) {
            return false;
        }
        let list = || self.list.iter().map(|(key, exists)| (key, *exists));
        let own = newest(&[version], list());
        own.or_else(|| newest(&self.versions.ancestry(version), list())) == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::Rng;

    use super::*;

    fn key(space: Space, (branch, epoch): (u32, u64)) -> Key {
        Key { list: 9, space, index: 0, branch, epoch }
    }

    /// Different places in up to four branches, in the order of keys.
    fn places(rng: &mut Rng, most: u64) -> Vec<(u32, u64)> {
        let mut places: Vec<_> =
            (0..1 + rng.below(most)).map(|_| (rng.below(4) as u32, 1 + rng.below(30))).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    #[test]
    fn what_the_own_branch_tells_is_what_all_versions_tell() {
        let mut unseen_count = 0;
        for seed in 0..5000 {
            let mut rng = Rng::new(seed);
            let forks =
                (1..4).map(|branch| (branch, (rng.below(branch.into()) as u32, 1 + rng.below(30))));
            let forks: Vec<_> = forks.collect();
            let snapshots = places(&mut rng, 12);
            let heads: Vec<u32> = (0..4).filter(|_| rng.below(4) > 0).collect();
            let versions = Versions::of(&snapshots, &heads, &forks);
            let mut visibility = Visibility::new(&versions);
            let list = places(&mut rng, 3).into_iter();
            visibility.list =
                list.map(|place| (key(Space::List, place), rng.below(4) > 0)).collect();
            let entries = |rng: &mut Rng| {
                let decides = rng.below(16) as u32;
                (decides & rng.below(16) as u32, decides)
            };
            let item: Vec<_> = places(&mut rng, 10)
                .into_iter()
                .map(|place| (key(Space::Chunks, place), entries(&mut rng)))
                .collect();
            let item = || -> Vec<ItemEntry> {
                let entry = |&(key, (has, decides))| ItemEntry { key, has, decides, visible: 0 };
                item.iter().map(entry).collect()
            };
            let unseen = |of: &[ItemEntry]| -> Vec<u32> {
                of.iter().map(|entry| entry.has & !entry.visible).collect()
            };
            let (mut quick, mut slow) = (item(), item());
            visibility.look(&mut quick);
            visibility.look_in_all(&mut slow);
            assert_eq!(unseen(&quick), unseen(&slow), "seed {seed}");
            unseen_count += unseen(&slow).iter().filter(|&&slots| slots != 0).count();
        }
        assert!(unseen_count > 1000, "{unseen_count}");
    }
}
