//! `dendro usage --files`: what files take on the device.

use std::path::Path;

use dendro_control::coalescing::CoalesceRequest;
use dendro_daemon::text;
use serde::Serialize;

use crate::commands::cleaning::coalesce::coalesce_lists;
use crate::failure::Failure;
use crate::output::{self, json};
use crate::target::below::files_below;
use crate::target::{self, Target, flush_kernel};

/// What the files at and below a path take.
#[derive(Serialize)]
struct FilesUsage {
    target: String,
    file_count: usize,
    /// The sum of their sizes.
    apparent_bytes: u64,
    /// What their pages would take if nothing were compressed.
    plain_bytes: u64,
    /// What they take.
    stored_bytes: u64,
    /// How many times as much `plain_bytes` is; `None` where nothing is stored.
    ratio: Option<f64>,
}

/// Prints what the files at and below `path`, in a mount, take.
pub(super) fn files(path: &Path, as_json: bool) -> Result<(), Failure> {
    let fail = |why: &str| Failure::new(format_args!("{}: {why}", path.display()));
    let served = match target::find(path)? {
        Target::Mounted(served) if served.view.is_some() => served,
        _ => return Err(fail("is not in a mount; --files is about files of a mounted volume")),
    };
    flush_kernel(&served);
    let files = files_below(path)?;
    let lists: Vec<u64> = files.keys().copied().collect();
    let trial = CoalesceRequest { dry_run: true, ..CoalesceRequest::default() };
    let done = coalesce_lists(&served, Some(&lists), trial, |_| {})?;
    if done.page_bytes > 0 && done.stored_bytes == 0 {
        return Err(fail("the daemon is of an older version; mount the volume again"));
    }
    let (plain_bytes, stored_bytes) = (done.plain_bytes, done.stored_bytes);
    let usage = FilesUsage {
        target: path.display().to_string(),
        file_count: files.len(),
        apparent_bytes: files.values().sum(),
        plain_bytes,
        stored_bytes,
        ratio: (stored_bytes > 0).then(|| plain_bytes as f64 / stored_bytes as f64),
    };
    if as_json { json::print(&usage) } else { output::print(&files_text(&usage)) }
}

fn files_text(usage: &FilesUsage) -> String {
    let FilesUsage { target, plain_bytes, stored_bytes, .. } = usage;
    let ratio = output::ratio(*plain_bytes, *stored_bytes);
    let gain = ratio.map(|ratio| format!(", {ratio} to 1")).unwrap_or_default();
    let facts = output::table(&[
        ("files", usage.file_count.to_string()),
        ("size", text::size(usage.apparent_bytes)),
        ("uncompressed", text::size(*plain_bytes)),
        ("on the device", format!("{}{gain}", text::size(*stored_bytes))),
    ]);
    format!("{target}\n{facts}")
}
