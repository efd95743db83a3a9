//! `dendro clean coalesce`: writes scattered files in one piece.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dendro_control::Client;
use dendro_control::coalescing::{CoalesceRequest, Coalesced, MAX_LISTS};
use dendro_daemon::text;
use serde::Serialize;

use crate::args::cleaning::CoalesceArgs;
use crate::failure::Failure;
use crate::offline;
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target::below::files_below;
use crate::target::{self, Served, Target};

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
    /// Bytes left as they are because something in their mebibyte cannot be read.
    unreadable_bytes: u64,
    /// Whether it ended early because there were too few clean segments.
    ended_for_room: bool,
}

pub(crate) fn run(args: &CoalesceArgs, quiet: bool) -> Result<(), Failure> {
    let progress = Progress::new(quiet);
    let done = match target::find(&args.target)? {
        Target::Mounted(served) => coalesce_mounted(args, &served, &progress),
        Target::Unmounted(source) => {
            offline::coalesce(&source, args.dry_run, |done| progress.show(how_far(done)))
        }
    };
    drop(progress);
    let done = done?;
    let outcome = Outcome {
        target: &args.target.display().to_string(),
        dry_run: args.dry_run,
        page_bytes: done.page_bytes,
        pieces_before: done.pieces_before,
        pieces_after: done.pieces_after,
        moved_bytes: done.moved_bytes,
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
    args: &CoalesceArgs,
    served: &Served,
    progress: &Progress,
) -> Result<Coalesced, Failure> {
    let lists = match &served.view {
        None => None,
        Some(_) => lists_below(&args.target)?,
    };
    if !args.dry_run {
        // Data that are still in memory cannot be moved.
        let synced = served.client.sync();
        synced.map_err(|error| Failure::new(format_args!("{}: {error}", served.place())))?;
    }
    coalesce_lists(served, lists.as_deref(), args.dry_run, |all| progress.show(how_far(all)))
}

/// Coalesces these lists, or all; `show` is called with what was done so far.
pub(crate) fn coalesce_lists(
    served: &Served,
    lists: Option<&[u64]>,
    dry_run: bool,
    mut show: impl FnMut(&Coalesced),
) -> Result<Coalesced, Failure> {
    let request = |lists: Option<&[u64]>| CoalesceRequest {
        mount: served.device().map(str::to_owned),
        lists: lists.map(<[u64]>::to_vec),
        from: None,
        dry_run,
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
    format!("{looked_at} looked at, {moved} written again")
}
