//! `dendro check` and fsck.dendro: whether an unmounted volume is sound. Nothing is changed.
//!
//! The verifier, which shares no code with the engine, checks everything that the checkpoint refers
//! to. Then the engine opens the volume over an [`OverlayDevice`], which keeps all writes of
//! roll-forward in memory, and the trees of its versions are checked as file systems. If there was
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

use dendro_check::{Counts, Finding, FindingKind, Options, Report, Severity, verify};
use dendro_daemon::text;
use dendro_daemon::volume::{LAST_DAEMON_GRACE, explain_device};
use dendro_device::{Device, Direct, FileDevice, OpenOptions as DeviceOptions, OverlayDevice};
use dendro_disk::LogicalDisk;
use serde::Serialize;

use self::disk::{open_disk, versions};
use self::finding::{NamedFinding, TreeFinding, in_words};
use crate::args::CheckArgs;
use crate::failure::{Failure, code};
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
    findings: Vec<NamedFinding>,
    counts: Counts,
    trees: Vec<Tree>,
}

/// What is known without a check.
#[derive(Debug, Serialize)]
struct Glance {
    source: String,
    checked: bool,
    /// It was shut down cleanly.
    clean: bool,
}

/// What was found in one version's tree.
#[derive(Debug, Serialize)]
struct Tree {
    /// `None`: the volume could not be opened.
    version: Option<String>,
    findings: Vec<TreeFinding>,
}

pub(crate) fn run(args: &CheckArgs, quiet: bool) -> Result<ExitCode, Failure> {
    let source = source(&args.target).map_err(not_done)?;
    if args.preen && !args.force {
        return glance(&source, args.json, quiet);
    }
    let device = open(&source).map_err(not_done)?;
    let outcome = check(&source, &device, args)?;
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

fn check(source: &Path, device: &Arc<FileDevice>, args: &CheckArgs) -> Result<Outcome, Failure> {
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
    let (trees, is_whole) = check_trees(&overlay, args.all_versions);
    let options = Options { data: args.data };
    let report = if goes_on && is_whole {
        let mut rolled = verify(&*overlay, &options);
        rolled.findings.splice(0..0, checkpointed.findings.into_iter().filter(is_about_log));
        rolled
    } else if args.data {
        verify(&**device, &options)
    } else {
        checkpointed
    };
    let Report { findings, counts } = report;
    let is_note = |of: &NamedFinding| of.finding.severity() == Severity::Note;
    let findings = names::name(&overlay, findings);
    let sound = findings.iter().all(is_note) && trees.iter().all(|tree| tree.findings.is_empty());
    Ok(Outcome {
        source: source.display().to_string(),
        checked: true,
        sound,
        data_read: args.data,
        log_rolled_forward: goes_on && is_whole,
        findings,
        counts,
        trees,
    })
}

fn is_about_log(finding: &Finding) -> bool {
    matches!(finding.kind, FindingKind::NotClean | FindingKind::LogGoesOn | FindingKind::LogLost)
}

/// Opens the volume as a mount does, checks its trees, and shuts it down, all in memory. Returns
/// whether that succeeded, so that the device now has a checkpoint of everything in the log.
fn check_trees(device: &Arc<dyn Device>, all_versions: bool) -> (Vec<Tree>, bool) {
    let failed = |what: &str, error: &dyn std::fmt::Display| Tree {
        version: None,
        findings: vec![TreeFinding::plain(format!("{what}: {error}"))],
    };
    let disk = match open_disk(device) {
        Ok(disk) => disk,
        Err(error) => return (vec![failed("it cannot be opened", &error)], false),
    };
    let mut trees: Vec<Tree> = versions(&disk, all_versions)
        .into_iter()
        .map(|(name, view)| {
            let findings = match dendro_fs::verify(&disk, view) {
                Ok(findings) => names::name_in(&disk, view, findings),
                Err(error) => vec![TreeFinding::plain(format!("cannot be read: {error}"))],
            };
            Tree { version: Some(name), findings }
        })
        .collect();
    if disk.read_only_reason().is_some() {
        return (trees, false);
    }
    match disk.shut_down() {
        Ok(()) => (trees, true),
        Err(error) => {
            trees.push(failed("its log cannot be rolled forward", &error));
            (trees, false)
        }
    }
}

fn text_of(outcome: &Outcome) -> String {
    let mut shown = String::new();
    for NamedFinding { finding, paths } in &outcome.findings {
        shown += &format!("{finding}{}\n", in_words(paths));
    }
    for tree in &outcome.trees {
        let version = tree.version.as_ref().map(|name| format!("{}: ", text::printable(name)));
        for finding in &tree.findings {
            let version = version.as_deref().unwrap_or_default();
            shown += &format!("error: {version}{finding}\n");
        }
    }
    let verdict = match outcome.sound {
        true => "is sound",
        false => "is damaged, see above; nothing was changed, and there is no repair yet",
    };
    let is_nameless = |of: &NamedFinding| of.finding.list.is_some() && of.paths.is_empty();
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
        match outcome.trees.iter().filter(|of| of.version.is_some()).count() {
            1 => "the tree of one version".into(),
            count => format!("trees of {count} versions"),
        },
    ];
    if outcome.log_rolled_forward {
        looked_at.push("the log behind the checkpoint, rolled forward in memory".into());
    }
    let contents = if outcome.data_read {
        "the contents of files"
    } else {
        "not the contents of files (--data)"
    };
    looked_at.push(contents.into());
    shown + &format!("{}: {verdict}\n{hint}  checked: {}\n", outcome.source, looked_at.join("; "))
}
