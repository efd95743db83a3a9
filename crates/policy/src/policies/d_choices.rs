//! d-choices: the best of a few drawn at random.

use dendro_base::Rng;

use crate::kind::Kind;
use crate::policy::Policy;
use crate::segment::{Present, Segment};

/// The emptiest of ten drawn at random.
///
/// It is nearly as good as greedy when writes are uniform, and it examines ten segments instead of
/// all. When writes are skewed, its imprecision helps: it also chooses cold segments that greedy
/// leaves (Van Houdt, "A mean field model for a class of garbage collection algorithms in
/// flash-based solid state drives", SIGMETRICS 2013; Li, Lee and Lui, "Stochastic modeling of
/// large-scale solid-state storage systems", SIGMETRICS 2013). It uses the main log alone.
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
            // The first `drawn` are drawn at random (Fisher and Yates).
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
