//! What a check keeps of each file: 40 bytes, in blocks of neighbouring i-node numbers.
//!
//! What directories say of a file is kept as sums, so that an entry can be taken away again without
//! a list of all entries: how many there are, and the sum of a hash of each one's statement.

use std::collections::BTreeMap;

use crate::layout::inode::{Inode, InodeState};
use crate::types::{FileKind, Ino};

/// Files whose numbers differ only in so many low bits share a block.
const BLOCK_BITS: u32 = 8;

/// It is on the orphan list, to be removed.
pub(super) const REMOVED: u8 = 1 << 0;
/// It is on the orphan list for another reason.
pub(super) const LISTED: u8 = 1 << 1;
/// Its truncation is not finished.
pub(super) const TRUNCATING: u8 = 1 << 2;
/// Its i-node is malformed; the numbers in it are not known.
pub(super) const BAD: u8 = 1 << 3;

/// What a check keeps of a file, or of a number that only entries or the orphan list have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    ino: u64,
    /// The parent of a directory; of other files 0.
    pub(super) parent: u64,
    /// The sum of [`claim`] over all entries for the file.
    pub(super) claims: u64,
    pub(super) nlink: u32,
    /// Entries for the file.
    pub(super) names: u32,
    /// Entries in it that are for directories.
    pub(super) subdirs: u32,
    /// A number of [`FileKind::dirent_type`]; 0: the file is not there.
    kind: u8,
    pub(super) flags: u8,
}

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

    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Takes over what the i-node says.
    pub(super) fn set_inode(&mut self, inode: &Inode) {
        self.kind = inode.kind.dirent_type();
        self.nlink = inode.nlink;
        self.parent = if inode.kind == FileKind::Directory { inode.parent } else { 0 };
        self.flags &= !(BAD | TRUNCATING);
        if inode.state.contains(InodeState::TRUNCATING) {
            self.flags |= TRUNCATING;
        }
    }

    /// Notes that the i-node is malformed.
    pub(super) fn set_bad(&mut self, is_directory: bool) {
        self.kind = if is_directory { FileKind::Directory.dirent_type() } else { 0 };
        (self.nlink, self.parent) = (0, 0);
        self.flags = self.flags & !TRUNCATING | BAD;
    }

    /// Notes that the file is not there.
    pub(super) fn set_gone(&mut self) {
        (self.kind, self.nlink, self.parent) = (0, 0, 0);
        self.flags &= !(BAD | TRUNCATING);
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

    fn is_empty(&self) -> bool {
        *self == Self { ino: self.ino, ..Self::default() }
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

/// The facts of all files, by their numbers.
#[derive(Default)]
pub(super) struct Table {
    blocks: BTreeMap<u64, Vec<Facts>>,
    len: usize,
}

impl Table {
    /// The facts of a file; those of one that is not there if the table has none.
    pub(super) fn get(&self, ino: Ino) -> Facts {
        let block = self.blocks.get(&(ino.0 >> BLOCK_BITS));
        let found = block.and_then(|block| {
            block.binary_search_by_key(&ino.0, |facts| facts.ino).ok().map(|at| block[at])
        });
        found.unwrap_or(Facts { ino: ino.0, ..Facts::default() })
    }

    /// Changes the facts of a file. Facts that say nothing are not kept.
    pub(super) fn change(&mut self, ino: Ino, change: impl FnOnce(&mut Facts)) {
        let block = self.blocks.entry(ino.0 >> BLOCK_BITS).or_default();
        let at = match block.binary_search_by_key(&ino.0, |facts| facts.ino) {
            Ok(at) => at,
            Err(at) => {
                if block.len() == block.capacity() {
                    // Doubling would leave half of the last block's memory unused.
                    block.reserve_exact(16.max(block.len() / 4));
                }
                block.insert(at, Facts { ino: ino.0, ..Facts::default() });
                self.len += 1;
                at
            }
        };
        change(&mut block[at]);
        if block[at].is_empty() {
            block.remove(at);
            self.len -= 1;
            if block.is_empty() {
                self.blocks.remove(&(ino.0 >> BLOCK_BITS));
            }
        }
    }

    /// All files, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Ino, &Facts)> {
        self.blocks.values().flatten().map(|facts| (Ino(facts.ino), facts))
    }

    /// The directory with the lowest number from `from` on.
    pub(super) fn next_directory(&self, from: Ino) -> Option<Ino> {
        let blocks = self.blocks.range(from.0 >> BLOCK_BITS..);
        let mut all = blocks.flat_map(|(_, block)| block);
        all.find(|facts| facts.ino >= from.0 && facts.is_directory()).map(|facts| Ino(facts.ino))
    }

    /// How many files it has.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The bytes of memory that it takes, the allocator's own aside.
    pub(super) fn memory_bytes(&self) -> usize {
        let entries: usize = self.blocks.values().map(Vec::capacity).sum();
        entries * size_of::<Facts>() + self.blocks.len() * size_of::<(u64, Vec<Facts>)>()
    }
}

const _: () = assert!(size_of::<Facts>() == 40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_files_take_less_than_48_bytes_each() {
        let mut table = Table::default();
        for ino in 4..1_000_004 {
            table.change(Ino(ino), |facts| facts.nlink = 1);
        }
        assert_eq!(table.len(), 1_000_000);
        assert!(table.memory_bytes() < 48_000_000, "{}", table.memory_bytes());
        for ino in 4..1_000_004 {
            table.change(Ino(ino), |facts| facts.nlink = 0);
        }
        assert_eq!((table.len(), table.memory_bytes()), (0, 0));
    }

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
