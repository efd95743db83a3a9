//! Names: which are valid, and the index of the record that a name hashes to.

use siphasher::sip::SipHasher24;

use super::format::{DIR_BASE, DIR_HASH_BITS, XATTR_BASE, XATTR_HASH_BITS};
use crate::error::{FsError, Result};
use crate::types::MAX_NAME_LEN_BYTES;

/// The keyed hash of names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameHasher {
    sip: SipHasher24,
    /// The bits of the hash that count: all of them, except in tests that need collisions.
    mask: u64,
    /// Names are hidden, and hash to nothing.
    is_hidden: bool,
}

impl NameHasher {
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        Self { sip: SipHasher24::new_with_key(key), mask: u64::MAX, is_hidden: false }
    }

    /// That of a volume whose names are hidden.
    pub(crate) fn of_hidden_names() -> Self {
        Self { is_hidden: true, ..Self::new(&[0; 16]) }
    }

    /// Whether names are hidden. They hash to nothing then, and their entries must be searched for.
    pub(crate) const fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// Uses only the bits of the hash that `mask` has: with 0, all names collide.
    pub(crate) const fn with_mask(self, mask: u64) -> Self {
        Self { mask, ..self }
    }

    /// The index of the record that holds the directory entry `name`.
    pub(crate) fn dir_index(&self, name: &[u8]) -> u64 {
        // The hash is never 0, so that every cookie is larger than those of "." and "..".
        DIR_BASE | ((self.sip.hash(name) & self.mask) >> (64 - DIR_HASH_BITS)).max(1)
    }

    /// `bytes` as the name of a directory entry.
    pub(crate) fn name<'a>(&self, bytes: &'a [u8]) -> Name<'a> {
        Name { bytes, index: self.dir_index(bytes) }
    }

    /// The index of the record that holds the extended attribute `name`.
    pub(crate) fn xattr_index(&self, name: &[u8]) -> u64 {
        XATTR_BASE | (((self.sip.hash(name) & self.mask) >> (64 - XATTR_HASH_BITS)) << 16)
    }
}

/// A name, with the index of the record that holds or would hold its entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) index: u64,
}

/// Refuses what cannot be the name of a directory entry.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME_LEN_BYTES {
        return Err(FsError::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(FsError::Invalid("not a file name"));
    }
    Ok(())
}

/// Whether `name` is `.` or `..`.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Refuses what cannot be the name of a new directory entry.
pub(crate) fn check_new_name(name: &[u8]) -> Result<()> {
    check_name(name)?;
    if is_dots(name) { Err(FsError::Exists) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_to_their_regions() {
        for hasher in [NameHasher::new(&[7; 16]), NameHasher::new(&[7; 16]).with_mask(0)] {
            for name in [b"a".as_slice(), b"b", &[b'x'; 255]] {
                assert!(hasher.dir_index(name) > DIR_BASE);
                let xattr = hasher.xattr_index(name);
                assert!((XATTR_BASE..2 * XATTR_BASE).contains(&xattr) && xattr & 0xffff == 0);
            }
        }
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        assert_eq!(check_name(&[b'x'; 256]), Err(FsError::NameTooLong));
        assert!(check_name(&[b'x'; 255]).is_ok());
        assert!(check_name(b"").is_err());
        assert!(check_name(b"a/b").is_err());
        assert_eq!(check_new_name(b".."), Err(FsError::Exists));
    }
}
