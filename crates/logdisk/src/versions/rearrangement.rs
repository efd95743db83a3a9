//! What is left to be done of a unit that was too long to be done at once.

use std::ops::Range;

use dendro_disk::Op;
use dendro_format::chunk::MAX_PAGE_COUNT;
use dendro_format::rearrangement::{self, Task};

/// A rearrangement: pages of the head of a branch that are punched, moved or exchanged in steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rearrangement {
    pub(crate) branch: u32,
    /// What is left to be done, the next task first; at least one.
    pub(crate) tasks: Vec<Task>,
}

impl Rearrangement {
    /// Whether it concerns the pages of `list` at the head of `branch`. Nobody may see them until
    /// it is finished.
    pub(crate) fn concerns(&self, branch: u32, list: u64) -> bool {
        self.branch == branch && names(&self.tasks, list)
    }

    /// The record of what is left.
    pub(crate) fn encode(&self) -> Vec<u8> {
        rearrangement::encode(self.branch, &self.tasks)
    }
}

/// Whether one of `tasks` concerns `list`.
pub(crate) fn names(tasks: &[Task], list: u64) -> bool {
    tasks.iter().any(|task| {
        let (a, b) = task.lists();
        a == list || b == list
    })
}

/// The tasks that an operation consists of: none if it changes nothing, or cannot be done in steps.
pub(crate) fn tasks_of(op: &Op<'_>) -> impl Iterator<Item = Task> {
    let range = |first: u64, count: u64| first..first.saturating_add(count);
    let punch = |list, pages: Range<u64>| {
        let (first_page, count) = (pages.start, pages.end.saturating_sub(pages.start));
        (count > 0).then_some(Task::Punch { list, first_page, count })
    };
    let tasks = match *op {
        Op::PunchPages { list, first_page, count } => {
            [punch(list.0, range(first_page, count)), None, None]
        }
        Op::MovePages { from, from_page, to, to_page, count } => {
            let (there, here) = (range(from_page, count), range(to_page, count));
            let is_nothing = count == 0 || from == to && from_page == to_page;
            let (from, to) = (from.0, to.0);
            let shift = Task::Shift { from, from_page, to, to_page, count };
            // What moves away by itself need not make way.
            let stays = match from == to {
                false => here,
                true if to_page < from_page => here.start..here.end.min(there.start),
                true => here.start.max(there.end)..here.end,
            };
            if is_nothing { [None; 3] } else { [punch(to, stays), Some(shift), None] }
        }
        Op::SwapPages { a, b } if a != b => {
            let swap = Task::Swap { a: a.0, b: b.0, first_page: 0, count: MAX_PAGE_COUNT };
            [Some(swap), None, None]
        }
        _ => [None; 3],
    };
    tasks.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_disk::Lid;

    #[test]
    fn a_move_makes_way_where_its_own_pages_do_not_come_from() {
        let (a, b) = (Lid(1), Lid(2));
        let tasks = |to, to_page| {
            tasks_of(&Op::MovePages { from: a, from_page: 10, to, to_page, count: 5 })
                .collect::<Vec<_>>()
        };
        let shift = |to, to_page| Task::Shift { from: 1, from_page: 10, to, to_page, count: 5 };
        let punch = |list, first_page, count| Task::Punch { list, first_page, count };
        assert_eq!(tasks(b, 10), [punch(2, 10, 5), shift(2, 10)]);
        assert_eq!(tasks(a, 7), [punch(1, 7, 3), shift(1, 7)]);
        assert_eq!(tasks(a, 12), [punch(1, 15, 2), shift(1, 12)]);
        assert_eq!(tasks(a, 2), [punch(1, 2, 5), shift(1, 2)]);
        assert_eq!(tasks(a, 30), [punch(1, 30, 5), shift(1, 30)]);
        assert_eq!(tasks(a, 10), []);
    }
}
