//! Making, naming and deleting versions.
//!
//! A change of the version table is a unit of its own in the log: it consists of records of the
//! list that the table is stored in. A change that ends an epoch also makes the open partial
//! segments unchangeable in place, because a version sees their content from then on.

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Branch, Lid, Result, Snapshot, VersionTable, VersionUsage, Versions, View};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::record::MAX_FIXED_LEN_BYTES;
use dendro_format::superblock::INCOMPATIBLE_VERSIONS;
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{PageRef, Record, checksum};

use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::fault::{Fault, Outcome};
use crate::log::partial::{Content, page_record_bytes};
use crate::log::segments::Pin;
use crate::map::Nodes;
use crate::space::no_space::Need;

impl LogDisk {
    /// Marks on the device that the volume has versions, before the log contains records that older
    /// software does not understand. Does nothing if the change will be refused.
    fn mark_feature<T>(&self, change: impl Fn(&mut VersionTable) -> Result<T>) -> Result<()> {
        let mut superblock = self.volume.superblock();
        if superblock.incompatible & INCOMPATIBLE_VERSIONS != 0 {
            return Ok(());
        }
        {
            let engine = self.volume.read();
            self.volume.check_writable(&engine)?;
            change(&mut engine.state.versions.table().clone())?;
        }
        let now = self.volume.now();
        self.volume.append_superblock(&mut superblock, |next| {
            next.incompatible |= INCOMPATIBLE_VERSIONS;
            next.written = now;
        })
    }

    /// Changes the version table, as a commit.
    fn change_versions<T>(
        &self,
        reclaims: bool,
        change: impl Fn(&mut VersionTable) -> Result<T>,
    ) -> Result<T> {
        self.mark_feature(&change)?;
        // A deletion may delete all ancestors too.
        let branches = self.volume.read().state.versions.table().ancestors().len() as u64;
        let need = Need {
            log_bytes: 4 * PAGE_SIZE as u64 + branches * 64,
            kept_bytes: self.reserve_for_versions(reclaims),
            given_back_bytes: 0,
            reclaims,
        };
        let changed =
            self.with_room(need, |engine, nodes| engine.change_versions(&change, nodes))?;
        self.volume.relieve_writer()?;
        Ok(changed)
    }

    /// The bytes that must stay free in addition when a volume gets its first version.
    fn reserve_for_versions(&self, reclaims: bool) -> u64 {
        let engine = self.volume.read();
        let has_none = !engine.state.versions.are_several();
        if has_none && !reclaims { self.map_bytes(&engine) } else { 0 }
    }

    /// Gives the head of a branch copies of its own of those pages of a group that other versions
    /// also see.
    pub(crate) fn unshare(&self, view: View, list: Lid, number: u64) -> Result<()> {
        let shared =
            self.volume.look(|engine, nodes| engine.shared_pages(view, list.0, number, nodes))?;
        let mut copies = Vec::with_capacity(shared.len());
        for (slot, page, in_memory, _pin) in shared {
            let bytes = match in_memory {
                Some(bytes) => bytes,
                None => {
                    let mut bytes = vec![0; usize::from(page.len_bytes)];
                    self.volume.read_device(page.addr, &mut bytes)?;
                    bytes
                }
            };
            let page_index = number * CHUNK_PAGES + u64::from(slot);
            if page.len_bytes > 0 {
                self.volume.check_block(list, page_index, &page, &bytes)?;
            }
            copies.push((slot, page, bytes));
        }
        let needed_bytes =
            (copies.len() * (PAGE_SIZE + page_record_bytes(1)) + 4 * PAGE_SIZE) as u64;
        self.with_room(Need::space(needed_bytes), |engine, nodes| {
            copies.iter().try_for_each(|(slot, page, bytes)| {
                engine.write_copy(view.branch, (list.0, number, *slot), page, bytes, nodes)
            })
        })?;
        self.volume.relieve_writer()
    }
}

/// A page that is copied: its slot, its place, its bytes if they are in memory, and a pin that
/// keeps its segment from being filled again.
type Shared = (u32, PageRef, Option<Vec<u8>>, Pin);

impl Engine {
    /// Changes the version table, as a unit of its own.
    fn change_versions<T>(
        &mut self,
        change: &impl Fn(&mut VersionTable) -> Result<T>,
        nodes: &dyn Nodes,
    ) -> Outcome<T> {
        // The change of the table cannot be undone, so its records are rehearsed first.
        let indexes = self.state.versions.touched_by(change);
        self.rehearse(|engine| {
            indexes.iter().try_for_each(|&index| {
                engine.state.put_system_record(VERSIONS_LIST, index, Some(&[0]), nodes)
            })
        })?;
        let epoch = self.state.versions.epoch();
        self.set_context(0);
        let (result, changes) = self.state.versions.change(change)?;
        if changes.is_empty() {
            return Ok(result);
        }
        self.apply_system_records(VERSIONS_LIST, &changes, nodes).map_err(Fault::unfinished)?;
        if self.state.versions.epoch() != epoch {
            self.end_changes();
        }
        Ok(result)
    }

    fn shared_pages(
        &self,
        view: View,
        list: u64,
        number: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<Vec<Shared>> {
        let slots = 0..CHUNK_PAGES as u32;
        let edit = self.state.edit_chunk_whole(view.branch, list, number, slots.clone(), nodes)?;
        let mut shared = Vec::new();
        for slot in slots.filter(|slot| self.state.is_shared(&edit, *slot)) {
            let Some(page) = edit.page(slot) else { continue };
            let in_memory = match usize::from(page.len_bytes) {
                0 => Some(Vec::new()),
                len => self.block_in_memory(page.addr, len).map(<[u8]>::to_vec),
            };
            shared.push((slot, page, in_memory, self.state.segments.pin(page.addr)));
        }
        Ok(shared)
    }

    /// Writes a page of the head again, as a unit of its own, if the page has not changed.
    fn write_copy(
        &mut self,
        branch: u32,
        (list, number, slot): (u64, u64, u32),
        page: &PageRef,
        stored: &[u8],
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        debug_assert!(page.len_bytes == 0 || checksum(stored) == page.crc32c);
        self.set_context(branch);
        self.begin_unit(1, page_record_bytes(1) + MAX_FIXED_LEN_BYTES)?;
        self.transact(nodes, |engine| {
            let slots = 0..CHUNK_PAGES as u32;
            let mut edit = engine.state.edit_chunk_whole(branch, list, number, slots, nodes)?;
            if edit.page(slot) != Some(*page) || !engine.state.is_shared(&edit, slot) {
                return Ok(());
            }
            let block = match stored.len() {
                0 => PageRef::ZERO,
                len => engine.partial().place(&Content::of(stored, len)),
            };
            engine.state.replace(&mut edit, slot, block);
            engine.state.put_edit(&edit, nodes)?;
            let page_index = number * CHUNK_PAGES + u64::from(slot);
            let context = engine.context;
            engine.partial().set_context(context);
            if block.len_bytes == 0 {
                let record = Record::ZeroPages { list, first_page: page_index, count: 1 };
                engine.partial().push(&record);
            } else {
                engine.record_page(list, page_index, &block);
            }
            Ok(())
        })?;
        self.end_unit();
        Ok(())
    }
}

impl Versions for LogDisk {
    fn versions(&self) -> VersionTable {
        self.volume.read().state.versions.table().clone()
    }

    fn snapshot(&self, branch: u32, name: Option<&str>) -> Result<Snapshot> {
        let time = self.volume.now();
        self.change_versions(false, |table| table.snapshot(branch, name, time))
    }

    fn branch_off(&self, view: View, name: &str) -> Result<Branch> {
        let time = self.volume.now();
        self.change_versions(false, |table| table.branch_off(view, name, time))
    }

    fn rename(&self, view: View, name: &str) -> Result<()> {
        self.change_versions(true, |table| table.rename(view, name))
    }

    fn hold(&self, view: View, is_held: bool) -> Result<()> {
        // This is allowed on a full disk, because a snapshot that is no longer held can be deleted.
        self.change_versions(true, |table| table.hold(view, is_held))
    }

    fn delete(&self, view: View) -> Result<()> {
        self.change_versions(true, |table| table.delete(view))
    }

    fn promote(&self, branch: u32) -> Result<()> {
        self.change_versions(true, |table| table.promote(branch))
    }

    fn roll_back(&self, branch: u32, to: View) -> Result<Branch> {
        let time = self.volume.now();
        self.change_versions(true, |table| table.roll_back(branch, to, time))
    }

    fn version_usage(&self) -> Result<Vec<VersionUsage>> {
        self.count_usage()
    }

    fn freed_by(&self, views: &[View]) -> Result<u64> {
        self.count_freed_by(views)
    }

    fn changed_lists(&self, a: View, b: View, from: Lid, max: usize) -> Result<Vec<Lid>> {
        self.find_changed_lists(a, b, from, max)
    }
}
