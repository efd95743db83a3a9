//! Atomic recovery units, and reservations.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};

use dendrofs::disk::{Aru, CommitSeq, Lid, ListHints, Op};
use dendrofs::given_hints;

use crate::border::{Handle, Health, close, hand_out, on};
use crate::failure::{Failure, Result};
use crate::lists::{with_hints, with_hints_near};
use crate::raw::Wrong;
use crate::types::View;
use crate::volume::{Shared, Volume};

/// An atomic recovery unit: changes to one version that take effect together, or never.
pub struct Unit {
    volume: Shared,
    unit: Mutex<Aru<'static>>,
}

impl Handle for Unit {
    fn health(&self) -> &Health {
        &self.volume.health
    }
}

impl Unit {
    fn with<R>(&self, work: impl FnOnce(&mut Aru<'static>) -> R) -> R {
        work(&mut self.unit.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Adds a change to a unit.
fn add(unit: Option<&Unit>, change: impl FnOnce() -> Result<Op<'static>>) -> c_int {
    on(unit, |_, unit| {
        let change = change()?;
        unit.with(|unit| {
            unit.push(change);
        });
        Ok(0)
    })
}

/// Adds to a unit: a list gets the hints that `change` makes of those that it has then.
fn change_hints(
    unit: Option<&Unit>,
    list: u64,
    change: impl FnOnce(ListHints) -> Result<ListHints>,
) -> c_int {
    let list = Lid(list);
    on(unit, |_, unit| {
        unit.with(|aru| {
            let kept = match given_hints(aru.ops().iter(), list) {
                Some(given) => given,
                None => unit.volume.disk.hints(aru.view(), list)?.unwrap_or_default(),
            };
            aru.push(Op::SetHints { list, hints: change(kept)? });
            Ok(0)
        })
    })
}

/// Space that is reserved for a later unit.
pub struct Reservation {
    volume: Shared,
    reservation: dendrofs::disk::Reservation,
}

impl Handle for Reservation {
    fn health(&self) -> &Health {
        &self.volume.health
    }
}

/// Makes an empty unit of changes to the version `head`, the head of a branch. A unit has no effect
/// before it is committed, and costs no space. Any number can be under construction at a time.
///
/// Returns: 0, with the handle in `*unit`; it is given back by dendro_unit_close(). After an error
/// `*unit` is NULL.
///
/// Errors: none but those of any call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_open(
    volume: Option<&Volume>,
    head: View,
    unit: Option<&mut MaybeUninit<Option<Box<Unit>>>>,
) -> c_int {
    on(volume, |_, volume| {
        hand_out(unit, || {
            let aru = Mutex::new(Aru::new(head.into()));
            Ok(Unit { volume: volume.shared(), unit: aru })
        })
    })
}

/// Makes the changes of a unit, in their order, all or none. When it returns, all threads see them.
/// They are durable after a flush. `*commit` becomes the number of the commit for
/// dendro_volume_flush_to(); it may be NULL.
///
/// After a success the unit is empty and can be filled again. After an error it is as it was, with
/// its conditions and its reservation: it can be committed again, or emptied by
/// dendro_unit_clear().
///
/// A unit changes at most DENDRO_MAX_UNIT_GROUPS groups of DENDRO_GROUP_PAGES pages: those that it
/// writes or zeroes, and those with pages in ranges that it punches, moves, moves to or swaps. What
/// it punches, moves and swaps beyond that is done after it was committed: all of that is seen, or
/// nothing. Behind it, the unit can neither write nor zero pages of these lists, nor delete them.
/// Deleting a list is always one unit.
///
/// Returns: 0.
///
/// Errors: ENOENT: a list is not there. EEXIST: a list to be created is there. EMSGSIZE: a record
/// has no bytes, or more than DENDRO_MAX_RECORD_SIZE. EFBIG: pages past DENDRO_MAX_PAGE_COUNT, or
/// too long a unit. ENOSPC: it would not fit. ESTALE: there is no such head. EROFS: the volume
/// takes no changes. EIO: what it needs cannot be read. EAGAIN: a condition of the unit does not
/// hold. Nothing was changed in all of these cases.
///
/// Threads: any. A change that another thread adds at the time is in the unit, or left in it.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_commit(
    unit: Option<&Unit>,
    commit: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    on(unit, |_, unit| {
        let done = unit.with(|aru| unit.volume.disk.try_commit(aru))?;
        if let Some(place) = commit {
            place.write(done.0);
        }
        Ok(0)
    })
}

/// Takes all changes out of a unit, which is empty afterwards. A reservation that it was to use is
/// released.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_clear(unit: Option<&Unit>) -> c_int {
    on(unit, |_, unit| {
        unit.with(Aru::clear);
        Ok(0)
    })
}

/// Gives a unit back. Changes that were not committed are dropped. NULL does nothing.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: one, and no other may use the handle at the time or later.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_close(unit: Option<Box<Unit>>) -> c_int {
    close(unit, |_| Ok(()))
}

/// Adds to a unit: creates an empty list with a number of dendro_list_allocate(). `hints` is 0, or
/// DENDRO_CLUSTERED, one of DENDRO_COMPRESS_DEFAULT, DENDRO_COMPRESS_LZ4, DENDRO_COMPRESS_ZSTD and
/// DENDRO_COMPRESS_NONE, or both.
///
/// Returns: 0.
///
/// Errors: EINVAL: there are no such hints. Others come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_create_list(unit: Option<&Unit>, list: u64, hints: u32) -> c_int {
    add(unit, || {
        Ok(Op::CreateList { list: Lid(list), hints: with_hints(ListHints::default(), hints)? })
    })
}

/// Adds to a unit: creates an empty list beside another, with a number of dendro_list_allocate().
/// `hints` are those of dendro_unit_create_list(). Lists that are near the same list, and that
/// list, are laid down together when their pages are moved. The list `near` need not exist.
///
/// Returns: 0.
///
/// Errors: EINVAL: there are no such hints. Others come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_create_list_near(
    unit: Option<&Unit>,
    list: u64,
    hints: u32,
    near: u64,
) -> c_int {
    add(unit, || {
        let hints = with_hints_near(ListHints::default(), hints, near)?;
        Ok(Op::CreateList { list: Lid(list), hints })
    })
}

/// Adds to a unit: deletes a list with all that it has.
///
/// Returns: 0.
///
/// Errors: come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_delete_list(unit: Option<&Unit>, list: u64) -> c_int {
    add(unit, || Ok(Op::DeleteList { list: Lid(list) }))
}

/// Adds to a unit: changes the hints of a list, which are those of dendro_unit_create_list(). It
/// stays near the list that it is near. If `hints` name no compression, it keeps the one that it
/// has at the time of this call.
///
/// Returns: 0.
///
/// Errors: EINVAL: there are no such hints. ESTALE: there is no such head. EIO. Others come from
/// dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_set_hints(unit: Option<&Unit>, list: u64, hints: u32) -> c_int {
    change_hints(unit, list, |kept| with_hints(kept, hints))
}

/// Adds to a unit: changes the hints of a list, as dendro_unit_set_hints() does, and moves it
/// beside another. With `near` 0 it is near none afterwards. See dendro_unit_create_list_near().
///
/// Returns: 0.
///
/// Errors: as dendro_unit_set_hints().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_move_list(
    unit: Option<&Unit>,
    list: u64,
    hints: u32,
    near: u64,
) -> c_int {
    change_hints(unit, list, |kept| with_hints_near(kept, hints, near))
}

/// Adds to a unit: puts a record of `len` bytes in place of the one at `index`, if there is one.
/// The bytes are copied.
///
/// Returns: 0.
///
/// Errors: come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_put_record(
    unit: Option<&Unit>,
    list: u64,
    index: u64,
    data: *const c_void,
    len: usize,
) -> c_int {
    on(unit, |call, unit| {
        let data = call.bytes(data, len)?;
        unit.with(|unit| {
            unit.put_record(Lid(list), index, data);
        });
        Ok(0)
    })
}

/// Adds to a unit: deletes the record at `index`. Without one, nothing happens.
///
/// Returns: 0.
///
/// Errors: come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_delete_record(unit: Option<&Unit>, list: u64, index: u64) -> c_int {
    add(unit, || Ok(Op::DeleteRecord { list: Lid(list), index }))
}

/// Adds to a unit: writes `len` bytes to the pages from `first_page` on. Zeros fill the rest of the
/// last page. The bytes are copied.
///
/// Returns: 0.
///
/// Errors: come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_write_pages(
    unit: Option<&Unit>,
    list: u64,
    first_page: u64,
    data: *const c_void,
    len: usize,
) -> c_int {
    on(unit, |call, unit| {
        let data = call.bytes(data, len)?.to_vec();
        unit.with(|unit| {
            unit.write_pages(Lid(list), first_page, data);
        });
        Ok(0)
    })
}

/// Adds to a unit: writes `len` bytes from byte `offset` on, counted from the start of page 0. What
/// else their pages hold stays, and no other unit's change comes between. The bytes are copied.
///
/// Returns: 0.
///
/// Errors: come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_write_bytes(
    unit: Option<&Unit>,
    list: u64,
    offset: u64,
    data: *const c_void,
    len: usize,
) -> c_int {
    on(unit, |call, unit| {
        let data = call.bytes(data, len)?.to_vec();
        unit.with(|unit| {
            unit.write_bytes(Lid(list), offset, data);
        });
        Ok(0)
    })
}

/// Adds to a unit: makes `count` pages zeros, and no holes: there is room for them from then on.
///
/// Returns: 0.
///
/// Errors: come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_zero_pages(
    unit: Option<&Unit>,
    list: u64,
    first_page: u64,
    count: u64,
) -> c_int {
    add(unit, || Ok(Op::ZeroPages { list: Lid(list), first_page, count }))
}

/// Adds to a unit: makes `count` pages holes. Those past the last page cost nothing.
///
/// Returns: 0.
///
/// Errors: come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_punch_pages(
    unit: Option<&Unit>,
    list: u64,
    first_page: u64,
    count: u64,
) -> c_int {
    add(unit, || Ok(Op::PunchPages { list: Lid(list), first_page, count }))
}

/// Adds to a unit: moves `count` pages, with holes, from one list to another or within one. What
/// the source does not share with the destination becomes holes. The two may overlap.
///
/// Returns: 0.
///
/// Errors: come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_move_pages(
    unit: Option<&Unit>,
    from: u64,
    from_page: u64,
    to: u64,
    to_page: u64,
    count: u64,
) -> c_int {
    add(unit, || Ok(Op::MovePages { from: Lid(from), from_page, to: Lid(to), to_page, count }))
}

/// Adds to a unit: exchanges all pages of two lists. Their records stay.
///
/// Returns: 0.
///
/// Errors: come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_swap_pages(unit: Option<&Unit>, a: u64, b: u64) -> c_int {
    add(unit, || Ok(Op::SwapPages { a: Lid(a), b: Lid(b) }))
}

/// Says that a unit frees space. It may then use what a full volume keeps for that.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_set_reclaims(unit: Option<&Unit>) -> c_int {
    on(unit, |_, unit| {
        unit.with(|unit| {
            unit.set_reclaims();
        });
        Ok(0)
    })
}

/// Adds a condition to a unit: it is committed only if the record at `index` has these `len` bytes
/// then. With NULL and 0 there must be no such record. The bytes are copied.
///
/// Returns: 0.
///
/// Errors: come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_require_record(
    unit: Option<&Unit>,
    list: u64,
    index: u64,
    data: *const c_void,
    len: usize,
) -> c_int {
    on(unit, |call, unit| {
        let data = call.bytes(data, len)?;
        let value = if data.is_empty() { None } else { Some(data.into()) };
        unit.with(|unit| {
            unit.require_record(Lid(list), index, value);
        });
        Ok(0)
    })
}

/// Adds a condition to a unit: it is committed only if no unit has named the list since the commit
/// `since`, for which dendro_volume_last_commit() was asked before the list was read. Very many
/// changes of other lists may make it fail too.
///
/// Returns: 0.
///
/// Errors: come from dendro_unit_commit().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_require_unchanged(
    unit: Option<&Unit>,
    list: u64,
    since: u64,
) -> c_int {
    on(unit, |_, unit| {
        unit.with(|unit| {
            unit.require_unchanged(Lid(list), CommitSeq(since));
        });
        Ok(0)
    })
}

/// Makes a unit use reserved space. A reservation that it was to use before is released.
///
/// Returns: 0. The reservation is given back in any case.
///
/// Errors: EINVAL: the reservation is of another volume.
///
/// Threads: any for the unit. One for the reservation, and no other may use it at the time or
/// later.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_unit_use_reservation(
    unit: Option<&Unit>,
    reservation: Option<Box<Reservation>>,
) -> c_int {
    on(unit, |_, unit| {
        let reservation = *reservation.ok_or(Wrong::Null)?;
        if !Arc::ptr_eq(&unit.volume.disk, &reservation.volume.disk) {
            return Err(Failure::invalid("the reservation is of another volume"));
        }
        unit.with(|unit| {
            unit.use_reservation(reservation.reservation);
        });
        Ok(0)
    })
}

/// Reserves space for a later unit of `len_bytes`: its pages at their full size, its records, and
/// 64 bytes for each change. Such a unit is not refused for what others write meanwhile, unless the
/// client has a quota: see dendro_reservation_open_in().
///
/// Returns: 0, with the handle in `*reservation`; it is given back by dendro_unit_use_reservation()
/// or dendro_reservation_close(). After an error `*reservation` is NULL.
///
/// Errors: ENOSPC: there is not so much. EROFS: the volume takes no changes.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_reservation_open(
    volume: Option<&Volume>,
    len_bytes: u64,
    reservation: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
) -> c_int {
    on(volume, |_, volume| {
        hand_out(reservation, || {
            let reserved = volume.disk().reserve(len_bytes)?;
            Ok(Reservation { volume: volume.shared(), reservation: reserved })
        })
    })
}

/// Reserves space as dendro_reservation_open() does, for a unit of changes to the version `head`.
/// If the client that it belongs to has a quota, as much of that is reserved as well.
///
/// Returns: 0, with the handle in `*reservation`, as from dendro_reservation_open().
///
/// Errors: ENOSPC: there is not so much. EDQUOT: there is not so much left of the quota. ESTALE:
/// there is no such version. EROFS: the volume takes no changes.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_reservation_open_in(
    volume: Option<&Volume>,
    head: View,
    len_bytes: u64,
    reservation: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
) -> c_int {
    on(volume, |_, volume| {
        hand_out(reservation, || {
            let head = head.into();
            volume.inner().versions().check(head)?;
            let reserved = volume.disk().reserve_in(head, len_bytes)?;
            Ok(Reservation { volume: volume.shared(), reservation: reserved })
        })
    })
}

/// Releases reserved space. NULL does nothing.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: one, and no other may use the handle at the time or later.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_reservation_close(reservation: Option<Box<Reservation>>) -> c_int {
    close(reservation, |_| Ok(()))
}
