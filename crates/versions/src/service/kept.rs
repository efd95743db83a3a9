//! Heads that were replaced, kept as snapshots.

use dendro_control::AdminError;
use dendro_control::versions::{KeptInfo, Replacing};
use dendro_disk::{Error, Lid, Snapshot, VersionTable, View};
use dendro_fs::versions::diff;

use super::context::{Answer, Service, refuse};
use super::info;
use super::kept_name::{Before, is_kept, label, new_name, parse};

impl Service {
    /// Keeps `head`, which is about to be replaced by a head like `like`, as a snapshot. Does
    /// nothing if the two do not differ, or if it is to be discarded.
    pub(super) fn keep(
        &self,
        table: &VersionTable,
        [head, like]: [View; 2],
        before: Before,
        how: Replacing,
    ) -> Answer<Option<KeptInfo>> {
        let is_changed = || {
            let changed = self.disk.changed_lists(like, head, Lid(0), 1).map_err(refuse)?;
            Ok::<_, AdminError>(!changed.is_empty())
        };
        if how.discard || !is_changed()? {
            return Ok(None);
        }
        if before == Before::Undo
            && let Some(same) = self.origin_unchanged(table, head)?
        {
            return Ok(Some(same));
        }
        let name = new_name(before, head.branch, table, self.clock.now());
        self.note_asker(View { branch: head.branch, epoch: Some(table.epoch) })?;
        let made = self.disk.snapshot(head.branch, Some(&name)).map_err(|error| match error {
            Error::NoSpace { .. } => AdminError(format!(
                "there is no room to keep what {} is now: {error}; remove files or delete snapshots \
                 first, or throw it away with --discard",
                info::called(head, table)
            )),
            other => refuse(other),
        })?;
        Ok(Some(KeptInfo { branch: made.branch, epoch: Some(made.epoch), name }))
    }

    /// The named snapshot that the branch of `head` was made from, if `head` has not changed since.
    fn origin_unchanged(&self, table: &VersionTable, head: View) -> Answer<Option<KeptInfo>> {
        let parent = table.parent(head.branch);
        let view = parent.map(|(branch, epoch)| View { branch, epoch: Some(epoch) });
        let origin = view.and_then(|view| table.snapshot_of(view));
        let Some((origin, name)) = origin.and_then(|of| Some((of, of.name.clone()?))) else {
            return Ok(None);
        };
        let changed = self.disk.changed_lists(origin.view(), head, Lid(0), 1).map_err(refuse)?;
        let same = KeptInfo { branch: origin.branch, epoch: Some(origin.epoch), name };
        Ok(changed.is_empty().then_some(same))
    }

    /// The error that a head could not be replaced. Deletes the snapshot that was made of it.
    pub(super) fn not_replaced(&self, kept: Option<&KeptInfo>, why: Error) -> AdminError {
        if let Some(KeptInfo { branch, epoch, name }) = kept
            && is_kept(name)
        {
            // An error here matters less than `why`.
            let _ = self.disk.delete(View { branch: *branch, epoch: *epoch });
        }
        refuse(why)
    }

    /// Keeps what a delegate has put in the place of a kept head, so that this user can take it
    /// back until somebody changes it.
    pub(super) fn keep_made(&self, head: View) -> Answer<()> {
        if self.who().is_none() {
            return Ok(());
        }
        let table = self.disk.versions();
        let name = new_name(Before::Next, head.branch, &table, self.clock.now());
        self.note_asker(View { branch: head.branch, epoch: Some(table.epoch) })?;
        self.disk.snapshot(head.branch, Some(&name)).map(drop).map_err(refuse)
    }

    /// Whether `kept` is the state of `head` before the asker replaced it, by a try or by taking
    /// one back, and `head` is still as the asker left it.
    pub(super) fn is_as_left(&self, table: &VersionTable, kept: View, head: View) -> Answer<bool> {
        let before = |view: View| {
            let name = table.snapshot_of(view).and_then(|of| of.name.as_deref());
            name.and_then(parse).map(|(before, _)| before)
        };
        let mut made = table.snapshots_on(head.branch).map(Snapshot::view);
        let Some(made) = made.rfind(|view| before(*view) == Some(Before::Next)) else {
            return Ok(false);
        };
        // One was made right after the other, so no change of another user lies between them.
        let belong_together = made.epoch == kept.epoch.map(|epoch| epoch + 1)
            && matches!(before(kept), Some(Before::Try | Before::Undo));
        let is_own = belong_together && self.is_own(kept)? && self.is_own(made)?;
        Ok(is_own && diff(&*self.disk, made, head).map_err(refuse)?.is_empty())
    }

    /// The newest kept head of the branch of `head` that is not in its past.
    pub(super) fn last_kept(&self, table: &VersionTable, head: View) -> Answer<View> {
        let own = label(head.branch, table);
        let ancestry = table.ancestry(head);
        let is_past = |of: &Snapshot| {
            ancestry.iter().any(|(branch, last)| *branch == of.branch && of.epoch <= *last)
        };
        let kept = table.snapshots().filter(|of| {
            let name = of.name.as_deref().and_then(parse);
            let is_replaced = |(before, label)| label == own && before != Before::Next;
            name.is_some_and(is_replaced) && !is_past(of)
        });
        let last = kept.max_by_key(|of| of.epoch).map(Snapshot::view);
        last.ok_or_else(|| {
            AdminError(format!(
                "there is nothing to be taken back: no rollback of {} has kept a snapshot \
                 before-rollback-… that is still there",
                info::called(head, table)
            ))
        })
    }

    /// Deletes what was kept for the reasons `which`, up to `table`, of the branch of `head`. Of
    /// several tries only the last one can be undone.
    pub(super) fn forget(&self, table: &VersionTable, head: View, which: &[Before]) -> Answer<()> {
        let own = label(head.branch, table);
        for snapshot in table.snapshots() {
            let name = snapshot.name.as_deref().and_then(parse);
            let is_older =
                name.is_some_and(|(before, label)| label == own && which.contains(&before));
            let is_free = !snapshot.is_held && self.check_not_used(table, snapshot.view()).is_ok();
            if is_older && is_free {
                self.disk.delete(snapshot.view()).map_err(refuse)?;
            }
        }
        Ok(())
    }
}
