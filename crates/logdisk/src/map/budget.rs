//! How the memory of `cache=` is divided (DESIGN §5).
//!
//! | share | for                                                                         |
//! |------:|-----------------------------------------------------------------------------|
//! |   5/8 | clean nodes, and the segment table; it reduces their part, down to a quarter |
//! |  3/16 | dirty nodes, until a checkpoint is due                                      |
//! |  3/16 | further dirty nodes, and superseded nodes, while that checkpoint is written |
//!
//! When the last share is used up too, commits wait for the checkpoint.

/// The minimum that dirty nodes may take, however small the cache and the volume are.
const LEAST_DIRTY_BYTES: u64 = 256 << 10;

/// The maximum that clean nodes may take beside a segment table of `table_bytes`.
pub(crate) const fn clean_bytes(cache_size_bytes: u64, table_bytes: u64) -> u64 {
    let share = cache_size_bytes / 8 * 5;
    let least = cache_size_bytes / 4;
    let left = share.saturating_sub(table_bytes);
    if left < least { least } else { left }
}

/// The size of the dirty nodes above which a checkpoint is due. It is limited on small volumes,
/// because a volume must have room for the nodes of two checkpoints.
pub(crate) fn dirty_limit_bytes(cache_size_bytes: u64, volume_len_bytes: u64) -> u64 {
    (cache_size_bytes / 16 * 3).min(volume_len_bytes / 64).max(LEAST_DIRTY_BYTES)
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
            let dirty = memory_limit_bytes(dirty_limit_bytes(cache, volume));
            assert_eq!(clean_bytes(cache, 0) + dirty, cache);
            let table = cache / 8;
            assert_eq!(clean_bytes(cache, table) + table + dirty, cache);
            assert_eq!(clean_bytes(cache, u64::MAX), cache / 4);
        }
        assert_eq!(dirty_limit_bytes(1 << 30, 64 << 20), 1 << 20);
        assert_eq!(dirty_limit_bytes(0, 0), LEAST_DIRTY_BYTES);
    }
}
