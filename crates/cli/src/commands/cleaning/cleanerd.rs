//! `dendro cleanerd`: cleans in the foreground whenever few segments are clean, until it is ended
//! or the volume is unmounted. It holds no state that matters and may be killed at any moment.

use std::thread;
use std::time::Duration;

use dendro_control::cleaning::{CleaningStatus, Head, SegmentFacts, SegwaitRequest};
use dendro_control::{Client, ClientError};
use serde::Serialize;

use super::cleaner::{Cleaner, End};
use crate::args::cleaning::{CleanerdArgs, Share};
use crate::failure::Failure;
use crate::output::{self, json};
use crate::target;

/// The longest wait for clean segments to become few.
const WAIT_MS: u64 = 60_000;
/// Segments of the map are not cleaned before so many segments have been written, as in the daemon.
const NODES_LIVE_SEGMENTS: u64 = 64;
/// The pause before the next search for something worth cleaning.
const IDLE_PAUSE: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &CleanerdArgs, quiet: bool) -> Result<(), Failure> {
    let served = target::find_mounted(&args.target)?;
    let (client, place) = (&served.client.clone().about_volume(), served.place());
    let present = client.segments(Default::default())?.present;
    let (min, max) = thresholds(args, &present)?;
    if !quiet {
        output::message(format_args!(
            "{}: cleaning when fewer than {min} of {} segments are clean, until {max} are; Ctrl-C \
             ends it",
            place, present.segment_count
        ));
    }
    let mut cleaner = Cleaner::new(client.clone(), args.policy, args.most_live);
    loop {
        let request = SegwaitRequest { clean_below: min, timeout_ms: WAIT_MS, for_fast: true };
        let round = client.segwait(request).and_then(|waited| {
            if waited.is_low { clean_until(max, &mut cleaner, args, quiet) } else { Ok(true) }
        });
        match round {
            Ok(true) => {}
            Ok(false) => {
                cleaner.forget_failures();
                thread::sleep(IDLE_PAUSE);
            }
            Err(error) => return end(client, place, error, quiet),
        }
    }
}

/// The result for a segment, as JSON.
#[derive(Serialize)]
struct Line {
    number: u32,
    /// The share of live data.
    utilisation: f64,
    outcome: End,
}

/// Cleans until so many segments are clean; returns false if nothing is left that is worth
/// cleaning.
fn clean_until(
    max: u32,
    cleaner: &mut Cleaner,
    args: &CleanerdArgs,
    quiet: bool,
) -> Result<bool, ClientError> {
    loop {
        let (victim, present) =
            cleaner.choose(|facts, present| is_worth_it(facts, present, max))?;
        let has_enough = present.clean_count + cleaner.emptied_count() >= max;
        if has_enough && !fast_is_short(&present, cleaner) {
            cleaner.release()?;
            return Ok(true);
        }
        let Some(victim) = victim else {
            cleaner.release()?;
            return Ok(false);
        };
        let end = cleaner.clean(&victim)?;
        if args.json {
            let utilisation = f64::from(victim.live_bytes) / present.segment_bytes.max(1) as f64;
            let number = victim.number;
            // Cleaning goes on even if nobody reads the output any more.
            let _ = json::line(&Line { number, utilisation, outcome: end })
                .and_then(|line| output::print(&line));
        }
        if !quiet && args.verbose {
            let percent = u64::from(victim.live_bytes) * 100 / present.segment_bytes.max(1);
            output::message(format_args!(
                "segment {}, {percent}% full: {}",
                victim.number,
                what(end)
            ));
        }
        if end == End::NoRoom {
            cleaner.release()?;
            return Ok(false);
        }
        thread::sleep(args.pause);
    }
}

/// Whether more fast segments should be emptied than were.
fn fast_is_short(present: &CleaningStatus, cleaner: &Cleaner) -> bool {
    present.fast_clean_count + cleaner.emptied_count() < present.fast_wanted_count
}

/// Most nodes of the map become dead with the next checkpoints anyway. When enough segments are
/// clean, only fast ones can be short.
fn is_worth_it(facts: &SegmentFacts, present: &CleaningStatus, max: u32) -> bool {
    if present.clean_count >= max && !facts.is_fast {
        return false;
    }
    let young = NODES_LIVE_SEGMENTS * present.segment_bytes;
    facts.head != Head::Map || present.clock.saturating_sub(facts.filled_at) >= young
}

const fn what(end: End) -> &'static str {
    match end {
        End::Emptied => "cleaned",
        End::Gone => "cleaned by somebody else, or in use",
        End::NoRoom => "no room to move its blocks to",
        End::Stuck => "cannot be emptied, since blocks in it are damaged",
    }
}

fn thresholds(args: &CleanerdArgs, present: &CleaningStatus) -> Result<(u32, u32), Failure> {
    let count = |share: Share| share.of(present.segment_count);
    let (min, max) = (count(args.min_clean_segments), count(args.max_clean_segments));
    if min > max {
        return Err(Failure::new(format_args!(
            "--min-clean-segments comes to {min} segments, more than --max-clean-segments, {max}"
        ))
        .with_code(crate::failure::code::USAGE));
    }
    Ok((min, max))
}

/// The daemon does not answer: this is the end, without an error if the volume was unmounted.
fn end(client: &Client, place: &str, error: ClientError, quiet: bool) -> Result<(), Failure> {
    let has_ended = |error: &ClientError| {
        matches!(error, ClientError::Unreachable { .. } | ClientError::NotMeant(_))
    };
    let is_over = has_ended(&error) || client.ping().is_err_and(|error| has_ended(&error));
    if !is_over {
        return Err(Failure::new(format_args!("{place}: {error}")));
    }
    if !quiet {
        output::message(format_args!("{place}: its daemon has ended, and so does this"));
    }
    Ok(())
}
