//! Quotas of the model.

use std::collections::{BTreeSet, HashMap};
use std::slice;
use std::sync::Arc;

use dendro_base::units::align_up;

use super::{Inner, ModelDisk, ModelVersions};
use crate::{
    Aru, CHANGE_BYTES, Error, Ledger, Lid, MAX_PAGE_COUNT, PAGE_SIZE, Quota, Result, View,
};

/// The unit in which pages take space.
const GRAIN_BYTES: u64 = 64;

impl ModelVersions {
    /// What a client uses of its quota: see [`Quota`].
    #[must_use]
    pub fn used_bytes(&self, client: u32) -> u64 {
        let mut values: HashMap<usize, u64> = HashMap::new();
        let mut lists: BTreeSet<Lid> = BTreeSet::new();
        // All pages of zeros may have one value.
        let mut zeros: BTreeSet<(Lid, u64)> = BTreeSet::new();
        for state in self.states_of(client) {
            for (number, list) in state.lists(Lid(0)) {
                lists.insert(number);
                for (_, value) in list.records(0) {
                    values.insert(value.as_ptr().addr(), CHANGE_BYTES + value.len() as u64);
                }
                for (page, data) in list.pages(0..MAX_PAGE_COUNT) {
                    if data.is_empty() {
                        zeros.insert((number, page));
                    } else {
                        let len_bytes = align_up(data.len() as u64, GRAIN_BYTES);
                        values.insert(data.as_ptr().addr(), len_bytes);
                    }
                }
            }
        }
        let zeros_bytes = zeros.len() as u64 * PAGE_SIZE as u64;
        values.values().sum::<u64>() + lists.len() as u64 * CHANGE_BYTES + zeros_bytes
    }
}

impl Inner {
    /// The quota of the client of `view`, and what is reserved of it.
    pub(super) fn quota(&self, view: View) -> Option<(Quota, Arc<Ledger>)> {
        let table = self.versions.table();
        let (client, _) = table.client_of(view.branch);
        let limit_bytes = table.quota_of(client)?;
        let ledger = self.ledgers.get(&client).cloned().unwrap_or_default();
        let used_bytes = self.versions.used_bytes(client);
        let reserved_bytes = ledger.reserved_bytes();
        Some((Quota { limit_bytes, used_bytes, reserved_bytes }, ledger))
    }

    /// Whether a unit fits in the quota of its client.
    pub(super) fn check_quota(&self, aru: &Aru<'_>) -> Result<()> {
        let Some((quota, ledger)) = self.quota(aru.view()) else { return Ok(()) };
        let own = aru.reservation().and_then(|own| own.of_quota(&ledger));
        let available_bytes = quota.available_bytes() + own.map_or(0, |own| own.len_bytes());
        if aru.most_quota_bytes() <= available_bytes {
            return Ok(());
        }
        let (client, _) = self.versions.table().client_of(aru.view().branch);
        self.versions.clone().apply(aru.view(), aru.ops())?;
        let (mut after, mut free_bytes) = (self.versions.clone(), 0);
        for op in aru.ops() {
            let before = after.used_bytes(client);
            after.apply(aru.view(), slice::from_ref(op))?;
            // What gives space back is not charged for its records and lists.
            if aru.reclaims() && !op.concerns_pages() {
                free_bytes += after.used_bytes(client).saturating_sub(before);
            }
        }
        let charged_bytes = after.used_bytes(client).saturating_sub(free_bytes);
        let needed_bytes = charged_bytes.saturating_sub(quota.used_bytes);
        match needed_bytes <= available_bytes {
            true => Ok(()),
            false => Err(Error::OverQuota { needed_bytes, available_bytes }),
        }
    }
}

impl ModelDisk {
    /// Reserves `len_bytes` of the quota of the client of `view`, if it has one.
    pub(super) fn reserve_of_quota(
        &self,
        view: View,
        len_bytes: u64,
    ) -> Result<Option<crate::Reservation>> {
        let mut inner = self.inner.write();
        let (client, _) = inner.versions.table().client_of(view.branch);
        inner.ledgers.entry(client).or_default();
        let Some((quota, ledger)) = inner.quota(view) else { return Ok(None) };
        let limit_bytes = quota.limit_bytes.saturating_sub(quota.used_bytes);
        let available_bytes = quota.available_bytes();
        let reserved = ledger.reserve(len_bytes, limit_bytes);
        reserved.ok_or(Error::OverQuota { needed_bytes: len_bytes, available_bytes }).map(Some)
    }
}
