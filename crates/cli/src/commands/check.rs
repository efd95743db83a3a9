//! `dendro check` and fsck.dendro: whether an unmounted volume is sound, and its repair. A check
//! changes nothing.
//!
//! The verifier, which shares no code with the engine, checks everything that the checkpoint refers
//! to. Then the engine opens the volume over an [`OverlayDevice`], which keeps all writes of
//! roll-forward in memory, and the trees of all versions are checked as file systems. If there was
//! a log to roll forward, the verifier also checks the result.
//!
//! - [`outcome`]: the result. [`finding`]: what was found. [`names`]: the files that findings are
//!   about. [`disk`]: the open volume. [`repair`]: mends what was found.

mod disk;
mod finding;
mod names;
mod outcome;
mod repair;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use dendro_check::{FindingKind, Options, Report, verify};
use dendro_daemon::text;
use dendro_daemon::volume::{LAST_DAEMON_GRACE, explain_device};
use dendro_device::{Device, Direct, FileDevice, OpenOptions as DeviceOptions, OverlayDevice};
use dendro_disk::{LogicalDisk, View};
use serde::Serialize;

use self::disk::{kept_before_repairs, open_disk, versions};
use self::finding::Finding;
pub(crate) use self::finding::{Kind, all_kinds, severity_text};
pub(crate) use self::names::find as names_of;
use self::outcome::Outcome;
use self::repair::Wish;
use crate::args::check::CheckArgs;
use crate::failure::{Failure, code};
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target::{self, Target, identity, tag};

/// What is known without a check.
#[derive(Debug, Serialize)]
struct Glance {
    source: String,
    checked: bool,
    /// It was shut down cleanly.
    clean: bool,
}

pub(crate) fn run(args: &CheckArgs, quiet: bool) -> Result<ExitCode, Failure> {
    let source = source(&args.target).map_err(not_done)?;
    if args.preen && !args.force {
        return glance(&source, args.json, quiet);
    }
    let progress = Progress::new(quiet);
    let mut outcome = check(&source, args.data, &progress)?;
    if (args.yes || args.preen) && !args.no_changes && outcome.is_repairable(!args.yes) {
        let wish = Wish { safe_only: !args.yes, data: args.data };
        let repaired = repair::run(&source, wish, &progress).map_err(not_done)?;
        repaired.failures.iter().for_each(output::message);
        let before = std::mem::replace(&mut outcome, check(&source, args.data, &progress)?);
        let mended = repaired.mended.into_iter();
        let mended = mended.map(|of| names::of_mended(of, &before.findings));
        outcome.findings.splice(0..0, mended);
    }
    drop(progress);
    if args.json {
        json::print(&outcome)?;
    } else if !(quiet && outcome.sound) {
        output::print(&outcome.text(args.yes))?;
    }
    Ok(ExitCode::from(outcome.exit_code(args.preen)))
}

fn not_done(failure: Failure) -> Failure {
    failure.with_code(code::CHECK_FAILED)
}

/// The image or device, which nobody has mounted.
fn source(named: &Path) -> Result<PathBuf, Failure> {
    match target::find(&tag::resolve(named)?)? {
        Target::Unmounted(source) => Ok(source),
        Target::Mounted(served) => Err(Failure::new(format_args!(
            "{}: is mounted on {}; unmount it first: what changes meanwhile would look like damage",
            named.display(),
            served.place()
        ))),
    }
}

fn open(source: &Path) -> Result<Arc<FileDevice>, Failure> {
    // umount(2) of a plain mount returns before its daemon has ended.
    let opened = DeviceOptions::new()
        .read_only(true)
        .direct(Direct::Never)
        .lock_wait(LAST_DAEMON_GRACE)
        .open(source);
    opened.map(Arc::new).map_err(|error| explain_device(&error, true))
}

/// What runs at boot for each volume: reports how the volume was left. A crash leaves nothing to
/// repair, since mounting rolls the log forward.
fn glance(source: &Path, as_json: bool, quiet: bool) -> Result<ExitCode, Failure> {
    let fail = |why: &dyn std::fmt::Display| {
        not_done(Failure::new(format_args!("{}: {why}", source.display())))
    };
    identity::of(source)
        .map_err(|error| fail(&error))?
        .ok_or_else(|| fail(&"there is no dendrofs volume here, or its start is damaged"))?;
    let device = open(source).map_err(not_done)?;
    let volume = dendro_check::Volume::open(&*device).map_err(|error| fail(&error))?;
    let clean = volume.superblock().clean;
    if as_json {
        let source = source.display().to_string();
        json::print(&Glance { source, checked: false, clean })?;
        return Ok(ExitCode::SUCCESS);
    }
    let how = match clean {
        true => "was shut down cleanly",
        false => "was not shut down; mounting it rolls the log forward",
    };
    if !quiet {
        output::print(&format!("{}: {how}; not checked, which -f does\n", source.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(source: &Path, data: bool, progress: &Progress) -> Result<Outcome, Failure> {
    let device = &open(source).map_err(not_done)?;
    progress.show("the map".into());
    let checkpointed = verify(&**device, &Options { data: false });
    let has = |kind| checkpointed.findings.iter().any(|finding| finding.kind == kind);
    if has(FindingKind::NoVolume) {
        let why = checkpointed.findings.iter().map(|finding| finding.detail.as_str()).next();
        return Err(not_done(Failure::new(format_args!(
            "{}: {}",
            source.display(),
            why.unwrap_or("there is no volume")
        ))));
    }
    let goes_on = has(FindingKind::LogGoesOn) || has(FindingKind::NotClean);
    let overlay: Arc<dyn Device> = Arc::new(OverlayDevice::new(Arc::clone(device)));
    let trees = check_trees(&overlay, data, progress);
    let options = Options { data };
    if data {
        progress.show("the contents of files".into());
    }
    let report = if goes_on && trees.is_whole {
        let mut rolled = verify(&*overlay, &options);
        rolled.findings.splice(0..0, checkpointed.findings.into_iter().filter(is_about_log));
        rolled
    } else if data {
        verify(&**device, &options)
    } else {
        checkpointed
    };
    let Report { findings, counts } = report;
    let is_disk_sound = repair::is_disk_sound(findings.iter().map(|finding| finding.kind));
    let mut findings = names::of_device(&overlay, findings);
    findings.extend(trees.findings);
    Ok(Outcome {
        source: source.display().to_string(),
        checked: true,
        sound: !findings.iter().any(Finding::is_wrong),
        data_read: data,
        log_rolled_forward: goes_on && trees.is_whole,
        findings,
        counts,
        version_count: trees.version_count,
        before_repairs: trees.before_repairs,
        is_disk_sound: is_disk_sound && trees.is_whole,
        in_heads: trees.in_heads,
    })
}

fn is_about_log(finding: &dendro_check::Finding) -> bool {
    matches!(finding.kind, FindingKind::NotClean | FindingKind::LogGoesOn | FindingKind::LogLost)
}

/// What was found by the engine and in the trees of versions.
#[derive(Default)]
struct Trees {
    findings: Vec<Finding>,
    version_count: usize,
    before_repairs: Vec<String>,
    in_heads: Vec<dendro_fs::Finding>,
    /// The device now has a checkpoint of everything in the log.
    is_whole: bool,
}

/// Opens the volume as a mount does, checks its trees, and shuts it down, all in memory.
fn check_trees(device: &Arc<dyn Device>, data: bool, progress: &Progress) -> Trees {
    let mut trees = Trees::default();
    let disk = match open_disk(device) {
        Ok(disk) => disk,
        Err(error) => {
            trees.findings.push(Finding::of_engine(finding::NOT_OPENED, &error));
            return trees;
        }
    };
    let versions = versions(&disk);
    trees.before_repairs = kept_before_repairs(&disk);
    let views: Vec<View> = versions.iter().map(|(_, view)| *view).collect();
    let options = dendro_fs::CheckOptions::default().with_data(data);
    let mut show = |at: &dendro_fs::Progress| {
        let name = versions.iter().find(|(_, view)| *view == at.view);
        let name = name.map(|(name, _)| text::printable(name)).unwrap_or_default();
        let (nth, of, lists) = (at.version_count, versions.len(), at.lists_read);
        progress.show(format!("files: {lists} lists read, version {nth} of {of}, {name}"));
    };
    match dendro_fs::check(&disk, &views, options, &mut show) {
        Ok(checked) => {
            trees.version_count = versions.len();
            let in_heads = checked.found.iter().filter(|found| found.is_in_head);
            trees.in_heads = in_heads.map(|found| found.finding.clone()).collect();
            trees.findings = names::of_trees(&disk, &versions, checked);
        }
        Err(error) => trees.findings.push(Finding::of_engine(finding::NOT_CHECKED, &error)),
    }
    if disk.read_only_reason().is_none() {
        match disk.shut_down() {
            Ok(()) => trees.is_whole = true,
            Err(error) => {
                trees.findings.push(Finding::of_engine(finding::NOT_ROLLED, &error));
            }
        }
    }
    trees
}
