//! `dendro scrub`: reads everything on the device and compares it with its checksums.

use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use dendro_base::Timestamp;
use dendro_control::Client;
use dendro_control::damage::{DamageInfo, DamageRequest, DamagedPlace};
use dendro_control::scrub::{ScrubAction, ScrubInfo, ScrubPass, ScrubRequest, ScrubState};
use dendro_daemon::damage::where_text;
use dendro_daemon::text;
use serde::Serialize;

use crate::args::scrub::{ScrubArgs, ScrubVerb, StartArgs, VerbArgs};
use crate::failure::{Failure, code};
use crate::offline;
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target::{self, Target};

/// How often a daemon is asked how far it is.
const ASK_INTERVAL: Duration = Duration::from_millis(300);

/// The result.
#[derive(Serialize)]
struct Outcome<'a> {
    target: &'a str,
    state: ScrubState,
    rate_bytes_per_sec: Option<u64>,
    memory_bytes: Option<u64>,
    started_unix_ns: Option<i64>,
    checked_bytes: u64,
    live_bytes: u64,
    found_count: u64,
    problem: Option<&'a str>,
    last_complete: Option<ScrubPass>,
    /// The places that were found damaged since it began.
    places: &'a [DamagedPlace],
}

/// What a command asks for.
struct Asked<'a> {
    target: &'a Path,
    action: ScrubAction,
    rate_bytes_per_sec: Option<u64>,
    memory_bytes: Option<u64>,
    waits: bool,
    json: bool,
}

impl<'a> Asked<'a> {
    fn of(args: &'a ScrubArgs) -> Self {
        let with_bounds = |action, args: &'a StartArgs| Self {
            target: &args.target,
            action,
            rate_bytes_per_sec: args.rate,
            memory_bytes: args.memory,
            waits: args.wait,
            json: args.json,
        };
        let verb = |action, args: &'a VerbArgs| Self {
            target: &args.target,
            action,
            rate_bytes_per_sec: None,
            memory_bytes: None,
            waits: false,
            json: args.json,
        };
        match &args.verb {
            None => with_bounds(ScrubAction::Start, &args.start),
            Some(ScrubVerb::Start(args)) => with_bounds(ScrubAction::Start, args),
            Some(ScrubVerb::Resume(args)) => with_bounds(ScrubAction::Resume, args),
            Some(ScrubVerb::Status(args)) => verb(ScrubAction::Status, args),
            Some(ScrubVerb::Pause(args)) => verb(ScrubAction::Pause, args),
            Some(ScrubVerb::Cancel(args)) => verb(ScrubAction::Cancel, args),
        }
    }
}

pub(crate) fn run(args: &ScrubArgs, quiet: bool) -> Result<ExitCode, Failure> {
    let asked = Asked::of(args);
    let fail = |why: &dyn std::fmt::Display| {
        Failure::new(format_args!("{}: {why}", asked.target.display()))
    };
    let progress = Progress::new(quiet);
    let show = |info: &ScrubInfo| progress.show(how_far(info));
    let (info, damage) = match (target::find(asked.target)?, asked.action) {
        (Target::Mounted(served), _) => {
            ask(&served.client, &asked, show).map_err(|error| fail(&error))?
        }
        (Target::Unmounted(source), ScrubAction::Status) => offline::kept_scrub(&source)?,
        (Target::Unmounted(source), ScrubAction::Start) => {
            if asked.rate_bytes_per_sec.is_some() {
                return Err(fail(
                    &"it is not mounted, so there is nobody to leave time to: leave out --rate",
                ));
            }
            offline::scrub(&source, asked.memory_bytes, show)?
        }
        (Target::Unmounted(_), _) => {
            return Err(fail(&"it is not mounted, and a scrub goes on when it is"));
        }
    };
    drop(progress);
    let began = info.started_unix_ns.unwrap_or(i64::MAX);
    let places: Vec<_> =
        damage.places.into_iter().filter(|place| place.last_unix_ns >= began).collect();
    let has_ended = matches!(info.state, ScrubState::Finished | ScrubState::Cancelled);
    if asked.json {
        json::print(&Outcome {
            target: &asked.target.display().to_string(),
            state: info.state,
            rate_bytes_per_sec: info.rate_bytes_per_sec,
            memory_bytes: info.memory_bytes,
            started_unix_ns: info.started_unix_ns,
            checked_bytes: info.checked_bytes,
            live_bytes: info.live_bytes,
            found_count: info.found_count,
            problem: info.problem.as_deref(),
            last_complete: info.last_complete,
            places: &places,
        })?;
    } else if !quiet || (has_ended && info.found_count > 0) {
        output::print(&report(&info, &places))?;
    }
    let found = has_ended && info.found_count > 0 && asked.action != ScrubAction::Cancel;
    Ok(if found { ExitCode::from(code::CHECK_LEFT) } else { ExitCode::SUCCESS })
}

/// Asks a daemon, and waits for the end if that is asked for.
fn ask(
    client: &Client,
    asked: &Asked<'_>,
    show: impl Fn(&ScrubInfo),
) -> Result<(ScrubInfo, DamageInfo), dendro_control::ClientError> {
    let Asked { action, rate_bytes_per_sec, memory_bytes, .. } = *asked;
    let request = ScrubRequest { action, rate_bytes_per_sec, memory_bytes };
    let mut info = client.scrub(request)?;
    while asked.waits && info.state == ScrubState::Running {
        show(&info);
        sleep(ASK_INTERVAL);
        info = client.scrub(ScrubRequest::default())?;
    }
    Ok((info, client.damage(DamageRequest::default())?))
}

/// The text of the progress line.
fn how_far(info: &ScrubInfo) -> String {
    let (checked, live) = (text::size(info.checked_bytes), text::size(info.live_bytes));
    let found = match info.found_count {
        0 => String::new(),
        count => format!(", {count} damaged places found"),
    };
    format!("{checked} of about {live} read{found}")
}

fn report(info: &ScrubInfo, places: &[DamagedPlace]) -> String {
    let time = |ns: i64| text::time(Timestamp(ns).secs());
    let state = match info.state {
        ScrubState::Never => "never scrubbed",
        ScrubState::Running => "running",
        ScrubState::Paused => "paused",
        ScrubState::Finished => "finished",
        ScrubState::Cancelled => "cancelled",
    };
    let mut report = format!("state       {state}\n");
    if let Some(began) = info.started_unix_ns {
        report += &format!("begun       {}\n", time(began));
        report += &format!("read        {}\n", text::size(info.checked_bytes));
        report += &format!("of about    {}\n", text::size(info.live_bytes));
        report += &format!("damaged     {}\n", info.found_count);
    }
    if let Some(rate) = info.rate_bytes_per_sec {
        report += &format!("rate        {} a second\n", text::size(rate));
    }
    if let Some(memory) = info.memory_bytes {
        report += &format!("memory      {}\n", text::size(memory));
    }
    if let Some(last) = &info.last_complete {
        report += &format!(
            "last ended  {}, {} damaged places\n",
            time(last.ended_unix_ns),
            last.found_count
        );
    }
    if let Some(problem) = &info.problem {
        report += &format!("stuck       {problem}\n");
    }
    for place in places {
        report += &format!("{}: {}\n", where_text(place), place.problem);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_the_state_and_the_places() {
        let info = ScrubInfo {
            state: ScrubState::Finished,
            started_unix_ns: Some(1_000_000_000),
            checked_bytes: 3 << 20,
            found_count: 1,
            ..ScrubInfo::default()
        };
        let place = DamagedPlace {
            path: Some("/dir/file".into()),
            version: Some("@old".into()),
            problem: "wrong".into(),
            ..DamagedPlace::default()
        };
        let text = report(&info, &[place]);
        assert!(
            text.starts_with("state       finished\nbegun       1970-01-01 00:00:01Z\n"),
            "{text}"
        );
        assert!(text.ends_with("/dir/file in @old, at byte 0: wrong\n"), "{text}");
        assert_eq!(report(&ScrubInfo::default(), &[]), "state       never scrubbed\n");
    }
}
