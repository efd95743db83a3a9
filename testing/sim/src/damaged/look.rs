//! What can be read of the files of a volume, in every version; and its check, as `dendro check`
//! does it.

use std::ops::ControlFlow::Continue;

use dendro_base::sync::Arc;
use dendro_check::{FindingKind, Options as VerifyOptions, Severity, verify};
use dendro_device::{Device, OverlayDevice};
use dendro_disk::{LogicalDisk, VersionTable, Versions, View};
use dendro_fs::testing::{ReadableTree, StepClock};
use dendro_fs::{CheckOptions, FileSystem, Found, FsError};
use dendro_logdisk::{LogDisk, OnLoss, OpenOptions};

use super::volume::{Moment, options};
use crate::log::LogEngine;
use crate::system::Outcome;

/// A version, of which something can be read.
struct Seen {
    view: View,
    /// `None`: it cannot be mounted.
    files: Option<(FileSystem, ReadableTree)>,
    /// Whether its description says that it holds files, rather than lists of a program.
    holds_files: bool,
}

/// What can be read of a volume.
pub(super) struct Look {
    table: VersionTable,
    seen: Vec<Seen>,
}

impl Look {
    /// Reads all versions.
    pub(super) fn at(disk: &Arc<LogDisk>) -> Outcome<Self> {
        let views: Vec<View> = disk.versions().views().collect();
        Self::of(disk, &views)
    }

    /// Reads all versions after a repair. It mends heads alone, so what was lost of a snapshot may
    /// leave names there that lead to nothing.
    pub(super) fn repaired(disk: &Arc<LogDisk>) -> Outcome<Self> {
        let (heads, snapshots): (Vec<View>, Vec<View>) =
            disk.versions().views().partition(|view| view.epoch.is_none());
        drop(Self::of(disk, &snapshots));
        Self::of(disk, &heads)
    }

    fn of(disk: &Arc<LogDisk>, views: &[View]) -> Outcome<Self> {
        let table = disk.versions();
        let mut seen = Vec::new();
        for &view in views {
            let below = Arc::clone(disk) as Arc<dyn LogicalDisk>;
            let clock = Arc::new(StepClock::default());
            let mut holds_files = true;
            let files = match FileSystem::mount(below, options(view, true), clock) {
                Ok(fs) => {
                    let tree = ReadableTree::of_fs(&fs).map_err(|why| format!("{view}: {why}"))?;
                    Some((fs, tree))
                }
                Err(FsError::Corrupted(_) | FsError::Disk(_)) => None,
                // A forged description says so.
                Err(FsError::NoFiles(_)) => {
                    holds_files = false;
                    None
                }
                Err(error) => return Err(format!("{view}, mounted: {error}")),
            };
            seen.push(Seen { view, files, holds_files });
        }
        Ok(Self { table, seen })
    }

    pub(super) fn is_whole(&self) -> bool {
        let is_whole = |seen: &Seen| {
            seen.files.as_ref().map_or(!seen.holds_files, |(_, tree)| tree.is_whole())
        };
        self.seen.iter().all(is_whole)
    }

    /// The tree of a version, as far as it can be read.
    pub(super) fn tree(&self, view: View) -> Option<&ReadableTree> {
        let seen = self.seen.iter().find(|seen| seen.view == view)?;
        seen.files.as_ref().map(|(_, tree)| tree)
    }

    pub(super) fn views(&self) -> impl Iterator<Item = View> {
        self.seen.iter().map(|seen| seen.view)
    }

    /// Looks for a moment at which everything was what can be read.
    pub(super) fn find_moment(&self, moments: &[Moment]) -> Outcome<()> {
        let mut newest = None;
        for moment in moments.iter().rev().filter(|moment| moment.table == self.table) {
            match self.contradiction(moment) {
                None => return Ok(()),
                Some(why) => drop(newest.get_or_insert(why)),
            }
        }
        let of_newest = newest.unwrap_or_else(|| "there never were these versions".into());
        Err(format!("what can be read is of no moment; of the newest, {of_newest}"))
    }

    fn contradiction(&self, moment: &Moment) -> Option<String> {
        self.seen.iter().find_map(|seen| {
            let (fs, found) = seen.files.as_ref()?;
            let (_, expected) = moment.trees.iter().find(|(view, _)| *view == seen.view)?;
            let why = found.contradiction(fs, expected)?;
            Some(format!("{}: {why}", seen.view))
        })
    }
}

/// The result of a check.
pub(super) struct Checked {
    /// What would be repaired: nothing is wrong below the files, but blocks of data may be damaged.
    pub(super) is_disk_sound: bool,
    /// Nothing at all is wrong.
    pub(super) is_clean: bool,
    /// What is wrong with files; none if the volume cannot be opened.
    pub(super) found: Vec<Found>,
    /// The first mistakes, for messages.
    pub(super) what: String,
}

/// A device over `below` that keeps all writes to itself.
pub(super) fn overlay(below: &Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(OverlayDevice::new(Arc::clone(below)))
}

/// How the engine opens a volume.
pub(super) fn opening(engine: &LogEngine, read_only: bool, on_loss: OnLoss) -> OpenOptions {
    OpenOptions { read_only, on_loss, ..engine.open.clone() }
}

/// Checks a volume. Nothing is changed.
pub(super) fn check(engine: &LogEngine, below: &Arc<dyn Device>) -> Checked {
    let device = overlay(below);
    let before = verify(&*device, &VerifyOptions::default());
    let mut what: Vec<String> = Vec::new();
    let mut found = Vec::new();
    let mut is_whole = false;
    match engine.open_disk(Arc::clone(&device), opening(engine, false, OnLoss::Stop)) {
        Ok(disk) => {
            let views: Vec<View> = disk.versions().views().collect();
            match dendro_fs::check(&disk, &views, CheckOptions::default(), &mut |_| Continue(())) {
                Ok(checked) => found = checked.found,
                Err(error) => what.push(error.to_string()),
            }
            match disk.shut_down() {
                Ok(()) => is_whole = what.is_empty(),
                Err(error) => what.push(error.to_string()),
            }
        }
        Err(error) => what.push(error.to_string()),
    }
    let after =
        if is_whole { verify(&*device, &VerifyOptions { data: true }) } else { before.clone() };
    let findings = before.findings.iter().chain(&after.findings);
    let is_wrong = |of: &&dendro_check::Finding| of.severity() != Severity::Note;
    let wrong: Vec<_> =
        findings.filter(is_wrong).filter(|of| of.kind != FindingKind::NotClean).collect();
    what.extend(wrong.iter().take(3).map(ToString::to_string));
    what.extend(found.iter().take(3).map(|found| found.finding.to_string()));
    Checked {
        is_disk_sound: is_whole && wrong.iter().all(|of| of.kind.leaves_map_whole()),
        is_clean: is_whole && wrong.is_empty() && found.is_empty(),
        found,
        what: what.join("; "),
    }
}
