//! The names of snapshots that keep a head that was replaced.
//!
//! The name says why, of which branch unless that was the main one, and when:
//! `before-rollback-2026-11-24T20.31.05`, `before-try-of-work-2026-11-24T20.31.05`. By that name
//! the snapshot is found again to undo the replacement; once a user renames it, it is an ordinary
//! snapshot.

use dendro_base::Timestamp;
use dendro_disk::VersionTable;
use jiff::tz::TimeZone;

/// Why a head was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// The branch was rolled back.
    Rollback,
    /// A rollback was undone.
    Undo,
    /// A clone replaced it, whatever it was.
    Promote,
    /// A clone of it replaced it.
    Try,
    /// The head was not replaced: it is what a delegate has put in the place of another one. It
    /// shows whether the head has changed since.
    Next,
}

const ALL: [(Before, &str); 5] = [
    (Before::Next, "after-try-"),
    (Before::Rollback, "before-rollback-"),
    (Before::Undo, "before-undo-"),
    (Before::Promote, "before-promote-"),
    (Before::Try, "before-try-"),
];

/// The format of the time, and its length. It has no colons, which separate names.
const TIME: &str = "%Y-%m-%dT%H.%M.%S";
const TIME_LEN: usize = "2026-11-24T20.31.05".len();
/// The prefix of the branch's name. A branch name longer than the maximum is replaced by the
/// branch's number.
const OF: &str = "of-";
const MAX_BRANCH_LEN: usize = 160;

/// The part of a name that stands for `branch`; empty for the main one.
pub(super) fn label(branch: u32, table: &VersionTable) -> String {
    match table.branch(branch) {
        Some(branch) if branch.branch == table.main => String::new(),
        Some(branch) if branch.name.len() <= MAX_BRANCH_LEN => format!("{OF}{}-", branch.name),
        _ => format!("{OF}branch-{branch}-"),
    }
}

/// A name that no snapshot has yet.
pub(super) fn new_name(
    before: Before,
    branch: u32,
    table: &VersionTable,
    now: Timestamp,
) -> String {
    let prefix = ALL.iter().find(|(of, _)| *of == before).map_or("", |(_, prefix)| prefix);
    let time = jiff::Timestamp::from_nanosecond(i128::from(now.0)).unwrap_or_default();
    let time = time.to_zoned(TimeZone::system()).strftime(TIME);
    let first = format!("{prefix}{}{time}", label(branch, table));
    let others = (2..).map(|number| format!("{first}-{number}"));
    let mut names = std::iter::once(first.clone()).chain(others);
    names.find(|name| table.snapshot_named(name).is_none()).unwrap_or(first)
}

/// Why a snapshot with this name was kept, and the part that stands for its branch; `None` if it is
/// no such name.
pub(super) fn parse(name: &str) -> Option<(Before, &str)> {
    let (before, rest) =
        ALL.iter().find_map(|(before, prefix)| Some((*before, name.strip_prefix(prefix)?)))?;
    let is_time =
        |text: &str| text.len() == TIME_LEN && jiff::civil::DateTime::strptime(TIME, text).is_ok();
    // A number follows the time if two snapshots were made in one second.
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

/// The name of the branch whose head a snapshot called `name` keeps.
pub(super) fn branch_of(name: &str, table: &VersionTable) -> Option<String> {
    let (_, label) = parse(name)?;
    match label.strip_prefix(OF).and_then(|rest| rest.strip_suffix('-')) {
        Some(branch) => Some(branch.to_owned()),
        None => table.branch(table.main).map(|branch| branch.name.clone()),
    }
}

/// Whether `name` is that of a snapshot that keeps a replaced head.
pub(super) fn is_kept(name: &str) -> bool {
    parse(name).is_some()
}

#[cfg(test)]
mod tests {
    use dendro_disk::View;

    use super::*;

    #[test]
    fn names_say_why_of_what_and_when() {
        let mut table = VersionTable::new(Timestamp(0));
        let head = View { branch: 0, epoch: None };
        table.branch_off(head, "work-2026-11-24T20.31.05-7", Timestamp(0)).unwrap();
        table.branch_off(head, &"x".repeat(255), Timestamp(0)).unwrap();
        for (branch, of) in [(0, "main"), (1, "work-2026-11-24T20.31.05-7"), (2, "branch-2")] {
            for (before, prefix) in ALL {
                let first = new_name(before, branch, &table, Timestamp(1_795_000_000_000_000_000));
                assert!(first.starts_with(prefix) && first.len() < 255, "{first}");
                let made = table.snapshot(branch, Some(&first), Timestamp(0));
                assert_eq!(made.unwrap().name.as_deref(), Some(&*first), "it is a name");
                let second = new_name(before, branch, &table, Timestamp(1_795_000_000_000_000_000));
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
