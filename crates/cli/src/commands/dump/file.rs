//! Where a file lies on the device.
//!
//! The path is looked up with the engine, which knows the log, too. What is printed is read without
//! it: the nodes of the map on the way to the file's list, the list's entries, where its pages lie,
//! and what the log behind the checkpoint says about it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use dendro_check::Volume;
use dendro_check::info::{EntryInfo, NodeInfo};
use dendro_disk::Versions;
use dendro_format::{CHUNK_PAGES, Checkpoint, Entries, Key, PageRef, Record, Space, Value};
use serde::Serialize;

use super::output::Output;
use super::parts::{checkpoint, print_records};
use crate::commands::files::{state, tree};
use crate::failure::{Failure, usage};

/// A file that was found.
pub(super) struct Wanted {
    pub(super) source: PathBuf,
    path: String,
    list: u64,
    /// The branches whose entries the version sees, each with the last epoch.
    ancestry: Vec<(u32, u64)>,
}

/// Finds the file at `path` in the version that `target` names.
pub(super) fn find(target: &Path, path: &OsStr, quiet: bool) -> Result<Wanted, Failure> {
    let text = target.to_str().ok_or_else(|| usage("the image's name is no UTF-8"))?;
    let shown = state::open(text, quiet)?;
    let path = tree::absolute(path);
    let name = tree::shown(&path);
    let attr = tree::find(&shown.fs, &path, false)
        .map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
    let ancestry = shown.disk().versions().ancestry(shown.fs.view());
    Ok(Wanted { source: shown.source().to_path_buf(), path: name, list: attr.ino.0, ancestry })
}

/// The file that was named.
#[derive(Serialize)]
struct FileItem<'a> {
    path: &'a str,
    list: u64,
    /// The branches that the version sees, each with the last epoch of it.
    sees: &'a [(u32, u64)],
}

impl fmt::Display for FileItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: list {}", self.path, self.list)
    }
}

/// Pages that lie one behind the other.
#[derive(Serialize)]
struct Extent {
    branch: u32,
    epoch: u64,
    first_page: u64,
    count: u64,
    /// In bytes from the start of the device.
    offset: u64,
    segment: u32,
    /// In bytes from the start of the segment.
    segment_offset_bytes: u64,
    /// Bytes that are stored.
    len_bytes: u64,
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { branch, epoch, first_page, count, offset, len_bytes, .. } = self;
        let Self { segment, segment_offset_bytes, .. } = self;
        let last_page = first_page + count - 1;
        write!(f, "pages {first_page} to {last_page} of {branch}:{epoch}: byte {offset}, ")?;
        write!(f, "{len_bytes} bytes (segment {segment}, byte {segment_offset_bytes})")
    }
}

pub(super) fn dump(volume: &Volume<'_>, wanted: &Wanted, out: &mut Output) -> io::Result<()> {
    let Wanted { path, list, ancestry, .. } = wanted;
    out.item("file", &FileItem { path, list: *list, sees: ancestry })?;
    let Some(checkpoint) = checkpoint(volume, out)? else { return Ok(()) };
    dump_map(volume, &checkpoint, wanted, out)?;
    for partial in volume.log(&checkpoint) {
        let concerns = |record: &Record<'_>| record.lists().contains(&Some(*list));
        print_records(&partial, Some(&concerns), out)?;
    }
    Ok(())
}

fn dump_map(
    volume: &Volume<'_>,
    checkpoint: &Checkpoint,
    wanted: &Wanted,
    out: &mut Output,
) -> io::Result<()> {
    let list = wanted.list;
    let (from, to) = (Key::first(list, Space::List, 0), Key::first(list + 1, Space::List, 0));
    let is_seen = |key: &Key| {
        let sees = |&(branch, last): &(u32, u64)| key.branch == branch && key.epoch <= last;
        key.list == list && wanted.ancestry.iter().any(sees)
    };
    for node in volume.nodes_between(checkpoint, from, to) {
        let node = match node {
            Ok(node) => node,
            Err(problem) => {
                out.problem(&problem)?;
                continue;
            }
        };
        out.item("node", &NodeInfo::from(&node))?;
        let Entries::Leaf(entries) = &node.entries else { continue };
        for (key, value) in entries.iter().filter(|(key, _)| is_seen(key)) {
            match value {
                Value::Chunk(chunk) => {
                    let pages: Vec<(u32, PageRef)> = chunk.iter().collect();
                    for extent in extents(volume, key, &pages) {
                        out.item("extent", &extent)?;
                    }
                }
                _ => out.item("entry", &EntryInfo::from((key, value)))?,
            }
        }
    }
    Ok(())
}

/// The pages of a chunk, those together that lie one behind the other.
fn extents(volume: &Volume<'_>, key: &Key, pages: &[(u32, PageRef)]) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::new();
    for &(slot, page) in pages.iter().filter(|(_, page)| page.len_bytes > 0) {
        let page_index = key.index.saturating_mul(CHUNK_PAGES) | u64::from(slot);
        let (offset, len_bytes) = (page.addr.bytes(), u64::from(page.len_bytes));
        if let Some(last) = all.last_mut()
            && last.first_page + last.count == page_index
            && last.offset + last.len_bytes == offset
        {
            last.count += 1;
            last.len_bytes += len_bytes;
            continue;
        }
        let segment = volume.layout().segment_of(page.addr);
        all.push(Extent {
            branch: key.branch,
            epoch: key.epoch,
            first_page: page_index,
            count: 1,
            offset,
            segment: segment.0,
            segment_offset_bytes: offset - volume.layout().segment_offset(segment),
            len_bytes,
        });
    }
    all
}
