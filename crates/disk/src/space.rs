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

/// The sum of all reservations of one disk.
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
        Some(Reservation { len_bytes, ledger: Arc::clone(self) })
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
}

impl Reservation {
    /// How much is reserved, with what the disk needs to store that much.
    #[must_use]
    #[inline]
    pub const fn len_bytes(&self) -> u64 {
        self.len_bytes
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
