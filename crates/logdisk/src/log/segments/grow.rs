//! More segments.

use dendro_format::Layout;
use zerocopy::FromZeros;

use super::Segments;
use super::entry::Entry;

/// The memory for the table of a volume with more segments, without what the table holds.
pub(crate) struct NewTable(Vec<Entry>);

impl NewTable {
    /// The memory for the table of a volume of this layout, if there is so much.
    pub(crate) fn of(layout: Layout) -> Option<Self> {
        Entry::new_vec_zeroed(layout.segment_count() as usize).ok().map(Self)
    }
}

impl Segments {
    /// Gives the volume more segments, which are clean: those of `layout`, of which `table` is.
    /// None are given up.
    pub(crate) fn grow(&mut self, layout: Layout, table: NewTable) {
        let (before, count) = (self.layout.segment_count(), layout.segment_count());
        debug_assert!(before <= count && table.0.len() == count as usize && self.end == before);
        // Segments that were given up before have their generations.
        let used = self.used_end.min(count) as usize;
        self.used_end = used as u32;
        let mut table = table.0;
        table[..used].copy_from_slice(&self.table[..used]);
        self.table = table;
        self.layout = layout;
        self.end = count;
        self.clean.insert_range(before..count);
        self.counts.clean += count - before;
        self.pins.cover(count);
    }
}
