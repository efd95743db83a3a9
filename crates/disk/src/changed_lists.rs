//! Which lists have changed since when, for conditions of units and for flushes of one list.

use std::collections::HashMap;

use crate::aru::{Aru, Condition, Op};
use crate::types::{CommitSeq, Lid, View};

type LastChanges = HashMap<(u32, Lid), CommitSeq>;

/// The last commits that changed lists, for as many lists as are to be remembered.
///
/// Two generations are kept: when the younger one is full, it takes the place of the older one. So
/// what changed lately is never forgotten at once.
#[derive(Debug)]
pub struct ChangedLists {
    /// How many lists a generation has at most.
    max_count: usize,
    young: LastChanges,
    /// The last commit before the younger generation began.
    young_since: CommitSeq,
    old: LastChanges,
    /// Lists of no generation have not changed since this commit.
    old_since: CommitSeq,
}

impl ChangedLists {
    /// Remembers the changes after the commit `since`, of `max_count` lists at least and of twice
    /// as many at most.
    #[must_use]
    pub fn new(since: CommitSeq, max_count: usize) -> Self {
        Self {
            max_count,
            young: HashMap::new(),
            young_since: since,
            old: HashMap::new(),
            old_since: since,
        }
    }

    /// Notes that the commit `seq`, which is the last one, made these changes in `view`.
    pub fn note(&mut self, view: View, ops: &[Op<'_>], seq: CommitSeq) {
        for op in ops {
            let (a, b) = op.lists();
            for list in [a, b] {
                self.young.insert((view.branch, list), seq);
            }
        }
        if self.young.len() > self.max_count {
            self.old = std::mem::take(&mut self.young);
            self.old_since = std::mem::replace(&mut self.young_since, seq);
        }
    }

    /// The last commit that may have changed the list; no later one has.
    #[must_use]
    pub fn last_change(&self, view: View, list: Lid) -> CommitSeq {
        let key = (view.branch, list);
        let known = self.young.get(&key).or_else(|| self.old.get(&key));
        known.copied().unwrap_or(self.old_since)
    }

    /// The first list that a condition of the unit wants unchanged, and that may have changed.
    #[must_use]
    pub fn changed(&self, aru: &Aru<'_>) -> Option<Lid> {
        aru.conditions().iter().find_map(|condition| match *condition {
            Condition::Unchanged { list, since } => {
                (self.last_change(aru.view(), list) > since).then_some(list)
            }
            Condition::RecordIs { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(changes: &mut ChangedLists, list: u64, seq: u64) {
        changes.note(View::HEAD, &[Op::DeleteList { list: Lid(list) }], CommitSeq(seq));
    }

    #[test]
    fn a_list_that_is_forgotten_counts_as_changed_and_a_late_one_is_not_forgotten() {
        let mut changes = ChangedLists::new(CommitSeq(5), 2);
        let last = |changes: &ChangedLists, list| changes.last_change(View::HEAD, Lid(list)).0;
        assert_eq!(last(&changes, 1), 5);
        (1..=7).for_each(|list| note(&mut changes, list, 10 + list));
        // The generations are 1 to 3, 4 to 6, and 7.
        let found: Vec<u64> = (1..=8).map(|list| last(&changes, list)).collect();
        assert_eq!(found, [13, 13, 13, 14, 15, 16, 17, 13]);
        let other = View { branch: 3, epoch: None };
        assert_eq!(changes.last_change(other, Lid(7)).0, 13);
    }
}
