//! Hiding names and contents in records, for copies of a volume that are given away.
//!
//! Each name is replaced by another of the same length, by a keyed permutation: equal names stay
//! equal, different ones different, also as parts of symbolic links. A hidden name no longer hashes
//! to the record that holds it, so its entry states instead whether the name did, and names are
//! searched for ([`NameHasher::is_hidden`]). Contents become zeros. Numbers, sizes, modes, owners
//! and times stay.
//!
//! Where a record is malformed it stays so in the same way, and what follows becomes zeros.

use std::hash::Hasher;

use dendro_disk::Lid;
use siphasher::sip::SipHasher24;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::format::{
    DAMAGE_BASE, DAMAGE_END, DIR_BASE, DamageV1, DirEntryV1, HEAD_INDEX, HIDDEN_NAMES, InodeV1,
    MISPLACED, RECORD_VERSION, SCRUB_INDEX, ScrubV1, VOLUME_LIST, VolumeV1, XATTR_BASE, XATTR_END,
    XattrV1, split_head,
};
use crate::layout::names::NameHasher;
use crate::layout::xattr_records::{CAPABILITY, SLOT_AND_PART, is_acl};

/// The type of a symbolic link, in an i-node's mode.
const TYPE_MASK: u32 = 0o170_000;
const SYMLINK: u32 = 0o120_000;

/// Sets of bytes that names may have. A byte is replaced by one of the same set, and stays as it is
/// if it is in none. So what was valid UTF-8 stays that.
const SETS: [&[u8]; 4] = [
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
    &[
        0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8b, 0x8c, 0x8d, 0x8e,
        0x8f,
    ],
    &[
        0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e,
        0x9f,
    ],
    &[
        0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae,
        0xaf, 0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd,
        0xbe, 0xbf,
    ],
];

/// Hides names and contents.
pub struct Hider {
    sip: SipHasher24,
    /// The hashes of names in the volume: one, unless a repair had to take another.
    hashers: Vec<NameHasher>,
}

impl Hider {
    /// Hides names by `key`, which must be kept nowhere.
    #[must_use]
    pub fn new(key: &[u8; 16]) -> Self {
        Self { sip: SipHasher24::new_with_key(key), hashers: Vec::new() }
    }

    /// Takes note of how names hash, from a volume's description in any version.
    pub fn learn(&mut self, list: u64, index: u64, record: &[u8]) {
        if (Lid(list), index) == (VOLUME_LIST, HEAD_INDEX)
            && let Ok((head, _)) = split_head::<VolumeV1>(record, "")
        {
            self.hashers.push(NameHasher::new(&head.hash_key));
        }
    }

    /// Replaces a name.
    pub fn hide_name(&self, name: &mut [u8]) {
        // Two passes, so that each byte depends on all others.
        for at in 0..name.len() {
            let (before, rest) = name.split_at_mut(at);
            self.replace(&mut rest[0], 0, at, before);
        }
        for at in (0..name.len()).rev() {
            let (before, behind) = name.split_at_mut(at + 1);
            self.replace(&mut before[at], 1, at, behind);
        }
    }

    fn replace(&self, byte: &mut u8, pass: u8, at: usize, by: &[u8]) {
        let Some(set) = SETS.iter().find(|set| set.contains(byte)) else { return };
        let mut hasher = self.sip;
        hasher.write(&[pass, at as u8]);
        hasher.write(by);
        let number = set.iter().position(|of| of == byte).unwrap_or(0) as u64;
        let len = set.len() as u64;
        *byte = set[((number + hasher.finish() % len) % len) as usize];
    }

    /// Replaces the names in a path.
    pub fn hide_path(&self, path: &mut [u8]) {
        path.split_mut(|&byte| byte == b'/').for_each(|name| self.hide_name(name));
    }

    /// Hides what the record of a list says.
    pub fn hide(&self, list: u64, index: u64, record: &mut [u8]) {
        match (Lid(list), index) {
            (VOLUME_LIST, HEAD_INDEX) => self.description(record),
            (VOLUME_LIST, DAMAGE_BASE..DAMAGE_END) => self.damage(record),
            (VOLUME_LIST, SCRUB_INDEX) => keep(record, size_of::<ScrubV1>()),
            (VOLUME_LIST, _) if record.len() <= 24 => {}
            (_, HEAD_INDEX) => self.inode(record),
            (_, XATTR_BASE..XATTR_END) if index & SLOT_AND_PART != 0 => record.fill(0),
            (_, XATTR_BASE..XATTR_END) => self.xattrs(index, record),
            (_, DIR_BASE..) => self.entries(index, record),
            // Orphans are numbers alone.
            (_, _) => keep(record, 8),
        }
    }

    fn description(&self, record: &mut [u8]) {
        let Ok((head, rest)) = VolumeV1::mut_from_prefix(record) else { return record.fill(0) };
        let header_len = usize::from(head.header_len.get()).saturating_sub(size_of::<VolumeV1>());
        let label_len = usize::from(head.label_len.get());
        head.hash_key = [0; 16];
        head.read_only_compatible |= HIDDEN_NAMES;
        let (_, label) = rest.split_at_mut(header_len.min(rest.len()));
        let (label, rest) = label.split_at_mut(label_len.min(label.len()));
        self.hide_name(label);
        rest.fill(0);
    }

    fn damage(&self, record: &mut [u8]) {
        let Ok((head, rest)) = DamageV1::mut_from_prefix(record) else { return record.fill(0) };
        let (path, problem) = rest.split_at_mut(usize::from(head.path_len.get()).min(rest.len()));
        self.hide_path(path);
        problem.fill(b'-');
    }

    fn inode(&self, record: &mut [u8]) {
        let Ok((head, rest)) = InodeV1::mut_from_prefix(record) else { return record.fill(0) };
        let header_len = usize::from(head.header_len.get()).saturating_sub(size_of::<InodeV1>());
        if header_len > rest.len() {
            return rest.fill(0);
        }
        let data = &mut rest[header_len..];
        match head.mode.get() & TYPE_MASK {
            SYMLINK => self.hide_path(data),
            _ => data.fill(0),
        }
    }

    fn entries(&self, index: u64, record: &mut [u8]) {
        each_entry::<DirEntryV1>(record, |head, rest| {
            let name = rest.get_mut(..usize::from(head.name_len))?;
            let is_placed = self.hashers.iter().any(|of| of.dir_index(name) == index);
            head.reserved = if is_placed { 0 } else { MISPLACED };
            self.hide_name(name);
            Some(name.len())
        });
    }

    fn xattrs(&self, index: u64, record: &mut [u8]) {
        each_entry::<XattrV1>(record, |head, rest| {
            let name_len = usize::from(head.name_len);
            let name = rest.get_mut(..name_len)?;
            let is_placed = self.hashers.iter().any(|of| of.xattr_index(name) == index);
            head.reserved = u16::from(if is_placed { 0 } else { MISPLACED }).into();
            let keeps_value = is_acl(name) || name == CAPABILITY;
            if !keeps_value {
                let prefix_len =
                    name.iter().position(|&byte| byte == b'.').map_or(0, |dot| dot + 1);
                self.hide_name(&mut name[prefix_len..]);
            }
            let value_len = if head.slot == 0 { head.value_len.get() as usize } else { 0 };
            let end = name_len.checked_add(value_len)?;
            match rest.get_mut(name_len..end) {
                Some(value) if !keeps_value => value.fill(0),
                Some(_) => {}
                None => {
                    rest[name_len..].fill(0);
                    return Some(rest.len());
                }
            }
            Some(end)
        });
    }
}

/// Keeps the first bytes, and makes zeros of the others.
fn keep(record: &mut [u8], len: usize) {
    if let Some(rest) = record.get_mut(len..) {
        rest.fill(0);
    }
}

/// Calls `hide` with the head of each entry of a record and what follows it, to learn how much of
/// that belongs to the entry. `None`: it is cut off, and zeros are put in its place.
fn each_entry<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned>(
    record: &mut [u8],
    mut hide: impl FnMut(&mut T, &mut [u8]) -> Option<usize>,
) {
    match record.first() {
        Some(&RECORD_VERSION) => {}
        _ => return keep(record, 1),
    }
    let mut at = 1;
    while at < record.len() {
        let Ok((head, rest)) = T::mut_from_prefix(&mut record[at..]) else {
            return record[at..].fill(0);
        };
        match hide(head, rest) {
            Some(len) => at += size_of::<T>() + len,
            None => return rest.fill(0),
        }
    }
}

/// Where a file ends whose i-node this record is; `None` if it is none, or has no data in pages.
#[must_use]
pub fn end_of_data(index: u64, record: &[u8]) -> Option<u64> {
    let (head, _) = split_head::<InodeV1>(record, "").ok().filter(|_| index == HEAD_INDEX)?;
    Some(head.size.get())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_stay_different_and_keep_length_and_kind() {
        let hider = Hider::new(&[5; 16]);
        let mut hidden = BTreeSet::new();
        let mut count = 0;
        for len in 1..4 {
            for number in 0..40_u32.pow(len) {
                let sign = |place: u32| SETS[0][(number / 40_u32.pow(place) % 40) as usize];
                let mut name: Vec<u8> = (0..len).map(sign).collect();
                hider.hide_name(&mut name);
                assert_eq!(name.len(), len as usize);
                hidden.insert(name);
                count += 1;
            }
        }
        assert_eq!(hidden.len(), count);
    }

    #[test]
    fn names_stay_utf_8_and_dots_stay_dots() {
        let hider = Hider::new(&[5; 16]);
        for text in ["Überraschung.tar.gz", "日本語のファイル", "🎄-2026", "..", ".profile"]
        {
            let mut name = text.as_bytes().to_vec();
            hider.hide_name(&mut name);
            let hidden = std::str::from_utf8(&name).unwrap();
            assert_eq!(hidden == text, text == "..", "{hidden}");
            assert_eq!(hidden.find('.'), text.find('.'));
        }
    }

    #[test]
    fn a_path_is_made_of_its_names() {
        let hider = Hider::new(&[5; 16]);
        let hidden = |text: &str| {
            let mut path = text.as_bytes().to_vec();
            hider.hide_path(&mut path);
            String::from_utf8(path).unwrap()
        };
        assert_eq!(hidden("../some/where"), format!("../{}/{}", hidden("some"), hidden("where")));
    }

    #[test]
    fn no_bytes_panic() {
        let hider = Hider::new(&[5; 16]);
        let mut rng = dendro_base::Rng::new(7);
        for round in 0..20_000_u64 {
            let mut record = vec![0; rng.below(300) as usize];
            rng.fill(&mut record);
            if let Some(first) = record.first_mut() {
                *first = RECORD_VERSION;
            }
            let index = [0, XATTR_BASE, XATTR_BASE + 1, DIR_BASE + 9, DAMAGE_BASE, SCRUB_INDEX];
            hider.hide(2 + round % 3, index[round as usize % index.len()], &mut record);
        }
    }
}
