//! `dendro clean run`: cleans a given amount now.

use std::collections::BTreeSet;

use dendro_control::cleaning::{CleaningStatus, SegmentState};
use dendro_daemon::text;
use serde::Serialize;

use super::cleaner::{Cleaner, Done, End};
use crate::args::cleaning::RunArgs;
use crate::failure::Failure;
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target;

/// The result.
#[derive(Serialize)]
struct Outcome {
    cleaned_segments: u64,
    moved_blocks: u64,
    /// The mean share of live data in the segments; `None` without any.
    cleaned_utilisation: Option<f64>,
    /// Segments that could not be emptied.
    stuck_segments: u64,
    clean_segments_before: u32,
    clean_segments: u32,
    /// Whether it ended because there was no room for moved blocks.
    ended_for_room: bool,
}

pub(crate) fn run(args: &RunArgs, quiet: bool) -> Result<(), Failure> {
    let served = target::find_mounted(&args.target)?;
    let (client, place) = (&served.client.clone().about_volume(), served.place());
    let fail = |error| Failure::new(format_args!("{place}: {error}"));
    let mut cleaner = Cleaner::new(client.clone(), args.policy, args.most_live);
    let all = client.all_segments().map_err(fail)?;
    // Segments that the cleaning itself fills are not cleaned again.
    let mut left: BTreeSet<u32> = (all.segments.iter())
        .filter(|facts| facts.state == SegmentState::Dirty)
        .map(|facts| facts.number)
        .collect();
    let progress = Progress::new(quiet);
    let (mut stuck_segments, mut ended_for_room) = (0, false);
    while args.segments.is_none_or(|count| cleaner.done().segments < count) {
        let (victim, present) =
            cleaner.choose(|facts, _| left.contains(&facts.number)).map_err(fail)?;
        let clean_count = present.clean_count + cleaner.emptied_count();
        let is_enough = args.until_clean.is_some_and(|count| clean_count >= count);
        if is_enough && cleaner.emptied_count() > 0 {
            // Other cleaners may have counted some of them already.
            cleaner.release().map_err(fail)?;
            continue;
        }
        let Some(victim) = victim.filter(|_| !is_enough) else { break };
        progress.show(how_far(args, cleaner.done(), &present));
        left.remove(&victim.number);
        match cleaner.clean(&victim).map_err(fail)? {
            End::Emptied | End::Gone => {}
            End::Stuck => stuck_segments += 1,
            End::NoRoom => {
                ended_for_room = true;
                break;
            }
        }
    }
    cleaner.release().map_err(fail)?;
    drop(progress);
    let after = client.segments(Default::default()).map_err(fail)?.present;
    let outcome = outcome(cleaner.done(), &all.present, &after, stuck_segments, ended_for_room);
    if args.json {
        return json::print(&outcome);
    }
    if quiet { Ok(()) } else { output::print(&outcome_text(place, &outcome, &after)) }
}

fn outcome(
    done: &Done,
    before: &CleaningStatus,
    after: &CleaningStatus,
    stuck_segments: u64,
    ended_for_room: bool,
) -> Outcome {
    let cleaned_bytes = done.segments as f64 * after.segment_bytes as f64;
    Outcome {
        cleaned_segments: done.segments,
        moved_blocks: done.moved_blocks,
        cleaned_utilisation: (done.segments > 0).then(|| done.live_bytes as f64 / cleaned_bytes),
        stuck_segments,
        clean_segments_before: before.clean_count,
        clean_segments: after.clean_count,
        ended_for_room,
    }
}

fn outcome_text(mount_point: &str, outcome: &Outcome, after: &CleaningStatus) -> String {
    let Outcome { cleaned_segments, moved_blocks, stuck_segments, .. } = outcome;
    let cleaned = text::counted(*cleaned_segments, "segment", "segments");
    let mut report = format!("{mount_point}: {cleaned} cleaned");
    if let Some(utilisation) = outcome.cleaned_utilisation {
        let percent = utilisation * 100.0;
        let moved = text::counted(*moved_blocks, "block", "blocks");
        report += &format!(", {percent:.0}% full in the mean; {moved} moved");
    }
    report += &format!(
        "\n{} of {} segments of {} are clean; there were {}\n",
        after.clean_count,
        after.segment_count,
        text::size(after.segment_bytes),
        outcome.clean_segments_before
    );
    if *stuck_segments > 0 {
        report += &format!("{stuck_segments} could not be emptied: blocks in them are damaged\n");
    }
    if outcome.ended_for_room {
        report += "it ended because there is no room to move blocks to; delete something\n";
    }
    report
}

/// The text of the progress line.
fn how_far(args: &RunArgs, done: &Done, present: &CleaningStatus) -> String {
    let of = args.segments.map_or(String::new(), |goal| format!(" of {goal}"));
    let until = args.until_clean.map_or(String::new(), |count| format!(" of {count} wanted"));
    format!("{}{of} segments cleaned, {}{until} clean", done.segments, present.clean_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_segment_is_one() {
        let done = Done { segments: 1, moved_blocks: 1, live_bytes: 256 << 10 };
        let after = CleaningStatus { segment_bytes: 512 << 10, ..CleaningStatus::default() };
        let text = outcome_text("mnt", &outcome(&done, &after, &after, 0, false), &after);
        assert!(
            text.starts_with("mnt: 1 segment cleaned, 50% full in the mean; 1 block moved\n"),
            "{text}"
        );
    }
}
