//! `dendro check` and fsck.dendro: whether an unmounted volume is sound. Nothing is changed.
//!
//! The verifier, which shares no code with the engine, checks everything that the checkpoint refers
//! to. Then the engine opens the volume over an [`OverlayDevice`], which keeps all writes of
//! roll-forward in memory, and the trees of all versions are checked as file systems. If there was
//! a log to roll forward, the verifier also checks the result.
//!
//! - [`finding`]: what was found. [`names`]: the files that findings are about. [`disk`]: the open
//!   volume.

mod disk;
mod finding;
mod names;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use dendro_check::{Counts, FindingKind, Options, Report, verify};
use dendro_daemon::text;
use dendro_daemon::volume::{LAST_DAEMON_GRACE, explain_device};
use dendro_device::{Device, Direct, FileDevice, OpenOptions as DeviceOptions, OverlayDevice};
use dendro_disk::{LogicalDisk, View};
use serde::Serialize;

use self::disk::{open_disk, versions};
use self::finding::Finding;
pub(crate) use self::finding::{Kind, all_kinds, severity_text};
use crate::args::CheckArgs;
use crate::failure::{Failure, code};
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target::{self, Target, identity, tag};

/// The result of a check.
#[derive(Debug, Serialize)]
struct Outcome {
    source: String,
    checked: bool,
    /// Nothing is wrong.
    sound: bool,
    /// Contents of files were read too.
    data_read: bool,
    /// There was a log behind the checkpoint.
    log_rolled_forward: bool,
    findings: Vec<Finding>,
    counts: Counts,
    /// Versions whose trees were checked.
    version_count: usize,
}

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
    let device = open(&source).map_err(not_done)?;
    let progress = Progress::new(quiet);
    let outcome = check(&source, &device, args, &progress)?;
    drop(progress);
    if args.json {
        json::print(&outcome)?;
    } else if !(quiet && outcome.sound) {
        output::print(&text_of(&outcome))?;
    }
    Ok(match outcome.sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(code::CHECK_LEFT),
    })
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

fn check(
    source: &Path,
    device: &Arc<FileDevice>,
    args: &CheckArgs,
    progress: &Progress,
) -> Result<Outcome, Failure> {
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
    let trees = check_trees(&overlay, args.data, progress);
    let options = Options { data: args.data };
    if args.data {
        progress.show("the contents of files".into());
    }
    let report = if goes_on && trees.is_whole {
        let mut rolled = verify(&*overlay, &options);
        rolled.findings.splice(0..0, checkpointed.findings.into_iter().filter(is_about_log));
        rolled
    } else if args.data {
        verify(&**device, &options)
    } else {
        checkpointed
    };
    let Report { findings, counts } = report;
    let mut findings = names::of_device(&overlay, findings);
    findings.extend(trees.findings);
    Ok(Outcome {
        source: source.display().to_string(),
        checked: true,
        sound: !findings.iter().any(Finding::is_wrong),
        data_read: args.data,
        log_rolled_forward: goes_on && trees.is_whole,
        findings,
        counts,
        version_count: trees.version_count,
    })
}

fn is_about_log(finding: &dendro_check::Finding) -> bool {
    matches!(finding.kind, FindingKind::NotClean | FindingKind::LogGoesOn | FindingKind::LogLost)
}

/// What was found by the engine and in the trees of versions.
struct Trees {
    findings: Vec<Finding>,
    version_count: usize,
    /// The device now has a checkpoint of everything in the log.
    is_whole: bool,
}

/// Opens the volume as a mount does, checks its trees, and shuts it down, all in memory.
fn check_trees(device: &Arc<dyn Device>, data: bool, progress: &Progress) -> Trees {
    let mut trees = Trees { findings: Vec::new(), version_count: 0, is_whole: false };
    let disk = match open_disk(device) {
        Ok(disk) => disk,
        Err(error) => {
            trees.findings.push(Finding::of_engine(finding::NOT_OPENED, &error));
            return trees;
        }
    };
    let versions = versions(&disk);
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

fn text_of(outcome: &Outcome) -> String {
    let mut shown: String = outcome.findings.iter().map(|finding| format!("{finding}\n")).collect();
    let verdict = match outcome.sound {
        true => "is sound",
        false => "is damaged, see above; nothing was changed, and there is no repair yet",
    };
    let is_nameless = |of: &Finding| of.list.is_some() && of.paths.is_empty();
    let hint = match outcome.findings.iter().any(is_nameless) {
        true => "  a list's number is the i-node number of its file, which has no name any more\n",
        false => "",
    };
    let Counts { list_count, page_count, node_count, live_bytes, .. } = outcome.counts;
    let mut looked_at = vec![
        format!("{} of data and map alive", text::size(live_bytes)),
        [
            text::counted(list_count, "list", "lists"),
            text::counted(page_count, "page", "pages"),
            text::counted(node_count, "map node", "map nodes"),
        ]
        .join(", "),
        match outcome.version_count {
            1 => "the tree of one version".into(),
            count => format!("trees of {count} versions"),
        },
    ];
    if outcome.log_rolled_forward {
        looked_at.push("the log behind the checkpoint, rolled forward in memory".into());
    }
    let contents = match outcome.data_read {
        true => "the contents of files",
        false => "not the contents of files (--data)",
    };
    looked_at.push(contents.into());
    shown += &format!("{}: {verdict}\n{hint}  checked: {}\n", outcome.source, looked_at.join("; "));
    shown
}
