//! The extended attributes of one file.

use std::collections::{BTreeMap, BTreeSet};

use dendro_disk::Record;

use super::head::{BATCH_LEN, Head};
use crate::error::{FsError, Result};
use crate::layout::format::{XATTR_BASE, XATTR_END, XATTR_PART_LEN};
use crate::layout::record_edits::RecordEdits;
use crate::layout::xattr_records::{self, SLOT_AND_PART, Stored};
use crate::types::Ino;

/// What the i-node notes of the attributes.
#[derive(Default)]
pub(super) struct Account {
    pub(super) names_len: u32,
    pub(super) has_capability: bool,
    /// The names of attributes that are kept.
    names: BTreeSet<Vec<u8>>,
}

impl Account {
    fn add(&mut self, name: &[u8]) -> bool {
        if !self.names.insert(name.to_vec()) {
            return false;
        }
        self.names_len += xattr_records::listed_len(name);
        self.has_capability |= name == xattr_records::CAPABILITY;
        true
    }
}

/// The records of attributes whose names have one hash, by slot and part.
type Group = BTreeMap<u64, Record>;

/// Keeps the attributes of `ino` that can be read, in their places. What is kept is returned.
pub(super) fn mend(head: &Head<'_>, edits: &mut RecordEdits<'_>, ino: Ino) -> Result<Account> {
    let mut account = Account::default();
    let mut misplaced = Vec::new();
    let mut group = (XATTR_BASE, Group::new());
    let mut from = XATTR_BASE;
    'walk: loop {
        let batch = head.disk().records(head.view(), ino.lid(), from, BATCH_LEN)?;
        for (index, record) in &batch {
            if *index >= XATTR_END {
                break 'walk;
            }
            let base = index & !SLOT_AND_PART;
            if base != group.0 {
                mend_group(head, edits, ino, &group, &mut account, &mut misplaced);
                group = (base, Group::new());
            }
            group.1.insert(index & SLOT_AND_PART, record.clone());
        }
        match batch.last() {
            Some((last, _)) if batch.len() == BATCH_LEN => from = last + 1,
            _ => break,
        }
    }
    mend_group(head, edits, ino, &group, &mut account, &mut misplaced);
    for (name, value) in misplaced {
        if account.names.contains(&name) {
            continue;
        }
        match xattr_records::store(edits, head.hasher(), ino, &name, Some(&value)) {
            Ok(_) => drop(account.add(&name)),
            // There is no room for it in its place.
            Err(FsError::Full(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(account)
}

fn mend_group(
    head: &Head<'_>,
    edits: &mut RecordEdits<'_>,
    ino: Ino,
    (base, records): &(u64, Group),
    account: &mut Account,
    misplaced: &mut Vec<(Vec<u8>, Vec<u8>)>,
) {
    let entries = records.get(&0).map(|record| xattr_records::decode_readable(record));
    let mut kept: Vec<Stored<'_>> = Vec::new();
    let mut slots = BTreeSet::new();
    for stored in entries.unwrap_or_default() {
        let Some(value) = value(records, &stored) else { continue };
        if stored.slot != 0 && slots.contains(&stored.slot) {
            continue;
        }
        if head.hasher().xattr_index(stored.name) != *base {
            misplaced.push((stored.name.to_vec(), value));
        } else if account.add(stored.name) {
            slots.insert(stored.slot);
            kept.push(stored);
        }
    }
    let mut wanted: BTreeSet<u64> = BTreeSet::from([0]);
    for stored in kept.iter().filter(|stored| stored.slot != 0) {
        let parts = 0..stored.value_len.div_ceil(XATTR_PART_LEN) as u64;
        wanted.extend(parts.map(|part| u64::from(stored.slot) << 8 | part));
    }
    for slot_and_part in records.keys().filter(|of| !wanted.contains(of)) {
        edits.put(ino.lid(), base | slot_and_part, Vec::new());
    }
    let record = xattr_records::encode(&kept);
    if records.get(&0).is_some_and(|old| **old != *record) {
        edits.put(ino.lid(), *base, record);
    }
}

/// The value of an attribute, if all of it is there.
fn value(records: &Group, stored: &Stored<'_>) -> Option<Vec<u8>> {
    if stored.slot == 0 {
        return Some(stored.inline_value().to_vec());
    }
    let mut value = Vec::with_capacity(stored.value_len);
    while value.len() < stored.value_len {
        let part = (value.len() / XATTR_PART_LEN) as u64;
        let record = records.get(&(u64::from(stored.slot) << 8 | part))?;
        if record.len() != XATTR_PART_LEN.min(stored.value_len - value.len()) {
            return None;
        }
        value.extend_from_slice(record);
    }
    Some(value)
}
