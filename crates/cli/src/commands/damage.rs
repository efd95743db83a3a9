//! `dendro damage`, and the summary of damage for `dendro info`.

use std::path::Path;

use dendro_base::Timestamp;
use dendro_control::check::{CheckInfo, CheckState};
use dendro_control::damage::{DamageInfo, DamageRequest, DamagedPlace};
use dendro_daemon::damage::where_text;
use dendro_daemon::text;

use crate::args::DamageArgs;
use crate::failure::Failure;
use crate::offline;
use crate::output::{self, columns, json};
use crate::target::{self, Target};

/// A summary in one line, for `dendro info`.
pub(crate) fn summary(info: &DamageInfo) -> String {
    let places = match info.place_count {
        1 => "1 place".to_owned(),
        count => format!("{count} places"),
    };
    let time = |ns: Option<i64>| ns.map_or_else(String::new, |ns| text::time(Timestamp(ns).secs()));
    format!(
        "{places}, met {} times from {} to {}; `dendro damage` lists them",
        info.met_count,
        time(info.first_unix_ns),
        time(info.last_unix_ns)
    )
}

pub(crate) fn run(args: &DamageArgs, quiet: bool) -> Result<(), Failure> {
    let request = DamageRequest { clear: args.clear };
    let info = match target::find(&args.target)? {
        Target::Mounted(served) => served
            .client
            .damage(request)
            .map_err(|error| Failure::new(format_args!("{}: {error}", args.target.display())))?,
        Target::Unmounted(source) => offline(&source, request)?,
    };
    if args.json {
        return json::print(&info);
    }
    if !quiet || !args.clear {
        output::print(&list(&info))?;
    }
    Ok(())
}

fn offline(source: &Path, request: DamageRequest) -> Result<DamageInfo, Failure> {
    offline::damage(source, request)
}

fn list(info: &DamageInfo) -> String {
    let check = info.last_check.as_ref().map_or_else(String::new, check_line);
    if info.place_count == 0 {
        return format!("no damage was met, or it was taken note of\n{check}");
    }
    let time = |ns: i64| text::time(Timestamp(ns).secs());
    let row = |place: &DamagedPlace| {
        [
            time(place.first_unix_ns),
            time(place.last_unix_ns),
            place.met_count.to_string(),
            place.addr_bytes.to_string(),
            where_text(place),
        ]
    };
    let rows: Vec<_> = info.places.iter().map(row).collect();
    let more = match info.place_count - rows.len() as u64 {
        0 => String::new(),
        count => format!("and {count} more places, of which there is no record\n"),
    };
    columns(["FIRST MET", "LAST MET", "TIMES", "ON DEVICE", "WHERE"], &rows, &[2, 3])
        + &more
        + &check
}

/// What the last check of the mounted volume has found.
fn check_line(check: &CheckInfo) -> String {
    if check.state == CheckState::Running {
        let progress = check.progress.as_deref().unwrap_or_default();
        return format!("a check runs: {progress}\n");
    }
    let ended = check.ended_unix_ns.map_or(0, |ns| Timestamp(ns).secs());
    let problem = check.problem.as_deref().unwrap_or_default();
    let said = match (check.error_count, check.warning_count) {
        (Some(0), Some(0)) => "has found nothing wrong".to_owned(),
        (Some(errors), Some(warnings)) => format!(
            "has found {errors} errors and {warnings} warnings, the worst {problem}; `dendro check` \
             lists them"
        ),
        _ => format!("did not come to the end: {problem}"),
    };
    format!("the check of {} {said}\n", text::time(ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_met_is_told_in_words() {
        let page = DamagedPlace {
            path: Some("/dir/file".into()),
            version: Some(":main".into()),
            offset_bytes: Some(8192),
            part: dendro_control::damage::Part::Page,
            inode: Some(7),
            addr_bytes: 1 << 20,
            problem: "the checksum is wrong".into(),
            first_unix_ns: 1_000_000_000,
            last_unix_ns: 9_000_000_000,
            met_count: 3,
            ..DamagedPlace::default()
        };
        let node = DamagedPlace {
            part: dendro_control::damage::Part::Map,
            path: None,
            version: None,
            offset_bytes: None,
            inode: None,
            ..page.clone()
        };
        let damage = DamageInfo {
            place_count: 2,
            met_count: 6,
            first_unix_ns: Some(1_000_000_000),
            last_unix_ns: Some(9_000_000_000),
            places: vec![page, node],
            last_check: None,
        };
        assert!(summary(&damage).starts_with("2 places, met 6 times from 1970-01-01 00:00:01"));
        assert!(list(&damage).contains("/dir/file in :main"));
        assert!(list(&DamageInfo::default()).starts_with("no damage"));
    }

    #[test]
    fn the_last_check_is_told_beside_the_damage() {
        let told = |check: CheckInfo| {
            list(&DamageInfo { last_check: Some(check), ..DamageInfo::default() })
        };
        let ended = CheckInfo {
            state: CheckState::Ended,
            ended_unix_ns: Some(9_000_000_000),
            error_count: Some(2),
            warning_count: Some(1),
            problem: Some("202: an i-node".into()),
            ..CheckInfo::default()
        };
        let bad = told(ended.clone());
        assert!(bad.contains("1970-01-01 00:00:09Z has found 2 errors and 1 warnings"), "{bad}");
        assert!(bad.contains("202: an i-node"), "{bad}");
        let (error_count, warning_count) = (Some(0), Some(0));
        let sound = told(CheckInfo { error_count, warning_count, problem: None, ..ended.clone() });
        assert!(sound.contains("has found nothing wrong"), "{sound}");
        let (error_count, warning_count) = (None, None);
        let problem = Some("the daemon ends".into());
        let broken_off = CheckInfo { error_count, warning_count, problem, ..ended.clone() };
        let broken_off = told(CheckInfo { state: CheckState::NotDone, ..broken_off });
        assert!(broken_off.contains("did not come to the end: the daemon ends"), "{broken_off}");
        let progress = Some("half of it".into());
        let runs = told(CheckInfo { state: CheckState::Running, progress, ..ended });
        assert!(runs.contains("a check runs: half of it"), "{runs}");
    }
}
