//! Choosing victims by a score.

use crate::segment::Segment;

/// The `count` candidates with the highest scores, the best first, among those with dead bytes. Of
/// equal scores the emptiest comes first, then the lowest number, so that the order of the
/// candidates does not matter.
pub(crate) fn best(
    candidates: &[Segment],
    count: usize,
    mut score: impl FnMut(&Segment) -> f64,
) -> Vec<Segment> {
    let dirty = candidates.iter().filter(|segment| segment.has_dead());
    let mut scored: Vec<_> = dirty.map(|segment| (score(segment), segment)).collect();
    let count = count.min(scored.len());
    let order = |(score, segment): &(f64, &Segment), other: &(f64, &Segment)| {
        let by_score = other.0.total_cmp(score);
        let key = |segment: &Segment| (segment.live_bytes, segment.number);
        by_score.then_with(|| key(segment).cmp(&key(other.1)))
    };
    if count < scored.len() {
        scored.select_nth_unstable_by(count, order);
        scored.truncate(count);
    }
    scored.sort_unstable_by(order);
    scored.into_iter().map(|(_, segment)| *segment).collect()
}
