//! Whether a unit fits in the quota of its client.
//!
//! A unit never takes more than its payload ([`Aru::payload_bytes`]), so most units need no
//! further look. An exchange of pages may, if other versions see them: their copies are checked
//! when they are made. If the payload would not fit, the unit is rehearsed, which says what the
//! client would use with it: pages that it writes count in full, because how they are stored is
//! not known then.

use dendro_disk::{Aru, Error};

use crate::engine::Engine;
use crate::fault::Outcome;

/// What is left of a quota for a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftOfQuota {
    used_bytes: u64,
    available_bytes: u64,
}

impl LeftOfQuota {
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
        let is_tight = aru.payload_bytes() > left.available_bytes && !aru.reclaims();
        is_tight.then_some(left)
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
