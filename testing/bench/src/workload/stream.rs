//! A stream of operations on blocks.

use dendro_base::Rng;

/// What a client does with one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes it, for the first time or again.
    Write(u32),
    /// Gives it back.
    Delete(u32),
}

/// A stream of operations without end that keeps as many blocks alive as it was made for.
pub trait Workload {
    /// Block numbers are below this.
    fn block_numbers(&self) -> u32;

    /// Whether blocks are there from the beginning, rather than created and deleted on the way.
    fn begins_full(&self) -> bool {
        true
    }

    /// Appends some operations to `ops`.
    fn next(&mut self, ops: &mut Vec<Op>);

    /// Classes of blocks that are written at the same rate, each as (its share of what lives, its
    /// share of what is written); `None` where rates do not say it.
    fn rates(&self) -> Option<Vec<(f64, f64)>> {
        None
    }
}

/// Puts `items` in random order (Fisher and Yates).
pub(crate) fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last as u64 + 1) as usize);
    }
}
