//! Before a unit changes anything: is it sound, and is what it builds on in memory?

use std::ops::ControlFlow;

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Aru, Error, Lid, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES, Op};
use dendro_format::{Key, Space};

use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::{State, groups, key, page_range, space_end};

/// Lists that the unit itself has made (true) or deleted (false), the last fact last. Few, so a
/// walk from the end beats any table.
#[derive(Default)]
struct Lists(Vec<(u64, bool)>);

impl Lists {
    fn exists(&mut self, list: Lid, state: &State, nodes: &dyn Nodes) -> Outcome<bool> {
        if let Some((_, exists)) = self.0.iter().rev().find(|(known, _)| *known == list.0) {
            return Ok(*exists);
        }
        let exists = list < Lid::CLIENT_END && state.has_list(list.0, nodes)?;
        self.0.push((list.0, exists));
        Ok(exists)
    }

    fn require(&mut self, list: Lid, state: &State, nodes: &dyn Nodes) -> Outcome<()> {
        if self.exists(list, state, nodes)? { Ok(()) } else { Err(Error::NoSuchList(list).into()) }
    }
}

/// Says whether the unit would succeed, and looks at every node that it will change: one that
/// cannot be read is found here, before anything has changed.
pub(crate) fn check(aru: &Aru<'_>, state: &State, nodes: &dyn Nodes) -> Outcome<()> {
    let mut lists = Lists::default();
    for op in aru.ops() {
        check_arguments(op)?;
        match op {
            Op::CreateList { list, .. } => {
                let reserved = *list < Lid::FIRST || *list >= Lid::CLIENT_END;
                if reserved || lists.exists(*list, state, nodes)? {
                    return Err(Error::ListExists(*list).into());
                }
                lists.0.push((list.0, true));
            }
            Op::DeleteList { list } => {
                lists.require(*list, state, nodes)?;
                lists.0.push((list.0, false));
                touch(state, list.0, Space::List, nodes)?;
                touch(state, list.0, Space::Records, nodes)?;
                touch(state, list.0, Space::Chunks, nodes)?;
            }
            Op::SetHints { list, .. } => lists.require(*list, state, nodes)?,
            Op::PutRecord { list, index, .. } | Op::DeleteRecord { list, index } => {
                lists.require(*list, state, nodes)?;
                state.map.get(&key(list.0, Space::Records, *index), nodes)?;
            }
            Op::WritePages { list, first_page, data } => {
                lists.require(*list, state, nodes)?;
                let count = data.len().div_ceil(PAGE_SIZE) as u64;
                for (group, _) in groups(page_range(*first_page, count)) {
                    state.chunk(list.0, group, nodes)?;
                }
            }
            Op::ZeroPages { list, first_page, count }
            | Op::PunchPages { list, first_page, count } => {
                lists.require(*list, state, nodes)?;
                touch_pages(state, list.0, *first_page, *count, nodes)?;
            }
            Op::MovePages { from, from_page, to, to_page, count } => {
                lists.require(*from, state, nodes)?;
                lists.require(*to, state, nodes)?;
                touch_pages(state, from.0, *from_page, *count, nodes)?;
                touch_pages(state, to.0, *to_page, *count, nodes)?;
            }
            Op::SwapPages { a, b } => {
                lists.require(*a, state, nodes)?;
                lists.require(*b, state, nodes)?;
                touch_pages(state, a.0, 0, MAX_PAGE_COUNT, nodes)?;
                touch_pages(state, b.0, 0, MAX_PAGE_COUNT, nodes)?;
            }
        }
    }
    Ok(())
}

fn touch(state: &State, list: u64, space: Space, nodes: &dyn Nodes) -> Outcome<()> {
    let from = Key::first(list, space, 0);
    state.map.visit(&from, &space_end(list, space), nodes, &mut |_, _| ControlFlow::Continue(()))
}

fn touch_pages(state: &State, list: u64, first: u64, count: u64, nodes: &dyn Nodes) -> Outcome<()> {
    let pages = page_range(first, count);
    state.visit_chunks(list, &pages, nodes, &mut |_, _| ControlFlow::Continue(()))
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
