//! Lists that were deleted, and of which the map may still have entries.
//!
//! Deleting a list removes the entry that says that it exists, or hides that with a tombstone. The
//! other entries of the list are removed afterwards, piece by piece. Until that is done, the list's
//! number is the index of a record in [`REMOVALS_LIST`]. In the log, only the record of the
//! deletion stands for this.

use std::mem::size_of;

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

/// Bytes of such a record.
pub const REMOVAL_LEN_BYTES: usize = size_of::<RemovalV1>();
const _: () = assert!(REMOVAL_LEN_BYTES == 8);

/// The bytes of a record in [`REMOVALS_LIST`].
#[must_use]
pub fn encode() -> [u8; REMOVAL_LEN_BYTES] {
    zerocopy::transmute!(RemovalV1 { reserved: [0; 8] })
}

/// Checks the bytes of a record in [`REMOVALS_LIST`] at `index`; returns the list that it names.
///
/// # Errors
/// When it is of another length, or `index` is not the number of a client's list.
pub fn decode(index: u64, bytes: &[u8]) -> Result<u64> {
    const WRONG: fn(&'static str) -> Malformed = |problem| Malformed::new("removal", problem);
    RemovalV1::ref_from_bytes(bytes).map_err(|_| WRONG("is not 8 bytes"))?;
    if index >= FIRST_SYSTEM_LIST {
        return Err(WRONG("it names a list of the disk's own"));
    }
    Ok(index)
}
