//! Tables of i-nodes are divided into shards with a lock each, so that threads seldom meet.

use crate::types::Ino;

/// The number of shards of each table.
pub(super) const SHARD_COUNT: usize = 64;

/// The shard of an i-node, below [`SHARD_COUNT`].
pub(super) fn shard_of(ino: Ino) -> usize {
    // Fibonacci hashing: consecutive numbers spread over all shards.
    (ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % SHARD_COUNT
}
