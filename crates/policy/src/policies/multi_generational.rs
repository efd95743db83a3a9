//! The multi-generational policy, the default.

use std::cmp::Ordering;

use dendro_base::Rng;

use crate::class::{Class, Classes};
use crate::kind::Kind;
use crate::policy::Policy;
use crate::segment::{Present, Segment};
use crate::victims::best;

/// Generations of what clients write, at most.
const USER_GENERATIONS: u8 = 6;
/// Generations of what survives cleaning, at most.
const SURVIVOR_GENERATIONS: u8 = 10;
/// Segments of a volume for each generation of a kind. Each has an open segment, and open segments
/// must be a small part of the volume.
const SEGMENTS_PER_GENERATION: u32 = 64;
/// The shortest lifetime that is distinguished, in segments' worth of writing.
const SHORTEST_SEGMENTS: u64 = 4;
/// The longest lifetime that is distinguished, as a multiple of the live data.
const LONGEST_LIVE: u64 = 8;
/// The mean lifetime of a segment's class counts as much as so many deaths in the segment.
const PRIOR_DEATHS: f64 = 4.0;
/// A time without deaths is significant only beyond this multiple of the expected one.
const EXPECTED_SILENCE: f64 = 1.0;
/// The utilisation of a segment in which no block has died, which would give an infinite lifetime.
const NEARLY_FULL: f64 = 1.0 - 1e-6;

/// The multi-generational policy. Its public name is `ladder`.
///
/// Blocks that die at the same time should lie in the same segment: then the segment becomes empty
/// without cleaning. When a block will die is not known, but its past allows an estimate: a block
/// that was overwritten soon after it was written will probably be overwritten soon again (SepBIT,
/// Wang et al., "Separating data via block invalidation time inference for write amplification
/// reduction in log-structured storage", FAST '22, builds on the same observation). No state is
/// kept for a block. The numbers of the segment in which its old version lies are used instead.
///
/// # Placement
/// A *generation* is a class of blocks with similar lifetime estimates. What clients write has up
/// to six generations, evenly spaced on a logarithmic scale from four segments' worth of writing to
/// eight times the live data. An overwritten block goes to the generation of the segment of its old
/// version, moved by *one* step towards the generation of its observed lifetime: the time now, less
/// the mean time of writing of that segment. It moves only one step because a single lifetime says
/// little. A block that is written for the first time goes to the middle generation.
///
/// What survives cleaning has up to ten generations of its own on the same scale, by age. A
/// survivor goes to the generation of its age, but never to a younger one than it comes from. A
/// survivor from a clients' generation goes at most one step below the lifetime estimate of that
/// generation, so that cold data that is written again need not pass through all generations again.
///
/// Volumes of less than 128 segments have only the main log: many open segments would hold more
/// dead space than the generations save. Larger ones have one generation of each kind for each 64
/// segments.
///
/// # Victims
/// Dead space should be reclaimed where it is worth least. Suppose that blocks with the mean
/// lifetime `lifetime` are kept apart, and that their segments are cleaned when a share u of the
/// blocks is still live. They cost 1 / (1 − u) blocks written for each, and occupy −ln u / (1 − u)
/// times their size (see Menon, HPDC 1995; Desnoyers, TOS 10(2), 2014). The quotient of the two
/// derivatives is the value of space to them. Its inverse is ((1 − u) / u + ln u) · lifetime, and
/// the victim is the segment with the highest. If all lifetimes are equal, that is the emptiest
/// one. Segments without live blocks come first.
///
/// A segment whose utilisation is u a time T after it was filled gives the lifetime estimate T /
/// −ln u. The more deaths it has seen, the more certain the estimate is: of eight records, three
/// may have died early by chance. So the segment's own estimate has a weight of one for each death,
/// and the mean of all segments of its class has a weight of four. If no block has died for long,
/// the estimate is increased: by the root of that time, as a multiple of the expected time between
/// deaths.
#[derive(Clone, Copy, Debug, Default)]
pub struct MultiGenerational;

impl Policy for MultiGenerational {
    fn kind(&self) -> Kind {
        Kind::MultiGenerational
    }

    fn victims(
        &self,
        candidates: &[Segment],
        count: usize,
        present: &Present,
        _rng: &mut Rng,
    ) -> Vec<Segment> {
        let mut classes = [Observed::default(); 1 + u8::MAX as usize];
        for segment in candidates.iter().filter(|segment| segment.deaths > 0) {
            classes[usize::from(segment.class.number())].add(segment, present);
        }
        best(candidates, count, |segment| {
            if segment.live_bytes == 0 {
                return f64::INFINITY;
            }
            let u = segment.utilisation();
            let class = &classes[usize::from(segment.class.number())];
            ((1.0 - u) / u + u.ln()) * estimate(segment, class, present)
        })
    }

    fn classes(&self, present: &Present) -> Classes {
        let fitting =
            (present.segment_count / SEGMENTS_PER_GENERATION).min(u32::from(u8::MAX)) as u8;
        if fitting < 2 {
            return Classes::NONE;
        }
        Classes {
            users: fitting.min(USER_GENERATIONS),
            survivors: fitting.min(SURVIVOR_GENERATIONS),
        }
    }

    fn user_class(&self, left: Option<&Segment>, present: &Present) -> Class {
        let generations = self.classes(present).users;
        if generations == 0 {
            return Class::MAIN;
        }
        let middle = generations / 2;
        let Some(left) = left else { return Class::user(middle) };
        let observed =
            generation(present.clock.saturating_sub(left.written_at), generations, present);
        let from = match (left.class.user_index(), left.class.survivor_index()) {
            (Some(index), _) => index.min(generations - 1),
            (_, Some(_)) => generations - 1,
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
        let by_age = generation(present.clock.saturating_sub(left.written_at), survivors, present);
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

/// The deaths in the segments of a class.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    deaths: f64,
    /// The sum of the lifetime estimates, one for each death.
    lifetimes: f64,
}

impl Observed {
    fn add(&mut self, segment: &Segment, present: &Present) {
        let deaths = f64::from(segment.deaths);
        self.deaths += deaths;
        self.lifetimes += deaths * own_estimate(segment, present);
    }
}

/// The lifetime estimate from a segment alone, in segments' worth of writing.
fn own_estimate(segment: &Segment, present: &Present) -> f64 {
    segments_since(segment.filled_at, present) / -segment.utilisation().min(NEARLY_FULL).ln()
}

/// The lifetime estimate for a segment of `class`, in segments' worth of writing.
fn estimate(segment: &Segment, class: &Observed, present: &Present) -> f64 {
    let own = own_estimate(segment, present);
    let deaths = f64::from(segment.deaths);
    let of_class = if class.deaths > 0.0 { class.lifetimes / class.deaths } else { own };
    let lifetime = (PRIOR_DEATHS * of_class + deaths * own) / (PRIOR_DEATHS + deaths);
    let u = segment.utilisation().min(NEARLY_FULL);
    // The live blocks are grouped into as many deaths as the dead ones were, in proportion.
    let living = (deaths * u / (1.0 - u)).max(1.0);
    let silence = segments_since(segment.last_death, present) * living / lifetime;
    lifetime * ((silence + EXPECTED_SILENCE) / (1.0 + EXPECTED_SILENCE)).sqrt()
}

fn segments_since(clock: u64, present: &Present) -> f64 {
    let bytes = present.clock.saturating_sub(clock);
    (bytes / present.segment_bytes.max(1) + 1) as f64
}

/// The generation, of `generations`, with the shortest lifetime that is not below `lifetime`.
fn generation(lifetime: u64, generations: u8, present: &Present) -> u8 {
    let segment = present.segment_bytes.max(1);
    let shortest = SHORTEST_SEGMENTS * segment;
    let longest = present.live_bytes.saturating_mul(LONGEST_LIVE).max(2 * shortest);
    // This is asked for each page that is replaced, and logarithms take longest.
    if lifetime <= shortest {
        return 0;
    }
    if lifetime >= longest {
        return generations - 1;
    }
    let step = (longest as f64 / shortest as f64).ln() / f64::from(generations.max(2) - 1);
    let generation = ((lifetime as f64 / shortest as f64).ln() / step).ceil();
    (generation as u8).min(generations - 1)
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
        MultiGenerational.victim(segments, &PRESENT, &mut Rng::new(1)).map(|segment| segment.number)
    }

    #[test]
    fn a_small_volume_keeps_nothing_apart() {
        let small = Present { segment_count: 127, ..PRESENT };
        assert_eq!(MultiGenerational.classes(&small), Classes::NONE);
        assert_eq!(
            MultiGenerational.user_class(Some(&left(Class::user(3), 1)), &small),
            Class::MAIN
        );
        assert_eq!(
            MultiGenerational.survivor_class(&left(Class::survivor(3), 1), &small),
            Class::MAIN
        );
        let larger = Present { segment_count: 128, ..PRESENT };
        assert_eq!(MultiGenerational.classes(&larger), Classes { users: 2, survivors: 2 });
        let generations = Classes { users: USER_GENERATIONS, survivors: SURVIVOR_GENERATIONS };
        assert_eq!(MultiGenerational.classes(&PRESENT), generations);
    }

    #[test]
    fn a_block_moves_by_one_class_towards_its_lifetime() {
        let class = |class, age| MultiGenerational.user_class(Some(&left(class, age)), &PRESENT);
        assert_eq!(
            MultiGenerational.user_class(None, &PRESENT),
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
            "survivors enter at the oldest generation"
        );
        assert_eq!(class(Class::MAIN, 1), Class::user(2), "the main log counts as the middle");
    }

    #[test]
    fn generations_are_evenly_spaced_from_four_segments_to_eight_times_what_lives() {
        assert_eq!(generation(0, 6, &PRESENT), 0);
        assert_eq!(generation(4 * SEGMENT, 6, &PRESENT), 0);
        assert_eq!(generation(4 * SEGMENT + 1, 6, &PRESENT), 1);
        // (8 · 2048 / 4)^(1/5) = 5.278
        for (at, segments) in [(1, 21), (2, 111), (3, 588), (4, 3104), (5, 16_383)] {
            assert_eq!(generation(segments * SEGMENT, 6, &PRESENT), at);
            assert_eq!(generation((segments + 1) * SEGMENT, 6, &PRESENT), (at + 1).min(5));
        }
        assert_eq!(generation(u64::MAX, 6, &PRESENT), 5);
    }

    #[test]
    fn a_survivor_goes_where_its_age_says_and_never_gets_hotter() {
        let class = |class, age| MultiGenerational.survivor_class(&left(class, age), &PRESENT);
        assert_eq!(class(Class::user(0), 1), Class::survivor(0));
        assert_eq!(class(Class::user(0), 1 << 20), Class::survivor(9));
        assert_eq!(class(Class::survivor(5), 1), Class::survivor(5));
        assert_eq!(class(Class::survivor(200), 1), Class::survivor(9), "of more classes than now");
        let ages: Vec<_> = (0..20).map(|power| class(Class::MAIN, 1 << power)).collect();
        assert!(ages.is_sorted());
    }

    #[test]
    fn what_was_expected_to_live_long_survives_as_cold() {
        let class = |user| MultiGenerational.survivor_class(&left(Class::user(user), 1), &PRESENT);
        assert_eq!([0, 1, 3, 5].map(class), [0, 0, 4, 8].map(Class::survivor));
    }

    #[test]
    fn an_empty_segment_is_the_first_victim() {
        let ancient = Segment { number: 1, ..left(Class::user(0), 1 << 20) };
        let empty = Segment { number: 2, live_bytes: 0, ..left(Class::user(0), 0) };
        assert_eq!(victim(&[ancient, empty]), Some(2));
    }

    /// A segment filled so many segments' worth of writing ago, in which blocks died `deaths`
    /// times, the last time so long ago.
    fn seen(number: u32, live_percent: u32, filled: u64, died: u64, deaths: u32) -> Segment {
        Segment {
            number,
            live_bytes: live_percent,
            capacity_bytes: 100,
            filled_at: PRESENT.clock - filled * SEGMENT,
            last_death: PRESENT.clock - died * SEGMENT,
            deaths,
            ..left(Class::user(0), 0)
        }
    }

    #[test]
    fn of_segments_that_saw_many_deaths_the_older_one_is_colder() {
        let old = seen(1, 60, 500, 5, 400);
        let young = seen(2, 50, 50, 0, 500);
        assert_eq!(victim(&[young, old]), Some(1), "the other empties by itself");
        let emptier = Segment { live_bytes: 5, ..young };
        assert_eq!(victim(&[emptier, old]), Some(2));
    }

    #[test]
    fn a_few_deaths_say_little_about_a_segment_and_much_about_its_class() {
        let early = seen(1, 50, 60, 0, 4);
        let late = seen(2, 62, 170, 0, 3);
        assert_eq!(victim(&[early, late]), Some(1), "chance made the other older");
        let many = |segment: Segment| Segment { deaths: 100 * segment.deaths, ..segment };
        assert_eq!(victim(&[many(early), many(late)]), Some(2), "no chance makes it so much older");
        let colder = Segment { class: Class::user(5), ..late };
        let of_class = |number| Segment { class: Class::user(5), ..seen(number, 90, 900, 9, 50) };
        assert_eq!(
            victim(&[early, colder, of_class(3), of_class(4)]),
            Some(2),
            "its class is cold"
        );
    }

    #[test]
    fn a_segment_in_which_nothing_dies_any_more_has_cooled_down() {
        let still_dying = seen(1, 50, 100, 0, 300);
        let cooled_down = seen(2, 55, 100, 60, 300);
        assert_eq!(victim(&[still_dying, cooled_down]), Some(2));
        let as_expected = Segment { last_death: still_dying.last_death, ..cooled_down };
        assert_eq!(victim(&[still_dying, as_expected]), Some(1));
    }

    #[test]
    fn what_is_known_of_no_death_is_judged_by_its_age() {
        let (old, young) = (seen(1, 50, 90, 90, 0), seen(2, 50, 10, 10, 0));
        assert_eq!(victim(&[young, old]), Some(1));
    }

    #[test]
    fn several_victims_are_the_best_in_their_order() {
        let segments: Vec<_> = (1..100).map(|live| seen(live, live, 90, 9, 40)).collect();
        let numbers = |count| -> Vec<u32> {
            let victims = MultiGenerational.victims(&segments, count, &PRESENT, &mut Rng::new(1));
            victims.iter().map(|segment| segment.number).collect()
        };
        assert_eq!(numbers(3), [1, 2, 3]);
        assert_eq!(numbers(1000).len(), 99);
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
