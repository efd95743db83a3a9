//! What lies at a place on the device.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::{fmt, io};

use dendro_base::units::GRAIN_SIZE;
use dendro_check::info::{NodeInfo, SuperblockInfo};
use dendro_check::{Partial, Volume};
use dendro_control::versions::{VersionName, path_text};
use dendro_daemon::volume::memory::default_check_bytes;
use dendro_disk::Versions;
use dendro_format::partial::HEADER_LEN_BYTES;
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use dendro_format::{Addr, CHUNK_PAGES, Checkpoint, Entries, Key, PageRef, Record, Value};
use dendro_fs::{Ino, paths_of};
use serde::Serialize;

use super::output::Output;
use super::parts::{checkpoint, print_partial, print_records, usage};
use super::segments;
use crate::commands::files::state;

/// A place, and what the structures around it say that it is.
#[derive(Serialize)]
struct PlaceItem {
    /// In bytes from the start of the device.
    offset: u64,
    segment: u32,
    /// In bytes from the start of the segment.
    segment_offset_bytes: u64,
    /// What it is a part of.
    part: &'static str,
}

impl fmt::Display for PlaceItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, segment, segment_offset_bytes, part } = self;
        write!(f, "byte {offset}: segment {segment}, byte {segment_offset_bytes}: {part}")
    }
}

/// The entry of the map that names the block at the place.
#[derive(Serialize)]
struct OwnerItem {
    list: u64,
    page: u64,
    branch: u32,
    epoch: u64,
    offset: u64,
    len_bytes: u64,
    /// A version that has the file, as in `@NAME`; empty for the main branch's head.
    version: Option<String>,
    /// Its paths there.
    paths: Vec<String>,
}

impl fmt::Display for OwnerItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, page, branch, epoch, offset, len_bytes, version, paths } = self;
        write!(f, "page {page} of list {list}, written in {branch}:{epoch}: ")?;
        write!(f, "byte {offset}, {len_bytes} bytes")?;
        let version = version.as_deref().unwrap_or_default();
        paths.iter().try_for_each(|path| write!(f, "\n    {version}{path}"))
    }
}

pub(super) fn dump(
    volume: &Volume<'_>,
    offset: u64,
    source: &Path,
    out: &mut Output,
) -> io::Result<()> {
    let layout = volume.layout();
    let segment = layout.segment_of(Addr(offset / GRAIN_SIZE as u64));
    let place = |part| PlaceItem {
        offset,
        segment: segment.0,
        segment_offset_bytes: offset - layout.segment_offset(segment),
        part,
    };
    if !layout.is_log_segment(segment) {
        let slot = offset / SUPERBLOCK_LEN_BYTES as u64 * SUPERBLOCK_LEN_BYTES as u64;
        let mut all = volume.superblocks().all().iter();
        let is_slot = layout.superblock_area(segment.0).contains(&offset);
        let found = all.find(|found| found.offset == slot);
        out.item(
            "place",
            &place(match (found, is_slot) {
                (Some(_), _) => "superblock",
                (None, true) => "slot without a superblock",
                (None, false) => "unused",
            }),
        )?;
        return found.map_or(Ok(()), |found| out.item("superblock", &SuperblockInfo::from(found)));
    }
    let within = offset - layout.segment_offset(segment);
    let partial = volume.partials(segment).find(|partial| {
        let header = &partial.header;
        (u64::from(header.offset_bytes)..u64::from(header.offset_bytes + header.len_bytes))
            .contains(&within)
    });
    let inside = partial.as_ref().map_or("behind the last partial segment", |partial| {
        part_of(partial, within - u64::from(partial.header.offset_bytes))
    });
    out.item("place", &place(inside))?;
    let checkpoint = checkpoint(volume, out)?;
    if let Some(checkpoint) = &checkpoint
        && let Some(usage) = usage(volume, checkpoint, out)?
    {
        out.item("segment", &segments::line(volume, checkpoint, &usage, segment))?;
    }
    if let Some(partial) = &partial {
        print_partial(partial, false, out)?;
        let names_it = |record: &Record<'_>| blocks_of(record).contains(&offset);
        print_records(partial, Some(&names_it), out)?;
    }
    checkpoint.map_or(Ok(()), |checkpoint| owners(volume, &checkpoint, offset, source, out))
}

/// What a byte of a partial segment belongs to.
fn part_of(partial: &Partial, at: u64) -> &'static str {
    let header = &partial.header;
    let records_start = u64::from(header.records_offset_bytes);
    let records_end = records_start + u64::from(header.records_len_bytes);
    match at {
        _ if at < HEADER_LEN_BYTES as u64 => "header of a partial segment",
        _ if (records_start..records_end).contains(&at) => "records of a partial segment",
        _ => "payload of a partial segment",
    }
}

/// The bytes of the payload that a record names.
fn blocks_of(record: &Record<'_>) -> Range<u64> {
    let (addr, len_bytes) = match record {
        Record::WriteRun { addr, crcs, .. } => (*addr, crcs.len() as u64 * 4096),
        Record::WriteBlock { block, .. } => (block.addr, block.footprint_bytes().into()),
        Record::Node { place, .. } => (place.addr, place.len_bytes.into()),
        Record::Checkpoint { addr, len_bytes, .. } => (*addr, (*len_bytes).into()),
        _ => return 0..0,
    };
    addr.bytes()..addr.bytes().saturating_add(len_bytes)
}

/// What of the map lies there, or names a block there.
fn owners(
    volume: &Volume<'_>,
    checkpoint: &Checkpoint,
    offset: u64,
    source: &Path,
    out: &mut Output,
) -> io::Result<()> {
    let covers = |addr: Addr, len_bytes: u64| {
        let start = addr.bytes();
        (start..start.saturating_add(len_bytes)).contains(&offset)
    };
    for node in volume.nodes(checkpoint) {
        let node = match node {
            Ok(node) => node,
            Err(problem) => {
                out.problem(&problem)?;
                continue;
            }
        };
        if covers(node.place.addr, node.place.len_bytes.into()) {
            out.item("node", &NodeInfo::from(&node))?;
        }
        let Entries::Leaf(entries) = &node.entries else { continue };
        for (key, value) in entries {
            let Value::Chunk(chunk) = value else { continue };
            let found = chunk.iter().find(|(_, page)| {
                page.len_bytes > 0 && covers(page.addr, page.footprint_bytes().into())
            });
            if let Some((slot, page)) = found {
                out.item("owner", &owner(key, slot, page, source))?;
            }
        }
    }
    Ok(())
}

fn owner(key: &Key, slot: u32, page: PageRef, source: &Path) -> OwnerItem {
    let (version, paths) = paths(source, key.list).unwrap_or_default();
    OwnerItem {
        list: key.list,
        page: key.index.saturating_mul(CHUNK_PAGES) | u64::from(slot),
        branch: key.branch,
        epoch: key.epoch,
        offset: page.addr.bytes(),
        len_bytes: page.len_bytes.into(),
        version,
        paths,
    }
}

/// A version that has the file, and its paths there. `None` if no version can be read that has it,
/// or if the volume is mounted.
fn paths(source: &Path, list: u64) -> Option<(Option<String>, Vec<String>)> {
    let shown = state::open_source(source.to_path_buf(), &VersionName::default(), true).ok()?;
    let disk = shown.disk();
    let table = disk.versions();
    let main = table.main_head();
    let heads = table.branches().map(|branch| (format!(":{}", branch.name), branch.head()));
    let snapshots = table.snapshots().map(|of| (of.title(), of.view()));
    let mut views: Vec<_> = heads.chain(snapshots).collect();
    views.sort_by_key(|(_, view)| (*view != main, view.epoch.is_some()));
    let wanted = BTreeSet::from([Ino(list)]);
    views.into_iter().find_map(|(version, view)| {
        let paths =
            paths_of(&**disk, view, &wanted, default_check_bytes() / 4).ok()?.remove(&Ino(list))?;
        let version = Some(version).filter(|_| view != main);
        Some((version, paths.iter().map(|path| path_text(path)).collect()))
    })
}
