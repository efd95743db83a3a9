//! The temperature ladder, the default.

use dendro_base::Rng;

use crate::pick::best;
use crate::{Class, Classes, Kind, Policy, Present, Segment};

/// Classes of what clients write, at most.
const USER_RUNGS: u8 = 6;
/// Classes of what survives cleaning, at most.
const SURVIVOR_RUNGS: u8 = 8;
/// Segments of a volume for each class: the open segments must stay a small part.
const SEGMENTS_PER_RUNG: u32 = 64;

/// The temperature ladder.
///
/// Data that dies at the same time should lie in the same segment: then the segment empties by
/// itself and cleaning it costs nothing. Nobody knows when a block will die, but its past tells: a
/// block overwritten soon after it was written will be overwritten soon again (SepBIT, Wang et al.,
/// FAST '22, builds on the same observation).
///
/// What clients write has up to six classes by expected lifetime, spaced evenly on a logarithmic
/// scale from four segments' worth of writing to four times the live data. A block overwritten goes
/// to the class of the segment it leaves, moved by one step towards the class that its observed
/// lifetime says: now less that segment's mean time of writing. No state is kept for a block. What
/// survives cleaning has classes of its own by age: a survivor goes to the class that its age says,
/// but never to a hotter one than it comes from.
///
/// The victim is the segment with the highest benefit over cost, (1 − u) · age / (1 + u), where age
/// is the time since the last death in it.
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
        let quantum = 16 * present.segment_bytes.max(1);
        best(candidates, |segment| {
            let u = segment.utilisation();
            let age = present.clock.saturating_sub(segment.last_death) / quantum + 1;
            (1.0 - u) * age as f64 / (1.0 + u)
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
        let lifetime = present.clock.saturating_sub(left.written_at);
        let observed = rung(lifetime, rungs, present);
        let from = match (left.class.user_index(), left.class.survivor_index()) {
            (Some(index), _) => index.min(rungs - 1),
            (_, Some(_)) => rungs - 1,
            _ => middle,
        };
        Class::user(match observed.cmp(&from) {
            std::cmp::Ordering::Less => from - 1,
            std::cmp::Ordering::Equal => from,
            std::cmp::Ordering::Greater => from + 1,
        })
    }

    fn survivor_class(&self, left: &Segment, present: &Present) -> Class {
        let rungs = self.classes(present).survivors;
        if rungs == 0 {
            return Class::MAIN;
        }
        let age = present.clock.saturating_sub(left.written_at);
        let at_least = left.class.survivor_index().unwrap_or(0);
        Class::survivor(rung(age, rungs, present).max(at_least).min(rungs - 1))
    }
}

/// The rung, of `rungs`, whose expected lifetime is the first not below `lifetime`.
fn rung(lifetime: u64, rungs: u8, present: &Present) -> u8 {
    let segment = present.segment_bytes.max(1);
    let shortest = (4 * segment) as f64;
    let longest = present.live_bytes.saturating_mul(4).max(8 * segment) as f64;
    let step = (longest / shortest).ln() / f64::from(rungs.max(2) - 1);
    let rung = ((lifetime.max(1) as f64 / shortest).ln() / step).ceil();
    (rung.max(0.0) as u8).min(rungs - 1)
}
