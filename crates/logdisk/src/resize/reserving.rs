//! Reserving space for a client, for which the volume becomes longer if it may.

use dendro_disk::{Error, Reservation, Result, View};

use super::Resizer;
use crate::reclaim::make_room::SeenPruning;

impl Resizer {
    /// Reserves so many bytes of log and map.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::Failed`].
    pub(crate) fn reserve_exactly(&self, len_bytes: u64) -> Result<Reservation> {
        self.accounts.host().look();
        let mut seen = SeenPruning::default();
        loop {
            let engine = self.volume.read();
            self.volume.check_writable(&engine)?;
            let reserved = self.accounts.reserve(&engine, len_bytes);
            drop(engine);
            let is_final = reserved.is_ok()
                || !self.reclaimer.free(&mut seen)? && !self.grow_by_itself(len_bytes)?;
            if is_final {
                return reserved;
            }
        }
    }

    /// Adds to `reserved` so many bytes of the quota of the client of `view`, if it has one.
    ///
    /// # Errors
    /// [`Error::OverQuota`], [`Error::Failed`].
    pub(crate) fn reserve_of_quota(
        &self,
        reserved: Reservation,
        view: View,
        len_bytes: u64,
    ) -> Result<Reservation> {
        let mut seen = SeenPruning::default();
        loop {
            let error = {
                let engine = self.volume.read();
                let Some((quota, ledger)) = engine.state().quota_of(view.branch) else {
                    return Ok(reserved);
                };
                let limit_bytes = quota.limit_bytes.saturating_sub(quota.used_bytes);
                if let Some(of_quota) = ledger.reserve(len_bytes, limit_bytes) {
                    return Ok(reserved.with_quota(of_quota));
                }
                let available_bytes = quota.available_bytes();
                Error::OverQuota { needed_bytes: len_bytes, available_bytes }
            };
            if !self.reclaimer.free_for_quota(&mut seen)? {
                return Err(error);
            }
        }
    }
}
