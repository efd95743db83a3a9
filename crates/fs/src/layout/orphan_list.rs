//! Entries of the orphan list: files without a name that are still in use, and files of which
//! pages are still to be freed.

use dendro_disk::{Aru, MAX_RECORD_LEN_BYTES};
use zerocopy::IntoBytes;

use super::format::{ORPHAN_LIST, OrphanV1, RECORD_VERSION};
use super::inode::Inode;
use crate::types::Ino;

const _: () = assert!(size_of::<OrphanV1>() <= MAX_RECORD_LEN_BYTES);

/// Enters `ino` on the orphan list; `kind` is one of the `ORPHAN_*` numbers.
pub(crate) fn enter(aru: &mut Aru<'_>, ino: Ino, kind: u8) {
    let orphan = OrphanV1 { version: RECORD_VERSION, kind, reserved: [0; 6] };
    aru.put_record(ORPHAN_LIST, ino.0, orphan.as_bytes().to_vec());
}

/// Enters a file on the orphan list if pages of it are still to be freed, unless it has no name and
/// is on the list for that.
pub(crate) fn enter_if_freeing(aru: &mut Aru<'_>, ino: Ino, inode: &Inode) {
    if let Some(kind) = inode.freeing_orphan().filter(|_| inode.nlink > 0) {
        enter(aru, ino, kind);
    }
}

/// Removes `ino` from the orphan list.
pub(crate) fn leave(aru: &mut Aru<'_>, ino: Ino) {
    aru.delete_record(ORPHAN_LIST, ino.0);
}
