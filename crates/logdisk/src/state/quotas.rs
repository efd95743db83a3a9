//! The quotas of clients: who is counted, and what is recorded of it.

use std::ops::ControlFlow;

use dendro_base::sync::Arc;
use dendro_disk::{Ledger, Lid, Quota, View};
use dendro_format::versions::{VERSIONS_LIST, branch_index, client_of_quota};
use dendro_format::{Key, Space, VersionRecord};

use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::State;
use crate::state::item::system_key;
use crate::versions::Versions;
use crate::versions::change::Plan;

/// The key before which all entries of clients are.
const CLIENTS_END: Key = Key::first(Lid::CLIENT_END.0, Space::List, 0);
/// The entries that are counted under one hold of the lock.
const COUNT_STEP_LEN: usize = 1024;

impl State {
    /// The quota of the client that `branch` belongs to, with what is reserved of it. `None` if it
    /// has none, or is not counted.
    #[inline]
    pub(crate) fn quota_of(&self, branch: u32) -> Option<(Quota, &Arc<Ledger>)> {
        if self.map.charges().are_any() { self.find_quota(branch) } else { None }
    }

    #[inline(never)]
    fn find_quota(&self, branch: u32) -> Option<(Quota, &Arc<Ledger>)> {
        let (client, used_bytes, ledger) = self.map.charges().of_branch(branch)?;
        let limit_bytes = self.versions.table().quota_of(client)?;
        let reserved_bytes = ledger.reserved_bytes();
        Some((Quota { limit_bytes, used_bytes, reserved_bytes }, ledger))
    }

    /// Counts the clients of which the map has records, as far as these say something.
    pub(crate) fn restore_quotas(&mut self, nodes: &dyn Nodes) -> Outcome<()> {
        let quotas: Vec<u32> = self.versions.table().quotas().map(|(client, _)| client).collect();
        for client in quotas {
            let key = system_key(VERSIONS_LIST, quota_record(client, 0, None).index());
            let used_bytes = match self.map.get(&key, nodes)? {
                Some(dendro_format::Value::Record(bytes)) => {
                    match VersionRecord::decode(key.index, &bytes) {
                        Ok(VersionRecord::Quota { used_bytes, .. }) => used_bytes,
                        _ => None,
                    }
                }
                _ => None,
            };
            let branches = self.versions.branches_of(client);
            match used_bytes {
                Some(bytes) => self.map.charges_mut().begin_with(client, branches, bytes),
                None => self.map.charges_mut().begin_unknown(client, branches),
            }
        }
        Ok(())
    }

    /// Begins to count a client, unless it is counted already.
    pub(crate) fn begin_count(&mut self, client: u32) {
        if !self.map.charges().has(client) {
            let branches = self.versions.branches_of(client);
            self.map.charges_mut().begin_unknown(client, branches);
        }
    }

    /// Counts some more entries of a client. Returns whether it is counted as a whole, or not at
    /// all.
    pub(crate) fn count_step(&mut self, client: u32, nodes: &dyn Nodes) -> Outcome<bool> {
        let charges = self.map.charges();
        let Some(from) = charges.left_to_count(client) else { return Ok(true) };
        let (mut bytes, mut count, mut next) = (0_u64, 0, None);
        self.map.visit(&from, &CLIENTS_END, nodes, &mut |key, value| {
            if count == COUNT_STEP_LEN {
                next = Some(*key);
                return ControlFlow::Break(());
            }
            count += 1;
            bytes = bytes.wrapping_add(charges.bytes_for(client, key, value));
            ControlFlow::Continue(())
        })?;
        self.map.charges_mut().count(client, bytes, next);
        Ok(next.is_none())
    }

    /// Whether a client is counted as a whole.
    pub(crate) fn is_counted(&self, client: u32) -> bool {
        let charges = self.map.charges();
        charges.has(client) && charges.left_to_count(client).is_none()
    }

    /// The clients with quotas that are not counted as a whole.
    pub(crate) fn uncounted(&self) -> Vec<u32> {
        self.map.charges().uncounted()
    }

    /// Brings the records of quotas in the map up to date, for a checkpoint.
    pub(crate) fn record_quotas(&mut self, nodes: &dyn Nodes) -> Outcome<()> {
        let Self { map, versions, removals, .. } = self;
        if map.charges().are_any() {
            let table = versions.table();
            if versions.collect_since().is_none() && removals.is_empty() {
                map.charges_mut().note_collected(|branch| versions.knows(branch));
            }
            map.charges_mut().keep(|client| table.quota_of(client).is_some());
        }
        let quotas: Vec<(u32, u64)> = versions.table().quotas().collect();
        for (client, limit_bytes) in quotas {
            let used_bytes = self.map.charges().recordable(client);
            let record = quota_record(client, limit_bytes, used_bytes);
            let (index, bytes) = (record.index(), record.encode());
            let key = system_key(VERSIONS_LIST, index);
            let is_recorded = self.map.look(&key, nodes, |value| match value {
                Some(dendro_format::Value::Record(there)) => **there == bytes[..],
                _ => false,
            })?;
            if !is_recorded {
                self.put_system_record(VERSIONS_LIST, index, Some(&bytes), nodes)?;
            }
        }
        Ok(())
    }

    /// Makes a change of the version table whose records the map has.
    pub(crate) fn change_versions(&mut self, plan: Plan) {
        let branches: Vec<(u32, bool)> = plan
            .touched()
            .iter()
            .filter(|view| view.epoch.is_none())
            .map(|View { branch, .. }| (*branch, self.versions.knows(*branch)))
            .collect();
        self.versions.make(plan);
        for (branch, was_there) in branches {
            self.follow_branch(branch, was_there);
        }
    }

    /// Enters a record in the version table, and counts for quotas what changes by it.
    pub(super) fn enter_in_table(&mut self, index: u64, value: Option<&[u8]>) -> Outcome<()> {
        let branch = index.checked_sub(branch_index(0)).and_then(|at| u32::try_from(at).ok());
        let was_there = branch.is_some_and(|branch| self.versions.knows(branch));
        self.versions.enter(index, value)?;
        if let Some(branch) = branch {
            self.follow_branch(branch, was_there);
        }
        if let Some(client) = client_of_quota(index).filter(|_| value.is_some()) {
            self.begin_count(client);
        }
        Ok(())
    }

    /// Follows a branch that was changed: it may be new, or gone.
    fn follow_branch(&mut self, branch: u32, was_there: bool) {
        let is_there = self.versions.knows(branch);
        let table = self.versions.table();
        if is_there && !was_there {
            let is_root = table.parent(branch).is_none();
            if is_root && table.own_kind(branch).is_some() {
                // It has nothing yet, so whoever gives it a quota soon needs not look for that.
                self.map.charges_mut().begin_new(branch);
            } else if self.map.charges().are_any() {
                let (client, _) = table.client_of(branch);
                self.map.charges_mut().note_branch(branch, client);
            }
        } else if was_there && !is_there {
            self.map.charges_mut().note_gone(branch);
        }
    }
}

/// The record of a quota.
const fn quota_record(client: u32, limit_bytes: u64, used_bytes: Option<u64>) -> VersionRecord {
    VersionRecord::Quota { client, limit_bytes, used_bytes }
}

impl Versions {
    /// All branches of a client, with a head or without.
    fn branches_of(&self, client: u32) -> Vec<u32> {
        let mut parents: Vec<(u32, Option<(u32, u64)>)> = self.table().parents().collect();
        parents.sort_unstable_by_key(|(branch, _)| *branch);
        let mut branches: Vec<u32> = Vec::new();
        for (branch, parent) in parents {
            // A parent has a lower number than its child, so it is known by now.
            let is_one = match parent {
                Some((parent, _)) => branches.binary_search(&parent).is_ok(),
                None => self.table().client_of(branch).0 == client,
            };
            if is_one {
                branches.push(branch);
            }
        }
        branches
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dendro_base::sync::Arc;
    use dendro_base::{Clock, ManualClock};
    use dendro_device::{Device, MemoryDevice};
    use dendro_disk::conformance::versions::differential;
    use dendro_disk::testgen::Profile;
    use dendro_disk::{Aru, CommitSeq, LogicalDisk, Op, Versions, View};
    use dendro_format::Value;
    use dendro_format::chunk::CHUNK_PAGES;

    use super::*;
    use crate::disk::LogDisk;
    use crate::testing::{disk_in_memory, make_list};
    use crate::{FormatOptions, OpenOptions, format};

    /// What the entries of all branches in the version table count, as FORMAT says.
    fn counted(disk: &LogDisk) -> BTreeMap<u32, u64> {
        let nodes = crate::map::store::PinnedNodes::loading(disk.volume().store());
        let engine = disk.volume().read();
        let state = engine.state();
        let mut all = BTreeMap::new();
        state
            .map
            .visit(&Key::MIN, &CLIENTS_END, &nodes, &mut |key, value| {
                if state.versions.knows(key.branch) {
                    let bytes = match value {
                        Value::List(_) => 64,
                        Value::Record(bytes) => 64 + bytes.len() as u64,
                        Value::Chunk(chunk) => (0..CHUNK_PAGES as u32)
                            .filter_map(|slot| chunk.get(slot))
                            .map(|page| match page.len_bytes {
                                0 => 4096,
                                len => u64::from(len).next_multiple_of(64),
                            })
                            .sum(),
                        Value::Tombstone => 0,
                    };
                    *all.entry(state.versions.table().client_of(key.branch).0).or_default() +=
                        bytes;
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        all
    }

    /// Checks all counts, unless the map may have something of branches that are gone.
    fn check_counts(disk: &LogDisk) {
        let counted = counted(disk);
        let engine = disk.volume().read();
        for (client, _) in engine.state().versions.table().quotas() {
            assert!(engine.state().is_counted(client), "client {client}");
            if let Some(bytes) = engine.state().map.charges().recordable(client) {
                let expected = counted.get(&client).copied().unwrap_or_default();
                assert_eq!(bytes, expected, "client {client}");
            }
        }
    }

    fn finish_background(disk: &LogDisk) {
        while disk.removal_step().unwrap() || disk.collection_step().unwrap() {}
    }

    fn profile() -> Profile {
        Profile {
            max_write_bytes: 32 << 10,
            max_large_write_bytes: 200 << 10,
            target_bytes: 256 << 10,
            ..Profile::default()
        }
    }

    #[test]
    fn what_random_work_leaves_is_counted_exactly() {
        for seed in 100..104 {
            let disk = disk_in_memory(24, 256, OpenOptions::default());
            let mut step = 0;
            differential(&disk, seed, 300, &profile(), &mut || {
                step += 1;
                check_counts(&disk);
                match step % 17 {
                    3 => drop(disk.removal_step().unwrap()),
                    5 | 9 => drop(disk.collection_step().unwrap()),
                    11 => drop(disk.background_step().unwrap()),
                    13 => disk.checkpoint().unwrap(),
                    _ => {}
                }
            });
            finish_background(&disk);
            disk.checkpoint().unwrap();
            check_counts(&disk);
        }
    }

    #[test]
    fn counts_are_exact_after_crashes_and_shut_downs() {
        for seed in 200..204 {
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
            let memory = Arc::new(MemoryDevice::new(24 << 20));
            let device: Arc<dyn Device> = Arc::clone(&memory) as _;
            let options = FormatOptions { segment_size_bytes: 256 << 10, ..Default::default() };
            format(&device, &options, &clock).unwrap();
            let open = |device: Arc<dyn Device>| {
                LogDisk::open(device, OpenOptions::default(), Arc::clone(&clock)).unwrap()
            };
            let disk = open(Arc::clone(&device));
            let mut step = 0;
            let mut known_count = 0;
            differential(&disk, seed, 150, &profile(), &mut || {
                step += 1;
                match step % 23 {
                    3 => drop(disk.removal_step().unwrap()),
                    5 | 9 => drop(disk.collection_step().unwrap()),
                    13 => disk.checkpoint().unwrap(),
                    _ => {}
                }
                if step % 10 == 0 {
                    disk.flush(CommitSeq::LATEST).unwrap();
                    let crashed = open(Arc::new(MemoryDevice::from_bytes(&memory.to_bytes())));
                    assert_eq!(crashed.versions(), disk.versions());
                    check_counts(&crashed);
                    finish_background(&crashed);
                    crashed.checkpoint().unwrap();
                    check_counts(&crashed);
                    known_count += crashed.versions().quotas().count();
                }
            });
            assert!(known_count > 0, "seed {seed}: no quota was set");
            disk.shut_down().unwrap();
            drop(disk);
            check_counts(&open(device));
        }
    }

    #[test]
    fn a_client_that_gets_a_quota_is_counted_while_others_write() {
        let disk = disk_in_memory(64, 512, OpenOptions::default());
        let list = make_list(&disk);
        for at in 0..60 {
            let mut aru = Aru::new(View::HEAD);
            for index in 0..100 {
                aru.put_record(list, at * 100 + index, vec![7; 40]);
            }
            disk.commit(aru).unwrap();
        }
        let expected = 64 + 6000 * 104;
        disk.volume().write().state_mut().begin_count(0);
        let step = || {
            disk.volume().change(crate::LockHolder::Walk, |engine, nodes| {
                engine.state_mut().count_step(0, nodes)
            })
        };
        let mut step_count = 0;
        while !step().unwrap() {
            step_count += 1;
            assert_eq!(disk.quota(View::HEAD), None);
            // One record that is counted, and one that is not yet.
            let mut aru = Aru::new(View::HEAD);
            aru.put_record(list, 3, vec![1; 40 + step_count]);
            aru.put_record(list, 5990, vec![1; 40 + step_count]);
            disk.commit(aru).unwrap();
        }
        assert!(step_count > 4);
        disk.set_quota(0, Some(1 << 30)).unwrap();
        let quota = disk.quota(View::HEAD).unwrap();
        assert_eq!(quota.used_bytes, expected + 2 * step_count as u64);
        check_counts(&disk);
    }

    #[test]
    fn a_unit_that_is_refused_leaves_the_count_as_it_was() {
        let disk = disk_in_memory(64, 512, OpenOptions::default());
        let list = make_list(&disk);
        disk.set_quota(0, Some(1 << 20)).unwrap();
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, 0, vec![7; 40 << 12]);
        disk.commit(aru).unwrap();
        let before = disk.quota(View::HEAD).unwrap();
        assert_eq!(before.used_bytes, 64 + (40 << 12));
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(list, 1, vec![7; 100]).write_pages(list, 3, vec![8; 9 << 12]);
        aru.punch_pages(list, 6, 2).delete_record(list, 1);
        aru.push(Op::ZeroPages { list, first_page: 60, count: 40 });
        aru.create_list(list, dendro_disk::ListHints::default());
        disk.commit(aru).unwrap_err();
        assert_eq!(disk.quota(View::HEAD), Some(before));
        check_counts(&disk);
    }

    #[test]
    fn pages_of_a_snapshot_are_moved_when_what_was_deleted_is_freed() {
        let disk = disk_in_memory(64, 512, OpenOptions::default());
        let (list, other) = (make_list(&disk), make_list(&disk));
        let write = |list, first_page, count: usize| {
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, first_page, vec![7; count << 12]);
            disk.commit(aru).unwrap();
        };
        let moving = |from_page, to_page| {
            let mut aru = Aru::new(View::HEAD);
            aru.push(Op::MovePages { from: list, from_page, to: list, to_page, count: 2 });
            aru
        };
        let second_group = CHUNK_PAGES;
        write(list, 0, 8);
        write(list, second_group, 8);
        disk.snapshot(0, Some("s")).unwrap();
        write(other, 0, 9);
        let deleted = disk.snapshot(0, Some("t")).unwrap();
        let mut aru = Aru::new(View::HEAD);
        aru.delete_list(other);
        disk.commit(aru).unwrap();
        disk.set_quota(0, Some(1 << 30)).unwrap();
        let used_bytes = disk.quota(View::HEAD).unwrap().used_bytes;
        disk.set_quota(0, Some(used_bytes + 4096)).unwrap();
        // Moving what a snapshot has copies the pages of its group.
        let refused = disk.commit(moving(0, 99)).unwrap_err();
        assert!(matches!(refused, dendro_disk::Error::OverQuota { .. }), "{refused}");
        disk.delete(deleted.view()).unwrap();
        assert_eq!(disk.quota(View::HEAD).unwrap().used_bytes, used_bytes);
        disk.commit(moving(0, 99)).unwrap();
        check_counts(&disk);
        disk.set_quota(0, Some(1)).unwrap();
        // Nor do units that give space back copy beyond the quota.
        let mut reclaiming = moving(second_group, 50);
        reclaiming.set_reclaims();
        let refused = disk.commit(reclaiming).unwrap_err();
        assert!(matches!(refused, dendro_disk::Error::OverQuota { .. }), "{refused}");
        check_counts(&disk);
    }
}
