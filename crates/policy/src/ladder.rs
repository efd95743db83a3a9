//! The temperature ladder, the default.

use std::cmp::Ordering;

use dendro_base::Rng;

use crate::pick::best;
use crate::{Class, Classes, Kind, Policy, Present, Segment};

/// Classes of what clients write, at most.
const USER_RUNGS: u8 = 6;
/// Classes of what survives cleaning, at most.
const SURVIVOR_RUNGS: u8 = 10;
/// Segments of a volume for each class of a kind: the open segments must stay a small part.
const SEGMENTS_PER_RUNG: u32 = 64;
/// The shortest lifetime told apart, in segments' worth of writing.
const SHORTEST_SEGMENTS: u64 = 4;
/// The longest lifetime told apart, in times what lives.
const LONGEST_LIVE: u64 = 8;

/// The temperature ladder.
///
/// Data that dies at the same time should lie in the same segment: then the segment empties by
/// itself and cleaning it costs nothing. Nobody knows when a block will die, but its past tells: a
/// block overwritten soon after it was written will be overwritten soon again (SepBIT, Wang et al.,
/// "Separating data via block invalidation time inference for write amplification reduction in
/// log-structured storage", FAST '22, builds on the same observation). No state is kept for a
/// block; the numbers of the segment it leaves speak for it.
///
/// # Placement
/// What clients write has up to six classes by expected lifetime, spaced evenly on a logarithmic
/// scale from four segments' worth of writing to eight times the live data. A block overwritten
/// goes to the class of the segment it leaves, moved by *one* step towards the class that its
/// observed lifetime says: now less that segment's mean time of writing. One step, for a single
/// lifetime says little. A block written for the first time starts in the middle.
///
/// What survives cleaning has up to ten classes of its own on the same scale, by age. A survivor
/// goes to the class that its age says, but never to a hotter one than it comes from; one that
/// comes from a users' class goes no hotter than one step below the lifetime that is expected
/// there, so cold data that is written again need not climb all the rungs again.
///
/// Volumes of less than 128 segments have one head: many open segments would hold more dead space
/// than the classes save. Larger ones have a class of each kind for 64 segments.
///
/// # Victims
/// A segment is worth cleaning if much of it is dead and little of the rest will die soon by
/// itself. Holding dead space costs in proportion to 1 − u; waiting saves in proportion to the rate
/// of deaths, which is u times the rate of each block. So the victim is the segment with the
/// highest (1 − u) / u · age, where the inverse of age stands for the blocks' rate of death. An age
/// is taken from both ends: the time since the segment was filled, which is steady but slow to see
/// that hot data has cooled down, and the time since the last death in it, which sees it at once
/// but is noisy. Their geometric mean is used, both in whole segments' worth of writing; where all
/// blocks are alike ages are alike too, and the emptiest segment is chosen. Segments in which
/// nothing lives come first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ladder;

impl Policy for Ladder {
    fn kind(&self) -> Kind {
        Kind::Ladder
    }

    fn victim(
        &self,
        candidates: &mut dyn Iterator<Item = Segment>,
        present: &Present,
        _rng: &mut Rng,
    ) -> Option<u32> {
        let segments_since = |clock: u64| {
            (present.clock.saturating_sub(clock) / present.segment_bytes.max(1) + 1) as f64
        };
        best(candidates, |segment| {
            let u = segment.utilisation();
            if segment.live_bytes == 0 {
                return f64::INFINITY;
            }
            let age = segments_since(segment.filled_at) * segments_since(segment.last_death);
            (1.0 - u) / u * age.sqrt()
        })
    }

    fn classes(&self, present: &Present) -> Classes {
        let fitting = (present.segment_count / SEGMENTS_PER_RUNG).min(u32::from(u8::MAX)) as u8;
        if fitting < 2 {
            return Classes::NONE;
        }
        Classes { users: fitting.min(USER_RUNGS), survivors: fitting.min(SURVIVOR_RUNGS) }
    }

    fn user_class(&self, left: Option<&Segment>, present: &Present) -> Class {
        let rungs = self.classes(present).users;
        if rungs == 0 {
            return Class::MAIN;
        }
        let middle = rungs / 2;
        let Some(left) = left else { return Class::user(middle) };
        let observed = rung(present.clock.saturating_sub(left.written_at), rungs, present);
        let from = match (left.class.user_index(), left.class.survivor_index()) {
            (Some(index), _) => index.min(rungs - 1),
            (_, Some(_)) => rungs - 1,
            _ => middle,
        };
        Class::user(match observed.cmp(&from) {
            Ordering::Less => from - 1,
            Ordering::Equal => from,
            Ordering::Greater => from + 1,
        })
    }

    fn survivor_class(&self, left: &Segment, present: &Present) -> Class {
        let Classes { users, survivors } = self.classes(present);
        if survivors == 0 {
            return Class::MAIN;
        }
        let by_age = rung(present.clock.saturating_sub(left.written_at), survivors, present);
        let at_least = match (left.class.user_index(), left.class.survivor_index()) {
            (Some(index), _) => {
                let same_lifetime = u32::from(index) * u32::from(survivors - 1);
                (same_lifetime / u32::from(users - 1)).saturating_sub(1)
            }
            (_, Some(index)) => u32::from(index),
            _ => 0,
        };
        Class::survivor(by_age.max(at_least.min(u32::from(survivors - 1)) as u8))
    }
}

/// The rung, of `rungs`, whose lifetime is the first not below `lifetime`.
fn rung(lifetime: u64, rungs: u8, present: &Present) -> u8 {
    let segment = present.segment_bytes.max(1);
    let shortest = SHORTEST_SEGMENTS * segment;
    let longest = present.live_bytes.saturating_mul(LONGEST_LIVE).max(2 * shortest);
    let step = (longest as f64 / shortest as f64).ln() / f64::from(rungs.max(2) - 1);
    let rung = ((lifetime.max(1) as f64 / shortest as f64).ln() / step).ceil();
    (rung.max(0.0) as u8).min(rungs - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1 << 22;
    /// All six classes and all ten.
    const PRESENT: Present = Present {
        clock: 1 << 50,
        live_bytes: 2048 * SEGMENT,
        segment_bytes: SEGMENT,
        segment_count: 2560,
    };

    /// A segment of `class` whose blocks were written `age` segments' worth ago.
    fn left(class: Class, age: u64) -> Segment {
        let then = PRESENT.clock - age * SEGMENT;
        Segment {
            live_bytes: SEGMENT as u32 / 2,
            capacity_bytes: SEGMENT as u32,
            class,
            written_at: then,
            last_death: then,
            filled_at: then,
            ..Segment::default()
        }
    }

    fn victim(segments: &[Segment]) -> Option<u32> {
        Ladder.victim(&mut segments.iter().copied(), &PRESENT, &mut Rng::new(1))
    }

    #[test]
    fn a_small_volume_keeps_nothing_apart() {
        let small = Present { segment_count: 127, ..PRESENT };
        assert_eq!(Ladder.classes(&small), Classes::NONE);
        assert_eq!(Ladder.user_class(Some(&left(Class::user(3), 1)), &small), Class::MAIN);
        assert_eq!(Ladder.survivor_class(&left(Class::survivor(3), 1), &small), Class::MAIN);
        let larger = Present { segment_count: 128, ..PRESENT };
        assert_eq!(Ladder.classes(&larger), Classes { users: 2, survivors: 2 });
        let rungs = Classes { users: USER_RUNGS, survivors: SURVIVOR_RUNGS };
        assert_eq!(Ladder.classes(&PRESENT), rungs);
    }

    #[test]
    fn a_block_moves_by_one_class_towards_its_lifetime() {
        let class = |class, age| Ladder.user_class(Some(&left(class, age)), &PRESENT);
        assert_eq!(
            Ladder.user_class(None, &PRESENT),
            Class::user(3),
            "a first one is in the middle"
        );
        assert_eq!(class(Class::user(3), 1), Class::user(2));
        assert_eq!(class(Class::user(3), 1 << 20), Class::user(4));
        assert_eq!(class(Class::user(3), 400), Class::user(3), "it lived as long as expected");
        assert_eq!(class(Class::user(0), 1), Class::user(0), "there is none hotter");
        assert_eq!(class(Class::user(5), 1 << 20), Class::user(5), "there is none colder");
        assert_eq!(
            class(Class::survivor(0), 1),
            Class::user(4),
            "survivors come down from the top"
        );
        assert_eq!(class(Class::MAIN, 1), Class::user(2), "the main log counts as the middle");
    }

    #[test]
    fn rungs_are_evenly_spaced_from_four_segments_to_eight_times_what_lives() {
        assert_eq!(rung(0, 6, &PRESENT), 0);
        assert_eq!(rung(4 * SEGMENT, 6, &PRESENT), 0);
        assert_eq!(rung(4 * SEGMENT + 1, 6, &PRESENT), 1);
        // (8 · 2048 / 4)^(1/5) = 5.278
        for (at, segments) in [(1, 21), (2, 111), (3, 588), (4, 3104), (5, 16_383)] {
            assert_eq!(rung(segments * SEGMENT, 6, &PRESENT), at);
            assert_eq!(rung((segments + 1) * SEGMENT, 6, &PRESENT), (at + 1).min(5));
        }
        assert_eq!(rung(u64::MAX, 6, &PRESENT), 5);
    }

    #[test]
    fn a_survivor_goes_where_its_age_says_and_never_gets_hotter() {
        let class = |class, age| Ladder.survivor_class(&left(class, age), &PRESENT);
        assert_eq!(class(Class::user(0), 1), Class::survivor(0));
        assert_eq!(class(Class::user(0), 1 << 20), Class::survivor(9));
        assert_eq!(class(Class::survivor(5), 1), Class::survivor(5));
        assert_eq!(class(Class::survivor(200), 1), Class::survivor(9), "of more classes than now");
        let ages: Vec<_> = (0..20).map(|power| class(Class::MAIN, 1 << power)).collect();
        assert!(ages.is_sorted());
    }

    #[test]
    fn what_was_expected_to_live_long_survives_as_cold() {
        let class = |user| Ladder.survivor_class(&left(Class::user(user), 1), &PRESENT);
        assert_eq!([0, 1, 3, 5].map(class), [0, 0, 4, 8].map(Class::survivor));
    }

    #[test]
    fn an_empty_segment_is_the_first_victim() {
        let ancient = Segment { number: 1, ..left(Class::user(0), 1 << 20) };
        let empty = Segment { number: 2, live_bytes: 0, ..left(Class::user(0), 0) };
        assert_eq!(victim(&[ancient, empty]), Some(2));
    }

    #[test]
    fn both_ages_of_a_segment_count() {
        let at = |number, live_percent: u32, filled: u64, died: u64| Segment {
            number,
            live_bytes: live_percent,
            capacity_bytes: 100,
            filled_at: PRESENT.clock - filled * SEGMENT,
            last_death: PRESENT.clock - died * SEGMENT,
            ..left(Class::user(0), 0)
        };
        let cooled_down = at(1, 60, 99, 99);
        let still_dying = at(2, 50, 99, 0);
        assert_eq!(victim(&[still_dying, cooled_down]), Some(1), "the other empties by itself");
        let just_filled = at(3, 50, 0, 0);
        assert_eq!(victim(&[just_filled, still_dying]), Some(2));
        let emptier = at(4, 5, 0, 0);
        assert_eq!(victim(&[cooled_down, emptier]), Some(1));
        assert_eq!(victim(&[still_dying, emptier]), Some(4));
    }

    #[test]
    fn noise_within_a_segments_worth_of_writing_does_not_pick_the_victim() {
        let emptier = Segment { number: 1, live_bytes: 100, ..left(Class::user(0), 5) };
        let older = Segment {
            number: 2,
            live_bytes: 101,
            last_death: emptier.last_death - SEGMENT / 2,
            ..emptier
        };
        assert_eq!(victim(&[older, emptier]), Some(1));
    }
}
