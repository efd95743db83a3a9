//! `dendro device` and `dendro migrate`.

use std::path::Path;
use std::time::Duration;

use dendro_base::Uuid;
use dendro_control::devices::{DeviceInfo, DeviceState, DevicesInfo, DevicesRequest};
use dendro_daemon::text;
use dendro_daemon::volume::devices::forget_device;
use serde::Serialize;

use crate::args::devices::{AddArgs, DeviceArgs, DeviceVerb, MigrateArgs};
use crate::failure::Failure;
use crate::offline;
use crate::output::json::volume::Device;
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target::{self, Served, Target};

/// How often to ask how far a device is.
const ASK_INTERVAL: Duration = Duration::from_millis(300);

pub(crate) fn device(args: &DeviceArgs, quiet: bool) -> Result<(), Failure> {
    match &args.verb {
        DeviceVerb::List { target, json } => {
            let info = ask(target, DevicesRequest::List, false, true)?;
            show(&info, *json, false)
        }
        DeviceVerb::Add { target, device, copies, fast, common } => {
            let (path, force, copies) = (path_text(device)?, common.force, *copies);
            let request = DevicesRequest::Add { path, force, copies, is_fast: *fast };
            change(target, request, common, quiet)
        }
        DeviceVerb::Set { target, device, class, json } => {
            let request = DevicesRequest::Set { device: named(device)?, is_fast: class.fast };
            show(&ask(target, request, false, quiet)?, *json, quiet)
        }
        DeviceVerb::Replace { target, old, new, common } => {
            let device = Some(named(old)?);
            let request =
                DevicesRequest::Replace { device, path: path_text(new)?, force: common.force };
            change(target, request, common, quiet)
        }
        DeviceVerb::Remove { target, device, no_wait, json } => {
            let request = DevicesRequest::Remove { device: named(device)? };
            show(&ask(target, request, !no_wait, quiet)?, *json, quiet)
        }
        DeviceVerb::Forget { device, json } => forget(device, *json),
        DeviceVerb::Offline { target, device, json } => {
            let request = DevicesRequest::Offline { device: named(device)? };
            let Target::Mounted(served) = target::find(target)? else {
                return Err(Failure::new(format_args!(
                    "{}: is not mounted, so none of its devices is in use",
                    target.display()
                )));
            };
            show(&ask_daemon(&served, request)?, *json, quiet)
        }
    }
}

pub(crate) fn migrate(args: &MigrateArgs, quiet: bool) -> Result<(), Failure> {
    let request = DevicesRequest::Replace {
        device: None,
        path: path_text(&args.new)?,
        force: args.common.force,
    };
    change(&args.target, request, &args.common, quiet)
}

/// A device that was taken out of its volume.
#[derive(Serialize)]
struct Forgotten {
    device_path: String,
    uuid: String,
}

fn forget(device: &Path, as_json: bool) -> Result<(), Failure> {
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", device.display()));
    if let Target::Mounted(served) = target::find(device)? {
        return Err(fail(&format_args!(
            "is in use on {}; `dendro device remove` takes it out of a volume in use",
            served.place()
        )));
    }
    let set = forget_device(device)?
        .ok_or_else(|| fail(&"is no device of a volume on several devices"))?;
    match as_json {
        true => json::print(&Forgotten {
            device_path: std::path::absolute(device)?.display().to_string(),
            uuid: set.to_string(),
        }),
        false => Ok(()),
    }
}

/// A device as the daemon finds it: a UUID, or a path.
pub(super) fn named(device: &str) -> Result<String, Failure> {
    match device.parse::<Uuid>() {
        Ok(uuid) => Ok(uuid.to_string()),
        Err(_) => path_text(Path::new(device)),
    }
}

/// A path as the daemon finds it, wherever it runs.
fn path_text(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path)?;
    absolute.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::new(format_args!("{}: this path is no UTF-8; use another", path.display()))
    })
}

fn change(
    target: &Path,
    request: DevicesRequest,
    common: &AddArgs,
    quiet: bool,
) -> Result<(), Failure> {
    show(&ask(target, request, !common.no_wait, quiet)?, common.json, quiet)
}

/// Has the request carried out; if asked to, waits until all devices are brought up. On a volume
/// that is not mounted they always are.
fn ask(
    target: &Path,
    request: DevicesRequest,
    waits: bool,
    quiet: bool,
) -> Result<DevicesInfo, Failure> {
    let line = Progress::bar(quiet);
    let tell = |left_bytes: u64, all_bytes: u64| {
        let percent = 100 - left_bytes.min(all_bytes) * 100 / all_bytes.max(1);
        line.show_part(percent, format!("{} left to copy", text::size(left_bytes)));
    };
    let served = match target::find(target)? {
        Target::Mounted(served) => served,
        Target::Unmounted(source) => return offline::devices(&source, &request, tell),
    };
    let mut info = ask_daemon(&served, request.clone())?;
    let all_bytes = info.left_to_copy_bytes;
    while waits && awaited(&request, &info) {
        tell(info.left_to_copy_bytes, all_bytes);
        std::thread::sleep(ASK_INTERVAL);
        let before = info;
        info = ask_daemon(&served, DevicesRequest::List)?;
        if let Some(lost) = lost_since(&before, &info) {
            return Err(Failure::new(format_args!(
                "{lost}: failed while the volume was copied to it; the system log says why"
            )));
        }
    }
    Ok(info)
}

fn ask_daemon(served: &Served, request: DevicesRequest) -> Result<DevicesInfo, Failure> {
    let client = served.client.clone().about_volume();
    let answer = client.devices(request);
    answer.map_err(|error| Failure::new(format_args!("{}: {error}", served.place())))
}

/// Whether what was asked for goes on.
fn awaited(request: &DevicesRequest, info: &DevicesInfo) -> bool {
    let moves = info.is_spread && info.devices.iter().any(|device| device.leaves);
    match request {
        DevicesRequest::Remove { .. } => moves,
        _ => moves || info.devices.iter().any(is_behind),
    }
}

fn is_behind(device: &DeviceInfo) -> bool {
    device.state == DeviceState::BroughtUp
}

/// A device that was brought up and is missing now.
fn lost_since(before: &DevicesInfo, now: &DevicesInfo) -> Option<String> {
    let was_behind = |of: &DeviceInfo| {
        before.devices.iter().any(|device| is_behind(device) && device.uuid == of.uuid)
    };
    let lost = now.devices.iter().find(|of| of.state == DeviceState::Missing && was_behind(of));
    lost.map(|device| device.path.clone())
}

/// The devices, as they are printed.
#[derive(Serialize)]
struct Outcome<'a> {
    source: &'a str,
    uuid: &'a str,
    devices: Vec<Device<'a>>,
    left_to_copy_bytes: u64,
    spread: bool,
}

fn show(info: &DevicesInfo, as_json: bool, quiet: bool) -> Result<(), Failure> {
    if as_json {
        let devices = info.devices.iter().map(Device::from).collect();
        let (source, uuid, left_to_copy_bytes) =
            (&*info.source, &*info.uuid, info.left_to_copy_bytes);
        let spread = info.is_spread;
        return json::print(&Outcome { source, uuid, devices, left_to_copy_bytes, spread });
    }
    if quiet { Ok(()) } else { output::print(&lines(info)) }
}

/// What people read of the devices, a line for each.
fn lines(info: &DevicesInfo) -> String {
    let width = info.devices.iter().map(|device| device.path.chars().count()).max().unwrap_or(0);
    let left = || text::size(info.left_to_copy_bytes);
    let line = |device: &DeviceInfo| {
        let state = match (device.state, device.is_present) {
            (_, false) if info.is_spread => "not found".to_owned(),
            _ if info.is_spread => format!("holds {}", text::size(device.held_bytes)),
            (DeviceState::InSync, true) => "in sync".to_owned(),
            (DeviceState::InSync, false) => "not found".to_owned(),
            (DeviceState::Missing, _) => "missing".to_owned(),
            (DeviceState::BroughtUp, true) => format!("being brought up, {} left", left()),
            (DeviceState::BroughtUp, false) => "not found, and not complete".to_owned(),
        };
        let leaves = match (device.leaves, info.is_spread) {
            (false, _) => String::new(),
            (true, true) => format!("; will be removed, {} left to move", left()),
            (true, false) => "; will be removed".to_owned(),
        };
        let reads = match device.failed_reads {
            0 => String::new(),
            count => format!("; {count} reads failed"),
        };
        let path = text::printable(&device.path);
        let class = if device.is_fast { "; fast" } else { "" };
        let size = text::size(device.size_bytes);
        format!("{path:width$}  {size:>9}  {state}{class}{leaves}{reads}\n")
    };
    info.devices.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(path: &str, state: DeviceState) -> DeviceInfo {
        let (path, uuid) = (path.to_owned(), path.to_owned());
        let size_bytes = 1 << 30;
        DeviceInfo { path, uuid, state, is_present: true, size_bytes, ..DeviceInfo::default() }
    }

    #[test]
    fn each_device_has_a_line() {
        let leaving =
            DeviceInfo { leaves: true, failed_reads: 2, ..device("/dev/a", DeviceState::InSync) };
        let mut info = DevicesInfo {
            devices: vec![leaving, device("/dev/long", DeviceState::BroughtUp)],
            left_to_copy_bytes: 5 << 20,
            ..DevicesInfo::default()
        };
        let text = lines(&info);
        assert_eq!(
            text,
            "/dev/a         1 GiB  in sync; will be removed; 2 reads failed\n\
             /dev/long      1 GiB  being brought up, 5 MiB left\n"
        );
        info.is_spread = true;
        info.devices[0].is_fast = true;
        info.devices[1].is_present = false;
        let text = lines(&info);
        assert_eq!(
            text,
            "/dev/a         1 GiB  holds 0 bytes; fast; will be removed, 5 MiB left to move; \
             2 reads failed\n\
             /dev/long      1 GiB  not found\n"
        );
    }

    #[test]
    fn a_device_that_is_lost_while_it_is_waited_for_is_noticed() {
        let of = |state| DevicesInfo { devices: vec![device("d", state)], ..Default::default() };
        let behind = of(DeviceState::BroughtUp);
        assert_eq!(lost_since(&behind, &of(DeviceState::Missing)).as_deref(), Some("d"));
        assert_eq!(lost_since(&behind, &of(DeviceState::InSync)), None);
        assert_eq!(lost_since(&of(DeviceState::Missing), &of(DeviceState::Missing)), None);
    }
}
