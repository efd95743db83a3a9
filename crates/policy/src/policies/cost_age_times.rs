//! Cost-age-times (CAT).

use dendro_base::Rng;

use crate::class::{Class, Classes};
use crate::kind::Kind;
use crate::policy::Policy;
use crate::segment::{Present, Segment};
use crate::victims::best;

/// The lowest cost · times / age, with cost u / (1 − u): cost-age-times, CAT.
///
/// It was made for flash memory: counting how often a segment was cleaned evens out wear. The age
/// is that of the segment since it was filled, and survivors have a class of their own (Chiang and
/// Chang, "Cleaning policies in mobile computers using flash memory", Journal of Systems and
/// Software 48(3), 1999; Chiang, Lee and Chang, "Using data clustering to improve cleaning
/// performance for flash memory", Software: Practice and Experience 29(3), 1999).
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
