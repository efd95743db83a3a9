//! All versions of a disk, in an order in which a receiver can have them.

use std::collections::BTreeSet;

use dendro_disk::{Snapshot, VersionTable};

/// Sends all snapshots, the oldest first, each from the newest one of its past that was sent. So
/// what they share is sent once.
///
/// Snapshots may be deleted while this goes on, except the last one, after which nothing follows.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The epochs of the snapshots that are still to be sent, the last one first.
    left: Vec<u64>,
    sent: BTreeSet<u64>,
}

/// What is sent next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// A snapshot.
    pub of: Snapshot,
    /// The snapshot that it is sent from; `None`: all of it is sent.
    pub base: Option<Snapshot>,
    /// Whether another one follows.
    pub is_followed: bool,
}

impl Plan {
    /// All snapshots of `table`.
    #[must_use]
    pub fn new(table: &VersionTable) -> Self {
        let epochs: BTreeSet<u64> = table.snapshots().map(|snapshot| snapshot.epoch).collect();
        Self { left: epochs.into_iter().rev().collect(), sent: BTreeSet::new() }
    }

    /// The same without those before the snapshot of `epoch`: they were sent earlier.
    #[must_use]
    pub fn beginning_with(mut self, epoch: u64) -> Self {
        let earlier = self.left.extract_if(.., |of| *of < epoch);
        self.sent.extend(earlier);
        self
    }

    /// What is sent next, of what `table` still has. A step that was returned counts as sent.
    /// `None`: nothing, or the last one is gone.
    pub fn next_step(&mut self, table: &VersionTable) -> Option<Step> {
        loop {
            let epoch = self.left.pop()?;
            let Some(of) = table.snapshot_at(epoch) else { continue };
            let past = table.past(of.view()).into_iter();
            let base = past.filter(|of| self.sent.contains(&of.epoch)).max_by_key(|of| of.epoch);
            let (of, base) = (of.clone(), base.cloned());
            self.sent.insert(epoch);
            return Some(Step { of, base, is_followed: !self.left.is_empty() });
        }
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::Timestamp;

    use super::*;

    #[test]
    fn each_version_is_sent_from_the_newest_one_of_its_past() {
        let time = Timestamp(0);
        let mut table = VersionTable::new(time);
        let make = |table: &mut VersionTable, branch| table.snapshot(branch, None, time).unwrap();
        let a = make(&mut table, 0);
        let b = make(&mut table, 0);
        let branch = table.branch_off(a.view(), "branch", time).unwrap().branch;
        let c = make(&mut table, branch);
        let d = make(&mut table, 0);
        let e = make(&mut table, branch);
        let steps = |table: &VersionTable, mut plan: Plan| {
            let steps = std::iter::from_fn(|| plan.next_step(table));
            steps.map(|step| (step.of.epoch, step.base.map(|base| base.epoch))).collect::<Vec<_>>()
        };
        let pair = |of: &Snapshot, base: &Snapshot| (of.epoch, Some(base.epoch));
        let all = [(a.epoch, None), pair(&b, &a), pair(&c, &a), pair(&d, &b), pair(&e, &c)];
        assert_eq!(steps(&table, Plan::new(&table)), all);
        assert_eq!(steps(&table, Plan::new(&table).beginning_with(d.epoch)), all[3..]);
        // One is deleted before its turn, and one after it.
        let mut plan = Plan::new(&table);
        let first = plan.next_step(&table).unwrap();
        assert!(first.is_followed);
        table.delete(a.view()).unwrap();
        table.delete(c.view()).unwrap();
        let rest = [(b.epoch, None), pair(&d, &b), (e.epoch, None)];
        assert_eq!(steps(&table, plan.clone()), rest);
        while let Some(step) = plan.next_step(&table) {
            assert_eq!(step.is_followed, step.of != e);
        }
    }
}
