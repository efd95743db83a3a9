//! The versions of the disk, as its clients see them.

use std::ops::Range;

use dendro_base::{Origin, Timestamp};

use dendro_disk::{
    Branch, ClientKind, Lid, Result, Snapshot, VersionTable, VersionUsage, Versions, View,
};
use dendro_format::superblock::{INCOMPATIBLE_CLIENTS, INCOMPATIBLE_RECEIVED};

use super::LogDisk;
use crate::checkpoint::unless_put_off;
use crate::snapshots::{changes, compare, usage};

impl Versions for LogDisk {
    fn versions(&self) -> VersionTable {
        self.volume.read().state().versions().table().clone()
    }

    fn snapshot(&self, branch: u32, name: Option<&str>) -> Result<Snapshot> {
        let time = self.volume.now();
        self.versions.change(false, |table| table.snapshot(branch, name, time))
    }

    fn branch_off(&self, view: View, name: &str) -> Result<Branch> {
        let time = self.volume.now();
        self.versions.change(false, |table| table.branch_off(view, name, time))
    }

    fn rename(&self, view: View, name: &str) -> Result<()> {
        self.versions.change(true, |table| table.rename(view, name))
    }

    fn hold(&self, view: View, is_held: bool) -> Result<()> {
        // This is allowed on a full disk, because a snapshot that is no longer held can be deleted.
        self.versions.change(true, |table| table.hold(view, is_held))
    }

    fn delete(&self, view: View) -> Result<()> {
        self.versions.change(true, |table| table.delete(view))
    }

    fn promote(&self, branch: u32) -> Result<()> {
        self.versions.change(true, |table| table.promote(branch))
    }

    fn roll_back(&self, branch: u32, to: View) -> Result<Branch> {
        let time = self.volume.now();
        self.versions.change(true, |table| table.roll_back(branch, to, time))
    }

    fn begin_receive(&self, base: Option<View>, kind: Option<ClientKind>) -> Result<Branch> {
        let time = self.volume.now();
        let of_clients = if kind.is_some() { INCOMPATIBLE_CLIENTS } else { 0 };
        self.volume.mark_features(INCOMPATIBLE_RECEIVED | of_clients)?;
        self.versions.change(false, |table| table.begin_receive(base, kind, time))
    }

    fn name_client(&self, branch: u32, name: &str) -> Result<Branch> {
        self.versions.change(false, |table| table.name_client(branch, name))
    }

    fn set_quota(&self, branch: u32, limit_bytes: Option<u64>) -> Result<()> {
        if self.versions.set_quota(branch, limit_bytes)? {
            // So that a crash does not have it counted again.
            unless_put_off(self.checkpointer.take())?;
        }
        Ok(())
    }

    fn note_receive(&self, branch: u32, note: &str) -> Result<()> {
        // What was received so far is kept on a full disk, too.
        self.versions.change(true, |table| table.note_receive(branch, note))
    }

    fn end_receive(
        &self,
        branch: u32,
        name: Option<&str>,
        origin: Origin,
        time: Timestamp,
    ) -> Result<Snapshot> {
        self.versions.change(false, |table| table.end_receive(branch, name, origin, time))
    }

    fn version_usage(&self) -> Result<Vec<VersionUsage>> {
        usage::count(&self.volume)
    }

    fn freed_by(&self, views: &[View]) -> Result<u64> {
        usage::freed_by(&self.volume, views)
    }

    fn changed_lists(&self, a: View, b: View, from: Lid, max: usize) -> Result<Vec<Lid>> {
        compare::changed_lists(&self.volume, (a, b), from, max)
    }

    fn changed_records(
        &self,
        a: View,
        b: View,
        list: Lid,
        from: u64,
        max: usize,
    ) -> Result<Vec<u64>> {
        compare::changed_records(&self.volume, (a, b), list, from, max)
    }

    fn changed_pages(&self, a: View, b: View, list: Lid, from: u64) -> Result<Option<Range<u64>>> {
        compare::changed_pages(&self.volume, (a, b), list, from)
    }

    fn changes_along(&self, views: &[View], max: usize) -> Result<(Vec<(usize, Lid)>, usize)> {
        changes::changes_along(&self.volume, views, max)
    }
}
