//! What a mount would roll forward.

use std::collections::BTreeSet;
use std::fmt;

use dendro_base::units::PAGE_SIZE;
use dendro_format::{Addr, Checkpoint, Record, SegmentNo, checksum};
use serde::Serialize;

use super::beyond;
use super::log::{Log, LogEnd};
use super::partial::Partial;
use super::partials::Break;
use super::volume::Volume;

/// What recovery would find behind a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogSummary {
    /// Partial segments that continue each other.
    pub partial_count: u64,
    /// Those among them that are rolled forward.
    pub replayed_count: u64,
    /// The bytes of these on the device.
    pub replayed_bytes: u64,
    /// The records in these.
    pub record_count: u64,
    /// Bytes of records at the end that belong to a recovery unit whose end is missing.
    pub dropped_record_bytes: u64,
    /// The highest number of a partial segment known to be durable.
    pub durable_seq: u64,
    /// The last recovery unit that is complete.
    pub commit_seq: u64,
    /// Segments that may have been filled again since the checkpoint. Blocks that lay in them
    /// before may be gone.
    pub reused_segments: BTreeSet<u32>,
    /// Why a durable partial segment is damaged, if one is: the medium failed, and durable data is
    /// lost.
    pub lost: Option<Break>,
    /// Where and why the log ends.
    pub end: LogEnd,
}

impl LogSummary {
    /// Whether the log records that the segment was empty and may be filled again.
    pub(crate) fn may_have_reused(&self, segment: SegmentNo) -> bool {
        self.reused_segments.contains(&segment.0)
    }
}

impl fmt::Display for LogSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replayed_count, replayed_bytes, record_count, end, .. } = self;
        writeln!(
            f,
            "{replayed_count} partial segments to roll forward, {record_count} records, \
             {replayed_bytes} bytes"
        )?;
        if self.dropped_record_bytes > 0 {
            writeln!(f, "an unfinished unit of {} bytes of records", self.dropped_record_bytes)?;
        }
        if let Some(lost) = &self.lost {
            writeln!(f, "what was durable is lost: {lost}")?;
        }
        write!(f, "the log {end}")
    }
}

/// What the headers of the log behind a checkpoint say.
struct Headers {
    partial_count: u64,
    durable_seq: u64,
    reused_segments: BTreeSet<u32>,
    /// The number of the first partial segment that is not there.
    next_seq: u64,
    end: LogEnd,
}

impl Headers {
    fn read(volume: &Volume<'_>, checkpoint: &Checkpoint) -> Self {
        let mut log = Log::new(volume, checkpoint);
        let mut partial_count = 0;
        let mut durable_seq = checkpoint.log_seq.saturating_sub(1);
        let mut reused_segments = BTreeSet::new();
        for partial in &mut log {
            partial_count += 1;
            durable_seq = durable_seq.max(partial.header.durable_seq);
            reused_segments.extend(partial.records().flatten().filter_map(|record| {
                match record.record {
                    Record::Reuse { segment } => Some(segment.0),
                    _ => None,
                }
            }));
        }
        let end = log.end().cloned().unwrap_or_else(|| unreachable!("the walk has ended"));
        let next_seq = checkpoint.log_seq.saturating_add(partial_count);
        Self { partial_count, durable_seq, reused_segments, next_seq, end }
    }
}

fn summarize(volume: &Volume<'_>, checkpoint: &Checkpoint) -> LogSummary {
    let Headers { partial_count, durable_seq, reused_segments, next_seq, end } =
        Headers::read(volume, checkpoint);
    let beyond = beyond::find(volume, checkpoint, &end, next_seq, &reused_segments).durable_seq;
    let durable_seq = durable_seq.max(beyond.unwrap_or(0));
    let is_missing = beyond.is_some_and(|durable_seq| durable_seq >= next_seq);
    let missing = is_missing.then_some(Break::Missing { seq: next_seq, durable_seq });
    let mut summary = LogSummary {
        partial_count,
        replayed_count: 0,
        replayed_bytes: 0,
        record_count: 0,
        dropped_record_bytes: 0,
        durable_seq,
        commit_seq: checkpoint.commit_seq,
        reused_segments,
        lost: missing,
        end,
    };
    let mut log = Log::new(volume, checkpoint);
    loop {
        let Some(partial) = log.next() else { return summary };
        let is_durable = partial.header.seq <= durable_seq;
        let bad = count_records(&mut summary, &partial)
            .and_then(|()| {
                verify_payload(volume, &partial, &|addr| {
                    let segment = volume.layout().segment_of(addr);
                    is_durable && summary.may_have_reused(segment)
                })
            })
            .err();
        if let Some(reason) = bad {
            if is_durable || reason == Break::Unit {
                // It was flushed, so it is rolled forward. Reading the block will fail. Nor does a
                // power cut make units end where none does.
                summary.lost.get_or_insert(reason);
            } else {
                summary.end = LogEnd {
                    segment: partial.header.segment.0,
                    offset_bytes: partial.header.offset_bytes,
                    here: reason,
                    next: None,
                };
                return summary;
            }
        }
        summary.replayed_count += 1;
        summary.replayed_bytes += u64::from(partial.header.len_bytes);
        summary.commit_seq = partial.header.commit_seq;
        let open = partial.header.records_len_bytes - partial.header.complete_len_bytes;
        if partial.header.complete_len_bytes > 0 {
            summary.dropped_record_bytes = 0;
        }
        summary.dropped_record_bytes += u64::from(open);
    }
}

fn count_records(summary: &mut LogSummary, partial: &Partial) -> Result<(), Break> {
    let mut count = 0;
    for record in partial.records() {
        let record =
            record.map_err(|malformed| Break::Record { problem: malformed.problem.into() })?;
        if !record.is_complete && record.offset_bytes < partial.header.complete_len_bytes {
            return Err(Break::Unit);
        }
        count += 1;
    }
    summary.record_count += count;
    Ok(())
}

/// Checks each block that the records name, except those for which `may_be_gone` holds.
fn verify_payload(
    volume: &Volume<'_>,
    partial: &Partial,
    may_be_gone: &dyn Fn(Addr) -> bool,
) -> Result<(), Break> {
    for record in partial.records().flatten() {
        match record.record {
            Record::WriteRun { addr, crcs, .. } if !may_be_gone(addr) => {
                for (index, crc32c) in crcs.iter().enumerate() {
                    let addr = addr.plus_bytes((index * PAGE_SIZE) as u64);
                    verify_block(volume, addr, PAGE_SIZE as u32, crc32c.get())?;
                }
            }
            Record::WriteBlock { block, .. } if !may_be_gone(block.addr) => {
                verify_block(volume, block.addr, block.len_bytes.into(), block.crc32c)?;
            }
            _ => (),
        }
    }
    Ok(())
}

fn verify_block(
    volume: &Volume<'_>,
    addr: Addr,
    len_bytes: u32,
    expected: u32,
) -> Result<(), Break> {
    let bad = |problem| Break::Payload { offset: addr.bytes(), len_bytes, problem };
    let bytes =
        volume.read("block", addr, len_bytes.into()).map_err(|error| bad(error.to_string()))?;
    let found = checksum(&bytes[..len_bytes as usize]);
    if found != expected {
        return Err(bad(format!("its checksum is {found:08x}, not {expected:08x}")));
    }
    Ok(())
}

impl Volume<'_> {
    /// Where partial segments of the main log lie behind the place where it ends.
    pub(crate) fn log_behind(&self, checkpoint: &Checkpoint) -> BTreeSet<(SegmentNo, u32)> {
        let Headers { reused_segments, next_seq, end, .. } = Headers::read(self, checkpoint);
        beyond::find(self, checkpoint, &end, next_seq, &reused_segments).places
    }

    /// What recovery would find behind the checkpoint. The payload of partial segments that may not
    /// have been flushed is verified too.
    #[must_use]
    pub fn log_summary(&self, checkpoint: &Checkpoint) -> LogSummary {
        summarize(self, checkpoint)
    }
}
