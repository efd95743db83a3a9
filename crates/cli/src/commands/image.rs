//! `dendro image --metadata`: a copy of a volume for a report of an error, without the contents of
//! files and with names hidden.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use dendro_check::{Hide, MetadataOptions, MetadataReport, copy_metadata};
use dendro_daemon::text;
use dendro_daemon::volume::random_bytes;
use dendro_device::{Device, OpenOptions};
use dendro_disk::MAIN;
use dendro_fs::{BEFORE_REPAIR, Hider, end_of_data};
use serde::Serialize;

use super::rebuild;
use crate::args::check::ImageArgs;
use crate::failure::{Failure, code};
use crate::output::progress::Progress;
use crate::output::{self, json};

/// The result, as it is printed.
#[derive(Debug, Serialize)]
struct Outcome {
    source: String,
    target: String,
    /// Blocks of pages were read, to learn which of them are damaged.
    data_read: bool,
    #[serde(flatten)]
    report: MetadataReport,
}

/// Hides the names of versions too, but for those that say nothing of a user.
struct Names(Hider);

impl Hide for Names {
    fn learn(&mut self, list: u64, index: u64, record: &[u8]) {
        self.0.learn(list, index, record);
    }

    fn hide_record(&self, list: u64, index: u64, record: &mut [u8]) {
        self.0.hide(list, index, record);
    }

    fn hide_name(&self, name: &str) -> String {
        if name == MAIN || name.starts_with(BEFORE_REPAIR) {
            return name.to_owned();
        }
        let mut bytes = name.as_bytes().to_vec();
        self.0.hide_name(&mut bytes);
        String::from_utf8(bytes).unwrap_or_else(|_| "-".repeat(name.len()))
    }

    fn end_bytes(&self, index: u64, record: &[u8]) -> Option<u64> {
        end_of_data(index, record)
    }
}

pub(crate) fn run(args: &ImageArgs, quiet: bool) -> Result<ExitCode, Failure> {
    let source = rebuild::source(&args.source)?;
    let outcome = copy(&source, args, &Progress::new(quiet))?;
    if args.json {
        json::print(&outcome)?;
    } else if !quiet {
        output::print(&text_of(&outcome))?;
    }
    let is_whole = outcome.report.bad_node_count == 0 && outcome.report.bad_page_count == 0;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(code::CHECK_LEFT) })
}

fn copy(source: &Path, args: &ImageArgs, progress: &Progress) -> Result<Outcome, Failure> {
    let from = rebuild::open(source, true)?;
    let fail = |what: &Path, why: &dyn std::fmt::Display| {
        Failure::new(format_args!("{}: {why}", what.display()))
    };
    let to = &args.to;
    let file = File::create_new(to).map_err(|error| fail(to, &error))?;
    file.set_len(from.len_bytes()).map_err(|error| fail(to, &error))?;
    drop(file);
    let target = OpenOptions::new().open(to).map_err(|error| fail(to, &error))?;
    let mut names = Names(Hider::new(&random_bytes()?));
    let options = MetadataOptions { data: args.data };
    let mut show = |nodes| progress.show(format!("{nodes} map nodes copied"));
    let report =
        copy_metadata(&from, &target, &mut names, &options, &mut show).map_err(|error| {
            // What there is of it is of no use.
            drop(std::fs::remove_file(to));
            fail(source, &error)
        })?;
    Ok(Outcome {
        source: source.display().to_string(),
        target: to.display().to_string(),
        data_read: args.data,
        report,
    })
}

fn text_of(outcome: &Outcome) -> String {
    let mut text = format!(
        "{}: {} of metadata; {}, {}; zeros in place of {}\n",
        outcome.target,
        text::size(outcome.report.copied_bytes),
        text::counted(outcome.report.node_count, "map node", "map nodes"),
        text::counted(outcome.report.partial_count, "partial segment", "partial segments"),
        text::counted(outcome.report.page_count, "page", "pages"),
    );
    if outcome.report.bad_node_count > 0 {
        let nodes = text::counted(outcome.report.bad_node_count, "map node", "map nodes");
        text += &format!("  {nodes} cannot be used, nor can they in the copy\n");
    }
    if outcome.report.bad_page_count > 0 {
        let pages = text::counted(outcome.report.bad_page_count, "page", "pages");
        text += &format!("  {pages} cannot be read, nor can they in the copy\n");
    }
    if !outcome.data_read {
        text += "  whether the contents of files are damaged was not looked at (--data)\n";
    }
    text
}
