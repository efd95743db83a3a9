//! What clients use of their quotas: the sums of what the entries count that their branches have in
//! the map ([`quota_bytes`]).
//!
//! Each change of an entry passes through here, that of undoing too. So the sums are exact at each
//! moment, whatever makes the change: a unit, a removal, a collection, the cleaner, or recovery.
//! Only clients are counted that have a quota, or that are new or are to get one.
//!
//! Invariants:
//! 1. (charges 1) The sum of a client is that of the entries before its `counted_to`, of branches
//!    that existed when the count began or were made since.
//! 2. (charges 2) What is recorded of a client counts the entries of branches that the version
//!    table has. While the map may have entries of branches that are gone, nothing is recorded: who
//!    reads it later could not tell whose they are.

use dendro_base::sync::Arc;
use dendro_disk::Ledger;
use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::versions::{quota_bytes, quota_bytes_of};
use dendro_format::{Key, PageRef, Space, Value};
use rustc_hash::FxHashMap;

/// The key before which all entries of clients are.
const CLIENTS_END: Key = Key::first(FIRST_SYSTEM_LIST, Space::List, 0);

/// What one client uses.
#[derive(Debug)]
struct Charge {
    /// Sums wrap around, so that undoing is exact even where a forged record says nonsense.
    used_bytes: u64,
    /// See charges invariant 1.
    counted_to: Key,
    /// Branches of which the map may still have entries, although they are gone.
    has_gone: bool,
    ledger: Arc<Ledger>,
}

impl Charge {
    fn is_whole(&self) -> bool {
        !self.counted_to.is_before(&CLIENTS_END)
    }
}

/// What the clients use that are counted, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    all: FxHashMap<u32, Charge>,
    /// The clients of branches, also of those that are gone.
    of_branch: FxHashMap<u32, u32>,
}

/// Changes of entries.
impl Charges {
    /// Whether some client is counted.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        !self.of_branch.is_empty()
    }

    /// Accounts for an entry that is put, replaced or removed.
    #[inline]
    pub(super) fn exchange(&mut self, key: &Key, before: Option<&Value>, after: Option<&Value>) {
        if self.are_any() {
            let bytes = |value: Option<&Value>| value.map_or(0, quota_bytes);
            self.add(key, bytes(before), bytes(after));
        }
    }

    /// Accounts for a page of a chunk that is put, replaced or removed.
    #[inline]
    pub(super) fn exchange_page(
        &mut self,
        key: &Key,
        before: Option<PageRef>,
        after: Option<PageRef>,
    ) {
        if self.are_any() {
            let bytes = |page: Option<PageRef>| page.map_or(0, quota_bytes_of);
            self.add(key, bytes(before), bytes(after));
        }
    }

    #[inline(never)]
    fn add(&mut self, key: &Key, before_bytes: u64, after_bytes: u64) {
        if key.list >= FIRST_SYSTEM_LIST || before_bytes == after_bytes {
            return;
        }
        let Some(client) = self.of_branch.get(&key.branch) else { return };
        if let Some(charge) = self.all.get_mut(client)
            && key.is_before(&charge.counted_to)
        {
            charge.used_bytes = charge.used_bytes.wrapping_add(after_bytes);
            charge.used_bytes = charge.used_bytes.wrapping_sub(before_bytes);
        }
    }
}

/// Branches and clients.
impl Charges {
    /// Begins to count a client that uses `used_bytes` as far as `counted_to`; it has `branches`.
    fn begin(
        &mut self,
        client: u32,
        branches: impl IntoIterator<Item = u32>,
        counted_to: Key,
        used_bytes: u64,
    ) {
        let charge = Charge { used_bytes, counted_to, has_gone: false, ledger: Arc::default() };
        self.all.entry(client).or_insert(charge);
        self.of_branch.extend(branches.into_iter().map(|branch| (branch, client)));
    }

    /// Counts a client that was made just now, and has nothing.
    pub(crate) fn begin_new(&mut self, client: u32) {
        self.begin(client, [client], CLIENTS_END, 0);
    }

    /// Counts a client from what was recorded of it.
    pub(crate) fn begin_with(
        &mut self,
        client: u32,
        branches: impl IntoIterator<Item = u32>,
        used_bytes: u64,
    ) {
        self.begin(client, branches, CLIENTS_END, used_bytes);
    }

    /// Counts a client of which nothing is known: [`Self::count`] must follow.
    pub(crate) fn begin_unknown(&mut self, client: u32, branches: impl IntoIterator<Item = u32>) {
        self.begin(client, branches, Key::MIN, 0);
    }

    /// Notes a branch that was made, of which the map has nothing.
    pub(crate) fn note_branch(&mut self, branch: u32, client: u32) {
        if self.all.contains_key(&client) {
            self.of_branch.insert(branch, client);
        }
    }

    /// Notes that a branch is gone.
    pub(crate) fn note_gone(&mut self, branch: u32) {
        let client = self.of_branch.get(&branch);
        if let Some(charge) = client.and_then(|client| self.all.get_mut(client)) {
            charge.has_gone = true;
        }
    }

    /// Notes that the map has nothing of branches that are gone; `is_there` says which are not.
    pub(crate) fn note_collected(&mut self, is_there: impl Fn(u32) -> bool) {
        if self.all.values().any(|charge| charge.has_gone) {
            self.of_branch.retain(|branch, _| is_there(*branch));
            self.all.values_mut().for_each(|charge| charge.has_gone = false);
        }
    }

    /// Stops to count clients that have no quota, except those that are to get one.
    pub(crate) fn keep(&mut self, has_quota: impl Fn(u32) -> bool) {
        let count = self.all.len();
        self.all.retain(|client, charge| has_quota(*client) || !charge.is_whole());
        if self.all.len() != count {
            self.of_branch.retain(|_, client| self.all.contains_key(client));
        }
    }
}

/// Counting what was there before.
impl Charges {
    /// Whether the client is counted, or will be when [`Self::count`] is done.
    pub(crate) fn has(&self, client: u32) -> bool {
        self.all.contains_key(&client)
    }

    /// The key from which on the client is to be counted; `None` if it is counted as a whole, or
    /// nobody asked for it.
    pub(crate) fn left_to_count(&self, client: u32) -> Option<Key> {
        let charge = self.all.get(&client).filter(|charge| !charge.is_whole());
        charge.map(|charge| charge.counted_to)
    }

    /// What an entry counts for `client`.
    pub(crate) fn bytes_for(&self, client: u32, key: &Key, value: &Value) -> u64 {
        match self.of_branch.get(&key.branch) {
            Some(of) if *of == client => quota_bytes(value),
            _ => 0,
        }
    }

    /// Counts what was found from [`Self::left_to_count`] to before `to`; `None`: to the end.
    pub(crate) fn count(&mut self, client: u32, bytes: u64, to: Option<Key>) {
        if let Some(charge) = self.all.get_mut(&client) {
            charge.used_bytes = charge.used_bytes.wrapping_add(bytes);
            charge.counted_to = to.unwrap_or(CLIENTS_END).min(CLIENTS_END);
        }
    }

    /// The clients that are not counted as a whole.
    pub(crate) fn uncounted(&self) -> Vec<u32> {
        let uncounted = self.all.iter().filter(|(_, charge)| !charge.is_whole());
        uncounted.map(|(client, _)| *client).collect()
    }
}

/// What is told of clients.
impl Charges {
    /// What can be recorded of the client (charges 2).
    pub(crate) fn recordable(&self, client: u32) -> Option<u64> {
        let charge = self.all.get(&client)?;
        (charge.is_whole() && !charge.has_gone).then_some(charge.used_bytes)
    }

    /// What the client of `branch` uses, with the reservations for it; `None` if it is not counted.
    pub(crate) fn of_branch(&self, branch: u32) -> Option<(u32, u64, &Arc<Ledger>)> {
        let client = *self.of_branch.get(&branch)?;
        let charge = self.all.get(&client).filter(|charge| charge.is_whole())?;
        Some((client, charge.used_bytes, &charge.ledger))
    }
}
