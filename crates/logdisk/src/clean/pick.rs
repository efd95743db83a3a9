//! Choice of the segment that is cleaned next.

use std::time::Duration;

use dendro_base::sync::{Arc, RwLockReadGuard};
use dendro_base::units::PAGE_SIZE;
use dendro_base::{Rng, Timestamp};
use dendro_format::{Head, SegmentNo};
use dendro_policy::{Kind, Segment};

use crate::clean::cleaner::Cleaner;
use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::log::segments::SegmentState;

/// A segment with a larger live share is not worth cleaning.
const MOST_LIVE: f64 = 0.98;
/// In idle times, a segment with a larger live share is not worth cleaning.
const MOST_LIVE_IN_IDLE_TIMES: f64 = 0.6;
/// The largest live share of a nearly empty segment. The survivors of four such segments take less
/// than what is left of the segments that the streams are filling.
const MOST_LIVE_OF_NEARLY_EMPTY: f64 = 0.0625;
/// A segment with fewer dead bytes is not worth cleaning, unless space is needed now. Moving its
/// live blocks, and the checkpoint after that, leave about as many bytes unused, so cleaning would
/// never end.
const LEAST_DEAD_BYTES: f64 = (8 * PAGE_SIZE) as f64;
/// Segments of the map stream are left alone until so many segments have been written after them.
const NODES_LIVE_SEGMENTS: u64 = 64;
/// The time for which a segment with unreadable blocks is left alone. After that the device may be
/// able to read them. Damaged blocks are never moved, because that would destroy the evidence.
const SET_ASIDE_FOR: Duration = Duration::from_secs(60);
/// The policy picks one victim for each so many segments. The victims that it picks together are
/// cleaned before it is called again, because looking at all segments takes longer than cleaning
/// one.
const SEGMENTS_PER_PICK: u32 = 256;
/// The largest number of candidates that a policy chooses among. In a larger volume it sees a
/// different sample each time. The best of a sample is almost as good as the best of all, and all
/// would take too much memory.
const MAX_CANDIDATES: u32 = 1 << 18;
/// The number of segments that are looked at while the lock is held, and so while changes wait.
const SEGMENTS_AT_ONCE: usize = 4096;

/// The rule by which a victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The segment with the fewest live bytes: space is needed now.
    MostToGain,
    /// The segment with the fewest live bytes, if it is nearly empty: moving its blocks takes no
    /// additional segment.
    NearlyEmpty,
    /// The segment that the policy picks.
    Policy,
    /// The segment that the policy picks among those with a small live share: there is time to wait
    /// until more blocks are dead.
    Idle,
}

/// The victims that a policy has picked, and the policy's input.
#[derive(Debug)]
pub(crate) struct Picking {
    /// The victims; the best is the last.
    picked: Vec<Segment>,
    /// The choice that these were picked for, and the kind of policy that picked them.
    picked_for: Option<(Choice, Kind)>,
    picked_at: u64,
    candidates: Vec<Segment>,
    /// The random numbers of policies that take samples.
    rng: Rng,
}

impl Default for Picking {
    fn default() -> Self {
        Self {
            picked: Vec::new(),
            picked_for: None,
            picked_at: 0,
            candidates: Vec::new(),
            rng: Rng::new(0),
        }
    }
}

impl LogDisk {
    /// Returns the victim, and the locked engine in whose state it is a candidate.
    pub(crate) fn pick_victim(
        &self,
        cleaner: &mut Cleaner,
        choice: Choice,
    ) -> Option<(SegmentNo, RwLockReadGuard<'_, Engine>)> {
        loop {
            let picked = match choice {
                Choice::MostToGain | Choice::NearlyEmpty => self.emptiest(cleaner, choice)?,
                Choice::Policy | Choice::Idle => self.picked_by_policy(cleaner, choice)?,
            };
            let engine = self.volume.read();
            let segment = SegmentNo(picked.number);
            let left_alone = self.left_alone(cleaner, &engine);
            // A segment that became empty and was filled again since has more live bytes than it
            // had.
            if self.is_candidate(segment, &left_alone, &engine, choice)
                && engine.state.segments.live_bytes_of(segment) <= picked.live_bytes
            {
                return Some((segment, engine));
            }
        }
    }

    /// The candidate with the fewest live bytes, as it was when it was looked at.
    pub(crate) fn emptiest(&self, cleaner: &Cleaner, choice: Choice) -> Option<Segment> {
        let mut emptiest: Option<Segment> = None;
        self.each_candidate(cleaner, choice, |segment| {
            if emptiest.is_none_or(|emptiest| segment.live_bytes < emptiest.live_bytes) {
                emptiest = Some(*segment);
            }
        });
        emptiest
    }

    /// The next of the victims that the policy picked, unless these are out of date.
    fn picked_by_policy(&self, cleaner: &mut Cleaner, choice: Choice) -> Option<Segment> {
        let (policy, present) = {
            let engine = self.volume.read();
            (Arc::clone(engine.streams.policy()), engine.state.present())
        };
        let looked_at = present.segment_count.min(MAX_CANDIDATES);
        let count = (looked_at / SEGMENTS_PER_PICK).max(1);
        let picked_for = Some((choice, policy.kind()));
        let picking = &mut cleaner.picking;
        let written_bytes = present.clock.saturating_sub(picking.picked_at);
        let is_stale = written_bytes > u64::from(count) * present.segment_bytes;
        if is_stale || picking.picked_for != picked_for {
            picking.picked.clear();
        }
        if let Some(next) = picking.picked.pop() {
            return Some(next);
        }
        let mut candidates = std::mem::take(&mut picking.candidates);
        candidates.clear();
        let is_seen = some_of(present.segment_count, MAX_CANDIDATES, &mut picking.rng);
        self.each_candidate(cleaner, choice, |segment| {
            if is_seen(segment.number) {
                candidates.push(*segment);
            }
        });
        let picking = &mut cleaner.picking;
        picking.picked = policy.victims(&candidates, count as usize, &present, &mut picking.rng);
        picking.picked.reverse();
        (picking.picked_for, picking.picked_at) = (picked_for, present.clock);
        picking.candidates = candidates;
        picking.picked.pop()
    }

    /// Calls `look` with each candidate.
    fn each_candidate(&self, cleaner: &Cleaner, choice: Choice, mut look: impl FnMut(&Segment)) {
        let mut segments = self.volume.layout().log_segments().peekable();
        while segments.peek().is_some() {
            let engine = self.volume.read();
            let left_alone = self.left_alone(cleaner, &engine);
            for segment in segments.by_ref().take(SEGMENTS_AT_ONCE) {
                if self.is_candidate(segment, &left_alone, &engine, choice) {
                    let segments = &engine.state.segments;
                    let live_bytes = segments.packed_bytes_of(segment);
                    look(&Segment { live_bytes, ..segments.policy_view(segment) });
                }
            }
        }
    }

    /// Whether the segment may be cleaned and is not in `left_alone`.
    fn is_candidate(
        &self,
        segment: SegmentNo,
        left_alone: &[SegmentNo],
        engine: &Engine,
        choice: Choice,
    ) -> bool {
        let segments = &engine.state.segments;
        let view = segments.policy_view(segment);
        let may_be_cleaned = segments.state(segment) == SegmentState::Dirty
            && view.live_bytes > 0
            && segments.packed_bytes_of(segment) < self.most_live_bytes(choice)
            && left_alone.binary_search(&segment).is_err();
        // Most nodes become dead with the next checkpoints, so young map segments are left alone.
        // But cleaning and collections leave nearly empty map segments, and the log clock stands
        // still while no client writes; so these are candidates at any age.
        let young_bytes = NODES_LIVE_SEGMENTS * self.volume.layout().segment_size_bytes();
        may_be_cleaned
            && (matches!(choice, Choice::MostToGain | Choice::NearlyEmpty)
                || segments.head(segment) != Head::Map
                || view.live_bytes < self.most_live_bytes(Choice::NearlyEmpty)
                || engine.state.clock.saturating_sub(view.filled_at) >= young_bytes)
    }

    /// The live bytes from which on a segment is not cleaned: moving the blocks of a nearly full
    /// segment gains less than the headers cost.
    pub(crate) fn most_live_bytes(&self, choice: Choice) -> u32 {
        let size = self.volume.layout().segment_size_bytes() as f64;
        let share = match choice {
            Choice::MostToGain => MOST_LIVE,
            Choice::NearlyEmpty => MOST_LIVE_OF_NEARLY_EMPTY,
            Choice::Policy => MOST_LIVE.min(1.0 - LEAST_DEAD_BYTES / size),
            Choice::Idle => MOST_LIVE_IN_IDLE_TIMES,
        };
        (size * share) as u32
    }

    /// The segments that are not cleaned now, whatever their live bytes: sorted, and each of them
    /// once. The list is short, because every candidate is looked up in it while all changes wait.
    fn left_alone(&self, cleaner: &Cleaner, engine: &Engine) -> Vec<SegmentNo> {
        let now = engine.clock.now();
        // The time must not become longer if the clock was set back.
        let is_young = |at: &Timestamp| now.since(*at).max(at.since(now)) < SET_ASIDE_FOR;
        let set_aside = cleaner.set_aside.iter().filter(|(_, at)| is_young(at));
        // Segments that have not been written yet cannot be read.
        let unwritten = engine.in_memory.iter().map(|closed| closed.segment);
        let mut all: Vec<_> = unwritten.chain(set_aside.map(|(&segment, _)| segment)).collect();
        all.extend(&cleaner.victims);
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Returns a function that says whether a segment belongs to a sample of about `most` out of
/// `count`.
fn some_of(count: u32, most: u32, rng: &mut Rng) -> impl Fn(u32) -> bool + use<> {
    let step = count.div_ceil(most);
    let first = if step > 1 { rng.below(u64::from(step)) as u32 } else { 0 };
    move |number| number % step == first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::cleaner::tests::disk_half_alive;

    /// Records `picked` as the victims that the policy picked just now, the best last.
    fn note_picked(disk: &LogDisk, picked: Vec<Segment>) {
        let engine = disk.volume.read();
        let picked_for = Some((Choice::Policy, engine.streams.policy().kind()));
        let picked_at = engine.state.present().clock;
        let picking = &mut disk.cleaner.lock().picking;
        (picking.picked, picking.picked_for, picking.picked_at) = (picked, picked_for, picked_at);
    }

    fn pick(disk: &LogDisk) -> SegmentNo {
        disk.pick_victim(&mut disk.cleaner.lock(), Choice::Policy).unwrap().0
    }

    fn policy_view(disk: &LogDisk, segment: SegmentNo) -> Segment {
        disk.volume.read().state.segments.policy_view(segment)
    }

    #[test]
    fn a_policy_sees_a_different_sample_of_many_segments_each_time() {
        let mut rng = Rng::new(1);
        let all = some_of(1000, 1000, &mut rng);
        assert!((0..1000).all(all));
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let is_seen = some_of(10_000, 1000, &mut rng);
            let now: Vec<u32> = (0..10_000).filter(|number| is_seen(*number)).collect();
            assert_eq!(now.len(), 1000);
            seen.extend(now);
        }
        assert_eq!(seen.len(), 10_000, "each has its turn");
    }

    /// Returns a candidate other than `first`.
    fn another(disk: &LogDisk, first: SegmentNo) -> Segment {
        let mut last = None;
        disk.each_candidate(&disk.cleaner.lock(), Choice::Policy, |segment| last = Some(*segment));
        last.filter(|last| last.number != first.0).unwrap()
    }

    #[test]
    fn victims_picked_together_are_cleaned_in_turn() {
        let disk = disk_half_alive();
        let best = policy_view(&disk, pick(&disk));
        let next = another(&disk, SegmentNo(best.number));
        note_picked(&disk, vec![next, best]);
        assert_eq!(pick(&disk).0, best.number);
        assert_eq!(pick(&disk).0, next.number);
        assert_eq!(pick(&disk).0, best.number, "it is picked again, because no job was begun");
    }

    #[test]
    fn a_picked_victim_that_was_emptied_or_refilled_is_skipped() {
        let disk = disk_half_alive();
        let best = pick(&disk);
        let refilled = another(&disk, best);
        let refilled = Segment { live_bytes: refilled.live_bytes - 1, ..refilled };
        let is_clean = |segment: &SegmentNo| {
            disk.volume.read().state.segments.state(*segment) == SegmentState::Clean
        };
        let clean = disk.volume.layout().log_segments().find(is_clean).unwrap();
        note_picked(&disk, vec![refilled, policy_view(&disk, clean)]);
        assert_eq!(pick(&disk), best);
    }

    #[test]
    fn victims_picked_by_another_policy_for_another_choice_or_long_ago_are_dropped() {
        let disk = disk_half_alive();
        let best = pick(&disk);
        let other = another(&disk, best);
        let forget: [fn(&mut Picking); 3] = [
            |picking| picking.picked_for = Some((Choice::Policy, Kind::DChoices)),
            |picking| picking.picked_for = Some((Choice::Idle, Kind::default())),
            |picking| picking.picked_at = 0,
        ];
        for forget in forget {
            note_picked(&disk, vec![other]);
            forget(&mut disk.cleaner.lock().picking);
            assert_eq!(pick(&disk), best);
        }
    }
}
