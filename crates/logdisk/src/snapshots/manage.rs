//! Making, naming and deleting versions.
//!
//! A change of the table is a unit of its own in the log: records of the list that the table is kept
//! in. One that ends an epoch also ends the time in which what lies in the open partial segments may
//! be changed where it is: a version sees it from now on.

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Branch, Lid, Result, Share, Snapshot, VersionTable, Versions, View};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::superblock::INCOMPATIBLE_VERSIONS;
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{PageRef, checksum};

use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::fault::{Fault, Outcome};
use crate::log::partial::page_record_bytes;
use crate::log::segments::Pin;
use crate::log::superblocks;
use crate::map::Nodes;
use crate::space::Need;
use crate::state::system_key;

impl LogDisk {
    /// Says on the device that the volume has versions, before anything tells of them that older
    /// software would not understand; unless the change will be refused.
    fn mark_feature<T>(&self, change: impl Fn(&mut VersionTable) -> Result<T>) -> Result<()> {
        let mut superblock = self.superblock.lock();
        if superblock.incompatible & INCOMPATIBLE_VERSIONS != 0 {
            return Ok(());
        }
        {
            let engine = self.engine.read();
            self.check_writable(&engine)?;
            change(&mut engine.state.versions.table().clone())?;
        }
        superblock.incompatible |= INCOMPATIBLE_VERSIONS;
        superblock.seq = superblock.seq.wrapping_add(1);
        superblock.written = self.engine.read().clock.now();
        superblocks::append(&self.device, &superblock)
            .map_err(|error| self.latch(Fault::Error(error)))
    }

    /// Changes the table of versions, as a commit.
    fn change_versions<T>(
        &self,
        reclaims: bool,
        change: impl Fn(&mut VersionTable) -> Result<T>,
    ) -> Result<T> {
        self.mark_feature(&change)?;
        // A deletion may take all ancestors with it.
        let branches = self.engine.read().state.versions.table().ancestors().len() as u64;
        let need = Need {
            log_bytes: 4 * PAGE_SIZE as u64 + branches * 64,
            kept_bytes: self.kept_for_versions(reclaims),
            given_back_bytes: 0,
            reclaims,
        };
        let look = |engine: &Engine, nodes: &dyn Nodes| {
            engine.look_at_versions(&engine.state.versions.touched_by(&change), nodes)
        };
        let changed = self.with_room(need, look, |engine, nodes| {
            let epoch = engine.state.versions.epoch();
            engine.set_context(0);
            let (result, changes) = engine.state.versions.change(&change)?;
            if changes.is_empty() {
                return Ok(result);
            }
            if let Err(fault) = engine.apply_system_records(VERSIONS_LIST, &changes, nodes) {
                return Err(self.latch_torn(engine, fault));
            }
            if engine.state.versions.epoch() != epoch {
                engine.end_changes();
            }
            Ok(result)
        })?;
        self.relieve_writer()?;
        Ok(changed)
    }

    /// What must be left free besides for a volume that has its first version.
    fn kept_for_versions(&self, reclaims: bool) -> u64 {
        let engine = self.engine.read();
        let has_none = !engine.state.versions.are_several();
        if has_none && !reclaims { self.map_bytes(&engine) } else { 0 }
    }

    /// Gives the head of a branch copies of its own of those pages of a group that other versions
    /// see too.
    pub(crate) fn unshare(&self, view: View, list: Lid, number: u64) -> Result<()> {
        let shared = self.look(|engine, nodes| engine.shared_pages(view, list.0, number, nodes))?;
        let mut copies = Vec::with_capacity(shared.len());
        for (slot, page, in_memory, _pin) in shared {
            let bytes = match in_memory {
                Some(bytes) => bytes,
                None => {
                    let mut bytes = vec![0; usize::from(page.len_bytes)];
                    self.read_device(page.addr, &mut bytes)?;
                    bytes
                }
            };
            let page_index = number * CHUNK_PAGES + u64::from(slot);
            if page.len_bytes > 0 {
                self.check_block(list, page_index, &page, &bytes)?;
            }
            copies.push((slot, page, bytes));
        }
        let look = |engine: &Engine, nodes: &dyn Nodes| {
            engine.shared_pages(view, list.0, number, nodes).map(drop)
        };
        let needed_bytes =
            (copies.len() * (PAGE_SIZE + page_record_bytes(1)) + 4 * PAGE_SIZE) as u64;
        self.with_room(Need::space(needed_bytes), look, |engine, nodes| {
            engine
                .write_copies(view.branch, list.0, number, &copies, nodes)
                .map_err(|fault| self.latch(fault))
        })?;
        self.relieve_writer()
    }
}

/// A page that is to be copied: its slot, where it lies, its bytes if they are in memory, and what
/// keeps it from being overwritten.
type Shared = (u32, PageRef, Option<Vec<u8>>, Pin);

impl Engine {
    /// Looks at where these records of the table of versions are, or will be.
    pub(crate) fn look_at_versions(&self, indexes: &[u64], nodes: &dyn Nodes) -> Outcome<()> {
        indexes.iter().try_for_each(|&index| {
            self.state.map.look(&system_key(VERSIONS_LIST, index), nodes, |_| ())
        })
    }

    fn shared_pages(
        &self,
        view: View,
        list: u64,
        number: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<Vec<Shared>> {
        let slots = 0..CHUNK_PAGES as u32;
        let group = self.state.open_group_whole(view.branch, list, number, slots.clone(), nodes)?;
        let mut shared = Vec::new();
        for slot in slots.filter(|slot| self.state.is_shared(&group, *slot)) {
            let Some(page) = group.page(slot) else { continue };
            let in_memory = match usize::from(page.len_bytes) {
                0 => Some(Vec::new()),
                len => self.block_in_memory(page.addr, len).map(<[u8]>::to_vec),
            };
            shared.push((slot, page, in_memory, self.state.segments.pin(page.addr)));
        }
        Ok(shared)
    }

    /// Writes pages of the head again, those that are still what they were.
    fn write_copies(
        &mut self,
        branch: u32,
        list: u64,
        number: u64,
        copies: &[(u32, PageRef, Vec<u8>)],
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let slots = 0..CHUNK_PAGES as u32;
        let mut group = self.state.open_group_whole(branch, list, number, slots, nodes)?;
        self.set_context(branch);
        for (slot, page, bytes) in copies {
            if group.page(*slot) != Some(*page) || !self.state.is_shared(&group, *slot) {
                continue;
            }
            debug_assert!(page.len_bytes == 0 || checksum(bytes) == page.crc32c);
            let page_index = number * CHUNK_PAGES + u64::from(*slot);
            let block = self.write_copy(list, page_index, bytes)?;
            self.state.replace(&mut group, *slot, block);
        }
        self.state.put_group(&group, nodes)?;
        self.state.account_for_nodes();
        Ok(())
    }
}

impl Versions for LogDisk {
    fn versions(&self) -> VersionTable {
        self.engine.read().state.versions.table().clone()
    }

    fn snapshot(&self, branch: u32, name: Option<&str>) -> Result<Snapshot> {
        let time = self.engine.read().clock.now();
        self.change_versions(false, |table| table.snapshot(branch, name, time))
    }

    fn branch_off(&self, view: View, name: &str) -> Result<Branch> {
        let time = self.engine.read().clock.now();
        self.change_versions(false, |table| table.branch_off(view, name, time))
    }

    fn rename(&self, view: View, name: &str) -> Result<()> {
        self.change_versions(true, |table| table.rename(view, name))
    }

    fn hold(&self, view: View, is_held: bool) -> Result<()> {
        // What is let go of can be deleted, on a full disk too.
        self.change_versions(true, |table| table.hold(view, is_held))
    }

    fn delete(&self, view: View) -> Result<()> {
        self.change_versions(true, |table| table.delete(view))
    }

    fn promote(&self, branch: u32) -> Result<()> {
        self.change_versions(true, |table| table.promote(branch))
    }

    fn roll_back(&self, branch: u32, to: View) -> Result<Branch> {
        let time = self.engine.read().clock.now();
        self.change_versions(true, |table| table.roll_back(branch, to, time))
    }

    fn shares(&self) -> Result<Vec<Share>> {
        self.count_shares()
    }

    fn freed_by(&self, views: &[View]) -> Result<u64> {
        self.count_freed_by(views)
    }

    fn changed_lists(&self, a: View, b: View, from: Lid, max: usize) -> Result<Vec<Lid>> {
        self.find_changed_lists(a, b, from, max)
    }
}
