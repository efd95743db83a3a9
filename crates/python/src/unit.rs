//! Atomic recovery units, and reservations.

use std::mem;
use std::sync::Arc;

use dendrofs::disk::{self, Aru, CommitSeq, Condition, Lid, ListHints, Locality, Op};
use dendrofs::given_hints;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::buffer::Data;
use crate::failure::{Failure, Result};
use crate::gate::{Gate, Slot};
use crate::lists::compression_of;
use crate::view::{Named, View};

/// A change of a unit.
enum Change {
    Pages { list: Lid, first_page: u64, data: Data },
    Bytes { list: Lid, offset_bytes: u64, data: Data },
    Other(Op<'static>),
}

/// What a unit has collected.
#[derive(Default)]
struct Collected {
    changes: Vec<Change>,
    conditions: Vec<Condition>,
    reservation: Option<disk::Reservation>,
    reclaims: bool,
    last_commit: Option<u64>,
}

/// An atomic recovery unit: changes to one version that take effect together, or never.
///
/// `with volume.unit() as unit:` commits it at the end, and drops its changes if there is an
/// exception. Without `with`, call commit(). A unit has no effect before it is committed. Any
/// number can be under construction at a time, and several threads may add to one.
#[pyclass(module = "dendrofs", frozen)]
pub(crate) struct Unit {
    gate: Arc<Gate>,
    head: disk::View,
    collected: Mutex<Collected>,
}

/// The hints that a call names of a list.
struct Hints<'a> {
    clustered: Option<bool>,
    near: Option<u64>,
    compress: Option<&'a str>,
}

impl Hints<'_> {
    /// The hints of a list that has `hints` without these.
    fn over(&self, mut hints: ListHints) -> Result<ListHints> {
        if let Some(clustered) = self.clustered {
            hints.locality = if clustered { Locality::Clustered } else { Locality::AsWritten };
        }
        if let Some(near) = self.near {
            hints.near = (near != 0).then_some(Lid(near));
        }
        if let Some(name) = self.compress {
            hints.compression = compression_of(name)?;
        }
        Ok(hints)
    }
}

impl Unit {
    pub(crate) fn new(gate: &Arc<Gate>, head: disk::View) -> Self {
        Self { gate: Arc::clone(gate), head, collected: Mutex::default() }
    }

    fn add(&self, op: Op<'static>) {
        self.collected.lock().changes.push(Change::Other(op));
    }

    /// The hints that a list has behind the changes of the unit.
    fn hints(&self, py: Python<'_>, list: Lid) -> Result<ListHints> {
        let collected = self.collected.lock();
        let given = given_hints(
            collected.changes.iter().filter_map(|change| match change {
                Change::Other(op) => Some(op),
                _ => None,
            }),
            list,
        );
        // The lock is not held without Python's global lock.
        drop(collected);
        match given {
            Some(given) => Ok(given),
            None => self
                .gate
                .on(py, |volume| Ok(volume.disk().hints(self.head, list)?.unwrap_or_default())),
        }
    }
}

#[pymethods]
impl Unit {
    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        exception: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        match exception.is_none() {
            true => drop(self.commit(py)?),
            false => self.clear(),
        }
        Ok(false)
    }

    /// Makes the changes, in their order, all or none, and returns the number of the commit, for
    /// Volume.flush(). When it returns, all threads see them. They are durable after a flush.
    ///
    /// The unit is empty afterwards. If it fails, nothing was changed, and the unit is as it was.
    /// ChangedError says that a condition of it does not hold.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let mut collected = self.collected.lock();
        let changes = mem::take(&mut collected.changes);
        let conditions = mem::take(&mut collected.conditions);
        let (reservation, reclaims) =
            (collected.reservation.take(), mem::take(&mut collected.reclaims));
        // The lock is not held without Python's global lock.
        drop(collected);
        let mut aru = Aru::new(self.head);
        for change in &changes {
            match change {
                Change::Pages { list, first_page, data } => {
                    aru.write_pages(*list, *first_page, data.bytes(py))
                }
                Change::Bytes { list, offset_bytes, data } => {
                    aru.write_bytes(*list, *offset_bytes, data.bytes(py))
                }
                Change::Other(op) => aru.push(op.clone()),
            };
        }
        if let Some(reservation) = reservation {
            aru.use_reservation(reservation);
        }
        if reclaims {
            aru.set_reclaims();
        }
        for condition in &conditions {
            match condition.clone() {
                Condition::RecordIs { list, index, value } => {
                    aru.require_record(list, index, value)
                }
                Condition::Unchanged { list, since } => aru.require_unchanged(list, since),
            };
        }
        let done = self.gate.on(py, |volume| Ok(volume.disk().try_commit(&mut aru)?));
        let reservation = aru.take_reservation();
        drop(aru);
        let mut collected = self.collected.lock();
        match done {
            Ok(commit) => {
                collected.last_commit = Some(commit.0);
                Ok(commit.0)
            }
            Err(error) => {
                collected.changes.splice(0..0, changes);
                collected.conditions.splice(0..0, conditions);
                collected.reservation = collected.reservation.take().or(reservation);
                collected.reclaims |= reclaims;
                Err(error.into())
            }
        }
    }

    /// Drops all changes and conditions, and a reservation.
    fn clear(&self) {
        let mut collected = self.collected.lock();
        let (changes, reservation) =
            (mem::take(&mut collected.changes), collected.reservation.take());
        collected.reclaims = false;
        collected.conditions.clear();
        drop(collected);
        drop((changes, reservation));
    }

    /// Requires that a record has these bytes when the unit is committed, or with None that there
    /// is no such record. Otherwise commit() raises ChangedError and changes nothing.
    fn require_record(&self, list: u64, index: u64, data: Option<Vec<u8>>) {
        let value = data.map(Into::into);
        let condition = Condition::RecordIs { list: Lid(list), index, value };
        self.collected.lock().conditions.push(condition);
    }

    /// Requires that no unit has named the list since the commit `since`, which was
    /// Volume.last_commit() before the list was read. Otherwise commit() raises ChangedError and
    /// changes nothing. Very many changes of other lists may have the same effect.
    fn require_unchanged(&self, list: u64, since: u64) {
        let condition = Condition::Unchanged { list: Lid(list), since: CommitSeq(since) };
        self.collected.lock().conditions.push(condition);
    }

    /// The number of the last commit; None before the first.
    #[getter]
    fn last_commit(&self) -> Option<u64> {
        self.collected.lock().last_commit
    }

    /// How many changes it has.
    fn __len__(&self) -> usize {
        self.collected.lock().changes.len()
    }

    /// A unit is true even if it is empty.
    fn __bool__(&self) -> bool {
        true
    }

    /// Creates an empty list, and returns its number: `list`, or one that nobody has. A list that
    /// is `clustered` is meant to be read from one end to the other. Lists that are `near` the same
    /// list, and that list, are laid down together when their pages are moved. With `compress`,
    /// pages of the list are compressed with "zstd" or "lz4" when they are written, or with "none";
    /// by "default" they are compressed as those of lists for which nothing else is said.
    #[pyo3(signature = (list = None, *, clustered = false, near = None, compress = "default"))]
    fn create_list(
        &self,
        py: Python<'_>,
        list: Option<u64>,
        clustered: bool,
        near: Option<u64>,
        compress: &str,
    ) -> PyResult<u64> {
        let named = Hints { clustered: Some(clustered), near, compress: Some(compress) };
        let hints = named.over(ListHints::default())?;
        let list = match list {
            Some(list) => list,
            None => self.gate.on(py, |volume| Ok(volume.disk().allocate_list()?))?.0,
        };
        self.add(Op::CreateList { list: Lid(list), hints });
        Ok(list)
    }

    /// Deletes a list with all that it has.
    fn delete_list(&self, list: u64) {
        self.add(Op::DeleteList { list: Lid(list) });
    }

    /// Says how a list is meant to be read, which one it is near, and how it is compressed, as
    /// create_list() does. With `near` 0 it is near none. What is None stays as it is at the time
    /// of this call.
    #[pyo3(signature = (list, *, clustered = None, near = None, compress = None))]
    fn set_hints(
        &self,
        py: Python<'_>,
        list: u64,
        clustered: Option<bool>,
        near: Option<u64>,
        compress: Option<&str>,
    ) -> PyResult<()> {
        let list = Lid(list);
        let hints = Hints { clustered, near, compress }.over(self.hints(py, list)?)?;
        self.add(Op::SetHints { list, hints });
        Ok(())
    }

    /// Puts a record of 1 to MAX_RECORD_SIZE bytes in place of the one at `index`, if there is one.
    fn put_record(&self, py: Python<'_>, list: u64, index: u64, data: Data) {
        self.add(Op::PutRecord { list: Lid(list), index, value: data.bytes(py).into() });
    }

    /// Deletes the record at `index`. Without one, nothing happens.
    fn delete_record(&self, list: u64, index: u64) {
        self.add(Op::DeleteRecord { list: Lid(list), index });
    }

    /// Writes `data` to the pages from `first_page` on. Zeros fill the rest of the last page. A
    /// `bytes` object is not copied.
    fn write_pages(&self, list: u64, first_page: u64, data: Data) {
        let change = Change::Pages { list: Lid(list), first_page, data };
        self.collected.lock().changes.push(change);
    }

    /// Writes `data` from byte `offset` on, counted from the start of page 0. What else these pages
    /// hold stays, and no other unit's change comes between. A `bytes` object is not copied.
    fn write_bytes(&self, list: u64, offset: u64, data: Data) {
        let change = Change::Bytes { list: Lid(list), offset_bytes: offset, data };
        self.collected.lock().changes.push(change);
    }

    /// Makes `count` pages zeros, and no holes: there is room for them from then on.
    fn zero_pages(&self, list: u64, first_page: u64, count: u64) {
        self.add(Op::ZeroPages { list: Lid(list), first_page, count });
    }

    /// Makes `count` pages holes.
    fn punch_pages(&self, list: u64, first_page: u64, count: u64) {
        self.add(Op::PunchPages { list: Lid(list), first_page, count });
    }

    /// Moves `count` pages, with holes, to another list or within one. What the source does not
    /// share with the destination becomes holes.
    fn move_pages(&self, list: u64, first_page: u64, to: u64, to_page: u64, count: u64) {
        let (from, to) = (Lid(list), Lid(to));
        self.add(Op::MovePages { from, from_page: first_page, to, to_page, count });
    }

    /// Exchanges all pages of two lists. Their records stay.
    fn swap_pages(&self, list: u64, other: u64) {
        self.add(Op::SwapPages { a: Lid(list), b: Lid(other) });
    }

    /// Says that the unit frees space. It may then use what a full volume keeps for that.
    fn set_reclaims(&self) {
        self.collected.lock().reclaims = true;
    }

    /// Makes the unit use reserved space, which belongs to it from then on. A reservation that it
    /// was to use before is released.
    fn use_reservation(&self, py: Python<'_>, reservation: &Reservation) -> PyResult<()> {
        if !Arc::ptr_eq(&self.gate, reservation.0.gate()) {
            return Err(Failure::value("the reservation is of another volume").into());
        }
        let taken = reservation.0.on(py, |reserved| Ok(reserved.lock().take()))?;
        let taken = taken.ok_or_else(|| Failure::value("a unit has the reservation"))?;
        let before = self.collected.lock().reservation.replace(taken);
        drop(before);
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<Unit of {} changes to the {}>", self.__len__(), View(self.head).0)
    }
}

/// Space that is reserved for a later unit. `with volume.reserve(n) as reservation:` releases it at
/// the end, unless a unit has it.
#[pyclass(module = "dendrofs", frozen)]
pub(crate) struct Reservation(Slot<Mutex<Option<disk::Reservation>>>);

impl Reservation {
    pub(crate) fn make(
        gate: &Arc<Gate>,
        py: Python<'_>,
        len_bytes: u64,
        head: Option<Named>,
    ) -> PyResult<Self> {
        let made = Slot::make(gate, py, "reservation is", |volume| {
            let head = Named::find(head, volume)?;
            volume.versions().check(head)?;
            Ok(Mutex::new(Some(volume.disk().reserve_in(head, len_bytes)?)))
        });
        Ok(Self(made?))
    }
}

#[pymethods]
impl Reservation {
    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _exception: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.0.close(py)?;
        Ok(false)
    }

    /// Releases the space, unless a unit has it.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.0.close(py)?)
    }
}
