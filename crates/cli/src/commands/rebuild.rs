//! `dendro rebuild`: makes superblocks, checkpoint and map anew from what is left in the segments.
//!
//! With `--to` and a new file it works on a copy. With `--to` and a directory it copies the files
//! of a version into it, and works in memory: nothing is written to the volume. The version is
//! repaired there too, so what has lost its name is copied below `lost+found`. Both need no room on
//! the volume: it grows if it has none. `-n` does in memory what would be done. Names of files come
//! from the rebuilt volume, opened over an [`OverlayDevice`], which keeps all writes in memory.

mod copy;
mod mend;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use dendro_base::{Clock, SystemClock};
use dendro_check::{Error, Extent, LostPages, Rebuild, RebuildOptions, RebuildReport, Restored};
use dendro_control::versions::VersionName;
use dendro_daemon::check::names_of;
use dendro_daemon::text;
use dendro_daemon::volume::clock;
use dendro_daemon::volume::devices::{Devices, open_device_alone, open_devices_to_read};
use dendro_daemon::volume::memory::default_check_bytes;
use dendro_device::{Device, OpenOptions, OverlayDevice};
use dendro_fs::Ino;
use dendro_set::roster_on;
use serde::Serialize;

use crate::args::check::RebuildArgs;
use crate::commands::files::cp::{Outcome as Copied, copy_all};
use crate::commands::files::state;
use crate::failure::{Failure, code};
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target::{self, Keeper, Target, tag};
use copy::Copying;

/// The most lists that are looked for by name.
const MAX_NAMED: u64 = 1 << 18;
/// What each of them takes in memory, which is a 16th of all.
const NAMED_BYTES: u64 = 16 * 150;
/// The part of the memory for what is written in memory; more goes to a temporary file.
const OVERLAY_PART: u64 = 8;

/// The result, as it is printed.
#[derive(Debug, Serialize)]
struct Outcome {
    source: String,
    /// Where the rebuilt volume is.
    target: String,
    dry_run: bool,
    extent: Extent,
    base_checkpoint: Option<u64>,
    /// Nothing is lost.
    complete: bool,
    superblocks_lost: bool,
    hash_key_lost: bool,
    /// There is no room for the new map where it was to be written.
    lacks_room: bool,
    /// What the device has lost with its end.
    lost_end_bytes: u64,
    may_lack_log: bool,
    may_lack_nodes: bool,
    restored_entry_count: u64,
    unknown_move_count: u64,
    grown_bytes: u64,
    written_bytes: u64,
    bad_nodes: Vec<String>,
    restored: Vec<Part>,
    lost_pages: Vec<Pages>,
    affected_files: Vec<File>,
    /// Lists above this one may be affected too, and were not looked for by name.
    affected_beyond: Option<u64>,
    /// What was copied into the directory that was given.
    copied: Option<Copied>,
}

/// A part of the map that was lost and made anew.
#[derive(Debug, Serialize)]
struct Part {
    first_list: u64,
    last_list: u64,
    detail: String,
    complete: bool,
}

/// Pages of which nobody knows what they held.
#[derive(Debug, Serialize)]
struct Pages {
    list: u64,
    page_index: u64,
    page_count: u64,
}

/// A file that may have lost something, or have older data.
#[derive(Debug, Serialize)]
struct File {
    list: u64,
    paths: Vec<String>,
}

pub(crate) fn run(args: &RebuildArgs, quiet: bool) -> Result<ExitCode, Failure> {
    let failed = |failure: Failure| failure.with_code(code::CHECK_FAILED);
    let outcome = carry_out(args, quiet).map_err(failed)?;
    if args.json {
        json::print(&outcome)?;
    } else if !quiet || !outcome.is_whole() {
        output::print(&text_of(&outcome))?;
    }
    let is_left = !outcome.is_whole() || outcome.dry_run && outcome.extent != Extent::Nothing;
    Ok(match outcome.extent {
        _ if is_left => ExitCode::from(code::CHECK_LEFT),
        Extent::Nothing => ExitCode::SUCCESS,
        _ => ExitCode::from(code::CHECK_MENDED),
    })
}

fn carry_out(args: &RebuildArgs, quiet: bool) -> Result<Outcome, Failure> {
    if let Some(to) = args.to.as_deref().filter(|to| to.is_dir() && !args.no_changes) {
        return extract(args, to, quiet);
    }
    let source = source(&args.target)?;
    if let Some(roster) = roster_on(&source).filter(|_| !args.no_changes) {
        return Err(on_set(&source, roster.extents.is_some()));
    }
    let memory_bytes = memory_bytes(args);
    let progress = Progress::new(quiet);
    let (target, plan, device) = match &args.to {
        Some(to) if !args.no_changes => {
            let plan = plan_and_copy(open(&source, true)?, &source, to, memory_bytes, &progress)?;
            (to.clone(), plan, open(to, false)?)
        }
        _ => {
            let device = open(&source, args.no_changes)?;
            (
                source.clone(),
                plan(&device, device.is_spread(), &source, memory_bytes, &progress)?,
                device,
            )
        }
    };
    if args.no_changes {
        let rehearsed = write_in_memory(&plan, &Arc::new(device), args.to.is_some(), memory_bytes);
        let lacks_room = matches!(rehearsed, Err(Error::NoFreeSegment));
        let report = match rehearsed {
            Err(Error::NoFreeSegment) => plan.report().clone(),
            rehearsed => rehearsed.map_err(|error| failed_on(&target, &error))?.0,
        };
        let outcome = Outcome::new(&source, &target, true, report, Affected::default());
        return Ok(Outcome { lacks_room, ..outcome });
    }
    let (report, device) = write(&plan, device, &target, args.to.is_some())?;
    drop(plan);
    progress.show("looking for the names of files".into());
    let affected = names(&(Arc::new(device) as _), &report, memory_bytes);
    Ok(Outcome::new(&source, &target, false, report, affected))
}

/// A rebuild changes no device of a set.
fn on_set(source: &Path, is_spread: bool) -> Failure {
    let source = source.display();
    match is_spread {
        true => Failure::new(format_args!(
            "{source}: is one of several devices over which a volume is spread, and none of these \
             is changed; -n says what is left of the volume on all that are there, and --to \
             DIRECTORY copies the files"
        )),
        false => Failure::new(format_args!(
            "{source}: is one of several devices of a volume, and what is made anew on it would \
             not be on the others; -n says what is left on it, --to DIRECTORY copies the files, \
             and the volume can be mounted on another one of its devices with -o degraded"
        )),
    }
}

/// Plans the rebuild of `device`, which is `source`, and copies it into the new file `to`
/// meanwhile.
fn plan_and_copy(
    device: Devices,
    source: &Path,
    to: &Path,
    memory_bytes: u64,
    progress: &Progress,
) -> Result<Rebuild, Failure> {
    let copying = Copying::new(device, to).map_err(|error| failed_on(to, &error))?;
    let planned = plan(&copying, false, source, memory_bytes, progress);
    if planned.is_err() {
        // There is nothing to rebuild in a copy of it.
        let _ = std::fs::remove_file(to);
        return planned;
    }
    copying.finish(progress).map_err(|error| failed_on(to, &error))?;
    planned
}

/// Writes the new map to `device`, which is the image or block device `target`. A copy gets longer
/// if it has no room for the map; then another device is returned.
fn write(
    plan: &Rebuild,
    mut device: Devices,
    target: &Path,
    is_copy: bool,
) -> Result<(RebuildReport, Devices), Failure> {
    let fail = |error: &dyn Display| failed_on(target, error);
    let mut report = plan.write(&device, &options(false));
    if is_copy && matches!(report, Err(Error::NoFreeSegment)) {
        let len_bytes = device.len_bytes();
        let set_len = |device: Devices, len_bytes| {
            drop(device);
            copy::set_len(target, len_bytes).map_err(|error| fail(&error))?;
            open(target, false)
        };
        device = set_len(device, len_bytes.saturating_mul(2))?;
        report = plan.write(&device, &options(true));
        let grown_bytes = report.as_ref().map_or(0, |report| report.grown_bytes);
        device = set_len(device, len_bytes + grown_bytes)?;
    }
    Ok((report.map_err(|error| fail(&error))?, device))
}

/// Writes the new map over `below`, to what is only kept in memory. If there is no room, it may be
/// longer.
fn write_in_memory(
    plan: &Rebuild,
    below: &Arc<Devices>,
    may_grow: bool,
    memory_bytes: u64,
) -> Result<(RebuildReport, OverlayDevice<Devices>), Error> {
    let overlay = |len_bytes| {
        OverlayDevice::with_len(Arc::clone(below), len_bytes)
            .with_memory(memory_bytes / OVERLAY_PART)
    };
    let mut device = overlay(below.len_bytes());
    let mut report = plan.write(&device, &options(false));
    if may_grow && matches!(report, Err(Error::NoFreeSegment)) {
        let len_bytes = below.len_bytes().saturating_mul(2);
        device = overlay(len_bytes);
        report = plan.write(&device, &options(true));
    }
    Ok((report?, device))
}

fn failed_on(target: &Path, error: &dyn Display) -> Failure {
    Failure::new(format_args!("{}: {error}", target.display()))
}

/// Rebuilds in memory, and copies the files of a version into the directory `to`.
fn extract(args: &RebuildArgs, to: &Path, quiet: bool) -> Result<Outcome, Failure> {
    let (source, version) = source_and_version(&args.target)?;
    let progress = Progress::new(quiet);
    let below = Arc::new(open(&source, true)?);
    let memory_bytes = memory_bytes(args);
    let plan = plan(&*below, below.is_spread(), &source, memory_bytes, &progress)?;
    let written = write_in_memory(&plan, &below, true, memory_bytes);
    drop(plan);
    let (report, device) = written.map_err(|error| failed_on(&source, &error))?;
    let device: Arc<dyn Device> = Arc::new(device);
    progress.show("looking for the names of files".into());
    let affected = names(&device, &report, memory_bytes / 2);
    progress.show("repairing files in memory".into());
    let version = mend::mend(&device, &version, memory_bytes / 2);
    progress.show("copying files".into());
    let shown = state::open_device(&device, source.clone(), &version, quiet)?;
    let copied = copy_all(&shown.fs, to)?;
    Ok(Outcome { copied: Some(copied), ..Outcome::new(&source, to, false, report, affected) })
}

/// Plans the rebuild of `device`, on which all of the volume lies if it `is_whole`; otherwise it
/// may be a part alone.
fn plan(
    device: &dyn Device,
    is_whole: bool,
    target: &Path,
    memory_bytes: u64,
    progress: &Progress,
) -> Result<Rebuild, Failure> {
    Rebuild::plan(device, memory_bytes, &mut |done, all| {
        progress.show(format!("{done} of {all} segments read"));
    })
    .map_err(|error| Failure::new(format_args!("{}: {error}", target.display())))
    .and_then(|plan| match plan.is_spread() && !is_whole {
        true => Err(Failure::new(format_args!(
            "{}: is one of several devices over which a volume is spread, and the list of devices \
             that it should have at its end is missing or damaged; name another one of them",
            target.display()
        ))),
        false => Ok(plan),
    })
}

/// The memory that it may take.
fn memory_bytes(args: &RebuildArgs) -> u64 {
    args.memory.unwrap_or_else(default_check_bytes)
}

fn options(may_grow: bool) -> RebuildOptions {
    RebuildOptions { may_grow, now: SystemClock.now(), ..RebuildOptions::default() }
}

/// The image or device, which nobody has mounted, and the version that is named with it.
fn source_and_version(named: &Path) -> Result<(PathBuf, VersionName), Failure> {
    let resolved = tag::resolve(named)?;
    let Some(text) = resolved.to_str() else {
        return Ok((source(named)?, VersionName::default()));
    };
    let place = target::find_version(text)?;
    match place.keeper {
        Keeper::Offline(source) => Ok((source, place.version)),
        Keeper::Daemon(_) => Ok((source(&place.path)?, place.version)),
    }
}

/// The image or device, which nobody has mounted.
pub(super) fn source(named: &Path) -> Result<PathBuf, Failure> {
    match target::find(&tag::resolve(named)?)? {
        Target::Unmounted(source) => Ok(source),
        Target::Mounted(served) => Err(Failure::new(format_args!(
            "{}: is mounted on {}; unmount it first",
            named.display(),
            served.place()
        ))),
    }
}

/// Opens a device alone, or to read it those over which the volume is spread that lies there.
pub(super) fn open(source: &Path, read_only: bool) -> Result<Devices, Failure> {
    let options = OpenOptions::new();
    if read_only && roster_on(source).is_some_and(|roster| roster.extents.is_some()) {
        return open_devices_to_read(source, &options);
    }
    let device = open_device_alone(source, &options, read_only)?;
    Ok(Devices::single(device, source.to_path_buf(), clock()))
}

/// The files that may have lost something, or have older data.
#[derive(Default)]
struct Affected {
    files: Vec<File>,
    beyond: Option<u64>,
}

fn names(device: &Arc<dyn Device>, report: &RebuildReport, memory_bytes: u64) -> Affected {
    let incomplete = report.restored.iter().filter(|part| !part.is_complete);
    let of_parts = incomplete.flat_map(|part| lists_of(part, report.next_list));
    let most = (memory_bytes / NAMED_BYTES).min(MAX_NAMED);
    let mut of_pages: Vec<u64> = report.lost_pages.iter().map(|pages| pages.list).collect();
    of_pages.dedup();
    let mut lists = of_pages.into_iter().chain(of_parts);
    let wanted: BTreeSet<Ino> = lists.by_ref().take(most as usize).map(Ino).collect();
    let beyond = lists.next().and(wanted.last().map(|last| last.0));
    let overlay: Arc<dyn Device> = Arc::new(OverlayDevice::new(Arc::clone(device)));
    let found = names_of(&overlay, memory_bytes / 2, wanted);
    let files = found.into_iter().map(|(ino, paths)| File { list: ino.0, paths }).collect();
    Affected { files, beyond }
}

/// The lists of a part, which may reach beyond all that there are.
fn lists_of(part: &Restored, next_list: u64) -> std::ops::Range<u64> {
    part.from.list..part.to.list.saturating_add(1).min(next_list)
}

impl Outcome {
    fn new(
        source: &Path,
        target: &Path,
        dry_run: bool,
        report: RebuildReport,
        affected: Affected,
    ) -> Self {
        let part = |part: &Restored| Part {
            first_list: part.from.list,
            last_list: part.to.list,
            detail: part.to_string(),
            complete: part.is_complete,
        };
        let pages = |pages: &LostPages| {
            let LostPages { list, page_index, page_count, .. } = *pages;
            Pages { list, page_index, page_count }
        };
        Self {
            source: source.display().to_string(),
            target: target.display().to_string(),
            dry_run,
            extent: report.extent,
            base_checkpoint: report.checkpoint,
            complete: report.is_complete(),
            superblocks_lost: report.superblocks_lost,
            hash_key_lost: report.hash_key_lost,
            lacks_room: false,
            lost_end_bytes: report.lost_end_bytes,
            may_lack_log: report.may_lack_log,
            may_lack_nodes: report.may_lack_nodes,
            restored_entry_count: report.restored_entry_count,
            unknown_move_count: report.unknown_move_count,
            grown_bytes: report.grown_bytes,
            written_bytes: report.written_bytes,
            restored: report.restored.iter().map(part).collect(),
            lost_pages: report.lost_pages.iter().map(pages).collect(),
            bad_nodes: report.bad_nodes,
            affected_files: affected.files,
            affected_beyond: affected.beyond,
            copied: None,
        }
    }

    /// Whether all that the volume had is there.
    fn is_whole(&self) -> bool {
        self.complete && !self.copied.as_ref().is_some_and(Copied::is_partial)
    }
}

fn text_of(outcome: &Outcome) -> String {
    let mut lines: Vec<String> = outcome.bad_nodes.clone();
    lines.extend(outcome.restored.iter().map(|part| part.detail.clone()));
    if outcome.lost_end_bytes > 0 {
        let lost = text::size(outcome.lost_end_bytes);
        lines.push(format!("the device has lost its end: the volume is {lost} shorter now"));
    }
    lines.extend(outcome.lost_pages.iter().map(|Pages { list, page_index, page_count }| {
        let pages = match page_count {
            1 => format!("page {page_index}"),
            count => format!("pages {page_index} to {}", page_index + (count - 1)),
        };
        format!("{pages} of list {list}: what was there is not known; it reads as damage")
    }));
    if outcome.may_lack_log {
        lines.push("what was written last may be lost with the device's end".into());
    }
    if outcome.may_lack_nodes {
        lines.push("between the parts of the map that were found others may be lost".into());
    }
    if outcome.unknown_move_count > 0 {
        let count = outcome.unknown_move_count;
        lines.push(format!("{count} moves of pages could not be repeated"));
    }
    if outcome.hash_key_lost {
        lines.push(
            "the key of directories is lost with the superblocks: files are listed, but cannot be \
             opened by name"
                .into(),
        );
    }
    for File { list, paths } in &outcome.affected_files {
        let paths: Vec<String> = paths.iter().map(|path| text::printable(path)).collect();
        let paths = paths.join(", ");
        lines.push(format!("may have lost something, or have older data: {paths} (list {list})"));
    }
    if let Some(list) = outcome.affected_beyond {
        lines.push(format!(
            "files above list {list} may be affected too: their names were not looked for"
        ));
    }
    if outcome.grown_bytes > 0 && outcome.copied.is_none() {
        let grown = text::size(outcome.grown_bytes);
        let was = if outcome.dry_run { "would be" } else { "was" };
        lines.push(format!(
            "the copy has no room for the new map, and {was} made longer by {grown}"
        ));
    }
    if outcome.lacks_room {
        lines.push(format!("without -n: {}", Error::NoFreeSegment));
    }
    let in_memory = if outcome.copied.is_some() { " in memory" } else { "" };
    let (was, were) = if outcome.dry_run { ("would be", "would be") } else { ("was", "were") };
    let what = match outcome.extent {
        Extent::Nothing => "nothing had to be rebuilt".into(),
        Extent::Superblock => format!("a superblock {was} written{in_memory}; the map is whole"),
        Extent::Parts => format!("parts of the map {were} rebuilt{in_memory}"),
        Extent::Map => format!("all of the map {was} rebuilt{in_memory}"),
    };
    let lost = if outcome.is_whole() { "nothing is lost" } else { "something is lost, see above" };
    if let Some(copied) = &outcome.copied {
        lines.push(format!("{}: {what}; nothing was written to it", outcome.source));
        lines.push(format!("{}: {} copied; {lost}", outcome.target, copied.text()));
    } else {
        lines.push(format!("{}: {what}; {lost}", outcome.target));
    }
    lines.join("\n") + "\n"
}
