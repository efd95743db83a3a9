//! The main log behind a checkpoint.

use std::fmt;

use dendro_format::{Checkpoint, Head, SegmentNo};
use serde::Serialize;

use super::partial::Partial;
use super::partials::{Break, Link, read_partial};
use super::volume::Volume;

/// Where and why the main log ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogEnd {
    /// The segment in which it would continue.
    pub segment: u32,
    /// Where in it, in bytes.
    pub offset_bytes: u32,
    /// Why it does not continue there.
    pub here: Break,
    /// The start of the next segment, where it would continue otherwise.
    pub next: Option<NextSegment>,
}

/// The start of a segment at which the log does not continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextSegment {
    /// The segment.
    pub segment: u32,
    /// Why it does not continue there.
    pub there: Break,
}

impl fmt::Display for LogEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ends in segment {} at {}: {}", self.segment, self.offset_bytes, self.here)?;
        if let Some(next) = &self.next {
            write!(f, "; at the start of segment {}: {}", next.segment, next.there)?;
        }
        Ok(())
    }
}

/// The partial segments of the main log behind a checkpoint. Headers and records are checked,
/// payload is not.
pub struct Log<'v> {
    volume: &'v Volume<'v>,
    segment: SegmentNo,
    offset: u32,
    next_segment: SegmentNo,
    link: Link,
    end: Option<LogEnd>,
}

impl<'v> Log<'v> {
    pub(super) const fn new(volume: &'v Volume<'v>, checkpoint: &Checkpoint) -> Self {
        Self {
            volume,
            segment: checkpoint.log.segment,
            offset: checkpoint.log.offset_bytes,
            next_segment: checkpoint.next_segment,
            link: Link {
                head: Head::Main,
                seq: checkpoint.log_seq,
                prev_crc32c: checkpoint.log_prev_crc32c,
            },
            end: None,
        }
    }

    /// Where and why it ends; `None` while it may continue.
    #[must_use]
    pub const fn end(&self) -> Option<&LogEnd> {
        self.end.as_ref()
    }

    fn read(&self, segment: SegmentNo, offset: u32) -> Result<Partial, Break> {
        let partial = read_partial(self.volume, segment, offset)?;
        self.link.check(&partial)?;
        // Numbers ascend and the highest ends the log, so the walk ends on every input.
        partial.header.seq.checked_add(1).ok_or(Break::Misplaced)?;
        Ok(partial)
    }

    fn stop(&mut self, here: Break, there: Break) {
        self.end = Some(LogEnd {
            segment: self.segment.0,
            offset_bytes: self.offset,
            here,
            next: Some(NextSegment { segment: self.next_segment.0, there }),
        });
    }
}

impl Iterator for Log<'_> {
    type Item = Partial;

    fn next(&mut self) -> Option<Partial> {
        if self.end.is_some() {
            return None;
        }
        let found = self
            .read(self.segment, self.offset)
            .or_else(|here| self.read(self.next_segment, 0).map_err(|there| (here, there)));
        match found {
            Ok(partial) => {
                let header = &partial.header;
                self.segment = header.segment;
                self.offset = header.offset_bytes + header.len_bytes;
                self.next_segment = header.next_segment;
                self.link = Link::behind(&partial);
                Some(partial)
            }
            Err((here, there)) => {
                self.stop(here, there);
                None
            }
        }
    }
}

impl Volume<'_> {
    /// The partial segments of the main log behind the checkpoint, as far as each continues the one
    /// before it.
    #[must_use]
    pub fn log(&self, checkpoint: &Checkpoint) -> Log<'_> {
        Log::new(self, checkpoint)
    }
}
