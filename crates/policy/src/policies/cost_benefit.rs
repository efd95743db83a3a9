//! Cost-benefit, as in BSD-LFS.

use dendro_base::Rng;

use crate::kind::Kind;
use crate::policy::Policy;
use crate::segment::{Present, Segment};
use crate::victims::best;

/// The highest benefit over cost, (1 − u) · age / (1 + u), as in BSD-LFS.
///
/// The benefit is the space that is freed, times how long it is likely to stay free. The cost is
/// reading the whole segment and writing its live part. As in BSD-LFS the age is that of the
/// segment, since it was last written to (`su_lastmod`; Seltzer, Bostic, McKusick and Staelin, "An
/// implementation of a log-structured file system for UNIX", USENIX Winter 1993); the formula is
/// Rosenblum and Ousterhout's (TOCS 10(1), 1992), who took the age of the youngest block. It uses
/// the main log alone.
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
