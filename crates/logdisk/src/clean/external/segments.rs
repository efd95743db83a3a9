//! The states of segments, and releasing them.

use dendro_base::sync::atomic::Ordering;
use dendro_disk::Result;
use dendro_format::SegmentNo;

use super::access::ExternalAccess;
use super::names::{MAX_SEGMENTS_PER_CALL, Released, SegmentFacts, SegmentStatus, VolumeFacts};
use crate::log::segments::{SegmentState, Segments};

impl ExternalAccess {
    /// See [`LogDisk::volume_facts`](crate::LogDisk::volume_facts).
    pub(crate) fn volume_facts(&self) -> VolumeFacts {
        let engine = self.volume.read();
        let fast = engine.state().segments().fast_counts();
        VolumeFacts {
            clock: engine.state().clock(),
            live_bytes: engine.state().segments().live_bytes(),
            segment_bytes: self.volume.layout().segment_size_bytes(),
            segment_count: self.volume.layout().segment_count(),
            clean_count: engine.state().segments().clean_count(),
            reserved_count: self.accounts.checkpoint_reserve(&engine)
                + self.accounts.reclaim_reserve(),
            fast_clean_count: fast.map_or(0, |fast| fast.clean),
            fast_wanted_count: self.accounts.movable_fast(&engine).map_or(0, |of| of.wanted),
        }
    }

    /// See [`LogDisk::clean_segment_count`](crate::LogDisk::clean_segment_count).
    pub(crate) fn clean_segment_count(&self) -> u32 {
        self.volume.read().state().segments().clean_count()
    }

    /// See [`LogDisk::segments`](crate::LogDisk::segments).
    pub(crate) fn segments(&self, from: u32, max: usize) -> Vec<SegmentFacts> {
        let engine = self.volume.read();
        let segments = engine.state().segments();
        self.volume
            .layout()
            .log_segments()
            .skip_while(|segment| segment.0 < from)
            .take(max.min(MAX_SEGMENTS_PER_CALL))
            .map(|segment| facts(segments, segment))
            .collect()
    }

    /// See [`LogDisk::release`](crate::LogDisk::release).
    pub(crate) fn release(&self, segments: &[u32]) -> Result<Vec<Released>> {
        self.check_writable()?;
        let before = self.released(segments);
        if !before.contains(&Released::Pending) {
            return Ok(before);
        }
        self.checkpointer.take()?;
        let after = self.released(segments);
        let became_clean = |(before, after): &(&Released, &Released)| {
            **before == Released::Pending && **after != Released::Pending
        };
        let count = before.iter().zip(&after).filter(became_clean).count() as u64;
        self.released_segments.fetch_add(count, Ordering::Relaxed);
        Ok(after)
    }

    fn released(&self, segments: &[u32]) -> Vec<Released> {
        let engine = self.volume.read();
        let one = |(at, &number): (usize, &u32)| {
            let segment = SegmentNo(number);
            if at >= MAX_SEGMENTS_PER_CALL || !self.volume.layout().is_log_segment(segment) {
                return Released::Unknown;
            }
            let facts = facts(engine.state().segments(), segment);
            match facts.status {
                SegmentStatus::Clean | SegmentStatus::Retired => Released::Clean,
                SegmentStatus::Pending => Released::Pending,
                SegmentStatus::Open | SegmentStatus::Mirror => Released::Open,
                SegmentStatus::Dirty => Released::Live(facts.live_bytes),
            }
        };
        segments.iter().enumerate().map(one).collect()
    }
}

fn facts(segments: &Segments, segment: SegmentNo) -> SegmentFacts {
    let view = segments.policy_view(segment);
    SegmentFacts {
        number: segment.0,
        status: match segments.state(segment) {
            SegmentState::Clean => SegmentStatus::Clean,
            SegmentState::Open => SegmentStatus::Open,
            SegmentState::Dirty if view.live_bytes == 0 => SegmentStatus::Pending,
            SegmentState::Dirty => SegmentStatus::Dirty,
            SegmentState::Retired => SegmentStatus::Retired,
            SegmentState::Mirror => SegmentStatus::Mirror,
        },
        live_bytes: view.live_bytes,
        head: segments.head(segment),
        class: view.class.number(),
        written_at: view.written_at,
        last_death: view.last_death,
        filled_at: view.filled_at,
        deaths: view.deaths,
        is_fast: segments.is_fast(segment),
    }
}
