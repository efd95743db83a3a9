//! What a check keeps of each file: 40 bytes.
//!
//! What directories say of a file is kept as sums, so that an entry can be taken away again without
//! a list of all entries: how many there are, and the sum of a hash of each one's statement.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::layout::inode::Inode;
use crate::types::{FileKind, Ino};

/// It is on the orphan list, to be removed.
pub(super) const REMOVED: u16 = 1 << 0;
/// It is on the orphan list for another reason.
pub(super) const LISTED: u16 = 1 << 1;
/// Pages of it are still to be freed.
pub(super) const FREEING: u16 = 1 << 2;
/// Its i-node is malformed; the numbers in it are not known.
pub(super) const BAD: u16 = 1 << 3;
/// It is a directory.
pub(super) const DIRECTORY: u16 = 1 << 4;
/// Something about it changed since relations were checked last.
pub(super) const AFFECTED: u16 = 1 << 5;
/// It was [`REMOVED`], or [`LISTED`], before the orphan list was read.
pub(super) const WAS_REMOVED: u16 = 1 << 6;
pub(super) const WAS_LISTED: u16 = 1 << 7;
/// Its list is to be read again.
pub(super) const AGAIN: u16 = 1 << 8;
/// The walk towards the root was there, or is.
pub(super) const SEEN: u16 = 1 << 9;
pub(super) const ON_PATH: u16 = 1 << 10;
/// It is [`BAD`] because its records cannot be read.
const UNREADABLE: u16 = 1 << 11;

/// What a check keeps of a file, or of a number that only entries or the orphan list have.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Facts {
    pub(super) ino: u64,
    /// The parent of a directory; of other files 0.
    pub(super) parent: u64,
    /// The sum of [`claim`] over all entries for the file.
    pub(super) claims: u64,
    pub(super) nlink: u32,
    /// Entries for the file.
    pub(super) names: u32,
    /// Entries in it that are for directories.
    pub(super) subdirs: u32,
    pub(super) flags: u16,
    /// A number of [`FileKind::dirent_type`]; 0: the file is not there.
    kind: u8,
    reserved: u8,
}

const _: () = assert!(size_of::<Facts>() == 40);

impl Facts {
    /// The file's kind; `None` if it is not there, or its kind is not known.
    pub(super) const fn kind(&self) -> Option<FileKind> {
        FileKind::from_dirent_type(self.kind)
    }

    /// Whether there is such a file.
    pub(super) const fn is_there(&self) -> bool {
        self.kind != 0 || self.flags & BAD != 0
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }

    /// Whether the only entry for a file of which nothing else is known says that it is a
    /// directory.
    pub(super) fn is_called_directory(&self) -> bool {
        // The kind of anything else is all that its entry says of it.
        let is_of = |kind| claim(kind, Ino(0)) == self.claims;
        self.flags & (BAD | UNREADABLE) == BAD
            && self.kind().is_none()
            && self.names == 1
            && !FileKind::ALL.into_iter().any(|kind| kind != FileKind::Directory && is_of(kind))
    }

    pub(super) const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The file that they are of.
    pub(super) const fn ino(&self) -> Ino {
        Ino(self.ino)
    }

    /// The parent of a directory; 0 if it is not known.
    pub(crate) const fn parent(&self) -> Ino {
        Ino(self.parent)
    }

    /// Notes which directory has an entry for this one.
    pub(crate) const fn set_parent(&mut self, parent: Ino) {
        self.parent = parent.0;
    }

    /// Those of a file that is not there, and of which nothing is said.
    pub(super) fn none(ino: Ino) -> Self {
        Self { ino: ino.0, ..Self::default() }
    }

    /// Takes over what the i-node says.
    pub(super) fn set_inode(&mut self, inode: &Inode) {
        self.set_kind(Some(inode.kind));
        self.nlink = inode.nlink;
        self.parent = if inode.kind == FileKind::Directory { inode.parent } else { 0 };
        self.flags &= !(BAD | UNREADABLE | FREEING);
        if inode.freeing_orphan().is_some() {
            self.flags |= FREEING;
        }
    }

    /// Notes that the i-node is malformed or missing, or cannot be read.
    pub(super) fn set_bad(&mut self, is_directory: bool, is_readable: bool) {
        self.set_kind(is_directory.then_some(FileKind::Directory));
        (self.nlink, self.parent) = (0, 0);
        let unreadable = if is_readable { 0 } else { UNREADABLE };
        self.flags = self.flags & !(FREEING | UNREADABLE) | BAD | unreadable;
    }

    /// Notes that the file is not there.
    pub(super) fn set_gone(&mut self) {
        self.set_kind(None);
        (self.nlink, self.parent) = (0, 0);
        self.flags &= !(BAD | UNREADABLE | FREEING);
    }

    fn set_kind(&mut self, kind: Option<FileKind>) {
        self.kind = kind.map_or(0, FileKind::dirent_type);
        let is_directory = kind == Some(FileKind::Directory);
        self.flags = self.flags & !DIRECTORY | if is_directory { DIRECTORY } else { 0 };
    }

    /// Whether entries say of it what the i-node says.
    pub(super) fn claims_hold(&self, ino: Ino) -> bool {
        if ino == Ino::ROOT {
            return self.names == 0 && (self.has(BAD) || self.parent == ino.0);
        }
        if self.has(BAD) {
            return true;
        }
        let expected = match self.kind() {
            Some(kind) => claim(kind, Ino(self.parent)).wrapping_mul(self.names.into()),
            None => 0,
        };
        self.claims == expected && !(self.is_directory() && self.names > 1)
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::none(self.ino())
    }
}

/// A hash of what an entry says of the file that it names: the kind, and of a directory the parent.
pub(super) const fn claim(kind: FileKind, parent: Ino) -> u64 {
    let parent = if matches!(kind, FileKind::Directory) { parent.0 } else { 0 };
    // The finaliser of SplitMix64.
    let mut hash = (parent << 4 | kind.dirent_type() as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_can_be_taken_away_in_any_order() {
        let mut facts = Facts::default();
        let entries = [(FileKind::Regular, 1), (FileKind::Directory, 5), (FileKind::Directory, 6)];
        for (kind, parent) in entries {
            facts.claims = facts.claims.wrapping_add(claim(kind, Ino(parent)));
        }
        for (kind, parent) in [entries[1], entries[2]] {
            facts.claims = facts.claims.wrapping_sub(claim(kind, Ino(parent)));
        }
        assert_eq!(facts.claims, claim(FileKind::Regular, Ino(99)));
    }
}
