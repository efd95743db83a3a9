//! `dendro sync`, `info` and `set`.

use dendro_control::streams::ReceivedPart;
use dendro_control::{
    CompressionKinds, FeatureInfo, MountInfo, ServedInfo, SetRequest, ViewInfo, VolumeInfo,
};
use dendro_daemon::text;
use serde::Serialize;

use crate::args::{SetOptionsArgs, SyncArgs, TargetArgs};
use crate::commands::damage;
use crate::failure::Failure;
use crate::offline;
use crate::output::{self, json};
use crate::target::{self, Target};

pub(crate) fn sync(args: &SyncArgs) -> Result<(), Failure> {
    let served = target::find_answering(&args.path)?;
    let synced = served.client.sync();
    synced.map_err(|error| Failure::new(format_args!("{}: {error}", served.place())))?;
    if !args.json {
        return Ok(());
    }
    let (source, uuid) = (served.pong.source.clone(), served.pong.uuid.clone());
    json::print(&Synced { source, uuid, mount_point: served.place().to_owned() })
}

/// What is durable now.
#[derive(Serialize)]
struct Synced {
    source: String,
    uuid: String,
    mount_point: String,
}

pub(crate) fn set(args: &SetOptionsArgs, quiet: bool) -> Result<(), Failure> {
    let served = target::find_mounted(&args.target)?;
    let mount = served.device().map(str::to_owned);
    let options = args.options.clone();
    let request = SetRequest { mount, options, ..SetRequest::default() };
    let view = served.client.set(request);
    let view = view.map_err(|error| Failure::new(format_args!("{}: {error}", served.place())))?;
    match (args.json, args.options.is_empty() || !quiet) {
        (true, _) => json::print(&json::volume::View::from(&view)),
        (false, true) => output::print(&format!("{}\n", view.options.join(","))),
        (false, false) => Ok(()),
    }
}

pub(crate) fn info(args: &TargetArgs) -> Result<(), Failure> {
    let info = match target::find_open(&args.target)? {
        Target::Mounted(served) => {
            let mut info = served.client.info()?;
            if let Some(mount) = &mut info.mount {
                mount.socket = served.client.path().display().to_string();
                // The mount that was named, of several.
                let device = served.device();
                let named = mount.views.iter().find(|view| Some(&*view.device) == device);
                if let Some(view) = named {
                    mount.mount_point = view.mount_point.clone();
                    mount.read_only = view.read_only.clone();
                    mount.since_unix_s = view.since_unix_s;
                    mount.transport = view.transport.clone();
                }
            }
            info
        }
        Target::Unmounted(source) => offline::info(&source)?,
    };
    match args.json {
        true => json::print(&json::volume::Volume::from(&info)),
        false => output::print(&info_text(&info)),
    }
}

/// How often the map is kept, if not once.
fn copies_text(info: &VolumeInfo) -> String {
    match (info.metadata_copies, info.unmirrored_bytes) {
        (0 | 1, _) => String::new(),
        (_, 0) => "; the map is kept twice".into(),
        (_, once) => {
            format!("; the map is kept twice, but for {}, which a scrub copies", text::size(once))
        }
    }
}

/// What was received in part, a line each.
fn parts_text(parts: &[ReceivedPart]) -> String {
    let line = |part: &ReceivedPart| {
        format!("  {:12}a part of a snapshot; token {}\n", "received", part.token)
    };
    parts.iter().map(line).collect()
}

/// How the volume is compressed by default, and how it is now if that is another way.
fn compress_text(info: &VolumeInfo) -> String {
    let told =
        |kinds: &CompressionKinds| format!("{}; what the cleaner moves: {}", kinds.new, kinds.cold);
    let Some(default) = &info.default_compression else {
        return "its daemon is too old to say".into();
    };
    match &info.compression_in_force {
        Some(now) if now != default => format!("{}\n    as mounted: {}", told(default), told(now)),
        _ => told(default),
    }
}

/// What compression gains, if something is compressed.
fn compression_text(info: &VolumeInfo) -> String {
    let is_marked = info.features.incompatible.iter().any(|name| name == "compression");
    let what = match info.space.compression {
        Some(gain) if gain.page_bytes > 0 => output::compression(&gain),
        None if is_marked => "older software has compressed data and not counted them".into(),
        _ => return String::new(),
    };
    format!("  {:12}{what}\n", "compressed")
}

/// How it was left, unless somebody has it open.
const fn state_text(info: &VolumeInfo) -> &'static str {
    let is_open = info.mount.is_some() || info.served.is_some();
    match (info.checkpoint.clean, is_open) {
        (_, true) => "",
        (true, false) => "; shut down cleanly",
        (false, false) => "; not shut down, the next mount recovers",
    }
}

fn info_text(info: &VolumeInfo) -> String {
    let space = &info.space;
    let percent =
        (u128::from(space.live_bytes) * 100).checked_div(space.capacity_bytes.into()).unwrap_or(0);
    let clean = match info.segments.clean {
        Some(clean) => format!(", {clean} clean"),
        None => String::new(),
    };
    let copies = copies_text(info);
    let state = state_text(info);
    let mounted = match &info.mount {
        None => "nowhere".into(),
        Some(mount) => mounted_text(mount),
    };
    // Aligned with the rows above.
    let socket = match &info.mount {
        Some(mount) => {
            let (transport, socket) = (&mount.transport, &mount.socket);
            let options = options_text(mount);
            let log = match &*mount.log {
                "" => String::new(),
                log => format!("  {:12}{log}\n", "log"),
            };
            format!("{options}  {:12}{transport}\n  {:12}{socket}\n{log}", "requests", "socket")
        }
        None => String::new(),
    } + &info.served.as_ref().map(served_text).unwrap_or_default();
    let met = info.met_damage.iter().map(damage::summary);
    let damage: String = info
        .damage
        .iter()
        .cloned()
        .chain(met)
        .map(|what| format!("  {:12}{what}\n", "damage"))
        .collect();
    format!("{}\n", info.source)
        + &output::table(&[
            (
                "label",
                if info.label.is_empty() { "none".into() } else { text::printable(&info.label) },
            ),
            ("UUID", info.uuid.clone()),
            (
                "format",
                format!("{}, made {}", info.format_version, text::time(info.created_unix_s)),
            ),
            ("features", feature_text(&info.features)),
            ("compress", compress_text(info)),
            (
                "size",
                format!(
                    "{}: {} segments of {}{clean}; {}{copies}",
                    text::size(info.device_size_bytes),
                    info.segments.total,
                    text::size(info.segments.size_bytes),
                    text::SUPERBLOCKS_HELD
                ),
            ),
            (
                "used",
                format!(
                    "{} of {} ({percent}%); {} can be written",
                    text::size(space.live_bytes),
                    text::size(space.capacity_bytes),
                    text::size(space.available_bytes)
                ),
            ),
            (
                "superblock",
                format!(
                    "number {}, {}",
                    info.superblock.sequence,
                    text::time(info.superblock.written_unix_s)
                ),
            ),
            (
                "checkpoint",
                format!(
                    "number {}, {}; {} of log since{state}",
                    info.checkpoint.sequence,
                    text::time(info.checkpoint.written_unix_s),
                    text::size(info.checkpoint.log_bytes)
                ),
            ),
            (
                "commits",
                format!(
                    "{}, of which {} durable",
                    info.checkpoint.last_commit, info.checkpoint.durable_commit
                ),
            ),
            ("mounted", mounted),
        ])
        + &compression_text(info)
        + &socket
        + &parts_text(&info.received_parts)
        + &damage
}

/// Where it is mounted; each of several mounts on a line of its own.
fn mounted_text(mount: &MountInfo) -> String {
    let read_only = |why: &Option<String>| match why {
        Some(why) => format!("; read-only: {why}"),
        None => String::new(),
    };
    let process = format!("process {} (dendro {})", mount.pid, mount.software);
    if let [_, _, ..] = mount.views[..] {
        let lines = mount.views.iter().map(|view| {
            let (version, place) = (&view.version, &view.mount_point);
            let since = text::time(view.since_unix_s);
            format!("\n    {version} on {place} since {since}{}", read_only(&view.read_only))
        });
        return format!("by {process}{}", lines.collect::<String>());
    }
    let since = text::time(mount.since_unix_s);
    format!("{} since {since} by {process}{}", mount.mount_point, read_only(&mount.read_only))
}

/// Where its block devices are served.
fn served_text(served: &ServedInfo) -> String {
    let read_only = match &served.read_only {
        Some(why) => format!("; read-only: {why}"),
        None => String::new(),
    };
    format!(
        "  {:12}{} since {} by process {} (dendro {}){read_only}\n",
        "served",
        served.uri,
        text::time(served.since_unix_s),
        served.pid,
        served.software
    )
}

/// The options in force, of each of several mounts.
fn options_text(mount: &MountInfo) -> String {
    let line = |place: &str, options: &[String]| {
        format!("  {:12}{place}{}\n", "options", options.join(","))
    };
    match &mount.views[..] {
        [view] => line("", &view.options),
        views => {
            let of = |view: &ViewInfo| line(&format!("{}: ", view.mount_point), &view.options);
            views.iter().map(of).collect()
        }
    }
}

fn feature_text(features: &FeatureInfo) -> String {
    let all: Vec<&str> =
        [&features.compatible, &features.read_only_compatible, &features.incompatible]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}
