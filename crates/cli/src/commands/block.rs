//! `dendro block`.

use std::path::Path;
use std::sync::Arc;

use dendro_block::Devices;
use dendro_control::block_devices::{
    BlockCompression, BlockConnectionInfo, BlockDeviceInfo, BlockDevicesRequest,
};
use dendro_daemon::{block_devices, text};
use dendro_disk::LogicalDisk;
use serde::Serialize;

use crate::args::block::{BlockArgs, BlockVerb};
use crate::failure::{Failure, usage};
use crate::offline;
use crate::output::{self, json};
use crate::target::{self, Keeper, tag};

pub(crate) fn run(args: &BlockArgs, quiet: bool) -> Result<(), Failure> {
    match &args.verb {
        BlockVerb::Create { device, size, compress, json } => {
            let Named { keeper, name } = Named::find(device)?;
            let (size_bytes, compression) = (*size, compress.unwrap_or_default());
            let request =
                BlockDevicesRequest::Create { name: name.clone(), size_bytes, compression };
            let made = ask(&keeper, Some(&name), request)?;
            check_compression(device, &made, compression)?;
            report(&keeper, &made, *json, quiet)
        }
        BlockVerb::List { volume, connections, json } => {
            let keeper = Keeper::of(&tag::resolve(volume)?)?;
            let devices = ask(&keeper, None, BlockDevicesRequest::List)?;
            match (*json, *connections) {
                (true, _) => report(&keeper, &devices, true, false),
                (false, true) => output::print(&connections_text(&devices)),
                (false, false) => output::print(&list_text(&devices)),
            }
        }
        BlockVerb::Resize { device, size, shrink, json } => {
            let Named { keeper, name } = Named::find(device)?;
            let (size_bytes, shrink) = (*size, *shrink);
            let request = BlockDevicesRequest::Resize { name: name.clone(), size_bytes, shrink };
            let resized = ask(&keeper, Some(&name), request)?;
            report(&keeper, &resized, *json, quiet)
        }
        BlockVerb::Delete { device, snapshots, json } => {
            let Named { keeper, name } = Named::find(device)?;
            let request = BlockDevicesRequest::Delete { name: name.clone(), snapshots: *snapshots };
            let deleted = ask(&keeper, Some(&name), request)?;
            report(&keeper, &deleted, *json, true)
        }
    }
}

/// Fails if a device that was made is compressed in another way than `wanted`.
fn check_compression(
    device: &str,
    made: &[BlockDeviceInfo],
    wanted: BlockCompression,
) -> Result<(), Failure> {
    match made.iter().all(|made| made.compression == wanted) {
        true => Ok(()),
        false => Err(Failure::new(format_args!(
            "{device}: was made without --compress, which the daemon is too old for; delete it, \
             and make it when a daemon of this release has the volume"
        ))),
    }
}

/// Asks whoever has the volume open, or opens it. `name` is that of the device that it is about.
fn ask(
    keeper: &Keeper,
    name: Option<&str>,
    request: BlockDevicesRequest,
) -> Result<Vec<BlockDeviceInfo>, Failure> {
    let about = name.map_or_else(
        || keeper.source(),
        |name| Path::new(&keeper.source()).join(name).display().to_string(),
    );
    let fail = |why: &dyn std::fmt::Display| Failure::new(format_args!("{about}: {why}"));
    match keeper {
        Keeper::Daemon(served) => {
            served.client.block_devices(request).map_err(|error| fail(&error))
        }
        Keeper::Offline(source) if request == BlockDevicesRequest::List => {
            let devices = Devices::new(Arc::new(offline::open(source)?), true);
            block_devices::answer(&devices, &[], &request).map_err(|error| fail(&error))
        }
        Keeper::Offline(source) => {
            let (_devices, disk) = offline::open_for_writing(source, offline::as_mounted())?;
            let disk = Arc::new(disk);
            let changed =
                block_devices::answer(&Devices::new(Arc::clone(&disk) as _, false), &[], &request);
            let shut_down = disk.shut_down();
            let changed = changed.map_err(|error| fail(&error))?;
            shut_down.map_err(|error| fail(&error))?;
            Ok(changed)
        }
    }
}

/// A device, and who has the volume that it is in.
struct Named {
    keeper: Keeper,
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
        Ok(Self { keeper: place.keeper, name: name.ok_or_else(wrong)? })
    }
}

/// A device, or a snapshot of one.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    branch: u32,
    epoch: Option<u64>,
    size_bytes: u64,
    compress: BlockCompression,
    connections: Vec<ShownConnection<'a>>,
}

impl<'a> From<&'a BlockDeviceInfo> for Shown<'a> {
    fn from(info: &'a BlockDeviceInfo) -> Self {
        let BlockDeviceInfo { name, branch, epoch, size_bytes, compression, connections } = info;
        let (size_bytes, compress) = (*size_bytes, *compression);
        let connections = connections.iter().map(ShownConnection::from).collect();
        Self { name, branch: *branch, epoch: *epoch, size_bytes, compress, connections }
    }
}

/// A connection of a client of NBD.
#[derive(Serialize)]
struct ShownConnection<'a> {
    address: Option<&'a str>,
    pid: Option<u32>,
    connected_unix_ns: i64,
    can_write: bool,
    encrypted: bool,
}

impl<'a> From<&'a BlockConnectionInfo> for ShownConnection<'a> {
    fn from(info: &'a BlockConnectionInfo) -> Self {
        let BlockConnectionInfo { address, pid, since_unix_s, can_write, encrypted } = info;
        Self {
            address: address.as_deref(),
            pid: *pid,
            connected_unix_ns: json::unix_ns(*since_unix_s),
            can_write: *can_write,
            encrypted: *encrypted,
        }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    source: String,
    block_devices: Vec<Shown<'a>>,
}

fn report(
    keeper: &Keeper,
    devices: &[BlockDeviceInfo],
    json: bool,
    quiet: bool,
) -> Result<(), Failure> {
    if json {
        let block_devices = devices.iter().map(Shown::from).collect();
        return json::print(&Report { source: keeper.source(), block_devices });
    }
    if quiet {
        return Ok(());
    }
    let row = |device: &BlockDeviceInfo| {
        let compression = device.compression.name().to_owned();
        [device.name.clone(), text::size(device.size_bytes), compression]
    };
    let rows: Vec<_> = devices.iter().map(row).collect();
    output::print(&output::columns(["name", "size", "compression"], &rows, &[1]))
}

fn list_text(devices: &[BlockDeviceInfo]) -> String {
    let row = |device: &BlockDeviceInfo| {
        let compression = device.compression.name().to_owned();
        let count = device.connections.len().to_string();
        [device.name.clone(), text::size(device.size_bytes), compression, count]
    };
    let rows: Vec<_> = devices.iter().map(row).collect();
    output::columns(["name", "size", "compression", "connections"], &rows, &[1, 3])
}

fn connections_text(devices: &[BlockDeviceInfo]) -> String {
    let row = |name: &str, connection: &BlockConnectionInfo| {
        let BlockConnectionInfo { address, pid, since_unix_s, can_write, encrypted } = connection;
        let client = match (address, pid) {
            (Some(address), _) => address.clone(),
            (None, Some(pid)) => format!("process {pid}"),
            (None, None) => "this machine".to_owned(),
        };
        let access = if *can_write { "reads and writes" } else { "reads" };
        let tls = if *encrypted { "yes" } else { "no" };
        [name.to_owned(), client, text::time(*since_unix_s), access.to_owned(), tls.to_owned()]
    };
    let of_device = |device: &BlockDeviceInfo| -> Vec<_> {
        device.connections.iter().map(|connection| row(&device.name, connection)).collect()
    };
    let rows: Vec<_> = devices.iter().flat_map(of_device).collect();
    output::columns(["name", "client", "since", "access", "TLS"], &rows, &[])
}
