//! Numbers of what lies in the hidden directory.
//!
//! *Nodes* are what the kernel calls files by. Those of the hidden directory have the highest bit set,
//! which no i-node of the file system has; below it stand the number of a slot, and the i-node in
//! the view that this shows. Slot 0 has the directories that are made up.
//!
//! *I-node numbers* are what users see. A file in the past must have the same one whenever somebody
//! looks, another one than it has in any other version, and than any file has now, since all have one
//! device number. So the epoch is mixed in, from the top downwards.

/// Set in all numbers of the hidden directory, and in no others.
const HIDDEN: u64 = 1 << 63;

const INODE_BITS: u32 = 43;
const SLOT_BITS: u32 = 20;

/// The slots that there can be; 0 is none.
pub(crate) const MAX_SLOT: u32 = (1 << SLOT_BITS) - 1;

const _: () = assert!(INODE_BITS + SLOT_BITS == 63);

/// Whether a node lies in the hidden directory.
pub(crate) const fn is_hidden(node: u64) -> bool {
    node & HIDDEN != 0
}

/// What the kernel calls the i-node `ino` of what `slot` shows; `None` for one that is too large.
pub(crate) const fn node(slot: u32, ino: u64) -> Option<u64> {
    if ino >> INODE_BITS != 0 {
        return None;
    }
    Some(HIDDEN | (slot as u64) << INODE_BITS | ino)
}

/// The slot and the i-node of a hidden node.
pub(crate) const fn split(node: u64) -> (u32, u64) {
    let rest = node & !HIDDEN;
    ((rest >> INODE_BITS) as u32, rest & ((1 << INODE_BITS) - 1))
}

/// The number that users see of the i-node `ino` at `epoch`; epoch 0 for what is made up.
pub(crate) const fn shown(epoch: u64, ino: u64) -> u64 {
    // The lowest bits of both count most, and meet in the middle when there are 63 in all.
    HIDDEN | ((epoch.reverse_bits() >> 1) ^ ino)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nodes_are_taken_apart_as_they_were_put_together() {
        for slot in [0, 1, 77, MAX_SLOT] {
            for ino in [1, 5, (1 << INODE_BITS) - 1] {
                let node = node(slot, ino).unwrap();
                assert!(is_hidden(node));
                assert_eq!(split(node), (slot, ino));
            }
        }
        assert_eq!(node(1, 1 << INODE_BITS), None);
        assert!(!is_hidden(1) && !is_hidden((1 << 62) - 1));
    }

    #[test]
    fn no_two_files_show_one_number() {
        let mut seen = HashSet::new();
        for epoch in (0..200).chain([1 << 20, (1 << 27) - 1]) {
            for ino in (1..200).chain([1 << 30, (1 << 36) - 1]) {
                let shown = shown(epoch, ino);
                assert!(is_hidden(shown) && seen.insert(shown), "{epoch} {ino}");
            }
        }
    }
}
