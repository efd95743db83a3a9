//! Permission checks for requests that do not come through the kernel.
//!
//! The kernel itself checks requests that come through a mount (`default_permissions`). The rules
//! here are those of Linux, except that capabilities do not count.

use crate::error::{FsError, Result};
use crate::layout::acl::Acl;
use crate::types::Credentials;

bitflags::bitflags! {
    /// What a user wants to do with a file, as the bits of a mode.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Access: u32 {
        /// Run a program; search a directory.
        const EXECUTE = 1;
        /// Change a file; create and remove entries of a directory.
        const WRITE = 2;
        /// Read a file; list a directory.
        const READ = 4;
    }
}

/// The attributes of a file that determine who has access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessRules<'a> {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
    /// The value of the file's access ACL, if it has one.
    pub(crate) acl: Option<&'a [u8]>,
}

/// Refuses `wanted` if the rules do not grant it to `user`: [`FsError::Denied`].
/// [`FsError::Invalid`] for a malformed ACL.
pub(crate) fn check(user: &Credentials, rules: &AccessRules<'_>, wanted: Access) -> Result<()> {
    if is_granted(user, rules, wanted.bits())? {
        Ok(())
    } else {
        Err(FsError::Denied("its permissions do not allow it"))
    }
}

fn is_granted(user: &Credentials, rules: &AccessRules<'_>, wanted: u32) -> Result<bool> {
    let grants = |shift: u32| wanted & !(rules.mode >> shift) & 7 == 0;
    if user.uid == rules.uid {
        return Ok(grants(6));
    }
    // The group's bits are the ACL's mask. If they are 0, the ACL grants nothing beyond the mode.
    if rules.mode & 0o070 != 0
        && let Some(acl) = rules.acl.map(Acl::decode).transpose()?.flatten()
    {
        return Ok(acl.grants(user, rules.gid, wanted));
    }
    Ok(grants(if user.is_in(rules.gid) { 3 } else { 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid: groups[0], groups: groups[1..].to_vec() }
    }

    fn granted(user: &Credentials, mode: u32, acl: Option<&[u8]>) -> u32 {
        let rules = AccessRules { uid: 1, gid: 10, mode, acl };
        let is_granted = |&wanted: &u32| is_granted(user, &rules, wanted).unwrap();
        (0..8).filter(is_granted).fold(0, |all, wanted| all | wanted)
    }

    #[test]
    fn the_first_class_that_fits_counts_alone() {
        assert_eq!(
            granted(&user(1, &[10]), 0o077, None),
            0,
            "the owner is neither group nor other"
        );
        assert_eq!(granted(&user(1, &[10]), 0o500, None), 5);
        assert_eq!(granted(&user(2, &[10]), 0o707, None), 0);
        assert_eq!(granted(&user(2, &[9, 8, 10]), 0o030, None), 3);
        assert_eq!(granted(&user(2, &[9, 8]), 0o774, None), 4);
        assert_eq!(granted(&user(2, &[9]), 0o770, None), 0);
        let rules = AccessRules { uid: 1, gid: 10, mode: 0o640, acl: None };
        assert_eq!(check(&user(2, &[10]), &rules, Access::READ), Ok(()));
        let refused = check(&user(2, &[10]), &rules, Access::READ | Access::WRITE);
        assert_eq!(refused.map_err(|error| error.errno()), Err(13));
    }

    /// The owner may do everything, user 2 write, group 20 read, group 10 (the file's) execute, and
    /// others read. The mask lets no named user and no group write.
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
        assert_eq!(granted(&user(1, &[9]), 0o754, acl), 7);
        assert_eq!(granted(&user(2, &[9]), 0o754, acl), 4, "the mask takes writing away");
        assert_eq!(granted(&user(3, &[10]), 0o754, acl), 1);
        assert_eq!(granted(&user(3, &[20]), 0o754, acl), 4);
        assert_eq!(granted(&user(3, &[9]), 0o754, acl), 4);
        // Either of the two groups grants access, but one group must grant all that is wanted.
        let both = user(3, &[10, 20]);
        let rules = AccessRules { uid: 1, gid: 10, mode: 0o754, acl };
        assert_eq!(
            [1, 4, 5].map(|wanted| is_granted(&both, &rules, wanted).unwrap()),
            [true, true, false]
        );
        // Without the group's bits the list does not count.
        assert_eq!(granted(&user(2, &[9]), 0o704, acl), 4);
        let malformed = AccessRules { acl: Some(b"xx"), ..rules };
        assert!(is_granted(&user(2, &[9]), &malformed, 4).is_err());
    }
}
