//! The numbers of files in the directory of snapshots.
//!
//! *Nodes* are the numbers that the kernel uses in requests. Those of this directory have the
//! highest bit set, which no i-node of the file system has. The other bits are the number of a
//! slot, and the i-node in the view that the slot shows. Slot 0 has the synthetic directories.
//!
//! *I-node numbers* are those that users see. A file in a snapshot must always have the same
//! number. It must differ from the number of the same file in other snapshots, and from those of
//! all current files, since all of these have the same device number. So the bits of the epoch are
//! mixed into the number, from the highest bit downwards.

/// Set in all numbers of the directory of snapshots, and in no others.
const SNAPSHOT_BIT: u64 = 1 << 63;

const INODE_BITS: u32 = 43;
const SLOT_BITS: u32 = 20;

/// The highest number of a slot; 0 is not a slot.
pub(super) const MAX_SLOT: u32 = (1 << SLOT_BITS) - 1;

const _: () = assert!(INODE_BITS + SLOT_BITS == 63);

/// Whether a node, or an i-node number that users see, is of the directory of snapshots.
#[must_use]
pub const fn is_snapshot_node(node: u64) -> bool {
    node & SNAPSHOT_BIT != 0
}

/// The node of the i-node `ino` in the view that `slot` shows; `None` if `ino` is too large.
pub(super) const fn node(slot: u32, ino: u64) -> Option<u64> {
    if ino >> INODE_BITS != 0 {
        return None;
    }
    Some(SNAPSHOT_BIT | (slot as u64) << INODE_BITS | ino)
}

/// The slot and the i-node of a node.
pub(super) const fn split(node: u64) -> (u32, u64) {
    let rest = node & !SNAPSHOT_BIT;
    ((rest >> INODE_BITS) as u32, rest & ((1 << INODE_BITS) - 1))
}

/// The number that users see for the i-node `ino` at `epoch`; epoch 0 is for synthetic files.
pub(super) const fn shown_ino(epoch: u64, ino: u64) -> u64 {
    // Low bits of both vary most. With the epoch reversed, the two overlap only if they have more
    // than 63 bits together.
    SNAPSHOT_BIT | ((epoch.reverse_bits() >> 1) ^ ino)
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
                assert!(is_snapshot_node(node));
                assert_eq!(split(node), (slot, ino));
            }
        }
        assert_eq!(node(1, 1 << INODE_BITS), None);
        assert!(!is_snapshot_node(1) && !is_snapshot_node((1 << 62) - 1));
    }

    #[test]
    fn no_two_files_show_one_number() {
        let mut seen = HashSet::new();
        for epoch in (0..200).chain([1 << 20, (1 << 27) - 1]) {
            for ino in (1..200).chain([1 << 30, (1 << 36) - 1]) {
                let shown = shown_ino(epoch, ino);
                assert!(is_snapshot_node(shown) && seen.insert(shown), "{epoch} {ino}");
            }
        }
    }
}
