//! Volumes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dendrofs::disk::{CommitSeq, Lid, Outlasts};
use dendrofs::{Compression, CreateOptions, OpenOptions, Runner};
use pyo3::prelude::*;

use crate::durability::Durability;
use crate::failure::{At, Failure, Result};
use crate::files::Files;
use crate::gate::{Gate, guarded};
use crate::lists::Lists;
use crate::stream::Stream;
use crate::unit::{Reservation, Unit};
use crate::view::{Client, Named, Quota, Space, Usage, Version, View, duration, kind_of};

/// The memory for the map unless it is given.
const CACHE_SIZE_BYTES: u64 = 64 << 20;

/// An open volume: an image file, a block device, or memory.
///
/// `with Volume.open(path) as volume:` closes it at the end. Files, units and all else that belongs
/// to it is closed with it. Any number of threads may use it.
#[pyclass(module = "dendrofs", frozen, weakref)]
pub(crate) struct Volume {
    gate: Arc<Gate>,
}

/// The threads that a volume is opened with.
fn start(volume: &dendrofs::Volume, interval: Option<Duration>) -> Result<Option<Runner>> {
    match interval {
        Some(interval) if volume.read_only_reason().is_none() => {
            Ok(Some(Runner::start_with_interval(volume, interval)?))
        }
        _ => Ok(None),
    }
}

impl Volume {
    fn new(volume: dendrofs::Volume, interval: Option<Duration>) -> Result<Self> {
        let runner = start(&volume, interval)?;
        Ok(Self { gate: Gate::new(volume, runner) })
    }
}

/// How a new volume is made.
struct Making<'a> {
    contents: &'a str,
    label: &'a str,
    segment_size_bytes: Option<u64>,
    metadata_copies: u8,
    compress: Option<&'a str>,
    open: OpenOptions,
}

impl Making<'_> {
    fn options(self) -> Result<CreateOptions> {
        let made = match self.contents {
            "files" => CreateOptions::files(),
            "lists" => CreateOptions::lists(),
            other => {
                let why = format!("'{other}': a new volume holds 'files' or 'lists'");
                return Err(Failure::value(why));
            }
        };
        let made = made.label(self.label).metadata_copies(self.metadata_copies);
        let made = match compression(self.compress)? {
            Some(compression) => made.compression(compression),
            None => made,
        };
        let made = match self.segment_size_bytes {
            Some(len_bytes) => made.segment_size_bytes(len_bytes),
            None => made,
        };
        Ok(made.open_with(self.open))
    }
}

/// The compression of a name.
fn compression(name: Option<&str>) -> Result<Option<Compression>> {
    Ok(name.map(str::parse).transpose()?)
}

/// The interval between commits; none without threads.
fn interval(threads: bool, commit_interval: f64) -> PyResult<Option<Duration>> {
    let interval = duration(commit_interval, "commit_interval")?;
    Ok(threads.then_some(interval))
}

#[pymethods]
impl Volume {
    /// Makes a volume in a new image file of `size` bytes, and opens it. `contents` is "files" or
    /// "lists". Threads write the log, clean segments, and make everything durable after each
    /// `commit_interval` seconds: so much can be missing after a crash. Without them call step()
    /// now and then. New pages are compressed as `compress` says, now and whenever the volume is
    /// opened: "lz4", "zstd", "zstd:1" to "zstd:15", or "none", which None stands for.
    #[staticmethod]
    #[pyo3(signature = (path, size, *, contents = "files", label = "", segment_size = None,
                        metadata_copies = 1, compress = None, cache_size = CACHE_SIZE_BYTES,
                        discard = true, threads = true, commit_interval = 5.0))]
    #[allow(clippy::too_many_arguments, reason = "nearly all have names, and defaults")]
    fn create(
        py: Python<'_>,
        path: PathBuf,
        size: u64,
        contents: &str,
        label: &str,
        segment_size: Option<u64>,
        metadata_copies: u8,
        compress: Option<&str>,
        cache_size: u64,
        discard: bool,
        threads: bool,
        commit_interval: f64,
    ) -> PyResult<Self> {
        let open = OpenOptions::new().cache_size_bytes(cache_size).discard(discard);
        let making = Making {
            contents,
            label,
            segment_size_bytes: segment_size,
            metadata_copies,
            compress,
            open,
        };
        let (options, interval) = (making.options()?, interval(threads, commit_interval)?);
        Ok(guarded(py, || {
            let made = dendrofs::Volume::create(&path, size, &options).at(&path)?;
            Self::new(made, interval)
        })?)
    }

    /// Makes a volume in memory, for tests, and opens it, as create() does. It is gone when it is
    /// closed.
    #[staticmethod]
    #[pyo3(signature = (size, *, contents = "files", label = "", segment_size = None,
                        metadata_copies = 1, compress = None, cache_size = CACHE_SIZE_BYTES,
                        threads = true, commit_interval = 5.0))]
    #[allow(clippy::too_many_arguments, reason = "nearly all have names, and defaults")]
    fn in_memory(
        py: Python<'_>,
        size: u64,
        contents: &str,
        label: &str,
        segment_size: Option<u64>,
        metadata_copies: u8,
        compress: Option<&str>,
        cache_size: u64,
        threads: bool,
        commit_interval: f64,
    ) -> PyResult<Self> {
        let open = OpenOptions::new().cache_size_bytes(cache_size);
        let making = Making {
            contents,
            label,
            segment_size_bytes: segment_size,
            metadata_copies,
            compress,
            open,
        };
        let (options, interval) = (making.options()?, interval(threads, commit_interval)?);
        Ok(guarded(py, || Self::new(dendrofs::Volume::in_memory(size, &options)?, interval))?)
    }

    /// Opens the volume in an image file or on a block device, or on several that it lies on, of
    /// which path is one. The others are where they were last, or block devices of this machine, or
    /// those that `devices` names. With `degraded` some may be absent: a mirrored volume is opened
    /// with those that have everything; a volume that is spread over devices can only be read then.
    /// What a crash left unfinished is finished, unless it is opened for reading. Threads are those
    /// of create(). New pages are compressed as `compress` says until the volume is closed, or with
    /// None as create() said.
    #[staticmethod]
    #[pyo3(signature = (path, *, devices = Vec::new(), degraded = false, read_only = false,
                        compress = None, cache_size = CACHE_SIZE_BYTES, discard = true,
                        threads = true, commit_interval = 5.0))]
    #[allow(clippy::too_many_arguments, reason = "nearly all have names, and defaults")]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        devices: Vec<PathBuf>,
        degraded: bool,
        read_only: bool,
        compress: Option<&str>,
        cache_size: u64,
        discard: bool,
        threads: bool,
        commit_interval: f64,
    ) -> PyResult<Self> {
        let options =
            OpenOptions::new().read_only(read_only).cache_size_bytes(cache_size).discard(discard);
        let options = devices.into_iter().fold(options.degraded(degraded), OpenOptions::device);
        let options = match compression(compress)? {
            Some(compression) => options.compression(compression),
            None => options,
        };
        let interval = interval(threads, commit_interval)?;
        Ok(guarded(py, || Self::new(dendrofs::Volume::open(&path, &options).at(&path)?, interval))?)
    }

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
        self.close(py)?;
        Ok(false)
    }

    /// Makes everything durable, ends the threads, and closes the volume with all that belongs to
    /// it. The next open() has nothing to recover. Nothing happens if it is closed already.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.gate.close(py)?)
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.gate.is_closed(py)
    }

    /// Makes everything durable that was done before, or all units up to the one with the number
    /// `commit`, which Unit.commit() has returned. Threads that wait at the same time share one
    /// flush of the device.
    ///
    /// `outlasts` says what it is to outlast: "process", the end of this process; "machine", that
    /// of the system too; "medium", the loss of a device too, for which a volume must lie on
    /// several. Less may cost less.
    #[pyo3(signature = (commit = None, *, outlasts = "machine"))]
    fn flush(&self, py: Python<'_>, commit: Option<u64>, outlasts: &str) -> PyResult<()> {
        let up_to = commit.map_or(CommitSeq::LATEST, CommitSeq);
        let outlasts = match outlasts {
            "process" => Outlasts::Process,
            "machine" => Outlasts::Machine,
            "medium" => Outlasts::Medium,
            _ => {
                let kinds = "\"process\", \"machine\" or \"medium\"";
                return Err(Failure::value(format!("outlasts is {kinds}")).into());
            }
        };
        Ok(self.gate.on(py, |volume| {
            let flushed = volume.disk().flush_for(outlasts, up_to);
            flushed.map_err(|error| Failure::when_syncing(error.into()))
        })?)
    }

    /// Returns at once an object that knows when everything that was done before is durable, or all
    /// units up to the one with the number `commit`: `await volume.when_durable()`. The threads
    /// make it durable soon; without them, step() does. At the latest it is known when the volume
    /// is closed.
    #[pyo3(signature = (commit = None))]
    fn when_durable(&self, py: Python<'_>, commit: Option<u64>) -> PyResult<Durability> {
        let up_to = commit.map_or(CommitSeq::LATEST, CommitSeq);
        Ok(Durability::of(&self.gate, py, up_to)?)
    }

    /// Makes what a list has durable. Nothing is written if it has not changed since something
    /// later became durable.
    #[pyo3(signature = (list, version = None))]
    fn flush_list(&self, py: Python<'_>, list: u64, version: Option<Named>) -> PyResult<()> {
        Ok(self.gate.on(py, |volume| {
            let view = Named::find(version, volume)?;
            let flushed = volume.disk().flush_list(view, Lid(list));
            flushed.map_err(|error| Failure::when_syncing(error.into()))
        })?)
    }

    /// The number of the last commit that is visible. What is read after this call is as old as
    /// that or newer: see Unit.require_unchanged().
    fn last_commit(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.gate.on(py, |volume| Ok(volume.disk().last_commit().0))?)
    }

    /// Does one step of the work that the threads do in the background. Returns whether there was
    /// any. A program without threads calls it when it has nothing else to do.
    fn step(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.gate.on(py, |volume| Ok(volume.step()?))?)
    }

    /// Raises the last error of the threads, unless the work has succeeded since; always if a
    /// thread has ended because of a bug.
    fn check_threads(&self, py: Python<'_>) -> PyResult<()> {
        match self.gate.background_failure(py)? {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    /// The identity, which no other volume has.
    #[getter]
    fn uuid(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.gate.on(py, |volume| Ok(volume.uuid()))?)
    }

    /// The name for people; empty if there is none.
    #[getter]
    fn label(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.gate.on(py, |volume| Ok(volume.label()))?)
    }

    /// Why it takes no changes; None if it does.
    #[getter]
    fn read_only_reason(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.gate.on(py, |volume| Ok(volume.read_only_reason()))?)
    }

    /// How its bytes are used.
    fn space(&self, py: Python<'_>) -> PyResult<Space> {
        Ok(self.gate.on(py, |volume| Ok(volume.disk().space().into()))?)
    }

    /// The head of the main branch.
    #[getter]
    fn main(&self, py: Python<'_>) -> PyResult<View> {
        Ok(self.gate.on(py, |volume| Ok(View(volume.main())))?)
    }

    /// The version of a name: the head of a "branch", or a snapshot as "@snapshot" or
    /// "branch@snapshot". A snapshot without a name is named by its epoch. Other calls take names
    /// too.
    fn view(&self, py: Python<'_>, name: &str) -> PyResult<View> {
        Ok(self.gate.on(py, |volume| Ok(View(volume.view(name)?)))?)
    }

    /// All versions: the heads of branches, then snapshots.
    fn versions(&self, py: Python<'_>) -> PyResult<Vec<Version>> {
        Ok(self.gate.on(py, |volume| Ok(Version::all(&volume.versions())))?)
    }

    /// Makes a snapshot of a branch, the main one unless another head is given. It takes some
    /// microseconds, whatever the volume holds.
    #[pyo3(signature = (name, head = None))]
    fn snapshot(&self, py: Python<'_>, name: &str, head: Option<Named>) -> PyResult<View> {
        Ok(self
            .gate
            .on(py, |volume| Ok(View(volume.snapshot_of(Named::find(head, volume)?, name)?)))?)
    }

    /// Makes a branch that starts from a version, a clone that can be changed. Returns its head.
    #[pyo3(signature = (name, start = None))]
    fn branch(&self, py: Python<'_>, name: &str, start: Option<Named>) -> PyResult<View> {
        Ok(self
            .gate
            .on(py, |volume| Ok(View(volume.branch(Named::find(start, volume)?, name)?)))?)
    }

    /// Deletes a snapshot, or the head of a branch. Its space is freed in the background.
    fn delete(&self, py: Python<'_>, version: Named) -> PyResult<()> {
        Ok(self.gate.on(py, |volume| Ok(volume.delete(Named::find(Some(version), volume)?)?))?)
    }

    /// Renames a snapshot or a branch.
    fn rename(&self, py: Python<'_>, version: Named, name: &str) -> PyResult<()> {
        Ok(self.gate.on(py, |volume| {
            Ok(volume.disk().rename(Named::find(Some(version), volume)?, name)?)
        })?)
    }

    /// Protects a snapshot from deletion, or ends that.
    #[pyo3(signature = (snapshot, is_held = true))]
    fn hold(&self, py: Python<'_>, snapshot: Named, is_held: bool) -> PyResult<()> {
        Ok(self.gate.on(py, |volume| {
            Ok(volume.disk().hold(Named::find(Some(snapshot), volume)?, is_held)?)
        })?)
    }

    /// Replaces a branch, the main one unless another head is given, by a new one that starts from
    /// the snapshot `to`, and returns the new head. All snapshots stay.
    #[pyo3(signature = (to, head = None))]
    fn roll_back(&self, py: Python<'_>, to: Named, head: Option<Named>) -> PyResult<View> {
        Ok(self.gate.on(py, |volume| {
            let (head, to) = (Named::find(head, volume)?, Named::find(Some(to), volume)?);
            Ok(View(volume.roll_back(head, to)?))
        })?)
    }

    /// Makes a branch the main one. It and the former main branch exchange their names.
    fn promote(&self, py: Python<'_>, head: Named) -> PyResult<()> {
        Ok(self.gate.on(py, |volume| Ok(volume.promote(Named::find(Some(head), volume)?)?))?)
    }

    /// Writes a snapshot as a stream to `file`, as `dendro send` does: all that it has, or what it
    /// has and the snapshot `base` has not. `file` has a function `write`, as binary files have. It
    /// is neither flushed nor closed, and must not use this volume itself. What it raises is
    /// raised. The stream is worth nothing after an error.
    #[pyo3(signature = (snapshot, file, base = None))]
    fn send(
        &self,
        py: Python<'_>,
        snapshot: Named,
        file: Py<PyAny>,
        base: Option<Named>,
    ) -> PyResult<()> {
        Ok(self.gate.on(py, |volume| {
            let snapshot = Named::find(Some(snapshot), volume)?;
            let base = base.map(|base| Named::find(Some(base), volume)).transpose()?;
            let mut stream = Stream::new(file);
            let sent = volume.send(snapshot, base, &mut stream);
            stream.ended(sent)
        })?)
    }

    /// Receives the version of a stream from `file`, as send() and `dendro send` write it, as a
    /// snapshot called `name`, or without that as it was on the volume that it was sent from. If
    /// several streams follow each other, each keeps its name, those that are here are passed over,
    /// and the last one is returned. `file` has a function `read`, as binary files have. It is read
    /// to the end of the stream and no further, and must not use this volume itself. What it raises
    /// is raised. A version that was received is durable; otherwise nothing of it is here.
    #[pyo3(signature = (file, name = None))]
    fn receive(&self, py: Python<'_>, file: Py<PyAny>, name: Option<&str>) -> PyResult<View> {
        Ok(self.gate.on(py, |volume| {
            let mut stream = Stream::new(file);
            let received = volume.receive(&mut stream, name);
            Ok(View(stream.ended(received)?))
        })?)
    }

    /// What each version takes: the snapshots and the heads of branches. It reads the whole map.
    fn usage(&self, py: Python<'_>) -> PyResult<Vec<Usage>> {
        Ok(self.gate.on(py, |volume| {
            Ok(volume.disk().version_usage()?.into_iter().map(Usage::from).collect())
        })?)
    }

    /// How many bytes deleting all of these versions would free. That can be more than their
    /// `exclusive_bytes` together, which leave out what several of them share. It reads the whole
    /// map.
    fn freed_by(&self, py: Python<'_>, versions: Vec<Named>) -> PyResult<u64> {
        Ok(self.gate.on(py, |volume| {
            let find = |version| Named::find(Some(version), volume);
            let views: Vec<_> = versions.into_iter().map(find).collect::<Result<_>>()?;
            Ok(volume.disk().freed_by(&views)?)
        })?)
    }

    /// The files of a version, the head of the main branch unless another one is given.
    #[pyo3(signature = (version = None))]
    fn files(&self, py: Python<'_>, version: Option<Named>) -> PyResult<Files> {
        let view = self.gate.on(py, |volume| Named::find(version, volume))?;
        Files::make(&self.gate, py, view)
    }

    /// The lists of a version, the head of the main branch unless another one is given.
    #[pyo3(signature = (version = None))]
    fn lists(&self, py: Python<'_>, version: Option<Named>) -> PyResult<Lists> {
        let view = self.gate.on(py, |volume| {
            let view = Named::find(version, volume)?;
            volume.versions().check(view)?;
            Ok(view)
        })?;
        Ok(Lists::new(&self.gate, view))
    }

    /// An empty unit of changes to a head, that of the main branch unless another one is given.
    #[pyo3(signature = (head = None))]
    fn unit(&self, py: Python<'_>, head: Option<Named>) -> PyResult<Unit> {
        let head = self.gate.on(py, |volume| Named::find(head, volume))?;
        Ok(Unit::new(&self.gate, head))
    }

    /// Reserves space for `size` bytes of records and pages of a later unit of changes to a head,
    /// that of the main branch unless another one is given; also in the quota of its client.
    #[pyo3(signature = (size, head = None))]
    fn reserve(&self, py: Python<'_>, size: u64, head: Option<Named>) -> PyResult<Reservation> {
        Reservation::make(&self.gate, py, size, head)
    }

    /// The clients of the volume. The one that it was made for is the first.
    fn clients(&self, py: Python<'_>) -> PyResult<Vec<Client>> {
        Ok(self
            .gate
            .on(py, |volume| Ok(volume.clients()?.into_iter().map(Client::from).collect()))?)
    }

    /// Makes a client beside the one that the volume was made for, which keeps "files" or "lists",
    /// and returns the head of its branch, which has the same name.
    #[pyo3(signature = (name, kind = "files"))]
    fn create_client(&self, py: Python<'_>, name: &str, kind: &str) -> PyResult<View> {
        let kind = kind_of(kind)?;
        Ok(self.gate.on(py, |volume| Ok(View(volume.create_client(name, kind)?)))?)
    }

    /// Makes a client that is a block device of size bytes, a multiple of 4,096, all zeros, and
    /// returns the head of its branch, which has the same name. Its contents are the pages of
    /// ROOT_LIST; record 0 of that list describes the device, and is not to be changed.
    fn create_block_device(&self, py: Python<'_>, name: &str, size: u64) -> PyResult<View> {
        Ok(self.gate.on(py, |volume| Ok(View(volume.create_block_device(name, size)?)))?)
    }

    /// The size of the block device that a version is, in bytes.
    fn block_device_size(&self, py: Python<'_>, version: Named) -> PyResult<u64> {
        Ok(self.gate.on(py, |volume| {
            let version = Named::find(Some(version), volume)?;
            Ok(volume.block_device_len_bytes(version)?)
        })?)
    }

    /// The quota of the client that a version belongs to, the head of the main branch unless
    /// another one is given. None if it has no quota, or if it is not known what it uses: a volume
    /// that is opened for reading does not count that where a crash has left it open.
    #[pyo3(signature = (version = None))]
    fn quota(&self, py: Python<'_>, version: Option<Named>) -> PyResult<Option<Quota>> {
        Ok(self.gate.on(py, |volume| {
            let version = Named::find(version, volume)?;
            Ok(volume.quota(version)?.map(Quota::from))
        })?)
    }

    /// Bounds what all versions of a client take together by `size` bytes, or takes the bound away
    /// if that is None. The client is that of a version, the head of the main branch unless another
    /// one is given. Changes that would exceed the quota raise `OverQuotaError`.
    #[pyo3(signature = (size, version = None))]
    fn set_quota(&self, py: Python<'_>, size: Option<u64>, version: Option<Named>) -> PyResult<()> {
        Ok(self.gate.on(py, |volume| Ok(volume.set_quota(Named::find(version, volume)?, size)?))?)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let known = self.gate.on(py, |volume| Ok((volume.label(), volume.uuid())));
        match known {
            Ok((label, uuid)) if label.is_empty() => format!("<Volume {uuid}>"),
            Ok((label, uuid)) => format!("<Volume '{label}' {uuid}>"),
            Err(_) => "<Volume, closed>".into(),
        }
    }
}
