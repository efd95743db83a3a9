//! `dendro stat`: the activity of a mounted volume since the mount, or, with `--watch`, now.
//!
//! - [`people`]: the statistics since the mount, in words and units. [`watch`]: those of each
//!   interval.
//! - [`statistics`]: the statistics by name.

mod people;
mod statistics;
mod watch;

use std::fs;
use std::io::Write;
use std::path::Path;

use dendro_control::Facts;
use dendro_daemon::metrics::requests;
use serde_json::Value;

use self::statistics::Statistics;
use crate::args::StatArgs;
use crate::failure::Failure;
use crate::output::{self, json};
use crate::target;

pub(crate) fn run(args: &StatArgs) -> Result<(), Failure> {
    let served = target::find_answering(&args.target)?;
    let client = served.client.clone().about_volume();
    let fail = |error| Failure::new(format_args!("{}: {error}", served.place()));
    if args.metrics {
        let metrics = client.metrics().map_err(fail)?;
        return match &args.to {
            Some(file) => put(file, &metrics),
            None => output::print(&metrics),
        };
    }
    if let Some(interval) = args.watch {
        return watch::run(&client, interval, args.count, args.json).map_err(|failure| Failure {
            message: format!("{}: {}", served.place(), failure.message),
            ..failure
        });
    }
    let facts = client.stat().map_err(fail)?;
    match args.json {
        true => json::print(&printed(facts)),
        false => output::print(&people::text(&served.pong.source, &Statistics::of(&facts))),
    }
}

/// Writes a whole file, or leaves the old one: a collector, such as node-exporter, may read it at
/// any moment. The temporary name does not end as collected files do.
fn put(file: &Path, text: &str) -> Result<(), Failure> {
    let fail = |error| Failure::new(format_args!("{}: {error}", file.display()));
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}~", std::process::id()));
    let beside = file.with_file_name(name);
    let written = fs::File::create(&beside)
        .and_then(|mut new| new.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&beside, file));
    written.map_err(|error| {
        // The error that matters is the first.
        let _ = fs::remove_file(&beside);
        fail(error)
    })
}

/// The statistics with percentiles instead of the daemon's counts.
fn printed(mut facts: Facts) -> Facts {
    let requests: serde_json::Map<String, Value> = requests::of(&facts)
        .into_iter()
        .filter_map(|(kind, counts)| Some((kind, serde_json::to_value(counts.summary()).ok()?)))
        .collect();
    facts.remove("requests");
    facts.insert("latency".into(), requests.into());
    facts
}
