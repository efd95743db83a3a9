//! What differs between versions.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use dendrofs::disk::Lid;

use crate::border::{fill, on, place};
use crate::types::View;
use crate::volume::Volume;

/// Puts up to `max` numbers of lists in which two versions may differ into `lists`: those from
/// `from` on, in their order. A list that one of them alone has is among them. It may read the
/// whole map, and reads no pages.
///
/// Returns: how many; 0 if there are none left.
///
/// Errors: ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_changed_lists(
    volume: Option<&Volume>,
    a: View,
    b: View,
    from: u64,
    lists: *mut u64,
    max: usize,
) -> i64 {
    on(volume, |call, volume| {
        let places = call.numbers(lists, max)?;
        let found = volume.disk().changed_lists(a.into(), b.into(), Lid(from), max)?;
        Ok(fill(places, found.iter().map(|list| list.0)))
    })
}

/// Puts up to `max` indexes of records of a list in which two versions may differ into `indexes`:
/// those from `from` on, in their order. Both versions must have the list. It reads what was
/// written since the two parted.
///
/// Returns: how many; 0 if there are none left.
///
/// Errors: ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_changed_records(
    volume: Option<&Volume>,
    a: View,
    b: View,
    list: u64,
    from: u64,
    indexes: *mut u64,
    max: usize,
) -> i64 {
    on(volume, |call, volume| {
        let places = call.numbers(indexes, max)?;
        let (a, b) = (a.into(), b.into());
        let found = volume.disk().changed_records(a, b, Lid(list), from, max)?;
        Ok(fill(places, found.iter().copied()))
    })
}

/// Finds the first pages of a list, from `from` on, in which two versions may differ, and puts the
/// first one into `*first` and how many they are into `*count`. The pages behind them may differ
/// too: ask again from `*first + *count` on. Both versions must have the list. It reads no pages.
///
/// Returns: 1, or 0 if there are none left.
///
/// Errors: ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_changed_pages(
    volume: Option<&Volume>,
    a: View,
    b: View,
    list: u64,
    from: u64,
    first: Option<&mut MaybeUninit<u64>>,
    count: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    on(volume, |_, volume| {
        let (first, count) = (place(first)?, place(count)?);
        let found = volume.disk().changed_pages(a.into(), b.into(), Lid(list), from)?;
        let Some(pages) = found else { return Ok(0) };
        first.write(pages.start);
        count.write(pages.end - pages.start);
        Ok(1)
    })
}
