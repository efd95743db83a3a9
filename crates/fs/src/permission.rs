//! Who may do what with a file, for requests that do not come through the kernel, which checks those that
//! do by itself (`default_permissions`). The rules are Linux's, but that capabilities count for nothing.

use crate::acl::Acl;
use crate::error::{FsError, Result};

/// A user, and the groups that it is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The user.
    pub uid: u32,
    /// The group of what it makes.
    pub gid: u32,
    /// The groups beside that.
    pub groups: Vec<u32>,
}

bitflags::bitflags! {
    /// What somebody wants to do, with the bits that modes have for it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Wish: u32 {
        /// Run it; of a directory: go through it.
        const EXECUTE = 1;
        /// Change it; of a directory: make and remove names.
        const WRITE = 2;
        /// Read it; of a directory: list it.
        const READ = 4;
    }
}

/// What permissions depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
    /// The value of the attribute that is the file's ACL, if it has one.
    pub(crate) acl: Option<&'a [u8]>,
}

/// That somebody may not.
pub(crate) const DENIED: FsError = FsError::Denied("its permissions do not allow it");

impl Who {
    /// Whether it is in the group.
    #[must_use]
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Refuses what the rules do not allow.
    ///
    /// # Errors
    /// [`FsError::Denied`]; [`FsError::Invalid`] for an ACL that is none.
    pub(crate) fn check(&self, rules: &Rules<'_>, wish: Wish) -> Result<()> {
        if self.may(rules, wish.bits())? { Ok(()) } else { Err(DENIED) }
    }

    fn may(&self, rules: &Rules<'_>, wish: u32) -> Result<bool> {
        let grants = |shift: u32| wish & !(rules.mode >> shift) & 7 == 0;
        if self.uid == rules.uid {
            return Ok(grants(6));
        }
        // The group's bits are the mask of an ACL: where they are none, it says nothing more.
        if rules.mode & 0o070 != 0
            && let Some(acl) = rules.acl.map(Acl::decode).transpose()?.flatten()
        {
            return Ok(acl.grants(self, rules.gid, wish));
        }
        Ok(grants(if self.is_in(rules.gid) { 3 } else { 0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(uid: u32, groups: &[u32]) -> Who {
        Who { uid, gid: groups[0], groups: groups[1..].to_vec() }
    }

    fn granted(who: &Who, mode: u32, acl: Option<&[u8]>) -> u32 {
        let rules = Rules { uid: 1, gid: 10, mode, acl };
        (0..8).filter(|&wish| who.may(&rules, wish).unwrap()).fold(0, |all, wish| all | wish)
    }

    #[test]
    fn the_first_class_that_fits_counts_alone() {
        assert_eq!(granted(&who(1, &[10]), 0o077, None), 0, "the owner is neither group nor other");
        assert_eq!(granted(&who(1, &[10]), 0o500, None), 5);
        assert_eq!(granted(&who(2, &[10]), 0o707, None), 0);
        assert_eq!(granted(&who(2, &[9, 8, 10]), 0o030, None), 3);
        assert_eq!(granted(&who(2, &[9, 8]), 0o774, None), 4);
        assert_eq!(granted(&who(2, &[9]), 0o770, None), 0);
        let rules = Rules { uid: 1, gid: 10, mode: 0o640, acl: None };
        assert_eq!(who(2, &[10]).check(&rules, Wish::READ), Ok(()));
        let refused = who(2, &[10]).check(&rules, Wish::READ | Wish::WRITE);
        assert_eq!(refused.map_err(|error| error.errno()), Err(13));
    }

    /// The owner may do all, user 2 write, group 20 read, group 10 (the file's) execute, others read; no
    /// named one and no group may write.
    fn list() -> Vec<u8> {
        let entries = [
            (1_u16, 7_u16, u32::MAX),
            (2, 6, 2),
            (4, 1, u32::MAX),
            (8, 4, 20),
            (0x10, 5, u32::MAX),
            (0x20, 4, u32::MAX),
        ];
        let mut value = vec![2, 0, 0, 0];
        for (tag, perm, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&perm.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    #[test]
    fn an_acl_names_users_and_groups_and_its_mask_bounds_them() {
        let list = list();
        let acl = Some(&*list);
        assert_eq!(granted(&who(1, &[9]), 0o754, acl), 7);
        assert_eq!(granted(&who(2, &[9]), 0o754, acl), 4, "the mask takes writing away");
        assert_eq!(granted(&who(3, &[10]), 0o754, acl), 1);
        assert_eq!(granted(&who(3, &[20]), 0o754, acl), 4);
        assert_eq!(granted(&who(3, &[9]), 0o754, acl), 4);
        // Either of the two groups, but no more than what one of them gives at once.
        let both = who(3, &[10, 20]);
        let rules = Rules { uid: 1, gid: 10, mode: 0o754, acl };
        assert_eq!([1, 4, 5].map(|wish| both.may(&rules, wish).unwrap()), [true, true, false]);
        // Without the group's bits the list says nothing.
        assert_eq!(granted(&who(2, &[9]), 0o704, acl), 4);
        assert!(who(2, &[9]).may(&Rules { acl: Some(b"xx"), ..rules }, 4).is_err());
    }
}
