//! Users and groups by name.

use std::fs;
use std::process::{Command, Stdio};

/// A kind of account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    User,
    Group,
}

impl Kind {
    const fn file(self) -> &'static str {
        match self {
            Self::User => "/etc/passwd",
            Self::Group => "/etc/group",
        }
    }

    /// The name of the database for getent(1).
    const fn database(self) -> &'static str {
        match self {
            Self::User => "passwd",
            Self::Group => "group",
        }
    }
}

/// The number of the user or the group `name`, which may be the number itself.
pub(super) fn id_of(kind: Kind, name: &str) -> Result<u32, String> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let local = fs::read_to_string(kind.file()).unwrap_or_default();
    let found = id_in(&local, name).or_else(|| id_in(&getent(kind, name)?, name));
    found.ok_or_else(|| match kind {
        Kind::User => format!("there is no user {name}"),
        Kind::Group => format!("there is no group {name}"),
    })
}

/// The output of getent(1), which also knows the accounts of a network.
fn getent(kind: Kind, name: &str) -> Option<String> {
    let output = Command::new("getent")
        .args([kind.database(), "--", name])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8(output.stdout).ok()
}

/// The number of `name` in lines of such a database.
fn id_in(lines: &str, name: &str) -> Option<u32> {
    lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers() {
        let lines = "root:x:0:0:root:/root:/bin/sh\nal:x:1000:1000::/home/al:/bin/sh\nbad:x\n";
        assert_eq!(id_in(lines, "al"), Some(1000));
        assert_eq!(id_in(lines, "a"), None);
        assert_eq!(id_in(lines, "bad"), None);
        assert_eq!(id_of(Kind::User, "root"), Ok(0));
        assert_eq!(id_of(Kind::Group, "4711"), Ok(4711));
        let none = id_of(Kind::Group, "no-such-group");
        assert_eq!(none, Err("there is no group no-such-group".into()));
    }
}
