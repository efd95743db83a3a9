//! `dendro stream verify` and `list`: what is in kept streams.

use std::cell::RefCell;
use std::io::{BufReader, Read};
use std::path::Path;

use dendro_base::Timestamp;
use dendro_control::streams::{StreamInfo, StreamVersion};
use dendro_control::versions::path_text;
use dendro_daemon::{streams, text};
use dendro_stream::{Header, Item, ListChange, Sequence};
use serde::Serialize;

use super::input::open_input;
use super::names::{MAX_NAMES, Names};
use super::words::named;
use crate::args::streams::{StreamFileArgs, StreamListArgs};
use crate::failure::Failure;
use crate::output::{self, json};

/// A kept stream, or a sequence of them, that is being read.
struct Input<'a> {
    file: &'a Path,
    sequence: Sequence<BufReader<Box<dyn Read>>>,
}

impl<'a> Input<'a> {
    fn open(file: &'a Path) -> Result<Self, Failure> {
        let sequence = Sequence::new(BufReader::new(open_input(file)?));
        Ok(Self { file, sequence })
    }

    /// Reads the next stream to its end. Calls `begin` with its header, and `take` with each item.
    /// `None`: there is no more.
    fn read_stream(
        &mut self,
        mut begin: impl FnMut(&Header),
        mut take: impl FnMut(&Item<'_>),
    ) -> Result<Option<StreamInfo>, Failure> {
        let read = self.sequence.next_stream().and_then(|next| {
            let Some(mut decoder) = next else { return Ok(None) };
            begin(decoder.header());
            while let Some(item) = decoder.next_item()? {
                take(&item);
            }
            let info = streams::info(decoder.header(), decoder.counts(), decoder.read_bytes());
            if !decoder.header().is_followed {
                decoder.finish()?;
            }
            Ok(Some(info))
        });
        read.map_err(|error| {
            let why = self.sequence.describe(&error);
            Failure::new(format_args!("{}: {why}", self.file.display()))
        })
    }
}

pub(super) fn verify(args: &StreamFileArgs) -> Result<(), Failure> {
    let mut input = Input::open(&args.file)?;
    let mut is_first = true;
    while let Some(info) = input.read_stream(|_| (), |_| ())? {
        let text = match args.json {
            true => json::line(&info)?,
            false if is_first => facts(&info),
            false => format!("\n{}", facts(&info)),
        };
        output::print(&text)?;
        is_first = false;
    }
    Ok(())
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
    let mut rows = vec![("Snapshot", version(&info.snapshot)), ("Based on", base)];
    if let Some(branch) = &info.head_of {
        rows.push(("Head of", format!(":{}", text::printable(branch))));
    }
    if info.rest {
        rows.push(("Part", "the rest of a stream that had broken off".into()));
    }
    rows.extend([
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
    ]);
    output::table(&rows)
}

/// What is in a stream of one file.
#[derive(Debug, Serialize)]
struct FileInStream {
    inode: u64,
    /// `None` where the streams do not say it.
    path: Option<String>,
    change: &'static str,
    put_records: u64,
    deleted_records: u64,
    data_pages: u64,
    zero_pages: u64,
    content_bytes: u64,
}

impl FileInStream {
    fn new(inode: u64, change: ListChange, names: &Names) -> Self {
        let is_gone = change == ListChange::Deleted;
        let change = match change {
            ListChange::Made => "new",
            ListChange::Changed => "changed",
            ListChange::Deleted => "deleted",
        };
        Self {
            inode,
            path: names.path_of(inode, is_gone).map(|path| path_text(&path)),
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
            self.path.as_deref().unwrap_or("-"),
        ]))
    }
}

fn line_of([inode, change, put, deleted, data, zeros, bytes, path]: [&str; 8]) -> String {
    format!(
        "{inode:>10}  {change:<7}  {put:>8}  {deleted:>8}  {data:>8}  {zeros:>8}  {bytes:>12}  \
         {path}\n"
    )
}

pub(super) fn list(args: &StreamListArgs) -> Result<(), Failure> {
    let mut names = Names::default();
    for base in &args.bases {
        let mut input = Input::open(base)?;
        while read_names(&mut input, &mut names)?.is_some() {}
    }
    // The name of a file may come behind the file, so the streams are read twice.
    let mut for_names = match args.file == Path::new("-") {
        true => None,
        false => Some(Input::open(&args.file)?),
    };
    let mut input = Input::open(&args.file)?;
    if !args.json {
        let head = ["INODE", "CHANGE", "RECORDS", "DELETED", "PAGES", "ZEROS", "BYTES", "PATH"];
        output::print(&line_of(head))?;
    }
    loop {
        if let Some(for_names) = &mut for_names {
            read_names(for_names, &mut names)?;
        }
        if !list_stream(&mut input, &names, args.json)? {
            break;
        }
    }
    match names.are_complete() {
        true => Ok(()),
        false => Err(Failure::new(format_args!(
            "{}: there are more names than {MAX_NAMES}; paths of some files are missing",
            args.file.display()
        ))),
    }
}

fn read_names(input: &mut Input<'_>, names: &mut Names) -> Result<Option<StreamInfo>, Failure> {
    let cell = RefCell::new(names);
    input.read_stream(|header| cell.borrow_mut().begin(header), |item| cell.borrow_mut().take(item))
}

/// Lists the next stream. Returns whether there was one.
fn list_stream(input: &mut Input<'_>, names: &Names, as_json: bool) -> Result<bool, Failure> {
    let mut last: Option<FileInStream> = None;
    let mut printed = Ok(());
    let read = input.read_stream(
        |_| (),
        |item| {
            if let Item::List { list, change, .. } = item {
                if let Some(file) = last.replace(FileInStream::new(*list, *change, names))
                    && printed.is_ok()
                {
                    printed = file.print(as_json);
                }
            } else if let Some(file) = &mut last {
                file.add(item);
            }
        },
    )?;
    printed?;
    if let Some(file) = last {
        file.print(as_json)?;
    }
    Ok(read.is_some())
}
