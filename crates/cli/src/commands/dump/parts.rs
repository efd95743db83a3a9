//! Structures that several dumps print, and reports of those that cannot be read.

use std::fmt::Display;
use std::io;

use dendro_check::info::{PartialInfo, PartialRecordInfo};
use dendro_check::{Break, Partial, UsageTable, Volume};
use dendro_format::{Checkpoint, Record, SegmentNo};
use serde::Serialize;

use super::output::Output;

pub(super) fn checkpoint(volume: &Volume<'_>, out: &mut Output) -> io::Result<Option<Checkpoint>> {
    match volume.checkpoint() {
        Ok(checkpoint) => Ok(Some(checkpoint)),
        Err(error) => out.problem(&format_args!("the checkpoint: {error}")).map(|()| None),
    }
}

pub(super) fn usage(
    volume: &Volume<'_>,
    checkpoint: &Checkpoint,
    out: &mut Output,
) -> io::Result<Option<UsageTable>> {
    match volume.usage(checkpoint) {
        Ok(usage) => Ok(Some(usage)),
        Err(error) => out.problem(&format_args!("the segments' usage: {error}")).map(|()| None),
    }
}

/// The partial segments of one segment, then why there are no more. `always`: also if there is none
/// at all.
pub(super) fn partials_of(
    volume: &Volume<'_>,
    segment: SegmentNo,
    with_records: bool,
    always: bool,
    out: &mut Output,
) -> io::Result<()> {
    let mut partials = volume.partials(segment);
    let mut count = 0_u32;
    for partial in partials.by_ref() {
        print_partial(&partial, with_records, out)?;
        count += 1;
    }
    match partials.end() {
        Some(reason) if count > 0 || always => {
            let end = End {
                segment: segment.0,
                offset_bytes: partials.offset_bytes(),
                reason: reason.clone(),
            };
            out.item("end", &end)
        }
        _ => Ok(()),
    }
}

/// A record, and the partial segment that it lies in.
#[derive(Serialize)]
struct RecordLine {
    segment: u32,
    head: &'static str,
    partial: u64,
    #[serde(flatten)]
    record: PartialRecordInfo,
}

impl Display for RecordLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.record.fmt(f)
    }
}

pub(super) fn print_partial(
    partial: &Partial,
    with_records: bool,
    out: &mut Output,
) -> io::Result<()> {
    out.item("partial", &PartialInfo::from(partial))?;
    if with_records { print_records(partial, None, out) } else { Ok(()) }
}

/// The records of a partial segment: all, or those that are `wanted`.
pub(super) fn print_records(
    partial: &Partial,
    wanted: Option<&dyn Fn(&Record<'_>) -> bool>,
    out: &mut Output,
) -> io::Result<()> {
    let info = PartialInfo::from(partial);
    for record in partial.records() {
        match record {
            Ok(record) if wanted.is_none_or(|wanted| wanted(&record.record)) => {
                let (segment, head, partial) = (info.segment, info.head, info.seq);
                out.item("record", &RecordLine { segment, head, partial, record: record.into() })?;
            }
            Ok(_) => {}
            Err(malformed) => out.problem(&format_args!(
                "records of the partial segment at segment {}, byte {}: {malformed}",
                info.segment, info.offset_bytes
            ))?,
        }
    }
    Ok(())
}

/// Why a segment has no more partial segments.
#[derive(Serialize)]
struct End {
    segment: u32,
    offset_bytes: u32,
    #[serde(flatten)]
    reason: Break,
}

impl Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "segment {} ends at byte {}: {}", self.segment, self.offset_bytes, self.reason)
    }
}
