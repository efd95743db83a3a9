//! Choice of the segment that is cleaned next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dendro_base::sync::{Arc, BriefReadGuard};
use dendro_base::units::PAGE_SIZE;
use dendro_base::{Rng, Timestamp};
use dendro_format::layout::FIRST_LOG_SEGMENT;
use dendro_format::{Head, Layout, SegmentNo};
use dendro_policy::{Class, Kind, Segment};

use crate::engine::Engine;
use crate::log::segments::{SegmentState, Segments};
use crate::volume::Volume;

/// A segment with a larger live share is not worth cleaning.
const MOST_LIVE: f64 = 0.98;
/// In idle times, a segment with a larger live share is not worth cleaning.
const MOST_LIVE_IN_IDLE_TIMES: f64 = 0.6;
/// The largest live share of a nearly empty segment. The survivors of four such segments take less
/// than what is left of the segments that the streams are filling.
const MOST_LIVE_OF_NEARLY_EMPTY: f64 = 0.0625;
/// The largest live share of a segment that is cleaned into what is left of those segments alone.
const MOST_LIVE_OF_MOSTLY_DEAD: f64 = 0.5;
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
/// The number of segments that are remembered because they take too much.
const MAX_DEAR: usize = 4096;
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
    /// The segment with the fewest live bytes, if it is mostly dead. Its blocks and the nodes that
    /// this changes go to the segments that are being filled, as far as they have room.
    MostlyDead,
    /// The segment that the policy picks.
    Policy,
    /// The segment that the policy picks among those with a small live share: there is time to wait
    /// until more blocks are dead.
    Idle,
    /// The segment that the policy picks among the fast ones, whatever is live in it: fast segments
    /// are needed, and others have room.
    Fast,
    /// This segment, whatever is live in it: it is given up.
    Only(SegmentNo),
}

impl Choice {
    /// Whether it may be this segment.
    pub(super) fn concerns(self, segment: SegmentNo) -> bool {
        !matches!(self, Self::Only(only) if only != segment)
    }

    /// Whether the policy picks the segment.
    const fn is_by_policy(self) -> bool {
        matches!(self, Self::Policy | Self::Idle | Self::Fast)
    }
}

/// A segment that was not cleaned because of what that takes.
#[derive(Clone, Copy, Debug)]
struct Dear {
    /// The clean segments that would be lost.
    lost: u64,
    /// Its live bytes then. Once some of them are dead, it may be cheaper.
    live_bytes: u32,
}

/// What is known for the next choice.
#[derive(Debug)]
pub(super) struct Picking {
    /// The segments that are being cleaned, and those of jobs that wait to be continued.
    victims: BTreeSet<SegmentNo>,
    /// Segments that could not be emptied, the time since which each is left alone, and whether
    /// something in it could not be read or had a wrong checksum.
    set_aside: BTreeMap<SegmentNo, (Timestamp, bool)>,
    /// Segments of which a job would lose more clean segments than could be spared.
    too_dear: BTreeMap<SegmentNo, Dear>,
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
            victims: BTreeSet::new(),
            set_aside: BTreeMap::new(),
            too_dear: BTreeMap::new(),
            picked: Vec::new(),
            picked_for: None,
            picked_at: 0,
            candidates: Vec::new(),
            rng: Rng::new(0),
        }
    }
}

impl Picking {
    /// The number of victims.
    pub(super) fn victim_count(&self) -> usize {
        self.victims.len()
    }

    /// Notes that no thread cleans the segment any more.
    pub(super) fn end(&mut self, victim: SegmentNo) {
        self.victims.remove(&victim);
    }

    /// Leaves a segment alone until `lost` clean segments can be spared for it.
    pub(super) fn note_dear(&mut self, segment: SegmentNo, lost: u64, live_bytes: u32) {
        if self.too_dear.len() >= MAX_DEAR {
            self.too_dear.clear();
        }
        self.too_dear.insert(segment, Dear { lost, live_bytes });
    }

    /// Leaves a segment that could not be emptied alone for a while.
    pub(super) fn set_aside(&mut self, segment: SegmentNo, now: Timestamp, is_damaged: bool) {
        self.set_aside.insert(segment, (now, is_damaged));
    }

    #[cfg(test)]
    pub(super) fn is_set_aside(&self, segment: SegmentNo) -> bool {
        self.set_aside.contains_key(&segment)
    }

    /// Whether the segment could not be emptied because of damage when that was tried last.
    pub(super) fn is_damaged(&self, segment: SegmentNo) -> bool {
        self.set_aside.get(&segment).is_some_and(|(_, is_damaged)| *is_damaged)
    }

    /// Notes that a segment was emptied.
    pub(super) fn note_emptied(&mut self, segment: SegmentNo) {
        self.set_aside.remove(&segment);
    }

    /// Allows segments that were set aside to be picked again at once.
    pub(super) fn try_set_aside_again(&mut self) {
        self.set_aside.clear();
    }

    /// Chooses a victim and notes it. Returns it with the locked engine in whose state it is a
    /// candidate. The victim takes no more clean segments than `can_lose`, as far as that is known.
    pub(super) fn begin<'v>(
        &mut self,
        volume: &'v Volume,
        choice: Choice,
        can_lose: u64,
    ) -> Option<(SegmentNo, BriefReadGuard<'v, Engine>)> {
        let (victim, engine) = self.pick_victim(volume, choice, can_lose)?;
        self.victims.insert(victim);
        Some((victim, engine))
    }

    /// Returns the victim, and the locked engine in whose state it is a candidate.
    fn pick_victim<'v>(
        &mut self,
        volume: &'v Volume,
        choice: Choice,
        can_lose: u64,
    ) -> Option<(SegmentNo, BriefReadGuard<'v, Engine>)> {
        loop {
            let picked = if choice.is_by_policy() {
                self.picked_by_policy(volume, choice, can_lose)?
            } else {
                self.emptiest(volume, choice, can_lose)?
            };
            let engine = volume.read();
            let segment = SegmentNo(picked.number);
            let left_alone = self.left_alone(&engine, choice, can_lose);
            // A segment that became empty and was filled again since has more live bytes than it
            // had.
            if is_candidate(segment, &left_alone, &engine, choice)
                && engine.state().segments().live_bytes_of(segment) <= picked.live_bytes
            {
                return Some((segment, engine));
            }
        }
    }

    /// The candidate with the fewest live bytes, as it was when it was looked at.
    pub(super) fn emptiest(
        &self,
        volume: &Volume,
        choice: Choice,
        can_lose: u64,
    ) -> Option<Segment> {
        let mut emptiest: Option<Segment> = None;
        self.each_candidate(volume, choice, can_lose, |segment| {
            if emptiest.is_none_or(|emptiest| segment.live_bytes < emptiest.live_bytes) {
                emptiest = Some(*segment);
            }
        });
        emptiest
    }

    /// The next of the victims that the policy picked, unless these are out of date.
    fn picked_by_policy(
        &mut self,
        volume: &Volume,
        choice: Choice,
        can_lose: u64,
    ) -> Option<Segment> {
        let (policy, present) = {
            let engine = volume.read();
            (Arc::clone(engine.streams().policy()), engine.state().present())
        };
        let looked_at = present.segment_count.min(MAX_CANDIDATES);
        let count = (looked_at / SEGMENTS_PER_PICK).max(1);
        let picked_for = Some((choice, policy.kind()));
        let written_bytes = present.clock.saturating_sub(self.picked_at);
        let is_stale = written_bytes > u64::from(count) * present.segment_bytes;
        if is_stale || self.picked_for != picked_for {
            self.picked.clear();
        }
        if let Some(next) = self.picked.pop() {
            return Some(next);
        }
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let is_seen = some_of(present.segment_count, MAX_CANDIDATES, &mut self.rng);
        self.each_candidate(volume, choice, can_lose, |segment| {
            if is_seen(segment.number) {
                candidates.push(*segment);
            }
        });
        self.picked = policy.victims(&candidates, count as usize, &present, &mut self.rng);
        self.picked.reverse();
        (self.picked_for, self.picked_at) = (picked_for, present.clock);
        self.candidates = candidates;
        self.picked.pop()
    }

    /// Calls `look` with each candidate.
    fn each_candidate(
        &self,
        volume: &Volume,
        choice: Choice,
        can_lose: u64,
        mut look: impl FnMut(&Segment),
    ) {
        let all = match choice {
            Choice::Only(segment) => segment.0..segment.0 + 1,
            Choice::Fast => volume.read().state().segments().fast_range(),
            _ => FIRST_LOG_SEGMENT.0..volume.layout().segment_count(),
        };
        let mut segments = all.map(SegmentNo).peekable();
        while segments.peek().is_some() {
            let engine = volume.read();
            let left_alone = self.left_alone(&engine, choice, can_lose);
            for segment in segments.by_ref().take(SEGMENTS_AT_ONCE) {
                if is_candidate(segment, &left_alone, &engine, choice) {
                    let segments = engine.state().segments();
                    let live_bytes = segments.packed_bytes_of(segment);
                    look(&Segment { live_bytes, ..segments.policy_view(segment) });
                }
            }
        }
    }

    /// The segments that are not cleaned now, whatever their live bytes: sorted, and each of them
    /// once. The list is short, because every candidate is looked up in it while all changes wait.
    fn left_alone(&self, engine: &Engine, choice: Choice, can_lose: u64) -> Vec<SegmentNo> {
        let now = engine.clock().now();
        // The time must not become longer if the clock was set back.
        let is_young = |at: &Timestamp| now.since(*at).max(at.since(now)) < SET_ASIDE_FOR;
        // Whoever asks for one segment decides when to try it again.
        let is_left = |at: &Timestamp| !matches!(choice, Choice::Only(_)) && is_young(at);
        let set_aside = self.set_aside.iter().filter(|(_, (at, _))| is_left(at));
        // Segments that have not been written yet cannot be read.
        let unwritten = engine.unwritten().map(|closed| closed.segment());
        let mut all: Vec<_> = unwritten.chain(set_aside.map(|(&segment, _)| segment)).collect();
        all.extend(&self.victims);
        let live_bytes_of = |segment| engine.state().segments().live_bytes_of(segment);
        all.extend(self.too_dear.iter().filter_map(|(&segment, dear)| {
            let is_dear = dear.lost > can_lose && dear.live_bytes == live_bytes_of(segment);
            is_dear.then_some(segment)
        }));
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Whether the segment may be cleaned and is not in `left_alone`.
fn is_candidate(
    segment: SegmentNo,
    left_alone: &[SegmentNo],
    engine: &Engine,
    choice: Choice,
) -> bool {
    let segments = engine.state().segments();
    let view = segments.policy_view(segment);
    // A segment that is given up does not become clean: emptying it takes room and makes none.
    let makes_room = !segments.is_given_up(segment) || matches!(choice, Choice::Only(_));
    let may_be_cleaned = segments.state(segment) == SegmentState::Dirty
        && view.live_bytes > 0
        && makes_room
        && choice.concerns(segment)
        && (choice != Choice::Fast || is_worth_moving_off(segments, segment))
        && segments.packed_bytes_of(segment) < most_live_bytes(segments.layout(), choice)
        && left_alone.binary_search(&segment).is_err();
    // Most nodes become dead with the next checkpoints, so young map segments are left alone.
    // But cleaning and collections leave nearly empty map segments, and the log clock stands
    // still while no client writes; so these are candidates at any age.
    let young_bytes = NODES_LIVE_SEGMENTS * segments.layout().segment_size_bytes();
    may_be_cleaned
        && (!choice.is_by_policy()
            || segments.head(segment) != Head::Map
            || view.live_bytes < most_live_bytes(segments.layout(), Choice::NearlyEmpty)
            || engine.state().clock().saturating_sub(view.filled_at) >= young_bytes)
}

/// The live bytes from which on a segment is not cleaned: moving the blocks of a nearly full
/// segment gains less than the headers cost.
pub(super) fn most_live_bytes(layout: Layout, choice: Choice) -> u32 {
    let size = layout.segment_size_bytes() as f64;
    let share = match choice {
        Choice::MostToGain => MOST_LIVE,
        Choice::NearlyEmpty => MOST_LIVE_OF_NEARLY_EMPTY,
        Choice::MostlyDead => MOST_LIVE_OF_MOSTLY_DEAD,
        Choice::Policy => MOST_LIVE.min(1.0 - LEAST_DEAD_BYTES / size),
        Choice::Idle => MOST_LIVE_IN_IDLE_TIMES,
        Choice::Fast | Choice::Only(_) => return u32::MAX,
    };
    (size * share) as u32
}

/// Whether moving what is live in a segment leaves a fast segment clean: it is fast, and that goes
/// to others. Nodes of the map are written to fast ones again.
fn is_worth_moving_off(segments: &Segments, segment: SegmentNo) -> bool {
    let has_nodes = segments.head(segment) == Head::Map;
    let most_live = most_live_bytes(segments.layout(), Choice::Idle);
    let goes_elsewhere = !has_nodes
        || !segments.prefers_fast(Head::Map, Class::MAIN)
        || segments.live_bytes_of(segment) < most_live;
    segments.is_fast(segment) && goes_elsewhere
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
    use crate::disk::LogDisk;

    /// Records `picked` as the victims that the policy picked just now, the best last.
    fn note_picked(disk: &LogDisk, picking: &mut Picking, picked: Vec<Segment>) {
        let engine = disk.volume().read();
        let picked_for = Some((Choice::Policy, engine.streams().policy().kind()));
        let picked_at = engine.state().present().clock;
        (picking.picked, picking.picked_for, picking.picked_at) = (picked, picked_for, picked_at);
    }

    fn pick(disk: &LogDisk, picking: &mut Picking) -> SegmentNo {
        picking.pick_victim(disk.volume(), Choice::Policy, u64::MAX).unwrap().0
    }

    fn policy_view(disk: &LogDisk, segment: SegmentNo) -> Segment {
        disk.volume().read().state().segments().policy_view(segment)
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
        let picking = Picking::default();
        picking.each_candidate(disk.volume(), Choice::Policy, u64::MAX, |segment| {
            last = Some(*segment)
        });
        last.filter(|last| last.number != first.0).unwrap()
    }

    #[test]
    fn victims_picked_together_are_cleaned_in_turn() {
        let (disk, mut picking) = (disk_half_alive(), Picking::default());
        let best = policy_view(&disk, pick(&disk, &mut picking));
        let next = another(&disk, SegmentNo(best.number));
        note_picked(&disk, &mut picking, vec![next, best]);
        assert_eq!(pick(&disk, &mut picking).0, best.number);
        assert_eq!(pick(&disk, &mut picking).0, next.number);
        assert_eq!(
            pick(&disk, &mut picking).0,
            best.number,
            "it is picked again, because no job was begun"
        );
    }

    #[test]
    fn a_segment_that_takes_too_much_is_left_alone_until_that_can_be_spared_or_less_is_live_in_it()
    {
        let (disk, mut picking) = (disk_half_alive(), Picking::default());
        let pick = |picking: &mut Picking, can_lose| {
            picking.pick_victim(disk.volume(), Choice::MostToGain, can_lose).unwrap().0
        };
        let best = pick(&mut picking, 2);
        let live_bytes = disk.volume().read().state().segments().live_bytes_of(best);
        picking.note_dear(best, 3, live_bytes);
        assert_ne!(pick(&mut picking, 2), best);
        assert_eq!(pick(&mut picking, 3), best, "three can be spared");
        picking.note_dear(best, 3, live_bytes + 4096);
        assert_eq!(pick(&mut picking, 2), best, "a page is dead that was live when it was noted");
    }

    #[test]
    fn a_picked_victim_that_was_emptied_or_refilled_is_skipped() {
        let (disk, mut picking) = (disk_half_alive(), Picking::default());
        let best = pick(&disk, &mut picking);
        let refilled = another(&disk, best);
        let refilled = Segment { live_bytes: refilled.live_bytes - 1, ..refilled };
        let is_clean = |segment: &SegmentNo| {
            disk.volume().read().state().segments().state(*segment) == SegmentState::Clean
        };
        let clean = disk.volume().layout().log_segments().find(is_clean).unwrap();
        note_picked(&disk, &mut picking, vec![refilled, policy_view(&disk, clean)]);
        assert_eq!(pick(&disk, &mut picking), best);
    }

    #[test]
    fn victims_picked_by_another_policy_for_another_choice_or_long_ago_are_dropped() {
        let (disk, mut picking) = (disk_half_alive(), Picking::default());
        let best = pick(&disk, &mut picking);
        let other = another(&disk, best);
        let forget: [fn(&mut Picking); 3] = [
            |picking| picking.picked_for = Some((Choice::Policy, Kind::DChoices)),
            |picking| picking.picked_for = Some((Choice::Idle, Kind::default())),
            |picking| picking.picked_at = 0,
        ];
        for forget in forget {
            note_picked(&disk, &mut picking, vec![other]);
            forget(&mut picking);
            assert_eq!(pick(&disk, &mut picking), best);
        }
    }
}
