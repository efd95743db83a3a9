//! Lists that were deleted, and of which the map may still have entries.
//!
//! Deleting a list removes the entry that says that it exists, or hides that with a tombstone. The
//! other entries of the list are removed afterwards, piece by piece. Until that is done, the list's
//! number is the index of a record in [`REMOVALS_LIST`]. In the log, only the record of the
//! deletion stands for this.
//!
//! A list of the same number may be made before that is done. Its entries have the epoch in which
//! it was made or a later one, and those of the deleted list have earlier ones.

use std::mem::size_of;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::usage::FIRST_SYSTEM_LIST;
use crate::{Malformed, Result};

/// The list of the disk's own that has a record for each list that is being removed.
pub const REMOVALS_LIST: u64 = FIRST_SYSTEM_LIST + 2;

/// A list that is being removed, version 1.
///
/// | offset | size | field      | meaning                                                       |
/// |-------:|-----:|------------|---------------------------------------------------------------|
/// |      0 |    8 | `reserved` | zero                                                          |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RemovalV1 {
    reserved: [u8; 8],
}

/// A list that is being removed and was made again meanwhile, version 2.
///
/// | offset | size | field         | meaning                                                    |
/// |-------:|-----:|---------------|------------------------------------------------------------|
/// |      0 |    8 | `first_epoch` | what was written before this epoch belongs to the deleted list |
/// |      8 |    8 | `reserved`    | zero                                                       |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RemovalV2 {
    first_epoch: U64,
    reserved: [u8; 8],
}

const _: () = assert!(size_of::<RemovalV1>() == 8 && size_of::<RemovalV2>() == 16);

/// The bytes of a record in [`REMOVALS_LIST`]. What was written of the list before `first_epoch`
/// belongs to the deleted list; `None` if no list of its number was made since.
#[must_use]
pub fn encode(first_epoch: Option<u64>) -> Vec<u8> {
    match first_epoch {
        None => RemovalV1 { reserved: [0; 8] }.as_bytes().to_vec(),
        Some(epoch) => {
            RemovalV2 { first_epoch: epoch.into(), reserved: [0; 8] }.as_bytes().to_vec()
        }
    }
}

/// Checks the bytes of a record in [`REMOVALS_LIST`] at `index`, the list's number. Returns the
/// first epoch of the list that was made again, if it was.
///
/// # Errors
/// When it is of another length, or `index` is not the number of a client's list.
pub fn decode(index: u64, bytes: &[u8]) -> Result<Option<u64>> {
    const WRONG: fn(&'static str) -> Malformed = |problem| Malformed::new("removal", problem);
    if index >= FIRST_SYSTEM_LIST {
        return Err(WRONG("it names a list of the disk's own"));
    }
    if RemovalV1::ref_from_bytes(bytes).is_ok() {
        return Ok(None);
    }
    let remade = RemovalV2::ref_from_bytes(bytes).map_err(|_| WRONG("is not 8 or 16 bytes"))?;
    Ok(Some(remade.first_epoch.get()))
}
