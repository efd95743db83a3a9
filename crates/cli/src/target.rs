//! From what the user names to a daemon, or to a device that nobody has mounted.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use dendro_control::{Client, Pong, ViewInfo};
use dendro_device::loop_backing_file;

use crate::failure::Failure;
use crate::mount_table::{self, MountEntry};

/// A volume that is mounted, found.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// The daemon that has it,
    pub(crate) client: Client,
    /// and who that says it is.
    pub(crate) pong: Pong,
    /// The mount that was named; nothing when the image or the device was.
    pub(crate) view: Option<ViewInfo>,
}

impl Served {
    /// What it is called in messages: the mount that was named, or the first one.
    pub(crate) fn place(&self) -> &str {
        match &self.view {
            Some(view) => &view.mount_point,
            None => self.pong.views.first().map_or(&self.pong.mount_point, |of| &of.mount_point),
        }
    }

    /// The number of the mount that was named.
    pub(crate) fn device(&self) -> Option<&str> {
        self.view.as_ref().map(|view| &*view.device).filter(|device| !device.is_empty())
    }
}

/// A volume, found.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// It is mounted.
    Mounted(Box<Served>),
    /// It is not: the image file or block device.
    Unmounted(PathBuf),
}

/// The volume that `path` names: its image file or device, or anything in its mount.
pub(crate) fn find(path: &Path) -> Result<Target, Failure> {
    let table = mount_table::read()?;
    let metadata = metadata(&table, path)?;
    let is_device = metadata.is_file() || metadata.file_type().is_block_device();
    if is_device {
        // One without mounts is about to end, and has given up the device or does so any moment.
        let serves_it =
            |pong: &Pong| !pong.views.is_empty() && is_same_volume(Path::new(&pong.source), path);
        if let Some((client, pong)) = Client::all().find(|(_, pong)| serves_it(pong)) {
            return Ok(Target::Mounted(Box::new(Served { client, pong, view: None })));
        }
    }
    let entry = mount_table::containing(&table, path).filter(|entry| entry.is_dendro());
    match entry {
        // A file in a mount may itself be an image; what begins as one is taken for one.
        Some(_) if is_device && begins_like_a_volume(path) => {
            Ok(Target::Unmounted(canonical(path)?))
        }
        Some(entry) => daemon_of(&table, entry),
        None if is_device => Ok(Target::Unmounted(canonical(path)?)),
        None => Err(Failure::new(format_args!(
            "{}: is neither in a dendrofs mount nor an image file or block device",
            path.display()
        ))),
    }
}

/// The daemon whose mount `path` lies in, or that has the device `path` open.
pub(crate) fn find_mounted(path: &Path) -> Result<Served, Failure> {
    let table = mount_table::read()?;
    metadata(&table, path)?;
    let found = match mount_table::containing(&table, path).filter(|entry| entry.is_dendro()) {
        Some(entry) => daemon_of(&table, entry)?,
        None => find(path)?,
    };
    match found {
        Target::Mounted(served) => Ok(*served),
        Target::Unmounted(path) => Err(not_mounted(&path)),
    }
}

/// The daemon, of all that answer, that serves `entry`'s file system.
pub(crate) fn daemon_behind(table: &[MountEntry], entry: &MountEntry) -> Option<Served> {
    let device = entry.device_text();
    let view_of = |pong: &Pong| {
        let by_number = pong.views.iter().find(|view| view.device == device);
        // Where the number is not known; bind mounts make several mount points.
        let by_place = |view: &&ViewInfo| {
            let is_there = |of: &MountEntry| of.mount_point == Path::new(&view.mount_point);
            view.device.is_empty()
                && table.iter().any(|other| other.device == entry.device && is_there(other))
        };
        by_number.or_else(|| pong.views.iter().find(by_place)).cloned()
    };
    Client::all().find_map(|(client, pong)| {
        let view = view_of(&pong)?;
        Some(Served { client, pong, view: Some(view) })
    })
}

fn daemon_of(table: &[MountEntry], entry: &MountEntry) -> Result<Target, Failure> {
    let served = daemon_behind(table, entry).map(Box::new);
    served.map(Target::Mounted).ok_or_else(|| {
        Failure::new(format_args!(
            "{}: its daemon does not answer; if it runs for another user, do this as that user or \
             root",
            entry.mount_point.display()
        ))
    })
}

fn not_mounted(path: &Path) -> Failure {
    Failure::new(format_args!("{}: is not mounted", path.display()))
}

fn canonical(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))
}

/// Whether both are one image or one block device, whatever their names.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        let is_block = metadata.file_type().is_block_device();
        // All device files of one device have its number.
        Some(if is_block {
            (true, 0, metadata.rdev())
        } else {
            (false, metadata.dev(), metadata.ino())
        })
    };
    one == other
        || identity(one).is_some_and(|identity_of_one| identity(other) == Some(identity_of_one))
}

/// Whether both are one image or one block device, whatever their names, or one is a loop device that
/// stands for the other.
pub(crate) fn is_same_volume(one: &Path, other: &Path) -> bool {
    let behind = |path: &Path| loop_backing_file(path).unwrap_or_else(|| path.to_path_buf());
    is_same_file(one, other) || is_same_file(&behind(one), &behind(other))
}

/// What `path` is, with advice when its file system's daemon is gone.
fn metadata(table: &[MountEntry], path: &Path) -> Result<fs::Metadata, Failure> {
    let entry = mount_table::containing(table, path).filter(|entry| entry.is_dendro());
    match entry.filter(|_| mount_table::is_dead(path)) {
        Some(entry) => Err(Failure::new(format_args!(
            "{mount}: the daemon behind this mount is gone; `dendro umount {mount}` clears it \
             away, and mounting again recovers what was written",
            mount = entry.mount_point.display()
        ))),
        None => fs::metadata(path)
            .map_err(|error| Failure::new(format_args!("{}: {error}", path.display()))),
    }
}

fn begins_like_a_volume(path: &Path) -> bool {
    use std::io::Read;
    let magic = dendro_format::superblock::MAGIC;
    let mut start = [0; 8];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == magic
}
