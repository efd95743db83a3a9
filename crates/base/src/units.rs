//! Sizes that the whole system uses.

/// Bytes in a page, the unit of file data (DESIGN §3).
pub const PAGE_SIZE: usize = 4096;

/// Bytes in a grain: short blocks are packed at multiples of it (DESIGN §4).
pub const GRAIN_SIZE: usize = 64;

/// One KiB in bytes.
pub const KIB: u64 = 1 << 10;

/// One MiB in bytes.
pub const MIB: u64 = 1 << 20;

/// One GiB in bytes.
pub const GIB: u64 = 1 << 30;

/// One TiB in bytes.
pub const TIB: u64 = 1 << 40;

/// `value` rounded up to a multiple of `align`, a power of two.
///
/// # Panics
/// When the result does not fit, or in debug builds when `align` is not a power of two.
#[must_use]
pub const fn align_up(value: u64, align: u64) -> u64 {
    debug_assert!(align.is_power_of_two());
    match value.checked_add(align - 1) {
        Some(sum) => sum & !(align - 1),
        None => panic!("alignment overflows"),
    }
}

/// [`align_up`] for lengths in memory.
#[must_use]
pub const fn align_up_usize(value: usize, align: usize) -> usize {
    debug_assert!(align.is_power_of_two());
    (value + align - 1) & !(align - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligning_up_keeps_multiples_and_rounds_the_rest() {
        assert_eq!(align_up(0, 64), 0);
        assert_eq!(align_up(1, 64), 64);
        assert_eq!(align_up(64, 64), 64);
        assert_eq!(align_up_usize(4097, PAGE_SIZE), 2 * PAGE_SIZE);
    }
}
