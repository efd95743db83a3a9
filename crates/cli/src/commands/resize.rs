//! `dendro resize`.

use dendro_control::resizing::{ResizeProgress, ResizeRequest, ResizeTo, Resized};
use dendro_daemon::text;
use serde::Serialize;

use crate::args::resize::ResizeArgs;
use crate::commands::devices;
use crate::failure::Failure;
use crate::offline;
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target::{self, Target};

/// The result.
#[derive(Serialize)]
struct Outcome<'a> {
    target: &'a str,
    size_bytes: u64,
    size_bytes_before: u64,
    rounded_down: bool,
    segment_bytes: u64,
    total_segments: u32,
    available_bytes: u64,
}

pub(crate) fn run(args: &ResizeArgs, quiet: bool) -> Result<(), Failure> {
    let device = args.device.as_deref().map(devices::named).transpose()?;
    let request = ResizeRequest { to: args.size, device };
    let line = Progress::bar(quiet);
    let show = |ResizeProgress { segment_count, left_count }| {
        let done = segment_count - left_count.min(segment_count);
        let percent = u64::from(done) * 100 / u64::from(segment_count.max(1));
        line.show_part(percent, format!("{done} of {segment_count} segments emptied"));
    };
    let resized = match target::find(&args.target)? {
        Target::Mounted(served) => served
            .client
            .resize(request, show)
            .map_err(|error| Failure::new(format_args!("{}: {error}", served.place())))?,
        Target::Unmounted(source) => offline::resize(&source, &request, show)?,
    };
    drop(line);
    let outcome = Outcome {
        target: &args.target.display().to_string(),
        size_bytes: resized.size_bytes,
        size_bytes_before: resized.before_bytes,
        rounded_down: is_rounded_down(args.size, &resized),
        segment_bytes: resized.segment_bytes,
        total_segments: resized.segment_count,
        available_bytes: resized.available_bytes,
    };
    match (args.json, quiet) {
        (true, _) => json::print(&outcome),
        (false, false) => output::print(&outcome_text(&outcome)),
        (false, true) => Ok(()),
    }
}

/// Whether the volume has become smaller than was asked for, because segments are whole.
const fn is_rounded_down(asked: ResizeTo, resized: &Resized) -> bool {
    !matches!(asked, ResizeTo::Max) && !resized.wanted_bytes.is_multiple_of(resized.segment_bytes)
}

fn outcome_text(outcome: &Outcome<'_>) -> String {
    let Outcome { target, size_bytes, size_bytes_before, .. } = *outcome;
    let available = text::size(outcome.available_bytes);
    let mut report = match size_bytes == size_bytes_before {
        true => format!("{target}: {}, as before", text::size(size_bytes)),
        false => {
            format!(
                "{target}: {}, {} before",
                text::size(size_bytes),
                text::size(size_bytes_before)
            )
        }
    };
    report += &format!("; {available} can be written\n");
    if outcome.rounded_down {
        let segment = text::size(outcome.segment_bytes);
        report += &format!("the size was rounded down to whole segments of {segment}\n");
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_both_sizes_and_what_was_rounded() {
        let outcome = Outcome {
            target: "home.img",
            size_bytes: 3 << 20,
            size_bytes_before: 2 << 20,
            rounded_down: true,
            segment_bytes: 1 << 20,
            total_segments: 3,
            available_bytes: 1 << 20,
        };
        let text = outcome_text(&outcome);
        assert!(
            text.starts_with("home.img: 3 MiB, 2 MiB before; 1 MiB can be written\n"),
            "{text}"
        );
        assert!(text.ends_with("rounded down to whole segments of 1 MiB\n"), "{text}");
    }
}
