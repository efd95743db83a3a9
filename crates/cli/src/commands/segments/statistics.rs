//! Statistics of segments.

use std::collections::BTreeMap;

use dendro_control::cleaning::{SegmentFacts, SegmentState, Segments};
use dendro_daemon::text;
use serde::Serialize;

use super::words::state_name;

/// Bars of the histogram.
pub(super) const HISTOGRAM_LEN: usize = 10;

/// The output as JSON.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    source: &'a str,
    segment_bytes: u64,
    total_segments: u32,
    superblock_segments: u32,
    clean_segments: u32,
    open_segments: u32,
    dirty_segments: u32,
    pending_segments: u32,
    retired_segments: u32,
    mirror_segments: u32,
    reserved_segments: u32,
    live_bytes: u64,
    utilisation: f64,
    histogram: [u32; HISTOGRAM_LEN],
    classes: &'a [ClassStatistics],
    clock_bytes: u64,
    segments: &'a [SegmentFacts],
}

impl<'a> Report<'a> {
    pub(super) fn new(source: &'a str, statistics: &'a Statistics, segments: &'a Segments) -> Self {
        let Segments { present, segments, next: _ } = segments;
        let count = |state| statistics.states.get(state_name(state)).copied().unwrap_or(0);
        Self {
            source,
            segment_bytes: present.segment_bytes,
            total_segments: present.segment_count,
            superblock_segments: text::SUPERBLOCK_SEGMENTS,
            clean_segments: count(SegmentState::Clean),
            open_segments: count(SegmentState::Open),
            dirty_segments: count(SegmentState::Dirty),
            pending_segments: count(SegmentState::Pending),
            retired_segments: count(SegmentState::Retired),
            mirror_segments: count(SegmentState::Mirror),
            reserved_segments: present.reserved_count,
            live_bytes: present.live_bytes,
            utilisation: statistics.utilisation,
            histogram: statistics.histogram,
            classes: &statistics.classes,
            clock_bytes: present.clock,
            segments,
        }
    }
}

/// Counts and means.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Statistics {
    /// How many segments are in each state.
    pub(super) states: BTreeMap<&'static str, u32>,
    /// The share of live data in all segments of the log.
    pub(super) utilisation: f64,
    /// How many dirty segments are from 0 to 10% full, from 10 to 20%, and so on.
    pub(super) histogram: [u32; HISTOGRAM_LEN],
    /// Dirty segments by class.
    pub(super) classes: Vec<ClassStatistics>,
}

/// The dirty segments of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ClassStatistics {
    pub(super) class: u8,
    pub(super) dirty_segments: u32,
    pub(super) utilisation: f64,
    /// The mean age of the live data, in bytes written since.
    pub(super) age_bytes: u64,
    /// The mean age of the last block that became dead.
    pub(super) last_death_age_bytes: u64,
}

impl Statistics {
    pub(super) fn of(segments: &Segments) -> Self {
        let present = &segments.present;
        let size = present.segment_bytes.max(1) as f64;
        let mut statistics = Self::default();
        for state in [
            SegmentState::Clean,
            SegmentState::Open,
            SegmentState::Dirty,
            SegmentState::Pending,
            SegmentState::Retired,
            SegmentState::Mirror,
        ] {
            statistics.states.insert(state_name(state), 0);
        }
        let mut live_bytes = 0;
        let mut by_class: BTreeMap<u8, (u32, u64, u128, u128)> = BTreeMap::new();
        for facts in &segments.segments {
            *statistics.states.entry(state_name(facts.state)).or_default() += 1;
            live_bytes += u64::from(facts.live_bytes);
            if facts.state != SegmentState::Dirty {
                continue;
            }
            statistics.histogram[bar(f64::from(facts.live_bytes) / size)] += 1;
            let age = |at: u64| u128::from(present.clock.saturating_sub(at));
            let (count, live, written, died) = by_class.entry(facts.class).or_default();
            *count += 1;
            *live += u64::from(facts.live_bytes);
            *written += age(facts.written_at);
            *died += age(facts.last_death);
        }
        statistics.utilisation = live_bytes as f64 / (size * segments.segments.len().max(1) as f64);
        let class =
            |(class, (count, live, written, died)): (u8, (u32, u64, u128, u128))| ClassStatistics {
                class,
                dirty_segments: count,
                utilisation: live as f64 / (f64::from(count) * size),
                age_bytes: (written / u128::from(count)) as u64,
                last_death_age_bytes: (died / u128::from(count)) as u64,
            };
        statistics.classes = by_class.into_iter().map(class).collect();
        statistics
    }
}

/// The bar for a utilisation.
fn bar(utilisation: f64) -> usize {
    ((utilisation * HISTOGRAM_LEN as f64) as usize).min(HISTOGRAM_LEN - 1)
}

#[cfg(test)]
mod tests {
    use dendro_control::cleaning::CleaningStatus;

    use super::*;

    #[test]
    fn segments_are_counted_by_state_fullness_and_class() {
        let present =
            CleaningStatus { clock: 1000, segment_bytes: 100, ..CleaningStatus::default() };
        let dirty = |live_bytes, class, written_at| SegmentFacts {
            state: SegmentState::Dirty,
            live_bytes,
            class,
            written_at,
            last_death: 990,
            ..SegmentFacts::default()
        };
        let open = SegmentFacts { state: SegmentState::Open, ..dirty(50, 0, 0) };
        let segments = Segments {
            present,
            segments: vec![
                dirty(9, 0, 0),
                dirty(10, 1, 900),
                dirty(100, 1, 700),
                open,
                SegmentFacts::default(),
            ],
            next: None,
        };
        let statistics = Statistics::of(&segments);
        assert_eq!(statistics.histogram, [1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(statistics.states["dirty"], 3);
        assert_eq!((statistics.states["clean"], statistics.states["pending"]), (1, 0));
        assert_eq!(statistics.utilisation, 169.0 / 500.0);
        let [cold, hot] = &statistics.classes[..] else { panic!("{statistics:?}") };
        assert_eq!(
            (cold.class, cold.dirty_segments, cold.age_bytes, cold.last_death_age_bytes),
            (0, 1, 1000, 10)
        );
        assert_eq!(
            (hot.class, hot.dirty_segments, hot.age_bytes, hot.utilisation),
            (1, 2, 200, 0.55)
        );
        // Nothing to count is no error.
        assert_eq!(Statistics::of(&Segments::default()).classes, []);
    }
}
