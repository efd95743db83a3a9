//! The paths on which entries were found last, so that they need not be searched for again.

use std::sync::atomic::{AtomicU64, Ordering};

use dendro_format::{Key, Value};

use crate::map::node::{Child, Node};

/// Most searches are for the same few items: those that are written to, and their parents.
const SLOT_COUNT: usize = 4096;
/// Paths in higher trees are not stored.
const MAX_LEN: usize = 3;
const STEP_BITS: u32 = 16;
const STEP_MASK: u64 = (1 << STEP_BITS) - 1;

/// A table of paths by what they lead to; each slot holds the path that was found last. A path is a
/// hint: the tree may have changed since, or another key may have the same slot and mark.
#[derive(Debug)]
pub(super) struct PathCache(Box<[AtomicU64]>);

/// Which child to take in each node from the root down, and which entry in the leaf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    steps: u64,
    len: usize,
}

impl Path {
    /// The path extended by `step`.
    pub(super) const fn then(self, step: usize) -> Self {
        Self { steps: self.steps << STEP_BITS | (step as u64 & STEP_MASK), len: self.len + 1 }
    }

    /// The first step, and the rest.
    pub(super) const fn next(self) -> Option<(usize, Self)> {
        let Some(len) = self.len.checked_sub(1) else { return None };
        let step = self.steps >> (STEP_BITS * len as u32) & STEP_MASK;
        Some((step as usize, Self { len, ..self }))
    }

    /// The value under `key`, if the path leads to it from `child` through dirty nodes only. A key
    /// occurs in a tree at most once, so a path that ends at it is the one that a search takes.
    pub(super) fn value_of<'a>(mut self, key: &Key, mut child: &'a Child) -> Option<&'a Value> {
        while let (Child::Dirty(resident), Some((step, rest))) = (child, self.next()) {
            match &resident.node {
                Node::Leaf(leaf) => {
                    let (found, value) = leaf.entries().get(step)?;
                    return (found == key).then_some(value);
                }
                Node::Inner(inner) => child = &inner.entries.get(step)?.1,
            }
            self = rest;
        }
        None
    }
}

impl Default for PathCache {
    fn default() -> Self {
        Self((0..SLOT_COUNT).map(|_| AtomicU64::new(0)).collect())
    }
}

impl PathCache {
    /// The path to `key` in a tree whose root is at `level`, if one is stored.
    pub(super) fn to(&self, key: &Key, level: u8) -> Option<Path> {
        let len = usize::from(level) + 1;
        if len > MAX_LEN {
            return None;
        }
        let (slot, mark) = self.place_of(key);
        let found = slot.load(Ordering::Relaxed);
        (found >> (STEP_BITS * MAX_LEN as u32) == mark).then_some(Path { steps: found, len })
    }

    /// Stores the path to `key`.
    pub(super) fn store(&self, key: &Key, path: Path) {
        if path.len <= MAX_LEN {
            let (slot, mark) = self.place_of(key);
            slot.store(mark << (STEP_BITS * MAX_LEN as u32) | path.steps, Ordering::Relaxed);
        }
    }

    /// The slot of an item, and the mark that distinguishes the item from most others.
    fn place_of(&self, key: &Key) -> (&AtomicU64, u64) {
        let item =
            key.list.wrapping_mul(31) ^ key.index.wrapping_mul(0x9E37_79B9) ^ key.space as u64;
        let hash = item.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (&self.0[(hash >> 48) as usize % SLOT_COUNT], hash >> 32 & STEP_MASK)
    }
}
