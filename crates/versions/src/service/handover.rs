//! Handover: a head is replaced by another one.

use dendro_control::AdminError;
use dendro_control::versions::{
    DiffInfo, KeptInfo, MAX_CHANGES, ReplacedInfo, Replacing, VersionName, VersionsReply,
    VersionsRequest,
};
use dendro_disk::{Lid, VersionTable, View};
use dendro_fs::versions::{diff, forget_maker, maker, note_maker, seen};

use super::context::{Answer, Service, refuse, refuse_disk};
use super::info;
use super::kept_name::{self, Before};

/// A replacement of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The head.
    pub head: View,
    /// The view whose contents the new head starts with.
    pub like: View,
}

impl Service {
    /// The handover that carrying out `request` would cause; `None` for requests that replace no
    /// head.
    ///
    /// # Errors
    /// Why it would not be carried out, as far as that is known without examining files.
    pub fn handover(&self, request: &VersionsRequest) -> Answer<Option<Handover>> {
        let table = self.disk.versions();
        Ok(Some(match request {
            VersionsRequest::Promote { branch, .. } => {
                let (head, like) = (table.main_head(), self.branch(&table, branch)?);
                self.check_same_client(&table, head, like)?;
                Handover { head, like }
            }
            VersionsRequest::Replace { with, .. } => self.replacement(&table, with)?,
            VersionsRequest::Rollback { to, undo, .. } => {
                self.rollback_handover(&table, to, *undo)?
            }
            _ => return Ok(None),
        })
        .filter(|found| found.head != found.like))
    }

    /// The head of the branch called `name`.
    pub(super) fn branch(&self, table: &VersionTable, name: &str) -> Answer<View> {
        self.head(table, &VersionName { branch: Some(name.to_owned()), moment: None })
    }

    pub(super) fn rollback_handover(
        &self,
        table: &VersionTable,
        to: &VersionName,
        undo: bool,
    ) -> Answer<Handover> {
        let branch = VersionName { branch: to.branch.clone(), moment: None };
        let head = self.head(table, &branch)?;
        if to.moment.is_none() {
            return match undo {
                true => Ok(Handover { head, like: self.last_kept(table, head)? }),
                false => Err(AdminError("say how far back, as in TARGET@NAME".into())),
            };
        }
        // What was kept is not in the ancestry of the branch.
        let like = match undo {
            true => self.resolve(table, &VersionName { branch: None, ..to.clone() })?,
            false => self.resolve(table, to)?,
        };
        let name = info::name(like, table).filter(|_| like.epoch.is_some());
        let was_kept = name.is_some_and(|name| kept_name::is_kept(&name));
        let refusal = |why: &str| {
            let [what, branch] = [like, head].map(|view| info::called(view, table));
            Err(AdminError(why.replace("WHAT", &what).replace("BRANCH", &branch)))
        };
        let is_past = || table.past(head).iter().any(|snapshot| snapshot.view() == like);
        match (undo, was_kept) {
            (true, true) => {}
            (true, false) => {
                return refusal("WHAT was not kept by a rollback; leave --undo out to go there");
            }
            (false, _) if is_past() => {}
            (false, true) => {
                return refusal("WHAT is not in the past of BRANCH; --undo brings it back");
            }
            (false, false) => {
                return refusal(
                    "WHAT is not in the past of BRANCH; `dendro clone` and `dendro promote` go \
                     there",
                );
            }
        }
        Ok(Handover { head, like })
    }

    pub(super) fn roll_back(
        &self,
        table: &VersionTable,
        to: &VersionName,
        undo: bool,
        how: Replacing,
    ) -> Answer<VersionsReply> {
        let Handover { head, like } = self.rollback_handover(table, to, undo)?;
        self.check_not_used(table, head)?;
        let before = if undo { Before::Undo } else { Before::Rollback };
        let owner = maker(&*self.disk, head).ok().flatten();
        let kept = self.keep(table, [head, like], before, how)?;
        let made = self.disk.roll_back(head.branch, like);
        let made = made.map_err(|error| self.not_replaced(kept.as_ref(), error))?;
        let is_held = table.snapshot_of(like).is_some_and(|snapshot| snapshot.is_held);
        // Its contents are the branch's again, so the snapshot is no longer needed.
        if undo && !is_held && self.check_not_used(table, like).is_ok() {
            self.disk.delete(like).map_err(refuse_disk)?;
        }
        if undo {
            self.forget(table, head, &[Before::Next])?;
        }
        let is_kept = kept.is_some();
        let reply = self.replaced(made.head(), info::called(like, table), kept)?;
        let reply = self.still_of(owner, made.head(), reply)?;
        if undo && is_kept {
            // The rollback is done, even if there is no room for this.
            let _ = self.keep_made(made.head());
        }
        self.done(reply)
    }

    /// Records that the branch of `head` still belongs to the user to whom it belonged before.
    fn still_of(
        &self,
        owner: Option<u32>,
        head: View,
        reply: VersionsReply,
    ) -> Answer<VersionsReply> {
        let Some(uid) = owner else { return Ok(reply) };
        note_maker(&*self.disk, head, uid).map_err(refuse)?;
        self.done(reply)
    }

    pub(super) fn promote(
        &self,
        table: &VersionTable,
        branch: &str,
        how: Replacing,
    ) -> Answer<VersionsReply> {
        let (head, like) = (table.main_head(), self.branch(table, branch)?);
        if how.discard && head != like {
            self.check_not_used(table, head)?;
        }
        self.disk.promote(like.branch).map_err(refuse_disk)?;
        let kept = match how.discard {
            _ if head == like => None,
            true => self.disk.delete(head).map(|()| None).map_err(refuse_disk)?,
            // The two have changed names.
            false => Some(KeptInfo { branch: head.branch, epoch: None, name: branch.to_owned() }),
        };
        self.replaced(like, info::called(like, table), kept)
    }

    /// The reply after a handover: the branch as it is now, and what became of the former head.
    fn replaced(&self, now: View, like: String, kept: Option<KeptInfo>) -> Answer<VersionsReply> {
        // The branch no longer belongs to the user who made it.
        if matches!(maker(&*self.disk, now), Ok(Some(_))) {
            forget_maker(&*self.disk, now).map_err(refuse)?;
        }
        let table = self.disk.versions();
        let made = table.branch_of(now).map(|branch| info::branch(branch, &table));
        let mut made = made.ok_or_else(|| {
            AdminError(format!("{like} took its place, and is gone again: somebody deleted it"))
        })?;
        made.replaced = Some(ReplacedInfo { like, kept, open_files: Vec::new() });
        self.done(VersionsReply::Branch(made))
    }

    fn replacement(&self, table: &VersionTable, with: &str) -> Answer<Handover> {
        let head = self.head(table, &VersionName::default())?;
        let like = self.branch(table, with)?;
        self.check_same_client(table, head, like)?;
        match head == like {
            true => {
                Err(AdminError(format!(":{with} is what is there already; name another branch")))
            }
            false => Ok(Handover { head, like }),
        }
    }

    /// Carries out a request for a replacement if neither head has changed since the moment that it
    /// names. Then the two have the same contents, and the new branch is deleted. For any other
    /// request, it does nothing and returns `None`.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn spare_replacement(&self, request: &VersionsRequest) -> Answer<Option<VersionsReply>> {
        let VersionsRequest::Replace { with, since: Some(since), .. } = request else {
            return Ok(None);
        };
        let table = self.disk.versions();
        let Handover { head, like } = self.replacement(&table, with)?;
        let since = self.resolve(&table, since)?;
        for view in [like, head] {
            let changed = self.disk.changed_lists(since, view, Lid(0), 1).map_err(refuse)?;
            if !changed.is_empty() {
                return Ok(None);
            }
        }
        self.check_not_used(&table, like)?;
        self.disk.delete(like).map_err(refuse_disk)?;
        let kept = table.branch_of(head).map(|branch| info::branch(branch, &table));
        let kept = kept.ok_or_else(|| {
            AdminError(format!("{} is gone meanwhile", info::called(head, &table)))
        })?;
        self.done(VersionsReply::Branch(kept)).map(Some)
    }

    /// Replaces the head that names without a branch refer to by the branch `with`, unless that
    /// head has changed since `since`. The former head is kept as a snapshot. With `since`, what
    /// the last such request has kept is deleted: of a series of small steps, only the last one can
    /// be undone.
    pub(super) fn replace(
        &self,
        table: &VersionTable,
        with: &str,
        since: Option<&VersionName>,
        how: Replacing,
    ) -> Answer<VersionsReply> {
        let Handover { head, like } = self.replacement(table, with)?;
        self.check_not_used(table, head)?;
        self.check_not_used(table, like)?;
        if let Some(since) = since {
            let since = self.resolve(table, since)?;
            let changes = diff(&*self.disk, since, head).map_err(refuse)?;
            if !changes.is_empty() {
                let changes = match self.who() {
                    Some(who) => seen(&*self.disk, since, head, changes, who).map_err(refuse)?,
                    None => changes,
                };
                let listed: Vec<_> = changes.iter().take(MAX_CHANGES).map(info::change).collect();
                let more = changes.len() > listed.len();
                return Ok(VersionsReply::Diff(DiffInfo {
                    changes: listed,
                    more,
                    ..DiffInfo::default()
                }));
            }
        }
        let before = if since.is_some() { Before::Try } else { Before::Promote };
        let owner = maker(&*self.disk, head).ok().flatten();
        let kept = self.keep(table, [head, like], before, how)?;
        if head == table.main_head() {
            let promoted = self.disk.promote(like.branch);
            promoted.map_err(|error| self.not_replaced(kept.as_ref(), error))?;
        } else {
            // Two branches cannot have the same name. A crash in between leaves both branches, with
            // different names.
            let name = info::name(head, table).unwrap_or_default();
            self.disk.rename(head, &format!("{with}.old")).map_err(refuse)?;
            self.disk.rename(like, &name).map_err(refuse)?;
        }
        self.disk.delete(head).map_err(refuse)?;
        if since.is_some() {
            self.forget(table, head, &[Before::Try, Before::Next])?;
        }
        let is_kept = kept.is_some();
        let reply = self.replaced(like, info::called(like, table), kept)?;
        let reply = self.still_of(owner, like, reply)?;
        if since.is_some() && is_kept {
            // The try has succeeded, even if there is no room for this.
            let _ = self.keep_made(like);
        }
        self.done(reply)
    }
}
