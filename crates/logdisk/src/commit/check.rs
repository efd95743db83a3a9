//! Before a unit changes anything: is it sound, and is what it builds on in memory?

use std::ops::{ControlFlow, Range};

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{
    Aru, Error, GROUP_PAGES, Lid, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES, MAX_UNIT_GROUPS, Op,
};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::removal::REMOVALS_LIST;
use dendro_format::{Key, Space, Value};
use smallvec::SmallVec;

use crate::fault::{Fault, Outcome};
use crate::map::Nodes;
use crate::state::chunk_edit::Before;
use crate::state::visibility::ItemKey;
use crate::state::{State, groups, page_range, slots_of, space_end, system_key};
use crate::versions::ancestry::Ancestry;

/// Lists that the unit itself has made (true) or deleted (false), the last fact last. Few, so a
/// walk from the end beats any table.
struct Lists<'a> {
    ancestry: Ancestry<'a>,
    known: SmallVec<[(u64, bool); 4]>,
}

impl Lists<'_> {
    fn exists(&mut self, list: Lid, state: &State, nodes: &dyn Nodes) -> Outcome<bool> {
        if let Some((_, exists)) = self.known.iter().rev().find(|(known, _)| *known == list.0) {
            return Ok(*exists);
        }
        let exists = list < Lid::CLIENT_END && state.has_list(self.ancestry, list.0, nodes)?;
        self.known.push((list.0, exists));
        Ok(exists)
    }

    fn require(&mut self, list: Lid, state: &State, nodes: &dyn Nodes) -> Outcome<()> {
        if self.exists(list, state, nodes)? { Ok(()) } else { Err(Error::NoSuchList(list).into()) }
    }

    /// As [`Self::require`], when something was found that the head wrote in the list in its epoch:
    /// that is there only as long as the list is.
    fn require_of(
        &mut self,
        list: Lid,
        is_own_found: bool,
        state: &State,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let is_known = self.known.iter().any(|(known, _)| *known == list.0);
        let is_own_found = is_own_found && !state.removals.contains(list.0);
        if is_own_found && !is_known && list < Lid::CLIENT_END {
            self.known.push((list.0, true));
        }
        self.require(list, state, nodes)
    }
}

/// What is known of the page that a unit writes, if it is one and nothing else changes but records.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sole {
    /// Nothing.
    Unknown,
    /// What [`State::sole_page`] says of it.
    Looked(Option<Before>),
}

/// Says whether the unit would succeed, and looks at every node that it will change: one that
/// cannot be read is found here, before anything has changed. Tells what it has found that need not be
/// looked for again.
pub(crate) fn check(aru: &Aru<'_>, state: &State, nodes: &dyn Nodes) -> Outcome<Sole> {
    let branch = aru.view().branch;
    let ancestry = state.versions.head_ancestry(branch)?;
    let mut shared = Shared::default();
    let mut lists = Lists { ancestry, known: SmallVec::new() };
    let mut sole = Sole::Unknown;
    let mut left = GroupsLeft::of_unit();
    for (at, op) in aru.ops().iter().enumerate() {
        check_arguments(op)?;
        match op {
            Op::CreateList { list, .. } => look_at_new_list(*list, &mut lists, state, nodes)?,
            Op::DeleteList { list } => {
                lists.require(*list, state, nodes)?;
                lists.known.push((list.0, false));
                let is_made_again = aru.ops()[at + 1..]
                    .iter()
                    .any(|op| matches!(op, Op::CreateList { list: made, .. } if made == list));
                if is_made_again {
                    // All of it goes with this unit.
                    if state.has_more_entries(list.0, MAX_UNIT_GROUPS as usize, nodes)? {
                        return Err(Error::UnitTooLong.into());
                    }
                    touch_list(state, list.0, nodes)?;
                } else {
                    touch_deleted(state, ancestry, list.0, nodes)?;
                }
            }
            Op::SetHints { list, .. } => {
                lists.require(*list, state, nodes)?;
                touch_entry(state, ancestry, ItemKey::list(list.0), nodes)?;
            }
            Op::PutRecord { list, index, .. } => {
                let item = ItemKey::record(list.0, *index);
                let is_own_found = touch_put(state, ancestry, item, nodes)?;
                lists.require_of(*list, is_own_found, state, nodes)?;
            }
            Op::DeleteRecord { list, index } => {
                let item = ItemKey::record(list.0, *index);
                let is_own_found = touch_entry(state, ancestry, item, nodes)?;
                lists.require_of(*list, is_own_found, state, nodes)?;
            }
            Op::WritePages { list, first_page, data } => {
                let count = data.len().div_ceil(PAGE_SIZE) as u64;
                left.take(groups_in(*first_page, count))?;
                let is_own_found = if count == 1 {
                    let (is_own_found, found) =
                        touch_page(state, ancestry, list.0, *first_page, nodes)?;
                    sole = Sole::Looked(found);
                    is_own_found
                } else {
                    let pages = page_range(*first_page, count);
                    touch_groups(state, ancestry, list.0, pages, nodes)?
                };
                lists.require_of(*list, is_own_found, state, nodes)?;
            }
            Op::ZeroPages { list, first_page, count } => {
                left.take(groups_in(*first_page, *count))?;
                lists.require(*list, state, nodes)?;
                let pages = page_range(*first_page, *count);
                state.look_at_groups(branch, list.0, &pages, &mut GroupsLeft::of_unit(), nodes)?;
            }
            Op::PunchPages { list, first_page, count } => {
                lists.require(*list, state, nodes)?;
                let pages = page_range(*first_page, *count);
                state.look_at_groups(branch, list.0, &pages, &mut left, nodes)?;
            }
            Op::MovePages { from, from_page, to, to_page, count } => {
                lists.require(*from, state, nodes)?;
                lists.require(*to, state, nodes)?;
                let (pages, there) = (page_range(*from_page, *count), page_range(*to_page, *count));
                let is_shared = state.look_at_groups(branch, from.0, &pages, &mut left, nodes)?;
                state.look_at_groups(branch, to.0, &there, &mut left, nodes)?;
                shared.note(*from, is_shared);
            }
            Op::SwapPages { a, b } => {
                for list in [*a, *b] {
                    lists.require(list, state, nodes)?;
                    let all = 0..MAX_PAGE_COUNT;
                    let is_shared = state.look_at_groups(branch, list.0, &all, &mut left, nodes)?;
                    shared.note(list, is_shared);
                }
            }
        }
    }
    let is_record = |op: &&Op<'_>| matches!(op, Op::PutRecord { .. } | Op::DeleteRecord { .. });
    let is_alone = aru.ops().iter().filter(|op| !is_record(op)).count() == 1;
    shared.0.map_or(Ok(if is_alone { sole } else { Sole::Unknown }), Err)
}

/// Looks at what making a list changes, where that may be done.
fn look_at_new_list(
    list: Lid,
    lists: &mut Lists<'_>,
    state: &State,
    nodes: &dyn Nodes,
) -> Outcome<()> {
    let is_reserved = list < Lid::FIRST || list >= Lid::CLIENT_END;
    if is_reserved || lists.exists(list, state, nodes)? {
        return Err(Error::ListExists(list).into());
    }
    if state.removals.contains(list.0) {
        return Err(Fault::NotYetRemoved(list.0));
    }
    if state.versions.epoch() > 1 && list.0 < state.next_list {
        let is_deleted = lists.known.contains(&(list.0, false));
        let without = is_deleted.then_some(lists.ancestry.nearest().branch);
        if state.is_held(list.0, without, nodes)? {
            return Err(Error::ListExists(list).into());
        }
        // What deleted versions have left of it goes; if that is much, piece by piece.
        if !is_deleted && !state.is_small_list(list.0, nodes)? {
            return Err(Fault::NotYetRemoved(list.0));
        }
        touch_list(state, list.0, nodes)?;
    }
    lists.known.push((list.0, true));
    Ok(())
}

/// What must be copied first, once the whole unit was found to be right.
#[derive(Default)]
struct Shared(Option<Fault>);

impl Shared {
    fn note(&mut self, list: Lid, group: Option<u64>) {
        if let (None, Some(group)) = (&self.0, group) {
            self.0 = Some(Fault::Shared(list, group));
        }
    }
}

/// The interface's groups are the map's chunks.
const _: () = assert!(GROUP_PAGES == CHUNK_PAGES, "a unit is counted in what it changes");

/// How many groups of pages a unit may still change.
struct GroupsLeft(u64);

impl GroupsLeft {
    const fn of_unit() -> Self {
        Self(MAX_UNIT_GROUPS)
    }

    fn take(&mut self, count: u64) -> Result<(), Error> {
        self.0 = self.0.checked_sub(count).ok_or(Error::UnitTooLong)?;
        Ok(())
    }
}

/// The number of groups that so many pages lie in.
const fn groups_in(first_page: u64, count: u64) -> u64 {
    match count {
        0 => 0,
        count => (first_page + (count - 1)) / CHUNK_PAGES - first_page / CHUNK_PAGES + 1,
    }
}

/// Looks at all that there is of a list.
fn touch_list(state: &State, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
    let (from, to) = (Key::first(list, Space::List, 0), space_end(list, Space::Chunks));
    state.map.visit(&from, &to, nodes, &mut |_, _| ControlFlow::Continue(()))
}

/// Looks at what deleting a list changes: all that there is of it if that is little, else the entries
/// that say that it exists, and where it is named as being removed.
fn touch_deleted(
    state: &State,
    ancestry: Ancestry<'_>,
    list: u64,
    nodes: &dyn Nodes,
) -> Outcome<()> {
    touch_entry(state, ancestry, ItemKey::list(list), nodes)?;
    if !state.is_small_list(list, nodes)? {
        state.map.look(&system_key(REMOVALS_LIST, list), nodes, |_| ())?;
    }
    Ok(())
}

/// Looks at the chunks that will be written to; says whether there is one that the head has written to
/// in its epoch.
fn touch_groups(
    state: &State,
    ancestry: Ancestry<'_>,
    list: u64,
    pages: Range<u64>,
    nodes: &dyn Nodes,
) -> Outcome<bool> {
    let branch = ancestry.nearest().branch;
    let mut is_own_found = false;
    for (group, slots) in groups(pages) {
        let item = ItemKey::chunk(list, group);
        if state.has_no_past(branch, list) {
            is_own_found |= touch_entry(state, ancestry, item, nodes)?;
        } else if state.has_written(branch, item, slots.clone(), nodes)? {
            is_own_found = true;
        } else {
            state.open_group(branch, list, group, slots, nodes)?;
        }
    }
    Ok(is_own_found)
}

/// As [`touch_groups`] for one page, of which it says what [`State::sole_page`] would.
fn touch_page(
    state: &State,
    ancestry: Ancestry<'_>,
    list: u64,
    page_index: u64,
    nodes: &dyn Nodes,
) -> Outcome<(bool, Option<Before>)> {
    let branch = ancestry.nearest().branch;
    let (group, slot) = (page_index / CHUNK_PAGES, (page_index % CHUNK_PAGES) as u32);
    let item = ItemKey::chunk(list, group);
    let (is_there, sole) = state.look_at_page(branch, item, slot, nodes)?;
    if state.has_no_past(branch, list) {
        return Ok((is_there, sole));
    }
    if sole.is_none() {
        state.open_group(branch, list, group, slot..slot + 1, nodes)?;
    }
    Ok((sole.is_some(), sole))
}

/// As [`touch_entry`], for an entry that is to be put: what takes the place of the head's own needs no
/// look at any other.
fn touch_put(
    state: &State,
    ancestry: Ancestry<'_>,
    item: ItemKey,
    nodes: &dyn Nodes,
) -> Outcome<bool> {
    let is_own_found = touch_own(state, ancestry, item, nodes)?;
    if is_own_found || state.has_no_past(ancestry.nearest().branch, item.list) {
        return Ok(is_own_found);
    }
    touch_entry(state, ancestry, item, nodes)
}

/// Looks at where the head has put an entry in its epoch, or would; says whether it has.
fn touch_own(
    state: &State,
    ancestry: Ancestry<'_>,
    item: ItemKey,
    nodes: &dyn Nodes,
) -> Outcome<bool> {
    let key = item.key(ancestry.nearest().branch, state.versions.epoch());
    let is_there = |value: Option<&Value>| value.is_some_and(|value| *value != Value::Tombstone);
    state.map.look(&key, nodes, is_there)
}

/// Looks at where an entry of the head is, or will be, and at the one before; says whether the head
/// has put it in its epoch.
fn touch_entry(
    state: &State,
    ancestry: Ancestry<'_>,
    item: ItemKey,
    nodes: &dyn Nodes,
) -> Outcome<bool> {
    let (branch, epoch) = (ancestry.nearest().branch, state.versions.epoch());
    if state.has_no_past(branch, item.list) {
        return touch_own(state, ancestry, item, nodes);
    }
    let pin = state.versions.newest_pin(branch);
    let mut is_left = 2;
    let mut is_own_found = false;
    state.look_back(ancestry, item, nodes, &mut |key, value| {
        is_own_found |= (key.branch, key.epoch) == (branch, epoch) && *value != Value::Tombstone;
        is_left -= 1;
        // What a version sees stays as it is.
        if is_left == 0 || (key.branch == branch && pin >= Some(key.epoch)) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(is_own_found)
}

impl State {
    /// Looks at all groups in which the head has pages of `pages`, which are taken off those that are
    /// `left`, and tells of the first with pages that other versions see: a block is named by one entry
    /// of the map, so that they cannot be moved, and the head must have copies first.
    fn look_at_groups(
        &self,
        branch: u32,
        list: u64,
        pages: &Range<u64>,
        left: &mut GroupsLeft,
        nodes: &dyn Nodes,
    ) -> Outcome<Option<u64>> {
        let numbers = self.groups_with_pages(branch, list, pages, left.0 as usize, nodes)?;
        left.take(numbers.len() as u64)?;
        let mut shared = None;
        for number in numbers {
            let mut slots = slots_of(number, pages);
            let group = self.open_group_whole(branch, list, number, slots.clone(), nodes)?;
            if shared.is_none() && slots.any(|slot| self.is_shared(&group, slot)) {
                shared = Some(number);
            }
        }
        Ok(shared)
    }
}

fn check_arguments(op: &Op<'_>) -> Result<(), Error> {
    match op {
        Op::PutRecord { value, .. } if !(1..=MAX_RECORD_LEN_BYTES).contains(&value.len()) => {
            Err(Error::RecordTooLong(value.len()))
        }
        Op::WritePages { first_page, data, .. } => {
            check_range(*first_page, data.len().div_ceil(PAGE_SIZE) as u64)
        }
        Op::ZeroPages { first_page, count, .. } | Op::PunchPages { first_page, count, .. } => {
            check_range(*first_page, *count)
        }
        Op::MovePages { from_page, to_page, count, .. } => {
            check_range(*from_page, *count)?;
            check_range(*to_page, *count)
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_range(first_page: u64, count: u64) -> Result<(), Error> {
    match first_page.checked_add(count) {
        Some(end) if end <= MAX_PAGE_COUNT => Ok(()),
        _ => Err(Error::OutOfRange { first_page, count }),
    }
}
