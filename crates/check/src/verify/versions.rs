//! The versions of a volume, and which of them see what a finding is about. The answer is found
//! version by version: slowly, and in another way than the engine's.

use std::collections::{BTreeMap, BTreeSet};

use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{Checkpoint, Key, Space, Value, VersionRecord};
use serde::Serialize;

use super::below::Below;
use super::finding::SeenIn;
use crate::read::Volume;

/// The most versions that are listed for a finding.
const MAX_VERSIONS_OF_A_FINDING: usize = 16;

/// A version of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Version {
    /// Its branch.
    pub branch: u32,
    /// The last epoch that it sees; `None`: it is the branch's head.
    pub epoch: Option<u64>,
    /// Its name; `None` for a snapshot that has none.
    pub name: Option<String>,
}

/// The branches whose entries a version can see, its own first and then that of each ancestor, each
/// with the last epoch that it sees of it.
pub(super) type Ancestry = Vec<(u32, u64)>;

/// The table of versions, and the lists that are being removed.
pub(super) struct Versions {
    all: Vec<Version>,
    parents: BTreeMap<u32, Option<(u32, u64)>>,
    /// A collection is under way that looks for entries which no version sees among what was
    /// written after this epoch, so that some may be left.
    pub(super) collects_since: Option<u64>,
    /// Whether all of the table could be read. If not, nothing can be said to be in no version.
    is_whole: bool,
    /// Deleted lists of which entries may be left, and the first epoch of a list that was made with
    /// the same number since, or 0.
    removed: BTreeMap<u64, u64>,
    /// The branches that clients beside the first began with.
    clients: BTreeSet<u32>,
    /// The quotas of clients, and what is recorded that they use.
    quotas: BTreeMap<u32, Option<u64>>,
}

impl Versions {
    /// Reads them; without what cannot be read.
    pub(super) fn read(volume: &Volume<'_>, checkpoint: &Checkpoint) -> Self {
        let first = Key::first(VERSIONS_LIST, Space::List, 0);
        let mut parents = BTreeMap::from([(0, None)]);
        let mut snapshots = Vec::new();
        let mut heads = BTreeMap::from([(0, Some("main".to_owned()))]);
        let mut collects_since = None;
        let mut is_whole = true;
        let mut removed = BTreeMap::new();
        let (mut clients, mut quotas) = (BTreeSet::new(), BTreeMap::new());
        for entry in volume.entries(checkpoint, Some(first), None) {
            let Ok((key, value)) = entry else {
                is_whole = false;
                break;
            };
            let Value::Record(bytes) = value else { continue };
            if key.list == REMOVALS_LIST {
                let first_epoch = removal::decode(key.index, &bytes).ok();
                removed.extend(first_epoch.map(|epoch| (key.index, epoch.unwrap_or(0))));
            }
            if key.list != VERSIONS_LIST {
                continue;
            }
            match VersionRecord::decode(key.index, &bytes) {
                Ok(VersionRecord::Counters(counters)) => {
                    collects_since = counters.sweep_since;
                }
                Ok(VersionRecord::Branch { branch, name, parent, kind, .. }) => {
                    heads.insert(branch, name);
                    parents.insert(branch, parent);
                    clients.extend(kind.filter(|_| parent.is_none()).map(|_| branch));
                }
                Ok(VersionRecord::Quota { client, used_bytes, .. }) => {
                    quotas.insert(client, used_bytes);
                }
                Ok(VersionRecord::Rearrangement { .. }) => {}
                Ok(VersionRecord::Snapshot { branch, epoch, name, .. }) => {
                    snapshots.push(Version { branch, epoch: Some(epoch), name });
                }
                Err(_) => is_whole = false,
            }
        }
        if !is_whole {
            collects_since = Some(0);
        }
        let head = |(branch, name): (u32, Option<String>)| {
            name.map(|name| Version { branch, epoch: None, name: Some(name) })
        };
        let mut all = snapshots;
        all.extend(heads.into_iter().filter_map(head));
        all.sort_by_key(|of| (of.branch, of.last_epoch()));
        Self { all, parents, collects_since, is_whole, removed, clients, quotas }
    }

    /// A table of these snapshots, heads, and branches with what each was made from.
    #[cfg(test)]
    pub(super) fn of(snapshots: &[(u32, u64)], heads: &[u32], forks: &[(u32, (u32, u64))]) -> Self {
        let version = |branch, epoch| Version { branch, epoch, name: None };
        let mut all: Vec<_> =
            snapshots.iter().map(|&(branch, epoch)| version(branch, Some(epoch))).collect();
        all.extend(heads.iter().map(|&branch| version(branch, None)));
        all.sort_by_key(|of| (of.branch, of.last_epoch()));
        let parents = forks.iter().map(|&(branch, from)| (branch, Some(from))).collect();
        Self {
            all,
            parents,
            collects_since: None,
            is_whole: true,
            removed: BTreeMap::new(),
            clients: BTreeSet::new(),
            quotas: BTreeMap::new(),
        }
    }

    /// Whether what clients use is recorded.
    pub(super) fn have_quotas(&self) -> bool {
        !self.quotas.is_empty()
    }

    /// The clients of which another use is recorded than what their branches have, which is given
    /// by branch: the client, what is recorded, and what it is.
    pub(super) fn wrong_quotas(&self, of_branches: &BTreeMap<u32, u64>) -> Vec<(u32, u64, u64)> {
        if !self.is_whole {
            return Vec::new();
        }
        let mut counted: BTreeMap<u32, u64> = BTreeMap::new();
        for (branch, bytes) in of_branches {
            if self.parents.contains_key(branch) {
                let first = self.ancestry((*branch, u64::MAX)).last().map_or(0, |of| of.0);
                let client = if self.clients.contains(&first) { first } else { 0 };
                *counted.entry(client).or_default() += bytes;
            }
        }
        let wrong = self.quotas.iter().filter_map(|(client, recorded)| {
            let counted = counted.get(client).copied().unwrap_or_default();
            Some((*client, (*recorded)?, counted)).filter(|_| *recorded != Some(counted))
        });
        wrong.collect()
    }

    /// Whether entries may be left of a list that no version has.
    pub(super) fn is_being_removed(&self, list: u64) -> bool {
        self.removed.contains_key(&list)
    }

    /// The ancestries of all versions, those of heads and of the newest first, since most of what
    /// there is they see.
    pub(super) fn ancestries(&self) -> impl Iterator<Item = Ancestry> {
        let mut newest_first: Vec<_> =
            self.all.iter().map(|of| (of.last_epoch(), of.branch)).collect();
        newest_first.sort_unstable();
        newest_first.into_iter().rev().map(|(epoch, branch)| self.ancestry((branch, epoch)))
    }

    /// The first version of a branch that sees what was written in `epoch`: the branch, and the
    /// last epoch that it sees.
    pub(super) fn first_from(&self, branch: u32, epoch: u64) -> Option<(u32, u64)> {
        let place = |of: &Version| (of.branch, of.last_epoch());
        let first = self.all.partition_point(|of| place(of) < (branch, epoch));
        self.all.get(first).map(place).filter(|of| of.0 == branch)
    }

    /// The ancestries of the versions that branches were made from.
    pub(super) fn ancestries_of_forks(&self) -> impl Iterator<Item = Ancestry> {
        self.parents.values().flatten().map(|fork| self.ancestry(*fork))
    }

    /// The ancestry of a version. Parents have lower numbers than their branches; a table in which
    /// one does not is damaged, and the ancestry ends there.
    pub(super) fn ancestry(&self, mut at: (u32, u64)) -> Ancestry {
        let mut ancestry = vec![at];
        let parent_of = |branch| self.parents.get(&branch).copied().flatten();
        while let Some(parent) = parent_of(at.0).filter(|of| of.0 < at.0) {
            ancestry.push(parent);
            at = parent;
        }
        ancestry
    }

    /// All of them: of each branch the snapshots in their order, and then its head.
    pub(super) fn into_list(self) -> Vec<Version> {
        self.all
    }
}

impl Version {
    /// The last epoch that it sees.
    fn last_epoch(&self) -> u64 {
        self.epoch.unwrap_or(u64::MAX)
    }
}

/// Tells which versions see an entry. It keeps the entries of the item that it was asked about
/// last, since findings about one come one after another.
pub(super) struct Seen<'v> {
    volume: &'v Volume<'v>,
    checkpoint: &'v Checkpoint,
    versions: &'v Versions,
    ancestries: Vec<Ancestry>,
    item: Option<Item>,
}

/// The entries of an item, and those that say whether its list exists; the newest of a branch last.
struct Item {
    of: (u64, Space, u64),
    /// The slots that each entry decides: all for a record.
    entries: Vec<(Key, u32)>,
    list: Vec<(Key, bool)>,
}

impl<'v> Seen<'v> {
    pub(super) fn new(
        volume: &'v Volume<'v>,
        checkpoint: &'v Checkpoint,
        versions: &'v Versions,
    ) -> Self {
        let of = |version: &Version| versions.ancestry((version.branch, version.last_epoch()));
        let ancestries = versions.all.iter().map(of).collect();
        Self { volume, checkpoint, versions, ancestries, item: None }
    }

    /// The versions that take one of `slots` from the entry `key`, perhaps none; `None` if the map
    /// does not tell.
    pub(super) fn by(&mut self, key: &Key, slots: u32) -> Option<SeenIn> {
        let of = (key.list, key.space, key.index);
        if self.item.as_ref().is_none_or(|item| item.of != of) {
            self.item = self.read(of);
        }
        let item = self.item.as_ref()?;
        self.with(|ancestry| item.gives(ancestry, key, slots))
    }

    /// The versions that may have something in a part of the map that cannot be read; `None` if the
    /// table of versions does not tell.
    pub(super) fn below(&self, below: &Below) -> Option<SeenIn> {
        let list = below.list().and_then(|list| self.read((list, Space::List, 0)));
        let may_have = |ancestry: &Ancestry| list.as_ref().is_none_or(|item| item.is_in(ancestry));
        self.versions.is_whole.then(|| self.with(may_have)).flatten()
    }

    /// The versions whose ancestries `has` is true of.
    fn with(&self, has: impl Fn(&Ancestry) -> bool) -> Option<SeenIn> {
        let mut seen = SeenIn::default();
        for (index, _) in self.ancestries.iter().enumerate().filter(|(_, it)| has(it)) {
            seen.count += 1;
            let is_head = self.versions.all[index].epoch.is_none();
            // A head says more to users than a snapshot.
            if is_head || !seen.is_in_head {
                seen.last = index;
            }
            seen.is_in_head |= is_head;
            if seen.first.len() < MAX_VERSIONS_OF_A_FINDING {
                seen.first.push(index);
            }
        }
        (seen.count > 0 || self.versions.is_whole).then_some(seen)
    }

    /// Reads all entries of an item; `None` if some cannot be read.
    fn read(&self, of: (u64, Space, u64)) -> Option<Item> {
        of.2.checked_add(1)?;
        // What is older belongs to a deleted list, and nobody sees it.
        let first_epoch = self.versions.removed.get(&of.0).copied().unwrap_or(0);
        let entries = |(list, space, index): (u64, Space, u64)| {
            let (from, to) = (Key::first(list, space, index), Key::first(list, space, index + 1));
            let all = self.volume.entries(self.checkpoint, Some(from), Some(to));
            all.filter(move |entry| !matches!(entry, Ok((key, _)) if key.epoch < first_epoch))
        };
        let decided = |(key, value): (Key, Value)| match value {
            Value::Chunk(chunk) => (key, chunk.said()),
            _ => (key, u32::MAX),
        };
        let exists = |(key, value): (Key, Value)| (key, !matches!(value, Value::Tombstone));
        Some(Item {
            of,
            entries: entries(of).map(|entry| entry.map(decided)).collect::<Result<_, _>>().ok()?,
            list: entries((of.0, Space::List, 0))
                .map(|entry| entry.map(exists))
                .collect::<Result<_, _>>()
                .ok()?,
        })
    }
}

impl Item {
    /// Whether the version with this ancestry has the list.
    fn is_in(&self, ancestry: &Ancestry) -> bool {
        newest(ancestry, self.list.iter().map(|(key, exists)| (key, *exists))) == Some(true)
    }

    /// Whether the version with this ancestry takes one of `slots` from the entry `key`.
    fn gives(&self, ancestry: &Ancestry, key: &Key, slots: u32) -> bool {
        if !self.is_in(ancestry) {
            return false;
        }
        let mut undecided = slots;
        for (branch, last) in ancestry {
            let is_own = |of: &Key| of.branch == *branch && of.epoch <= *last;
            for (of, decides) in self.entries.iter().rev().filter(|(of, _)| is_own(of)) {
                if of == key {
                    return undecided & decides != 0;
                }
                undecided &= !decides;
            }
        }
        false
    }
}

/// What the newest of the entries says that are visible along `ancestry`.
pub(super) fn newest<'a, T: Copy>(
    ancestry: &[(u32, u64)],
    entries: impl DoubleEndedIterator<Item = (&'a Key, T)> + Clone,
) -> Option<T> {
    ancestry.iter().find_map(|(branch, last)| {
        let own = |(key, _): &(&Key, T)| key.branch == *branch && key.epoch <= *last;
        entries.clone().rev().find(own).map(|(_, value)| value)
    })
}
