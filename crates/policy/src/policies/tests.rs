//! All policies, and each of the literature's.

use dendro_base::Rng;

use super::age_threshold::AgeThreshold;
use super::cost_age_times::CostAgeTimes;
use super::cost_benefit::CostBenefit;
use super::d_choices::DChoices;
use super::greedy::Greedy;
use crate::class::Class;
use crate::kind::Kind;
use crate::policy::Policy;
use crate::segment::{Present, Segment};

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
fn every_policy_knows_its_kind() {
    for kind in Kind::ALL {
        assert_eq!(kind.policy().kind(), kind);
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
    let mut segments: Vec<_> = (0..100).map(|n| segment(n, 50, 10_000 - u64::from(n))).collect();
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
    let mut drawn: Vec<u32> =
        (0..1000).map(|_| DChoices.victim(&segments, &PRESENT, &mut rng).unwrap().number).collect();
    let mean = drawn.iter().sum::<u32>() / 1000;
    // The least of ten drawn from a hundred is 8.2 in the mean.
    assert!((7..=9).contains(&mean), "{mean}");
    drawn.sort_unstable();
    drawn.dedup();
    assert!(drawn.len() > 20, "it draws the same ones");
}
