//! The table of segments.

use std::{fmt, io};

use dendro_check::info::UsageInfo;
use dendro_check::{UsageTable, Volume};
use dendro_format::{Checkpoint, SegmentNo};
use serde::Serialize;

use super::output::Output;
use super::parts::{checkpoint, partials_of, usage};

/// A segment, as the checkpoint describes it.
#[derive(Serialize)]
pub(super) struct SegmentLine {
    segment: u32,
    state: &'static str,
    live_bytes: u32,
    live_percent: u64,
    head: Option<&'static str>,
    class: Option<u8>,
    written_at: Option<u64>,
    source: Option<dendro_check::UsageSource>,
}

impl fmt::Display for SegmentLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, state, live_bytes, live_percent, .. } = self;
        let head = self.head.unwrap_or("-");
        let text =
            |number: Option<u64>| number.map_or_else(|| "-".into(), |number| number.to_string());
        let class = text(self.class.map(u64::from));
        let written_at = text(self.written_at);
        write!(
            f,
            "{segment:>10}  {state:<8}  {live_bytes:>10}  {live_percent:>4}%  {head:<9}  {class:>5}  {written_at:>14}"
        )
    }
}

/// Totals of all segments.
#[derive(Serialize)]
struct Total {
    segment_count: u32,
    segment_size_bytes: u64,
    /// Segments for which a line was printed.
    used_count: u32,
    live_bytes: u64,
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment_count, segment_size_bytes, used_count, live_bytes } = self;
        write!(
            f,
            "{used_count} of {segment_count} segments of {segment_size_bytes} bytes, {live_bytes} \
             bytes live; the others are clean, or hold superblocks or log behind the checkpoint"
        )
    }
}

/// All segments with a usage record or an open head; or one, with its partial segments.
pub(super) fn dump(volume: &Volume<'_>, only: Option<u32>, out: &mut Output) -> io::Result<()> {
    let Some(checkpoint) = checkpoint(volume, out)? else { return Ok(()) };
    let Some(usage) = usage(volume, &checkpoint, out)? else { return Ok(()) };
    out.line(&"   SEGMENT  STATE     LIVE BYTES  LIVE   HEAD       CLASS      WRITTEN AT")?;
    let line = |segment| line(volume, &checkpoint, &usage, segment);
    if let Some(number) = only {
        out.item("segment", &line(SegmentNo(number)))?;
        return partials_of(volume, SegmentNo(number), false, true, out);
    }
    let mut used_count = 0;
    for segment in volume.layout().log_segments() {
        let line = line(segment);
        if line.state != "clean" {
            used_count += 1;
            out.item("segment", &line)?;
        }
    }
    let layout = volume.layout();
    let total = Total {
        segment_count: layout.segment_count(),
        segment_size_bytes: layout.segment_size_bytes(),
        used_count,
        live_bytes: usage.live_bytes(),
    };
    out.item("total", &total)
}

/// A segment, as the checkpoint describes it.
pub(super) fn line(
    volume: &Volume<'_>,
    checkpoint: &Checkpoint,
    usage: &UsageTable,
    segment: SegmentNo,
) -> SegmentLine {
    let row = usage.get(segment);
    let live_bytes = row.map_or(0, |row| row.usage.live_bytes);
    let state = if segment == checkpoint.log.segment {
        "main log"
    } else if segment == checkpoint.next_segment {
        "next"
    } else if segment == checkpoint.map.segment {
        "map head"
    } else if live_bytes > 0 {
        "dirty"
    } else {
        "clean"
    };
    let info = row.filter(|_| live_bytes > 0).map(UsageInfo::from);
    SegmentLine {
        segment: segment.0,
        state,
        live_bytes,
        live_percent: u64::from(live_bytes) * 100 / volume.layout().segment_size_bytes(),
        head: info.as_ref().map(|info| info.head),
        source: info.as_ref().map(|info| info.source),
        class: info.as_ref().map(|info| info.class),
        written_at: info.map(|info| info.written_at),
    }
}
