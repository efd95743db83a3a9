//! Tiers: segments on fast devices, and those on others.

use dendro_device::Device;
use dendro_format::{Layout, SegmentNo};
use roaring::RoaringBitmap;

/// Which segments are fast. There are no tiers if none is, or all are.
#[derive(Debug, Default)]
pub(crate) struct Tiers {
    pub(super) fast: RoaringBitmap,
    /// The device's [`Device::parts_version`] and the number of segments of which this is.
    pub(super) of: (u64, u32),
}

/// Counts of fast segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastCounts {
    /// Those that may be filled.
    pub(crate) clean: u32,
    /// Those that were filled and hold nothing live.
    pub(crate) pending: u32,
    /// How many should be clean.
    pub(crate) wanted: u32,
}

impl Tiers {
    /// Those of a volume of this layout on `device`.
    pub(crate) fn on(device: &dyn Device, layout: Layout) -> Self {
        let of = (device.parts_version(), layout.segment_count());
        if of.0 == 0 {
            return Self { of, ..Self::default() };
        }
        let is_fast = |segment: &SegmentNo| {
            device.part_at(layout.segment_offset(*segment)).is_some_and(|part| part.is_fast)
        };
        let all = || layout.log_segments();
        let fast: RoaringBitmap = all().filter(is_fast).map(|segment| segment.0).collect();
        let has_others = fast.len() < all().count() as u64;
        Self { fast: if has_others { fast } else { RoaringBitmap::new() }, of }
    }

    #[cfg(test)]
    pub(super) fn of_these<const N: usize>(fast: [u32; N]) -> Self {
        Self { fast: fast.into(), ..Self::default() }
    }
}
