//! Where each of a series of versions differs from the one before.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use dendro_disk::{Lid, Result, View};
use dendro_format::{Key, Space};
use rustc_hash::FxHashMap;

use crate::read::check_all_settled;
use crate::snapshots::compare::STEP_LEN;
use crate::versions::Versions;
use crate::volume::Volume;

/// Where, in a series of views, one sees more or less of a branch than the one before: what was
/// written there in the epochs after `above` up to `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    above: u64,
    upto: u64,
    index: usize,
}

/// The steps in one branch.
#[derive(Debug, Default)]
struct Steps {
    /// Those that follow each other: from snapshot to snapshot.
    ascending: Vec<Step>,
    others: Vec<Step>,
}

/// All steps of a series of views.
#[derive(Debug, Default)]
struct Series {
    of_branches: FxHashMap<u32, Steps>,
    /// What was written up to this epoch is seen by all of them or by none.
    common: u64,
}

impl Step {
    const fn is_over(&self, epoch: u64) -> bool {
        self.above < epoch && epoch <= self.upto
    }
}

impl Steps {
    fn add(&mut self, step: Step) {
        match self.ascending.last() {
            Some(last) if step.above < last.upto => self.others.push(step),
            _ => self.ascending.push(step),
        }
    }

    /// The steps at which something written in `epoch` comes or goes.
    fn at(&self, epoch: u64) -> impl Iterator<Item = usize> {
        let first = self.ascending.partition_point(|step| step.upto < epoch);
        let steps = self.ascending.get(first).into_iter().chain(&self.others);
        steps.filter(move |step| step.is_over(epoch)).map(|step| step.index)
    }
}

impl Series {
    fn of(versions: &Versions, views: &[View]) -> Result<Self> {
        let mut of_branches: FxHashMap<u32, Steps> = FxHashMap::default();
        let mut common = u64::MAX;
        for (index, pair) in (1..).zip(views.windows(2)) {
            let (before, now) = (versions.ancestry(pair[0])?, versions.ancestry(pair[1])?);
            before.differences(&now, &mut |branch, above, upto| {
                common = common.min(above);
                of_branches.entry(branch).or_default().add(Step { above, upto, index });
            });
        }
        Ok(Self { of_branches, common })
    }
}

/// As [`dendro_disk::Versions::changes_along`]: one walk over the map, which passes over the parts
/// in which nothing was written since all views have parted.
pub(crate) fn changes_along(
    volume: &Volume,
    views: &[View],
    max: usize,
) -> Result<(Vec<(usize, Lid)>, usize)> {
    let series = Series::of(volume.read().state().versions(), views)?;
    let mut found = Found { pairs: Vec::new(), end: views.len(), max };
    let mut list = Lid(0);
    let mut of_list = BTreeSet::new();
    let mut next = Key::MIN;
    let end = Key::first(Lid::CLIENT_END.0, Space::List, 0);
    if !series.of_branches.is_empty() {
        volume.walk_slices(&mut next, |engine, next, nodes| {
            views.iter().try_for_each(|view| check_all_settled(engine, *view))?;
            let mut left = STEP_LEN;
            let mut at = *next;
            let map = engine.state().map();
            let walked = map.visit_newer(next, &end, series.common, nodes, &mut |key, _| {
                at = *key;
                if left == 0 {
                    return ControlFlow::Break(());
                }
                left -= 1;
                if list != Lid(key.list) {
                    found.take(list, &mut of_list);
                    list = Lid(key.list);
                }
                if let Some(steps) = series.of_branches.get(&key.branch) {
                    of_list.extend(steps.at(key.epoch));
                }
                ControlFlow::Continue(())
            });
            // The entry that it is at may be visited once more.
            *next = at;
            walked?;
            Ok(if left > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        found.take(list, &mut of_list);
    }
    found.pairs.sort_unstable();
    Ok((found.pairs, found.end))
}

/// The changes that were found of the first views, as many as may be.
struct Found {
    pairs: Vec<(usize, Lid)>,
    end: usize,
    max: usize,
}

impl Found {
    /// Adds the changes of a list.
    fn take(&mut self, list: Lid, of_list: &mut BTreeSet<usize>) {
        let known = of_list.range(..self.end).map(|index| (*index, list));
        self.pairs.extend(known);
        of_list.clear();
        if self.pairs.len() > self.max {
            // About half of them make room for what follows.
            let mut indexes: Vec<usize> = self.pairs.iter().map(|(index, _)| *index).collect();
            let (_, middle, _) = indexes.select_nth_unstable(self.max / 2);
            self.end = *middle;
            self.pairs.retain(|(index, _)| *index < self.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::Rng;

    use super::*;

    #[test]
    fn steps_are_found_whatever_their_order() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut steps = Steps::default();
            let mut all = Vec::new();
            let mut last = 0;
            for index in 1..40 {
                let above = if rng.below(4) > 0 { last } else { rng.below(60) };
                let step = Step { above, upto: above + 1 + rng.below(5), index };
                last = step.upto;
                all.push(step);
                steps.add(step);
            }
            for epoch in 0..80 {
                let mut found: Vec<usize> = steps.at(epoch).collect();
                found.sort_unstable();
                let expected = all.iter().filter(|step| step.is_over(epoch));
                assert_eq!(
                    found,
                    expected.map(|step| step.index).collect::<Vec<_>>(),
                    "seed {seed}"
                );
            }
        }
    }
}
