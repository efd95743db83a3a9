//! Finds the volume that a path names: the daemon that has it mounted, or an unmounted device.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use dendro_control::{Client, FindOutcome, Pong, Unresponsive, ViewInfo};
use dendro_daemon::holder;
use dendro_daemon::mounts::{self, MountEntry, MountIdentity};
use rustix::fs::{Mode, OFlags, open};

use super::liveness::{self, Liveness};
use super::path_walk;
use crate::failure::Failure;

/// A mounted volume.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// The daemon, for requests to it alone, about the mount that was named.
    pub(crate) client: Client,
    /// The daemon's identity.
    pub(crate) pong: Pong,
    /// The mount that was named; `None` if the path was the image or the device.
    pub(crate) view: Option<ViewInfo>,
}

impl Served {
    /// The name in messages: the mount that was named, or the first one.
    pub(crate) fn place(&self) -> &str {
        match &self.view {
            Some(view) => &view.mount_point,
            None => self.pong.views.first().map_or(&self.pong.mount_point, |of| &of.mount_point),
        }
    }

    /// The device number of the mount that was named.
    pub(crate) fn device(&self) -> Option<&str> {
        self.view.as_ref().map(|view| &*view.device).filter(|device| !device.is_empty())
    }
}

/// A volume.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// It is mounted.
    Mounted(Box<Served>),
    /// It is not mounted; this is the image file or block device.
    Unmounted(PathBuf),
}

/// The server of a mount.
#[derive(Debug)]
pub(crate) enum Behind {
    Daemon(Box<Served>),
    /// A daemon that does not answer.
    Unresponsive(Unresponsive),
    /// No daemon that this process can talk to.
    Nobody,
}

/// The volume that `path` names: its image file, its device, or any path in its mount.
pub(crate) fn find(path: &Path) -> Result<Target, Failure> {
    let table = mounts::read()?;
    let metadata = metadata(&table, path)?;
    let is_device = metadata.is_file() || metadata.file_type().is_block_device();
    if is_device {
        match holder::find(path) {
            FindOutcome::Daemon(found) => {
                let (client, pong) = *found;
                return Ok(Target::Mounted(Box::new(Served { client, pong, view: None })));
            }
            FindOutcome::Unresponsive(mute) => return Err(silent(path, &mute)),
            FindOutcome::Nobody => {}
        }
    }
    let entry = mounts::containing(&table, path).filter(|entry| entry.is_dendro());
    match entry {
        // A file in a mount may itself be an image; it is taken for one if it begins like one.
        Some(_) if is_device && begins_like_a_volume(path) => {
            Ok(Target::Unmounted(canonical(path)?))
        }
        Some(entry) => daemon_of(&table, entry, path),
        None if is_device => Ok(Target::Unmounted(canonical(path)?)),
        None => Err(Failure::new(format_args!(
            "{}: is neither in a dendrofs mount nor an image file or block device",
            path.display()
        ))),
    }
}

/// The same, where who serves the block devices of a volume is its daemon.
pub(crate) fn find_open(path: &Path) -> Result<Target, Failure> {
    Ok(match find(path)? {
        Target::Unmounted(source) => match holder::serving_blocks(&source) {
            Some((client, pong)) => Target::Mounted(Box::new(Served { client, pong, view: None })),
            None => Target::Unmounted(source),
        },
        mounted @ Target::Mounted(_) => mounted,
    })
}

/// The daemon whose mount `path` lies in, or that has the device `path` mounted.
pub(crate) fn find_mounted(path: &Path) -> Result<Served, Failure> {
    daemon_for(path, find)
}

/// The daemon whose mount `path` lies in, or that has the device `path` open, to mount it or to
/// serve its block devices.
pub(crate) fn find_answering(path: &Path) -> Result<Served, Failure> {
    daemon_for(path, find_open)
}

fn daemon_for(
    path: &Path,
    of_device: impl FnOnce(&Path) -> Result<Target, Failure>,
) -> Result<Served, Failure> {
    let table = mounts::read()?;
    metadata(&table, path)?;
    let found = match mounts::containing(&table, path).filter(|entry| entry.is_dendro()) {
        Some(entry) => daemon_of(&table, entry, path)?,
        None => of_device(path)?,
    };
    match found {
        Target::Mounted(served) => Ok(*served),
        Target::Unmounted(path) => Err(not_mounted(&path)),
    }
}

/// The server of the mount `entry`, in which `path` lies.
pub(crate) fn daemon_behind(table: &[MountEntry], entry: &MountEntry, path: &Path) -> Behind {
    let before = MountIdentity::of(path).filter(|of| of.table_id.is_none_or(|id| id == entry.id));
    let unique_id = before.and_then(|of| of.unique_id);
    let view_of = |pong: &Pong| {
        let by_mount =
            pong.views.iter().find(|view| unique_id.is_some() && view.mount_id == unique_id);
        by_mount
            .or_else(|| pong.views.iter().find(|view| is_served_as(view, entry, table)))
            .cloned()
    };
    // The device number may belong to another mount by now, but not together with the same source.
    let may_be = |card: &Pong| {
        let source = Path::new(&card.source);
        let has_it =
            entry.is_named_after(source) || holder::is_same_volume(source, &entry.volume());
        view_of(card).is_some_and(|view| view.mount_id == unique_id || has_it)
    };
    match Client::find(|pong| view_of(pong).is_some(), may_be) {
        FindOutcome::Nobody => Behind::Nobody,
        FindOutcome::Unresponsive(mute) => Behind::Unresponsive(mute),
        FindOutcome::Daemon(found) => {
            let (client, pong) = *found;
            // The daemon reports no mount that has ended. So the number was that of this mount when
            // the daemon answered, if this mount is still there. This decides if the mount itself
            // is not known, since it may be bound to several places.
            let is_sure = |view: &ViewInfo| {
                let is_there = before.is_none_or(|before| before.is_still_at(path));
                is_there || unique_id.is_some() && view.mount_id == unique_id
            };
            match view_of(&pong).filter(is_sure) {
                Some(view) => {
                    let client = showing_root(client.about(view.id), entry, &view);
                    Behind::Daemon(Box::new(Served { client, pong, view: Some(view) }))
                }
                None => Behind::Nobody,
            }
        }
    }
}

/// The same client; it proves to the daemon of another user that this process can reach the mount.
fn showing_root(client: Client, entry: &MountEntry, view: &ViewInfo) -> Client {
    let is_foreign = matches!(client.foreign_owner(), Ok(Some(_)));
    if !is_foreign || rustix::process::geteuid().is_root() {
        return client;
    }
    // A part of the mount may be bound elsewhere.
    let place = match entry.root == Path::new("/") {
        true => &*entry.mount_point,
        false => Path::new(&view.mount_point),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match open(place, flags, Mode::empty()) {
        Ok(root) => client.with_root(root),
        // The daemon then refuses with a message.
        Err(_) => client,
    }
}

/// Whether a daemon's mount is of the same file system as `entry`. The device number decides, or
/// the mount point if the number is not known; bind mounts have several mount points.
fn is_served_as(view: &ViewInfo, entry: &MountEntry, table: &[MountEntry]) -> bool {
    let is_there = |of: &MountEntry| of.mount_point == Path::new(&view.mount_point);
    match view.device.is_empty() {
        true => table.iter().any(|other| other.device == entry.device && is_there(other)),
        false => view.device == entry.device_text(),
    }
}

fn daemon_of(table: &[MountEntry], entry: &MountEntry, path: &Path) -> Result<Target, Failure> {
    match daemon_behind(table, entry, path) {
        Behind::Daemon(served) => Ok(Target::Mounted(served)),
        Behind::Unresponsive(mute) => Err(silent(&entry.mount_point, &mute)),
        Behind::Nobody => {
            let is_others = !rustix::process::geteuid().is_root()
                && liveness::of(&entry.mount_point) == Liveness::Answers;
            let why = match is_others {
                true => {
                    "permission denied: its daemon is another user's, and takes no requests of others, as \
                     those of root's mounts with allow_other do; do this as that user or root"
                }
                false => {
                    "its daemon does not answer; if it runs for another user, do this as that user or \
                     root"
                }
            };
            Err(Failure::new(format_args!("{}: {why}", entry.mount_point.display())))
        }
    }
}

/// The failure if the daemon of the volume that `named` names does not answer.
pub(crate) fn silent(named: &Path, mute: &Unresponsive) -> Failure {
    Failure::new(format_args!("{}: {mute}", named.display()))
}

/// Checks that the servers of all mounts on the path `path` answer: looking up a name in a mount
/// whose daemon does not answer takes forever.
pub(crate) fn check_path(table: &[MountEntry], path: &Path) -> Result<(), Failure> {
    path_walk::follow(table, path, |entry| match check_mount(table, entry)? {
        Liveness::Dead => Err(Failure::new(format_args!(
            "{mount}: the daemon behind this mount is gone; `dendro umount {mount}` clears it away, \
             and mounting again recovers what was written",
            mount = entry.mount_point.display()
        ))),
        Liveness::Answers | Liveness::Silent => Ok(()),
    })
}

/// The same check, but a daemon may be gone: a look-up sees that at once.
pub(crate) fn check_alive(table: &[MountEntry], path: &Path) -> Result<(), Failure> {
    path_walk::follow(table, path, |entry| check_mount(table, entry).map(drop))
}

/// Checks whether the mount has a server; refuses one that does not answer.
fn check_mount(table: &[MountEntry], entry: &MountEntry) -> Result<Liveness, Failure> {
    let root = &entry.mount_point;
    match daemon_behind(table, entry, root) {
        Behind::Daemon(_) => Ok(Liveness::Answers),
        Behind::Unresponsive(mute) => Err(silent(root, &mute)),
        Behind::Nobody => match liveness::of(root) {
            Liveness::Silent => Err(Failure::new(format_args!(
                "{mount}: the daemon behind this mount does not answer; `dendro umount --force \
                 {mount}` cuts it off",
                mount = root.display()
            ))),
            life => Ok(life),
        },
    }
}

fn not_mounted(path: &Path) -> Failure {
    let path = path.display();
    Failure::new(format_args!("{path}: is not mounted; `dendro mount {path} DIRECTORY` mounts it"))
}

fn canonical(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))
}

/// The metadata of `path`, with advice if the daemon of its file system is gone.
fn metadata(table: &[MountEntry], path: &Path) -> Result<fs::Metadata, Failure> {
    check_path(table, path)?;
    fs::metadata(path).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => advice_for(path),
            _ => String::new(),
        };
        Failure::new(format_args!("{}: {error}{advice}", path.display()))
    })
}

/// Advice for a path that does not exist.
fn advice_for(path: &Path) -> String {
    let text = path.to_string_lossy();
    let mut ends = text.rmatch_indices(['@', ':']).map(|(at, _)| &text[..at]);
    if let Some(volume) = ends.find(|volume| !volume.is_empty() && Path::new(volume).exists()) {
        return format!("; this is about the whole volume: name {volume}, without a version");
    }
    let mut names = path.components().rev().map(std::path::Component::as_os_str);
    let is_moment = |names: [Option<&std::ffi::OsStr>; 3]| {
        names[1].is_some_and(|name| name == "at") && names[2].is_some_and(|name| name == ".dendro")
    };
    match is_moment([names.next(), names.next(), names.next()]) {
        true => "; nothing was kept of that time, as far back as it is: `dendro snapshot create` \
                 keeps how it is now, and a mount with -o retain= does so by itself"
            .into(),
        false => String::new(),
    }
}

fn begins_like_a_volume(path: &Path) -> bool {
    use std::io::Read;
    let magic = dendro_format::superblock::MAGIC;
    let mut start = [0; 8];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == magic
}
