//! Frames: blocks that hold several pages of one entry of the map.
//!
//! A frame is live, with all of its length, as long as the entry has one of its pages. So each page
//! that an entry gets or loses is accounted for together with the other pages that it has.

use dendro_format::PageRef;

use crate::state::{Slots, State};

impl State {
    /// Accounts for a page that an entry gets beside those in `slots`. Its client wrote it at
    /// `written_at`.
    pub(super) fn add_to(&mut self, slots: &Slots, page: &PageRef, written_at: u64) {
        if is_among(slots, page) {
            self.segments.page_joined(page);
        } else {
            self.segments.block_added(page, written_at, self.clock);
        }
    }

    /// Takes the page at `slot` out of the pages of an entry, and accounts for that.
    pub(super) fn drop_from(&mut self, slots: &mut Slots, slot: u32) -> Option<PageRef> {
        let page = slots[slot as usize].take()?;
        if is_among(slots, &page) {
            self.segments.page_left(&page);
        } else {
            self.segments.block_freed(&page, self.clock);
        }
        Some(page)
    }

    /// Accounts for the pages of an entry that goes.
    pub(super) fn drop_all(&mut self, mut slots: Slots) {
        for slot in 0..slots.len() as u32 {
            self.drop_from(&mut slots, slot);
        }
    }
}

/// Whether a page lies in the frame of one of those in `slots`.
fn is_among(slots: &Slots, page: &PageRef) -> bool {
    page.is_in_frame() && slots.iter().flatten().any(|other| other.shares_frame_with(page))
}
