//! `dendro dump`: the structures on the device, read without the engine.
//!
//! Nothing is locked and nothing is changed, so a mounted volume can be dumped as well. Its
//! structures may then be of different moments, and contradictions are reported. Everything is
//! printed as it is read, so memory does not grow with the volume.

mod file;
mod output;
mod parts;
mod place;
mod segments;

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use dendro_check::Volume;
use dendro_check::info::{CheckpointInfo, EntryInfo, NodeInfo, SuperblockInfo};
use dendro_control::FindOutcome;
use dendro_daemon::holder;
use dendro_daemon::volume::devices::open_devices_to_read;
use dendro_device::{Direct, OpenOptions};
use dendro_format::{Key, SegmentNo, Space};

use self::output::Output;
use self::parts::{checkpoint, partials_of, print_partial};
use crate::args::{DumpArgs, DumpWhat};
use crate::failure::{Failure, code};
use crate::target::{self, Target};

pub(crate) fn run(args: &DumpArgs, quiet: bool) -> Result<(), Failure> {
    check_arguments(args)?;
    let wanted =
        args.path.as_ref().map(|path| file::find(&args.target, path, quiet)).transpose()?;
    let source = match &wanted {
        Some(wanted) => wanted.source.clone(),
        None => source(args, quiet)?,
    };
    let fail = |error: &dyn Display| Failure::new(format_args!("{}: {error}", source.display()));
    let options = OpenOptions::new().unlocked().direct(Direct::Never);
    let device = open_devices_to_read(&source, &options)?;
    let volume = Volume::open(&device).map_err(|error| fail(&error))?;
    if let Some(number) = args.segment
        && !volume.layout().is_log_segment(SegmentNo(number))
    {
        let last = volume.layout().segment_count() - 1;
        return Err(fail(&format_args!("the log has segments 2 to {last}, not {number}"))
            .with_code(code::USAGE));
    }
    let mut out = Output::new(args.json);
    let dumped = match (&wanted, args.offset) {
        (Some(wanted), _) => file::dump(&volume, wanted, &mut out),
        (None, Some(offset)) => {
            let end = volume.layout().len_bytes();
            if offset >= end {
                let why = format_args!("the volume ends at byte {end}");
                return Err(fail(&why).with_code(code::USAGE));
            }
            place::dump(&volume, offset, &source, &mut out)
        }
        (None, None) => dump(&volume, args, &mut out),
    };
    match dumped.and_then(|()| out.flush()) {
        // The reader has gone, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        Err(error) => return Err(Failure::new(format_args!("standard output: {error}"))),
        Ok(()) => {}
    }
    match out.problem_count {
        0 => Ok(()),
        1 => Err(fail(&"a part of it is damaged or changed while it was read, see above")),
        count => {
            Err(fail(&format_args!("{count} parts are damaged or changed while read, see above")))
        }
    }
}

fn check_arguments(args: &DumpArgs) -> Result<(), Failure> {
    use DumpWhat::{Map, Partials, Records, Segments};
    let misplaced = |option, with| {
        let why = format_args!("{option} goes with {with} only");
        Err(Failure::new(why).with_code(code::USAGE))
    };
    if args.segment.is_some() && !matches!(args.what, Some(Segments | Partials | Records)) {
        return misplaced("--segment", "segments, partials and records");
    }
    if args.log && !matches!(args.what, Some(Partials | Records)) {
        return misplaced("--log", "partials and records");
    }
    if args.list.is_some() && args.what != Some(Map) {
        return misplaced("--list", "map");
    }
    Ok(())
}

/// The image file or block device. A message says if it is mounted.
fn source(args: &DumpArgs, quiet: bool) -> Result<PathBuf, Failure> {
    if let FindOutcome::Unresponsive(mute) = holder::find(&args.target) {
        if !quiet {
            let source = args.target.display();
            crate::output::message(format_args!("dendro: {source} is in use, as it seems: {mute}"));
        }
        return Ok(args.target.clone());
    }
    match target::find(&args.target)? {
        Target::Unmounted(source) => Ok(source),
        Target::Mounted(served) => {
            if !quiet {
                crate::output::message(format_args!(
                    "dendro: {} is mounted on {}: this is what lies on the device now, and it may \
                     change while it is read",
                    served.pong.source,
                    served.place()
                ));
            }
            Ok(PathBuf::from(served.pong.source))
        }
    }
}

fn dump(volume: &Volume<'_>, args: &DumpArgs, out: &mut Output) -> io::Result<()> {
    let Some(what) = args.what else { return overview(volume, out) };
    match what {
        DumpWhat::Superblocks => volume
            .superblocks()
            .all()
            .iter()
            .try_for_each(|found| out.item("superblock", &SuperblockInfo::from(found))),
        DumpWhat::Checkpoint => match checkpoint(volume, out)? {
            Some(checkpoint) => out.item("checkpoint", &CheckpointInfo::from(&checkpoint)),
            None => Ok(()),
        },
        DumpWhat::Segments => segments::dump(volume, args.segment, out),
        DumpWhat::Partials => partials(volume, args, false, out),
        DumpWhat::Records => partials(volume, args, true, out),
        DumpWhat::Nodes => nodes(volume, out),
        DumpWhat::Map => entries(volume, args.list, out),
    }
}

/// The newest superblock, its checkpoint, and the log that recovery would find behind it.
fn overview(volume: &Volume<'_>, out: &mut Output) -> io::Result<()> {
    out.item("superblock", &SuperblockInfo::from(volume.superblocks().current()))?;
    let Some(checkpoint) = checkpoint(volume, out)? else { return Ok(()) };
    let info =
        CheckpointInfo { usage_overrides: Vec::new(), mirrors: Vec::new(), ..(&checkpoint).into() };
    out.item("checkpoint", &info)?;
    out.item("log", &volume.log_summary(&checkpoint))
}

/// Partial segments: of one segment, of the log behind the checkpoint, or of all segments.
fn partials(
    volume: &Volume<'_>,
    args: &DumpArgs,
    with_records: bool,
    out: &mut Output,
) -> io::Result<()> {
    if args.log {
        let Some(checkpoint) = checkpoint(volume, out)? else { return Ok(()) };
        for partial in volume.log(&checkpoint) {
            print_partial(&partial, with_records, out)?;
        }
        return out.item("log", &volume.log_summary(&checkpoint));
    }
    if let Some(number) = args.segment {
        return partials_of(volume, SegmentNo(number), with_records, true, out);
    }
    volume
        .layout()
        .log_segments()
        .try_for_each(|segment| partials_of(volume, segment, with_records, false, out))
}

fn nodes(volume: &Volume<'_>, out: &mut Output) -> io::Result<()> {
    let Some(checkpoint) = checkpoint(volume, out)? else { return Ok(()) };
    volume.nodes(&checkpoint).try_for_each(|node| match node {
        Ok(node) => out.item("node", &NodeInfo::from(&node)),
        Err(problem) => out.problem(&problem),
    })
}

fn entries(volume: &Volume<'_>, list: Option<u64>, out: &mut Output) -> io::Result<()> {
    let Some(checkpoint) = checkpoint(volume, out)? else { return Ok(()) };
    let from = list.map(|list| Key::first(list, Space::List, 0));
    let to = list.and_then(|list| list.checked_add(1)).map(|end| Key::first(end, Space::List, 0));
    volume.entries(&checkpoint, from, to).try_for_each(|entry| match entry {
        Ok((key, value)) => out.item("entry", &EntryInfo::from((&key, &value))),
        Err(problem) => out.problem(&problem),
    })
}
