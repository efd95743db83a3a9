//! Before a unit changes anything: is it sound, and is what it builds on in memory?

use std::ops::{ControlFlow, Range};

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Aru, Error, Lid, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES, Op};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::removal::REMOVALS_LIST;
use dendro_format::{Key, Space, Value};
use smallvec::SmallVec;

use crate::fault::{Fault, Outcome};
use crate::group::Before;
use crate::line::Thing;
use crate::lineage::Line;
use crate::map::Nodes;
use crate::state::{State, groups, page_range, slots_of, space_end, system_key};

/// Lists that the unit itself has made (true) or deleted (false), the last fact last. Few, so a
/// walk from the end beats any table.
struct Lists<'a> {
    line: Line<'a>,
    known: SmallVec<[(u64, bool); 4]>,
}

impl Lists<'_> {
    fn exists(&mut self, list: Lid, state: &State, nodes: &dyn Nodes) -> Outcome<bool> {
        if let Some((_, exists)) = self.known.iter().rev().find(|(known, _)| *known == list.0) {
            return Ok(*exists);
        }
        let exists = list < Lid::CLIENT_END && state.has_list(self.line, list.0, nodes)?;
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
    let line = state.versions.head_line(branch)?;
    let mut shared = Shared::default();
    let mut lists = Lists { line, known: SmallVec::new() };
    let mut sole = Sole::Unknown;
    for (at, op) in aru.ops().iter().enumerate() {
        check_arguments(op)?;
        match op {
            Op::CreateList { list, .. } => {
                let reserved = *list < Lid::FIRST || *list >= Lid::CLIENT_END;
                if reserved || lists.exists(*list, state, nodes)? {
                    return Err(Error::ListExists(*list).into());
                }
                let is_deleted = lists.known.contains(&(list.0, false));
                if state.removals.contains(list.0) {
                    return Err(Fault::Leftover(list.0));
                }
                let without = is_deleted.then_some(branch);
                let was_used = state.versions.epoch() > 1 && list.0 < state.next_list;
                if was_used {
                    if state.is_held(list.0, without, nodes)? {
                        return Err(Error::ListExists(*list).into());
                    }
                    // What deleted versions have left of it goes.
                    touch_list(state, list.0, nodes)?;
                }
                lists.known.push((list.0, true));
            }
            Op::DeleteList { list } => {
                lists.require(*list, state, nodes)?;
                lists.known.push((list.0, false));
                let is_made_again = aru.ops()[at + 1..]
                    .iter()
                    .any(|op| matches!(op, Op::CreateList { list: made, .. } if made == list));
                if is_made_again {
                    touch_list(state, list.0, nodes)?;
                } else {
                    touch_deleted(state, line, list.0, nodes)?;
                }
            }
            Op::SetHints { list, .. } => {
                lists.require(*list, state, nodes)?;
                touch_entry(state, line, Thing::list(list.0), nodes)?;
            }
            Op::PutRecord { list, index, .. } => {
                let thing = Thing::record(list.0, *index);
                let is_own_found = touch_put(state, line, thing, nodes)?;
                lists.require_of(*list, is_own_found, state, nodes)?;
            }
            Op::DeleteRecord { list, index } => {
                let thing = Thing::record(list.0, *index);
                let is_own_found = touch_entry(state, line, thing, nodes)?;
                lists.require_of(*list, is_own_found, state, nodes)?;
            }
            Op::WritePages { list, first_page, data } => {
                let count = data.len().div_ceil(PAGE_SIZE) as u64;
                let is_own_found = if count == 1 {
                    let (is_own_found, found) =
                        touch_page(state, line, list.0, *first_page, nodes)?;
                    sole = Sole::Looked(found);
                    is_own_found
                } else {
                    let pages = page_range(*first_page, count);
                    touch_groups(state, line, list.0, pages, nodes)?
                };
                lists.require_of(*list, is_own_found, state, nodes)?;
            }
            Op::ZeroPages { list, first_page, count }
            | Op::PunchPages { list, first_page, count } => {
                lists.require(*list, state, nodes)?;
                touch_pages(state, branch, list.0, (*first_page, *count), nodes)?;
            }
            Op::MovePages { from, from_page, to, to_page, count } => {
                lists.require(*from, state, nodes)?;
                lists.require(*to, state, nodes)?;
                shared.note(require_unshared(state, branch, *from, (*from_page, *count), nodes))?;
                touch_pages(state, branch, to.0, (*to_page, *count), nodes)?;
            }
            Op::SwapPages { a, b } => {
                lists.require(*a, state, nodes)?;
                lists.require(*b, state, nodes)?;
                let all = (0, MAX_PAGE_COUNT);
                shared.note(require_unshared(state, branch, *a, all, nodes))?;
                shared.note(require_unshared(state, branch, *b, all, nodes))?;
            }
        }
    }
    let is_record = |op: &&Op<'_>| matches!(op, Op::PutRecord { .. } | Op::DeleteRecord { .. });
    let is_alone = aru.ops().iter().filter(|op| !is_record(op)).count() == 1;
    shared.0.map_or(Ok(if is_alone { sole } else { Sole::Unknown }), Err)
}

/// What must be copied first, once the whole unit was found to be right.
#[derive(Default)]
struct Shared(Option<Fault>);

impl Shared {
    fn note(&mut self, outcome: Outcome<()>) -> Outcome<()> {
        match outcome {
            Err(fault @ Fault::Shared(..)) => {
                self.0.get_or_insert(fault);
                Ok(())
            }
            outcome => outcome,
        }
    }
}

/// Looks at all that there is of a list.
fn touch_list(state: &State, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
    let (from, to) = (Key::first(list, Space::List, 0), space_end(list, Space::Chunks));
    state.map.visit(&from, &to, nodes, &mut |_, _| ControlFlow::Continue(()))
}

/// Looks at what deleting a list changes: all that there is of it if that is little, else the entries
/// that say that it exists, and where it is named as being removed.
fn touch_deleted(state: &State, line: Line<'_>, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
    touch_entry(state, line, Thing::list(list), nodes)?;
    if !state.is_small_list(list, nodes)? {
        state.map.look(&system_key(REMOVALS_LIST, list), nodes, |_| ())?;
    }
    Ok(())
}

/// Looks at the chunks that will be written to; says whether there is one that the head has written to
/// in its epoch.
fn touch_groups(
    state: &State,
    line: Line<'_>,
    list: u64,
    pages: Range<u64>,
    nodes: &dyn Nodes,
) -> Outcome<bool> {
    let branch = line.nearest().branch;
    let mut is_own_found = false;
    for (group, slots) in groups(pages) {
        let thing = Thing::chunk(list, group);
        if state.has_no_past(branch, list) {
            is_own_found |= touch_entry(state, line, thing, nodes)?;
        } else if state.has_written(branch, thing, slots.clone(), nodes)? {
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
    line: Line<'_>,
    list: u64,
    page_index: u64,
    nodes: &dyn Nodes,
) -> Outcome<(bool, Option<Before>)> {
    let branch = line.nearest().branch;
    let (group, slot) = (page_index / CHUNK_PAGES, (page_index % CHUNK_PAGES) as u32);
    let thing = Thing::chunk(list, group);
    let (is_there, sole) = state.look_at_page(branch, thing, slot, nodes)?;
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
fn touch_put(state: &State, line: Line<'_>, thing: Thing, nodes: &dyn Nodes) -> Outcome<bool> {
    let is_own_found = touch_own(state, line, thing, nodes)?;
    if is_own_found || state.has_no_past(line.nearest().branch, thing.list) {
        return Ok(is_own_found);
    }
    touch_entry(state, line, thing, nodes)
}

/// Looks at where the head has put an entry in its epoch, or would; says whether it has.
fn touch_own(state: &State, line: Line<'_>, thing: Thing, nodes: &dyn Nodes) -> Outcome<bool> {
    let key = thing.key(line.nearest().branch, state.versions.epoch());
    let is_there = |value: Option<&Value>| value.is_some_and(|value| *value != Value::Tombstone);
    state.map.look(&key, nodes, is_there)
}

/// Looks at where an entry of the head is, or will be, and at the one before; says whether the head
/// has put it in its epoch.
fn touch_entry(state: &State, line: Line<'_>, thing: Thing, nodes: &dyn Nodes) -> Outcome<bool> {
    let (branch, epoch) = (line.nearest().branch, state.versions.epoch());
    if state.has_no_past(branch, thing.list) {
        return touch_own(state, line, thing, nodes);
    }
    let pin = state.versions.newest_pin(branch);
    let mut is_left = 2;
    let mut is_own_found = false;
    state.look_back(line, thing, nodes, &mut |key, value| {
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

fn touch_pages(
    state: &State,
    branch: u32,
    list: u64,
    (first, count): (u64, u64),
    nodes: &dyn Nodes,
) -> Outcome<()> {
    state.visit_groups(branch, list, &page_range(first, count), nodes, &mut |_, _| Ok(()))
}

/// A block is named by one entry of the map. One that other versions see cannot be moved to
/// another: the head must have a copy first.
fn require_unshared(
    state: &State,
    branch: u32,
    list: Lid,
    (first, count): (u64, u64),
    nodes: &dyn Nodes,
) -> Outcome<()> {
    let pages = page_range(first, count);
    state.visit_groups(branch, list.0, &pages, nodes, &mut |number, group| {
        let is_shared = slots_of(number, &pages).any(|slot| state.is_shared(group, slot));
        if is_shared { Err(Fault::Shared(list, number)) } else { Ok(()) }
    })
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
