//! Versions, and how calls name them.

use dendrofs::{ClientKind, disk};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::{Failure, Result};

/// A version of a volume: the head of a branch, which can be changed, or a snapshot.
#[pyclass(module = "dendrofs", frozen, eq, hash)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View(pub(crate) disk::View);

#[pymethods]
impl View {
    /// The number of the branch.
    #[getter]
    const fn branch(&self) -> u32 {
        self.0.branch
    }

    /// The epoch of a snapshot; None for a head.
    #[getter]
    const fn epoch(&self) -> Option<u64> {
        self.0.epoch
    }

    /// Whether it is the head of a branch.
    #[getter]
    const fn is_head(&self) -> bool {
        self.0.epoch.is_none()
    }

    fn __repr__(&self) -> String {
        format!("<View: {}>", self.0)
    }
}

/// How a call names a version: a `View`, or a name.
pub(crate) enum Named {
    View(disk::View),
    Name(String),
}

impl<'py> FromPyObject<'_, 'py> for Named {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(view) = object.cast::<View>() {
            return Ok(Self::View(view.get().0));
        }
        Ok(Self::Name(object.extract::<String>()?))
    }
}

impl Named {
    /// The version that `named` stands for: the head of the main branch if there is none.
    pub(crate) fn find(named: Option<Self>, volume: &dendrofs::Volume) -> Result<disk::View> {
        match named {
            None => Ok(volume.main()),
            Some(Self::View(view)) => Ok(view),
            Some(Self::Name(name)) => Ok(volume.view(&name)?),
        }
    }
}

/// What is known of a version.
#[pyclass(module = "dendrofs", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Version {
    /// By which calls name it.
    view: View,
    /// Its name; None for a snapshot that was made automatically.
    name: Option<String>,
    /// When it was made, in nanoseconds since 1970.
    created_ns: i64,
    /// Whether it cannot be deleted.
    is_held: bool,
}

#[pymethods]
impl Version {
    /// Whether it is a snapshot, and not the head of a branch.
    #[getter]
    const fn is_snapshot(&self) -> bool {
        self.view.0.epoch.is_some()
    }

    fn __repr__(&self) -> String {
        match (&self.name, self.view.0.epoch) {
            (Some(name), None) => format!("<Version {name}>"),
            (Some(name), Some(_)) => format!("<Version @{name}>"),
            (None, epoch) => format!("<Version @{}>", epoch.unwrap_or_default()),
        }
    }
}

impl Version {
    /// All versions: the heads of branches, then snapshots.
    pub(crate) fn all(table: &disk::VersionTable) -> Vec<Self> {
        let heads = table.branches().filter(|branch| !branch.is_receiving());
        let heads = heads.map(|branch| Self {
            view: View(branch.head()),
            name: Some(branch.name.clone()),
            created_ns: branch.time.0,
            is_held: false,
        });
        let snapshots = table.snapshots().map(|snapshot| Self {
            view: View(snapshot.view()),
            name: snapshot.name.clone(),
            created_ns: snapshot.time.0,
            is_held: snapshot.is_held,
        });
        heads.chain(snapshots).collect()
    }
}

/// What has versions, and numbers of lists, of its own in a volume.
#[pyclass(module = "dendrofs", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Client {
    /// Its name; None if it has snapshots only.
    name: Option<String>,
    /// What it keeps: "files", "block", "lists" or "unknown".
    kind: &'static str,
    /// The head of its branch.
    head: Option<View>,
    /// All its versions.
    versions: Vec<View>,
}

#[pymethods]
impl Client {
    fn __repr__(&self) -> String {
        format!("<Client {}: {}>", self.name.as_deref().unwrap_or("without a name"), self.kind)
    }
}

impl From<dendrofs::Client> for Client {
    fn from(client: dendrofs::Client) -> Self {
        Self {
            name: client.name,
            kind: kind_name(client.kind),
            head: client.head.map(View),
            versions: client.versions.into_iter().map(View).collect(),
        }
    }
}

const fn kind_name(kind: ClientKind) -> &'static str {
    match kind {
        ClientKind::Files => "files",
        ClientKind::Block => "block",
        ClientKind::Application => "lists",
        ClientKind::Unknown(_) => "unknown",
    }
}

/// The kind that a call names.
pub(crate) fn kind_of(name: &str) -> Result<ClientKind> {
    [ClientKind::Files, ClientKind::Application]
        .into_iter()
        .find(|kind| kind_name(*kind) == name)
        .ok_or_else(|| {
            Failure::value(format!(
                "'{name}': a client keeps 'files' or 'lists'; create_block_device() makes a block \
                 device"
            ))
        })
}

/// How the bytes of a volume are used.
#[pyclass(module = "dendrofs", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Space {
    /// What could be used if the volume were empty.
    capacity_bytes: u64,
    /// What live data use.
    live_bytes: u64,
    /// What can still be written, after reservations are subtracted.
    available_bytes: u64,
    /// What is reserved.
    reserved_bytes: u64,
}

#[pymethods]
impl Space {
    fn __repr__(&self) -> String {
        format!(
            "<Space: {} of {} bytes used, {} can be written>",
            self.live_bytes, self.capacity_bytes, self.available_bytes
        )
    }
}

impl From<disk::Space> for Space {
    fn from(space: disk::Space) -> Self {
        Self {
            capacity_bytes: space.capacity_bytes,
            live_bytes: space.live_bytes,
            available_bytes: space.available_bytes,
            reserved_bytes: space.reserved_bytes,
        }
    }
}

/// The space that a version takes.
#[pyclass(module = "dendrofs", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Usage {
    /// The version.
    view: View,
    /// The bytes that deleting it alone would free.
    exclusive_bytes: u64,
    /// The bytes of all that is visible in it.
    seen_bytes: u64,
}

#[pymethods]
impl Usage {
    fn __repr__(&self) -> String {
        format!(
            "<Usage of the {}: {} bytes, {} of them alone>",
            self.view.0, self.seen_bytes, self.exclusive_bytes
        )
    }
}

impl From<disk::VersionUsage> for Usage {
    fn from(usage: disk::VersionUsage) -> Self {
        let disk::VersionUsage { view, exclusive_bytes, seen_bytes, .. } = usage;
        Self { view: View(view), exclusive_bytes, seen_bytes }
    }
}

/// The quota of a client, and what it uses of it. All its versions count together, and what they
/// share counts once.
#[pyclass(module = "dendrofs", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Quota {
    /// The most that the client may use.
    limit_bytes: u64,
    /// What it uses. It can be more than the limit.
    used_bytes: u64,
    /// What is reserved for its units.
    reserved_bytes: u64,
}

#[pymethods]
impl Quota {
    fn __repr__(&self) -> String {
        format!("<Quota: {} of {} bytes used>", self.used_bytes, self.limit_bytes)
    }
}

impl From<disk::Quota> for Quota {
    fn from(quota: disk::Quota) -> Self {
        let disk::Quota { limit_bytes, used_bytes, reserved_bytes } = quota;
        Self { limit_bytes, used_bytes, reserved_bytes }
    }
}

/// A time in seconds.
pub(crate) fn duration(seconds: f64, what: &str) -> PyResult<std::time::Duration> {
    let found = std::time::Duration::try_from_secs_f64(seconds).ok();
    found
        .filter(|time| !time.is_zero())
        .ok_or_else(|| PyValueError::new_err(format!("{what}: {seconds} is not above 0")))
}
