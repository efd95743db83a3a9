//! The table of versions, as far as it was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dendro_format::rearrangement::REARRANGEMENT_INDEX;
use dendro_format::versions::{Counters, VERSIONS_LIST, VersionRecord};
use dendro_format::{Checkpoint, Key, Space, Value};

use super::account::Account;

/// Makes the table whole: each branch that something belongs to exists, and the epoch is behind all
/// that there are. A branch whose record is lost becomes a head of its own. What no version sees is
/// collected once the volume is opened.
pub(super) fn mend(system: &mut BTreeMap<Key, Value>, account: &Account, checkpoint: &Checkpoint) {
    let mut table: BTreeMap<u64, VersionRecord> = BTreeMap::new();
    for (key, value) in system.iter().filter(|(key, _)| key.list == VERSIONS_LIST) {
        let Value::Record(bytes) = value else { continue };
        table
            .extend(VersionRecord::decode(key.index, bytes).ok().map(|record| (key.index, record)));
    }
    system.retain(|key, _| key.list != VERSIONS_LIST);
    // Where records are lost, what seems to be left of a unit may have been done long ago.
    table.remove(&REARRANGEMENT_INDEX);
    let is_first_only = account.epoch <= 1 && account.branches.iter().all(|&branch| branch == 0);
    if table.is_empty() && is_first_only && checkpoint.epoch <= 1 {
        return;
    }
    let mut wanted: BTreeSet<u32> = account.branches.clone();
    let mut epoch = checkpoint.epoch.max(account.epoch).max(1);
    let mut counters = Counters { epoch, main: 0, next_branch: 1, sweep_since: Some(0) };
    let mut heads = BTreeSet::from([0]);
    for record in table.values_mut() {
        match record {
            // What clients use is counted when the volume is opened.
            VersionRecord::Quota { used_bytes, .. } => *used_bytes = None,
            VersionRecord::Rearrangement { .. } => {}
            VersionRecord::Counters(found) => {
                counters = Counters { sweep_since: Some(0), ..*found };
            }
            VersionRecord::Branch { branch, name, parent, .. } => {
                wanted.insert(*branch);
                wanted.extend(parent.map(|(parent, _)| parent));
                epoch = epoch.max(parent.map_or(0, |(_, at)| at + 1));
                match name {
                    Some(_) => heads.insert(*branch),
                    None => heads.remove(branch),
                };
            }
            VersionRecord::Snapshot { branch, epoch: at, .. } => {
                wanted.insert(*branch);
                epoch = epoch.max(*at + 1);
            }
        }
    }
    wanted.insert(counters.main);
    for branch in wanted.iter().copied().filter(|&branch| branch != 0) {
        let lost = VersionRecord::Branch {
            branch,
            name: Some(format!("lost-{branch}")),
            parent: None,
            kind: None,
            time: checkpoint.time,
        };
        let index = lost.index();
        table.entry(index).or_insert_with(|| {
            heads.insert(branch);
            lost
        });
    }
    if !heads.contains(&counters.main) {
        counters.main = heads.first().copied().unwrap_or(0);
    }
    counters.epoch = counters.epoch.max(epoch);
    let next_branch = wanted.last().map_or(1, |last| last.saturating_add(1));
    counters.next_branch = counters.next_branch.max(next_branch);
    let record = VersionRecord::Counters(counters);
    table.insert(record.index(), record);
    for (index, record) in table {
        let key = Key { list: VERSIONS_LIST, space: Space::Records, index, branch: 0, epoch: 1 };
        system.insert(key, Value::Record(Arc::from(record.encode())));
    }
}
