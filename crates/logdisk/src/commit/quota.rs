//! Whether a unit fits in the quota of its client.
//!
//! A unit never takes more than its payload ([`Aru::payload_bytes`]), so most units need no
//! further look. An exchange of pages may, if other versions see them: their copies are checked
//! when they are made. If the payload would not fit, the unit is rehearsed, which says what the
//! client would use with it ([`Tally`]).
//!
//! A unit that gives space back may exceed the quota by what its records and lists take, such as
//! the entry that hides a deleted file which a snapshot has. Its pages may not: whoever could write
//! pages in such units would have no quota.

use std::ops::Range;

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Aru, Error, Lid, MAX_PAGE_COUNT, Op};
use dendro_format::PageRef;
use rustc_hash::FxHashMap;

use crate::engine::Engine;
use crate::fault::Outcome;
use crate::log::partial::Content;

/// What is left of a quota for a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftOfQuota {
    used_bytes: u64,
    available_bytes: u64,
}

impl LeftOfQuota {
    /// What the unit is charged, before it has changed anything.
    pub(super) fn tally(self, aru: &Aru<'_>) -> Tally {
        let (reclaims, used_bytes) = (aru.reclaims(), self.used_bytes);
        Tally { reclaims, used_bytes, free_bytes: 0, short: FxHashMap::default() }
    }

    /// Checks whether the client may use so much after the unit.
    ///
    /// # Errors
    /// [`Error::OverQuota`].
    pub(super) fn check(self, used_after_bytes: u64) -> Outcome<()> {
        let needed_bytes = used_after_bytes.saturating_sub(self.used_bytes);
        let available_bytes = self.available_bytes;
        if needed_bytes <= available_bytes {
            return Ok(());
        }
        Err(Error::OverQuota { needed_bytes, available_bytes }.into())
    }
}

impl Engine {
    /// Returns what is left of the quota of the unit's client, unless the unit fits in any case.
    #[inline]
    pub(super) fn tight_quota(&self, aru: &Aru<'_>) -> Option<LeftOfQuota> {
        let left = self.left_of_quota(aru)?;
        (aru.most_quota_bytes() > left.available_bytes).then_some(left)
    }

    /// Checks whether the client of the unit may use so much more for it.
    ///
    /// # Errors
    /// [`Error::OverQuota`].
    pub(crate) fn check_quota_for(&self, aru: &Aru<'_>, needed_bytes: u64) -> Outcome<()> {
        let left = self.left_of_quota(aru);
        left.map_or(Ok(()), |left| left.check(left.used_bytes.saturating_add(needed_bytes)))
    }

    /// What is left for the unit of the quota of its client, with what is reserved for it.
    #[inline]
    fn left_of_quota(&self, aru: &Aru<'_>) -> Option<LeftOfQuota> {
        let (quota, ledger) = self.state().quota_of(aru.view().branch)?;
        let own = aru.reservation().and_then(|own| own.of_quota(ledger));
        let own_bytes = own.map_or(0, |own| own.len_bytes());
        let available_bytes = quota.available_bytes().saturating_add(own_bytes);
        Some(LeftOfQuota { used_bytes: quota.used_bytes, available_bytes })
    }

    /// What the client of `branch` uses, if it has a quota.
    pub(super) fn used_of_quota(&self, branch: u32) -> u64 {
        self.state().quota_of(branch).map_or(0, |(quota, _)| quota.used_bytes)
    }
}

/// What a unit that is rehearsed is charged: what its client uses after it, but for two things.
#[derive(Debug)]
pub(super) struct Tally {
    /// Whether what records and lists take is not charged.
    reclaims: bool,
    /// What the client uses after the operations so far.
    used_bytes: u64,
    /// What records and lists took that are not charged.
    free_bytes: u64,
    /// Pages that the unit has written, by list and page, and what each will take less than a whole
    /// page, which it is rehearsed as.
    short: FxHashMap<(Lid, u64), u64>,
}

impl Tally {
    /// Notes that `op` was rehearsed, and that the client uses `used_bytes` now.
    pub(super) fn note_op(&mut self, op: &Op<'_>, used_bytes: u64) {
        let before = std::mem::replace(&mut self.used_bytes, used_bytes);
        if self.reclaims && !op.concerns_pages() {
            self.free_bytes += used_bytes.saturating_sub(before);
        }
        // What is no longer where it was written is charged in full.
        match *op {
            Op::PunchPages { list, first_page, count }
            | Op::ZeroPages { list, first_page, count } => {
                self.forget(list, first_page..first_page.saturating_add(count));
            }
            Op::DeleteList { .. } | Op::MovePages { .. } | Op::SwapPages { .. } => {
                let (a, b) = op.lists();
                self.forget(a, 0..MAX_PAGE_COUNT);
                self.forget(b, 0..MAX_PAGE_COUNT);
            }
            _ => {}
        }
    }

    fn forget(&mut self, list: Lid, pages: Range<u64>) {
        self.short.retain(|(of, page), _| *of != list || !pages.contains(page));
    }

    /// Notes what is stored of a page. What replaces a whole page `own` that was not written to the
    /// device yet, or one that the unit has written before, takes its place, however short it is.
    pub(super) fn note_page(
        &mut self,
        list: Lid,
        page_index: u64,
        content: &Content<'_>,
        own: Option<PageRef>,
    ) {
        let page = (list, page_index);
        let is_in_whole = own.is_some_and(|own| own.is_whole()) || self.short.contains_key(&page);
        let len_bytes = if is_in_whole { PAGE_SIZE as u64 } else { content.counted_bytes() };
        self.short.insert(page, (PAGE_SIZE as u64).saturating_sub(len_bytes));
    }

    /// What the client uses after the unit, as far as it is charged.
    pub(super) fn charged_bytes(&self) -> u64 {
        let short_bytes = self.short.values().sum();
        self.used_bytes.saturating_sub(self.free_bytes).saturating_sub(short_bytes)
    }
}
