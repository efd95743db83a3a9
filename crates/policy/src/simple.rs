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

    fn victims(
        &self,
        candidates: &[Segment],
        count: usize,
        _present: &Present,
        _rng: &mut Rng,
    ) -> Vec<Segment> {
        best(candidates, count, |segment| 1.0 - segment.utilisation())
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

    fn victims(
        &self,
        candidates: &[Segment],
        count: usize,
        present: &Present,
        _rng: &mut Rng,
    ) -> Vec<Segment> {
        best(candidates, count, |segment| {
            let u = segment.utilisation();
            let age = present.clock.saturating_sub(segment.filled_at) + 1;
            (1.0 - u) * age as f64 / (1.0 + u)
        })
    }
}

/// The best by age and emptiness of the oldest fifth, as F2FS's ATGC.
///
/// Only segments older than a threshold come into question, of them the oldest fifth (ten at
/// least), and of those the one with the highest 60% · age + 40% · (1 − u), the age scaled to the
/// range of ages there are; when none is old enough, the threshold falls (`fs/f2fs/gc.c` of Linux
/// since 5.10, `atgc_lookup_victim`). There the threshold is a week; on the log clock it is a
/// sixteenth of the live data. Survivors have a head of their own.
///
/// The age is that of the segment since it was filled. F2FS takes the blocks', which survivors keep;
/// it does so in the background only and is greedy when it needs room. Followed all the time, that
/// cleans the oldest blocks over and over: nearly forty-fold write amplification in simulation.
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

    fn victims(
        &self,
        candidates: &[Segment],
        count: usize,
        present: &Present,
        _rng: &mut Rng,
    ) -> Vec<Segment> {
        best(candidates, count, |segment| {
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

    fn victims(
        &self,
        candidates: &[Segment],
        count: usize,
        _present: &Present,
        rng: &mut Rng,
    ) -> Vec<Segment> {
        let mut dirty: Vec<_> = candidates.iter().copied().filter(Segment::has_dead).collect();
        let mut victims = Vec::with_capacity(count);
        while victims.len() < count && !dirty.is_empty() {
            // The first so many are drawn (Fisher and Yates).
            let drawn = dirty.len().min(Self::CHOICES);
            for at in 0..drawn {
                let other = at + rng.below((dirty.len() - at) as u64) as usize;
                dirty.swap(at, other);
            }
            let of_drawn = 0..drawn;
            let best = of_drawn.min_by_key(|&at| (dirty[at].live_bytes, dirty[at].number));
            victims.extend(best.map(|at| dirty.swap_remove(at)));
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: Present =
        Present { clock: 1_000_000, live_bytes: 8_000, segment_bytes: 100, segment_count: 100 };

    /// A segment of which `live` per cent live, filled and written to `age` ago.
    fn segment(number: u32, live: u32, age: u64) -> Segment {
        let then = PRESENT.clock - age;
        Segment {
            number,
            live_bytes: live,
            capacity_bytes: 100,
            written_at: then,
            last_death: then,
            filled_at: then,
            ..Segment::default()
        }
    }

    fn victim(policy: &dyn Policy, segments: &[Segment]) -> Option<u32> {
        policy.victim(segments, &PRESENT, &mut Rng::new(1)).map(|segment| segment.number)
    }

    #[test]
    fn no_policy_cleans_what_is_full_of_live_blocks() {
        let full = [segment(1, 100, 9000), segment(2, 100, 10)];
        let with_one_hole = [full[0], segment(3, 99, 1), full[1]];
        for kind in Kind::ALL {
            let policy = kind.policy();
            assert_eq!(victim(policy.as_ref(), &full), None, "{kind}");
            assert_eq!(victim(policy.as_ref(), &[]), None, "{kind}");
            assert_eq!(victim(policy.as_ref(), &with_one_hole), Some(3), "{kind}");
        }
    }

    #[test]
    fn of_segments_equally_old_every_policy_takes_the_emptiest() {
        let segments = [segment(1, 60, 50), segment(2, 20, 50), segment(3, 90, 50)];
        for kind in Kind::ALL {
            assert_eq!(victim(kind.policy().as_ref(), &segments), Some(2), "{kind}");
        }
    }

    #[test]
    fn the_order_of_the_candidates_decides_nothing() {
        let mut segments = [segment(4, 30, 500), segment(2, 30, 500), segment(3, 30, 500)];
        for kind in Kind::ALL {
            let policy = kind.policy();
            let first = victim(policy.as_ref(), &segments);
            segments.reverse();
            assert_eq!(victim(policy.as_ref(), &segments), first, "{kind}");
        }
    }

    #[test]
    fn the_answers_on_classes_are_classes_in_use() {
        let lefts = [0, 1, 3, 31, 32, 33, 40, 255].map(|number| Segment {
            class: Class::from_number(number),
            ..segment(number.into(), 50, 90_000)
        });
        for kind in Kind::ALL {
            let policy = kind.policy();
            for segment_count in [2, 127, 128, 200, 1024, 1 << 20] {
                let present = Present { segment_count, ..PRESENT };
                let classes = policy.classes(&present);
                let in_use = |class| class == Class::MAIN || classes.position(class).is_some();
                assert!(in_use(policy.user_class(None, &present)), "{kind}");
                for left in &lefts {
                    assert!(in_use(policy.user_class(Some(left), &present)), "{kind} {left:?}");
                    assert!(in_use(policy.survivor_class(left, &present)), "{kind} {left:?}");
                }
            }
        }
    }

    #[test]
    fn greedy_ignores_age_and_benefit_over_cost_weighs_it() {
        let segments = [segment(1, 30, 10), segment(2, 70, 100)];
        assert_eq!(victim(&Greedy, &segments), Some(1));
        // 0.7 · 11 / 1.3 = 5.9 against 0.3 · 101 / 1.7 = 17.8.
        assert_eq!(victim(&CostBenefit, &segments), Some(2));
        let segments = [segment(1, 30, 10), segment(2, 70, 30)];
        // 5.9 against 0.3 · 31 / 1.7 = 5.5.
        assert_eq!(victim(&CostBenefit, &segments), Some(1));
    }

    #[test]
    fn age_threshold_looks_at_the_oldest_fifth_only() {
        let mut segments: Vec<_> =
            (0..100).map(|n| segment(n, 50, 10_000 - u64::from(n))).collect();
        segments[20].live_bytes = 0;
        let best = victim(&AgeThreshold, &segments);
        assert_eq!(best, Some(0), "the empty one is the 21st and is not seen");
        segments[19].live_bytes = 0;
        assert_eq!(victim(&AgeThreshold, &segments), Some(19));
    }

    #[test]
    fn age_threshold_leaves_what_is_young_unless_all_is() {
        let threshold = PRESENT.live_bytes / AgeThreshold::THRESHOLD_SHARE;
        let (old, young) = (segment(1, 99, threshold), segment(2, 1, threshold - 1));
        assert_eq!(victim(&AgeThreshold, &[old, young]), Some(1));
        let younger = segment(3, 99, threshold - 1);
        assert_eq!(victim(&AgeThreshold, &[younger, young]), Some(2));
    }

    #[test]
    fn cost_age_times_spares_what_was_cleaned_often() {
        let fresh = segment(1, 50, 100);
        let worn = Segment { times_cleaned: 9, ..segment(2, 40, 100) };
        assert_eq!(victim(&CostAgeTimes, &[fresh, worn]), Some(1));
        let less_worn = Segment { times_cleaned: 0, ..worn };
        assert_eq!(victim(&CostAgeTimes, &[fresh, less_worn]), Some(2));
    }

    #[test]
    fn d_choices_finds_a_good_segment_and_not_always_the_best() {
        let segments: Vec<_> = (0..100).map(|n| segment(n, n, 10)).collect();
        let mut rng = Rng::new(1);
        let mut drawn: Vec<u32> = (0..1000)
            .map(|_| DChoices.victim(&segments, &PRESENT, &mut rng).unwrap().number)
            .collect();
        let mean = drawn.iter().sum::<u32>() / 1000;
        // The least of ten drawn from a hundred is 8.2 in the mean.
        assert!((7..=9).contains(&mean), "{mean}");
        drawn.sort_unstable();
        drawn.dedup();
        assert!(drawn.len() > 20, "it draws the same ones");
    }
}
