//! One run: a workload over a volume until it is steady, then counted.

use dendro_bench::workload::{Kind, Op};

use crate::volume::{Decider, Shape, Volume};

/// Workloads are drawn with this seed, so all policies see the same and the next run too.
const SEED: u64 = 7;

/// How far the oracle sees beyond the end of a run, in times the volume's blocks: nothing must look
/// immortal that is not.
const FORESIGHT: u64 = 12;

/// How long a run is, in times the volume's blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    /// Before counting begins.
    pub(crate) warm_up: f64,
    /// Counted.
    pub(crate) counted: f64,
}

/// Blocks written to the device for each that a client wrote, in the steady state.
pub(crate) fn amplification(shape: Shape, kind: Kind, decider: Decider<'_>, length: Length) -> f64 {
    let blocks = f64::from(shape.block_count());
    let warm_up = (blocks * length.warm_up) as u64;
    let end = warm_up + (blocks * length.counted) as u64;
    let dies_at = match decider {
        Decider::Policy(_) => Vec::new(),
        Decider::Oracle => deaths(shape, kind, end + FORESIGHT * u64::from(shape.block_count())),
    };
    let block_numbers = kind.workload(shape.live_blocks(), SEED).block_numbers();
    let mut volume = Volume::new(shape, block_numbers, decider);
    let mut before = (0, 0);
    each_op(shape, kind, |op| {
        let (written, _) = volume.counts();
        match op {
            Op::Write(block) => {
                let dies_at = dies_at.get(written as usize).copied().unwrap_or(u32::MAX);
                volume.write(block, dies_at);
            }
            Op::Delete(block) => volume.delete(block),
        }
        if written < warm_up {
            before = volume.counts();
        }
        written < end
    });
    let (written, moved) = volume.counts();
    let (written, moved) = (written - before.0, moved - before.1);
    (written + moved) as f64 / written as f64
}

/// Hands the operations of a workload to `take`, until it returns false.
fn each_op(shape: Shape, kind: Kind, mut take: impl FnMut(Op) -> bool) {
    let mut workload = kind.workload(shape.live_blocks(), SEED);
    let mut ops = Vec::new();
    if workload.begins_full() {
        ops.extend((0..workload.block_numbers()).map(Op::Write));
    }
    loop {
        for op in ops.drain(..) {
            if !take(op) {
                return;
            }
        }
        workload.next(&mut ops);
    }
}

/// For each of the first `end` writes, after how many writes in all what it wrote dies.
fn deaths(shape: Shape, kind: Kind, end: u64) -> Vec<u32> {
    let block_numbers = kind.workload(shape.live_blocks(), SEED).block_numbers();
    let mut last_write = vec![u32::MAX; block_numbers as usize];
    let mut deaths = Vec::with_capacity(end as usize);
    each_op(shape, kind, |op| {
        let now = deaths.len() as u32;
        let (block, replacement) = match op {
            Op::Write(block) => (block, now),
            Op::Delete(block) => (block, u32::MAX),
        };
        let last = std::mem::replace(&mut last_write[block as usize], replacement);
        if let Some(death) = deaths.get_mut(last as usize) {
            *death = now;
        }
        if matches!(op, Op::Write(_)) {
            deaths.push(u32::MAX);
        }
        (deaths.len() as u64) < end
    });
    deaths
}

#[cfg(test)]
mod tests {
    use dendro_policy::Kind as PolicyKind;

    use super::*;
    use crate::limit;

    const SMALL: Shape = Shape { segment_count: 512, segment_blocks: 128, live_percent: 80 };

    /// The oracle has many segments open.
    const MANY_SEGMENTS: Shape =
        Shape { segment_count: 2048, segment_blocks: 32, live_percent: 80 };

    fn small(policy: PolicyKind, kind: Kind) -> f64 {
        let policy = policy.policy();
        let length = Length { warm_up: 8.0, counted: 4.0 };
        amplification(SMALL, kind, Decider::Policy(policy.as_ref()), length)
    }

    #[test]
    fn greedy_cleaning_of_uniform_writing_costs_what_theory_says() {
        let seen = small(PolicyKind::Greedy, Kind::Uniform);
        // What is open or held clean, four segments of 512, is no room for dead blocks.
        let said = limit::uniform(508.0 / 512.0 / 0.8);
        assert!((seen / said - 1.0).abs() < 0.03, "{seen} instead of {said}");
    }

    #[test]
    fn the_ladder_loses_little_where_nothing_can_be_gained() {
        let (ladder, greedy) = (
            small(PolicyKind::MultiGenerational, Kind::Uniform),
            small(PolicyKind::Greedy, Kind::Uniform),
        );
        assert!(ladder < greedy * 1.08, "{ladder} against {greedy}");
    }

    #[test]
    fn the_ladder_halves_what_greedy_costs_where_some_is_hot() {
        for kind in [Kind::HotCold, Kind::Zipf099, Kind::Zipf12] {
            let (ladder, greedy) =
                (small(PolicyKind::MultiGenerational, kind), small(PolicyKind::Greedy, kind));
            assert!(ladder < greedy * 0.65, "{kind:?}: {ladder} against {greedy}");
        }
    }

    #[test]
    fn the_ladder_beats_a_single_head_on_files_too() {
        for kind in [Kind::Churn, Kind::Moving] {
            let ladder = small(PolicyKind::MultiGenerational, kind);
            let single = small(PolicyKind::CostBenefit, kind);
            assert!(ladder < single * 0.95, "{kind:?}: {ladder} against {single}");
        }
    }

    #[test]
    fn who_knows_the_future_moves_next_to_nothing() {
        let length = Length { warm_up: 3.0, counted: 2.0 };
        for kind in [Kind::Uniform, Kind::Churn] {
            let seen = amplification(MANY_SEGMENTS, kind, Decider::Oracle, length);
            assert!((1.0..1.1).contains(&seen), "{kind:?}: {seen}");
        }
    }

    #[test]
    fn a_run_repeats_to_the_last_block() {
        let run = || small(PolicyKind::DChoices, Kind::Churn).to_bits();
        assert_eq!(run(), run());
    }
}
