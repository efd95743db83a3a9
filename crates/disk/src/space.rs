//! Space and reservations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a disk's bytes are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What clients could use if the disk were empty.
    pub capacity_bytes: u64,
    /// What live data use.
    pub live_bytes: u64,
    /// What clients can still write, after reservations are subtracted.
    pub available_bytes: u64,
    /// What is reserved.
    pub reserved_bytes: u64,
}

/// The quota of a client, and what it uses of it.
///
/// All versions of the client count together, and what they share counts once: a page with the
/// bytes that it takes, one of zeros with [`PAGE_SIZE`](crate::PAGE_SIZE), a record with its length
/// and [`CHANGE_BYTES`](crate::CHANGE_BYTES), a list with as much. What was deleted counts until it
/// is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The most that the client may use.
    pub limit_bytes: u64,
    /// What it uses. Units that give space back are not refused, so it can be more than the limit.
    pub used_bytes: u64,
    /// What is reserved for the client's units.
    pub reserved_bytes: u64,
}

impl Quota {
    /// What is left of it.
    #[must_use]
    pub const fn available_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes.saturating_add(self.reserved_bytes))
    }
}

impl Space {
    /// The same for a client that has this quota.
    #[must_use]
    pub fn within(self, quota: &Quota) -> Self {
        Self {
            capacity_bytes: self.capacity_bytes.min(quota.limit_bytes),
            live_bytes: quota.used_bytes,
            available_bytes: self.available_bytes.min(quota.available_bytes()),
            reserved_bytes: quota.reserved_bytes,
        }
    }
}

/// The sum of all reservations of one disk, or of those of a client with a quota.
#[derive(Debug, Default)]
pub struct Ledger {
    reserved_bytes: AtomicU64,
}

impl Ledger {
    /// The sum of all reservations.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes.load(Ordering::Acquire)
    }

    /// Reserves `len_bytes`, if all reservations together stay within `limit_bytes`.
    #[must_use]
    pub fn reserve(self: &Arc<Self>, len_bytes: u64, limit_bytes: u64) -> Option<Reservation> {
        self.reserved_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |reserved| {
                reserved.checked_add(len_bytes).filter(|&sum| sum <= limit_bytes)
            })
            .ok()?;
        Some(Reservation { len_bytes, ledger: Arc::clone(self), of_quota: None })
    }

    /// What others have reserved than the one who has `own`. A reservation of another disk counts
    /// as none.
    #[must_use]
    #[inline]
    pub fn reserved_by_others_bytes(&self, own: Option<&Reservation>) -> u64 {
        let own = own.filter(|own| std::ptr::eq(&raw const *own.ledger, self));
        self.reserved_bytes().saturating_sub(own.map_or(0, Reservation::len_bytes))
    }
}

/// Reserved space. Dropping it releases the space.
#[derive(Debug)]
pub struct Reservation {
    len_bytes: u64,
    ledger: Arc<Ledger>,
    /// What is reserved with it of a client's quota.
    of_quota: Option<Box<Self>>,
}

impl Reservation {
    /// How much is reserved, with what the disk needs to store that much.
    #[must_use]
    #[inline]
    pub const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The same, with what was reserved of a client's quota.
    #[must_use]
    pub fn with_quota(self, of_quota: Self) -> Self {
        let mut whole = self;
        whole.of_quota = Some(Box::new(of_quota));
        whole
    }

    /// What is reserved with it of a client's quota, if that is in `ledger`.
    #[must_use]
    pub fn of_quota(&self, ledger: &Ledger) -> Option<&Self> {
        self.of_quota.as_deref().filter(|own| std::ptr::eq(&raw const *own.ledger, ledger))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.ledger.reserved_bytes.fetch_sub(self.len_bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_refused_past_the_limit_and_released_when_dropped() {
        let ledger = Arc::new(Ledger::default());
        let first = ledger.reserve(60, 100).unwrap();
        assert!(ledger.reserve(50, 100).is_none());
        drop(first);
        assert_eq!(ledger.reserved_bytes(), 0);
        assert!(ledger.reserve(u64::MAX, 100).is_none());
    }
}
