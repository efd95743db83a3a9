//! The lists of a version.

use std::sync::Arc;

use dendrofs::disk::{self, GROUP_PAGES, Lid, ListCompression, Locality, PAGE_SIZE, PageRange};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::{Target, read_bytes};
use crate::failure::{Failure, Result};
use crate::gate::Gate;
use crate::items::Items;
use crate::view::View;

/// How many items are read at a time.
const BATCH: usize = 256;

/// What calls say of how the pages of a list are compressed.
const COMPRESSIONS: [(&str, ListCompression); 4] = [
    ("default", ListCompression::AsOthers),
    ("none", ListCompression::Never),
    ("lz4", ListCompression::Lz4),
    ("zstd", ListCompression::Zstd),
];

/// The compression that a call names.
pub(crate) fn compression_of(name: &str) -> Result<ListCompression> {
    let found = COMPRESSIONS.iter().find(|(of, _)| *of == name).map(|(_, found)| *found);
    found.ok_or_else(|| {
        let why = "a list is compressed with 'zstd', 'lz4' or 'none', or as by 'default'; the \
                   level is that of the volume";
        Failure::value(format!("'{name}': {why}"))
    })
}

/// The lists of one version. A list has records, and pages of PAGE_SIZE bytes, both with an index.
///
/// Each call reads one state of the version. They are changed by units: Volume.unit().
#[pyclass(module = "dendrofs", frozen)]
pub(crate) struct Lists {
    gate: Arc<Gate>,
    view: disk::View,
}

impl Lists {
    pub(crate) fn new(gate: &Arc<Gate>, view: disk::View) -> Self {
        Self { gate: Arc::clone(gate), view }
    }

    /// Reads pages into `buf`, which has whole ones.
    fn read_into(&self, py: Python<'_>, list: u64, first_page: u64, buf: &mut [u8]) -> Result<()> {
        self.gate
            .on(py, |volume| Ok(volume.disk().read_pages(self.view, Lid(list), first_page, buf)?))
    }
}

/// The index behind the last one of a batch; None if there is none.
fn behind<T>(batch: &[T], index: impl FnOnce(&T) -> u64) -> Option<u64> {
    batch.last().map(index)?.checked_add(1)
}

#[pymethods]
impl Lists {
    /// The version.
    #[getter]
    const fn view(&self) -> View {
        View(self.view)
    }

    /// The numbers of all lists from `start` on.
    #[pyo3(signature = (start = 0))]
    fn numbers(&self, start: u64) -> Items {
        let (gate, view, mut next) = (Arc::clone(&self.gate), self.view, Some(start));
        Items::new(move |py| {
            let Some(from) = next else { return Ok(Vec::new()) };
            let batch = gate.on(py, |volume| Ok(volume.disk().lists(view, Lid(from), BATCH)?))?;
            next = behind(&batch, |list| list.0);
            batch.into_iter().map(|list| list.0.into_py_any(py)).collect()
        })
    }

    fn __iter__(&self) -> Items {
        self.numbers(0)
    }

    /// Whether there is a list.
    fn __contains__(&self, py: Python<'_>, list: u64) -> PyResult<bool> {
        let hints = self.gate.on(py, |volume| Ok(volume.disk().hints(self.view, Lid(list))?))?;
        Ok(hints.is_some())
    }

    /// Whether a list is meant to be read from one end to the other; None without such a list.
    fn is_clustered(&self, py: Python<'_>, list: u64) -> PyResult<Option<bool>> {
        let hints = self.gate.on(py, |volume| Ok(volume.disk().hints(self.view, Lid(list))?))?;
        Ok(hints.map(|hints| hints.locality == Locality::Clustered))
    }

    /// The list that a list is near; None without one, or without such a list.
    fn near(&self, py: Python<'_>, list: u64) -> PyResult<Option<u64>> {
        let hints = self.gate.on(py, |volume| Ok(volume.disk().hints(self.view, Lid(list))?))?;
        Ok(hints.and_then(|hints| hints.near).map(|near| near.0))
    }

    /// How the pages of a list are compressed when they are written: with "zstd" or "lz4", with
    /// "none", or by "default" as those of lists for which nothing else is said. None without such
    /// a list.
    fn compression(&self, py: Python<'_>, list: u64) -> PyResult<Option<&'static str>> {
        let hints = self.gate.on(py, |volume| Ok(volume.disk().hints(self.view, Lid(list))?))?;
        let name = |hints: disk::ListHints| {
            COMPRESSIONS.iter().find(|(_, of)| *of == hints.compression).map(|(name, _)| *name)
        };
        Ok(hints.and_then(name))
    }

    /// The record at `index`, or None.
    fn record<'py>(
        &self,
        py: Python<'py>,
        list: u64,
        index: u64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let found =
            self.gate.on(py, |volume| Ok(volume.disk().record(self.view, Lid(list), index)?))?;
        Ok(found.map(|record| PyBytes::new(py, &record)))
    }

    /// The records from index `start` on, as pairs of an index and bytes.
    #[pyo3(signature = (list, start = 0))]
    fn records(&self, list: u64, start: u64) -> Items {
        let (gate, view, mut next) = (Arc::clone(&self.gate), self.view, Some(start));
        Items::new(move |py| {
            let Some(from) = next else { return Ok(Vec::new()) };
            let batch =
                gate.on(py, |volume| Ok(volume.disk().records(view, Lid(list), from, BATCH)?))?;
            next = behind(&batch, |(index, _)| *index);
            let pair = |(index, record): (u64, disk::Record)| {
                (index, PyBytes::new(py, &record)).into_py_any(py)
            };
            batch.into_iter().map(pair).collect()
        })
    }

    /// The bytes of `count` pages from `first_page` on; holes are zeros.
    #[pyo3(signature = (list, first_page, count = 1))]
    fn read_pages<'py>(
        &self,
        py: Python<'py>,
        list: u64,
        first_page: u64,
        count: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let len = count.checked_mul(PAGE_SIZE).filter(|len| isize::try_from(*len).is_ok());
        let len = len.ok_or_else(|| Failure::value(format!("{count} pages are too many")))?;
        read_bytes(py, len, |buf| {
            self.read_into(py, list, first_page, buf)?;
            Ok(len)
        })
    }

    /// The bytes of the pages of several ranges, one after the other: each is a list, a first page
    /// and a count. What lies on the device is read together.
    fn read_scattered<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(u64, u64, u64)>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let range = |(list, first_page, count)| PageRange { list: Lid(list), first_page, count };
        let ranges: Vec<_> = ranges.into_iter().map(range).collect();
        let len_bytes = PageRange::len_bytes_of(&ranges);
        let len = isize::try_from(len_bytes).map(|len| len as usize);
        let len = len.map_err(|_| Failure::value(format!("{len_bytes} bytes are too many")))?;
        read_bytes(py, len, |buf| {
            self.gate
                .on(py, |volume| Ok(volume.disk().read_scattered(self.view, &ranges, buf)?))?;
            Ok(len)
        })
    }

    /// Fills `buffer`, which has whole pages, with the pages from `first_page` on.
    fn read_pages_into(
        &self,
        py: Python<'_>,
        list: u64,
        first_page: u64,
        buffer: Target<'_>,
    ) -> PyResult<()> {
        let len = buffer.len_bytes();
        if !len.is_multiple_of(PAGE_SIZE) {
            let what = format!("a buffer of {len} bytes has no whole pages of {PAGE_SIZE}");
            return Err(Failure::value(what).into());
        }
        let bytes = read_bytes(py, len, |buf| {
            self.read_into(py, list, first_page, buf)?;
            Ok(len)
        })?;
        buffer.fill(bytes)
    }

    /// The first page at or after `start` that is not a hole, or None.
    #[pyo3(signature = (list, start = 0))]
    fn next_data(&self, py: Python<'_>, list: u64, start: u64) -> PyResult<Option<u64>> {
        Ok(self
            .gate
            .on(py, |volume| Ok(volume.disk().next_data(self.view, Lid(list), start)?))?)
    }

    /// The first page at or after `start` that is a hole.
    #[pyo3(signature = (list, start = 0))]
    fn next_hole(&self, py: Python<'_>, list: u64, start: u64) -> PyResult<u64> {
        Ok(self
            .gate
            .on(py, |volume| Ok(volume.disk().next_hole(self.view, Lid(list), start)?))?)
    }

    /// How many pages from `start` on and before `stop` are not holes.
    #[pyo3(signature = (list, start = 0, stop = disk::MAX_PAGE_COUNT))]
    fn count_pages(&self, py: Python<'_>, list: u64, start: u64, stop: u64) -> PyResult<u64> {
        let range = start..stop.max(start);
        Ok(self
            .gate
            .on(py, |volume| Ok(volume.disk().count_pages(self.view, Lid(list), range)?))?)
    }

    /// The numbers of the lists in which this version and `other` may differ.
    fn changed_lists(&self, other: &View) -> Items {
        let (gate, a, b, mut next) = (Arc::clone(&self.gate), self.view, other.0, Some(0));
        Items::new(move |py| {
            let Some(from) = next else { return Ok(Vec::new()) };
            let batch =
                gate.on(py, |volume| Ok(volume.disk().changed_lists(a, b, Lid(from), BATCH)?))?;
            next = behind(&batch, |list| list.0);
            batch.into_iter().map(|list| list.0.into_py_any(py)).collect()
        })
    }

    /// The indexes of the records of `list` in which this version and `other` may differ. Both have
    /// the list.
    fn changed_records(&self, other: &View, list: u64) -> Items {
        let (gate, a, b, mut next) = (Arc::clone(&self.gate), self.view, other.0, Some(0));
        Items::new(move |py| {
            let Some(from) = next else { return Ok(Vec::new()) };
            let batch = gate.on(py, |volume| {
                Ok(volume.disk().changed_records(a, b, Lid(list), from, BATCH)?)
            })?;
            next = behind(&batch, |index| *index);
            batch.into_iter().map(|index| index.into_py_any(py)).collect()
        })
    }

    /// The pages of `list` in which this version and `other` may differ, as pairs of the first one
    /// and the one behind the last. Both have the list. A pair may continue the one before.
    fn changed_pages(&self, other: &View, list: u64) -> Items {
        let (gate, a, b, mut next) = (Arc::clone(&self.gate), self.view, other.0, 0);
        Items::new(move |py| {
            let found =
                gate.on(py, |volume| Ok(volume.disk().changed_pages(a, b, Lid(list), next)?))?;
            let Some(range) = found else { return Ok(Vec::new()) };
            debug_assert!(range.end - range.start <= GROUP_PAGES);
            next = range.end;
            Ok(vec![(range.start, range.end).into_py_any(py)?])
        })
    }

    fn __repr__(&self) -> String {
        format!("<Lists of the {}>", self.view)
    }
}
