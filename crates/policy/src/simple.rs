//! The policies of the literature.

use dendro_base::Rng;

use crate::pick::best;
use crate::{Class, Classes, Kind, Policy, Present, Segment};

/// The segment with the least alive.
///
/// Optimal when all blocks are equally likely to die; when they are not, segments full of cold data
/// linger just above the point where they are chosen and hold on to their dead space (Rosenblum and
/// Ousterhout, "The design and implementation of a log-structured file system", TOCS 10(1), 1992,
/// section 3.5). One head.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greedy;

impl Policy for Greedy {
    fn kind(&self) -> Kind {
        Kind::Greedy
    }

    fn victim(
        &self,
        candidates: &mut dyn Iterator<Item = Segment>,
        _present: &Present,
        _rng: &mut Rng,
    ) -> Option<u32> {
        best(candidates, |segment| 1.0 - segment.utilisation())
    }
}

/// The highest benefit over cost, (1 − u) · age / (1 + u), as in BSD-LFS.
///
/// The room gained, times how long it is likely to stay gained, over the cost: a segment is read
/// whole and its live part written back. As in BSD-LFS the age is that of the segment, since it was
/// last written to (`su_lastmod`; Seltzer, Bostic, McKusick and Staelin, "An implementation of a
/// log-structured file system for UNIX", USENIX Winter 1993); the formula is Rosenblum and
/// Ousterhout's (TOCS 10(1), 1992), who took the age of the youngest block. One head.
#[derive(Clone, Copy, Debug, Default)]
pub struct CostBenefit;

impl Policy for CostBenefit {
    fn kind(&self) -> Kind {
        Kind::CostBenefit
    }

    fn victim(
        &self,
        candidates: &mut dyn Iterator<Item = Segment>,
        present: &Present,
        _rng: &mut Rng,
    ) -> Option<u32> {
        best(candidates, |segment| {
            let u = segment.utilisation();
            let age = present.clock.saturating_sub(segment.filled_at) + 1;
            (1.0 - u) * age as f64 / (1.0 + u)
        })
    }
}

/// The best by age and emptiness of the oldest fifth, as F2FS's ATGC.
///
/// Only segments whose data is older than a threshold come into question, of them the oldest fifth
/// (ten at least), and of those the one with the highest 60% · age + 40% · (1 − u), the age scaled
/// to the range of ages there are; when none is old enough, the threshold falls (`fs/f2fs/gc.c` of
/// Linux since 5.10, `atgc_lookup_victim`). There the threshold is a week; on the log clock it is a
/// sixteenth of the live data. Survivors have a head of their own.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgeThreshold;

impl AgeThreshold {
    const CANDIDATES_PERCENT: usize = 20;
    const CANDIDATES_AT_LEAST: usize = 10;
    const AGE_WEIGHT: f64 = 0.6;
    const THRESHOLD_SHARE: u64 = 16;
}

impl Policy for AgeThreshold {
    fn kind(&self) -> Kind {
        Kind::AgeThreshold
    }

    fn victim(
        &self,
        candidates: &mut dyn Iterator<Item = Segment>,
        present: &Present,
        _rng: &mut Rng,
    ) -> Option<u32> {
        let mut oldest_first: Vec<_> = candidates.filter(Segment::has_dead).collect();
        oldest_first.sort_unstable_by_key(|segment| (segment.written_at, segment.number));
        let (oldest, youngest) =
            (oldest_first.first()?.written_at, oldest_first.last()?.written_at);
        let range = youngest.saturating_sub(oldest).max(1) as f64;
        let considered = (oldest_first.len() * Self::CANDIDATES_PERCENT / 100)
            .max(Self::CANDIDATES_AT_LEAST)
            .min(oldest_first.len());
        let threshold = present.clock.saturating_sub(present.live_bytes / Self::THRESHOLD_SHARE);
        let old_enough = oldest_first.partition_point(|segment| segment.written_at <= threshold);
        let count = if old_enough == 0 { considered } else { considered.min(old_enough) };
        best(&mut oldest_first.into_iter().take(count), |segment| {
            let age = youngest.saturating_sub(segment.written_at) as f64 / range;
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

/// The lowest cost · times / age, with cost u / (1 − u): cost-age-times, CAT.
///
/// Made for flash memory: the times a segment was cleaned before even out its wear. The age is that
/// of the segment since it was filled, and survivors have a head of their own (Chiang and Chang,
/// "Cleaning policies in mobile computers using flash memory", Journal of Systems and Software
/// 48(3), 1999; Chiang, Lee and Chang, "Using data clustering to improve cleaning performance for
/// flash memory", Software: Practice and Experience 29(3), 1999).
#[derive(Clone, Copy, Debug, Default)]
pub struct CostAgeTimes;

impl Policy for CostAgeTimes {
    fn kind(&self) -> Kind {
        Kind::CostAgeTimes
    }

    fn victim(
        &self,
        candidates: &mut dyn Iterator<Item = Segment>,
        present: &Present,
        _rng: &mut Rng,
    ) -> Option<u32> {
        best(candidates, |segment| {
            let u = segment.utilisation();
            let age = present.clock.saturating_sub(segment.filled_at) + 1;
            let times = f64::from(segment.times_cleaned) + 1.0;
            -(u / (1.0 - u) * times / age as f64)
        })
    }

    fn classes(&self, _present: &Present) -> Classes {
        Classes { users: 0, survivors: 1 }
    }

    fn survivor_class(&self, _left: &Segment, _present: &Present) -> Class {
        Class::survivor(0)
    }
}

/// The emptiest of ten drawn at random.
///
/// Nearly as good as greedy on uniform writing, and it sees ten segments instead of all; on skewed
/// writing its mistakes help, for it comes upon the cold segments that greedy leaves (Van Houdt, "A
/// mean field model for a class of garbage collection algorithms in flash-based solid state
/// drives", SIGMETRICS 2013; Li, Lee and Lui, "Stochastic modeling of large-scale solid-state
/// storage systems", SIGMETRICS 2013). One head.
#[derive(Clone, Copy, Debug, Default)]
pub struct DChoices;

impl DChoices {
    const CHOICES: usize = 10;
}

impl Policy for DChoices {
    fn kind(&self) -> Kind {
        Kind::DChoices
    }

    fn victim(
        &self,
        candidates: &mut dyn Iterator<Item = Segment>,
        _present: &Present,
        rng: &mut Rng,
    ) -> Option<u32> {
        let mut drawn = Vec::with_capacity(Self::CHOICES);
        for (seen, segment) in candidates.filter(Segment::has_dead).enumerate() {
            if drawn.len() < Self::CHOICES {
                drawn.push(segment);
                continue;
            }
            // Reservoir sampling (Vitter's algorithm R): each has had the same chance so far.
            let at = rng.below(seen as u64 + 1) as usize;
            if let Some(place) = drawn.get_mut(at) {
                *place = segment;
            }
        }
        best(&mut drawn.into_iter(), |segment| 1.0 - segment.utilisation())
    }
}
