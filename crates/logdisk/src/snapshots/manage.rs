//! Making, naming and deleting versions.
//!
//! A change of the version table is a unit of its own in the log: it consists of records of the
//! list that the table is stored in. A change that ends an epoch also makes the open partial
//! segments unchangeable in place, because a version sees their content from then on.

use dendro_base::sync::Arc;
use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Error, Result, VersionTable};
use dendro_format::superblock::{INCOMPATIBLE_QUOTAS, INCOMPATIBLE_VERSIONS};
use dendro_format::versions::VERSIONS_LIST;

use crate::engine::Engine;
use crate::fault::{Fault, Outcome};
use crate::map::Nodes;
use crate::reclaim::no_space::Reclaimer;
use crate::space::reserve::Accounts;
use crate::space::shortage::Need;
use crate::volume::Volume;
use crate::volume::holds::LockHolder;

/// Makes, names and deletes versions.
pub(crate) struct VersionManager {
    volume: Arc<Volume>,
    accounts: Arc<Accounts>,
    reclaimer: Arc<Reclaimer>,
}

impl VersionManager {
    pub(crate) const fn new(
        volume: Arc<Volume>,
        accounts: Arc<Accounts>,
        reclaimer: Arc<Reclaimer>,
    ) -> Self {
        Self { volume, accounts, reclaimer }
    }

    /// Marks on the device that the volume has versions, before the log contains records that older
    /// software does not understand. Does nothing if the change will be refused.
    fn mark_feature<T>(&self, change: impl Fn(&mut VersionTable) -> Result<T>) -> Result<()> {
        if self.volume.newest_superblock().incompatible & INCOMPATIBLE_VERSIONS != 0 {
            return Ok(());
        }
        {
            let engine = self.volume.read();
            self.volume.check_writable(&engine)?;
            change(&mut engine.state().versions().table().clone())?;
        }
        self.volume.mark_features(INCOMPATIBLE_VERSIONS)
    }

    /// Changes the version table, as a commit.
    pub(crate) fn change<T>(
        &self,
        reclaims: bool,
        change: impl Fn(&mut VersionTable) -> Result<T>,
    ) -> Result<T> {
        self.mark_feature(&change)?;
        let need = self.need(reclaims);
        let changed = self
            .reclaimer
            .with_room(need, |engine, nodes| engine.change_versions(&change, nodes))?;
        self.volume.relieve_writer()?;
        Ok(changed)
    }

    /// Gives the client that `branch` belongs to a quota, as a commit. Returns whether the client
    /// was counted for that.
    pub(crate) fn set_quota(&self, branch: u32, limit_bytes: Option<u64>) -> Result<bool> {
        let change = |table: &mut VersionTable| table.set_quota(branch, limit_bytes);
        if limit_bytes.is_none() {
            return self.change(true, change).map(|()| false);
        }
        self.mark_feature(change)?;
        self.volume.mark_features(INCOMPATIBLE_QUOTAS)?;
        let (client, _) = self.volume.read().state().versions().table().client_of(branch);
        let mut was_walked = false;
        loop {
            let set = self.reclaimer.with_room(self.need(true), |engine, nodes| {
                // A checkpoint stops the count of a client that has no quota yet.
                let is_counted = engine.state().is_counted(client);
                if is_counted { engine.change_versions(&change, nodes).map(Some) } else { Ok(None) }
            })?;
            if set.is_some() {
                self.volume.relieve_writer()?;
                return Ok(was_walked);
            }
            was_walked = true;
            self.count(client)?;
        }
    }

    /// Counts what a client uses, from the map.
    fn count(&self, client: u32) -> Result<()> {
        self.volume.change(LockHolder::Walk, |engine, _| {
            engine.state_mut().begin_count(client);
            Ok(())
        })?;
        let step = || {
            let holder = LockHolder::Walk;
            self.volume.change(holder, |engine, nodes| engine.state_mut().count_step(client, nodes))
        };
        while !step()? {}
        Ok(())
    }

    /// Counts the clients with quotas of which it is not known what they use. Returns notes about
    /// those for which that failed: they have no quota until the volume is opened again.
    ///
    /// # Errors
    /// [`Error::Failed`] when the disk does not accept writes.
    pub(crate) fn count_unknown(&self) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        let clients = self.volume.read().state().uncounted();
        for client in clients {
            match self.count(client) {
                Err(error @ (Error::Corrupted(_) | Error::Io(_))) => notes.push(format!(
                    "the quota of client {client} is not kept, because what it uses cannot be \
                     counted: {error}"
                )),
                counted => counted?,
            }
        }
        Ok(notes)
    }

    /// What a change needs.
    fn need(&self, reclaims: bool) -> Need {
        let engine = self.volume.read();
        let versions = engine.state().versions();
        // A deletion may delete all ancestors too.
        let branches = versions.table().ancestors().len() as u64;
        // When a volume gets its first version, as much as the map takes must stay free.
        let is_first = !reclaims && !versions.are_several();
        let kept_bytes = if is_first { self.accounts.map_bytes(&engine) } else { 0 };
        Need::space(4 * PAGE_SIZE as u64 + branches * 64)
            .keeping(kept_bytes)
            .reclaiming_if(reclaims)
    }
}

impl Engine {
    /// Changes the version table, as a unit of its own.
    pub(crate) fn change_versions<T>(
        &mut self,
        change: &impl Fn(&mut VersionTable) -> Result<T>,
        nodes: &dyn Nodes,
    ) -> Outcome<T> {
        if self.state().versions().rearrangement().is_some() {
            // No version may keep a part of it.
            return Err(Fault::Rearranged);
        }
        let (result, plan) = self.state().versions().plan(change)?;
        if plan.records().is_empty() {
            return Ok(result);
        }
        let epoch = self.state().versions().epoch();
        self.apply_system_records(VERSIONS_LIST, plan.records(), nodes)?;
        self.state_mut().change_versions(plan);
        self.note_versions_changed();
        if self.state().versions().epoch() != epoch {
            self.end_changes();
        }
        Ok(result)
    }
}
