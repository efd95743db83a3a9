//! `dendro receive`.

use std::io::{self, BufReader, Read};
use std::path::Path;

use dendro_control::streams::{ReceiveRequest, ReceivedInfo};
use dendro_control::versions::VersionName;
use dendro_daemon::text;
use serde::Serialize;

use super::input::open_input;
use super::words::summary;
use crate::args::streams::ReceiveArgs;
use crate::failure::{Failure, usage};
use crate::offline;
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target::{self, Keeper, Place};

pub(crate) fn receive(args: &ReceiveArgs, quiet: bool) -> Result<(), Failure> {
    let Place { keeper, version, path } = target::find_version(&args.target)?;
    let VersionName { branch: None, moment } = version else {
        return Err(usage(format_args!(
            "{}: a version is received into a branch of its own: name {}@NAME",
            args.target,
            path.display()
        )));
    };
    let request = ReceiveRequest {
        name: moment.map(|moment| moment.text),
        resumable: args.resumable,
        branches: args.branches,
        abort: args.abort,
    };
    if args.abort {
        return abort(&keeper, request, args, quiet);
    }
    let mut input = open_input(&args.file)?;
    let info = receive_from(&keeper, request, &mut input, &args.file, quiet)?;
    if args.json {
        return json::print(&info);
    }
    if !quiet {
        tell_received(&info);
    }
    Ok(())
}

fn tell_received(info: &ReceivedInfo) {
    let name = info.name.clone().unwrap_or_else(|| info.epoch.to_string());
    if info.received_count == 1 && info.skipped_count == 0 {
        output::message(format_args!("received @{name}: {}", summary(&info.stream)));
    } else {
        output::message(format_args!(
            "received {} up to @{name}: {}; {} were here already",
            text::counted(info.received_count, "snapshot", "snapshots"),
            text::size(info.sequence_bytes),
            info.skipped_count
        ));
    }
    for branch in &info.made_branches {
        output::message(format_args!("made the branch :{branch}"));
    }
    if let Some(snapshot) = &info.main_snapshot {
        output::message(format_args!(
            "the main branch of the sender is as {snapshot}; `dendro clone` and `dendro promote` go \
             there"
        ));
    }
}

/// What was given up.
#[derive(Serialize)]
struct Aborted {
    aborted_count: u64,
}

/// Gives up what was received in part.
fn abort(
    keeper: &Keeper,
    request: ReceiveRequest,
    args: &ReceiveArgs,
    quiet: bool,
) -> Result<(), Failure> {
    let info = receive_from(keeper, request, &mut io::empty(), &args.file, quiet)?;
    let aborted_count = info.aborted_count.unwrap_or_default();
    if args.json {
        return json::print(&Aborted { aborted_count });
    }
    if !quiet {
        let count = text::counted(aborted_count, "snapshot", "snapshots");
        output::message(format_args!("gave up {count} that had been received in part"));
    }
    Ok(())
}

fn receive_from(
    keeper: &Keeper,
    request: ReceiveRequest,
    input: &mut dyn Read,
    file: &Path,
    quiet: bool,
) -> Result<ReceivedInfo, Failure> {
    let progress = Progress::new(quiet);
    let show = |read_bytes| progress.show(format!("{} received", text::size(read_bytes)));
    match keeper {
        Keeper::Offline(source) => offline::receive(source, &request, BufReader::new(input), show),
        Keeper::Daemon(served) => {
            let received = served.client.receive_stream(request, input, show);
            received
                .map_err(|error| Failure::new(format_args!("{}: {error}", served.place())))?
                .map_err(|error| Failure::new(format_args!("{}: {error}", file.display())))
        }
    }
}
