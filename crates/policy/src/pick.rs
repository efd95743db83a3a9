//! Picking the best of the candidates.

use crate::Segment;

/// The candidate with the highest score of those that have anything dead; of equals the emptiest,
/// then the lowest numbered, so that the order of the candidates decides nothing.
pub(crate) fn best(
    candidates: &mut dyn Iterator<Item = Segment>,
    mut score: impl FnMut(&Segment) -> f64,
) -> Option<u32> {
    candidates
        .filter(Segment::has_dead)
        .map(|segment| (score(&segment), segment.live_bytes, segment.number))
        .reduce(|best, other| {
            let order = other.0.total_cmp(&best.0);
            let order = order.then((best.1, best.2).cmp(&(other.1, other.2)));
            if order.is_gt() { other } else { best }
        })
        .map(|(_, _, number)| number)
}
