//! `dendro block`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dendro_block::{Listed, check_size, create, list, resize, size_bytes};
use dendro_control::Pong;
use dendro_daemon::{holder, text};
use dendro_disk::{ClientKind, LogicalDisk, Snapshot, VersionTable, Versions, View, make_client};
use dendro_logdisk::LogDisk;
use serde::Serialize;

use crate::args::block::{BlockArgs, BlockVerb};
use crate::failure::{Failure, usage};
use crate::offline;
use crate::output::{self, json};
use crate::target::{self, Keeper, Served, Target, tag};

pub(crate) fn run(args: &BlockArgs, quiet: bool) -> Result<(), Failure> {
    match &args.verb {
        BlockVerb::Create { device, size, json } => {
            let named = Named::find(device)?;
            let made = named.change(|disk| named.create(disk, *size))?;
            report(&named.volume, &made, *json, quiet)
        }
        BlockVerb::List { volume, json } => {
            let volume = unmounted(target::find(&tag::resolve(volume)?)?)?;
            let disk = Arc::new(offline::open(&volume)?) as Arc<dyn Versions>;
            let devices = list(&disk).map_err(|error| fail(&volume, &error))?;
            report(&volume, &devices, *json, false)
        }
        BlockVerb::Resize { device, size, shrink, json } => {
            let named = Named::find(device)?;
            let resized = named.change(|disk| named.resize(disk, *size, *shrink))?;
            report(&named.volume, &resized, *json, quiet)
        }
        BlockVerb::Delete { device, snapshots, json } => {
            let named = Named::find(device)?;
            let deleted = named.change(|disk| named.delete(disk, *snapshots))?;
            report(&named.volume, &deleted, *json, true)
        }
    }
}

fn fail(about: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format_args!("{}: {why}", about.display()))
}

/// The image file or device, if nobody has it mounted.
pub(crate) fn unmounted(target: Target) -> Result<PathBuf, Failure> {
    match target {
        Target::Unmounted(source) => match holder::serving_blocks(&source) {
            Some((_, pong)) => Err(is_served(&pong.source, &pong)),
            None => Ok(source),
        },
        Target::Mounted(served) => Err(is_mounted(&served)),
    }
}

fn is_served(source: &str, pong: &Pong) -> Failure {
    Failure::new(format_args!(
        "{source}: its block devices are served by process {}; `dendro snapshot` and `dendro clone` \
         work meanwhile, and all else when that has ended",
        pong.pid
    ))
}

fn is_mounted(served: &Served) -> Failure {
    let (source, place) = (&served.pong.source, served.place());
    if served.pong.serves_blocks {
        return is_served(source, &served.pong);
    }
    Failure::new(format_args!(
        "{source}: is mounted on {place}; block devices are made and served while their volume is \
         not mounted: dendro umount {place}"
    ))
}

/// A device, and the volume that it is in.
struct Named {
    volume: PathBuf,
    name: String,
}

impl Named {
    /// Reads `VOLUME/NAME` or `VOLUME:NAME`.
    fn find(text: &str) -> Result<Self, Failure> {
        let wrong = || usage(format_args!("{text}: name a device, as in VOLUME/NAME"));
        let is_volume = |path: &Path| path.metadata().is_ok_and(|found| !found.is_dir());
        let split = text.rsplit_once('/').or_else(|| text.rsplit_once(':'));
        let as_branch = match split {
            Some((volume, name)) => match tag::resolve(Path::new(volume))? {
                volume if is_volume(&volume) => format!("{}:{name}", volume.display()),
                _ => text.to_owned(),
            },
            None => text.to_owned(),
        };
        let place = target::find_version(&as_branch)?;
        let name = place.version.branch.filter(|_| place.version.moment.is_none());
        let volume = match place.keeper {
            Keeper::Offline(source) => source,
            Keeper::Daemon(served) => return Err(is_mounted(&served)),
        };
        Ok(Self { volume, name: name.ok_or_else(wrong)? })
    }

    fn fail(&self, why: &dyn std::fmt::Display) -> Failure {
        fail(&self.volume.join(&self.name), why)
    }

    /// Opens the volume, and changes it.
    fn change<T>(&self, change: impl FnOnce(&LogDisk) -> Result<T, Failure>) -> Result<T, Failure> {
        let (_devices, disk) = offline::open_for_writing(&self.volume, offline::as_mounted())?;
        let changed = change(&disk);
        let shut_down = disk.shut_down();
        let changed = changed?;
        shut_down.map_err(|error| self.fail(&error))?;
        Ok(changed)
    }

    fn listed(&self, view: View, size_bytes: u64) -> Listed {
        Listed { view, name: self.name.clone(), size_bytes }
    }

    /// The head of the device, and its size.
    fn device(&self, disk: &LogDisk) -> Result<Listed, Failure> {
        let versions = disk.versions();
        let branch = versions.branch_named(&self.name);
        let head = branch.ok_or_else(|| self.fail(&"there is no such block device"))?.head();
        let size = size_bytes(disk, head).map_err(|error| self.fail(&error))?;
        Ok(self.listed(head, size))
    }

    fn create(&self, disk: &LogDisk, size: u64) -> Result<Vec<Listed>, Failure> {
        check_size(size).map_err(|error| self.fail(&error))?;
        let made =
            make_client(disk, &self.name, ClientKind::Block, |disk, head| create(disk, head, size));
        let head = made.map_err(|error| self.fail(&error))?.head();
        Ok(vec![self.listed(head, size)])
    }

    fn resize(&self, disk: &LogDisk, size: u64, shrink: bool) -> Result<Vec<Listed>, Failure> {
        let device = self.device(disk)?;
        if size < device.size_bytes && !shrink {
            return Err(self.fail(&format_args!(
                "has {}; --shrink makes it smaller, and what lies behind the new end is lost",
                text::size(device.size_bytes)
            )));
        }
        resize(disk, device.view, size).map_err(|error| self.fail(&error))?;
        Ok(vec![Listed { size_bytes: size, ..device }])
    }

    fn delete(&self, disk: &LogDisk, with_snapshots: bool) -> Result<Vec<Listed>, Failure> {
        let device = self.device(disk)?;
        let versions = disk.versions();
        if device.view == versions.main_head() {
            return Err(self.fail(&"is the main branch of the volume, which stays"));
        }
        let snapshots = own_snapshots(&versions, device.view);
        if !snapshots.is_empty() && !with_snapshots {
            let titles: Vec<_> = snapshots.iter().map(|of| of.title()).collect();
            return Err(self.fail(&format_args!(
                "has snapshots, which --snapshots deletes too: {}",
                titles.join(" ")
            )));
        }
        if let Some(held) = snapshots.iter().find(|snapshot| snapshot.is_held) {
            return Err(self.fail(&format_args!(
                "{} is held; `dendro snapshot release` lets it be deleted",
                held.title()
            )));
        }
        let mut deleted = Vec::new();
        for snapshot in snapshots {
            let size = size_bytes(disk, snapshot.view()).unwrap_or(device.size_bytes);
            let name = self.name.clone() + &snapshot.title();
            deleted.push(Listed { view: snapshot.view(), name, size_bytes: size });
        }
        deleted.push(device);
        for one in &deleted {
            disk.delete(one.view).map_err(|error| self.fail(&error))?;
        }
        Ok(deleted)
    }
}

/// The snapshots in the past of `head` that are in the past of no other head.
fn own_snapshots(versions: &VersionTable, head: View) -> Vec<&Snapshot> {
    let heads = versions.branches().map(|branch| branch.head());
    let others: Vec<_> =
        heads.filter(|other| *other != head).flat_map(|other| versions.past(other)).collect();
    let past = versions.past(head).into_iter();
    past.filter(|snapshot| !others.contains(snapshot)).collect()
}

/// A device, or a snapshot of one.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    branch: u32,
    epoch: Option<u64>,
    size_bytes: u64,
}

impl<'a> From<&'a Listed> for Shown<'a> {
    fn from(Listed { view, name, size_bytes }: &'a Listed) -> Self {
        Self { name, branch: view.branch, epoch: view.epoch, size_bytes: *size_bytes }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    source: String,
    block_devices: Vec<Shown<'a>>,
}

fn report(volume: &Path, devices: &[Listed], json: bool, quiet: bool) -> Result<(), Failure> {
    if json {
        let block_devices = devices.iter().map(Shown::from).collect();
        return json::print(&Report { source: volume.display().to_string(), block_devices });
    }
    if quiet {
        return Ok(());
    }
    let row = |device: &Listed| [device.name.clone(), text::size(device.size_bytes)];
    let rows: Vec<_> = devices.iter().map(row).collect();
    output::print(&output::columns(["name", "size"], &rows, &[1]))
}
