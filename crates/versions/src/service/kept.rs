//! Heads that another one took the place of, kept as snapshots.
//!
//! The snapshot's name says what for, of which branch unless that was the main one, and when:
//! `before-rollback-2026-11-24T20.31.05`, `before-try-of-work-2026-11-24T20.31.05`. By that name it is
//! found again when somebody wants it back; whoever renames it keeps it for himself.

use dendro_base::Timestamp;
use dendro_control::AdminError;
use dendro_control::versions::{KeptInfo, Replacing};
use dendro_disk::{Error, Lid, Snapshot, VersionTable, View};
use dendro_fs::versions::diff;
use jiff::tz::TimeZone;

use super::{Answer, Service, facts, refuse};

/// Because of what a head was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Rollback,
    /// A rollback that was taken back.
    Undo,
    /// A clone that was put in its place, whatever was there.
    Promote,
    /// A clone of what it was.
    Try,
    /// Nothing yet: it is what a delegate has put in a head's place, by which is seen whether it is still so.
    Next,
}

const ALL: [(Before, &str); 5] = [
    (Before::Next, "after-try-"),
    (Before::Rollback, "before-rollback-"),
    (Before::Undo, "before-undo-"),
    (Before::Promote, "before-promote-"),
    (Before::Try, "before-try-"),
];

/// How the time is written, and how long that is. A colon stands between names.
const TIME: &str = "%Y-%m-%dT%H.%M.%S";
const TIME_LEN: usize = "2026-11-24T20.31.05".len();
/// What stands before the branch's name, and the longest that is put into a name; of one that is longer
/// the number stands there.
const OF: &str = "of-";
const MAX_BRANCH_LEN: usize = 160;

/// What stands for `branch` in a name; nothing for the main one.
fn label(branch: u32, table: &VersionTable) -> String {
    match table.branch(branch) {
        Some(branch) if branch.branch == table.main => String::new(),
        Some(branch) if branch.name.len() <= MAX_BRANCH_LEN => format!("{OF}{}-", branch.name),
        _ => format!("{OF}branch-{branch}-"),
    }
}

/// A name that no snapshot has.
fn name(before: Before, branch: u32, table: &VersionTable, now: Timestamp) -> String {
    let prefix = ALL.iter().find(|(of, _)| *of == before).map_or("", |(_, prefix)| prefix);
    let time = jiff::Timestamp::from_nanosecond(i128::from(now.0)).unwrap_or_default();
    let time = time.to_zoned(TimeZone::system()).strftime(TIME);
    let first = format!("{prefix}{}{time}", label(branch, table));
    let others = (2..).map(|number| format!("{first}-{number}"));
    let mut names = std::iter::once(first.clone()).chain(others);
    names.find(|name| table.snapshot_named(name).is_none()).unwrap_or(first)
}

/// Why a snapshot called so was kept, and what stands for its branch; `None` if it was made otherwise.
fn parse(name: &str) -> Option<(Before, &str)> {
    let (before, rest) =
        ALL.iter().find_map(|(before, prefix)| Some((*before, name.strip_prefix(prefix)?)))?;
    let is_time =
        |text: &str| text.len() == TIME_LEN && jiff::civil::DateTime::strptime(TIME, text).is_ok();
    // Behind the time there is a number where two were kept in one second.
    let starts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    let mut starts = starts.filter(|&at| at == 0 || rest[..at].ends_with('-'));
    let at = starts.rfind(|&at| {
        let Some(time) = rest.get(at..at + TIME_LEN) else { return false };
        let behind = &rest[at + TIME_LEN..];
        let number = behind.strip_prefix('-').unwrap_or("0");
        is_time(time)
            && (behind.is_empty() || behind.starts_with('-'))
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })?;
    let label = &rest[..at];
    (label.is_empty() || label.starts_with(OF)).then_some((before, label))
}

/// The name of the branch that a snapshot called `name` was kept from.
pub(super) fn branch_of(name: &str, table: &VersionTable) -> Option<String> {
    let (_, label) = parse(name)?;
    match label.strip_prefix(OF).and_then(|rest| rest.strip_suffix('-')) {
        Some(branch) => Some(branch.to_owned()),
        None => table.branch(table.main).map(|branch| branch.name.clone()),
    }
}

/// Whether a snapshot called `name` is one of a head that was replaced.
pub(super) fn is_kept(name: &str) -> bool {
    parse(name).is_some()
}

impl Service {
    /// Keeps `head`, which something like `like` takes the place of, unless it is the same or is not to
    /// be kept.
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
        let name = name(before, head.branch, table, self.clock.now());
        self.note_asker(View { branch: head.branch, epoch: Some(table.epoch) })?;
        let made = self.disk.snapshot(head.branch, Some(&name)).map_err(|error| match error {
            Error::NoSpace { .. } => AdminError(format!(
                "there is no room to keep what {} is now: {error}; remove files or delete snapshots \
                 first, or throw it away with --discard",
                facts::called(head, table)
            )),
            other => refuse(other),
        })?;
        Ok(Some(KeptInfo { branch: made.branch, epoch: Some(made.epoch), name }))
    }

    /// The snapshot with a name that the branch of `head` was made from, if nothing has been changed
    /// since.
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

    /// Answers why a head was not replaced after all, and lets go of what was kept of it.
    pub(super) fn not_replaced(&self, kept: Option<&KeptInfo>, why: Error) -> AdminError {
        if let Some(KeptInfo { branch, epoch, name }) = kept
            && is_kept(name)
        {
            // The error that matters is the other.
            let _ = self.disk.delete(View { branch: *branch, epoch: *epoch });
        }
        refuse(why)
    }

    /// Keeps what a delegate has put in the place of what is kept, so that this user can take it back as long
    /// as it is still so.
    pub(super) fn keep_made(&self, head: View) -> Answer<()> {
        if self.who().is_none() {
            return Ok(());
        }
        let table = self.disk.versions();
        let name = name(Before::Next, head.branch, &table, self.clock.now());
        self.note_asker(View { branch: head.branch, epoch: Some(table.epoch) })?;
        self.disk.snapshot(head.branch, Some(&name)).map(drop).map_err(refuse)
    }

    /// Whether `kept` is how `head` was before the one who asks has put something in its place, by a try or by
    /// taking one back, and `head` is still as that has left it.
    pub(super) fn is_as_left(&self, table: &VersionTable, kept: View, head: View) -> Answer<bool> {
        let before = |view: View| {
            let name = table.snapshot_of(view).and_then(|of| of.name.as_deref());
            name.and_then(parse).map(|(before, _)| before)
        };
        let mut made = table.snapshots_on(head.branch).map(Snapshot::view);
        let Some(made) = made.rfind(|view| before(*view) == Some(Before::Next)) else {
            return Ok(false);
        };
        // One was made right after the other: so nothing that others did lies between them.
        let belong_together = made.epoch == kept.epoch.map(|epoch| epoch + 1)
            && matches!(before(kept), Some(Before::Try | Before::Undo));
        let is_own = belong_together && self.is_own(kept)? && self.is_own(made)?;
        Ok(is_own && diff(&*self.disk, made, head).map_err(refuse)?.is_empty())
    }

    /// What was kept last of what the branch of `head` had been, and is not in its past.
    pub(super) fn last_kept(&self, table: &VersionTable, head: View) -> Answer<View> {
        let own = label(head.branch, table);
        let line = table.line(head);
        let is_past = |of: &Snapshot| {
            line.iter().any(|(branch, last)| *branch == of.branch && of.epoch <= *last)
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
                facts::called(head, table)
            ))
        })
    }

    /// Deletes what was kept because of `which`, up to `table`, of the branch of `head`. Of tries, each only
    /// says how it was before the next.
    pub(super) fn forget(&self, table: &VersionTable, head: View, which: &[Before]) -> Answer<()> {
        let own = label(head.branch, table);
        for snapshot in table.snapshots() {
            let name = snapshot.name.as_deref().and_then(parse);
            let is_older =
                name.is_some_and(|(before, label)| label == own && which.contains(&before));
            let is_free =
                !snapshot.is_held && self.check_not_mounted(table, snapshot.view()).is_ok();
            if is_older && is_free {
                self.disk.delete(snapshot.view()).map_err(refuse)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_why_of_what_and_when() {
        let mut table = VersionTable::new(Timestamp(0));
        let head = View { branch: 0, epoch: None };
        table.branch_off(head, "work-2026-11-24T20.31.05-7", Timestamp(0)).unwrap();
        table.branch_off(head, &"x".repeat(255), Timestamp(0)).unwrap();
        for (branch, of) in [(0, "main"), (1, "work-2026-11-24T20.31.05-7"), (2, "branch-2")] {
            for (before, prefix) in ALL {
                let first = name(before, branch, &table, Timestamp(1_795_000_000_000_000_000));
                assert!(first.starts_with(prefix) && first.len() < 255, "{first}");
                let made = table.snapshot(branch, Some(&first), Timestamp(0));
                assert_eq!(made.unwrap().name.as_deref(), Some(&*first), "it is a name");
                let second = name(before, branch, &table, Timestamp(1_795_000_000_000_000_000));
                assert_eq!(second, format!("{first}-2"));
                for name in [&first, &second] {
                    assert_eq!(parse(name).map(|(before, _)| before), Some(before), "{name}");
                    assert_eq!(branch_of(name, &table).as_deref(), Some(of), "{name}");
                }
            }
        }
        for other in [
            "before-rollback-",
            "before-rollback-today",
            "before-rollback-2026-13-24T20.31.05",
            "before-rollback-2026-11-24T20.31.05-",
            "before-rollback-2026-11-24T20.31.05-x",
            "before-rollback-x2026-11-24T20.31.05",
            "before-rollback-work-2026-11-24T20.31.05",
            "2026-11-24T20.31.05",
            "before-lunch-2026-11-24T20.31.05",
            "before-rollback-ä",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
