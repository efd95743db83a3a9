//! What lists have.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use dendrofs::disk::{self, Lid, ListCompression, ListHints, Locality};

use crate::border::{fill, on, place};
use crate::failure::{Failure, Result};
use crate::types::{
    DENDRO_CLUSTERED, DENDRO_COMPRESS_DEFAULT, DENDRO_COMPRESS_LZ4, DENDRO_COMPRESS_NONE,
    DENDRO_COMPRESS_ZSTD, DENDRO_PAGE_SIZE, PageRange, View,
};
use crate::volume::Volume;

/// The flags of compressions. A change names one, or none that is to stay.
const COMPRESSIONS: [(u32, ListCompression); 4] = [
    (DENDRO_COMPRESS_DEFAULT, ListCompression::AsOthers),
    (DENDRO_COMPRESS_LZ4, ListCompression::Lz4),
    (DENDRO_COMPRESS_ZSTD, ListCompression::Zstd),
    (DENDRO_COMPRESS_NONE, ListCompression::Never),
];

/// The hints of a list that has `kept` after a program has named `hints`.
pub(crate) fn with_hints(kept: ListHints, hints: u32) -> Result<ListHints> {
    let is_clustered = hints & DENDRO_CLUSTERED != 0;
    let locality = if is_clustered { Locality::Clustered } else { Locality::AsWritten };
    let compression = match hints & !DENDRO_CLUSTERED {
        0 => kept.compression,
        flag => {
            let named = COMPRESSIONS.iter().find(|(of, _)| *of == flag);
            named.ok_or_else(|| Failure::invalid(format!("there are no hints {hints:#x}")))?.1
        }
    };
    Ok(ListHints { locality, compression, ..kept })
}

/// The same for a list that is near `near` afterwards, or near none if that is 0.
pub(crate) fn with_hints_near(kept: ListHints, hints: u32, near: u64) -> Result<ListHints> {
    with_hints(ListHints { near: (near != 0).then_some(Lid(near)), ..kept }, hints)
}

/// The flags of a list's hints. That nothing else is said takes none.
fn flags_of(hints: ListHints) -> u32 {
    let clustered = if hints.locality == Locality::Clustered { DENDRO_CLUSTERED } else { 0 };
    let compression = COMPRESSIONS[1..].iter().find(|(_, of)| *of == hints.compression);
    clustered | compression.map_or(0, |(flag, _)| *flag)
}

/// Puts the number of a new list into `*list`. The list is there when a unit has created it.
/// Numbers ascend, and none is used again, unless a crash has lost the list.
///
/// Returns: 0.
///
/// Errors: EROFS: the volume takes no changes.
///
/// Threads: any. Each gets another number.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_list_allocate(
    volume: Option<&Volume>,
    list: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    on(volume, |_, volume| {
        let place = place(list)?;
        place.write(volume.disk().allocate_list()?.0);
        Ok(0)
    })
}

/// Puts the hints of a list into `*hints`, which may be NULL: DENDRO_CLUSTERED, one of
/// DENDRO_COMPRESS_LZ4, DENDRO_COMPRESS_ZSTD and DENDRO_COMPRESS_NONE, both, or 0.
///
/// Returns: 0.
///
/// Errors: ENOENT: the version has no such list. ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_list_hints(
    volume: Option<&Volume>,
    view: View,
    list: u64,
    hints: Option<&mut MaybeUninit<u32>>,
) -> c_int {
    on(volume, |_, volume| {
        let found = volume.disk().hints(view.into(), Lid(list))?;
        let found = found.ok_or_else(|| missing(format!("there is no list {list}")))?;
        if let Some(place) = hints {
            place.write(flags_of(found));
        }
        Ok(0)
    })
}

/// Puts the number of the list that a list is near into `*near`, or 0 if it is near none.
///
/// Returns: 0.
///
/// Errors: ENOENT: the version has no such list. ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_list_near(
    volume: Option<&Volume>,
    view: View,
    list: u64,
    near: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    on(volume, |_, volume| {
        let place = place(near)?;
        let found = volume.disk().hints(view.into(), Lid(list))?;
        let found = found.ok_or_else(|| missing(format!("there is no list {list}")))?;
        place.write(found.parts().1);
        Ok(0)
    })
}

/// Puts up to `max` numbers of lists of a version into `lists`: those from `from` on, in their
/// order. List 2 says what the volume is; do not change it.
///
/// Returns: how many; 0 if there are none left.
///
/// Errors: ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_lists(
    volume: Option<&Volume>,
    view: View,
    from: u64,
    lists: *mut u64,
    max: usize,
) -> i64 {
    on(volume, |call, volume| {
        let places = call.numbers(lists, max)?;
        let found = volume.disk().lists(view.into(), Lid(from), max)?;
        Ok(fill(places, found.iter().map(|list| list.0)))
    })
}

/// Copies the record at `index` of a list into `buf` of `len` bytes. If `len` is 0, `buf` may be
/// NULL and nothing is copied.
///
/// Returns: the length of the record in bytes, from 1 to DENDRO_MAX_RECORD_SIZE.
///
/// Errors: ENOENT: there is no record, or no list. ERANGE: the record is longer than `len`; nothing
/// was copied. ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_record_read(
    volume: Option<&Volume>,
    view: View,
    list: u64,
    index: u64,
    buf: *mut c_void,
    len: usize,
) -> i64 {
    on(volume, |call, volume| {
        let buf = call.buffer(buf, len)?;
        let record = volume.disk().record(view.into(), Lid(list), index)?;
        let record = record.ok_or_else(|| missing(format!("no record {index} in list {list}")))?;
        copy(&record, buf)
    })
}

/// Copies the first record of a list whose index is `from` or more into `buf` of `len` bytes, and
/// puts its index into `*index`. If `len` is 0, `buf` may be NULL and nothing is copied.
///
/// Returns: the length of the record in bytes, or 0 if there is none left.
///
/// Errors: ERANGE: the record is longer than `len`; nothing was copied, and `*index` is set.
/// ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_record_next(
    volume: Option<&Volume>,
    view: View,
    list: u64,
    from: u64,
    index: Option<&mut MaybeUninit<u64>>,
    buf: *mut c_void,
    len: usize,
) -> i64 {
    on(volume, |call, volume| {
        let (place, buf) = (place(index)?, call.buffer(buf, len)?);
        let found = volume.disk().records(view.into(), Lid(list), from, 1)?;
        let Some((found, record)) = found.first() else { return Ok(0) };
        place.write(*found);
        copy(record, buf)
    })
}

/// Reads the pages of a list from `first_page` on into `buf` of `len` bytes, a multiple of
/// DENDRO_PAGE_SIZE. Holes read as zeros, and so do the pages of a list that is not there.
///
/// Returns: 0.
///
/// Errors: EINVAL: `len` is not whole pages. EFBIG: pages past DENDRO_MAX_PAGE_COUNT. ESTALE: there
/// is no such version. EIO: a page cannot be read, or is damaged; what `buf` has then is undefined.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_pages_read(
    volume: Option<&Volume>,
    view: View,
    list: u64,
    first_page: u64,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    on(volume, |call, volume| {
        if !len.is_multiple_of(DENDRO_PAGE_SIZE as usize) {
            return Err(Failure::invalid(format!("{len} bytes are not whole pages")));
        }
        let buf = call.buffer(buf, len)?;
        volume.disk().read_pages(view.into(), Lid(list), first_page, buf)?;
        Ok(0)
    })
}

/// Reads the pages of `count` ranges of any lists into `buf` of `len` bytes, one range after the
/// other, as dendro_pages_read() does for each. What lies on the device is read together. Each
/// range is read as it is at one moment; the moments of several ranges may differ, unless the
/// version is a snapshot.
///
/// Returns: 0.
///
/// Errors: EINVAL: `len` is not what the ranges have. EFBIG: pages past DENDRO_MAX_PAGE_COUNT.
/// ESTALE: there is no such version. EIO: a page cannot be read, or is damaged; what `buf` has then
/// is undefined.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_pages_read_scattered(
    volume: Option<&Volume>,
    view: View,
    ranges: *const PageRange,
    count: usize,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    on(volume, |call, volume| {
        let ranges: Vec<disk::PageRange> =
            call.ranges(ranges, count)?.iter().map(|range| (*range).into()).collect();
        let pages_bytes = disk::PageRange::len_bytes_of(&ranges);
        if pages_bytes != len as u128 {
            let what = format!("pages of {pages_bytes} bytes do not take {len}");
            return Err(Failure::invalid(what));
        }
        let buf = call.buffer(buf, len)?;
        volume.disk().read_scattered(view.into(), &ranges, buf)?;
        Ok(0)
    })
}

/// Puts the index of the first page of a list that is `from` or more and no hole into `*page`.
///
/// Returns: 1, or 0 if there is none.
///
/// Errors: ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_pages_next_data(
    volume: Option<&Volume>,
    view: View,
    list: u64,
    from: u64,
    page: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    on(volume, |_, volume| {
        let place = place(page)?;
        let found = volume.disk().next_data(view.into(), Lid(list), from)?;
        Ok(c_int::from(found.map(|page| place.write(page)).is_some()))
    })
}

/// Puts the index of the first page of a list that is `from` or more and a hole into `*page`. There
/// is one below or at DENDRO_MAX_PAGE_COUNT.
///
/// Returns: 0.
///
/// Errors: ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_pages_next_hole(
    volume: Option<&Volume>,
    view: View,
    list: u64,
    from: u64,
    page: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    on(volume, |_, volume| {
        let place = place(page)?;
        place.write(volume.disk().next_hole(view.into(), Lid(list), from)?);
        Ok(0)
    })
}

/// Copies a record to where a program wants it.
fn copy(record: &[u8], buf: &mut [u8]) -> Result<i64> {
    if !buf.is_empty() {
        let len = record.len();
        let room = buf.get_mut(..len).ok_or_else(|| {
            Failure::new(
                libc::ERANGE,
                format!("the record has {len} bytes, which is more than fit"),
            )
        })?;
        room.copy_from_slice(record);
    }
    Ok(record.len() as i64)
}

fn missing(message: String) -> Failure {
    Failure::new(libc::ENOENT, message)
}
