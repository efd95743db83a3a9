//! Names of devices.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use dendro_base::sync::Mutex;
use dendro_disk::{LogicalDisk, Snapshot, VersionTable, Versions, View};
use dendro_nbd::{Errno, Export, Exports, Failure, ListedExport};

use crate::device::BlockDevice;
use crate::manage;

/// All block devices of a disk, as exports. A device is named as its branch, and a snapshot of it
/// as `BRANCH@SNAPSHOT` or `@SNAPSHOT`; the empty name is that of the only device, if there is one
/// only.
pub struct Devices {
    disk: Arc<dyn Versions>,
    read_only: bool,
    /// The devices that are open. All connections to a device share it, and its locks.
    open: Mutex<HashMap<View, Weak<BlockDevice>>>,
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Devices").field("read_only", &self.read_only).finish_non_exhaustive()
    }
}

impl Devices {
    /// The devices of `disk`; if `read_only`, for reading.
    #[must_use]
    pub fn new(disk: Arc<dyn Versions>, read_only: bool) -> Self {
        Self { disk, read_only, open: Mutex::default() }
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
        let view = match name {
            "" => self.default_view()?,
            name => view_of(&self.disk.versions(), name)
                .ok_or_else(|| invalid(format!("there is no block device '{name}'")))?,
        };
        let mut open = self.open.lock();
        if let Some(device) = open.get(&view).and_then(Weak::upgrade) {
            return Ok(device);
        }
        open.retain(|_, device| device.strong_count() > 0);
        let disk = Arc::clone(&self.disk) as Arc<dyn LogicalDisk>;
        let device =
            Arc::new(BlockDevice::open(disk, view, self.read_only, description(view).into())?);
        open.insert(view, Arc::downgrade(&device));
        Ok(device)
    }
}
