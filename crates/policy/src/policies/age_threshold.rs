//! Age threshold, as F2FS's ATGC.

use dendro_base::Rng;

use crate::class::{Class, Classes};
use crate::kind::Kind;
use crate::policy::Policy;
use crate::segment::{Present, Segment};
use crate::victims::best;

/// The best by age and emptiness of the oldest fifth, as F2FS's ATGC.
///
/// It considers only segments older than a threshold, among these only the oldest fifth (at least
/// ten), and chooses the one with the highest 60% · age + 40% · (1 − u), the age scaled to the
/// range of ages there are; when none is old enough, the threshold falls (`fs/f2fs/gc.c` of Linux
/// since 5.10, `atgc_lookup_victim`). There the threshold is a week; on the log clock it is a
/// sixteenth of the live data. Survivors have a class of their own.
///
/// The age is the time since the segment was filled. F2FS takes the age of the blocks, which
/// survivors keep, but does so in the background only, and is greedy when it needs space. Used all
/// the time, that would clean the oldest blocks again and again: nearly forty-fold write
/// amplification in simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgeThreshold;

impl AgeThreshold {
    const CANDIDATES_PERCENT: usize = 20;
    const CANDIDATES_AT_LEAST: usize = 10;
    const AGE_WEIGHT: f64 = 0.6;
    pub(super) const THRESHOLD_SHARE: u64 = 16;
}

impl Policy for AgeThreshold {
    fn kind(&self) -> Kind {
        Kind::AgeThreshold
    }

    fn victims(
        &self,
        candidates: &[Segment],
        count: usize,
        present: &Present,
        _rng: &mut Rng,
    ) -> Vec<Segment> {
        let mut dirty: Vec<_> = candidates.iter().copied().filter(Segment::has_dead).collect();
        let filled_at = || dirty.iter().map(|segment| segment.filled_at);
        let (Some(oldest), Some(youngest)) = (filled_at().min(), filled_at().max()) else {
            return Vec::new();
        };
        let range = youngest.saturating_sub(oldest).max(1) as f64;
        let threshold = present.clock.saturating_sub(present.live_bytes / Self::THRESHOLD_SHARE);
        let old_enough = filled_at().filter(|at| *at <= threshold).count();
        let fifth = dirty.len() * Self::CANDIDATES_PERCENT / 100;
        let considered = fifth.max(Self::CANDIDATES_AT_LEAST).min(dirty.len());
        let oldest = if old_enough == 0 { considered } else { considered.min(old_enough) };
        dirty.select_nth_unstable_by_key(oldest - 1, |segment| (segment.filled_at, segment.number));
        best(&dirty[..oldest], count, |segment| {
            let age = youngest.saturating_sub(segment.filled_at) as f64 / range;
            Self::AGE_WEIGHT * age + (1.0 - Self::AGE_WEIGHT) * (1.0 - segment.utilisation())
        })
    }

    fn classes(&self, _present: &Present) -> Classes {
        Classes { users: 0, survivors: 1 }
    }

    fn survivor_class(&self, _left: &Segment, _present: &Present) -> Class {
        Class::survivor(0)
    }
}
