//! Names of devices.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use dendro_base::sync::{Mutex, MutexGuard};
use dendro_disk::{LogicalDisk, Snapshot, VersionTable, Versions, View};
use dendro_nbd::{Connection, Errno, Export, Exports, Failure, ListedExport};

use crate::device::BlockDevice;
use crate::manage;

/// All block devices of a disk, as exports. A device is named as its branch, and a snapshot of it
/// as `BRANCH@SNAPSHOT` or `@SNAPSHOT`; the empty name is that of the only device, if there is one
/// only.
#[derive(Clone)]
pub struct Devices {
    disk: Arc<dyn Versions>,
    read_only: bool,
    shared: Arc<Shared>,
}

/// What all values for one disk share.
#[derive(Default)]
struct Shared {
    /// Held while a device is being opened, and while versions are changed of which none may be
    /// opened meanwhile. Taken before `open`.
    changes: Mutex<()>,
    /// The devices that are open, and whether for reading. All connections to a device share
    /// it.
    open: Mutex<HashMap<(View, bool), Weak<BlockDevice>>>,
}

/// No device is opened as long as this value is there.
#[derive(Debug)]
#[must_use]
pub struct Changing<'a> {
    _changes: MutexGuard<'a, ()>,
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Devices").field("read_only", &self.read_only).finish_non_exhaustive()
    }
}

impl Devices {
    /// The devices of `disk`; if `read_only`, for reading. Whatever opens devices of a disk needs
    /// this value, or one that [`Self::for_reading`] has made of it.
    #[must_use]
    pub fn new(disk: Arc<dyn Versions>, read_only: bool) -> Self {
        Self { disk, read_only, shared: Arc::default() }
    }

    /// The same devices, for reading.
    #[must_use]
    pub fn for_reading(&self) -> Self {
        Self { disk: Arc::clone(&self.disk), read_only: true, shared: Arc::clone(&self.shared) }
    }

    /// Whether devices are opened for reading alone.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Lets nobody open a device until what this returns is dropped.
    pub fn changing(&self) -> Changing<'_> {
        Changing { _changes: self.shared.changes.lock() }
    }

    /// The versions that somebody has open, each once for each connection to it. They get fewer by
    /// themselves, and more unless somebody is [changing](Self::changing) something.
    #[must_use]
    pub fn open_views(&self) -> Vec<View> {
        let open = self.shared.open.lock();
        let views = open.iter().map(|((view, _), device)| (*view, device.strong_count()));
        views.flat_map(|(view, count)| std::iter::repeat_n(view, count)).collect()
    }

    /// How many connections to `view` there are.
    pub(crate) fn open_count(&self, view: View) -> usize {
        let open = self.shared.open.lock();
        let opened = [false, true].into_iter().filter_map(|mode| open.get(&(view, mode)));
        opened.map(Weak::strong_count).sum()
    }

    /// Those of `connections` that have `view` open.
    pub fn connected<'a>(
        &self,
        view: View,
        connections: &'a [Connection],
    ) -> impl Iterator<Item = &'a Connection> {
        let open = self.shared.open.lock();
        let opened = [false, true].map(|mode| open.get(&(view, mode)).cloned());
        let has_open =
            move |of: &&Connection| opened.iter().flatten().any(|device| of.has_open(device));
        connections.iter().filter(has_open)
    }

    /// The device that `view` is, as somebody has it open for writing, and for reading.
    pub(crate) fn opened(&self, view: View) -> Vec<Arc<BlockDevice>> {
        let open = self.shared.open.lock();
        [false, true].iter().filter_map(|mode| open.get(&(view, *mode))?.upgrade()).collect()
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Versions> {
        &self.disk
    }

    /// The only device.
    fn default_view(&self) -> Result<View, Failure> {
        let all = manage::list(&self.disk)?;
        let mut heads = all.iter().filter(|device| device.view.epoch.is_none());
        match (heads.next(), heads.next()) {
            (Some(only), None) => Ok(only.view),
            (None, _) => Err(invalid("the volume has no block device".to_owned())),
            _ => Err(invalid("the volume has several block devices; name one".to_owned())),
        }
    }
}

fn invalid(why: String) -> Failure {
    Failure::new(Errno::Invalid, why)
}

/// What is told to people of a device.
const fn description(view: View) -> &'static str {
    match view.epoch {
        None => "a block device",
        Some(_) => "a snapshot of a block device",
    }
}

/// The version that `name` names.
fn view_of(versions: &VersionTable, name: &str) -> Option<View> {
    let Some((branch, snapshot)) = name.split_once('@') else {
        return Some(versions.branch_named(name)?.head());
    };
    let title = format!("@{snapshot}");
    let is_it = |of: &&Snapshot| of.title() == title;
    let found = match branch {
        "" => versions.snapshots().find(is_it),
        branch => versions.past(versions.branch_named(branch)?.head()).into_iter().find(is_it),
    };
    found.map(Snapshot::view)
}

impl Exports for Devices {
    fn list(&self) -> Result<Vec<ListedExport>, Failure> {
        let listed = |device: manage::Listed| ListedExport {
            description: description(device.view).to_owned(),
            name: device.name,
        };
        Ok(manage::list(&self.disk)?.into_iter().map(listed).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Export>, Failure> {
        let _changes = self.shared.changes.lock();
        let view = match name {
            "" => self.default_view()?,
            name => view_of(&self.disk.versions(), name)
                .ok_or_else(|| invalid(format!("there is no block device '{name}'")))?,
        };
        let key = (view, self.read_only);
        if let Some(device) = self.shared.open.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let disk = Arc::clone(&self.disk) as Arc<dyn LogicalDisk>;
        let device = BlockDevice::open(disk, view, self.read_only, description(view).into());
        let device = Arc::new(device.map_err(|error| error.naming(name))?);
        let mut open = self.shared.open.lock();
        open.retain(|_, device| device.strong_count() > 0);
        open.insert(key, Arc::downgrade(&device));
        Ok(device)
    }
}
