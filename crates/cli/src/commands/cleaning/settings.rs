//! `dendro clean status`, `suspend`, `resume` and `set`: the settings of the daemon's cleaner.

use dendro_control::cleaning::{CleanerChange, CleanerSettings, SegmentState};
use dendro_daemon::text;
use serde::Serialize;
use serde_json::Value;

use crate::args::cleaning::{CleanerArgs, SetArgs};
use crate::failure::Failure;
use crate::output::{self, json};
use crate::target::{self, Served};

/// The settings, as JSON.
#[derive(Serialize)]
struct Settings {
    policy: String,
    min_clean_segments: Option<u32>,
    max_clean_segments: Option<u32>,
    suspended: bool,
    coalesce: bool,
    coalesce_after_ns: u64,
    coalesce_piece_bytes: u32,
    coalesce_share: f64,
}

impl From<&CleanerSettings> for Settings {
    fn from(settings: &CleanerSettings) -> Self {
        Self {
            policy: settings.policy.clone(),
            min_clean_segments: settings.min_clean_segments,
            max_clean_segments: settings.max_clean_segments,
            suspended: settings.suspended,
            coalesce: settings.coalesce,
            coalesce_after_ns: settings.coalesce_after_ms.saturating_mul(1_000_000),
            coalesce_piece_bytes: settings.coalesce_piece_bytes,
            coalesce_share: f64::from(settings.coalesce_share_percent) / 100.0,
        }
    }
}

/// The output of `status`.
#[derive(Serialize)]
struct Status {
    #[serde(flatten)]
    settings: Settings,
    segment_bytes: u64,
    clean_segments: u32,
    /// Segments of these that are reserved.
    reserved_segments: u32,
    /// Empty, and clean after the next checkpoint.
    pending_segments: u32,
    dirty_segments: u32,
    /// Dead bytes in those.
    dead_bytes: u64,
    /// Cleaned by the daemon since the mount.
    cleaned_segments: u64,
    /// Written again by the daemon since the mount because it was scattered.
    coalesced_bytes: u64,
    /// How long writers have waited for room since the mount.
    stalled_ns: u64,
}

pub(crate) fn status(args: &CleanerArgs) -> Result<(), Failure> {
    let served = target::find_mounted(&args.target)?;
    let settings = change(&served, CleanerChange::default())?;
    let fail = |error| Failure::new(format_args!("{}: {error}", served.place()));
    let all = served.client.all_segments().map_err(fail)?;
    let stat = served.client.stat().map_err(fail)?;
    let of = |state| all.segments.iter().filter(move |facts| facts.state == state);
    let dead = |live_bytes: u32| all.present.segment_bytes.saturating_sub(u64::from(live_bytes));
    let number = |name| stat.get(name).and_then(Value::as_u64).unwrap_or(0);
    let status = Status {
        settings: Settings::from(&settings),
        segment_bytes: all.present.segment_bytes,
        clean_segments: all.present.clean_count,
        reserved_segments: all.present.reserved_count,
        pending_segments: of(SegmentState::Pending).count() as u32,
        dirty_segments: of(SegmentState::Dirty).count() as u32,
        dead_bytes: of(SegmentState::Dirty).map(|facts| dead(facts.live_bytes)).sum(),
        cleaned_segments: number("cleaned_segments"),
        coalesced_bytes: number("coalesced_bytes"),
        stalled_ns: number("stalled_ns"),
    };
    if args.json {
        return json::print(&status);
    }
    let mut rows = setting_rows(&settings).to_vec();
    rows.extend([
        (
            "clean",
            format!(
                "{} of {} segments of {}, {} of them in reserve",
                status.clean_segments,
                all.present.segment_count,
                text::size(status.segment_bytes),
                status.reserved_segments
            ),
        ),
        ("pending", format!("{}, clean after the next checkpoint", status.pending_segments)),
        (
            "dirty",
            format!("{}; {} of them dead", status.dirty_segments, text::size(status.dead_bytes)),
        ),
        ("cleaned", format!("{} since the mount", status.cleaned_segments)),
        ("coalesced", format!("{} since the mount", text::size(status.coalesced_bytes))),
        ("stalled", format!("{}, writers that waited for room", text::duration(status.stalled_ns))),
    ]);
    output::print(&output::table(&rows))
}

pub(crate) fn suspend(args: &CleanerArgs, suspended: bool, quiet: bool) -> Result<(), Failure> {
    show(args, CleanerChange { suspended: Some(suspended), ..CleanerChange::default() }, quiet)
}

pub(crate) fn set(args: &SetArgs, quiet: bool) -> Result<(), Failure> {
    let settings = &args.settings;
    let change = CleanerChange {
        policy: settings.selection_policy.map(|kind| kind.name().into()),
        min_clean_segments: settings.min_clean_segments,
        max_clean_segments: settings.max_clean_segments,
        suspended: None,
        coalesce: settings.coalesce,
        coalesce_after_ms: settings.coalesce_after.map(|after| after.as_millis() as u64),
        coalesce_piece_bytes: settings.coalesce_piece,
        coalesce_share_percent: settings.coalesce_share.map(|share| (share * 100.0) as u32),
    };
    show(&args.cleaner, change, quiet)
}

/// Changes settings and shows the result.
fn show(args: &CleanerArgs, wanted: CleanerChange, quiet: bool) -> Result<(), Failure> {
    let served = target::find_mounted(&args.target)?;
    let settings = change(&served, wanted)?;
    match (args.json, quiet) {
        (true, _) => json::print(&Settings::from(&settings)),
        (false, true) => Ok(()),
        (false, false) => output::print(&output::table(&setting_rows(&settings))),
    }
}

fn change(served: &Served, change: CleanerChange) -> Result<CleanerSettings, Failure> {
    let changed = served.client.change_cleaner(change);
    changed.map_err(|error| Failure::new(format_args!("{}: {error}", served.place())))
}

fn setting_rows(settings: &CleanerSettings) -> [(&'static str, String); 8] {
    let count =
        |count: Option<u32>| count.map_or("by the volume's size".into(), |count| count.to_string());
    [
        ("selection_policy", settings.policy.clone()),
        ("min_clean_segments", count(settings.min_clean_segments)),
        ("max_clean_segments", count(settings.max_clean_segments)),
        ("suspended", if settings.suspended { "yes" } else { "no" }.into()),
        ("coalesce", if settings.coalesce { "on" } else { "off" }.into()),
        ("coalesce_after", format!("{} s", settings.coalesce_after_ms as f64 / 1000.0)),
        ("coalesce_piece", text::size(settings.coalesce_piece_bytes.into())),
        ("coalesce_share", format!("{}%", settings.coalesce_share_percent)),
    ]
}
