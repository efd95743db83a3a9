//! `dendro send` and `dendro receive`; and `dendro stream`, which looks into kept streams.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read, Write};
use std::path::Path;

use dendro_base::Timestamp;
use dendro_control::streams::{
    ReceiveRequest, ReceivedInfo, SendRequest, StreamInfo, StreamVersion,
};
use dendro_control::versions::VersionName;
use dendro_daemon::{local_time, streams, text};
use dendro_stream::{Decoder, Item, ListChange, StreamError};
use dendro_versions::name;
use serde::Serialize;

use crate::args::streams::{ReceiveArgs, SendArgs, StreamFileArgs, StreamVerb};
use crate::failure::{Failure, usage};
use crate::offline;
use crate::output::progress::Progress;
use crate::output::{self, json};
use crate::target::{self, Keeper, Place};

pub(crate) fn send(args: &SendArgs, quiet: bool) -> Result<(), Failure> {
    let Place { keeper, version, .. } = target::find_version(&args.target)?;
    let now = local_time::now()?;
    let from = args.from.as_ref().map(|from| name::parse_version(from, &now));
    let request =
        SendRequest { of: version, from: from.transpose().map_err(usage)?, level: args.compress };
    let info = match &args.output {
        Some(path) => send_to_file(&keeper, request, path, quiet)?,
        None if io::stdout().is_terminal() => {
            return Err(usage("standard output is a terminal: name a file with -o, or a pipe"));
        }
        None => send_to(&keeper, request, &mut io::stdout().lock(), quiet)?,
    };
    if args.json {
        return json::print(&info);
    }
    if !quiet {
        output::message(summary(&info));
    }
    Ok(())
}

/// Writes the stream into a new file, which is removed if it does not become whole.
fn send_to_file(
    keeper: &Keeper,
    request: SendRequest,
    path: &Path,
    quiet: bool,
) -> Result<StreamInfo, Failure> {
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

fn send_to(
    keeper: &Keeper,
    request: SendRequest,
    out: &mut impl Write,
    quiet: bool,
) -> Result<StreamInfo, Failure> {
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

pub(crate) fn receive(args: &ReceiveArgs, quiet: bool) -> Result<(), Failure> {
    let Place { keeper, version, path } = target::find_version(&args.target)?;
    let VersionName { branch: None, moment } = version else {
        return Err(usage(format_args!(
            "{}: a version is received into a branch of its own: name {}@NAME",
            args.target,
            path.display()
        )));
    };
    let request = ReceiveRequest { name: moment.map(|moment| moment.text) };
    let mut input = open_input(&args.file)?;
    let info = receive_from(&keeper, request, &mut input, &args.file, quiet)?;
    if args.json {
        return json::print(&info);
    }
    if !quiet {
        let name = info.name.clone().unwrap_or_else(|| info.epoch.to_string());
        output::message(format_args!("received @{name}: {}", summary(&info.stream)));
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

/// The stream in `file`.
fn open_input(file: &Path) -> Result<Box<dyn Read>, Failure> {
    if file != Path::new("-") {
        let opened = File::open(file);
        return match opened {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(Failure::new(format_args!("{}: {error}", file.display()))),
        };
    }
    if io::stdin().is_terminal() {
        return Err(usage("standard input is a terminal: name a file, or use a pipe"));
    }
    Ok(Box::new(io::stdin().lock()))
}

fn summary(info: &StreamInfo) -> String {
    let content = text::size(info.content_bytes);
    let compressed = match info.compressed {
        true => format!(", compressed from {content}"),
        false => String::new(),
    };
    format!(
        "{}{}: {}{compressed}; {} new, {} changed, {} deleted",
        named(&info.snapshot),
        info.base_snapshot
            .as_ref()
            .map_or_else(String::new, |base| format!(" from {}", named(base))),
        text::size(info.stream_bytes),
        text::counted(info.made_lists, "file", "files"),
        info.changed_lists,
        info.deleted_lists,
    )
}

fn named(version: &StreamVersion) -> String {
    version.name.as_ref().map_or_else(|| format!("@{}", version.epoch), |name| format!("@{name}"))
}

pub(crate) fn stream(verb: &StreamVerb) -> Result<(), Failure> {
    match verb {
        StreamVerb::Verify(args) => verify(args),
        StreamVerb::List(args) => list(args),
    }
}

/// Reads all of a stream, and calls `take` with each item.
fn read(file: &Path, take: impl FnMut(&Item<'_>)) -> Result<StreamInfo, Failure> {
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", file.display()));
    read_items(BufReader::new(open_input(file)?), take).map_err(|error| fail(&error))
}

fn read_items(
    input: impl Read,
    mut take: impl FnMut(&Item<'_>),
) -> Result<StreamInfo, StreamError> {
    let mut decoder = Decoder::begin(input)?;
    while let Some(item) = decoder.next_item()? {
        take(&item);
    }
    let info = streams::info(decoder.header(), decoder.counts(), decoder.read_bytes());
    decoder.finish()?;
    Ok(info)
}

fn verify(args: &StreamFileArgs) -> Result<(), Failure> {
    let info = read(&args.file, |_| ())?;
    if args.json {
        return json::print(&info);
    }
    output::print(&facts(&info))
}

/// The facts about a stream, for people.
fn facts(info: &StreamInfo) -> String {
    let version = |version: &StreamVersion| {
        let time = text::time(Timestamp(version.created_unix_ns).secs());
        format!(
            "{}, made {time}, epoch {} of {}",
            named(version),
            version.epoch,
            version.volume_uuid
        )
    };
    let base =
        info.base_snapshot.as_ref().map_or_else(|| "nothing: it is complete".into(), version);
    output::table(&[
        ("Snapshot", version(&info.snapshot)),
        ("Based on", base),
        ("Sent by", info.source_uuid.clone()),
        ("Stream", info.stream_uuid.clone()),
        ("Length", text::size(info.stream_bytes)),
        ("Content", text::size(info.content_bytes)),
        ("Compressed", if info.compressed { "yes" } else { "no" }.into()),
        (
            "Files",
            format!(
                "{} new, {} changed, {} deleted",
                info.made_lists, info.changed_lists, info.deleted_lists
            ),
        ),
    ])
}

/// What is in a stream of one file.
#[derive(Debug, Serialize)]
struct FileInStream {
    inode: u64,
    change: &'static str,
    put_records: u64,
    deleted_records: u64,
    data_pages: u64,
    zero_pages: u64,
    content_bytes: u64,
}

impl FileInStream {
    const fn new(inode: u64, change: ListChange) -> Self {
        let change = match change {
            ListChange::Made => "new",
            ListChange::Changed => "changed",
            ListChange::Deleted => "deleted",
        };
        Self {
            inode,
            change,
            put_records: 0,
            deleted_records: 0,
            data_pages: 0,
            zero_pages: 0,
            content_bytes: 0,
        }
    }

    const fn add(&mut self, item: &Item<'_>) {
        match item {
            Item::Record { value: Some(value), .. } => {
                self.put_records += 1;
                self.content_bytes += value.len() as u64;
            }
            Item::Record { value: None, .. } => self.deleted_records += 1,
            Item::Page { bytes, .. } => {
                self.data_pages += 1;
                self.content_bytes += bytes.len() as u64;
            }
            Item::Zeros(pages) => self.zero_pages += pages.end - pages.start,
            Item::List { .. } | Item::Holes(_) => {}
        }
    }

    /// Prints a line. A stream may have any number of files, so nothing is kept of those before.
    fn print(&self, as_json: bool) -> Result<(), Failure> {
        if as_json {
            return output::print(&json::line(self)?);
        }
        output::print(&line_of([
            &self.inode.to_string(),
            self.change,
            &self.put_records.to_string(),
            &self.deleted_records.to_string(),
            &self.data_pages.to_string(),
            &self.zero_pages.to_string(),
            &self.content_bytes.to_string(),
        ]))
    }
}

fn line_of([inode, change, put, deleted, data, zeros, bytes]: [&str; 7]) -> String {
    format!(
        "{inode:>10}  {change:<7}  {put:>8}  {deleted:>8}  {data:>8}  {zeros:>8}  {bytes:>12}\n"
    )
}

fn list(args: &StreamFileArgs) -> Result<(), Failure> {
    if !args.json {
        let head = ["INODE", "CHANGE", "RECORDS", "DELETED", "PAGES", "ZEROS", "BYTES"];
        output::print(&line_of(head))?;
    }
    let mut last: Option<FileInStream> = None;
    let mut printed = Ok(());
    read(&args.file, |item| {
        if let Item::List { list, change, .. } = item {
            if let Some(file) = last.replace(FileInStream::new(*list, *change))
                && printed.is_ok()
            {
                printed = file.print(args.json);
            }
        } else if let Some(file) = &mut last {
            file.add(item);
        }
    })?;
    printed?;
    last.map_or(Ok(()), |file| file.print(args.json))
}
