//! Greedy: the emptiest segment.

use dendro_base::Rng;

use crate::kind::Kind;
use crate::policy::Policy;
use crate::segment::{Present, Segment};
use crate::victims::best;

/// The segment with the fewest live bytes.
///
/// This is optimal when all blocks are equally likely to die. When they are not, segments with cold
/// data stay just above the utilisation at which they are chosen, and keep their dead space
/// (Rosenblum and Ousterhout, "The design and implementation of a log-structured file system", TOCS
/// 10(1), 1992, section 3.5). It uses the main log alone.
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
