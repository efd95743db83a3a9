//! Applies what a stream has to a branch that receives.
//!
//! What is applied twice makes no difference: lists that were made already are not made again,
//! lists that are gone are not deleted again, and records, pages and holes are put as they are to
//! be.

use std::ops::{ControlFlow, Range};

use dendro_disk::{Aru, Error, GROUP_PAGES, Lid, ListHints, Op, PAGE_SIZE, Versions, View};
use dendro_stream::{Item, ListChange, Position};

use crate::error::ReceiveError;

/// How much a unit writes.
const UNIT_LEN_BYTES: usize = 1 << 20;
/// How many changes a unit has.
const UNIT_OPS: usize = 1024;
/// How many pages one change writes, zeroes or punches.
const UNIT_PAGES: u64 = 256 * GROUP_PAGES;
const RUN_LEN_BYTES: usize = 256 * PAGE_SIZE;

/// What a stream does to a branch, as units.
pub(crate) struct Applier<'d> {
    disk: &'d dyn Versions,
    head: View,
    /// Whether a part of what comes may have been applied before.
    is_again: bool,
    /// The present list.
    list: Lid,
    /// Behind what was taken last.
    position: Position,
    unit: Aru<'static>,
    /// What the unit writes.
    unit_len_bytes: usize,
    unit_groups: u64,
    /// Pages that follow each other: the first one, and their bytes.
    run: Option<(u64, Vec<u8>)>,
}

impl<'d> Applier<'d> {
    pub(crate) fn new(disk: &'d dyn Versions, head: View) -> Self {
        Self {
            disk,
            head,
            is_again: false,
            list: Lid(0),
            position: Position::START,
            unit: Aru::new(head),
            unit_len_bytes: 0,
            unit_groups: 0,
            run: None,
        }
    }

    /// The same for a branch that may have a part of what comes.
    pub(crate) fn again(disk: &'d dyn Versions, head: View) -> Self {
        Self { is_again: true, ..Self::new(disk, head) }
    }

    pub(crate) const fn head(&self) -> View {
        self.head
    }

    /// Behind what was taken last.
    pub(crate) const fn position(&self) -> Position {
        self.position
    }

    /// Commits all that was taken.
    pub(crate) fn settle(&mut self) -> Result<(), ReceiveError> {
        self.end_run()?;
        self.commit()
    }

    /// An error of the disk about the present list.
    const fn wrong(&self, error: Error) -> ReceiveError {
        ReceiveError::List { list: self.list, error }
    }

    /// Takes an item, which follows those that were taken. `go_on` is asked between its steps, of
    /// which pages of zeros and holes may have any number.
    pub(crate) fn take(
        &mut self,
        item: &Item<'_>,
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), ReceiveError> {
        self.apply(item, go_on)?;
        let behind = |is_in_pages, index| Position { list: self.list.0, is_in_pages, index };
        self.position = match item {
            Item::List { .. } => behind(false, 0),
            Item::Record { index, .. } => match index.checked_add(1) {
                Some(next) => behind(false, next),
                None => behind(true, 0),
            },
            Item::Page { page_index, .. } => behind(true, page_index + 1),
            Item::Zeros(pages) | Item::Holes(pages) => behind(true, pages.end),
        };
        Ok(())
    }

    fn apply(
        &mut self,
        item: &Item<'_>,
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), ReceiveError> {
        if let Item::Page { page_index, bytes } = item {
            return self.take_page(*page_index, bytes);
        }
        self.end_run()?;
        match item {
            Item::List { list, change, hints, near } => {
                self.take_list(Lid(*list), *change, ListHints::from_parts(*hints, *near))
            }
            Item::Record { index, value: Some(value) } => {
                let (list, index, value) = (self.list, *index, value.to_vec());
                self.push(value.len(), 0, Op::PutRecord { list, index, value: value.into() })
            }
            Item::Record { index, value: None } => {
                let op = Op::DeleteRecord { list: self.list, index: *index };
                self.push(0, 0, op)
            }
            Item::Zeros(pages) => self.zero(pages.clone(), go_on),
            Item::Holes(pages) => self.punch(pages.clone(), go_on),
            Item::Page { .. } => Ok(()),
        }
    }

    fn take_list(
        &mut self,
        list: Lid,
        change: ListChange,
        hints: ListHints,
    ) -> Result<(), ReceiveError> {
        self.list = list;
        if self.is_again {
            let is_there = self.present_hints(list)?.is_some();
            match change {
                ListChange::Made if is_there => return self.set_hints(list, hints),
                ListChange::Deleted if !is_there => return Ok(()),
                _ => {}
            }
        }
        match change {
            ListChange::Made => self.push(0, 0, Op::CreateList { list, hints }),
            ListChange::Deleted => self.push(0, 0, Op::DeleteList { list }),
            ListChange::Changed => self.set_hints(list, hints),
        }
    }

    /// The hints of a list that nothing in this stream has changed so far.
    fn present_hints(&self, list: Lid) -> Result<Option<ListHints>, ReceiveError> {
        self.disk.hints(self.head, list).map_err(|error| self.wrong(error))
    }

    fn set_hints(&mut self, list: Lid, hints: ListHints) -> Result<(), ReceiveError> {
        let now = self.present_hints(list)?.ok_or_else(|| self.wrong(Error::NoSuchList(list)))?;
        match now == hints {
            true => Ok(()),
            false => self.push(0, 0, Op::SetHints { list, hints }),
        }
    }

    fn take_page(&mut self, page_index: u64, bytes: &[u8]) -> Result<(), ReceiveError> {
        if let Some((first_page, data)) = &mut self.run {
            let next = *first_page + data.len().div_ceil(PAGE_SIZE) as u64;
            if next == page_index && data.len() < RUN_LEN_BYTES {
                data.resize(data.len().next_multiple_of(PAGE_SIZE), 0);
                data.extend_from_slice(bytes);
                return Ok(());
            }
        }
        self.end_run()?;
        self.run = Some((page_index, bytes.to_vec()));
        Ok(())
    }

    /// Writes the pages that follow each other.
    fn end_run(&mut self) -> Result<(), ReceiveError> {
        let Some((first_page, data)) = self.run.take() else { return Ok(()) };
        let groups = data.len().div_ceil(PAGE_SIZE) as u64 / GROUP_PAGES + 2;
        let list = self.list;
        self.push(data.len(), groups, Op::WritePages { list, first_page, data: data.into() })
    }

    fn zero(
        &mut self,
        pages: Range<u64>,
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), ReceiveError> {
        let list = self.list;
        let mut first_page = pages.start;
        while first_page < pages.end {
            let count = (pages.end - first_page).min(UNIT_PAGES);
            let groups = count / GROUP_PAGES + 2;
            self.push(0, groups, Op::ZeroPages { list, first_page, count })?;
            first_page += count;
            if first_page < pages.end && go_on().is_break() {
                return Err(ReceiveError::Interrupted);
            }
        }
        Ok(())
    }

    /// Makes holes, step by step, as a unit may change a bounded number of groups that have pages.
    fn punch(
        &mut self,
        pages: Range<u64>,
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), ReceiveError> {
        self.commit()?;
        let (disk, list) = (self.disk, self.list);
        let mut from = pages.start;
        loop {
            let next = disk.next_data(self.head, list, from).map_err(|error| self.wrong(error))?;
            let Some(first_page) = next.filter(|page| *page < pages.end) else { return Ok(()) };
            let count = (pages.end - first_page).min(UNIT_PAGES);
            let groups = count / GROUP_PAGES + 2;
            self.push(0, groups, Op::PunchPages { list, first_page, count })?;
            from = first_page + count;
            if go_on().is_break() {
                return Err(ReceiveError::Interrupted);
            }
        }
    }

    /// Adds a change that writes so many bytes and changes so many groups.
    fn push(&mut self, len_bytes: usize, groups: u64, op: Op<'static>) -> Result<(), ReceiveError> {
        let is_full = self.unit_len_bytes + len_bytes > UNIT_LEN_BYTES
            || self.unit_groups + groups > 2 * UNIT_PAGES / GROUP_PAGES
            || self.unit.ops().len() >= UNIT_OPS;
        if is_full {
            self.commit()?;
        }
        self.unit.push(op);
        self.unit_len_bytes += len_bytes;
        self.unit_groups += groups;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), ReceiveError> {
        let unit = std::mem::replace(&mut self.unit, Aru::new(self.head));
        (self.unit_len_bytes, self.unit_groups) = (0, 0);
        if unit.ops().is_empty() {
            return Ok(());
        }
        match self.disk.commit(unit) {
            Ok(_) => Ok(()),
            Err(Error::ListExists(list)) => Err(ReceiveError::NumberInUse(list)),
            Err(error) => Err(self.wrong(error)),
        }
    }
}
