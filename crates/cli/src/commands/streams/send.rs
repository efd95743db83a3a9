//! `dendro send`.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use dendro_control::streams::{SendRequest, SentInfo};
use dendro_control::versions::VersionName;
use dendro_daemon::{local_time, text};
use dendro_versions::name;

use super::words::sent_summary;
use super::{heads, pipe};
use crate::args::streams::SendArgs;
use crate::failure::{Failure, usage};
use crate::offline;
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target::{self, Keeper, Place};

pub(crate) fn send(args: &SendArgs, quiet: bool) -> Result<(), Failure> {
    let Place { keeper, version, .. } = target::find_version(&args.target)?;
    let now = local_time::now()?;
    let from = args.from.as_ref().map(|from| name::parse_version(from, &now));
    let from = from.transpose().map_err(usage)?;
    let resume = args.resume.clone();
    if (args.all || resume.is_some()) && version != VersionName::default() {
        let option = if args.all { "--all" } else { "--resume" };
        return Err(usage(format_args!("{}: {option} needs no snapshot to be named", args.target)));
    }
    let all = if args.all { Some(heads::snapshots(&keeper)?) } else { None };
    let request = SendRequest { of: version, from, level: args.compress, all, resume };
    let info = match &args.output {
        Some(path) => send_to_file(&keeper, request, path, quiet)?,
        None if io::stdout().is_terminal() => {
            return Err(usage("standard output is a terminal: name a file with -o, or a pipe"));
        }
        None => {
            let fail = |error| Failure::new(format_args!("standard output: {error}"));
            send_to(&keeper, request, &mut pipe::stdout().map_err(fail)?, quiet)?
        }
    };
    if args.json {
        return json::print(&info);
    }
    if !quiet {
        output::message(sent_summary(&info));
    }
    Ok(())
}

/// Writes the stream into a new file, which is removed if it does not become whole.
fn send_to_file(
    keeper: &Keeper,
    request: SendRequest,
    path: &Path,
    quiet: bool,
) -> Result<SentInfo, Failure> {
    let fail = |error: io::Error| Failure::new(format_args!("{}: {error}", path.display()));
    let mut file = File::create_new(path).map_err(fail)?;
    let sent = send_to(keeper, request, &mut file, quiet)
        .and_then(|info| file.sync_all().map_err(fail).map(|()| info));
    if sent.is_err() {
        // What there is of it is of no use.
        drop(std::fs::remove_file(path));
    }
    sent
}

/// Writes what `request` asks for to `out`.
pub(crate) fn send_to(
    keeper: &Keeper,
    request: SendRequest,
    out: &mut impl Write,
    quiet: bool,
) -> Result<SentInfo, Failure> {
    let progress = Progress::new(quiet);
    let show = |written_bytes| progress.show(format!("{} sent", text::size(written_bytes)));
    match keeper {
        Keeper::Offline(source) => offline::send(source, &request, out, show),
        Keeper::Daemon(served) => {
            let fail = |why: &dyn std::fmt::Display| {
                Failure::new(format_args!("{}: {why}", served.place()))
            };
            let mut written_bytes = 0;
            let sent = served.client.send_stream(request, |bytes| {
                out.write_all(bytes)?;
                written_bytes += bytes.len() as u64;
                show(written_bytes);
                Ok(())
            });
            let sent = sent.map_err(|error| fail(&error))?;
            sent.and_then(|info| out.flush().map(|()| info))
                .map_err(|error| fail(&format_args!("the stream cannot be written: {error}")))
        }
    }
}
