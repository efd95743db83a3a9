//! `dendro check` and fsck.dendro: whether a volume is sound, and its repair.
//!
//! What a check does is [`dendro_daemon::check`]'s. It runs here on a volume that nobody has
//! mounted, and otherwise in the daemon that has it.
//!
//! - [`outcome`]: what is said to people. [`finding`]: findings in words. [`told`]: progress.
//!   [`repair`]: mends what was found.

mod finding;
mod outcome;
mod repair;
mod told;

use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use dendro_control::check::{CheckFinding, CheckReport, CheckRequest};
use dendro_daemon::check::{CheckOptions, NotChecked, names_of, of_mended, of_more};
use dendro_daemon::volume::devices::{Devices, open_devices_to_read};
use dendro_daemon::volume::memory::default_check_bytes;
use dendro_device::{Device, Direct, OpenOptions as DeviceOptions, OverlayDevice};
use dendro_fs::{FindingCode, Ino};
use serde::Serialize;

pub(crate) use self::finding::severity_text;
use self::repair::Wish;
use self::told::Told;
use crate::args::check::CheckArgs;
use crate::failure::{Failure, code};
use crate::output::{self, json};
use crate::target::{self, Served, Target, identity, tag};

/// How many findings of a kind are listed: as many as fit in memory, within these bounds. After
/// damage to the medium each names a file. Ten kinds of each would take an eighth of it.
const FINDINGS_OF_A_KIND: std::ops::RangeInclusive<u64> = 100..=65_536;
const BYTES_FOR_A_FINDING: u64 = 16_384;

/// What is known without a check.
#[derive(Debug, Serialize)]
struct Glance {
    source: String,
    checked: bool,
    /// It was shut down cleanly.
    clean: bool,
}

pub(crate) fn run(args: &CheckArgs, quiet: bool) -> Result<ExitCode, Failure> {
    let source = match target::find(&tag::resolve(&args.target)?).map_err(not_done)? {
        Target::Unmounted(source) => source,
        Target::Mounted(served) => return check_mounted(&served, args, quiet),
    };
    let told = Told::new(quiet, args.progress, &source)?;
    if args.preen && !args.force {
        return glance(&source, args.json, quiet);
    }
    let mut report = check(&source, args, &told)?;
    let is_repairable = if args.yes { report.repairable } else { report.repairable_safely };
    if (args.yes || args.preen) && !args.no_changes && is_repairable {
        let memory_bytes = memory_bytes(args) / 4;
        let wish = Wish { safe_only: !args.yes, data: args.data, memory_bytes };
        let repaired = repair::run(&source, wish, &told).map_err(not_done)?;
        for (finding, error) in &repaired.failures {
            output::message(format_args!("{finding}: {error}"));
        }
        let before = std::mem::replace(&mut report, check(&source, args, &told)?);
        let mended = repaired.mended.into_iter().map(|of| of_mended(of, &before.findings));
        let mut mended: Vec<_> = mended.collect();
        name(&source, args, &mut mended)?;
        let more = repaired.more_mended.into_iter().map(|(code, count)| of_more(code, count, true));
        report.findings.splice(0..0, mended.into_iter().chain(more));
    }
    drop(told);
    say(&report, args, quiet)
}

fn max_findings_of_a_kind(args: &CheckArgs) -> usize {
    let (least, most) = FINDINGS_OF_A_KIND.into_inner();
    (memory_bytes(args) / BYTES_FOR_A_FINDING).clamp(least, most) as usize
}

/// Says where files without a name are now, and which directories lost names.
fn name(source: &Path, args: &CheckArgs, mended: &mut [CheckFinding]) -> Result<(), Failure> {
    let number = FindingCode::Unreachable.number();
    let nameless = |of: &&mut CheckFinding| of.paths.is_empty() && of.number == number;
    let lists = mended.iter_mut().filter(nameless).filter_map(|of| of.list.map(Ino)).collect();
    let device: Arc<dyn Device> = Arc::new(OverlayDevice::new(open(source).map_err(not_done)?));
    let names = names_of(&device, memory_bytes(args), lists);
    for finding in mended.iter_mut().filter(nameless) {
        let paths = finding.list.and_then(|list| names.get(&Ino(list)));
        finding.paths = paths.cloned().unwrap_or_default();
    }
    Ok(())
}

/// Prints the report, and returns what the command ends with.
fn say(report: &CheckReport, args: &CheckArgs, quiet: bool) -> Result<ExitCode, Failure> {
    if args.json {
        json::print(report)?;
    } else if !(quiet && report.sound) {
        output::print(&outcome::text(report, args.yes))?;
    }
    Ok(ExitCode::from(outcome::exit_code(report, args.preen)))
}

/// Has the daemon check the volume that it has mounted.
fn check_mounted(served: &Served, args: &CheckArgs, quiet: bool) -> Result<ExitCode, Failure> {
    let fail = |why: &dyn std::fmt::Display| {
        not_done(Failure::new(format_args!("{}: {why}", args.target.display())))
    };
    if args.yes || args.preen {
        let option = if args.yes { "-y" } else { "-p" };
        return Err(fail(&format_args!(
            "is mounted on {}; {option} mends only what is not mounted: unmount it first, or \
             only check it, without {option}",
            served.place()
        )));
    }
    let told = Told::new(quiet, args.progress, Path::new(&served.pong.source))?;
    let request = CheckRequest { data: args.data, memory_bytes: args.memory };
    let client = served.client.clone().about_volume();
    let report = client.check(request, |progress| told.tell(progress)).map_err(|why| fail(&why))?;
    drop(told);
    say(&report, args, quiet)
}

fn memory_bytes(args: &CheckArgs) -> u64 {
    args.memory.unwrap_or_else(default_check_bytes)
}

fn not_done(failure: Failure) -> Failure {
    failure.with_code(code::CHECK_FAILED)
}

fn open(source: &Path) -> Result<Arc<Devices>, Failure> {
    let options = DeviceOptions::new().direct(Direct::Never);
    open_devices_to_read(source, &options).map(Arc::new)
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

/// Checks a volume that nobody has mounted.
fn check(source: &Path, args: &CheckArgs, told: &Told) -> Result<CheckReport, Failure> {
    let device: Arc<dyn Device> = open(source).map_err(not_done)?;
    let options = CheckOptions {
        source: source.display().to_string(),
        data: args.data,
        memory_bytes: memory_bytes(args),
        max_findings_of_a_kind: max_findings_of_a_kind(args),
        with_two_threads: true,
    };
    let checked = dendro_daemon::check::check(&device, &options, &mut |progress| {
        told.tell(&progress);
        ControlFlow::Continue(())
    });
    checked.map_err(|why| {
        let why = match why {
            NotChecked::NoVolume(why) | NotChecked::NoRoom(why) => why,
            NotChecked::Cancelled => "the check was cancelled".to_owned(),
        };
        not_done(Failure::new(format_args!("{}: {why}", source.display())))
    })
}
