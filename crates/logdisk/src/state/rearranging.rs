//! A step of a rearrangement: some of its pages are punched, moved or exchanged.
//!
//! Each task goes through the groups of its range in the order in which nothing is in the way of
//! what moves: upwards, or downwards where pages of a list move up. So what is left of a task is
//! the rest of its range.

use std::ops::{ControlFlow, Range};

use dendro_disk::Error;
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::rearrangement::{REARRANGEMENT_INDEX, Task};
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{Key, Record, Space};

use crate::fault::{Fault, Outcome};
use crate::map::Nodes;
use crate::state::State;
use crate::state::pages::ChunkBudget;
use crate::versions::rearrangement::Rearrangement;

/// What a step did: the records of its changes, and what is left to be done.
pub(crate) struct Rearranged {
    pub(crate) records: Vec<Record<'static>>,
    pub(crate) rest: Option<Rearrangement>,
}

/// What a task did with a window of its range: how many groups it changed, and the record of that.
struct Advance {
    groups: u64,
    record: Record<'static>,
}

impl State {
    /// Whether the pages of `list` at the head of `branch` are being rearranged, so that nobody
    /// may see them.
    #[inline]
    pub(crate) fn is_rearranged(&self, branch: u32, list: u64) -> bool {
        self.versions.rearrangement().is_some_and(|of| of.concerns(branch, list))
    }

    /// Whether tasks change no more groups of the head of `branch` than `budget` has.
    pub(crate) fn are_short(
        &self,
        branch: u32,
        tasks: impl Iterator<Item = Task>,
        mut budget: ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        for task in tasks {
            for (list, pages) in task.changed() {
                match self.chunks_with_pages(branch, list, &pages, &mut budget, nodes) {
                    Err(Fault::Error(Error::UnitTooLong)) => return Ok(false),
                    counted => drop(counted?),
                }
            }
        }
        Ok(true)
    }

    /// The number of pages of a group at the head of `branch` that must be copied before they
    /// move.
    pub(crate) fn shared_count(
        &self,
        branch: u32,
        list: u64,
        group: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<u64> {
        let slots = 0..CHUNK_PAGES as u32;
        let edit = self.edit_chunk_whole(branch, list, group, slots.clone(), nodes)?;
        Ok(slots.filter(|slot| self.is_shared(&edit, *slot)).count() as u64)
    }

    /// Enters what is left of a rearrangement in the map. What [`Self::is_rearranged`] answers
    /// changes with [`Self::set_rearrangement`], which cannot be undone.
    pub(crate) fn put_rearrangement(
        &mut self,
        rest: Option<&Rearrangement>,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let record = rest.map(Rearrangement::encode);
        self.put_system_record(VERSIONS_LIST, REARRANGEMENT_INDEX, record.as_deref(), nodes)
    }

    /// Continues a rearrangement in memory, on a volume to which nothing is written any more.
    pub(crate) fn rearrange_in_memory(
        &mut self,
        rearrangement: &Rearrangement,
        most_groups: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        self.is_in_memory_only = true;
        let done = self.rearrange(rearrangement, most_groups, nodes)?;
        self.set_rearrangement(done.rest);
        Ok(())
    }

    /// Notes what is left of a rearrangement, which the map and the log have.
    pub(crate) fn set_rearrangement(&mut self, rest: Option<Rearrangement>) {
        self.versions.set_rearrangement(rest);
    }

    /// Continues `rearrangement` by about `most_groups` groups of pages.
    pub(crate) fn rearrange(
        &mut self,
        rearrangement: &Rearrangement,
        most_groups: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<Rearranged> {
        let branch = rearrangement.branch;
        let mut tasks = rearrangement.tasks.clone();
        let mut records = Vec::new();
        let mut left = most_groups;
        while left > 0
            && let Some(task) = tasks.first_mut()
        {
            if !self.has_lists_of(branch, task, nodes)? {
                // Only a damaged volume names lists that are not there.
                tasks.remove(0);
                continue;
            }
            match self.advance(branch, task, left, nodes)? {
                None => drop(tasks.remove(0)),
                Some(Advance { groups, record }) => {
                    // A window in which there is nothing takes a search all the same.
                    left = left.saturating_sub(groups.max(1));
                    if groups > 0 {
                        records.push(record);
                    }
                }
            }
        }
        let rest = (!tasks.is_empty()).then_some(Rearrangement { branch, tasks });
        self.put_rearrangement(rest.as_ref(), nodes)?;
        Ok(Rearranged { records, rest })
    }

    fn has_lists_of(&self, branch: u32, task: &Task, nodes: &dyn Nodes) -> Outcome<bool> {
        if !self.versions.table().has_head(branch) {
            return Ok(false);
        }
        let ancestry = self.versions.head_ancestry(branch)?;
        let (a, b) = task.lists();
        Ok(self.has_list(ancestry, a, nodes)? && self.has_list(ancestry, b, nodes)?)
    }

    /// Does the next window of a task, of at most `most_groups` groups. `None`: nothing is left.
    fn advance(
        &mut self,
        branch: u32,
        task: &mut Task,
        most_groups: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<Option<Advance>> {
        let budget = &mut ChunkBudget::unlimited();
        match task {
            Task::Punch { list, first_page, count } => {
                let pages = *first_page..*first_page + *count;
                let next = self.next_group(*list, &pages, nodes)?;
                let Some(window) = next.map(|next| upwards(&pages, next, most_groups)) else {
                    return Ok(None);
                };
                let groups = self.punch_pages(branch, *list, window.clone(), budget, nodes)?;
                let (list, first) = (*list, window.start);
                (*first_page, *count) = (window.end, pages.end - window.end);
                let count = window.end - first;
                Ok(Some(Advance {
                    groups,
                    record: Record::PunchPages { list, first_page: first, count },
                }))
            }
            Task::Shift { from, from_page, to, to_page, count } => {
                let pages = *from_page..*from_page + *count;
                let goes_down = from == to && to_page > from_page;
                let next = match goes_down {
                    true => self.last_group(*from, &pages, nodes)?,
                    false => self.next_group(*from, &pages, nodes)?,
                };
                let window = next.map(|next| match goes_down {
                    true => downwards(&pages, next, most_groups),
                    false => upwards(&pages, next, most_groups),
                });
                let Some(window) = window else { return Ok(None) };
                let here = *to_page + (window.start - pages.start);
                let len = window.end - window.start;
                let places = ((*from, window.start), (*to, here));
                let groups = self.move_pages(branch, places.0, places.1, len, budget, nodes)?;
                let record = Record::MovePages {
                    from: *from,
                    from_page: window.start,
                    to: *to,
                    to_page: here,
                    count: len,
                };
                if goes_down {
                    *count = window.start - pages.start;
                } else {
                    *to_page += window.end - pages.start;
                    (*from_page, *count) = (window.end, pages.end - window.end);
                }
                Ok(Some(Advance { groups, record }))
            }
            Task::Swap { a, b, first_page, count } => {
                let pages = *first_page..*first_page + *count;
                let next =
                    [self.next_group(*a, &pages, nodes)?, self.next_group(*b, &pages, nodes)?];
                let next = next.into_iter().flatten().min();
                let Some(window) = next.map(|next| upwards(&pages, next, most_groups.div_ceil(2)))
                else {
                    return Ok(None);
                };
                let (a, b) = (*a, *b);
                let groups = self.swap_pages(branch, (a, b), &window, budget, nodes)?;
                (*first_page, *count) = (window.end, pages.end - window.end);
                let (first_page, count) = (window.start, window.end - window.start);
                Ok(Some(Advance { groups, record: Record::SwapRange { a, b, first_page, count } }))
            }
        }
    }

    /// The first group with a page in `pages` of which the map has something, in whatever version.
    fn next_group(&self, list: u64, pages: &Range<u64>, nodes: &dyn Nodes) -> Outcome<Option<u64>> {
        let (from, to) = keys_of(list, pages);
        let mut found = None;
        self.map.visit(&from, &to, nodes, &mut |key, _| {
            found = Some(key.index);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// The last one.
    fn last_group(&self, list: u64, pages: &Range<u64>, nodes: &dyn Nodes) -> Outcome<Option<u64>> {
        let (from, to) = keys_of(list, pages);
        let last = self.map.last_between(&from, &to, nodes)?;
        // The key behind the range belongs to the next group.
        Ok(last.filter(|key| key.index < to.index).map(|key| key.index))
    }
}

/// The keys between which the groups of these pages lie.
fn keys_of(list: u64, pages: &Range<u64>) -> (Key, Key) {
    let (first, end) = (pages.start / CHUNK_PAGES, pages.end.div_ceil(CHUNK_PAGES));
    let end = if pages.is_empty() { first } else { end };
    (Key::first(list, Space::Chunks, first), Key::first(list, Space::Chunks, end))
}

/// The part of `pages` in the `most_groups` groups from `group` on.
fn upwards(pages: &Range<u64>, group: u64, most_groups: u64) -> Range<u64> {
    let end = (group + most_groups) * CHUNK_PAGES;
    pages.start.max(group * CHUNK_PAGES)..pages.end.min(end)
}

/// The part of `pages` in the `most_groups` groups up to `group`.
fn downwards(pages: &Range<u64>, group: u64, most_groups: u64) -> Range<u64> {
    let start = (group + 1).saturating_sub(most_groups) * CHUNK_PAGES;
    pages.start.max(start)..pages.end.min((group + 1) * CHUNK_PAGES)
}
