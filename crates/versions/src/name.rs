//! Names of versions: `TARGET`, `TARGET@MOMENT`, `TARGET:BRANCH`, `TARGET:BRANCH@MOMENT`, and
//! ranges of moments, `A..B`. Without `TARGET`, the volume is the one that the current directory is
//! in.
//!
//! A moment is a snapshot's name, an epoch (`@123`), a time (`@2026-11-21`, `@2026-11-21T10:00`,
//! with an offset or a zone behind it where it is not local), a time before now (`@-15m`,
//! `@-1d12h`; units s m h d w M Y), or `@head`. A time is read in the client's time zone. Whether a
//! text is a name or a time depends on which versions exist, so both are passed on to where that is
//! known.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use dendro_base::Timestamp;
use dendro_control::versions::{Moment, VersionName};
use dendro_disk::{Snapshot, VersionTable, View, check_name};
use jiff::civil::DateTime;
use jiff::{Span, Zoned};

/// The moment that stands for a branch's head.
const HEAD: &str = "head";

/// A volume and one of its versions, as the command line names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The image file, block device, or path in a mount.
    pub path: PathBuf,
    /// The version.
    pub version: VersionName,
}

/// Reads a target. `exists` says whether there is such a file. That decides where the path ends, as
/// it may contain `@` and `:`.
///
/// # Errors
/// What is wrong with the version.
pub fn parse_target(
    text: &str,
    now: &Zoned,
    exists: &dyn Fn(&Path) -> bool,
) -> Result<Target, String> {
    let whole = |path: &str| Target { path: path.into(), version: VersionName::default() };
    // Without a path, the volume is the one that the current directory is in.
    let exists = |path: &Path| path.as_os_str().is_empty() || exists(path);
    if !text.is_empty() && exists(Path::new(text)) {
        return Ok(whole(text));
    }
    // From the right: names do not contain these characters, but times may contain colons.
    let splits = text.rmatch_indices('@').map(|(at, _)| (&text[..at], Some(&text[at + 1..])));
    let candidates: Vec<_> = splits.chain([(text, None)]).collect();
    let found = candidates.iter().find_map(|&(left, moment)| {
        if exists(Path::new(left)) {
            return Some((left, None, moment));
        }
        let (path, branch) = left.rsplit_once(':')?;
        exists(Path::new(path)).then_some((path, Some(branch), moment))
    });
    // If no such file exists, the message about the path is the helpful one.
    let (path, branch, moment) = found.unwrap_or_else(|| {
        let (left, moment) = candidates[0];
        (left, None, moment)
    });
    if let Some(branch) = branch {
        check_name(branch).map_err(|error| error.to_string())?;
    }
    let moment = moment.map(|text| parse_moment(text, now)).transpose()?;
    let path = if path.is_empty() && !text.is_empty() { "." } else { path };
    Ok(Target {
        path: path.into(),
        version: VersionName { branch: branch.map(str::to_owned), moment },
    })
}

/// Reads a version within a volume that is known: `MOMENT`, `@MOMENT`, `:BRANCH` or
/// `:BRANCH@MOMENT`. An empty text means the current state.
///
/// # Errors
/// What is wrong with it.
pub fn parse_version(text: &str, now: &Zoned) -> Result<VersionName, String> {
    let (branch, moment) = match text.strip_prefix(':') {
        Some(rest) => match rest.split_once('@') {
            Some((branch, moment)) => (Some(branch), Some(moment)),
            None => (Some(rest), None),
        },
        None => {
            (None, Some(text.strip_prefix('@').unwrap_or(text)).filter(|text| !text.is_empty()))
        }
    };
    if let Some(branch) = branch {
        check_name(branch).map_err(|error| error.to_string())?;
    }
    let moment = moment.map(|text| parse_moment(text, now)).transpose()?;
    Ok(VersionName { branch: branch.map(str::to_owned), moment })
}

/// Reads a range `A..B` of versions, each as [`parse_version`] reads it. Without `..B` it ends now.
///
/// # Errors
/// What is wrong with an end of it.
pub fn parse_range(text: &str, now: &Zoned) -> Result<(VersionName, VersionName), String> {
    let (old, new) = text.split_once("..").unwrap_or((text, ""));
    Ok((parse_version(old, now)?, parse_version(new, now)?))
}

/// Reads a moment, as it stands behind `@`.
///
/// # Errors
/// What is wrong with it: it is neither a time nor can it be a name or an epoch.
pub fn parse_moment(text: &str, now: &Zoned) -> Result<Moment, String> {
    let is_epoch = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if text == HEAD || is_epoch {
        return Ok(Moment { text: text.to_owned(), unix_ns: None });
    }
    let time = match text.strip_prefix('-') {
        Some(period) => Some(time_before(period, now)?),
        None => parse_time(text, now),
    };
    let unix_ns = time
        .map(|time| i64::try_from(time.timestamp().as_nanosecond()))
        .transpose()
        .map_err(|_| format!("{text} is too far from now"))?;
    if unix_ns.is_none() {
        check_name(text).map_err(|error| {
            format!("{error}; nor is it a time, such as 2026-11-21T10:00 or -15m")
        })?;
    }
    Ok(Moment { text: text.to_owned(), unix_ns })
}

/// A date, with or without time, offset and zone; without an offset it is local.
fn parse_time(text: &str, now: &Zoned) -> Option<Zoned> {
    if let Ok(zoned) = text.parse::<Zoned>() {
        return Some(zoned);
    }
    if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
        return Some(timestamp.to_zoned(now.time_zone().clone()));
    }
    text.parse::<DateTime>().ok()?.to_zoned(now.time_zone().clone()).ok()
}

/// The time so long before `now`.
fn time_before(period: &str, now: &Zoned) -> Result<Zoned, String> {
    let wrong = || format!("-{period} is no time; write for instance -90s, -15m, -2h or -1d12h");
    let mut span = Span::new();
    let mut rest = period;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let count: i64 = rest[..digits].parse().map_err(|_| wrong())?;
        let mut characters = rest[digits..].chars();
        let longer = match characters.next() {
            Some('s') => span.try_seconds(span.get_seconds().saturating_add(count)),
            Some('m') => span.try_minutes(span.get_minutes().saturating_add(count)),
            Some('h') => span.try_hours(i64::from(span.get_hours()).saturating_add(count)),
            Some('d') => span.try_days(i64::from(span.get_days()).saturating_add(count)),
            Some('w') => span.try_weeks(i64::from(span.get_weeks()).saturating_add(count)),
            Some('M') => span.try_months(i64::from(span.get_months()).saturating_add(count)),
            Some('Y') => span.try_years(i64::from(span.get_years()).saturating_add(count)),
            _ => return Err(wrong()),
        };
        span = longer.map_err(|_| wrong())?;
        rest = characters.as_str();
    }
    now.checked_sub(span).map_err(|_| wrong())
}

/// The view that `name` means. `here` is the one that an empty name means: the mounted one, or the
/// main branch's head.
///
/// # Errors
/// That there is no such version, and which versions there are.
pub fn resolve(
    table: &VersionTable,
    here: View,
    name: &VersionName,
    now: Timestamp,
) -> Result<View, String> {
    let base = match &name.branch {
        None => here,
        Some(name) => table
            .branch_named(name)
            .map(dendro_disk::Branch::head)
            .ok_or_else(|| no_such_branch(table, name))?,
    };
    let Some(moment) = &name.moment else {
        table.check(base).map_err(|_| gone(base))?;
        return Ok(base);
    };
    if moment.text == HEAD {
        let head = View { branch: base.branch, epoch: None };
        table.check(head).map_err(|_| gone(head))?;
        return Ok(head);
    }
    let in_line = name.branch.is_some();
    let snapshot = match table.snapshot_named(&moment.text) {
        Some(snapshot) => Some(snapshot),
        None => moment.text.parse().ok().and_then(|epoch| table.snapshot_at(epoch)),
    };
    match (snapshot, moment.unix_ns) {
        (Some(snapshot), _) if !in_line || is_seen(table, base, snapshot) => Ok(snapshot.view()),
        (Some(_), _) => Err(format!(
            "snapshot {} is not in the past of branch {}",
            moment.text,
            name.branch.as_deref().unwrap_or_default()
        )),
        (None, Some(unix_ns)) => resolve_time(table, base, &moment.text, Timestamp(unix_ns), now),
        (None, None) => Err(no_such_snapshot(table, &moment.text)),
    }
}

/// The error that the view that an empty name means no longer exists.
fn gone(view: View) -> String {
    match view.epoch {
        Some(epoch) => format!("@{epoch}, which is meant, is gone"),
        None => "the branch that is meant is gone; name another, as in TARGET:BRANCH".into(),
    }
}

/// Whether `snapshot` lies in the ancestry of `view`.
fn is_seen(table: &VersionTable, view: View, snapshot: &Snapshot) -> bool {
    let seen = |(branch, last): &(u32, u64)| *branch == snapshot.branch && snapshot.epoch <= *last;
    table.ancestry(view).iter().any(seen)
}

fn resolve_time(
    table: &VersionTable,
    base: View,
    text: &str,
    time: Timestamp,
    now: Timestamp,
) -> Result<View, String> {
    if time > now {
        return Err(format!("{text} is in the future"));
    }
    if let Some(snapshot) = table.at(base, time) {
        return Ok(snapshot.view());
    }
    Err(match table.past(base).last() {
        None => format!(
            "nothing was kept of {text}: there is no snapshot yet; `dendro snapshot create` makes \
             one, and a mount with -o retain= makes them by itself"
        ),
        Some(first) => format!(
            "nothing was kept of {text}: the oldest snapshot is from {}",
            utc_time(first.time)
        ),
    })
}

/// A time for people, in UTC.
fn utc_time(time: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map_or_else(|_| time.to_string(), |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

fn no_such_branch(table: &VersionTable, name: &str) -> String {
    let complete = table.branches().filter(|branch| !branch.is_receiving());
    let names: Vec<_> = complete.map(|branch| &*branch.name).collect();
    format!("there is no branch called {name}; there is {}", some_of(&names, name))
}

fn no_such_snapshot(table: &VersionTable, name: &str) -> String {
    let names: Vec<_> = table.snapshots().filter_map(|snapshot| snapshot.name.as_deref()).collect();
    match names.is_empty() {
        true => format!("there is no snapshot called {name}, and none that has a name"),
        false => format!("there is no snapshot called {name}; there is {}", some_of(&names, name)),
    }
}

/// The length of the common beginning of two words.
fn common_len(a: impl Iterator<Item = char>, b: impl Iterator<Item = char>) -> usize {
    a.zip(b).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count()
}

/// Some of the names, if there are many: those that resemble `asked`, and then the newest.
fn some_of(names: &[&str], asked: &str) -> String {
    const SHOWN: usize = 8;
    let is_alike = |name: &str| {
        let common = common_len(name.chars(), asked.chars())
            + common_len(name.chars().rev(), asked.chars().rev());
        common >= 2 && common + 2 >= name.chars().count().max(asked.chars().count())
    };
    let (mut shown, others): (Vec<&str>, Vec<&str>) =
        names.iter().copied().partition(|name| is_alike(name));
    shown.truncate(SHOWN);
    shown.extend(&others[others.len().saturating_sub(SHOWN - shown.len())..]);
    let shown = shown.join(", ");
    match names.len() > SHOWN {
        true => format!("{shown} and {} more", names.len() - SHOWN),
        false => shown,
    }
}
