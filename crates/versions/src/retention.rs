//! Which of the snapshots that were made automatically to keep.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use dendro_base::Timestamp;
use dendro_disk::{Snapshot, VersionTable, View};

/// A rule such as `10m:all,1d:1m,30d:1h`: all of the last ten minutes, of the last day one a
/// minute, of the last thirty days one an hour, and nothing older.
///
/// The first snapshot of each minute, hour and so on is kept. Minutes and hours are those of the
/// clock, so the snapshots that a longer interval keeps are among those that a shorter one keeps,
/// and it makes no difference how often the rule is applied. It applies to snapshots without a name
/// that are not held; all others are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Pairs of an age and an interval, in order of age: up to that age, one snapshot for each
    /// interval is kept (zero: all).
    tiers: Vec<(Duration, Duration)>,
}

/// The first [`WRITTEN_UNITS`] are written, too: an M is easily taken for minutes.
const UNITS: [(char, u64); 7] = [
    ('s', 1),
    ('m', 60),
    ('h', 3600),
    ('d', 86_400),
    ('w', 7 * 86_400),
    ('M', 30 * 86_400),
    ('Y', 365 * 86_400),
];

const WRITTEN_UNITS: usize = 4;

/// Reads a period: a number and a unit.
fn parse_period(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is no period; write for instance 30s, 10m, 1h, 1d or 1M");
    let (at, unit) = text.char_indices().last().ok_or_else(wrong)?;
    let (_, factor) = UNITS.into_iter().find(|(other, _)| *other == unit).ok_or_else(wrong)?;
    let count: u64 = text[..at].parse().map_err(|_| wrong())?;
    // The period in nanoseconds must fit into a time.
    let seconds =
        count.checked_mul(factor).filter(|&s| s > 0 && s < i64::MAX as u64 / 1_000_000_000);
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

fn format_period(f: &mut fmt::Formatter<'_>, period: Duration) -> fmt::Result {
    let seconds = period.as_secs();
    let fits = |(_, factor): &(char, u64)| seconds.is_multiple_of(*factor);
    let (unit, factor) = UNITS[..WRITTEN_UNITS].iter().copied().rfind(fits).unwrap_or(UNITS[0]);
    write!(f, "{}{unit}", seconds / factor)
}

impl FromStr for Retention {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut tiers: Vec<(Duration, Duration)> = Vec::new();
        for tier in text.split(',') {
            let (age, interval) = tier.split_once(':').ok_or_else(|| {
                format!("\"{tier}\" is no rule; write for instance 10m:all or 1d:1m")
            })?;
            let age = parse_period(age)?;
            let interval = match interval {
                "all" => Duration::ZERO,
                period => parse_period(period)?,
            };
            if tiers.last().is_some_and(|(last_age, last)| *last_age >= age || *last > interval) {
                return Err(format!(
                    "\"{tier}\" must be for older snapshots than the rule before it, and keep no more"
                ));
            }
            tiers.push((age, interval));
        }
        Ok(Self { tiers })
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (age, interval)) in self.tiers.iter().enumerate() {
            if place > 0 {
                write!(f, ",")?;
            }
            format_period(f, *age)?;
            write!(f, ":")?;
            match interval.is_zero() {
                true => write!(f, "all")?,
                false => format_period(f, *interval)?,
            }
        }
        Ok(())
    }
}

/// Whether retention may delete it.
fn is_automatic(snapshot: &Snapshot) -> bool {
    snapshot.name.is_none() && !snapshot.is_held
}

/// The snapshots of a client that retention may delete.
fn automatic(table: &VersionTable, client: u32) -> impl Iterator<Item = &Snapshot> {
    let is_own = move |of: &&Snapshot| table.client_of(of.branch).0 == client;
    table.snapshots().filter(|snapshot| is_automatic(snapshot)).filter(is_own)
}

impl Retention {
    /// The snapshots of the `client` of `table` to delete at `now`, in its order.
    #[must_use]
    pub fn to_delete(&self, table: &VersionTable, client: u32, now: Timestamp) -> Vec<View> {
        // Within a branch they are in order of age, so the first one in an interval is the oldest.
        // It counts as the first even if it is too old by now, because those behind it would have
        // been deleted before.
        let mut begun = HashSet::new();
        let mut doomed = Vec::new();
        for snapshot in automatic(table, client) {
            let mut is_first = |interval: Duration| {
                let length = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX).max(1);
                begun.insert((snapshot.branch, interval, snapshot.time.0.div_euclid(length)))
            };
            // If the clock was set back, a snapshot may lie in the future: its age is zero.
            let age = now.since(snapshot.time);
            let mut keeps = None;
            for (limit, interval) in &self.tiers {
                let is_kept = is_first(*interval) || interval.is_zero();
                if age <= *limit {
                    keeps = keeps.or(Some(is_kept));
                }
            }
            if keeps != Some(true) {
                doomed.push(snapshot.view());
            }
        }
        doomed
    }

    /// The snapshot of the `client` to delete first when space is needed: the oldest one that
    /// retention may delete and that is not in `but`.
    #[must_use]
    pub fn first_to_give_way(table: &VersionTable, client: u32, but: &[View]) -> Option<View> {
        let may_go = automatic(table, client).filter(|snapshot| !but.contains(&snapshot.view()));
        may_go.min_by_key(|snapshot| (snapshot.time, snapshot.epoch)).map(Snapshot::view)
    }
}

#[cfg(test)]
mod tests {
    use dendro_disk::{ClientKind, FIRST_CLIENT};

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn rule(text: &str) -> Retention {
        text.parse().unwrap()
    }

    /// Snapshots without a name at these seconds.
    fn table(seconds: impl IntoIterator<Item = i64>) -> VersionTable {
        let mut table = VersionTable::new(Timestamp(0));
        for at in seconds {
            table.snapshot(0, None, Timestamp(at * SECOND)).unwrap();
        }
        table
    }

    fn apply(rule: &Retention, table: &mut VersionTable, now: i64) {
        for view in rule.to_delete(table, FIRST_CLIENT, Timestamp(now * SECOND)) {
            table.delete(view).unwrap();
        }
    }

    fn times(table: &VersionTable) -> Vec<i64> {
        table.snapshots().map(|snapshot| snapshot.time.0 / SECOND).collect()
    }

    #[test]
    fn rules_read_back_as_they_were_written() {
        for text in ["10m:all,1d:1m,30d:1h", "1h:all", "90s:10s,365d:30d", "14d:1d"] {
            assert_eq!(rule(text).to_string(), text);
        }
        assert_eq!(rule("60m:1m,2w:24h,1Y:1M").to_string(), "1h:1m,14d:1d,365d:30d");
        for wrong in [
            "",
            "10m",
            "10:all",
            "m:all",
            "0s:all",
            "10m:0s",
            "1d:1m,10m:all",
            "1h:1m,1d:1s",
            "1h:1q",
            "99999999999Y:all",
            "1h:all,",
        ] {
            assert!(wrong.parse::<Retention>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn older_snapshots_are_thinned_out_and_the_oldest_go() {
        let mut table = table((0..7200).step_by(5));
        apply(&rule("10m:all,1h:1m,90m:10m"), &mut table, 7200);
        let expected: Vec<_> = (1800..3600)
            .step_by(600)
            .chain((3600..6600).step_by(60))
            .chain((6600..7200).step_by(5))
            .collect();
        assert_eq!(times(&table), expected);
    }

    #[test]
    fn applying_a_rule_often_keeps_what_applying_it_once_does() {
        let rule = rule("1m:all,10m:1m,2h:10m");
        let mut often = VersionTable::new(Timestamp(0));
        for at in (0..10_000).step_by(5) {
            often.snapshot(0, None, Timestamp(at * SECOND)).unwrap();
            apply(&rule, &mut often, at);
        }
        let mut once = table((0..10_000).step_by(5));
        apply(&rule, &mut once, 9995);
        assert_eq!(times(&often), times(&once));
        assert!(often.snapshots().len() < 40, "{}", often.snapshots().len());
    }

    #[test]
    fn what_has_a_name_or_is_held_stays() {
        let mut table = table([1, 2, 3]);
        table.snapshot(0, Some("kept"), Timestamp(4 * SECOND)).unwrap();
        let held = table.snapshots().nth(1).unwrap().view();
        table.hold(held, true).unwrap();
        apply(&rule("10s:all"), &mut table, 1000);
        assert_eq!(times(&table), [2, 4]);
        assert_eq!(Retention::first_to_give_way(&table, FIRST_CLIENT, &[]), None);
        table.hold(held, false).unwrap();
        assert_eq!(Retention::first_to_give_way(&table, FIRST_CLIENT, &[]), Some(held));
        assert_eq!(Retention::first_to_give_way(&table, FIRST_CLIENT, &[held]), None);
    }

    #[test]
    fn each_branch_keeps_its_own() {
        let mut table = table([60]);
        table.branch_off(table.main_head(), "b", Timestamp(61 * SECOND)).unwrap();
        for branch in [0, 1] {
            for at in [70, 80] {
                table.snapshot(branch, None, Timestamp((at + i64::from(branch)) * SECOND)).unwrap();
            }
        }
        apply(&rule("1h:1m"), &mut table, 200);
        let kept: Vec<_> = table.snapshots().map(|of| (of.branch, of.time.0 / SECOND)).collect();
        assert_eq!(kept, [(0, 60), (1, 71)]);
    }

    #[test]
    fn a_clock_that_was_set_back_deletes_nothing_more() {
        let mut table = table([100, 5000, 90]);
        apply(&rule("1m:all"), &mut table, 100);
        assert_eq!(times(&table), [100, 5000, 90]);
    }

    #[test]
    fn other_clients_snapshots_are_left_alone() {
        let mut table = table([1, 2, 3]);
        let begun = table.begin_receive(None, Some(ClientKind::Block), Timestamp(0)).unwrap();
        table.name_client(begun.branch, "client").unwrap();
        let theirs = table.snapshot(begun.branch, None, Timestamp(0)).unwrap().view();
        let none = rule("1s:all");
        assert_eq!(none.to_delete(&table, begun.branch, Timestamp(9 * SECOND)), [theirs]);
        let first = Retention::first_to_give_way(&table, begun.branch, &[]);
        assert_eq!(first, Some(theirs));
        apply(&none, &mut table, 9);
        assert_eq!(table.snapshots().map(Snapshot::view).collect::<Vec<_>>(), [theirs]);
        assert_eq!(Retention::first_to_give_way(&table, FIRST_CLIENT, &[]), None);
    }
}
