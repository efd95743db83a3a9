//! The clients of a disk: which branches and snapshots belong together.

use std::collections::BTreeMap;

use dendro_base::ClientKind;

use super::entries::VersionTable;
use crate::error::{Error, Result};
use crate::types::View;
use crate::versions::version::{Branch, Client, FIRST_CLIENT};

impl VersionTable {
    /// The client that `branch` belongs to, and its kind. The first client has none: what it keeps
    /// is described there.
    #[must_use]
    pub fn client_of(&self, branch: u32) -> (u32, Option<ClientKind>) {
        let mut client = (FIRST_CLIENT, None);
        let mut next = Some(branch);
        while let Some(branch) = next {
            if let Some(kind) = self.own_kind(branch) {
                client = (branch, Some(kind));
            }
            // As in [`Self::ancestry`].
            next = self.parent(branch).map(|(parent, _)| parent).filter(|of| *of < branch);
        }
        client
    }

    /// The kind of the client that `branch` belongs to; `None` for the first client.
    #[must_use]
    pub fn kind_of(&self, branch: u32) -> Option<ClientKind> {
        self.client_of(branch).1
    }

    /// Whether there are other clients than the first.
    #[must_use]
    pub fn are_clients_several(&self) -> bool {
        self.branches_with_kinds().next().is_some()
    }

    /// Gives the client that `branch` belongs to a quota, or none.
    ///
    /// # Errors
    /// [`Error::NoSuchView`] for a branch that does not exist.
    pub fn set_quota(&mut self, branch: u32, limit_bytes: Option<u64>) -> Result<()> {
        if !self.has_head(branch) && !self.is_ancestor(branch) {
            return Err(Error::NoSuchView(View { branch, epoch: None }));
        }
        self.begin_change();
        self.enter_quota(self.client_of(branch).0, limit_bytes);
        Ok(())
    }

    /// Checks that `view` belongs to the client of `branch`.
    ///
    /// # Errors
    /// [`Error::OtherClient`].
    pub(super) fn check_client(&self, view: View, branch: u32) -> Result<()> {
        match self.client_of(view.branch).0 == self.client_of(branch).0 {
            true => Ok(()),
            false => Err(Error::OtherClient(view)),
        }
    }

    /// The clients, in order of their numbers. One is not among them before it has a name or a
    /// snapshot.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        let first = Client { number: FIRST_CLIENT, kind: None, head: None, views: Vec::new() };
        let mut all = BTreeMap::from([(FIRST_CLIENT, first)]);
        let of = |view: View| (view, self.client_of(view.branch));
        let heads = self.branches().filter(|branch| !branch.is_receiving()).map(Branch::head);
        let snapshots = self.snapshots().map(|snapshot| snapshot.view());
        for (view, (number, kind)) in heads.chain(snapshots).map(of) {
            let client = all.entry(number).or_insert_with(|| Client {
                number,
                kind,
                head: None,
                views: Vec::new(),
            });
            client.views.push(view);
        }
        for client in all.values_mut() {
            client.head = self.head_of(client);
        }
        all.into_values().collect()
    }

    /// The head that gives a client its name: of the first client the main one; of another the
    /// newest that has its kind, since a rollback hands it on; else the oldest that there is.
    fn head_of(&self, client: &Client) -> Option<u32> {
        if client.views.contains(&self.main_head()) {
            return Some(self.main);
        }
        let heads = client.views.iter().filter(|view| view.epoch.is_none());
        let mut heads: Vec<u32> = heads.map(|view| view.branch).collect();
        heads.sort_unstable();
        let own = heads.iter().rev().find(|branch| self.own_kind(**branch).is_some());
        own.or_else(|| heads.first()).copied()
    }
}
