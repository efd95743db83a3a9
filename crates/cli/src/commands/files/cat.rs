//! `dendro cat`: the contents of files.

use std::io::{self, Write};

use dendro_control::versions::path_text;
use dendro_fs::{Attr, FileKind, FileSystem};
use serde::Serialize;

use super::content::{Part, for_each_part};
use super::state;
use super::tree::{absolute, find, shown};
use crate::args::files::CatArgs;
use crate::failure::Failure;
use crate::output::{self, json};

/// A piece of zeros.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The most bytes in one line of JSON.
const LINE_LEN_BYTES: usize = 64 << 10;

/// A part of a file.
#[derive(Serialize)]
struct PartInfo<'a> {
    path: &'a str,
    inode: u64,
    offset_bytes: u64,
    len_bytes: u64,
    /// `None` for a hole, and for what cannot be read.
    content: Option<String>,
    /// Why it cannot be read.
    problem: Option<String>,
}

pub(crate) fn run(args: &CatArgs, quiet: bool) -> Result<(), Failure> {
    let opened = state::open(&args.target, quiet)?;
    let mut lost_count = 0_u32;
    for path in &args.paths {
        let path = absolute(path);
        let name = shown(&path);
        let fail = |why: &dyn std::fmt::Display| Failure::new(format_args!("{name}: {why}"));
        let copied =
            find(&opened.fs, &path, true).map_err(|error| fail(&error)).and_then(|attr| match attr
                .kind
            {
                FileKind::Regular => write(&opened.fs, &attr, &name, args),
                FileKind::Directory => Err(fail(&"is a directory")),
                _ => Err(fail(&"has no content")),
            });
        match copied {
            Ok(Written::Whole) => {}
            Ok(Written::ReaderGone) => return Ok(()),
            Ok(Written::Lost(bytes)) => {
                lost_count += 1;
                output::message(format_args!("dendro: {name}: {bytes} bytes cannot be read"));
            }
            Err(failure) if args.keep_going => {
                lost_count += 1;
                output::message(format_args!("dendro: {}", failure.message));
            }
            Err(failure) => return Err(failure),
        }
    }
    match lost_count {
        0 => Ok(()),
        _ => Err(opened.fail("not all could be read, see above")),
    }
}

/// How writing a file ended.
enum Written {
    Whole,
    /// So many bytes could not be read.
    Lost(u64),
    /// Nobody reads standard output any more.
    ReaderGone,
}

fn write(fs: &FileSystem, attr: &Attr, name: &str, args: &CatArgs) -> Result<Written, Failure> {
    let mut out = io::stdout().lock();
    let mut lost_bytes = 0;
    let mut reader_gone = false;
    let written = for_each_part(fs, attr, |offset_bytes, len_bytes, part| {
        if let Part::Lost(why) = part {
            if !args.keep_going {
                return Err(Failure::new(format_args!(
                    "{name}: {len_bytes} bytes from byte {offset_bytes} on cannot be read: {why}; \
                     --keep-going writes zeros for them"
                )));
            }
            lost_bytes += len_bytes;
        }
        let written = match args.json {
            true => write_json(&mut out, attr, name, offset_bytes, len_bytes, &part)?,
            false => write_plain(&mut out, len_bytes, &part),
        };
        written.map_err(|error| {
            reader_gone = error.kind() == io::ErrorKind::BrokenPipe;
            Failure::new(format_args!("standard output: {error}"))
        })
    });
    if reader_gone {
        return Ok(Written::ReaderGone);
    }
    written?;
    out.flush()?;
    Ok(if lost_bytes == 0 { Written::Whole } else { Written::Lost(lost_bytes) })
}

fn write_plain(out: &mut impl Write, len_bytes: u64, part: &Part<'_>) -> io::Result<()> {
    if let Part::Data(bytes) = part {
        return out.write_all(bytes);
    }
    let mut left = len_bytes;
    while left > 0 {
        let len = left.min(ZEROS.len() as u64);
        out.write_all(&ZEROS[..len as usize])?;
        left -= len;
    }
    Ok(())
}

fn write_json(
    out: &mut impl Write,
    attr: &Attr,
    name: &str,
    offset_bytes: u64,
    len_bytes: u64,
    part: &Part<'_>,
) -> Result<io::Result<()>, Failure> {
    let info = |offset_bytes, len_bytes, content, problem| PartInfo {
        path: name,
        inode: attr.ino.0,
        offset_bytes,
        len_bytes,
        content,
        problem,
    };
    let lines = match part {
        Part::Hole => json::line(&info(offset_bytes, len_bytes, None, None))?,
        Part::Lost(why) => json::line(&info(offset_bytes, len_bytes, None, Some(why.to_string())))?,
        Part::Data(bytes) => {
            let mut lines = String::new();
            let mut at = offset_bytes;
            for piece in bytes.chunks(LINE_LEN_BYTES) {
                lines += &json::line(&info(at, piece.len() as u64, Some(path_text(piece)), None))?;
                at += piece.len() as u64;
            }
            lines
        }
    };
    Ok(out.write_all(lines.as_bytes()))
}
