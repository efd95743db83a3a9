//! Extended attributes of one file, and the records that hold them.
//!
//! All attributes whose names have one hash share a record. A value that does not fit there is in
//! records of its own, which belong to a slot (see [`super::format`]).

use dendro_disk::{LogicalDisk, MAX_RECORD_LEN_BYTES, View};
use zerocopy::IntoBytes;

use super::format::{
    MISPLACED, RECORD_VERSION, XATTR_BASE, XATTR_END, XATTR_PART_LEN, XattrV1, split_bytes,
    split_head, split_version,
};
use super::names::NameHasher;
use super::record_edits::RecordEdits;
use crate::error::{FsError, Result};
use crate::types::{FileKind, Ino, MAX_NAME_LEN_BYTES, MAX_XATTR_LEN_BYTES};

/// The most bytes that the names of a file's attributes may take together: the longest list that
/// listxattr(2) returns.
pub(crate) const MAX_XATTR_NAMES_LEN: usize = 65_536;

/// The attribute that gives a program capabilities. A change of the program removes it.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
/// The attribute that holds a file's access ACL.
pub(crate) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that holds a directory's default ACL, which new files in it inherit.
pub(crate) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Whether the attribute holds an ACL.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}

/// How many records a walk reads at a time.
const BATCH_LEN: usize = 64;
/// Low bits of an attribute record's index: slot and part.
pub(crate) const SLOT_AND_PART: u64 = 0xffff;

/// An attribute, decoded from its record.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value_len: usize,
    /// 0 if the value is in the same record.
    pub(crate) slot: u8,
    value: &'a [u8],
    /// The name is hidden, and was in the wrong record.
    is_misplaced: bool,
}

impl<'a> Stored<'a> {
    /// Whether the record at `index` is where the name is looked up.
    pub(crate) fn is_placed(&self, hasher: &NameHasher, index: u64) -> bool {
        match hasher.is_hidden() {
            true => !self.is_misplaced,
            false => hasher.xattr_index(self.name) == index,
        }
    }

    /// The value, if it is in the same record; else nothing.
    pub(crate) const fn inline_value(&self) -> &'a [u8] {
        self.value
    }
}

/// Refuses names outside the known namespaces, and namespaces that files of `kind` cannot have.
pub(crate) fn check_name(name: &[u8], kind: FileKind) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_LEN_BYTES {
        return Err(FsError::AttributeName);
    }
    if is_acl(name) {
        return match kind {
            FileKind::Symlink => Err(FsError::NotSupported("links have no ACL")),
            _ => Ok(()),
        };
    }
    let prefix = [b"user.".as_slice(), b"trusted.", b"security."]
        .into_iter()
        .find(|prefix| name.starts_with(prefix))
        .ok_or(FsError::NotSupported("unknown attribute namespace"))?;
    if name.len() == prefix.len() || name.contains(&0) {
        return Err(FsError::Invalid("an attribute without a name"));
    }
    if prefix == b"user." && !matches!(kind, FileKind::Regular | FileKind::Directory) {
        return Err(FsError::NotPermitted("only files and directories have user attributes"));
    }
    Ok(())
}

/// Refuses an attribute that cannot be part of a new file's security context.
pub(crate) fn check_security_attribute(name: &[u8], value: &[u8]) -> Result<()> {
    if !name.starts_with(b"security.") {
        return Err(FsError::NotSupported("an attribute outside the namespace \"security\""));
    }
    // Files of every kind may have attributes of this namespace.
    check_name(name, FileKind::Regular)?;
    if value.len() > MAX_XATTR_LEN_BYTES { Err(FsError::AttributeTooBig) } else { Ok(()) }
}

/// The bytes that a name takes in the list of names.
pub(crate) const fn listed_len(name: &[u8]) -> u32 {
    name.len() as u32 + 1
}

/// The attributes of a record.
pub(crate) fn decode(record: &[u8]) -> Result<Vec<Stored<'_>>> {
    let mut stored = Vec::new();
    decode_into(record, &mut stored)?;
    Ok(stored)
}

/// The attributes of a record up to the first that is malformed.
pub(crate) fn decode_readable(record: &[u8]) -> Vec<Stored<'_>> {
    let mut stored = Vec::new();
    let _ = decode_into(record, &mut stored);
    stored
}

fn decode_into<'a>(record: &'a [u8], stored: &mut Vec<Stored<'a>>) -> Result<()> {
    if record.is_empty() {
        return Ok(());
    }
    let mut rest = split_version(record, "an attribute record")?;
    while !rest.is_empty() {
        let (head, after) = split_head::<XattrV1>(rest, "an attribute")?;
        let (name, after) = split_bytes(after, usize::from(head.name_len), "an attribute's name")?;
        let value_len = head.value_len.get() as usize;
        if value_len > MAX_XATTR_LEN_BYTES || name.is_empty() {
            return Err(FsError::Corrupted("an attribute has a bad length".into()));
        }
        let inline_len = if head.slot == 0 { value_len } else { 0 };
        let (value, after) = split_bytes(after, inline_len, "an attribute's value")?;
        let is_misplaced = head.reserved.get() & u16::from(MISPLACED) != 0;
        stored.push(Stored { name, value_len, slot: head.slot, value, is_misplaced });
        rest = after;
    }
    Ok(())
}

/// The record of these attributes; empty if there are none.
pub(crate) fn encode(stored: &[Stored<'_>]) -> Vec<u8> {
    let mut record = Vec::new();
    stored.iter().for_each(|stored| push(&mut record, stored));
    record
}

fn push(record: &mut Vec<u8>, stored: &Stored<'_>) {
    if record.is_empty() {
        record.push(RECORD_VERSION);
    }
    let head = XattrV1 {
        value_len: (stored.value_len as u32).into(),
        slot: stored.slot,
        name_len: stored.name.len() as u8,
        reserved: 0.into(),
    };
    record.extend_from_slice(head.as_bytes());
    record.extend_from_slice(stored.name);
    record.extend_from_slice(stored.value);
}

/// The index of a part of the long value in `slot`, whose name is in the record at `index`.
const fn part_index(index: u64, slot: u8, part: usize) -> u64 {
    index | (slot as u64) << 8 | part as u64
}

/// The whole value of an attribute in the record at `index` of `ino`.
pub(crate) fn value(
    disk: &dyn LogicalDisk,
    view: View,
    ino: Ino,
    index: u64,
    stored: &Stored<'_>,
) -> Result<Vec<u8>> {
    if stored.slot == 0 {
        return Ok(stored.value.to_vec());
    }
    let mut value = Vec::with_capacity(stored.value_len);
    for part in 0..stored.value_len.div_ceil(XATTR_PART_LEN) {
        let record =
            disk.record(view, ino.lid(), part_index(index, stored.slot, part))?.ok_or_else(
                || FsError::Corrupted(format!("i-node {ino} lacks part of an attribute")),
            )?;
        value.extend_from_slice(&record);
    }
    if value.len() != stored.value_len {
        return Err(FsError::Corrupted(format!("i-node {ino} has an attribute of wrong length")));
    }
    Ok(value)
}

/// The value of the attribute `name`.
pub(crate) fn get(
    disk: &dyn LogicalDisk,
    view: View,
    hasher: &NameHasher,
    ino: Ino,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    if hasher.is_hidden() {
        let mut found = None;
        for_each(disk, view, ino, &mut |index, stored| {
            if stored.name == name {
                found = Some(value(disk, view, ino, index, stored)?);
            }
            Ok(())
        })?;
        return Ok(found);
    }
    let index = hasher.xattr_index(name);
    let Some(record) = disk.record(view, ino.lid(), index)? else { return Ok(None) };
    match decode(&record)?.iter().find(|stored| stored.name == name) {
        Some(stored) => value(disk, view, ino, index, stored).map(Some),
        None => Ok(None),
    }
}

/// Calls `visit` with each attribute of `ino` and the index of its record.
pub(crate) fn for_each(
    disk: &dyn LogicalDisk,
    view: View,
    ino: Ino,
    visit: &mut dyn FnMut(u64, &Stored<'_>) -> Result<()>,
) -> Result<()> {
    let mut from = XATTR_BASE;
    'walk: while from < XATTR_END {
        let batch = disk.records(view, ino.lid(), from, BATCH_LEN)?;
        let Some(&(last, _)) = batch.last() else { break };
        for (index, record) in &batch {
            if *index >= XATTR_END {
                break 'walk;
            }
            if index & SLOT_AND_PART != 0 {
                // A part of a long value; the record of the next hash comes after all parts.
                from = (index | SLOT_AND_PART) + 1;
                continue 'walk;
            }
            for stored in decode(record)? {
                visit(*index, &stored)?;
            }
        }
        from = last + 1;
    }
    Ok(())
}

/// Sets the attribute `name` of `ino`, or removes it if `value` is `None`. Returns whether it
/// existed before.
pub(crate) fn store(
    edits: &mut RecordEdits<'_>,
    hasher: &NameHasher,
    ino: Ino,
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<bool> {
    let index = hasher.xattr_index(name);
    let old = edits.load(ino.lid(), index)?.clone();
    let mut record = Vec::with_capacity(old.len());
    let mut replaced = None;
    let mut slots_used = [false; 256];
    for stored in decode(&old)? {
        if stored.name == name {
            replaced = Some(stored);
        } else {
            slots_used[usize::from(stored.slot)] = true;
            push(&mut record, &stored);
        }
    }
    let old_parts = replaced
        .filter(|stored| stored.slot != 0)
        .map(|stored| (stored.slot, stored.value_len.div_ceil(XATTR_PART_LEN)));
    if let Some((slot, count)) = old_parts {
        for part in 0..count {
            edits.put(ino.lid(), part_index(index, slot, part), Vec::new());
        }
    }
    if let Some(value) = value {
        let len_with_value = record.len() + 1 + size_of::<XattrV1>() + name.len() + value.len();
        let mut stored =
            Stored { name, value_len: value.len(), slot: 0, value, is_misplaced: false };
        if len_with_value > MAX_RECORD_LEN_BYTES {
            let slot = (1..=255_u8)
                .find(|&slot| !slots_used[usize::from(slot)])
                .ok_or(FsError::Full("too many attributes have the same hash"))?;
            stored = Stored { slot, value: &[], ..stored };
            for (part, bytes) in value.chunks(XATTR_PART_LEN).enumerate() {
                edits.put(ino.lid(), part_index(index, slot, part), bytes.to_vec());
            }
        }
        push(&mut record, &stored);
        if record.len() > MAX_RECORD_LEN_BYTES {
            return Err(FsError::Full("too many attributes have the same hash"));
        }
    }
    let existed = replaced.is_some();
    *edits.load(ino.lid(), index)? = record;
    Ok(existed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_the_namespaces_are_refused() {
        let errno = |name: &[u8], kind| check_name(name, kind).map_err(|error| error.errno());
        assert_eq!(errno(b"user.a", FileKind::Regular), Ok(()));
        assert_eq!(errno(b"user.a", FileKind::Fifo), Err(1));
        assert_eq!(errno(b"user.", FileKind::Regular), Err(22));
        assert_eq!(errno(b"trusted.a", FileKind::Symlink), Ok(()));
        assert_eq!(errno(b"system.x", FileKind::Regular), Err(95));
        assert_eq!(errno(b"other", FileKind::Regular), Err(95));
        assert_eq!(errno(b"", FileKind::Regular), Err(34));
        assert_eq!(errno(&[b'x'; 256], FileKind::Regular), Err(34));
        assert_eq!(errno(ACL_ACCESS, FileKind::Symlink), Err(95));
    }

    #[test]
    fn no_damage_to_a_record_panics() {
        let mut record = Vec::new();
        let short =
            Stored { name: b"user.a", value_len: 3, slot: 0, value: b"abc", is_misplaced: false };
        push(&mut record, &short);
        push(
            &mut record,
            &Stored { name: b"user.b", value_len: 3000, slot: 1, value: b"", ..short },
        );
        assert_eq!(decode(&record).unwrap().len(), 2);
        for at in 0..record.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = record.clone();
                damaged[at] ^= flip;
                let _ = decode(&damaged);
            }
            let _ = decode(&record[..at]);
        }
    }
}
