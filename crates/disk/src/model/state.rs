//! What a disk holds at one moment, and what operations make of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use super::scan;
use crate::parts::{PageParts, check_bytes};
use crate::{
    Error, GROUP_PAGES, Lid, ListHints, LogicalDisk, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES,
    MAX_TASKS_PUT_OFF, MAX_UNIT_GROUPS, Op, PAGE_SIZE, Record, Result, ScanPlace, ScanPoint,
    Scanned, View,
};

/// Pages that [`ModelState::read_from`] asks for in one call.
const READ_PAGE_COUNT: u64 = 64;

/// One list: its hints, records and pages.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ModelList {
    /// The bytes of records and pages. First, so that it decides most comparisons.
    live_bytes: u64,
    hints: ListHints,
    records: BTreeMap<u64, Record>,
    /// What is not a hole, without trailing zeros.
    pages: BTreeMap<u64, Arc<[u8]>>,
}

impl ModelList {
    /// Reads everything that a list holds in `view`. Nobody may change it meanwhile.
    ///
    /// # Errors
    /// As [`ModelState::read_view`].
    pub fn read_from(disk: &dyn LogicalDisk, view: View, list: Lid) -> Result<Self> {
        read_list(disk, view, list)
    }

    /// Its hints.
    #[must_use]
    pub const fn hints(&self) -> ListHints {
        self.hints
    }

    /// The record at `index`.
    #[must_use]
    pub fn record(&self, index: u64) -> Option<&Record> {
        self.records.get(&index)
    }

    /// The records from index `from` on.
    pub fn records(&self, from: u64) -> impl Iterator<Item = (u64, &Record)> {
        self.records.range(from..).map(|(&index, value)| (index, value))
    }

    /// The pages in `range` that are not holes, without their trailing zeros.
    pub fn pages(&self, range: Range<u64>) -> impl DoubleEndedIterator<Item = (u64, &[u8])> {
        // An empty map range with its ends exchanged would panic.
        let range = range.start..range.end.max(range.start);
        self.pages.range(range).map(|(&page, data)| (page, &**data))
    }

    /// What a scan comes to in this list.
    fn scanned(&self, list: Lid) -> impl Iterator<Item = Scanned> {
        let records = self.records(0).map(|(index, value)| Scanned::Record(index, value.clone()));
        let mut groups: BTreeMap<u64, u32> = BTreeMap::new();
        for page in self.pages.keys() {
            *groups.entry(page - page % GROUP_PAGES).or_default() |= 1 << (page % GROUP_PAGES);
        }
        let pages = groups.into_iter();
        let pages = pages.map(|(first_page, present)| Scanned::Pages { first_page, present });
        std::iter::once(Scanned::List(list)).chain(records).chain(pages)
    }

    /// How many pages are not holes.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    fn put_record(&mut self, index: u64, value: &[u8]) {
        self.delete_record(index);
        self.live_bytes += value.len() as u64;
        self.records.insert(index, value.into());
    }

    fn delete_record(&mut self, index: u64) {
        if let Some(old) = self.records.remove(&index) {
            self.live_bytes -= old.len() as u64;
        }
    }

    fn put_page(&mut self, page: u64, data: Arc<[u8]>) {
        self.live_bytes += data.len() as u64;
        if let Some(old) = self.pages.insert(page, data) {
            self.live_bytes -= old.len() as u64;
        }
    }

    /// Changes bytes of pages. Holes among these pages become pages.
    fn put_bytes(&mut self, offset_bytes: u64, data: &[u8]) {
        let mut at = offset_bytes;
        let mut rest = data;
        while !rest.is_empty() {
            let (page, from) = (at / PAGE_SIZE as u64, at as usize % PAGE_SIZE);
            let (bytes, others) = rest.split_at(rest.len().min(PAGE_SIZE - from));
            let mut whole = vec![0; PAGE_SIZE];
            if let Some(old) = self.pages.get(&page) {
                whole[..old.len()].copy_from_slice(old);
            }
            whole[from..from + bytes.len()].copy_from_slice(bytes);
            self.put_page(page, without_trailing_zeros(&whole).into());
            at += bytes.len() as u64;
            rest = others;
        }
    }

    /// Cuts the pages of `range` out, which leaves holes.
    fn take_pages(&mut self, range: Range<u64>) -> BTreeMap<u64, Arc<[u8]>> {
        let mut taken = self.pages.split_off(&range.start);
        let mut behind = taken.split_off(&range.end);
        self.pages.append(&mut behind);
        self.live_bytes -= taken.values().map(|data| data.len() as u64).sum::<u64>();
        taken
    }
}

impl std::fmt::Debug for ModelList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelList")
            .field("hints", &self.hints)
            .field("records", &self.records.keys())
            .field("pages", &self.pages.keys())
            .finish_non_exhaustive()
    }
}

/// What a disk holds at one moment. A clone shares everything that does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelState {
    // First, so that it decides most comparisons.
    live_bytes: u64,
    lists: BTreeMap<Lid, Arc<ModelList>>,
}

/// Makes the changes of `ops`, in their order, all or none.
///
/// # Errors
/// As [`LogicalDisk::commit`] for a unit that is wrong; `state` is as before.
pub fn apply(state: &mut ModelState, ops: &[Op<'_>]) -> Result<()> {
    state.check(ops)?;
    for op in ops {
        state.apply_checked(op);
    }
    Ok(())
}

/// The pages from `first_page` on, `count` of them.
pub(super) fn page_range(first_page: u64, count: u64) -> Result<Range<u64>> {
    match first_page.checked_add(count) {
        Some(end) if end <= MAX_PAGE_COUNT => Ok(first_page..end),
        _ => Err(Error::OutOfRange { first_page, count }),
    }
}

fn page_count_of(data: &[u8]) -> u64 {
    data.len().div_ceil(PAGE_SIZE) as u64
}

fn without_trailing_zeros(data: &[u8]) -> &[u8] {
    let len = data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &data[..len]
}

impl ModelState {
    /// A list.
    #[must_use]
    pub fn list(&self, list: Lid) -> Option<&ModelList> {
        self.lists.get(&list).map(|list| &**list)
    }

    /// The lists with numbers from `from` on.
    pub fn lists(&self, from: Lid) -> impl Iterator<Item = (Lid, &ModelList)> {
        self.lists.range(from..).map(|(&number, list)| (number, &**list))
    }

    /// How many lists there are.
    #[must_use]
    pub fn list_count(&self) -> usize {
        self.lists.len()
    }

    /// A list, shared with this state.
    pub(super) fn shared_list(&self, list: Lid) -> Option<Arc<ModelList>> {
        self.lists.get(&list).cloned()
    }

    /// The list with the highest number.
    #[must_use]
    pub fn last_list(&self) -> Option<Lid> {
        self.lists.last_key_value().map(|(&list, _)| list)
    }

    /// Bytes in records, and in pages without their trailing zeros.
    #[must_use]
    pub const fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// The address and the length of every value that takes space. Clones of a state have values
    /// that did not change at the same addresses.
    pub(super) fn values(&self) -> impl Iterator<Item = (usize, u64)> {
        self.lists
            .values()
            .flat_map(|list| list.records.values().chain(list.pages.values()))
            .filter(|value| !value.is_empty())
            .map(|value| (value.as_ptr().addr(), value.len() as u64))
    }

    /// Says whether [`apply`] would succeed.
    ///
    /// # Errors
    /// What [`apply`] would answer.
    pub fn check(&self, ops: &[Op<'_>]) -> Result<()> {
        self.check_beside(ops, &|_| false)
    }

    /// As [`Self::check`] beside other versions, which have the lists that `has_elsewhere` tells:
    /// none of those can be created.
    pub(super) fn check_beside(
        &self,
        ops: &[Op<'_>],
        has_elsewhere: &dyn Fn(Lid) -> bool,
    ) -> Result<()> {
        // Lists that the unit itself created (true) or deleted (false).
        let mut changed = BTreeMap::new();
        let mut group_count = 0;
        // The lists of which something is put off, and how many tasks that is.
        let (mut put_off, mut task_count) = (BTreeSet::new(), 0);
        // What a change touches depends on those before it.
        let mut so_far = ops.iter().any(counts_pages).then(|| self.clone());
        for op in ops {
            check_arguments(op)?;
            let groups = so_far.as_ref().unwrap_or(self).groups_changed_by(op);
            let (first, second) = op.lists();
            let must_follow = put_off.contains(&first) || put_off.contains(&second);
            let is_too_much = group_count + groups > MAX_UNIT_GROUPS;
            if is_put_off(op, must_follow, is_too_much)? {
                task_count += task_count_of(op);
                if task_count > MAX_TASKS_PUT_OFF {
                    return Err(Error::UnitTooLong);
                }
                put_off.extend([first, second]);
            } else {
                group_count += groups;
            }
            let exists = |list: &Lid, changed: &BTreeMap<Lid, bool>| {
                changed.get(list).copied().unwrap_or_else(|| self.lists.contains_key(list))
            };
            if let Op::CreateList { list, .. } | Op::RestoreList { list, .. } = op {
                let taken = !list.may_be_a_clients();
                let is_new = matches!(op, Op::CreateList { .. });
                if taken || exists(list, &changed) || is_new && has_elsewhere(*list) {
                    return Err(Error::ListExists(*list));
                }
                changed.insert(*list, true);
                so_far.iter_mut().for_each(|state| state.apply_checked(op));
                continue;
            }
            let (first, second) = op.lists();
            for list in [first, second] {
                if !exists(&list, &changed) {
                    return Err(Error::NoSuchList(list));
                }
            }
            if let Op::DeleteList { list } = op {
                changed.insert(*list, false);
            }
            so_far.iter_mut().for_each(|state| state.apply_checked(op));
        }
        Ok(())
    }

    /// How many groups of pages a change touches.
    fn groups_changed_by(&self, op: &Op<'_>) -> u64 {
        // Of pages that are not in `taken`.
        let with_pages = |list: &Lid, first: u64, count: u64, taken: Range<u64>| {
            let Some(list) = self.lists.get(list) else { return 0 };
            let mut last = None;
            let pages = list.pages.range(first..first.saturating_add(count));
            pages
                .filter(|(page, _)| !taken.contains(page))
                .filter(|(page, _)| last.replace(*page / GROUP_PAGES) != Some(*page / GROUP_PAGES))
                .count() as u64
        };
        let within = |first: u64, count: u64| match count {
            0 => 0,
            count => (first + count - 1) / GROUP_PAGES - first / GROUP_PAGES + 1,
        };
        match op {
            Op::WritePages { first_page, data, .. } => within(*first_page, page_count_of(data)),
            Op::WriteBytes { offset_bytes, data, .. } => {
                let PageParts { head, body, tail } =
                    PageParts::of(*offset_bytes, data.len() as u64);
                let edges = u64::from(head.is_some()) + u64::from(tail.is_some());
                edges + within(body.start, body.end - body.start)
            }
            Op::ZeroPages { first_page, count, .. } => within(*first_page, *count),
            Op::PunchPages { list, first_page, count } => {
                with_pages(list, *first_page, *count, 0..0)
            }
            Op::MovePages { from, from_page, to, to_page, count } => {
                let source = *from_page..from_page.saturating_add(*count);
                // Within a list, pages that were taken out need not make way.
                let taken = if from == to { source } else { 0..0 };
                with_pages(from, *from_page, *count, 0..0) + with_pages(to, *to_page, *count, taken)
            }
            Op::SwapPages { a, b } if a == b => 0,
            Op::SwapPages { a, b } => {
                let all = |list| with_pages(list, 0, MAX_PAGE_COUNT, 0..0);
                all(a) + all(b)
            }
            _ => 0,
        }
    }

    /// Makes a change that was checked.
    pub(super) fn apply_checked(&mut self, op: &Op<'_>) {
        match op {
            Op::CreateList { list, hints } | Op::RestoreList { list, hints } => {
                let created = ModelList { hints: *hints, ..ModelList::default() };
                self.lists.insert(*list, Arc::new(created));
            }
            Op::DeleteList { list } => {
                if let Some(deleted) = self.lists.remove(list) {
                    self.live_bytes -= deleted.live_bytes;
                }
            }
            Op::SetHints { list, hints } => self.change(*list, |list| list.hints = *hints),
            Op::PutRecord { list, index, value } => {
                self.change(*list, |list| list.put_record(*index, value));
            }
            Op::DeleteRecord { list, index } => {
                self.change(*list, |list| list.delete_record(*index));
            }
            Op::WritePages { list, first_page, data } => self.change(*list, |list| {
                for (page, data) in (*first_page..).zip(data.chunks(PAGE_SIZE)) {
                    list.put_page(page, without_trailing_zeros(data).into());
                }
            }),
            Op::WriteBytes { list, offset_bytes, data } => {
                self.change(*list, |list| list.put_bytes(*offset_bytes, data));
            }
            Op::ZeroPages { list, first_page, count } => self.change(*list, |list| {
                let zeros: Arc<[u8]> = [].into();
                for page in *first_page..*first_page + *count {
                    list.put_page(page, Arc::clone(&zeros));
                }
            }),
            Op::PunchPages { list, first_page, count } => {
                self.change(*list, |list| {
                    list.take_pages(*first_page..*first_page + *count);
                });
            }
            Op::MovePages { from, from_page, to, to_page, count } => {
                let mut moved = BTreeMap::new();
                self.change(*from, |list| moved = list.take_pages(*from_page..*from_page + *count));
                self.change(*to, |list| {
                    list.take_pages(*to_page..*to_page + *count);
                    for (page, data) in moved {
                        list.put_page(page - *from_page + *to_page, data);
                    }
                });
            }
            Op::SwapPages { a, b } => {
                let (mut of_a, mut of_b) = (BTreeMap::new(), BTreeMap::new());
                self.change(*a, |list| of_a = list.take_pages(0..MAX_PAGE_COUNT));
                self.change(*b, |list| of_b = list.take_pages(0..MAX_PAGE_COUNT));
                // For a list and itself, `of_b` is empty and what `of_a` holds goes back.
                for (number, pages) in [(*a, of_b), (*b, of_a)] {
                    self.change(number, |list| {
                        pages.into_iter().for_each(|(page, data)| list.put_page(page, data));
                    });
                }
            }
        }
    }

    /// Changes a list that was checked to be there, and keeps the sum of bytes.
    fn change(&mut self, number: Lid, change: impl FnOnce(&mut ModelList)) {
        let list = Arc::make_mut(self.lists.get_mut(&number).expect("the unit was checked"));
        let before = list.live_bytes;
        change(list);
        self.live_bytes = self.live_bytes - before + list.live_bytes;
    }
}

fn check_arguments(op: &Op<'_>) -> Result<()> {
    match op {
        Op::PutRecord { value, .. } if !(1..=MAX_RECORD_LEN_BYTES).contains(&value.len()) => {
            Err(Error::RecordTooLong(value.len()))
        }
        Op::WritePages { first_page, data, .. } => {
            page_range(*first_page, page_count_of(data)).map(drop)
        }
        Op::WriteBytes { offset_bytes, data, .. } => check_bytes(*offset_bytes, data).map(drop),
        Op::ZeroPages { first_page, count, .. } | Op::PunchPages { first_page, count, .. } => {
            page_range(*first_page, *count).map(drop)
        }
        Op::MovePages { from_page, to_page, count, .. } => {
            page_range(*from_page, *count)?;
            page_range(*to_page, *count).map(drop)
        }
        Op::CreateList { hints, .. }
        | Op::RestoreList { hints, .. }
        | Op::SetHints { hints, .. } => match hints.near {
            Some(near) if !near.may_be_a_clients() => Err(Error::NoSuchList(near)),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Whether a change is done after the unit has committed.
///
/// # Errors
/// [`Error::UnitTooLong`] when it should be, and cannot.
fn is_put_off(op: &Op<'_>, must_follow: bool, is_too_much: bool) -> Result<bool> {
    let is_of_pages = match op {
        Op::PunchPages { .. } | Op::MovePages { .. } | Op::SwapPages { .. } => {
            return Ok(must_follow || is_too_much);
        }
        Op::DeleteList { .. }
        | Op::WritePages { .. }
        | Op::WriteBytes { .. }
        | Op::ZeroPages { .. } => true,
        _ => false,
    };
    if is_too_much || must_follow && is_of_pages { Err(Error::UnitTooLong) } else { Ok(false) }
}

/// The tasks that a change is if it is put off.
fn task_count_of(op: &Op<'_>) -> usize {
    match op {
        Op::PunchPages { count, .. } => usize::from(*count > 0),
        Op::MovePages { count: 0, .. } => 0,
        Op::MovePages { from, from_page, to, to_page, .. } => {
            if from == to && from_page == to_page { 0 } else { 2 }
        }
        Op::SwapPages { a, b } => usize::from(a != b),
        _ => 0,
    }
}

/// Whether what a change touches depends on the pages that are there.
const fn counts_pages(op: &Op<'_>) -> bool {
    matches!(op, Op::PunchPages { .. } | Op::MovePages { .. } | Op::SwapPages { .. })
}

/// Reading a whole disk, and saying how two states differ.
impl ModelState {
    /// Reads everything that the head of branch 0 of `disk` holds. Nobody may change the disk
    /// meanwhile.
    ///
    /// # Errors
    /// As [`Self::read_view`].
    pub fn read_from(disk: &dyn LogicalDisk) -> Result<Self> {
        Self::read_view(disk, View::HEAD)
    }

    /// Reads everything that `view` holds. Nobody may change it meanwhile.
    ///
    /// # Errors
    /// What a read answers; [`Error::Corrupted`] when what two calls say does not fit together.
    pub fn read_view(disk: &dyn LogicalDisk, view: View) -> Result<Self> {
        let mut state = Self::default();
        let mut from = Lid(0);
        loop {
            let numbers = disk.lists(view, from, 50)?;
            let Some(&last) = numbers.last() else { break };
            for number in numbers {
                if number < from {
                    return Err(disagree(number, "lists() is not in order"));
                }
                from = Lid(number.0 + 1);
                let list = ModelList::read_from(disk, view, number)?;
                state.live_bytes += list.live_bytes;
                state.lists.insert(number, Arc::new(list));
            }
            from = Lid(last.0 + 1);
        }
        scan::compare(disk, view, state.lists.iter().flat_map(|(&list, of)| of.scanned(list)))?;
        Ok(state)
    }

    /// Up to `max` items of a scan from `from` on, and where it goes on.
    pub(super) fn scan(&self, from: ScanPoint, max: usize) -> (Vec<Scanned>, Option<ScanPoint>) {
        let of_list = |(list, of): (Lid, &ModelList)| {
            let all: Vec<_> = of.scanned(list).map(|item| (place_of(list, &item), item)).collect();
            all
        };
        let mut all = self.lists(from.list).flat_map(of_list).filter(|(at, _)| *at >= from);
        let items = all.by_ref().take(max).map(|(_, item)| item).collect();
        (items, all.next().map(|(at, _)| at))
    }

    /// Says in words where `self` first differs from `other`; `None` when they are equal.
    #[must_use]
    pub fn diff(&self, other: &Self) -> Option<String> {
        let numbers = self.lists.keys().chain(other.lists.keys());
        let first = numbers.filter(|list| self.lists.get(list) != other.lists.get(list)).min()?;
        match (self.list(*first), other.list(*first)) {
            (Some(left), Some(right)) => {
                Some(format!("list {first}: {}", diff_of_lists(left, right)))
            }
            (Some(left), None) => Some(format!("list {first} is only left: {left:?}")),
            (_, right) => Some(format!("list {first} is only right: {right:?}")),
        }
    }
}

const fn place_of(list: Lid, item: &Scanned) -> ScanPoint {
    let place = match item {
        Scanned::List(_) => ScanPlace::Beginning,
        Scanned::Record(index, _) => ScanPlace::Records(*index),
        Scanned::Pages { first_page, .. } => ScanPlace::Pages(*first_page),
    };
    ScanPoint { list, place }
}

fn disagree(list: Lid, what: &str) -> Error {
    Error::Corrupted(format!("list {list}: {what}"))
}

fn read_list(disk: &dyn LogicalDisk, view: View, number: Lid) -> Result<ModelList> {
    let hints = disk
        .hints(view, number)?
        .ok_or_else(|| disagree(number, "in lists() but without hints"))?;
    let mut list = ModelList { hints, ..ModelList::default() };
    let mut from = Some(0);
    while let Some(first) = from {
        let records = disk.records(view, number, first, 50)?;
        from = records.last().and_then(|&(last, _)| last.checked_add(1));
        let mut expected = first;
        for (index, value) in records {
            if index < expected {
                return Err(disagree(number, "records() is not in order"));
            }
            expected = index.saturating_add(1);
            list.put_record(index, &value);
        }
    }
    read_pages(disk, view, number, &mut list)?;
    Ok(list)
}

fn read_pages(disk: &dyn LogicalDisk, view: View, number: Lid, list: &mut ModelList) -> Result<()> {
    let mut buf = vec![0; READ_PAGE_COUNT as usize * PAGE_SIZE];
    let mut from = 0;
    while let Some(start) = disk.next_data(view, number, from)? {
        let end = disk.next_hole(view, number, start)?;
        if start < from || end <= start || end > MAX_PAGE_COUNT {
            return Err(disagree(number, &format!("data from {start} to the hole at {end}")));
        }
        for first in (start..end).step_by(READ_PAGE_COUNT as usize) {
            let count = READ_PAGE_COUNT.min(end - first);
            let buf = &mut buf[..count as usize * PAGE_SIZE];
            disk.read_pages(view, number, first, buf)?;
            for (page, data) in (first..).zip(buf.chunks(PAGE_SIZE)) {
                list.put_page(page, without_trailing_zeros(data).into());
            }
        }
        from = end;
    }
    let counted = disk.count_pages(view, number, 0..MAX_PAGE_COUNT)?;
    if counted != list.pages.len() as u64 {
        let found = list.pages.len();
        return Err(disagree(number, &format!("{found} pages found, {counted} counted")));
    }
    Ok(())
}

fn diff_of_lists(left: &ModelList, right: &ModelList) -> String {
    if left.hints != right.hints {
        return format!("hints are {:?} left and {:?} right", left.hints, right.hints);
    }
    let (what, index, left, right) = match first_difference(&left.records, &right.records) {
        Some((index, left, right)) => ("record", index, left, right),
        None => match first_difference(&left.pages, &right.pages) {
            Some((page, left, right)) => ("page", page, left, right),
            None => return "no difference".into(),
        },
    };
    let mut text = format!("{what} {index} is ");
    // Writing into a string cannot fail.
    let _ = match (left, right) {
        (Some(left), Some(right)) => {
            let same = left.iter().zip(right).take_while(|(left, right)| left == right).count();
            write!(
                text,
                "{} left and {} right, different from byte {same} on",
                describe(left),
                describe(right)
            )
        }
        (Some(left), None) => write!(text, "only left: {}", describe(left)),
        (_, right) => write!(text, "only right: {}", describe(right.unwrap_or_default())),
    };
    text
}

type Difference<'a> = (u64, Option<&'a [u8]>, Option<&'a [u8]>);

fn first_difference<'a>(
    left: &'a BTreeMap<u64, Arc<[u8]>>,
    right: &'a BTreeMap<u64, Arc<[u8]>>,
) -> Option<Difference<'a>> {
    let index = left
        .keys()
        .chain(right.keys())
        .filter(|index| left.get(index) != right.get(index))
        .min()?;
    Some((*index, left.get(index).map(|data| &**data), right.get(index).map(|data| &**data)))
}

fn describe(data: &[u8]) -> String {
    let mut text = format!("{} bytes", data.len());
    for (place, byte) in data.iter().take(8).enumerate() {
        let _ = write!(text, "{}{byte:02x}", if place == 0 { " " } else { "" });
    }
    if data.len() > 8 {
        text.push('…');
    }
    text
}
