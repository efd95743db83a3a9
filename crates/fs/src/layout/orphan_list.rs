//! Entries of the orphan list: files without a name that are still in use, and files whose
//! truncation is not finished.

use dendro_disk::{Aru, MAX_RECORD_LEN_BYTES};
use zerocopy::IntoBytes;

use super::format::{ORPHAN_LIST, OrphanV1, RECORD_VERSION};
use crate::types::Ino;

const _: () = assert!(size_of::<OrphanV1>() <= MAX_RECORD_LEN_BYTES);

/// Enters `ino` on the orphan list; `kind` is one of the `ORPHAN_*` numbers.
pub(crate) fn enter(aru: &mut Aru<'_>, ino: Ino, kind: u8) {
    let orphan = OrphanV1 { version: RECORD_VERSION, kind, reserved: [0; 6] };
    aru.put_record(ORPHAN_LIST, ino.0, orphan.as_bytes().to_vec());
}

/// Removes `ino` from the orphan list.
pub(crate) fn leave(aru: &mut Aru<'_>, ino: Ino) {
    aru.delete_record(ORPHAN_LIST, ino.0);
}
