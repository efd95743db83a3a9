//! `dendro clean coalesce`: writes scattered files in one piece, and compresses what is there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dendro_control::Client;
use dendro_control::coalescing::{CoalesceRequest, Coalesced, MAX_LISTS};
use dendro_control::versions::VersionName;
use dendro_daemon::text;
use serde::Serialize;

use crate::args::cleaning::CoalesceArgs;
use crate::failure::Failure;
use crate::offline;
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target::below::files_below;
use crate::target::{self, Keeper, Place, Served};

/// The root directory of every view; its number is the same in all.
const ROOT_INODE: u64 = 1;

/// The result.
#[derive(Serialize)]
struct Outcome<'a> {
    target: &'a str,
    dry_run: bool,
    /// Bytes of the pages that were examined.
    page_bytes: u64,
    /// Reads of the device for all of them in order, a MiB at a time, before
    pieces_before: u64,
    /// and after.
    pieces_after: u64,
    /// Bytes that were written again, or would be.
    moved_bytes: u64,
    /// How many bytes more these took before; `None` where a daemon of an older version does it.
    saved_bytes: Option<u64>,
    /// What was compressed with.
    compress: Option<&'a str>,
    /// Bytes left as they are because something in their mebibyte cannot be read.
    unreadable_bytes: u64,
    /// Whether it ended early because there were too few clean segments.
    ended_for_room: bool,
}

pub(crate) fn run(args: &CoalesceArgs, quiet: bool) -> Result<(), Failure> {
    let Place { keeper, version, path } = target::find_version(&args.target)?;
    let request = CoalesceRequest {
        of: Some(version).filter(|version| *version != VersionName::default()),
        dry_run: args.dry_run,
        compress: args.compress.clone(),
        ..CoalesceRequest::default()
    };
    let progress = Progress::new(quiet);
    let done = match keeper {
        Keeper::Daemon(served) => coalesce_mounted(&path, request, &served, &progress),
        Keeper::Offline(source) => {
            offline::coalesce(&source, request, |done| progress.show(how_far(done)))
        }
    };
    drop(progress);
    let done = done?;
    let outcome = Outcome {
        target: &args.target,
        dry_run: args.dry_run,
        page_bytes: done.page_bytes,
        pieces_before: done.pieces_before,
        pieces_after: done.pieces_after,
        moved_bytes: done.moved_bytes,
        saved_bytes: done.saved_bytes,
        compress: done.compress.as_deref(),
        unreadable_bytes: done.unreadable << 20,
        ended_for_room: done.lacks_room,
    };
    if args.json {
        return json::print(&outcome);
    }
    if quiet { Ok(()) } else { output::print(&outcome_text(&outcome)) }
}

fn outcome_text(outcome: &Outcome<'_>) -> String {
    let Outcome { target, pieces_before, pieces_after, .. } = outcome;
    let size = text::size(outcome.page_bytes);
    let moved = text::size(outcome.moved_bytes);
    let mut report = match outcome.dry_run {
        true => format!(
            "{target}: {size} in {pieces_before} pieces; {pieces_after} when {moved} are written \
             again\n"
        ),
        false => format!(
            "{target}: {size} in {pieces_after} pieces, {pieces_before} before; {moved} written \
             again\n"
        ),
    };
    if let (Some(compress), Some(saved_bytes)) = (outcome.compress, outcome.saved_bytes) {
        let before = text::size(outcome.moved_bytes + saved_bytes);
        let makes = if outcome.dry_run { "would make" } else { "made" };
        report += &match text::size(saved_bytes) {
            _ if saved_bytes == 0 => format!("{compress} {makes} nothing smaller\n"),
            less => format!("{compress} {makes} {before} into {moved}: {less} less\n"),
        };
    }
    if outcome.unreadable_bytes > 0 {
        report += &format!(
            "{} were left as they are: blocks in them are damaged\n",
            text::size(outcome.unreadable_bytes)
        );
    }
    if outcome.ended_for_room {
        report += "it ended early because clean segments are few; `dendro clean run` makes more\n";
    }
    report
}

fn coalesce_mounted(
    path: &Path,
    request: CoalesceRequest,
    served: &Served,
    progress: &Progress,
) -> Result<Coalesced, Failure> {
    let lists = match &served.view {
        None => None,
        Some(_) => lists_below(path)?,
    };
    if !request.dry_run {
        // Data that are still in memory cannot be moved.
        let synced = served.client.sync();
        synced.map_err(|error| Failure::new(format_args!("{}: {error}", served.place())))?;
    }
    coalesce_lists(served, lists.as_deref(), request, |all| progress.show(how_far(all)))
}

/// Has these lists coalesced, or all, as `request` says; `show` is called with what was done so
/// far.
pub(crate) fn coalesce_lists(
    served: &Served,
    lists: Option<&[u64]>,
    request: CoalesceRequest,
    mut show: impl FnMut(&Coalesced),
) -> Result<Coalesced, Failure> {
    let request = |lists: Option<&[u64]>| CoalesceRequest {
        mount: served.device().map(str::to_owned),
        lists: lists.map(<[u64]>::to_vec),
        ..request.clone()
    };
    let mut all = Coalesced::default();
    match lists {
        None => coalesce_some(&served.client, request(None), &mut all, &mut show)?,
        Some(lists) => {
            for some in lists.chunks(MAX_LISTS) {
                coalesce_some(&served.client, request(Some(some)), &mut all, &mut show)?;
                if all.lacks_room {
                    break;
                }
            }
        }
    }
    Ok(all)
}

/// Repeats the request until all of it is done, or there is no room for it.
fn coalesce_some(
    client: &Client,
    mut request: CoalesceRequest,
    all: &mut Coalesced,
    show: &mut impl FnMut(&Coalesced),
) -> Result<(), Failure> {
    loop {
        let done = client.coalesce(request.clone())?;
        let is_new = request.of.is_some() || request.compress.is_some();
        if is_new && done.saved_bytes.is_none() {
            return Err(Failure::new("the daemon is of an older version; mount the volume again"));
        }
        all.add(&done);
        show(all);
        let Some(next) = done.next.filter(|_| !done.lacks_room) else { return Ok(()) };
        if request.from.is_some_and(|from| next <= from) {
            return Err(Failure::new("the daemon goes on where it began"));
        }
        request.from = Some(next);
    }
}

/// The numbers of the files at and below `path`, sorted; `None` if these are all files.
fn lists_below(path: &Path) -> Result<Option<Vec<u64>>, Failure> {
    let is_everything = fs::metadata(path).is_ok_and(|top| top.is_dir() && top.ino() == ROOT_INODE);
    if is_everything {
        return Ok(None);
    }
    files_below(path).map(|files| Some(files.into_keys().collect()))
}

/// The text of the progress line.
fn how_far(done: &Coalesced) -> String {
    let (looked_at, moved) = (text::size(done.page_bytes), text::size(done.moved_bytes));
    let saved = done.saved_bytes.filter(|_| done.compress.is_some());
    let saved = saved.map(|bytes| format!(", {} less", text::size(bytes))).unwrap_or_default();
    format!("{looked_at} looked at, {moved} written again{saved}")
}
