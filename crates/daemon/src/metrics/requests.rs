//! The requests of programs on a mounted volume: how many, and how long they took.
//!
//! The daemon reports how many requests took a time between two bounds. The receiver computes
//! percentiles, of all requests or of those between two reports.

use std::collections::BTreeMap;

use dendro_control::Facts;
use dendro_fuse::{Failure, Kind, Timings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::exposition::{Exposition, label};
use super::metric::{Metric, NS_PER_S, counter};

/// The bounds for Prometheus, as powers of two of nanoseconds: from four microseconds to seventeen
/// seconds.
const METRIC_BOUNDS: std::ops::RangeInclusive<u32> = 12..=34;

pub(super) fn failures(timings: &Timings) -> Vec<Metric> {
    let metric = |failure: Failure| {
        let (name, labels) = match failure {
            Failure::Io => ("io_errors", "reason=\"io\""),
            Failure::NoSpace => ("no_space_errors", "reason=\"no_space\""),
            Failure::ReadOnly => ("read_only_errors", "reason=\"read_only\""),
        };
        let help = "Requests that failed for a reason that lies with the volume.";
        let count = timings.failures(failure);
        Metric { labels, ..counter(name, "dendro_failed_requests_total", help, count) }
    };
    Failure::ALL.map(metric).to_vec()
}

/// The requests of one kind, as the daemon reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// The sum of all times.
    pub total_ns: u64,
    /// How many requests took less than the bound, and at least the bound before; the last entry
    /// may have no bound. Empty intervals are left out.
    pub counts: Vec<(Option<u64>, u64)>,
}

/// All kinds of requests, by name.
pub type Requests = BTreeMap<String, Counts>;

fn counts(timings: &Timings, kind: Kind) -> Counts {
    let dendro_fuse::Requests { total_ns, counts } = timings.of(kind);
    Counts { total_ns, counts }
}

pub(super) fn facts(timings: &Timings) -> Value {
    let all: Requests =
        Kind::ALL.iter().map(|&kind| (kind.name().into(), counts(timings, kind))).collect();
    serde_json::to_value(all).unwrap_or(Value::Null)
}

/// Reads the requests in a report; empty if an older daemon reports none.
pub fn of(facts: &Facts) -> Requests {
    let requests = facts.get("requests").cloned().unwrap_or(Value::Null);
    serde_json::from_value(requests).unwrap_or_default()
}

/// The requests of one kind, summarised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The number of requests.
    pub requests: u64,
    /// Half of them took less than this, about;
    pub median_ns: Option<u64>,
    /// nine of ten less than this;
    pub p90_ns: Option<u64>,
    /// 99 of a hundred less than this;
    pub p99_ns: Option<u64>,
    /// and all less than this.
    pub longest_ns: Option<u64>,
}

impl Counts {
    /// The requests since `before`; all of them if another daemon counts by now.
    pub fn since(&self, before: &Self) -> Self {
        let old: BTreeMap<_, _> = before.counts.iter().copied().collect();
        let has_all = |bound: &Option<u64>, count: u64| {
            self.counts.iter().any(|(of, now)| of == bound && *now >= count)
        };
        if !old.iter().all(|(bound, &count)| has_all(bound, count)) {
            return self.clone();
        }
        let grown = |&(bound, now): &(Option<u64>, u64)| {
            (bound, now - old.get(&bound).copied().unwrap_or(0))
        };
        Self {
            total_ns: self.total_ns.wrapping_sub(before.total_ns),
            counts: self.counts.iter().map(grown).filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// The sum of both.
    pub fn and(&self, other: &Self) -> Self {
        // The entry without a bound comes last.
        let mut all: BTreeMap<u64, u64> = BTreeMap::new();
        for &(bound, count) in self.counts.iter().chain(&other.counts) {
            *all.entry(bound.unwrap_or(u64::MAX)).or_default() += count;
        }
        let bound = |bound| Some(bound).filter(|&bound| bound != u64::MAX);
        Self {
            total_ns: self.total_ns.wrapping_add(other.total_ns),
            counts: all.into_iter().map(|(of, count)| (bound(of), count)).collect(),
        }
    }

    /// The summary.
    pub fn summary(&self) -> Summary {
        let requests: u64 = self.counts.iter().map(|(_, count)| count).sum();
        let below = |per_mille: u64| {
            let rank = (u128::from(requests) * u128::from(per_mille)).div_ceil(1000);
            let mut seen = 0;
            let reached = self.counts.iter().find(|(_, count)| {
                seen += u128::from(*count);
                seen >= rank.max(1)
            });
            reached.map(|(bound, _)| bound.unwrap_or(u64::MAX))
        };
        Summary {
            requests,
            median_ns: below(500),
            p90_ns: below(900),
            p99_ns: below(990),
            longest_ns: below(1000),
        }
    }
}

/// Adds histograms to a text for Prometheus.
pub(super) fn expose(timings: &Timings, text: &mut Exposition) {
    const METRIC: &str = "dendro_request_duration_seconds";
    const BUCKET: &str = "dendro_request_duration_seconds_bucket";
    text.begin(METRIC, "histogram", "How long requests took in the daemon, by kind.");
    for kind in Kind::ALL {
        let counts = counts(timings, kind);
        let kind = label("kind", kind.name());
        let up_to = |bound_ns: u64| -> u64 {
            let below = counts.counts.iter().filter(|(of, _)| of.is_some_and(|of| of <= bound_ns));
            below.map(|(_, count)| count).sum()
        };
        for power in METRIC_BOUNDS.step_by(2) {
            let bound = (1_u64 << power) as f64 / NS_PER_S;
            text.sample(BUCKET, &format!("{kind},le=\"{bound}\""), up_to(1 << power));
        }
        let count = counts.summary().requests;
        text.sample(BUCKET, &format!("{kind},le=\"+Inf\""), count);
        let sum = counts.total_ns as f64 / NS_PER_S;
        text.sample(&format!("{METRIC}_sum"), &kind, sum);
        text.sample(&format!("{METRIC}_count"), &kind, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(Option<u64>, u64)]) -> Counts {
        Counts { total_ns: 10, counts: counts.to_vec() }
    }

    #[test]
    fn percentiles_are_the_bounds_that_so_many_lie_below() {
        let all = counts(&[(Some(1000), 50), (Some(2000), 49), (None, 1)]).summary();
        assert_eq!(all.requests, 100);
        assert_eq!((all.median_ns, all.p90_ns, all.p99_ns), (Some(1000), Some(2000), Some(2000)));
        assert_eq!(all.longest_ns, Some(u64::MAX));
        assert_eq!(counts(&[]).summary(), Summary::default());
        assert_eq!(counts(&[(Some(7), 1)]).summary().median_ns, Some(7));
    }

    #[test]
    fn an_interval_has_what_came_in_it() {
        let before = counts(&[(Some(1000), 5), (None, 1)]);
        let now = counts(&[(Some(1000), 7), (Some(4000), 2), (None, 1)]);
        assert_eq!(now.since(&before).counts, [(Some(1000), 2), (Some(4000), 2)]);
        // After a new mount all of it is new.
        assert_eq!(before.since(&now), before);
        let both = before.and(&now);
        assert_eq!(both.counts, [(Some(1000), 12), (Some(4000), 2), (None, 2)]);
    }
}
