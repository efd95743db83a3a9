//! Checks that a disk holds a sound file system, in every version: the counterpart of fsck.
//!
//! | phase | what it looks at | module |
//! |-------|------------------|--------|
//! | i-nodes and blocks | each file's list by itself | [`list`] |
//! | directories | the records of entries | [`list`] |
//! | connectivity | what entries say of files; loops | [`relations`] |
//! | link counts | how many names each file has | [`relations`] |
//! | orphans and counters | the orphan list | [`relations`] |
//!
//! One reading of the lists does the first two; the others follow from what is kept of each file
//! ([`facts`]) in a [`table`], which needs no more memory than it is given ([`spill`]). [`checker`]
//! goes from version to version, and reads of each further one only the lists in which it may
//! differ from the one before ([`changes`]): versions share what they share on the disk. [`book`]
//! keeps each finding once, with the versions that have it.
//!
//! It uses only the disk's interface. Nothing may change during the check.

mod book;
mod changes;
mod checker;
mod facts;
mod finding;
mod list;
mod options;
mod pages;
mod relations;
mod spill;
mod table;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dendro_disk::{LogicalDisk, Versions, View};

pub use book::{Found, MAX_VERSIONS_OF_A_FINDING};
pub use finding::{Finding, FindingCode, Mending, NamedEntry, Severity};
pub use options::{CheckOptions, Counts, Progress};

use self::changes::Changes;
use self::checker::Checker;
pub(crate) use self::table::Table;
use crate::error::Result;

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// What was found, in the order in which it was.
    pub found: Vec<Found>,
    /// How many more there are of a kind.
    pub more: BTreeMap<FindingCode, usize>,
    /// What was counted.
    pub counts: Counts,
}

/// Everything that is wrong with the file system in each of `views`. Views that have much in common
/// should stand beside each other.
///
/// # Errors
/// Errors of the disk, except damage, which is a finding, and of a temporary file, which what does
/// not fit in memory needs. [`FsError::Interrupted`] when `progress` breaks it off.
///
/// [`FsError::Interrupted`]: crate::FsError::Interrupted
pub fn check(
    disk: &dyn Versions,
    views: &[View],
    options: CheckOptions,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Checked> {
    let mut checker = Checker::new(disk, options, progress);
    let mut changes = Changes::new(disk, views, options.memory_for_changes());
    for (index, &view) in views.iter().enumerate() {
        checker.check(view, |from| changes.of(index, from))?;
    }
    Ok(finish(checker))
}

/// Everything that is wrong with the file system in `view`.
///
/// # Errors
/// Errors of the disk, except damage, which is a finding.
pub fn verify(disk: &dyn LogicalDisk, view: View) -> Result<Vec<Finding>> {
    verify_with(disk, view, CheckOptions::default())
}

pub(crate) fn verify_with(
    disk: &dyn LogicalDisk,
    view: View,
    options: CheckOptions,
) -> Result<Vec<Finding>> {
    let mut ignore = |_: &Progress| ControlFlow::Continue(());
    let mut checker = Checker::new(disk, options, &mut ignore);
    checker.check(view, |_| Ok(Vec::new()))?;
    Ok(finish(checker).found.into_iter().map(|found| found.finding).collect())
}

fn finish(checker: Checker<'_>) -> Checked {
    let (book, counts) = checker.finish();
    let (found, more) = book.finish();
    Checked { found, more, counts }
}
