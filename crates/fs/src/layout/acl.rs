//! POSIX access control lists (the withdrawn POSIX 1003.1e draft 17, as Linux has it): their form
//! in extended attributes, and how a list and the file's mode determine each other.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FsError, Result};
use crate::types::Credentials;

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// An entry, in the attribute as in memory.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
struct Entry {
    tag: U16,
    perm: U16,
    id: U32,
}

const _: () = assert!(size_of::<Entry>() == 8);

/// A valid list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// The list in an attribute's value; `None` if it has no entries: setting such a list removes
    /// the attribute.
    pub(crate) fn decode(value: &[u8]) -> Result<Option<Self>> {
        const BAD: FsError = FsError::Invalid("malformed ACL");
        if value.is_empty() {
            return Ok(None);
        }
        let (version, rest) = U32::read_from_prefix(value).map_err(|_| BAD)?;
        if version.get() != VERSION {
            return Err(FsError::NotSupported("unknown version of ACL"));
        }
        let entries = <[Entry]>::ref_from_bytes(rest).map_err(|_| BAD)?;
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Self { entries: entries.to_vec() };
        if acl.is_valid() { Ok(Some(acl)) } else { Err(BAD) }
    }

    /// The attribute's value.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = U32::from(VERSION).as_bytes().to_vec();
        value.extend_from_slice(self.entries.as_bytes());
        value
    }

    /// A list has entries for the owner, named users, the group, named groups, the mask and others,
    /// in this order. Owner, group and others have one entry each; the mask has at most one, and
    /// must have one if users or groups are named.
    fn is_valid(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag.get() == tag).count();
        let named = count(USER) + count(GROUP);
        self.entries.iter().all(|entry| entry.perm.get() <= 7)
            && self.entries.is_sorted_by_key(|entry| entry.tag.get())
            && count(USER_OBJ) == 1
            && count(GROUP_OBJ) == 1
            && count(OTHER) == 1
            && count(MASK) <= 1
            && (named == 0 || count(MASK) == 1)
            && self.entries.len() == 3 + named + count(MASK)
    }

    fn entry(&mut self, tag: u16) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.tag.get() == tag)
    }

    fn perm(&self, tag: u16) -> Option<u32> {
        self.entries.iter().find(|entry| entry.tag.get() == tag).map(|e| u32::from(e.perm.get()))
    }

    /// Whether the list grants all bits of `wanted` to `user`, who is not the owner of the file.
    /// `gid` is the group of the file.
    pub(crate) fn grants(&self, user: &Credentials, gid: u32, wanted: u32) -> bool {
        let mask = self.perm(MASK).unwrap_or(7);
        let within = |perm: u32| perm & wanted == wanted;
        let named = self.entries.iter().map(|entry| {
            let Entry { tag, perm, id } = *entry;
            (tag.get(), u32::from(perm.get()), id.get())
        });
        let mut is_of_group = false;
        for (tag, perm, id) in named {
            match tag {
                USER if id == user.uid => return within(perm & mask),
                GROUP_OBJ | GROUP if user.is_in(if tag == GROUP { id } else { gid }) => {
                    is_of_group = true;
                    if within(perm) {
                        return within(perm & mask);
                    }
                }
                OTHER => return !is_of_group && within(perm),
                _ => {}
            }
        }
        false
    }

    /// Whether the nine bits of a mode express the whole list.
    pub(crate) const fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// The nine mode bits of a file with this list. The group's bits are those of the mask if there
    /// is one.
    pub(crate) fn mode_bits(&self) -> u32 {
        let user = self.perm(USER_OBJ).unwrap_or(0);
        let group = self.perm(MASK).or(self.perm(GROUP_OBJ)).unwrap_or(0);
        user << 6 | group << 3 | self.perm(OTHER).unwrap_or(0)
    }

    /// Changes the list as chmod(2) to `mode` does.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        let bits = |shift: u32| U16::new(((mode >> shift) & 7) as u16);
        let group = if self.perm(MASK).is_some() { MASK } else { GROUP_OBJ };
        for (tag, shift) in [(USER_OBJ, 6), (group, 3), (OTHER, 0)] {
            if let Some(entry) = self.entry(tag) {
                entry.perm = bits(shift);
            }
        }
    }

    /// Turns a directory's default list into the access list of a file that is created in it with
    /// `mode`. Returns the file's mode: what both allow.
    pub(crate) fn inherit(&mut self, mode: u32) -> u32 {
        let allowed = self.mode_bits() & mode;
        self.set_mode(allowed);
        mode & !0o777 | allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = vec![2, 0, 0, 0];
        for &(tag, perm, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&perm.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    const NONE: u32 = u32::MAX;

    #[test]
    fn a_list_with_a_mask_shows_it_as_the_groups_bits() {
        let value = acl(&[
            (USER_OBJ, 7, NONE),
            (USER, 6, 1000),
            (GROUP_OBJ, 5, NONE),
            (MASK, 4, NONE),
            (OTHER, 0, NONE),
        ]);
        let mut list = Acl::decode(&value).unwrap().unwrap();
        assert_eq!(list.encode(), value);
        assert_eq!(list.mode_bits(), 0o740);
        assert!(!list.is_minimal());
        list.set_mode(0o671);
        assert_eq!(list.mode_bits(), 0o671);
        assert_eq!(list.perm(GROUP_OBJ), Some(5));
        assert_eq!(list.inherit(0o4640), 0o4640);
    }

    #[test]
    fn malformed_lists_are_refused() {
        let minimal = [(USER_OBJ, 6, NONE), (GROUP_OBJ, 4, NONE), (OTHER, 0, NONE)];
        let list = Acl::decode(&acl(&minimal)).unwrap().unwrap();
        assert!(list.is_minimal() && list.mode_bits() == 0o640);
        assert_eq!(Acl::decode(b""), Ok(None));
        assert_eq!(Acl::decode(&acl(&[])), Ok(None));
        assert!(Acl::decode(&acl(&minimal)[..10]).is_err());
        assert!(Acl::decode(&[1, 0, 0, 0]).is_err());
        assert!(Acl::decode(&acl(&minimal[..2])).is_err());
        assert!(Acl::decode(&acl(&[minimal[1], minimal[0], minimal[2]])).is_err());
        let named = [minimal[0], (USER, 7, 1), minimal[1], minimal[2]];
        assert!(Acl::decode(&acl(&named)).is_err(), "named users need a mask");
        assert!(Acl::decode(&acl(&[minimal[0], minimal[1], (OTHER, 8, NONE)])).is_err());
        assert!(Acl::decode(&acl(&[minimal[0], minimal[1], minimal[2], (0x40, 1, 1)])).is_err());
    }
}
