//! Applies a stream to a disk, whole or not at all.
//!
//! A version is received into a branch of its own, which starts from this disk's copy of the base.
//! When the end of the stream was read and is right, one change makes a snapshot of the branch.
//! Until then nobody can name what was received, and after a crash it is deleted
//! ([`abandon`]).

use std::io::Read;
use std::ops::{ControlFlow, Range};

use dendro_base::Uuid;
use dendro_disk::{
    Aru, Branch, CommitSeq, Error, GROUP_PAGES, Lid, ListHints, Op, PAGE_SIZE, Snapshot,
    VersionTable, Versions, View, check_name,
};
use dendro_stream::{Decoder, Header, Item, ListChange, StreamError, Version};

use crate::origin;

/// How much a unit writes.
const UNIT_LEN_BYTES: usize = 1 << 20;
/// How many changes a unit has.
const UNIT_OPS: usize = 1024;
/// How many pages one change writes, zeroes or punches.
const UNIT_PAGES: u64 = 256 * GROUP_PAGES;
const RUN_LEN_BYTES: usize = 256 * PAGE_SIZE;

/// Why a version was not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The stream is wrong.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The disk does not have the base.
    #[error("the stream begins with {}, which is not here; receive that first", called(.0))]
    NoBase(Box<Version>),
    /// The disk has the version.
    #[error("the snapshot is here, as {}", .0.title())]
    IsHere(Box<Snapshot>),
    /// The base had a list of this number once, and has it no more: the version does not descend
    /// from the base, or has lists of another volume.
    #[error(
        "the number of list {0}, which is new, is in use in the history of the snapshot that the \
         stream begins with; send all of the snapshot, without a base"
    )]
    NumberInUse(Lid),
    /// The disk refuses a change.
    #[error("list {list}: {error}")]
    List {
        /// The list that is changed.
        list: Lid,
        /// Why it cannot be changed.
        error: Error,
    },
    /// The disk refuses a version.
    #[error(transparent)]
    Disk(#[from] Error),
    /// The caller ended it.
    #[error("it was interrupted")]
    Interrupted,
}

fn called(version: &Version) -> String {
    let name = version.name.as_ref().map_or_else(String::new, |name| format!("@{name}, "));
    format!("{name}{}", version.origin)
}

/// Deletes what a crash has left of versions that were not received completely. No version may be
/// received meanwhile.
///
/// # Errors
/// As [`Versions::delete`].
pub fn abandon(disk: &dyn Versions) -> Result<(), Error> {
    let table = disk.versions();
    table
        .branches()
        .filter(|branch| branch.is_receiving())
        .map(Branch::head)
        .try_for_each(|head| disk.delete(head))
}

/// Receives the version of a stream into `disk`, the volume `volume`, as a snapshot called `name`,
/// or as it was called there. It is durable when this returns. `go_on` is asked between pieces,
/// with the number of bytes of the stream that were read.
///
/// # Errors
/// [`ReceiveError`]; nothing has changed then that anybody sees.
pub fn receive<R: Read>(
    disk: &dyn Versions,
    volume: Uuid,
    decoder: &mut Decoder<R>,
    name: Option<&str>,
    go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Snapshot, ReceiveError> {
    let header = decoder.header().clone();
    let name = name.or(header.version.name.as_deref());
    let base = prepare(&disk.versions(), volume, &header, name)?;
    let head = disk.begin_receive(base)?.head();
    let received = Receiver::new(disk, head).take_all(decoder, go_on).and_then(|()| {
        let Version { origin, time, .. } = header.version;
        Ok(disk.end_receive(head.branch, name, origin, time)?)
    });
    match received {
        Ok(snapshot) => {
            disk.flush(CommitSeq::LATEST)?;
            Ok(snapshot)
        }
        Err(error) => {
            // If that fails, whoever opens the disk next does it.
            let _ = disk.delete(head);
            Err(error)
        }
    }
}

/// Checks what can be checked before the stream is read. Returns the disk's copy of the base.
fn prepare(
    table: &VersionTable,
    volume: Uuid,
    header: &Header,
    name: Option<&str>,
) -> Result<Option<View>, ReceiveError> {
    let find = |version: &Version| {
        table.snapshots().find(|snapshot| origin(volume, snapshot) == version.origin)
    };
    if let Some(snapshot) = find(&header.version) {
        return Err(ReceiveError::IsHere(Box::new(snapshot.clone())));
    }
    if let Some(name) = name {
        check_name(name)?;
        if table.snapshot_named(name).is_some() {
            return Err(Error::NameTaken(name.to_owned()).into());
        }
    }
    match &header.base {
        None => Ok(None),
        Some(base) => match find(base) {
            Some(snapshot) => Ok(Some(snapshot.view())),
            None => Err(ReceiveError::NoBase(Box::new(base.clone()))),
        },
    }
}

/// What a stream does to a branch, as units.
struct Receiver<'d> {
    disk: &'d dyn Versions,
    head: View,
    /// The present list.
    list: Lid,
    unit: Aru<'static>,
    /// What the unit writes.
    unit_len_bytes: usize,
    unit_groups: u64,
    /// Pages that follow each other: the first one, and their bytes.
    run: Option<(u64, Vec<u8>)>,
}

impl<'d> Receiver<'d> {
    fn new(disk: &'d dyn Versions, head: View) -> Self {
        let unit = Aru::new(head);
        Self { disk, head, list: Lid(0), unit, unit_len_bytes: 0, unit_groups: 0, run: None }
    }

    fn take_all<R: Read>(
        mut self,
        decoder: &mut Decoder<R>,
        go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), ReceiveError> {
        let mut read_bytes = decoder.read_bytes();
        while let Some(item) = decoder.next_item()? {
            self.take(&item)?;
            // Once for each frame.
            if decoder.read_bytes() != read_bytes {
                read_bytes = decoder.read_bytes();
                if go_on(read_bytes).is_break() {
                    return Err(ReceiveError::Interrupted);
                }
            }
        }
        self.end_run()?;
        self.commit()
    }

    /// An error of the disk about the present list.
    const fn wrong(&self, error: Error) -> ReceiveError {
        ReceiveError::List { list: self.list, error }
    }

    fn take(&mut self, item: &Item<'_>) -> Result<(), ReceiveError> {
        if let Item::Page { page_index, bytes } = item {
            return self.take_page(*page_index, bytes);
        }
        self.end_run()?;
        match item {
            Item::List { list, change, hints } => {
                self.take_list(Lid(*list), *change, ListHints::from_bits(*hints))
            }
            Item::Record { index, value: Some(value) } => {
                let (list, index, value) = (self.list, *index, value.to_vec());
                self.push(value.len(), 0, Op::PutRecord { list, index, value: value.into() })
            }
            Item::Record { index, value: None } => {
                let op = Op::DeleteRecord { list: self.list, index: *index };
                self.push(0, 0, op)
            }
            Item::Zeros(pages) => self.zero(pages.clone()),
            Item::Holes(pages) => self.punch(pages.clone()),
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
        match change {
            ListChange::Made => self.push(0, 0, Op::CreateList { list, hints }),
            ListChange::Deleted => self.push(0, 0, Op::DeleteList { list }),
            ListChange::Changed => {
                // The list is in the base, and nothing in this stream has changed it so far.
                let now = self.disk.hints(self.head, list).map_err(|error| self.wrong(error))?;
                let now = now.ok_or_else(|| self.wrong(Error::NoSuchList(list)))?;
                match now == hints {
                    true => Ok(()),
                    false => self.push(0, 0, Op::SetHints { list, hints }),
                }
            }
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

    fn zero(&mut self, pages: Range<u64>) -> Result<(), ReceiveError> {
        let list = self.list;
        let mut first_page = pages.start;
        while first_page < pages.end {
            let count = (pages.end - first_page).min(UNIT_PAGES);
            let groups = count / GROUP_PAGES + 2;
            self.push(0, groups, Op::ZeroPages { list, first_page, count })?;
            first_page += count;
        }
        Ok(())
    }

    /// Makes holes, step by step, as a unit may change a bounded number of groups that have pages.
    fn punch(&mut self, pages: Range<u64>) -> Result<(), ReceiveError> {
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
