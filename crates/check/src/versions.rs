//! Which entries of the map some version sees, found out version by version: slowly, and in another
//! way than the engine does.

use std::collections::{BTreeMap, BTreeSet};

use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{Key, Space, Value, VersionRecord};

/// The branches that a version looks back along, its own first, each with the last epoch seen.
type Line = Vec<(u32, u64)>;

/// Someone who sees entries.
struct Seer {
    line: Line,
    /// It is the moment that a branch was made from. What can be seen through that need not be kept
    /// as long as the branch hides it, but may be.
    is_fork: bool,
}

/// What an entry says.
struct Said {
    key: Key,
    /// Slots of a chunk that it has pages in; all of a record or list.
    has: u32,
    /// Slots that it says anything about.
    says: u32,
    seen: u32,
}

/// Looks for entries that no version sees.
pub(crate) struct Seers {
    seers: Vec<Seer>,
    /// What no version sees is being looked for.
    is_swept: bool,
    /// Deleted lists of which something may be left.
    removed: BTreeSet<u64>,
    /// The entries of the list that the walk is in, and whether each says that it exists.
    list: Vec<(Key, bool)>,
    /// Those of what the walk is at.
    thing: Vec<Said>,
}

impl Seers {
    /// The versions that the records of the table tell of, and the lists that are being removed:
    /// `entries` are those of the disk's own lists from the table on.
    pub(crate) fn new(entries: impl Iterator<Item = (Key, Value)>) -> Self {
        let mut parents = BTreeMap::from([(0, None)]);
        let mut moments = Vec::new();
        let mut forks = Vec::new();
        let mut heads = BTreeMap::from([(0, true)]);
        let mut is_swept = false;
        let mut removed = BTreeSet::new();
        for (key, value) in entries {
            let Value::Record(bytes) = value else { continue };
            if key.list == REMOVALS_LIST {
                removed.extend(removal::decode(key.index, &bytes));
            }
            if key.list != VERSIONS_LIST {
                continue;
            }
            match VersionRecord::decode(key.index, &bytes) {
                Ok(VersionRecord::Counters(counters)) => is_swept = counters.sweep_since.is_some(),
                Ok(VersionRecord::Branch { branch, name, parent, .. }) => {
                    heads.insert(branch, name.is_some());
                    parents.insert(branch, parent);
                    forks.extend(parent);
                }
                Ok(VersionRecord::Snapshot { branch, epoch, .. }) => moments.push((branch, epoch)),
                Err(_) => is_swept = true,
            }
        }
        moments
            .extend(heads.iter().filter(|(_, has)| **has).map(|(branch, _)| (*branch, u64::MAX)));
        let line = |mut at: (u32, u64)| {
            let mut line = vec![at];
            while let Some(Some(parent)) =
                parents.get(&at.0).filter(|parent| parent.is_some_and(|(parent, _)| parent < at.0))
            {
                line.push(*parent);
                at = *parent;
            }
            line
        };
        let views = moments.into_iter().map(|view| (view, false));
        let seers = views.chain(forks.into_iter().map(|fork| (fork, true)));
        let seers = seers.map(|(moment, is_fork)| Seer { line: line(moment), is_fork }).collect();
        Self { seers, is_swept, removed, list: Vec::new(), thing: Vec::new() }
    }

    /// Whether something may be left of a list that no version has.
    pub(crate) fn is_being_removed(&self, list: u64) -> bool {
        self.removed.contains(&list)
    }

    /// Takes the next entry of the map, in their order; returns those of the thing before it that
    /// no version sees.
    pub(crate) fn visit(&mut self, key: &Key, value: &Value) -> Vec<Key> {
        let is_next = self.thing.first().is_some_and(|said| {
            let Key { list, space, index, .. } = said.key;
            (list, space, index) != (key.list, key.space, key.index)
        });
        let unseen = if is_next { self.finish() } else { Vec::new() };
        if self.list.first().is_some_and(|(first, _)| first.list != key.list) {
            self.list.clear();
        }
        if key.space == Space::List {
            self.list.push((*key, !matches!(value, Value::Tombstone)));
        }
        let (has, says) = match value {
            Value::Chunk(chunk) => (chunk.present(), chunk.said()),
            // What hides nothing any more takes no room to speak of.
            Value::Tombstone => (0, u32::MAX),
            _ => (u32::MAX, u32::MAX),
        };
        self.thing.push(Said { key: *key, has, says, seen: 0 });
        unseen
    }

    /// As [`Self::visit`] for the last thing of all.
    pub(crate) fn finish(&mut self) -> Vec<Key> {
        let mut thing = std::mem::take(&mut self.thing);
        let of_disk = |said: &Said| said.key.list >= dendro_format::usage::FIRST_SYSTEM_LIST;
        // Of a list that does not exist in any version something else is said.
        let is_of_list =
            thing.first().map(|said| said.key.list) == self.list.first().map(|(key, _)| key.list);
        let is_removed = thing.first().is_some_and(|said| self.is_being_removed(said.key.list));
        if self.is_swept || is_removed || !is_of_list || thing.first().is_none_or(of_disk) {
            return Vec::new();
        }
        for Seer { line, is_fork } in &self.seers {
            if thing.iter().all(|said| said.has & !said.seen == 0) {
                break;
            }
            let has_list = newest(line, self.list.iter().map(|(key, has)| (key, *has)));
            // Of a list that a branch has deleted the parent's entry goes before what is in it.
            if has_list != Some(true) && !(*is_fork && has_list.is_none()) {
                continue;
            }
            let mut left = u32::MAX;
            for (branch, last) in line {
                let own = |said: &&mut Said| said.key.branch == *branch && said.key.epoch <= *last;
                for said in thing.iter_mut().rev().filter(own) {
                    said.seen |= said.says & left;
                    left &= !said.says;
                }
            }
        }
        let unseen = thing.into_iter().filter(|said| said.has & !said.seen != 0);
        unseen.map(|said| said.key).collect()
    }
}

/// What the newest of the entries says that are seen along `line`.
fn newest<'a, T: Copy>(
    line: &Line,
    entries: impl DoubleEndedIterator<Item = (&'a Key, T)> + Clone,
) -> Option<T> {
    line.iter().find_map(|(branch, last)| {
        let own = |(key, _): &(&Key, T)| key.branch == *branch && key.epoch <= *last;
        entries.clone().rev().find(own).map(|(_, said)| said)
    })
}
