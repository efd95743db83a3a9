//! How the memory of `cache=` is divided (DESIGN §5).
//!
//! | share        | for                                                                  |
//! |-------------:|----------------------------------------------------------------------|
//! | 1/16         | pages that are likely to be changed in part again                    |
//! | 3/16 to 9/16 | clean nodes, and the segment table; it reduces their part, down to 3/16 |
//! | up to 3/8    | dirty nodes, until a checkpoint is due                               |
//! | up to 3/8    | further dirty nodes, and superseded nodes, while that checkpoint is written |
//!
//! Clean nodes give way to nodes that are not: a dirty node serves readers as well, and the more of
//! them a checkpoint writes at once, the fewer are written. When the last share is used up too,
//! commits wait for the checkpoint.

/// What shares the cache with clean nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others {
    /// The segment table.
    pub(crate) table_bytes: u64,
    /// Dirty and superseded nodes.
    pub(crate) resident_bytes: u64,
}

/// The minimum that dirty nodes may take, however small the cache and the volume are.
const LEAST_DIRTY_BYTES: u64 = 256 << 10;

/// The steps in which the part of clean nodes changes, in the cache: each change of its capacity
/// makes the cache forget a part of its access statistics.
const STEPS: u64 = 16;

/// What pages may take that are likely to be changed in part again.
pub(crate) const fn recent_bytes(cache_size_bytes: u64) -> u64 {
    cache_size_bytes / STEPS
}

/// The maximum that clean nodes may take beside a segment table of `table_bytes` and
/// `resident_bytes` of dirty and superseded nodes, which may grow until the next step.
pub(crate) const fn clean_bytes(
    cache_size_bytes: u64,
    table_bytes: u64,
    resident_bytes: u64,
) -> u64 {
    let step = cache_size_bytes / STEPS;
    let share = step * 9;
    let least = step * 3;
    let resident_steps = resident_step(cache_size_bytes, resident_bytes);
    let beyond = (resident_steps * step).saturating_sub(step * 6);
    let left = share.saturating_sub(table_bytes).saturating_sub(beyond);
    if left < least { least } else { left }
}

/// The steps that dirty and superseded nodes may fill before the part of clean nodes changes.
const fn resident_step(cache_size_bytes: u64, resident_bytes: u64) -> u64 {
    match cache_size_bytes / STEPS {
        0 => 0,
        step => resident_bytes / step + 1,
    }
}

/// The size of the dirty nodes above which a checkpoint is due, beside a segment table of
/// `table_bytes`. It is limited on small volumes, because a volume must have room for the nodes of
/// two checkpoints.
pub(crate) fn dirty_limit_bytes(
    cache_size_bytes: u64,
    volume_len_bytes: u64,
    table_bytes: u64,
) -> u64 {
    let step = cache_size_bytes / STEPS;
    let beside_table = (step * 12).saturating_sub(table_bytes) / 2;
    beside_table.max(step * 3).min(volume_len_bytes / 64).max(LEAST_DIRTY_BYTES)
}

/// The memory of dirty and superseded nodes above which commits wait.
pub(crate) const fn memory_limit_bytes(dirty_limit_bytes: u64) -> u64 {
    2 * dirty_limit_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_are_the_cache() {
        let volume = 1 << 40;
        for cache in [16 << 20, 64 << 20, 1_u64 << 30] {
            let limit = memory_limit_bytes(dirty_limit_bytes(cache, volume, 0));
            let recent = recent_bytes(cache);
            assert_eq!(clean_bytes(cache, 0, limit) + limit + recent, cache);
            assert_eq!(clean_bytes(cache, 0, 0), cache / 16 * 9);
            for table in [0, cache / 100, cache / 8, cache / 8 * 3] {
                let limit = memory_limit_bytes(dirty_limit_bytes(cache, volume, table));
                for resident in (0..=limit).step_by(cache as usize / 100) {
                    assert!(
                        clean_bytes(cache, table, resident) + table + resident + recent <= cache
                    );
                }
            }
            assert_eq!(clean_bytes(cache, u64::MAX, 0), cache / 16 * 3);
        }
        assert_eq!(dirty_limit_bytes(1 << 30, 64 << 20, 0), 1 << 20);
        assert_eq!(dirty_limit_bytes(0, 0, 0), LEAST_DIRTY_BYTES);
    }
}
