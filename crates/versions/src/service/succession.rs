//! Another head in the place of one.

use dendro_control::AdminError;
use dendro_control::versions::{
    DiffInfo, MAX_CHANGES, VersionName, VersionsReply, VersionsRequest,
};
use dendro_disk::{Lid, VersionTable, View};
use dendro_fs::versions::diff;

use super::{Answer, Service, facts, refuse};

/// What becomes of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Succession {
    /// The head.
    pub head: View,
    /// What is there in its place at first.
    pub like: View,
}

impl Service {
    /// Whose place another head takes if `request` is carried out; `None` for requests that do no
    /// such thing.
    ///
    /// # Errors
    /// Why it would not be carried out, as far as that is seen without looking at files.
    pub fn succession(&self, request: &VersionsRequest) -> Answer<Option<Succession>> {
        let table = self.disk.versions();
        Ok(Some(match request {
            VersionsRequest::Promote { branch } => {
                Succession { head: table.main_head(), like: self.branch(&table, branch)? }
            }
            VersionsRequest::Replace { with, .. } => self.replacement(&table, with)?,
            VersionsRequest::Rollback { to } => self.way_back(&table, to)?,
            _ => return Ok(None),
        })
        .filter(|found| found.head != found.like))
    }

    /// The head of the branch called `name`.
    pub(super) fn branch(&self, table: &VersionTable, name: &str) -> Answer<View> {
        self.head(table, &VersionName { branch: Some(name.to_owned()), moment: None })
    }

    fn way_back(&self, table: &VersionTable, to: &VersionName) -> Answer<Succession> {
        if to.moment.is_none() {
            return Err(AdminError("say how far back, as in TARGET@NAME".into()));
        }
        let branch = VersionName { branch: to.branch.clone(), moment: None };
        let head = self.head(table, &branch)?;
        let like = self.resolve(table, to)?;
        if !table.past(head).iter().any(|snapshot| snapshot.view() == like) {
            return Err(AdminError(format!(
                "{} is not in the past of {}; `dendro clone` and `dendro promote` go there",
                facts::called(like, table),
                facts::called(head, table)
            )));
        }
        Ok(Succession { head, like })
    }

    pub(super) fn roll_back(
        &self,
        table: &VersionTable,
        to: &VersionName,
    ) -> Answer<VersionsReply> {
        let Succession { head, like } = self.way_back(table, to)?;
        self.check_not_mounted(table, head)?;
        let made = self.disk.roll_back(head.branch, like).map_err(refuse)?;
        self.done(VersionsReply::Branch(facts::branch(&made, &self.disk.versions())))
    }

    fn replacement(&self, table: &VersionTable, with: &str) -> Answer<Succession> {
        let head = self.head(table, &VersionName::default())?;
        let like = self.branch(table, with)?;
        match head == like {
            true => Err(AdminError(format!("{with} is that head itself"))),
            false => Ok(Succession { head, like }),
        }
    }

    /// Carries out a request for a replacement where neither head has changed since the moment that it
    /// names, so that nobody can tell the two apart: the new one is deleted. `None`, and nothing done,
    /// for all other requests.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn spare_replacement(&self, request: &VersionsRequest) -> Answer<Option<VersionsReply>> {
        let VersionsRequest::Replace { with, since: Some(since) } = request else {
            return Ok(None);
        };
        let table = self.disk.versions();
        let Succession { head, like } = self.replacement(&table, with)?;
        let since = self.resolve(&table, since)?;
        for view in [like, head] {
            let changed = self.disk.changed_lists(since, view, Lid(0), 1).map_err(refuse)?;
            if !changed.is_empty() {
                return Ok(None);
            }
        }
        self.check_not_mounted(&table, like)?;
        self.disk.delete(like).map_err(refuse)?;
        let kept = table.branch_of(head).map(|branch| facts::branch(branch, &table));
        let kept = kept.ok_or_else(|| AdminError(format!("{head} is gone")))?;
        self.done(VersionsReply::Branch(kept)).map(Some)
    }

    /// Puts the branch `with` in the place of the head here, unless that has changed since `since`.
    pub(super) fn replace(
        &self,
        table: &VersionTable,
        with: &str,
        since: Option<&VersionName>,
    ) -> Answer<VersionsReply> {
        let Succession { head, like } = self.replacement(table, with)?;
        self.check_not_mounted(table, head)?;
        self.check_not_mounted(table, like)?;
        if let Some(since) = since {
            let since = self.resolve(table, since)?;
            let changes = diff(&*self.disk, since, head).map_err(refuse)?;
            if !changes.is_empty() {
                let told: Vec<_> = changes.iter().take(MAX_CHANGES).map(facts::change).collect();
                let more = changes.len() > told.len();
                return Ok(VersionsReply::Diff(DiffInfo { changes: told, more }));
            }
        }
        if head == table.main_head() {
            self.disk.promote(like.branch).map_err(refuse)?;
        } else {
            // No two branches have one name at a time; a crash in between leaves both, told apart.
            let name = facts::name(head, table).unwrap_or_default();
            self.disk.rename(head, &format!("{with}.old")).map_err(refuse)?;
            self.disk.rename(like, &name).map_err(refuse)?;
        }
        self.disk.delete(head).map_err(refuse)?;
        let table = self.disk.versions();
        let made = table.branch_of(like).map(|branch| facts::branch(branch, &table));
        let made = made.ok_or_else(|| AdminError(format!("{like} is gone")))?;
        self.done(VersionsReply::Branch(made))
    }
}
