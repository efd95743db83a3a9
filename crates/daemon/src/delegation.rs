//! Delegation: the users that the options `users=`, `group=` and `owner` allow to make versions.

mod accounts;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dendro_control::Caller;

use self::accounts::Kind;

/// A user or a group, with the name that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    name: String,
    id: u32,
}

/// Users and groups that may make versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delegates {
    users: Vec<Account>,
    groups: Vec<Account>,
    /// The owner of the image or the device may, too.
    owner: bool,
}

fn accounts(kind: Kind, names: &str) -> Result<Vec<Account>, String> {
    let names = names.split(':').filter(|name| !name.is_empty());
    names
        .map(|name| Ok(Account { name: name.to_owned(), id: accounts::id_of(kind, name)? }))
        .collect()
}

fn names(accounts: &[Account]) -> Option<String> {
    let names: Vec<_> = accounts.iter().map(|account| &*account.name).collect();
    (!names.is_empty()).then(|| names.join(":"))
}

impl Delegates {
    /// Takes `NAME[:NAME…]` as the users; an empty list removes all.
    pub fn set_users(&mut self, names: &str) -> Result<(), String> {
        self.users = accounts(Kind::User, names)?;
        Ok(())
    }

    /// Takes `NAME[:NAME…]` as the groups; an empty list removes all.
    pub fn set_groups(&mut self, names: &str) -> Result<(), String> {
        self.groups = accounts(Kind::Group, names)?;
        Ok(())
    }

    pub const fn set_owner(&mut self, is_meant: bool) {
        self.owner = is_meant;
    }

    /// Whether nobody may.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether `caller` may; the volume lies on `source`.
    pub fn include(&self, caller: &Caller, source: &Path) -> bool {
        let is_owner = || fs::metadata(source).is_ok_and(|of| of.uid() == caller.uid);
        self.users.iter().any(|user| user.id == caller.uid)
            || self.groups.iter().any(|group| caller.is_in(group.id))
            || self.owner && is_owner()
    }

    /// The options that say the same.
    pub fn options(&self) -> Vec<String> {
        let users = names(&self.users).map(|names| format!("users={names}"));
        let groups = names(&self.groups).map(|names| format!("group={names}"));
        let owner = self.owner.then(|| "owner".to_owned());
        users.into_iter().chain(groups).chain(owner).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_and_the_owner_are_meant() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let owner = image.path().metadata().unwrap().uid();
        let caller = |uid, gid, groups: &[u32]| Caller { uid, gid, groups: groups.to_vec() };
        let mut delegates = Delegates::default();
        assert!(delegates.is_empty() && delegates.options().is_empty());
        let others = owner + 1000;
        let is_meant = |of: &Delegates, caller: Caller| of.include(&caller, image.path());
        assert!(!is_meant(&delegates, caller(owner, 0, &[])));
        delegates.set_users(&format!("root:{others}")).unwrap();
        delegates.set_groups("4712").unwrap();
        assert_eq!(delegates.options(), [format!("users=root:{others}"), "group=4712".into()]);
        assert!(is_meant(&delegates, caller(others, 1, &[])));
        assert!(is_meant(&delegates, caller(others + 1, 1, &[2, 4712])));
        assert!(is_meant(&delegates, caller(others + 1, 4712, &[])));
        assert!(!is_meant(&delegates, caller(others + 1, 1, &[2])));
        delegates.set_users("").unwrap();
        delegates.set_owner(true);
        assert!(is_meant(&delegates, caller(owner, 1, &[])));
        assert!(!is_meant(&delegates, caller(others, 1, &[])));
        let why = delegates.set_users("root:no-such-user").unwrap_err();
        assert_eq!(why, "there is no user no-such-user");
    }
}
