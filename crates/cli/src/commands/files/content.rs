//! The content of a file, part by part.

use dendro_fs::{Attr, FileSystem, FsError, Seek};

use crate::failure::Failure;

const PAGE_LEN_BYTES: usize = 4096;

/// How much is read at a time.
const READ_LEN_BYTES: usize = 1 << 20;

/// How far the search goes on behind a place at which the map is lost: what a chunk of it states.
const MAP_STEP_BYTES: u64 = 128 << 10;

/// After so many such places, the rest of the file is lost. A file may be as long as 2⁶³ bytes.
const MAX_LOST_STEPS: u32 = 16 << 10;

/// A part of a file.
pub(super) enum Part<'a> {
    Data(&'a [u8]),
    Hole,
    /// It cannot be read, and why.
    Lost(&'a FsError),
}

/// Calls `visit` with each part of a regular file: its offset, its length, and what is there.
pub(super) fn for_each_part(
    fs: &FileSystem,
    attr: &Attr,
    mut visit: impl FnMut(u64, u64, Part<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let end = attr.size_bytes;
    let mut buf = vec![0; READ_LEN_BYTES.min(usize::try_from(end).unwrap_or(READ_LEN_BYTES))];
    let mut at = 0;
    let mut lost_steps = 0;
    while at < end {
        let data = match fs.lseek(attr.ino, at, Seek::Data) {
            Ok(data) => data.clamp(at, end),
            Err(FsError::NoData) => end,
            Err(error) => {
                lost_steps += 1;
                let step = if lost_steps > MAX_LOST_STEPS { u64::MAX } else { MAP_STEP_BYTES };
                let next = (at - at % MAP_STEP_BYTES).saturating_add(step).min(end);
                visit(at, next - at, Part::Lost(&error))?;
                at = next;
                continue;
            }
        };
        if data > at {
            visit(at, data - at, Part::Hole)?;
        }
        // Where the end of the data is lost, the page at its start is read, and the search goes on.
        let data_end = match fs.lseek(attr.ino, data, Seek::Hole) {
            Ok(hole) => hole.clamp(data, end),
            Err(_) => data.saturating_add(PAGE_LEN_BYTES as u64).min(end),
        };
        read(fs, attr, data, data_end, &mut buf, &mut visit)?;
        at = data_end;
    }
    Ok(())
}

/// Reads a range of data; page by page where a part of it cannot be read.
fn read(
    fs: &FileSystem,
    attr: &Attr,
    mut at: u64,
    end: u64,
    buf: &mut [u8],
    visit: &mut impl FnMut(u64, u64, Part<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    while at < end {
        let len = (end - at).min(buf.len() as u64) as usize;
        if let Ok(count) = fs.read(attr.ino, at, &mut buf[..len])
            && count == len
        {
            visit(at, len as u64, Part::Data(&buf[..len]))?;
            at += len as u64;
            continue;
        }
        let stop = at + len as u64;
        while at < stop {
            let in_page = PAGE_LEN_BYTES as u64 - at % PAGE_LEN_BYTES as u64;
            let len = in_page.min(stop - at) as usize;
            match fs.read(attr.ino, at, &mut buf[..len]) {
                Ok(count) if count == len => visit(at, len as u64, Part::Data(&buf[..len]))?,
                Ok(_) => {
                    let short = FsError::Corrupted("the file is shorter than it says".into());
                    visit(at, len as u64, Part::Lost(&short))?;
                }
                Err(error) => visit(at, len as u64, Part::Lost(&error))?,
            }
            at += len as u64;
        }
    }
    Ok(())
}
